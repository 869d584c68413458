//! Runs a policy in the world, and says how it did.
//!
//! Throughput is judged without its noise: what the table gives for the share that the policy has chosen. The noise is
//! for the policy to see through, and would only blur the verdict.

use super::surface::Point;
use super::world::World;
use forebay_policy::split::SetShare;

/// Ticks from a cold start until the steady state.
pub const SETTLING_TICKS: usize = 200;
/// Ticks of the steady state.
pub const STEADY_TICKS: usize = 200;
/// The best split counts as found at this part of its throughput.
pub const FOUND: f64 = 0.97;
/// Ticks from a find on in which it has to last.
pub const FOUND_WINDOW_TICKS: usize = 50;
/// How many of these have to be found as well: most of them, as a policy may look aside now and then.
pub const FOUND_OF_WINDOW: f64 = 0.8;
/// Below this part of what the cache alone delivers, a tick is bad.
pub const BAD: f64 = 0.9;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Mean share in the steady state.
    pub disk_share: f64,
    /// Mean throughput in the steady state, of the best split's.
    pub of_best: f64,
    /// The same, of the cache alone.
    pub of_cache: f64,
    /// Ticks that passed before the best split was found: the first from which on [`FOUND_OF_WINDOW`] of
    /// [`FOUND_WINDOW_TICKS`] deliver [`FOUND`] of the best, itself included. `None` if it never was.
    pub found_after_ticks: Option<usize>,
    /// The longest run of bad ticks, from the cold start to the end.
    pub bad_ticks: usize,
}

/// The shares that a policy chooses, tick by tick, from a cold start: the first is that of its report.
#[must_use]
pub fn trace(policy: &mut dyn SetShare, world: &mut World<'_>, ticks: usize) -> Vec<f64> {
    let mut share = policy.report().disk_share;
    let mut shares = Vec::with_capacity(ticks);
    for _ in 0..ticks {
        shares.push(share);
        share = policy.set_share(&world.tick(share));
    }
    shares
}

/// Judges the shares of [`SETTLING_TICKS`] and [`STEADY_TICKS`].
#[must_use]
pub fn verdict(point: &Point, shares: &[f64]) -> Verdict {
    assert_eq!(shares.len(), SETTLING_TICKS + STEADY_TICKS, "ticks of a run");
    let throughput: Vec<_> = shares.iter().map(|&share| point.throughput(share)).collect();
    let steady = mean(&throughput[SETTLING_TICKS..]);
    Verdict {
        disk_share: mean(&shares[SETTLING_TICKS..]),
        of_best: steady / point.best(),
        of_cache: steady / point.cache_only(),
        found_after_ticks: found_after(&throughput, FOUND * point.best()),
        bad_ticks: longest_run(&throughput, |delivered| delivered < BAD * point.cache_only()),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn found_after(throughput: &[f64], enough: f64) -> Option<usize> {
    let is_found = |delivered: &f64| *delivered >= enough;
    let lasts = |window: &[f64]| {
        let found = window.iter().filter(|delivered| is_found(delivered)).count();
        is_found(&window[0]) && found as f64 >= FOUND_OF_WINDOW * window.len() as f64
    };
    throughput.windows(FOUND_WINDOW_TICKS).position(lasts)
}

fn longest_run(values: &[f64], is_in: impl Fn(f64) -> bool) -> usize {
    values.split(|&value| !is_in(value)).map(<[f64]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::surface::POINTS;
    use super::*;

    fn run_of(parts: &[(usize, f64)]) -> Vec<f64> {
        parts.iter().flat_map(|&(ticks, value)| std::iter::repeat_n(value, ticks)).collect()
    }

    #[test]
    fn a_find_has_to_last() {
        assert_eq!(found_after(&run_of(&[(7, 0.5), (60, 1.0)]), 0.97), Some(7));
        // One good tick is luck; ten bad ones of fifty are forgiven, eleven are not.
        assert_eq!(found_after(&run_of(&[(7, 0.5), (1, 1.0), (60, 0.5)]), 0.97), None);
        assert_eq!(found_after(&run_of(&[(1, 1.0), (10, 0.5), (60, 1.0)]), 0.97), Some(0));
        assert_eq!(found_after(&run_of(&[(1, 1.0), (11, 0.5), (60, 1.0)]), 0.97), Some(12));
    }

    #[test]
    fn runs_of_bad_ticks_are_the_longest() {
        let values = run_of(&[(2, 0.5), (1, 1.0), (4, 0.5), (1, 1.0), (3, 0.5)]);
        assert_eq!(longest_run(&values, |value| value < 0.9), 4);
        assert_eq!(longest_run(&[1.0; 9], |value| value < 0.9), 0);
    }

    #[test]
    fn only_the_steady_state_counts_for_the_mean() {
        let point = &POINTS[35];
        let shares = run_of(&[(SETTLING_TICKS, 0.0), (STEADY_TICKS, 0.55)]);
        let verdict = verdict(point, &shares);
        assert_eq!((verdict.of_best, verdict.found_after_ticks), (1.0, Some(SETTLING_TICKS)));
        assert!((verdict.disk_share - 0.55).abs() < 1e-9);
        // The back end alone delivers 0.83 of the cache there.
        assert_eq!(verdict.bad_ticks, SETTLING_TICKS);
        assert!((verdict.of_cache - 1.85).abs() < 0.01);
    }
}
