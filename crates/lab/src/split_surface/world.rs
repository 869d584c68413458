//! A machine that answers a share with the published throughput.
//!
//! Each control period takes a share and gives the tick that a meter would have counted:
//! 1. The total is the table's throughput, times 1 plus Gaussian noise of [`NOISE`].
//! 2. Each path delivered its share of it, in whole reads of 64 KiB; what is left over counts in the next period.
//! 3. Reads in flight are depth x jobs, always. By Little's law they and the total give the latency, which both paths
//!    share: a closed loop keeps sending, and of a path's own latency the table says nothing.
//!
//! Limits: the table's unit is not stated, and is taken to be reads a second. There is no memory: a share has its
//! throughput at once. A shorter control period has the same noise, which favours policies that ask for one: counted over
//! the same requests it would be larger.

use super::surface::Point;
use forebay_policy::rng::Rng;
use forebay_policy::split::{Path, PathTick, Tick};

/// A tick.
pub const TICK_NS: u64 = 100_000_000;
/// Standard deviation of a control period's throughput, as a part of it.
pub const NOISE: f64 = 0.02;
/// What the authors read.
pub const BLOCK_BYTES: u64 = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct World<'a> {
    point: &'a Point,
    rng: Rng,
    tick_ns: u64,
    now_ns: u64,
    /// Reads of each path that were under way when the last period ended.
    left_over: [f64; 2],
}

impl<'a> World<'a> {
    /// At a point, with control periods of `tick_ns`.
    #[must_use]
    pub fn new(point: &'a Point, tick_ns: u64, seed: u64) -> Self {
        Self { point, rng: Rng::new(seed), tick_ns, now_ns: 0, left_over: [0.0; 2] }
    }

    /// A control period in which the cache disk serves this share.
    pub fn tick(&mut self, disk_share: f64) -> Tick {
        self.now_ns += self.tick_ns;
        let noise = (1.0 + NOISE * gaussian(&mut self.rng)).max(0.0);
        let reads_per_second = self.point.throughput(disk_share) * noise;
        let latency_ns = (self.point.in_flight() / reads_per_second * 1e9) as u64;
        let mut tick =
            Tick { now_ns: self.now_ns, elapsed_ns: self.tick_ns, submitters: self.point.jobs, ..Tick::default() };
        let shares = [(Path::DISK, disk_share), (Path::BACKEND, 1.0 - disk_share)];
        for ((path, share), left_over) in shares.into_iter().zip(&mut self.left_over) {
            let reads = reads_per_second * share * self.tick_ns as f64 / 1e9 + *left_over;
            *left_over = reads.fract();
            let requests = reads as u64;
            tick.paths[path.index()] = PathTick {
                requests,
                bytes: requests * BLOCK_BYTES,
                latency_ns: if requests == 0 { 0 } else { latency_ns },
                hits: requests,
                in_flight: (requests * latency_ns) as f64 / self.tick_ns as f64,
            };
        }
        tick
    }
}

/// A draw from the standard normal distribution (Box and Muller, Ann. Math. Statist. 29(2), 1958).
fn gaussian(rng: &mut Rng) -> f64 {
    // In (0, 1], for the logarithm.
    let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    radius * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::super::surface::POINTS;
    use super::*;

    #[test]
    fn noise_is_normal() {
        let mut rng = Rng::new(1);
        let drawn: Vec<_> = (0..100_000).map(|_| gaussian(&mut rng)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
        let beyond_two = drawn.iter().filter(|x| x.abs() > 2.0).count() as f64 / drawn.len() as f64;
        // Four standard deviations of each.
        assert!(mean.abs() < 0.0127, "{mean}");
        assert!((variance - 1.0).abs() < 0.018, "{variance}");
        assert!((beyond_two - 0.0455).abs() < 0.0027, "{beyond_two}");
    }

    #[test]
    fn a_tick_is_what_a_meter_would_count() {
        for point in POINTS.iter() {
            let mut world = World::new(point, TICK_NS, 7);
            let ticks: Vec<_> = (0..400).map(|_| world.tick(0.6)).collect();
            let reads = |path: Path| ticks.iter().map(|tick| tick.paths[path.index()].requests).sum::<u64>() as f64;
            let (disk, backend) = (reads(Path::DISK), reads(Path::BACKEND));
            assert!((disk / (disk + backend) - 0.6).abs() < 1e-3, "{}", point.name());
            let mean = (disk + backend) / 40.0;
            // Five standard deviations of the mean of 400.
            assert!((mean / point.throughput(0.6) - 1.0).abs() < 0.005, "{}: {mean}", point.name());
            for tick in &ticks {
                assert!((tick.in_flight() / point.in_flight() - 1.0).abs() < 0.02, "{}: {tick:?}", point.name());
                assert_eq!(tick.block_bytes(), Some(64 << 10));
                assert_eq!(tick.paths[0].latency_ns, tick.paths[1].latency_ns);
            }
        }
    }

    #[test]
    fn a_path_without_reads_has_no_latency() {
        let tick = World::new(&POINTS[0], TICK_NS, 1).tick(1.0);
        assert_eq!(tick.paths[Path::BACKEND.index()], PathTick::default());
        assert!(tick.paths[Path::DISK.index()].latency_ns > 0);
    }

    #[test]
    fn a_seed_repeats() {
        let ticks = |seed| {
            let mut world = World::new(&POINTS[20], TICK_NS, seed);
            [0.3, 0.9, 0.5].map(|share| world.tick(share))
        };
        assert_eq!(ticks(5), ticks(5));
        assert_ne!(ticks(5), ticks(6));
    }
}
