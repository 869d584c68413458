//! Batched weighted round robin: the share of the cache disk, exact over every window of [`WINDOW`] requests.
//!
//! NetCAS (Hwang et al., section III-F, Algorithm 1) sends an exact part of each window of W requests to each path,
//! in turns. How the two kinds lie within the window matters as much as how many there are: a run of requests to one
//! path leaves the other idle once the clients' queue is shorter than the run.
//!
//! # How
//! Error diffusion. A credit grows by the share with each request; when it reaches one, the request goes to the cache
//! disk and costs one. The share is kept in units of 1 / (W x 2^20), so that each whole number of W is exact, and a
//! finer ratio is carried from window to window, exact to one request in 10^8. The credit starts at one half, so
//! that what was sent is at any moment the *rounded* sum of the shares asked for. A choice is an addition, a comparison
//! and a conditional subtraction.
//!
//! # Invariants
//! - After any number of requests, however the share changed in between, the cache disk got the sum of the shares asked
//!   for, to within half a request. So any W requests in a row, aligned or not, are split exactly where share x W is
//!   whole, and to within one request elsewhere.
//! - While the share stays, no run of the more frequent kind is longer than ceil(larger / smaller).
//!
//! # Rejected
//! - The printed algorithm. Its position runs from 0 and it compares `pos > pattern_cache`, so a pattern sends one
//!   request too many to the cache: at a share of .5 it is 50 to the cache and then, the quota spent, 50 to the back
//!   end. With `>=` in its place a share of .05 has `floor(10 x 5 / 100) = 0` for the cache in its pattern of 10: 95 to
//!   the back end, then 5 to the cache. Both windows are exact, and neither is spread.
//! - Its batch size B (10 in the published code), which shortens the pattern at the price of such rounding: error
//!   diffusion needs no pattern.
//! - Beginning a window anew when the share changes: a share that moves each control period would lose its rounding
//!   each time, always to the same side.

use super::shared::Dispatch;

/// Requests in a window: W. The paper gives none; its published code has 100.
pub const WINDOW: u32 = 100;

/// One request, in the units of a share.
const ONE: u32 = WINDOW << 20;

/// See the module.
#[derive(Clone, Debug)]
pub struct Bwrr {
    /// What a request adds to the credit; at most [`ONE`].
    share: u32,
    /// Less than [`ONE`] between requests.
    credit: u32,
}

impl Bwrr {
    /// Everything goes to the cache disk until a share is set.
    #[must_use]
    pub fn new() -> Self {
        Self { share: ONE, credit: ONE / 2 }
    }
}

impl Default for Bwrr {
    fn default() -> Self {
        Self::new()
    }
}

impl Dispatch for Bwrr {
    fn set_share(&mut self, disk_share: f64) {
        assert!((0.0..=1.0).contains(&disk_share), "a share of {disk_share}");
        self.share = (disk_share * f64::from(ONE) + 0.5) as u32;
    }

