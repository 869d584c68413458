//! `writeback-neighbours`: volumes with a log each on one local disk.
//!
//! Why: LATTE shares one disk among several volumes, and leaves what they do to each other to future work (section 6.2).
//! A neighbour's burst must cost a volume no more than its share of the disk, and no room in its log.
//!
//! How: four volumes on one disk, their cloud disks behind one link. All write as
//! fast as they can; all ask together for half of what that is; one writes as fast as it can while the others ask for
//! little, until its log is full; one has sixteen times as many writes in flight as the others; all write as fast as they can
//! with weights of 1, 1, 2 and 4; all write until their logs are full; and one begins when those of the others are. Each volume
//! is held against itself alone, and against its share: of what all get when all write
//! as fast as they can, by weight, or what it gets alone if that is less.
//!
//! Limits: those of [`crate::latte`].

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, Plot, rounded};
use crate::latte::{BLOCK_BYTES, DiskState, GIB, MIB, Volume, backend, setup, world};
use crate::machine::{SECOND_NS, highest, lowest, map};
use crate::page::Table;
use crate::plot::{Chart, Line};
use forebay_core::log::logged::Bypass;
use forebay_core::{SplitKind, WriteMode};
use forebay_sim::pace::Load;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const VOLUMES: usize = 4;
const VOLUME_BYTES: u64 = 2 * GIB;
const ROOM_BYTES: u64 = 8 * GIB;
const SMALL_BYTES: u64 = 64 * MIB;
const TENTH_NS: u64 = SECOND_NS / 10;

const BURST: Load = Load::writes(1, 32, BLOCK_BYTES);
/// At most 16,000 writes a second, where four that burst get 35,000 each.
const PACED: Load = Load { think_ns: 1_000_000, ..Load::writes(16, 1, BLOCK_BYTES) };
/// Less than what a back end takes that is 1 ms away.
const QUIET: Load = Load { think_ns: 4_000_000, ..Load::writes(4, 1, BLOCK_BYTES) };
const GREEDY: Load = Load::writes(1, 128, BLOCK_BYTES);
const MODEST: Load = Load::writes(1, 8, BLOCK_BYTES);

/// What the four do, and how much room their logs have.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    loads: [Load; VOLUMES],
    weights: [u32; VOLUMES],
    log_bytes: [u64; VOLUMES],
    /// The last begins when the others have settled.
    last_is_late: bool,
    /// Tenths of a second: settled, measured.
    tenths: (u64, u64),
}

