//! `split-filebench`: what files get of it, on a free and on a contended link (NetCAS, section IV-E, Fig. 11 and 12).
//!
//! Why: the other experiments keep a queue of requests for ever. Threads that read files wait for each read: 16 of them
//! have 16 in flight, and less is to be gained; those that read in sequence ask for 1 MiB at a time, which is split by
//! the page; and writers take their part of both paths.
//!
//! How: Filebench's workloads as the paper has them, on the paths of [`machine`](crate::machine) with their real sizes:
//! pages of 64 KiB, a volume of 1000 files of 10 MiB one after the other.
//!
//! - A: 16 threads read 64 KiB at random.
//! - B: 16 threads read whole files, 1 MiB at a time, each beginning elsewhere.
//! - C: A, and 2 threads that write 64 KiB at random. Buffered writes reach the volume when the page cache is full of
//!   them: each thread then waits for one at a time.
//!
//! In a window of each run 40 flows of a sixteenth of the link each are on it: two and a half times what it carries.
//! The free link is measured in the seconds before, the contended one from one second after their coming on.
//! Shares that stay are tried on both. `orthus-paper` is the best one on the free link, all the time, which is what NetCAS
//! evaluates as Orthus; `static-contended` is the best one on the contended link, which nobody knows beforehand.
//!
//! Limits: there is no file system: no metadata is read, no file is in pieces. The cache disk of the machine is less
//! slowed by 16 threads than the authors' (they gain 1.7 at best with one read in flight each, and 16 threads here 1.4).

mod told;

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found};
use crate::machine::{
    ADAPTIVE, BACKEND_ONLY, CACHE_ONLY, NETCAS, OURS, Policy, READ_BYTES, SECOND_NS, backend, best_static, disk,
    link_bytes_per_second, map, profile_of,
};
use forebay_core::{SplitConfig, SplitKind};
use forebay_sim::pace::{Competitors, Load, PacedWorld, PathModel, Setup, TICK_NS, Tick};
use serde_json::json;

const PAGE_BYTES: u32 = 65_536;
/// The machine's paths are those of pages so many times as large.
const SCALE: u64 = (PAGE_BYTES / READ_BYTES) as u64;
const FILES: u64 = 1000;
const FILE_BYTES: u64 = 10 << 20;
const JOBS: u32 = 16;
const FLOWS: u32 = 40;
/// Flows that the volume's connections are.
const CONNECTIONS: u32 = 4;
const ORTHUS_PAPER: &str = "orthus-paper";
const STATIC_CONTENDED: &str = "static-contended";
/// What ours is held against.
const BASELINES: [&str; 5] = [CACHE_ONLY.name, BACKEND_ONLY.name, NETCAS, "orthus", ORTHUS_PAPER];
/// A gain that is worth to be had.
const WORTH: f64 = 1.05;

/// What threads do with the files.
#[derive(Debug)]
struct Workload {
    name: &'static str,
    what: &'static str,
    request_bytes: u32,
    sequential: bool,
    writers: u32,
}

