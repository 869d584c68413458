//! What an owner may set, with what it is when nobody does.

use forebay_wire::nbd::client::Config;

const SECOND_NS: u64 = 1_000_000_000;

/// Limits and times of one export; see [`Config`] for their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Connections, where the export allows several.
    pub connections_max: u8,
    /// Requests in flight on one connection.
    pub in_flight_max: u16,
    /// Operations at a time; more are refused.
    pub outstanding_max: u32,
    /// Bytes of unflushed writes kept.
    pub held_bytes_max: u64,
    /// Unflushed writes kept.
    pub held_count_max: u32,
    /// An operation fails after this.
    pub request_timeout_ns: u64,
    /// An attempt to connect fails after this.
    pub connect_timeout_ns: u64,
    /// Seeds the jitter of reconnecting.
    pub seed: u64,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            connections_max: 4,
            in_flight_max: 128,
            outstanding_max: 16384,
            held_bytes_max: 32 << 20,
            held_count_max: 4096,
            request_timeout_ns: 30 * SECOND_NS,
            connect_timeout_ns: 5 * SECOND_NS,
            seed: 0,
        }
    }
}

impl NbdOptions {
    pub(super) fn config(&self) -> Config {
        Config {
            connections_max: self.connections_max,
            in_flight_max: self.in_flight_max,
            outstanding_max: self.outstanding_max,
            held_bytes_max: self.held_bytes_max,
            held_count_max: self.held_count_max,
            request_timeout_ns: self.request_timeout_ns,
            connect_timeout_ns: self.connect_timeout_ns,
            backoff_min_ns: SECOND_NS / 20,
            backoff_max_ns: 5 * SECOND_NS,
            // What a server received is either done within this time or lost with the connection.
            settle_ns: SECOND_NS / 2,
            seed: self.seed,
        }
    }
}
