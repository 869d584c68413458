//! Queueing: which of the operations that wait for a device goes next.

mod start_time_fair;
#[cfg(test)]
mod start_time_fair_tests;

pub use start_time_fair::{Charge, Share, StartTimeFair};
