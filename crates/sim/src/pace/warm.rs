//! A cache disk that holds every page of every volume, all zeroes, as a process finds it that was stopped in order.
//!
//! Why: an experiment on hits begins when everything is cached. Reading it all once takes a second of real time for each
//! 8 GiB; a slot table that says so is read back in 30 ms, by the recovery that a restart has anyway.
//!
//! How: the plan that formats a blank disk, the clean mark of a stop, and the plan that attaches what is there then, all
//! by the product's code. The table's sectors are written when they are read. The checksum of a block of zeroes is a
//! linear function of the checksum of its identity (as is every CRC, but for a constant), so that it costs four lookups
//! instead of 4096 bytes.

use forebay_core::VolumeId;
use forebay_engine::attach::{CacheDisk, HEAD_BYTES, Plan, VolumeEnd, VolumeFacts, Wanted, plan};
use forebay_engine::device::DeviceOp;
use forebay_uring::Arena;
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::layout::Layout;
use forebay_wire::disk::slot_table::TableFormat;

const BLOCK_BYTES: u64 = 4096;

/// What the slot table of a full disk says.
#[derive(Clone, Debug)]
pub(super) struct Warm {
    layout: Layout,
    format: TableFormat,
    /// By volume: its space, and the slot behind its last; slots go to the volumes in turn.
    spaces: Vec<(u32, u64)>,
    zeroes: ZeroChecksums,
}

impl Warm {
    /// A disk for volumes of these sizes, and what the product makes of it.
    pub(super) fn attach(page_bytes: u32, volume_bytes: &[u64]) -> (Self, Plan) {
        let facts = |(at, bytes): (usize, &u64)| VolumeFacts {
            name: format!("v{at}"),
            backend: "modelled".to_owned(),
            identity: at as u64 + 1,
            bytes: *bytes,
            mtime_ns: 0,
            log_bytes: 0,
        };
        let volumes: Vec<VolumeFacts> = volume_bytes.iter().enumerate().map(facts).collect();
        let wanted = Wanted {
            page_bytes,
            device_bytes: device_bytes(page_bytes, volume_bytes),
            volumes: &volumes,
            generation: Some(1),
            cold: false,
            force_format: false,
            intent_map: true,
            new_cache_id: [1; 16],
        };
        let mut head = vec![0; HEAD_BYTES];
        let attach = |head: &[u8], generation| {
            plan(head, &Wanted { generation: Some(generation), ..wanted.clone() })
                .unwrap_or_else(|refusal| panic!("the cache disk is refused: {refusal}"))
        };
        let mut formatted = attach(&head, 1);
        for write in formatted.writes.iter().flatten() {
            put(&mut head, write.offset, &write.bytes);
        }
        let mut superblock = [0; SECTOR_BYTES];
        let offset = formatted.disk.encode_clean(&vec![VolumeEnd::without_log(0); volumes.len()], &mut superblock);
        put(&mut head, offset, &superblock);
        let attached = attach(&head, formatted.generation);
        assert!(attached.recover, "a disk that was stopped in order is warm: {:?}", attached.notices);
        (Self::new(&attached.disk, page_bytes, volume_bytes), attached)
    }

    fn new(disk: &CacheDisk, page_bytes: u32, volume_bytes: &[u64]) -> Self {
        let mut slots = 0;
        let spaces = volume_bytes.iter().enumerate().map(|(volume, bytes)| {
            slots += bytes.div_ceil(u64::from(page_bytes));
            (disk.space(VolumeId(volume as u16)), slots)
        });
        let spaces = spaces.collect();
        let layout = *disk.layout();
        assert!(slots <= layout.slot_count(), "{slots} pages for {} slots", layout.slot_count());
        Self { layout, format: TableFormat::new(disk.superblock()), spaces, zeroes: ZeroChecksums::new() }
    }

    /// The disk's size.
    pub(super) fn device_bytes(&self) -> u64 {
        self.layout.device_bytes()
    }

