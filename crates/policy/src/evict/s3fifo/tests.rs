//! S3-FIFO against a model with whole keys and queues that are written as the paper says them.

use super::*;
use crate::evict::oracle::{self, Model};
use alloc::vec::Vec;

struct Entry {
    slot: u32,
    weight: u32,
    count: u32,
}

/// The queues, oldest first. Capacities are so small that the ghost is one set, an exact FIFO.
struct Naive {
    parameters: S3FifoParameters,
    capacity: u64,
    entries_max: u32,
    small: Vec<Entry>,
    main: Vec<Entry>,
    ghost: Vec<u64>,
}

impl Naive {
    fn new(parameters: S3FifoParameters, capacity: u64, entries_max: u32) -> Self {
        Self { parameters, capacity, entries_max, small: Vec::new(), main: Vec::new(), ghost: Vec::new() }
    }

    fn small_capacity(&self) -> u64 {
        let share = self.capacity * u64::from(self.parameters.small_percent) / 100;
        share.max(1).min(self.capacity)
    }

    fn ghost_capacity(&self) -> usize {
        let entries = self.capacity.min(u64::from(self.entries_max));
        (entries * u64::from(self.parameters.ghost_percent) / 100) as usize
    }

    fn take_ghost(&mut self, key_hash: u64) -> bool {
        let Some(age) = self.ghost.iter().rev().position(|&g| g == key_hash) else {
            return false;
        };
        self.ghost.retain(|&g| g != key_hash);
        age < self.ghost_capacity()
    }

    fn victim_in_small(&mut self, busy: &[bool]) -> Option<u32> {
        let mut at = 0;
        while at < self.small.len() {
            if self.small[at].count >= u32::from(self.parameters.main_threshold) {
                let promoted = self.small.remove(at);
                self.main.push(Entry { count: 0, ..promoted });
            } else if busy[self.small[at].slot as usize] {
                at += 1;
            } else {
                return Some(self.small[at].slot);
            }
        }
        None
    }

    fn victim_in_main(&mut self, busy: &[bool]) -> Option<u32> {
        let mut at = 0;
        while at < self.main.len() {
            if self.main[at].count > 0 {
                let mut again = self.main.remove(at);
                again.count -= 1;
                self.main.push(again);
            } else if busy[self.main[at].slot as usize] {
                at += 1;
            } else {
                return Some(self.main[at].slot);
            }
        }
        None
    }
}

fn weight(queue: &[Entry]) -> u64 {
    queue.iter().map(|e| u64::from(e.weight)).sum()
}

impl Model for Naive {
    fn inserted(&mut self, slot: u32, key_hash: u64, entry_weight: u32) {
        let entry = Entry { slot, weight: entry_weight, count: 0 };
        if self.take_ghost(key_hash) {
            self.main.push(entry);
        } else {
            self.small.push(entry);
        }
    }

    fn hit(&mut self, slot: u32) {
        let mut entries = self.small.iter_mut().chain(&mut self.main);
        let entry = entries.find(|e| e.slot == slot).unwrap();
        entry.count = (entry.count + 1).min(3);
    }

    fn removed(&mut self, slot: u32, why: Removal) {
        if let (true, Removal::Evicted { key_hash }) = (self.small.iter().any(|e| e.slot == slot), why) {
            self.ghost.push(key_hash);
            let excess = self.ghost.len().saturating_sub(self.ghost_capacity());
            self.ghost.drain(..excess);
        }
        self.small.retain(|e| e.slot != slot);
        self.main.retain(|e| e.slot != slot);
    }

    fn victim(&mut self, busy: &[bool]) -> Option<u32> {
        let main_over = weight(&self.main) > self.capacity - self.small_capacity();
        if main_over || self.small.is_empty() {
            self.victim_in_main(busy).or_else(|| self.victim_in_small(busy))
        } else {
            self.victim_in_small(busy).or_else(|| self.victim_in_main(busy))
        }
    }

    fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }
}

#[test]
fn equals_the_naive_model_under_random_use() {
    oracle::check(|capacity, slots| {
        let parameters = S3FifoParameters::default();
        (S3Fifo::new(capacity, slots), Naive::new(parameters, capacity, slots))
    });
}

#[test]
fn equals_the_naive_model_with_other_parameters() {
    let parameters = S3FifoParameters { small_percent: 40, ghost_percent: 30, main_threshold: 1 };
    oracle::check(|capacity, slots| {
        (S3Fifo::with_parameters(capacity, slots, parameters), Naive::new(parameters, capacity, slots))
    });
}

