//! `split-surface`: policies that set a share, on the throughput that NetCAS' authors measured and published.
//!
//! Their table (36 points of concurrency x 21 shares) is the world, so the best split of each point is known, and is
//! nobody's model. On it NetCAS' own formula moves 0.51 to 0.99 of the best split: it takes what each path delivers
//! alone, at the whole concurrency, and at low concurrency that says little about what they deliver together.
//!
//! 1. [`surface`]: the table. [`world`]: a share in, a noisy tick out. [`policy`]: who is on trial.
//! 2. Every policy runs at every point from a cold start, with several seeds; each meets the same noise.
//! 3. [`judge`]: did it find the best split, how soon, what did it cost on the way, and what does it deliver then?
//! 4. [`told`]: cells, tables and plots.
//!
//! Limits: the world has no memory and no contention; other experiments have. Policies that choose request by request
//! do not set a share and are judged there too.

pub mod judge;
pub mod policy;
pub mod surface;
mod told;
pub mod world;

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, rounded};
use forebay_policy::rng::mix64;
use judge::{SETTLING_TICKS, STEADY_TICKS, Step, Verdict};
use policy::{POLICIES, Policy, Start};
use serde_json::{Map, Value, json};
use surface::{POINTS, Point};
use world::{NOISE, TICK_NS};

const SEEDS: u64 = 20;
const SEEDS_QUICK: u64 = 4;
/// A cold start is over by then.
const FOUND_AFTER_TICKS_MAX: usize = 20;

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-surface",
    question: "How close does each policy come to the best split of hits, on the throughput that NetCAS' authors measured?",
    cells: &[
        ("policy", "who chose the share"),
        ("depth", "reads in flight a job"),
        ("jobs", "jobs"),
        ("best_share", "share of reads for the cache disk that moves most"),
        ("disk_share", "the share chosen: mean of the steady state and of seeds"),
        ("of_best", "throughput in the steady state, of the best split's: mean of seeds"),
        ("of_best_min", "the same, of the worst seed"),
        ("of_cache", "throughput in the steady state, of the cache's alone: mean of seeds"),
        ("of_cache_min", "the same, of the worst seed"),
        ("found_within_20", "part of the seeds that found the best split within 20 ticks of a cold start"),
        ("found_after_ticks", "ticks until it was found: median of seeds; null if most never found it"),
        ("bad_ticks_max", "longest run of ticks below 0.9 of the cache alone, of the worst seed"),
    ],
    bars: &[
        Bar {
            name: "of_best_min",
            bar: 0.97,
            at_least: true,
            meaning: "ours in the steady state, of the best split, at the worst point with the worst seed",
        },
        Bar {
            name: "of_cache_min",
            bar: 0.99,
            at_least: true,
            meaning: "ours in the steady state, of the cache alone, at the worst point with the worst seed",
        },
        Bar {
            name: "found_within_20",
            bar: 0.9,
            at_least: true,
            meaning: "part of our runs that found the best split within 20 ticks of a cold start",
        },
        Bar {
            name: "bad_ticks_max",
            bar: 5.0,
            at_least: false,
            meaning: "our longest run of ticks below 0.9 of the cache alone",
        },
    ],
    directions: &[
        Bar {
            name: "ours_over_cache_only",
            bar: 1.3,
            at_least: true,
            meaning: "ours in the steady state over the cache alone: mean of points and seeds",
        },
        Bar {
            name: "ours_of_best_worst_point",
            bar: 0.95,
            at_least: true,
            meaning: "ours in the steady state, of the best split, at the worst point: mean of seeds",
        },
        Bar {
            name: "ours_over_formula",
            bar: 1.05,
            at_least: true,
            meaning: "ours over NetCAS' formula in the steady state: mean of points and seeds",
        },
        Bar {
            name: "ours_over_formula_max",
            bar: 1.8,
            at_least: true,
            meaning: "the same at the point where the formula does worst against ours",
        },
        Bar {
            name: "formula_of_best_worst_point",
            bar: 0.52,
            at_least: false,
            meaning: "the formula in the steady state, of the best split, at its worst point (the paper's own table: 0.51)",
        },
        Bar {
            name: "ours_over_orthus",
            bar: 1.0,
            at_least: true,
            meaning: "ours over Orthus in the steady state: mean of points and seeds",
        },
        Bar {
            name: "ours_found_within_20_over_orthus",
            bar: 1.2,
            at_least: true,
            meaning: "part of our runs that found the best split within 20 ticks, over that of Orthus",
        },
    ],
    conduct,
};

