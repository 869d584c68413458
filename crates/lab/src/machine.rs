//! The machine of the experiments in virtual time: a cache disk and a back end, as far apart as those of NetCAS' authors.
//!
//! Their table says how two real paths behave (Hwang et al., 64 KiB random reads): one read at a time is 22 times as fast
//! from the cache disk; a job gets no more than .45 of what the disk delivers to four; with 16 jobs it delivers .7 of
//! that; the back end delivers .48 of it, and needs 22 reads in flight to do so. Here the same ratios hold, and the rest
//! is the real cache in the real shard loop ([`forebay_sim::pace`]).
//!
//! A read is a page of 4 KiB, because its checksum is computed and a larger one costs time and shows nothing else: paths
//! are defined in reads a second. The disk's 20,000 are what a disk of 1.3 GB/s delivers of 64 KiB.
//!
//! Limits: the unit of the authors' table is not stated, so how fast the machine is in absolute terms is our choice; it
//! matters to policies that measure for a fixed time. The disk's rate depends on jobs, which a policy cannot see.

use forebay_core::{SplitConfig, SplitKind};
use forebay_policy::split::profile::{Profile, Row, full_points};
use forebay_sim::pace::{Load, PacedWorld, PathModel, Setup, Tick};
use serde_json::{Map, Value};

/// A page, and a read.
pub(crate) const READ_BYTES: u32 = 4096;
/// A second, in virtual time.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// Pages of a volume that is only read.
const PAGES: u64 = 32_768;
/// Of one that is also written: many, since what was written is not split until it is flushed.
const PAGES_WRITTEN: u64 = 524_288;
/// What the disk delivers to four jobs.
const DISK_READS_PER_SECOND: u64 = 20_000;
/// What it delivers to so many jobs, of that: the authors' column for depth 32.
const DISK_PERMIL_BY_JOBS: [(u32, u64); 6] = [(1, 454), (2, 778), (4, 1000), (8, 971), (16, 708), (32, 578)];
const DISK_LATENCY_NS: u64 = 10_000;
const BACKEND_PERMIL: u64 = 481;
const BACKEND_LATENCY_NS: u64 = 2_400_000;
/// Latencies are spread over this part of the mean, both ways.
const JITTER_PERMIL: u32 = 300;
/// Flows that a volume's connections are on a link.
const CONNECTIONS: u32 = 4;

/// Whose figures the bars are about.
pub(crate) const OURS: &str = "expected-delay";
/// NetCAS as its authors have it.
pub(crate) const NETCAS: &str = "netcas";
/// Those that find their way by themselves.
pub(crate) const ADAPTIVE: [Policy; 5] = [
    Policy { name: NETCAS, kind: SplitKind::NetCas },
    Policy { name: "netcas-demand", kind: SplitKind::NetCasDemand },
    Policy { name: "orthus", kind: SplitKind::Orthus },
    Policy { name: "climb", kind: SplitKind::Climb },
    Policy { name: OURS, kind: SplitKind::ExpectedDelay },
];
/// NetCAS that draws lots.
pub(crate) const NETCAS_RANDOM: Policy = Policy { name: "netcas-random", kind: SplitKind::NetCasRandom };
/// The best share that stays, as it follows from the profile.
pub(crate) const ORTHUS_PAPER: Policy = Policy { name: "orthus-paper", kind: SplitKind::OrthusPaper };
/// Hits only from the cache disk.
pub(crate) const CACHE_ONLY: Policy = Policy { name: "cache-only", kind: SplitKind::CacheOnly };
/// Hits only from the back end.
pub(crate) const BACKEND_ONLY: Policy = Policy { name: "backend-only", kind: SplitKind::BackendOnly };

/// A policy on trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// In cells and tables.
    pub(crate) name: &'static str,
    pub(crate) kind: SplitKind,
}

impl Policy {
    /// A share that stays.
    pub(crate) fn fixed(name: &'static str, disk_share: f64) -> Self {
        Self { name, kind: SplitKind::Static { disk_permil: (disk_share * 1e3).round() as u16 } }
    }
}

