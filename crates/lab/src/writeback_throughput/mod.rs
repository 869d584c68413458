//! `writeback-throughput`: what a write-back log gives writers, with room and when it is full, and while the back end
//! stumbles.
//!
//! Why: LATTE shows what its local disk absorbs (Fig. 12 to 14), and not what happens when the log is full, nor to tails
//! while the cloud disk stalls. A log that is full is as slow as what it writes back to; it must not be slower.
//!
//! How: small random writes, a burst of large ones and a steady stream of them, and clients that flush like a database; each
//! written through, and into a log that has room, or one that is full. The local disk is fresh, or collects garbage. Then
//! a load that is less than what the back end takes, while that becomes slow and far, or stalls.
//!
//! Limits: see [`crate::latte`].

mod told;

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, rounded};
use crate::latte::{
    BACKEND_LATENCY_NS, BLOCK_BYTES, DiskState, GIB, LARGE, LARGE_BYTES, MIB, Volume, backend, disk, local_disk, setup,
    world,
};
use crate::machine::{SECOND_NS, map};
use forebay_core::log::logged::Bypass;
use forebay_core::{SplitKind, WriteMode};
use forebay_sim::pace::{Latencies, Load, PacedWorld, Path, Setup};
use serde_json::{Value, json};

const LOCAL: &str = "local-disk";
const THROUGH: &str = "through";
const LOG: &str = "log";
/// A log that large writes may pass.
const LOG_LARGE: &str = "log-large";
/// A log whose back end answers nothing, so that nothing is written back.
const LOG_IDLE: &str = "log-idle";
const ROOM: &str = "room";
const FULL: &str = "full";
const TENTH_NS: u64 = SECOND_NS / 10;

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "writeback-throughput",
    question: "What does a write-back log give writers, with room and when it is full, and while the back end stumbles?",
    cells: &[
        ("workload", "what clients do"),
        ("disk", "the local disk: fresh, or collecting garbage"),
        ("backend", "free; slow: a tenth of the rate, five times as far; stalls: for seconds, again and again"),
        (
            "policy",
            "the local disk alone, written through, into the log, into a log that is not written back meanwhile",
        ),
        ("log", "room or full; null without a log"),
        ("writes_per_second", "of clients"),
        ("bytes_per_second", "of them"),
        ("of_through", "writes, of those of write-through in the same condition"),
        ("write_latency_us", "mean latency of a write"),
        ("write_p999_us", "what 999 of 1000 writes did not exceed, within a fifth"),
        ("write_longest_us", "the longest"),
        ("flushes_per_second", "of clients"),
        ("flush_latency_us", "mean latency of a flush; null without any"),
        ("log_full_share", "the most of the log that was in use, bytes or records; null without a log"),
        ("backend_writes_per_second", "that the back end took"),
        ("lag_seconds", "age of the oldest write that the back end lacked in the end; null without a log"),
    ],
    bars: &[
        Bar {
            name: "random_4_over_through",
            bar: 5.0,
            at_least: true,
            meaning: "random writes of 4 KiB, 4 in flight, into a log with room, over write-through: of the worse disk",
        },
        Bar {
            name: "random_32_of_idle",
            bar: 0.8,
            at_least: true,
            meaning: "the same with 32 in flight, of the log that is not written back meanwhile: of the worse disk",
        },
        Bar {
            name: "random_full_of_through",
            bar: 0.95,
            at_least: true,
            meaning: "random writes into a full log, of write-through, with 4 or 32 in flight: the worst",
        },
        Bar {
            name: "burst_of_both",
            bar: 0.9,
            at_least: true,
            meaning: "a burst of half the log, 128 KiB in order, that may pass it, of what local disk and back end deliver together",
        },
        Bar {
            name: "steady_of_backend",
            bar: 0.95,
            at_least: true,
            meaning: "a steady stream of 128 KiB in order, that may pass the log, of the back end alone",
        },
        Bar {
            name: "stalls_p999_of_local",
            bar: 2.0,
            at_least: false,
            meaning: "p99.9 of writes while the back end stalls again and again, of the local disk's alone",
        },
        Bar {
            name: "full_longest_seconds",
            bar: 1.0,
            at_least: false,
            meaning: "the longest write into a full log, with a back end that answers",
        },
    ],
    directions: &[
        Bar {
            name: "log_over_through",
            bar: 5.0,
            at_least: true,
            meaning: "random writes of 4 KiB, 4 in flight, into a log with room, over write-through: of the worse disk",
        },
        Bar {
            name: "log_of_idle",
            bar: 0.8,
            at_least: true,
            meaning: "with 32 in flight, of the log that is not written back meanwhile: of the worse disk",
        },
        Bar {
            name: "database_over_through",
            bar: 2.0,
            at_least: true,
            meaning: "writes of clients that flush, into a log with room, over write-through: of the worse disk",
        },
        Bar {
            name: "log_stalls_p999_of_local",
            bar: 2.0,
            at_least: false,
            meaning: "p99.9 of writes while the back end stalls again and again, of the local disk's alone",
        },
    ],
    conduct,
};

