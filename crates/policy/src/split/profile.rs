//! Performance profile: what each path delivers alone, by block size, requests in flight and submitters.
//!
//! NetCAS (Hwang et al., section III-C). The share that is right for a load follows from what each path can do *at that
//! concurrency*: on the paper's devices the cache disk is 22 times as fast as the back end with one request in flight,
//! and as fast with 32. That is a property of the devices, so it is measured once, kept, and shared among equal
//! machines.
//!
//! # How
//! A table of points, each with a throughput for each path, or none. It is filled from three sources: measured by
//! `forebay profile`, interpolated by [`Profile::fill`] after a quick one, and observed while serving.
//! [`Profile::rate`] answers from the nearest point in log distance that knows the path. An observation is rounded to
//! powers of two: a point that exists moves by a 64th of the difference, one that does not is appended.
//!
//! # Invariants
//! At most [`POINTS_MAX`] points, reserved at the start. The grid stays: where room is needed, the observed
//! point that was not seen for longest goes.
//!
//! # Limits
//! Only random reads were measured. What is observed on a path while the other works too is entered at the
//! path's own concurrency. A load that comes in bursts looks slower than it is.
//!
//! # Rejected
//! Interpolating at look-up: the paper takes the nearest point as a first estimate and observation mends it.

mod curve;
mod grid;
mod identity;
mod log2;
#[cfg(test)]
mod tests;
pub mod totals;

pub use curve::Curve;
pub use grid::{BLOCK_BYTES, LEVELS, full_points, quick_points};
pub use identity::{Fit, Identity};

use super::{PathTick, Tick};
use alloc::vec::Vec;

/// Points that a profile holds at most.
pub const POINTS_MAX: usize = 128;
/// The part of the difference by which an observation moves a point. Small, since the first periods of congestion are
/// observed before they are known for what they are.
const OBSERVED_PART: f64 = 1.0 / 64.0;
/// Below so many requests in flight, a path was not in use.
const IN_FLIGHT_MIN: f64 = 0.5;

/// The paths of a profile: the cache disk and the back end, as in [`Path`](super::Path).
pub const PATHS: usize = 2;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Bytes of a read.
    pub block_bytes: u32,
    /// Reads that each submitter keeps in flight.
    pub in_flight: u32,
    /// Threads or connections that submit.
    pub submitters: u32,
}

impl Point {
    /// The load of a control period; `None` if nothing was read.
    #[must_use]
    pub fn of(tick: &Tick) -> Option<Self> {
        Self::with(tick.block_bytes()?, tick.in_flight(), tick.submitters)
    }

    /// The load that one path saw; `None` if it was hardly used.
    #[must_use]
    pub fn of_path(path: &PathTick, submitters: u32) -> Option<Self> {
        let block_bytes = path.bytes.checked_div(path.requests)?;
        if path.in_flight < IN_FLIGHT_MIN { None } else { Self::with(block_bytes as u32, path.in_flight, submitters) }
    }

    /// With fewer reads in flight than submitters, only so many of them submit at a time.
    fn with(block_bytes: u32, in_flight: f64, submitters: u32) -> Option<Self> {
        let total = (in_flight + 0.5) as u32;
        let submitters = submitters.min(total).max(1);
        (block_bytes > 0).then(|| Self {
            block_bytes,
            in_flight: (in_flight / f64::from(submitters) + 0.5).max(1.0) as u32,
            submitters,
        })
    }

    /// Reads in flight of all submitters.
    fn total(self) -> u32 {
        self.in_flight.saturating_mul(self.submitters)
    }

    fn rounded(self) -> Self {
        Self {
            block_bytes: nearest_power_of_two(self.block_bytes),
            in_flight: nearest_power_of_two(self.in_flight),
            submitters: nearest_power_of_two(self.submitters),
        }
    }

    /// Squared, in log space.
    pub(super) fn distance(self, to: Self) -> f64 {
        let axes =
            [(self.block_bytes, to.block_bytes), (self.in_flight, to.in_flight), (self.submitters, to.submitters)];
        axes.map(|(a, b)| log2::log2(f64::from(a) / f64::from(b))).map(|octaves| octaves * octaves).iter().sum()
    }

    fn is_valid(self) -> bool {
        self.block_bytes > 0 && self.in_flight > 0 && self.submitters > 0
    }
}

/// In log distance.
fn nearest_power_of_two(x: u32) -> u32 {
    let below = x.max(1).ilog2();
    1 << (below + u32::from(u64::from(x) * u64::from(x) > 2 << (2 * below))).min(31)
}

/// Where a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Measured alone.
    Measured,
    /// Between measured ones.
    Interpolated,
    /// Seen while serving.
    Observed,
}

/// A point of a profile, as plain data: what is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The load.
    pub point: Point,
    /// What the cache disk and the back end deliver alone; 0 where that is not known.
    pub bytes_per_second: [f64; PATHS],
    /// Where it comes from.
    pub source: Source,
}

impl Row {
    /// Each path delivered so much alone at `point`.
    #[must_use]
    pub fn measured(point: Point, bytes_per_second: [f64; PATHS]) -> Self {
        Self { point, bytes_per_second, source: Source::Measured }
    }
}

/// Why rows are no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowError {
    /// A load of nothing, or a throughput that is no finite number of 0 or more.
    Invalid,
    /// Two rows of one load.
    Twice,
    /// More than [`POINTS_MAX`].
    TooMany,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    row: Row,
    /// When it was last observed, counted in observations.
    seen: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    entries: Vec<Entry>,
    observations: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self::new()
    }
}

