//! S3-FIFO: three static FIFO queues; a newcomer must be used before it may stay.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO queues are all you need for cache eviction",
//! SOSP 2023, section 4 and algorithm 1. The reason it works: of the objects in a window a tenth of
//! a trace long, 72 % (median) are used once. They should pass through quickly. On w92 at 10 % of the
//! objects it misses .7525, LRU .8049, Belady .6290; on P6 .4536, .6488, .2342. A hit is one saturating
//! write and takes nothing out of any list.
//!
//! 1. Three queues: *small* (10 % of the capacity), *main* (the rest), and a [`Ghost`] of keys (as many as
//!    90 % of the capacity in entries).
//! 2. A key that the ghost remembers is inserted to main, any other to small; its counter starts at 0.
//!    A hit raises the counter, up to 3.
//! 3. When main is above its share, or small is empty, main names the victim; else small does.
//! 4. Small looks at its oldest entry: with a counter of 2 or more it moves to main, counter 0; else it
//!    is the victim, and once evicted its key enters the ghost.
//! 5. Main looks at its oldest entry: with a counter above 0 it goes round again with the counter lowered
//!    by 1; else it is the victim. The ghost does not learn of it.
//!
//! The threshold of 2 is libCacheSim's reading, and its numbers are the ones we compare with; the paper's
//! algorithm says "more than 1", which is the same. Since December 2024 libCacheSim also fills main before
//! the first eviction; the paper does not, and nor do we. With an exact ghost and no bound on moves these
//! steps give libCacheSim's miss ratios to all four digits on six traces; as they are, within .0012.
//!
//! Bounds: one call moves at most 256 entries, then takes the next idle one whatever its counter
//! says. The average is below one move a call; the bound cuts the rare sweep over a main queue in which all
//! has been used.
//!
//! Invariants: small and main partition the entries; small's and main's weights sum to the instance's.
//!
//! Memory: the links, and 3.6 bytes of ghost for each of `entries_max`.
//!
//! Limits: the ghost counts entries, not weight. With entries of several units it remembers up
//! to 90 % of `entries_max`. The ghost's size and edge are approximate as its module says.

use super::{BUSY_SKIPS_MAX, Evict, Ghost, Links, List, NIL, Occupancy, Removal};

/// Entries that one call of `victim` moves within and between the queues.
const MOVES_MAX: u32 = 256;

/// The entry's counter, in its mark.
const COUNT: u8 = 0b011;
/// Set in the mark of an entry in main.
const IN_MAIN: u8 = 0b100;

/// The shares and the threshold; the default is the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct S3FifoParameters {
    /// Small queue, in per cent of the capacity.
    pub small_percent: u8,
    /// Ghost keys, in per cent of the capacity.
    pub ghost_percent: u8,
    /// Uses after insertion, 1 to 3, that take an entry from small to main.
    pub main_threshold: u8,
}

impl Default for S3FifoParameters {
    fn default() -> Self {
        Self { small_percent: 10, ghost_percent: 90, main_threshold: 2 }
    }
}

/// Simple, scalable FIFO with three static queues.
#[derive(Debug)]
pub struct S3Fifo {
    parameters: S3FifoParameters,
    occupancy: Occupancy,
    small: List,
    small_weight: u64,
    small_capacity: u64,
    main: List,
    ghost: Ghost,
    entries_max: u32,
}

/// What one call of `victim` may still spend.
struct Budget {
    moves: u32,
    skips: u32,
}

impl S3Fifo {
    /// An empty instance of at most `entries_max` entries, with the paper's parameters.
    pub fn new(capacity: u64, entries_max: u32) -> Self {
        Self::with_parameters(capacity, entries_max, S3FifoParameters::default())
    }

    /// An empty instance of at most `entries_max` entries.
    ///
    /// # Panics
    /// When a share is above 100 % or the threshold is not in 1..=3.
    pub fn with_parameters(capacity: u64, entries_max: u32, parameters: S3FifoParameters) -> Self {
        assert!(
            parameters.small_percent <= 100
                && parameters.ghost_percent <= 100
                && (1..=COUNT).contains(&parameters.main_threshold),
            "{parameters:?} are out of range"
        );
        let ghost_max = percent_of(u64::from(entries_max), parameters.ghost_percent) as u32;
        let mut s3fifo = Self {
            parameters,
            occupancy: Occupancy::new(capacity),
            small: List::EMPTY,
            small_weight: 0,
            small_capacity: 0,
            main: List::EMPTY,
            ghost: Ghost::new(ghost_max, 0),
            entries_max,
        };
        s3fifo.set_capacity(capacity);
        s3fifo
    }

