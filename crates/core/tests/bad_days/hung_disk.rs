//! The cache disk does not answer: that costs speed, never service.

use crate::driver::{Action, CacheConfig, IoError, MS, PAGE, SECOND, TRANSIT, World, WriteMode, config, is};

#[test]
fn stores_that_hang_leave_room_for_reads() {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    for page in 10..50 {
        w.read(page, page * PAGE, PAGE as u32);
        w.answer(Ok(()), is!(Action::ReadBackend { .. }));
        w.sent_all();
    }
    assert!(w.count(is!(Action::WriteSlot { .. })) > 0, "no store hangs");
    w.ticks(60);
    w.answer(Ok(()), is!(Action::RaiseGeneration { .. }));
    assert!(!w.cache.gauges().disk_attached);
    w.read(2, PAGE / 2, PAGE as u32);
    w.ticks(1);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    w.read(3, 0, 4096);
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "a miss of two pages: {:?}", w.cache.gauges());
    assert_eq!(w.replies.get(&3), Some(&Ok(())), "a hit in memory: {:?}", w.cache.gauges());
}

/// With so few transit frames, reads that hang beyond the budget of silent frames hold theirs, and a later miss may fail
/// at its deadline; but it is answered.
#[test]
fn a_read_is_answered_however_many_slot_reads_hang() {
    let mut w = World::new(CacheConfig { frames: TRANSIT + 100, ..config(WriteMode::Through) });
    for page in 0..300 {
        w.warm(1000 + page, page);
    }
    for pair in 0..40 {
        for page in [pair * 2, pair * 2 + 1] {
            w.read(page, page * PAGE, 4096);
        }
        w.tick(120 * MS);
        w.answer(Ok(()), is!(Action::ReadBackend { .. }));
        w.sent_all();
    }
    assert!(w.count(is!(Action::ReadSlot { .. })) > 0, "no read hangs");
    w.ticks(60);
    w.answer(Ok(()), is!(Action::RaiseGeneration { .. } | Action::ReadBackend { .. }));
    w.sent_all();
    assert!(!w.cache.gauges().disk_attached);
    w.read(5000, 299 * PAGE, 4096);
    w.ticks(31);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    assert!(w.is_answered(5000), "{:?}", w.cache.gauges());
}

/// A disk that took seconds a read has made "ten times its p99" longer than anybody waits.
#[test]
fn reads_leave_a_disk_that_was_given_up() {
    let mut w = World::new(CacheConfig { frames: 301, transit_frames: 300, ..config(WriteMode::Through) });
    for page in 0..=40 {
        w.warm(1000 + page, page);
    }
    for page in 0..30 {
        w.read(page, page * PAGE, 4096);
        w.now_ns += 3 * SECOND;
        w.settle();
        w.sent_all();
    }
    w.read(100, 30 * PAGE, 4096);
    assert_eq!(w.count(is!(Action::ReadSlot { .. })), 1);
    w.ticks(11);
    assert!(!w.cache.gauges().disk_attached);
    w.ticks(1);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    assert_eq!(w.replies.get(&100), Some(&Ok(())));
}

/// However many frames are in silent hands already.
#[test]
fn reads_of_a_silent_back_end_fail_at_their_deadline() {
    let mut w = World::new(CacheConfig { slots: 0, frames: TRANSIT + 2, ..config(WriteMode::Through) });
    for tag in 0..60 {
        w.read(tag, tag * PAGE, 4096);
        w.tick(31 * SECOND);
        w.ticks(1);
        assert!(w.replies.get(&tag).is_some_and(Result::is_err), "read {tag}: {:?}", w.cache.gauges());
    }
}

/// A read waits for a slow slot; meanwhile a block that it had found in memory leaves the page. Its answer must not
/// take that block from a frame that never had it.
fn a_late_read_keeps_what_it_had(mode: WriteMode, write: Result<(), IoError>) {
    let mut w = World::new(CacheConfig { frames: TRANSIT + 1, ..config(mode) });
    w.warm(1, 0);
    w.warm(2, 1); // memory keeps one page: page 0 is in its slot only
    w.read(3, 4096, 4096);
    w.settle();
    w.sent(3);
    w.read(4, 0, 8192); // block 0 from the slot, block 1 from memory
    let old = w.open.iter().find_map(|action| match action {
        Action::ReadSlot { frame, first_block: 0, blocks: 1, .. } => Some(*frame),
        _ => None,
    });
    let old = old.expect("block 0 is read from the slot");
    w.write(5, 4096, 4096);
    w.answer(Ok(()), is!(Action::WriteIntent { .. }));
    w.answer(write, is!(Action::WriteBackend { .. }));
    assert!(w.is_answered(5));
    w.log.clear();
    w.tick(200 * MS);
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    let piece = w.cache.pieces(w.sending[&4])[0];
    let holds = |at: u32, length: u32| at <= 4096 && at + length >= 8192;
    let arrived = w.log.iter().any(|action| match *action {
        Action::Copy { from, to, at, length } => from == old && to == piece.frame && holds(at, length),
        Action::ReadBackend { piece: p, .. } => p.frame == piece.frame && holds(p.at, p.length),
        _ => false,
    });
    assert!(piece.frame != old, "the slot may still write the frame that is being sent");
    assert!(arrived, "block 1 never came into {:?}: {:?}", piece.frame, w.log);
}

#[test]
fn a_late_read_keeps_what_a_write_around_drops() {
    a_late_read_keeps_what_it_had(WriteMode::Around, Ok(()));
}

#[test]
fn a_late_read_keeps_what_a_failed_write_drops() {
    a_late_read_keeps_what_it_had(WriteMode::Through, Err(IoError::Failed));
}
