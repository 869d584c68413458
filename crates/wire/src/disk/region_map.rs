//! The region map of a write-back log: what must be known of it when its disk is lost. It lies in a file beside the configuration,
//! in two copies of whatever length.
//!
//! How: a copy is believed whole or not at all. The copy of a sequence is given by its lowest bit, so each write spares the
//! last one; the newer valid copy counts. Copies lie [`COPY_BYTES_MAX`] apart, whatever the volume's size.
//!
//! ```text
//!   0 magic "FBRM"   16 cache_id [u8; 16]   48 volume_sectors u64   72 tail: position, first_record, life u64 each
//!   4 crc u32        32 life u64            56 words u64            96 name_len u32
//!   8 sequence u64   40 space u32           64 lost_count u64      100 name [u8; 60]
//!                    44 has_tail u32                               160 words u64 each, then lost: first, end, epoch u64 each
//! ```
//!
//! An epoch that nobody knows is all ones.
//!
//! Invariant: what a reader cannot tell from damage is damage. Extents are in order and do not overlap.
//!
//! Limits: volumes of up to 96 TiB, and 131,072 extents that are lost. A rotten newer copy is not told from a torn one: the older
//! counts.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::str;

use super::checksum;
use super::superblock::NAME_BYTES_MAX;
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};

/// Where the second copy lies, and the most bytes of one.
pub const COPY_BYTES_MAX: usize = 16 << 20;
/// The most extents that may be lost.
pub const LOST_MAX: usize = 1 << 17;

const MAGIC: u32 = u32::from_le_bytes(*b"FBRM");
const CRC_AT: usize = 4;
const NAME_AT: usize = 100;
const HEAD_BYTES: usize = 160;
const LOST_BYTES: usize = 24;
const WORDS_MAX: usize = (COPY_BYTES_MAX - HEAD_BYTES - LOST_MAX * LOST_BYTES) / 8;
const EPOCH_UNKNOWN: u64 = u64::MAX;

/// Where a log begins: position, first record, life.
pub type MapTail = [u64; 3];

/// An extent that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its first sector.
    pub first: u64,
    /// The sector behind it.
    pub end: u64,
    /// Boundaries before it, if somebody knew.
    pub epoch: Option<u64>,
}

/// What a copy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionMap {
    /// Raised by one with each write; its lowest bit chooses the copy.
    pub sequence: u64,
    /// Whose log it is: the cache's.
    pub cache_id: [u8; 16],
    /// The volume's number there.
    pub space: u32,
    /// The volume's name.
    pub volume: String,
    /// Its size, in sectors of 512 bytes.
    pub volume_sectors: u64,
    /// A log of an earlier life does not count.
    pub life: u64,
    /// Where the log begins, if its own disk may not know.
    pub tail: Option<MapTail>,
    /// A bit for each MiB of the volume that may have bytes that only the log has.
    pub words: Vec<u64>,
    /// What is lost.
    pub lost: Vec<Lost>,
}

/// What two copies say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing was ever written there.
    Blank,
    /// The newer one.
    Map(RegionMap),
    /// Something else.
    Damaged,
}

impl RegionMap {
    /// Where its copy lies.
    pub fn offset(&self) -> u64 {
        (self.sequence & 1) * COPY_BYTES_MAX as u64
    }

    /// Its bytes, a multiple of 4 KiB.
    ///
    /// # Panics
    /// When the name is longer than [`NAME_BYTES_MAX`], or there is more than a copy holds.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.volume.len() <= NAME_BYTES_MAX && self.words.len() <= WORDS_MAX && self.lost.len() <= LOST_MAX);
        let used = HEAD_BYTES + self.words.len() * 8 + self.lost.len() * LOST_BYTES;
        let mut bytes = vec![0; used.next_multiple_of(super::SECTOR_BYTES)];
        put_le_u32(&mut bytes, 0, MAGIC);
        put_le_u64(&mut bytes, 8, self.sequence);
        bytes[16..32].copy_from_slice(&self.cache_id);
        put_le_u64(&mut bytes, 32, self.life);
        put_le_u32(&mut bytes, 40, self.space);
        put_le_u32(&mut bytes, 44, u32::from(self.tail.is_some()));
        let tail = self.tail.unwrap_or_default();
        let numbers = [self.volume_sectors, self.words.len() as u64, self.lost.len() as u64];
        for (nth, number) in numbers.into_iter().chain(tail).enumerate() {
            put_le_u64(&mut bytes, 48 + nth * 8, number);
        }
        put_le_u32(&mut bytes, 96, self.volume.len() as u32);
        bytes[NAME_AT..NAME_AT + self.volume.len()].copy_from_slice(self.volume.as_bytes());
        let lost = self.lost.iter().flat_map(|it| [it.first, it.end, it.epoch.unwrap_or(EPOCH_UNKNOWN)]);
        for (nth, number) in self.words.iter().copied().chain(lost).enumerate() {
            put_le_u64(&mut bytes, HEAD_BYTES + nth * 8, number);
        }
        let crc = checksum::sector(0, &bytes, CRC_AT);
        put_le_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    /// From a copy's bytes; there may be more behind it.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..copy_bytes(bytes)?)?;
        let volume_sectors = le_u64(bytes, 48);
        let [words, lost] = [56, 64].map(|at| le_u64(bytes, at) as usize);
        let used = HEAD_BYTES + words * 8 + lost * LOST_BYTES;
        let name_bytes = le_u32(bytes, 96) as usize;
        if le_u32(bytes, CRC_AT) != checksum::sector(0, bytes, CRC_AT) {
            return None;
        }
        let is_padded = bytes[NAME_AT + name_bytes..HEAD_BYTES].iter().chain(&bytes[used..]).all(|byte| *byte == 0);
        let tail = [72, 80, 88].map(|at| le_u64(bytes, at));
        let tail = match le_u32(bytes, 44) {
            0 if tail == [0; 3] => None,
            1 => Some(tail),
            _ => return None,
        };
        let number = |nth: usize| le_u64(bytes, HEAD_BYTES + nth * 8);
        let extent = |nth: usize| {
            let [first, end, epoch] = [0, 1, 2].map(|field| number(words + nth * 3 + field));
            Lost { first, end, epoch: (epoch != EPOCH_UNKNOWN).then_some(epoch) }
        };
        let extents: Vec<Lost> = (0..lost).map(extent).collect();
        let is_whole = extents.iter().all(|it| it.first < it.end && it.end <= volume_sectors);
        let is_ordered = extents.windows(2).all(|two| two[0].end <= two[1].first);
        if !is_padded || !is_whole || !is_ordered {
            return None;
        }
        let mut cache_id = [0; 16];
        cache_id.copy_from_slice(&bytes[16..32]);
        Some(Self {
            sequence: le_u64(bytes, 8),
            cache_id,
            space: le_u32(bytes, 40),
            volume: str::from_utf8(&bytes[NAME_AT..NAME_AT + name_bytes]).ok()?.to_string(),
            volume_sectors,
            life: le_u64(bytes, 32),
            tail,
            words: (0..words).map(number).collect(),
            lost: extents,
        })
    }
}

