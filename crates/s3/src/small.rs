//! Small: copies of small objects, at hand.
//!
//! Why: to ask the shard for 4 KiB wakes its thread, and then this one: two thirds of what a hit of 4 KiB cost.
//!
//! How: two generations. What is used goes to the young one; when that has half of the bytes it becomes the old one, and what
//! was old and not used meanwhile is gone.
//!
//! Invariant: a version's bytes never change, so a copy is never old. Limit: [`Small::new`]'s bytes, [`SMALL_BYTES_MAX`] each.

use forebay_objects::VersionId;
use hyper::body::Bytes;
use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, PoisonError};

/// The largest object that is copied.
pub(crate) const SMALL_BYTES_MAX: u64 = 16 << 10;
/// What an entry takes beside its bytes.
const ENTRY_BYTES: usize = 128;

/// See the module.
#[derive(Debug)]
pub(crate) struct Small {
    generation_bytes_max: usize,
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<VersionId, Bytes>,
    young_bytes: usize,
    old: HashMap<VersionId, Bytes>,
}

impl Small {
    /// Of so many bytes at most.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { generation_bytes_max: bytes_max / 2, generations: Mutex::default() }
    }

    /// The whole object, if it is at hand.
    pub(crate) fn find(&self, id: VersionId) -> Option<Bytes> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = generations.young.get(&id) {
            return Some(bytes.clone());
        }
        let bytes = generations.old.remove(&id)?;
        generations.keep(id, bytes.clone(), self.generation_bytes_max);
        Some(bytes)
    }

    /// Whether it is at hand.
    pub(crate) fn has(&self, id: VersionId) -> bool {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.contains_key(&id) || generations.old.contains_key(&id)
    }

    /// Drops the copy.
    pub(crate) fn forget(&self, id: VersionId) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.old.remove(&id);
        if let Some(bytes) = generations.young.remove(&id) {
            generations.young_bytes -= bytes.len() + ENTRY_BYTES;
        }
    }

    /// Keeps a copy of the whole object.
    pub(crate) fn keep(&self, id: VersionId, bytes: Bytes) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.keep(id, bytes, self.generation_bytes_max);
    }
}

impl Generations {
    fn keep(&mut self, id: VersionId, bytes: Bytes, bytes_max: usize) {
        let length = bytes.len() + ENTRY_BYTES;
        if self.young_bytes + length > bytes_max {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(id, bytes).is_none() {
            self.young_bytes += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_objects::{Catalogue, Identity, Name, Ring};

    #[test]
    fn what_is_used_stays_and_the_bytes_are_bounded() {
        let mut catalogue = Catalogue::new(Ring::new(64 << 20, 4096, 4096), 1000);
        let ids: Vec<VersionId> = (0..100u8)
            .map(|at| {
                let name = Name { bucket: "b".into(), key: [at].as_slice().into() };
                let identity = Identity { name, etag: "e".into(), version_id: None, bytes: 1000 };
                catalogue.link(None, &identity, 0).expect("room")
            })
            .collect();
        let small = Small::new(20 * (1000 + ENTRY_BYTES));
        for (at, id) in ids.iter().enumerate() {
            small.keep(*id, Bytes::from(vec![at as u8; 1000]));
            assert_eq!(small.find(ids[0]).expect("used all the time"), vec![0; 1000]);
            let generations = small.generations.lock().expect("no thread died");
            assert!(generations.young.len() + generations.old.len() <= 20);
        }
        assert_eq!(small.find(ids[50]), None);
        assert!(small.has(ids[0]) && !small.has(ids[50]));
        small.forget(ids[0]);
        let young_bytes = |small: &Small| small.generations.lock().expect("no thread died").young_bytes;
        let left = young_bytes(&small);
        small.forget(ids[0]);
        assert_eq!((small.find(ids[0]), young_bytes(&small)), (None, left));
        assert_eq!(small.find(ids[99]).expect("new"), vec![99; 1000]);
    }
}
