//! Split: hits on the cache disk that the back end serves, because that is faster now.
//!
//! Which, the volume's policy decides ([`forebay_policy::split`]); this is what makes it safe.
//!
//! 1. Only flushed bytes are split. Every store stamps its slot with the writes that the back end has answered so far;
//!    once a flush covers that many, the slot's page may be read from the back end. Until then a back end that restarts
//!    might answer with what was there before.
//! 2. What the back end gives is held against the checksums of the slot. If they differ the back end is right (it was
//!    changed behind the cache, or the slot is bad): its bytes are the answer, the slot's blocks are dropped and counted.
//! 3. A split read that fails is read from its slot, one that is late from both ([`crate::hedge`]), and the back end is
//!    left alone for a while: hits go on when the back end is gone. One that the back end declines is read from its slot,
//!    and says nothing of the others.
//!
//! A request of up to [`WHOLE_BYTES_MAX`] goes one way as a whole: its parts end together. Larger ones are split by part.
//! A hit served by the back end writes nothing to the cache disk.
//!
//! Limits: a page written within the last sweep (5 s) is read from the cache disk. Stamps are 32 bits wide: a page not
//! stored again within two thousand million writes of its volume is not split any more.

use crate::action::{Action, Actions, Notice};
use crate::cache::Cache;
use crate::event::IoError;
use crate::op::{Load, Op, Role};
use crate::page::{BLOCK_BYTES, BlockMask, CachedRun, FrameId, OpId, PageKey, SlotId, VolumeId, blocks_between, runs};
use crate::request::PartId;
use forebay_policy::split::profile::Profile;
use forebay_policy::split::{Done, Path, SplitConfig, SplitState, Splitter, Use};

/// How long a back end that is late may take to let go of a read: a control period.
const LET_GO_NS: u64 = 100_000_000;
/// Requests of up to this size go one way.
const WHOLE_BYTES_MAX: u32 = 256 << 10;

impl Cache {
    /// Of blocks valid in the part's slot: those that the back end is to serve.
    pub(crate) fn split(&mut self, now_ns: u64, id: PartId, slot: SlotId, in_slot: BlockMask) -> BlockMask {
        let page_end = self.requests.part(id).page_end;
        let request = self.requests.get_mut(id.request());
        let v = &mut self.volumes[request.volume.index()];
        let Some(splitter) = v.splitter.as_mut().filter(|_| in_slot != 0) else { return 0 };
        let cut_short = in_slot.checked_shr(page_end / BLOCK_BYTES).unwrap_or(0) != 0;
        let is_flushed = v.flushed_seq >= v.split_from_seq && self.disk.is_flushed(slot, v.flushed_seq);
        let may_split = is_flushed && !cut_short;
        let whole = request.length <= WHOLE_BYTES_MAX;
        let path = match request.split.filter(|_| whole) {
            Some(path) => path,
            None if !may_split => Path::DISK,
            None => splitter.choose(now_ns, if whole { request.length } else { in_slot.count_ones() * BLOCK_BYTES }),
        };
        request.split = Some(path);
        if may_split && path == Path::BACKEND { in_slot } else { 0 }
    }

    /// Reads blocks of the part's slot from the back end.
    pub(crate) fn order_split_reads(
        &mut self,
        now_ns: u64,
        id: PartId,
        slot: SlotId,
        blocks: BlockMask,
        actions: &mut Actions,
    ) {
        let role = |blocks: BlockMask| Role::FetchSplit { part: id, slot, first: blocks.trailing_zeros(), blocks };
        let orders = self.order_backend_reads(now_ns, id, self.frame_of(id), blocks, role, actions);
        self.requests.part_mut(id).ops_left += orders;
    }

    /// The back end's answer to a split read, with checksums.
    pub(crate) fn fetched_split(
        &mut self,
        now_ns: u64,
        id: PartId,
        start_ns: u64,
        (slot, first, blocks): (SlotId, u32, BlockMask),
        result: Result<&[u32], IoError>,
        actions: &mut Actions,
    ) {
        let key = self.requests.part(id).key;
        let held = if self.slot_of(key) == Some(slot) { self.disk.valid(slot) & blocks } else { 0 };
        match result {
            Ok(crcs) => {
                let latency_ns = now_ns.saturating_sub(start_ns);
                self.count_split(id, |stats| stats.split_read_latency.record_recent(latency_ns));
                let differ = self.bad_blocks(slot, first, crcs) & held;
                if differ != 0 {
                    self.count_split(id, |stats| stats.split_mismatches += u64::from(differ.count_ones()));
                    actions.push(Action::Notice(Notice::BadBlock { slot, key }));
                    self.drop_slot_blocks(slot, key, differ);
                    self.requests.part_mut(id).from_backend |= differ;
                }
            }
            Err(error) => {
                if error != IoError::Declined {
                    self.suspend_split(now_ns, id);
                }
                self.fail_over(now_ns, id, slot, (blocks, held), actions);
            }
        }
        self.fetch_answered(now_ns, id, actions);
    }