    #[inline]
    fn next_is_disk(&mut self) -> bool {
        let credit = self.credit + self.share;
        let is_disk = credit >= ONE;
        self.credit = if is_disk { credit - ONE } else { credit };
        is_disk
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    fn send(dispatch: &mut Bwrr, share: f64, requests: usize) -> Vec<bool> {
        dispatch.set_share(share);
        (0..requests).map(|_| dispatch.next_is_disk()).collect()
    }

    fn disk(sent: &[bool]) -> usize {
        sent.iter().filter(|is_disk| **is_disk).count()
    }

    fn longest_run(sent: &[bool], kind: bool) -> usize {
        sent.split(|is_disk| *is_disk != kind).map(<[bool]>::len).max().unwrap_or(0)
    }

    /// Section III-F: seven of ten, and not seven in a row.
    #[test]
    fn the_papers_example_is_seven_of_ten() {
        let sent = send(&mut Bwrr::new(), 0.7, 40);
        assert!(sent.windows(10).all(|ten| disk(ten) == 7), "{sent:?}");
        assert_eq!((longest_run(&sent, true), longest_run(&sent, false)), (3, 1));
    }

    #[test]
    fn every_percent_is_exact_over_any_hundred_and_evenly_spread() {
        for percent in 0..=100_usize {
            let sent = send(&mut Bwrr::new(), percent as f64 / 100.0, 1_000);
            assert!(sent.windows(100).all(|window| disk(window) == percent), "{percent} %");
            let (larger, smaller) = (percent.max(100 - percent), percent.min(100 - percent));
            if smaller > 0 {
                let run = longest_run(&sent, percent >= 50).max(longest_run(&sent, percent <= 50));
                assert!(run <= larger.div_ceil(smaller), "{percent} %: a run of {run}");
            }
        }
    }

    #[test]
    fn the_shares_that_the_printed_algorithm_bunches_are_spread() {
        assert_eq!(longest_run(&send(&mut Bwrr::new(), 0.5, 200), true), 1);
        assert_eq!(longest_run(&send(&mut Bwrr::new(), 0.05, 200), false), 19);
    }

    #[test]
    fn a_finer_ratio_is_exact_in_the_long_run() {
        for share in [1.0 / 3.0, 0.123_456_7, 0.999_5] {
            let sent = send(&mut Bwrr::new(), share, 1_000_000);
            assert_eq!(disk(&sent), (share * 1e6 + 0.5) as usize, "{share}");
        }
    }

    #[test]
    fn all_and_nothing_are_exact_from_any_credit() {
        let mut dispatch = Bwrr::new();
        for share in [0.37, 1.0, 0.999, 0.0, 1.0] {
            let sent = send(&mut dispatch, share, 77);
            assert!((share < 1.0 || disk(&sent) == 77) && (share > 0.0 || disk(&sent) == 0), "{share}");
        }
    }

    #[test]
    #[should_panic = "a share of NaN"]
    fn a_share_is_a_number() {
        Bwrr::new().set_share(f64::NAN);
    }

    proptest! {
        /// The oracle: the sum of the shares asked for, rounded.
        #[test]
        fn what_was_sent_is_the_sum_of_the_shares_however_they_change(
            steps in prop::collection::vec((0.0..=1.0_f64, 1..300_usize), 1..20)
        ) {
            let mut dispatch = Bwrr::new();
            let (mut asked, mut sent) = (0.0, 0);
            for (share, requests) in steps {
                for is_disk in send(&mut dispatch, share, requests) {
                    asked += share;
                    sent += usize::from(is_disk);
                    prop_assert!((asked - sent as f64).abs() <= 0.5 + 1e-4, "{sent} sent, {asked} asked");
                }
            }
        }

        #[test]
        fn runs_are_as_short_as_the_ratio_allows(share in 0.001..=0.999_f64) {
            let sent = send(&mut Bwrr::new(), share, 4_000);
            let ratio = share.max(1.0 - share) / share.min(1.0 - share);
            for kind in [true, false] {
                prop_assert!(longest_run(&sent, kind) <= (ratio + 1e-3).ceil() as usize);
            }
        }

        /// The same as marking, on a line of n requests, where the rounded sum of the shares steps.
        #[test]
        fn each_choice_is_a_step_of_the_rounded_sum(percent in 0..=100_usize) {
            let line: Vec<usize> = (0..=500).map(|n| (n * percent + 50) / 100).collect();
            let steps: Vec<bool> = line.windows(2).map(|pair| pair[1] > pair[0]).collect();
            prop_assert_eq!(send(&mut Bwrr::new(), percent as f64 / 100.0, 500), steps);
        }
    }

    #[test]
    fn without_a_share_the_cache_disk_gets_all() {
        let mut dispatch = Bwrr::default();
        assert_eq!((0..5).map(|_| dispatch.next_is_disk()).collect::<Vec<_>>(), vec![true; 5]);
    }
}
