//! The trials as bars, tables and plots.

use super::Trial;
use super::judge::{SETTLING_TICKS, Verdict};
use super::policy::{FORMULA, ORTHUS, OURS, POLICIES, Policy};
use super::surface::POINTS;
use crate::Error;
use crate::findings::Plot;
use crate::page::Table;
use crate::plot::{Chart, Line};
use std::collections::BTreeMap;

/// The depth whose throughput over threads is drawn as in Fig. 1 of the paper.
const FIGURE_DEPTH: u32 = 16;
/// Ticks of the cold start that are drawn.
const DRAWN_TICKS: usize = 60;

fn of<'a>(trials: &'a [Trial], name: &str) -> impl Iterator<Item = &'a Trial> + Clone {
    let name = name.to_owned();
    trials.iter().filter(move |trial| trial.policy.name == name)
}

fn lowest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count() as f64
}

/// Each bar's and direction's value.
pub(super) fn values(trials: &[Trial]) -> BTreeMap<&'static str, f64> {
    let ours = || of(trials, OURS);
    let of_best = |trial: &Trial| trial.mean(|verdict| verdict.of_best);
    let over = |name| ours().zip(of(trials, name)).map(move |(ours, theirs)| of_best(ours) / of_best(theirs));
    BTreeMap::from([
        ("of_best_min", lowest(ours().map(|trial| trial.min(|verdict| verdict.of_best)))),
        ("of_cache_min", lowest(ours().map(|trial| trial.min(|verdict| verdict.of_cache)))),
        ("found_within_20", mean(ours().map(Trial::found_in_time))),
        ("bad_ticks_max", highest(ours().map(|trial| trial.bad_ticks_max() as f64))),
        ("ours_over_cache_only", mean(ours().map(|trial| trial.mean(|verdict| verdict.of_cache)))),
        ("ours_of_best_worst_point", lowest(ours().map(of_best))),
        ("ours_over_formula", mean(over(FORMULA))),
        ("ours_over_formula_max", highest(over(FORMULA))),
        ("formula_of_best_worst_point", lowest(of(trials, FORMULA).map(of_best))),
        ("ours_over_orthus", mean(over(ORTHUS))),
        (
            "ours_found_within_20_over_orthus",
            mean(ours().map(Trial::found_in_time)) / mean(of(trials, ORTHUS).map(Trial::found_in_time)),
        ),
    ])
}

pub(super) fn tables(trials: &[Trial]) -> Vec<Table> {
    vec![summary(trials), by_point(trials), ours_by_point(trials)]
}

/// What the paper says of a policy's gain over the cache alone, and of its part of the best split.
fn paper(name: &str) -> [&'static str; 2] {
    match name {
        FORMULA => ["0.51 to 0.99", ""],
        "netcas" => ["", "2.42"],
        _ => ["", ""],
    }
}

fn summary(trials: &[Trial]) -> Table {
    let head = [
        "policy",
        "of best, min",
        "mean",
        "max",
        "paper",
        "of cache, min",
        "mean",
        "max",
        "paper",
        "found within 20 ticks",
        "bad ticks, max",
    ];
    let row = |policy: &Policy| {
        let of_policy = of(trials, policy.name);
        let of_best = of_policy.clone().map(|trial| trial.mean(|verdict| verdict.of_best));
        let of_cache = of_policy.clone().map(|trial| trial.mean(|verdict| verdict.of_cache));
        let [paper_best, paper_cache] = paper(policy.name);
        let number = |value: f64| format!("{value:.3}");
        vec![
            policy.name.to_owned(),
            number(lowest(of_best.clone())),
            number(mean(of_best.clone())),
            number(highest(of_best)),
            paper_best.to_owned(),
            number(lowest(of_cache.clone())),
            number(mean(of_cache.clone())),
            number(highest(of_cache)),
            paper_cache.to_owned(),
            number(mean(of_policy.clone().map(Trial::found_in_time))),
            format!("{:.0}", highest(of_policy.map(|trial| trial.bad_ticks_max() as f64))),
        ]
    };
    Table {
        title: "Steady state over all points (means of seeds), and the way there".into(),
        head: head.map(str::to_owned).into(),
        rows: POLICIES.iter().map(row).collect(),
    }
}

fn by_point(trials: &[Trial]) -> Table {
    let mut head = vec!["depth x jobs".to_owned(), "best share".to_owned(), "its gain".to_owned()];
    head.extend(POLICIES.iter().map(|policy| policy.name.to_owned()));
    let row = |(at, point): (usize, &super::Point)| {
        let gain = point.best() / point.cache_only();
        let mut row = vec![point.name(), format!("{:.2}", point.best_share()), format!("{gain:.2}")];
        let trials = (0..POLICIES.len()).map(|policy| &trials[policy * POINTS.len() + at]);
        row.extend(trials.map(|trial| format!("{:.3}", trial.mean(|verdict| verdict.of_best))));
        row
    };
    Table {
        title: "Throughput in the steady state, of the best split".into(),
        head,
        rows: POINTS.iter().enumerate().map(row).collect(),
    }
}

