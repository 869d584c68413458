//! Whatever the two copies of an intent map hold, what is believed survives being written.

use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::intent::{Copy, IntentMap, decode, newest};

const SEED: u32 = 99;

/// Two copies of a map.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let build = |sequence, region_count| {
        let mut map = IntentMap::new(1, region_count);
        map.sequence = sequence;
        (0..region_count).step_by(7).for_each(|region| map.set(region));
        let mut sector = vec![0; SECTOR_BYTES];
        map.encode(SEED, &mut sector);
        sector
    };
    [(0, 0), (2, 1), (4, 100), (6, 4096)]
        .map(|(sequence, count)| [build(sequence, count), build(sequence + 1, count)].concat())
        .to_vec()
}

/// Looks at the bytes as they are, and again with their checksums put right.
pub(crate) fn check(data: &[u8]) {
    let mut copies = data.to_vec();
    copies.resize(2 * SECTOR_BYTES, 0);
    check_copies(&copies);
    for sector in copies.chunks_exact_mut(SECTOR_BYTES) {
        sector[..4].copy_from_slice(b"FBIM");
        sector[4..8].fill(0);
        let crc = crc32c::crc32c_append(SEED, sector);
        sector[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    check_copies(&copies);
}

fn check_copies(copies: &[u8]) {
    let (a, b) = copies.split_at(SECTOR_BYTES);
    let chosen = newest(SEED, 1, [a, b]);
    assert!(chosen.unreadable <= 2);
    if let Some(map) = chosen.map {
        assert!(map.count_set() <= map.region_count());
        (0..map.region_count()).for_each(|region| _ = map.is_set(region));
        let mut sector = vec![0; SECTOR_BYTES];
        map.encode(SEED, &mut sector);
        assert_eq!(decode(SEED, map.sequence & 1, &sector), Copy::Valid(map));
    }
}
