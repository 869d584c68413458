//! Runs a policy in the world, and says how it did.
//!
//! Throughput is judged without its noise: what the table gives for the share that the policy has chosen. The noise is
//! for the policy to see through, and would only blur the verdict.

use super::surface::Point;
use super::world::{TICK_NS, World};
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

/// A tick of a run, as the mean of the policy's control periods in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The share chosen.
    pub disk_share: f64,
    /// What the table gives for it.
    pub throughput: f64,
}

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

/// What a policy does at a point, tick by tick, from a cold start. It begins with the share of its report, and has the
/// control period that it asks for.
///
/// # Panics
/// If a tick is not a number of its control periods.
#[must_use]
pub fn trace(policy: &mut dyn SetShare, point: &Point, seed: u64, ticks: usize) -> Vec<Step> {
    let period_ns = policy.period_ns();
    assert!(TICK_NS.is_multiple_of(period_ns), "a control period of {period_ns} ns");
    let periods = TICK_NS / period_ns;
    let mut world = World::new(point, period_ns, seed);
    let mut share = policy.report().disk_share;
    let mut step = || {
        let mut step = Step { disk_share: 0.0, throughput: 0.0 };
        for _ in 0..periods {
            step.disk_share += share / periods as f64;
            step.throughput += point.throughput(share) / periods as f64;
            share = policy.set_share(&world.tick(share));
        }
        step
    };
    (0..ticks).map(|_| step()).collect()
}

/// Judges the steps of [`SETTLING_TICKS`] and [`STEADY_TICKS`].
#[must_use]
pub fn verdict(point: &Point, steps: &[Step]) -> Verdict {
    assert_eq!(steps.len(), SETTLING_TICKS + STEADY_TICKS, "ticks of a run");
    let throughput: Vec<_> = steps.iter().map(|step| step.throughput).collect();
    let shares: Vec<_> = steps.iter().map(|step| step.disk_share).collect();
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
    use forebay_policy::split::{Report, Tick};

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
        let step = |disk_share| Step { disk_share, throughput: point.throughput(disk_share) };
        let verdict = verdict(point, &shares.into_iter().map(step).collect::<Vec<_>>());
        assert_eq!((verdict.of_best, verdict.found_after_ticks), (1.0, Some(SETTLING_TICKS)));
        assert!((verdict.disk_share - 0.55).abs() < 1e-9);
        // The back end alone delivers 0.83 of the cache there.
        assert_eq!(verdict.bad_ticks, SETTLING_TICKS);
        assert!((verdict.of_cache - 1.85).abs() < 0.01);
    }
    /// Takes turns between all and nothing.
    struct Turns(u64);

    impl SetShare for Turns {
        fn set_share(&mut self, tick: &Tick) -> f64 {
            assert_eq!(tick.elapsed_ns, self.period_ns());
            self.0 += 1;
            self.report().disk_share
        }

        fn report(&self) -> Report {
            Report { disk_share: (self.0 % 2) as f64, ..Report::default() }
        }

        fn period_ns(&self) -> u64 {
            TICK_NS / 20
        }
    }

    #[test]
    fn a_policy_has_the_control_period_that_it_asks_for() {
        let point = &POINTS[7];
        let mut policy = Turns(0);
        let steps = trace(&mut policy, point, 1, 10);
        assert_eq!((steps.len(), policy.0), (10, 200));
        let mean = (point.throughput(0.0) + point.throughput(1.0)) / 2.0;
        for step in steps {
            assert!((step.disk_share - 0.5).abs() < 1e-9 && (step.throughput / mean - 1.0).abs() < 1e-9, "{step:?}");
        }
    }
}
