//! The superblock: what this cache is, how the disk is laid out, and which volumes it serves.
//!
//! Two copies; the copy of a sequence is given by its lowest bit, so each write spares the last one. The valid copy
//! with the higher sequence counts. Magic, version and checksum keep their places in every version, so that any
//! version can tell any other from damage.
//!
//! ```text
//!   0  magic "FOREBAY\0"        56  page_bytes u32        96  device_bytes u64
//!   8  version u32              60  volume_count u32     104  clean u32
//!  12  crc u32                  64  slot_count u64       108  next_space u32
//!  16  sequence u64             72  intent_offset u64    112  mirror_side u64
//!  24  cache_id [u8; 16]        80  table_offset u64     120  zero
//!  40  generation u64           88  data_offset u64      256  30 volume entries of 128 bytes:
//!  48  table_epoch u64
//!
//!   0  space u32                16  volume_bytes u64      40  name_len u8
//!   4  flags u32                24  backend_mtime_ns i64  41  name [u8; 56]
//!   8  backend_identity u64     32  region_bytes u64      97  zero
//!                                                        104  log_offset u64
//!                                                        112  log_bytes u64
//!                                                        120  zero
//! ```
//!
//! Bit 0 of `flags`: the volume's write-back log may hold what its back end lacks.
//!
//! Invariants, checked at decode: the layout is the one [`Layout::new`] computes; spaces are not 0, differ, and are
//! below `next_space`; regions fit the intent map; logs are of whole sectors, behind the slots, and apart. A copy with a
//! good checksum that breaks one is damaged.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str;

use super::checksum;
use super::layout::{INTENT_OFFSET, Layout, TABLE_OFFSET};
use super::signature::{self, Content};
use super::{SECTOR_BYTES, VERSION, VOLUMES_MAX, intent};
use crate::bytes::{le_i64, le_u32, le_u64, put_le_i64, put_le_u32, put_le_u64};

/// The longest name of a volume, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 56;

const MAGIC: &[u8; 8] = b"FOREBAY\0";
const CRC_AT: usize = 12;
const VOLUMES_AT: usize = 256;
const VOLUME_BYTES: usize = 128;
const LOG_IN_USE: u32 = 1;

/// Where a volume's write-back log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogArea {
    /// Its first byte; behind the slots.
    pub offset: u64,
    /// Its size, a multiple of 4 KiB.
    pub bytes: u64,
    /// It may hold what the back end lacks.
    pub in_use: bool,
}

/// A volume, as the cache disk knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Names the volume's pages; not 0, and never another volume's while the cache lives.
    pub space: u32,
    /// A hash of what the back end is; another one means another back end.
    pub backend_identity: u64,
    /// The volume's size.
    pub volume_bytes: u64,
    /// When the back end was last modified, where that can be known; 0: unknown.
    pub backend_mtime_ns: i64,
    /// The size of a region of its intent map.
    pub region_bytes: u64,
    /// Its name: 1 to 56 bytes.
    pub name: String,
    /// Its write-back log, if it has one.
    pub log: Option<LogArea>,
}

impl VolumeEntry {
    /// How many regions its intent map has.
    pub fn region_count(&self) -> Option<u32> {
        intent::region_count(self.volume_bytes, self.region_bytes)
    }
}

/// What this cache is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Raised by one with each write; its lowest bit chooses the copy.
    pub sequence: u64,
    /// Random at format; every sector's checksum starts from it.
    pub cache_id: [u8; 16],
    /// Raised before the first write that the cache disk cannot record; pages of an older one are dropped.
    pub generation: u64,
    /// Sectors of the slot table of another epoch are void: raising it empties the cache at once.
    pub table_epoch: u64,
    /// Where everything lies.
    pub layout: Layout,
    /// It was stopped in order: the slot table is complete and no region is in flight.
    pub clean: bool,
    /// The space the next new volume gets.
    pub next_space: u32,
    /// Names what its logs hold where a mirror has them, too: another number each time they are filled from there. 0: they never
    /// were mirrored, or were not filled since the disk was formatted.
    pub mirror_side: u64,
    /// The volumes, at most 30. A volume's place here is its place among the intent maps.
    ///
    /// An entry that is dropped leaves a gap that `None` marks.
    pub volumes: Vec<Option<VolumeEntry>>,
}

impl Superblock {
    /// What the checksums of this cache's other sectors start from.
    pub fn cache_seed(&self) -> u32 {
        checksum::cache_seed(&self.cache_id)
    }

    /// Where this sequence of the superblock is to be written.
    pub fn offset(&self) -> u64 {
        Layout::superblock_offset(self.sequence)
    }

