//! Where everything lies on a cache disk: a function of the device's size and the page size, and of nothing else.
//!
//! The slot table grows by one record for each slot, and the slots begin at the next MiB after it. The count of slots
//! is the largest for which both fit.

use super::{BLOCK_BYTES, MIB, SECTOR_BYTES, VOLUMES_MAX};
use crate::Error;

/// The smallest page: one block.
pub const PAGE_BYTES_MIN: u32 = 4096;
/// The largest page: 64 blocks, so that a mask of blocks is one `u64`.
pub const PAGE_BYTES_MAX: u32 = 256 << 10;
/// Fewer slots than this make no cache.
pub const SLOT_COUNT_MIN: u64 = 16;
/// More slots than this are left unused, so that a slot's number fits a `u32` with a value to spare.
pub const SLOT_COUNT_MAX: u64 = u32::MAX as u64 - 1;

/// Where the intent maps begin.
pub const INTENT_OFFSET: u64 = 2 * SECTOR_BYTES as u64;
/// Where the slot table begins.
pub const TABLE_OFFSET: u64 = INTENT_OFFSET + (VOLUMES_MAX * 2 * SECTOR_BYTES) as u64;
/// The head of a sector of the slot table.
pub(super) const TABLE_HEADER_BYTES: usize = 32;
/// The fixed part of a record of the slot table.
pub(super) const RECORD_HEAD_BYTES: usize = 16;

/// Where everything lies on one cache disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    page_bytes: u32,
    device_bytes: u64,
    slot_count: u64,
    data_offset: u64,
}

