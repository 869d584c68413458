use super::*;
use forebay_core::SplitKind;
use forebay_engine::device::{DeviceDone, DeviceOp, OpKind};
use forebay_engine::devices::memory::Memory;
use forebay_engine::devices::paced::{Pace, Paced};

const SECOND: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;
const PAGE: u32 = 65536;

/// 200 MB/s after half a millisecond, and 100 MB/s after two.
const DISK: PathModel =
    PathModel { bytes_per_second: 200 * MB, latency_ns: 500_000, overhead_bytes: 0, jitter_permil: 0, writes: None };
const BACKEND: PathModel =
    PathModel { bytes_per_second: 100 * MB, latency_ns: 2_000_000, overhead_bytes: 0, jitter_permil: 0, writes: None };

fn small(load: Load) -> Setup {
    let mut setup = Setup::one_volume(DISK, BACKEND, load);
    setup.volumes[0].bytes = 1 << 30;
    setup.pages_in_flight_max = 512;
    setup
}

fn started(setup: &Setup) -> PacedWorld {
    PacedWorld::new(setup, |_| {})
}

fn assert_near(is: f64, wanted: f64, part: f64) {
    assert!((is / wanted - 1.0).abs() <= part, "{is} is not within {part} of {wanted}");
}

#[test]
fn hits_come_at_the_rate_that_the_disk_delivers_at_each_depth() {
    for (jobs, depth, block_bytes) in [(1, 1, PAGE), (1, 4, PAGE), (4, 4, PAGE), (16, 8, PAGE), (2, 8, 4096)] {
        let mut world = started(&small(Load::reads(jobs, depth, block_bytes)));
        world.run_for(SECOND);
        let tick = world.between(SECOND / 10, SECOND);
        assert_near(tick.bytes_per_second(), DISK.delivers_bytes_per_second(jobs * depth, block_bytes), 0.02);
        // Little's law.
        let in_flight = tick.per_second(tick.volumes[0].reads) * tick.volumes[0].read_latency_ns as f64 / 1e9;
        assert_near(in_flight, f64::from(jobs * depth), 0.02);
        assert_eq!((tick.disk.writes, tick.volumes[0].backend), (0, PathCounts::default()));
        assert_eq!(world.cache().stats().bad_blocks, 0);
        let stats = &world.cache().stats().volumes[0];
        assert!(stats.misses == 0 && stats.memory_hits * 50 < stats.disk_hits, "{stats:?}");
    }
}

#[test]
fn a_volume_that_is_not_cached_gets_what_its_back_end_delivers() {
    let mut setup = small(Load::reads(2, 8, PAGE));
    setup.volumes[0].mode = WriteMode::Pass;
    let mut world = started(&setup);
    world.run_for(SECOND);
    let tick = world.between(SECOND / 5, SECOND);
    assert_near(tick.bytes_per_second(), BACKEND.delivers_bytes_per_second(16, PAGE), 0.02);
    assert_eq!((tick.volumes[0].disk_share(), tick.disk), (0.0, PathCounts::default()));
}

#[test]
fn overhead_makes_small_requests_dear_and_jitter_leaves_the_mean() {
    let dear = PathModel { overhead_bytes: 8192, jitter_permil: 500, ..DISK };
    assert_near(dear.delivers_bytes_per_second(1000, 4096), 200e6 / 3.0, 0.001);
    for (load, slack) in [(Load::reads(1, 1, 4096), 0.02), (Load::reads(4, 16, 4096), 0.02)] {
        let mut world = started(&Setup { disk: dear, ..small(load) });
        world.run_for(SECOND);
        let tick = world.between(SECOND / 10, SECOND);
        assert_near(tick.bytes_per_second(), dear.delivers_bytes_per_second(load.in_flight(), 4096), slack);
    }
}