static WORKLOADS: [Workload; 3] = [
    Workload { name: "A", what: "random reads of 64 KiB", request_bytes: PAGE_BYTES, sequential: false, writers: 0 },
    Workload { name: "B", what: "sequential reads of 1 MiB", request_bytes: 1 << 20, sequential: true, writers: 0 },
    Workload { name: "C", what: "A with 2 writers", request_bytes: PAGE_BYTES, sequential: false, writers: 2 },
];

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-filebench",
    question: "What do threads that read files get, on a free and on a contended link?",
    cells: &[
        ("workload", "of NetCAS: A (64 KiB random), B (1 MiB sequential), C (A with 2 writers)"),
        ("link", "free, contended, or all the run"),
        ("policy", "who chose the path of each hit"),
        ("bytes_per_second", "what all threads got"),
        ("disk_share", "share of bytes read that the cache disk served"),
        ("best_share", "share that stays and is best in that condition; null for all the run"),
        ("of_best_static", "throughput, of that share's; null for all the run"),
        ("of_cache_only", "throughput, of the cache's alone"),
        ("of_orthus_paper", "throughput, of Orthus' as NetCAS evaluates it"),
    ],
    bars: &[
        Bar {
            name: "of_baselines_min",
            bar: 0.99,
            at_least: true,
            meaning: "ours, of the best baseline's, in the worst workload and condition",
        },
        Bar {
            name: "over_beaten_min",
            bar: 1.0,
            at_least: true,
            meaning: "ours over a baseline, where the best share that stays gains more than 5 % over that, at worst",
        },
    ],
    directions: &[
        Bar {
            name: "ours_over_cache_only_random",
            bar: 1.2,
            at_least: true,
            meaning: "ours over the cache alone in workload A on the free link (the paper reports 2.1)",
        },
        Bar {
            name: "ours_over_cache_only_sequential",
            bar: 1.2,
            at_least: true,
            meaning: "the same in workload B (the paper reports 1.27)",
        },
        Bar {
            name: "ours_over_orthus_paper_contended",
            bar: 1.05,
            at_least: true,
            meaning: "ours over Orthus as NetCAS evaluates it, on the contended link, in the worst workload (the paper reports 1.07 in B)",
        },
        Bar {
            name: "ours_of_cache_only_contended",
            bar: 0.97,
            at_least: true,
            meaning: "ours, of the cache alone, on the contended link, in the worst workload",
        },
    ],
    conduct,
};

/// When the strangers come, when they go, when it ends; and for how long before they come it is measured.
#[derive(Clone, Copy)]
struct Times {
    onset_ns: u64,
    clearance_ns: u64,
    end_ns: u64,
    free_ns: u64,
}

impl Times {
    const fn tenths([onset, clearance, end, free]: [u64; 4]) -> Self {
        let [onset_ns, clearance_ns] = [onset * SECOND_NS / 10, clearance * SECOND_NS / 10];
        Self { onset_ns, clearance_ns, end_ns: end * SECOND_NS / 10, free_ns: free * SECOND_NS / 10 }
    }

    fn of(is_quick: bool) -> Self {
        // Fig. 12: 30 s.
        if is_quick { Self::tenths([20, 40, 45, 5]) } else { Self::tenths([200, 500, 600, 100]) }
    }
}

/// Where a figure is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Free,
    Contended,
    AllTheRun,
}

const LINKS: [(Link, &str); 3] = [(Link::Free, "free"), (Link::Contended, "contended"), (Link::AllTheRun, "run")];

/// A policy through a workload.
struct Trial {
    workload: &'static Workload,
    policy: &'static str,
    /// The best share that stays, on the free and on the contended link.
    best_share: [f64; 2],
    times: Times,
    ticks: Vec<Tick>,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    // Quickly without writers: a sweep of what they wrote takes 2 s.
    let workloads = if run.is_quick { &WORKLOADS[..2] } else { &WORKLOADS[..] };
    let mut trials = Vec::new();
    for (done, workload) in workloads.iter().enumerate() {
        trials.extend(all_through(workload, run));
        (run.progress)(done + 1, workloads.len());
    }
    Ok(Found {
        setup: map(json!({
            "page_bytes": PAGE_BYTES,
            "files": FILES,
            "file_bytes": FILE_BYTES,
            "threads": JOBS,
            "link_bytes_per_second": SCALE * link_bytes_per_second(),
            "flows": FLOWS,
            "ours": OURS,
        })),
        cells: told::cells(&trials).into_iter().map(map).collect(),
        paper: map(json!({
            "netcas_over_cache_only_a": 2.1,
            "netcas_over_orthus_paper_a": 1.5,
            "netcas_over_cache_only_b": 1.27,
            "netcas_drop_contended_b": 0.17,
            "orthus_paper_drop_contended_b": 0.2,
            "netcas_over_orthus_paper_contended_b": 1.07,
            "netcas_over_cache_only_contended_c": 1.65,
            "netcas_over_orthus_paper_contended_c": 1.29,
            "cache_only_drop_contended_c": 0.37,
        })),
        values: told::values(&trials),
        tables: told::tables(&trials),
        plots: told::plots(&trials)?,
    })
}