/// What clients do.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    load: Load,
    /// Of a thousand pages.
    cached_permil: u32,
    /// A log that has room, and one that is soon full.
    log_bytes: [u64; 2],
    /// How long the former is watched.
    room_ns: u64,
    volume_bytes: u64,
}

const RANDOM_4: &str = "random-4";
const RANDOM_32: &str = "random-32";
const DATABASE: &str = "database";
const STREAM: &str = "stream";
const GENTLE: &str = "gentle";

/// All of the volume is cached where writes are small: each goes to its slot, too. Streams are of what nobody reads.
const WORKLOADS: [Workload; 4] = [
    Workload {
        name: RANDOM_4,
        load: Load::writes(1, 4, BLOCK_BYTES),
        cached_permil: 1000,
        log_bytes: [16 * GIB, 64 * MIB],
        room_ns: SECOND_NS,
        volume_bytes: 4 * GIB,
    },
    Workload {
        name: RANDOM_32,
        load: Load::writes(1, 32, BLOCK_BYTES),
        cached_permil: 1000,
        log_bytes: [16 * GIB, 64 * MIB],
        room_ns: SECOND_NS,
        volume_bytes: 4 * GIB,
    },
    Workload {
        name: DATABASE,
        load: Load { flush_every: 4, ..Load::writes(16, 1, BLOCK_BYTES) },
        cached_permil: 1000,
        log_bytes: [16 * GIB, 64 * MIB],
        room_ns: SECOND_NS,
        volume_bytes: 4 * GIB,
    },
    Workload {
        name: STREAM,
        load: Load { sequential: true, ..Load::writes(1, 128, LARGE_BYTES) },
        cached_permil: 0,
        log_bytes: [16 * GIB, GIB / 4],
        // Half of the log, as fast as local disk and back end together.
        room_ns: 11 * TENTH_NS,
        volume_bytes: 32 * GIB,
    },
];

/// Less than what the back end takes, whatever the log.
const GENTLE_LOAD: Load = Load { think_ns: 4_000_000, ..Load::writes(8, 1, BLOCK_BYTES) };

/// What is measured of a run.
#[derive(Clone, Debug)]
struct Cell {
    workload: &'static str,
    disk: DiskState,
    backend: &'static str,
    policy: &'static str,
    log: Option<&'static str>,
    seconds: f64,
    writes: u64,
    bytes: u64,
    flushes: u64,
    backend_writes: u64,
    latencies: Latencies,
    log_full_share: Option<f64>,
    lag_seconds: Option<f64>,
    of_through: f64,
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let mut cells = Vec::new();
    let states = if run.is_quick { &[DiskState::Collecting][..] } else { &DiskState::BOTH[..] };
    let each = WORKLOADS.iter().flat_map(|workload| states.iter().map(move |state| (workload, *state)));
    let steps = states.len() * WORKLOADS.len() + 1;
    for (done, (workload, state)) in each.enumerate() {
        cells.extend(side_by_side(workload, state, run));
        (run.progress)(done + 1, steps);
    }
    cells.extend(stumbling(run));
    (run.progress)(steps, steps);
    compare(&mut cells);
    Ok(Found {
        setup: map(json!({
            "disk_write_bytes_per_second": disk(DiskState::Fresh).writes.map(|writes| writes.bytes_per_second),
            "backend_bytes_per_second": backend().bytes_per_second,
            "backend_latency_us": BACKEND_LATENCY_NS / 1000,
            "gentle_writes_per_second_max": 8 * SECOND_NS / GENTLE_LOAD.think_ns,
            "stall_seconds": stall_ns(run.is_quick) as f64 / SECOND_NS as f64,
            "stall_period_seconds": period_ns(run.is_quick) as f64 / SECOND_NS as f64,
        })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({
            "random_writes_per_second_collecting": 230e3,
            "write_bytes_per_second_128_kib": 7.8e9,
            "local_disk_bytes_per_second": 4.1e9,
            "cloud_disk_bytes_per_second": 4e9,
        })),
        values: told::values(&cells),
        tables: told::tables(&cells),
        plots: vec![told::plot(&cells)?],
    })
}

