//! A log's bytes, and which of them are believed.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const SEED: u32 = 99;

fn head(sectors: u32) -> GroupHead {
    GroupHead { space: 3, position: 1000, first_record: 7, epoch: 2, durable: 6, tail: 900, sectors, life: 4 }
}

fn data(first: u64, sectors: u32) -> GroupRecord {
    GroupRecord { first, sectors, content: Content::Data, boundary: false }
}

/// A sound group of these records.
fn group(records: &[GroupRecord]) -> (GroupHead, Vec<u32>, Vec<u8>) {
    let crcs: Vec<u32> = (1..=records.iter().map(GroupRecord::crc_count).sum::<u64>() as u32).collect();
    let descriptor = descriptor_sectors(records.len(), crcs.len());
    let payload: u32 = records.iter().map(GroupRecord::payload_sectors).sum();
    let head = head(descriptor as u32 + payload);
    let mut bytes = vec![0xff; descriptor * LOG_SECTOR_BYTES];
    encode(SEED, &head, records, &crcs, &mut bytes);
    (head, crcs, bytes)
}

fn believed(bytes: &[u8]) -> Option<Group<'_>> {
    match decode(SEED, 3, 1000, bytes) {
        Found::Group(group) => Some(group),
        Found::Longer(_) | Found::End => None,
    }
}

#[test]
fn a_group_has_its_golden_bytes() {
    let zero = GroupRecord { content: Content::Zero { no_hole: true }, boundary: true, ..data(64, 5) };
    let (_, _, bytes) = group(&[data(8, 8), zero]);
    assert_eq!(bytes.len(), 512);
    assert_eq!(&bytes[..4], b"FBLG");
    assert_eq!(bytes[8..16], *b"\x03\0\0\0\x02\0\0\0");
    assert_eq!(bytes[16..32], *b"\xe8\x03\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
    assert_eq!(bytes[32..48], *b"\x02\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0");
    assert_eq!(bytes[48..64], *b"\x84\x03\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0");
    assert_eq!(bytes[64..72], *b"\x04\0\0\0\0\0\0\0");
    assert_eq!(bytes[72..88], *b"\x08\0\0\0\0\0\0\0\x08\0\0\0\x01\0\0\0");
    assert_eq!(bytes[88..104], *b"\x40\0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0");
    assert_eq!(bytes[104..108], [1, 0, 0, 0]);
    assert!(bytes[108..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_longer_descriptor_asks_for_its_sectors() {
    let records: Vec<GroupRecord> = (0..40).map(|nth| data(nth * 8, 8)).collect();
    let (head, _, bytes) = group(&records);
    assert_eq!(bytes.len(), 2 * 512);
    assert!(matches!(decode(SEED, 3, 1000, &bytes[..512]), Found::Longer(2)));
    let group = believed(&bytes).expect("it is whole");
    assert_eq!((group.head(), group.end()), (&head, 1000 + 2 + 320));
}

#[test]
fn a_group_of_another_log_round_or_cache_is_the_end() {
    let (_, _, bytes) = group(&[data(8, 8)]);
    assert!(matches!(decode(SEED, 4, 1000, &bytes), Found::End));
    assert!(matches!(decode(SEED, 3, 1001, &bytes), Found::End));
    assert!(matches!(decode(SEED + 1, 3, 1000, &bytes), Found::End));
    assert!(matches!(decode(SEED, 3, 1000, &[0; 512]), Found::End));
}

#[test]
fn what_does_not_add_up_is_the_end() {
    let change = |at: usize, byte: u8| {
        let (_, _, mut bytes) = group(&[data(8, 8)]);
        bytes[at] = byte;
        let crc = checksum::sector(SEED, &bytes, CRC_AT);
        put_le_u32(&mut bytes, CRC_AT, crc);
        believed(&bytes).is_some()
    };
    assert!(change(24, 9), "another first record is sound");
    assert!(!change(24, 5), "it is said to be durable before it was written");
    assert!(!change(50, 9), "the log begins behind it");
    assert!(!change(56, 10), "more sectors than its records have");
    assert!(!change(60, 2), "more checksums than its records have");
    assert!(!change(80, 0), "a record without sectors");
    assert!(!change(84, 3), "flags that contradict each other");
    assert!(!change(84, 128), "a flag of another version");
    assert!(!change(12, 0), "no record");
}

fn record() -> impl Strategy<Value = GroupRecord> {
    let content = prop_oneof![Just(Content::Data), any::<bool>().prop_map(|no_hole| Content::Zero { no_hole }),];
    (0..1u64 << 40, 1..300u32, content, any::<bool>()).prop_map(|(first, sectors, content, boundary)| GroupRecord {
        first,
        sectors,
        content,
        boundary,
    })
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(records in proptest::collection::vec(record(), 1..60)) {
        let (head, crcs, bytes) = group(&records);
        let group = believed(&bytes).expect("it is whole");
        prop_assert_eq!(group.head(), &head);
        let placed: Vec<Placed> = group.records().collect();
        prop_assert!(placed.iter().map(|it| it.record).eq(records.iter().copied()));
        let mut position = head.position + (bytes.len() / 512) as u64;
        let mut read = Vec::new();
        for it in &placed {
            prop_assert_eq!(it.payload.start, position);
            position = it.payload.end;
            read.extend(it.crcs.clone().map(|at| group.crc(at)));
        }
        prop_assert_eq!((position, read), (group.end(), crcs));
    }

    #[test]
    fn a_torn_or_flipped_descriptor_is_the_end(
        records in proptest::collection::vec(record(), 1..80), at: prop::sample::Index, bit in 0u8..8, torn: bool,
    ) {
        let (_, _, mut bytes) = group(&records);
        let at = at.index(bytes.len());
        if torn {
            let sector = at / 512 * 512;
            let was = bytes[sector..sector + 512].to_vec();
            bytes[sector..sector + 512].fill(0x5a);
            prop_assume!(was != bytes[sector..sector + 512]);
        } else {
            bytes[at] ^= 1 << bit;
        }
        prop_assert!(believed(&bytes).is_none());
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 512..2048), fix: bool) {
        let mut bytes = bytes;
        if fix {
            bytes[..4].copy_from_slice(b"FBLG");
            put_le_u32(&mut bytes, 8, 3);
            put_le_u64(&mut bytes, 16, 1000);
            bytes[14..16].fill(0);
            bytes[12] &= 15;
            bytes[13] = 0;
            bytes[60..64].fill(0);
            let crc = checksum::sector(SEED, &bytes[..512.min(bytes.len())], CRC_AT);
            put_le_u32(&mut bytes, CRC_AT, crc);
        }
        if let Some(group) = believed(&bytes) {
            prop_assert!(group.records().count() > 0);
        }
    }
}
