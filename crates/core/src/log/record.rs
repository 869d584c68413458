//! What the log holds: records, in groups, in epochs.

use super::map::RecordId;
use core::ops::Range;

/// Bytes of a sector, the unit of the log.
pub const SECTOR_BYTES: u64 = 512;
/// Sectors of a block, which has one checksum.
pub(super) const BLOCK_SECTORS: u64 = 8;
/// Records of a group, at most.
pub const GROUP_RECORDS_MAX: u64 = 4096;
/// Of a group's descriptor: its head, each record, and the checksum of each block that a record touches.
const HEAD_BYTES: u64 = 72;
const RECORD_BYTES: u64 = 16;
const CHECKSUM_BYTES: u64 = 4;

/// What a record does to its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gives them the bytes that follow.
    Data,
    /// Zeroes them. A trim is one that may leave a hole: what is read after it must not change when it is written back.
    Zero {
        /// Keep the space allocated.
        no_hole: bool,
    },
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first sector of the volume.
    pub first: u64,
    /// How many.
    pub sectors: u32,
    /// What happens to them.
    pub kind: Kind,
    /// An epoch that somebody was promised ends behind it.
    pub boundary: bool,
    /// The position of its payload in the log; 0 until it has one.
    pub(super) position: u64,
}

impl Record {
    /// A change that has no place in the log yet.
    #[must_use]
    pub fn new(first: u64, sectors: u32, kind: Kind) -> Self {
        Self { first, sectors, kind, boundary: false, position: 0 }
    }

    /// Its sectors of the volume.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.sectors)
    }

    /// Sectors of payload.
    #[must_use]
    pub fn payload_sectors(&self) -> u64 {
        if self.kind == Kind::Data { u64::from(self.sectors) } else { 0 }
    }

    /// Blocks of the volume that its payload lies in; each has a checksum.
    #[must_use]
    pub fn blocks(&self) -> usize {
        let range = self.range();
        let blocks = (range.end - 1) / BLOCK_SECTORS - range.start / BLOCK_SECTORS + 1;
        if self.kind == Kind::Data { blocks as usize } else { 0 }
    }

    pub(super) fn descriptor_bytes(&self) -> u64 {
        RECORD_BYTES + self.blocks() as u64 * CHECKSUM_BYTES
    }
}

/// Records that are written at once: their descriptor, then their payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which.
    pub records: Range<RecordId>,
    /// Boundaries before the first of them.
    pub epoch: u64,
    /// The life in which it was written.
    pub life: u64,
    /// Where in the log.
    pub position: u64,
    /// Of these sectors, the first so many are the descriptor.
    pub descriptor_sectors: u64,
    /// In all.
    pub sectors: u64,
}

impl Group {
    /// The position behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.position + self.sectors
    }
}

/// Where a log begins: everything before it is on the back end, and flushed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The position of the group with its first record.
    pub position: u64,
    /// Its first record.
    pub first: RecordId,
    /// The life in which that group was written, or will be. What lies there of an earlier one is not of the log.
    pub life: u64,
}

/// Sectors of a group's descriptor with so many records and checksums.
#[must_use]
pub fn descriptor_sectors_of(records: u64, checksums: u64) -> u64 {
    descriptor_sectors(records * RECORD_BYTES + checksums * CHECKSUM_BYTES)
}

/// Sectors of a descriptor with so many bytes of records.
pub(super) fn descriptor_sectors(records_bytes: u64) -> u64 {
    (HEAD_BYTES + records_bytes).div_ceil(SECTOR_BYTES)
}

/// Records between two closings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    /// Its last record is before this; of the open epoch, nobody knows yet.
    pub(super) end: RecordId,
    /// It ends where a client was promised something: nothing later may reach the back end before it is durable there.
    pub(super) boundary: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_a_sector_for_one_record_and_a_hundredth_for_thirty_two() {
        let small = Record::new(8, 8, Kind::Data);
        assert_eq!(descriptor_sectors(small.descriptor_bytes()), 1);
        assert_eq!(descriptor_sectors(32 * small.descriptor_bytes()), 2);
        assert_eq!(Record::new(7, 2, Kind::Data).descriptor_bytes(), 24, "it touches two blocks");
        assert_eq!(Record::new(0, 1 << 20, Kind::Zero { no_hole: false }).descriptor_bytes(), 16);
    }
}
