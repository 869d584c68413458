//! `split-levels`: what each policy makes of a link that others use a little, and a lot (NetCAS, Fig. 10).
//!
//! Why: a policy that knows only "congested" and "free" falls off a cliff between them. The share of the cache disk is
//! to rise with the strangers, and the throughput to stay as high as a share chosen for that level would make it.
//!
//! How: strangers that take what they can get, from none to 40; 16 jobs of depth 16. Each level is a run of its own,
//! looked at once it is settled; NetCAS sees the free link first. Shares that stay are tried on a grid at each level.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::machine::{
    ADAPTIVE, CACHE_ONLY, OURS, Policy, READ_BYTES, SECOND_NS, Span, best_static, link_bytes_per_second, lowest, map,
    setup, world,
};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_core::SplitKind;
use forebay_sim::pace::{Competitors, Load, Setup, Tick};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const JOBS: u32 = 16;
const DEPTH: u32 = 16;
const LOAD: Load = Load::reads(JOBS, DEPTH, READ_BYTES);
const FLOWS: [u32; 7] = [0, 1, 2, 5, 10, 20, 40];
const FLOWS_QUICK: [u32; 2] = [0, 40];
/// NetCAS' detector compares with the free link, and needs 40 periods to know it.
const BASELINES_NS: u64 = 5 * SECOND_NS;
const ORTHUS_PAPER: &str = "orthus-paper";
const STATIC_BEST: &str = "static-best";

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-levels",
    question: "What does each policy make of a link to the back end that others use a little, and a lot?",
    cells: &[
        ("policy", "who chose the path of each hit"),
        ("flows", "strangers on the link; each takes what it can get"),
        ("disk_share", "share of bytes that the cache disk served"),
        ("best_share", "share that stays and is best at this level"),
        ("reads_per_second", "what all jobs got"),
        ("of_best_static", "throughput, of the best share that stays at this level"),
        ("of_cache_only", "throughput, of the cache's alone"),
    ],
    bars: &[
        Bar {
            name: "of_best_static_min",
            bar: 0.97,
            at_least: true,
            meaning: "ours, of the best share that stays at that level, at the worst level",
        },
        Bar {
            name: "of_cache_only_min",
            bar: 1.0,
            at_least: true,
            meaning: "ours, of the cache alone, at the worst level",
        },
        Bar {
            name: "share_step_min",
            bar: -0.01,
            at_least: true,
            meaning: "least rise of our share for the cache disk from one level to the next",
        },
    ],
    directions: &[
        Bar {
            name: "ours_of_best_static_min",
            bar: 0.9,
            at_least: true,
            meaning: "ours, of the best share that stays at that level, at the worst level",
        },
        Bar {
            name: "ours_over_orthus_paper_high",
            bar: 1.2,
            at_least: true,
            meaning: "ours over Orthus as NetCAS evaluates it, with the most strangers",
        },
        Bar {
            name: "ours_over_cache_only_free",
            bar: 1.3,
            at_least: true,
            meaning: "ours over the cache alone, without strangers",
        },
    ],
    conduct,
};

struct Cell {
    policy: &'static str,
    flows: u32,
    disk_share: f64,
    best_share: f64,
    reads_per_second: f64,
    of_best_static: f64,
    of_cache_only: f64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let levels = if run.is_quick { &FLOWS_QUICK[..] } else { &FLOWS[..] };
    let setup = setup(1, LOAD, run.seed);
    let mut cells: Vec<Cell> = Vec::new();
    for (done, flows) in levels.iter().enumerate() {
        // The first level is the free link, whose best share Orthus is given.
        let free_share = cells.first().map(|cell| cell.best_share);
        cells.extend(at_level(*flows, free_share, &setup, run.is_quick));
        (run.progress)(done + 1, levels.len());
    }
    Ok(Found {
        setup: map(json!({
            "read_bytes": READ_BYTES,
            "jobs": JOBS,
            "depth": DEPTH,
            "link_bytes_per_second": link_bytes_per_second(),
            "ours": OURS,
        })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({ "fig_10": "NetCAS gives the cache a larger share as contention rises, without cliffs" })),
        values: values(&cells),
        tables: vec![table(&cells)],
        plots: plots(&cells)?,
    })
}

