//! The cache disk is given up, and then the generation, which must say so before the next write, cannot be raised.

use crate::driver::{Action, IoError, MS, Notice, SECOND, World, WriteMode, config, is};

/// Page 0 is in memory, the disk is given up, the generation is being raised.
fn detached() -> World {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    w.tick(3 * SECOND);
    w.answer(Err(IoError::Failed), is!(Action::WriteTable { .. }));
    assert_eq!(w.count(is!(Action::RaiseGeneration { .. })), 1);
    w
}

#[test]
fn a_write_fails_when_raising_hangs() {
    let mut w = detached();
    w.write(2, 0, 4096);
    assert!(!w.is_answered(2), "the back end was written before the generation was raised");
    w.ticks(120);
    assert!(w.replies[&2].is_err(), "the back end was never written");
}

#[test]
fn a_read_behind_such_a_write_is_answered() {
    let mut w = detached();
    w.write(2, 0, 4096);
    w.read(3, 0, 4096);
    for _ in 0..1200 {
        w.tick(100 * MS);
        w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    }
    assert_eq!(w.replies.get(&3), Some(&Ok(())));
}

#[test]
fn a_trim_fails_and_lets_reads_go_on_when_raising_fails() {
    let mut w = detached();
    w.answer(Err(IoError::Failed), is!(Action::RaiseGeneration { .. }));
    w.trim(2, 0, 32 << 20);
    w.read(3, 0, 4096);
    for _ in 0..600 {
        w.tick(100 * MS);
        w.answer_once(Err(IoError::Failed));
    }
    assert!(w.replies[&2].is_err());
    assert!(w.is_answered(3), "the read waits for the trim for ever");
}

#[test]
fn writes_go_on_once_it_is_raised() {
    let mut w = detached();
    w.write(2, 0, 4096);
    w.answer(Ok(()), is!(Action::RaiseGeneration { .. } | Action::WriteBackend { .. }));
    assert_eq!(w.replies.get(&2), Some(&Ok(())));
}

#[test]
fn a_generation_that_cannot_be_raised_is_told_once() {
    let mut w = detached();
    for _ in 0..600 {
        w.answer_once(Err(IoError::Failed));
        w.tick(100 * MS);
    }
    assert_eq!(w.notices.iter().filter(|notice| **notice == Notice::GenerationStuck).count(), 1);
}