const BURSTS: Case = Case {
    name: "burst",
    loads: [BURST; VOLUMES],
    weights: [100; VOLUMES],
    log_bytes: [ROOM_BYTES; VOLUMES],
    last_is_late: false,
    tenths: (1, 10),
};
const ONE_LOUD: [Load; VOLUMES] = [BURST, QUIET, QUIET, QUIET];
const ONE_ROOMY: [u64; VOLUMES] = [SMALL_BYTES, SMALL_BYTES, SMALL_BYTES, ROOM_BYTES];
const CASES: [Case; 7] = [
    BURSTS,
    Case { name: "paced", loads: [PACED; VOLUMES], tenths: (1, 20), ..BURSTS },
    Case { name: "one-bursts", loads: ONE_LOUD, log_bytes: [SMALL_BYTES; VOLUMES], tenths: (10, 100), ..BURSTS },
    Case { name: "one-greedy", loads: [GREEDY, MODEST, MODEST, MODEST], ..BURSTS },
    Case { name: "weighted", loads: [GREEDY; VOLUMES], weights: [100, 100, 200, 400], ..BURSTS },
    Case { name: "full", log_bytes: [SMALL_BYTES; VOLUMES], tenths: (50, 100), ..BURSTS },
    Case { name: "beside-full", log_bytes: ONE_ROOMY, last_is_late: true, tenths: (50, 10), ..BURSTS },
];

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "writeback-neighbours",
    question: "What do volumes that write back do to each other on one local disk?",
    cells: &[
        ("disk", "the local disk: fresh, or collecting garbage"),
        ("case", "what the four do: burst, paced, one-bursts, one-greedy, weighted, full, beside-full"),
        ("volume", "which of them"),
        ("weight", "its weight"),
        ("writes_per_second", "what its clients got"),
        ("alone_writes_per_second", "what they get where the others do nothing"),
        (
            "of_share",
            "writes, of its share by weight of what all get when all burst, or of what it gets alone if that is less",
        ),
        ("write_p99_us", "what 99 of 100 writes did not exceed, within a fifth"),
        ("p99_of_alone", "the same, of what it is alone"),
        ("write_longest_us", "the longest"),
        ("log_full_share", "the most of its log that was in use, bytes or records"),
        ("alone_log_full_share", "the same where the others do nothing"),
        ("backend_writes_per_second", "that its back end took"),
    ],
    bars: &[
        Bar {
            name: "burst_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of four volumes that burst at once, of its share",
        },
        Bar {
            name: "burst_p99_of_fair_max",
            bar: 2.0,
            at_least: false,
            meaning: "p99 of the worst of these, of its own alone at that part of its speed alone",
        },
        Bar {
            name: "paced_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of four that together ask for half of what the disk has, of what it gets alone",
        },
        Bar {
            name: "paced_p99_of_alone_max",
            bar: 2.0,
            at_least: false,
            meaning: "p99 of the worst of these, of its own alone; on a fresh disk, which has no pauses",
        },
        Bar {
            name: "quiet_p99_of_alone_max",
            bar: 2.0,
            at_least: false,
            meaning: "p99 of the worst of three that ask for little beside one that bursts, of its own alone; on a fresh disk",
        },
        Bar {
            name: "quiet_log_full_of_alone_max",
            bar: 1.5,
            at_least: false,
            meaning: "how full the log of the worst of these three became while that of the fourth was full, of what it is alone",
        },
        Bar {
            name: "greedy_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of three that have 8 writes in flight beside one that has 128, of its share",
        },
        Bar {
            name: "weighted_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of four of weights 1, 1, 2 and 4 that have 128 in flight each, of its share",
        },
        Bar {
            name: "beside_full_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of three whose logs are full and of one that begins to burst beside them, of its share",
        },
        Bar {
            name: "full_of_share_min",
            bar: 0.9,
            at_least: true,
            meaning: "the worst of four that burst until their logs are full, of its share of what is written back",
        },
    ],
    directions: &[
        Bar {
            name: "worst_burst_of_share",
            bar: 0.8,
            at_least: true,
            meaning: "the worst of four volumes that burst at once, of its share",
        },
        Bar {
            name: "worst_weighted_of_share",
            bar: 0.8,
            at_least: true,
            meaning: "the worst of four of weights 1, 1, 2 and 4, of its share",
        },
        Bar {
            name: "worst_greedy_of_share",
            bar: 0.6,
            at_least: true,
            meaning: "the worst of three that have 8 writes in flight beside one that has 128, of its share",
        },
        Bar {
            name: "worst_paced_p99_of_alone",
            bar: 3.0,
            at_least: false,
            meaning: "p99 of the worst of four that together ask for half of what the disk has, of its own alone",
        },
        Bar {
            name: "worst_quiet_log_full_of_alone",
            bar: 2.0,
            at_least: false,
            meaning: "how full the log of the worst quiet volume became beside one whose log was full, of what it is alone",
        },
    ],
    conduct,
};

/// A volume of a case.
#[derive(Clone, Copy, Debug)]
struct Cell {
    disk: DiskState,
    case: &'static str,
    volume: usize,
    weight: u32,
    writes_per_second: f64,
    alone_writes_per_second: f64,
    of_share: f64,
    p99_us: f64,
    p99_of_alone: f64,
    longest_us: f64,
    log_full_share: f64,
    alone_log_full_share: f64,
    backend_writes_per_second: f64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut bursts = f64::NAN;
    let disks = if run.is_quick { &[DiskState::Collecting][..] } else { &DiskState::BOTH[..] };
    let each = disks.iter().flat_map(|disk| CASES.iter().map(move |case| (*disk, case)));
    for (done, (disk, case)) in each.enumerate() {
        let tenths = if run.is_quick { (case.tenths.0.min(10), case.tenths.1.min(2)) } else { case.tenths };
        let more = side_by_side(&Case { tenths, ..*case }, disk, run.seed);
        let of_all = more.iter().map(|cell| cell.writes_per_second).sum::<f64>();
        // Where logs are full it is what is written back that is shared.
        if case.loads == BURSTS.loads && !case.last_is_late {
            bursts = of_all;
        }
        // Volumes that have more in flight may get more in all: theirs is a share of that.
        let all = if case.weights == BURSTS.weights { bursts } else { of_all };
        let weights = f64::from(case.weights.iter().sum::<u32>());
        let share = |cell: &Cell| all * f64::from(cell.weight) / weights;
        let of_share = |cell: Cell| cell.writes_per_second / share(&cell).min(cell.alone_writes_per_second);
        cells.extend(more.into_iter().map(|cell| Cell { of_share: of_share(cell), ..cell }));
        (run.progress)(done + 1, disks.len() * CASES.len());
    }
    Ok(Found {
        setup: map(json!({ "volumes": VOLUMES })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({ "claim": "left to future work; no figure" })),
        values: values(&cells),
        tables: vec![table(&cells)],
        plots: vec![plot(&cells)?],
    })
}

