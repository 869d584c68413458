//! Random dispatch: each request goes to the cache disk with the probability of the share.
//!
//! It is what NetCAS compares its round robin with (Hwang et al., section III-F, Fig. 5): right in the long run, but
//! over a hundred requests at a share of .7 the count has a standard deviation of 4.6, and runs of either kind are as
//! long as chance makes them. Where few requests are in flight, a run leaves the other path idle.
//!
//! Invariant: a share of 0 or of 1 is exact. Limit: drawing a number costs a dozen instructions more than
//! [`bwrr`](super::bwrr). It is there for comparison, not for use.

use super::shared::Dispatch;
use crate::rng::Rng;

/// See the module.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
    /// Draws below this go to the cache disk, of 2^32.
    below: u64,
}

impl Random {
    /// Everything goes to the cache disk until a share is set; the choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), below: 1 << 32 }
    }
}

impl Dispatch for Random {
    fn set_share(&mut self, disk_share: f64) {
        assert!((0.0..=1.0).contains(&disk_share), "a share of {disk_share}");
        self.below = (disk_share * (1_u64 << 32) as f64) as u64;
    }

    #[inline]
    fn next_is_disk(&mut self) -> bool {
        self.rng.next_u64() >> 32 < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUESTS: u32 = 10_000;

    fn disk(dispatch: &mut Random, share: f64) -> u32 {
        dispatch.set_share(share);
        (0..REQUESTS).map(|_| u32::from(dispatch.next_is_disk())).sum()
    }

    proptest! {
        /// Six standard deviations of a binomial (10 000, 1/2) are 300.
        #[test]
        fn the_share_holds_in_the_long_run_and_replays(seed: u64, share in 0.0..=1.0_f64) {
            let sent = disk(&mut Random::new(seed), share);
            prop_assert!((f64::from(sent) - share * f64::from(REQUESTS)).abs() < 300.0, "{}", sent);
            prop_assert_eq!(sent, disk(&mut Random::new(seed), share));
        }

        #[test]
        fn all_and_nothing_are_exact(seed: u64) {
            let mut dispatch = Random::new(seed);
            prop_assert_eq!((disk(&mut dispatch, 1.0), disk(&mut dispatch, 0.0)), (REQUESTS, 0));
        }
    }

    #[test]
    fn it_is_not_spread() {
        let mut dispatch = Random::new(1);
        dispatch.set_share(0.5);
        let mut longest = 0;
        let mut run = 0;
        for _ in 0..REQUESTS {
            run = if dispatch.next_is_disk() { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        assert!(longest > 5, "{longest}");
    }
}