    /// How long a split read may take: as a read of a slot, by what those of its volume usually take.
    pub(crate) fn late_split_ns(&self, part: PartId) -> u64 {
        let volume = self.requests.get(part.request()).volume.index();
        let limits = &self.config.limits;
        let latency = &self.stats.volumes[volume].split_read_latency;
        latency.late_ns(limits.hedge_floor_ns, limits.backend_timeout_ns)
    }

    /// A split read takes too long. First the back end is asked to let go of it; what it holds for want of a connection
    /// fails then, and comes from its slot without a second frame. What it does not let go of is read from both.
    pub(crate) fn help_late_split(&mut self, now_ns: u64, (op, part): (OpId, PartId), actions: &mut Actions) {
        let (waited_ns, late_ns) = {
            let op = self.ops.get(op);
            (now_ns.saturating_sub(op.start_ns), self.late_split_ns(part))
        };
        let volume = self.requests.get(part.request()).volume;
        if waited_ns < late_ns + LET_GO_NS {
            self.suspend_split(now_ns, part);
        } else if self.can_help_late_split(part) && self.hedge_from_slot(now_ns, part, actions) {
            return;
        }
        // A connection that is lost may take its time to be known as lost.
        actions.push(Action::GiveUpRead { op, volume });
    }

    /// What the back end did not give comes from the slot.
    fn fail_over(
        &mut self,
        now_ns: u64,
        id: PartId,
        slot: SlotId,
        (blocks, held): (BlockMask, BlockMask),
        actions: &mut Actions,
    ) {
        if self.requests.part(id).hedge.is_some() {
            self.requests.part_mut(id).failed |= blocks;
            return;
        }
        if held != blocks {
            // The slot has changed hands. The back end may only have been told to let go of it.
            return self.fetch_from_backend(now_ns, id, blocks, actions);
        }
        for (first, count) in runs(blocks) {
            self.order_slot_read(now_ns, id, slot, first, count, actions);
        }
    }

    /// The back end is in trouble: hits go to the cache disk for a while.
    pub(crate) fn suspend_split(&mut self, now_ns: u64, id: PartId) {
        self.count_split(id, |stats| stats.split_failovers += 1);
        let volume = self.requests.get(id.request()).volume;
        if let Some(splitter) = &mut self.volumes[volume.index()].splitter {
            splitter.suspend(now_ns);
        }
    }

    fn count_split(&mut self, id: PartId, count: impl FnOnce(&mut crate::stats::VolumeStats)) {
        let volume = self.requests.get(id.request()).volume;
        count(&mut self.stats.volumes[volume.index()]);
    }

    /// The order is a read or a write of a path: the volume's policy wants to know how it goes.
    pub(crate) fn measure(&mut self, op: OpId, volume: VolumeId, (path, kind): (Path, Use), bytes: u32) {
        if let Some(splitter) = &mut self.volumes[volume.index()].splitter {
            let in_flight = splitter.started(path, bytes, kind);
            self.ops.set_load(op, Load { volume, path, kind, bytes, in_flight });
        }
    }

    /// A measured order ended.
    pub(crate) fn measured(&mut self, now_ns: u64, op: &Op, result: Result<(), IoError>) {
        let Some(Load { volume, path, kind, bytes, in_flight }) = op.load else { return };
        if let Some(splitter) = &mut self.volumes[volume.index()].splitter {
            let latency_ns = now_ns.saturating_sub(op.start_ns);
            let done = Done { path, kind, bytes, now_ns, latency_ns, in_flight };
            match result {
                Err(IoError::Declined) => splitter.declined(&done),
                _ => splitter.ended(&done),
            }
        }
    }

    /// The slot holds what the back end has answered; it is clean once a flush covers that.
    pub(crate) fn stamp(&mut self, slot: SlotId, key: PageKey) {
        if !self.disk.keeps_stamps() {
            return;
        }
        let Some(volume) = self.volume_of(key.space).map(|volume| self.volume(volume)) else { return };
        let in_flight = !self.config.intent_map || volume.intent.is_set_at(self.page_start(key));
        self.disk.stamp(slot, if in_flight { volume.write_seq } else { volume.flushed_seq });
    }

    /// Changes how a volume's hits are split, from now on. What was measured is forgotten.
    pub(crate) fn set_split(&mut self, now_ns: u64, volume: VolumeId, split: SplitConfig) {
        self.ops.forget_loads(volume);
        let v = &mut self.volumes[volume.index()];
        v.splitter = Splitter::new(split, &self.config.volumes[volume.index()].profile, now_ns);
        v.split_from_seq = v.write_seq;
        if v.splitter.is_some() {
            self.disk.keep_stamps();
        }
        self.config.volumes[volume.index()].split = split;
    }