/// The volumes together, and each kind of them alone.
fn side_by_side(case: &Case, disk: DiskState, seed: u64) -> Vec<Cell> {
    let mut cells = measure(case, disk, seed);
    let mut known: Vec<((Load, u64), Cell)> = Vec::new();
    for volume in 0..VOLUMES {
        let (load, kind) = (case.loads[volume], (case.loads[volume], case.log_bytes[volume]));
        if !known.iter().any(|(other, _)| *other == kind) {
            let mut loads = [Load { jobs: 0, ..load }; VOLUMES];
            loads[volume] = load;
            known.push((kind, measure(&Case { loads, ..*case }, disk, seed)[volume]));
        }
        let alone = known.iter().find(|(other, _)| *other == kind).map(|(_, alone)| *alone);
        let (Some(alone), cell) = (alone, &mut cells[volume]) else { continue };
        cell.alone_writes_per_second = alone.writes_per_second;
        cell.alone_log_full_share = alone.log_full_share;
        cell.p99_of_alone = cell.p99_us / alone.p99_us;
    }
    cells
}

fn measure(case: &Case, disk: DiskState, seed: u64) -> Vec<Cell> {
    let volume = Volume {
        bytes: VOLUME_BYTES,
        cached_permil: 1000,
        mode: WriteMode::Back,
        log_bytes: ROOM_BYTES,
        bypass: Bypass::Never,
    };
    let mut setup = setup(disk, volume, VOLUMES, GREEDY, seed);
    setup.links_bytes_per_second = vec![backend().bytes_per_second];
    for (at, volume) in setup.volumes.iter_mut().enumerate() {
        (volume.load, volume.link) = (case.loads[at], Some((0, 1)));
        (volume.weight, volume.log_bytes) = (case.weights[at], case.log_bytes[at]);
    }
    let late = (VOLUMES - 1, case.loads[VOLUMES - 1]);
    if case.last_is_late {
        setup.volumes[late.0].load = Load::IDLE;
    }
    let mut world = world(&setup, SplitKind::CacheOnly);
    let (settle_ns, measure_ns) = (case.tenths.0 * TENTH_NS, case.tenths.1 * TENTH_NS);
    world.run_for(settle_ns);
    if case.last_is_late {
        world.set_load(late.0, late.1);
    }
    for volume in 0..VOLUMES {
        world.take_latencies(volume);
    }
    let mut full = [0.0_f64; VOLUMES];
    for _ in 0..case.tenths.1 {
        world.run_for(TENTH_NS);
        for (volume, full) in full.iter_mut().enumerate() {
            let Some(log) = world.log(volume) else { continue };
            let share = log.used_bytes as f64 / log.log_bytes as f64;
            *full = full.max(share).max(log.records as f64 / log.records_max as f64);
        }
    }
    let tick = world.between(settle_ns, settle_ns + measure_ns);
    let mut cell = |volume: usize| {
        let writes = world.take_latencies(volume).writes;
        Cell {
            disk,
            case: case.name,
            volume,
            weight: case.weights[volume],
            writes_per_second: tick.per_second(tick.volumes[volume].writes),
            alone_writes_per_second: f64::NAN,
            of_share: f64::NAN,
            p99_us: writes.histogram.quantile_ns(990) as f64 / 1e3,
            p99_of_alone: f64::NAN,
            longest_us: writes.longest_ns as f64 / 1e3,
            log_full_share: full[volume],
            alone_log_full_share: f64::NAN,
            backend_writes_per_second: tick.per_second(tick.volumes[volume].backend.writes),
        }
    };
    (0..VOLUMES).map(&mut cell).collect()
}

