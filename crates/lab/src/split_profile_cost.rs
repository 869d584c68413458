//! `split-profile-cost`: when what a profile costs is earned back (NetCAS, Fig. 3).
//!
//! Why: NetCAS measures both paths before it splits anything: 50 points in 25 minutes, in which its figure counts nothing
//! as served. It breaks even with the cache alone after 59 minutes, and is 49 % ahead after three hours. A volume that is
//! restarted, moved or given another back end more often than that is better off without.
//!
//! How: the load of Fig. 3, 16 jobs of 16 reads, on the [`machine`](crate::machine) of the other experiments. A profile is
//! measured as `forebay profile` does, path after path below the cache; then NetCAS follows it. Others begin at once,
//! knowing nothing. Bytes since the start are held against those of the cache alone. What comes after a run is its last
//! ten seconds again.
//!
//! - `paper`: nothing is served for 25 minutes; then as with the full profile.
//! - `full`: 9 levels in flight, 2 block sizes, 2 paths, 5 s each: three minutes, and nothing is served.
//! - `quick`: 6 levels, 1 s each: 24 s, and nothing is served.
//! - `full-served` and `quick-served`: clients are served from the cache disk meanwhile, with what is left of it. Since
//!   they use it, it looks slower than it is, and the profile is wrong: what is earned at first is lost for ever after.
//! - `none`.
//!
//! Limits: nothing else changes meanwhile. The smaller block size of the machine is as large as the other, and is measured
//! for as long; a volume's second profile is not needed as long as its devices stay.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::machine::{CACHE_ONLY, NETCAS, OURS, Policy, READ_BYTES, SECOND_NS, highest, lowest, map, setup};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_core::{SplitConfig, SplitKind, VolumeId};
use forebay_engine::shard::measure::MeasureOrder;
use forebay_policy::split::Path;
use forebay_policy::split::profile::Profile;
use forebay_policy::split::profile::totals::{self, Total};
use forebay_sim::pace::{Load, PacedWorld, Setup, TICK_NS, Tick};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const JOBS: u32 = 16;
const DEPTH: u32 = 16;
const BLOCK_SIZES: usize = 2;
/// As long as the paper's takes.
const PAPER_NS: u64 = 25 * 60 * SECOND_NS;
/// What stands for all that comes after.
const STEADY_NS: u64 = 10 * SECOND_NS;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// What is measured before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profiling {
    /// As the paper: nothing is served for so long.
    Paper,
    /// These levels, for so long each, with clients or without.
    Levels(&'static [u32], u64, Clients),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Wait,
    AreServed,
}

struct Approach {
    profile: &'static str,
    policy: Policy,
    profiling: Profiling,
}

const fn approach(profile: &'static str, name: &'static str, kind: SplitKind, profiling: Profiling) -> Approach {
    Approach { profile, policy: Policy { name, kind }, profiling }
}

/// What `forebay profile` does, and does with `--quick`; without clients and with them.
const FULL: [Profiling; 2] = [
    Profiling::Levels(&totals::FULL, 5 * SECOND_NS, Clients::Wait),
    Profiling::Levels(&totals::FULL, 5 * SECOND_NS, Clients::AreServed),
];
const QUICK: [Profiling; 2] = [
    Profiling::Levels(&totals::QUICK, SECOND_NS, Clients::Wait),
    Profiling::Levels(&totals::QUICK, SECOND_NS, Clients::AreServed),
];
/// Those that a quick look leaves out.
const LONG: usize = 3;
static APPROACHES: [Approach; 9] = [
    approach("paper", NETCAS, SplitKind::NetCas, Profiling::Paper),
    approach("full", NETCAS, SplitKind::NetCas, FULL[0]),
    approach("full-served", NETCAS, SplitKind::NetCas, FULL[1]),
    approach("quick", NETCAS, SplitKind::NetCas, QUICK[0]),
    approach("quick-served", NETCAS, SplitKind::NetCas, QUICK[1]),
    approach("none", CACHE_ONLY.name, CACHE_ONLY.kind, Profiling::None),
    approach("none", "orthus", SplitKind::Orthus, Profiling::None),
    approach("none", "climb", SplitKind::Climb, Profiling::None),
    approach("none", OURS, SplitKind::ExpectedDelay, Profiling::None),
];

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-profile-cost",
    question: "When is what a profile costs earned back, and what if there is none?",
    cells: &[
        ("policy", "who chose the path of each hit"),
        ("profile", "what was measured before: paper, full, full-served, quick, quick-served, none"),
        ("profile_seconds", "for how long"),
        ("served_meanwhile", "throughput while it was measured, of the cache's alone; null without a profile"),
        ("steady_of_cache_only", "throughput in the end, of the cache's alone"),
        (
            "break_even_seconds",
            "when the bytes since the start became, for good, those of the cache alone; null if they never do",
        ),
        ("two_minutes_of_cache_only", "bytes of the first two minutes, of the cache's alone"),
        ("hour_of_cache_only", "bytes of the first hour, of the cache's alone"),
        ("three_hours_of_cache_only", "bytes of the first three hours, of the cache's alone"),
    ],
    bars: &[
        Bar {
            name: "ours_break_even_seconds",
            bar: 120.0,
            at_least: false,
            meaning: "when ours, without a profile, has earned back what it cost to find its way (the paper reports 59 minutes)",
        },
        Bar {
            name: "quick_profile_break_even_seconds",
            bar: 120.0,
            at_least: false,
            meaning: "the same of NetCAS with a quick profile, measured with or without clients",
        },
    ],
    directions: &[
        Bar {
            name: "ours_break_even_at_once_seconds",
            bar: 5.0,
            at_least: false,
            meaning: "when ours, without a profile, has earned back what it cost to find its way",
        },
        Bar {
            name: "netcas_quick_break_even_seconds",
            bar: 120.0,
            at_least: false,
            meaning: "the same of NetCAS with a quick profile, measured with or without clients",
        },
        Bar {
            name: "ours_over_quick_profile_two_minutes",
            bar: 1.05,
            at_least: true,
            meaning: "bytes of the first two minutes: ours over NetCAS with a quick profile",
        },
    ],
    conduct,
};

