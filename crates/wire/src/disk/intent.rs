//! The write-intent map of a volume: which of its regions may differ between cache and back end.
//!
//! Why: after a crash the cache cannot know whether a write in flight reached the back end. With one bit for each of
//! at most 4,096 regions, durable before the first write to a region leaves for the back end, a crash costs the pages
//! of the regions in flight and not the whole cache. The idea is that of md's write-intent bitmap and DRBD's activity
//! log.
//!
//! How: a map is one sector in two copies; the copy of a sequence is given by its lowest bit, so each write spares the
//! last map written. The newer valid copy counts.
//!
//! ```text
//! 0     4   8        16    20           24            536      4096
//! | magic | crc | sequence | space | region_count | bitmap | zero |
//! ```
//! Region r is bit r % 8 of byte r / 8.
//!
//! Invariants: bits from `region_count` on are zero. A reader that finds no valid copy takes every region as in
//! flight. [`Newest::unreadable`] tells of a copy that is there but damaged: a write torn by the crash (then the other
//! copy is right, since nothing was sent before the torn write was durable), or rot of the newest (then it is not).
//! A reader that cannot tell which should take every region as in flight.

use super::checksum;
use super::{MIB, SECTOR_BYTES};
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};

/// The most regions of a volume.
pub const REGIONS_MAX: u32 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"FBIM");
const CRC_AT: usize = 4;
const BITMAP_AT: usize = 24;
const WORDS: usize = REGIONS_MAX as usize / 64;

/// The size of a region of a volume: a 4,096th of it, at least 1 MiB, a multiple of 1 MiB.
pub fn region_bytes(volume_bytes: u64) -> u64 {
    volume_bytes.div_ceil(u64::from(REGIONS_MAX)).next_multiple_of(MIB).max(MIB)
}

/// How many regions a volume has; `None` when they are more than [`REGIONS_MAX`] or of no size.
pub fn region_count(volume_bytes: u64, region_bytes: u64) -> Option<u32> {
    let count = volume_bytes.checked_add(region_bytes.checked_sub(1)?)? / region_bytes;
    u32::try_from(count).ok().filter(|count| *count <= REGIONS_MAX)
}

/// Which regions of one volume may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentMap {
    /// Raised by one with each write; its lowest bit chooses the copy.
    pub sequence: u64,
    /// The volume's space.
    pub space: u32,
    region_count: u32,
    words: [u64; WORDS],
}

impl IntentMap {
    /// An empty map of sequence 0.
    ///
    /// # Panics
    /// When there are more than [`REGIONS_MAX`] regions.
    pub fn new(space: u32, region_count: u32) -> Self {
        assert!(region_count <= REGIONS_MAX, "{region_count} regions");
        Self { sequence: 0, space, region_count, words: [0; WORDS] }
    }

    /// How many regions there are.
    pub fn region_count(&self) -> u32 {
        self.region_count
    }

    /// Whether `region` may be in flight.
    pub fn is_set(&self, region: u32) -> bool {
        assert!(region < self.region_count, "region {region} of {}", self.region_count);
        self.words[region as usize / 64] >> (region % 64) & 1 == 1
    }

    /// Marks `region` as in flight.
    pub fn set(&mut self, region: u32) {
        assert!(region < self.region_count, "region {region} of {}", self.region_count);
        self.words[region as usize / 64] |= 1 << (region % 64);
    }

    /// Marks `region` as idle.
    pub fn clear(&mut self, region: u32) {
        assert!(region < self.region_count, "region {region} of {}", self.region_count);
        self.words[region as usize / 64] &= !(1 << (region % 64));
    }

