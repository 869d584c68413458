//! A ghost: remembers keys that are not cached, for a while, in four bytes each.
//!
//! S3-FIFO asks whether a missed page was evicted lately, second-access admission whether it was missed
//! lately. Both want a FIFO of keys with lookup. Keys with hash-table links would cost 20 bytes an entry;
//! the whole index may spend 32 bytes a page. So the FIFO is set-associative and keeps fingerprints, as
//! the directory of a hardware cache does:
//! 1. The upper 32 bits of the key's hash choose a set, the lower 32 bits are the tag.
//! 2. A set is 256 tags, 1 KiB, youngest first. To remember a key is to shift its set by one.
//! 3. Of each set only the first few places count; they add up to the capacity exactly.
//!
//! What that costs, against an exact FIFO of whole keys:
//! - False positives: a lookup finds a key that was never there with probability 256 / 2^32 = 6e-8.
//! - Age: a key is pushed out by the keys of its own set, not by all. The number of insertions it survives
//!   has the capacity as its mean and a standard deviation of 1 / sqrt(256) = 6 % of it. So much softness
//!   moves S3-FIFO's miss ratio by at most .0012 over six traces and three sizes; sets of 32 tags move
//!   it by .0036, where a loop is just longer than the ghost.
//! - Time: some 30 ns for a lookup and an insertion, on a miss, which costs a thousand times that.
//!
//! A live capacity only moves the number of places that count. When it leaves the band of 128 to 256
//! places a set, the number of sets changes; keys are then looked for in other sets and in effect
//! forgotten, without a pass over the memory. Ghosts are hints.
//!
//! Invariants: a set has no gaps (tag 0 ends it), and no tag twice if keys are taken before they are
//! remembered.
//!
//! Limits: up to 256 entries the FIFO is exact, but for tags. Rejected: a Bloom filter in rotating halves
//! (its edge is softer still, and S3-FIFO must remove a key that came back); tag plus age (an age needs a
//! clock and bits, and sets overflow at random before the age is reached); tags of 16 bits (one
//! lookup in 256 would be a false positive).

use alloc::vec::Vec;

/// Tags a set.
const SET: usize = 256;

/// Tags compared at once.
const LANE: usize = 16;

/// Places a set that a new shape starts with, so that the capacity may grow and shrink by a third within it.
const SET_START: u32 = 192;

/// Fewer places a set than this call for fewer sets.
const SET_MIN: u32 = 128;

/// A bounded, approximate FIFO set of key hashes.
#[derive(Debug)]
pub struct Ghost {
    tags: Vec<u32>,
    sets: u32,
    /// Places that count in each set, and how many of the first sets have one more.
    places: u32,
    places_extra: u32,
}

impl Ghost {
    /// A ghost of at most `entries_max` keys, now of `capacity` keys; takes `memory_bytes(entries_max)`.
    pub fn new(entries_max: u32, capacity: u32) -> Self {
        let sets_max = entries_max.div_ceil(SET as u32).max(1);
        let mut ghost = Self {
            tags: alloc::vec![0; sets_max as usize * SET],
            sets: capacity.div_ceil(SET_START).clamp(1, sets_max),
            places: 0,
            places_extra: 0,
        };
        ghost.set_capacity(capacity);
        ghost
    }

    /// Bytes that a ghost of `entries_max` keys takes: four a key.
    pub const fn memory_bytes(entries_max: u32) -> usize {
        entries_max.div_ceil(SET as u32) as usize * SET * size_of::<u32>()
    }

    /// From now on remembers the last `capacity` keys (at most `entries_max`), and those from before as
    /// far as they fit.
    pub fn set_capacity(&mut self, capacity: u32) {
        let sets_max = (self.tags.len() / SET) as u32;
        let capacity = capacity.min(self.tags.len() as u32);
        let grown = capacity > self.sets * SET as u32;
        let shrunk = capacity < self.sets * SET_MIN && self.sets > 1;
        if grown || shrunk {
            self.sets = capacity.div_ceil(SET_START).clamp(1, sets_max);
        }
        self.places = capacity / self.sets;
        self.places_extra = capacity % self.sets;
    }

    /// Remembers a key as the youngest. The caller has taken it before.
    pub fn remember(&mut self, key_hash: u64) {
        let (tags, places) = self.set_of(key_hash);
        tags[places..].fill(0);
        if places > 0 {
            tags.copy_within(..places - 1, 1);
            tags[0] = tag_of(key_hash);
        }
    }

    /// Whether the key is remembered; it is not any more afterwards.
    pub fn take(&mut self, key_hash: u64) -> bool {
        let (tags, places) = self.set_of(key_hash);
        let tag = tag_of(key_hash);
        match place_of(tags, tag) {
            None => false,
            Some(place) => {
                tags.copy_within(place + 1.., place);
                tags[SET - 1] = 0;
                place < places
            }
        }
    }

    /// The key's set, and how many of its places count.
    fn set_of(&mut self, key_hash: u64) -> (&mut [u32], usize) {
        let set = ((key_hash >> 32) * u64::from(self.sets)) >> 32;
        let places = self.places + u32::from(set < u64::from(self.places_extra));
        let start = set as usize * SET;
        (&mut self.tags[start..start + SET], places as usize)
    }
}

