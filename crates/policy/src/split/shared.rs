//! A share of the hits for the cache disk, decided once a control period and enforced request by request.
//!
//! NetCAS (Hwang et al., section III-F) tells the ratio from its enforcement: the first may cost what a control period
//! allows, the second is on every hit's way. A hit that only one path can serve does not count against the share.

use super::{Hit, Meter, PERIOD_NS, Path, PathSet, Profile, Report, Split, Tick};

/// Decides the share.
pub trait SetShare {
    /// The share of hits that the cache disk is to serve from now on, 0 to 1.
    fn set_share(&mut self, tick: &Tick) -> f64;

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

/// Enforces the share.
pub trait Dispatch {
    /// The share of requests that go to the cache disk from now on, 0 to 1.
    fn set_share(&mut self, disk_share: f64);

    /// Whether the next request goes to the cache disk.
    fn next_is_disk(&mut self) -> bool;
}

/// A [`SetShare`] and a [`Dispatch`], as one policy.
#[derive(Clone, Debug)]
pub struct Shared<S, D> {
    share: S,
    dispatch: D,
}

impl<S: SetShare, D: Dispatch> Shared<S, D> {
    /// Both together; until the first tick the share is that of the report.
    pub fn new(share: S, mut dispatch: D) -> Self {
        dispatch.set_share(share.report().disk_share);
        Self { share, dispatch }
    }
}

impl<S: SetShare, D: Dispatch> Split for Shared<S, D> {
    fn choose(&mut self, hit: &Hit, _meter: &Meter) -> Path {
        if hit.paths != PathSet::DISK_AND_BACKEND {
            return hit.paths.first();
        }
        if self.dispatch.next_is_disk() { Path::DISK } else { Path::BACKEND }
    }

    fn tick(&mut self, tick: &Tick) {
        let share = self.share.set_share(tick);
        assert!((0.0..=1.0).contains(&share), "a share of {share}");
        self.dispatch.set_share(share);
    }

    fn report(&self) -> Report {
        self.share.report()
    }

    fn period_ns(&self) -> u64 {
        self.share.period_ns()
    }

    fn profile(&self) -> Option<&Profile> {
        self.share.profile()
    }
}
