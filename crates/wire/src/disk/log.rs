//! The write-back log: groups of records, each a descriptor and the bytes of its records.
//!
//! Why: what a volume's clients were promised is here and nowhere else. A scan from the tail reads descriptors until one is
//! not the next: that is where the log ends, torn or not.
//!
//! ```text
//! descriptor, in sectors of 512 bytes:
//!   0  magic "FBLG"          16  position u64        40  durable u64
//!   4  crc u32               24  first_record u64    48  tail u64
//!   8  space u32             32  epoch u64           56  sectors u32
//!  12  record_count u32                              60  crc_count u32
//!  64  life u64
//!  72  record_count records: first u64, sectors u32, flags u32
//!      crc_count u32: of each block of 4 KiB that a data record touches, the bytes of it that the record has
//! then the bytes of the data records, in order.
//! ```
//!
//! `position` counts sectors of an endless log, so a descriptor of the ring's last round is not of this one. `durable`:
//! records before it were on the disk for good when this was written, so only the bytes of later ones can be torn. `life`
//! rises with each attach: what lies behind the end that a scan found is overwritten group by group, and where one of the
//! new ones ends an old one may begin. Its life is over, and so is the log there.
//!
//! Invariants: a descriptor is believed whole or not at all; its parts lie within its sectors; records follow each other.
//! What breaks one ends the log: it was never answered, or it is not of this log.
//!
//! Rejected: a checksum over a group's bytes (a read of one record would need all); an end mark (a write more a group);
//! the length in front and the checksum behind (torn writes of sectors in any order).

use super::checksum;
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};
use core::ops::Range;

/// The unit of the log.
pub const LOG_SECTOR_BYTES: usize = 512;
/// Records in a group.
pub const GROUP_RECORDS_MAX: u32 = 4096;
/// Sectors of a group, descriptor and bytes.
pub const GROUP_SECTORS_MAX: u32 = 1 << 16;

const MAGIC: u32 = u32::from_le_bytes(*b"FBLG");
const CRC_AT: usize = 4;
const HEAD_BYTES: usize = 72;
const RECORD_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
const FLAG_DATA: u32 = 1;
const FLAG_NO_HOLE: u32 = 1 << 1;
const FLAG_BOUNDARY: u32 = 1 << 2;

/// What a group says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// Whose log.
    pub space: u32,
    /// Where in it, in sectors from its beginning.
    pub position: u64,
    /// Which record of the log its first is.
    pub first_record: u64,
    /// Boundaries before its first record.
    pub epoch: u64,
    /// Records before this were durable.
    pub durable: u64,
    /// The position before which all is on the back end.
    pub tail: u64,
    /// Sectors, descriptor and bytes.
    pub sectors: u32,
    /// Attaches of the log before it was written.
    pub life: u64,
}

/// A record of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Its first sector of the volume.
    pub first: u64,
    /// Sectors; at least one.
    pub sectors: u32,
    /// What it does to them.
    pub content: Content,
    /// An epoch ends behind it.
    pub boundary: bool,
}

/// What a record gives its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes, in the group.
    Data,
    /// Zeroes.
    Zero {
        /// Keep the space allocated.
        no_hole: bool,
    },
}

/// What lies where a group could.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    /// The group.
    Group(Group<'a>),
    /// Its descriptor has so many sectors; they are needed to tell.
    Longer(usize),
    /// Something else: the log ends here.
    End,
}

/// A group whose descriptor is whole.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    head: GroupHead,
    records: &'a [u8],
    crcs: &'a [u8],
}

/// How many blocks of 4 KiB a range of sectors touches.
fn blocks(first: u64, sectors: u32) -> u64 {
    let block_sectors = (super::BLOCK_BYTES / LOG_SECTOR_BYTES) as u64;
    (first + u64::from(sectors) - 1) / block_sectors - first / block_sectors + 1
}

/// Sectors of a descriptor with so many records and checksums.
pub fn descriptor_sectors(records: usize, crcs: usize) -> usize {
    (HEAD_BYTES + records * RECORD_BYTES + crcs * CRC_BYTES).div_ceil(LOG_SECTOR_BYTES)
}

/// The checksum of the bytes that a record has of one block. `first`: their first sector of the volume.
pub fn payload_checksum(space: u32, first: u64, bytes: &[u8]) -> u32 {
    checksum::block(space, first, bytes)
}

/// Writes a descriptor into its sectors. `seed`: the cache's.
///
/// # Panics
/// When `bytes` are not the sectors of such a descriptor, or something breaks an invariant of this module.
pub fn encode(seed: u32, head: &GroupHead, records: &[GroupRecord], crcs: &[u32], bytes: &mut [u8]) {
    assert_eq!(bytes.len(), descriptor_sectors(records.len(), crcs.len()) * LOG_SECTOR_BYTES);
    bytes.fill(0);
    put_le_u32(bytes, 0, MAGIC);
    put_le_u32(bytes, 8, head.space);
    put_le_u32(bytes, 12, records.len() as u32);
    put_le_u64(bytes, 16, head.position);
    put_le_u64(bytes, 24, head.first_record);
    put_le_u64(bytes, 32, head.epoch);
    put_le_u64(bytes, 40, head.durable);
    put_le_u64(bytes, 48, head.tail);
    put_le_u32(bytes, 56, head.sectors);
    put_le_u32(bytes, 60, crcs.len() as u32);
    put_le_u64(bytes, 64, head.life);
    let (into, rest) = bytes[HEAD_BYTES..].split_at_mut(records.len() * RECORD_BYTES);
    for (record, into) in records.iter().zip(into.chunks_exact_mut(RECORD_BYTES)) {
        put_le_u64(into, 0, record.first);
        put_le_u32(into, 8, record.sectors);
        put_le_u32(into, 12, record.flags());
    }
    for (crc, into) in crcs.iter().zip(rest.chunks_exact_mut(CRC_BYTES)) {
        put_le_u32(into, 0, *crc);
    }
    let crc = checksum::sector(seed, bytes, CRC_AT);
    put_le_u32(bytes, CRC_AT, crc);
    let sound = matches!(decode(seed, head.space, head.position, bytes), Found::Group(_));
    assert!(sound, "an unsound group: {head:?} {records:?}");
}

