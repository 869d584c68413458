extern crate std;

use super::*;
use crate::split::detector::PaperDetector;
use crate::split::netcas::NetCas;
use crate::split::profile::{Profile, Row, full_points};
use crate::split::world::World;
use crate::split::{Mode, PathTick, SetShare};
use proptest::prelude::*;
use std::vec::Vec;

const SHARE: f64 = 0.55;
const SECOND: usize = 10;
const MINUTE: usize = 600;

fn watch(world: &mut World, detector: &mut impl Detect, ticks: usize) -> Vec<Verdict> {
    (0..ticks).map(|_| detector.tick(&world.tick(SHARE))).collect()
}

fn congested(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| verdict.congested).count()
}

/// Watched for ten seconds.
fn warm_on(path: Path, mut world: World) -> (World, DemandDetector) {
    let mut detector = DemandDetector::new(path);
    assert_eq!(congested(&watch(&mut world, &mut detector, 100)), 0);
    assert!(detector.is_warm());
    (world, detector)
}

fn warm() -> (World, DemandDetector) {
    warm_on(Path::BACKEND, World::new())
}

#[test]
fn congestion_and_its_end_are_seen_within_half_a_second() {
    for left in [0.9, 0.7, 0.3, 0.05] {
        let (mut world, mut detector) = warm();
        world.bytes_per_second[1] *= left;
        let seen = watch(&mut world, &mut detector, 20 * SECOND);
        assert_eq!(congested(&seen[5..]), seen.len() - 5, "{left}");
        let severity = f64::from(seen[50].severity_permil) / 1_000.0;
        assert!((severity - (1.0 - left)).abs() < 0.03, "{left} left, severity {severity}");
        world.bytes_per_second[1] /= left;
        assert_eq!(congested(&watch(&mut world, &mut detector, 20 * SECOND)[5..]), 0, "{left}");
    }
}

#[test]
fn a_slow_cache_disk_is_seen_as_well() {
    let mut world = World::new();
    world.bytes_per_second[1] *= 2.0;
    let (mut world, mut detector) = warm_on(Path::DISK, world);
    world.bytes_per_second[0] *= 0.3;
    let seen = watch(&mut world, &mut detector, 20 * SECOND);
    assert!(seen[5..].iter().all(|verdict| verdict.congested && verdict.severity_permil.abs_diff(700) < 30));
}

#[test]
fn a_longer_way_is_seen_where_few_are_in_flight() {
    let mut world = World::new();
    world.in_flight = 1.0;
    let (mut world, mut detector) = warm_on(Path::BACKEND, world);
    world.base_ns[1] *= 2.0;
    let seen = watch(&mut world, &mut detector, 2 * SECOND);
    assert!(seen[5..].iter().all(|verdict| verdict.congested && (400..=480).contains(&verdict.severity_permil)));
}

/// The four that are not congestion, each beside what the paper's detector makes of it.
mod not_congestion {
    use super::*;

    /// Ours and the paper's, both watching the same world for ten seconds before and `ticks` after the change.
    fn both(change: impl Fn(&mut World), ticks: usize) -> [Vec<Verdict>; 2] {
        let mut paper = PaperDetector::new(Path::BACKEND);
        let (mut world, mut ours) = warm();
        let mut papers_world = World::new();
        watch(&mut papers_world, &mut paper, 100);
        change(&mut world);
        change(&mut papers_world);
        [watch(&mut world, &mut ours, ticks), watch(&mut papers_world, &mut paper, ticks)]
    }

    #[test]
    fn a_back_end_that_stays_slower_is_normal_after_a_minute() {
        let [ours, paper] = both(|world| world.bytes_per_second[1] *= 0.5, 60 * MINUTE);
        assert_eq!(congested(&paper[20..]), paper.len() - 20);
        assert_eq!(congested(&ours[MINUTE + 5..]), 0);
        let accepted = ours[MINUTE + 5];
        assert!(accepted.normal_permil.abs_diff(500) < 20 && accepted.severity_permil < 20, "{accepted:?}");
        assert!(ours[MINUTE + 5..].iter().all(|verdict| verdict.normal_permil == accepted.normal_permil));
    }

    #[test]
    fn an_idle_minute() {
        let [ours, paper] = both(|world| world.in_flight = 0.0, MINUTE);
        assert!(ours.iter().all(|verdict| *verdict == Verdict::CLEAR));
        assert!(paper[30..].iter().all(|verdict| verdict.severity_permil > 450));
    }

