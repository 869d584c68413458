//! `split-concurrency`: what each policy makes of both paths, from one read in flight to 256 (NetCAS, Fig. 4, 5 and 8).
//!
//! Why: NetCAS' formula takes what each path delivers alone, at the whole concurrency. With few reads in flight that says
//! little about what both deliver together, and its authors lose there to the cache alone. A policy that is always on
//! must not.
//!
//! How: at each point of depth x jobs every policy runs in the same [`machine`](crate::machine) until it is settled.
//! Shares that stay are tried on a grid: the best of them is what the others are held against. `formula` is a share that stays at what NetCAS' formula says of the two paths' rates, measured alone.
//!
//! `netcas` is given what each path delivers alone at every point of its grid, and so is `orthus-paper`; `netcas-random`
//! enforces its share by chance (Fig. 5).
//!
//! Limits: nobody else is on the link; `split-contention` has that.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::machine::{
    ADAPTIVE, BACKEND_ONLY, CACHE_ONLY, NETCAS_RANDOM, ORTHUS_PAPER, OURS, Policy, READ_BYTES, Span, best_static,
    highest, lowest, map, mean, setup, world,
};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_policy::rng::mix64;
use forebay_sim::pace::{Load, Tick};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DEPTHS: [u32; 5] = [1, 2, 4, 8, 16];
const JOBS: [u32; 5] = [1, 2, 4, 8, 16];
/// Depth and jobs.
const POINTS_QUICK: [(u32, u32); 3] = [(1, 1), (16, 1), (16, 4)];
/// With so many reads in flight both paths are bound by their rates.
const BOUND_IN_FLIGHT: u32 = 64;
const STATIC_BEST: &str = "static-best";
const FORMULA: &str = "formula";

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-concurrency",
    question: "What does each policy make of a cache disk and a back end, from one read in flight to 256?",
    cells: &[
        ("policy", "who chose the path of each hit"),
        ("depth", "reads in flight a job"),
        ("jobs", "jobs"),
        ("disk_share", "share of bytes that the cache disk served"),
        ("reads_per_second", "what all jobs got"),
        ("read_latency_us", "mean latency of a read"),
        ("of_best_static", "throughput, of the best share that stays"),
        ("of_cache_only", "throughput, of the cache's alone"),
        ("of_sum", "throughput, of the sum of what each path delivers alone at this concurrency"),
    ],
    bars: &[
        Bar {
            name: "of_best_static_min",
            bar: 0.97,
            at_least: true,
            meaning: "ours, of the best share that stays, at the worst point",
        },
        Bar {
            name: "of_cache_only_min",
            bar: 1.0,
            at_least: true,
            meaning: "ours, of the cache alone, at the worst point; to three places",
        },
        Bar {
            name: "of_sum_bound_min",
            bar: 0.95,
            at_least: true,
            meaning: "ours, of the sum of the paths' own rates, at the worst point with 64 reads in flight or more",
        },
    ],
    directions: &[
        Bar {
            name: "ours_of_best_static",
            bar: 0.9,
            at_least: true,
            meaning: "ours, of the best share that stays: mean of points",
        },
        Bar {
            name: "ours_of_cache_only",
            bar: 1.1,
            at_least: true,
            meaning: "ours, of the cache alone: mean of points",
        },
        Bar {
            name: "ours_of_formula_max",
            bar: 1.5,
            at_least: true,
            meaning: "ours over NetCAS' formula where that does worst against ours",
        },
        Bar {
            name: "formula_of_cache_only_min",
            bar: 0.8,
            at_least: false,
            meaning: "the formula, of the cache alone, at its worst point (the paper's own table: 0.51)",
        },
    ],
    conduct,
};

