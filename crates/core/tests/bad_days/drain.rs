//! The service is told to stop while something is wrong: it stops, and does not claim more than is so.

use crate::driver::{Action, Event, IoError, MS, SECOND, World, WriteMode, config, is};

/// The disk is silent until it is given up.
fn give_up_the_disk(w: &mut World) {
    w.ticks(30);
    w.answer(Ok(()), is!(Action::RaiseGeneration { .. }));
    w.ticks(30);
    assert!(!w.cache.gauges().disk_attached);
}

#[test]
fn it_ends_when_the_sweep_hangs() {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    w.step(Event::Drain { tag: 9 });
    assert!(w.count(is!(Action::WriteTable { .. })) > 0 && !w.is_answered(9));
    give_up_the_disk(&mut w);
    assert!(w.is_answered(9), "{:?}", w.open);
}

#[test]
fn it_ends_when_a_store_hangs() {
    let mut w = World::new(config(WriteMode::Through));
    w.read(1, 0, 4096);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    w.sent(1);
    w.step(Event::Drain { tag: 9 });
    assert!(w.count(is!(Action::WriteSlot { .. })) == 1 && !w.is_answered(9));
    give_up_the_disk(&mut w);
    assert!(w.is_answered(9), "{:?}", w.open);
}

/// The clean mark makes the next start ignore the intent map.
#[test]
fn there_is_no_clean_mark_while_regions_are_in_flight() {
    let mut w = World::new(config(WriteMode::Through));
    w.write(1, 0, 4096);
    w.settle();
    w.step(Event::Drain { tag: 9 });
    for _ in 0..100 {
        w.answer(Err(IoError::Failed), is!(Action::FlushBackend { .. }));
        w.answer(Ok(()), is!(Action::WriteTable { .. } | Action::FlushDisk { .. } | Action::WriteIntent { .. }));
        w.tick(100 * MS);
    }
    assert!(w.cache.gauges().intent_regions > 0, "the region's write was never flushed");
    assert!(!w.log.iter().any(is!(Action::MarkClean { .. })), "marked clean");
    assert!(w.replies[&9].is_err());
}

#[test]
fn whoever_asks_is_answered() {
    let mut w = World::new(config(WriteMode::Through));
    w.read(1, 0, 4096);
    w.step(Event::Drain { tag: 8 });
    w.step(Event::Drain { tag: 9 });
    w.settle();
    w.sent_all();
    for _ in 0..10 {
        w.settle();
        w.tick(SECOND);
    }
    assert_eq!(w.replies.get(&8), Some(&Ok(())));
    assert!(w.is_answered(9));
}
