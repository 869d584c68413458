//! Writes: to the back end first, then to what is cached.
//!
//! 1. The part holds its blocks ([`crate::activity`]) and its region's bit is durable ([`crate::intent`]).
//! 2. The payload goes to the back end from the frame it was received into.
//! 3. When it is there, blocks that are cached are brought up to date or dropped, as the volume's row in
//!    [`crate::mode`] says. A block that is absent stays absent. A block written in part is merged where its bytes are
//!    in memory, else dropped from its slot.
//! 4. If the back end failed, nobody knows what it holds: the blocks leave both tiers.
//!
//! Invariant: a pinned frame's valid blocks never change. If the page's frame is pinned, the payload's frame takes its
//! place: the other blocks are copied over to it.

use crate::action::{Action, Actions, Piece};
use crate::cache::{Cache, DiskState, Ready};
use crate::error::ReplyError;
use crate::event::IoError;
use crate::mode::OnWrite;
use crate::op::Role;
use crate::page::{BLOCK_BYTES, BlockMask, FrameId, PageKey, SlotId, runs};
use crate::request::{Kind, Part, PartId};
use forebay_policy::split::{Path, Use};

impl Cache {
    pub(crate) fn write_granted(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let (volume, region) = self.region_of(id);
        self.intent_asked |= self.volumes[volume].intent.begin(region);
        if self.may_write(volume, region) {
            self.issue_write(now_ns, id, actions);
        } else {
            self.intent_asked = true;
            self.intent_wait.push_back(id);
        }
    }

    fn region_of(&self, id: PartId) -> (usize, u32) {
        let volume = self.requests.get(id.request()).volume.index();
        let part = self.requests.part(id);
        let offset = self.page_start(part.key) + u64::from(part.at);
        let regions = self.volumes[volume].intent.regions(offset, u64::from(part.length));
        assert_eq!(regions.start(), regions.end(), "a region is made of whole pages");
        (volume, *regions.start())
    }

    /// Whether the back end may be written: the cache disk would know after a crash, or is out of the game for good.
    pub(crate) fn may_write(&self, volume: usize, region: u32) -> bool {
        match self.disk_state {
            DiskState::Absent => true,
            DiskState::Attached => !self.config.intent_map || self.volumes[volume].intent.is_durable(region),
            DiskState::Detached { raised } => raised,
        }
    }

    /// Lets go on the writes whose region has become durable.
    pub(crate) fn wake_intent_waiters(&mut self) {
        for _ in 0..self.intent_wait.len() {
            let Some(id) = self.intent_wait.pop_front() else { break };
            let (volume, region) = self.region_of(id);
            if self.may_write(volume, region) {
                self.ready.push_back(Ready::Issue(id));
            } else {
                self.intent_wait.push_back(id);
            }
        }
        self.ranges.recheck();
    }

    pub(crate) fn issue_write(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let request = self.requests.get(id.request());
        let volume = request.volume;
        let fua = request.kind == Kind::Write { fua: true };
        let part = *self.requests.part(id);
        let frame = self.frame_of(id);
        let offset = self.page_start(part.key) + u64::from(part.at);
        let op = self.ops.start(now_ns, Role::Write { part: id }, Some(frame));
        let piece = Piece { frame, at: part.at, length: part.length };
        self.stats.volumes[volume.index()].backend_write_bytes += u64::from(part.length);
        self.measure(op, volume, (Path::BACKEND, Use::Write), part.length);
        actions.push(Action::WriteBackend { op, volume, offset, piece, fua });
    }

    /// The back end answered.
    pub(crate) fn written(&mut self, now_ns: u64, id: PartId, result: Result<(), IoError>, actions: &mut Actions) {
        let (volume, region) = self.region_of(id);
        let part = *self.requests.part(id);
        self.volumes[volume].write_seq += 1;
        if result.is_ok() && self.volumes[volume].row.on_write == OnWrite::Update {
            self.update(now_ns, id, &part, actions);
        } else {
            self.drop_cached(part.key, part.blocks());
        }
        self.volumes[volume].intent.end(region);
        let activity = part.activity.expect("a write has its activity");
        self.activities.get_mut(activity).writing &= !part.blocks();
        self.finish_part(now_ns, id, result.map_err(|_| ReplyError::Io), actions);
    }