    /// Writes the superblock into a sector.
    ///
    /// # Panics
    /// When `sector` is not 4 KiB, or the superblock breaks an invariant of this module.
    pub fn encode(&self, sector: &mut [u8]) {
        assert_eq!(sector.len(), SECTOR_BYTES);
        assert!(self.is_sound(), "an unsound superblock: {self:?}");
        sector.fill(0);
        sector[..8].copy_from_slice(MAGIC);
        put_le_u32(sector, 8, VERSION);
        put_le_u64(sector, 16, self.sequence);
        sector[24..40].copy_from_slice(&self.cache_id);
        put_le_u64(sector, 40, self.generation);
        put_le_u64(sector, 48, self.table_epoch);
        put_le_u32(sector, 56, self.layout.page_bytes());
        put_le_u32(sector, 60, self.volumes.len() as u32);
        put_le_u64(sector, 64, self.layout.slot_count());
        put_le_u64(sector, 72, INTENT_OFFSET);
        put_le_u64(sector, 80, TABLE_OFFSET);
        put_le_u64(sector, 88, self.layout.data_offset());
        put_le_u64(sector, 96, self.layout.device_bytes());
        put_le_u32(sector, 104, u32::from(self.clean));
        put_le_u32(sector, 108, self.next_space);
        put_le_u64(sector, 112, self.mirror_side);
        for (entry, bytes) in self.volumes.iter().zip(sector[VOLUMES_AT..].chunks_exact_mut(VOLUME_BYTES)) {
            if let Some(entry) = entry {
                encode_volume(entry, bytes);
            }
        }
        let crc = checksum::sector(0, sector, CRC_AT);
        put_le_u32(sector, CRC_AT, crc);
    }

    fn is_sound(&self) -> bool {
        let entries = || self.volumes.iter().flatten();
        let sound = |entry: &VolumeEntry| {
            entry.space != 0
                && entry.space < self.next_space
                && (1..=NAME_BYTES_MAX).contains(&entry.name.len())
                && entry.region_count().is_some()
                && entries().filter(|other| other.space == entry.space).count() == 1
                && entry.log.is_none_or(|log| self.is_apart(entry.space, &log))
        };
        self.volumes.len() <= VOLUMES_MAX && self.next_space != 0 && entries().all(sound)
    }
}

impl Superblock {
    /// Whether a log lies where nothing else does.
    fn is_apart(&self, space: u32, log: &LogArea) -> bool {
        let sector = SECTOR_BYTES as u64;
        let Some(end) = log.offset.checked_add(log.bytes) else { return false };
        let others = self.volumes.iter().flatten().filter(|other| other.space != space).filter_map(|other| other.log);
        let mut others = others.map(|other| (other.offset, other.offset.saturating_add(other.bytes)));
        log.bytes > 0
            && log.offset.is_multiple_of(sector)
            && log.bytes.is_multiple_of(sector)
            && log.offset >= self.layout.device_bytes()
            && others.all(|(from, to)| to <= log.offset || end <= from)
    }
}

fn encode_volume(entry: &VolumeEntry, bytes: &mut [u8]) {
    put_le_u32(bytes, 0, entry.space);
    put_le_u32(bytes, 4, entry.log.map_or(0, |log| if log.in_use { LOG_IN_USE } else { 0 }));
    put_le_u64(bytes, 8, entry.backend_identity);
    put_le_u64(bytes, 16, entry.volume_bytes);
    put_le_i64(bytes, 24, entry.backend_mtime_ns);
    put_le_u64(bytes, 32, entry.region_bytes);
    bytes[40] = entry.name.len() as u8;
    bytes[41..41 + entry.name.len()].copy_from_slice(entry.name.as_bytes());
    if let Some(log) = entry.log {
        put_le_u64(bytes, 104, log.offset);
        put_le_u64(bytes, 112, log.bytes);
    }
}

/// `None`: malformed. `Some(None)`: a gap.
fn decode_volume(bytes: &[u8]) -> Option<Option<VolumeEntry>> {
    let space = le_u32(bytes, 0);
    if space == 0 {
        return Some(None);
    }
    let name = bytes[41..41 + NAME_BYTES_MAX].get(..usize::from(bytes[40]))?;
    let (flags, log_offset, log_bytes) = (le_u32(bytes, 4), le_u64(bytes, 104), le_u64(bytes, 112));
    let has_log = log_bytes > 0;
    if flags & !LOG_IN_USE != 0 || (!has_log && (flags != 0 || log_offset != 0)) {
        return None;
    }
    let in_use = flags & LOG_IN_USE != 0;
    Some(Some(VolumeEntry {
        space,
        backend_identity: le_u64(bytes, 8),
        volume_bytes: le_u64(bytes, 16),
        backend_mtime_ns: le_i64(bytes, 24),
        region_bytes: le_u64(bytes, 32),
        name: str::from_utf8(name).ok()?.to_string(),
        log: has_log.then_some(LogArea { offset: log_offset, bytes: log_bytes, in_use }),
    }))
}

