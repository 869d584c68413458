//! The disk tier: slots, the checksums of their blocks, and which table sectors have changed.
//!
//! A block is valid in a slot if and only if its checksum is not 0. It gets its checksum when its write has ended, and
//! loses it before the next write starts, so that no read ever trusts a block that is being written.
//!
//! A change marks the table sector of its slot; [`crate::sweep`] writes marked sectors. A slot that loses its page is
//! marked too: its old record on disk must not outlive the sweep, or a crash would bring back what was overwritten
//! since.
//!
//! Limits: 96 bytes a 64 KiB page (64 of checksums, 32 of index, policy and ghost).

use crate::index::Index;
use crate::page::{BlockMask, PageKey, SlotId, runs};
use alloc::vec;
use alloc::vec::Vec;
use forebay_policy::evict::{Evict, Links, Policy, PolicyKind, Removal};

/// See the module.
#[derive(Debug)]
pub(crate) struct DiskTier {
    index: Index,
    crcs: Vec<u32>,
    links: Links,
    policy: Policy,
    blocks_per_page: u32,
    records_per_sector: u32,
    /// Slots given back; those never used lie from `fresh` to `fresh_end`.
    free: Vec<u32>,
    fresh: u32,
    fresh_end: u32,
    scanned: u32,
    dirty: Vec<u64>,
    dirty_count: u32,
    /// By slot: how many writes of its volume the back end had answered when it was stored. Empty where nothing is split.
    stamps: Vec<u32>,
}

impl DiskTier {
    pub(crate) fn new(
        slots: u32,
        blocks_per_page: u32,
        records_per_sector: u32,
        policy: PolicyKind,
        seed: u64,
        recover: bool,
    ) -> Self {
        let sectors = slots.div_ceil(records_per_sector.max(1));
        Self {
            index: Index::new(slots),
            crcs: vec![0; slots as usize * blocks_per_page as usize],
            links: Links::new(slots),
            policy: Policy::new(policy, u64::from(slots), slots, seed),
            blocks_per_page,
            records_per_sector: records_per_sector.max(1),
            free: Vec::new(),
            fresh: 0,
            fresh_end: if recover { 0 } else { slots },
            scanned: if recover { 0 } else { slots },
            dirty: vec![0; (sectors as usize).div_ceil(64)],
            dirty_count: 0,
            stamps: Vec::new(),
        }
    }

    /// Slots have stamps from now on.
    pub(crate) fn keep_stamps(&mut self) {
        if !self.keeps_stamps() {
            self.stamps = vec![0; self.slots() as usize];
        }
    }

    pub(crate) fn keeps_stamps(&self) -> bool {
        !self.stamps.is_empty()
    }

    pub(crate) fn stamp(&mut self, slot: SlotId, write_seq: u64) {
        self.stamps[slot.index()] = write_seq as u32;
    }

    /// Whether what the slot holds is covered by `flushed_seq` writes.
    pub(crate) fn is_flushed(&self, slot: SlotId, flushed_seq: u64) -> bool {
        let stamp = self.stamps[slot.index()];
        (flushed_seq as u32).wrapping_sub(stamp) as i32 >= 0
    }

    /// Slots in all.
    pub(crate) fn slots(&self) -> u32 {
        self.index.entries()
    }

    /// Pages with a slot.
    pub(crate) fn pages(&self) -> u32 {
        self.index.len()
    }

    /// Sectors of the slot table.
    pub(crate) fn sectors(&self) -> u32 {
        self.slots().div_ceil(self.records_per_sector)
    }

    pub(crate) fn lookup(&self, key: PageKey) -> Option<SlotId> {
        self.index.lookup(key).map(SlotId)
    }

    pub(crate) fn key(&self, slot: SlotId) -> Option<PageKey> {
        self.index.key(slot.0)
    }

    /// The checksums of a slot's blocks; 0: not valid.
    pub(crate) fn crcs(&self, slot: SlotId) -> &[u32] {
        let blocks = self.blocks_per_page as usize;
        &self.crcs[slot.index() * blocks..][..blocks]
    }

    fn crcs_mut(&mut self, slot: SlotId) -> &mut [u32] {
        let blocks = self.blocks_per_page as usize;
        &mut self.crcs[slot.index() * blocks..][..blocks]
    }

    pub(crate) fn valid(&self, slot: SlotId) -> BlockMask {
        let bits = self.crcs(slot).iter().enumerate();
        bits.fold(0, |mask, (block, &crc)| mask | BlockMask::from(crc != 0) << block)
    }

