//! `split-mixed`: what splitting gains when clients also write (NetCAS, Fig. 6), and that it writes nothing itself.
//!
//! Why: only hits that are read are split, so the gain shrinks with the part of reads; and writes, which go to both
//! paths, must not make a policy choose badly. Orthus loses here, says NetCAS (section IV-C), since it keeps moving
//! data into the cache; a hit that the back end serves must write nothing to the cache disk.
//!
//! How: parts of reads from none to all, threads from 1 to 16 of depth 16, written through. Each policy runs until it is
//! settled; shares that stay are tried on a grid. Writes to slots are counted: each is owed to a client's write.
//!
//! Where most requests are writes, the cache disk cannot keep all that is written, and sheds stores: a cache that asks
//! more of the disk sheds more, and looks faster for it. Such points are shown, and not judged.
//!
//! Limits: the disk takes writes at the rate of its reads; garbage collection is not modelled.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::machine::{
    ADAPTIVE, CACHE_ONLY, ORTHUS_PAPER, OURS, Policy, READ_BYTES, Span, best_static, highest, lowest, map, mean, setup,
    world,
};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_core::SplitKind;
use forebay_sim::pace::{Load, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DEPTH: u32 = 16;
const JOBS: [u32; 5] = [1, 2, 4, 8, 16];
const JOBS_QUICK: [u32; 1] = [4];
const READ_PERMIL: [u32; 5] = [0, 250, 500, 750, 1000];
const READ_PERMIL_QUICK: [u32; 2] = [750, 1000];
/// Writes that went to slots; the others were in flight at the end, or the cache forgot their pages.
const KEPT: f64 = 0.98;
const STATIC_BEST: &str = "static-best";

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-mixed",
    question: "What does splitting hits gain when clients also write, and what does it write?",
    cells: &[
        ("policy", "who chose the path of each hit"),
        ("jobs", "jobs of 16 requests in flight"),
        ("read_share", "share of requests that are reads"),
        ("disk_share", "share of bytes read that the cache disk served"),
        ("best_share", "share that stays and is best"),
        ("requests_per_second", "reads and writes"),
        ("of_best_static", "throughput, of the best share that stays"),
        ("of_cache_only", "throughput, of the cache's alone"),
        ("disk_writes", "writes to the cache disk, of any kind, in the whole run"),
        ("slot_bytes_of_written", "bytes written to slots, of those that clients wrote; null if they wrote none"),
    ],
    bars: &[
        Bar {
            name: "of_best_static_min",
            bar: 0.97,
            at_least: true,
            meaning: "ours, of the best share that stays, at the worst point where all keep what is written",
        },
        Bar {
            name: "of_cache_only_min",
            bar: 0.99,
            at_least: true,
            meaning: "ours, of the cache alone, at the worst point where all keep what is written",
        },
        Bar {
            name: "disk_writes_without_clients",
            bar: 0.0,
            at_least: false,
            meaning: "writes to the cache disk while clients only read, under any policy",
        },
        Bar {
            name: "slot_bytes_of_written_max",
            bar: 1.001,
            at_least: false,
            meaning: "bytes written to slots, of those that clients wrote, under any policy",
        },
    ],
    directions: &[
        Bar {
            name: "ours_of_cache_only_min",
            bar: 0.95,
            at_least: true,
            meaning: "ours, of the cache alone, at the worst point where all keep what is written",
        },
        Bar {
            name: "ours_of_cache_only_reads",
            bar: 1.3,
            at_least: true,
            meaning: "ours, of the cache alone, where clients only read: mean of points",
        },
        Bar {
            name: "hits_write_nothing",
            bar: 0.0,
            at_least: false,
            meaning: "writes to the cache disk while clients only read, under any policy",
        },
    ],
    conduct,
};

struct Cell {
    policy: &'static str,
    jobs: u32,
    read_permil: u32,
    best_share: f64,
    outcome: Outcome,
    of_best_static: f64,
    of_cache_only: f64,
}

/// What a run came to.
#[derive(Clone, Copy)]
struct Outcome {
    disk_share: f64,
    bytes_per_second: f64,
    requests_per_second: f64,
    disk_writes: u64,
    slot_bytes_of_written: Option<f64>,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let (jobs, shares) =
        if run.is_quick { (&JOBS_QUICK[..], &READ_PERMIL_QUICK[..]) } else { (&JOBS[..], &READ_PERMIL[..]) };
    let points: Vec<_> = jobs.iter().flat_map(|jobs| shares.iter().map(move |permil| (*jobs, *permil))).collect();
    let mut cells = Vec::new();
    for (done, (jobs, read_permil)) in points.iter().enumerate() {
        cells.extend(at_point(*jobs, *read_permil, run));
        (run.progress)(done + 1, points.len());
    }
    Ok(Found {
        setup: map(json!({ "read_bytes": READ_BYTES, "depth": DEPTH, "write_mode": "through", "ours": OURS })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({
            "netcas_of_cache_only_reads_8_jobs": 1.73,
            "netcas_of_cache_only_reads_16_jobs": 1.85,
            "fig_6": "the gain grows about linearly with the read share",
        })),
        values: values(&cells),
        tables: vec![table(&cells)],
        plots: vec![plot(&cells)?],
    })
}

