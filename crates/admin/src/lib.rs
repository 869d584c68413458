//! Does: metrics, health and control over HTTP, on loopback, in a thread of its own.
//!
//! What the endpoint shows and does comes through one trait, [`Control`]; this crate knows no shard. A scrape costs one
//! [`Snapshot`], so the hit path pays for nothing but its own counters.
//!
//! 1. [`AdminServer`] listens and bounds: connections, header size, time.
//! 2. [`guard`] refuses requests that a web page in the operator's browser was made to send.
//! 3. [`route`] says what is asked; [`Control`] answers; [`metrics`] or JSON says it.
//!
//! hyper on a single-threaded tokio does the HTTP. Rejected: tiny_http, which is lighter but has had no release for
//! years; and serving from the shard's loop, where a slow scraper would have to be one more client to defend against.
#![forbid(unsafe_code)]

mod answer;
mod control;
mod gateway;
mod guard;
mod latency;
mod metrics;
mod route;
mod server;
mod snapshot;

pub use control::{Control, ControlError, ErrorBody, ErrorKind, Measure, PathRate, State};
pub use gateway::{
    ExplainedObject, ForgottenObjects, FoundObjects, Gateway, GatewayRequests, ObjectExtent, ObjectVersion,
    UncachedAnswer,
};
pub use latency::Latency;
pub use metrics::reference as metrics_reference;
pub use route::reference as api_reference;
pub use server::{AdminError, AdminServer};
pub use snapshot::{
    Devices, Disk, LostRange, Nbd, PathEstimate, ProfileNote, Queues, Recovery, Snapshot, Split, Status, Tier, Volume,
    VolumeStatus, WriteLog,
};