    /// Changes what a volume's paths are said to deliver.
    pub(crate) fn set_profile(&mut self, now_ns: u64, volume: VolumeId, profile: &Profile) {
        let config = &mut self.config.volumes[volume.index()];
        config.profile = profile.clone();
        if config.split.kind.needs_profile() {
            let split = config.split;
            self.set_split(now_ns, volume, split);
        }
    }

    /// So many blocks of the volume that a slot holds and that its back end has whole; aligned to their number, any of them.
    /// For measuring: both paths can read them.
    #[must_use]
    pub fn cached_run(&self, volume: VolumeId, slot: SlotId, blocks: u32) -> Option<CachedRun> {
        let v = self.volume(volume);
        let key = self.disk.key(slot).filter(|key| key.space == v.space)?;
        let (page_start, valid) = (self.page_start(key), self.disk.valid(slot));
        let groups = self.config.blocks_per_page() / blocks;
        let firsts = (0..groups).map(|nth| (nth + slot.0) % groups * blocks);
        let is_whole = |first: &u32| {
            let run = blocks_between(*first, first + blocks - 1);
            let end = page_start + u64::from((first + blocks) * BLOCK_BYTES);
            valid & run == run && end <= v.bytes
        };
        let first_block = firsts.into_iter().find(is_whole)?;
        Some(CachedRun { slot, page_start, first_block })
    }

    /// A frame for bytes that are none of the cache's, from what memory can spare; `None` if it can spare none. To be given
    /// back by [`Self::take_back_frame`].
    pub fn lend_frame(&mut self) -> Option<FrameId> {
        self.memory.set_aside(1).then(|| self.memory.allocate())
    }

    /// A lent frame is not used any more.
    pub fn take_back_frame(&mut self, frame: FrameId) {
        self.memory.unpin(frame);
        self.memory.give_back();
    }

    /// Blocks of a page.
    #[must_use]
    pub fn blocks_per_page(&self) -> u32 {
        self.config.blocks_per_page()
    }

    /// Whether a policy has a say in the volume's hits.
    #[must_use]
    pub fn is_split(&self, volume: VolumeId) -> bool {
        self.volume(volume).splitter.is_some()
    }

    /// How a volume's hits are split, and what its policy believes; `None` if they are not.
    #[must_use]
    pub fn split_state(&self, now_ns: u64, volume: VolumeId) -> Option<SplitState> {
        self.volume(volume).splitter.as_ref().map(|splitter| splitter.state(now_ns))
    }

    /// What the volume's paths are said to deliver, with what its policy observed.
    #[must_use]
    pub fn profile(&self, volume: VolumeId) -> &Profile {
        let learnt = self.volume(volume).splitter.as_ref().and_then(Splitter::profile);
        learnt.unwrap_or(&self.config.volumes[volume.index()].profile)
    }

    /// Whether a split read of the part that takes too long can be helped by its slot.
    pub(crate) fn can_help_late_split(&self, id: PartId) -> bool {
        let part = self.requests.part(id);
        let Some(slot) = self.slot_of(part.key) else { return false };
        let all_split = self.ops.iter().all(|(_, op)| match op.role {
            Role::FetchSlot { part, .. } | Role::FetchBackend { part, .. } => part != id,
            Role::FetchSplit { part, blocks, .. } => part != id || blocks & !self.disk.valid(slot) == 0,
            _ => true,
        });
        !part.hedged && all_split
    }

    /// Reads blocks of a slot into a second frame, for a part whose back end is late. How many orders.
    pub(crate) fn order_slot_hedge(
        &mut self,
        now_ns: u64,
        id: PartId,
        frame: FrameId,
        blocks: BlockMask,
        actions: &mut Actions,
    ) -> u16 {
        let key = self.requests.part(id).key;
        let slot = self.slot_of(key).expect("the slot can help");
        let mut orders = 0;
        for (first, count) in runs(blocks) {
            let role = Role::HedgeSlot { part: id, slot, first, blocks: blocks_between(first, first + count - 1) };
            let op = self.ops.start(now_ns, role, Some(frame));
            actions.push(Action::ReadSlot { op, slot, key, frame, first_block: first, blocks: count });
            orders += 1;
        }
        orders
    }

    /// A slot's blocks arrived in the second frame, with these checksums, or did not.
    pub(crate) fn hedged_slot(
        &mut self,
        now_ns: u64,
        id: PartId,
        (slot, first): (SlotId, u32),
        result: Result<&[u32], IoError>,
        actions: &mut Actions,
    ) {
        let holds = self.slot_of(self.requests.part(id).key) == Some(slot);
        let is_good = holds && result.is_ok_and(|crcs| self.bad_blocks(slot, first, crcs) == 0);
        let part = self.requests.part_mut(id);
        if !is_good && part.ops_left == 0 && part.failed != 0 {
            // Neither gave it; but the back end may only have been told to let go of it.
            let blocks = core::mem::take(&mut part.failed);
            self.fetch_from_backend(now_ns, id, blocks, actions);
        }
        self.hedge_answered(now_ns, id, is_good, actions);
    }
}
