//! Whatever a sector of the slot table holds, its records are the layout's, and they survive being written.

use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::layout::Layout;
use forebay_wire::disk::slot_table::{Sector, TableFormat};
use forebay_wire::disk::superblock::Superblock;

fn format(power: u8) -> (TableFormat, Layout, u32) {
    let layout = Layout::new(64 << 20, 4096 << (power % 7)).expect("64 MiB are enough");
    let superblock = Superblock {
        sequence: 0,
        cache_id: [5; 16],
        generation: 1,
        table_epoch: 1,
        layout,
        clean: false,
        next_space: 1,
        mirror_side: 0,
        volumes: Vec::new(),
    };
    (TableFormat::new(&superblock), layout, superblock.cache_seed())
}

/// A byte that chooses the page size, and a sector.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let build = |power: u8| {
        let (format, layout, _) = format(power);
        let mut input = vec![power; 1 + SECTOR_BYTES];
        let mut writer = format.encode(0, &mut input[1..]);
        for slot in layout.slots_of_sector(0).step_by(2) {
            let crcs: Vec<u32> = (0..layout.blocks_per_page() as u32).map(|block| block % 3).collect();
            writer.put(slot, 1, slot * 10, &crcs);
        }
        writer.finish();
        input
    };
    (0..7).map(build).collect()
}

/// Looks at the bytes as they are, and again with their checksum put right.
pub(crate) fn check(data: &[u8]) {
    let Some((power, rest)) = data.split_first() else { return };
    let mut sector = rest.to_vec();
    sector.resize(SECTOR_BYTES, 0);
    check_sector(*power, &sector);
    let (.., seed) = format(*power);
    sector[..4].copy_from_slice(b"FBST");
    sector[4..8].fill(0);
    let crc = crc32c::crc32c_append(seed, &sector);
    sector[4..8].copy_from_slice(&crc.to_le_bytes());
    check_sector(*power, &sector);
}

fn check_sector(power: u8, sector: &[u8]) {
    let (format, layout, _) = format(power);
    let Sector::Valid(records) = format.decode(0, sector) else { return };
    assert_eq!(records.len() as u64, layout.records_per_sector());
    let mut again = vec![0; SECTOR_BYTES];
    let mut writer = format.encode(0, &mut again);
    for record in records.clone() {
        let crcs: Vec<u32> = (0..layout.blocks_per_page()).map(|block| record.crc(block)).collect();
        if let Some(space) = record.space() {
            writer.put(record.slot(), space, record.page(), &crcs);
        }
    }
    writer.finish();
    let Sector::Valid(written) = format.decode(0, &again) else { panic!("what was written is not read") };
    for (before, after) in records.zip(written) {
        assert_eq!(before.space(), after.space());
        assert_eq!(before.slot(), after.slot());
        if before.space().is_some() {
            assert_eq!((before.page(), before.present(), before.crcs()), (after.page(), after.present(), after.crcs()));
        }
    }
}
