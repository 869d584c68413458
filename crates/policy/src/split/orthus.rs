//! Orthus: climbs to the share with the most throughput, a percent at a time.
//!
//! K. Wu et al., "The Storage Hierarchy is Not a Hierarchy: Optimizing Caching on Modern Storage Devices with Orthus",
//! FAST 2021. It knows nothing of the paths and asks for no profile: it tries, and follows the slope. NetCAS compares
//! itself with it, but supplies the share by hand (see [`orthus_paper`](super::orthus_paper)); this is the behaviour of
//! its published code.
//!
//! # How
//! 1. *Wait*, all to the cache disk, until the miss ratio is at most 20 % and moved by at most .01 % in a second.
//! 2. *Climb*: 5 ms at the present share, 5 ms a percent above it, 5 ms a percent below. Where an outer one is better,
//!    move there and try the next on that side; where the middle is best, stay, and begin the next round.
//! 3. A round that ends with all to the cache disk gets a second chance; the second such round means that the clients
//!    do not fill it: back to 1.
//! 4. When the miss ratio exceeds 20 %: back to 1. (The code also gives up 20 points off where climbing began. Between 0
//!    and 20 % that cannot be.)
//!
//! The miss ratio is that of all reads since the start, as in the code. A period without reads measures 0 for
//! every share, so silence leaves the share where it is.
//!
//! # Limits
//! Every round tries both neighbours, also where it rests. Five milliseconds hold few requests where few are in flight,
//! so that it climbs noise. The code stops promoting pages while it climbs; a share cannot say that.

use super::shared::SetShare;
use super::{Report, Tick};

/// A share is tried for so long.
const PERIOD_NS: u64 = 5_000_000;
/// The miss ratio is looked at so often while it settles, and may move so far.
const SETTLE_NS: u64 = 1_000_000_000;
const SETTLED: f64 = 0.000_1;
/// It climbs up to this miss ratio.
const MISS_RATIO_MAX: f64 = 0.2;
/// All to the cache disk, in the unit of the steps.
const ALL: i32 = 100;
/// Rounds that may end there, less one.
const CHANCES: u32 = 1;
/// The speed of a share that does not exist.
const NONE: f64 = -1.0;

/// Which of the three points of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    Lower,
    Middle,
    Upper,
}

#[derive(Clone, Debug)]
struct Climb {
    chances: u32,
    /// The middle, in percent.
    middle: i32,
    /// Bytes a second at the lower point, the middle, and the upper point.
    speeds: [f64; 3],
    /// What is tried now.
    trying: Try,
}

#[derive(Clone, Debug)]
enum State {
    Wait { look_ns: u64, miss_ratio: Option<f64> },
    Climb(Climb),
}

/// What follows a point.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Try,
    GiveUp,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Orthus {
    state: State,
    reads: f64,
    misses: f64,
}

impl Default for Orthus {
    fn default() -> Self {
        Self::new()
    }
}

impl Orthus {
    /// Waits for the cache to settle.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Wait { look_ns: 0, miss_ratio: None }, reads: 0.0, misses: 0.0 }
    }

    /// Of all reads so far; `None` before the first.
    fn miss_ratio(&self) -> Option<f64> {
        (self.reads > 0.0).then(|| self.misses / self.reads)
    }

    fn count(&mut self, tick: &Tick) {
        let reads = tick.paths.iter().map(|path| path.requests as f64).sum::<f64>();
        self.reads += reads;
        self.misses += reads * f64::from(tick.miss_permil) / 1_000.0;
    }

    fn percent(&self) -> i32 {
        match &self.state {
            State::Wait { .. } => ALL,
            State::Climb(climb) => climb.tried(),
        }
    }
}

impl Climb {
    fn begin() -> Self {
        Self { chances: CHANCES, middle: ALL, speeds: [NONE; 3], trying: Try::Middle }
    }

    fn tried(&self) -> i32 {
        self.middle + self.trying as i32 - Try::Middle as i32
    }