    /// The blocks from `first` on have these checksums now.
    pub(crate) fn set_crcs(&mut self, slot: SlotId, first: u32, crcs: &[u32], except: BlockMask) {
        for (block, &crc) in (first..).zip(crcs) {
            assert!(crc != 0, "a checksum is never 0");
            if except >> block & 1 == 0 {
                self.crcs_mut(slot)[block as usize] = crc;
            }
        }
        self.mark(slot);
    }

    /// The blocks are not valid any more.
    pub(crate) fn drop_blocks(&mut self, slot: SlotId, blocks: BlockMask) {
        if self.valid(slot) & blocks == 0 {
            return;
        }
        for (first, count) in runs(blocks) {
            self.crcs_mut(slot)[first as usize..][..count as usize].fill(0);
        }
        self.mark(slot);
    }

    pub(crate) fn touch(&mut self, slot: SlotId) {
        self.policy.hit(&mut self.links, slot.0);
    }

    /// A slot for a page that has none: a free one, or the policy's victim among those that are not `busy`.
    pub(crate) fn allocate(&mut self, key: PageKey, busy: impl Fn(PageKey) -> bool) -> Option<SlotId> {
        let slot = match self.take_free() {
            Some(slot) => slot,
            None => {
                let index = &self.index;
                let is_busy = |slot: u32| index.key(slot).is_none_or(&busy);
                let victim = SlotId(self.policy.victim(&mut self.links, is_busy)?);
                let key_hash = index.key(victim.0)?.hash();
                self.remove(victim, Removal::Evicted { key_hash });
                self.free.pop()?
            }
        };
        self.insert(slot, key);
        Some(SlotId(slot))
    }

    fn take_free(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.fresh < self.fresh_end).then(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        })
    }

    fn insert(&mut self, slot: u32, key: PageKey) {
        self.index.insert(slot, key);
        self.policy.inserted(&mut self.links, slot, key.hash(), 1);
        self.mark(SlotId(slot));
    }

    fn remove(&mut self, slot: SlotId, removal: Removal) {
        self.index.remove(slot.0);
        self.policy.removed(&mut self.links, slot.0, removal);
        self.crcs_mut(slot).fill(0);
        self.free.push(slot.0);
        self.mark(slot);
    }

    /// Gives the slot back: its page is not to be served from it again.
    pub(crate) fn invalidate(&mut self, slot: SlotId) {
        self.remove(slot, Removal::Invalidated);
    }

    /// These pages will be asked for next; see [`Index::warm`].
    pub(crate) fn warm(&self, keys: &[PageKey]) {
        self.index.warm(keys);
    }

    /// What the table said of a slot. `None`, or a page that has a slot already: the slot is free. Returns whether
    /// the page is cached. A record that is not taken over is marked, so that it does not come back.
    pub(crate) fn scanned_slot(&mut self, slot: u32, record: Option<(PageKey, &[u32])>) -> bool {
        assert!(self.key(SlotId(slot)).is_none(), "slot {slot} was used before it was scanned");
        self.scanned += 1;
        let Some((key, crcs)) = record.filter(|(key, _)| self.lookup(*key).is_none()) else {
            self.free.push(slot);
            return false;
        };
        self.index.insert(slot, key);
        self.policy.inserted(&mut self.links, slot, key.hash(), 1);
        self.crcs_mut(SlotId(slot)).copy_from_slice(crcs);
        true
    }

    /// Slots whose records were scanned.
    pub(crate) fn scanned(&self) -> u32 {
        self.scanned
    }

    /// The slot's sector has to be written.
    pub(crate) fn mark(&mut self, slot: SlotId) {
        self.mark_sector(slot.0 / self.records_per_sector);
    }

    /// The sector has to be written.
    pub(crate) fn mark_sector(&mut self, sector: u32) {
        let (word, bit) = (sector as usize / 64, 1 << (sector % 64));
        if self.dirty[word] & bit == 0 {
            self.dirty[word] |= bit;
            self.dirty_count += 1;
        }
    }

    /// Sectors that have to be written.
    pub(crate) fn dirty_sectors(&self) -> u32 {
        self.dirty_count
    }

    /// Takes the marks of all sectors into `into`; returns how many there are.
    pub(crate) fn take_dirty(&mut self, into: &mut Vec<u64>) -> u32 {
        into.clear();
        into.extend_from_slice(&self.dirty);
        self.dirty.fill(0);
        core::mem::take(&mut self.dirty_count)
    }

    /// The slots of a table sector.
    pub(crate) fn sector_slots(&self, sector: u32) -> impl Iterator<Item = SlotId> {
        let first = sector * self.records_per_sector;
        (first..(first + self.records_per_sector).min(self.slots())).map(SlotId)
    }
}
