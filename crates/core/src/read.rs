//! Reads: classify the blocks of a part, fetch what is absent, answer.
//!
//! 1. All blocks valid in the page's frame: pin it and answer from it. No byte is copied.
//! 2. Otherwise the absent blocks are fetched into the page's frame (a fresh one if it has none), each run from its
//!    slot if valid there, else from the back end. Only what was asked is fetched, unless the read continues a
//!    stream: then the rest of the page too.
//! 3. Blocks from a slot are checked against their checksums; a bad one is dropped, counted and fetched from the back
//!    end. So is a slot read that fails. One that takes too long is hedged ([`crate::hedge`]).
//!    A volume that does not fetch misses ([`crate::config::VolumeConfig::fetches`]) fails those blocks instead.
//! 4. The blocks are valid now; what came from the back end is offered to the disk tier ([`crate::store`]).
//!
//! Invariant: nothing is marked valid while a write of the same block is under way; [`crate::activity`] sees to it.
//!
//! Why blocks: fetching whole pages would read 16 times the bytes asked for under random 4 KiB reads.

use crate::action::{Action, Actions, Notice, Piece};
use crate::cache::{Cache, DiskState};
use crate::error::ReplyError;
use crate::event::IoError;
use crate::op::Role;
use crate::page::{BLOCK_BYTES, BlockMask, FrameId, SlotId, blocks_between, runs};
use crate::request::{Part, PartId, Path};
use forebay_policy::split::{self, Use};

/// Late orders that are looked after in one control period.
const LATE_MAX: usize = 256;
/// A stream this long is fetched page by page.
const STREAM_BYTES: u64 = 128 << 10;

impl Cache {
    /// A read part holds its blocks.
    pub(crate) fn serve(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = *self.requests.part(id);
        if !self.volume(self.requests.get(id.request()).volume).row.reads_cached {
            return self.read_past(now_ns, id, &part, actions);
        }
        let frame = self.memory.lookup(part.key);
        if let Some(frame) = frame
            && part.blocks() & !self.memory.valid(frame) == 0
        {
            self.memory.pin(frame);
            self.memory.touch(frame);
            self.requests.set_frame(id, frame);
            self.count_path(id, Path::Memory);
            return self.finish_part(now_ns, id, Ok(()), actions);
        }
        let frame = match frame {
            Some(frame) => {
                self.memory.pin(frame);
                self.memory.touch(frame);
                frame
            }
            None => {
                let frame = self.memory.allocate();
                self.memory.attach(frame, part.key);
                frame
            }
        };
        self.requests.set_frame(id, frame);
        self.fetch(now_ns, id, actions);
    }

    /// Orders the part's absent blocks into its frame.
    fn fetch(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = *self.requests.part(id);
        let frame = self.frame_of(id);
        let activity = part.activity.unwrap_or_else(|| self.activities.join(part.key));
        let in_stream = part.run_bytes >= STREAM_BYTES;
        let wanted = if in_stream { part.page_blocks() } else { part.blocks() };
        let entry = self.activities.get_mut(activity);
        let missing = wanted & !self.memory.valid(frame) & !(entry.writing | entry.fetching);
        assert!(part.blocks() & !self.memory.valid(frame) & !missing == 0, "a block asked for is in another's hands");
        entry.fetching |= missing;
        let slot = self.slot_of(part.key);
        let in_slot = slot.map_or(0, |slot| self.disk.valid(slot)) & missing;
        let part = self.requests.part_mut(id);
        part.activity = Some(activity);
        part.fetch = missing;
        let mut split = 0;
        if let Some(slot) = slot {
            self.disk.touch(slot);
            split = self.split(now_ns, id, slot, in_slot);
            self.order_split_reads(now_ns, id, slot, split, actions);
            for (first, count) in runs(in_slot & !split) {
                self.order_slot_read(now_ns, id, slot, first, count, actions);
            }
        }
        let absent = missing & !in_slot;
        if self.fetches(id) {
            self.fetch_from_backend(now_ns, id, absent, actions);
        } else {
            self.requests.part_mut(id).failed |= absent;
        }
        let path = if absent != 0 {
            Path::Backend
        } else if split != 0 {
            Path::Split
        } else {
            Path::Disk
        };
        self.count_path(id, path);
        if self.requests.part(id).ops_left == 0 {
            self.finish_fetch(now_ns, id, actions);
        }
    }

    fn fetches(&self, id: PartId) -> bool {
        let volume = self.requests.get(id.request()).volume;
        self.config.volumes[volume.index()].fetches
    }