    /// The tried point has a speed: which is next.
    fn measured(&mut self, speed: f64, miss_ratio: f64) -> Next {
        self.speeds[self.trying as usize] = speed;
        let has_all = self.speeds[Try::Lower as usize] != NONE || self.middle == 0;
        match self.trying {
            Try::Middle if self.middle < ALL => self.trying = Try::Upper,
            Try::Middle | Try::Upper if !has_all => self.trying = Try::Lower,
            _ if miss_ratio > MISS_RATIO_MAX => return Next::GiveUp,
            _ => return self.follow_slope(),
        }
        Next::Try
    }

    fn follow_slope(&mut self) -> Next {
        let [lower, middle, upper] = self.speeds;
        if middle >= lower && middle >= upper {
            return self.settle(self.middle);
        }
        if upper >= lower {
            if self.middle + 1 >= ALL {
                return self.settle(ALL);
            }
            self.middle += 1;
            self.speeds = [middle, upper, NONE];
            self.trying = Try::Upper;
        } else {
            if self.middle - 1 <= 0 {
                return self.settle(0);
            }
            self.middle -= 1;
            self.speeds = [NONE, lower, middle];
            self.trying = Try::Lower;
        }
        Next::Try
    }

    /// A round ends at `middle`, and the next begins there.
    fn settle(&mut self, middle: i32) -> Next {
        if middle == ALL {
            if self.chances == 0 {
                return Next::GiveUp;
            }
            self.chances -= 1;
        }
        *self = Self { middle, speeds: [NONE; 3], trying: Try::Middle, ..*self };
        Next::Try
    }
}

impl SetShare for Orthus {
    fn set_share(&mut self, tick: &Tick) -> f64 {
        self.count(tick);
        let ratio = self.miss_ratio();
        match &mut self.state {
            State::Wait { look_ns, miss_ratio } if tick.now_ns >= *look_ns => {
                let before = miss_ratio.replace(ratio.unwrap_or(1.0));
                *look_ns = tick.now_ns + SETTLE_NS;
                if let (Some(is), Some(was)) = (ratio, before)
                    && is <= MISS_RATIO_MAX
                    && (is - was).abs() <= SETTLED
                {
                    self.state = State::Climb(Climb::begin());
                }
            }
            State::Wait { .. } => {}
            State::Climb(climb) => {
                let next = climb.measured(tick.total_bytes_per_second(), ratio.unwrap_or(0.0));
                if next == Next::GiveUp {
                    self.state = State::Wait { look_ns: tick.now_ns, miss_ratio: None };
                }
            }
        }
        f64::from(self.percent()) / f64::from(ALL)
    }

    fn report(&self) -> Report {
        Report { disk_share: f64::from(self.percent()) / f64::from(ALL), ..Report::default() }
    }