fn ours_by_point(trials: &[Trial]) -> Table {
    let head = [
        "depth x jobs",
        "best share",
        "share",
        "of best",
        "worst seed",
        "of cache",
        "worst seed",
        "found after",
        "within 20",
        "bad ticks",
    ];
    let row = |trial: &Trial| {
        vec![
            trial.point.name(),
            format!("{:.2}", trial.point.best_share()),
            format!("{:.3}", trial.mean(|verdict| verdict.disk_share)),
            format!("{:.3}", trial.mean(|verdict| verdict.of_best)),
            format!("{:.3}", trial.min(|verdict| verdict.of_best)),
            format!("{:.3}", trial.mean(|verdict| verdict.of_cache)),
            format!("{:.3}", trial.min(|verdict| verdict.of_cache)),
            trial.found_after_ticks().map_or("-".to_owned(), |ticks| ticks.to_string()),
            format!("{:.2}", trial.found_in_time()),
            trial.bad_ticks_max().to_string(),
        ]
    };
    Table {
        title: format!("{OURS}, point by point"),
        head: head.map(str::to_owned).into(),
        rows: of(trials, OURS).map(row).collect(),
    }
}

pub(super) fn plots(trials: &[Trial]) -> Result<Vec<Plot>, Error> {
    Ok(vec![
        Plot { name: "threads", svg: threads()? },
        Plot { name: "of-best", svg: of_best(trials)? },
        Plot { name: "cold-start", svg: cold_start(trials)? },
    ])
}

/// The paper's Fig. 1, from its table.
fn threads() -> Result<String, Error> {
    let points: Vec<_> = POINTS.iter().filter(|point| point.depth == FIGURE_DEPTH).collect();
    let names: Vec<_> = points.iter().map(|point| point.jobs.to_string()).collect();
    let line = |name: &str, of: &dyn Fn(&super::Point) -> f64| Line {
        name: name.to_owned(),
        points: points.iter().enumerate().map(|(at, point)| (at as f64, of(point) / 1e3)).collect(),
        labels: Vec::new(),
    };
    let mut lines = [
        line("cache alone", &super::Point::cache_only),
        line("back end alone", &super::Point::backend_only),
        line("best split", &super::Point::best),
    ];
    lines[2].labels = points.iter().map(|point| format!("{:.0} %", point.best_share() * 100.0)).collect();
    let title = format!("Depth {FIGURE_DEPTH}, as Fig. 1 of NetCAS; beside the best split, its share for the cache");
    Chart {
        title: &title,
        x: "threads",
        y: "throughput (1000, unit not stated)",
        x_names: Some(&names),
        y_max: None,
        lines: &lines,
    }
    .to_svg("threads")
}

fn of_best(trials: &[Trial]) -> Result<String, Error> {
    // A depth has six points, one for each number of jobs.
    let name = |point: &super::Point| if point.jobs == 1 { format!("depth {}", point.depth) } else { String::new() };
    let names: Vec<_> = POINTS.iter().map(name).collect();
    let of_best = |verdict: &Verdict| verdict.of_best;
    let line = |policy: &Policy| Line {
        name: policy.name.to_owned(),
        points: of(trials, policy.name).enumerate().map(|(at, trial)| (at as f64, trial.mean(of_best))).collect(),
        labels: Vec::new(),
    };
    let lines: Vec<_> = POLICIES.iter().map(line).collect();
    let title = "Steady state: throughput of each policy, of the best split";
    Chart {
        title,
        x: "depth, and in it 1, 2, 4, 8, 16, 32 jobs",
        y: "of the best split",
        x_names: Some(&names),
        y_max: Some(1.05),
        lines: &lines,
    }
    .to_svg("of-best")
}

/// How the first seed's runs went, as a mean over the points.
fn cold_start(trials: &[Trial]) -> Result<String, Error> {
    let at = |policy: &Policy, tick: usize| {
        mean(of(trials, policy.name).map(|trial| trial.first[tick].throughput / trial.point.best()))
    };
    let line = |policy: &Policy| Line {
        name: policy.name.to_owned(),
        points: (0..DRAWN_TICKS.min(SETTLING_TICKS)).map(|tick| (tick as f64, at(policy, tick))).collect(),
        labels: Vec::new(),
    };
    let lines: Vec<_> = POLICIES.iter().map(line).collect();
    let title = "From a cold start: throughput of the best split, mean of the 36 points";
    Chart { title, x: "ticks of 100 ms", y: "of the best split", x_names: None, y_max: Some(1.05), lines: &lines }
        .to_svg("cold-start")
}