    fn main_is_over(&self) -> bool {
        let main_weight = self.occupancy.weight - self.small_weight;
        main_weight > self.occupancy.capacity - self.small_capacity
    }

    fn victim_in_small(
        &mut self,
        links: &mut Links,
        budget: &mut Budget,
        busy: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut slot = self.small.tail();
        while slot != NIL {
            let newer = links.prev(slot);
            if links.mark(slot) >= self.parameters.main_threshold && budget.moves > 0 {
                budget.moves -= 1;
                self.small.unlink(links, slot);
                self.small_weight -= u64::from(links.weight(slot));
                links.set_mark(slot, IN_MAIN);
                self.main.push_head(links, slot);
            } else if !busy(slot) {
                return Some(slot);
            } else {
                budget.skips = budget.skips.checked_sub(1)?;
            }
            slot = newer;
        }
        None
    }

    fn victim_in_main(
        &mut self,
        links: &mut Links,
        budget: &mut Budget,
        busy: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut slot = self.main.tail();
        while slot != NIL {
            let mut newer = links.prev(slot);
            if links.mark(slot) & COUNT > 0 && budget.moves > 0 {
                budget.moves -= 1;
                links.set_mark(slot, links.mark(slot) - 1);
                self.main.move_to_head(links, slot);
                // The newest of all has only itself to go round with.
                newer = if newer == NIL { slot } else { newer };
            } else if !busy(slot) {
                return Some(slot);
            } else {
                budget.skips = budget.skips.checked_sub(1)?;
            }
            slot = newer;
        }
        None
    }
}

impl Evict for S3Fifo {
    #[inline]
    fn inserted(&mut self, links: &mut Links, slot: u32, key_hash: u64, weight: u32) {
        self.occupancy.add(weight);
        if self.ghost.take(key_hash) {
            links.hold(slot, weight, IN_MAIN);
            self.main.push_head(links, slot);
        } else {
            links.hold(slot, weight, 0);
            self.small.push_head(links, slot);
            self.small_weight += u64::from(weight);
        }
    }

    #[inline]
    fn hit(&mut self, links: &mut Links, slot: u32) {
        debug_assert!(links.is_held(slot), "slot {slot} is hit while it is free");
        let mark = links.mark(slot);
        if mark & COUNT != COUNT {
            links.set_mark(slot, mark + 1);
        }
    }

    fn victim(&mut self, links: &mut Links, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut budget = Budget { moves: MOVES_MAX, skips: BUSY_SKIPS_MAX };
        if self.main_is_over() || self.small.is_empty() {
            self.victim_in_main(links, &mut budget, &mut busy)
                .or_else(|| self.victim_in_small(links, &mut budget, &mut busy))
        } else {
            self.victim_in_small(links, &mut budget, &mut busy)
                .or_else(|| self.victim_in_main(links, &mut budget, &mut busy))
        }
    }

    #[inline]
    fn removed(&mut self, links: &mut Links, slot: u32, why: Removal) {
        let weight = links.weight(slot);
        self.occupancy.sub(weight);
        if links.mark(slot) & IN_MAIN != 0 {
            self.main.unlink(links, slot);
        } else {
            self.small.unlink(links, slot);
            self.small_weight -= u64::from(weight);
            if let Removal::Evicted { key_hash } = why {
                self.ghost.remember(key_hash);
            }
        }
        links.free(slot);
    }

    fn set_capacity(&mut self, capacity: u64) {
        self.occupancy.capacity = capacity;
        self.small_capacity = percent_of(capacity, self.parameters.small_percent).max(1).min(capacity);
        let entries = capacity.min(u64::from(self.entries_max));
        self.ghost.set_capacity(percent_of(entries, self.parameters.ghost_percent) as u32);
    }

    #[inline]
    fn occupancy(&self) -> Occupancy {
        self.occupancy
    }
}

fn percent_of(whole: u64, percent: u8) -> u64 {
    (u128::from(whole) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests;
