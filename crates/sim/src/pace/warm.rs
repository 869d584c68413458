//! A cache disk that holds pages of every volume, all zeroes, as a process finds it that was stopped in order.
//!
//! Why: an experiment on hits begins when all that is to hit is cached. Reading it all once takes a second of real time for each
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

/// What there is of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarmVolume {
    pub(super) bytes: u64,
    /// Of a thousand pages, how many are cached; they are spread evenly.
    pub(super) cached_permil: u32,
    /// Bytes of its write-back log, empty; 0: it has none.
    pub(super) log_bytes: u64,
}

/// The slots of a volume.
#[derive(Clone, Copy, Debug)]
struct Holding {
    space: u32,
    first_slot: u64,
    slots: u64,
    pages: u64,
}

/// What the slot table of the disk says.
#[derive(Clone, Debug)]
pub(super) struct Warm {
    layout: Layout,
    format: TableFormat,
    device_bytes: u64,
    /// By volume, in turn.
    holdings: Vec<Holding>,
    zeroes: ZeroChecksums,
}

impl Warm {
    /// A disk for volumes of these sizes, and what the product makes of it.
    pub(super) fn attach(page_bytes: u32, volumes: &[WarmVolume]) -> (Self, Plan) {
        let facts = |(at, volume): (usize, &WarmVolume)| VolumeFacts {
            name: format!("v{at}"),
            backend: "modelled".to_owned(),
            identity: at as u64 + 1,
            bytes: volume.bytes,
            mtime_ns: 0,
            log_bytes: volume.log_bytes,
        };
        let known: Vec<VolumeFacts> = volumes.iter().enumerate().map(facts).collect();
        let device_bytes = device_bytes(page_bytes, volumes);
        let wanted = Wanted {
            page_bytes,
            device_bytes,
            volumes: &known,
            generation: Some(1),
            cold: false,
            force_format: false,
            intent_map: true,
            new_cache_id: [1; 16],
            identity: None,
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
        (Self::new(&attached.disk, page_bytes, device_bytes, volumes), attached)
    }

    fn new(disk: &CacheDisk, page_bytes: u32, device_bytes: u64, volumes: &[WarmVolume]) -> Self {
        let mut first_slot = 0;
        let holdings = volumes.iter().enumerate().map(|(at, volume)| {
            let pages = volume.bytes.div_ceil(u64::from(page_bytes));
            let slots = pages * u64::from(volume.cached_permil) / 1000;
            first_slot += slots;
            Holding { space: disk.space(VolumeId(at as u16)), first_slot: first_slot - slots, slots, pages }
        });
        let holdings = holdings.collect();
        let layout = *disk.layout();
        assert!(first_slot <= layout.slot_count(), "{first_slot} pages for {} slots", layout.slot_count());
        let (format, zeroes) = (TableFormat::new(disk.superblock()), ZeroChecksums::new());
        Self { layout, format, device_bytes, holdings, zeroes }
    }

    /// The disk's size.
    pub(super) fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Pages that it holds.
    pub(super) fn pages(&self) -> u64 {
        self.holdings.iter().map(|holding| holding.slots).sum()
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
            let holding = self.holdings.iter().find(|holding| slot < holding.first_slot + holding.slots);
            let Some(Holding { space, first_slot, slots, pages }) = holding else { break };
            let page = (slot - first_slot) * pages / slots;
            let first_block = page * self.layout.blocks_per_page() as u64;
            for (block, crc) in (first_block..).zip(&mut crcs) {
                *crc = self.zeroes.block(*space, block);
            }
            writer.put(slot, *space, page, &crcs);
        }
        writer.finish();
    }
}

/// Enough for all pages: slots, their records (a tenth of a page at most), and what comes before them; and for logs.
fn device_bytes(page_bytes: u32, volumes: &[WarmVolume]) -> u64 {
    let pages: u64 = volumes.iter().map(|volume| volume.bytes.div_ceil(u64::from(page_bytes))).sum();
    let bytes = pages * u64::from(page_bytes);
    let log_bytes: u64 = volumes.iter().map(|volume| volume.log_bytes).sum();
    (bytes + bytes / 10 + (8 << 20)).next_multiple_of(BLOCK_BYTES) + log_bytes
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
            let volumes = [(10, 1000, 0), (2, 500, 8), (3, 1000, 4)].map(|(mib, cached_permil, log_mib)| WarmVolume {
                bytes: mib << 20,
                cached_permil,
                log_bytes: log_mib << 20,
            });
            let (warm, planned) = Warm::attach(page_bytes, &volumes);
            let mut found = Vec::new();
            for sector in 0..warm.layout.table_sector_count() {
                let mut bytes = vec![0; SECTOR_BYTES];
                warm.encode(sector, &mut bytes);
                let mut crcs = Vec::new();
                planned.disk.decode_table_sectors(sector as u32, &bytes, &mut found, &mut crcs);
            }
            found.retain(|record| record.space != 0);
            let wanted = ((10 + 1 + 3) << 20) / u64::from(page_bytes);
            assert_eq!((found.len() as u64, warm.pages()), (wanted, wanted));
            found.sort_by_key(|record| (record.space, record.page));
            found.dedup();
            assert_eq!(found.len() as u64, wanted);
            let half = found.iter().filter(|record| record.space == planned.disk.space(VolumeId(1)));
            assert!(half.map(|record| record.page).eq((0..wanted / 14).map(|nth| 2 * nth)));
            let end = (0..3).filter_map(|at| planned.disk.log(VolumeId(at))).map(|log| log.offset + log.bytes).max();
            assert_eq!(end, Some(warm.device_bytes()));
        }
    }
}
