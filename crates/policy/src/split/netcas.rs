//! NetCAS: the share that a profile gives, lowered while a path is congested.
//!
//! J. Y. Hwang, C. Park and Y. Kim, "NetCAS: Dynamic Cache and Backend Device Management in Networked Environments".
//! Two paths that work in parallel are done at the same time when each gets requests in proportion to what it delivers:
//! with Ic and Ib from the profile and the severity d of the detector, the cache gets
//! `Ic / (Ic + Ib (1 - d / 1000))` (section III-E).
//!
//! # How
//! Each control period: the detectors look at their paths; the load (block size, requests in flight, submitters) is
//! read from what ended; the profile is asked for it; the [mode](super::mode) moves. Without an answer
//! everything goes to the cache disk. In Warmup and Stable the share is the profile's, in Congestion it is recomputed with the severity of each
//! congested path. In Stable, what each path delivered is entered into the profile.
//!
//! The paper's own is `NetCas::new(profile, Unwatched, PaperDetector::new(Path::BACKEND))`. Where its code assumes one
//! load (16 in flight, one thread), the load is detected here, and the cache disk can have a detector too.
//!
//! # Ours
//! In Congestion each path keeps [`PROBE_SHARE`] of the hits. A severity of 1000 would send it none, nothing would end
//! there, and no detector could see that it is free again.
//!
//! # Limits
//! The formula holds where both paths have enough in flight. With few it loses up to half of what the cache disk alone
//! does (section III-E; .51 on the authors' table at depth 1), for there latency decides.

use super::detector::{Detect, Verdict};
use super::mode::{self, Event};
use super::profile::{PATHS, Point, Profile};
use super::shared::SetShare;
use super::{Mode, PATHS_MAX, Path, Report, Tick};

/// The part of the hits that a congested path gets at least.
pub const PROBE_SHARE: f64 = 0.01;

/// See the module. `C` watches the cache disk, `B` the back end.
#[derive(Clone, Debug)]
pub struct NetCas<C, B> {
    profile: Profile,
    disk: C,
    backend: B,
    mode: Mode,
    share: f64,
    /// What the profile says of this load; `None` if nothing, or before the first.
    rates: Option<[f64; PATHS]>,
    verdicts: [Verdict; PATHS],
    latency_ns: [u64; PATHS_MAX],
}

impl<C: Detect, B: Detect> NetCas<C, B> {
    /// With a profile, which may be empty, and a detector for each path.
    pub fn new(profile: Profile, disk: C, backend: B) -> Self {
        Self {
            profile,
            disk,
            backend,
            mode: Mode::NoTable,
            share: 1.0,
            rates: None,
            verdicts: [Verdict::CLEAR; PATHS],
            latency_ns: [0; PATHS_MAX],
        }
    }

    /// Another profile from now on.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
        self.rates = None;
        self.mode = mode::after(self.mode, Event::ProfileGone);
    }

    /// The detectors' verdicts; a path whose normal changed changes in the profile.
    fn look(&mut self, tick: &Tick) {
        let verdicts = [self.disk.tick(tick), self.backend.tick(tick)];
        for (path, (is, was)) in [Path::DISK, Path::BACKEND].into_iter().zip(verdicts.iter().zip(&self.verdicts)) {
            if is.normal_permil != was.normal_permil {
                self.profile.scale(path, f64::from(is.normal_permil) / f64::from(was.normal_permil));
            }
        }
        self.verdicts = verdicts;
        for (known, path) in self.latency_ns.iter_mut().zip(&tick.paths) {
            if path.latency_ns > 0 {
                *known = path.latency_ns;
            }
        }
    }

    fn move_mode(&mut self) {
        let congested = self.verdicts.iter().any(|verdict| verdict.congested);
        let warm = self.disk.is_warm() && self.backend.is_warm();
        let events = [
            Some(if self.rates.is_some() { Event::Profiled } else { Event::ProfileGone }),
            warm.then_some(Event::Warm),
            Some(if congested { Event::Congested } else { Event::Clear }),
        ];
        self.mode = events.into_iter().flatten().fold(self.mode, mode::after);
    }

    /// What each path delivers now: less, where it is congested.
    fn delivered(&self) -> Option<[f64; PATHS]> {
        let mut rates = self.rates?;
        for (rate, verdict) in rates.iter_mut().zip(&self.verdicts) {
            if self.mode == Mode::Congestion && verdict.congested {
                *rate *= 1.0 - f64::from(verdict.severity_permil) / 1_000.0;
            }
        }
        Some(rates)
    }

    fn observe(&mut self, tick: &Tick) {
        for path in [Path::DISK, Path::BACKEND] {
            if let Some(point) = Point::of_path(&tick.paths[path.index()], tick.submitters) {
                self.profile.observe(path, point, tick.bytes_per_second(path));
            }
        }
    }
}

