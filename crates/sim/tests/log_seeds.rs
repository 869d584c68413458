//! Seeds of worlds with one write-back log that found something once, by name, and a few fresh ones. See `seeds.rs`.

use forebay_sim::ledger::Counted;
use forebay_sim::log_world::LogWorlds;
use forebay_sim::log_world::met::Count;
use forebay_sim::sweep::run_twice;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Fresh seeds that each run of the tests tries.
const FRESH: u64 = 8;

/// Each was seen to fail with its defect put back.
macro_rules! seeds {
    ($($(#[doc = $found:literal])* $name:ident: $seed:literal;)*) => {
        $($(#[doc = $found])*
        #[test]
        fn $name() {
            run_twice::<LogWorlds>($seed).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
        })*
    };
}

seeds! {
    /// A part of a long write passed the log and was lost by a failed flush; then the whole write was acknowledged.
    a_part_of_a_write_is_lost_before_its_answer: 50_680;
    /// The same, told while the write was under way.
    a_part_of_a_write_is_told_lost_before_its_answer: 50_621;
}

#[test]
fn fresh_seeds_pass() {
    let first = RandomState::new().hash_one(0) >> 16;
    // Past the capture of a passing test's output.
    writeln!(std::io::stderr(), "fresh seeds {first}..{}", first + FRESH).expect("a place to report to");
    for seed in first..first + FRESH {
        let outcome = run_twice::<LogWorlds>(seed).unwrap_or_else(|finding| panic!("seed {seed}: {}", finding.message));
        let crashes =
            Count::ALL.iter().filter(|what| what.name().0 == "crash").map(|what| outcome.counts[what.place()]);
        assert!(outcome.operations >= 1000 && crashes.sum::<u64>() >= 15, "seed {seed}: {outcome:?}");
    }
}
