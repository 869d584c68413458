//! What is left on the cache disk, compared with the back ends before anything is served from it.
//!
//! The invariant that recovery rests on: a block whose checksum in a valid record fits the bytes in its slot, in a
//! region that is not marked in the intent map, holds what the back end holds. Here it is checked from outside, on the
//! bytes of the disk, each time a process starts with them.

use crate::content::{SECTOR_BYTES, describe, value_in};
use crate::ledger::{Count, SharedLedger};
use crate::medium::Medium;
use forebay_core::VolumeId;
use forebay_engine::attach::{Plan, block_checksums};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK_BYTES: usize = 4096;

/// Checks it; panics where it does not hold. `truth`: what the volumes have; `is_lost`: nobody knows what a volume's sector has.
pub fn check_table(
    disk: &Medium,
    plan: &Plan,
    truth: &[Rc<RefCell<Medium>>],
    is_lost: impl Fn(usize, u64) -> bool,
    ledger: &SharedLedger,
) {
    let layout = plan.disk.layout();
    let sectors = layout.table_sector_count();
    let table = layout.table_offset() as usize;
    let (mut records, mut crcs) = (Vec::new(), Vec::new());
    plan.disk.decode_table_sectors(
        0,
        &disk.current()[table..table + sectors as usize * BLOCK_BYTES],
        &mut records,
        &mut crcs,
    );
    for (slot, (record, crcs)) in records.iter().zip(crcs.chunks_exact(layout.blocks_per_page())).enumerate() {
        let volume = (0..truth.len()).find(|volume| plan.disk.space(VolumeId(*volume as u16)) == record.space);
        let Some(volume) = volume.filter(|_| record.space != 0) else { continue };
        let truth = truth[volume].borrow();
        let page = record.page * u64::from(layout.page_bytes());
        let region = page / plan.disk.region_bytes(VolumeId(volume as u16));
        let words = &plan.in_flight_regions[volume];
        let in_flight = words.get(region as usize / 64).is_some_and(|word| word >> (region % 64) & 1 == 1);
        for (block, crc) in crcs.iter().enumerate().filter(|(_, crc)| **crc != 0) {
            let at = layout.slot_offset(slot as u64) as usize + block * BLOCK_BYTES;
            let bytes = &disk.current()[at..at + BLOCK_BYTES];
            let mut is = Vec::new();
            let number = record.page * layout.blocks_per_page() as u64 + block as u64;
            block_checksums(record.space, number, bytes, &mut is);
            if is[0] != *crc {
                continue;
            }
            let start = page as usize + block * BLOCK_BYTES;
            let there = &truth.current()[start..truth.current().len().min(start + BLOCK_BYTES)];
            for (nth, (is, there)) in bytes.chunks(SECTOR_BYTES).zip(there.chunks(SECTOR_BYTES)).enumerate() {
                let sector = start / SECTOR_BYTES + nth;
                if is == there || is_lost(volume, sector as u64) {
                    continue;
                }
                let text = |bytes| value_in(bytes).map_or("torn".to_owned(), describe);
                assert!(
                    in_flight,
                    "volume {volume}, sector {sector}: slot {slot} has {}, the back end {}, and region {region} is clear",
                    text(is),
                    text(there)
                );
                ledger.add(Count::StateOldSlot, 1);
            }
            ledger.add(Count::StateTableChecked, 1);
        }
    }
}