/// How long a copy is that begins with these bytes; `None`: none does.
pub fn copy_bytes(head: &[u8]) -> Option<usize> {
    let head = head.get(..HEAD_BYTES)?;
    let [words, lost] = [56, 64].map(|at| usize::try_from(le_u64(head, at)).ok());
    let (words, lost) = (words?, lost?);
    let is_sound = words <= WORDS_MAX && lost <= LOST_MAX && le_u32(head, 96) as usize <= NAME_BYTES_MAX;
    let used = (le_u32(head, 0) == MAGIC && is_sound).then(|| HEAD_BYTES + words * 8 + lost * LOST_BYTES);
    used.map(|used| used.next_multiple_of(super::SECTOR_BYTES))
}

/// The newer of two copies; each is what lies there, empty if nothing does.
pub fn newest(copies: [&[u8]; 2]) -> Found {
    let of_copy = |nth: usize| {
        let map = RegionMap::decode(copies[nth]);
        map.filter(|map| map.sequence & 1 == nth as u64)
    };
    match [of_copy(0), of_copy(1)].into_iter().flatten().max_by_key(|map| map.sequence) {
        Some(map) => Found::Map(map),
        None if copies.iter().all(|copy| copy.iter().all(|byte| *byte == 0)) => Found::Blank,
        None => Found::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(sequence: u64) -> RegionMap {
        RegionMap {
            sequence,
            cache_id: [7; 16],
            space: 3,
            volume: "data".to_string(),
            volume_sectors: 1 << 20,
            life: 5,
            tail: Some([9, 8, 4]),
            words: (0..8).collect(),
            lost: vec![Lost { first: 3, end: 9, epoch: Some(6) }, Lost { first: 2048, end: 4096, epoch: None }],
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        for map in [map(6), RegionMap { tail: None, lost: Vec::new(), words: Vec::new(), ..map(8) }] {
            assert_eq!(newest([&map.encode(), &[]]), Found::Map(map.clone()));
        }
    }

    #[test]
    fn the_newer_copy_counts_until_it_is_torn_at_any_byte() {
        let (old, new) = (map(6), RegionMap { words: (1..9).collect(), ..map(7) });
        let (before, bytes) = (old.encode(), new.encode());
        assert_eq!(newest([&before, &bytes]), Found::Map(new));
        let used = HEAD_BYTES + 8 * 8 + 2 * LOST_BYTES;
        for torn in 0..used {
            let mut copy = bytes.clone();
            copy[torn..].fill(0xA5);
            assert_eq!(newest([&before, &copy]), Found::Map(old.clone()), "torn at {torn}");
            assert_eq!(newest([&before, &bytes[..torn]]), Found::Map(old.clone()), "cut at {torn}");
            if torn > 0 {
                assert_eq!(newest([&[], &bytes[..torn]]), Found::Damaged);
            }
        }
        assert_eq!(newest([&bytes, &before]), Found::Damaged, "each in the other's place");
        assert_eq!(newest([&[0; 4096], &[]]), Found::Blank);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0..4096usize, bit in 0..8u32) {
            let mut bytes = map(6).encode();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(newest([&bytes, &[]]), Found::Damaged);
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..400), lost in 0..9u64, words in 0..9u64) {
            let mut strange = map(6).encode();
            let cut = bytes.len().min(strange.len());
            strange[48..48 + cut].copy_from_slice(&bytes[..cut]);
            put_le_u64(&mut strange, 56, words);
            put_le_u64(&mut strange, 64, lost);
            let crc = checksum::sector(0, &strange, CRC_AT);
            put_le_u32(&mut strange, CRC_AT, crc);
            if let Found::Map(map) = newest([&strange, &[]]) {
                prop_assert_eq!(&map.encode()[..], &strange[..map.encode().len()]);
            }
        }
    }
}
