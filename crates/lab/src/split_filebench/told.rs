//! The trials as cells, bars, tables and plots.

use super::{BASELINES, LINKS, Link, ORTHUS_PAPER, STATIC_CONTENDED, Trial, WORKLOADS, WORTH};
use crate::Error;
use crate::findings::{Plot, rounded};
use crate::machine::{CACHE_ONLY, OURS, lowest};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_sim::pace::Tick;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The trial of a policy with the same workload.
fn beside<'a>(trial: &Trial, trials: &'a [Trial], policy: &str) -> &'a Trial {
    let found = trials.iter().find(|other| other.workload.name == trial.workload.name && other.policy == policy);
    found.unwrap_or_else(|| panic!("{policy} runs with every workload"))
}

fn over(trial: &Trial, trials: &[Trial], policy: &str, link: Link) -> f64 {
    trial.bytes_per_second(link) / beside(trial, trials, policy).bytes_per_second(link)
}

/// Who has the best share that stays there, and which it is.
fn best(trial: &Trial, link: Link) -> Option<(&'static str, f64)> {
    match link {
        Link::Free => Some((ORTHUS_PAPER, trial.best_share[0])),
        Link::Contended => Some((STATIC_CONTENDED, trial.best_share[1])),
        Link::AllTheRun => None,
    }
}

pub(super) fn cells(trials: &[Trial]) -> Vec<Value> {
    let cell = |trial: &Trial, (link, name): (Link, &str)| {
        let best = best(trial, link);
        json!({
            "workload": trial.workload.name,
            "link": name,
            "policy": trial.policy,
            "bytes_per_second": trial.bytes_per_second(link).round(),
            "disk_share": rounded(trial.disk_share(link)),
            "best_share": best.map(|(_, share)| rounded(share)),
            "of_best_static": best.map(|(policy, _)| rounded(over(trial, trials, policy, link))),
            "of_cache_only": rounded(over(trial, trials, CACHE_ONLY.name, link)),
            "of_orthus_paper": rounded(over(trial, trials, ORTHUS_PAPER, link)),
        })
    };
    trials.iter().flat_map(|trial| LINKS.map(|link| cell(trial, link))).collect()
}

pub(super) fn values(trials: &[Trial]) -> BTreeMap<&'static str, f64> {
    let ours = || trials.iter().filter(|trial| trial.policy == OURS);
    let against = || {
        let pairs = ours().flat_map(|trial| LINKS.map(|(link, _)| (trial, link)));
        pairs.flat_map(|(trial, link)| BASELINES.map(|baseline| (trial, link, baseline)))
    };
    let is_beaten = |(trial, link, baseline): &(&Trial, Link, &str)| {
        best(trial, *link).is_some_and(|(best, _)| {
            let best = beside(trial, trials, best).bytes_per_second(*link);
            best > WORTH * beside(trial, trials, baseline).bytes_per_second(*link)
        })
    };
    let ratio = |(trial, link, baseline): (&Trial, Link, &str)| over(trial, trials, baseline, link);
    let free = |at: usize| {
        let name = WORKLOADS[at].name;
        lowest(
            ours()
                .filter(|trial| trial.workload.name == name)
                .map(|trial| over(trial, trials, CACHE_ONLY.name, Link::Free)),
        )
    };
    let contended = |policy| lowest(ours().map(|trial| over(trial, trials, policy, Link::Contended)));
    BTreeMap::from([
        ("of_baselines_min", lowest(against().map(ratio))),
        ("over_beaten_min", lowest(against().filter(is_beaten).map(ratio))),
        ("ours_over_cache_only_random", free(0)),
        ("ours_over_cache_only_sequential", free(1)),
        ("ours_over_orthus_paper_contended", contended(ORTHUS_PAPER)),
        ("ours_of_cache_only_contended", contended(CACHE_ONLY.name)),
    ])
}

fn of_workloads(trials: &[Trial]) -> impl Iterator<Item = Vec<&Trial>> {
    let of = |name: &str| trials.iter().filter(|trial| trial.workload.name == name).collect::<Vec<_>>();
    WORKLOADS.iter().map(move |workload| of(workload.name)).filter(|trials| !trials.is_empty())
}

pub(super) fn tables(trials: &[Trial]) -> Vec<Table> {
    of_workloads(trials).map(|of_workload| table(&of_workload, trials)).collect()
}

