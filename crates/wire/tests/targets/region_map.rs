//! Whatever the two copies of a region map hold, what is believed survives being written.

use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::region_map::{Found, Lost, RegionMap, copy_bytes, newest};

fn map(sequence: u64, words: usize, lost: u64) -> RegionMap {
    RegionMap {
        sequence,
        cache_id: [5; 16],
        space: 2,
        volume: "a volume".to_owned(),
        volume_sectors: 1 << 20,
        life: 9,
        tail: words.is_multiple_of(2).then_some([8, 7, 6]),
        words: (0..words as u64).collect(),
        lost: (0..lost).map(|nth| Lost { first: nth * 16, end: nth * 16 + 9, epoch: Some(nth) }).collect(),
    }
}

/// Two copies, each in half of the bytes.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    [(0, 0, 0), (2, 5, 3), (4, 8, 0), (6, 600, 100)]
        .map(|(sequence, words, lost)| {
            let mut copies = [map(sequence, words, lost).encode(), map(sequence + 1, words, lost).encode()];
            let length = copies[0].len().max(copies[1].len());
            copies.iter_mut().for_each(|copy| copy.resize(length, 0));
            copies.concat()
        })
        .to_vec()
}

/// Looks at the bytes as they are, and again with their checksums put right.
pub(crate) fn check(data: &[u8]) {
    let half = (data.len() / 2).next_multiple_of(SECTOR_BYTES);
    let mut copies = data.to_vec();
    copies.resize(2 * half, 0);
    check_copies(&copies, half);
    for copy in copies.chunks_exact_mut(half.max(1)) {
        copy[..4].copy_from_slice(b"FBRM");
        let Some(bytes) = copy_bytes(copy).and_then(|length| copy.get_mut(..length)) else { continue };
        bytes[4..8].fill(0);
        let crc = crc32c::crc32c(bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    check_copies(&copies, half);
}

fn check_copies(copies: &[u8], half: usize) {
    let (a, b) = copies.split_at(half);
    if let Found::Map(map) = newest([a, b]) {
        let bytes = map.encode();
        let copies: [&[u8]; 2] = if map.sequence & 1 == 0 { [&bytes, &[]] } else { [&[], &bytes] };
        assert_eq!(newest(copies), Found::Map(map));
    }
}
