//! The policies on trial, each as it starts at a point of the table.

use super::surface::Point;
use forebay_policy::split::SetShare;
use forebay_policy::split::climb::Climb;
use forebay_policy::split::fixed::Fixed;

/// What a policy may know when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Where it runs. Only those that are given a profile may look at it.
    pub point: &'a Point,
    /// For those that draw.
    pub seed: u64,
}

/// A policy on trial.
pub struct Policy {
    /// In cells and tables.
    pub name: &'static str,
    /// From a cold start.
    pub make: fn(&Start<'_>) -> Box<dyn SetShare>,
}

/// Sends everything to the cache disk.
pub const CACHE_ONLY: &str = "cache-only";
/// Whose steady state the bars are about.
pub const OURS: &str = "climb";

/// All, in the order of the tables.
pub const POLICIES: &[Policy] = &[
    Policy { name: CACHE_ONLY, make: |_| Box::new(Fixed::CACHE_ONLY) },
    Policy { name: "backend-only", make: |_| Box::new(Fixed::BACKEND_ONLY) },
    Policy { name: "static-best", make: |start| Box::new(Fixed::new(start.point.best_share())) },
    Policy { name: OURS, make: |_| Box::new(Climb::default()) },
];
