//! Eviction: which page leaves when room is needed.
//!
//! # The trait
//! [`Evict`] is told what happened to the entries of one instance and names who should leave. The owner
//! (the cache) keeps the pages, their keys and their slots; a policy keeps an order. The parts:
//! 1. [`Links`]: 12 bytes a slot, one for the whole pool, passed to every call. Several instances of
//!    several policies share it; each slot is held by at most one.
//! 2. An instance: a capacity in units of weight (the owner's unit: pages, KiB), the sum of its entries'
//!    weights, and a few list heads.
//! 3. Ghosts, where a policy remembers who left: four bytes an entry, see [`Ghost`].
//!
//! # The order of calls
//! To insert: while not [`Evict::has_room`], ask [`Evict::victim`] for a slot, empty it, say
//! [`Evict::removed`]; then [`Evict::inserted`]. A victim is only *named*. It stays an entry until
//! `removed`, and naming it again gives the same slot if nothing else has happened (but for random).
//! An evicted page may be remembered as a ghost; an invalidated one is not, for its content is gone
//! and says nothing about what is worth keeping.
//!
//! # Busy entries
//! A slot under I/O cannot leave. `victim` asks the owner's `busy` about each candidate, skips the busy
//! and leaves them where they are. After [`BUSY_SKIPS_MAX`] skips it gives up with `None`, and the
//! owner passes the page by: a bounded step matters more than a full search.
//!
//! # Invariants
//! - The weights of an instance never sum to more than its capacity through `inserted`, which asserts it.
//!   A capacity that is lowered leaves the instance over-full until the owner has evicted.
//! - No call allocates, and all but `victim` take constant time.
//! - A victim is an entry of this instance, and was not busy when it was named.
//!
//! # Choosing
//! Object miss ratio, unit sizes, cache in per cent of distinct objects, as libCacheSim gives them
//! (`tests/anchors.rs` reproduces w92 from the trace). The column random is ours: libCacheSim draws a
//! bucket of its hash table, so entries in crowded buckets leave less often.
//!
//! | trace, size | Belady | lru | fifo | lfu | random | s3fifo |
//! |---|---|---|---|---|---|---|
//! | OLTP 1 % | .4024 | .5836 | .6341 | .8235 | .6382 | .5354 |
//! | OLTP 10 % | .2379 | .3348 | .3666 | .5544 | .3769 | .3222 |
//! | w92 1 % | .7926 | .8379 | .8476 | .8497 | .8498 | .8304 |
//! | w92 10 % | .6290 | .8049 | .8054 | .7907 | .7936 | .7525 |
//! | P6, 4 KiB 10 % | .2342 | .6488 | .6103 | .7246 | .5364 | .4536 |
//!
//! S3-FIFO is the one to start with: over a wide set of traces it misses 11.6 % less than LRU at a size
//! of 10 %, and its hit is one write. LRU is safer below 1 %, where S3-FIFO misses 2.9 % more.
//!
//! # Rejected
//! - `dyn Evict`: a call through a table for the cheapest operation there is; [`Policy`] is an enum.
//! - Evicting inside `inserted`: the owner could not refuse a victim that is under I/O.
//! - Weights kept by the owner: a weight that differs between two calls would corrupt the sum silently.

pub mod fifo;
pub mod ghost;
pub mod lfu;
mod links;
pub mod lru;
#[cfg(test)]
mod oracle;
pub mod policy;
pub mod random;
pub mod s3fifo;

pub use fifo::Fifo;
pub use ghost::Ghost;
pub use lfu::Lfu;
pub use links::{LINK_BYTES, Links, WEIGHT_MAX};
pub(crate) use links::{List, NIL};
pub use lru::Lru;
pub use policy::{Policy, PolicyKind, UnknownPolicy};
pub use random::Random;
pub use s3fifo::{S3Fifo, S3FifoParameters};

/// Busy entries that one call of [`Evict::victim`] skips before it gives up.
pub const BUSY_SKIPS_MAX: u32 = 64;

/// Why an entry left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// To make room; the policy may remember it. `key_hash` is the one given at insertion.
    Evicted {
        /// The entry's well-mixed key hash.
        key_hash: u64,
    },
    /// Its content is void (trimmed, overwritten, failed its checksum); nothing is remembered.
    Invalidated,
}

/// How full an instance is, in the owner's unit of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The most that the weights may sum to.
    pub capacity: u64,
    /// The sum of the entries' weights.
    pub weight: u64,
    /// Entries.
    pub len: u32,
}

impl Occupancy {
    pub(crate) const fn new(capacity: u64) -> Self {
        Self { capacity, weight: 0, len: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, weight: u32) {
        let sum = self.weight + u64::from(weight);
        assert!(
            sum <= self.capacity,
            "an entry of weight {weight} is inserted without room: {} of {} are used",
            self.weight,
            self.capacity
        );
        self.weight = sum;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn sub(&mut self, weight: u32) {
        self.weight -= u64::from(weight);
        self.len -= 1;
    }
}

/// An eviction policy: one instance over a share of a slot pool. See the [module](self) for the contract.
///
/// Every call must be given the same [`Links`]. A slot that is inserted twice, or touched while it is free,
/// is the owner's bug and panics.
pub trait Evict {
    /// The page with `key_hash` (well mixed) now fills the free slot `slot`.
    ///
    /// # Panics
    /// When there is no room, the slot is held, or `weight` is not in `1..=WEIGHT_MAX`.
    fn inserted(&mut self, links: &mut Links, slot: u32, key_hash: u64, weight: u32);

    /// The entry in `slot` was used.
    fn hit(&mut self, links: &mut Links, slot: u32);

    /// Names the entry that should leave next, or `None` when there is no entry or too many are busy.
    fn victim(&mut self, links: &mut Links, busy: impl FnMut(u32) -> bool) -> Option<u32>;

    /// The entry in `slot` has left (any entry, not only a named one); the slot is free again.
    fn removed(&mut self, links: &mut Links, slot: u32, why: Removal);

    /// From now on the weights may sum to `capacity`. When they sum to more, the owner evicts
    /// until `has_room(0)`.
    fn set_capacity(&mut self, capacity: u64);

    /// How full the instance is.
    fn occupancy(&self) -> Occupancy;

    /// Whether an entry of `weight` can be inserted without evicting.
    #[inline]
    fn has_room(&self, weight: u32) -> bool {
        let Occupancy { capacity, weight: used, .. } = self.occupancy();
        used + u64::from(weight) <= capacity
    }
}
