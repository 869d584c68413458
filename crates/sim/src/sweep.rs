//! Sweeps: many seeds, each run twice, on all threads asked for; and what they met together.
//!
//! A run that breaks a promise panics, in the product's code or in the oracle's. Here that becomes a finding: the seed
//! and the message.

use crate::ledger::Count;
use crate::world;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A seed that broke a promise, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Run it again.
    pub seed: u64,
    /// What was broken.
    pub message: String,
}

/// What a sweep met.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
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
    /// By [`Count`].
    pub counts: Vec<u64>,
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

/// Runs a seed twice.
///
/// # Errors
/// What it broke: a promise, or that it has to run alike each time.
pub fn run_twice(seed: u64) -> Result<world::Outcome, Finding> {
    let run = || catch_unwind(AssertUnwindSafe(|| world::run(seed, false)));
    let (Ok(first), Ok(second)) = (run(), run()) else {
        return Err(Finding { seed, message: LAST_PANIC.with(|last| last.borrow().clone()) });
    };
    if first.digest != second.digest {
        let message = format!("it ran twice with two digests: {:016x} and {:016x}", first.digest, second.digest);
        return Err(Finding { seed, message });
    }
    Ok(first)
}

impl Sweep {
    /// Runs seeds from `first` on, until there are `count` or the time is over.
    #[must_use]
    pub fn run(first: u64, count: u64, until: Option<Instant>, threads: usize) -> Self {
        let next = AtomicU64::new(first);
        let sweep = Mutex::new(Self {
            counts: vec![0; Count::ALL.len()],
            operations_min: u64::MAX,
            faults_min: u64::MAX,
            ..Self::default()
        });
        let work = || loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.saturating_add(count) || until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            let result = run_twice(seed);
            sweep.lock().expect("nobody panics while holding it").add(result);
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let mut sweep = sweep.into_inner().expect("nobody panics while holding it");
        sweep.findings.sort_by_key(|finding| finding.seed);
        sweep
    }

    fn add(&mut self, result: Result<world::Outcome, Finding>) {
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
    pub fn missing(&self) -> impl Iterator<Item = Count> {
        Count::ALL.iter().copied().filter(|what| self.counts[*what as usize] == 0)
    }
}
