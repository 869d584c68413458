//! Decides: the cache itself, a state machine without I/O.
//!
//! [`Cache::step`] takes what happened ([`Event`]) and the time, and appends orders ([`Action`]) to a list of fixed
//! capacity. It never sees a byte: events and actions name frames, the engine moves the data and computes checksums.
//! The simulator, the fuzzers and the product run this same code.
//!
//! Follow a read: [`read`] (classify, fetch, answer), then [`store`] (keep what was fetched). Follow a write:
//! [`write`], with its row in [`mode`], its bit in [`intent`], its order in [`activity`]. What is on the cache disk is
//! brought up to date by [`sweep`] and read back by [`recovery`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod activity;
mod answer;
mod cache;
mod config;
mod disk;
mod error;
mod event;
mod fill;
mod flush;
mod hedge;
mod index;
mod intent;
pub mod log;
mod memory;
mod mode;
mod op;
mod page;
mod range;
mod read;
mod recovery;
mod request;
mod split;
mod stats;
mod store;
mod sweep;
mod write;

pub use action::{Action, Actions, Notice, Piece};
pub use cache::Cache;
pub use config::{AdmissionConfig, CacheConfig, Limits, VolumeConfig};
pub use error::{ConfigError, ReplyError};
pub use event::{Event, IoError, SlotRecord};
pub use fill::{BRIDGE_BYTES, PROBE_PAGES_MAX, Residency};
pub use forebay_policy::split::profile::Profile;
pub use forebay_policy::split::{Mode as SplitMode, SplitConfig, SplitKind, SplitState};
pub use mode::WriteMode;
pub use page::{BLOCK_BYTES, CachedRun, FrameId, OpId, PageKey, REQUEST_PAGES_MAX, RequestId, SlotId, VolumeId};
pub use stats::{Gauges, Histogram, Stats, VolumeStats};
