//! Decides: published cache algorithms, one a file, pure and without allocation on access.
//!
//! | module | answers |
//! |---|---|
//! | [`evict`] | which page leaves when room is needed |
//! | [`admit`] | whether a missed page is worth a write to the cache disk |
//! | [`prefetch`] | whether a request continues a sequential stream |
//! | [`queue`] | which operation a device that is shared does next |
//! | [`split`] | which path serves a hit |
//! | [`rng`] | seeded pseudo-random numbers, and the mixer for key hashes |
//!
//! Nothing here reads a clock, draws entropy or holds payload. Time, seeds and keys are arguments,
//! so that the cache, the simulator and trace replay run the very same code and replay from a seed.
//!
//! Keys arrive as 64-bit hashes. Ghost entries keep only a few bits of them, so the bits must be well
//! mixed: [`rng::mix64`] over the key is enough.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admit;
pub mod evict;
pub mod prefetch;
pub mod queue;
pub mod rng;
pub mod split;
