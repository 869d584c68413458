//! Sweeps: many seeds, each run twice, on all threads asked for, and what they met together. Hunts: seeds with a planted
//! bug, until one notices.
//!
//! A run that breaks a promise panics, in the product's code or in the oracle's. Here that becomes a finding: the seed
//! and the message.

use crate::bug::{self, Planted};
use crate::ledger::{self, Counted};
use crate::world::{self, Outcome};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of world.
pub trait Worlds: Sync + 'static {
    /// What is counted in it.
    type Count: Counted;
    /// What may be planted in it.
    type Bug: Planted;
    /// What is counted and does not happen in it.
    const ABSENT: &'static [Self::Count] = &[];

    /// Runs a seed to its end. Panics when a promise is broken; the message says which.
    fn run(seed: u64, bug: Option<Self::Bug>, verbose: bool) -> Outcome;
}

/// Whole machines: see [`world`].
#[derive(Clone, Copy, Debug)]
pub struct Machines;

impl Worlds for Machines {
    type Count = ledger::Count;
    type Bug = bug::Bug;
    const ABSENT: &'static [ledger::Count] = crate::back::OWN;

    fn run(seed: u64, bug: Option<bug::Bug>, verbose: bool) -> Outcome {
        world::run(seed, bug, verbose)
    }
}

/// A seed that broke a promise, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Run it again.
    pub seed: u64,
    /// What was broken.
    pub message: String,
}

/// What a sweep met.
#[derive(Clone, Debug)]
pub struct Sweep<W> {
    /// Seeds that ran to their end, twice and alike.
    pub passed: u64,
    /// Those that did not.
    pub findings: Vec<Finding>,
    /// Client operations and faults of those that passed.
    pub operations: u64,
    /// See `operations`.
    pub faults: u64,
    /// The fewest operations and faults of a seed.
    pub operations_min: u64,
    /// See `operations_min`.
    pub faults_min: u64,
    /// By [`Worlds::Count`].
    pub counts: Vec<u64>,
    worlds: PhantomData<fn() -> W>,
}

thread_local! {
    /// What the last panic of this thread said.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics are kept for their finding instead of being printed.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        LAST_PANIC.with(|last| *last.borrow_mut() = info.to_string().replace('\n', " "));
    }));
}

/// Runs a seed once.
///
/// # Errors
/// What it broke.
pub fn run_once<W: Worlds>(seed: u64, bug: Option<W::Bug>, verbose: bool) -> Result<Outcome, Finding> {
    catch_unwind(AssertUnwindSafe(|| W::run(seed, bug, verbose)))
        .map_err(|_| Finding { seed, message: LAST_PANIC.with(|last| last.borrow().clone()) })
}

/// Runs a seed twice.
///
/// # Errors
/// What it broke: a promise, or that it has to run alike each time.
pub fn run_twice<W: Worlds>(seed: u64) -> Result<Outcome, Finding> {
    let first = run_once::<W>(seed, None, false)?;
    let second = run_once::<W>(seed, None, false)?;
    if first.digest != second.digest {
        let message = format!("it ran twice with two digests: {:016x} and {:016x}", first.digest, second.digest);
        return Err(Finding { seed, message });
    }
    Ok(first)
}

/// Runs seeds with a planted bug from `first` on, at most `count`, until one notices.
#[must_use]
pub fn hunt<W: Worlds>(bug: W::Bug, first: u64, count: u64) -> Option<Finding> {
    (first..first.saturating_add(count)).find_map(|seed| run_once::<W>(seed, Some(bug), false).err())
}

impl<W: Worlds> Sweep<W> {
    /// Runs `count` seeds from `first` on.
    #[must_use]
    pub fn run(first: u64, count: u64, threads: usize) -> Self {
        let next = AtomicU64::new(first);
        let sweep = Mutex::new(Self {
            passed: 0,
            findings: Vec::new(),
            operations: 0,
            faults: 0,
            operations_min: u64::MAX,
            faults_min: u64::MAX,
            counts: vec![0; W::Count::ALL.len()],
            worlds: PhantomData,
        });
        let work = || loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.saturating_add(count) {
                return;
            }
            let result = run_twice::<W>(seed);
            sweep.lock().expect("nobody panics while holding it").add(result);
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let mut sweep = sweep.into_inner().expect("nobody panics while holding it");
        sweep.findings.sort_by_key(|finding| finding.seed);
        sweep
    }

    fn add(&mut self, result: Result<Outcome, Finding>) {
        match result {
            Ok(outcome) => {
                self.passed += 1;
                self.operations += outcome.operations;
                self.faults += outcome.faults;
                self.operations_min = self.operations_min.min(outcome.operations);
                self.faults_min = self.faults_min.min(outcome.faults);
                for (sum, count) in self.counts.iter_mut().zip(outcome.counts) {
                    *sum += count;
                }
            }
            Err(finding) => self.findings.push(finding),
        }
    }

    /// What none of the seeds met.
    pub fn missing(&self) -> impl Iterator<Item = W::Count> {
        Self::expected().filter(|what| self.counts[what.place()] == 0)
    }

    /// What can happen in these worlds.
    pub fn expected() -> impl Iterator<Item = W::Count> {
        let happens = |what: &W::Count| W::ABSENT.iter().all(|absent| absent.place() != what.place());
        W::Count::ALL.iter().copied().filter(happens)
    }
}
