//! `split-neighbours`: volumes that share a cache disk and a link, and know nothing of each other.
//!
//! Why: each volume sees the others only as a path that is slower than it could be. If each answers that by backing off,
//! or by pushing, one may end with nothing, or all may swing together. NetCAS claims a fair share without coordination
//! (section III-B, IV-D); so must ours.
//!
//! How: two and four equal volumes, each with its own policy and its own flows on the link. After they have settled they
//! are watched for half a minute: how even their parts of the back end are (Jain's index, Jain et al., 1984), what they
//! get together of what the best common share would give, and how far the share of each wanders from second to second.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::machine::{
    ADAPTIVE, CACHE_ONLY, OURS, Policy, READ_BYTES, SECOND_NS, Span, best_static, highest, lowest, map, setup, world,
};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_sim::pace::{Load, PacedWorld, Setup, Tick};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const VOLUMES: [u32; 2] = [2, 4];
/// Quickly only the first.
const VOLUMES_QUICK: usize = 1;
/// Of each volume.
const JOBS: u32 = 4;
const DEPTH: u32 = 16;
const LOAD: Load = Load::reads(JOBS, DEPTH, READ_BYTES);
const STATIC_BEST: &str = "static-best";

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-neighbours",
    question: "Do volumes on one cache disk and one link share them evenly, fully and calmly, each by itself?",
    cells: &[
        ("policy", "who chose the path of each hit, in every volume"),
        ("volumes", "volumes on one disk and one link"),
        ("jobs", "jobs of each volume"),
        ("depth", "reads in flight a job"),
        ("disk_share", "share of bytes that the cache disk served, of all volumes"),
        ("best_share", "share that stays, the same for all volumes, that is best"),
        ("reads_per_second", "what all volumes got"),
        ("of_best_static", "throughput of all volumes, of the best common share's"),
        ("backend_jain", "Jain's index of the volumes' bytes from the back end"),
        (
            "share_move_max",
            "of the second means of a volume's share, the highest less the lowest, for the worst volume",
        ),
        ("of_cache_only_min", "throughput of the worst volume, of the mean volume's when all use the cache alone"),
    ],
    bars: &[
        Bar {
            name: "backend_jain_min",
            bar: 0.95,
            at_least: true,
            meaning: "Jain's index of our volumes' bytes from the back end, with the worst number of volumes",
        },
        Bar {
            name: "of_best_static_min",
            bar: 0.95,
            at_least: true,
            meaning: "our volumes together, of the best common share, with the worst number of volumes",
        },
        Bar {
            name: "share_move_max",
            bar: 0.05,
            at_least: false,
            meaning: "how far the share of our most restless volume wandered in the half minute",
        },
        Bar {
            name: "of_cache_only_min",
            bar: 0.95,
            at_least: true,
            meaning: "our worst volume, of the mean volume's when all use the cache alone",
        },
    ],
    directions: &[
        Bar {
            name: "ours_backend_jain_min",
            bar: 0.9,
            at_least: true,
            meaning: "Jain's index of our volumes' bytes from the back end, with the worst number of volumes",
        },
        Bar {
            name: "ours_over_cache_only",
            bar: 1.15,
            at_least: true,
            meaning: "our volumes together, over the cache alone, with the worst number of volumes",
        },
    ],
    conduct,
};

struct Cell {
    policy: &'static str,
    volumes: u32,
    disk_share: f64,
    best_share: f64,
    reads_per_second: f64,
    of_best_static: f64,
    of_cache_only: f64,
    backend_jain: f64,
    share_move_max: f64,
    of_cache_only_min: f64,
    /// By volume, by second.
    shares: Vec<Vec<f64>>,
}

/// Volumes, watched.
struct Watched {
    all: Tick,
    seconds: Vec<Tick>,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let numbers = if run.is_quick { &VOLUMES[..VOLUMES_QUICK] } else { &VOLUMES[..] };
    let mut cells = Vec::new();
    for (done, volumes) in numbers.iter().enumerate() {
        cells.extend(side_by_side(*volumes, run));
        (run.progress)(done + 1, numbers.len());
    }
    let watched_seconds = watched_seconds(run.is_quick);
    Ok(Found {
        setup: map(json!({ "read_bytes": READ_BYTES, "watched_seconds": watched_seconds, "ours": OURS })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({ "claim": "hosts find a fair share without coordination; no figure" })),
        values: values(&cells),
        tables: vec![table(&cells)],
        plots: vec![plot(&cells)?],
    })
}

fn watched_seconds(is_quick: bool) -> u64 {
    if is_quick { 2 } else { 30 }
}

