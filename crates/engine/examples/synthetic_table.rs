//! Fills the slot table of a formatted cache disk: slot i holds page i of the first volume, all zeroes.
//!
//! `synthetic_table FILE`: FILE is a cache disk that was formatted and stopped in order, sparse, over a back end of
//! zeroes. Makes a cache of any size warm in a minute, to measure how long its recovery takes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use forebay_wire::disk::checksum;
use forebay_wire::disk::signature::PROBE_BYTES;
use forebay_wire::disk::slot_table::TableFormat;
use forebay_wire::disk::superblock::{Found, probe};

/// Sectors written at a time.
const BATCH: u64 = 256;
/// Pages whose checksums are right; those of the rest are made up, which is quicker and nobody reads them.
const SOUND_PAGES: u64 = 4096;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).expect("synthetic_table FILE");
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut head = vec![0; PROBE_BYTES];
    file.read_exact_at(&mut head, 0)?;
    let Found::Valid(superblock) = probe(&head) else { panic!("not a cache disk") };
    let volume = superblock.volumes.iter().flatten().next().expect("a volume");
    let pages = volume.volume_bytes / u64::from(superblock.layout.page_bytes());
    let blocks = superblock.layout.blocks_per_page() as u64;
    let format = TableFormat::new(&superblock);
    let layout = &superblock.layout;
    let mut batch = Vec::with_capacity(BATCH as usize * 4096);
    let zeroes = [0; 4096];
    for sector in 0..layout.table_sector_count() {
        let mut bytes = [0; 4096];
        let mut writer = format.encode(sector, &mut bytes);
        for slot in layout.slots_of_sector(sector).filter(|slot| *slot < pages) {
            let crc = |block| {
                if slot < SOUND_PAGES { checksum::block(volume.space, slot * blocks + block, &zeroes) } else { 1 }
            };
            let crcs: Vec<u32> = (0..blocks).map(crc).collect();
            writer.put(slot, volume.space, slot, &crcs);
        }
        writer.finish();
        batch.extend_from_slice(&bytes);
        if (sector + 1) % BATCH == 0 || sector + 1 == layout.table_sector_count() {
            let first = sector + 1 - batch.len() as u64 / 4096;
            file.write_all_at(&batch, layout.table_sector_offset(first))?;
            batch.clear();
        }
    }
    file.sync_all()?;
    println!("{} slots, {} sectors", layout.slot_count().min(pages), layout.table_sector_count());
    Ok(())
}