/// A policy at a point.
struct Cell {
    policy: &'static str,
    point: (u32, u32),
    disk_share: f64,
    reads_per_second: f64,
    read_latency_us: f64,
    of_best_static: f64,
    of_cache_only: f64,
    of_sum: f64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let all = || JOBS.iter().flat_map(|jobs| DEPTHS.iter().map(move |depth| (*depth, *jobs)));
    let points: Vec<_> = if run.is_quick { POINTS_QUICK.to_vec() } else { all().collect() };
    let mut cells = Vec::new();
    for (done, point) in points.iter().enumerate() {
        cells.extend(at_point(*point, run));
        (run.progress)(done + 1, points.len());
    }
    let paper = json!({
        "netcas_of_cache_only_max": 2.42,
        "netcas_of_orthus_paper_max": 2.25,
        "formula_of_cache_only_min": 0.51,
        "best_of_cache_only_16_jobs": 1.73,
    });
    Ok(Found {
        setup: map(json!({
            "read_bytes": READ_BYTES,
            "ours": OURS,
        })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(paper),
        values: values(&cells),
        tables: vec![by_point(&cells, "of the best share that stays", |cell| cell.of_best_static), gains(&cells)],
        plots: plots(&cells)?,
    })
}

fn at_point(point: (u32, u32), run: &Run<'_>) -> Vec<Cell> {
    let (depth, jobs) = point;
    let load = Load::reads(jobs, depth, READ_BYTES);
    let setup = setup(1, load, mix64(run.seed ^ u64::from(depth) << 32 ^ u64::from(jobs)));
    let runs = |policy: Policy| Span::compare(load, policy.kind, run.is_quick).pass(&mut world(&setup, policy.kind));
    let (cache, backend) = (runs(CACHE_ONLY), runs(BACKEND_ONLY));
    let alone = [cache.bytes_per_second(), backend.bytes_per_second()];
    let best_share = best_static(run.is_quick, |kind| {
        Span::search(load, run.is_quick).pass(&mut world(&setup, kind)).bytes_per_second()
    });
    let mut ticks = vec![(CACHE_ONLY.name, cache), (BACKEND_ONLY.name, backend)];
    let fixed = fixed(best_share, alone);
    for policy in fixed.into_iter().chain([ORTHUS_PAPER, NETCAS_RANDOM]).chain(ADAPTIVE) {
        ticks.push((policy.name, runs(policy)));
    }
    // The search measures for a shorter time.
    let static_best = ticks[2].1.bytes_per_second();
    let cell = |(policy, tick): (&'static str, Tick)| Cell {
        policy,
        point,
        disk_share: tick.volumes[0].disk_share(),
        reads_per_second: tick.per_second(tick.volumes[0].reads),
        read_latency_us: tick.volumes[0].read_latency_ns as f64 / 1e3,
        of_best_static: tick.bytes_per_second() / static_best,
        of_cache_only: tick.bytes_per_second() / alone[0],
        of_sum: tick.bytes_per_second() / (alone[0] + alone[1]),
    };
    ticks.into_iter().map(cell).collect()
}

/// NetCAS' formula (section III-E), in thousandths.
fn permil([cache, backend]: [f64; 2]) -> u16 {
    (1e3 * cache / (cache + backend)).round() as u16
}

fn fixed(best_share: f64, alone: [f64; 2]) -> [Policy; 2] {
    [Policy::fixed(STATIC_BEST, best_share), Policy::fixed(FORMULA, f64::from(permil(alone)) / 1e3)]
}

impl Cell {
    fn in_flight(&self) -> u32 {
        self.point.0 * self.point.1
    }

    fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "depth": self.point.0,
            "jobs": self.point.1,
            "disk_share": rounded(self.disk_share),
            "reads_per_second": self.reads_per_second.round(),
            "read_latency_us": rounded(self.read_latency_us),
            "of_best_static": rounded(self.of_best_static),
            "of_cache_only": rounded(self.of_cache_only),
            "of_sum": rounded(self.of_sum),
        })
    }
}