impl Layout {
    /// Lays out a device of `device_bytes` in pages of `page_bytes`.
    ///
    /// # Errors
    /// [`Error::Limit`] when the page size is not a power of two from 4 KiB to 256 KiB, or the device is too small
    /// for [`SLOT_COUNT_MIN`] slots (its limit is then the least size that does).
    pub fn new(device_bytes: u64, page_bytes: u32) -> Result<Self, Error> {
        if !page_bytes.is_power_of_two() || page_bytes < PAGE_BYTES_MIN {
            let (actual, limit) = (u64::from(page_bytes), u64::from(PAGE_BYTES_MIN));
            return Err(Error::Limit { what: "bytes of a page (a power of two, at least)", actual, limit });
        }
        if page_bytes > PAGE_BYTES_MAX {
            let (actual, limit) = (u64::from(page_bytes), u64::from(PAGE_BYTES_MAX));
            return Err(Error::Limit { what: "bytes of a page (at most)", actual, limit });
        }
        let with = |slot_count| Self {
            page_bytes,
            device_bytes,
            slot_count,
            data_offset: data_offset(slot_count, page_bytes),
        };
        let needed = with(SLOT_COUNT_MIN).end_offset();
        if device_bytes < needed {
            return Err(Error::Limit {
                what: "bytes of the cache device (at least)",
                actual: device_bytes,
                limit: needed,
            });
        }
        // The end grows with the count of slots: bisect for the last count that fits.
        let (mut fits, mut beyond) = (SLOT_COUNT_MIN, (device_bytes / u64::from(page_bytes)).min(SLOT_COUNT_MAX) + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if with(middle).end_offset() <= device_bytes {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        Ok(with(fits))
    }

    /// The size of a page and of a slot.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// The size of the device this was computed for.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// How many slots there are.
    pub fn slot_count(&self) -> u64 {
        self.slot_count
    }

    /// How many blocks a page has: 1 to 64.
    pub fn blocks_per_page(&self) -> usize {
        self.page_bytes as usize / BLOCK_BYTES
    }

    /// Where the copy of sequence `sequence` of the superblock lies.
    pub fn superblock_offset(sequence: u64) -> u64 {
        (sequence & 1) * SECTOR_BYTES as u64
    }

    /// Where the copy of sequence `sequence` of the intent map of the `volume`-th entry of the superblock lies.
    ///
    /// # Panics
    /// When `volume` is beyond the superblock's entries.
    pub fn intent_offset(volume: usize, sequence: u64) -> u64 {
        assert!(volume < VOLUMES_MAX, "volume entry {volume} of {VOLUMES_MAX}");
        INTENT_OFFSET + (volume as u64 * 2 + (sequence & 1)) * SECTOR_BYTES as u64
    }

    /// Where sector `sector` of the slot table lies.
    pub fn table_sector_offset(&self, sector: u64) -> u64 {
        assert!(sector < self.table_sector_count(), "table sector {sector} of {}", self.table_sector_count());
        TABLE_OFFSET + sector * SECTOR_BYTES as u64
    }

    /// Where the slot table begins.
    pub fn table_offset(&self) -> u64 {
        TABLE_OFFSET
    }

    /// Where the slots begin.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Where slot `slot` lies.
    pub fn slot_offset(&self, slot: u64) -> u64 {
        assert!(slot < self.slot_count, "slot {slot} of {}", self.slot_count);
        self.data_offset + slot * u64::from(self.page_bytes)
    }

    /// How many sectors the slot table has.
    pub fn table_sector_count(&self) -> u64 {
        self.slot_count.div_ceil(records_per_sector(self.page_bytes))
    }

    /// How many records a full sector of the slot table holds.
    pub fn records_per_sector(&self) -> u64 {
        records_per_sector(self.page_bytes)
    }

    /// The sector of the slot table that holds the record of `slot`.
    pub fn table_sector_of(&self, slot: u64) -> u64 {
        assert!(slot < self.slot_count, "slot {slot} of {}", self.slot_count);
        slot / self.records_per_sector()
    }

    /// The slots whose records are in sector `sector` of the slot table; the last sector may have fewer than a full one.
    pub fn slots_of_sector(&self, sector: u64) -> core::ops::Range<u64> {
        assert!(sector < self.table_sector_count(), "table sector {sector} of {}", self.table_sector_count());
        let first = sector * self.records_per_sector();
        first..(first + self.records_per_sector()).min(self.slot_count)
    }

    /// The size of one record of the slot table.
    pub(super) fn record_bytes(&self) -> usize {
        record_bytes(self.page_bytes)
    }

    fn end_offset(&self) -> u64 {
        self.data_offset + self.slot_count * u64::from(self.page_bytes)
    }
}

fn record_bytes(page_bytes: u32) -> usize {
    RECORD_HEAD_BYTES + page_bytes as usize / BLOCK_BYTES * 4
}

fn records_per_sector(page_bytes: u32) -> u64 {
    ((SECTOR_BYTES - TABLE_HEADER_BYTES) / record_bytes(page_bytes)) as u64
}

fn data_offset(slot_count: u64, page_bytes: u32) -> u64 {
    let table_sectors = slot_count.div_ceil(records_per_sector(page_bytes));
    (TABLE_OFFSET + table_sectors * SECTOR_BYTES as u64).next_multiple_of(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_areas_lie_where_the_drawing_says() {
        assert_eq!((INTENT_OFFSET, TABLE_OFFSET), (8192, 253_952));
        assert_eq!((Layout::superblock_offset(6), Layout::superblock_offset(7)), (0, 4096));
        assert_eq!(Layout::intent_offset(0, 0), 8192);
        assert_eq!(Layout::intent_offset(29, 1), 253_952 - 4096);
        let layout = Layout::new(1 << 40, 65_536).unwrap();
        assert_eq!((layout.records_per_sector(), layout.blocks_per_page()), (50, 16));
        assert_eq!(layout.slot_count(), 16_756_256);
        assert_eq!(layout.table_sector_count(), 335_126);
        assert_eq!(layout.data_offset(), 1310 * MIB);
        assert_eq!(layout.slot_offset(1), 1310 * MIB + 65_536);
        assert_eq!(layout.table_sector_of(99), 1);
        assert_eq!(layout.slots_of_sector(1), 50..100);
    }

    #[test]
    fn each_page_size_has_its_records() {
        let records = |page_bytes| Layout::new(1 << 30, page_bytes).unwrap().records_per_sector();
        assert_eq!([4096, 8192, 65_536, 262_144].map(records), [203, 169, 50, 14]);
    }

    #[test]
    fn a_device_that_is_too_small_is_told_how_large_it_must_be() {
        let Err(Error::Limit { actual: 1000, limit, .. }) = Layout::new(1000, 65_536) else { panic!("it fits?") };
        assert_eq!(limit, 2 * MIB);
        assert!(Layout::new(limit - 1, 65_536).is_err());
        assert_eq!(Layout::new(limit, 65_536).unwrap().slot_count(), 16);
    }

    #[test]
    fn odd_page_sizes_are_refused() {
        for page_bytes in [0, 1, 2048, 4097, 12_288, 524_288, u32::MAX] {
            assert!(Layout::new(1 << 40, page_bytes).is_err(), "{page_bytes}");
        }
    }

    #[test]
    fn slot_numbers_stay_below_the_limit_on_any_device() {
        for device_bytes in [1 << 50, u64::MAX] {
            assert_eq!(Layout::new(device_bytes, 4096).unwrap().slot_count(), SLOT_COUNT_MAX);
        }
    }

    proptest! {
        #[test]
        fn the_layout_fits_and_wastes_no_slot(device_bytes in (4 * MIB)..(1 << 45), power in 12u32..=18) {
            let page_bytes = 1u32 << power;
            let layout = Layout::new(device_bytes.max(16 * MIB), page_bytes).unwrap();
            let page = u64::from(page_bytes);
            let table_end = TABLE_OFFSET + layout.table_sector_count() * 4096;
            prop_assert!(table_end <= layout.data_offset() && layout.data_offset().is_multiple_of(MIB));
            prop_assert!(layout.slot_offset(layout.slot_count() - 1) + page <= layout.device_bytes());
            let more = layout.slot_count() + 1;
            prop_assert!(more > SLOT_COUNT_MAX || data_offset(more, page_bytes) + more * page > layout.device_bytes());
            let last = layout.table_sector_count() - 1;
            prop_assert_eq!(layout.slots_of_sector(last).end, layout.slot_count());
            prop_assert_eq!(layout.table_sector_of(layout.slot_count() - 1), last);
        }
    }
}
