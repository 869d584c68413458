//! Whatever is at the start of a device, it is taken for something; what is taken for a cache survives being written.

use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::intent::region_bytes;
use forebay_wire::disk::layout::Layout;
use forebay_wire::disk::superblock::{Copy, Found, LogArea, Superblock, VolumeEntry, decode, probe};

/// The start of a cache disk: both copies.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let volume = |space: u32, volume_bytes| VolumeEntry {
        space,
        backend_identity: 7,
        volume_bytes,
        backend_mtime_ns: 9,
        region_bytes: region_bytes(volume_bytes),
        name: format!("volume-{space}"),
        log: space.is_multiple_of(3).then(|| LogArea {
            offset: (1 << 30) + (u64::from(space) << 20),
            bytes: 1 << 20,
            in_use: space.is_multiple_of(2),
        }),
    };
    let build = |sequence: u64, count: u32| {
        let layout = Layout::new(1 << 30, 4096 << (sequence % 7)).expect("a GiB is enough");
        let volumes = (1..=count).map(|space| (space != 2).then(|| volume(space, 1 << (20 + space)))).collect();
        let (generation, table_epoch, clean) = (1, 1, sequence.is_multiple_of(3));
        let (cache_id, mirror_side) = ([3; 16], sequence * 11);
        let superblock = Superblock {
            sequence,
            cache_id,
            generation,
            table_epoch,
            layout,
            clean,
            next_space: 40,
            mirror_side,
            volumes,
        };
        let mut sector = vec![0; SECTOR_BYTES];
        superblock.encode(&mut sector);
        sector
    };
    [(0, 0), (2, 1), (4, 3), (6, 30)]
        .map(|(sequence, count)| [build(sequence, count), build(sequence + 1, count)].concat())
        .to_vec()
}

/// Looks at the bytes as they are, and again with their checksums put right.
pub(crate) fn check(data: &[u8]) {
    let mut head = data.to_vec();
    head.resize(head.len().max(2 * SECTOR_BYTES), 0);
    check_head(&head);
    for at in [0, SECTOR_BYTES] {
        let sector = &mut head[at..at + SECTOR_BYTES];
        sector[..8].copy_from_slice(b"FOREBAY\0");
        sector[12..16].fill(0);
        let crc = crc32c::crc32c(sector);
        sector[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    check_head(&head);
}

fn check_head(head: &[u8]) {
    if let Found::Valid(superblock) = probe(head) {
        let mut sector = vec![0; SECTOR_BYTES];
        superblock.encode(&mut sector);
        assert_eq!(decode(superblock.sequence & 1, &sector), Copy::Valid(superblock));
    }
}