fn of<'a>(cells: &'a [Cell], policy: &'a str) -> impl Iterator<Item = &'a Cell> {
    cells.iter().filter(move |cell| cell.policy == policy)
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let ours = || of(cells, OURS);
    let over_formula = ours().zip(of(cells, FORMULA)).map(|(ours, theirs)| ours.of_cache_only / theirs.of_cache_only);
    let bound = ours().filter(|cell| cell.in_flight() >= BOUND_IN_FLIGHT);
    let to_three_places = |value: f64| (value * 1e3).round() / 1e3;
    BTreeMap::from([
        ("of_best_static_min", lowest(ours().map(|cell| cell.of_best_static))),
        ("of_cache_only_min", to_three_places(lowest(ours().map(|cell| cell.of_cache_only)))),
        ("of_sum_bound_min", lowest(bound.map(|cell| cell.of_sum))),
        ("ours_of_best_static", mean(ours().map(|cell| cell.of_best_static))),
        ("ours_of_cache_only", mean(ours().map(|cell| cell.of_cache_only))),
        ("ours_of_formula_max", highest(over_formula)),
        ("formula_of_cache_only_min", lowest(of(cells, FORMULA).map(|cell| cell.of_cache_only))),
    ])
}

fn policies(cells: &[Cell]) -> Vec<&'static str> {
    cells.iter().take_while(|cell| cell.point == cells[0].point).map(|cell| cell.policy).collect()
}

fn by_point(cells: &[Cell], what: &str, value: impl Fn(&Cell) -> f64) -> Table {
    let policies = policies(cells);
    let mut head = vec!["depth x jobs".to_owned(), "best share".to_owned(), "ours".to_owned()];
    head.extend(policies.iter().map(|policy| (*policy).to_owned()));
    let row = |of_point: &[Cell]| {
        let share = |policy| of(of_point, policy).map(|cell| format!("{:.2}", cell.disk_share)).collect::<String>();
        let mut row = vec![name(of_point[0].point), share(STATIC_BEST), share(OURS)];
        row.extend(of_point.iter().map(|cell| format!("{:.3}", value(cell))));
        row
    };
    Table { title: format!("Throughput, {what}"), head, rows: cells.chunks(policies.len()).map(row).collect() }
}

/// What the paper says of gains, and what is gained here.
fn gains(cells: &[Cell]) -> Table {
    let row = |policy| {
        let paper = match policy {
            STATIC_BEST => "1.00 to 2.41",
            FORMULA => "0.51 to 2.42",
            _ => "",
        };
        let gain = || of(cells, policy).map(|cell| cell.of_cache_only);
        vec![
            policy.to_owned(),
            format!("{:.2}", lowest(gain())),
            format!("{:.2}", mean(gain())),
            format!("{:.2}", highest(gain())),
            paper.to_owned(),
        ]
    };
    Table {
        title: "Throughput, of the cache alone".to_owned(),
        head: ["policy", "min", "mean", "max", "the paper's range"].map(str::to_owned).into(),
        rows: policies(cells).into_iter().map(row).collect(),
    }
}

fn name((depth, jobs): (u32, u32)) -> String {
    format!("{depth} x {jobs}")
}

fn plots(cells: &[Cell]) -> Result<Vec<Plot>, Error> {
    let policies = policies(cells);
    let points = cells.iter().step_by(policies.len());
    let names: Vec<_> = points.map(|cell| name(cell.point)).collect();
    let line = |policy: &'static str, value: &dyn Fn(&Cell) -> f64| Line {
        name: policy.to_owned(),
        points: of(cells, policy).enumerate().map(|(at, cell)| (at as f64, value(cell))).collect(),
        labels: Vec::new(),
    };
    let draw = |name, title, y, value: &dyn Fn(&Cell) -> f64| -> Result<Plot, Error> {
        let lines: Vec<_> = policies.iter().map(|policy| line(policy, value)).collect();
        let chart = Chart { title, x: "depth x jobs", y, x_names: Some(&names), y_max: None, lines: &lines };
        Ok(Plot { name, svg: chart.to_svg(name)? })
    };
    Ok(vec![
        draw("reads", "Throughput without contention, as Fig. 8 of NetCAS", "1000 reads a second", &|cell| {
            cell.reads_per_second / 1e3
        })?,
        draw("of-best", "Throughput, of the best share that stays (compare Fig. 4)", "of the best static", &|cell| {
            cell.of_best_static
        })?,
    ])
}
