//! Does: experiments. Each puts policies into a world, and judges them beside what their papers report.
//!
//! A claim such as "the split is never slower than the cache alone" is worth what can be run again. An experiment runs
//! in this process, on any machine, without root, and repeats from its seed. It says what it found as one JSON object,
//! as tables and as plots, and it has bars: what the product promises there.
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | what an experiment is, and the table of them |
//! | [`findings`] | what one found: cells, bars, directions |
//! | [`page`] | the same for people |
//! | [`plot`] | lines over an axis, as SVG |
//! | [`split_surface`] | policies that split hits, on the throughput that NetCAS' authors measured |
//! | `machine` | the cache disk and the back end of the others, in virtual time |
//! | [`split_concurrency`] | the same on the real cache, from one read in flight to 256 |
//! | [`split_contention`] | while strangers come onto the link to the back end, and leave |
//! | [`split_levels`] | while few or many of them are there |
//! | [`split_mixed`] | while clients also write |
//! | [`split_filebench`] | with threads that read files |
//! | [`split_neighbours`] | with several volumes on one disk and one link |
//! | [`split_overhead`] | what it costs where there is nothing to gain |
//! | [`split_profile_cost`] | what a profile costs, and when that is earned back |
//! | `latte` | a local disk and a cloud disk, in virtual time |
//! | [`writeback_throughput`] | writes into a write-back log |
//! | [`writeback_hit_rates`] | reads by hit rate, where both disks have their part |
//! | [`writeback_neighbours`] | several write-back logs on one disk |
//!
//! Names of bars and keys of cells are an interface: docs/experiments.md lists them, and a test compares.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod findings;
mod latte;
mod machine;
pub mod page;
pub mod plot;
pub mod split_concurrency;
pub mod split_contention;
pub mod split_filebench;
pub mod split_levels;
pub mod split_mixed;
pub mod split_neighbours;
pub mod split_overhead;
pub mod split_profile_cost;
pub mod split_surface;
pub mod writeback_hit_rates;
pub mod writeback_neighbours;
pub mod writeback_throughput;

pub use experiment::{EXPERIMENTS, Experiment, Run, find};
pub use findings::Findings;

use std::path::PathBuf;

/// Why an experiment gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It needs what this machine does not have.
    #[error("skipped: {why}")]
    Skipped {
        /// What that is.
        why: String,
    },
    /// A file could not be written: choose another directory.
    #[error("{path}: cannot be written: {cause}; name a directory that you may write to")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A plot could not be drawn: a bug.
    #[error("the plot {name} cannot be drawn: {cause}; report this as a bug")]
    Draw {
        /// The plot.
        name: String,
        /// What the library says.
        cause: String,
    },
}
