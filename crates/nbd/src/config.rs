//! Limits, as plain data.
//!
//! Every client gets the same hard share of a shard, so that no client, slow or hostile, can take what another
//! needs: `clients_max` connections that each hold their whole share still fit. The price is that one connection
//! alone cannot use what the others leave; a client that wants more opens more connections, as NBD clients do.

use std::time::Duration;

use crate::endpoint::Endpoint;

/// What one connection may hold of its shard at a time. Beyond it, nothing more is read from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Requests not yet answered on the wire.
    pub requests_max: u32,
    /// Frames that its requests pin: a request pins one for each page it touches.
    pub frames_max: u32,
    /// A client that takes no byte of its replies, or does not deliver a payload, for this long is disconnected.
    pub stall_timeout_ns: u64,
}

impl ConnectionLimits {
    /// The most requests that a connection gets, however few connections there are.
    pub const REQUESTS_MAX: u32 = 128;
    /// The usual stall timeout.
    pub const STALL_TIMEOUT_NS: u64 = 30_000_000_000;

    /// The equal share of each of `clients_max` clients in a shard that takes `requests_max` requests and pins
    /// `transit_frames` frames at a time. A share is never less than one request of the longest kind: with more
    /// clients than the budget has room for, frames can run out, and requests then wait for each other.
    #[must_use]
    pub fn share(requests_max: u32, transit_frames: u32, clients_max: u32) -> Self {
        let clients_max = clients_max.max(1);
        Self {
            requests_max: (requests_max / clients_max).clamp(1, Self::REQUESTS_MAX),
            frames_max: (transit_frames / clients_max).max(forebay_core::REQUEST_PAGES_MAX as u32),
            stall_timeout_ns: Self::STALL_TIMEOUT_NS,
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
    /// The share of each.
    pub connection: ConnectionLimits,
}

impl FrontConfig {
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