#[test]
fn gives_up_after_the_stated_number_of_busy_entries() {
    oracle::check_busy_bound(|capacity| S3Fifo::new(capacity, capacity as u32));
}

/// A full instance of `len` unit entries, slot and key hash alike.
fn full(links: &mut Links, len: u32) -> S3Fifo {
    let mut s3fifo = S3Fifo::new(u64::from(len), len);
    for slot in 0..len {
        s3fifo.inserted(links, slot, key(slot), 1);
    }
    s3fifo
}

fn key(slot: u32) -> u64 {
    crate::rng::mix64(u64::from(slot))
}

/// Names, removes and returns the next victim.
fn evict(s3fifo: &mut S3Fifo, links: &mut Links) -> u32 {
    let slot = s3fifo.victim(links, |_| false).unwrap();
    let key_hash = key(slot);
    s3fifo.removed(links, slot, Removal::Evicted { key_hash });
    slot
}

#[test]
fn a_newcomer_used_once_leaves_and_one_used_twice_goes_to_main() {
    let mut links = Links::new(20);
    let mut s3fifo = full(&mut links, 20);
    for slot in [0, 1, 1] {
        s3fifo.hit(&mut links, slot);
    }
    assert_eq!(evict(&mut s3fifo, &mut links), 0);
    assert_eq!(evict(&mut s3fifo, &mut links), 2);
    let in_main = |slot: &u32| links.mark(*slot) & IN_MAIN != 0;
    assert_eq!((3..20).chain([1]).filter(in_main).collect::<Vec<_>>(), [1]);
}

#[test]
fn main_above_its_share_names_its_oldest_unused_entry() {
    let mut links = Links::new(20);
    let mut s3fifo = full(&mut links, 20);
    for slot in 0..19 {
        (0..2).for_each(|_| s3fifo.hit(&mut links, slot));
    }
    // All but the last newcomer go to main, which may hold 18 and so gives next.
    assert_eq!(evict(&mut s3fifo, &mut links), 19);
    s3fifo.inserted(&mut links, 19, key(100), 1);
    s3fifo.hit(&mut links, 0);
    assert_eq!(evict(&mut s3fifo, &mut links), 1);
    assert_eq!(links.mark(0), IN_MAIN, "slot 0 went round and its count is spent");
}

#[test]
fn a_key_comes_back_to_main_when_evicted_but_not_when_invalidated() {
    for (why, lands_in_main) in [(Removal::Evicted { key_hash: key(0) }, true), (Removal::Invalidated, false)] {
        let mut links = Links::new(20);
        let mut s3fifo = full(&mut links, 20);
        let slot = s3fifo.victim(&mut links, |_| false).unwrap();
        s3fifo.removed(&mut links, slot, why);
        s3fifo.inserted(&mut links, slot, key(0), 1);
        assert_eq!(links.mark(slot) & IN_MAIN != 0, lands_in_main);
    }
}

#[test]
fn queues_in_which_all_is_hot_cost_a_bounded_number_of_moves() {
    let len = 10_000;
    let mut links = Links::new(len);
    let mut s3fifo = full(&mut links, len);
    let heat = |s3fifo: &mut S3Fifo, links: &mut Links| {
        for slot in 0..len {
            (0..3).for_each(|_| s3fifo.hit(links, slot));
        }
    };
    heat(&mut s3fifo, &mut links);
    // Small moves the first 256 to main, and names the next one hot as it is.
    assert_eq!(s3fifo.victim(&mut links, |_| false), Some(MOVES_MAX));

    while !s3fifo.main_is_over() {
        s3fifo.victim(&mut links, |_| false);
    }
    heat(&mut s3fifo, &mut links);
    let counts = |links: &Links| -> u32 { (0..len).map(|slot| u32::from(links.mark(slot) & COUNT)).sum() };
    let before = counts(&links);
    assert!(s3fifo.victim(&mut links, |_| false).is_some());
    assert_eq!(before - counts(&links), MOVES_MAX);
}

#[test]
fn memory_is_links_and_less_than_four_bytes_an_entry() {
    let s3fifo = S3Fifo::new(1 << 20, 1 << 20);
    let ghost_max = percent_of(1 << 20, 90) as u32;
    assert!(Ghost::memory_bytes(ghost_max) < 4 << 20);
    assert_eq!(size_of_val(&s3fifo) / 256, 0, "an instance itself is small");
}