    fn period_ns(&self) -> u64 {
        PERIOD_NS
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::split::world::World;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    fn world() -> World {
        let mut world = World::new();
        world.period_ns = PERIOD_NS;
        world
    }

    fn run(policy: &mut Orthus, world: &mut World, seconds: f64) -> Vec<f64> {
        let periods = (seconds * 1e9) as u64 / PERIOD_NS;
        (0..periods)
            .map(|_| {
                let tick = world.tick(policy.report().disk_share);
                policy.set_share(&tick)
            })
            .collect()
    }

    #[test]
    fn it_asks_for_a_period_of_five_milliseconds() {
        assert_eq!(Orthus::new().period_ns(), 5_000_000);
    }

    #[test]
    fn it_waits_a_second_and_climbs_to_the_best_share() {
        let (mut world, mut policy) = (world(), Orthus::new());
        assert!(run(&mut policy, &mut world, 1.0).iter().all(|share| *share == 1.0));
        // Forty steps of 5 ms, and a round of three points.
        let climb = run(&mut policy, &mut world, 0.25);
        assert!((climb[climb.len() - 1] - world.best_share()).abs() < 0.021, "{climb:?}");
        // A back end that slows down is climbed away from.
        world.bytes_per_second[1] *= 0.3;
        let climb = run(&mut policy, &mut world, 1.0);
        assert!((climb[climb.len() - 1] - world.best_share()).abs() < 0.021, "{}", world.best_share());
    }

    #[test]
    fn a_load_that_does_not_fill_the_cache_disk_gets_nothing_else() {
        let (mut world, mut policy) = (world(), Orthus::new());
        world.in_flight = 1.0;
        let shares = run(&mut policy, &mut world, 10.0);
        let elsewhere = shares.iter().filter(|share| **share < 1.0).count();
        // Two rounds a second, with one point below all.
        assert!((10..=20).contains(&elsewhere), "{elsewhere}");
        assert!(shares.iter().all(|share| *share >= 0.99));
    }

    #[test]
    fn it_does_not_begin_while_the_cache_fills() {
        let (mut world, mut policy) = (world(), Orthus::new());
        for miss_permil in (0..1_000).rev().step_by(10) {
            world.miss_permil = miss_permil;
            assert!(run(&mut policy, &mut world, 0.1).iter().all(|share| *share == 1.0));
        }
        world.miss_permil = 300;
        assert!(run(&mut policy, &mut world, 20.0).iter().all(|share| *share == 1.0));
    }

    #[test]
    fn it_does_not_begin_while_the_miss_ratio_moves() {
        let (mut world, mut policy) = (world(), Orthus::new());
        for miss_permil in (100..200).rev() {
            world.miss_permil = miss_permil;
            assert!(run(&mut policy, &mut world, 0.5).iter().all(|share| *share == 1.0), "{miss_permil}");
        }
    }

    #[test]
    fn misses_make_it_give_up() {
        let (mut world, mut policy) = (world(), Orthus::new());
        run(&mut policy, &mut world, 3.0);
        assert!(policy.report().disk_share < 0.7);
        world.miss_permil = 1_000;
        let shares = run(&mut policy, &mut world, 3.0);
        assert_eq!(shares[shares.len() - 1], 1.0);
    }

    #[test]
    fn silence_leaves_the_share_where_it_is() {
        let (mut world, mut policy) = (world(), Orthus::new());
        world.in_flight = 0.0;
        assert!(run(&mut policy, &mut world, 60.0).iter().all(|share| *share == 1.0));
        world.in_flight = 64.0;
        run(&mut policy, &mut world, 4.0);
        let before = policy.report().disk_share;
        world.in_flight = 0.0;
        assert!(run(&mut policy, &mut world, 60.0).iter().all(|share| (share - before).abs() < 0.03));
    }

    /// Climbs in plain loops, as one reads it in the paper, and tells which percents were tried.
    fn climbed(speeds: &[f64], tries_max: usize) -> Vec<i32> {
        let (mut tried, mut at, mut chances) = (vec![], ALL, CHANCES);
        let speed = |percent: i32, tried: &mut Vec<i32>| {
            if !(0..=ALL).contains(&percent) {
                return NONE;
            }
            tried.push(percent);
            speeds[percent as usize]
        };
        while tried.len() < tries_max {
            let mut middle = speed(at, &mut tried);
            let mut upper = speed(at + 1, &mut tried);
            let mut lower = speed(at - 1, &mut tried);
            while tried.len() < tries_max && (middle < lower || middle < upper) {
                if upper >= lower && upper >= middle {
                    at += 1;
                    if at == ALL {
                        break;
                    }
                    (lower, middle, upper) = (middle, upper, speed(at + 1, &mut tried));
                } else {
                    at -= 1;
                    if at == 0 {
                        break;
                    }
                    (upper, middle, lower) = (middle, lower, speed(at - 1, &mut tried));
                }
            }
            if at == ALL && tried.len() < tries_max {
                if chances == 0 {
                    break;
                }
                chances -= 1;
            }
        }
        tried.truncate(tries_max);
        tried
    }

    proptest! {
        #[test]
        fn it_tries_what_plain_loops_try(speeds in prop::collection::vec(0_u32..50, 101), slope in -3..=3_i32) {
            let speeds: Vec<f64> =
                (0..=100).map(|percent| f64::from(speeds[percent as usize] + 400) + f64::from(percent * slope)).collect();
            let expected = climbed(&speeds, 300);
            let mut climb = Climb::begin();
            let mut tried = vec![];
            while tried.len() < 300 {
                tried.push(climb.tried());
                if climb.measured(speeds[climb.tried() as usize], 0.0) == Next::GiveUp {
                    break;
                }
            }
            prop_assert_eq!(tried, expected);
        }
    }
}