/// The back end, alone on its link.
pub(crate) fn backend() -> PathModel {
    PathModel {
        bytes_per_second: link_bytes_per_second(),
        latency_ns: BACKEND_LATENCY_NS,
        overhead_bytes: 0,
        jitter_permil: JITTER_PERMIL,
        writes: None,
    }
}

/// The link to the back end: what the back end delivers.
pub(crate) fn link_bytes_per_second() -> u64 {
    DISK_READS_PER_SECOND * BACKEND_PERMIL / 1000 * u64::from(READ_BYTES)
}

/// The cache disk, with so many jobs.
pub(crate) fn disk(jobs: u32) -> PathModel {
    let row = DISK_PERMIL_BY_JOBS.iter().find(|(upto, _)| jobs <= *upto);
    let (_, permil) = row.unwrap_or(&DISK_PERMIL_BY_JOBS[DISK_PERMIL_BY_JOBS.len() - 1]);
    PathModel {
        bytes_per_second: DISK_READS_PER_SECOND * permil / 1000 * u64::from(READ_BYTES),
        latency_ns: DISK_LATENCY_NS,
        overhead_bytes: 0,
        jitter_permil: JITTER_PERMIL,
        writes: None,
    }
}

/// Volumes with this load each, all behind link 0.
pub(crate) fn setup(volumes: u32, load: Load, seed: u64) -> Setup {
    let mut setup = Setup::one_volume(disk(volumes * load.jobs), backend(), load);
    let pages = if load.read_permil == 1000 { PAGES } else { PAGES_WRITTEN };
    setup.page_bytes = READ_BYTES;
    setup.links_bytes_per_second = vec![link_bytes_per_second()];
    setup.pages_in_flight_max = (volumes * load.in_flight()).max(64);
    setup.seed = seed;
    setup.volumes[0].bytes = pages * u64::from(READ_BYTES);
    setup.volumes[0].link = Some((0, CONNECTIONS));
    setup.volumes = vec![setup.volumes[0]; volumes as usize];
    setup
}

/// What `forebay profile` would measure of the two paths, with reads of so many bytes (the paths are those of as large
/// pages), of a volume that has the machine to itself.
pub(crate) fn profile_of(read_bytes: u32) -> Profile {
    let scale = f64::from(read_bytes) / f64::from(READ_BYTES);
    let points = full_points().filter(|point| point.block_bytes == read_bytes);
    let rows = points.map(|point| {
        let in_flight = point.in_flight * point.submitters;
        let paths = [disk(point.submitters), backend()];
        Row::measured(point, paths.map(|path| scale * path.delivers_bytes_per_second(in_flight, READ_BYTES)))
    });
    Profile::from_rows(rows).unwrap_or_else(|(row, error)| panic!("row {row} is none of a profile: {error:?}"))
}

/// A world in which every volume's hits are split so.
pub(crate) fn world(setup: &Setup, kind: SplitKind) -> PacedWorld {
    PacedWorld::new(setup, |config| {
        for volume in &mut config.volumes {
            volume.split = SplitConfig { kind, ..SplitConfig::default() };
            volume.profile = profile_of(READ_BYTES);
        }
    })
}

/// How long a run settles, and is then measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) settle_ns: u64,
    pub(crate) measure_ns: u64,
}

impl Span {
    /// For a share that stays, while the best is searched.
    pub(crate) fn search(load: Load, is_quick: bool) -> Self {
        match (is_quick, load.read_permil) {
            (true, 1000) => Self::tenths(2, 2),
            (false, 1000) => Self::tenths(5, 10),
            // Whole periods of the cache's sweeps, which write 2 s after 2 s.
            (true, _) => Self::tenths(2, 20),
            (false, _) => Self::tenths(10, 40),
        }
    }

