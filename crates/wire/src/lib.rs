//! Decides how bytes are laid out, on the cache disk ([`disk`]) and on the NBD wire ([`nbd`]). No I/O.
//!
//! Every codec turns bytes that somebody else wrote into data, or into an outcome that says why not.
//! No input makes a codec panic, and no length field read from outside sizes an allocation.
//!
//! `no_std` holds for this crate's own code. Its one dependency, `crc32c`, uses `std` to ask the
//! processor for its CRC instructions; a table-driven CRC would cost 10 times the time on the hit path.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bytes;
pub mod disk;
mod error;
pub mod nbd;

pub use error::Error;
