//! Second access: a page is admitted when it is missed again while its first miss is remembered.
//!
//! Published as the cache-on-second-hit rule: B. Maggs and R. Sitaraman, "Algorithmic Nuggets in Content
//! Delivery", ACM SIGCOMM CCR 45(3), 2015, section on Bloom filters: about three quarters of the objects
//! that a CDN server sees are asked for once, and the rule nearly halves its disk writes. "AdmitOnSecondMiss"
//! in T.-W. Yang et al., "CacheSack", USENIX ATC 2022, which uses a ghost as we do.
//!
//! 1. A missed page whose key is in the [`Ghost`] is admitted, and forgotten there.
//! 2. Any other missed page is refused, and remembered as the youngest.
//!
//! The ghost is a FIFO: as many first misses as it holds may pass between a page's two. As many as the
//! cache has slots is a good size: what comes back later than that would not have stayed.
//!
//! Memory: 4 bytes an entry.
//!
//! Limits: a page that is read piece by piece is missed several times within one use of it, and so
//! admitted; a sequential cut-off before this policy takes that case. Every page that is worth keeping
//! is fetched twice.

use super::{Access, Admit, Decision, Refusal};
use crate::evict::Ghost;

/// Admits a page at its second miss.
#[derive(Debug)]
pub struct SecondAccess {
    missed_once: Ghost,
}

impl SecondAccess {
    /// Remembers the last `entries_max` first misses; takes 4 bytes each.
    pub fn new(entries_max: u32) -> Self {
        Self { missed_once: Ghost::new(entries_max, entries_max) }
    }

    /// From now on remembers the last `entries` first misses, at most `entries_max`.
    pub fn set_capacity(&mut self, entries: u32) {
        self.missed_once.set_capacity(entries);
    }
}

impl Admit for SecondAccess {
    fn decide(&mut self, access: &Access) -> Decision {
        if self.missed_once.take(access.key_hash) {
            Decision::Admit
        } else {
            self.missed_once.remember(access.key_hash);
            Decision::Refuse(Refusal::FirstAccess)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix64;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn admits(policy: &mut SecondAccess, key: u64) -> bool {
        let access = Access { key_hash: mix64(key), bytes: 4_096, run_bytes: 4_096 };
        policy.decide(&access).admits()
    }

    proptest! {
        #[test]
        fn admits_what_an_exact_fifo_of_first_misses_holds(
            entries in 0..40_u32,
            keys in proptest::collection::vec(0..60_u64, 0..500),
        ) {
            let mut policy = SecondAccess::new(entries);
            let mut fifo = Vec::new();
            for key in keys {
                let seen = fifo.contains(&key);
                prop_assert_eq!(admits(&mut policy, key), seen);
                fifo.retain(|&k| k != key);
                if !seen {
                    fifo.push(key);
                    let excess = fifo.len().saturating_sub(entries as usize);
                    fifo.drain(..excess);
                }
            }
        }
    }

    #[test]
    fn a_third_miss_counts_as_a_first_one_again() {
        let mut policy = SecondAccess::new(8);
        let admitted: Vec<bool> = (0..4).map(|_| admits(&mut policy, 7)).collect();
        assert_eq!(admitted, [false, true, false, true]);
    }

    #[test]
    fn a_smaller_capacity_forgets_the_oldest() {
        let mut policy = SecondAccess::new(8);
        for key in 0..4 {
            admits(&mut policy, key);
        }
        policy.set_capacity(2);
        assert!(!admits(&mut policy, 1));
        assert!(admits(&mut policy, 3));
    }
}