/// Bytes by the end of each tick, and how they go on.
struct Served {
    bytes: Vec<f64>,
    steady_bytes_per_second: f64,
}

impl Served {
    fn of(ticks: &[Tick]) -> Self {
        let each = |tick: &Tick| tick.bytes_per_second() * TICK_NS as f64 / 1e9;
        let bytes = ticks.iter().map(each).scan(0.0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        });
        let steady = (STEADY_NS / TICK_NS) as usize;
        let last = &ticks[ticks.len().saturating_sub(steady)..];
        let steady_bytes_per_second = last.iter().map(Tick::bytes_per_second).sum::<f64>() / last.len() as f64;
        Self { bytes: bytes.collect(), steady_bytes_per_second }
    }

    /// As the paper has it: what is steady here, after nothing for so long.
    fn after(nothing_ns: u64, steady_bytes_per_second: f64) -> Self {
        Self { bytes: vec![0.0; (nothing_ns / TICK_NS) as usize], steady_bytes_per_second }
    }

    fn until(&self, ns: u64) -> f64 {
        let tick = (ns / TICK_NS) as usize;
        let simulated = self.bytes.len().min(tick);
        let bytes = if simulated == 0 { 0.0 } else { self.bytes[simulated - 1] };
        bytes + (tick - simulated) as f64 * self.steady_bytes_per_second * TICK_NS as f64 / 1e9
    }

    fn of_other(&self, other: &Self, ns: u64) -> f64 {
        self.until(ns) / other.until(ns)
    }

    /// When the last tick ended at which it was behind.
    fn break_even_ns(&self, other: &Self) -> Option<u64> {
        let end = self.bytes.len().max(other.bytes.len()) as u64;
        let ahead = |tick: u64| self.until(tick * TICK_NS) - other.until(tick * TICK_NS);
        let gain = (self.steady_bytes_per_second - other.steady_bytes_per_second) * TICK_NS as f64 / 1e9;
        let ticks = if ahead(end) < 0.0 {
            if gain <= 0.0 {
                return None;
            }
            end + (-ahead(end) / gain).ceil() as u64
        } else {
            (1..=end).rev().find(|tick| ahead(*tick) < 0.0).map_or(0, |behind| behind + 1)
        };
        Some(ticks * TICK_NS)
    }
}

/// What came of an approach.
struct Outcome {
    approach: &'static Approach,
    profile_ns: u64,
    served: Served,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let approaches = if run.is_quick { &APPROACHES[LONG..] } else { &APPROACHES[..] };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (done, approach) in approaches.iter().enumerate() {
        outcomes.push(come_of(approach, run));
        (run.progress)(done + 1, approaches.len());
    }
    if !run.is_quick {
        // The paper's is the next, once it has its profile.
        let steady = outcomes[1].served.steady_bytes_per_second;
        outcomes[0].served = Served::after(PAPER_NS, steady);
    }
    Ok(Found {
        setup: map(json!({ "read_bytes": READ_BYTES, "jobs": JOBS, "depth": DEPTH, "ours": OURS })),
        cells: outcomes.iter().map(|outcome| map(outcome.to_json(cache_only(&outcomes)))).collect(),
        paper: map(json!({
            "netcas_profile_seconds": 1500,
            "netcas_break_even_seconds": 3540,
            "netcas_three_hours_of_cache_only": 1.49,
            "netcas_steady_of_cache_only": 1.73,
        })),
        values: values(&outcomes),
        tables: vec![table(&outcomes)],
        plots: plots(&outcomes)?,
    })
}

