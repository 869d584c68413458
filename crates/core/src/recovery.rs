//! Recovery: reading the slot table back while serving.
//!
//! The table is read in order, a bounded stretch at a time; requests are served meanwhile. A page is hit as soon as
//! its record was scanned. Why: 16 million records take seconds to read, and nobody should wait for them.
//!
//! What makes it safe: a record is taken over only if its region was neither in flight when the cache last stopped nor
//! written since (the intent map knows both, and is not cleared before the whole table was read); slots are reused
//! only after they were scanned. A record that is not taken over is marked, so that the next sweep voids it on disk.

use crate::action::{Action, Actions, Notice};
use crate::cache::{Cache, DiskState};
use crate::event::SlotRecord;
use crate::index::WARM_MAX;
use crate::op::Role;
use crate::page::{OpId, PageKey, SlotId};

/// Scans under way at a time: some are read while the last one is taken over.
pub(crate) const SCANS_MAX: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Recovery {
    sectors: u32,
    next_sector: u32,
    sectors_max: u32,
    scans: u32,
    on: bool,
    pages: u32,
    dropped: u32,
}

impl Recovery {
    pub(crate) fn new(on: bool, sectors: u32, sectors_max: u32) -> Self {
        let sectors_max = sectors_max.max(1);
        Self { sectors, next_sector: 0, sectors_max, scans: 0, on: on && sectors > 0, pages: 0, dropped: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn stop(&mut self) {
        self.on = false;
    }
}

impl Cache {
    pub(crate) fn advance_recovery(&mut self, now_ns: u64, actions: &mut Actions) {
        let recovery = &mut self.recovery;
        if !recovery.on {
            return;
        }
        while recovery.scans < SCANS_MAX && recovery.next_sector < recovery.sectors {
            let first_sector = recovery.next_sector;
            let sectors = recovery.sectors_max.min(recovery.sectors - first_sector);
            recovery.next_sector += sectors;
            recovery.scans += 1;
            let op = self.ops.start(now_ns, Role::Scan { first_sector, sectors }, None);
            actions.push(Action::ScanTable { op, first_sector, sectors });
        }
        if recovery.scans == 0 {
            recovery.on = false;
            let (pages, dropped) = (recovery.pages, recovery.dropped);
            actions.push(Action::Notice(Notice::Recovered { pages, dropped }));
        }
    }

    pub(crate) fn scanned(&mut self, op: OpId, first_slot: u32, records: &[SlotRecord], crcs: &[u32]) {
        let record = self.ops.end(op);
        assert!(matches!(record.role, Role::Scan { .. }), "order {} was not a scan", op.0);
        self.recovery.scans -= 1;
        if self.disk_state != DiskState::Attached {
            return;
        }
        let blocks = self.config.blocks_per_page() as usize;
        assert_eq!(crcs.len(), records.len() * blocks, "each record has a checksum a block");
        let mut slot = first_slot;
        for (records, crcs) in records.chunks(WARM_MAX).zip(crcs.chunks(WARM_MAX * blocks)) {
            self.take_over(slot, records, crcs);
            slot += records.len() as u32;
        }
    }

    /// Takes over a batch of records, of slots from `first_slot` on.
    fn take_over(&mut self, first_slot: u32, records: &[SlotRecord], crcs: &[u32]) {
        let blocks = self.config.blocks_per_page() as usize;
        let mut keys = [PageKey::NONE; WARM_MAX];
        let believed = crcs.chunks_exact(blocks).map(|crcs| crcs.iter().any(|&crc| crc != 0));
        for ((key, record), believed) in keys.iter_mut().zip(records).zip(believed) {
            *key = self.trusted(record).filter(|_| believed).unwrap_or(PageKey::NONE);
        }
        self.disk.warm(&keys[..records.len()]);
        for (at, (record, crcs)) in records.iter().zip(crcs.chunks_exact(blocks)).enumerate() {
            let slot = first_slot + at as u32;
            let taken = (keys[at] != PageKey::NONE).then_some((keys[at], crcs));
            if self.disk.scanned_slot(slot, taken) {
                self.recovery.pages += 1;
            } else if record.space != 0 {
                self.recovery.dropped += 1;
                self.disk.mark(SlotId(slot));
            }
        }
    }

    /// The page of a record, if it may be believed.
    fn trusted(&self, record: &SlotRecord) -> Option<PageKey> {
        let volume = self.volume(self.volume_of(record.space)?);
        let offset = record.page.checked_mul(u64::from(self.config.page_bytes))?;
        if offset >= volume.bytes {
            return None;
        }
        let page = u32::try_from(record.page).ok()?;
        (!volume.intent.is_set_at(offset)).then_some(PageKey { space: record.space, page })
    }

    /// A stretch of the table could not be read: its slots are empty.
    pub(crate) fn scan_failed(&mut self, first_sector: u32, sectors: u32) {
        self.recovery.scans -= 1;
        if self.disk_state != DiskState::Attached {
            return;
        }
        for sector in first_sector..first_sector + sectors {
            let first = self.disk.sector_slots(sector).next().map_or(0, |slot| slot.0);
            for slot in first..first + self.disk.sector_slots(sector).count() as u32 {
                self.disk.scanned_slot(slot, None);
            }
            self.disk.mark_sector(sector);
        }
    }
}
