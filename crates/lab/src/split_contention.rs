//! `split-contention`: strangers come onto the link to the back end and leave again (NetCAS, Fig. 9).
//!
//! Why: a share that is best on a free link sends a part of the hits into a queue once strangers have taken most of it,
//! and the clients wait for that part. How soon a policy sees this, and sees that it is over, is what NetCAS is about.
//!
//! How: three figures, each a load and so many flows of a sixteenth of the link (10 take .625 of it, 40 all that is not
//! defended) in a window of the run. Every policy runs through it in the same [`machine`](crate::machine). Before, shares
//! that stay are tried on a grid on the free and on the contended link. `orthus-paper` is what NetCAS calls Orthus: the
//! best share of the free link, all the time; `static-contended` is the best of the contended one. What each of the two
//! delivers in the same run under its condition is what the others are held against.
//!
//! Of the mixed load of Fig. 9c the paper gives no ratio; here it is 70 % reads. With half of them the cache disk cannot
//! keep what is written, and sheds stores: whoever asks most of it sheds most, and looks faster for it.
//!
//! `formula` is a share that stays at what NetCAS does on a free link; `netcas` is all of it.
//!
//! Limits: strangers take what is theirs at once; real ones need round trips to find it. Quickly they come after 2 s,
//! before the detector of `netcas` has its baselines (4 s): how it follows is only to be seen in full.

mod told;

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found};
use crate::machine::{
    ADAPTIVE, BACKEND_ONLY, CACHE_ONLY, NETCAS, OURS, Policy, READ_BYTES, SECOND_NS, Span, best_static,
    link_bytes_per_second, map, setup, world,
};
use forebay_core::SplitKind;
use forebay_sim::pace::{Competitors, Load, PacedWorld, Setup, TICK_NS, Tick};
use serde_json::json;

const ORTHUS_PAPER: &str = "orthus-paper";
const STATIC_CONTENDED: &str = "static-contended";
const FORMULA: &str = "formula";
/// What ours must not be slower than over the whole run.
const BASELINES: [&str; 7] =
    [CACHE_ONLY.name, BACKEND_ONLY.name, NETCAS, "orthus", ORTHUS_PAPER, STATIC_CONTENDED, FORMULA];
/// A policy has this long to find the share of a new condition.
const FIND_NS: u64 = SECOND_NS;
/// At this part of the best it has.
const FOUND: f64 = 0.95;

/// A panel of Fig. 9.
struct Figure {
    name: &'static str,
    jobs: u32,
    depth: u32,
    read_permil: u32,
    flows: u32,
    /// Seconds: onset, clearance, end; in full and quickly.
    seconds: [[u64; 3]; 2],
}

impl Figure {
    fn times_ns(&self, is_quick: bool) -> [u64; 3] {
        self.seconds[usize::from(is_quick)].map(|seconds| seconds * SECOND_NS)
    }
}

