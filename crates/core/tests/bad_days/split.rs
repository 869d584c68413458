//! Hits on the cache disk that the back end serves: which may be, and what happens when it lets them down.

use crate::driver::{
    Action, CacheConfig, IoError, Limits, MS, Notice, PAGE, SECOND, VOLUME, World, WriteMode, config, is, op_of,
};
use forebay_core::{Event, Profile, SlotId, SplitConfig, SplitKind};

const BACKEND_ONLY: SplitConfig = SplitConfig { kind: SplitKind::BackendOnly, backend_bytes_per_second_max: 0 };

/// Pages 0 to 600 are in slots, and the last few in memory.
fn slots_only(split: SplitConfig) -> World {
    let base = config(WriteMode::Through);
    let mut c = CacheConfig { slots: 1024, frames: 304, transit_frames: 300, limits: Limits::default(), ..base };
    c.volumes[0].bytes = 128 << 20;
    c.volumes[0].split = split;
    let mut w = World::new(c);
    for page in 0..=600 {
        w.warm(10_000 + page, page);
    }
    w
}

/// Reads ten pages from that one on: what memory held before leaves it.
fn push_out(w: &mut World, first: u64) {
    for page in first..first + 10 {
        w.read(100 + page, page * PAGE, PAGE as u32);
        w.settle();
        w.sent_all();
    }
}

fn slot_reads(w: &World) -> usize {
    w.count(is!(Action::ReadSlot { .. }))
}

fn backend_reads(w: &World) -> usize {
    w.count(is!(Action::ReadBackend { check: Some(_), .. }))
}

fn hits(w: &World) -> (u64, u64) {
    let stats = &w.cache.stats().volumes[0];
    (stats.disk_hits, stats.backend_hits)
}

#[test]
fn a_hit_served_by_the_back_end_writes_nothing_to_the_cache_disk() {
    let mut w = slots_only(BACKEND_ONLY);
    let written = w.cache.stats().slot_write_bytes;
    w.read(1, 0, 8192);
    assert_eq!((slot_reads(&w), backend_reads(&w)), (0, 1));
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    assert_eq!(hits(&w), (0, 1));
    assert_eq!(w.cache.stats().slot_write_bytes, written);
    assert_eq!(w.cache.stats().volumes[0].split_mismatches, 0);
}

#[test]
fn a_page_written_since_the_last_flush_comes_from_the_cache_disk() {
    let mut w = slots_only(BACKEND_ONLY);
    w.write(1, 0, 4096);
    w.settle();
    push_out(&mut w, 100);
    w.read(2, 0, 4096);
    assert_eq!((slot_reads(&w), backend_reads(&w)), (1, 0), "the back end may still lose it");
    w.settle();
    w.sent_all();
    // The sweep flushes the back end.
    for _ in 0..8 {
        w.tick(SECOND);
        w.settle();
    }
    push_out(&mut w, 110);
    w.read(3, 0, 4096);
    assert_eq!((slot_reads(&w), backend_reads(&w)), (0, 1), "it is flushed now");
    w.settle();
    assert_eq!(w.replies.get(&3), Some(&Ok(())));
}

#[test]
fn where_slot_and_back_end_differ_the_back_end_is_right_and_the_slot_is_dropped() {
    let mut w = slots_only(BACKEND_ONLY);
    w.read(1, 0, 8192);
    let op = w.find(is!(Action::ReadBackend { .. })).unwrap();
    w.done_with_bad_blocks(op);
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    assert_eq!(w.cache.stats().volumes[0].split_mismatches, 2);
    assert!(w.notices.iter().any(|notice| matches!(notice, Notice::BadBlock { .. })));
    // What the back end has is stored in their place.
    assert_eq!(w.count(is!(Action::WriteSlot { first_block: 0, blocks: 2, .. })), 1);
    w.settle();
    w.sent_all();
    assert!(w.cache.is_idle());
}

