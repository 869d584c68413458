use super::*;
use crate::content::value_of;

const WELL: Ended = Ended::Well { fua: false };

fn write(oracle: &mut Oracle, number: u64) -> ChangeId {
    oracle.change_begins(0, 0, 1, Change::Write { number })
}

fn read(oracle: &mut Oracle, number: u64) -> bool {
    let begin = oracle.read_begins();
    read_since(oracle, begin, number)
}

fn read_since(oracle: &mut Oracle, begin: u64, number: u64) -> bool {
    let value = if number == 0 { 0 } else { value_of(number, 0, 0) };
    oracle.read_ends(0, 0, begin, [Some(value)].into_iter()).is_ok()
}

#[test]
fn an_acknowledged_write_is_what_is_read() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    assert!(read(&mut oracle, 0));
    oracle.change_ends(one, WELL);
    assert!(!read(&mut oracle, 0));
    assert!(read(&mut oracle, 1));
    let begin = oracle.read_begins();
    assert!(oracle.read_ends(0, 0, begin, [None].into_iter()).is_err());
}

#[test]
fn a_read_under_a_write_sees_the_old_or_the_new() {
    let mut oracle = Oracle::new(&[1]);
    let begin = oracle.read_begins();
    let again = oracle.read_begins();
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, WELL);
    assert!(read_since(&mut oracle, begin, 0));
    assert!(read_since(&mut oracle, again, 1));
}

#[test]
fn the_first_read_decides_between_overlapping_writes() {
    for first in [1, 2] {
        let mut oracle = Oracle::new(&[1]);
        let (one, two) = (write(&mut oracle, 1), write(&mut oracle, 2));
        oracle.change_ends(one, WELL);
        oracle.change_ends(two, WELL);
        assert!(read(&mut oracle, first));
        assert!(!read(&mut oracle, 3 - first));
        assert!(!read(&mut oracle, 0));
    }
}

#[test]
fn a_failed_write_is_there_or_not_for_good() {
    for seen in [0, 1] {
        let mut oracle = Oracle::new(&[1]);
        let one = write(&mut oracle, 1);
        oracle.change_ends(one, Ended::Unknown);
        assert!(read(&mut oracle, seen));
        assert!(!read(&mut oracle, 1 - seen));
    }
}

#[test]
fn only_what_was_flushed_outlives_a_loss() {
    for begin_first in [false, true] {
        let mut oracle = Oracle::new(&[1]);
        let mut begin = oracle.flush_begins();
        let one = write(&mut oracle, 1);
        oracle.change_ends(one, WELL);
        if !begin_first {
            begin = oracle.flush_begins();
        }
        oracle.flushed(0, begin);
        oracle.lost(0);
        assert_eq!(read(&mut oracle, 0), begin_first);
        assert!(read(&mut oracle, 1) != begin_first);
    }
}

#[test]
fn a_write_with_fua_is_durable_by_itself() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, Ended::Well { fua: true });
    oracle.lost(0);
    assert!(!read(&mut oracle, 0));
}

#[test]
fn a_restarted_back_end_changes_nothing_that_is_read() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, WELL);
    oracle.restarted(0);
    assert!(!read(&mut oracle, 0));
    let begin = oracle.flush_begins();
    oracle.flushed(0, begin);
    oracle.client_gone(0, true);
    assert!(!read(&mut oracle, 0), "a flush has succeeded");
}

#[test]
fn a_process_that_ends_loses_only_what_it_had_not_sent_again() {
    for (restarts, sends) in [(false, false), (true, false), (true, true)] {
        let mut oracle = Oracle::new(&[1]);
        let one = write(&mut oracle, 1);
        oracle.change_ends(one, WELL);
        if restarts {
            oracle.restarted(0);
        }
        if sends {
            oracle.sent_again(0);
        }
        oracle.client_gone(0, false);
        assert_eq!(read(&mut oracle, 0), restarts && !sends);
    }
}

#[test]
fn while_the_news_of_a_drop_is_on_the_way_reads_find_the_one_or_the_other() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, WELL);
    oracle.dropped(0);
    assert!(read(&mut oracle, 1), "in the cache");
    assert!(read(&mut oracle, 0), "in the back end");
    oracle.heard(0);
    assert!(read(&mut oracle, 0));
    assert!(!read(&mut oracle, 1), "the cache was told to drop it");
}

#[test]
fn a_replay_cut_short_by_the_end_of_the_process_leaves_an_older_write_and_none_that_was_flushed_over() {
    let mut oracle = Oracle::new(&[1]);
    for number in 1..=3 {
        let change = write(&mut oracle, number);
        oracle.change_ends(change, WELL);
        if number == 1 {
            let begin = oracle.flush_begins();
            oracle.flushed(0, begin);
        }
    }
    oracle.sends_again(0);
    assert!(!read(&mut oracle, 2), "while the process lives, nobody reads before the replay is done");
    oracle.client_gone(0, false);
    assert!(!read(&mut oracle, 0));
    assert!(read(&mut oracle, 2));
}

#[test]
fn a_loss_that_the_process_did_not_live_to_tell_stays_untold() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, WELL);
    oracle.lost(0);
    oracle.client_gone(0, false);
    assert!(read(&mut oracle, 0));
    let begin = oracle.flush_begins();
    oracle.flushed(0, begin);
    assert!(read(&mut oracle, 0));
}

#[test]
fn an_orphan_may_go_with_the_back_end_and_what_was_written_over_it_may_not() {
    for over in [false, true] {
        let mut oracle = Oracle::new(&[1]);
        let one = write(&mut oracle, 1);
        oracle.change_ends(one, WELL);
        oracle.client_gone(0, false);
        assert!(!read(&mut oracle, 0), "the back end still has it");
        if over {
            let two = write(&mut oracle, 2);
            oracle.change_ends(two, WELL);
        }
        oracle.restarted(0);
        assert_eq!(read(&mut oracle, 0), !over);
        assert_eq!(read(&mut oracle, 2), over);
    }
}

#[test]
fn the_next_process_makes_an_orphan_durable() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, WELL);
    oracle.client_gone(0, false);
    let begin = oracle.flush_begins();
    oracle.flushed(0, begin);
    oracle.restarted(0);
    assert!(!read(&mut oracle, 0));
    assert!(read(&mut oracle, 1));
}

#[test]
fn what_was_refused_never_shows() {
    let mut oracle = Oracle::new(&[1]);
    let one = write(&mut oracle, 1);
    oracle.change_ends(one, Ended::Refused);
    assert!(!read(&mut oracle, 1));
}

#[test]
fn a_crash_leaves_what_was_under_way_open_once() {
    let mut oracle = Oracle::new(&[1]);
    write(&mut oracle, 1);
    oracle.crashed();
    assert!(read(&mut oracle, 1));
    assert!(!read(&mut oracle, 0));
}
