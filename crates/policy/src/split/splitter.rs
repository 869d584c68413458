//! A volume's split: a meter, a policy, a budget, and the clock that drives them.
//!
//! The owner asks [`Splitter::choose`] for each hit, tells of every read that starts and ends, and ticks. A policy whose
//! control period is shorter than the owner's tick gets it from the reads that end.
//!
//! Beside the policy, two things keep a hit on the cache disk: a back end in trouble, for [`SUSPEND_NS`] after a read of
//! it failed or was given up; and the budget of a back end that bills what it sends.

use super::bwrr::Bwrr;
use super::demand_detector::DemandDetector;
use super::detector::{PaperDetector, Unwatched};
use super::fixed::Fixed;
use super::netcas::NetCas;
use super::orthus::Orthus;
use super::orthus_paper::OrthusPaper;
use super::profile::Profile;
use super::random::Random;
use super::{Climb, Done, ExpectedDelay, Hit, InFlight, Meter, PATHS_MAX, Path, PathSet, Report, Shared, Split, Use};
use alloc::boxed::Box;

/// How long a back end that failed is left alone.
pub const SUSPEND_NS: u64 = 1_000_000_000;
/// How much of the budget may be saved up, in seconds.
const SAVED_S: f64 = 0.1;
/// What the draws of [`SplitKind::NetCasRandom`] follow from.
const RANDOM_SEED: u64 = 1;

/// Which policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitKind {
    /// Every hit from the cache disk; nothing is measured.
    #[default]
    Off,
    /// [`Fixed::CACHE_ONLY`], measured.
    CacheOnly,
    /// [`Fixed::BACKEND_ONLY`].
    BackendOnly,
    /// A share that stays, in thousandths for the cache disk.
    Static {
        /// 0 to 1000.
        disk_permil: u16,
    },
    /// [`Climb`].
    Climb,
    /// [`Orthus`].
    Orthus,
    /// [`OrthusPaper`], of the shares that follow from the profile.
    OrthusPaper,
    /// [`NetCas`], as the paper has it.
    NetCas,
    /// The same, dispatched by chance.
    NetCasRandom,
    /// [`NetCas`] with [`DemandDetector`]s for both paths.
    NetCasDemand,
    /// [`ExpectedDelay`].
    ExpectedDelay,
}

impl SplitKind {
    /// The kinds by name; of [`Self::Static`] with everything for the cache disk.
    pub const NAMED: [(&str, Self); 11] = [
        ("off", Self::Off),
        ("cache-only", Self::CacheOnly),
        ("backend-only", Self::BackendOnly),
        ("static", Self::Static { disk_permil: 1000 }),
        ("climb", Self::Climb),
        ("orthus", Self::Orthus),
        ("orthus-paper", Self::OrthusPaper),
        ("netcas", Self::NetCas),
        ("netcas-random", Self::NetCasRandom),
        ("netcas-demand", Self::NetCasDemand),
        ("expected-delay", Self::ExpectedDelay),
    ];

    /// The kind of that name; `disk_permil` is for `static`.
    #[must_use]
    pub fn from_name(name: &str, disk_permil: u16) -> Option<Self> {
        let (_, kind) = Self::NAMED.into_iter().find(|(known, _)| *known == name)?;
        Some(if matches!(kind, Self::Static { .. }) { Self::Static { disk_permil } } else { kind })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let is = |kind: Self| core::mem::discriminant(&kind) == core::mem::discriminant(&self);
        Self::NAMED.into_iter().find(|(_, kind)| is(*kind)).map_or("", |(name, _)| name)
    }

    /// Whether it sends all to the cache disk as long as it has no profile.
    #[must_use]
    pub fn needs_profile(self) -> bool {
        matches!(self, Self::OrthusPaper | Self::NetCas | Self::NetCasRandom | Self::NetCasDemand)
    }

    /// The policy, with what each path delivers; `None` for [`Self::Off`].
    #[must_use]
    pub fn build(self, profile: &Profile) -> Option<Box<dyn Split + Send>> {
        let netcas = || NetCas::new(profile.clone(), Unwatched, PaperDetector::new(Path::BACKEND));
        Some(match self {
            Self::Off => return None,
            Self::CacheOnly => Box::new(Shared::new(Fixed::CACHE_ONLY, Bwrr::new())),
            Self::BackendOnly => Box::new(Shared::new(Fixed::BACKEND_ONLY, Bwrr::new())),
            Self::Static { disk_permil } => {
                Box::new(Shared::new(Fixed::new(f64::from(disk_permil) / 1e3), Bwrr::new()))
            }
            Self::Climb => Box::new(Shared::new(Climb::default(), Bwrr::new())),
            Self::Orthus => Box::new(Shared::new(Orthus::new(), Bwrr::new())),
            Self::OrthusPaper => Box::new(Shared::new(OrthusPaper::of_profile(profile), Bwrr::new())),
            Self::NetCas => Box::new(Shared::new(netcas(), Bwrr::new())),
            Self::NetCasRandom => Box::new(Shared::new(netcas(), Random::new(RANDOM_SEED))),
            Self::NetCasDemand => {
                let [disk, backend] = [Path::DISK, Path::BACKEND].map(DemandDetector::new);
                Box::new(Shared::new(NetCas::new(profile.clone(), disk, backend), Bwrr::new()))
            }
            Self::ExpectedDelay => Box::<ExpectedDelay>::default(),
        })
    }
}