impl Cell {
    fn to_json(self) -> Value {
        json!({
            "disk": self.disk.name(),
            "case": self.case,
            "volume": self.volume + 1,
            "weight": self.weight,
            "writes_per_second": self.writes_per_second.round(),
            "alone_writes_per_second": self.alone_writes_per_second.round(),
            "of_share": rounded(self.of_share),
            "write_p99_us": rounded(self.p99_us),
            "p99_of_alone": rounded(self.p99_of_alone),
            "write_longest_us": rounded(self.longest_us),
            "log_full_share": rounded(self.log_full_share),
            "alone_log_full_share": rounded(self.alone_log_full_share),
            "backend_writes_per_second": self.backend_writes_per_second.round(),
        })
    }
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let of = |case: &'static str| cells.iter().filter(move |cell| cell.case == case);
    let share = |case| lowest(of(case).map(|cell| cell.of_share));
    let quiet = || of("one-bursts").filter(|cell| cell.volume > 0);
    // Who meets a pause of the disk's for each hundredth write has it from the disk, and more often with neighbours.
    let calm = |cell: &&Cell| cell.disk == cells[0].disk;
    let paced_p99 = highest(of("paced").filter(calm).map(|cell| cell.p99_of_alone));
    // With as many in flight at a fourth of the speed each takes four times as long: Little's law.
    let fair = |cell: &Cell| cell.p99_of_alone * cell.writes_per_second / cell.alone_writes_per_second;
    let burst_p99 = highest(of("burst").map(fair));
    let greedy = lowest(of("one-greedy").filter(|cell| cell.volume > 0).map(|cell| cell.of_share));
    let quiet_full = highest(quiet().map(|cell| cell.log_full_share / cell.alone_log_full_share));
    BTreeMap::from([
        ("burst_of_share_min", share("burst")),
        ("burst_p99_of_fair_max", burst_p99),
        ("paced_of_share_min", share("paced")),
        ("paced_p99_of_alone_max", paced_p99),
        ("quiet_p99_of_alone_max", highest(quiet().filter(calm).map(|cell| cell.p99_of_alone))),
        ("quiet_log_full_of_alone_max", quiet_full),
        ("greedy_of_share_min", greedy),
        ("weighted_of_share_min", share("weighted")),
        ("full_of_share_min", share("full")),
        ("beside_full_of_share_min", share("beside-full")),
        ("worst_burst_of_share", share("burst")),
        ("worst_weighted_of_share", share("weighted")),
        ("worst_greedy_of_share", greedy),
        ("worst_paced_p99_of_alone", paced_p99),
        ("worst_quiet_log_full_of_alone", quiet_full),
    ])
}

fn table(cells: &[Cell]) -> Table {
    let head = [
        "disk",
        "case",
        "volume",
        "weight",
        "writes/s",
        "alone",
        "of share",
        "p99 us",
        "of alone",
        "longest us",
        "log full",
        "alone",
        "written back/s",
    ];
    let row = |cell: &Cell| {
        vec![
            cell.disk.name().to_owned(),
            cell.case.to_owned(),
            (cell.volume + 1).to_string(),
            cell.weight.to_string(),
            format!("{:.0}", cell.writes_per_second),
            format!("{:.0}", cell.alone_writes_per_second),
            format!("{:.3}", cell.of_share),
            format!("{:.0}", cell.p99_us),
            format!("{:.2}", cell.p99_of_alone),
            format!("{:.0}", cell.longest_us),
            format!("{:.2}", cell.log_full_share),
            format!("{:.2}", cell.alone_log_full_share),
            format!("{:.0}", cell.backend_writes_per_second),
        ]
    };
    Table {
        title: "Four volumes with a log each on one disk".to_owned(),
        head: head.map(str::to_owned).into(),
        rows: cells.iter().map(row).collect(),
    }
}

fn plot(cells: &[Cell]) -> Result<Plot, Error> {
    let names = CASES.map(|case| case.name.to_owned());
    let line = |volume: usize| {
        let at = |(place, case): (usize, &Case)| {
            let cell = cells.iter().rfind(|cell| cell.case == case.name && cell.volume == volume)?;
            Some((place as f64, cell.of_share))
        };
        Line {
            name: format!("volume {}", volume + 1),
            points: CASES.iter().enumerate().filter_map(at).collect(),
            labels: Vec::new(),
        }
    };
    let lines: Vec<_> = (0..VOLUMES).map(line).collect();
    let title = "Writes of each volume, of its share, on a disk that collects garbage";
    let chart = Chart { title, x: "case", y: "of its share", x_names: Some(&names), y_max: None, lines: &lines };
    Ok(Plot { name: "shares", svg: chart.to_svg("shares")? })
}
