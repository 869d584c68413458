//! The trials as cells, bars, tables and plots.

use super::{BASELINES, FIGURES, ORTHUS_PAPER, OfBest, STATIC_CONTENDED, Trial};
use crate::Error;
use crate::findings::{Plot, rounded};
use crate::machine::{CACHE_ONLY, OURS, highest, lowest};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_sim::pace::Tick;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The trial of a policy in the same figure.
fn beside<'a>(trial: &Trial, trials: &'a [Trial], policy: &str) -> &'a Trial {
    let found = trials.iter().find(|other| other.figure.name == trial.figure.name && other.policy == policy);
    found.unwrap_or_else(|| panic!("{policy} runs in every figure"))
}

fn of_best(trial: &Trial, trials: &[Trial]) -> OfBest {
    trial.beside([ORTHUS_PAPER, STATIC_CONTENDED].map(|policy| beside(trial, trials, policy)))
}

pub(super) fn cell(trial: &Trial, trials: &[Trial]) -> Value {
    let (figure, of_best) = (trial.figure, of_best(trial, trials));
    json!({
        "figure": figure.name,
        "policy": trial.policy,
        "jobs": figure.jobs,
        "depth": figure.depth,
        "read_share": f64::from(figure.read_permil) / 1e3,
        "flows": figure.flows,
        "free_best_share": rounded(trial.best_share[0]),
        "contended_best_share": rounded(trial.best_share[1]),
        "free_of_best": rounded(of_best.free),
        "onset_of_best": rounded(of_best.onset),
        "contended_of_best": rounded(of_best.contended),
        "clearance_of_best": rounded(of_best.clearance),
        "onset_seconds": of_best.onset_seconds,
        "clearance_seconds": of_best.clearance_seconds,
        "contended_of_orthus_paper": rounded(trial.contended() / beside(trial, trials, ORTHUS_PAPER).contended()),
        "run_of_cache_only": rounded(trial.run() / beside(trial, trials, CACHE_ONLY.name).run()),
        "slot_bytes_of_written": trial.slot_bytes_of_written().map(rounded),
    })
}

pub(super) fn values(trials: &[Trial]) -> BTreeMap<&'static str, f64> {
    let ours = || trials.iter().filter(|trial| trial.policy == OURS);
    let over = |trial: &Trial, policy: &str, of: fn(&Trial) -> f64| of(trial) / of(beside(trial, trials, policy));
    let of_baselines = |trial: &Trial| lowest(BASELINES.iter().map(|policy| over(trial, policy, Trial::run)));
    let four_jobs = |of: fn(&Trial) -> f64, policy| over(beside(&trials[0], trials, OURS), policy, of);
    let only_reads = trials.iter().filter(|trial| trial.figure.read_permil == 1000);
    BTreeMap::from([
        ("onset_of_best_min", lowest(ours().map(|trial| of_best(trial, trials).onset))),
        ("clearance_of_best_min", lowest(ours().map(|trial| of_best(trial, trials).clearance))),
        ("run_of_baselines_min", lowest(ours().map(of_baselines))),
        ("split_cache_disk_writes", highest(only_reads.map(|trial| trial.disk_writes() as f64))),
        ("ours_contended_over_orthus_paper", four_jobs(Trial::contended, ORTHUS_PAPER)),
        ("ours_free_over_cache_only", four_jobs(Trial::free, CACHE_ONLY.name)),
        ("ours_run_over_cache_only", lowest(ours().map(|trial| over(trial, CACHE_ONLY.name, Trial::run)))),
    ])
}

fn of_figures(trials: &[Trial]) -> impl Iterator<Item = Vec<&Trial>> {
    let of = |name: &str| trials.iter().filter(|trial| trial.figure.name == name).collect::<Vec<_>>();
    FIGURES.iter().map(move |figure| of(figure.name)).filter(|trials| !trials.is_empty())
}

pub(super) fn tables(trials: &[Trial]) -> Vec<Table> {
    of_figures(trials).map(|of_figure| table(&of_figure, trials)).collect()
}

fn table(of_figure: &[&Trial], trials: &[Trial]) -> Table {
    let head = [
        "policy",
        "free, of best",
        "1 s after onset",
        "contended, of best",
        "1 s after clearance",
        "onset found after s",
        "clearance found after s",
        "contended, of orthus-paper",
        "run, of cache",
    ];
    let number = |value: f64| format!("{value:.3}");
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let row = |trial: &&Trial| {
        let of_best = of_best(trial, trials);
        vec![
            trial.policy.to_owned(),
            number(of_best.free),
            number(of_best.onset),
            number(of_best.contended),
            number(of_best.clearance),
            seconds(of_best.onset_seconds),
            seconds(of_best.clearance_seconds),
            number(trial.contended() / beside(trial, trials, ORTHUS_PAPER).contended()),
            number(trial.run() / beside(trial, trials, CACHE_ONLY.name).run()),
        ]
    };
    let (figure, [free, contended]) = (of_figure[0].figure, of_figure[0].best_share);
    let paper = match figure.name {
        "9a" => "; NetCAS reports 3.5 times Orthus while contended",
        "9b" => "; NetCAS reports 1.2 times Orthus while contended",
        _ => "",
    };
    Table {
        title: format!(
            "Fig. {}: {} jobs, depth {}, {} % reads, {} flows; best shares {free:.3} free and {contended:.3} contended{paper}",
            figure.name,
            figure.jobs,
            figure.depth,
            figure.read_permil / 10,
            figure.flows,
        ),
        head: head.map(str::to_owned).into(),
        rows: of_figure.iter().map(row).collect(),
    }
}

pub(super) fn plots(trials: &[Trial]) -> Result<Vec<Plot>, Error> {
    of_figures(trials).map(|of_figure| plot(&of_figure)).collect()
}

fn plot(trials: &[&Trial]) -> Result<Plot, Error> {
    let figure = trials[0].figure;
    let [onset_ns, clearance_ns, _] = trials[0].times_ns;
    let at = |tick: &Tick| (tick.to_ns as f64 / 1e9, tick.bytes_per_second() / 1e6);
    let line = |trial: &&Trial| Line {
        name: trial.policy.to_owned(),
        points: trial.ticks.iter().map(at).collect(),
        labels: Vec::new(),
    };
    let lines: Vec<_> = trials.iter().map(line).collect();
    let title = format!(
        "As Fig. {} of NetCAS: {} x {}, {} flows from {} s to {} s",
        figure.name,
        figure.jobs,
        figure.depth,
        figure.flows,
        onset_ns / 1_000_000_000,
        clearance_ns / 1_000_000_000,
    );
    let chart = Chart { title: &title, x: "seconds", y: "MB/s", x_names: None, y_max: None, lines: &lines };
    Ok(Plot { name: figure.name, svg: chart.to_svg(figure.name)? })
}
