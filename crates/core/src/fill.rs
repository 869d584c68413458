//! Fills: bytes of the back end that somebody else brought.
//!
//! Why: whoever forwards a client's own request to an object store has the bytes in hand. To fetch them again for the cache would
//! be a second request, paid by the byte; and some stores can be read by the client only.
//!
//! How:
//! 1. A fill is announced and received as a write is ([`crate::Action::Receive`]). Each of its parts waits for writes and fetches
//!    of its blocks, and holds them meanwhile.
//! 2. Nothing leaves for the back end, and the write-intent map knows nothing of it: what is there is what came from there.
//! 3. Blocks that memory lacks become valid in the page's frame, or the frame that they were received into becomes the page's. What
//!    the disk tier lacks of them is offered to it, as after a miss.
//!
//! Invariants: a block is filled whole, or up to the volume's end. Blocks that are valid already stay as they are.
//!
//! Limits: the cache believes what it is given. A range that was changed on the back end since it was read must not be filled;
//! objects never change under their identity, volumes do.
//!
//! [`Cache::probe`] tells what a read would find, so that a front end can choose between a read and a request of its own.

use crate::action::{Action, Actions};
use crate::cache::Cache;
use crate::error::ReplyError;
use crate::page::{PageKey, VolumeId, blocks_touched};
use crate::request::PartId;

/// Pages that a probe may look at.
pub const PROBE_PAGES_MAX: u64 = 1024;

/// What is here between two gaps belongs to the gap if it is less than this: to bring it again costs less than to ask twice.
pub const BRIDGE_BYTES: u64 = 256 << 10;

/// Where a range is, in bytes; what is in memory does not count on the disk tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// From the beginning on, all here.
    pub leading_bytes: u64,
    /// Behind those: the first gap, up to where [`BRIDGE_BYTES`] are here again, or to the end.
    pub gap_bytes: u64,
    /// In memory.
    pub memory_bytes: u64,
    /// On the cache disk.
    pub disk_bytes: u64,
    /// In neither.
    pub absent_bytes: u64,
}

impl Residency {
    /// So many more bytes are here, or not. `run_bytes`: how many are here since the last that was not.
    fn follow(&mut self, is_here: bool, bytes: u64, run_bytes: &mut u64) {
        let has_gap = self.gap_bytes > 0;
        match is_here {
            true if !has_gap => self.leading_bytes += bytes,
            true => *run_bytes = run_bytes.saturating_add(bytes),
            false if *run_bytes < BRIDGE_BYTES => self.gap_bytes += core::mem::take(run_bytes) + bytes,
            // The gap has ended.
            false => *run_bytes = u64::MAX,
        }
    }
}

impl Cache {
    /// A fill's part holds its blocks.
    pub(crate) fn filled(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = *self.requests.part(id);
        assert_eq!(part.blocks(), part.blocks_whole(), "a fill is of whole blocks");
        let old = self.memory.lookup(part.key);
        let in_memory = old.map_or(0, |frame| self.memory.valid(frame));
        let in_slot = self.slot_of(part.key).map_or(0, |slot| self.disk.valid(slot));
        let fresh = part.blocks() & !in_memory;
        self.requests.part_mut(id).from_backend = fresh & !in_slot;
        let part = *self.requests.part(id);
        let length = self.requests.get(id.request()).length;
        let keeps = self.admission.keeps_in_memory(part.run_bytes);
        if fresh != 0 && (keeps || old.is_some()) {
            let admits = self.admits(&part, length);
            let in_place = old.filter(|old| self.takes_in_place(&part, *old));
            let frame = self.merge(&part, self.frame_of(id), (old, in_place), (fresh, in_memory | fresh), actions);
            if admits {
                self.store(now_ns, part.key, frame, part.from_backend, actions);
            }
        }
        let activity = part.activity.expect("a fill has its activity");
        self.activities.get_mut(activity).writing &= !part.blocks();
        self.finish_part(now_ns, id, Ok(()), actions);
    }

    /// Where a range is now. Nothing is touched.
    pub(crate) fn probe(&self, volume: VolumeId, tag: u64, offset: u64, length: u64, actions: &mut Actions) {
        let page_bytes = u64::from(self.config.page_bytes);
        let end = offset.saturating_add(length);
        let is_long = end.div_ceil(page_bytes) - offset / page_bytes > PROBE_PAGES_MAX;
        let checked = self.check_range(volume, offset, length);
        if let Err(error) = if is_long { Err(ReplyError::Invalid) } else { checked } {
            return actions.push(Action::Reply { tag, result: Err(error) });
        }
        let (mut found, mut run_bytes) = (Residency::default(), 0);
        let space = self.volume(volume).space;
        for page in offset / page_bytes..end.div_ceil(page_bytes) {
            let start = page * page_bytes;
            let (first, last) = (offset.max(start) - start, end.min(start + page_bytes) - start);
            let key = PageKey { space, page: page as u32 };
            let in_memory = self.memory.lookup(key).map_or(0, |frame| self.memory.valid(frame));
            let in_slot = self.slot_of(key).map_or(0, |slot| self.disk.valid(slot));
            let wanted = blocks_touched(first as u32, (last - first) as u32);
            let bytes = last - first;
            match () {
                () if wanted & !in_memory == 0 => found.memory_bytes += bytes,
                () if wanted & !(in_memory | in_slot) == 0 => found.disk_bytes += bytes,
                () => found.absent_bytes += bytes,
            }
            found.follow(wanted & !(in_memory | in_slot) == 0, bytes, &mut run_bytes);
        }
        actions.push(Action::Probed { tag, found });
    }
}