    pub(crate) fn order_slot_read(
        &mut self,
        now_ns: u64,
        id: PartId,
        slot: SlotId,
        first: u32,
        count: u32,
        actions: &mut Actions,
    ) {
        let (frame, key) = (self.frame_of(id), self.requests.part(id).key);
        let blocks = blocks_between(first, first + count - 1);
        let op = self.ops.start(now_ns, Role::FetchSlot { part: id, slot, first, blocks }, Some(frame));
        self.requests.part_mut(id).ops_left += 1;
        let volume = self.requests.get(id.request()).volume;
        self.stats.volumes[volume.index()].disk_read_bytes += u64::from(count * BLOCK_BYTES);
        self.measure(op, volume, (split::Path::DISK, Use::Hit), count * BLOCK_BYTES);
        actions.push(Action::ReadSlot { op, slot, key, frame, first_block: first, blocks: count });
    }

    pub(crate) fn fetch_from_backend(&mut self, now_ns: u64, id: PartId, blocks: BlockMask, actions: &mut Actions) {
        let role = |blocks| Role::FetchBackend { part: id, blocks };
        let orders = self.order_backend_reads(now_ns, id, self.frame_of(id), blocks, role, actions);
        self.requests.part_mut(id).ops_left += orders;
    }

    /// Orders blocks of the part's page from the back end, a run at a time. How many orders.
    pub(crate) fn order_backend_reads(
        &mut self,
        now_ns: u64,
        id: PartId,
        frame: FrameId,
        blocks: BlockMask,
        role: impl Fn(BlockMask) -> Role,
        actions: &mut Actions,
    ) -> u16 {
        let mut orders = 0;
        for (first, count) in runs(blocks) {
            let at = first * BLOCK_BYTES;
            let length = (count * BLOCK_BYTES).min(self.requests.part(id).page_end - at);
            let role = role(blocks_between(first, first + count - 1));
            self.order_backend_read(now_ns, id, Piece { frame, at, length }, role, actions);
            orders += 1;
        }
        orders
    }

    fn order_backend_read(&mut self, now_ns: u64, id: PartId, piece: Piece, role: Role, actions: &mut Actions) {
        let Piece { frame, at, length } = piece;
        let volume = self.requests.get(id.request()).volume;
        let key = self.requests.part(id).key;
        let offset = self.page_start(key) + u64::from(at);
        let is_hit = matches!(role, Role::FetchSplit { .. });
        let op = self.ops.start(now_ns, role, Some(frame));
        self.stats.volumes[volume.index()].backend_read_bytes += u64::from(length);
        self.measure(op, volume, (split::Path::BACKEND, if is_hit { Use::Hit } else { Use::Miss }), length);
        actions.push(Action::ReadBackend { op, volume, offset, piece, check: is_hit.then_some(key) });
    }

    /// Pass-through: just the bytes asked for, in a frame that no page knows. Nothing is kept, so nothing is locked.
    fn read_past(&mut self, now_ns: u64, id: PartId, part: &Part, actions: &mut Actions) {
        let frame = self.memory.allocate();
        self.requests.set_frame(id, frame);
        let role = Role::FetchBackend { part: id, blocks: part.blocks() };
        self.requests.part_mut(id).ops_left += 1;
        let piece = Piece { frame, at: part.at, length: part.length };
        self.order_backend_read(now_ns, id, piece, role, actions);
        self.count_path(id, Path::Backend);
    }

    fn count_path(&mut self, id: PartId, path: Path) {
        let volume = self.requests.get(id.request()).volume;
        let stats = &mut self.stats.volumes[volume.index()];
        match path {
            Path::Memory => {
                stats.memory_hits += 1;
                stats.memory_read_bytes += u64::from(self.requests.part(id).length);
            }
            Path::Disk => stats.disk_hits += 1,
            Path::Split => stats.backend_hits += 1,
            Path::Backend => {
                stats.misses += 1;
                stats.recovering += u64::from(self.recovery.is_on());
            }
        }
    }

    /// A slot's blocks arrived, with these checksums, or did not.
    pub(crate) fn fetched_slot(
        &mut self,
        now_ns: u64,
        id: PartId,
        frame: FrameId,
        (slot, first, blocks): (SlotId, u32, BlockMask),
        result: Result<&[u32], IoError>,
        actions: &mut Actions,
    ) {
        assert_eq!(frame, self.frame_of(id), "a fetch ends in the frame it began with");
        let bad = match result {
            Ok(crcs) => self.bad_blocks(slot, first, crcs),
            Err(_) => blocks,
        };
        if bad != 0 {
            let key = self.requests.part(id).key;
            if result.is_ok() {
                self.disk_lied(now_ns, actions);
                self.stats.bad_blocks += u64::from(bad.count_ones());
                actions.push(Action::Notice(Notice::BadBlock { slot, key }));
            }
            self.drop_slot_blocks(slot, key, bad);
            let part = self.requests.part_mut(id);
            if part.hedge.is_some() {
                // The back end is being asked for them already.
                part.failed |= bad;
            } else {
                self.fetch_from_backend(now_ns, id, bad, actions);
            }
        }
        self.fetch_answered(now_ns, id, actions);
    }

    pub(crate) fn bad_blocks(&self, slot: SlotId, first: u32, crcs: &[u32]) -> BlockMask {
        let known = &self.disk.crcs(slot)[first as usize..][..crcs.len()];
        let bits = (first..).zip(known.iter().zip(crcs));
        bits.fold(0, |mask, (block, (known, is))| mask | BlockMask::from(known != is || *known == 0) << block)
    }

