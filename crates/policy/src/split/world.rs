//! For tests: two paths and clients that keep so many requests in flight, in equilibrium.
//!
//! A path needs `base_ns` and the time of its bytes for a read, and moves at most `bytes_per_second`. With a share s of the reads, throughput is
//! the least of what the requests in flight can ask for, and of what either path allows, over its part (the asymptotic
//! bounds of Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10(3),
//! 1978). The path that bounds it holds all requests that the other does not.

use super::{PATHS_MAX, PathTick, Tick};
use crate::rng::Rng;

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

    /// What a read takes on a path that does nothing else.
    fn alone_ns(&self, path: usize) -> f64 {
        self.base_ns[path] + f64::from(self.block_bytes) * 1e9 / self.bytes_per_second[path]
    }

    /// Reads a second.
    fn reads(&self, share: f64) -> f64 {
        let parts = [share, 1.0 - share];
        let cycle_ns: f64 = (0..2).map(|path| parts[path] * self.alone_ns(path)).sum();
        (0..2)
            .map(|path| self.bytes_per_second[path] / f64::from(self.block_bytes) / parts[path].max(1e-9))
            .fold(self.in_flight * 1e9 / cycle_ns, f64::min)
    }

    /// Bytes a second at a share.
    pub(super) fn throughput(&self, share: f64) -> f64 {
        self.reads(share) * f64::from(self.block_bytes)
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
        let parts = [share, 1.0 - share];
        let mut held = [0, 1].map(|path: usize| reads * parts[path] * self.alone_ns(path) / 1e9);
        let limits = [0, 1].map(|path: usize| parts[path] / self.bytes_per_second[path]);
        let bottleneck = usize::from(limits[1] > limits[0]);
        held[bottleneck] = self.in_flight - held[1 - bottleneck];
        for path in 0..2 {
            let noise = 1.0 + self.noise * (f64::from(self.rng.below(2_001)) / 1_000.0 - 1.0);
            let requests = reads * parts[path] * self.period_ns as f64 / 1e9 / noise;
            if requests < 1.0 {
                continue;
            }
            tick.paths[path] = PathTick {
                requests: requests as u64,
                bytes: (requests * f64::from(self.block_bytes)) as u64,
                latency_ns: (held[path] * self.period_ns as f64 / requests) as u64,
                hits: requests as u64,
                in_flight: held[path],
            };
        }
        tick
    }
}
