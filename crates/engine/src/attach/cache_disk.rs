//! An attached cache disk: where everything lies, and how what the cache orders becomes sectors.
//!
//! Pure: it fills and reads buffers; the shard moves them. Sequences of superblock and intent maps live here, so that
//! each write spares the copy written last.

use forebay_core::{Cache, PageKey, SlotRecord, VolumeId};
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::checksum;
use forebay_wire::disk::intent::IntentMap;
use forebay_wire::disk::layout::Layout;
use forebay_wire::disk::slot_table::{Sector, TableFormat};
use forebay_wire::disk::superblock::Superblock;

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

    /// Fills `bytes` (4 KiB) with the superblock and its clean mark; returns where it goes. `mtimes_ns` are the times of
    /// the back ends' last modification, by volume; 0: unknown.
    pub fn encode_clean(&mut self, mtimes_ns: &[i64], bytes: &mut [u8]) -> u64 {
        assert_eq!(mtimes_ns.len(), self.places.len(), "a time for each volume");
        for (place, mtime_ns) in self.places.iter().zip(mtimes_ns) {
            if let Some(entry) = &mut self.superblock.volumes[*place] {
                entry.backend_mtime_ns = *mtime_ns;
            }
        }
        self.superblock.clean = true;
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