    #[test]
    fn the_end_of_an_idle_minute() {
        let (mut world, mut ours) = warm();
        for in_flight in [0.0, 64.0, 0.0, 1.0, 0.0, 256.0] {
            world.in_flight = in_flight;
            assert_eq!(congested(&watch(&mut world, &mut ours, MINUTE)), 0, "{in_flight}");
        }
    }

    #[test]
    fn other_block_sizes() {
        for block_bytes in [4_096, 16 << 10, 256 << 10, 1 << 20] {
            let [ours, paper] = both(|world| world.block_bytes = block_bytes, MINUTE);
            assert_eq!(congested(&ours), 0, "{block_bytes}");
            assert!(block_bytes < 64 << 10 || congested(&paper[20..]) == paper.len() - 20, "{block_bytes}");
        }
    }

    #[test]
    fn other_concurrency() {
        for in_flight in [1.0, 4.0, 16.0, 128.0, 512.0] {
            let [ours, paper] = both(|world| world.in_flight = in_flight, MINUTE);
            assert_eq!(congested(&ours), 0, "{in_flight}");
            assert!(in_flight < 64.0 || congested(&paper[20..]) == paper.len() - 20, "{in_flight}");
        }
    }
}

#[test]
fn a_capacity_that_melts_away_is_seen_unless_it_does_so_very_slowly() {
    for (part_a_second, is_seen) in [(0.01, true), (0.001, false)] {
        let (mut world, mut detector) = warm();
        let mut seen = 0;
        for _ in 0..120 {
            world.bytes_per_second[1] *= 1.0 - part_a_second;
            seen += congested(&watch(&mut world, &mut detector, SECOND));
        }
        assert_eq!(seen > 0, is_seen, "{part_a_second}");
    }
}

#[test]
fn a_lightly_loaded_volume_is_never_congested() {
    let (mut world, mut detector) = warm();
    world.in_flight = 0.4;
    world.base_ns[1] *= 100.0;
    assert_eq!(congested(&watch(&mut world, &mut detector, MINUTE)[3..]), 0);
}

#[test]
fn congestion_is_over_a_second_after_the_last_read() {
    let (mut world, mut detector) = warm();
    world.bytes_per_second[1] *= 0.3;
    assert!(watch(&mut world, &mut detector, 2 * SECOND)[19].congested);
    world.in_flight = 0.0;
    assert_eq!(congested(&watch(&mut world, &mut detector, MINUTE)[SECOND..]), 0);
}

#[test]
fn noise_is_not_congestion_and_does_not_hide_it() {
    for noise in [0.05, 0.2, 0.5] {
        let mut world = World::new();
        world.noise = noise;
        let mut detector = DemandDetector::new(Path::BACKEND);
        watch(&mut world, &mut detector, MINUTE);
        let seen = watch(&mut world, &mut detector, 10 * MINUTE);
        assert!(congested(&seen) <= seen.len() / 200, "{noise}: {}", congested(&seen));
        world.bytes_per_second[1] *= 0.3;
        let seen = watch(&mut world, &mut detector, 20 * SECOND);
        assert_eq!(congested(&seen[5..]), seen.len() - 5, "{noise}");
    }
}

#[test]
fn one_slow_period_is_not_congestion() {
    let (mut world, mut detector) = warm();
    for _ in 0..20 {
        world.bytes_per_second[1] *= 0.5;
        assert_eq!(congested(&watch(&mut world, &mut detector, 1)), 0);
        world.bytes_per_second[1] /= 0.5;
        assert_eq!(congested(&watch(&mut world, &mut detector, 5)), 0);
    }
}

#[test]
fn congestion_is_seen_where_the_load_changes_with_each_period() {
    let (mut world, mut detector) = warm();
    let mut alternate = |world: &mut World| {
        let mut seen = 0;
        for nth in 0..100 {
            world.in_flight = if nth % 2 == 0 { 32.0 } else { 64.0 };
            seen += congested(&watch(world, &mut detector, 1));
        }
        seen
    };
    assert_eq!(alternate(&mut world), 0);
    world.bytes_per_second[1] *= 0.3;
    assert!(alternate(&mut world) > 90);
}

#[test]
fn a_path_that_got_faster_is_expected_to_stay_so() {
    let (mut world, mut detector) = warm();
    world.bytes_per_second[1] *= 1.15;
    assert_eq!(congested(&watch(&mut world, &mut detector, 2 * SECOND)), 0);
    world.bytes_per_second[1] /= 1.15;
    let seen = watch(&mut world, &mut detector, SECOND);
    assert!(seen[5].congested && seen[5].severity_permil > 90, "{:?}", seen[5]);
}

