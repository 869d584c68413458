//! The slot table: for each slot, the page in it and the checksum of each of its blocks.
//!
//! Why: a restart reads the whole table (1.3 GB for 16 million pages) before the cache is complete, so decoding must
//! keep up with the disk: a sector is checked and then read in place, and nothing is allocated.
//!
//! ```text
//! sector:  0     4   8           16            24            28   32
//!          | magic | crc | epoch | sector_index | record_count | zero | records
//! record:  0       4       8      16
//!          | space | flags | page | crc u32 x blocks_per_page |
//! ```
//! Space 0: the slot is void. A block's crc 0: the block is absent.
//!
//! Invariants: a sector with a bad checksum, in the wrong place, of another epoch or of another count of records than
//! the layout says makes all its slots void: a miss, never an error. So does a record with a flag this version does
//! not know. The table needs no order of writes against the slots: each block's checksum tells whether the slot holds
//! the bytes the record speaks of.
//!
//! Rejected: see `docs/design/disk-format.md` (a journal, metadata in slots, a mask of valid blocks).

use core::slice::ChunksExact;

use super::SECTOR_BYTES;
use super::checksum;
use super::layout::{Layout, RECORD_HEAD_BYTES, TABLE_HEADER_BYTES};
use super::superblock::Superblock;
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"FBST");
const CRC_AT: usize = 4;

/// How the slot table of one cache is read and written.
#[derive(Clone, Copy, Debug)]
pub struct TableFormat {
    layout: Layout,
    cache_seed: u32,
    epoch: u64,
}

/// What a sector of the table holds.
#[derive(Clone, Debug)]
pub enum Sector<'a> {
    /// Records, one for each slot of the sector.
    Valid(Records<'a>),
    /// Never written: its slots are void.
    Blank,
    /// Of another epoch: its slots are void.
    Stale {
        /// The epoch it was written in.
        epoch: u64,
    },
    /// Not to be believed: its slots are void.
    Damaged,
}

impl TableFormat {
    /// The format of the table of the cache that `superblock` describes.
    pub fn new(superblock: &Superblock) -> Self {
        Self { layout: superblock.layout, cache_seed: superblock.cache_seed(), epoch: superblock.table_epoch }
    }

    /// Checks sector `index` and gives its records.
    ///
    /// # Panics
    /// When `bytes` is not 4 KiB or there is no such sector.
    pub fn decode<'a>(&self, index: u64, bytes: &'a [u8]) -> Sector<'a> {
        assert_eq!(bytes.len(), SECTOR_BYTES);
        let slots = self.layout.slots_of_sector(index);
        if le_u32(bytes, 0) != MAGIC {
            return if bytes.iter().all(|byte| *byte == 0) { Sector::Blank } else { Sector::Damaged };
        }
        if le_u32(bytes, CRC_AT) != checksum::sector(self.cache_seed, bytes, CRC_AT) || le_u64(bytes, 16) != index {
            return Sector::Damaged;
        }
        let epoch = le_u64(bytes, 8);
        if epoch != self.epoch {
            return Sector::Stale { epoch };
        }
        let count = slots.end - slots.start;
        if u64::from(le_u32(bytes, 24)) != count {
            return Sector::Damaged;
        }
        let record_bytes = self.layout.record_bytes();
        let records = &bytes[TABLE_HEADER_BYTES..][..count as usize * record_bytes];
        Sector::Valid(Records { next_slot: slots.start, chunks: records.chunks_exact(record_bytes) })
    }

    /// Begins sector `index` in `bytes`, all its slots void.
    ///
    /// # Panics
    /// When `bytes` is not 4 KiB or there is no such sector.
    pub fn encode<'a>(&'a self, index: u64, bytes: &'a mut [u8]) -> SectorWriter<'a> {
        assert_eq!(bytes.len(), SECTOR_BYTES);
        let slots = self.layout.slots_of_sector(index);
        bytes.fill(0);
        put_le_u32(bytes, 0, MAGIC);
        put_le_u64(bytes, 8, self.epoch);
        put_le_u64(bytes, 16, index);
        put_le_u32(bytes, 24, (slots.end - slots.start) as u32);
        SectorWriter { format: self, first_slot: slots.start, end_slot: slots.end, bytes }
    }
}

/// The records of a sector, in the order of their slots.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    next_slot: u64,
    chunks: ChunksExact<'a, u8>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let bytes = self.chunks.next()?;
        let slot = self.next_slot;
        self.next_slot += 1;
        Some(Record { slot, bytes })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl ExactSizeIterator for Records<'_> {}

/// One record, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    slot: u64,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The slot it speaks of.
    #[inline]
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// The space of the page in the slot; `None`: the slot is void.
    #[inline]
    pub fn space(&self) -> Option<u32> {
        let (space, flags) = (le_u32(self.bytes, 0), le_u32(self.bytes, 4));
        (space != 0 && flags == 0).then_some(space)
    }

    /// The number of the page in its space.
    #[inline]
    pub fn page(&self) -> u64 {
        le_u64(self.bytes, 8)
    }

    /// The checksum of block `block` of the page; 0: the block is absent.
    #[inline]
    pub fn crc(&self, block: usize) -> u32 {
        le_u32(self.bytes, RECORD_HEAD_BYTES + block * 4)
    }

    /// The checksums of all blocks, 4 little-endian bytes each.
    #[inline]
    pub fn crcs(&self) -> &'a [u8] {
        &self.bytes[RECORD_HEAD_BYTES..]
    }

    /// A bit for each block that is present.
    #[inline]
    pub fn present(&self) -> u64 {
        let mut mask = 0;
        for (block, crc) in self.crcs().chunks_exact(4).enumerate() {
            mask |= u64::from(le_u32(crc, 0) != 0) << block;
        }
        mask
    }
}

/// A sector of the table being written.
#[derive(Debug)]
pub struct SectorWriter<'a> {
    format: &'a TableFormat,
    first_slot: u64,
    end_slot: u64,
    bytes: &'a mut [u8],
}

impl SectorWriter<'_> {
    /// Records that `slot` holds `page` of `space`; `crcs` gives each block's checksum, 0 where it is absent.
    ///
    /// # Panics
    /// When the slot is not of this sector, the space is 0, or `crcs` has not one checksum for each block.
    pub fn put(&mut self, slot: u64, space: u32, page: u64, crcs: &[u32]) {
        assert!((self.first_slot..self.end_slot).contains(&slot), "slot {slot} is not of this sector");
        assert!(space != 0, "space 0 marks a void slot");
        assert_eq!(crcs.len(), self.format.layout.blocks_per_page());
        let record_bytes = self.format.layout.record_bytes();
        let at = TABLE_HEADER_BYTES + (slot - self.first_slot) as usize * record_bytes;
        let record = &mut self.bytes[at..at + record_bytes];
        put_le_u32(record, 0, space);
        put_le_u64(record, 8, page);
        for (crc, bytes) in crcs.iter().zip(record[RECORD_HEAD_BYTES..].chunks_exact_mut(4)) {
            put_le_u32(bytes, 0, *crc);
        }
    }

    /// Seals the sector with its checksum: it may be written.
    pub fn finish(self) {
        let crc = checksum::sector(self.format.cache_seed, self.bytes, CRC_AT);
        put_le_u32(self.bytes, CRC_AT, crc);
    }
}

#[cfg(test)]
#[path = "slot_table_tests.rs"]
mod tests;
