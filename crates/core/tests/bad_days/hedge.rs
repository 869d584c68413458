//! A slot is late: the back end is asked too, and the first good answer wins.

use crate::driver::{Action, CacheConfig, IoError, Limits, MS, PAGE, ReplyError, World, WriteMode, config, is};

/// Pages 0 to 600 are in slots, and not in memory, which keeps so many pages besides 300 in transit.
fn slots_only(kept: u32) -> World {
    slots_only_with(kept, Limits::default())
}

fn slots_only_with(kept: u32, limits: Limits) -> World {
    let base = config(WriteMode::Through);
    let mut c = CacheConfig { slots: 1024, frames: 300 + kept, transit_frames: 300, limits, ..base };
    c.volumes[0].bytes = 128 << 20;
    let mut w = World::new(c);
    for page in 0..=600 + u64::from(kept) {
        w.warm(10_000 + page, page);
    }
    w
}

/// Block 0 of page 0 is late, and the back end was asked for it.
fn hedged() -> World {
    let mut w = slots_only(4);
    w.read(1, 0, 4096);
    assert_eq!(w.count(is!(Action::ReadSlot { .. })), 1);
    w.tick(90 * MS);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 0, "it is not late yet");
    w.tick(20 * MS);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1);
    w
}

fn slot_answers(w: &mut World, result: Result<(), IoError>) {
    w.answer(result, is!(Action::ReadSlot { .. }));
}

fn backend_answers(w: &mut World, result: Result<(), IoError>) {
    w.answer(result, is!(Action::ReadBackend { .. }));
}

/// Nothing is left, and the block is a hit in memory.
fn ends_well(mut w: World) {
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    w.settle();
    w.sent_all();
    assert!(w.cache.is_idle(), "{:?}", w.cache.gauges());
    w.read(2, 0, 4096);
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "what was read is kept");
}

#[test]
fn the_slot_wins_if_it_answers_first() {
    let mut w = hedged();
    slot_answers(&mut w, Ok(()));
    ends_well(w);
}

#[test]
fn the_back_end_wins_if_it_answers_first() {
    let mut w = hedged();
    let frame_of = |w: &World| {
        w.open.iter().find_map(|action| if let Action::ReadSlot { frame, .. } = *action { Some(frame) } else { None })
    };
    let late = frame_of(&w).expect("the slot is silent");
    backend_answers(&mut w, Ok(()));
    assert_ne!(w.cache.pieces(w.sending[&1])[0].frame, late, "the slot may still write the frame that is being sent");
    assert_eq!(w.count(is!(Action::WriteSlot { .. })), 0, "the slot has the block");
    ends_well(w);
}

#[test]
fn the_slots_answer_counts_when_the_back_end_has_failed() {
    let mut w = hedged();
    backend_answers(&mut w, Err(IoError::TimedOut));
    w.tick(100 * MS);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 0, "a part is hedged once");
    assert!(!w.is_answered(1));
    slot_answers(&mut w, Ok(()));
    ends_well(w);
}

#[test]
fn the_back_ends_answer_counts_when_the_slot_has_failed() {
    let mut w = hedged();
    slot_answers(&mut w, Err(IoError::Failed));
    assert!(!w.is_answered(1));
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1, "the back end is asked once");
    backend_answers(&mut w, Ok(()));
    assert_eq!(w.count(is!(Action::WriteSlot { .. })), 1, "the block has left the slot, and is stored again");
    ends_well(w);
}

#[test]
fn the_back_ends_answer_counts_when_the_slot_has_lied() {
    let mut w = hedged();
    let op = w.find(is!(Action::ReadSlot { .. })).expect("the slot is silent");
    w.done_with_bad_blocks(op);
    assert!(!w.is_answered(1), "answered with bytes that nobody wrote");
    backend_answers(&mut w, Ok(()));
    ends_well(w);
}

#[test]
fn the_read_fails_when_both_have() {
    let mut w = hedged();
    slot_answers(&mut w, Err(IoError::Failed));
    backend_answers(&mut w, Err(IoError::Failed));
    assert_eq!(w.replies.get(&1), Some(&Err(ReplyError::Io)));
    w.settle();
    assert!(w.cache.is_idle(), "{:?}", w.open);
    w.read(2, 0, 4096);
    w.settle();
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "the page can be read again");
}

#[test]
fn the_read_fails_when_the_back_end_has_and_the_disk_is_given_up() {
    let mut w = hedged();
    backend_answers(&mut w, Err(IoError::Failed));
    w.ticks(11);
    assert!(!w.cache.gauges().disk_attached);
    assert_eq!(w.replies.get(&1), Some(&Err(ReplyError::Io)));
    w.read(2, 0, 4096);
    backend_answers(&mut w, Ok(()));
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "the block is still in the hands of a read that was answered");
}

#[test]
fn all_late_reads_are_hedged_at_once() {
    let mut w = slots_only(400);
    for page in 0..200 {
        w.read(page, page * PAGE, 4096);
    }
    assert_eq!(w.count(is!(Action::ReadSlot { .. })), 200);
    w.tick(110 * MS);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 200);
}

/// Memory keeps one page: silent frames come from those in transit, of which half are left to others.
#[test]
fn late_reads_beyond_the_budget_of_silent_frames_wait_for_their_slots() {
    let mut w = slots_only(1);
    for page in 0..100 {
        w.read(page, page * PAGE, 4096);
    }
    w.tick(110 * MS);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 50, "300 frames: 100 asked for, 150 left to others");
    slot_answers(&mut w, Ok(()));
    assert!((0..100).all(|page| w.replies.get(&page) == Some(&Ok(()))));
}

/// Whichever side wins or fails, a hedge gives back what it took.
#[test]
fn the_budget_of_silent_frames_comes_back() {
    let (disk_errors_max, hour_ns) = (u32::MAX, 3_600_000 * MS);
    let limits = Limits {
        disk_errors_max,
        disk_timeout_ns: 1000 * hour_ns,
        backend_timeout_ns: 1000 * hour_ns,
        ..Limits::default()
    };
    let mut w = slots_only_with(1, limits);
    let mut late_ns = 110 * MS;
    for round in 0..6 {
        for page in round * 100..round * 100 + 100 {
            w.read(page, page * PAGE, 4096);
        }
        assert_eq!(w.count(is!(Action::ReadSlot { .. })), 100);
        w.tick(late_ns);
        late_ns *= 20; // what is late is ten times what was usual
        assert_eq!(w.count(is!(Action::ReadBackend { .. })), 50, "round {round}");
        match round {
            0 => slot_answers(&mut w, Ok(())),
            1 => backend_answers(&mut w, Ok(())),
            2 => slot_answers(&mut w, Err(IoError::Failed)),
            3 => backend_answers(&mut w, Err(IoError::Failed)),
            _ => {}
        }
        w.settle();
        w.sent_all();
    }
    assert_eq!(w.replies.values().filter(|result| result.is_err()).count(), 0);
    assert!(w.cache.is_idle());
}
