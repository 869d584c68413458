//! What a path delivers alone, by the requests in flight of all submitters.
//!
//! Points of a profile, joined linearly in log-log space. Below the least of them a path delivers in proportion (nobody
//! waits for another), beyond the greatest as much as there.

use super::grid;
use alloc::vec::Vec;

/// See the module. Never empty.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Requests in flight and bytes a second, in order.
    points: Vec<(u32, f64)>,
}

impl Curve {
    /// The curve of points: requests in flight, and bytes a second. `None` of none. Of two with as many in flight the faster is taken.
    #[must_use]
    pub fn of(mut points: Vec<(u32, f64)>) -> Option<Self> {
        points.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points.dedup_by_key(|(in_flight, _)| *in_flight);
        if points.is_empty() { None } else { Some(Self { points }) }
    }

    /// Bytes a second with so many in flight.
    #[must_use]
    pub fn rate(&self, in_flight: u32) -> f64 {
        let (least, rate) = self.points[0];
        if in_flight < least {
            return rate * f64::from(in_flight) / f64::from(least);
        }
        grid::interpolated(&self.points, in_flight).unwrap_or(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_proportional_then_bends_and_then_flat() {
        let curve = Curve::of([(16, 400.0), (2, 100.0), (2, 50.0)].into()).unwrap();
        assert_eq!([0, 1, 2, 16, 64].map(|at| curve.rate(at)), [0.0, 50.0, 100.0, 400.0, 400.0]);
        // Half way between 2 and 16 in octaves and a half.
        assert!((200.0..230.0).contains(&curve.rate(6)), "{}", curve.rate(6));
        assert!(Curve::of([].into()).is_none());
    }
}
