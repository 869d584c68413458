//! What a shard waits on: the one place where time passes.
//!
//! The real one sleeps in io_uring until something completes; the simulator's moves virtual time to the next event.

/// Time, and waiting.
pub trait Reactor {
    /// Now: nanoseconds of a monotonic clock.
    fn now_ns(&self) -> u64;

    /// Returns when anything happened that a device or front end should be polled for, or at `until_ns`, whichever
    /// comes first. Submits what was gathered since the last call.
    fn wait(&mut self, until_ns: u64);
}
