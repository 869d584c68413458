//! The label of a mirror of write-back logs: whose logs the device has, and where.
//!
//! Why: after the loss of the cache disk it is all there is to tell which cache the logs are of, what their checksums start
//! from, and which volume's is which.
//!
//! How: one sector in two equal copies, written together before the mirror counts; either will do. Whether the mirror counts is
//! not said here, but in the state directory, by its `side`: a label cannot know that the other side went on without it.
//!
//! ```text
//!   0  magic "FBMIRROR"         16  cache_id [u8; 16]     44  zero
//!   8  crc u32                  32  side u64              64  30 logs of 88 bytes:
//!  12  log_count u32            40  next_space u32
//!
//!   0  space u32                 5  name [u8; 56]         64  offset u64       80  backend_identity u64
//!   4  name_len u8              61  zero                  72  bytes u64
//! ```
//!
//! Invariants, checked at decode: names are 1 to 56 bytes; spaces are not 0, differ, and are below `next_space`; logs are of
//! whole sectors, behind the label, and apart.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::str;

use super::signature::{self, Content};
use super::superblock::NAME_BYTES_MAX;
use super::{MIB, SECTOR_BYTES, VOLUMES_MAX, checksum};
use crate::bytes::{le_u32, le_u64, put_le_u32, put_le_u64};

/// Bytes of both copies, at the device's beginning.
pub const LABEL_BYTES: usize = 2 * SECTOR_BYTES;
/// Where the first log may begin.
pub const LOGS_OFFSET: u64 = MIB;

const MAGIC: &[u8; 8] = b"FBMIRROR";
const CRC_AT: usize = 8;
const USED_BYTES: usize = 44;
const LOGS_AT: usize = 64;
const LOG_BYTES: usize = 88;

/// Where the copy of a volume's log lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredLog {
    /// The volume's name: 1 to 56 bytes.
    pub volume: String,
    /// Its space in the cache.
    pub space: u32,
    /// A hash of what its back end is, as in the superblock: to no other is this log to be written back.
    pub backend_identity: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, a multiple of 4 KiB.
    pub bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorLabel {
    /// The cache whose logs these are; their checksums start from it.
    pub cache_id: [u8; 16],
    /// Names what the mirror holds: another number each time it is filled. Not 0.
    pub side: u64,
    /// The space the cache's next new volume gets.
    pub next_space: u32,
    /// The logs, at most 30.
    pub logs: Vec<MirroredLog>,
}

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Logs of a cache.
    Label(MirrorLabel),
    /// Nothing.
    Blank,
    /// Neither copy of its label is to be believed.
    Damaged,
    /// Something else, named.
    Foreign(&'static str),
}

impl MirrorLabel {
    /// A label for logs of these volumes, spaces, back ends and bytes, one behind the other.
    pub fn new<'a>(
        cache_id: [u8; 16],
        side: u64,
        next_space: u32,
        logs: impl IntoIterator<Item = (&'a str, u32, u64, u64)>,
    ) -> Self {
        let mut end = LOGS_OFFSET;
        let place = |(volume, space, backend_identity, bytes): (&str, u32, u64, u64)| {
            let offset = end;
            end += bytes;
            MirroredLog { volume: volume.to_string(), space, backend_identity, offset, bytes }
        };
        Self { cache_id, side, next_space, logs: logs.into_iter().map(place).collect() }
    }

    /// Bytes that a device needs for logs of so many.
    pub fn device_bytes(logs_bytes: u64) -> u64 {
        LOGS_OFFSET.saturating_add(logs_bytes)
    }

    /// The log of a volume.
    pub fn log(&self, volume: &str) -> Option<&MirroredLog> {
        self.logs.iter().find(|log| log.volume == volume)
    }

    fn is_sound(&self) -> bool {
        let sector = SECTOR_BYTES as u64;
        let sound = |(nth, log): (usize, &MirroredLog)| {
            let Some(end) = log.offset.checked_add(log.bytes) else { return false };
            let mut others = self.logs.iter().enumerate().filter(|(other, _)| *other != nth).map(|(_, other)| other);
            let apart = |other: &MirroredLog| {
                let is_behind = other.offset >= end || other.offset.saturating_add(other.bytes) <= log.offset;
                is_behind && other.space != log.space && other.volume != log.volume
            };
            (1..=NAME_BYTES_MAX).contains(&log.volume.len())
                && log.space != 0
                && log.space < self.next_space
                && log.bytes > 0
                && log.bytes.is_multiple_of(sector)
                && log.offset.is_multiple_of(sector)
                && log.offset >= LOGS_OFFSET
                && others.all(apart)
        };
        self.side != 0 && self.logs.len() <= VOLUMES_MAX && self.logs.iter().enumerate().all(sound)
    }

