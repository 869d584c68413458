//! What is wrong in one place is not felt in another.

use crate::driver::{
    Action, CacheConfig, Event, MS, PAGE, TRANSIT, VOLUME, VolumeId, World, WriteMode, config, is, volume,
};

#[test]
fn a_hung_flush_of_one_volume_does_not_stop_the_sweep_of_another() {
    let mut c = config(WriteMode::Through);
    c.volumes.push(volume(2, WriteMode::Through));
    let mut w = World::new(c);
    let sweeps = |w: &mut World, periods: u32| {
        for _ in 0..periods {
            w.answer(Ok(()), is!(Action::WriteTable { .. } | Action::FlushDisk { .. } | Action::WriteIntent { .. }));
            w.tick(100 * MS);
        }
    };
    w.write(1, 0, 4096);
    w.settle();
    sweeps(&mut w, 40);
    assert_eq!(w.count(is!(Action::FlushBackend { .. })), 1, "the first volume's flush is to hang");
    w.step(Event::Read { volume: VolumeId(1), tag: 2, offset: 0, length: 4096 });
    w.answer(Ok(()), is!(Action::ReadBackend { .. } | Action::WriteSlot { .. }));
    let before = w.cache.stats().table_sector_writes;
    sweeps(&mut w, 600);
    assert!(w.cache.stats().table_sector_writes > before, "no sector was written for a minute");
}

#[test]
fn a_hit_in_memory_does_not_wait_for_misses_of_a_dead_back_end() {
    let mut w = World::new(config(WriteMode::Through));
    w.warm(1, 0);
    for page in 10..10 + u64::from(TRANSIT) {
        w.read(page, page * PAGE, 4096);
    }
    assert!(w.cache.gauges().requests_waiting > 0, "misses are to wait for frames");
    w.read(2, 0, 4096);
    assert_eq!(w.replies.get(&2), Some(&Ok(())), "{:?}", w.cache.gauges());
}

#[test]
fn a_miss_in_the_queue_of_a_dead_back_end_fails_at_its_deadline() {
    let mut w = World::new(CacheConfig { slots: 0, ..config(WriteMode::Through) });
    for page in 0..400 {
        w.read(page, page * PAGE, 4096);
    }
    w.ticks(31);
    let failed = w.replies.values().filter(|result| result.is_err()).count();
    assert_eq!(failed, 400, "the deadline is 30 s");
}

#[test]
fn pass_through_reads_of_one_block_go_side_by_side() {
    let mut w = World::new(config(WriteMode::Pass));
    for tag in 1..=3 {
        w.read(tag, 0, 4096);
    }
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 3);
}

#[test]
fn as_many_flushes_as_requests_share_a_flush_of_the_back_end() {
    let mut w = World::new(config(WriteMode::Through));
    for tag in 0..600 {
        w.step(Event::Flush { volume: VOLUME, tag });
    }
    w.settle();
    assert_eq!(w.replies.len(), 600);
    assert!(w.replies.values().all(Result::is_ok), "a flush was refused");
    assert!(w.log.iter().filter(|action| matches!(action, Action::FlushBackend { .. })).count() <= 2);
}