/// What a volume is configured to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitConfig {
    /// The policy.
    pub kind: SplitKind,
    /// Hits may take so much from the back end; 0: any amount.
    pub backend_bytes_per_second_max: u64,
}

/// A split as it stands, for metrics and `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SplitState {
    /// What it was made from.
    pub config: SplitConfig,
    /// What the policy believes.
    pub report: Report,
    /// Reads and writes in flight on each path, reads that had no choice too.
    pub in_flight: [u32; PATHS_MAX],
    /// Whether the back end is left alone, since a read of it failed or was late.
    pub is_suspended: bool,
    /// Hits that the policy would have sent to the back end, and that the budget kept on the cache disk.
    pub over_budget: u64,
}

/// Bytes that may be taken, renewed at a rate.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes_per_second: f64,
    bytes: f64,
    at_ns: u64,
}

impl Budget {
    /// Takes them, or says that they are not there.
    fn take(&mut self, now_ns: u64, bytes: u32) -> bool {
        let most = (self.bytes_per_second * SAVED_S).max(f64::from(bytes));
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = now_ns;
        self.bytes = (self.bytes + passed_s * self.bytes_per_second).min(most);
        let enough = self.bytes >= f64::from(bytes);
        if enough {
            self.bytes -= f64::from(bytes);
        }
        enough
    }
}

/// See the module.
pub struct Splitter {
    config: SplitConfig,
    policy: Box<dyn Split + Send>,
    meter: Meter,
    budget: Option<Budget>,
    period_ns: u64,
    next_ns: u64,
    suspended_until_ns: u64,
    over_budget: u64,
    submitters: u32,
    misses: u64,
    reads: u64,
}

impl core::fmt::Debug for Splitter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Splitter")
            .field("config", &self.config)
            .field("report", &self.policy.report())
            .finish_non_exhaustive()
    }
}

impl Splitter {
    /// `None` if nothing is split. What each path delivers may be unknown: an empty profile.
    #[must_use]
    pub fn new(config: SplitConfig, profile: &Profile, now_ns: u64) -> Option<Self> {
        let policy = config.kind.build(profile)?;
        let rate = config.backend_bytes_per_second_max as f64;
        let budget = (rate > 0.0).then_some(Budget { bytes_per_second: rate, bytes: 0.0, at_ns: now_ns });
        let period_ns = policy.period_ns();
        Some(Self {
            config,
            policy,
            meter: Meter::new(now_ns),
            budget,
            period_ns,
            next_ns: now_ns + period_ns,
            suspended_until_ns: 0,
            over_budget: 0,
            submitters: 1,
            misses: 0,
            reads: 0,
        })
    }

    /// The path of a hit of `bytes`.
    pub fn choose(&mut self, now_ns: u64, bytes: u32) -> Path {
        if now_ns < self.suspended_until_ns {
            return Path::DISK;
        }
        let path = self.policy.choose(&Hit { bytes, paths: PathSet::DISK_AND_BACKEND }, &self.meter);
        if path == Path::DISK || self.budget.as_mut().is_none_or(|budget| budget.take(now_ns, bytes)) {
            return path;
        }
        self.over_budget += 1;
        Path::DISK
    }

    /// A read or a write of a path was ordered. What [`Done::in_flight`] will be.
    pub fn started(&mut self, path: Path, bytes: u32, kind: Use) -> InFlight {
        self.reads += u64::from(kind != Use::Write);
        self.misses += u64::from(kind == Use::Miss);
        self.meter.started(path, bytes, kind)
    }

    /// It ended.
    pub fn ended(&mut self, done: &Done) {
        self.meter.ended(done);
        self.policy.ended(done);
        if done.now_ns >= self.next_ns {
            self.tick(done.now_ns);
        }
    }

    /// It ended without bytes, and says nothing of what the path delivers.
    pub fn declined(&mut self, done: &Done) {
        self.meter.declined(done);
    }

    /// A read of the back end failed, or was given up.
    pub fn suspend(&mut self, now_ns: u64) {
        self.suspended_until_ns = now_ns + SUSPEND_NS;
    }

    /// So many clients have requests in flight.
    pub fn set_submitters(&mut self, submitters: u32) {
        self.submitters = submitters.max(1);
    }