/// The formula of section III-E; the cache disk gets all if nothing is delivered.
fn share_of([disk, backend]: [f64; PATHS]) -> f64 {
    if disk + backend > 0.0 { disk / (disk + backend) } else { 1.0 }
}

impl<C: Detect, B: Detect> SetShare for NetCas<C, B> {
    fn set_share(&mut self, tick: &Tick) -> f64 {
        self.look(tick);
        if let Some(point) = Point::of(tick) {
            let [disk, backend] = [Path::DISK, Path::BACKEND].map(|path| self.profile.rate(path, point));
            self.rates = disk.zip(backend).map(|(disk, backend)| [disk, backend]);
        }
        self.move_mode();
        self.share = self.delivered().map_or(1.0, share_of);
        match self.mode {
            Mode::Congestion => self.share = self.share.clamp(PROBE_SHARE, 1.0 - PROBE_SHARE),
            Mode::Stable => self.observe(tick),
            Mode::NoTable | Mode::Warmup => {}
        }
        self.share
    }

    fn profile(&self) -> Option<&Profile> {
        Some(&self.profile)
    }

    fn report(&self) -> Report {
        let mut bytes_per_second = [0.0; PATHS_MAX];
        bytes_per_second[..PATHS].copy_from_slice(&self.delivered().unwrap_or_default());
        Report {
            disk_share: self.share,
            mode: self.mode,
            severity_permil: self.verdicts[Path::BACKEND.index()].severity_permil,
            bytes_per_second,
            latency_ns: self.latency_ns,
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::detector::{PaperDetector, Unwatched};
    use crate::split::profile::{Row, Source, full_points};
    use crate::split::world::{World, profile_of};
    use proptest::prelude::*;

    fn formula(world: &World) -> f64 {
        share_of([1.0, 0.0].map(|share| world.throughput(share)))
    }

    fn paper(world: &World) -> NetCas<Unwatched, PaperDetector> {
        NetCas::new(profile_of(world), Unwatched, PaperDetector::new(Path::BACKEND))
    }

    fn run<C: Detect, B: Detect>(policy: &mut NetCas<C, B>, world: &mut World, ticks: usize) {
        for _ in 0..ticks {
            let tick = world.tick(policy.share);
            policy.set_share(&tick);
        }
    }

    #[test]
    fn the_modes_are_walked_and_the_share_follows() {
        let mut world = World::new();
        let mut policy = paper(&world);
        assert_eq!((policy.report().mode, policy.report().disk_share), (Mode::NoTable, 1.0));
        run(&mut policy, &mut world, 1);
        assert_eq!(policy.report().mode, Mode::Warmup);
        assert!((policy.report().disk_share - formula(&world)).abs() < 1e-3);
        run(&mut policy, &mut world, 100);
        assert_eq!(policy.report().mode, Mode::Stable);
        assert!((policy.report().disk_share - world.best_share()).abs() < 0.02, "{:?}", policy.report());
        let clear = policy.report().disk_share;
        world.bytes_per_second[1] *= 0.3;
        run(&mut policy, &mut world, 10);
        assert_eq!(policy.report().mode, Mode::Congestion);
        run(&mut policy, &mut world, 100);
        assert!(policy.report().disk_share > clear + 0.1, "{:?}", policy.report());
        world.bytes_per_second[1] /= 0.3;
        run(&mut policy, &mut world, 100);
        // Not all of it: what it saw while little was asked of the path is now its lowest latency.
        assert!((0.0..0.05).contains(&(policy.report().disk_share - world.best_share())), "{:?}", policy.report());
    }

    #[test]
    fn without_a_profile_all_goes_to_the_cache_disk() {
        let mut world = World::new();
        let mut policy = NetCas::new(Profile::new(), Unwatched, PaperDetector::new(Path::BACKEND));
        run(&mut policy, &mut world, 50);
        assert_eq!((policy.report().mode, policy.report().disk_share), (Mode::NoTable, 1.0));
        policy.set_profile(profile_of(&world));
        run(&mut policy, &mut world, 1);
        assert!((policy.report().disk_share - formula(&world)).abs() < 1e-3);
        policy.set_profile(Profile::new());
        assert_eq!(policy.report().mode, Mode::NoTable);
        run(&mut policy, &mut world, 1);
        assert_eq!(policy.report().disk_share, 1.0);
    }

    #[test]
    fn the_load_is_looked_up_live() {
        let mut world = World::new();
        let mut policy = paper(&world);
        run(&mut policy, &mut world, 10);
        world.in_flight = 1.0;
        run(&mut policy, &mut world, 10);
        let share = formula(&world);
        assert!(share > 0.7 && (policy.report().disk_share - share).abs() < 1e-3, "{:?}", policy.report());
        world.in_flight = 0.0;
        run(&mut policy, &mut world, 10);
        assert!((policy.report().disk_share - share).abs() < 1e-3, "silence says nothing: {:?}", policy.report());
    }

    #[test]
    fn what_was_seen_in_stable_is_entered_into_the_profile() {
        let mut world = World::new();
        let mut policy = paper(&world);
        world.block_bytes = 256 << 10;
        run(&mut policy, &mut world, 19);
        assert_eq!(policy.profile.rows().count(), 50, "not before there are baselines");
        run(&mut policy, &mut world, 100);
        assert!(policy.profile.rows().any(|row| row.source == Source::Observed));
        let point = Point { block_bytes: 256 << 10, in_flight: 16, submitters: 4 };
        let rate = policy.profile.rate(Path::BACKEND, point).unwrap();
        assert!((rate - world.bytes_per_second[1]).abs() < 1e8, "{rate}");
    }

    /// Says what it is told to.
    struct Told(Verdict);

    impl Detect for Told {
        fn tick(&mut self, _tick: &Tick) -> Verdict {
            self.0
        }

        fn is_warm(&self) -> bool {
            true
        }
    }

    fn told(severity_permil: u32) -> Told {
        Told(Verdict { severity_permil, congested: severity_permil > 0, normal_permil: 1_000 })
    }

    #[test]
    fn a_congested_path_is_still_probed() {
        let mut world = World::new();
        for (disk, backend, share) in [(0, 1_000, 0.99), (1_000, 0, 0.01), (0, 500, 0.75), (1_000, 1_000, 0.99)] {
            let mut policy = NetCas::new(profile_of(&world), told(disk), told(backend));
            run(&mut policy, &mut world, 2);
            assert!((policy.report().disk_share - share).abs() < 0.01, "{disk} {backend}: {:?}", policy.report());
        }
    }

    #[test]
    fn a_new_normal_changes_the_profile_once() {
        let mut world = World::new();
        let mut policy = NetCas::new(profile_of(&world), told(0), told(0));
        run(&mut policy, &mut world, 1);
        policy.backend.0.normal_permil = 500;
        let before = policy.profile.rate(Path::BACKEND, Point { block_bytes: 4_096, in_flight: 16, submitters: 16 });
        run(&mut policy, &mut world, 5);
        let after = policy.profile.rate(Path::BACKEND, Point { block_bytes: 4_096, in_flight: 16, submitters: 16 });
        assert_eq!(after.unwrap(), before.unwrap() / 2.0);
    }

    proptest! {
        #[test]
        fn the_share_is_the_formula(disk in 1.0..1e10_f64, backend in 1.0..1e10_f64, severity in 1..1_000_u32) {
            let rows = full_points().map(|point| Row::measured(point, [disk, backend]));
            let mut policy = NetCas::new(Profile::from_rows(rows).unwrap(), told(0), told(severity));
            let tick = World::new().tick(0.5);
            let share = policy.set_share(&tick);
            let formula = disk / (disk + backend * (1.0 - f64::from(severity) / 1_000.0));
            prop_assert!((share - formula.clamp(0.01, 0.99)).abs() < 1e-12, "{} {}", share, formula);
        }
    }
}
