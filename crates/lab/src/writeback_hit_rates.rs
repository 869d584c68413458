//! `writeback-hit-rates`: reads by hit rate, from a local disk and a cloud disk of 6.7 to 4 (LATTE, Fig. 16, 17).
//!
//! Why: LATTE reads 8.9 GB/s at 75 % hits, more than either disk has, and less at 100 %, where its cloud disk is idle. Hits
//! that are split over both paths need not fall there.
//!
//! How: so many of a thousand pages are cached, and none is admitted or evicted: the hits stay as they are. 4 KiB at random
//! and 128 KiB, so many in flight that either disk is busy; then few, for the tails (Fig. 11b). Hits come from the cache
//! alone, as LATTE has it, or as our policy chooses. A second time the volume writes back, and a few clients write.
//!
//! Limits: see [`crate::latte`].

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::latte::{BLOCK_BYTES, DiskState, GIB, LARGE_BYTES, Volume, cloud_disk, local_disk, setup, world};
use crate::machine::{CACHE_ONLY, OURS, SECOND_NS, highest, lowest, map};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_core::log::logged::Bypass;
use forebay_core::{SplitKind, WriteMode};
use forebay_sim::pace::{Load, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LOCAL: &str = "local-disk";
const CLOUD: &str = "cloud-disk";
const HIT_PERMIL: [u32; 5] = [0, 250, 500, 750, 1000];
const HIT_PERMIL_QUICK: [u32; 2] = [750, 1000];
/// The bars are for these.
const JUDGED_PERMIL: [u32; 2] = [750, 1000];
/// Jobs, depth and bytes of a read, where the most is read.
const BUSY: [(u32, u32, u32); 2] = [(8, 128, BLOCK_BYTES), (1, 128, LARGE_BYTES)];
/// Where tails are looked at, with one job.
const DEPTHS: [u32; 5] = [8, 16, 32, 64, 128];
const VOLUME_BYTES: u64 = 8 * GIB;
const LOG_BYTES: u64 = 4 * GIB;
/// Each writes at most 500 times a second.
const WRITERS: u32 = 4;
const WRITERS_THINK_NS: u64 = 2_000_000;

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "writeback-hit-rates",
    question: "What do readers get from a local disk and a cloud disk together, by hit rate?",
    cells: &[
        ("mode", "through: clients only read; back: the volume writes back, and a few clients write"),
        ("policy", "who chose the path of each hit; or the disk that clients have alone"),
        ("hit_rate", "part of the pages that is cached; null for a disk alone"),
        ("jobs", "jobs"),
        ("depth", "reads in flight a job"),
        ("read_bytes", "bytes of a read"),
        ("reads_per_second", "what all jobs got"),
        ("bytes_per_second", "of them"),
        ("writes_per_second", "what the writers got"),
        ("disk_share", "share of bytes read that the cache disk served"),
        ("of_sum", "bytes, of the sum of what both disks deliver alone"),
        ("read_latency_us", "mean latency of a read"),
        ("read_p999_us", "what 999 of 1000 reads did not exceed, within a fifth"),
        ("write_p999_us", "the same of writes; null without any"),
    ],
    bars: &[
        Bar {
            name: "of_sum_75_min",
            bar: 0.9,
            at_least: true,
            meaning: "ours at 75 % hits, of the sum of both disks: of the worse size, clients only read",
        },
        Bar {
            name: "of_sum_100_min",
            bar: 0.9,
            at_least: true,
            meaning: "ours at 100 % hits, of the sum of both disks: of the worse size, clients only read",
        },
        Bar {
            name: "back_of_sum_min",
            bar: 0.9,
            at_least: true,
            meaning: "the same at 75 % and 100 % hits where the volume writes back and some write: the worst",
        },
        Bar {
            name: "hits_p999_of_local_max",
            bar: 1.2,
            at_least: false,
            meaning: "p99.9 of reads that all hit, of the local disk's alone, with 8 to 128 in flight: the worst",
        },
        Bar {
            name: "misses_p999_of_cloud_max",
            bar: 1.2,
            at_least: false,
            meaning: "p99.9 of reads of which 75 % hit, of the cloud disk's alone, with 8 to 128 in flight: the worst",
        },
    ],
    directions: &[
        Bar {
            name: "ours_over_cache_only_100",
            bar: 1.3,
            at_least: true,
            meaning: "ours over the cache alone at 100 % hits: large reads",
        },
        Bar {
            name: "cache_only_75_over_100",
            bar: 1.2,
            at_least: true,
            meaning: "the cache alone at 75 % hits over itself at 100 %, large reads (the paper's Fig. 17 falls there)",
        },
        Bar {
            name: "ours_of_sum",
            bar: 0.8,
            at_least: true,
            meaning: "ours at 75 % and 100 % hits, of the sum of both disks, large reads: the worse",
        },
    ],
    conduct,
};

