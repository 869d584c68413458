//! Congestion detector: how far a path lies below the best it was ever seen to do.
//!
//! NetCAS (Hwang et al., section III-D). The back end of a network volume slows down when neighbours use the link, and
//! a share computed before is then wrong by as much. The volume's own completions show it, without a word from the
//! network.
//!
//! # How
//! 1. Each control period gives a throughput B and a mean latency L of the path; both are averaged over a sliding
//!    window of [`WINDOW`] periods.
//! 2. Baselines are the highest windowed B and the lowest windowed L. That of the latency exists from the 40th sample
//!    on.
//! 3. Severity in permil is `1000 (.5 (Bmax - B) / Bmax + .5 (L - Lmin) / Lmin)`, clamped to 0..=1000: the latency
//!    term has no bound of its own (half of the throughput at three times the latency gives 1250).
//! 4. Congestion begins when L exceeds its baseline by more than 70 permil, and ends below 50.
//!
//! Formula and window are the paper's; the figures of steps 2 and 4, and that the latency alone decides there, are
//! those of the published code. A period in which nothing ended is a throughput of 0 and no latency: the paper
//! does not say.
//!
//! # Limits
//! The baselines never forget, and demand is not told from capacity. So an idle pause reads as a severity of 500, a
//! path that stays slower is congested for ever, and so is one whose clients now send larger requests or more at a
//! time. Each has a test here. [`demand_detector`](super::demand_detector) is the answer.

use super::{Path, Tick};

/// Control periods that are averaged.
pub const WINDOW: usize = 20;
/// Samples before the latency has a baseline.
const LATENCY_SAMPLES_MIN: u32 = 40;
/// Latency above its baseline, in permil, at which congestion begins and below which it ends.
const ENTER_PERMIL: f64 = 70.0;
const LEAVE_PERMIL: f64 = 50.0;
/// Weights of throughput and latency.
const THROUGHPUT_WEIGHT: f64 = 0.5;
const LATENCY_WEIGHT: f64 = 0.5;

/// What a detector says of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How much less than it could the path delivers, 0 to 1000.
    pub severity_permil: u32,
    /// Whether the share should follow.
    pub congested: bool,
    /// What the path can deliver, against what it could when first seen: below 1000 once the detector took a slower
    /// path for the new normal.
    pub normal_permil: u32,
}

impl Verdict {
    /// The path delivers what it can.
    pub const CLEAR: Self = Self { severity_permil: 0, congested: false, normal_permil: 1_000 };
}

/// Watches one path.
pub trait Detect {
    /// A control period ended.
    fn tick(&mut self, tick: &Tick) -> Verdict;

    /// Whether it has something to compare with.
    fn is_warm(&self) -> bool;
}

/// Watches nothing. The paper's detector watches the back end only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Detect for Unwatched {
    fn tick(&mut self, _tick: &Tick) -> Verdict {
        Verdict::CLEAR
    }

    fn is_warm(&self) -> bool {
        true
    }
}

/// The last [`WINDOW`] samples and their mean.
#[derive(Clone, Debug, Default)]
struct Window {
    samples: [f64; WINDOW],
    pushed: usize,
}

impl Window {
    fn push(&mut self, sample: f64) -> f64 {
        self.samples[self.pushed % WINDOW] = sample;
        self.pushed += 1;
        self.mean()
    }

    fn mean(&self) -> f64 {
        let held = self.pushed.min(WINDOW);
        self.samples[..held].iter().sum::<f64>() / held.max(1) as f64
    }

    fn is_full(&self) -> bool {
        self.pushed >= WINDOW
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PaperDetector {
    path: Path,
    throughput: Window,
    latency: Window,
    throughput_max: f64,
    latency_min: Option<f64>,
    latency_samples: u32,
    congested: bool,
}

impl PaperDetector {
    /// Watches `path`; nothing is known.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self {
            path,
            throughput: Window::default(),
            latency: Window::default(),
            throughput_max: 0.0,
            latency_min: None,
            latency_samples: 0,
            congested: false,
        }
    }

    /// How far the latency is above its baseline, as a part of it.
    fn latency_deviation(&mut self, latency_ns: u64) -> f64 {
        if latency_ns > 0 {
            let mean = self.latency.push(latency_ns as f64);
            self.latency_samples = self.latency_samples.saturating_add(1);
            if self.latency_samples >= LATENCY_SAMPLES_MIN {
                self.latency_min = Some(self.latency_min.map_or(mean, |least| least.min(mean)));
            }
        }
        self.latency_min.map_or(0.0, |least| (self.latency.mean() - least) / least)
    }
}

impl Detect for PaperDetector {
    fn tick(&mut self, tick: &Tick) -> Verdict {
        let throughput = self.throughput.push(tick.bytes_per_second(self.path));
        self.throughput_max = self.throughput_max.max(throughput);
        let latency = self.latency_deviation(tick.paths[self.path.index()].latency_ns);
        let shortfall =
            if self.throughput_max > 0.0 { (self.throughput_max - throughput) / self.throughput_max } else { 0.0 };
        self.congested = 1_000.0 * latency > if self.congested { LEAVE_PERMIL } else { ENTER_PERMIL };
        Verdict { severity_permil: severity_permil(shortfall, latency), congested: self.congested, ..Verdict::CLEAR }
    }

    fn is_warm(&self) -> bool {
        self.throughput.is_full()
    }
}