static FIGURES: [Figure; 3] = [
    Figure { name: "9a", jobs: 4, depth: 16, read_permil: 1000, flows: 10, seconds: [[20, 40, 60], [2, 4, 6]] },
    Figure { name: "9b", jobs: 16, depth: 16, read_permil: 1000, flows: 10, seconds: [[20, 40, 60], [2, 4, 6]] },
    Figure { name: "9c", jobs: 16, depth: 16, read_permil: 700, flows: 40, seconds: [[35, 65, 100], [2, 4, 6]] },
];
/// Quickly only the first.
const FIGURES_QUICK: usize = 1;

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-contention",
    question: "How soon does each policy follow when strangers come onto the link to the back end, and leave?",
    cells: &[
        ("figure", "of NetCAS"),
        ("policy", "who chose the path of each hit"),
        ("jobs", "jobs"),
        ("depth", "reads in flight a job"),
        ("read_share", "share of requests that are reads"),
        ("flows", "strangers while the link is contended, each asking for a sixteenth of it"),
        ("free_best_share", "share that stays and is best on the free link"),
        ("contended_best_share", "the same on the contended link"),
        ("free_of_best", "throughput in the second before the onset, of the best static share's"),
        (
            "onset_of_best",
            "throughput in the second that begins one second after the onset, of the best static share's there",
        ),
        ("contended_of_best", "the same from one second after the onset to the clearance"),
        ("clearance_of_best", "the same in the second that begins one second after the clearance, on the free link"),
        ("onset_seconds", "until three ticks in a row delivered .95 of the best; null if none did"),
        ("clearance_seconds", "the same after the clearance"),
        ("contended_of_orthus_paper", "throughput while contended, of Orthus' as NetCAS evaluates it"),
        ("run_of_cache_only", "bytes of the whole run, of the cache's alone"),
        ("slot_bytes_of_written", "bytes written to slots, of those that clients wrote; null if they wrote none"),
    ],
    bars: &[
        Bar {
            name: "onset_of_best_min",
            bar: FOUND,
            at_least: true,
            meaning: "ours one second after the onset, of the best static share on the contended link, in the worst figure",
        },
        Bar {
            name: "clearance_of_best_min",
            bar: FOUND,
            at_least: true,
            meaning: "ours one second after the clearance, of the best static share on the free link, in the worst figure",
        },
        Bar {
            name: "run_of_baselines_min",
            bar: 0.99,
            at_least: true,
            meaning: "ours over the whole run, of the best baseline's, in the worst figure",
        },
        Bar {
            name: "split_cache_disk_writes",
            bar: 0.0,
            at_least: false,
            meaning: "writes to the cache disk while hits were split and clients only read",
        },
    ],
    directions: &[
        Bar {
            name: "ours_contended_over_orthus_paper",
            bar: 1.1,
            at_least: true,
            meaning: "ours while contended, over Orthus as NetCAS evaluates it, with 4 jobs (the paper reports 3.5)",
        },
        Bar {
            name: "ours_free_over_cache_only",
            bar: 1.2,
            at_least: true,
            meaning: "ours before the onset, over the cache alone, with 4 jobs",
        },
        Bar {
            name: "ours_run_over_cache_only",
            bar: 1.15,
            at_least: true,
            meaning: "ours over the whole run, over the cache alone, in the worst figure",
        },
    ],
    conduct,
};

/// Throughput, of the best static share's of the condition; and how long until .95 of it.
struct OfBest {
    free: f64,
    onset: f64,
    contended: f64,
    clearance: f64,
    onset_seconds: Option<f64>,
    clearance_seconds: Option<f64>,
}

/// A policy through a figure.
struct Trial {
    figure: &'static Figure,
    policy: &'static str,
    /// The best share that stays, on the free and on the contended link.
    best_share: [f64; 2],
    times_ns: [u64; 3],
    ticks: Vec<Tick>,
    slot_write_bytes: u64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let figures = if run.is_quick { &FIGURES[..FIGURES_QUICK] } else { &FIGURES[..] };
    let mut trials = Vec::new();
    for (done, figure) in figures.iter().enumerate() {
        trials.extend(all_through(figure, run));
        (run.progress)(done + 1, figures.len());
    }
    Ok(Found {
        setup: map(json!({ "read_bytes": READ_BYTES, "link_bytes_per_second": link_bytes_per_second(), "ours": OURS })),
        cells: trials.iter().map(|trial| map(told::cell(trial, &trials))).collect(),
        paper: map(json!({
            "netcas_contended_of_orthus_paper_4_jobs": 3.5,
            "netcas_contended_of_orthus_paper_16_jobs": 1.2,
        })),
        values: told::values(&trials),
        tables: told::tables(&trials),
        plots: told::plots(&trials)?,
    })
}

