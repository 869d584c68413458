//! A share that stays: cache only, back end only, or anything between.
//!
//! The baselines of every comparison, and what an operator freezes a volume at. `OpenCAS` in NetCAS (Hwang et al.,
//! section IV) is cache only; "backend standalone" is back end only. The best fixed share for one load is half of the
//! best for another: on the paper's measurements it is all at depth 1 and two fifths at depth 32.

use super::shared::SetShare;
use super::{Report, Tick};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed {
    disk_share: f64,
}

impl Fixed {
    /// Every hit is served by the cache disk.
    pub const CACHE_ONLY: Self = Self { disk_share: 1.0 };
    /// Every hit is served by the back end.
    pub const BACKEND_ONLY: Self = Self { disk_share: 0.0 };

    /// The cache disk serves `disk_share` of the hits.
    ///
    /// # Panics
    /// If that is not between 0 and 1.
    #[must_use]
    pub fn new(disk_share: f64) -> Self {
        assert!((0.0..=1.0).contains(&disk_share), "a share of {disk_share}");
        Self { disk_share }
    }
}

impl SetShare for Fixed {
    fn set_share(&mut self, _tick: &Tick) -> f64 {
        self.disk_share
    }

    fn report(&self) -> Report {
        Report { disk_share: self.disk_share, ..Report::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::bwrr::Bwrr;
    use crate::split::{Hit, Meter, Path, PathSet, Shared, Split};

    /// Hits of ten that the cache disk gets, before and after a tick.
    fn of_ten(share: Fixed) -> (usize, usize) {
        let mut split = Shared::new(share, Bwrr::new());
        let hit = Hit { bytes: 4_096, paths: PathSet::DISK_AND_BACKEND };
        let ten = |split: &mut Shared<Fixed, Bwrr>| {
            (0..10).filter(|_| split.choose(&hit, &Meter::default()) == Path::DISK).count()
        };
        let before = ten(&mut split);
        split.tick(&Tick::default());
        (before, ten(&mut split))
    }

    #[test]
    fn a_fixed_share_holds_from_the_first_hit_on() {
        assert_eq!(of_ten(Fixed::CACHE_ONLY), (10, 10));
        assert_eq!(of_ten(Fixed::BACKEND_ONLY), (0, 0));
        assert_eq!(of_ten(Fixed::new(0.3)), (3, 3));
    }

    #[test]
    #[should_panic = "a share of 1.1"]
    fn more_than_all_is_not_a_share() {
        let _ = Fixed::new(1.1);
    }
}