#[test]
fn a_split_read_that_fails_comes_from_its_slot_and_the_back_end_is_left_alone_for_a_second() {
    let mut w = slots_only(BACKEND_ONLY);
    w.read(1, 0, 4096);
    w.answer(Err(IoError::Failed), is!(Action::ReadBackend { .. }));
    assert_eq!(slot_reads(&w), 1);
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    assert_eq!(w.cache.stats().volumes[0].split_failovers, 1);
    w.read(2, PAGE, 4096);
    assert_eq!((slot_reads(&w), backend_reads(&w)), (1, 0));
    w.settle();
    w.now_ns += SECOND;
    w.read(3, 2 * PAGE, 4096);
    assert_eq!((slot_reads(&w), backend_reads(&w)), (0, 1));
}

#[test]
fn a_split_read_that_is_declined_comes_from_its_slot_and_the_next_is_asked_of_the_back_end_all_the_same() {
    let mut w = slots_only(BACKEND_ONLY);
    for page in 0..2 {
        w.read(page, page * PAGE, 4096);
        assert_eq!((slot_reads(&w), backend_reads(&w)), (0, 1));
        w.answer(Err(IoError::Declined), is!(Action::ReadBackend { .. }));
        assert_eq!(slot_reads(&w), 1);
        w.settle();
        assert_eq!(w.replies.get(&page), Some(&Ok(())));
    }
    assert_eq!(w.cache.stats().volumes[0].split_failovers, 0);
    let state = w.cache.split_state(w.now_ns, VOLUME).expect("it is split");
    assert_eq!((state.in_flight, state.is_suspended), ([0; 4], false));
}

#[test]
fn hits_go_on_when_the_back_end_is_silent() {
    let mut w = slots_only(BACKEND_ONLY);
    w.read(1, 0, 4096);
    w.tick(90 * MS);
    assert_eq!(slot_reads(&w), 0, "it is not late yet");
    w.tick(20 * MS);
    let gives_up = w.log.iter().any(|action| matches!(action, Action::GiveUpRead { .. }));
    assert!(gives_up && slot_reads(&w) == 0, "the back end may let go of it");
    w.tick(100 * MS);
    assert_eq!(slot_reads(&w), 1);
    w.answer(Ok(()), is!(Action::ReadSlot { .. }));
    assert_eq!(w.replies.get(&1), Some(&Ok(())), "the slot's answer counts");
    w.read(2, PAGE, 4096);
    assert_eq!(slot_reads(&w), 1, "and the next is not even asked of the back end");
    w.settle();
    w.sent_all();
    assert!(w.cache.is_idle(), "{:?}", w.cache.gauges());
}

#[test]
fn a_late_back_end_that_answers_first_wins_all_the_same() {
    let mut w = slots_only(BACKEND_ONLY);
    w.read(1, 0, 4096);
    w.tick(210 * MS);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    w.settle();
    w.sent_all();
    assert!(w.cache.is_idle(), "{:?}", w.cache.gauges());
}

#[test]
fn a_bad_slot_does_not_help_a_late_back_end() {
    let mut w = slots_only(BACKEND_ONLY);
    w.read(1, 0, 4096);
    w.tick(210 * MS);
    let op = w.find(is!(Action::ReadSlot { .. })).unwrap();
    w.done_with_bad_blocks(op);
    assert!(!w.is_answered(1));
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    w.sent_all();
    assert!(w.cache.is_idle(), "{:?}", w.cache.gauges());
}

#[test]
fn up_to_256_kib_a_request_goes_one_way_and_beyond_it_is_split() {
    let mut w = slots_only(SplitConfig { kind: SplitKind::Static { disk_permil: 500 }, ..BACKEND_ONLY });
    let ways = |w: &mut World, tag: u64, page: u64, pages: u64| {
        w.read(tag, page * PAGE, (pages * PAGE) as u32);
        let ways = (slot_reads(w), backend_reads(w));
        w.settle();
        w.sent_all();
        ways
    };
    let first = ways(&mut w, 1, 0, 4);
    let second = ways(&mut w, 2, 4, 4);
    assert!([first, second] == [(4, 0), (0, 4)] || [first, second] == [(0, 4), (4, 0)], "{first:?} {second:?}");
    assert_eq!(ways(&mut w, 3, 8, 16), (8, 8));
}

