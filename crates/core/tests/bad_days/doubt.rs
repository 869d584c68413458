//! The back end may have lost writes that it had acknowledged: what is cached of them is not served, now or after a
//! crash.

use crate::driver::{Action, Event, IoError, MS, PAGE, ReplyError, VOLUME, World, WriteMode, config, is};

fn in_doubt(w: &mut World, offset: u64, length: u64) {
    w.step(Event::InDoubt { volume: VOLUME, offset, length, is_lost: true });
}

#[test]
fn it_is_never_refused_for_want_of_a_place() {
    let mut c = config(WriteMode::Through);
    c.limits.requests_max = 64;
    let mut w = World::new(c);
    w.warm(1, 0);
    for page in 100..164 {
        w.trim(page, page * PAGE, PAGE);
    }
    in_doubt(&mut w, 0, PAGE);
    w.settle();
    w.read(3, 0, 4096);
    assert!(!w.is_answered(3), "the page in doubt is served from memory");
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1);
}

#[test]
fn a_range_outside_the_volume_or_empty_is_ignored() {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    for (offset, length) in [(64 << 20, 4096), (0, 0), (u64::MAX - 511, 1000)] {
        in_doubt(&mut w, offset, length);
        w.settle();
    }
    assert_eq!(w.count(is!(Action::Notice(_))), 0, "nothing is lost there");
    w.read(2, 0, 4096);
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "what is not in doubt stays in memory");
}

#[test]
fn a_trim_that_overflows_is_refused() {
    let mut w = World::new(config(WriteMode::Through));
    w.trim(1, u64::MAX - 511, 1000);
    assert_eq!(w.replies.get(&1), Some(&Err(ReplyError::Invalid)));
}

/// Page 0 was read and then written in part; the back end has not flushed it.
fn written() -> World {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    w.write(2, 0, 4096);
    w.settle();
    w
}

/// Whether the lost block would be served, with nothing on disk that tells the next start not to.
fn is_forgotten(w: &mut World) -> bool {
    let is_clear = w.cache.gauges().intent_regions == 0;
    w.read(3, 0, 4096);
    is_clear && (w.is_answered(3) || w.count(is!(Action::ReadSlot { .. })) > 0)
}

#[test]
fn a_flush_of_the_sweep_that_lost_writes_is_not_forgotten_at_the_next_one() {
    let mut w = written();
    let mut flushes = 0;
    for _ in 0..200 {
        w.answer(Ok(()), is!(Action::WriteTable { .. } | Action::FlushDisk { .. } | Action::WriteIntent { .. }));
        while let Some(op) = w.find(is!(Action::FlushBackend { .. })) {
            w.done(op, if flushes == 0 { Err(IoError::Lost) } else { Ok(()) });
            flushes += 1;
        }
        w.tick(100 * MS);
    }
    assert!(flushes > 0, "nothing was flushed");
    assert!(!is_forgotten(&mut w));
}

#[test]
fn a_flush_of_a_client_that_lost_writes_is_not_forgotten_at_the_next_one() {
    let mut w = written();
    w.step(Event::Flush { volume: VOLUME, tag: 5 });
    w.answer(Err(IoError::Lost), is!(Action::FlushBackend { .. }));
    assert_eq!(w.replies.get(&5), Some(&Err(ReplyError::Io)));
    for _ in 0..200 {
        w.settle();
        w.tick(100 * MS);
    }
    assert!(!is_forgotten(&mut w));
}

/// The range waits for a busy page of it, while sweeps flush well: the bit of its region stays as long as the record of
/// the page that was lost.
#[test]
fn the_regions_bit_outlives_the_wait_for_a_busy_page() {
    let mut w = written();
    w.read(4, PAGE, 4096);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1, "page 1 is to be busy");
    in_doubt(&mut w, 0, 2 * PAGE);
    for _ in 0..100 {
        w.answer(Ok(()), |action| !matches!(action, Action::ReadBackend { .. }));
        w.tick(100 * MS);
    }
    let (page, crcs) = w.cache.table_sector(0).next().expect("the table has a slot");
    let is_valid = page.is_some() && crcs[0] != 0;
    assert!(!is_valid || w.cache.gauges().intent_regions > 0, "the bit is clear, and the record of {page:?} is valid");
}

