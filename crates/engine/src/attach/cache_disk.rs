//! An attached cache disk: where everything lies, and how what the cache orders becomes sectors.
//!
//! It fills and reads buffers; the shard moves them. Sequences of superblock and intent maps live here, so that
//! each write spares the copy written last.

use forebay_core::{Cache, PageKey, SlotRecord, VolumeId};
use forebay_uring::Arena;
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::checksum;
use forebay_wire::disk::intent::IntentMap;
use forebay_wire::disk::layout::Layout;
use forebay_wire::disk::slot_table::{Sector, TableFormat};
use forebay_wire::disk::superblock::{LogArea, Superblock};

use crate::device::{Device, DeviceOp, FrameId, IoError, OpKind, carry_out};
use crate::reactor::Reactor;

/// How a volume was left at an orderly stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeEnd {
    /// When its back end was last modified; 0: unknown.
    pub mtime_ns: i64,
    /// It has no log, or the log has nothing that the back end lacks.
    pub log_has_followed: bool,
}

impl VolumeEnd {
    /// Of a volume without a log.
    #[must_use]
    pub fn without_log(mtime_ns: i64) -> Self {
        Self { mtime_ns, log_has_followed: true }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CacheDisk {
    superblock: Superblock,
    format: TableFormat,
    /// For each volume, its place in the superblock.
    places: Vec<usize>,
    /// For each volume, the map written last.
    maps: Vec<IntentMap>,
}

impl CacheDisk {
    pub(super) fn new(superblock: Superblock, places: Vec<usize>, maps: Vec<IntentMap>) -> Self {
        Self { format: TableFormat::new(&superblock), superblock, places, maps }
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    /// The superblock written last.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// A volume's space.
    #[must_use]
    pub fn space(&self, volume: VolumeId) -> u32 {
        self.maps[volume.index()].space
    }

    /// Bytes of a region of a volume's intent map.
    #[must_use]
    pub fn region_bytes(&self, volume: VolumeId) -> u64 {
        let entry = &self.superblock.volumes[self.places[volume.index()]];
        entry.as_ref().map_or(0, |entry| entry.region_bytes)
    }

    /// Fills `bytes` (4 KiB) with a sector of the slot table as the cache has it now; returns where it goes.
    ///
    /// # Panics
    /// When there is no such sector, or the cache has other slots than the disk.
    pub fn encode_table_sector(&self, cache: &Cache, sector: u32, bytes: &mut [u8]) -> u64 {
        self.encode_table_records(sector, cache.table_sector(sector), bytes)
    }

    pub(super) fn encode_table_records<'a>(
        &self,
        sector: u32,
        records: impl Iterator<Item = (Option<PageKey>, &'a [u32])>,
        bytes: &mut [u8],
    ) -> u64 {
        let slots = self.layout().slots_of_sector(u64::from(sector));
        let mut writer = self.format.encode(u64::from(sector), bytes);
        let mut slots_left = slots.clone();
        for (key, crcs) in records {
            let Some(slot) = slots_left.next() else { panic!("more records than the slots {slots:?}") };
            if let Some(key) = key {
                writer.put(slot, key.space, u64::from(key.page), crcs);
            }
        }
        assert!(slots_left.is_empty(), "the slots {slots_left:?} have no record");
        writer.finish();
        self.layout().table_sector_offset(u64::from(sector))
    }

    /// Appends what sectors of the slot table from `first_sector` on say; damaged and outdated ones say that their
    /// slots are void. Returns the first slot. `bytes` is whole sectors.
    ///
    /// # Panics
    /// When `bytes` is not whole sectors of the table.
    pub fn decode_table_sectors(
        &self,
        first_sector: u32,
        bytes: &[u8],
        records: &mut Vec<SlotRecord>,
        crcs: &mut Vec<u32>,
    ) -> u32 {
        assert!(bytes.len().is_multiple_of(SECTOR_BYTES), "{} bytes of table", bytes.len());
        let blocks = self.layout().blocks_per_page();
        for (sector, bytes) in (u64::from(first_sector)..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            match self.format.decode(sector, bytes) {
                Sector::Valid(found) => {
                    for record in found {
                        let space = record.space().unwrap_or(0);
                        records.push(SlotRecord { space, page: record.page() });
                        crcs.extend((0..blocks).map(|block| if space == 0 { 0 } else { record.crc(block) }));
                    }
                }
                Sector::Blank | Sector::Stale { .. } | Sector::Damaged => {
                    let slots = self.layout().slots_of_sector(sector);
                    let count = (slots.end - slots.start) as usize;
                    records.extend((0..count).map(|_| SlotRecord { space: 0, page: 0 }));
                    crcs.extend((0..count * blocks).map(|_| 0));
                }
            }
        }
        self.layout().slots_of_sector(u64::from(first_sector)).start as u32
    }

    /// Fills `bytes` (4 KiB) with a volume's intent map; returns where it goes. When it is durable, say
    /// [`Self::intent_durable`]; until then another attempt goes to the same place.
    pub fn encode_intent(&self, volume: VolumeId, words: &[u64], bytes: &mut [u8]) -> u64 {
        let mut map = self.maps[volume.index()];
        map.sequence += 1;
        map.set_words(words);
        map.encode(self.superblock.cache_seed(), bytes);
        Layout::intent_offset(self.places[volume.index()], map.sequence)
    }

    /// The map encoded last is durable: the next one goes to the other copy.
    pub fn intent_durable(&mut self, volume: VolumeId) {
        self.maps[volume.index()].sequence += 1;
    }

    /// Where a volume's write-back log lies, if it has one.
    #[must_use]
    pub fn log(&self, volume: VolumeId) -> Option<LogArea> {
        self.superblock.volumes[self.places[volume.index()]].as_ref().and_then(|entry| entry.log)
    }

    /// What checksums on this disk start from.
    #[must_use]
    pub fn seed(&self) -> u32 {
        self.superblock.cache_seed()
    }

    /// The logs were opened, and from now on may hold what the back ends lack: says so on the disk, durably. To be done
    /// before anything is served; blocks. `frame`: one of the arena that nobody uses.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub fn logs_are_open(
        &mut self,
        device: &mut dyn Device,
        reactor: &mut dyn Reactor,
        (arena, frame): (&Arena, FrameId),
    ) -> Result<(), IoError> {
        let encode = |bytes: &mut [u8]| self.encode_logs_in_use(bytes);
        let offset = arena.with_bytes_mut(frame.0, 0, SECTOR_BYTES as u32, encode);
        let (kind, length) = (OpKind::Write { fua: true }, SECTOR_BYTES as u64);
        carry_out(device, reactor, DeviceOp { token: 0, kind, offset, length, frame, at: 0 })
    }

    /// What the logs hold has this name from now on (see [`Superblock::mirror_side`]): says so on the disk, durably. Blocks. `frame`:
    /// one of the arena that nobody uses.
    ///
    /// # Errors
    /// When the disk cannot be written. The name of before is that of the next superblock then, whatever this one left.
    pub fn logs_are_filled(
        &mut self,
        side: u64,
        device: &mut dyn Device,
        reactor: &mut dyn Reactor,
        (arena, frame): (&Arena, FrameId),
    ) -> Result<(), IoError> {
        let before = std::mem::replace(&mut self.superblock.mirror_side, side);
        let encode = |bytes: &mut [u8]| self.encode_superblock(bytes);
        let offset = arena.with_bytes_mut(frame.0, 0, SECTOR_BYTES as u32, encode);
        let (kind, length) = (OpKind::Write { fua: true }, SECTOR_BYTES as u64);
        let written = carry_out(device, reactor, DeviceOp { token: 0, kind, offset, length, frame, at: 0 });
        if written.is_err() {
            self.superblock.mirror_side = before;
        }
        written
    }

    /// Fills `bytes` (4 KiB) with the superblock and its clean mark; returns where it goes. `ends` is by volume.
    pub fn encode_clean(&mut self, ends: &[VolumeEnd], bytes: &mut [u8]) -> u64 {
        assert_eq!(ends.len(), self.places.len(), "an end for each volume");
        for (place, end) in self.places.iter().zip(ends) {
            if let Some(entry) = &mut self.superblock.volumes[*place] {
                // What is in the log only will modify the back end.
                entry.backend_mtime_ns = if end.log_has_followed { end.mtime_ns } else { 0 };
                if let Some(log) = &mut entry.log {
                    log.in_use = !end.log_has_followed;
                }
            }
        }
        self.superblock.clean = true;
        self.encode_superblock(bytes)
    }

    pub(super) fn encode_logs_in_use(&mut self, bytes: &mut [u8]) -> u64 {
        let logs = self.superblock.volumes.iter_mut().flatten().filter_map(|entry| entry.log.as_mut());
        logs.for_each(|log| log.in_use = true);
        self.encode_superblock(bytes)
    }

    fn encode_superblock(&mut self, bytes: &mut [u8]) -> u64 {
        self.superblock.sequence += 1;
        self.superblock.encode(bytes);
        self.superblock.offset()
    }
}

/// Appends the checksum of each whole block of `bytes`, which begin at block `first_block` of a space.
pub fn block_checksums(space: u32, first_block: u64, bytes: &[u8], crcs: &mut Vec<u32>) {
    let blocks = (first_block..).zip(bytes.chunks_exact(SECTOR_BYTES));
    crcs.extend(blocks.map(|(block, bytes)| checksum::block(space, block, bytes)));
}
