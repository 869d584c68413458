//! Limits, as plain data.
//!
//! How clients share a shard is in [`crate::pool`].

use std::time::Duration;

use crate::endpoint::Endpoint;

/// Frames that the longest request pins.
const REQUEST_PAGES_MAX: u32 = forebay_core::REQUEST_PAGES_MAX as u32;

/// What connections may hold of their shard at a time. Beyond it, nothing more is read from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Requests of one connection that are not yet answered on the wire.
    pub requests_max: u32,
    /// Requests to the core of all connections together, and how many of these are each connection's own.
    pub core_requests: Share,
    /// Frames that these pin, one for each page that a request touches; likewise.
    pub frames: Share,
    /// A client that takes no byte of its replies, or does not deliver a payload, for this long is disconnected.
    pub stall_timeout_ns: u64,
    /// The same for a client that has borrowed more than its own part, while others wait for it.
    pub grace_ns: u64,
}

/// A number of things that all clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// All of them.
    pub all_max: u32,
    /// What is kept for each client that may come; times the clients, no more than `all_max`.
    pub own: u32,
}

impl Share {
    /// Half of `all_max` is divided among `clients_max` clients, the other half is common; and at least `common_min`
    /// is common, what the longest request needs.
    ///
    /// # Panics
    /// When there is less than `common_min`.
    #[must_use]
    pub fn halved(all_max: u32, clients_max: u32, common_min: u32) -> Self {
        assert!(common_min <= all_max, "a request may need {common_min} of {all_max}");
        let kept = (all_max / 2).min(all_max - common_min);
        Self { all_max, own: kept / clients_max.max(1) }
    }
}

impl ConnectionLimits {
    /// The most requests that a connection gets, however few connections there are.
    pub const REQUESTS_MAX: u32 = 128;
    /// Requests to the core that are left for orders from elsewhere: an operator's flush, evict and drain.
    pub const REQUESTS_SPARED: u32 = 8;
    /// The usual stall timeout.
    pub const STALL_TIMEOUT_NS: u64 = 30_000_000_000;
    /// The usual grace period.
    pub const GRACE_NS: u64 = 1_000_000_000;

    /// The usual limits for `clients_max` clients of a shard whose core takes `requests_max` requests and pins
    /// `transit_frames` frames at a time. A quarter of these is left to the core, which gives its last ones to hits only.
    ///
    /// # Panics
    /// When there are too few frames for one request of the longest kind, or no request at all.
    #[must_use]
    pub fn share(requests_max: u32, transit_frames: u32, clients_max: u32) -> Self {
        assert!(requests_max > Self::REQUESTS_SPARED, "{requests_max} requests, {} to spare", Self::REQUESTS_SPARED);
        Self {
            requests_max: Self::REQUESTS_MAX,
            core_requests: Share::halved(requests_max - Self::REQUESTS_SPARED, clients_max, 1),
            frames: Share::halved(transit_frames - transit_frames / 4, clients_max, REQUEST_PAGES_MAX),
            stall_timeout_ns: Self::STALL_TIMEOUT_NS,
            grace_ns: Self::GRACE_NS,
        }
    }
}

/// What the front end of one shard is built from.
#[derive(Clone, Copy, Debug)]
pub struct FrontConfig {
    /// Bytes of a page, which is a frame.
    pub page_bytes: u32,
    /// The longest request that the core takes ([`forebay_core::CacheConfig::request_bytes_max`]); longer ones are
    /// split.
    pub request_bytes_max: u32,
    /// Connections that the shard serves at a time.
    pub clients_max: u32,
    /// What they may hold.
    pub connection: ConnectionLimits,
}

impl FrontConfig {
    /// Memory of one connection beside its frames, at most: the staging buffer, and 128 replies that wait with 17
    /// pieces each.
    pub const CLIENT_BYTES_MAX: u64 = 112 << 10;

    /// Operations that the front end may have in flight on its ring: for each client a receive and a wait for room
    /// to send. A departing client's two may still be there when the next arrives.
    #[must_use]
    pub fn ops_max(&self) -> u32 {
        4 * self.clients_max
    }
}

/// What the listener is built from.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen.
    pub endpoints: Vec<Endpoint>,
    /// Handshakes at a time; when one more client comes, the oldest handshake is given up.
    pub handshakes_max: usize,
    /// A handshake that takes longer is given up.
    pub handshake_timeout: Duration,
}

impl ListenerConfig {
    /// Listens at `endpoints` with the usual limits: 64 handshakes at a time, 10 s for each.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self { endpoints, handshakes_max: 64, handshake_timeout: Duration::from_secs(10) }
    }
}
