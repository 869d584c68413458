//! For tests: two paths and clients that keep so many requests in flight, in equilibrium.
//!
//! A read waits `base_ns` on its path and then for its turn to be moved at `bytes_per_second`, where those before it
//! queue at random: it takes base + S / (1 - x S) where S is the time to move a block and x the reads a second (M/M/1).
//! Throughput is that at which the reads in flight on both paths are all there are. So what a path needs follows
//! from what is in flight on it, and from nothing else.

use super::profile::{Point, Profile, Row, full_points};
use super::{PATHS_MAX, PathTick, Tick};
use crate::rng::Rng;

/// The world with that load.
pub(super) fn under(world: &World, point: Point) -> World {
    let Point { block_bytes, in_flight, submitters } = point;
    World { block_bytes, in_flight: f64::from(in_flight * submitters), submitters, ..world.clone() }
}

/// What each path of the world delivers alone.
pub(super) fn profile_of(world: &World) -> Profile {
    let rows = full_points().map(|point| {
        let world = under(world, point);
        Row::measured(point, [world.throughput(1.0), world.throughput(0.0)])
    });
    Profile::from_rows(rows).unwrap()
}

/// See the module; change its fields to change the world.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) block_bytes: u32,
    /// All clients' requests; 0 is silence.
    pub(super) in_flight: f64,
    pub(super) submitters: u32,
    /// Of the cache disk and of the back end.
    pub(super) base_ns: [f64; 2],
    pub(super) bytes_per_second: [f64; 2],
    pub(super) miss_permil: u32,
    /// Each latency is off by at most this part.
    pub(super) noise: f64,
    pub(super) period_ns: u64,
    pub(super) now_ns: u64,
    rng: Rng,
}

impl World {
    /// 64 requests of 64 KiB, 3 GB/s and 2 GB/s.
    pub(super) fn new() -> Self {
        Self {
            block_bytes: 64 << 10,
            in_flight: 64.0,
            submitters: 4,
            base_ns: [50_000.0, 200_000.0],
            bytes_per_second: [3e9, 2e9],
            miss_permil: 0,
            noise: 0.0,
            period_ns: 100_000_000,
            now_ns: 0,
            rng: Rng::new(1),
        }
    }

    /// What a read takes on a path that gets so many a nanosecond; infinite where it cannot.
    fn latency_ns(&self, path: usize, reads: f64) -> f64 {
        let move_ns = f64::from(self.block_bytes) * 1e9 / self.bytes_per_second[path];
        let free = 1.0 - reads * move_ns;
        if free > 0.0 { self.base_ns[path] + move_ns / free } else { f64::INFINITY }
    }

    /// Reads a nanosecond, by bisection.
    fn reads(&self, share: f64) -> f64 {
        let held = |reads: f64| {
            let parts = [share, 1.0 - share].map(|part| part * reads);
            (0..2)
                .map(|path| if parts[path] > 0.0 { parts[path] * self.latency_ns(path, parts[path]) } else { 0.0 })
                .sum()
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            let held: f64 = held(middle);
            *(if held < self.in_flight { &mut low } else { &mut high }) = middle;
        }
        low
    }

    /// Bytes a second at a share.
    pub(super) fn throughput(&self, share: f64) -> f64 {
        self.reads(share) * 1e9 * f64::from(self.block_bytes)
    }

    /// The best share, to a percent.
    pub(super) fn best_share(&self) -> f64 {
        let shares = (0..=100).map(|percent| f64::from(percent) / 100.0);
        shares.max_by(|a, b| self.throughput(*a).total_cmp(&self.throughput(*b))).unwrap()
    }

    /// A control period at a share.
    pub(super) fn tick(&mut self, share: f64) -> Tick {
        self.now_ns += self.period_ns;
        let mut tick = Tick {
            now_ns: self.now_ns,
            elapsed_ns: self.period_ns,
            miss_permil: self.miss_permil,
            submitters: self.submitters,
            paths: [PathTick::default(); PATHS_MAX],
        };
        if self.in_flight == 0.0 {
            return tick;
        }
        let reads = self.reads(share);
        for (path, part) in [share, 1.0 - share].into_iter().enumerate() {
            let noise = 1.0 + self.noise * (f64::from(self.rng.below(2_001)) / 1_000.0 - 1.0);
            let latency_ns = self.latency_ns(path, reads * part);
            let requests = reads * part * self.period_ns as f64 / noise;
            if requests < 1.0 {
                continue;
            }
            tick.paths[path] = PathTick {
                requests: requests as u64,
                bytes: requests as u64 * u64::from(self.block_bytes),
                latency_ns: (latency_ns * noise) as u64,
                hits: requests as u64,
                in_flight: reads * part * latency_ns,
            };
        }
        tick
    }
}
