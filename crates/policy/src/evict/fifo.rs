//! FIFO: the entry that came first leaves, used or not.
//!
//! L. Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer", IBM Systems Journal
//! 5(2), 1966. The baseline with the cheapest hit there is: nothing is written. It misses a little more
//! than LRU on most traces (.3666 against .3348 on OLTP at 10 % of the objects), and less where loops
//! rule (.6103 against .6488 on P6). S3-FIFO is built of three of these.
//!
//! One list in order of arrival; the victim is the tail.
//!
//! Memory: the links only.

use super::{BUSY_SKIPS_MAX, Evict, Links, List, Occupancy, Removal};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    occupancy: Occupancy,
    queue: List,
}

impl Fifo {
    /// An empty instance.
    pub const fn new(capacity: u64) -> Self {
        Self { occupancy: Occupancy::new(capacity), queue: List::EMPTY }
    }
}

impl Evict for Fifo {
    #[inline]
    fn inserted(&mut self, links: &mut Links, slot: u32, _key_hash: u64, weight: u32) {
        self.occupancy.add(weight);
        links.hold(slot, weight, 0);
        self.queue.push_head(links, slot);
    }

    #[inline]
    fn hit(&mut self, links: &mut Links, slot: u32) {
        debug_assert!(links.is_held(slot), "slot {slot} is hit while it is free");
    }

    #[inline]
    fn victim(&mut self, links: &mut Links, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut skips = BUSY_SKIPS_MAX;
        self.queue.oldest_idle(links, &mut skips, &mut busy)
    }

    #[inline]
    fn removed(&mut self, links: &mut Links, slot: u32, _why: Removal) {
        self.occupancy.sub(links.weight(slot));
        self.queue.unlink(links, slot);
        links.free(slot);
    }

    fn set_capacity(&mut self, capacity: u64) {
        self.occupancy.capacity = capacity;
    }

    #[inline]
    fn occupancy(&self) -> Occupancy {
        self.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::oracle::{self, Model};
    use alloc::vec::Vec;

    /// Slots, first in first.
    #[derive(Default)]
    struct Naive(Vec<u32>);

    impl Model for Naive {
        fn inserted(&mut self, slot: u32, _key_hash: u64, _weight: u32) {
            self.0.push(slot);
        }
        fn hit(&mut self, _slot: u32) {}
        fn removed(&mut self, slot: u32, _why: Removal) {
            self.0.retain(|&s| s != slot);
        }
        fn victim(&mut self, busy: &[bool]) -> Option<u32> {
            self.0.iter().copied().find(|&s| !busy[s as usize])
        }
    }

    #[test]
    fn equals_the_naive_model_under_random_use() {
        oracle::check(|capacity, _| (Fifo::new(capacity), Naive::default()));
    }

    #[test]
    fn gives_up_after_the_stated_number_of_busy_entries() {
        oracle::check_busy_bound(Fifo::new);
    }

    #[test]
    fn evicts_in_order_of_arrival_whatever_is_hit() {
        let mut links = Links::new(3);
        let mut fifo = Fifo::new(3);
        for slot in 0..3 {
            fifo.inserted(&mut links, slot, 0, 1);
        }
        fifo.hit(&mut links, 0);
        assert_eq!(oracle::drain(&mut fifo, &mut links), [0, 1, 2]);
    }
}
