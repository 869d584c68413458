//! The operations between `submit` and `Complete`: a slab, linked from the oldest to the youngest.
//!
//! All operations get the same time, so age is also the order of deadlines: the next deadline is the oldest's, in O(1).

use alloc::vec::Vec;

use super::action::{Op, Token};

pub(super) type Key = u32;
const NONE: Key = Key::MAX;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// In the queue of reads or of writes.
    Queued,
    /// On the connection of that index.
    InFlight(usize),
    /// As `InFlight`, but its deadline passed: it completes when the connection is closed.
    Expired,
    /// Waits for a flush to be sent: a flush, or a FUA write that the server cannot do itself.
    ForFlush,
    /// Waits for the flush that is under way.
    UnderFlush,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) token: Token,
    pub(super) op: Op,
    /// Order of submission.
    pub(super) number: u64,
    pub(super) deadline_ns: u64,
    pub(super) stand: Stand,
    /// It was on the wire at least once.
    pub(super) sent: bool,
    /// Room among the held writes is reserved for it.
    pub(super) reserved: bool,
    older: Key,
    younger: Key,
}

#[derive(Debug)]
pub(super) struct Outstanding {
    slots: Vec<Option<Operation>>,
    free: Vec<Key>,
    oldest: Key,
    youngest: Key,
    submitted: u64,
    youngest_deadline_ns: u64,
}

impl Outstanding {
    pub(super) fn new(count_max: u32) -> Self {
        Self {
            slots: (0..count_max).map(|_| None).collect(),
            free: (0..count_max).rev().collect(),
            oldest: NONE,
            youngest: NONE,
            submitted: 0,
            youngest_deadline_ns: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds an operation; `None` when full.
    pub(super) fn insert(&mut self, token: Token, op: Op, deadline_ns: u64, stand: Stand) -> Option<Key> {
        assert!(deadline_ns >= self.youngest_deadline_ns, "time went backwards");
        let key = self.free.pop()?;
        self.youngest_deadline_ns = deadline_ns;
        self.submitted += 1;
        self.slots[key as usize] = Some(Operation {
            token,
            op,
            number: self.submitted,
            deadline_ns,
            stand,
            sent: false,
            reserved: false,
            older: self.youngest,
            younger: NONE,
        });
        match self.youngest {
            NONE => self.oldest = key,
            youngest => self.get_mut(youngest).younger = key,
        }
        self.youngest = key;
        Some(key)
    }

    pub(super) fn get(&self, key: Key) -> &Operation {
        self.slots[key as usize].as_ref().expect("a live operation")
    }

    pub(super) fn get_mut(&mut self, key: Key) -> &mut Operation {
        self.slots[key as usize].as_mut().expect("a live operation")
    }

    pub(super) fn remove(&mut self, key: Key) -> Operation {
        if self.get(key).stand != Stand::Expired {
            self.unlink(key);
        }
        self.free.push(key);
        self.slots[key as usize].take().expect("a live operation")
    }

    /// Marks an operation whose deadline passed; it no longer counts for [`Self::oldest`].
    pub(super) fn expire(&mut self, key: Key) {
        self.unlink(key);
        self.get_mut(key).stand = Stand::Expired;
    }

    /// The operation whose deadline comes first.
    pub(super) fn oldest(&self) -> Option<(Key, u64)> {
        (self.oldest != NONE).then(|| (self.oldest, self.get(self.oldest).deadline_ns))
    }

    fn unlink(&mut self, key: Key) {
        let (older, younger) = (self.get(key).older, self.get(key).younger);
        match older {
            NONE => self.oldest = younger,
            older => self.get_mut(older).younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.get_mut(younger).older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_found_whatever_was_removed_between() {
        let mut all = Outstanding::new(4);
        let keys: Vec<Key> = (0..4).filter_map(|n| all.insert(Token(n), Op::FLUSH, 10 * n, Stand::ForFlush)).collect();
        assert_eq!(all.insert(Token(9), Op::FLUSH, 90, Stand::ForFlush), None);
        all.remove(keys[1]);
        all.expire(keys[0]);
        assert_eq!(all.oldest(), Some((keys[2], 20)));
        all.remove(keys[0]);
        all.remove(keys[3]);
        all.remove(keys[2]);
        assert_eq!((all.oldest(), all.len()), (None, 0));
        let again = all.insert(Token(5), Op::FLUSH, 50, Stand::ForFlush);
        assert_eq!(all.oldest(), again.map(|key| (key, 50)));
    }
}