fn volume(workload: &Workload, mode: WriteMode, log_bytes: u64, bypass: Bypass) -> Volume {
    let Workload { volume_bytes: bytes, cached_permil, .. } = *workload;
    Volume { bytes, cached_permil, mode, log_bytes, bypass }
}

/// A workload on a free back end, under each policy.
fn side_by_side(workload: &Workload, state: DiskState, run: &Run<'_>) -> Vec<Cell> {
    let (load, seed) = (workload.load, run.seed);
    let [room_bytes, full_bytes] = workload.log_bytes;
    let set_up = |mode, log_bytes, bypass| setup(state, volume(workload, mode, log_bytes, bypass), 1, load, seed);
    let set = |mode, log_bytes| set_up(mode, log_bytes, Bypass::Never);
    let is_quick = run.is_quick;
    let room_ns = if is_quick { 2 * TENTH_NS } else { workload.room_ns };
    let through_ns = if is_quick { 2 * TENTH_NS } else { 10 * TENTH_NS };
    // A full log may move by the epoch; several are watched. A stream is dear to simulate.
    let full_ns = match (is_quick, workload.name) {
        (true, STREAM) => 2 * TENTH_NS,
        (false, STREAM) | (true, _) => 20 * TENTH_NS,
        (false, _) => 100 * TENTH_NS,
    };
    let local = local_disk(state, workload.volume_bytes, load, seed);
    let mut cells = vec![
        measure(&local, (0, room_ns), |_| {}).named(LOCAL, None),
        measure(&set(WriteMode::Through, 0), (TENTH_NS, through_ns), |_| {}).named(THROUGH, None),
        measure(&set(WriteMode::Back, room_bytes), (0, room_ns), |_| {}).named(LOG, Some(ROOM)),
        measure(&set(WriteMode::Back, full_bytes), (full_ns, full_ns), |_| {}).named(LOG, Some(FULL)),
    ];
    if workload.name == RANDOM_32 {
        let holds = |world: &mut PacedWorld| world.set_stalled(Path::Backend(0), true);
        cells.push(measure(&set(WriteMode::Back, room_bytes), (0, room_ns), holds).named(LOG_IDLE, Some(ROOM)));
    }
    if workload.name == STREAM {
        for (log_bytes, log, times) in [(room_bytes, ROOM, (0, room_ns)), (full_bytes, FULL, (full_ns, full_ns))] {
            let setup = set_up(WriteMode::Back, log_bytes, LARGE);
            cells.push(measure(&setup, times, |_| {}).named(LOG_LARGE, Some(log)));
        }
    }
    for cell in &mut cells {
        (cell.workload, cell.disk) = (workload.name, state);
    }
    cells
}

/// Lets a world settle, and measures it.
fn measure(setup: &Setup, (settle_ns, measure_ns): (u64, u64), begin: impl FnOnce(&mut PacedWorld)) -> Cell {
    let mut world = world(setup, SplitKind::CacheOnly);
    begin(&mut world);
    world.run_for(settle_ns);
    watch(&mut world, measure_ns, |world, tenth_ns| world.run_for(tenth_ns))
}

/// Measures what happens from now on, while `pass` lets each tenth of a second pass.
fn watch(world: &mut PacedWorld, for_ns: u64, mut pass: impl FnMut(&mut PacedWorld, u64)) -> Cell {
    let from_ns = world.now_ns();
    world.take_latencies(0);
    let mut full_share = None;
    for _ in 0..for_ns / TENTH_NS {
        pass(world, TENTH_NS);
        full_share = world.log(0).map(|log| {
            let share = (log.used_bytes as f64 / log.log_bytes as f64).max(log.records as f64 / log.records_max as f64);
            share.max(full_share.unwrap_or(0.0))
        });
    }
    let tick = world.between(from_ns, world.now_ns());
    let volume = &tick.volumes[0];
    Cell {
        workload: GENTLE,
        disk: DiskState::Collecting,
        backend: "free",
        policy: LOCAL,
        log: None,
        seconds: for_ns as f64 / SECOND_NS as f64,
        writes: volume.writes,
        bytes: volume.write_bytes,
        flushes: volume.flushes,
        backend_writes: volume.backend.writes,
        latencies: world.take_latencies(0),
        log_full_share: full_share,
        lag_seconds: world.log(0).map(|log| log.lag_ns as f64 / SECOND_NS as f64),
        of_through: f64::NAN,
    }
}

fn stall_ns(is_quick: bool) -> u64 {
    if is_quick { 3 * TENTH_NS } else { 5 * SECOND_NS }
}

