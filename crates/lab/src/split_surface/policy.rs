//! The policies on trial, each as it starts at a point of the table.

use super::surface::{POINTS, Point};
use super::world::BLOCK_BYTES;
use forebay_policy::split::climb::Climb;
use forebay_policy::split::detector::{PaperDetector, Unwatched};
use forebay_policy::split::fixed::Fixed;
use forebay_policy::split::netcas::NetCas;
use forebay_policy::split::orthus::Orthus;
use forebay_policy::split::orthus_paper::OrthusPaper;
use forebay_policy::split::profile::{self, Profile, Row};
use forebay_policy::split::{Path, SetShare};

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

/// What NetCAS' authors recommend, and nothing else of NetCAS.
pub const FORMULA: &str = "formula";
/// The behaviour of its published code.
pub const ORTHUS: &str = "orthus";
/// Whose steady state the bars are about.
pub const OURS: &str = "climb";

/// All, in the order of the tables.
pub const POLICIES: &[Policy] = &[
    Policy { name: "cache-only", make: |_| Box::new(Fixed::CACHE_ONLY) },
    Policy { name: "backend-only", make: |_| Box::new(Fixed::BACKEND_ONLY) },
    Policy { name: "static-best", make: |start| Box::new(Fixed::new(start.point.best_share())) },
    Policy { name: FORMULA, make: |start| Box::new(Fixed::new(formula(start.point))) },
    Policy {
        name: "netcas",
        make: |_| Box::new(NetCas::new(measured(), Unwatched, PaperDetector::new(Path::BACKEND))),
    },
    Policy { name: ORTHUS, make: |_| Box::new(Orthus::new()) },
    Policy { name: "orthus-paper", make: |_| Box::new(OrthusPaper::new(best_shares())) },
    Policy { name: OURS, make: |_| Box::new(Climb::default()) },
];

/// NetCAS' formula (section III-E) with what each path delivers alone.
fn formula(point: &Point) -> f64 {
    point.cache_only() / (point.cache_only() + point.backend_only())
}

fn load(point: &Point) -> profile::Point {
    profile::Point { block_bytes: BLOCK_BYTES as u32, in_flight: point.depth, submitters: point.jobs }
}

/// The profile that measuring each path alone would give, at every point.
fn measured() -> Profile {
    let rate = |reads_per_second: f64| reads_per_second * BLOCK_BYTES as f64;
    let alone = |point: &Point| [rate(point.cache_only()), rate(point.backend_only())];
    let rows = POINTS.iter().map(|point| Row::measured(load(point), alone(point)));
    match Profile::from_rows(rows) {
        Ok(profile) => profile,
        Err((row, error)) => panic!("row {row} of the table is none of a profile: {error:?}"),
    }
}

fn best_shares() -> Vec<(profile::Point, f64)> {
    POINTS.iter().map(|point| (load(point), point.best_share())).collect()
}