fn table(of_workload: &[&Trial], trials: &[Trial]) -> Table {
    let head = ["policy", "free, MB/s", "of best", "of cache", "from disk", "contended, MB/s", "of best", "of cache"];
    let head = head.into_iter().chain(["from disk", "of orthus-paper", "drop", "run, of cache"]);
    let row = |trial: &&Trial| {
        let number = |value: f64| format!("{value:.3}");
        let mut row = vec![trial.policy.to_owned()];
        for link in [Link::Free, Link::Contended] {
            let of = |policy| number(over(trial, trials, policy, link));
            row.push(format!("{:.0}", trial.bytes_per_second(link) / 1e6));
            row.push(best(trial, link).map_or(String::new(), |(policy, _)| of(policy)));
            row.push(of(CACHE_ONLY.name));
            row.push(number(trial.disk_share(link)));
        }
        row.push(number(over(trial, trials, ORTHUS_PAPER, Link::Contended)));
        row.push(number(1.0 - trial.bytes_per_second(Link::Contended) / trial.bytes_per_second(Link::Free)));
        row.push(number(over(trial, trials, CACHE_ONLY.name, Link::AllTheRun)));
        row
    };
    let (workload, [free, contended]) = (of_workload[0].workload, of_workload[0].best_share);
    let paper = match workload.name {
        "A" => "free, NetCAS reports 2.1 times OpenCAS and 1.5 times Orthus",
        "B" => {
            "NetCAS reports 1.27 times OpenCAS while free; drops of .17, of Orthus .20; 1.07 times Orthus while contended"
        }
        _ => "contended, NetCAS reports 1.65 times OpenCAS, which drops by .37, and 1.29 times Orthus",
    };
    Table {
        title: format!(
            "Workload {}: {}; best shares {free:.3} free and {contended:.3} contended; {paper}",
            workload.name, workload.what
        ),
        head: head.map(str::to_owned).collect(),
        rows: of_workload.iter().map(row).collect(),
    }
}

pub(super) fn plots(trials: &[Trial]) -> Result<Vec<Plot>, Error> {
    let mut plots = vec![bars(trials)?];
    if let Some(sequential) = of_workloads(trials).nth(1) {
        plots.push(over_time(&sequential)?);
    }
    Ok(plots)
}

/// As Fig. 11.
fn bars(trials: &[Trial]) -> Result<Plot, Error> {
    let places: Vec<_> = of_workloads(trials).map(|of_workload| of_workload[0].workload.name).collect();
    let x_names: Vec<_> = places.iter().flat_map(|name| [format!("{name} (n)"), format!("{name} (y)")]).collect();
    let of_first = trials.iter().take_while(|trial| trial.workload.name == trials[0].workload.name);
    let line = |first: &Trial| {
        let of_policy = trials.iter().filter(|trial| trial.policy == first.policy);
        let heights =
            of_policy.flat_map(|trial| [Link::Free, Link::Contended].map(|link| trial.bytes_per_second(link)));
        let points = heights.enumerate().map(|(at, height)| (at as f64, height / 1e6)).collect();
        Line { name: first.policy.to_owned(), points, labels: Vec::new() }
    };
    let lines: Vec<_> = of_first.map(line).collect();
    let title = "Files on a free (n) and on a contended (y) link (compare Fig. 11 of NetCAS)";
    let chart = Chart { title, x: "workload", y: "MB/s", x_names: Some(&x_names), y_max: None, lines: &lines };
    Ok(Plot { name: "workloads", svg: chart.to_svg("workloads")? })
}

/// As Fig. 12.
fn over_time(trials: &[&Trial]) -> Result<Plot, Error> {
    let at = |tick: &Tick| (tick.to_ns as f64 / 1e9, tick.bytes_per_second() / 1e6);
    let line = |trial: &&Trial| Line {
        name: trial.policy.to_owned(),
        points: trial.ticks.iter().map(at).collect(),
        labels: Vec::new(),
    };
    let lines: Vec<_> = trials.iter().map(line).collect();
    let times = trials[0].times;
    let title = format!(
        "Workload B, 40 flows from {:.0} s to {:.0} s (compare Fig. 12 of NetCAS)",
        times.onset_ns as f64 / 1e9,
        times.clearance_ns as f64 / 1e9
    );
    let chart = Chart { title: &title, x: "seconds", y: "MB/s", x_names: None, y_max: None, lines: &lines };
    Ok(Plot { name: "sequential", svg: chart.to_svg("sequential")? })
}