fn all_through(figure: &'static Figure, run: &Run<'_>) -> Vec<Trial> {
    let load = Load { read_permil: figure.read_permil, ..Load::reads(figure.jobs, figure.depth, READ_BYTES) };
    let setup = setup(1, load, run.seed);
    let strangers = Competitors::of_netcas(figure.flows, link_bytes_per_second());
    let steady = |kind, competitors| {
        let mut world = world(&setup, kind);
        world.set_competitors(0, competitors);
        // A queue behind strangers takes long to show.
        world.run_for(if run.is_quick { SECOND_NS / 2 } else { SECOND_NS });
        Span::search(load, run.is_quick).pass(&mut world).bytes_per_second()
    };
    let best_with = |competitors| best_static(run.is_quick, |kind| steady(kind, competitors));
    let best_share = [Competitors::default(), strangers].map(best_with);
    let alone = [CACHE_ONLY, BACKEND_ONLY].map(|policy| steady(policy.kind, Competitors::default()));
    let fixed = [
        CACHE_ONLY,
        BACKEND_ONLY,
        Policy::fixed(FORMULA, alone[0] / (alone[0] + alone[1])),
        Policy::fixed(ORTHUS_PAPER, best_share[0]),
        Policy::fixed(STATIC_CONTENDED, best_share[1]),
    ];
    let times_ns = figure.times_ns(run.is_quick);
    let trial = |policy: Policy| {
        let world = through(&setup, policy.kind, strangers, times_ns);
        let slot_write_bytes = world.cache().stats().slot_write_bytes;
        Trial { figure, policy: policy.name, best_share, times_ns, ticks: world.ticks().to_vec(), slot_write_bytes }
    };
    fixed.into_iter().chain(ADAPTIVE).map(trial).collect()
}

fn through(setup: &Setup, kind: SplitKind, strangers: Competitors, times_ns: [u64; 3]) -> PacedWorld {
    let mut world = world(setup, kind);
    let [onset_ns, clearance_ns, end_ns] = times_ns;
    world.run_until(onset_ns);
    world.set_competitors(0, strangers);
    world.run_until(clearance_ns);
    world.set_competitors(0, Competitors::default());
    world.run_until(end_ns);
    world
}

impl Trial {
    fn bytes_per_second(&self, from_ns: u64, to_ns: u64) -> f64 {
        let inside = self.ticks.iter().filter(|tick| tick.from_ns >= from_ns && tick.to_ns <= to_ns);
        inside.map(Tick::bytes_per_second).sum::<f64>() * TICK_NS as f64 / (to_ns - from_ns) as f64
    }

    fn run(&self) -> f64 {
        self.bytes_per_second(0, self.times_ns[2])
    }

    fn free(&self) -> f64 {
        self.bytes_per_second(self.times_ns[0] - SECOND_NS, self.times_ns[0])
    }

    fn contended(&self) -> f64 {
        self.bytes_per_second(self.times_ns[0] + FIND_NS, self.times_ns[1])
    }

    /// In the second that begins [`FIND_NS`] after a change.
    fn after(&self, change_ns: u64) -> f64 {
        self.bytes_per_second(change_ns + FIND_NS, change_ns + FIND_NS + SECOND_NS)
    }

    /// Until three ticks in a row delivered [`FOUND`] of what the best delivers in the mean.
    fn seconds_to(&self, best_bytes_per_second: f64, [from_ns, to_ns]: [u64; 2]) -> Option<f64> {
        let ticks: Vec<_> = self.ticks.iter().filter(|tick| tick.from_ns >= from_ns && tick.to_ns <= to_ns).collect();
        let is_good =
            |ticks: &[&Tick]| ticks.iter().all(|tick| tick.bytes_per_second() >= FOUND * best_bytes_per_second);
        let first = ticks.windows(3).position(is_good)?;
        Some(first as f64 * TICK_NS as f64 / 1e9)
    }

    /// Beside the best share of the free and of the contended link.
    fn beside(&self, [free, contended]: [&Self; 2]) -> OfBest {
        let [onset_ns, clearance_ns, end_ns] = self.times_ns;
        OfBest {
            free: self.free() / free.free(),
            onset: self.after(onset_ns) / contended.after(onset_ns),
            contended: self.contended() / contended.contended(),
            clearance: self.after(clearance_ns) / free.after(clearance_ns),
            onset_seconds: self.seconds_to(contended.contended(), [onset_ns, clearance_ns]),
            clearance_seconds: self.seconds_to(free.free(), [clearance_ns, end_ns]),
        }
    }

    /// Writes to the cache disk, of any kind.
    fn disk_writes(&self) -> u64 {
        self.ticks.iter().map(|tick| tick.disk.writes).sum()
    }

    fn slot_bytes_of_written(&self) -> Option<f64> {
        let written: u64 = self.ticks.iter().map(|tick| tick.volumes[0].write_bytes).sum();
        (written > 0).then(|| self.slot_write_bytes as f64 / written as f64)
    }
}