#[test]
fn a_new_normal_outlasts_a_pause() {
    let (mut world, mut detector) = warm();
    world.bytes_per_second[1] *= 0.4;
    let before = watch(&mut world, &mut detector, MINUTE + 50)[MINUTE + 49];
    assert!(before.normal_permil < 450);
    for in_flight in [0.0, 64.0] {
        world.in_flight = in_flight;
        let seen = watch(&mut world, &mut detector, MINUTE);
        assert!(seen.iter().all(|verdict| !verdict.congested && verdict.normal_permil < 450), "{in_flight}");
    }
}

#[test]
fn a_new_normal_is_taken_back_when_the_path_is_as_fast_as_before() {
    let (mut world, mut detector) = warm();
    world.bytes_per_second[1] *= 0.4;
    assert!(watch(&mut world, &mut detector, MINUTE + 50)[MINUTE + 49].normal_permil < 450);
    world.bytes_per_second[1] /= 0.4;
    let seen = watch(&mut world, &mut detector, MINUTE);
    assert!(seen[SECOND].normal_permil > 950 && congested(&seen) == 0, "{:?}", seen[SECOND]);
    world.bytes_per_second[1] *= 0.4;
    assert_eq!(congested(&watch(&mut world, &mut detector, 2 * SECOND)[5..]), 15, "it still knows what it can do");
}

#[test]
fn a_path_that_answers_nothing_has_stalled() {
    let (mut world, mut detector) = warm();
    let mut tick = world.tick(SHARE);
    tick.paths[1].requests = 0;
    tick.paths[1].bytes = 0;
    tick.paths[1].latency_ns = 0;
    detector.tick(&tick);
    tick.paths[1].hits = 0;
    let seen: Vec<Verdict> = (0..10).map(|_| detector.tick(&tick)).collect();
    assert!(seen[5..].iter().all(|verdict| verdict.congested && verdict.severity_permil == 1_000), "{seen:?}");
    // A minute later it answers again.
    for _ in 0..=MINUTE {
        tick.now_ns += world.period_ns;
        assert!(detector.tick(&tick).congested);
    }
    world.now_ns = tick.now_ns;
    world.in_flight = 0.0;
    tick = world.tick(SHARE);
    tick.paths[1].requests = 1_000_000;
    tick.paths[1].latency_ns = 60_000_000_000;
    detector.tick(&tick);
    world.in_flight = 64.0;
    world.bytes_per_second[1] *= 0.5;
    let seen = watch(&mut world, &mut detector, 20 * SECOND);
    assert!(seen.iter().all(|verdict| verdict.normal_permil == 1_000), "an outage is no normal");
    world.bytes_per_second[1] /= 0.5;
    let seen = watch(&mut world, &mut detector, MINUTE);
    assert_eq!((congested(&seen[SECOND..]), seen[SECOND].normal_permil), (0, 1_000));
}

fn profile_of(world: &World) -> Profile {
    let rows = full_points().map(|point| {
        let mut world = world.clone();
        world.block_bytes = point.block_bytes;
        world.in_flight = f64::from(point.in_flight * point.submitters);
        Row::measured(point, [world.throughput(1.0), world.throughput(0.0)])
    });
    Profile::from_rows(rows).unwrap()
}

/// NetCAS with this detector on both paths: the share moves what is in flight, and that must not be mistaken.
struct Ours {
    policy: NetCas<DemandDetector, DemandDetector>,
    share: f64,
}

impl Ours {
    fn new(world: &World) -> Self {
        let [disk, backend] = [Path::DISK, Path::BACKEND].map(DemandDetector::new);
        Self { policy: NetCas::new(profile_of(world), disk, backend), share: 1.0 }
    }

    /// The part of the best throughput in each period.
    fn run(&mut self, world: &mut World, ticks: usize) -> Vec<f64> {
        let step = |_| {
            self.share = self.policy.set_share(&world.tick(self.share));
            world.throughput(self.share) / world.throughput(world.best_share())
        };
        (0..ticks).map(step).collect()
    }
}