fn come_of(approach: &'static Approach, run: &Run<'_>) -> Outcome {
    let load = Load::reads(JOBS, DEPTH, READ_BYTES);
    let mut setup = setup(1, load, run.seed);
    // What is measured has as many in flight again.
    setup.pages_in_flight_max = 2 * load.in_flight();
    let mut world = world(&setup, approach.policy.kind);
    let profile_ns = match approach.profiling {
        Profiling::Paper => return Outcome { approach, profile_ns: PAPER_NS, served: Served::after(PAPER_NS, 0.0) },
        Profiling::Levels(levels, each_ns, clients) => {
            if clients == Clients::Wait {
                world.set_load(0, Load::IDLE);
            }
            let profile = measure(&mut world, levels, each_ns);
            world.set_profile(0, profile);
            world.set_load(0, load);
            world.now_ns()
        }
        Profiling::None => 0,
    };
    // A quick look is long enough to be steady, for those that are quick.
    world.run_for(if run.is_quick { STEADY_NS } else { 6 * STEADY_NS });
    Outcome { approach, profile_ns, served: Served::of(world.ticks()) }
}

fn world(setup: &Setup, kind: SplitKind) -> PacedWorld {
    PacedWorld::new(setup, |config| config.volumes[0].split = SplitConfig { kind, ..SplitConfig::default() })
}

/// What `forebay profile` does. It takes as long for the smaller block size, which here is the same.
fn measure(world: &mut PacedWorld, levels: &[u32], each_ns: u64) -> Profile {
    let mut measured = Vec::new();
    for _ in 0..BLOCK_SIZES {
        measured = levels.iter().map(|in_flight| total(world, *in_flight, each_ns)).collect();
    }
    totals::profile(&measured).unwrap_or_else(|(row, error)| panic!("row {row} is none of a profile: {error:?}"))
}

fn total(world: &mut PacedWorld, in_flight: u32, each_ns: u64) -> Total {
    let bytes_per_second = [Path::DISK, Path::BACKEND].map(|path| {
        let order = MeasureOrder { volume: VolumeId(0), path, block_bytes: READ_BYTES, in_flight, for_ns: each_ns };
        let measured = world.measure(order).unwrap_or_else(|error| panic!("{order:?}: {error}"));
        measured.reads as f64 * f64::from(READ_BYTES) * 1e9 / measured.elapsed_ns as f64
    });
    Total { block_bytes: READ_BYTES, in_flight, bytes_per_second }
}

fn cache_only(outcomes: &[Outcome]) -> &Served {
    let found = outcomes.iter().find(|outcome| outcome.approach.policy.name == CACHE_ONLY.name);
    &found.unwrap_or_else(|| panic!("the cache alone is always there")).served
}

impl Outcome {
    fn served_meanwhile(&self, cache_only: &Served) -> Option<f64> {
        (self.profile_ns > 0).then(|| self.served.of_other(cache_only, self.profile_ns))
    }

    fn steady(&self, cache_only: &Served) -> f64 {
        self.served.steady_bytes_per_second / cache_only.steady_bytes_per_second
    }

    /// Without end if never.
    fn break_even_seconds(&self, cache_only: &Served) -> f64 {
        self.served.break_even_ns(cache_only).map_or(f64::INFINITY, |ns| ns as f64 / 1e9)
    }

    fn to_json(&self, cache_only: &Served) -> Value {
        json!({
            "policy": self.approach.policy.name,
            "profile": self.approach.profile,
            "profile_seconds": self.profile_ns / SECOND_NS,
            "served_meanwhile": self.served_meanwhile(cache_only).map(rounded),
            "steady_of_cache_only": rounded(self.steady(cache_only)),
            "break_even_seconds": self.served.break_even_ns(cache_only).map(|ns| ns as f64 / 1e9),
            "two_minutes_of_cache_only": rounded(self.served.of_other(cache_only, 2 * MINUTE_NS)),
            "hour_of_cache_only": rounded(self.served.of_other(cache_only, HOUR_NS)),
            "three_hours_of_cache_only": rounded(self.served.of_other(cache_only, 3 * HOUR_NS)),
        })
    }
}

