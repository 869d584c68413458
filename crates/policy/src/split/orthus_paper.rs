//! Orthus as NetCAS evaluates it: the best fixed share of each load, found beforehand without contention.
//!
//! The persistent memory of its authors' machine has no counters that the climb could follow, so they supply the share
//! (Hwang et al., section IV-A, Workloads and Baselines). It is the best that a static share can do, and it never
//! moves while the back end is congested. Figures that compare with "Orthus" compare with this; the climb itself is
//! [`orthus`](super::orthus).

use super::profile::Point;
use super::shared::SetShare;
use super::{Report, Tick};
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct OrthusPaper {
    best: Vec<(Point, f64)>,
    disk_share: f64,
}

impl OrthusPaper {
    /// The best share of the cache disk for each load; the nearest in log distance is used, and all goes to the cache
    /// disk until the first load is known.
    ///
    /// # Panics
    /// If there is none, or one is not between 0 and 1.
    #[must_use]
    pub fn new(best: Vec<(Point, f64)>) -> Self {
        assert!(!best.is_empty(), "a best share for at least one load");
        assert!(best.iter().all(|(_, share)| (0.0..=1.0).contains(share)), "shares between 0 and 1");
        Self { best, disk_share: 1.0 }
    }
}

impl SetShare for OrthusPaper {
    fn set_share(&mut self, tick: &Tick) -> f64 {
        if let Some(now) = Point::of(tick) {
            let nearest = self.best.iter().min_by(|a, b| a.0.distance(now).total_cmp(&b.0.distance(now)));
            self.disk_share = nearest.map_or(self.disk_share, |(_, share)| *share);
        }
        self.disk_share
    }

    fn report(&self) -> Report {
        Report { disk_share: self.disk_share, ..Report::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::world::World;

    #[test]
    fn the_nearest_loads_share_holds_whatever_the_back_end_does() {
        let point = |in_flight, submitters| Point { block_bytes: 64 << 10, in_flight, submitters };
        let mut policy = OrthusPaper::new([(point(1, 1), 1.0), (point(16, 4), 0.6)].into());
        let mut world = World::new();
        assert_eq!(policy.report().disk_share, 1.0);
        assert_eq!(policy.set_share(&world.tick(1.0)), 0.6);
        world.bytes_per_second[1] *= 0.1;
        assert_eq!(policy.set_share(&world.tick(0.6)), 0.6);
        world.in_flight = 0.0;
        assert_eq!(policy.set_share(&world.tick(0.6)), 0.6);
        (world.in_flight, world.submitters) = (1.0, 1);
        assert_eq!(policy.set_share(&world.tick(0.6)), 1.0);
    }

    #[test]
    #[should_panic = "a best share for at least one load"]
    fn it_needs_a_table() {
        let _ = OrthusPaper::new([].into());
    }
}