fn all_through(workload: &'static Workload, run: &Run<'_>) -> Vec<Trial> {
    let setup = setup(workload, run.seed);
    let steady = |kind, competitors| {
        let mut world = world(&setup, kind);
        world.set_competitors(0, competitors);
        // A queue behind strangers takes long to show; writers are measured over whole sweeps.
        let (settle, measure) = match (run.is_quick, workload.writers) {
            (true, _) => (4, 2),
            (false, 0) => (15, 10),
            (false, _) => (20, 40),
        };
        world.run_for((settle + measure) * TICK_NS);
        world.between(settle * TICK_NS, world.now_ns()).bytes_per_second()
    };
    let best_with = |competitors| best_static(run.is_quick, |kind| steady(kind, competitors));
    let best_share = [Competitors::default(), strangers()].map(best_with);
    let fixed = [
        CACHE_ONLY,
        BACKEND_ONLY,
        Policy::fixed(ORTHUS_PAPER, best_share[0]),
        Policy::fixed(STATIC_CONTENDED, best_share[1]),
    ];
    let times = Times::of(run.is_quick);
    let trial = |policy: Policy| {
        let ticks = through(&setup, policy.kind, times);
        Trial { workload, policy: policy.name, best_share, times, ticks }
    };
    fixed.into_iter().chain(ADAPTIVE).map(trial).collect()
}

fn strangers() -> Competitors {
    Competitors::of_netcas(FLOWS, SCALE * link_bytes_per_second())
}

fn setup(workload: &Workload, seed: u64) -> Setup {
    let load = Load {
        sequential: workload.sequential,
        writers: workload.writers,
        ..Load::reads(JOBS, 1, workload.request_bytes)
    };
    let scaled = |path: PathModel| PathModel { bytes_per_second: SCALE * path.bytes_per_second, ..path };
    let mut setup = Setup::one_volume(scaled(disk(JOBS)), scaled(backend()), load);
    setup.page_bytes = PAGE_BYTES;
    setup.links_bytes_per_second = vec![SCALE * link_bytes_per_second()];
    setup.pages_in_flight_max = load.in_flight() * workload.request_bytes / PAGE_BYTES;
    setup.seed = seed;
    setup.volumes[0].bytes = FILES * FILE_BYTES;
    setup.volumes[0].link = Some((0, CONNECTIONS));
    setup
}

fn world(setup: &Setup, kind: SplitKind) -> PacedWorld {
    PacedWorld::new(setup, |config| {
        config.volumes[0].split = SplitConfig { kind, ..SplitConfig::default() };
        config.volumes[0].profile = profile_of(PAGE_BYTES);
    })
}

fn through(setup: &Setup, kind: SplitKind, times: Times) -> Vec<Tick> {
    let mut world = world(setup, kind);
    world.run_until(times.onset_ns);
    world.set_competitors(0, strangers());
    world.run_until(times.clearance_ns);
    world.set_competitors(0, Competitors::default());
    world.run_until(times.end_ns);
    world.ticks().to_vec()
}

impl Trial {
    fn span_ns(&self, link: Link) -> (u64, u64) {
        let Times { onset_ns, clearance_ns, end_ns, free_ns } = self.times;
        match link {
            Link::Free => (onset_ns - free_ns, onset_ns),
            Link::Contended => (onset_ns + SECOND_NS, clearance_ns),
            Link::AllTheRun => (0, end_ns),
        }
    }

    fn ticks_of(&self, link: Link) -> impl Iterator<Item = &Tick> {
        let (from_ns, to_ns) = self.span_ns(link);
        self.ticks.iter().filter(move |tick| tick.from_ns >= from_ns && tick.to_ns <= to_ns)
    }

    fn bytes_per_second(&self, link: Link) -> f64 {
        let (from_ns, to_ns) = self.span_ns(link);
        self.ticks_of(link).map(Tick::bytes_per_second).sum::<f64>() * TICK_NS as f64 / (to_ns - from_ns) as f64
    }

    fn disk_share(&self, link: Link) -> f64 {
        let volumes = || self.ticks_of(link).map(|tick| &tick.volumes[0]);
        let disk: u64 = volumes().map(|volume| volume.disk_ordered_bytes).sum();
        let backend: u64 = volumes().map(|volume| volume.backend_ordered_bytes).sum();
        disk as f64 / (disk + backend).max(1) as f64
    }
}
