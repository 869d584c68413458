//! `split-overhead`: what it costs to split hits where none is sent to the back end.
//!
//! Why: a policy that is on must cost nothing while it has nothing to gain. NetCAS reports .33 points of processor time
//! more than OpenCAS, of 12.46 (section IV-B), which a clock on a shared machine cannot see. Instructions can be counted,
//! and are the same in every run.
//!
//! How: this program runs a part of itself in a process of its own, under callgrind: the real cache in the real shard
//! loop in virtual time ([`forebay_sim::pace`]), serving hits from the cache disk with hits not split, all sent to the
//! cache disk, or split by ours beside a back end so slow that it gets none. Counting begins when the caches are settled.
//! Requests of 64 KiB are the paper's; at 4 KiB everything else is least, so that the same overhead weighs most. The
//! choice is counted alone, too.
//!
//! Limits: devices and clients are models and are counted with the rest; they take the place of the kernel's and of the
//! NBD server's work, which is more. The server itself cannot be counted: callgrind lets no other thread run while one
//! waits in `io_uring_enter`. Without valgrind, or without a program to run, the experiment is skipped.

use crate::Error;
use crate::experiment::{Experiment, Run};
use crate::findings::{Bar, Found, rounded};
use crate::machine::{CACHE_ONLY, OURS, Policy, highest, map};
use crate::page::Table;
use forebay_core::{SplitConfig, SplitKind};
use forebay_policy::split::profile::Profile;
use forebay_policy::split::{Done, Path, Splitter, Use};
use forebay_sim::pace::{Load, PacedWorld, PathModel, Setup, TICK_NS};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

const OFF: Policy = Policy { name: "off", kind: SplitKind::Off };
const EXPECTED_DELAY: Policy = Policy { name: OURS, kind: SplitKind::ExpectedDelay };
/// A tick's own work is divided among so few that it counts.
const DISK_READS_PER_SECOND: u64 = 6000;
const DISK_LATENCY_NS: u64 = 10_000;
/// A back end that is not worth a hit, and that is known soon.
const BACKEND_LATENCY_NS: u64 = 5_000_000;
const BLOCKS_BYTES: [u32; 2] = [65_536, 4096];
/// The loads: one hit at a time, and the paper's. The second is too much for one path: ours would use the other.
const LOADS: [(u32, u32, &[Policy]); 2] = [(1, 1, &[OFF, CACHE_ONLY, EXPECTED_DELAY]), (16, 16, &[OFF, CACHE_ONLY])];
/// Until a policy that measures knows both paths.
const SETTLE_NS: u64 = 3 * TICK_NS;
const VOLUME_BYTES: u64 = 1 << 30;
const CHOICES: u64 = 10_000;

/// See the module.
pub static EXPERIMENT: Experiment = Experiment {
    name: "split-overhead",
    question: "What does it cost to split hits where the cache disk serves them all?",
    cells: &[
        ("policy", "who chose the path of each hit"),
        ("jobs", "jobs"),
        ("depth", "reads in flight a job"),
        ("read_bytes", "bytes of a read, and of a page"),
        ("reads", "reads that were counted"),
        ("disk_share", "share of bytes that the cache disk served"),
        ("instructions_per_read", "of the whole process"),
        ("of_off", "the same, of those without splitting"),
        ("choice_instructions", "instructions of a choice alone; null without one"),
    ],
    bars: &[
        Bar {
            name: "cache_only_of_off_max",
            bar: 1.01,
            at_least: false,
            meaning: "instructions with all hits sent to the cache disk, of those without splitting, in the worst cell with reads of 64 KiB (the paper reports 12.79 % of the processor after 12.46 %)",
        },
        Bar {
            name: "ours_of_off_max",
            bar: 1.01,
            at_least: false,
            meaning: "the same with ours, which sends them all to the cache disk by itself",
        },
        Bar {
            name: "choice_instructions_max",
            bar: 80.0,
            at_least: false,
            meaning: "instructions of the dearest choice",
        },
    ],
    directions: &[
        Bar {
            name: "overhead_max",
            bar: 1.02,
            at_least: false,
            meaning: "instructions with splitting, of those without, in the worst cell with reads of 64 KiB; of whatever build it is",
        },
        Bar {
            name: "hits_from_disk_min",
            bar: 0.999,
            at_least: true,
            meaning: "share of bytes that the cache disk served, in the worst cell",
        },
    ],
    conduct,
};

struct Cell {
    policy: &'static str,
    jobs: u32,
    depth: u32,
    read_bytes: u32,
    work: Work,
    of_off: f64,
    choice: Option<f64>,
}