/// Where `tag` stands in a set; whole lanes at a time, which compiles to vector compares.
fn place_of(tags: &[u32], tag: u32) -> Option<usize> {
    let filled = tags.chunks_exact(LANE).take_while(|lane| lane[0] != 0);
    for (nth, lane) in filled.enumerate() {
        if lane.iter().fold(false, |found, &t| found | (t == tag)) {
            return lane.iter().position(|&t| t == tag).map(|at| nth * LANE + at);
        }
    }
    None
}

/// The key's tag; never 0, which marks an empty place.
fn tag_of(key_hash: u64) -> u32 {
    (key_hash as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix64;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    /// Whole keys, set by set, youngest first.
    struct Naive {
        sets: Vec<VecDeque<u64>>,
        capacity: usize,
    }

    impl Naive {
        fn set_and_places(&mut self, hash: u64) -> (&mut VecDeque<u64>, usize) {
            let sets = self.sets.len();
            let nth = ((hash >> 32) as usize * sets) >> 32;
            let places = (0..self.capacity).filter(|place| place % sets == nth).count();
            (&mut self.sets[nth], places)
        }
        fn remember(&mut self, hash: u64) {
            let (set, places) = self.set_and_places(hash);
            set.push_front(hash);
            set.truncate(places);
        }
        fn take(&mut self, hash: u64) -> bool {
            let (set, places) = self.set_and_places(hash);
            let Some(place) = set.iter().position(|&h| h == hash) else {
                return false;
            };
            set.remove(place);
            place < places
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        TakeAndRemember(u64),
        Take(u64),
        Resize(u32),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        // Twice as many keys as places; capacities that keep the three sets of the shape.
        let op = prop_oneof![
            12 => (0..1_500_u64).prop_map(Op::TakeAndRemember),
            4 => (0..1_500_u64).prop_map(Op::Take),
            1 => (384..=768_u32).prop_map(Op::Resize),
        ];
        proptest::collection::vec(op, 1..3_000)
    }

    proptest! {
        #[test]
        fn equals_sets_of_whole_keys(ops in ops()) {
            let mut ghost = Ghost::new(768, 576);
            let mut naive = Naive { sets: alloc::vec![VecDeque::new(); 3], capacity: 576 };
            for op in ops {
                match op {
                    Op::TakeAndRemember(key) => {
                        prop_assert_eq!(ghost.take(mix64(key)), naive.take(mix64(key)));
                        ghost.remember(mix64(key));
                        naive.remember(mix64(key));
                    }
                    Op::Take(key) => prop_assert_eq!(ghost.take(mix64(key)), naive.take(mix64(key))),
                    Op::Resize(capacity) => {
                        ghost.set_capacity(capacity);
                        naive.capacity = capacity as usize;
                    }
                }
            }
        }

        #[test]
        fn remembers_exactly_as_many_keys_as_its_capacity_says(
            entries_max in 0..2_000_u32,
            capacities in proptest::collection::vec(0..2_500_u32, 1..5),
        ) {
            let mut ghost = Ghost::new(entries_max, entries_max);
            for capacity in capacities {
                ghost.set_capacity(capacity);
                for key in 0..10_000 {
                    ghost.take(mix64(key));
                    ghost.remember(mix64(key));
                }
                let remembered = (0..10_000).filter(|&key| ghost.take(mix64(key))).count();
                let room = entries_max.next_multiple_of(SET as u32).max(SET as u32);
                let capacity_max = capacity.min(room);
                // Every set has seen far more keys than it has places.
                prop_assert_eq!(remembered, capacity_max as usize);
            }
        }
    }

    #[test]
    fn the_keys_of_a_small_ghost_leave_in_exact_fifo_order() {
        let mut ghost = Ghost::new(200, 200);
        for key in 0..300 {
            ghost.remember(mix64(key));
        }
        assert!((0..100).all(|key| !ghost.take(mix64(key))));
        assert!((100..300).all(|key| ghost.take(mix64(key))));
    }

    #[test]
    fn the_keys_of_a_large_ghost_leave_within_a_quarter_of_their_time() {
        let mut ghost = Ghost::new(100_000, 100_000);
        for key in 0..300_000 {
            ghost.remember(mix64(key));
        }
        // Four standard deviations of 6 % about the 100 000 youngest.
        let early = (225_000..300_000).filter(|&key| !ghost.take(mix64(key))).count();
        let late = (0..175_000).filter(|&key| ghost.take(mix64(key))).count();
        assert!(early < 20 && late < 20, "{early} too early, {late} too late");
    }

    #[test]
    fn keys_that_were_never_there_are_not_found() {
        let mut ghost = Ghost::new(8_192, 8_192);
        for key in 0..20_000 {
            ghost.remember(mix64(key));
        }
        let found = (1_000_000..1_200_000).filter(|&key| ghost.take(mix64(key))).count();
        assert_eq!(found, 0, "6e-8 of 200 000 are expected");
    }

    #[test]
    fn memory_is_four_bytes_a_key() {
        assert_eq!(Ghost::memory_bytes(1 << 20), 4 << 20);
        assert_eq!(Ghost::new(1 << 20, 0).tags.len() * 4, 4 << 20);
    }
}