fn side_by_side(volumes: u32, run: &Run<'_>) -> Vec<Cell> {
    let setup = setup(volumes, LOAD, run.seed);
    let best_share = best_static(run.is_quick, |kind| {
        Span::search(LOAD, run.is_quick).pass(&mut world(&setup, kind)).bytes_per_second()
    });
    let policies = [CACHE_ONLY, Policy::fixed(STATIC_BEST, best_share)];
    let watched = policies.into_iter().chain(ADAPTIVE).map(|policy| (policy.name, watch(&setup, policy, run.is_quick)));
    let watched: Vec<_> = watched.collect();
    // The search measures for a shorter time.
    let [cache_only, static_best] = [0, 1].map(|at: usize| watched[at].1.all.bytes_per_second());
    let cell = |(policy, watched): (&'static str, Watched)| {
        let all = &watched.all;
        let total = all.bytes_per_second();
        let got = all.volumes.iter().map(|volume| all.per_second(volume.bytes()));
        let share = |volume: usize| watched.seconds.iter().map(move |second| second.volumes[volume].disk_share());
        let moved = |volume: usize| highest(share(volume)) - lowest(share(volume));
        let disk_bytes: u64 = all.volumes.iter().map(|volume| volume.disk_ordered_bytes).sum();
        let backend_bytes: u64 = all.volumes.iter().map(|volume| volume.backend_ordered_bytes).sum();
        Cell {
            policy,
            volumes,
            disk_share: disk_bytes as f64 / (disk_bytes + backend_bytes) as f64,
            best_share,
            reads_per_second: total / f64::from(READ_BYTES),
            of_best_static: total / static_best,
            of_cache_only: total / cache_only,
            backend_jain: jain(all.volumes.iter().map(|volume| volume.backend.read_bytes as f64)),
            share_move_max: highest((0..volumes as usize).map(moved)),
            of_cache_only_min: lowest(got) / (cache_only / f64::from(volumes)),
            shares: (0..volumes as usize).map(|volume| share(volume).collect()).collect(),
        }
    };
    watched.into_iter().map(cell).collect()
}

fn watch(setup: &Setup, policy: Policy, is_quick: bool) -> Watched {
    let mut world: PacedWorld = world(setup, policy.kind);
    let from_ns = Span::compare(LOAD, policy.kind, is_quick).settle_ns;
    let seconds = watched_seconds(is_quick);
    world.run_until(from_ns + seconds * SECOND_NS);
    let second = |nth: u64| world.between(from_ns + nth * SECOND_NS, from_ns + (nth + 1) * SECOND_NS);
    Watched { all: world.between(from_ns, world.now_ns()), seconds: (0..seconds).map(second).collect() }
}

/// 1 if all are equal, 1 / n if one has everything; 1 if there is nothing.
fn jain(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, squares) = (values.clone().sum::<f64>(), values.clone().map(|value| value * value).sum::<f64>());
    if squares == 0.0 { 1.0 } else { sum * sum / (values.count() as f64 * squares) }
}

impl Cell {
    fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "volumes": self.volumes,
            "jobs": JOBS,
            "depth": DEPTH,
            "disk_share": rounded(self.disk_share),
            "best_share": rounded(self.best_share),
            "reads_per_second": self.reads_per_second.round(),
            "of_best_static": rounded(self.of_best_static),
            "backend_jain": rounded(self.backend_jain),
            "share_move_max": rounded(self.share_move_max),
            "of_cache_only_min": rounded(self.of_cache_only_min),
        })
    }
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let ours = || cells.iter().filter(|cell| cell.policy == OURS);
    let fairness = lowest(ours().map(|cell| cell.backend_jain));
    BTreeMap::from([
        ("backend_jain_min", fairness),
        ("of_best_static_min", lowest(ours().map(|cell| cell.of_best_static))),
        ("share_move_max", highest(ours().map(|cell| cell.share_move_max))),
        ("of_cache_only_min", lowest(ours().map(|cell| cell.of_cache_only_min))),
        ("ours_backend_jain_min", fairness),
        ("ours_over_cache_only", lowest(ours().map(|cell| cell.of_cache_only))),
    ])
}

fn table(cells: &[Cell]) -> Table {
    let head =
        ["policy", "volumes", "share", "best", "of best", "Jain, back end", "share moves", "worst volume, of cache"];
    let row = |cell: &Cell| {
        let mut row = vec![cell.policy.to_owned(), cell.volumes.to_string()];
        let numbers = [
            cell.disk_share,
            cell.best_share,
            cell.of_best_static,
            cell.backend_jain,
            cell.share_move_max,
            cell.of_cache_only_min,
        ];
        row.extend(numbers.map(|value| format!("{value:.3}")));
        row
    };
    Table {
        title: "Volumes on one cache disk and one link".to_owned(),
        head: head.map(str::to_owned).into(),
        rows: cells.iter().map(row).collect(),
    }
}

/// Our shares, second by second, where there are most volumes.
fn plot(cells: &[Cell]) -> Result<Plot, Error> {
    let ours = cells.iter().rfind(|cell| cell.policy == OURS);
    let line = |(volume, shares): (usize, &Vec<f64>)| Line {
        name: format!("volume {}", volume + 1),
        points: shares.iter().enumerate().map(|(second, share)| (second as f64, *share)).collect(),
        labels: Vec::new(),
    };
    let lines: Vec<_> = ours.iter().flat_map(|cell| cell.shares.iter().enumerate()).map(line).collect();
    let title = "Each volume's share of the cache disk, once settled";
    let chart = Chart { title, x: "seconds", y: "share", x_names: None, y_max: Some(1.05), lines: &lines };
    Ok(Plot { name: "shares", svg: chart.to_svg("shares")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([0.0, 5.0].into_iter()), 0.5);
        assert_eq!(jain([0.0, 0.0].into_iter()), 1.0);
    }
}