fn mean(parts: &[f64]) -> f64 {
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// Periods of less than .85 of the best, after so many.
fn bad(parts: &[f64], after: usize) -> usize {
    parts[after..].iter().filter(|part| **part < 0.85).count()
}

#[test]
fn the_share_follows_the_capacity_within_a_second_and_back() {
    for (path, left) in [(1, 0.5), (1, 0.3), (1, 0.1), (0, 0.3)] {
        let mut world = World::new();
        world.noise = 0.02;
        let mut ours = Ours::new(&world);
        ours.run(&mut world, 100);
        world.bytes_per_second[path] *= left;
        let during = ours.run(&mut world, 20 * SECOND);
        assert_eq!(bad(&during, SECOND), 0, "{path} at {left}: {during:?}");
        assert!(mean(&during[SECOND..]) > 0.96, "{path} at {left}: {}", mean(&during[SECOND..]));
        world.bytes_per_second[path] /= left;
        let after = ours.run(&mut world, 20 * SECOND);
        assert_eq!(bad(&after, SECOND), 0, "{path} at {left}: {after:?}");
        assert!(mean(&after[SECOND..]) > 0.97, "{path} at {left}: {}", mean(&after[SECOND..]));
        assert_eq!(ours.policy.report().mode, Mode::Stable);
    }
}

#[test]
fn the_share_stays_right_when_a_slower_back_end_becomes_normal() {
    let mut world = World::new();
    world.noise = 0.02;
    let mut ours = Ours::new(&world);
    ours.run(&mut world, 100);
    world.bytes_per_second[1] *= 0.4;
    let slower = ours.run(&mut world, 5 * MINUTE);
    assert_eq!(ours.policy.report().mode, Mode::Stable);
    assert!(bad(&slower, SECOND) <= 3 * SECOND, "{}", bad(&slower, SECOND));
    assert!(mean(&slower[MINUTE..]) > 0.97, "{}", mean(&slower[MINUTE..]));
    world.bytes_per_second[1] /= 0.4;
    let again = ours.run(&mut world, MINUTE);
    assert_eq!(bad(&again, 10 * SECOND), 0, "{again:?}");
}

/// Two control periods as one.
fn together(first: &Tick, second: &Tick) -> Tick {
    let mut both = Tick { elapsed_ns: first.elapsed_ns + second.elapsed_ns, ..*second };
    for ((both, a), b) in both.paths.iter_mut().zip(&first.paths).zip(&second.paths) {
        let latency_ns = a.latency_ns * a.requests + b.latency_ns * b.requests;
        *both = PathTick {
            requests: a.requests + b.requests,
            bytes: a.bytes + b.bytes,
            latency_ns: latency_ns.checked_div(a.requests + b.requests).unwrap_or(0),
            hits: a.hits + b.hits,
            in_flight: (a.in_flight + b.in_flight) / 2.0,
        };
    }
    both
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is asked of two paths that stay as they are, neither is congested; also where the load changes within
    /// a period, if it then lasts for one.
    #[test]
    fn no_demand_is_congestion(
        steps in prop::collection::vec((0..9_u32, 0..10_i32, 0.02..=0.98_f64, 4..60_usize), 1..40)
    ) {
        let mut world = World::new();
        let mut detectors = [Path::DISK, Path::BACKEND].map(DemandDetector::new);
        world.period_ns /= 2;
        let mut half = None;
        for (size, depth, share, ticks) in steps {
            world.block_bytes = 4_096 << size;
            world.in_flight = if depth == 0 { 0.0 } else { f64::from(1 << (depth - 1)) };
            for _ in 0..ticks {
                let tick = world.tick(share);
                let Some(before) = half.take() else {
                    half = Some(tick);
                    continue;
                };
                let tick = together(&before, &tick);
                for detector in &mut detectors {
                    let verdict = detector.tick(&tick);
                    prop_assert!(!verdict.congested, "{:?} at {:?}", verdict, world);
                }
            }
        }
    }

    /// Nothing that a control period may hold breaks it.
    #[test]
    fn verdicts_stay_in_range(
        ticks in prop::collection::vec((0..1_000_u64, 0..1_u64 << 40, 0..1_u64 << 40, 0..1_000_u64), 1..300)
    ) {
        let mut detector = DemandDetector::new(Path::DISK);
        for (n, (requests, bytes, latency_ns, hits)) in ticks.into_iter().enumerate() {
            let mut tick = Tick { now_ns: n as u64 * 1_000_000_000, elapsed_ns: 1_000_000_000, ..Tick::default() };
            tick.paths[0].requests = requests;
            tick.paths[0].bytes = if requests == 0 { 0 } else { bytes };
            tick.paths[0].latency_ns = if requests == 0 { 0 } else { latency_ns };
            tick.paths[0].in_flight = (requests * latency_ns) as f64 / 1e9;
            tick.paths[0].hits = hits;
            let verdict = detector.tick(&tick);
            prop_assert!(verdict.severity_permil <= 1_000 && (10..=1_000).contains(&verdict.normal_permil));
        }
    }
}