fn period_ns(is_quick: bool) -> u64 {
    if is_quick { SECOND_NS } else { 60 * SECOND_NS }
}

/// A gentle load, while the back end is free, becomes slow and far, or stalls.
fn stumbling(run: &Run<'_>) -> Vec<Cell> {
    let (stall_ns, period_ns) = (stall_ns(run.is_quick), period_ns(run.is_quick));
    let watched_ns = if run.is_quick { period_ns } else { 2 * period_ns };
    let state = DiskState::Collecting;
    let set = |mode, log_bytes| {
        let volume = Volume { bytes: 4 * GIB, cached_permil: 1000, mode, log_bytes, bypass: Bypass::Never };
        setup(state, volume, 1, GENTLE_LOAD, run.seed)
    };
    let small_ns = if run.is_quick { SECOND_NS } else { 10 * SECOND_NS };
    let local = local_disk(state, 4 * GIB, GENTLE_LOAD, run.seed);
    let mut cells = vec![measure(&local, (SECOND_NS, small_ns), |_| {}).named(LOCAL, None)];
    for (policy, log, mode, log_bytes) in
        [(THROUGH, None, WriteMode::Through, 0), (LOG, Some(ROOM), WriteMode::Back, 4 * GIB)]
    {
        let setup = set(mode, log_bytes);
        cells.push(measure(&setup, (SECOND_NS, small_ns), |_| {}).named(policy, log));
        let mut slow = world(&setup, SplitKind::CacheOnly);
        slow.run_for(SECOND_NS);
        let model = slow.path_model(Path::Backend(0));
        let (bytes_per_second, latency_ns) = (model.bytes_per_second / 10, model.latency_ns * 5);
        let model = forebay_sim::pace::PathModel { bytes_per_second, latency_ns, ..model };
        slow.set_path(Path::Backend(0), model);
        let cell = watch(&mut slow, small_ns, |world, tenth_ns| world.run_for(tenth_ns));
        cells.push(Cell { backend: "slow", ..cell.named(policy, log) });
        let mut stalling = world(&setup, SplitKind::CacheOnly);
        stalling.run_for(SECOND_NS);
        let begin_ns = stalling.now_ns();
        let cell = watch(&mut stalling, watched_ns, |world, tenth_ns| {
            let into_ns = (world.now_ns() - begin_ns) % period_ns;
            let stalls = (period_ns / 2..period_ns / 2 + stall_ns).contains(&into_ns);
            world.set_stalled(Path::Backend(0), stalls);
            world.run_for(tenth_ns);
        });
        cells.push(Cell { backend: "stalls", ..cell.named(policy, log) });
    }
    cells
}

/// Each beside write-through in the same condition.
fn compare(cells: &mut [Cell]) {
    let through: Vec<_> = cells.iter().filter(|cell| cell.policy == THROUGH).cloned().collect();
    for cell in cells {
        let same =
            |other: &&Cell| (other.workload, other.disk, other.backend) == (cell.workload, cell.disk, cell.backend);
        cell.of_through = through.iter().find(same).map_or(f64::NAN, |other| cell.rate() / other.rate());
    }
}

impl Cell {
    fn named(self, policy: &'static str, log: Option<&'static str>) -> Self {
        Self { policy, log, ..self }
    }

    fn rate(&self) -> f64 {
        self.writes as f64 / self.seconds
    }

    fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    fn p999_us(&self) -> f64 {
        self.latencies.writes.histogram.quantile_ns(999) as f64 / 1e3
    }

    fn to_json(&self) -> Value {
        let us = |ns: u64| rounded(ns as f64 / 1e3);
        let flushes = &self.latencies.flushes;
        json!({
            "workload": self.workload,
            "disk": self.disk.name(),
            "backend": self.backend,
            "policy": self.policy,
            "log": self.log,
            "writes_per_second": self.rate().round(),
            "bytes_per_second": self.bytes_per_second().round(),
            "of_through": rounded(self.of_through),
            "write_latency_us": us(self.latencies.writes.mean_ns()),
            "write_p999_us": self.p999_us(),
            "write_longest_us": us(self.latencies.writes.longest_ns),
            "flushes_per_second": (self.flushes as f64 / self.seconds).round(),
            "flush_latency_us": (self.flushes > 0).then(|| us(flushes.mean_ns())),
            "log_full_share": self.log_full_share.map(rounded),
            "backend_writes_per_second": (self.backend_writes as f64 / self.seconds).round(),
            "lag_seconds": self.lag_seconds.map(rounded),
        })
    }
}
