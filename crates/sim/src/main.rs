//! `forebay-sim`: runs seeds, and says which broke a promise.
//!
//! `--seed N` tells what happens in one seed, line by line. `--first N --count M` runs M seeds from N on (fresh ones
//! without `--first`), each twice with equal digests, and ends with what they met. `--bugs` plants one bug after the other,
//! and runs seeds until each is noticed. `--log`: worlds of one logged device that crashes all the time, instead of whole
//! machines. `--back`: whole machines that write back, and crash as often. `--objects`: a gateway's objects. Exit code 1 if a seed failed, or a bug survived.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program that reports")]

use clap::Parser;
use forebay_sim::back::BackWorlds;
use forebay_sim::bug::Planted;
use forebay_sim::ledger::Counted;
use forebay_sim::log_world::LogWorlds;
use forebay_sim::objects::ObjectWorlds;
use forebay_sim::sweep::{Finding, Machines, Sweep, Worlds, hunt, keep_panics, run_once};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

/// How long a finding's message is, at most, when many are told.
const MESSAGE_CHARS_MAX: usize = 400;

/// Runs worlds in virtual time; see the crate's documentation.
#[derive(Parser)]
struct Arguments {
    /// Tell what happens in this seed.
    #[arg(long, conflicts_with_all = ["first", "count", "bugs"])]
    seed: Option<u64>,
    /// The first of the seeds to run; a fresh one if it is not given.
    #[arg(long)]
    first: Option<u64>,
    /// How many to run; with `--bugs`, how many for a bug at most.
    #[arg(long, default_value_t = 400)]
    count: u64,
    /// Run so many at a time; as many as the machine has processors if it is not given.
    #[arg(long)]
    threads: Option<usize>,
    /// So many seeds must have met everything that can happen.
    #[arg(long, default_value_t = 2000)]
    all_from: u64,
    /// Plant each of the known bugs; seeds must notice.
    #[arg(long)]
    bugs: bool,
    /// Plant this one.
    #[arg(long)]
    bug: Option<String>,
    /// Crash a write-back log.
    #[arg(long)]
    log: bool,
    /// Crash whole machines that write back.
    #[arg(long, conflicts_with = "log")]
    back: bool,
    /// Keep objects, as a gateway does.
    #[arg(long, conflicts_with_all = ["log", "back"])]
    objects: bool,
}

impl Arguments {
    /// The flag that chooses the kind of worlds; none for whole machines.
    fn worlds(&self) -> &'static str {
        let flags = [(self.log, "--log"), (self.back, "--back"), (self.objects, "--objects")];
        flags.iter().find(|(is_set, _)| *is_set).map_or("", |(_, flag)| flag)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let good = match arguments.worlds() {
        "--log" => run::<LogWorlds>(&arguments),
        "--back" => run::<BackWorlds>(&arguments),
        "--objects" => run::<ObjectWorlds>(&arguments),
        _ => run::<Machines>(&arguments),
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            println!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run<W: Worlds>(arguments: &Arguments) -> Result<bool, String> {
    let bug = arguments.bug.as_deref().map(W::Bug::named).transpose()?;
    if let Some(seed) = arguments.seed {
        return Ok(run_once::<W>(seed, bug, true).is_ok());
    }
    keep_panics();
    // Small enough to be typed.
    let first = arguments.first.unwrap_or_else(|| RandomState::new().hash_one(0) >> 16);
    println!("seeds from {first}");
    Ok(match bug {
        Some(bug) => find::<W>(bug, first, arguments.count),
        None if arguments.bugs => {
            W::Bug::ALL.iter().filter(|bug| !find::<W>(**bug, first, arguments.count)).count() == 0
        }
        None => sweep::<W>(first, arguments),
    })
}

/// Whether a bug was noticed.
fn find<W: Worlds>(bug: W::Bug, first: u64, count: u64) -> bool {
    let (name, text) = (bug.name(), bug.text());
    match hunt::<W>(bug, first, count) {
        Some(Finding { seed, message }) => {
            println!("{name} ({text}): found after {} seeds, by {seed}: {}", seed - first + 1, short(&message));
            true
        }
        None => {
            println!("{name} ({text}): SURVIVED {count} seeds from {first}");
            false
        }
    }
}

fn sweep<W: Worlds>(first: u64, arguments: &Arguments) -> bool {
    let threads = arguments.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let sweep = Sweep::<W>::run(first, arguments.count, threads);
    for count in Sweep::<W>::expected() {
        let ((group, name), met) = (count.name(), sweep.counts[count.place()]);
        println!("{met:>12}  {group}: {name}");
    }
    println!(
        "{} seeds, {} operations (at least {} each), {} faults (at least {} each)",
        sweep.passed, sweep.operations, sweep.operations_min, sweep.faults, sweep.faults_min
    );
    let crashes: u64 =
        W::Count::ALL.iter().zip(&sweep.counts).filter(|(what, _)| what.name().0 == "crash").map(|(_, met)| met).sum();
    if crashes > 0 {
        println!("{crashes} crash points");
    }
    let all_must_be_met = arguments.count >= arguments.all_from;
    let missing = sweep.missing().count();
    if missing > 0 {
        let what = if all_must_be_met { "which is an error" } else { "as too few seeds were run to meet all" };
        println!("{missing} were not met, {what}");
    }
    for Finding { seed, message } in &sweep.findings {
        println!("FAILED: {}", short(message));
        println!("    repeat with `cargo run --release -p forebay-sim -- {} --seed {seed}`", arguments.worlds());
    }
    sweep.findings.is_empty() && !(missing > 0 && all_must_be_met)
}

fn short(message: &str) -> String {
    message.chars().take(MESSAGE_CHARS_MAX).collect()
}