fn at_level(flows: u32, free_share: Option<f64>, setup: &Setup, is_quick: bool) -> Vec<Cell> {
    let runs = |kind| steady(setup, kind, Span::compare(LOAD, kind, is_quick), flows);
    let best_share =
        best_static(is_quick, |kind| steady(setup, kind, Span::search(LOAD, is_quick), flows).bytes_per_second());
    let fixed = [
        CACHE_ONLY,
        Policy::fixed(STATIC_BEST, best_share),
        Policy::fixed(ORTHUS_PAPER, free_share.unwrap_or(best_share)),
    ];
    let ticks: Vec<_> = fixed.into_iter().chain(ADAPTIVE).map(|policy| (policy.name, runs(policy.kind))).collect();
    // The search measures for a shorter time.
    let [cache_only, static_best] = [0, 1].map(|at: usize| ticks[at].1.bytes_per_second());
    let cell = |(policy, tick): (&'static str, Tick)| Cell {
        policy,
        flows,
        disk_share: tick.volumes[0].disk_share(),
        best_share,
        reads_per_second: tick.per_second(tick.volumes[0].reads),
        of_best_static: tick.bytes_per_second() / static_best,
        of_cache_only: tick.bytes_per_second() / cache_only,
    };
    ticks.into_iter().map(cell).collect()
}

fn steady(setup: &Setup, kind: SplitKind, span: Span, flows: u32) -> Tick {
    let mut world = world(setup, kind);
    if flows > 0 && kind.needs_profile() {
        world.run_for(BASELINES_NS);
    }
    world.set_competitors(0, Competitors { flows, flow_bytes_per_second: link_bytes_per_second() });
    // A queue behind strangers takes long to show.
    world.run_for(SECOND_NS);
    span.pass(&mut world)
}

impl Cell {
    fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "flows": self.flows,
            "disk_share": rounded(self.disk_share),
            "best_share": rounded(self.best_share),
            "reads_per_second": self.reads_per_second.round(),
            "of_best_static": rounded(self.of_best_static),
            "of_cache_only": rounded(self.of_cache_only),
        })
    }
}

fn of<'a>(cells: &'a [Cell], policy: &'a str) -> impl DoubleEndedIterator<Item = &'a Cell> {
    cells.iter().filter(move |cell| cell.policy == policy)
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let ours: Vec<_> = of(cells, OURS).collect();
    let of_best = lowest(ours.iter().map(|cell| cell.of_best_static));
    let rate = |cell: Option<&Cell>| cell.map_or(f64::NAN, |cell| cell.reads_per_second);
    let over_orthus = rate(ours.last().copied()) / rate(of(cells, ORTHUS_PAPER).next_back());
    BTreeMap::from([
        ("of_best_static_min", of_best),
        ("of_cache_only_min", lowest(ours.iter().map(|cell| cell.of_cache_only))),
        ("share_step_min", lowest(ours.windows(2).map(|pair| pair[1].disk_share - pair[0].disk_share))),
        ("ours_of_best_static_min", of_best),
        ("ours_over_orthus_paper_high", over_orthus),
        ("ours_over_cache_only_free", ours.first().map_or(f64::NAN, |cell| cell.of_cache_only)),
    ])
}

fn policies(cells: &[Cell]) -> Vec<&'static str> {
    cells.iter().take_while(|cell| cell.flows == cells[0].flows).map(|cell| cell.policy).collect()
}

fn table(cells: &[Cell]) -> Table {
    let policies = policies(cells);
    let mut head = vec!["flows".to_owned(), "best share".to_owned(), "ours".to_owned()];
    head.extend(policies.iter().map(|policy| (*policy).to_owned()));
    let row = |level: &[Cell]| {
        let ours = of(level, OURS).map(|cell| format!("{:.3}", cell.disk_share)).collect();
        let mut row = vec![level[0].flows.to_string(), format!("{:.3}", level[0].best_share), ours];
        row.extend(level.iter().map(|cell| format!("{:.3}", cell.of_best_static)));
        row
    };
    Table {
        title: "Throughput, of the best share that stays at the level".to_owned(),
        head,
        rows: cells.chunks(policies.len()).map(row).collect(),
    }
}

fn plots(cells: &[Cell]) -> Result<Vec<Plot>, Error> {
    let policies = policies(cells);
    let names: Vec<_> = cells.iter().step_by(policies.len()).map(|cell| cell.flows.to_string()).collect();
    let draw = |name, title, y, value: &dyn Fn(&Cell) -> f64| -> Result<Plot, Error> {
        let line = |policy: &&'static str| Line {
            name: (*policy).to_owned(),
            points: of(cells, policy).enumerate().map(|(at, cell)| (at as f64, value(cell))).collect(),
            labels: Vec::new(),
        };
        let lines: Vec<_> = policies.iter().map(line).collect();
        let chart = Chart { title, x: "strangers on the link", y, x_names: Some(&names), y_max: None, lines: &lines };
        Ok(Plot { name, svg: chart.to_svg(name)? })
    };
    Ok(vec![
        draw("reads", "Throughput by contention, as Fig. 10 of NetCAS", "1000 reads a second", &|cell| {
            cell.reads_per_second / 1e3
        })?,
        draw("share", "Share of the cache disk by contention", "share", &|cell| cell.disk_share)?,
    ])
}