#[derive(Clone, Debug)]
struct Cell {
    mode: WriteMode,
    policy: &'static str,
    hit_permil: Option<u32>,
    load: Load,
    is_busy: bool,
    reads_per_second: f64,
    writes_per_second: f64,
    disk_share: f64,
    read_latency_us: f64,
    read_p999_us: f64,
    write_p999_us: f64,
    of_sum: f64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let hits = if run.is_quick { &HIT_PERMIL_QUICK[..] } else { &HIT_PERMIL[..] };
    let modes = if run.is_quick { &[WriteMode::Through][..] } else { &[WriteMode::Through, WriteMode::Back][..] };
    let depths = if run.is_quick { &DEPTHS[..1] } else { &DEPTHS[..] };
    let sizes = if run.is_quick { &BUSY[1..] } else { &BUSY[..] };
    let steps = sizes.len() * (1 + modes.len() * hits.len()) + depths.len();
    let mut cells = Vec::new();
    let mut done = 0;
    let mut step = |cells: &mut Vec<Cell>, more: Vec<Cell>| {
        cells.extend(more);
        done += 1;
        (run.progress)(done, steps);
    };
    let (quick, seed) = (run.is_quick, run.seed);
    for (jobs, depth, read_bytes) in sizes {
        let load = Load::reads(*jobs, *depth, *read_bytes);
        let disks = alone(load, true, quick, seed);
        let sum: f64 = disks.iter().map(Cell::bytes_per_second).sum();
        step(&mut cells, disks);
        for mode in modes {
            for hit_permil in hits {
                let mut more = both(*mode, *hit_permil, load, true, quick, seed);
                more.iter_mut().for_each(|cell| cell.of_sum = cell.bytes_per_second() / sum);
                step(&mut cells, more);
            }
        }
    }
    for depth in depths {
        let load = Load::reads(1, *depth, BLOCK_BYTES);
        let mut more = alone(load, false, quick, seed);
        for hit_permil in JUDGED_PERMIL {
            more.extend(both(WriteMode::Through, hit_permil, load, false, quick, seed));
        }
        step(&mut cells, more);
    }
    Ok(Found {
        setup: map(json!({ "volume_bytes": VOLUME_BYTES, "writers": WRITERS, "ours": OURS })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({
            "bytes_per_second_at_75": 8.9e9,
            "local_disk_bytes_per_second": 6.7e9,
            "cloud_disk_bytes_per_second": 4e9,
            "at_100": "lower than at 75, because the cloud disk idles",
        })),
        values: values(&cells),
        tables: vec![busy_table(&cells), tail_table(&cells)],
        plots: match run.is_quick {
            true => vec![plot(&cells, LARGE_BYTES, "throughput", "17")?],
            false => vec![plot(&cells, LARGE_BYTES, "throughput", "17")?, plot(&cells, BLOCK_BYTES, "reads", "16")?],
        },
    })
}

/// Each disk alone.
fn alone(load: Load, is_busy: bool, is_quick: bool, seed: u64) -> Vec<Cell> {
    let local = local_disk(DiskState::Collecting, VOLUME_BYTES, load, seed);
    let cloud = cloud_disk(DiskState::Collecting, VOLUME_BYTES, load, seed);
    let cell = |(setup, policy): (&Setup, &'static str)| Cell {
        policy,
        is_busy,
        ..measure(setup, SplitKind::CacheOnly, load, is_quick)
    };
    [(&local, LOCAL), (&cloud, CLOUD)].map(cell).into()
}

/// The cache alone, and ours.
fn both(mode: WriteMode, hit_permil: u32, load: Load, is_busy: bool, is_quick: bool, seed: u64) -> Vec<Cell> {
    let (load, log_bytes) = match mode {
        WriteMode::Back => (Load { writers: WRITERS, writers_think_ns: WRITERS_THINK_NS, ..load }, LOG_BYTES),
        _ => (load, 0),
    };
    let volume = Volume { bytes: VOLUME_BYTES, cached_permil: hit_permil, mode, log_bytes, bypass: Bypass::Never };
    let setup = setup(DiskState::Collecting, volume, 1, load, seed);
    let cell = |(policy, kind): (&'static str, SplitKind)| Cell {
        mode,
        policy,
        is_busy,
        hit_permil: Some(hit_permil),
        ..measure(&setup, kind, load, is_quick)
    };
    [(CACHE_ONLY.name, CACHE_ONLY.kind), (OURS, SplitKind::ExpectedDelay)].map(cell).into()
}