    /// How many regions are in flight.
    pub fn count_set(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The bits, 64 regions a word, from region 0 on; bits beyond the last region are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Replaces all bits by those of `words`, as [`Self::words`] gives them.
    ///
    /// # Panics
    /// When a bit beyond the last region is set, or there are more than 64 words.
    pub fn set_words(&mut self, words: &[u64]) {
        self.words = [0; WORDS];
        self.words[..words.len()].copy_from_slice(words);
        assert!(no_bit_from(&self.words, self.region_count), "a bit beyond region {}", self.region_count);
    }

    /// Writes the map into a sector, for [`super::layout::Layout::intent_offset`] of its sequence.
    ///
    /// # Panics
    /// When `sector` is not 4 KiB.
    pub fn encode(&self, cache_seed: u32, sector: &mut [u8]) {
        assert_eq!(sector.len(), SECTOR_BYTES);
        sector.fill(0);
        put_le_u32(sector, 0, MAGIC);
        put_le_u64(sector, 8, self.sequence);
        put_le_u32(sector, 16, self.space);
        put_le_u32(sector, 20, self.region_count);
        for (word, at) in self.words.iter().zip((BITMAP_AT..).step_by(8)) {
            put_le_u64(sector, at, *word);
        }
        let crc = checksum::sector(cache_seed, sector, CRC_AT);
        put_le_u32(sector, CRC_AT, crc);
    }
}

fn no_bit_from(words: &[u64; WORDS], region_count: u32) -> bool {
    let (full, rest) = (region_count as usize / 64, region_count % 64);
    words.iter().enumerate().all(|(at, word)| match at {
        _ if at < full => true,
        _ if at == full => word >> rest == 0,
        _ => *word == 0,
    })
}

/// What one copy of a map holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "two are decoded for each volume at attach; a box buys nothing")]
pub enum Copy {
    /// A map of this cache. Whose volume's it is, the caller compares.
    Valid(IntentMap),
    /// Never written.
    Blank,
    /// Anything else, a map of a former cache on the device included.
    Damaged,
}

/// Decodes one copy; `copy` is 0 or 1, its place.
///
/// # Panics
/// When `sector` is not 4 KiB.
pub fn decode(cache_seed: u32, copy: u64, sector: &[u8]) -> Copy {
    assert_eq!(sector.len(), SECTOR_BYTES);
    if le_u32(sector, 0) != MAGIC {
        return if sector.iter().all(|byte| *byte == 0) { Copy::Blank } else { Copy::Damaged };
    }
    let mut words = [0; WORDS];
    for (word, at) in words.iter_mut().zip((BITMAP_AT..).step_by(8)) {
        *word = le_u64(sector, at);
    }
    let (sequence, space, region_count) = (le_u64(sector, 8), le_u32(sector, 16), le_u32(sector, 20));
    let sound = le_u32(sector, CRC_AT) == checksum::sector(cache_seed, sector, CRC_AT)
        && sequence & 1 == copy
        && region_count <= REGIONS_MAX
        && no_bit_from(&words, region_count);
    if sound { Copy::Valid(IntentMap { sequence, space, region_count, words }) } else { Copy::Damaged }
}

/// The newer of two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The map that counts; `None`: every region counts as in flight.
    pub map: Option<IntentMap>,
    /// How many copies are neither blank nor a map of this volume; see the module's invariants.
    pub unreadable: u32,
}

