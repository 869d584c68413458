//! LRU: the entry that was used longest ago leaves.
//!
//! The common yardstick, and a stack algorithm: a larger cache never misses more (R. Mattson, J. Gecsei,
//! D. Slutz and I. Traiger, "Evaluation Techniques for Storage Hierarchies", IBM Systems Journal 9(2),
//! 1970). It is hard to beat in very small caches and poor under scans and loops: .6488 misses on P6 at
//! 10 % of the objects where S3-FIFO has .4536 and Belady .2342.
//!
//! One list in order of last use. A hit moves the entry to the head (six index writes, none when it is
//! there already), the victim is the tail.
//!
//! Memory: the links only.

use super::{BUSY_SKIPS_MAX, Evict, Links, List, Occupancy, Removal};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    occupancy: Occupancy,
    recency: List,
}

impl Lru {
    /// An empty instance.
    pub const fn new(capacity: u64) -> Self {
        Self { occupancy: Occupancy::new(capacity), recency: List::EMPTY }
    }
}

impl Evict for Lru {
    #[inline]
    fn inserted(&mut self, links: &mut Links, slot: u32, _key_hash: u64, weight: u32) {
        self.occupancy.add(weight);
        links.hold(slot, weight, 0);
        self.recency.push_head(links, slot);
    }

    #[inline]
    fn hit(&mut self, links: &mut Links, slot: u32) {
        assert!(links.is_held(slot), "slot {slot} is hit while it is free");
        self.recency.move_to_head(links, slot);
    }

    #[inline]
    fn victim(&mut self, links: &mut Links, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut skips = BUSY_SKIPS_MAX;
        self.recency.oldest_idle(links, &mut skips, &mut busy)
    }

    #[inline]
    fn removed(&mut self, links: &mut Links, slot: u32, _why: Removal) {
        self.occupancy.sub(links.weight(slot));
        self.recency.unlink(links, slot);
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

    /// Slots, least recently used first.
    #[derive(Default)]
    struct Naive(Vec<u32>);

    impl Model for Naive {
        fn inserted(&mut self, slot: u32, _key_hash: u64, _weight: u32) {
            self.0.push(slot);
        }
        fn hit(&mut self, slot: u32) {
            self.0.retain(|&s| s != slot);
            self.0.push(slot);
        }
        fn removed(&mut self, slot: u32, _why: Removal) {
            self.0.retain(|&s| s != slot);
        }
        fn victim(&mut self, busy: &[bool]) -> Option<u32> {
            self.0.iter().copied().find(|&s| !busy[s as usize])
        }
    }

    #[test]
    fn equals_the_naive_model_under_random_use() {
        oracle::check(|capacity, _| (Lru::new(capacity), Naive::default()));
    }

    #[test]
    fn gives_up_after_the_stated_number_of_busy_entries() {
        oracle::check_busy_bound(Lru::new);
    }

    #[test]
    fn evicts_in_order_of_last_use() {
        let mut links = Links::new(3);
        let mut lru = Lru::new(3);
        for slot in 0..3 {
            lru.inserted(&mut links, slot, 0, 1);
        }
        lru.hit(&mut links, 0);
        assert_eq!(oracle::drain(&mut lru, &mut links), [1, 2, 0]);
    }

    #[test]
    #[should_panic(expected = "inserted while it is held")]
    fn a_slot_held_by_another_instance_cannot_be_inserted() {
        let mut links = Links::new(1);
        Lru::new(1).inserted(&mut links, 0, 0, 1);
        Lru::new(1).inserted(&mut links, 0, 0, 1);
    }

    #[test]
    #[should_panic(expected = "without room")]
    fn an_entry_without_room_cannot_be_inserted() {
        let mut links = Links::new(1);
        Lru::new(2).inserted(&mut links, 0, 0, 3);
    }

    #[test]
    #[should_panic(expected = "hit while it is free")]
    fn a_free_slot_cannot_be_hit() {
        Lru::new(1).hit(&mut Links::new(1), 0);
    }
}