fn measure(setup: &Setup, kind: SplitKind, load: Load, is_quick: bool) -> Cell {
    // A policy has something to find; what was written is split again after a sweep.
    let tenths = match (is_quick, kind) {
        (true, SplitKind::CacheOnly) => (1, 1),
        (true, _) => (5, 2),
        (false, SplitKind::CacheOnly) if load.writers == 0 => (2, 10),
        (false, _) => (20, 10),
    };
    let (settle_ns, measure_ns) = (tenths.0 * SECOND_NS / 10, tenths.1 * SECOND_NS / 10);
    let mut world = world(setup, kind);
    world.run_for(settle_ns);
    world.take_latencies(0);
    world.run_for(measure_ns);
    let tick = world.between(settle_ns, settle_ns + measure_ns);
    let latencies = world.take_latencies(0);
    let us = |ns: u64| ns as f64 / 1e3;
    Cell {
        mode: WriteMode::Through,
        policy: "",
        hit_permil: None,
        load,
        is_busy: false,
        reads_per_second: tick.per_second(tick.volumes[0].reads),
        writes_per_second: tick.per_second(tick.volumes[0].writes),
        disk_share: tick.volumes[0].disk_share(),
        read_latency_us: us(latencies.reads.mean_ns()),
        read_p999_us: us(latencies.reads.histogram.quantile_ns(999)),
        write_p999_us: us(latencies.writes.histogram.quantile_ns(999)),
        of_sum: f64::NAN,
    }
}

impl Cell {
    fn bytes_per_second(&self) -> f64 {
        self.reads_per_second * f64::from(self.load.block_bytes)
    }

    fn to_json(&self) -> Value {
        json!({
            "mode": self.mode.name(),
            "policy": self.policy,
            "hit_rate": self.hit_permil.map(|permil| f64::from(permil) / 1e3),
            "jobs": self.load.jobs,
            "depth": self.load.depth,
            "read_bytes": self.load.block_bytes,
            "reads_per_second": self.reads_per_second.round(),
            "bytes_per_second": self.bytes_per_second().round(),
            "writes_per_second": self.writes_per_second.round(),
            "disk_share": rounded(self.disk_share),
            "of_sum": rounded(self.of_sum),
            "read_latency_us": rounded(self.read_latency_us),
            "read_p999_us": rounded(self.read_p999_us),
            "write_p999_us": (self.writes_per_second > 0.0).then(|| rounded(self.write_p999_us)),
        })
    }
}

fn busy<'a>(cells: &'a [Cell], policy: &'a str, permil: u32) -> impl Iterator<Item = &'a Cell> {
    cells.iter().filter(move |cell| cell.is_busy && cell.policy == policy && cell.hit_permil == Some(permil))
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let of_sum =
        |permil, mode| lowest(busy(cells, OURS, permil).filter(|cell| cell.mode == mode).map(|cell| cell.of_sum));
    let [at_75, at_100] = JUDGED_PERMIL.map(|permil| of_sum(permil, WriteMode::Through));
    let [back_75, back_100] = JUDGED_PERMIL.map(|permil| of_sum(permil, WriteMode::Back));
    let through = |policy, permil| {
        busy(cells, policy, permil).filter(|cell| cell.mode == WriteMode::Through).map(Cell::bytes_per_second)
    };
    let gains = through(OURS, 1000).zip(through(CACHE_ONLY.name, 1000)).map(|(ours, cache)| ours / cache);
    let large = |permil| through(CACHE_ONLY.name, permil).last().unwrap_or(f64::NAN);
    let tail = |permil, disk: &'static str| {
        let tails = cells.iter().filter(move |cell| !cell.is_busy);
        highest(tails.clone().filter(|cell| cell.policy == OURS && cell.hit_permil == Some(permil)).map(|cell| {
            let alone = tails.clone().find(|other| other.policy == disk && other.load.depth == cell.load.depth);
            alone.map_or(f64::NAN, |alone| cell.read_p999_us / alone.read_p999_us)
        }))
    };
    BTreeMap::from([
        ("of_sum_75_min", at_75),
        ("of_sum_100_min", at_100),
        ("back_of_sum_min", back_75.min(back_100)),
        ("hits_p999_of_local_max", tail(1000, LOCAL)),
        ("misses_p999_of_cloud_max", tail(750, CLOUD)),
        ("ours_over_cache_only_100", lowest(gains)),
        ("cache_only_75_over_100", large(750) / large(1000)),
        ("ours_of_sum", at_75.min(at_100)),
    ])
}

