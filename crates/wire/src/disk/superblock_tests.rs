//! The superblock's bytes, and what a device is taken for.

use super::*;
use crate::bytes::first_difference;
use crate::disk::MIB;
use alloc::vec;
use proptest::prelude::*;

fn volume(space: u32, name: &str) -> VolumeEntry {
    VolumeEntry {
        space,
        backend_identity: 0x1122_3344_5566_7788,
        volume_bytes: 10 << 30,
        backend_mtime_ns: -1,
        region_bytes: 3 * MIB,
        name: name.to_string(),
        log: None,
    }
}

fn logged(volume: VolumeEntry, offset: u64, in_use: bool) -> VolumeEntry {
    VolumeEntry { log: Some(LogArea { offset, bytes: 64 * MIB, in_use }), ..volume }
}

fn example() -> Superblock {
    Superblock {
        sequence: 6,
        cache_id: *b"0123456789abcdef",
        generation: 3,
        table_epoch: 0x0a0b,
        layout: Layout::new(1 << 30, 65_536).unwrap(),
        clean: true,
        next_space: 9,
        mirror_side: 0x0c0d,
        volumes: vec![Some(volume(8, "db")), None, Some(logged(volume(2, "w"), 1 << 30, true))],
    }
}

fn encoded(superblock: &Superblock) -> Vec<u8> {
    let mut sector = vec![0xff; SECTOR_BYTES];
    superblock.encode(&mut sector);
    sector
}

/// A device with these two sectors at its start.
fn device(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut head = [a, b].concat();
    head.resize(signature::PROBE_BYTES, 0);
    head
}

fn reseal(sector: &mut [u8]) {
    let crc = checksum::sector(0, sector, CRC_AT);
    put_le_u32(sector, CRC_AT, crc);
}

#[test]
fn a_superblock_has_its_golden_bytes() {
    let mut golden = vec![0; SECTOR_BYTES];
    golden[..16].copy_from_slice(b"FOREBAY\0\x02\0\0\0\x3a\xe0\x73\x20");
    golden[16..24].copy_from_slice(b"\x06\0\0\0\0\0\0\0");
    golden[24..40].copy_from_slice(b"0123456789abcdef");
    golden[40..56].copy_from_slice(b"\x03\0\0\0\0\0\0\0\x0b\x0a\0\0\0\0\0\0");
    golden[56..64].copy_from_slice(b"\0\0\x01\0\x03\0\0\0");
    golden[64..80].copy_from_slice(b"\xe0\x3f\0\0\0\0\0\0\0\x20\0\0\0\0\0\0");
    golden[80..96].copy_from_slice(b"\0\xe0\x03\0\0\0\0\0\0\0\x20\0\0\0\0\0");
    golden[96..112].copy_from_slice(b"\0\0\0\x40\0\0\0\0\x01\0\0\0\x09\0\0\0");
    golden[112..114].copy_from_slice(b"\x0d\x0c");
    let entry = b"\0\0\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\0\0\0\x80\x02\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x30\0\0\0\0\0";
    for (at, space, name) in [(256, 8, &b"\x02db"[..]), (512, 2, b"\x01w")] {
        golden[at..at + 40].copy_from_slice(entry);
        golden[at] = space;
        golden[at + 40..at + 40 + name.len()].copy_from_slice(name);
    }
    golden[516] = 1;
    golden[616..632].copy_from_slice(b"\0\0\0\x40\0\0\0\0\0\0\0\x04\0\0\0\0");
    let sector = encoded(&example());
    assert_eq!(first_difference(&sector, &golden), None);
}

#[test]
fn the_newer_valid_copy_counts() {
    let (six, seven) = (example(), Superblock { sequence: 7, generation: 4, ..example() });
    let (a, b) = (encoded(&six), encoded(&seven));
    assert_eq!(probe(&device(&a, &b)), Found::Valid(seven.clone()));
    let eight = Superblock { sequence: 8, ..example() };
    assert_eq!(probe(&device(&encoded(&eight), &b)), Found::Valid(eight));
    let mut torn = b.clone();
    torn[512..].fill(0);
    assert_eq!(probe(&device(&a, &torn)), Found::Valid(six.clone()));
    assert_eq!(probe(&device(&a, &[0; SECTOR_BYTES])), Found::Valid(six), "the other copy was never written");
    assert_eq!(probe(&device(&torn, &torn)), Found::Damaged);
    assert_eq!(probe(&device(&b, &a)), Found::Damaged, "in each other's place");
}

#[test]
fn other_versions_are_told_from_damage() {
    let good = encoded(&example());
    let versioned = |version: u32| {
        let mut sector = good.clone();
        put_le_u32(&mut sector, 8, version);
        // Fields of another version mean nothing to this one.
        sector[56..60].fill(0xee);
        reseal(&mut sector);
        sector
    };
    let blank = vec![0; SECTOR_BYTES];
    assert_eq!(probe(&device(&versioned(3), &blank)), Found::Newer(3));
    assert_eq!(probe(&device(&good, &versioned(7))), Found::Newer(7), "half an upgrade is an upgrade");
    assert_eq!(probe(&device(&versioned(0), &blank)), Found::Older(0));
    assert_eq!(probe(&device(&good, &versioned(0))), Found::Valid(example()));
    let mut unsealed = versioned(3);
    unsealed[100] ^= 1;
    assert_eq!(probe(&device(&unsealed, &blank)), Found::Damaged);
}