/// What was done while instructions were counted.
#[derive(Clone, Copy)]
struct Work {
    reads: u64,
    disk_share: f64,
    instructions: u64,
}

impl Work {
    fn per_read(&self) -> f64 {
        self.instructions as f64 / self.reads as f64
    }
}

fn conduct(run: &mut Run<'_>) -> Result<Found, Error> {
    let measured_ns = if run.is_quick { TICK_NS } else { 10 * TICK_NS };
    let policies = [OFF, CACHE_ONLY, EXPECTED_DELAY];
    let steps = BLOCKS_BYTES.len() * LOADS.iter().map(|(_, _, policies)| policies.len()).sum::<usize>();
    let mut done = 0;
    let mut told = |run: &mut Run<'_>| {
        done += 1;
        (run.progress)(done, steps + policies.len() - 1);
    };
    let mut choices = BTreeMap::new();
    for policy in &policies[1..] {
        let work = counted(run, &format!("choices {} {CHOICES}", policy.name))?;
        choices.insert(policy.name, work.per_read());
        told(run);
    }
    let mut cells: Vec<Cell> = Vec::new();
    for read_bytes in BLOCKS_BYTES {
        for (jobs, depth, policies) in LOADS {
            let mut off = None;
            for policy in policies {
                let words = format!("hits {} {jobs} {depth} {read_bytes} {measured_ns} {}", policy.name, run.seed);
                let work = counted(run, &words)?;
                let of_off = work.per_read() / *off.get_or_insert(work.per_read());
                let choice = choices.get(policy.name).copied();
                cells.push(Cell { policy: policy.name, jobs, depth, read_bytes, work, of_off, choice });
                told(run);
            }
        }
    }
    Ok(Found {
        setup: map(json!({
            "counted": "sim::pace, the shard loop in virtual time, by callgrind",
            "program": if cfg!(debug_assertions) { "debug build" } else { "release build" },
            "ours": OURS,
        })),
        cells: cells.iter().map(|cell| map(cell.to_json())).collect(),
        paper: map(json!({ "opencas_processor_percent": 12.46, "netcas_processor_percent": 12.79 })),
        values: values(&cells),
        tables: vec![table(&cells)],
        plots: Vec::new(),
    })
}