    /// Both copies.
    ///
    /// # Panics
    /// When it breaks an invariant of this module.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_sound(), "an unsound label: {self:?}");
        let mut bytes = vec![0; LABEL_BYTES];
        let (first, second) = bytes.split_at_mut(SECTOR_BYTES);
        first[..8].copy_from_slice(MAGIC);
        put_le_u32(first, 12, self.logs.len() as u32);
        first[16..32].copy_from_slice(&self.cache_id);
        put_le_u64(first, 32, self.side);
        put_le_u32(first, 40, self.next_space);
        for (log, bytes) in self.logs.iter().zip(first[LOGS_AT..].chunks_exact_mut(LOG_BYTES)) {
            put_le_u32(bytes, 0, log.space);
            bytes[4] = log.volume.len() as u8;
            bytes[5..5 + log.volume.len()].copy_from_slice(log.volume.as_bytes());
            put_le_u64(bytes, 64, log.offset);
            put_le_u64(bytes, 72, log.bytes);
            put_le_u64(bytes, 80, log.backend_identity);
        }
        let crc = checksum::sector(0, first, CRC_AT);
        put_le_u32(first, CRC_AT, crc);
        second.copy_from_slice(first);
        bytes
    }

    fn decode(sector: &[u8]) -> Option<Self> {
        let count = le_u32(sector, 12) as usize;
        if le_u32(sector, CRC_AT) != checksum::sector(0, sector, CRC_AT) || count > VOLUMES_MAX {
            return None;
        }
        let used = LOGS_AT + count * LOG_BYTES;
        if sector[USED_BYTES..LOGS_AT].iter().chain(&sector[used..]).any(|byte| *byte != 0) {
            return None;
        }
        let mut cache_id = [0; 16];
        cache_id.copy_from_slice(&sector[16..32]);
        let logs = sector[LOGS_AT..used].chunks_exact(LOG_BYTES).map(decode_log).collect::<Option<_>>()?;
        let label = Self { cache_id, side: le_u64(sector, 32), next_space: le_u32(sector, 40), logs };
        label.is_sound().then_some(label)
    }
}

fn decode_log(bytes: &[u8]) -> Option<MirroredLog> {
    let (name, rest) = bytes[5..64].split_at_checked(usize::from(bytes[4]))?;
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    Some(MirroredLog {
        volume: str::from_utf8(name).ok()?.to_string(),
        space: le_u32(bytes, 0),
        backend_identity: le_u64(bytes, 80),
        offset: le_u64(bytes, 64),
        bytes: le_u64(bytes, 72),
    })
}

/// Tells what a device holds, from its first [`signature::PROBE_BYTES`].
///
/// # Panics
/// When `head` is shorter than a label.
pub fn probe(head: &[u8]) -> Found {
    let copies = [0, SECTOR_BYTES].map(|at| &head[at..at + SECTOR_BYTES]);
    let ours = || copies.iter().filter(|copy| copy.starts_with(MAGIC));
    match (ours().find_map(|copy| MirrorLabel::decode(copy)), ours().next(), signature::identify(head)) {
        (Some(label), ..) => Found::Label(label),
        (None, Some(_), _) => Found::Damaged,
        (_, _, Content::Blank) => Found::Blank,
        (_, _, Content::Known(name)) => Found::Foreign(name),
        (_, _, Content::Unknown) if head.starts_with(b"FOREBAY\0") => Found::Foreign("a cache disk of Forebay"),
        (_, _, Content::Unknown) => Found::Foreign("data of an unknown kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> MirrorLabel {
        let logs = [("a", 3, 11, 4 * MIB), ("a volume of a longer name", 1, 12, 4096), ("c", 7, u64::MAX, MIB)];
        MirrorLabel::new([9; 16], 77, 8, logs)
    }

    fn head(label: &MirrorLabel) -> Vec<u8> {
        let mut head = label.encode();
        head.resize(signature::PROBE_BYTES, 0);
        head
    }

    #[test]
    fn logs_lie_one_behind_the_other_behind_the_label() {
        let label = label();
        let places: Vec<_> = label.logs.iter().map(|log| (log.offset, log.bytes)).collect();
        assert_eq!(places, [(MIB, 4 * MIB), (5 * MIB, 4096), (5 * MIB + 4096, MIB)]);
        assert_eq!(MirrorLabel::device_bytes(5 * MIB + 4096), 6 * MIB + 4096);
        assert_eq!((label.log("c").unwrap().space, label.log("d")), (7, None));
    }

    #[test]
    fn either_copy_will_do_and_neither_is_damage() {
        let label = label();
        for torn in [&[0][..], &[SECTOR_BYTES], &[]] {
            let mut head = head(&label);
            torn.iter().for_each(|at| head[at + 40] ^= 1);
            assert_eq!(probe(&head), Found::Label(label.clone()));
        }
        let mut head = head(&label);
        [0, SECTOR_BYTES].iter().for_each(|at| head[at + 40] ^= 1);
        assert_eq!(probe(&head), Found::Damaged);
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let mut head = vec![0; signature::PROBE_BYTES];
        assert_eq!(probe(&head), Found::Blank);
        head[..4].copy_from_slice(b"XFSB");
        assert_eq!(probe(&head), Found::Foreign("an XFS file system"));
        head[..8].copy_from_slice(b"FOREBAY\0");
        assert_eq!(probe(&head), Found::Foreign("a cache disk of Forebay"));
    }

    #[test]
    fn a_label_of_full_size_fits() {
        let names: Vec<String> = (10..40).map(|nth| alloc::format!("{nth}{}", "x".repeat(54))).collect();
        let logs = (1..).zip(&names).map(|(space, name)| (name.as_str(), space, 5, MIB));
        let label = MirrorLabel::new([1; 16], 1, 31, logs);
        assert_eq!((label.logs.len(), probe(&head(&label))), (30, Found::Label(label)));
    }

    #[test]
    #[should_panic(expected = "an unsound label")]
    fn logs_that_overlap_are_a_bug() {
        let mut label = label();
        label.logs[2].offset -= 4096;
        label.encode();
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 8..SECTOR_BYTES, bit in 0..8u32) {
            let mut head = head(&label());
            [0, SECTOR_BYTES].iter().for_each(|copy| head[copy + at] ^= 1 << bit);
            prop_assert_eq!(probe(&head), Found::Damaged);
        }
    }
}