/// Step 3 of the module; both deviations are parts of their baselines.
fn severity_permil(throughput: f64, latency: f64) -> u32 {
    (1_000.0 * (THROUGHPUT_WEIGHT * throughput + LATENCY_WEIGHT * latency)).clamp(0.0, 1_000.0) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::split::world::World;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    const SHARE: f64 = 0.55;

    fn watch(world: &mut World, detector: &mut PaperDetector, ticks: usize) -> Vec<Verdict> {
        (0..ticks).map(|_| detector.tick(&world.tick(SHARE))).collect()
    }

    /// A back end that was watched for ten seconds.
    fn warm() -> (World, PaperDetector) {
        let (mut world, mut detector) = (World::new(), PaperDetector::new(Path::BACKEND));
        assert!(watch(&mut world, &mut detector, 100).iter().all(|verdict| !verdict.congested));
        (world, detector)
    }

    #[test]
    fn half_the_throughput_at_three_times_the_latency_is_clamped() {
        assert_eq!(severity_permil(0.5, 2.0), 1_000);
        assert_eq!(severity_permil(0.5, 0.1), 300);
        assert_eq!(severity_permil(0.0, -0.3), 0);
    }

    #[test]
    fn congestion_is_seen_and_its_end() {
        let (mut world, mut detector) = warm();
        world.bytes_per_second[1] *= 0.3;
        let seen = watch(&mut world, &mut detector, 40);
        assert!(seen[5].congested && seen[39].severity_permil > 700, "{:?}", seen[39]);
        world.bytes_per_second[1] /= 0.3;
        let seen = watch(&mut world, &mut detector, 40);
        assert_eq!((seen[39].congested, seen[39].severity_permil / 50), (false, 0), "{:?}", seen[39]);
    }

    #[test]
    fn it_leaves_lower_than_it_enters() {
        let (mut world, mut detector) = warm();
        let mut at = |permil: f64| {
            let base = World::new().bytes_per_second[1];
            world.bytes_per_second[1] = base / (1.0 + permil / 1_000.0);
            watch(&mut world, &mut detector, 60)[59].congested
        };
        // The latency of the bottleneck grows a little faster than its rate falls.
        assert_eq!([40.0, 80.0, 50.0, 20.0].map(&mut at), [false, true, true, false]);
    }

    /// What the paper's detector takes for congestion; ours must not.
    mod mistakes {
        use super::*;

        #[test]
        fn a_path_that_stays_slower_is_congested_for_ever() {
            let (mut world, mut detector) = warm();
            world.bytes_per_second[1] *= 0.5;
            let seen = watch(&mut world, &mut detector, 36_000);
            assert!(seen[20..].iter().all(|verdict| verdict.congested));
        }

        #[test]
        fn an_idle_minute_is_half_of_all_severity() {
            let (mut world, mut detector) = warm();
            world.in_flight = 0.0;
            let seen = watch(&mut world, &mut detector, 600);
            assert!(seen[30..].iter().all(|verdict| verdict.severity_permil >= 490), "{:?}", seen[599]);
        }

        #[test]
        fn larger_requests_are_congestion() {
            let (mut world, mut detector) = warm();
            world.block_bytes *= 4;
            assert!(watch(&mut world, &mut detector, 600)[20..].iter().all(|verdict| verdict.congested));
        }

        #[test]
        fn more_requests_at_a_time_are_congestion() {
            let (mut world, mut detector) = warm();
            world.in_flight *= 2.0;
            assert!(watch(&mut world, &mut detector, 600)[20..].iter().all(|verdict| verdict.congested));
        }

        #[test]
        fn fewer_requests_at_a_time_are_half_as_good_as_congestion() {
            let (mut world, mut detector) = warm();
            world.in_flight /= 16.0;
            assert!(watch(&mut world, &mut detector, 600)[20..].iter().all(|verdict| verdict.severity_permil > 200));
        }
    }

    proptest! {
        /// The oracle keeps all samples.
        #[test]
        fn it_agrees_with_a_detector_that_keeps_every_sample(
            samples in prop::collection::vec((0..2_000_u64, 0..1_000_u64), 1..200)
        ) {
            let mut detector = PaperDetector::new(Path::BACKEND);
            let (mut bytes, mut latencies) = (vec![], vec![]);
            let (mut most, mut least, mut congested) = (0.0_f64, f64::INFINITY, false);
            let mean = |all: &[u64]| {
                let last = &all[all.len().saturating_sub(WINDOW)..];
                last.iter().sum::<u64>() as f64 / last.len().max(1) as f64
            };
            for (ended_bytes, latency_ns) in samples {
                let mut tick = Tick { elapsed_ns: 1_000_000_000, ..Tick::default() };
                tick.paths[1].bytes = ended_bytes;
                tick.paths[1].latency_ns = latency_ns;
                let verdict = detector.tick(&tick);
                bytes.push(ended_bytes);
                if latency_ns > 0 {
                    latencies.push(latency_ns);
                    if latencies.len() >= 40 {
                        least = least.min(mean(&latencies));
                    }
                }
                most = most.max(mean(&bytes));
                let slow = if least.is_finite() { mean(&latencies) / least - 1.0 } else { 0.0 };
                let short = if most > 0.0 { 1.0 - mean(&bytes) / most } else { 0.0 };
                let threshold = if congested { 0.05 } else { 0.07 };
                // On the threshold itself rounding decides; it may do so in another way there.
                congested = if (slow - threshold).abs() < 1e-9 { verdict.congested } else { slow > threshold };
                let severity = (500.0 * (short + slow)).clamp(0.0, 1_000.0);
                prop_assert!((f64::from(verdict.severity_permil) - severity).abs() < 1.001);
                prop_assert_eq!(verdict.congested, congested);
                prop_assert_eq!(detector.is_warm(), bytes.len() >= WINDOW);
            }
        }
    }
}