impl Profile {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(POINTS_MAX), observations: 0 }
    }

    /// The profile of saved rows.
    ///
    /// # Errors
    /// The row's number, from 0, and why it cannot be one.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Result<Self, (usize, RowError)> {
        let mut profile = Self::new();
        for (nth, row) in rows.into_iter().enumerate() {
            let is_rate = |rate: &f64| *rate == 0.0 || (rate.is_normal() && *rate > 0.0);
            if !row.point.is_valid() || !row.bytes_per_second.iter().all(is_rate) {
                return Err((nth, RowError::Invalid));
            }
            if profile.find(row.point).is_some() {
                return Err((nth, RowError::Twice));
            }
            if profile.entries.len() == POINTS_MAX {
                return Err((nth, RowError::TooMany));
            }
            profile.push(row);
        }
        Ok(profile)
    }

    /// Its points, as plain data.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.entries.iter().map(|entry| entry.row)
    }

    /// What a path delivers alone at `point`, from the nearest point that knows it.
    #[must_use]
    pub fn rate(&self, path: super::Path, point: Point) -> Option<f64> {
        let known = self.entries.iter().filter(|entry| entry.rate(path) > 0.0);
        let by_distance = known.map(|entry| (entry.row.point.distance(point), entry.rate(path)));
        by_distance.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rate)| rate)
    }

    /// What a path delivers alone to the block size and the submitters of `point`, by requests in flight; `None` if it is
    /// known at no such load.
    #[must_use]
    pub fn curve(&self, path: super::Path, point: Point) -> Option<Curve> {
        let of_load = |at: Point| {
            let fewer = at.in_flight == 1 && at.submitters <= point.submitters;
            at.block_bytes == point.block_bytes && (at.submitters == point.submitters || fewer)
        };
        let known = self.entries.iter().filter(|entry| entry.rate(path) > 0.0 && of_load(entry.row.point));
        Curve::of(known.map(|entry| (entry.row.point.total(), entry.rate(path))).collect())
    }

    /// A path delivered `bytes_per_second` under the load of `point`.
    pub fn observe(&mut self, path: super::Path, point: Point, bytes_per_second: f64) {
        if !bytes_per_second.is_normal() || bytes_per_second < 0.0 || path.index() >= PATHS {
            return;
        }
        let point = point.rounded();
        self.observations += 1;
        let at = self.find(point).unwrap_or_else(|| self.append(point));
        let entry = &mut self.entries[at];
        entry.seen = self.observations;
        let rate = &mut entry.row.bytes_per_second[path.index()];
        *rate += (bytes_per_second - *rate) * if *rate > 0.0 { OBSERVED_PART } else { 1.0 };
    }

    /// All that is known of a path changes by a factor: it is slower or faster for good.
    pub fn scale(&mut self, path: super::Path, factor: f64) {
        assert!(factor.is_normal() && factor > 0.0, "a factor of {factor}");
        for entry in &mut self.entries {
            entry.row.bytes_per_second[path.index()] *= factor;
        }
    }

    /// Interpolates the points of the grid that are missing, from those that are there.
    pub fn fill(&mut self) {
        for block_bytes in BLOCK_BYTES {
            for submitters in LEVELS {
                self.fill_line(block_bytes, &LEVELS.map(|in_flight| (in_flight, submitters)), |point| point.in_flight);
            }
            for in_flight in LEVELS {
                let line = LEVELS.map(|submitters| (in_flight, submitters));
                self.fill_line(block_bytes, &line, |point| point.submitters);
            }
        }
    }

    /// Interpolates along one axis.
    fn fill_line(&mut self, block_bytes: u32, line: &[(u32, u32); LEVELS.len()], axis: fn(&Point) -> u32) {
        let points = line.map(|(in_flight, submitters)| Point { block_bytes, in_flight, submitters });
        let mut known: [([(u32, f64); LEVELS.len()], usize); PATHS] = Default::default();
        for row in points.iter().filter_map(|point| self.find(*point)).map(|at| self.entries[at].row) {
            for (rate, (levels, len)) in row.bytes_per_second.iter().zip(&mut known).filter(|(rate, _)| **rate > 0.0) {
                levels[*len] = (axis(&row.point), *rate);
                *len += 1;
            }
        }
        for point in points {
            if self.find(point).is_some() || self.entries.len() == POINTS_MAX {
                continue;
            }
            let rates =
                known.each_ref().map(|(levels, len)| grid::interpolated(&levels[..*len], axis(&point)).unwrap_or(0.0));
            if rates.iter().any(|rate| *rate > 0.0) {
                self.push(Row { point, bytes_per_second: rates, source: Source::Interpolated });
            }
        }
    }

    fn find(&self, point: Point) -> Option<usize> {
        self.entries.iter().position(|entry| entry.row.point == point)
    }

    fn push(&mut self, row: Row) -> usize {
        self.entries.push(Entry { row, seen: self.observations });
        self.entries.len() - 1
    }

    /// A new observed point, in the place of the one that was not seen for longest if there is no room.
    fn append(&mut self, point: Point) -> usize {
        if self.entries.len() == POINTS_MAX {
            let observed = |entry: &&(usize, &Entry)| entry.1.row.source == Source::Observed;
            let oldest = self.entries.iter().enumerate().filter(|entry| observed(&entry)).min_by_key(|(_, e)| e.seen);
            let (oldest, _) = oldest.unwrap_or((POINTS_MAX - 1, &self.entries[POINTS_MAX - 1]));
            self.entries.swap_remove(oldest);
        }
        self.push(Row { point, bytes_per_second: [0.0; PATHS], source: Source::Observed })
    }
}

impl Entry {
    fn rate(&self, path: super::Path) -> f64 {
        self.row.bytes_per_second.get(path.index()).copied().unwrap_or(0.0)
    }
}