/// What one copy of the superblock holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// A superblock.
    Valid(Superblock),
    /// A superblock of a newer version.
    Newer(u32),
    /// A superblock of an older version.
    Older(u32),
    /// The magic is there, the rest is not to be believed.
    Damaged,
    /// The magic is not there.
    Absent,
}

/// Decodes one copy; `copy` is 0 or 1, its place.
///
/// # Panics
/// When `sector` is not 4 KiB.
pub fn decode(copy: u64, sector: &[u8]) -> Copy {
    assert_eq!(sector.len(), SECTOR_BYTES);
    if &sector[..8] != MAGIC {
        return Copy::Absent;
    }
    if le_u32(sector, CRC_AT) != checksum::sector(0, sector, CRC_AT) {
        return Copy::Damaged;
    }
    match le_u32(sector, 8) {
        VERSION => decode_current(copy, sector).map_or(Copy::Damaged, Copy::Valid),
        newer if newer > VERSION => Copy::Newer(newer),
        older => Copy::Older(older),
    }
}

fn decode_current(copy: u64, sector: &[u8]) -> Option<Superblock> {
    let layout = Layout::new(le_u64(sector, 96), le_u32(sector, 56)).ok()?;
    let stored = [64, 72, 80, 88].map(|at| le_u64(sector, at));
    let computed = [layout.slot_count(), INTENT_OFFSET, TABLE_OFFSET, layout.data_offset()];
    let volume_count = le_u32(sector, 60) as usize;
    let sequence = le_u64(sector, 16);
    if stored != computed || volume_count > VOLUMES_MAX || sequence & 1 != copy {
        return None;
    }
    let entries = sector[VOLUMES_AT..].chunks_exact(VOLUME_BYTES).take(volume_count);
    let mut cache_id = [0; 16];
    cache_id.copy_from_slice(&sector[24..40]);
    let superblock = Superblock {
        sequence,
        cache_id,
        generation: le_u64(sector, 40),
        table_epoch: le_u64(sector, 48),
        layout,
        clean: le_u32(sector, 104) == 1,
        next_space: le_u32(sector, 108),
        mirror_side: le_u64(sector, 112),
        volumes: entries.map(decode_volume).collect::<Option<_>>()?,
    };
    superblock.is_sound().then_some(superblock)
}

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A cache: attach it.
    Valid(Superblock),
    /// Nothing: format it.
    Blank,
    /// Something else, named: refuse.
    Foreign(&'static str),
    /// A cache of a newer version: refuse.
    Newer(u32),
    /// A cache of an older version: drop it, cold, and format.
    Older(u32),
    /// A cache none of whose superblocks is to be believed: refuse, since dirty data may be there.
    Damaged,
}

/// Tells what a device holds, from its first [`signature::PROBE_BYTES`].
///
/// A device with one good copy and, where the other was, the signature of something else, belongs to that: `mkswap`,
/// for one, leaves the second copy alone.
///
/// # Panics
/// When `head` is shorter than the two superblocks.
pub fn probe(head: &[u8]) -> Found {
    let copies = [0, 1].map(|copy| {
        let at = copy as usize * SECTOR_BYTES;
        decode(copy, &head[at..at + SECTOR_BYTES])
    });
    let whole = copies.iter().all(|copy| matches!(copy, Copy::Valid(_) | Copy::Newer(_) | Copy::Older(_)));
    if !whole && let Content::Known(name) = signature::identify(head) {
        return Found::Foreign(name);
    }
    let version = |copy: &Copy| if let Copy::Newer(version) = copy { Some(*version) } else { None };
    if let Some(version) = copies.iter().filter_map(version).max() {
        return Found::Newer(version);
    }
    let damaged = copies.contains(&Copy::Damaged);
    let older = |copy: &Copy| if let Copy::Older(version) = copy { Some(*version) } else { None };
    let older = copies.iter().filter_map(older).max();
    let valid = copies.into_iter().filter_map(|copy| if let Copy::Valid(it) = copy { Some(it) } else { None });
    match (valid.max_by_key(|it| it.sequence), older, damaged, signature::identify(head)) {
        (Some(superblock), ..) => Found::Valid(superblock),
        (_, Some(version), ..) => Found::Older(version),
        (_, _, true, _) => Found::Damaged,
        (_, _, _, Content::Blank) => Found::Blank,
        (_, _, _, Content::Known(name)) => Found::Foreign(name),
        (_, _, _, Content::Unknown) => Found::Foreign("data of an unknown kind"),
    }
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