    /// The back end's blocks arrived, or did not.
    pub(crate) fn fetched_backend(
        &mut self,
        now_ns: u64,
        id: PartId,
        blocks: BlockMask,
        result: Result<(), IoError>,
        actions: &mut Actions,
    ) {
        let part = self.requests.part_mut(id);
        match result {
            Ok(()) => part.from_backend |= blocks,
            Err(_) => part.failed |= blocks,
        }
        self.fetch_answered(now_ns, id, actions);
    }

    pub(crate) fn fetch_answered(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = self.requests.part_mut(id);
        part.ops_left -= 1;
        let may_win_yet = part.hedge.is_some() && part.failed != 0;
        if part.ops_left == 0 && !may_win_yet {
            self.drop_hedge(id);
            self.finish_fetch(now_ns, id, actions);
        }
    }

    /// Nothing is on its way any more: the part has its blocks, or has failed.
    pub(crate) fn finish_fetch(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = *self.requests.part(id);
        assert!(part.ops_left == 0 && part.hedge.is_none(), "a part ended before its orders");
        let frame = self.frame_of(id);
        if let Some(activity) = part.activity {
            self.activities.get_mut(activity).fetching &= !part.fetch;
        }
        let arrived = part.fetch & !part.failed;
        if arrived != 0 && self.memory.key(frame) == Some(part.key) {
            self.memory.add_valid(frame, arrived);
            if self.admission.keeps_in_memory(part.run_bytes) {
                self.memory.keep(frame);
            }
            let length = self.requests.get(id.request()).length;
            if self.admits(&part, length) {
                self.store(now_ns, part.key, frame, part.from_backend, actions);
            }
        }
        let result = if part.failed & part.blocks() == 0 { Ok(()) } else { Err(ReplyError::Io) };
        self.finish_part(now_ns, id, result, actions);
    }

    /// Looks for orders that are unanswered for too long: slow slot reads are hedged, a cache disk that hangs is given up,
    /// requests whose back end does not answer fail.
    pub(crate) fn watch(&mut self, now_ns: u64, actions: &mut Actions) {
        if self.ops.len() == 0 {
            return;
        }
        let limits = self.config.limits;
        let mut hung = false;
        let mut late = [None; LATE_MAX];
        let mut places = late.iter_mut();
        let slow_slot_ns = self.slow_slot_ns();
        for (id, op) in self.ops.iter() {
            let waited_ns = now_ns.saturating_sub(op.start_ns);
            hung |= op.role.on_disk() && waited_ns >= limits.disk_timeout_ns;
            let is_gone = waited_ns >= limits.backend_timeout_ns;
            let waits = |part: PartId| !self.requests.get(part.request()).answered;
            // Those about which all was done that can be must not hide the others.
            let is_late = match op.role {
                Role::FetchSlot { part, .. } => {
                    waited_ns >= slow_slot_ns && (self.can_help_late_slot(part) || (is_gone && waits(part)))
                }
                Role::FetchSplit { part, .. } => waited_ns >= self.late_split_ns(part),
                Role::FetchBackend { part, .. }
                | Role::Hedge { part }
                | Role::HedgeSlot { part, .. }
                | Role::Write { part } => is_gone && waits(part),
                _ => false,
            };
            if is_late && let Some(place) = places.next() {
                *place = Some(id);
            }
        }
        if hung {
            self.detach("an operation on the cache disk was not answered in time", now_ns, actions);
        }
        for id in late.into_iter().flatten() {
            if !actions.has_room_for_part() {
                break;
            }
            let op = *self.ops.get(id);
            let is_gone = now_ns.saturating_sub(op.start_ns) >= limits.backend_timeout_ns;
            match op.role {
                Role::FetchSlot { part, .. }
                    if self.can_help_late_slot(part) && self.help_late_slot(now_ns, part, actions) => {}
                Role::FetchSplit { part, .. } if !is_gone => self.help_late_split(now_ns, (id, part), actions),
                Role::FetchSlot { part, .. }
                | Role::FetchBackend { part, .. }
                | Role::FetchSplit { part, .. }
                | Role::Hedge { part }
                | Role::HedgeSlot { part, .. }
                | Role::Write { part }
                    if is_gone =>
                {
                    self.abandon(now_ns, part.request(), actions);
                }
                _ => {}
            }
        }
        self.fail_queued(now_ns, actions);
    }

    /// How long a slot read may take: ten times what nearly all take, at least the configured time, and no longer than
    /// the disk may take at all.
    fn slow_slot_ns(&self) -> u64 {
        let limits = &self.config.limits;
        if self.disk_state != DiskState::Attached {
            return 0;
        }
        self.stats.slot_read_latency.late_ns(limits.hedge_floor_ns, limits.disk_timeout_ns)
    }
}