/// A policy at a point: a verdict a seed, and how the first seed went.
struct Trial {
    policy: &'static Policy,
    point: &'static Point,
    verdicts: Vec<Verdict>,
    first: Vec<Step>,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let seeds = if run.is_quick { SEEDS_QUICK } else { SEEDS };
    let mut trials = Vec::new();
    for policy in POLICIES {
        for point in POINTS.iter() {
            trials.push(trial(policy, point, run.seed, seeds));
            (run.progress)(trials.len(), POLICIES.len() * POINTS.len());
        }
    }
    let setup = json!({
        "seeds": seeds,
        "noise": NOISE,
        "tick_seconds": TICK_NS as f64 / 1e9,
        "settling_ticks": SETTLING_TICKS,
        "steady_ticks": STEADY_TICKS,
        "ours": policy::OURS,
    });
    let paper = json!({
        "formula_of_best_min": 0.51,
        "formula_of_best_max": 0.99,
        "netcas_of_cache_max": 2.42,
        "netcas_of_orthus_max": 2.25,
    });
    Ok(Found {
        setup: map(setup),
        cells: trials.iter().map(|trial| map(trial.cell())).collect(),
        paper: map(paper),
        values: told::values(&trials),
        tables: told::tables(&trials),
        plots: told::plots(&trials)?,
    })
}

fn trial(policy: &'static Policy, point: &'static Point, seed: u64, seeds: u64) -> Trial {
    let run = |index: u64| {
        // The same noise for every policy: its luck is not what is compared.
        let seed = mix64(seed ^ mix64(index ^ u64::from(point.depth) << 32 ^ u64::from(point.jobs) << 16));
        let mut made = (policy.make)(&Start { point, seed: mix64(seed) });
        judge::trace(made.as_mut(), point, seed, SETTLING_TICKS + STEADY_TICKS)
    };
    let traces: Vec<_> = (0..seeds).map(run).collect();
    let verdicts = traces.iter().map(|steps| judge::verdict(point, steps)).collect();
    Trial { policy, point, verdicts, first: traces.into_iter().next().unwrap_or_default() }
}

impl Trial {
    fn mean(&self, of: impl Fn(&Verdict) -> f64) -> f64 {
        self.verdicts.iter().map(of).sum::<f64>() / self.verdicts.len() as f64
    }

    fn min(&self, of: impl Fn(&Verdict) -> f64) -> f64 {
        self.verdicts.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    fn found_in_time(&self) -> f64 {
        self.mean(|verdict| {
            f64::from(u8::from(verdict.found_after_ticks.is_some_and(|ticks| ticks <= FOUND_AFTER_TICKS_MAX)))
        })
    }

    /// Median of seeds; those that never found it come last.
    fn found_after_ticks(&self) -> Option<usize> {
        let mut ticks: Vec<_> = self.verdicts.iter().map(|one| one.found_after_ticks.unwrap_or(usize::MAX)).collect();
        ticks.sort_unstable();
        Some(ticks[(ticks.len() - 1) / 2]).filter(|&ticks| ticks != usize::MAX)
    }

    fn bad_ticks_max(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.bad_ticks).max().unwrap_or(0)
    }

    fn cell(&self) -> Value {
        json!({
            "policy": self.policy.name,
            "depth": self.point.depth,
            "jobs": self.point.jobs,
            "best_share": rounded(self.point.best_share()),
            "disk_share": rounded(self.mean(|verdict| verdict.disk_share)),
            "of_best": rounded(self.mean(|verdict| verdict.of_best)),
            "of_best_min": rounded(self.min(|verdict| verdict.of_best)),
            "of_cache": rounded(self.mean(|verdict| verdict.of_cache)),
            "of_cache_min": rounded(self.min(|verdict| verdict.of_cache)),
            "found_within_20": rounded(self.found_in_time()),
            "found_after_ticks": self.found_after_ticks(),
            "bad_ticks_max": self.bad_ticks_max(),
        })
    }
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("an object was meant: {other}"),
    }
}
