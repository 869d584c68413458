//! The hash index of a tier: from page to entry (slot or frame), chained through arrays.
//!
//! Why arrays: 16 bytes an entry (key 8, bucket 4, chain 4), no pointer, no allocation after start; with the policy's
//! 12 bytes of links and 4 of ghost that is the promised 32 bytes a page. All arrays start as zeroes, so that a large
//! table costs memory only as it fills.
//!
//! Invariant: an entry is in at most one chain, the one of its key's hash. Rejected: open addressing (tombstones, and
//! a move of entries would need the slot number twice).

use crate::page::PageKey;
use alloc::vec;
use alloc::vec::Vec;

/// Keys that are warmed at a time: more than a processor waits for at once, few enough to stay cached.
pub(crate) const WARM_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Index {
    /// Head of each chain, as entry + 1; 0: empty.
    buckets: Vec<u32>,
    /// Next in the chain, as entry + 1; free for other use while the entry is in no chain.
    next: Vec<u32>,
    keys: Vec<PageKey>,
    len: u32,
}

impl Index {
    pub(crate) fn new(entries: u32) -> Self {
        let entries = entries as usize;
        Self { buckets: vec![0; entries.max(1)], next: vec![0; entries], keys: vec![PageKey::NONE; entries], len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn entries(&self) -> u32 {
        self.keys.len() as u32
    }

    fn bucket(&self, key: PageKey) -> usize {
        ((u128::from(key.hash()) * self.buckets.len() as u128) >> 64) as usize
    }

    /// The entry that holds `key`.
    pub(crate) fn lookup(&self, key: PageKey) -> Option<u32> {
        let mut link = self.buckets[self.bucket(key)];
        while link != 0 {
            let entry = link - 1;
            if self.keys[entry as usize] == key {
                return Some(entry);
            }
            link = self.next[entry as usize];
        }
        None
    }

    /// Brings what lookups of `keys` will read into the processor's cache. Each lookup alone waits for memory twice; in
    /// a batch the waits overlap, which makes reading back 16 million keys about three times as fast.
    pub(crate) fn warm(&self, keys: &[PageKey]) {
        let mut heads = [0; WARM_MAX];
        for (head, key) in heads.iter_mut().zip(keys) {
            *head = self.buckets[self.bucket(*key)];
        }
        let mut seen = 0;
        for head in heads.iter().filter(|head| **head != 0) {
            let entry = *head as usize - 1;
            seen ^= self.keys[entry].page ^ self.next[entry];
        }
        // Otherwise the compiler sees that nobody needs it.
        core::hint::black_box(seen);
    }

    /// The key that `entry` holds.
    pub(crate) fn key(&self, entry: u32) -> Option<PageKey> {
        let key = self.keys[entry as usize];
        (key != PageKey::NONE).then_some(key)
    }

    /// Puts `key`, which no entry holds, into `entry`, which holds none.
    pub(crate) fn insert(&mut self, entry: u32, key: PageKey) {
        assert!(key.space != 0, "space 0 names no page");
        assert!(self.key(entry).is_none(), "entry {entry} holds a page already");
        let bucket = self.bucket(key);
        self.keys[entry as usize] = key;
        self.next[entry as usize] = self.buckets[bucket];
        self.buckets[bucket] = entry + 1;
        self.len += 1;
    }

    /// Takes the key out of `entry`.
    pub(crate) fn remove(&mut self, entry: u32) -> PageKey {
        let key = self.key(entry).expect("the entry holds a page");
        let bucket = self.bucket(key);
        let after = self.next[entry as usize];
        if self.buckets[bucket] == entry + 1 {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket] - 1;
            while self.next[at as usize] != entry + 1 {
                at = self.next[at as usize].checked_sub(1).expect("the entry is in its chain");
            }
            self.next[at as usize] = after;
        }
        self.keys[entry as usize] = PageKey::NONE;
        self.next[entry as usize] = 0;
        self.len -= 1;
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_map(ops in proptest::collection::vec((0u32..16, 0u32..40), 0..200)) {
            let mut index = Index::new(16);
            let mut model: BTreeMap<PageKey, u32> = BTreeMap::new();
            for (entry, page) in ops {
                let key = PageKey { space: 1, page };
                if index.key(entry).is_some() {
                    model.remove(&index.remove(entry));
                } else if index.lookup(key).is_none() {
                    index.insert(entry, key);
                    model.insert(key, entry);
                }
                prop_assert_eq!(index.len() as usize, model.len());
                for page in 0..40 {
                    let key = PageKey { space: 1, page };
                    prop_assert_eq!(index.lookup(key), model.get(&key).copied());
                }
            }
        }
    }
}
