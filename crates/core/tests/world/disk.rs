//! The cache disk: slots and table sectors with a volatile write cache, and the intent map.

use forebay_policy::rng::{Rng, mix64};
use std::collections::BTreeMap;

/// A sector of the table: for each slot its page and checksums.
pub(crate) type Records = Vec<(Option<(u32, u32)>, Vec<u32>)>;

enum Write {
    Slot { slot: usize, at: usize, before: Vec<u32> },
    Table { sector: u32, before: Option<Records> },
}

pub(crate) struct DiskModel {
    slots: Vec<Vec<u32>>,
    pub(crate) table: BTreeMap<u32, Records>,
    /// Always durable: it is written so.
    pub(crate) intent: Vec<u64>,
    /// Not flushed, oldest first, with what was there before.
    unflushed: Vec<Write>,
    forgotten: usize,
}

/// Stands for the checksum: mixes what the real one covers.
pub(crate) fn crc((space, page): (u32, u32), block: u32, values: &[u32]) -> u32 {
    let seed = mix64(u64::from(space) << 32 | u64::from(page)) ^ u64::from(block);
    let mixed = values.iter().fold(seed, |hash, value| mix64(hash ^ u64::from(*value)));
    (mixed as u32).max(1)
}

impl DiskModel {
    pub(crate) fn new(slots: usize, page_sectors: usize) -> Self {
        let slots = vec![vec![0; page_sectors]; slots];
        Self { slots, table: BTreeMap::new(), intent: Vec::new(), unflushed: Vec::new(), forgotten: 0 }
    }

    pub(crate) fn read_slot(&self, slot: usize, at: usize, sectors: usize) -> Vec<u32> {
        self.slots[slot][at..at + sectors].to_vec()
    }

    pub(crate) fn write_slot(&mut self, slot: usize, at: usize, values: Vec<u32>) {
        let to = &mut self.slots[slot][at..at + values.len()];
        let before = to.to_vec();
        to.copy_from_slice(&values);
        self.unflushed.push(Write::Slot { slot, at, before });
    }

    pub(crate) fn write_table(&mut self, sector: u32, records: Records) {
        let before = self.table.insert(sector, records);
        self.unflushed.push(Write::Table { sector, before });
    }

    /// Writes so far.
    pub(crate) fn written(&self) -> usize {
        self.forgotten + self.unflushed.len()
    }

    /// The first so many writes are durable.
    pub(crate) fn flush(&mut self, covers: usize) {
        let durable = covers.saturating_sub(self.forgotten).min(self.unflushed.len());
        self.unflushed.drain(..durable);
        self.forgotten += durable;
    }

    /// Some of what was not flushed is gone.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        while let Some(write) = self.unflushed.pop() {
            if rng.below(2) == 0 {
                continue;
            }
            match write {
                Write::Slot { slot, at, before } => self.slots[slot][at..at + before.len()].copy_from_slice(&before),
                Write::Table { sector, before } => match before {
                    Some(records) => {
                        self.table.insert(sector, records);
                    }
                    None => {
                        self.table.remove(&sector);
                    }
                },
            }
        }
    }

    /// What is there now stays.
    pub(crate) fn keep_all(&mut self) {
        self.forgotten += self.unflushed.len();
        self.unflushed.clear();
    }
}