fn hits(cell: &Cell) -> String {
    cell.hit_permil.map_or(String::new(), |permil| format!("{} %", permil / 10))
}

fn busy_table(cells: &[Cell]) -> Table {
    let head =
        ["mode", "policy", "hits", "read", "reads/s", "GB/s", "writes/s", "share", "of sum", "mean us", "p99.9 us"];
    let row = |cell: &Cell| {
        vec![
            cell.mode.name().to_owned(),
            cell.policy.to_owned(),
            hits(cell),
            format!("{} KiB", cell.load.block_bytes >> 10),
            format!("{:.0}", cell.reads_per_second),
            format!("{:.2}", cell.bytes_per_second() / 1e9),
            format!("{:.0}", cell.writes_per_second),
            format!("{:.3}", cell.disk_share),
            if cell.of_sum.is_nan() { String::new() } else { format!("{:.3}", cell.of_sum) },
            format!("{:.0}", cell.read_latency_us),
            format!("{:.0}", cell.read_p999_us),
        ]
    };
    Table {
        title: "Reads where both disks are busy".to_owned(),
        head: head.map(str::to_owned).into(),
        rows: cells.iter().filter(|cell| cell.is_busy).map(row).collect(),
    }
}

/// Fig. 11b: tails by depth.
fn tail_table(cells: &[Cell]) -> Table {
    let mut head = vec!["policy".to_owned(), "hits".to_owned()];
    head.extend(DEPTHS.map(|depth| format!("{depth} in flight")));
    let tails = || cells.iter().filter(|cell| !cell.is_busy);
    let mut lines: Vec<(&str, Option<u32>)> = Vec::new();
    for cell in tails() {
        if !lines.contains(&(cell.policy, cell.hit_permil)) {
            lines.push((cell.policy, cell.hit_permil));
        }
    }
    let row = |(policy, hit_permil): (&str, Option<u32>)| {
        let at = |depth: u32| {
            tails().find(|cell| cell.policy == policy && cell.hit_permil == hit_permil && cell.load.depth == depth)
        };
        let mut row = vec![policy.to_owned(), hit_permil.map_or(String::new(), |permil| format!("{} %", permil / 10))];
        row.extend(DEPTHS.map(|depth| at(depth).map_or(String::new(), |cell| format!("{:.0}", cell.read_p999_us))));
        row
    };
    Table {
        title: "p99.9 latency of reads of 4 KiB, in microseconds".to_owned(),
        head,
        rows: lines.into_iter().map(row).collect(),
    }
}

fn plot(cells: &[Cell], read_bytes: u32, name: &'static str, figure: &str) -> Result<Plot, Error> {
    let of_size = || cells.iter().filter(move |cell| cell.is_busy && cell.load.block_bytes == read_bytes);
    let line = |(mode, policy): (WriteMode, &'static str)| {
        let shown = of_size().filter(|cell| cell.mode == mode && cell.policy == policy);
        let at = |cell: &Cell| Some((f64::from(cell.hit_permil?) / 10.0, cell.bytes_per_second() / 1e9));
        let name = if mode == WriteMode::Back { format!("{policy}, writes back") } else { policy.to_owned() };
        Line { name, points: shown.filter_map(at).collect(), labels: Vec::new() }
    };
    let disk = |policy: &'static str| {
        let rate = of_size().find(|cell| cell.policy == policy).map_or(0.0, Cell::bytes_per_second) / 1e9;
        Line { name: policy.to_owned(), points: vec![(0.0, rate), (100.0, rate)], labels: Vec::new() }
    };
    let pairs = [WriteMode::Through, WriteMode::Back]
        .into_iter()
        .flat_map(|mode| [CACHE_ONLY.name, OURS].map(|policy| (mode, policy)));
    let mut lines: Vec<_> = pairs.map(line).filter(|line| !line.points.is_empty()).collect();
    lines.extend([LOCAL, CLOUD].map(disk));
    let title = format!("Reads of {} KiB by hit rate (compare Fig. {figure} of LATTE)", read_bytes >> 10);
    let chart = Chart { title: &title, x: "hits, %", y: "GB/s", x_names: None, y_max: None, lines: &lines };
    Ok(Plot { name, svg: chart.to_svg(name)? })
}