    /// Brings what is cached of the part's blocks up to date.
    fn update(&mut self, now_ns: u64, id: PartId, part: &Part, actions: &mut Actions) {
        let written = self.frame_of(id);
        let (touched, whole) = (part.blocks(), part.blocks_whole());
        let slot = self.slot_of(part.key);
        let in_slot = slot.map_or(0, |slot| self.disk.valid(slot)) & touched;
        let old = self.memory.lookup(part.key);
        let in_memory = old.map_or(0, |frame| self.memory.valid(frame));
        // What the page has of these blocks once the payload is merged.
        let merged = (whole & (in_slot | in_memory)) | (touched & !whole & in_memory);
        if let Some(slot) = slot {
            // Not only those valid there: one that is on its way into the slot would become valid with old bytes.
            self.drop_slot_blocks(slot, part.key, touched);
        }
        let in_place = old.filter(|old| self.takes_in_place(part, *old));
        if in_place.is_none() && merged == 0 {
            return self.drop_cached(part.key, touched);
        }
        let valid = merged | (in_memory & !touched);
        let frame = self.merge(part, written, (old, in_place), (merged, valid), actions);
        self.store(now_ns, part.key, frame, in_slot & merged, actions);
    }

    /// Whether the payload is to be copied into the page's frame. A pinned one must not change.
    pub(crate) fn takes_in_place(&self, part: &Part, frame: FrameId) -> bool {
        !self.memory.is_pinned(frame) && part.length <= self.bytes_around(part, frame)
    }

    /// Gives the page `blocks` of the payload: in its frame, or in the payload's, of which `valid` is valid then. The frame that the page
    /// has now.
    pub(crate) fn merge(
        &mut self,
        part: &Part,
        payload: FrameId,
        (old, in_place): (Option<FrameId>, Option<FrameId>),
        (blocks, valid): (BlockMask, BlockMask),
        actions: &mut Actions,
    ) -> FrameId {
        if let Some(frame) = in_place {
            self.copy_payload(part, payload, frame, blocks, actions);
            self.memory.add_valid(frame, blocks);
            self.memory.touch(frame);
            return frame;
        }
        self.replace_frame(part, payload, old, actions);
        self.memory.add_valid(payload, valid);
        payload
    }

    /// Bytes that the page's frame has beside the payload: what the payload's frame would have to be given.
    fn bytes_around(&self, part: &Part, frame: FrameId) -> u32 {
        let valid = self.memory.valid(frame);
        let within = (valid & part.blocks_whole()).count_ones() * BLOCK_BYTES;
        // The payload's ends may lie within blocks; that close does not matter.
        valid.count_ones() * BLOCK_BYTES - within
    }

    /// Copies the part's bytes of `blocks` into the page's frame.
    fn copy_payload(&self, part: &Part, from: FrameId, to: FrameId, blocks: BlockMask, actions: &mut Actions) {
        for (first, count) in runs(blocks) {
            let at = (first * BLOCK_BYTES).max(part.at);
            let end = ((first + count) * BLOCK_BYTES).min(part.at + part.length);
            actions.push(Action::Copy { from, to, at, length: end - at });
        }
    }

    /// Makes the payload's frame the page's, with the bytes around the payload copied from the old one.
    fn replace_frame(&mut self, part: &Part, written: FrameId, old: Option<FrameId>, actions: &mut Actions) {
        if let Some(old) = old {
            let end = part.at + part.length;
            for (first, count) in runs(self.memory.valid(old)) {
                let (start, stop) = (first * BLOCK_BYTES, (first + count) * BLOCK_BYTES);
                // Before the payload, and behind it.
                for (at, stop) in [(start, stop.min(part.at)), (start.max(end), stop)] {
                    if at < stop {
                        actions.push(Action::Copy { from: old, to: written, at, length: stop - at });
                    }
                }
            }
            self.memory.detach(old);
        }
        self.memory.attach(written, part.key);
        self.memory.keep(written);
    }

    /// Drops blocks of a page from both tiers.
    pub(crate) fn drop_cached(&mut self, key: PageKey, blocks: BlockMask) {
        if let Some(frame) = self.memory.lookup(key)
            && self.memory.valid(frame) & blocks != 0
        {
            self.memory.drop_valid(frame, blocks);
            // What is dropped may be fetched again; the bytes that are being sent have to stay.
            if self.memory.is_pinned(frame) || self.memory.valid(frame) == 0 {
                self.memory.detach(frame);
            }
        }
        if let Some(slot) = self.slot_of(key) {
            self.drop_slot_blocks(slot, key, blocks);
        }
    }

    /// Drops blocks of a slot; if none is left and nothing is going on there, the slot is given back.
    pub(crate) fn drop_slot_blocks(&mut self, slot: SlotId, key: PageKey, blocks: BlockMask) {
        self.disk.drop_blocks(slot, blocks);
        match self.activities.lookup(key) {
            Some(activity) => {
                let entry = self.activities.get_mut(activity);
                entry.store_void |= entry.storing & blocks;
            }
            None if self.disk.valid(slot) == 0 => self.disk.invalidate(slot),
            None => {}
        }
    }
}
