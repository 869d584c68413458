//! The tail of a write-back log: where it begins, in a sector of its own.
//!
//! Why: everything before it is on the back end, and must not be written there again over what followed.
//!
//! How: one sector in two copies; the copy of a sequence is given by its lowest bit, so each write spares the last one.
//! The newer valid copy counts.
//!
//! ```text
//! 0       4     8          16      20     24         32             40     48           56     4096
//! | magic | crc | sequence | space | zero | position | first_record | life | group_life | zero |
//! ```
//!
//! Invariant: what a reader cannot tell from damage is damage: a log whose tail is lost is not to be believed, and not to
//! be formatted either.

use super::SECTOR_BYTES;
use super::checksum;
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};

/// Bytes of both copies.
pub const TAILS_BYTES: usize = 2 * SECTOR_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"FBLT");
const CRC_AT: usize = 4;
const USED_BYTES: usize = 56;

/// Where a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// Raised by one with each write; its lowest bit chooses the copy.
    pub sequence: u64,
    /// Whose log.
    pub space: u32,
    /// Position of the group with its first record.
    pub position: u64,
    /// Its first record.
    pub first_record: u64,
    /// Attaches of the log.
    pub life: u64,
    /// The one in which that group was written, or will be: what lies there of an earlier one is not of the log.
    pub group_life: u64,
}

/// What two copies say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing was ever written there.
    Blank,
    /// The newer one. A copy that is torn is older, or was not answered.
    Tail(LogTail),
    /// Something else, or another volume's.
    Damaged,
}

impl LogTail {
    /// Before anything was ever written.
    pub fn first(space: u32) -> Self {
        Self { sequence: 0, space, position: 0, first_record: 0, life: 0, group_life: 0 }
    }

    /// Where its copy lies, in bytes from the first one's beginning.
    pub fn offset(&self) -> u64 {
        (self.sequence & 1) * SECTOR_BYTES as u64
    }

    /// Writes it into a sector. `seed`: the cache's.
    ///
    /// # Panics
    /// When `bytes` is not a sector.
    pub fn encode(&self, seed: u32, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), SECTOR_BYTES);
        bytes.fill(0);
        put_le_u32(bytes, 0, MAGIC);
        put_le_u64(bytes, 8, self.sequence);
        put_le_u32(bytes, 16, self.space);
        put_le_u64(bytes, 24, self.position);
        put_le_u64(bytes, 32, self.first_record);
        put_le_u64(bytes, 40, self.life);
        put_le_u64(bytes, 48, self.group_life);
        let crc = checksum::sector(seed, bytes, CRC_AT);
        put_le_u32(bytes, CRC_AT, crc);
    }

    fn decode(seed: u32, space: u32, bytes: &[u8]) -> Option<Self> {
        let is_ours = le_u32(bytes, 0) == MAGIC && le_u32(bytes, 16) == space;
        if !is_ours || le_u32(bytes, CRC_AT) != checksum::sector(seed, bytes, CRC_AT) {
            return None;
        }
        if le_u32(bytes, 20) != 0 || bytes[USED_BYTES..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let [sequence, position, first_record, life, group_life] = [8, 24, 32, 40, 48].map(|at| le_u64(bytes, at));
        (group_life <= life).then_some(Self { sequence, space, position, first_record, life, group_life })
    }
}

/// The newer of two copies, [`TAILS_BYTES`] in all.
///
/// # Panics
/// When there are fewer bytes.
pub fn newest(seed: u32, space: u32, bytes: &[u8]) -> Found {
    let copies = [0, 1].map(|nth| &bytes[nth * SECTOR_BYTES..][..SECTOR_BYTES]);
    let of_copy = |nth: usize| {
        let tail = LogTail::decode(seed, space, copies[nth]);
        tail.filter(|tail| tail.offset() == (nth * SECTOR_BYTES) as u64)
    };
    match [of_copy(0), of_copy(1)].into_iter().flatten().max_by_key(|tail| tail.sequence) {
        Some(tail) => Found::Tail(tail),
        None if bytes[..TAILS_BYTES].iter().all(|byte| *byte == 0) => Found::Blank,
        None => Found::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const TAIL: LogTail = LogTail { sequence: 6, space: 3, position: 77, first_record: 12, life: 2, group_life: 1 };

    fn with(tails: &[LogTail]) -> Vec<u8> {
        let mut bytes = vec![0; TAILS_BYTES];
        for tail in tails {
            tail.encode(9, &mut bytes[tail.offset() as usize..][..SECTOR_BYTES]);
        }
        bytes
    }

    #[test]
    fn the_newer_copy_counts_and_a_torn_one_does_not() {
        let newer = LogTail { sequence: 7, position: 99, ..TAIL };
        let mut bytes = with(&[TAIL, newer]);
        assert_eq!(newest(9, 3, &bytes), Found::Tail(newer));
        bytes[SECTOR_BYTES + 30] ^= 1;
        assert_eq!(newest(9, 3, &bytes), Found::Tail(TAIL));
        bytes[30] ^= 1;
        assert_eq!(newest(9, 3, &bytes), Found::Damaged);
        assert_eq!(newest(9, 3, &vec![0; TAILS_BYTES]), Found::Blank);
    }

    #[test]
    fn another_volumes_tail_or_another_caches_is_damage() {
        assert_eq!(newest(9, 4, &with(&[TAIL])), Found::Damaged);
        assert_eq!(newest(8, 3, &with(&[TAIL])), Found::Damaged);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0..SECTOR_BYTES, bit in 0..8u32) {
            let mut bytes = with(&[TAIL]);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(newest(9, 3, &bytes), Found::Damaged);
        }
    }
}
