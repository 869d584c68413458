//! A profile of measurements that do not tell submitters apart.
//!
//! The paper's grid has an axis of threads, since each of them submits to the devices by itself. Here one thread submits
//! for all connections: a path sees so many reads in flight and not whose they are. So what is measured is one curve a
//! block size and path, at the products of the grid's levels, and a point of the grid is a point of the curve.
//!
//! [`QUICK`] leaves out what bends least. The rest is interpolated ([`Curve`]); how far that may be off is told by the
//! measurements themselves: each but the outermost is left out in turn and compared with what its neighbours say of it.
//! Those gaps are wider than the ones that are filled, so the error is rather less.

use super::{BLOCK_BYTES, Curve, LEVELS, PATHS, Point, Profile, Row, RowError, Source};
use alloc::vec::Vec;

/// Reads in flight of all submitters that a full profile is measured at: the products of the grid's levels.
pub const FULL: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Those of a quick one.
pub const QUICK: [u32; 6] = [1, 2, 4, 16, 64, 256];

/// What each path delivered alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Bytes of a read.
    pub block_bytes: u32,
    /// Reads in flight.
    pub in_flight: u32,
    /// Of the cache disk and the back end.
    pub bytes_per_second: [f64; PATHS],
}

/// Block sizes to measure in a cache with pages of that size: a longer read is read page by page.
#[must_use]
pub fn block_sizes(page_bytes: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = BLOCK_BYTES.iter().map(|bytes| page_bytes.min(*bytes)).collect();
    sizes.dedup();
    sizes
}

/// The profile: the grid at each block size, and for a single submitter all of [`FULL`].
///
/// # Errors
/// As [`Profile::from_rows`].
pub fn profile(measured: &[Total]) -> Result<Profile, (usize, RowError)> {
    let mut sizes: Vec<u32> = measured.iter().map(|total| total.block_bytes).collect();
    sizes.dedup();
    let grid = LEVELS.iter().flat_map(|submitters| LEVELS.map(|in_flight| (in_flight, *submitters)));
    let beyond = FULL.iter().filter(|total| !LEVELS.contains(total)).map(|total| (*total, 1));
    let loads: Vec<_> = grid.chain(beyond).collect();
    let row = |block_bytes: u32, (in_flight, submitters): (u32, u32)| {
        let at = in_flight * submitters;
        let known = measured.iter().find(|total| (total.block_bytes, total.in_flight) == (block_bytes, at));
        let bytes_per_second = match known {
            Some(total) => total.bytes_per_second,
            None => {
                core::array::from_fn(|path| curve(measured, block_bytes, path, |_| true).map_or(0.0, |c| c.rate(at)))
            }
        };
        let source = if known.is_some() { Source::Measured } else { Source::Interpolated };
        Row { point: Point { block_bytes, in_flight, submitters }, bytes_per_second, source }
    };
    Profile::from_rows(sizes.iter().flat_map(|bytes| loads.iter().map(|load| row(*bytes, *load))))
}

/// By how much each measurement that has neighbours on both sides differs from what they say of it, as a part of it.
#[must_use]
pub fn left_out_errors(measured: &[Total]) -> Vec<f64> {
    let inner = |total: &&Total| {
        let of_size = || measured.iter().filter(|other| other.block_bytes == total.block_bytes);
        of_size().any(|other| other.in_flight < total.in_flight)
            && of_size().any(|other| other.in_flight > total.in_flight)
    };
    let error = |total: &Total, path: usize| {
        let (at, is) = (total.in_flight, total.bytes_per_second[path]);
        let others = curve(measured, total.block_bytes, path, |in_flight| in_flight != at)?;
        (is > 0.0).then(|| (others.rate(at) / is - 1.0).abs())
    };
    let errors = measured.iter().filter(inner).flat_map(|total| (0..PATHS).filter_map(move |path| error(total, path)));
    errors.collect()
}

fn curve(measured: &[Total], block_bytes: u32, path: usize, takes: impl Fn(u32) -> bool) -> Option<Curve> {
    let of_size = measured.iter().filter(|total| total.block_bytes == block_bytes && takes(total.in_flight));
    let points = of_size.map(|total| (total.in_flight, total.bytes_per_second[path])).filter(|(_, rate)| *rate > 0.0);
    Curve::of(points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Path;

    /// A path of a latency and a rate, which bends at 8 in flight; the other is half as fast.
    fn measured(levels: &[u32]) -> Vec<Total> {
        let rate = |in_flight: u32| f64::from(in_flight.min(8)) * 100.0;
        let total = |block_bytes, in_flight| {
            let bytes_per_second = [rate(in_flight), rate(in_flight) / 2.0];
            Total { block_bytes, in_flight, bytes_per_second }
        };
        BLOCK_BYTES.iter().flat_map(|bytes| levels.iter().map(|level| total(*bytes, *level))).collect()
    }

    #[test]
    fn every_point_of_the_grid_is_a_point_of_the_curve() {
        let profile = profile(&measured(&FULL)).unwrap();
        assert_eq!(profile.rows().count(), 2 * (25 + 4));
        assert!(profile.rows().all(|row| row.source == Source::Measured));
        for row in profile.rows() {
            let total = row.point.in_flight * row.point.submitters;
            assert_eq!(row.bytes_per_second[0], f64::from(total.min(8)) * 100.0, "{row:?}");
        }
        let deep = Point { block_bytes: 4_096, in_flight: 200, submitters: 1 };
        assert_eq!(profile.rate(Path::BACKEND, deep), Some(400.0));
    }

    #[test]
    fn a_quick_one_fills_the_gaps_and_says_how_well() {
        let totals = measured(&QUICK);
        let profile = profile(&totals).unwrap();
        let interpolated: Vec<Row> = profile.rows().filter(|row| row.source == Source::Interpolated).collect();
        assert!(interpolated.iter().all(|row| ![1, 2, 4, 16, 64, 256].contains(&row.point.total())));
        // Between 4 and 16 in flight 8 would be 566, and is 800; the errors that are told are no smaller.
        let at = Point { block_bytes: 4_096, in_flight: 8, submitters: 1 };
        let off = 1.0 - profile.rate(Path::DISK, at).unwrap() / 800.0;
        let errors = left_out_errors(&totals);
        assert_eq!(errors.len(), 2 * 2 * 4);
        let worst = errors.into_iter().fold(0.0, f64::max);
        assert!((0.25..0.35).contains(&off) && worst >= off, "{off} {worst}");
    }

    #[test]
    fn a_short_page_is_the_longest_read() {
        assert_eq!(block_sizes(64 << 10), [4 << 10, 64 << 10]);
        assert_eq!(block_sizes(256 << 10), [4 << 10, 64 << 10]);
        assert_eq!(block_sizes(16 << 10), [4 << 10, 16 << 10]);
        assert_eq!(block_sizes(4 << 10), [4 << 10]);
    }

    #[test]
    fn nothing_measured_is_an_empty_profile() {
        assert_eq!((profile(&[]).unwrap().rows().count(), left_out_errors(&[]).len()), (0, 0));
    }
}
