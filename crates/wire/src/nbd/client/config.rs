//! What the owner of a client sets: counts, bounds and times.

/// Limits and times of a client. All bounds are hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Connections where the export allows several: 1 to 16.
    pub connections_max: u8,
    /// Requests in flight on one connection: 1 to 1,024.
    pub in_flight_max: u16,
    /// Operations submitted and not completed: 1 to 65,536.
    pub outstanding_max: u32,
    /// Payload of held writes. No single write may be longer, so at least one page. 64 MiB is plenty.
    pub held_bytes_max: u64,
    /// Held writes, trims and write-zeroes: 1 to 65,536.
    pub held_count_max: u32,
    /// From submission to failure.
    pub request_timeout_ns: u64,
    /// From `Connect` to the end of the handshake.
    pub connect_timeout_ns: u64,
    /// The first delay before connecting again; doubles each time.
    pub backoff_min_ns: u64,
    /// The longest delay. A connection that lived that long starts again from the first.
    pub backoff_max_ns: u64,
    /// How long a server may go on working on what it received over a connection that we gave up. Writes wait for it.
    pub settle_ns: u64,
    /// Seeds the jitter of the delays.
    pub seed: u64,
}

impl Config {
    /// Checks the ranges that the fields name.
    ///
    /// # Panics
    /// When one is broken: whoever reads settings from a user checks them there, where the line is known.
    pub(super) fn assert_sound(&self) {
        assert!((1..=16).contains(&self.connections_max), "connections_max");
        assert!((1..=1024).contains(&self.in_flight_max), "in_flight_max");
        assert!((1..=65_536).contains(&self.outstanding_max), "outstanding_max");
        assert!(self.held_bytes_max >= 4096, "held_bytes_max");
        assert!((1..=65_536).contains(&self.held_count_max), "held_count_max");
        assert!(self.request_timeout_ns > 0, "request_timeout_ns");
        assert!(self.connect_timeout_ns > 0, "connect_timeout_ns");
        assert!(self.backoff_min_ns > 0 && self.backoff_min_ns <= self.backoff_max_ns, "backoff_min_ns");
    }
}