    /// For what is compared: all are measured for as long, and those that have something to find have time to.
    pub(crate) fn compare(load: Load, kind: SplitKind, is_quick: bool) -> Self {
        let finds = ADAPTIVE.iter().any(|policy| policy.kind == kind) || kind == NETCAS_RANDOM.kind;
        match (is_quick, load.read_permil) {
            (true, 1000) => Self::tenths(if finds { 20 } else { 2 }, 5),
            (true, _) => Self::tenths(20, 20),
            (false, 1000) => Self::tenths(if finds { 60 } else { 5 }, 60),
            (false, _) => Self::tenths(if finds { 60 } else { 10 }, 100),
        }
    }

    fn tenths(settle: u64, measure: u64) -> Self {
        Self { settle_ns: settle * SECOND_NS / 10, measure_ns: measure * SECOND_NS / 10 }
    }

    /// Lets it pass, and says what happened while it was measured.
    pub(crate) fn pass(self, world: &mut PacedWorld) -> Tick {
        world.run_for(self.settle_ns + self.measure_ns);
        world.between(world.now_ns() - self.measure_ns, world.now_ns())
    }
}

/// The best share that stays: of a grid, and then of a finer one around the best of that.
pub(crate) fn best_static(is_quick: bool, mut delivers: impl FnMut(SplitKind) -> f64) -> f64 {
    // Quickly: none below .4, where no best one lies with this machine.
    let (from, step): (i32, i32) = if is_quick { (550, 150) } else { (0, 100) };
    let mut best = (0, f64::NEG_INFINITY);
    let mut try_share = |permil: i32| {
        let bytes_per_second = delivers(SplitKind::Static { disk_permil: permil as u16 });
        if bytes_per_second > best.1 {
            best = (permil, bytes_per_second);
        }
        best.0
    };
    let coarse = (from..=1000).step_by(step as usize).map(&mut try_share).last().unwrap_or(1000);
    let around = [-3, -2, -1, 1, 2, 3].map(|quarters| coarse + quarters * step / 4);
    around.into_iter().filter(|permil| (0..=1000).contains(permil)).for_each(|permil| {
        try_share(permil);
    });
    f64::from(best.0) / 1e3
}

/// The lowest; no number if there are none, which reaches no bar.
pub(crate) fn lowest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NAN, f64::min)
}

/// The highest; no number if there are none.
pub(crate) fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NAN, f64::max)
}

/// The mean.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The object that a `json!` made.
pub(crate) fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("an object was meant: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_are_as_far_apart_as_the_authors() {
        let reads = |path: PathModel, in_flight| path.delivers_bytes_per_second(in_flight, READ_BYTES);
        // Their table at depth 1 with 1 job, and at depth 32 with 4 and 16.
        let near = |is: f64, theirs: f64| assert!((is / theirs - 1.0).abs() < 0.2, "{is}, not {theirs}");
        near(reads(disk(1), 1) / reads(backend(), 1), 53_984.0 / 2_472.0);
        near(reads(disk(4), 128) / reads(backend(), 128), 111_696.0 / 53_690.0);
        near(reads(disk(16), 512) / reads(backend(), 512), 79_036.0 / 53_736.0);
        near(reads(backend(), 32) / reads(backend(), 8), 53_738.0 / 16_671.0);
    }

    #[test]
    fn the_best_share_is_found_between_those_of_the_grid() {
        for (peak, is_quick) in [(667.0, false), (667.0, true), (1000.0, false), (0.0, false)] {
            let best = best_static(is_quick, |kind| match kind {
                SplitKind::Static { disk_permil } => 2e3 - (f64::from(disk_permil) - peak).abs(),
                other => panic!("{other:?} is no share that stays"),
            });
            let near = if is_quick { 0.02 } else { 0.013 };
            assert!((best - peak / 1e3).abs() <= near, "{best} for {peak}");
        }
    }

    #[test]
    fn no_values_reach_no_bar() {
        assert!(lowest([].into_iter()).is_nan() && highest([].into_iter()).is_nan());
        assert_eq!((lowest([2.0, 1.0].into_iter()), highest([2.0, 1.0].into_iter())), (1.0, 2.0));
    }
}