/// Chooses between the two copies of the map of `space`, given in the order of their places.
pub fn newest(cache_seed: u32, space: u32, copies: [&[u8]; 2]) -> Newest {
    let mut newest = Newest { map: None, unreadable: 0 };
    for (place, sector) in (0..).zip(copies) {
        match decode(cache_seed, place, sector) {
            Copy::Valid(map) if map.space == space => {
                if newest.map.is_none_or(|other| other.sequence < map.sequence) {
                    newest.map = Some(map);
                }
            }
            Copy::Blank => {}
            Copy::Valid(_) | Copy::Damaged => newest.unreadable += 1,
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::first_difference;
    use proptest::prelude::*;

    const SEED: u32 = 77;

    fn encoded(map: &IntentMap) -> [u8; SECTOR_BYTES] {
        let mut sector = [0xff; SECTOR_BYTES];
        map.encode(SEED, &mut sector);
        sector
    }

    fn example() -> IntentMap {
        let mut map = IntentMap::new(5, 100);
        map.sequence = 0x0102_0304_0506_0708;
        for region in [0, 9, 99] {
            map.set(region);
        }
        map
    }

    #[test]
    fn a_map_has_its_golden_bytes() {
        let sector = encoded(&example());
        let mut golden = [0; SECTOR_BYTES];
        golden[..8].copy_from_slice(b"FBIM\x00\x2a\xbf\x37");
        golden[8..24].copy_from_slice(b"\x08\x07\x06\x05\x04\x03\x02\x01\x05\0\0\0\x64\0\0\0");
        golden[24] = 1;
        golden[25] = 2;
        golden[24 + 12] = 8;
        assert_eq!(first_difference(&sector, &golden), None);
    }

    #[test]
    fn regions_are_a_4096th_of_the_volume_and_at_least_a_mib() {
        for (volume_bytes, bytes, count) in [
            (0, MIB, 0),
            (1, MIB, 1),
            (4 << 30, MIB, 4096),
            ((4 << 30) + 1, 2 * MIB, 2049),
            (1 << 40, 256 * MIB, 4096),
            ((1 << 40) - 1, 256 * MIB, 4096),
        ] {
            assert_eq!(region_bytes(volume_bytes), bytes, "{volume_bytes}");
            assert_eq!(region_count(volume_bytes, bytes), Some(count), "{volume_bytes}");
        }
        assert_eq!(region_count((4 << 30) + 1, MIB), None);
        assert_eq!(region_count(1, 0), None);
        assert_eq!(region_count(u64::MAX, MIB), None);
    }

    #[test]
    fn the_newer_valid_copy_counts() {
        let mut even = example();
        let mut odd = example();
        (odd.sequence, odd.space) = (even.sequence + 1, 5);
        odd.clear(0);
        let (a, b) = (encoded(&even), encoded(&odd));
        assert_eq!(newest(SEED, 5, [&a, &b]), Newest { map: Some(odd), unreadable: 0 });
        even.sequence += 2;
        let a = encoded(&even);
        assert_eq!(newest(SEED, 5, [&a, &b]), Newest { map: Some(even), unreadable: 0 });
        let mut torn = a;
        torn[512..].fill(0xaa);
        assert_eq!(newest(SEED, 5, [&torn, &b]), Newest { map: Some(odd), unreadable: 1 });
        assert_eq!(newest(SEED, 6, [&a, &b]), Newest { map: None, unreadable: 2 }, "another volume's");
        assert_eq!(newest(SEED + 1, 5, [&a, &b]), Newest { map: None, unreadable: 2 }, "a former cache's");
        assert_eq!(newest(SEED, 5, [&b, &a]), Newest { map: None, unreadable: 2 }, "in each other's place");
        let blank = [0; SECTOR_BYTES];
        assert_eq!(newest(SEED, 5, [&blank, &blank]), Newest { map: None, unreadable: 0 });
    }

    #[test]
    fn a_bit_beyond_the_last_region_is_damage() {
        for (region_count, byte) in [(100u32, 24 + 13), (0, 24), (64, 24 + 8), (4095, 24 + 511)] {
            let mut sector = encoded(&IntentMap::new(5, region_count));
            sector[byte] = 0x80;
            let crc = checksum::sector(SEED, &sector, CRC_AT);
            put_le_u32(&mut sector, CRC_AT, crc);
            assert_eq!(decode(SEED, 0, &sector), Copy::Damaged, "{region_count} regions");
        }
    }

    proptest! {
        #[test]
        fn maps_survive_the_disk(sequence: u64, space: u32, region_count in 1u32..=4096, picks in proptest::collection::vec(0u32..4096, 0..50)) {
            let mut map = IntentMap::new(space, region_count);
            map.sequence = sequence;
            let picks: alloc::collections::BTreeSet<u32> = picks.iter().map(|pick| pick % region_count).collect();
            picks.iter().for_each(|region| map.set(*region));
            prop_assert_eq!(decode(SEED, sequence & 1, &encoded(&map)), Copy::Valid(map));
            prop_assert_eq!(map.count_set() as usize, picks.len());
            let mut copy = IntentMap { words: [0; WORDS], ..map };
            copy.set_words(map.words());
            prop_assert_eq!(copy, map);
            picks.iter().for_each(|region| map.clear(*region));
            prop_assert_eq!(map.count_set(), 0);
        }

        #[test]
        fn a_flipped_bit_is_seen(at in 0usize..SECTOR_BYTES, bit in 0u8..8) {
            let mut sector = encoded(&example());
            sector[at] ^= 1 << bit;
            prop_assert_eq!(decode(SEED, 0, &sector), Copy::Damaged);
        }
    }
}
