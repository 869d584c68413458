//! The clock that every deadline of this crate is measured on.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: what [`crate::Ring::wait`] and [`crate::Op::Timeout`] compare
/// their deadlines with. It does not run while the machine is suspended.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