/// Does that work in a process of its own, and counts.
fn counted(run: &Run<'_>, words: &str) -> Result<Work, Error> {
    let skipped = |why: &str| Error::Skipped { why: why.to_owned() };
    let program = run.program.ok_or_else(|| skipped("there is no program to count"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*split_overhead::measured*"]);
    command.arg(program).args(["experiment", EXPERIMENT.name, "--work", words]).stdin(Stdio::null());
    let done = command.output().map_err(|cause| skipped(&format!("valgrind cannot be run: {cause}")))?;
    let (said, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let collected = log.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let mut numbers = said.split_whitespace();
    let reads = numbers.next().and_then(|word| word.parse().ok());
    let disk_share = numbers.next().and_then(|word| word.parse().ok());
    match (done.status.success(), reads, disk_share, collected) {
        (true, Some(_), Some(_), Some(0)) => Err(skipped("the program has no symbols: use one that is not stripped")),
        (true, Some(reads), Some(disk_share), Some(instructions)) => Ok(Work { reads, disk_share, instructions }),
        _ => {
            let last = log.lines().last().unwrap_or("it said nothing");
            Err(skipped(&format!("callgrind counted nothing ({}): {last}", done.status)))
        }
    }
}

/// The part that is counted: how many reads it did, and which share of them the cache disk served; `None` if the words
/// make no sense.
#[must_use]
pub fn work(words: &str) -> Option<(u64, f64)> {
    let words: Vec<_> = words.split(' ').collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let kind = SplitKind::from_name(words.get(1)?, 1000)?;
    match words[0] {
        "hits" => {
            let [jobs, depth, read_bytes] = [2, 3, 4].map(|at| number(at).map(|number| number as u32));
            Some(hits(kind, Load::reads(jobs?, depth?, read_bytes?), number(5)?, number(6)?))
        }
        "choices" => Some((number(2)?, choices(kind, number(2)?))),
        _ => None,
    }
}

fn hits(kind: SplitKind, load: Load, measured_ns: u64, seed: u64) -> (u64, f64) {
    let bytes_per_second = DISK_READS_PER_SECOND * u64::from(load.block_bytes);
    let path = |latency_ns| PathModel::new(bytes_per_second, latency_ns);
    let mut setup = Setup::one_volume(path(DISK_LATENCY_NS), path(BACKEND_LATENCY_NS), load);
    (setup.page_bytes, setup.pages_in_flight_max, setup.seed) = (load.block_bytes, load.in_flight().max(64), seed);
    setup.volumes[0].bytes = VOLUME_BYTES / 65_536 * u64::from(load.block_bytes);
    let mut world = PacedWorld::new(&setup, |config| config.volumes[0].split.kind = kind);
    world.run_for(SETTLE_NS);
    measured_hits(&mut world, measured_ns);
    let tick = world.between(SETTLE_NS, world.now_ns());
    (tick.volumes[0].reads, tick.volumes[0].disk_share())
}

#[inline(never)]
fn measured_hits(world: &mut PacedWorld, measured_ns: u64) {
    world.run_for(measured_ns);
}

/// Share of the choices that went to the cache disk.
fn choices(kind: SplitKind, choices: u64) -> f64 {
    let Some(mut splitter) = Splitter::new(SplitConfig { kind, ..SplitConfig::default() }, &Profile::default(), 0)
    else {
        return 1.0;
    };
    let (mut now_ns, mut from_disk) = (0, 0);
    for nth in 0..2 * choices {
        let is_measured = nth >= choices;
        let bytes = BLOCKS_BYTES[0];
        let path =
            if is_measured { measured_choice(&mut splitter, now_ns, bytes) } else { splitter.choose(now_ns, bytes) };
        from_disk += u64::from(is_measured && path == Path::DISK);
        let latency_ns = if path == Path::DISK { DISK_LATENCY_NS } else { BACKEND_LATENCY_NS };
        let in_flight = splitter.started(path, bytes, Use::Hit);
        now_ns += latency_ns;
        splitter.ended(&Done { path, kind: Use::Hit, bytes, now_ns, latency_ns, in_flight });
    }
    from_disk as f64 / choices as f64
}

#[inline(never)]
fn measured_choice(splitter: &mut Splitter, now_ns: u64, bytes: u32) -> Path {
    splitter.choose(now_ns, bytes)
}

impl Cell {
    fn to_json(&self) -> Value {
        json!({
            "policy": self.policy,
            "jobs": self.jobs,
            "depth": self.depth,
            "read_bytes": self.read_bytes,
            "reads": self.work.reads,
            "disk_share": rounded(self.work.disk_share),
            "instructions_per_read": self.work.per_read().round(),
            "of_off": rounded(self.of_off),
            "choice_instructions": self.choice.map(rounded),
        })
    }
}

fn values(cells: &[Cell]) -> BTreeMap<&'static str, f64> {
    let large = || cells.iter().filter(|cell| cell.read_bytes == BLOCKS_BYTES[0]);
    let of = |policy: &'static str| highest(large().filter(move |cell| cell.policy == policy).map(|cell| cell.of_off));
    let shares = cells.iter().map(|cell| cell.work.disk_share);
    BTreeMap::from([
        ("cache_only_of_off_max", of(CACHE_ONLY.name)),
        ("ours_of_off_max", of(OURS)),
        ("choice_instructions_max", highest(cells.iter().filter_map(|cell| cell.choice))),
        ("overhead_max", highest(large().map(|cell| cell.of_off))),
        ("hits_from_disk_min", crate::machine::lowest(shares)),
    ])
}

fn table(cells: &[Cell]) -> Table {
    let head = ["jobs x depth, bytes", "policy", "from disk", "instructions a read", "of off", "a choice"];
    let row = |cell: &Cell| {
        vec![
            format!("{} x {}, {}", cell.jobs, cell.depth, cell.read_bytes),
            cell.policy.to_owned(),
            format!("{:.4}", cell.work.disk_share),
            format!("{:.0}", cell.work.per_read()),
            format!("{:.4}", cell.of_off),
            cell.choice.map_or("-".to_owned(), |choice| format!("{choice:.0}")),
        ]
    };
    Table {
        title: "Instructions of the whole process a read (NetCAS reports 12.79 % of the processor after 12.46 %)"
            .to_owned(),
        head: head.map(str::to_owned).into(),
        rows: cells.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_hits_of_the_cache_disk() {
        let (reads, disk_share) = work("hits cache-only 2 2 4096 100000000 1").expect("words that make sense");
        assert!(reads >= 600 && disk_share == 1.0, "{reads} reads, {disk_share} from the cache disk");
        let (choices, disk_share) = work("choices expected-delay 2000").expect("words that make sense");
        assert!(choices == 2000 && disk_share == 1.0, "{disk_share} of {choices} choices");
        assert!(work("hits").is_none() && work("nothing off 1").is_none() && work("").is_none());
    }

    #[test]
    fn without_a_program_it_is_skipped() {
        let run = Run { is_quick: true, seed: 1, program: None, progress: &mut |_, _| {} };
        assert!(matches!(counted(&run, ""), Err(Error::Skipped { .. })));
    }
}
