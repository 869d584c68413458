//! Does: runs the cache. One thread a shard: wait, step, perform.
#![forbid(unsafe_code)]

pub mod attach;
pub mod device;
pub mod devices;
pub mod front;
pub mod reactor;
pub mod ring_reactor;
pub mod shard;
pub mod state;