#[test]
fn what_is_not_a_cache_is_named() {
    let blank = vec![0; SECTOR_BYTES];
    assert_eq!(probe(&device(&blank, &blank)), Found::Blank);
    assert_eq!(probe(&device(&[0xaa; SECTOR_BYTES], &blank)), Found::Foreign("data of an unknown kind"));
    let mut xfs = blank.clone();
    xfs[..4].copy_from_slice(b"XFSB");
    assert_eq!(probe(&device(&xfs, &blank)), Found::Foreign("an XFS file system"));
}

#[test]
fn a_device_taken_over_by_something_else_is_left_alone() {
    let odd = encoded(&Superblock { sequence: 7, ..example() });
    let mut swap = encoded(&example());
    swap[1024..].fill(0);
    swap[4086..].copy_from_slice(b"SWAPSPACE2");
    assert_eq!(probe(&device(&swap, &odd)), Found::Foreign("swap space"));
    let mut array = odd.clone();
    array[..256].fill(0);
    array[..4].copy_from_slice(b"\xfc\x4e\x2b\xa9");
    assert_eq!(probe(&device(&encoded(&example()), &array)), Found::Foreign("a member of an md array"));
}

#[test]
fn a_good_checksum_does_not_excuse_nonsense() {
    type Breach = fn(&mut [u8]);
    let breaches: [(&str, Breach); 14] = [
        ("page size", |s| put_le_u32(s, 56, 12_288)),
        ("too many volumes", |s| put_le_u32(s, 60, 31)),
        ("slot count", |s| put_le_u64(s, 64, 1)),
        ("device size", |s| put_le_u64(s, 96, 1000)),
        ("next space", |s| put_le_u32(s, 108, 8)),
        ("two volumes of one space", |s| put_le_u32(s, 512, 8)),
        ("name length", |s| s[256 + 40] = 57),
        ("name not UTF-8", |s| s[256 + 41] = 0xff),
        ("regions", |s| put_le_u64(s, 256 + 32, 0)),
        ("an unknown flag", |s| put_le_u32(s, 512 + 4, 3)),
        ("a log that is in use and not there", |s| put_le_u32(s, 256 + 4, 1)),
        ("a log among the slots", |s| put_le_u64(s, 512 + 104, (1 << 30) - 4096)),
        ("a log of half a sector", |s| put_le_u64(s, 512 + 112, 4095)),
        ("two logs in one place", |s| {
            put_le_u64(s, 256 + 104, (1 << 30) + 63 * MIB);
            put_le_u64(s, 256 + 112, 4096);
        }),
    ];
    for (what, breach) in breaches {
        let mut sector = encoded(&example());
        breach(&mut sector);
        reseal(&mut sector);
        assert_eq!(decode(0, &sector), Copy::Damaged, "{what}");
    }
}

#[test]
#[should_panic(expected = "unsound superblock")]
fn an_unsound_superblock_is_not_written() {
    encoded(&Superblock { next_space: 8, ..example() });
}

fn any_volumes() -> impl Strategy<Value = Vec<Option<VolumeEntry>>> {
    let entry = (any::<u64>(), 0u64..1 << 50, any::<i64>(), "[a-z0-9._-]{1,56}");
    proptest::collection::vec(proptest::option::of(entry), 0..=VOLUMES_MAX).prop_map(|entries| {
        let spaces = (1..).step_by(3);
        let build = |(space, entry): (u32, Option<_>)| {
            entry.map(|(backend_identity, volume_bytes, backend_mtime_ns, name)| {
                let region_bytes = intent::region_bytes(volume_bytes);
                let log = volume_bytes.is_multiple_of(2).then(|| LogArea {
                    offset: (1 << 35) + u64::from(space) * MIB,
                    bytes: MIB,
                    in_use: volume_bytes.is_multiple_of(4),
                });
                VolumeEntry { space, backend_identity, volume_bytes, backend_mtime_ns, region_bytes, name, log }
            })
        };
        spaces.zip(entries).map(build).collect()
    })
}

proptest! {
    #[test]
    fn superblocks_survive_the_disk(sequence: u64, cache_id: [u8; 16], generation: u64, table_epoch: u64, mirror_side: u64, clean: bool, power in 12u32..=18, volumes in any_volumes()) {
        let layout = Layout::new(1 << 35, 1 << power).unwrap();
        let superblock = Superblock { sequence, cache_id, generation, table_epoch, layout, clean, next_space: 100, mirror_side, volumes };
        prop_assert_eq!(decode(sequence & 1, &encoded(&superblock)), Copy::Valid(superblock));
    }

    #[test]
    fn a_flipped_bit_is_seen(at in 0usize..SECTOR_BYTES, bit in 0u8..8) {
        let mut sector = encoded(&example());
        sector[at] ^= 1 << bit;
        let expected = if at < 8 { Copy::Absent } else { Copy::Damaged };
        prop_assert_eq!(decode(0, &sector), expected);
    }
}
