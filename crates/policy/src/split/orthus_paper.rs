//! Orthus as NetCAS evaluates it: the best fixed share of each load, found beforehand without contention.
//!
//! The persistent memory of its authors' machine has no counters that the climb could follow, so they supply the share
//! (Hwang et al., section IV-A, Workloads and Baselines). It is the best that a static share can do, and it never
//! moves while the back end is congested. Figures that compare with "Orthus" compare with this; the climb itself is
//! [`orthus`](super::orthus).
//!
//! # How it is found
//! By trying shares, as an experiment can, or from a profile, as a server must. With a share that stays, n requests in
//! flight settle so that d of them wait at the cache disk and n - d at the back end, and each path delivers what it
//! delivers with as many. The best share is thus that of the d where both together deliver most. A path with
//! requests of fewer than all submitters is one with fewer submitters; between the profile's points rates are
//! interpolated.
//!
//! # Limits
//! What a path delivers with d always in flight is more than with d in the mean, so the share is a little off where a path
//! is not full.

use super::profile::{PATHS, Point, Profile};
use super::shared::SetShare;
use super::{Path, Report, Tick};
use alloc::vec::Vec;

/// Ways to divide the requests in flight that are looked at.
const DIVISIONS_MAX: u32 = 64;

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
    /// If one is not between 0 and 1.
    #[must_use]
    pub fn new(best: Vec<(Point, f64)>) -> Self {
        assert!(best.iter().all(|(_, share)| (0.0..=1.0).contains(share)), "shares between 0 and 1");
        Self { best, disk_share: 1.0 }
    }

    /// With the share that is best for each load by what the profile says of both paths; see the module.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Self {
        let points = profile.rows().map(|row| row.point);
        Self::new(points.filter_map(|point| best_share(profile, point).map(|share| (point, share))).collect())
    }
}

/// `None` if a path is not known.
fn best_share(profile: &Profile, point: Point) -> Option<f64> {
    let [disk, backend] = [Path::DISK, Path::BACKEND].map(|path| profile.curve(path, point));
    let (disk, backend) = (disk?, backend?);
    let total = point.in_flight.saturating_mul(point.submitters);
    let divisions = total.min(DIVISIONS_MAX);
    let delivers = |nth: u32| {
        let at_disk = (u64::from(total) * u64::from(nth) / u64::from(divisions)) as u32;
        [disk.rate(at_disk), backend.rate(total - at_disk)]
    };
    let sum = |rates: &[f64; PATHS]| rates[0] + rates[1];
    let best = (0..=divisions).map(delivers).max_by(|a, b| sum(a).total_cmp(&sum(b)))?;
    Some(best[0] / sum(&best))
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
    use crate::split::profile::{Row, full_points};
    use crate::split::world::{World, profile_of, under};

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
    fn without_a_table_all_goes_to_the_cache_disk() {
        let mut policy = OrthusPaper::of_profile(&Profile::new());
        assert_eq!(policy.set_share(&World::new().tick(1.0)), 1.0);
    }

    /// At every load of the grid, in a world whose paths bend between latency and rate.
    #[test]
    fn shares_from_a_profile_are_nearly_the_best() {
        let world = World::new();
        let profile = profile_of(&world);
        let mut lowest = f64::INFINITY;
        for point in full_points() {
            let world = under(&world, point);
            let share = best_share(&profile, point).unwrap();
            lowest = lowest.min(world.throughput(share) / world.throughput(world.best_share()));
        }
        assert!((0.95..=1.0).contains(&lowest), "{lowest}");
    }

    #[test]
    fn one_request_goes_where_it_is_answered_sooner() {
        let point = Point { block_bytes: 4_096, in_flight: 1, submitters: 1 };
        for (rates, share) in [([3.0, 2.0], 1.0), ([2.0, 3.0], 0.0)] {
            let profile = Profile::from_rows([Row::measured(point, rates)]).unwrap();
            assert_eq!(best_share(&profile, point), Some(share));
        }
    }
}
