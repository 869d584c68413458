//! CRC32C (Castagnoli, IEEE Trans. Comm. 41(6), 1993) seeded with the identity of what it covers.
//!
//! A checksum of the bytes alone says that they are unchanged, not that they are the right ones: a write that went to
//! the wrong place, or one that was lost over an older page, would pass. So each checksum starts from *who the bytes
//! are*: a block from its space and its place in that space, a sector from the cache it belongs to.
//!
//! Limits: 32 bits miss one in 4 billion random corruptions; all of up to 5 flipped bits in 4 KiB are found
//! (Koopman, DSN 2002). It guards against accidents, not against an attacker.
//!
//! Rejected: storing the identity beside each block (8 to 12 bytes instead of none), and 64-bit checksums (twice the
//! .1 % of memory that the checksums of a full cache take).

use crc32c::{crc32c, crc32c_append};

/// The checksum of one block of `space`; never 0, which in a slot table means that the block is absent.
///
/// `block_in_space` counts blocks of 4 KiB from the start of the space. `bytes` is the whole block.
#[inline]
pub fn block(space: u32, block_in_space: u64, bytes: &[u8]) -> u32 {
    let mut identity = [0; 12];
    identity[..4].copy_from_slice(&space.to_le_bytes());
    identity[4..].copy_from_slice(&block_in_space.to_le_bytes());
    crc32c_append(crc32c(&identity), bytes).max(1)
}

/// What the checksums of a cache's sectors start from.
///
/// A device formatted anew has a new `cache_id`, so no sector of its former life is ever believed, and formatting
/// need not erase them: that would take 1.3 GB of writes for a TiB of cache.
pub fn cache_seed(cache_id: &[u8; 16]) -> u32 {
    crc32c(cache_id)
}

/// The checksum of a sector whose own checksum, 4 bytes at `field_at`, counts as zero.
#[inline]
pub(super) fn sector(seed: u32, bytes: &[u8], field_at: usize) -> u32 {
    let head = crc32c_append(seed, &bytes[..field_at]);
    let field = crc32c_append(head, &[0; 4]);
    crc32c_append(field, &bytes[field_at + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// RFC 3720, appendix B.4: the polynomial is the right one.
    #[test]
    fn crc32c_matches_the_published_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    #[test]
    fn a_block_has_its_golden_checksum() {
        assert_eq!(block(1, 0, &[0; 4096]), 0xb5f0_80b9);
        assert_eq!(block(7, 1 << 40, &[0xa5; 4096]), 0x3bf4_05de);
        assert_eq!(cache_seed(b"0123456789abcdef"), 0x42d3_119e);
    }

    #[test]
    fn the_same_bytes_elsewhere_have_another_checksum() {
        let bytes = [7; 4096];
        let here = block(3, 100, &bytes);
        assert_ne!(here, block(3, 101, &bytes));
        assert_ne!(here, block(4, 100, &bytes));
    }

    /// The 4 bytes that bring the checksum to zero: CRC32C can be steered, so the mapping to 1 is reachable.
    #[test]
    fn zero_is_mapped_to_one() {
        // A CRC is linear: the last 4 bytes reach every value, so solve bit by bit instead of searching.
        let base = raw(&[0; 4]);
        let columns: Vec<u32> = (0..32).map(|bit| raw(&(1u32 << bit).to_le_bytes()) ^ base).collect();
        let answer = solve(&columns, base);
        assert_eq!(raw(&answer.to_le_bytes()), 0);
        assert_eq!(block(1, 2, &answer.to_le_bytes()), 1);
    }

    fn raw(bytes: &[u8]) -> u32 {
        crc32c_append(crc32c(b"\x01\0\0\0\x02\0\0\0\0\0\0\0"), bytes)
    }

    /// Gaussian elimination over GF(2): which columns sum to `target`.
    fn solve(columns: &[u32], mut target: u32) -> u32 {
        let mut rows: Vec<(u32, u32)> = columns.iter().enumerate().map(|(bit, &value)| (value, 1 << bit)).collect();
        let mut answer = 0;
        for bit in 0..32 {
            let pivot = rows.iter().position(|row| row.0 >> bit & 1 == 1).expect("the columns span everything");
            let (value, from) = rows.remove(pivot);
            for row in rows.iter_mut().filter(|row| row.0 >> bit & 1 == 1) {
                *row = (row.0 ^ value, row.1 ^ from);
            }
            if target >> bit & 1 == 1 {
                target ^= value;
                answer ^= from;
            }
        }
        answer
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_seen(space: u32, number: u64, at in 0usize..4096, bit in 0u8..8, fill: u8) {
            let mut bytes = [fill; 4096];
            let before = block(space, number, &bytes);
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(before, block(space, number, &bytes));
        }
    }
}
