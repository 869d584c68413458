//! Seeds of machines that write back that found something once, by name, and a few fresh ones. See `seeds.rs`.

use forebay_sim::back::BackWorlds;
use forebay_sim::ledger::{Count, Counted};
use forebay_sim::sweep::run_twice;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Fresh seeds that each run of the tests tries.
const FRESH: u64 = 8;

/// Seen to fail with its defect put back: two cache disks used in turns had one generation, and the first was believed.
#[test]
fn a_cache_disk_of_before_is_believed() {
    run_twice::<BackWorlds>(3).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
}

/// The world went on without an operation that its last start had lost with the power.
#[test]
fn power_goes_with_the_last_operation_of_a_start() {
    let seed = 96_853_604_924_631;
    run_twice::<BackWorlds>(seed).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
}

/// A trim's second chunk began beside a zeroing of its pages that waited for the intent map.
#[test]
fn a_range_that_waits_for_the_intent_map_has_its_pages() {
    let seed = 57_577_464_017_672;
    run_twice::<BackWorlds>(seed).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
}

/// Rot in both superblocks of a cache disk that was put aside; the world had forgotten it when the disk came back.
#[test]
fn a_cache_disk_of_before_comes_back_with_its_rot() {
    run_twice::<BackWorlds>(1_000_055).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
}

#[test]
fn fresh_seeds_pass() {
    let first = RandomState::new().hash_one(0) >> 16;
    // Past the capture of a passing test's output.
    writeln!(std::io::stderr(), "fresh seeds {first}..{}", first + FRESH).expect("a place to report to");
    for seed in first..first + FRESH {
        let outcome =
            run_twice::<BackWorlds>(seed).unwrap_or_else(|finding| panic!("seed {seed}: {}", finding.message));
        let crashes =
            Count::ALL.iter().filter(|what| what.name().0 == "crash").map(|what| outcome.counts[what.place()]);
        let overlaps = outcome.counts[Count::StateOverlap.place()];
        assert!(outcome.operations >= 1000 && crashes.sum::<u64>() >= 12 && overlaps > 0, "seed {seed}: {outcome:?}");
    }
}
