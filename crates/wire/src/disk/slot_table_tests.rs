//! The table's bytes, and which of them are believed.

use super::*;
use crate::bytes::first_difference;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn format(page_bytes: u32) -> TableFormat {
    let layout = Layout::new(64 << 20, page_bytes).unwrap();
    TableFormat { layout, cache_seed: 77, epoch: 5 }
}

fn valid<'a>(format: &TableFormat, index: u64, bytes: &'a [u8]) -> Records<'a> {
    match format.decode(index, bytes) {
        Sector::Valid(records) => records,
        other => panic!("{other:?}"),
    }
}

/// Sector 1 of a table of 64 KiB pages with one record.
fn example() -> Vec<u8> {
    let format = format(65_536);
    let mut bytes = vec![0xff; SECTOR_BYTES];
    let mut writer = format.encode(1, &mut bytes);
    let crcs: Vec<u32> = (0..16).map(|block| if block == 1 { 0 } else { 0x0101 * (block + 1) }).collect();
    writer.put(51, 3, 0x0102_0304_0506, &crcs);
    writer.finish();
    bytes
}

#[test]
fn a_sector_has_its_golden_bytes() {
    let mut golden = vec![0; SECTOR_BYTES];
    golden[..8].copy_from_slice(b"FBST\x82\xec\x1c\x04");
    golden[8..28].copy_from_slice(b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x32\0\0\0");
    golden[112..128].copy_from_slice(b"\x03\0\0\0\0\0\0\0\x06\x05\x04\x03\x02\x01\0\0");
    for block in (0..16).filter(|block| *block != 1) {
        golden[128 + 4 * block..][..2].fill(block as u8 + 1);
    }
    assert_eq!(first_difference(&example(), &golden), None);
}

#[test]
fn records_are_read_in_place() {
    let bytes = example();
    let records: Vec<Record<'_>> = valid(&format(65_536), 1, &bytes).collect();
    assert_eq!(records.len(), 50);
    for (record, slot) in records.iter().zip(50..) {
        assert_eq!(record.slot(), slot);
        assert_eq!(record.space(), (slot == 51).then_some(3));
    }
    let record = records[1];
    assert_eq!((record.page(), record.present()), (0x0102_0304_0506, 0xfffd));
    assert_eq!((record.crc(0), record.crc(1), record.crc(15)), (0x0101, 0, 0x1010));
    assert_eq!(record.crcs().len(), 64);
}

#[test]
fn a_sector_elsewhere_or_of_another_time_is_void() {
    let bytes = example();
    let format = format(65_536);
    assert!(matches!(format.decode(0, &bytes), Sector::Damaged), "in another's place");
    let later = TableFormat { epoch: 6, ..format };
    assert!(matches!(later.decode(1, &bytes), Sector::Stale { epoch: 5 }));
    let reformatted = TableFormat { cache_seed: 78, ..format };
    assert!(matches!(reformatted.decode(1, &bytes), Sector::Damaged));
    assert!(matches!(format.decode(1, &[0; SECTOR_BYTES]), Sector::Blank));
    let mut almost = [0; SECTOR_BYTES];
    almost[SECTOR_BYTES - 1] = 1;
    assert!(matches!(format.decode(1, &almost), Sector::Damaged));
}

#[test]
fn a_record_with_an_unknown_flag_is_void() {
    let mut bytes = example();
    bytes[112 + 4] = 1;
    let crc = checksum::sector(77, &bytes, CRC_AT);
    put_le_u32(&mut bytes, CRC_AT, crc);
    assert_eq!(valid(&format(65_536), 1, &bytes).filter_map(|record| record.space()).count(), 0);
}

#[test]
fn the_last_sector_has_what_is_left() {
    let format = format(65_536);
    let last = format.layout.table_sector_count() - 1;
    let slots = format.layout.slots_of_sector(last);
    let mut bytes = vec![0; SECTOR_BYTES];
    format.encode(last, &mut bytes).finish();
    assert!(slots.end - slots.start < 50, "or this test tests nothing");
    assert_eq!(valid(&format, last, &bytes).len() as u64, slots.end - slots.start);
    put_le_u32(&mut bytes, 24, 50);
    let crc = checksum::sector(77, &bytes, CRC_AT);
    put_le_u32(&mut bytes, CRC_AT, crc);
    assert!(matches!(format.decode(last, &bytes), Sector::Damaged), "more records than slots");
}

#[test]
#[should_panic(expected = "is not of this sector")]
fn a_slot_of_another_sector_is_a_bug() {
    let format = format(4096);
    format.encode(0, &mut [0; SECTOR_BYTES]).put(203, 1, 0, &[1]);
}

proptest! {
    #[test]
    fn sectors_survive_the_disk(power in 12u32..=18, entries in proptest::collection::vec(proptest::option::of((1u32.., any::<u64>(), any::<u64>())), 203)) {
        let format = format(1 << power);
        let blocks = format.layout.blocks_per_page();
        let crcs_of = |seed: u64| (0..blocks as u64).map(|block| (seed.rotate_left(block as u32) as u32) & 0xffff).collect::<Vec<u32>>();
        let slots = format.layout.slots_of_sector(0);
        let mut bytes = vec![0; SECTOR_BYTES];
        let mut writer = format.encode(0, &mut bytes);
        for (slot, entry) in slots.clone().zip(&entries) {
            if let Some((space, page, seed)) = entry {
                writer.put(slot, *space, *page, &crcs_of(*seed));
            }
        }
        writer.finish();
        let records = valid(&format, 0, &bytes);
        prop_assert_eq!(records.len() as u64, slots.end);
        for (record, entry) in records.zip(&entries) {
            prop_assert_eq!(record.space(), entry.map(|(space, ..)| space));
            let Some((_, page, seed)) = entry else { continue };
            prop_assert_eq!(record.page(), *page);
            for (block, crc) in crcs_of(*seed).into_iter().enumerate() {
                prop_assert_eq!(record.crc(block), crc);
                prop_assert_eq!(record.present() >> block & 1, u64::from(crc != 0));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_seen(at in 0usize..SECTOR_BYTES, bit in 0u8..8) {
        let mut bytes = example();
        bytes[at] ^= 1 << bit;
        prop_assert!(matches!(format(65_536).decode(1, &bytes), Sector::Damaged));
    }
}
