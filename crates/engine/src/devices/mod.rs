//! Devices: what holds the bytes, and the layers that may be put over any of them.
//!
//! | holds bytes | is a layer |
//! |---|---|
//! | [`mod@file`]: a file or block device, over io_uring | [`paced`]: a rate and a latency |
//! | [`nbd`]: an export of an NBD server | [`faulty`]: errors, delays and hangs by rule |
//! | [`memory`]: RAM | [`recording`]: counts by kind |
//! | [`absent`]: nothing | [`sectors`]: 512-byte sectors over larger ones |
//! | | [`logged`]: a write-back log before a back end |
//! | | [`shared`]: one device for several volumes, by weight |
//! | | [`mirrored`]: a log on two devices |
//!
//! [`spec`] opens a device from what a user wrote; [`conformance`] holds every one of them to the contract in
//! [`crate::device`].

pub mod absent;
pub(crate) mod check;
pub mod conformance;
pub mod faulty;
pub mod file;
pub mod logged;
pub mod memory;
pub mod mirrored;
pub mod nbd;
pub mod paced;
mod pending;
pub mod recording;
#[cfg(test)]
pub(crate) mod scripted;
pub mod sectors;
pub mod shared;
pub mod spec;
