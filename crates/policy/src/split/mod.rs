//! Split: which path serves a hit.
//!
//! A saturated cache disk makes the next hit wait, while the back end has bandwidth to spare: on the measurements of
//! NetCAS (Hwang et al., section II-D) the best split of hits moves up to 2.4 times what the cache disk alone does, and
//! a wrong one a twentieth of it. So the question is asked for every hit on disk, and answered from what each path
//! delivers now.
//!
//! # Shape
//! [`Split`] chooses a path for each hit. Many policies only decide once a control period which *share* of the hits the
//! cache gets; those are [`SetShare`], and [`Shared`] turns one into a [`Split`] by a [`Dispatch`].
//!
//! | module | what it is |
//! |---|---|
//! | [`climb`] | a share found by trying |
//! | [`expected_delay`] | each path filled to its bandwidth-delay product |
//! | [`meter`] | what is in flight on each path, and what ended in a control period |
//! | [`splitter`] | a volume's meter, policy and budget |
//! | [`shared`] | a share, enforced request by request |
//! | [`bwrr`] | enforces it evenly, exact over every window |
//! | [`random`] | enforces it by chance |
//! | [`fixed`] | cache only, back end only, or a share that stays |
//! | [`profile`] | what each path delivers alone, by load |
//! | [`detector`] | whether a path delivers less than it did, as the paper sees it |
//! | [`demand_detector`] | whether it delivers less than it did when asked for as much |
//! | [`mode`] | how a policy with a profile moves through its life |
//! | [`netcas`] | a share from a profile and detectors |
//! | [`orthus`] | a share climbed to, a percent at a time |
//! | [`orthus_paper`] | the best fixed share of each load, as a table |
//!
//! # Invariants
//! A choice takes constant time and allocates nothing. A path that may not serve the hit is never chosen.

pub mod bwrr;
pub mod climb;
pub mod demand_detector;
pub mod detector;
pub mod expected_delay;
#[cfg(test)]
mod expected_delay_tests;
pub mod fixed;
pub mod meter;
pub mod mode;
pub mod netcas;
pub mod orthus;
pub mod orthus_paper;
pub mod profile;
pub mod random;
pub mod shared;
pub mod splitter;
#[cfg(test)]
mod stations;
#[cfg(test)]
mod world;

pub use climb::Climb;
pub use expected_delay::ExpectedDelay;
pub use meter::{Meter, PathTick, Tick};
pub use profile::Profile;
pub use shared::{Dispatch, SetShare, Shared};
pub use splitter::{SplitConfig, SplitKind, SplitState, Splitter};

/// Paths that a hit may have at most.
pub const PATHS_MAX: usize = 4;

/// A control period, where a policy asks for no other.
pub const PERIOD_NS: u64 = 100_000_000;

/// A way to serve a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(u8);

impl Path {
    /// The cache disk.
    pub const DISK: Self = Self(0);
    /// The back end.
    pub const BACKEND: Self = Self(1);

    /// The `index`-th path: 0 and 1 are [`Self::DISK`] and [`Self::BACKEND`], others are peers.
    ///
    /// # Panics
    /// If there is no such path.
    #[must_use]
    pub fn new(index: usize) -> Self {
        assert!(index < PATHS_MAX, "path {index} of {PATHS_MAX}");
        Self(index as u8)
    }

    /// Its place in arrays of [`PATHS_MAX`].
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Paths that may serve a hit. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSet(u8);

impl PathSet {
    /// The cache disk and the back end.
    pub const DISK_AND_BACKEND: Self = Self(0b11);

    /// These paths.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn of(paths: &[Path]) -> Self {
        let bits = paths.iter().fold(0, |bits, path| bits | 1 << path.0);
        assert!(bits != 0, "a hit has a path");
        Self(bits)
    }

    /// Whether `path` is one of them.
    #[must_use]
    pub fn has(self, path: Path) -> bool {
        self.0 >> path.0 & 1 == 1
    }

    /// The first of them.
    #[must_use]
    pub fn first(self) -> Path {
        Path(self.0.trailing_zeros() as u8)
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Path> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let first = (left != 0).then(|| Self(left).first());
            left &= left.wrapping_sub(1);
            first
        })
    }
}

/// A hit to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Bytes to read.
    pub bytes: u32,
    /// Who may serve it.
    pub paths: PathSet,
}

/// What a path is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A read whose path was chosen.
    Hit,
    /// A read that had no choice.
    Miss,
    /// A write: it takes of what the path can bear, and how long it takes says nothing of reads.
    Write,
}

/// A read or a write that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Who served it.
    pub path: Path,
    /// What it was.
    pub kind: Use,
    /// Bytes read or written.
    pub bytes: u32,
    /// When it ended.
    pub now_ns: u64,
    /// From its order to its end.
    pub latency_ns: u64,
    /// What was in flight on the path when it was ordered, itself included.
    pub in_flight: InFlight,
}

/// What is in flight on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InFlight {
    /// Reads and writes.
    pub all: u32,
    /// Of them, reads.
    pub reads: u32,
}

/// How a policy moves through its life (NetCAS, section III-H, Fig. 7); those without one are always stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is known of the paths.
    NoTable,
    /// The detector gathers its baselines.
    Warmup,
    /// The share is that of the profile.
    #[default]
    Stable,
    /// The share follows what is measured.
    Congestion,
}

/// What a policy believes, for metrics and `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Share of hits that the cache disk is to serve, 0 to 1.
    pub disk_share: f64,
    /// See [`Mode`].
    pub mode: Mode,
    /// How congested the back end seems, 0 to 1000.
    pub severity_permil: u32,
    /// What each path is thought to deliver, in bytes a second; 0 where it is not known.
    pub bytes_per_second: [f64; PATHS_MAX],
    /// How long a read of each path is thought to take now; 0 where it is not known.
    pub latency_ns: [u64; PATHS_MAX],
    /// How many requests each path is filled with before others are preferred; 0 where the policy has no such window.
    pub window: [u32; PATHS_MAX],
}

/// A policy that chooses a path for each hit.
pub trait Split {
    /// The path of `hit`; one of [`Hit::paths`].
    fn choose(&mut self, hit: &Hit, meter: &Meter) -> Path;

    /// A read or a write ended on a path, split or not.
    fn ended(&mut self, _done: &Done) {}

    /// A control period ended.
    fn tick(&mut self, tick: &Tick);

    /// What it believes now.
    fn report(&self) -> Report;

    /// How long a control period should be.
    fn period_ns(&self) -> u64 {
        PERIOD_NS
    }

    /// The profile that it goes by, with what it observed; `None` if it needs none.
    fn profile(&self) -> Option<&Profile> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_paths_in_order() {
        let peer = Path::new(2);
        let set = PathSet::of(&[peer, Path::DISK]);
        assert!(set.has(Path::DISK) && set.has(peer) && !set.has(Path::BACKEND));
        assert_eq!(set.first(), Path::DISK);
        assert!(set.iter().eq([Path::DISK, peer]));
    }
}
