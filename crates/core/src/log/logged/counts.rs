//! What a logged back end did so far.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedCounts {
    /// Groups written to the log.
    pub groups: u64,
    /// Their bytes, descriptors and what lies between records included.
    pub group_bytes: u64,
    /// Of these, what clients wrote.
    pub payload_bytes: u64,
    /// Flushes of the log's disk.
    pub log_flushes: u64,
    /// Tails written.
    pub tails: u64,
    /// Runs that the back end took.
    pub runs: u64,
    /// Their bytes.
    pub run_bytes: u64,
    /// Runs that failed; each is tried again.
    pub failed_runs: u64,
    /// Time in which a change waited for its turn, because the log fills.
    pub throttled_ns: u64,
    /// Changes that the back end took past the log.
    pub bypasses: u64,
    /// Their bytes.
    pub bypass_bytes: u64,
    /// Those that failed there, and were logged.
    pub failed_bypasses: u64,
    /// Flushes of the back end that went well.
    pub backend_flushes: u64,
    /// Those that failed; what they covered is written again.
    pub failed_flushes: u64,
}