/// What lies at a position of a volume's log. `bytes` begin there, and have at least a sector.
pub fn decode(seed: u32, space: u32, position: u64, bytes: &[u8]) -> Found<'_> {
    let (records, crcs) = (le_u32(bytes, 12), le_u32(bytes, 60));
    let is_ours = le_u32(bytes, 0) == MAGIC && le_u32(bytes, 8) == space && le_u64(bytes, 16) == position;
    if !is_ours || records == 0 || records > GROUP_RECORDS_MAX || crcs > GROUP_SECTORS_MAX {
        return Found::End;
    }
    let sectors = descriptor_sectors(records as usize, crcs as usize);
    let Some(bytes) = bytes.get(..sectors * LOG_SECTOR_BYTES) else { return Found::Longer(sectors) };
    if le_u32(bytes, CRC_AT) != checksum::sector(seed, bytes, CRC_AT) {
        return Found::End;
    }
    let head = GroupHead {
        space,
        position,
        first_record: le_u64(bytes, 24),
        epoch: le_u64(bytes, 32),
        durable: le_u64(bytes, 40),
        tail: le_u64(bytes, 48),
        sectors: le_u32(bytes, 56),
        life: le_u64(bytes, 64),
    };
    let (records, rest) = bytes[HEAD_BYTES..].split_at(records as usize * RECORD_BYTES);
    let group = Group { head, records, crcs: &rest[..crcs as usize * CRC_BYTES] };
    if group.is_sound(sectors) { Found::Group(group) } else { Found::End }
}

impl GroupRecord {
    fn flags(&self) -> u32 {
        let content = match self.content {
            Content::Data => FLAG_DATA,
            Content::Zero { no_hole: true } => FLAG_NO_HOLE,
            Content::Zero { no_hole: false } => 0,
        };
        content | if self.boundary { FLAG_BOUNDARY } else { 0 }
    }

    fn from_flags(first: u64, sectors: u32, flags: u32) -> Option<Self> {
        let content = match flags & !FLAG_BOUNDARY {
            FLAG_DATA => Content::Data,
            FLAG_NO_HOLE => Content::Zero { no_hole: true },
            0 => Content::Zero { no_hole: false },
            _ => return None,
        };
        let ends = first.checked_add(u64::from(sectors)).is_some();
        (sectors > 0 && ends).then_some(Self { first, sectors, content, boundary: flags & FLAG_BOUNDARY != 0 })
    }

    /// Sectors that it has in the group.
    pub fn payload_sectors(&self) -> u32 {
        if self.content == Content::Data { self.sectors } else { 0 }
    }

    /// Checksums that it has in the descriptor.
    pub fn crc_count(&self) -> u64 {
        if self.content == Content::Data { blocks(self.first, self.sectors) } else { 0 }
    }
}

/// A record, where its bytes lie and their checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The record.
    pub record: GroupRecord,
    /// Positions of its bytes in the log.
    pub payload: Range<u64>,
    /// Of its checksums, the first and how many.
    pub crcs: Range<usize>,
}

impl<'a> Group<'a> {
    /// What it says of itself.
    pub fn head(&self) -> &GroupHead {
        &self.head
    }

    /// The position behind it.
    pub fn end(&self) -> u64 {
        self.head.position + u64::from(self.head.sectors)
    }

    /// A checksum, by its place.
    pub fn crc(&self, at: usize) -> u32 {
        le_u32(self.crcs, at * CRC_BYTES)
    }

    fn raw(&self) -> impl Iterator<Item = Option<GroupRecord>> + 'a {
        let chunks = self.records.chunks_exact(RECORD_BYTES);
        chunks.map(|it| GroupRecord::from_flags(le_u64(it, 0), le_u32(it, 8), le_u32(it, 12)))
    }

    /// Its records, in order.
    pub fn records(&self) -> impl Iterator<Item = Placed> + 'a {
        let descriptor = descriptor_sectors(self.records.len() / RECORD_BYTES, self.crcs.len() / CRC_BYTES);
        let (mut position, mut crc) = (self.head.position + descriptor as u64, 0);
        self.raw().flatten().map(move |record| {
            let payload = position..position + u64::from(record.payload_sectors());
            let crcs = crc..crc + record.crc_count() as usize;
            (position, crc) = (payload.end, crcs.end);
            Placed { record, payload, crcs }
        })
    }

    fn is_sound(&self, descriptor_sectors: usize) -> bool {
        let GroupHead { position, first_record, durable, tail, sectors, .. } = self.head;
        let ends = position.checked_add(u64::from(GROUP_SECTORS_MAX)).is_some();
        if !ends || sectors > GROUP_SECTORS_MAX || tail > position || durable > first_record {
            return false;
        }
        let mut sums = Some((descriptor_sectors as u64, 0));
        for record in self.raw() {
            sums = sums.zip(record).map(|((in_all, crcs), record)| {
                (in_all + u64::from(record.payload_sectors()), crcs + record.crc_count())
            });
        }
        sums == Some((u64::from(sectors), (self.crcs.len() / CRC_BYTES) as u64))
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