    /// Performs a read of the table. False: it is one of slots.
    pub(super) fn read(&self, arena: &Arena, op: &DeviceOp) -> bool {
        if op.offset >= self.layout.data_offset() {
            return false;
        }
        let first = (op.offset - self.layout.table_offset()) / SECTOR_BYTES as u64;
        arena.with_bytes_mut(op.frame.0, op.at, op.length as u32, |bytes| {
            for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
                self.encode(sector, bytes);
            }
        });
        true
    }

    fn encode(&self, sector: u64, bytes: &mut [u8]) {
        let mut crcs = vec![0; self.layout.blocks_per_page()];
        let mut writer = self.format.encode(sector, bytes);
        for slot in self.layout.slots_of_sector(sector) {
            let mut first = 0;
            let volume = self.spaces.iter().find(|(_, end)| {
                let found = slot < *end;
                first = if found { first } else { *end };
                found
            });
            let Some((space, _)) = volume else { break };
            let page = slot - first;
            let first_block = page * self.layout.blocks_per_page() as u64;
            for (block, crc) in (first_block..).zip(&mut crcs) {
                *crc = self.zeroes.block(*space, block);
            }
            writer.put(slot, *space, page, &crcs);
        }
        writer.finish();
    }
}

/// Enough for all pages: slots, their records (a tenth of a page at most), and what comes before them.
fn device_bytes(page_bytes: u32, volume_bytes: &[u64]) -> u64 {
    let pages: u64 = volume_bytes.iter().map(|bytes| bytes.div_ceil(u64::from(page_bytes))).sum();
    let bytes = pages * u64::from(page_bytes);
    (bytes + bytes / 10 + (8 << 20)).next_multiple_of(BLOCK_BYTES)
}

fn put(head: &mut [u8], offset: u64, bytes: &[u8]) {
    head[offset as usize..][..bytes.len()].copy_from_slice(bytes);
}

/// Checksums of blocks of zeroes, by the checksum of their identity.
#[derive(Clone, Debug)]
struct ZeroChecksums {
    /// For each byte of the identity's checksum, what each of its values adds.
    tables: Box<[[u32; 256]; 4]>,
    constant: u32,
}

impl ZeroChecksums {
    fn new() -> Self {
        let behind = |crc| crc32c::crc32c_append(crc, &[0; BLOCK_BYTES as usize]);
        let constant = behind(0);
        let mut tables = Box::new([[0; 256]; 4]);
        for (byte, table) in tables.iter_mut().enumerate() {
            for (value, entry) in (0u32..).zip(table) {
                *entry = behind(value << (8 * byte)) ^ constant;
            }
        }
        Self { tables, constant }
    }

    fn block(&self, space: u32, block_in_space: u64) -> u32 {
        let mut identity = [0; 12];
        identity[..4].copy_from_slice(&space.to_le_bytes());
        identity[4..].copy_from_slice(&block_in_space.to_le_bytes());
        let bytes = crc32c::crc32c(&identity).to_le_bytes();
        let sum =
            self.tables.iter().zip(bytes).fold(self.constant, |sum, (table, byte)| sum ^ table[usize::from(byte)]);
        sum.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::disk::checksum;

    #[test]
    fn a_block_of_zeroes_has_the_checksum_that_its_bytes_have() {
        let zeroes = ZeroChecksums::new();
        for (space, block) in [(1, 0), (1, 1), (7, 1 << 40), (u32::MAX, 123_456_789)] {
            assert_eq!(zeroes.block(space, block), checksum::block(space, block, &[0; 4096]));
        }
    }

    #[test]
    fn every_page_has_its_slot_whatever_its_size() {
        for page_bytes in [4096, 65536, 262_144] {
            let volumes = [10 << 20, 1 << 20, 3 << 20];
            let (warm, planned) = Warm::attach(page_bytes, &volumes);
            let mut found = Vec::new();
            for sector in 0..warm.layout.table_sector_count() {
                let mut bytes = vec![0; SECTOR_BYTES];
                warm.encode(sector, &mut bytes);
                let mut crcs = Vec::new();
                planned.disk.decode_table_sectors(sector as u32, &bytes, &mut found, &mut crcs);
            }
            found.retain(|record| record.space != 0);
            assert_eq!(found.len() as u64, volumes.iter().sum::<u64>() / u64::from(page_bytes));
            found.sort_by_key(|record| (record.space, record.page));
            found.dedup();
            assert_eq!(found.len() as u64, volumes.iter().sum::<u64>() / u64::from(page_bytes));
        }
    }
}
