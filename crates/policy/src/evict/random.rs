//! Random: any entry leaves, each with the same chance.
//!
//! L. Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer", IBM Systems Journal
//! 5(2), 1966. Blind, so nothing can fool it: on loops just larger than the cache it beats LRU (.5364
//! against .6488 on P6 at 10 % of the objects). It is one of the experts that weight-sharing needs.
//!
//! Members stand in a dense array, and each slot knows its place there (in its `prev` link, for there is
//! no list). Insertion appends, removal fills the gap with the last member, a victim is drawn by index.
//! If the drawn member is busy, its neighbours in the array are taken in turn: the array's order says
//! nothing about use, so the choice stays blind.
//!
//! Memory: the links, and 4 bytes for each of `entries_max`, reserved at the start so that no
//! insertion allocates. The other policies do not pay this.
//!
//! Invariant: `members[links.prev(slot)] == slot` for each member.
//!
//! Limits: naming a victim twice may name two. The sequence follows from the seed alone.

use super::{BUSY_SKIPS_MAX, Evict, Links, Occupancy, Removal};
use crate::rng::Rng;
use alloc::vec::Vec;

/// Uniformly random eviction.
#[derive(Debug)]
pub struct Random {
    occupancy: Occupancy,
    members: Vec<u32>,
    entries_max: u32,
    rng: Rng,
}

impl Random {
    /// An empty instance of at most `entries_max` entries.
    pub fn new(capacity: u64, entries_max: u32, seed: u64) -> Self {
        Self {
            occupancy: Occupancy::new(capacity),
            members: Vec::with_capacity(entries_max as usize),
            entries_max,
            rng: Rng::new(seed),
        }
    }
}

impl Evict for Random {
    #[inline]
    fn inserted(&mut self, links: &mut Links, slot: u32, _key_hash: u64, weight: u32) {
        let place = self.members.len() as u32;
        assert!(place < self.entries_max, "slot {slot} is one more than the {place} entries foreseen");
        self.occupancy.add(weight);
        links.hold(slot, weight, 0);
        links.set_prev(slot, place);
        self.members.push(slot);
    }

    #[inline]
    fn hit(&mut self, links: &mut Links, slot: u32) {
        debug_assert!(links.is_held(slot), "slot {slot} is hit while it is free");
    }

    fn victim(&mut self, _links: &mut Links, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.members.is_empty() {
            return None;
        }
        let (before, from) = {
            let drawn = self.rng.below(self.members.len() as u32);
            self.members.split_at(drawn as usize)
        };
        from.iter().chain(before).take(BUSY_SKIPS_MAX as usize + 1).copied().find(|&slot| !busy(slot))
    }

    #[inline]
    fn removed(&mut self, links: &mut Links, slot: u32, _why: Removal) {
        self.occupancy.sub(links.weight(slot));
        let place = links.prev(slot);
        let gone = self.members.swap_remove(place as usize);
        assert!(gone == slot, "slot {slot} is not a member here");
        if let Some(&moved) = self.members.get(place as usize) {
            links.set_prev(moved, place);
        }
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

    /// The members; any of them that is idle may be named.
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
        fn agrees(&mut self, named: Option<u32>, busy: &[bool]) -> bool {
            match named {
                Some(slot) => self.0.contains(&slot) && !busy[slot as usize],
                None => self.victim(busy).is_none(),
            }
        }
    }

    #[test]
    fn equals_the_naive_model_under_random_use() {
        oracle::check(|capacity, slots| (Random::new(capacity, slots, 5), Naive::default()));
    }

    #[test]
    fn gives_up_after_the_stated_number_of_busy_entries() {
        oracle::check_busy_bound(|capacity| Random::new(capacity, capacity as u32, 1));
    }

    #[test]
    fn names_each_member_equally_often_and_replays_from_its_seed() {
        let mut links = Links::new(10);
        let mut other_links = Links::new(10);
        let mut random = Random::new(10, 10, 42);
        let mut same_seed = Random::new(10, 10, 42);
        for slot in 0..10 {
            random.inserted(&mut links, slot, 0, 1);
            same_seed.inserted(&mut other_links, slot, 0, 1);
        }
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            let named = random.victim(&mut links, |_| false);
            assert_eq!(named, same_seed.victim(&mut other_links, |_| false));
            counts[named.unwrap() as usize] += 1;
        }
        // Five standard deviations of a binomial(100 000, 0.1) are 475.
        assert!(counts.iter().all(|&n| n.abs_diff(10_000) < 475), "{counts:?}");
    }
}
