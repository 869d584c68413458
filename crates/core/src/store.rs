//! Stores: what was fetched or written is kept on the cache disk.
//!
//! A store copies valid blocks of a frame into the page's slot. The blocks have no checksum while it is under way, so
//! nobody reads them there; the frame is pinned, so their bytes stay as they are. When it ended they get their
//! checksums, but for those that were overwritten meanwhile.
//!
//! A store never delays a request: with too many under way, no slot to be freed, or no transit unit left, the page is
//! simply not kept. That is how a slow cache disk costs hits, never latency.

use crate::action::{Action, Actions};
use crate::activity::ActivityId;
use crate::cache::{Cache, DiskState};
use crate::config::AdmissionConfig;
use crate::event::IoError;
use crate::op::Role;
use crate::page::{BLOCK_BYTES, BlockMask, FrameId, PageKey, SlotId, blocks_between, runs};
use crate::request::Part;
use forebay_policy::admit::{Access, Admit, SecondAccess, SequentialCutoff};
use forebay_policy::split::{Path, Use};

/// Which pages are kept where.
#[derive(Debug)]
pub(crate) struct Admission {
    cutoff: Option<SequentialCutoff>,
    second_access: Option<SecondAccess>,
}

impl Admission {
    pub(crate) fn new(config: &AdmissionConfig, slots: u32) -> Self {
        let cutoff = config.sequential_cutoff_bytes;
        Self {
            cutoff: (cutoff > 0).then(|| SequentialCutoff::new(cutoff)),
            second_access: (config.second_access && slots > 0).then(|| SecondAccess::new(slots)),
        }
    }

    /// Whether a page read by a stream of that length stays in memory once it was answered.
    pub(crate) fn keeps_in_memory(&self, run_bytes: u64) -> bool {
        self.cutoff.as_ref().is_none_or(|cutoff| cutoff.passes(run_bytes))
    }

    fn keeps_on_disk(&mut self, access: &Access) -> bool {
        self.keeps_in_memory(access.run_bytes) && self.second_access.decide(access).admits()
    }
}

impl Cache {
    /// Whether the disk tier takes the part's page; a page that has a slot is taken in any case.
    pub(crate) fn admits(&mut self, part: &Part, length: u32) -> bool {
        if part.from_backend == 0 || self.disk_state != DiskState::Attached {
            return false;
        }
        if self.disk.lookup(part.key).is_some() {
            return true;
        }
        let access = Access { key_hash: part.key.hash(), bytes: u64::from(length), run_bytes: part.run_bytes };
        self.admission.keeps_on_disk(&access)
    }

    /// Keeps `blocks` of the page, valid in `frame`, in its slot.
    pub(crate) fn store(
        &mut self,
        now_ns: u64,
        key: PageKey,
        frame: FrameId,
        blocks: BlockMask,
        actions: &mut Actions,
    ) {
        if blocks == 0 || self.disk_state != DiskState::Attached {
            return;
        }
        let activity = self.activities.join(key);
        // Blocks that an earlier store is still writing would race with it on the disk.
        let blocks = blocks & !self.activities.get(activity).storing;
        if let Some(slot) = self.slot_for(key) {
            for (first, count) in runs(blocks) {
                self.order_store(now_ns, (key, activity), frame, slot, (first, count), actions);
            }
        } else {
            self.stats.stores_skipped += 1;
        }
        self.leave(activity);
    }

    /// The page's slot, or a fresh one.
    fn slot_for(&mut self, key: PageKey) -> Option<SlotId> {
        if self.stores >= self.config.limits.stores_max {
            return None;
        }
        let activities = &self.activities;
        self.disk.lookup(key).or_else(|| self.disk.allocate(key, |page| activities.lookup(page).is_some()))
    }

    fn order_store(
        &mut self,
        now_ns: u64,
        (key, activity): (PageKey, ActivityId),
        frame: FrameId,
        slot: SlotId,
        (first, count): (u32, u32),
        actions: &mut Actions,
    ) {
        // Pinned first: making room for the store could evict just this frame.
        self.memory.pin(frame);
        if self.stores >= self.config.limits.stores_max || !self.memory.set_aside(1) {
            self.memory.unpin(frame);
            self.stats.stores_skipped += 1;
            return;
        }
        let blocks = blocks_between(first, first + count - 1);
        self.stores += 1;
        self.activities.join(key);
        let entry = self.activities.get_mut(activity);
        entry.storing |= blocks;
        let op = self.ops.start(now_ns, Role::Store { activity, slot, first, blocks }, Some(frame));
        let bytes = u64::from(count * BLOCK_BYTES);
        self.stats.slot_write_bytes += bytes;
        if let Some(volume) = self.volume_of(key.space) {
            self.stats.volumes[volume.index()].admitted_bytes += bytes;
            self.measure(op, volume, (Path::DISK, Use::Write), count * BLOCK_BYTES);
        }
        actions.push(Action::WriteSlot { op, slot, key, frame, first_block: first, blocks: count });
    }

    /// A store ended.
    pub(crate) fn stored(
        &mut self,
        activity: ActivityId,
        frame: FrameId,
        (slot, first, blocks): (SlotId, u32, BlockMask),
        result: Result<&[u32], IoError>,
    ) {
        let entry = self.activities.get_mut(activity);
        let void = entry.store_void & blocks;
        entry.storing &= !blocks;
        entry.store_void &= !blocks;
        let key = entry.key;
        if let Ok(crcs) = result
            && self.disk_state == DiskState::Attached
        {
            assert_eq!(self.disk.key(slot), Some(key), "the slot of a page with activity changed hands");
            self.disk.set_crcs(slot, first, crcs, void);
            self.stamp(slot, key);
        }
        self.stores -= 1;
        self.memory.unpin(frame);
        self.memory.give_back();
        self.leave(activity);
        self.give_back_if_empty(key);
    }

    /// A slot without a valid block and without activity serves nobody.
    fn give_back_if_empty(&mut self, key: PageKey) {
        if self.activities.lookup(key).is_some() {
            return;
        }
        if let Some(slot) = self.slot_of(key)
            && self.disk.valid(slot) == 0
        {
            self.disk.invalidate(slot);
        }
    }
}