#[test]
fn the_policy_is_changed_while_reads_are_under_way() {
    let mut w = slots_only(SplitConfig::default());
    w.read(1, 0, 4096);
    assert_eq!(slot_reads(&w), 1);
    w.step(Event::SetSplit { volume: VOLUME, tag: 7, split: BACKEND_ONLY });
    assert_eq!(w.replies.get(&7), Some(&Ok(())));
    w.read(2, PAGE, 4096);
    assert_eq!(backend_reads(&w), 1);
    w.step(Event::SetSplit { volume: VOLUME, tag: 8, split: SplitConfig::default() });
    w.settle();
    w.read(3, 2 * PAGE, 4096);
    assert_eq!(slot_reads(&w), 1);
    w.settle();
    assert!([1, 2, 3].iter().all(|tag| w.replies.get(tag) == Some(&Ok(()))));
    assert!(w.open.iter().all(|action| op_of(action).is_none()));
}

#[test]
fn a_profile_comes_while_the_cache_runs_and_submitters_are_told() {
    use forebay_policy::split::profile::{Point, Row};

    let netcas = SplitConfig { kind: SplitKind::NetCas, ..BACKEND_ONLY };
    let mut w = slots_only(netcas);
    // Two reads are always in flight.
    let disk_share = |w: &mut World, first: u64| {
        for page in (first..first + 20).step_by(2) {
            w.read(page, page * PAGE, PAGE as u32);
            w.read(page + 1, (page + 1) * PAGE, PAGE as u32);
            w.tick(50 * MS);
            w.settle();
            w.sent_all();
        }
        w.cache.split_state(w.now_ns, VOLUME).unwrap().report.disk_share
    };
    assert_eq!(disk_share(&mut w, 0), 1.0);
    let row = |submitters, rates| Row::measured(Point { block_bytes: PAGE as u32, in_flight: 1, submitters }, rates);
    let profile = Profile::from_rows([row(1, [3.0, 1.0]), row(2, [1.0, 1.0])]).unwrap();
    w.step(Event::SetProfile { volume: VOLUME, tag: 900, profile: &profile });
    assert_eq!(w.replies.get(&900), Some(&Ok(())));
    assert_eq!(disk_share(&mut w, 20), 0.75);
    w.step(Event::Submitters { volume: VOLUME, count: 2 });
    assert_eq!(disk_share(&mut w, 40), 0.5);
    w.step(Event::SetProfile { volume: VOLUME, tag: 901, profile: &Profile::new() });
    assert_eq!(disk_share(&mut w, 60), 1.0);
}

#[test]
fn blocks_to_measure_are_whole() {
    let mut w = slots_only(SplitConfig::default());
    w.read(1, 700 * PAGE, 4096);
    w.settle();
    let runs = |blocks| (0..1024).filter(|slot| w.cache.cached_run(VOLUME, SlotId(*slot), blocks).is_some()).count();
    assert_eq!([16, 8, 1].map(runs), [601, 601, 602]);
}

#[test]
fn lent_frames_are_memorys_and_hits_go_on() {
    let mut w = slots_only(SplitConfig::default());
    let lent: Vec<_> = std::iter::from_fn(|| w.cache.lend_frame()).collect();
    assert!(lent.len() > 100 && lent.len() < 304, "{}", lent.len());
    w.read(1, 0, 65_536);
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    w.sent_all();
    lent.into_iter().for_each(|frame| w.cache.take_back_frame(frame));
    assert!(w.cache.is_idle(), "{:?}", w.cache.gauges());
}