    /// Time passed. A control period ends if its time has come.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + self.period_ns;
        let mut tick = self.meter.tick(now_ns);
        tick.submitters = self.submitters;
        tick.miss_permil = (self.misses * 1000).checked_div(self.reads).unwrap_or(0) as u32;
        (self.misses, self.reads) = (0, 0);
        self.policy.tick(&tick);
    }

    /// See [`Split::profile`].
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        self.policy.profile()
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self, now_ns: u64) -> SplitState {
        SplitState {
            config: self.config,
            report: self.policy.report(),
            in_flight: core::array::from_fn(|path| self.meter.in_flight(Path::new(path)).all),
            is_suspended: now_ns < self.suspended_until_ns,
            over_budget: self.over_budget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::profile::{Row, full_points};
    use crate::split::{Mode, PERIOD_NS};

    const BYTES: u32 = 65_536;

    fn backend_only(bytes_per_second_max: u64) -> Splitter {
        let config = SplitConfig { kind: SplitKind::BackendOnly, backend_bytes_per_second_max: bytes_per_second_max };
        Splitter::new(config, &Profile::new(), 0).unwrap()
    }

    #[test]
    fn a_budget_is_kept_over_any_second() {
        let mut splitter = backend_only(100 * u64::from(BYTES));
        let taken = |splitter: &mut Splitter, from_ms: u64| {
            let at = |ms: u64| (from_ms + ms) * 1_000_000;
            (0..1000).filter(|ms| splitter.choose(at(*ms), BYTES) == Path::BACKEND).count()
        };
        assert!((99..=101).contains(&taken(&mut splitter, 0)));
        assert!((899..=901).contains(&splitter.state(0).over_budget), "{}", splitter.state(0).over_budget);
        // An idle minute is not saved up.
        assert!((99..=110).contains(&taken(&mut splitter, 60_000)));
    }

    #[test]
    fn a_back_end_in_trouble_is_left_alone_for_a_while() {
        let mut splitter = backend_only(0);
        assert_eq!(splitter.choose(0, BYTES), Path::BACKEND);
        splitter.suspend(5);
        assert_eq!(splitter.choose(5 + SUSPEND_NS - 1, BYTES), Path::DISK);
        assert!(splitter.state(5 + SUSPEND_NS - 1).is_suspended && !splitter.state(5 + SUSPEND_NS).is_suspended);
        assert_eq!(splitter.choose(5 + SUSPEND_NS, BYTES), Path::BACKEND);
    }

    #[test]
    fn every_kind_has_its_name() {
        for (name, kind) in SplitKind::NAMED {
            assert_eq!(kind.name(), name);
            assert_eq!(SplitKind::from_name(name, 1000), Some(kind));
        }
        assert_eq!(SplitKind::from_name("static", 300), Some(SplitKind::Static { disk_permil: 300 }));
        assert_eq!(SplitKind::from_name("fast", 0), None);
    }

    #[test]
    fn off_is_no_policy() {
        assert!(Splitter::new(SplitConfig::default(), &Profile::new(), 0).is_none());
    }

    #[test]
    fn a_short_control_period_is_kept_by_the_reads_that_end() {
        let config = SplitConfig { kind: SplitKind::Orthus, backend_bytes_per_second_max: 0 };
        let mut splitter = Splitter::new(config, &Profile::new(), 0).unwrap();
        for at in 1..=20u64 {
            let now_ns = at * 1_000_000;
            let in_flight = splitter.started(Path::DISK, BYTES, Use::Hit);
            let (path, kind) = (Path::DISK, Use::Hit);
            splitter.ended(&Done { path, kind, bytes: BYTES, now_ns, latency_ns: 1_000, in_flight });
        }
        assert_eq!(splitter.next_ns, 25_000_000);
    }

    /// Reads of both paths that take so long, as many as fit into a control period.
    fn pass_period(splitter: &mut Splitter, from_ns: u64, latency_ns: u64) {
        let (mut now_ns, end_ns) = (from_ns, from_ns + PERIOD_NS);
        while now_ns < end_ns {
            let path = splitter.choose(now_ns, BYTES);
            let in_flight = splitter.started(path, BYTES, Use::Hit);
            now_ns += latency_ns;
            splitter.ended(&Done { path, kind: Use::Hit, bytes: BYTES, now_ns, latency_ns, in_flight });
        }
    }

    #[test]
    fn a_profile_is_what_moves_those_that_need_one() {
        let rows = full_points().map(|point| Row::measured(point, [3e9, 1e9]));
        let known = Profile::from_rows(rows).unwrap();
        for (name, kind) in SplitKind::NAMED.into_iter().filter(|(_, kind)| kind.needs_profile()) {
            let config = SplitConfig { kind, backend_bytes_per_second_max: 0 };
            let shares = [Profile::new(), known.clone()].map(|profile| {
                let mut splitter = Splitter::new(config, &profile, 0).unwrap();
                splitter.set_submitters(4);
                (0..3).for_each(|period| pass_period(&mut splitter, period * PERIOD_NS, 50_000));
                let report = splitter.policy.report();
                assert_eq!(report.mode == Mode::NoTable, profile.rows().count() == 0 && name.starts_with("netcas"));
                report.disk_share
            });
            // One read is in flight at a time: the formula does not care, the best share does.
            let moved = if kind == SplitKind::OrthusPaper { 1.0 } else { 0.75 };
            assert_eq!(shares, [1.0, moved], "{name}");
        }
    }
}
