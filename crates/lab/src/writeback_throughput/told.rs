//! What was measured, as bars, tables and a plot.

use super::{
    Cell, DATABASE, FULL, GENTLE, LOCAL, LOG, LOG_IDLE, LOG_LARGE, RANDOM_4, RANDOM_32, ROOM, STREAM, THROUGH,
};
use crate::Error;
use crate::findings::Plot;
use crate::latte::DiskState;
use crate::machine::{highest, lowest};
use crate::page::Table;
use crate::plot::{Chart, Line};
use std::collections::BTreeMap;

fn of<'a>(
    cells: &'a [Cell],
    workload: &str,
    state: DiskState,
    policy: &str,
    log: Option<&'static str>,
) -> Option<&'a Cell> {
    let wanted = |cell: &&Cell| (cell.workload, cell.disk, cell.policy) == (workload, state, policy);
    cells.iter().filter(wanted).find(|cell| cell.log == log && cell.backend == "free")
}

pub(super) fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let both = |f: &dyn Fn(DiskState) -> Option<f64>| lowest(DiskState::BOTH.into_iter().filter_map(f));
    let over_through =
        |workload: &str, log| both(&|state| of(cells, workload, state, LOG, Some(log)).map(|cell| cell.of_through));
    let steady = both(&|state| of(cells, STREAM, state, LOG_LARGE, Some(FULL)).map(|cell| cell.of_through));
    let of_idle = both(&|state| {
        let idle = of(cells, RANDOM_32, state, LOG_IDLE, Some(ROOM))?;
        of(cells, RANDOM_32, state, LOG, Some(ROOM)).map(|cell| cell.rate() / idle.rate())
    });
    let burst = both(&|state| {
        let [local, through] = [LOCAL, THROUGH].map(|policy| of(cells, STREAM, state, policy, None));
        let sum = local?.bytes_per_second() + through?.bytes_per_second();
        of(cells, STREAM, state, LOG_LARGE, Some(ROOM)).map(|cell| cell.bytes_per_second() / sum)
    });
    let gentle = |policy: &str, backend: &str| {
        let found = cells.iter().find(|cell| (cell.workload, cell.policy, cell.backend) == (GENTLE, policy, backend));
        found.map_or(f64::NAN, Cell::p999_us)
    };
    let stalls = gentle(LOG, "stalls") / gentle(LOCAL, "free");
    let full = cells.iter().filter(|cell| cell.log == Some(FULL));
    BTreeMap::from([
        ("random_4_over_through", over_through(RANDOM_4, ROOM)),
        ("random_32_of_idle", of_idle),
        ("random_full_of_through", over_through(RANDOM_4, FULL).min(over_through(RANDOM_32, FULL))),
        ("burst_of_both", burst),
        ("steady_of_backend", steady),
        ("stalls_p999_of_local", stalls),
        ("full_longest_seconds", highest(full.map(|cell| cell.latencies.writes.longest_ns as f64 / 1e9))),
        ("log_over_through", over_through(RANDOM_4, ROOM)),
        ("log_of_idle", of_idle),
        ("database_over_through", over_through(DATABASE, ROOM)),
        ("log_stalls_p999_of_local", stalls),
    ])
}

pub(super) fn tables(cells: &[Cell]) -> Vec<Table> {
    let (stumbling, free): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.workload == GENTLE);
    vec![
        table("Writes on a free back end", &free),
        table("A gentle load while the back end is free, slow, or stalls", &stumbling),
    ]
}

fn table(title: &str, cells: &[&Cell]) -> Table {
    let head = [
        "workload",
        "disk",
        "back end",
        "policy",
        "log",
        "writes/s",
        "MB/s",
        "of through",
        "mean us",
        "p99.9 us",
        "longest us",
        "flush us",
        "log full",
        "lag s",
    ];
    let row = |cell: &&Cell| {
        let us = |ns: u64| format!("{:.0}", ns as f64 / 1e3);
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        vec![
            cell.workload.to_owned(),
            cell.disk.name().to_owned(),
            cell.backend.to_owned(),
            cell.policy.to_owned(),
            cell.log.unwrap_or_default().to_owned(),
            format!("{:.0}", cell.rate()),
            format!("{:.0}", cell.bytes_per_second() / 1e6),
            format!("{:.2}", cell.of_through),
            us(cell.latencies.writes.mean_ns()),
            format!("{:.0}", cell.p999_us()),
            us(cell.latencies.writes.longest_ns),
            if cell.flushes > 0 { us(cell.latencies.flushes.mean_ns()) } else { String::new() },
            number(cell.log_full_share),
            number(cell.lag_seconds),
        ]
    };
    Table { title: title.to_owned(), head: head.map(str::to_owned).into(), rows: cells.iter().map(row).collect() }
}

/// Over write-through, with room and full, by workload.
pub(super) fn plot(cells: &[Cell]) -> Result<Plot, Error> {
    let workloads = [RANDOM_4, RANDOM_32, DATABASE, STREAM];
    let line = |(state, log): (DiskState, &'static str)| {
        let at = |(place, workload): (usize, &&str)| {
            of(cells, workload, state, LOG, Some(log))
                .map(|cell| (place as f64, cell.of_through.max(1e-3).log10() + 3.0))
        };
        Line {
            name: format!("{}, {log}", state.name()),
            points: workloads.iter().enumerate().filter_map(at).collect(),
            labels: Vec::new(),
        }
    };
    let lines: Vec<_> =
        DiskState::BOTH.into_iter().flat_map(|state| [ROOM, FULL].map(|log| (state, log))).map(line).collect();
    let names = workloads.map(str::to_owned);
    let title = "Writes into the log, of write-through: powers of ten, 3 is as many";
    let chart = Chart { title, x: "workload", y: "log10 + 3", x_names: Some(&names), y_max: None, lines: &lines };
    Ok(Plot { name: "of-through", svg: chart.to_svg("of-through")? })
}
