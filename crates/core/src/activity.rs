//! What is going on in which page: the order of overlapping requests.
//!
//! A page has an entry here only while something happens to it. The entry says which blocks are being written, fetched
//! or stored, and holds the parts that wait, first come first served. This is what makes fetching single-flight, keeps
//! a fill from installing data that a write has overtaken, and gives overlapping writes one order in cache and back end.
//!
//! How: a read waits for writes and fetches that overlap it, a write for writes and fetches; both wait for earlier
//! waiting parts that overlap. A part that only reads valid blocks pins its frame and holds nothing here.
//!
//! Invariants: `writing` and `fetching` never share a block; a slot with activity is not evicted.
//! Limit: waking scans the page's queue, so that many requests on one page cost O(queue) each.
//! Rejected: one lock a page (sequential small writes behind a slow back end would go one at a time); an interval tree
//! over the volume (more code, and a page's parts are few).

use crate::page::{BlockMask, PageKey};
use crate::request::PartId;
use alloc::vec;
use alloc::vec::Vec;

const BUCKETS: usize = 4096;

/// Names an [`Activity`] while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActivityId(pub(crate) u32);

/// One page's activity.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    pub(crate) key: PageKey,
    /// Blocks under a granted write.
    pub(crate) writing: BlockMask,
    /// Blocks on their way from slot or back end into a frame.
    pub(crate) fetching: BlockMask,
    /// Blocks on their way from a frame into the slot.
    pub(crate) storing: BlockMask,
    /// Of these, the ones that changed meanwhile: what was stored is not valid.
    pub(crate) store_void: BlockMask,
    /// Parts granted or waiting, and stores: the entry lives while this is not 0.
    users: u32,
    queue: Vec<Waiting>,
    next: u32,
}

/// A part in a page's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    part: PartId,
    blocks: BlockMask,
    write: bool,
}

impl Activity {
    /// Whether any part holds or waits for blocks of the page (stores do not count).
    pub(crate) fn has_parts(&self) -> bool {
        self.writing | self.fetching != 0 || !self.queue.is_empty()
    }

    fn conflicts(&self, blocks: BlockMask) -> bool {
        (self.writing | self.fetching) & blocks != 0
    }
}

/// Every page's activity.
#[derive(Debug)]
pub(crate) struct Activities {
    buckets: Vec<u32>,
    entries: Vec<Activity>,
    free: Vec<u32>,
    live: u32,
}

impl Activities {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], entries: Vec::new(), free: Vec::new(), live: 0 }
    }

    /// Pages with activity.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    fn bucket(key: PageKey) -> usize {
        (key.hash() >> 52) as usize % BUCKETS
    }

    pub(crate) fn lookup(&self, key: PageKey) -> Option<ActivityId> {
        if self.live == 0 {
            return None;
        }
        let mut link = self.buckets[Self::bucket(key)];
        while link != 0 {
            let entry = &self.entries[link as usize - 1];
            if entry.key == key {
                return Some(ActivityId(link - 1));
            }
            link = entry.next;
        }
        None
    }

    pub(crate) fn get(&self, id: ActivityId) -> &Activity {
        &self.entries[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: ActivityId) -> &mut Activity {
        &mut self.entries[id.0 as usize]
    }

    /// The live entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Activity> {
        self.entries.iter().filter(|entry| entry.users > 0)
    }

    /// Becomes a user of the page's entry, if there is one.
    pub(crate) fn join_existing(&mut self, key: PageKey) -> Option<ActivityId> {
        let id = self.lookup(key)?;
        self.get_mut(id).users += 1;
        Some(id)
    }

    /// Becomes a user of the page's entry, which is made if there is none. To be paired with [`Self::leave`].
    pub(crate) fn join(&mut self, key: PageKey) -> ActivityId {
        if let Some(id) = self.join_existing(key) {
            return id;
        }
        let bucket = Self::bucket(key);
        let fresh = Activity {
            key,
            writing: 0,
            fetching: 0,
            storing: 0,
            store_void: 0,
            users: 1,
            queue: Vec::new(),
            next: self.buckets[bucket],
        };
        let at = match self.free.pop() {
            Some(at) => {
                let queue = core::mem::take(&mut self.entries[at as usize].queue);
                self.entries[at as usize] = Activity { queue, ..fresh };
                at
            }
            None => {
                self.entries.push(fresh);
                self.entries.len() as u32 - 1
            }
        };
        self.buckets[bucket] = at + 1;
        self.live += 1;
        ActivityId(at)
    }

    /// Stops being a user. The last one removes the entry.
    pub(crate) fn leave(&mut self, id: ActivityId) {
        let entry = self.get_mut(id);
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        assert!(!entry.has_parts() && entry.storing == 0, "a page was left with something going on");
        let (key, after) = (entry.key, entry.next);
        let bucket = Self::bucket(key);
        if self.buckets[bucket] == id.0 + 1 {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket] as usize - 1;
            while self.entries[at].next != id.0 + 1 {
                at = self.entries[at].next as usize - 1;
            }
            self.entries[at].next = after;
        }
        self.free.push(id.0);
        self.live -= 1;
    }

    /// Whether a part may go on at once (a write's blocks are then marked `writing`). If not it is queued, and
    /// [`Self::grant`] will name it.
    pub(crate) fn ask(&mut self, id: ActivityId, part: PartId, blocks: BlockMask, write: bool) -> bool {
        let entry = self.get_mut(id);
        let overtakes = entry.queue.iter().any(|w| w.blocks & blocks != 0 && (w.write || write));
        if entry.conflicts(blocks) || overtakes {
            entry.queue.push(Waiting { part, blocks, write });
            return false;
        }
        if write {
            entry.writing |= blocks;
        }
        true
    }

    /// Whether a read that was granted may still go on. If not it is queued again, before all others.
    pub(crate) fn ask_again(&mut self, id: ActivityId, part: PartId, blocks: BlockMask) -> bool {
        let entry = self.get_mut(id);
        if entry.conflicts(blocks) {
            entry.queue.insert(0, Waiting { part, blocks, write: false });
            return false;
        }
        true
    }

    /// The first waiting part that may go on now, taken from the queue. A write's blocks are marked `writing`; a read's
    /// are added to `reads`, which later writes of the same round may not overtake.
    pub(crate) fn grant(&mut self, id: ActivityId, reads: &mut BlockMask) -> Option<PartId> {
        let entry = self.get_mut(id);
        let (mut ahead_reads, mut ahead_writes): (BlockMask, BlockMask) = (*reads, 0);
        for at in 0..entry.queue.len() {
            let w = entry.queue[at];
            let overtakes = w.blocks & ahead_writes != 0 || (w.write && w.blocks & ahead_reads != 0);
            if !entry.conflicts(w.blocks) && !overtakes {
                entry.queue.remove(at);
                if w.write {
                    entry.writing |= w.blocks;
                } else {
                    *reads |= w.blocks;
                }
                return Some(w.part);
            }
            if w.write {
                ahead_writes |= w.blocks;
            } else {
                ahead_reads |= w.blocks;
            }
            if ahead_writes == BlockMask::MAX {
                break;
            }
        }
        None
    }
}