fn values(outcomes: &[Outcome]) -> BTreeMap<&'static str, f64> {
    let cache_only = cache_only(outcomes);
    let of = |profile: &'static str, policy: &'static str| {
        let is_it =
            move |outcome: &&Outcome| (outcome.approach.profile, outcome.approach.policy.name) == (profile, policy);
        outcomes.iter().filter(is_it)
    };
    let break_even =
        |profile, policy| highest(of(profile, policy).map(|outcome| outcome.break_even_seconds(cache_only)));
    let two_minutes = |profile, policy| lowest(of(profile, policy).map(|outcome| outcome.served.until(2 * MINUTE_NS)));
    let ours = break_even("none", OURS);
    let quick = highest(["quick", "quick-served"].into_iter().map(|profile| break_even(profile, NETCAS)));
    let quick_bytes = highest(["quick", "quick-served"].into_iter().map(|profile| two_minutes(profile, NETCAS)));
    BTreeMap::from([
        ("ours_break_even_seconds", ours),
        ("quick_profile_break_even_seconds", quick),
        ("ours_break_even_at_once_seconds", ours),
        ("netcas_quick_break_even_seconds", quick),
        ("ours_over_quick_profile_two_minutes", two_minutes("none", OURS) / quick_bytes),
    ])
}

fn table(outcomes: &[Outcome]) -> Table {
    let cache_only = cache_only(outcomes);
    let head = ["policy", "profile", "takes, s", "served", "in the end", "break-even, s", "2 min", "1 h", "3 h"];
    let row = |outcome: &Outcome| {
        let number = |value: f64| format!("{value:.3}");
        let after = |ns| number(outcome.served.of_other(cache_only, ns));
        vec![
            outcome.approach.policy.name.to_owned(),
            outcome.approach.profile.to_owned(),
            (outcome.profile_ns / SECOND_NS).to_string(),
            outcome.served_meanwhile(cache_only).map_or("-".to_owned(), number),
            number(outcome.steady(cache_only)),
            format!("{:.1}", outcome.break_even_seconds(cache_only)),
            after(2 * MINUTE_NS),
            after(HOUR_NS),
            after(3 * HOUR_NS),
        ]
    };
    Table {
        title:
            "Bytes since the start, of the cache's alone (NetCAS reports break-even after 3540 s, and 1.49 after 3 h)"
                .to_owned(),
        head: head.map(str::to_owned).into(),
        rows: outcomes.iter().map(row).collect(),
    }
}

fn plots(outcomes: &[Outcome]) -> Result<Vec<Plot>, Error> {
    let first = ("first", "The first four minutes", 4 * MINUTE_NS, SECOND_NS, "seconds");
    let hours = ("hours", "The first three hours", 3 * HOUR_NS, MINUTE_NS, "minutes");
    [first, hours]
        .into_iter()
        .map(|(name, what, to_ns, each_ns, unit)| {
            let line = |outcome: &Outcome| {
                let at = |step: u64| (step as f64, outcome.served.of_other(cache_only(outcomes), step * each_ns));
                let name = format!("{}, {}", outcome.approach.policy.name, outcome.approach.profile);
                Line { name, points: (1..=to_ns / each_ns).map(at).collect(), labels: Vec::new() }
            };
            let lines: Vec<_> = outcomes.iter().map(line).collect();
            let title = format!("{what}, bytes of the cache's alone (compare Fig. 3 of NetCAS)");
            let chart =
                Chart { title: &title, x: unit, y: "of the cache alone", x_names: None, y_max: None, lines: &lines };
            Ok(Plot { name, svg: chart.to_svg(name)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(rates: &[f64], steady_bytes_per_second: f64) -> Served {
        let sum = |sum: &mut f64, rate: &f64| {
            *sum += rate / 10.0;
            Some(*sum)
        };
        Served { bytes: rates.iter().scan(0.0, sum).collect(), steady_bytes_per_second }
    }

    #[test]
    fn the_papers_figure_is_that_of_nothing_for_25_minutes() {
        let (netcas, cache) = (Served::after(PAPER_NS, 1.73), served(&[1.0], 1.0));
        let minutes = netcas.break_even_ns(&cache).expect("it gains") / MINUTE_NS;
        assert_eq!(minutes, 59);
        assert!((netcas.of_other(&cache, 3 * HOUR_NS) - 1.49).abs() < 0.005);
    }

    #[test]
    fn break_even_is_for_good_and_may_be_at_once_or_never() {
        let cache = served(&[1.0; 4], 1.0);
        let even = |rates: &[f64], steady| served(rates, steady).break_even_ns(&cache).map(|ns| ns / TICK_NS);
        assert_eq!(even(&[2.0, 1.0], 1.0), Some(0));
        // Ahead, behind, and ahead again.
        assert_eq!(even(&[2.0, 0.0, 0.5, 1.0], 2.0), Some(5));
        assert_eq!(even(&[0.5], 1.5), Some(2));
        assert_eq!(even(&[0.5], 1.0), None);
    }
}