#[test]
fn a_write_of_which_a_part_was_lost_fails_even_if_the_loss_was_told_before_it_was_answered() {
    for told_by_flush in [false, true] {
        let mut w = World::new(config(WriteMode::Through));
        w.write(1, 0, 2 * PAGE as u32);
        w.answer(Ok(()), is!(Action::WriteIntent { .. }));
        let first = w.find(is!(Action::WriteBackend { .. })).expect("its first part is written");
        w.done(first, Ok(()));
        if told_by_flush {
            w.step(Event::Flush { volume: VOLUME, tag: 2 });
            let flush = w.find(is!(Action::FlushBackend { .. })).expect("a flush is ordered");
            w.done(flush, Err(IoError::Lost));
            assert_eq!(w.replies.get(&2), Some(&Err(ReplyError::Io)));
        } else {
            in_doubt(&mut w, 0, PAGE);
        }
        assert!(!w.is_answered(1));
        w.settle();
        assert_eq!(w.replies.get(&1), Some(&Err(ReplyError::Io)), "nobody else tells of its first part");
    }
}

#[test]
fn what_may_only_be_old_is_dropped_and_no_write_fails_for_it() {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(3, 1);
    w.write(1, 0, 2 * PAGE as u32);
    w.answer(Ok(()), is!(Action::WriteIntent { .. }));
    let first = w.find(is!(Action::WriteBackend { .. })).expect("its first part is written");
    w.done(first, Ok(()));
    w.step(Event::InDoubt { volume: VOLUME, offset: 0, length: 2 * PAGE, is_lost: false });
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())));
    w.read(2, PAGE, 4096);
    assert!(!w.is_answered(2), "what may be old is served from memory");
}

#[test]
fn a_write_that_had_nothing_to_lose_is_not_failed_for_a_loss_elsewhere() {
    let mut w = World::new(config(WriteMode::Through));
    w.write(1, 0, 2 * PAGE as u32);
    in_doubt(&mut w, 0, 8 * PAGE);
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Ok(())), "nothing of it was done yet");
    w.write(2, 0, 2 * PAGE as u32);
    w.answer(Ok(()), is!(Action::WriteIntent { .. }));
    let first = w.find(is!(Action::WriteBackend { .. })).expect("its first part is written");
    w.done(first, Ok(()));
    in_doubt(&mut w, 8 * PAGE, PAGE);
    w.settle();
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "what was lost is not its own");
}

#[test]
fn a_trim_of_which_a_chunk_was_lost_fails() {
    let mut c = config(WriteMode::Through);
    c.volumes[0].range_bytes_max = 1 << 20;
    let mut w = World::new(c);
    w.trim(1, 0, 4 << 20);
    w.answer(Ok(()), is!(Action::WriteIntent { .. }));
    let first = w.find(is!(Action::TrimBackend { .. })).expect("its first chunk is trimmed");
    w.done(first, Ok(()));
    assert!(!w.is_answered(1), "there is another chunk");
    in_doubt(&mut w, 0, PAGE);
    w.settle();
    assert_eq!(w.replies.get(&1), Some(&Err(ReplyError::Io)));
}

#[test]
fn what_is_in_doubt_is_not_read_while_the_range_waits_elsewhere() {
    let mut c = config(WriteMode::Through);
    c.volumes[0].range_bytes_max = 1 << 20;
    let mut w = World::new(c);
    w.warm(1, 1000);
    // The range's first page is busy, so that its first chunk has to wait.
    w.read(2, 0, 4096);
    w.step(Event::InDoubt { volume: VOLUME, offset: 0, length: 64 << 20, is_lost: true });
    w.read(3, 1000 * PAGE, 4096);
    assert!(!w.is_answered(3), "the page is cached, and about to be dropped");
    w.settle();
    assert_eq!((w.replies.get(&2), w.replies.get(&3)), (Some(&Ok(())), Some(&Ok(()))));
    assert_eq!(w.cache.stats().volumes[0].misses, 3, "it was read from the back end again");
}

#[test]
fn a_failed_flush_makes_hits_wait_only_where_something_was_written() {
    let mut c = config(WriteMode::Through);
    c.volumes[0].range_bytes_max = 1 << 20;
    let mut w = World::new(c);
    let (lost, clean) = (20, 40);
    w.warm(1, lost);
    w.warm(2, clean);
    for (tag, page) in [(3, 0), (4, lost)] {
        w.write(tag, page * PAGE, 4096);
        w.settle();
    }
    // The first page that was written is busy.
    w.read(5, 0, 4096);
    w.step(Event::Flush { volume: VOLUME, tag: 6 });
    w.answer(Err(IoError::Lost), is!(Action::FlushBackend { .. }));
    w.read(7, lost * PAGE, 4096);
    w.read(8, clean * PAGE, 4096);
    assert!(!w.is_answered(7), "what may be lost is served from memory");
    assert!(w.is_answered(8), "what is not in doubt waits for what is");
    w.settle();
    assert!(w.is_answered(7));
}
