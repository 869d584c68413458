use super::*;

const SECOND: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

/// A disk that takes 400 MB/s of writes after 20 us, and a back end of 100 MB/s after 2 ms; a log of 64 MiB.
fn setup(load: Load, cached_permil: u32) -> Setup {
    let writes = WriteModel { bytes_per_second: 400 * MB, latency_ns: 20_000, overhead_bytes: 0, collection: None };
    let disk = PathModel { writes: Some(writes), ..PathModel::new(600 * MB, 80_000) };
    let mut setup = Setup::one_volume(disk, PathModel::new(100 * MB, 2_000_000), load);
    let volume = &mut setup.volumes[0];
    (volume.bytes, volume.cached_permil) = (1 << 30, cached_permil);
    (volume.mode, volume.log_bytes) = (WriteMode::Back, 64 << 20);
    setup.pages_in_flight_max = 256;
    setup
}

fn started(load: Load, cached_permil: u32) -> PacedWorld {
    PacedWorld::new(&setup(load, cached_permil), |_| {})
}

#[test]
fn writes_are_answered_by_the_log_and_the_back_end_follows() {
    let mut world = started(Load { think_ns: 10_000_000, ..Load::writes(4, 1, 4096) }, 500);
    world.run_for(SECOND);
    let latencies = world.take_latencies(0);
    assert!(latencies.writes.histogram.count() > 350 && latencies.writes.longest_ns < 1_000_000, "{latencies:?}");
    world.set_load(0, Load::IDLE);
    world.run_for(2 * SECOND);
    let (log, tick) = (world.log(0).unwrap(), world.between(0, 3 * SECOND));
    let volume = &tick.volumes[0];
    assert!(log.has_followed && log.dirty_bytes == 0, "{log:?}");
    assert_eq!(volume.backend.write_bytes, log.counts.run_bytes);
    // Some were written over before they left.
    assert!(volume.backend.write_bytes <= volume.write_bytes && volume.write_bytes < volume.backend.write_bytes * 2);
    assert_eq!(world.cache().stats().bad_blocks, 0);
}

#[test]
fn a_back_end_that_stalls_does_not_show_until_the_log_is_full() {
    let mut world = started(Load { think_ns: 10_000_000, ..Load::writes(4, 1, 4096) }, 0);
    world.run_for(SECOND);
    world.set_stalled(Path::Backend(0), true);
    world.take_latencies(0);
    world.run_for(2 * SECOND);
    assert!(world.take_latencies(0).writes.longest_ns < 1_000_000);
    assert!(world.log(0).unwrap().lag_ns > SECOND);
    world.set_load(0, Load::writes(4, 8, 65536));
    // The last eighth fills slowly.
    world.run_for(20 * SECOND);
    let tick = world.between(world.now_ns() - SECOND, world.now_ns());
    assert_eq!((tick.volumes[0].writes, tick.volumes[0].backend.writes), (0, 0), "the log is full");
    world.set_stalled(Path::Backend(0), false);
    world.run_for(3 * SECOND);
    let tick = world.between(world.now_ns() - SECOND, world.now_ns());
    assert!(tick.volumes[0].writes > 0 && tick.volumes[0].backend.writes > 0, "{tick:?}");
}

#[test]
fn flushes_come_as_often_as_the_load_says_and_wait_for_the_log_only() {
    let mut world = started(Load { flush_every: 3, ..Load::writes(2, 1, 4096) }, 0);
    world.run_for(SECOND / 10);
    let latencies = world.take_latencies(0);
    let (writes, flushes) = (latencies.writes.histogram.count(), latencies.flushes.histogram.count());
    assert!(flushes > 100 && writes.abs_diff(3 * flushes) <= 6, "{writes} writes, {flushes} flushes");
    assert!(latencies.flushes.longest_ns < 1_000_000, "{latencies:?}");
    assert_eq!(world.ticks()[0].volumes[0].flushes, flushes);
}

#[test]
fn reads_see_the_log_and_only_what_is_cached_hits() {
    let mut world = started(Load { read_permil: 500, ..Load::reads(2, 4, 4096) }, 250);
    world.run_for(SECOND);
    let stats = &world.cache().stats();
    let volume = &stats.volumes[0];
    let hits = volume.disk_hits as f64 / (volume.disk_hits + volume.misses) as f64;
    assert!((0.2..0.5).contains(&hits) && stats.bad_blocks == 0, "{hits}: {stats:?}");
}
