//! A few fresh seeds of worlds of objects. See `seeds.rs`.

use forebay_sim::objects::ObjectWorlds;
use forebay_sim::sweep::run_twice;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Fresh seeds that each run of the tests tries.
const FRESH: u64 = 8;

#[test]
fn fresh_seeds_pass() {
    let first = RandomState::new().hash_one(0) >> 16;
    // Past the capture of a passing test's output.
    writeln!(std::io::stderr(), "fresh seeds {first}..{}", first + FRESH).expect("a place to report to");
    for seed in first..first + FRESH {
        let outcome =
            run_twice::<ObjectWorlds>(seed).unwrap_or_else(|finding| panic!("seed {seed}: {}", finding.message));
        assert!(outcome.operations >= 1000, "seed {seed}: {outcome:?}");
    }
}