#[test]
fn two_equal_runs_are_equal_and_another_seed_is_another_run() {
    let run = |seed| {
        let load = Load { read_permil: 700, ..Load::reads(4, 8, 16384) };
        let disk = PathModel { jitter_permil: 300, ..DISK };
        let mut world = started(&Setup { seed, disk, ..small(load) });
        world.run_for(SECOND / 2);
        world.set_rate(Path::Disk, 60 * MB);
        world.run_for(SECOND / 2);
        (world.ticks().to_vec(), format!("{:?}", world.cache().stats()))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn a_change_of_rate_or_latency_shows_in_the_next_tick() {
    let mut world = started(&small(Load::reads(4, 8, PAGE)));
    world.run_for(SECOND);
    world.set_rate(Path::Disk, 60 * MB);
    world.run_for(SECOND);
    world.set_path(Path::Disk, PathModel { latency_ns: 50_000_000, ..DISK });
    world.run_for(SECOND);
    world.set_path(Path::Disk, DISK);
    world.run_for(SECOND);
    let at = |nth: usize| world.ticks()[nth].bytes_per_second();
    assert_near(at(9), 200e6, 0.02);
    assert_near(at(10), 60e6, 0.03);
    assert_near(at(19), 60e6, 0.02);
    let slow = PathModel { latency_ns: 50_000_000, ..DISK };
    assert_near(
        world.between(SECOND * 21 / 10, 3 * SECOND).bytes_per_second(),
        slow.delivers_bytes_per_second(32, PAGE),
        0.1,
    );
    assert_near(at(39), 200e6, 0.02);
}

#[test]
fn volumes_on_one_link_share_it_and_competitors_take_theirs() {
    let behind = |load| VolumeSetup {
        bytes: 1 << 28,
        mode: WriteMode::Pass,
        link: Some((0, 1)),
        load,
        ..small(load).volumes[0]
    };
    let deep = Load::reads(1, 64, PAGE);
    let volumes = vec![behind(deep), behind(deep), behind(Load::IDLE)];
    let setup = Setup { volumes, links_bytes_per_second: vec![160 * MB], ..small(deep) };
    let mut world = started(&setup);
    let mut rates = |change: &mut dyn FnMut(&mut PacedWorld)| -> Vec<f64> {
        change(&mut world);
        world.run_for(3 * SECOND);
        let tick = world.between(world.now_ns() - SECOND, world.now_ns());
        tick.volumes.iter().map(|volume| tick.per_second(volume.backend.read_bytes) / 1e6).collect()
    };
    let near = |is: Vec<f64>, wanted: [f64; 3]| {
        is.iter()
            .zip(wanted)
            .for_each(|(is, wanted)| assert!((is - wanted).abs() <= wanted * 0.02, "{is} for {wanted}"));
    };
    near(rates(&mut |_| {}), [80.0, 80.0, 0.0]);
    near(rates(&mut |world| world.set_load(1, Load::IDLE)), [100.0, 0.0, 0.0]);
    let ten = Competitors { flows: 10, flow_bytes_per_second: 10 * MB };
    near(rates(&mut |world| world.set_competitors(0, ten)), [60.0, 0.0, 0.0]);
    let forty = Competitors { flows: 40, ..ten };
    near(rates(&mut |world| world.set_competitors(0, forty)), [160.0 / 41.0, 0.0, 0.0]);
    near(rates(&mut |world| world.set_competitors(0, Competitors::default())), [100.0, 0.0, 0.0]);
    near(rates(&mut |world| world.set_link(0, 30 * MB)), [30.0, 0.0, 0.0]);
}

#[test]
fn clients_pause_and_go_on_deeper_and_with_other_blocks() {
    let mut world = started(&small(Load::reads(2, 8, PAGE)));
    world.run_for(SECOND);
    world.set_load(0, Load::IDLE);
    world.run_for(60 * SECOND);
    world.set_load(0, Load::reads(1, 1, PAGE));
    world.run_for(SECOND);
    world.set_load(0, Load { sequential: true, ..Load::reads(1, 4, 4 * PAGE) });
    world.run_for(SECOND);
    world.set_load(0, Load { think_ns: 9_000_000, ..Load::reads(10, 1, 4096) });
    world.run_for(SECOND);
    let sum = |from: u64, to: u64| world.between(from * SECOND / 10, to * SECOND / 10);
    assert_near(sum(1, 10).bytes_per_second(), 200e6, 0.02);
    assert_eq!(sum(11, 610).volumes[0].reads, 0);
    assert_near(sum(610, 620).bytes_per_second(), DISK.delivers_bytes_per_second(1, PAGE), 0.02);
    assert_near(sum(621, 630).bytes_per_second(), 200e6, 0.02);
    // Ten clients, each once in 9.5 ms.
    assert_near(sum(632, 640).per_second(sum(632, 640).volumes[0].reads), 1050.0, 0.03);
}

#[test]
fn writers_write_one_at_a_time_beside_readers_and_go() {
    let mut world = started(&small(Load { writers: 3, sequential: true, ..Load::reads(1, 1, 4096) }));
    world.run_for(SECOND);
    world.set_load(0, Load::reads(1, 1, 4096));
    world.run_for(SECOND);
    let sum = |from: u64, to: u64| world.between(from * SECOND / 10, to * SECOND / 10);
    let (beside, alone) = (sum(1, 10), sum(11, 20));
    // A write takes as long as the back end, at least: 2 ms.
    let writes_per_second = beside.per_second(beside.volumes[0].writes);
    assert!((1200.0..=1500.0).contains(&writes_per_second), "{writes_per_second} writes a second of three writers");
    // A read waits for the disk alone: half a millisecond, and what the writers put there.
    let reads_per_second = beside.per_second(beside.volumes[0].reads);
    assert!((1000.0..=2000.0).contains(&reads_per_second), "{reads_per_second} reads a second of one reader");
    assert_eq!(alone.volumes[0].writes, 0);
}

#[test]
fn writes_go_to_both_paths_and_reads_alone_write_nothing() {
    let mut world = started(&small(Load { read_permil: 500, ..Load::reads(4, 4, PAGE) }));
    world.run_for(5 * SECOND);
    let tick = world.between(SECOND, 5 * SECOND);
    let volume = &tick.volumes[0];
    assert_near(volume.writes as f64, volume.reads as f64, 0.05);
    assert_near(volume.backend.write_bytes as f64, volume.writes as f64 * f64::from(PAGE), 0.02);
    // Slots, and the table's sectors that changed.
    assert!(tick.disk.write_bytes as f64 > volume.writes as f64 * f64::from(PAGE) * 0.9, "{tick:?}");
    assert_eq!((volume.backend.reads, world.cache().stats().bad_blocks), (0, 0));
}

/// What a share of the cache disk makes of both paths: each at most its rate, and all in flight somewhere.
fn split_delivers(in_flight: u32, disk_share: f64) -> f64 {
    let lone_s = |path: PathModel| f64::from(PAGE) / path.delivers_bytes_per_second(1, PAGE);
    let mean_s = disk_share * lone_s(DISK) + (1.0 - disk_share) * lone_s(BACKEND);
    let by_latency = f64::from(in_flight) * f64::from(PAGE) / mean_s;
    by_latency.min(DISK.bytes_per_second as f64 / disk_share).min(BACKEND.bytes_per_second as f64 / (1.0 - disk_share))
}

#[test]
fn a_static_split_delivers_what_both_paths_do_and_writes_nothing() {
    for (depth, disk_permil) in [(1, 500), (4, 800), (32, 667), (32, 500), (32, 900)] {
        let split = SplitConfig { kind: SplitKind::Static { disk_permil }, ..SplitConfig::default() };
        let mut world = PacedWorld::new(&small(Load::reads(1, depth, PAGE)), |config| config.volumes[0].split = split);
        world.run_for(SECOND);
        let tick = world.between(SECOND / 5, SECOND);
        let share = f64::from(disk_permil) / 1e3;
        assert_near(tick.volumes[0].disk_share(), share, 0.02);
        assert_near(tick.bytes_per_second(), split_delivers(depth, share), 0.05);
        assert_eq!((tick.disk.writes, world.cache().stats().volumes[0].split_mismatches), (0, 0));
    }
}

#[test]
fn a_split_may_change_while_clients_go_on() {
    let mut world = started(&small(Load::reads(4, 8, PAGE)));
    world.run_for(SECOND);
    world.set_split(0, SplitConfig { kind: SplitKind::BackendOnly, ..SplitConfig::default() });
    world.run_for(SECOND);
    world.set_split(0, SplitConfig::default());
    world.run_for(SECOND);
    let rate = |second: u64| world.between(second * SECOND + SECOND / 2, (second + 1) * SECOND).bytes_per_second();
    assert_near(rate(0), 200e6, 0.02);
    assert_near(rate(1), 100e6, 0.02);
    assert_near(rate(2), 200e6, 0.02);
}

/// What ends when, if at each of these times a read of that length comes.
fn ends(device: &mut dyn Device, arrivals: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut ended, mut done, mut arrivals) = (Vec::new(), Vec::new(), (0..).zip(arrivals).peekable());
    loop {
        let next_ns = arrivals.peek().map(|(_, (at_ns, _))| *at_ns);
        let Some(now_ns) = device.next_ns().into_iter().chain(next_ns).min() else { return ended };
        let now_ns = now_ns.max(ended.last().map_or(0, |(at_ns, _)| *at_ns));
        device.poll(now_ns, &mut done);
        ended.extend(done.drain(..).map(|DeviceDone { token, .. }| (now_ns, token)));
        while let Some((token, (_, length))) = arrivals.next_if(|(_, (at_ns, _))| *at_ns <= now_ns) {
            let op = DeviceOp { token, kind: OpKind::Read, offset: 0, length: *length, frame: FrameId(0), at: 0 };
            device.submit(now_ns, op);
        }
    }
}

#[test]
fn a_station_keeps_the_times_of_the_engines_paced_device() {
    let mut dice = Dice::new(5);
    let mut now_ns = 0;
    let arrivals: Vec<(u64, u64)> = (0..500)
        .map(|_| {
            now_ns += dice.duration_ns(400_000);
            (now_ns, 512 * dice.between(1, 128))
        })
        .collect();
    let arena = Rc::new(Arena::new(1, PAGE).unwrap());
    let pace = Pace::new(200 * MB, 500_000);
    let mut paced = Paced::new(Memory::new(arena, 1 << 20), pace);
    let handle = Handle::new(Rc::new(RefCell::new(Link::new(None))), 1, DISK);
    let mut station = Station::new(handle, 1 << 20, dice, None);
    let (wanted, is) = (ends(&mut paced, &arrivals), ends(&mut station, &arrivals));
    assert_eq!((is.len(), wanted.len()), (500, 500));
    for (is, wanted) in is.iter().zip(&wanted) {
        // Either rounds a nanosecond for an operation.
        assert!(is.1 == wanted.1 && is.0.abs_diff(wanted.0) <= 500, "{is:?} for {wanted:?}");
    }
}

#[test]
fn a_path_is_measured_as_it_is_and_nothing_else_changes() {
    use forebay_core::VolumeId;
    use forebay_engine::shard::measure::{MeasureError, MeasureOrder};
    use forebay_policy::split::Path as Measured;

    let mut world = started(&small(Load::IDLE));
    let order = |path, block_bytes, in_flight| MeasureOrder {
        volume: VolumeId(0),
        path,
        block_bytes,
        in_flight,
        for_ns: SECOND / 2,
    };
    for (path, model) in [(Measured::DISK, DISK), (Measured::BACKEND, BACKEND)] {
        for (block_bytes, in_flight) in [(4096, 1), (PAGE, 1), (4096, 8), (PAGE, 8), (PAGE, 256)] {
            let measured = world.measure(order(path, block_bytes, in_flight)).unwrap();
            assert_eq!(measured.in_flight, in_flight);
            let rate = measured.reads as f64 * f64::from(block_bytes) * 1e9 / measured.elapsed_ns as f64;
            assert_near(rate, model.delivers_bytes_per_second(in_flight, block_bytes), 0.02);
        }
    }
    let stats = world.cache().stats();
    let volume = &stats.volumes[0];
    assert_eq!((volume.reads, volume.disk_hits, volume.misses, stats.slot_write_bytes), (0, 0, 0, 0));
    for (block_bytes, in_flight) in [(4096, 0), (4096, 257), (2 * PAGE, 1), (0, 1), (512, 1)] {
        let refused = world.measure(order(Measured::DISK, block_bytes, in_flight));
        assert_eq!(refused, Err(MeasureError::Invalid), "{block_bytes} x {in_flight}");
    }
}

#[test]
fn clients_are_served_while_a_path_is_measured() {
    use forebay_core::VolumeId;
    use forebay_engine::shard::measure::MeasureOrder;

    let mut world = started(&small(Load::reads(1, 8, PAGE)));
    world.run_for(SECOND);
    let (volume, path) = (VolumeId(0), forebay_policy::split::Path::DISK);
    let order = MeasureOrder { volume, path, block_bytes: PAGE, in_flight: 8, for_ns: SECOND };
    let measured = world.measure(order).unwrap();
    let rate = measured.reads as f64 * f64::from(PAGE) * 1e9 / measured.elapsed_ns as f64;
    // Half of the disk each.
    assert_near(rate, DISK.bytes_per_second as f64 / 2.0, 0.1);
    let tick = world.between(SECOND * 12 / 10, SECOND * 18 / 10);
    assert_near(tick.bytes_per_second(), DISK.bytes_per_second as f64 / 2.0, 0.1);
}

#[test]
fn of_a_volume_that_is_hardly_cached_nothing_is_measured() {
    use forebay_core::VolumeId;
    use forebay_engine::shard::measure::{MeasureError, MeasureOrder};

    let mut setup = small(Load::IDLE);
    setup.volumes[0].bytes = 100 * u64::from(PAGE);
    let mut world = started(&setup);
    let (volume, path) = (VolumeId(0), forebay_policy::split::Path::BACKEND);
    let order = MeasureOrder { volume, path, block_bytes: PAGE, in_flight: 8, for_ns: SECOND / 10 };
    assert_eq!(world.measure(order), Err(MeasureError::TooLittleCached { found: 100 }));
}