fn at_point(jobs: u32, read_permil: u32, run: &Run<'_>) -> Vec<Cell> {
    let load = Load { read_permil, ..Load::reads(jobs, DEPTH, READ_BYTES) };
    let setup = setup(1, load, run.seed);
    let runs = |kind| outcome(&setup, kind, Span::compare(load, kind, run.is_quick));
    let best_share =
        best_static(run.is_quick, |kind| outcome(&setup, kind, Span::search(load, run.is_quick)).bytes_per_second);
    let fixed = [CACHE_ONLY, Policy::fixed(STATIC_BEST, best_share), ORTHUS_PAPER];
    let outcomes: Vec<_> = fixed.into_iter().chain(ADAPTIVE).map(|policy| (policy.name, runs(policy.kind))).collect();
    // The search measures for a shorter time.
    let [cache_only, static_best] = [0, 1].map(|at: usize| outcomes[at].1.bytes_per_second);
    let cell = |(policy, outcome): (&'static str, Outcome)| Cell {
        policy,
        jobs,
        read_permil,
        best_share,
        outcome,
        of_best_static: outcome.bytes_per_second / static_best,
        of_cache_only: outcome.bytes_per_second / cache_only,
    };
    outcomes.into_iter().map(cell).collect()
}

fn outcome(setup: &Setup, kind: SplitKind, span: Span) -> Outcome {
    let mut world = world(setup, kind);
    let tick = span.pass(&mut world);
    let all = world.between(0, world.now_ns());
    let (volume, stats) = (&tick.volumes[0], world.cache().stats());
    // What is in flight now is a write that clients have not had answered.
    let in_flight = u64::from(setup.volumes[0].load.in_flight()) * u64::from(READ_BYTES);
    let written = all.volumes[0].write_bytes;
    let of_written = (written > 0).then(|| stats.slot_write_bytes as f64 / (written + in_flight) as f64);
    Outcome {
        disk_share: volume.disk_share(),
        bytes_per_second: tick.bytes_per_second(),
        requests_per_second: tick.per_second(volume.reads + volume.writes),
        disk_writes: all.disk.writes,
        slot_bytes_of_written: of_written,
    }
}

impl Cell {
    fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "jobs": self.jobs,
            "read_share": f64::from(self.read_permil) / 1e3,
            "disk_share": rounded(self.outcome.disk_share),
            "best_share": rounded(self.best_share),
            "requests_per_second": self.outcome.requests_per_second.round(),
            "of_best_static": rounded(self.of_best_static),
            "of_cache_only": rounded(self.of_cache_only),
            "disk_writes": self.outcome.disk_writes,
            "slot_bytes_of_written": self.outcome.slot_bytes_of_written.map(rounded),
        })
    }
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let keeps = |cell: &Cell| cell.outcome.slot_bytes_of_written.is_none_or(|part| part >= KEPT);
    let judged = cells.chunks(policies(cells).len()).filter(|point| point.iter().all(keeps)).flatten();
    let ours = || judged.clone().filter(|cell| cell.policy == OURS);
    let of_cache = lowest(ours().map(|cell| cell.of_cache_only));
    let only_reads = |cell: &&Cell| cell.read_permil == 1000;
    let writes = highest(cells.iter().filter(only_reads).map(|cell| cell.outcome.disk_writes as f64));
    let gain = mean(ours().filter(only_reads).map(|cell| cell.of_cache_only));
    BTreeMap::from([
        ("of_best_static_min", lowest(ours().map(|cell| cell.of_best_static))),
        ("of_cache_only_min", of_cache),
        ("disk_writes_without_clients", writes),
        ("slot_bytes_of_written_max", highest(cells.iter().filter_map(|cell| cell.outcome.slot_bytes_of_written))),
        ("ours_of_cache_only_min", of_cache),
        ("ours_of_cache_only_reads", gain),
        ("hits_write_nothing", writes),
    ])
}

fn policies(cells: &[Cell]) -> Vec<&'static str> {
    let of_first = |cell: &&Cell| (cell.jobs, cell.read_permil) == (cells[0].jobs, cells[0].read_permil);
    cells.iter().take_while(of_first).map(|cell| cell.policy).collect()
}

fn table(cells: &[Cell]) -> Table {
    let policies = policies(cells);
    let mut head = ["jobs, read share", "best share", "its gain", "kept, worst", "ours"].map(str::to_owned).to_vec();
    head.extend(policies.iter().map(|policy| (*policy).to_owned()));
    let row = |point: &[Cell]| {
        let of = |policy| point.iter().find(move |cell| cell.policy == policy);
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let mut row = vec![
            format!("{}, {:.2}", point[0].jobs, f64::from(point[0].read_permil) / 1e3),
            format!("{:.3}", point[0].best_share),
            number(of(STATIC_BEST).map(|cell| cell.of_cache_only)),
            number(point.iter().filter_map(|cell| cell.outcome.slot_bytes_of_written).reduce(f64::min)),
            number(of(OURS).map(|cell| cell.outcome.disk_share)),
        ];
        row.extend(point.iter().map(|cell| format!("{:.3}", cell.of_best_static)));
        row
    };
    Table {
        title: "Throughput of reads and writes, of the best share that stays".to_owned(),
        head,
        rows: cells.chunks(policies.len()).map(row).collect(),
    }
}

fn plot(cells: &[Cell]) -> Result<Plot, Error> {
    let jobs_max = cells.iter().map(|cell| cell.jobs).max();
    let line = |policy: &&'static str| {
        let shown = cells.iter().filter(|cell| cell.policy == *policy && Some(cell.jobs) == jobs_max);
        let at = |cell: &Cell| (f64::from(cell.read_permil) / 1e3, cell.of_cache_only);
        Line { name: (*policy).to_owned(), points: shown.map(at).collect(), labels: Vec::new() }
    };
    let lines: Vec<_> = policies(cells).iter().map(line).collect();
    let title = "Gain over the cache alone by read share, with the most jobs (compare Fig. 6 of NetCAS)";
    let chart = Chart { title, x: "read share", y: "of the cache alone", x_names: None, y_max: None, lines: &lines };
    Ok(Plot { name: "gain", svg: chart.to_svg("gain")? })
}
