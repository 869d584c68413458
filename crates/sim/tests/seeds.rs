//! Seeds that found something once, by name, and a few fresh ones.
//!
//! A seed means what the worlds' draws and the product make of it; when these change, it becomes one seed among others.
//! What was found has a test of its own where it was mended. Each seed here was seen to fail with its defect put back.

use forebay_sim::sweep::{Machines, run_twice};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Fresh seeds that each run of the tests tries.
const FRESH: u64 = 48;

macro_rules! seeds {
    ($($(#[doc = $found:literal])* $name:ident: $seed:literal;)*) => {
        $($(#[doc = $found])*
        #[test]
        fn $name() {
            run_twice::<Machines>($seed).unwrap_or_else(|finding| panic!("seed {}: {}", finding.seed, finding.message));
        })*
    };
}

seeds! {
    /// The NBD client sent an older held write over one acknowledged with FUA, and the process died before it sent that.
    a_replay_undoes_a_fua_write: 343;
    /// The next process cached what the last had left unflushed in a server that then restarted without it.
    a_process_caches_what_nobody_holds: 2270;
    /// A part of a write was done, and dropped by a failed flush, before the whole write was acknowledged.
    a_half_done_write_is_lost: 169;
    /// The sweep's flush failed and was told to nobody, and a client's next flush succeeded.
    a_flush_of_the_sweep_fails: 41;
    /// What a failed write had left was read and cached, and the server restarted without it.
    a_failed_write_is_seen_and_then_gone: 767;
    /// A page in doubt was served from memory while the range that was to drop it waited for a page before it.
    a_page_in_doubt_is_read_before_it_is_dropped: 6_001_479;
    /// A split read was given up, its slot could not help any more, and the back end was not asked again.
    a_read_that_was_given_up_has_lost_its_slot: 8_000_619;
    /// A flush failed and its answer was lost: what was read before the replay was cached, and older than the replay.
    a_failed_flush_is_never_heard_of: 11_003_816;
}

#[test]
fn fresh_seeds_pass() {
    let first = RandomState::new().hash_one(0) >> 16;
    // Past the capture of a passing test's output.
    writeln!(std::io::stderr(), "fresh seeds {first}..{}", first + FRESH).expect("a place to report to");
    for seed in first..first + FRESH {
        let outcome = run_twice::<Machines>(seed).unwrap_or_else(|finding| panic!("seed {seed}: {}", finding.message));
        assert!(outcome.operations >= 1000 && outcome.faults >= 3, "seed {seed}: {outcome:?}");
    }
}
