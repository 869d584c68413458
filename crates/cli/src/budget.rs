//! Decides: where the memory goes. It is a hard cap, so the sum is made before anything is allocated, and `check`
//! prints it.
//!
//! Memory, in the order in which it is taken:
//! 1. what the program is ([`PROGRAM_BYTES`]), buffers of connections and requests, of the scan of the slot table;
//! 2. the index: at most 32 bytes for each page of either tier (keys, buckets, links, valid bits, ghosts), and 4 bytes
//!    of checksum for each 4 KiB of the disk tier: 96 bytes for a page of 64 KiB, 0.15 %;
//! 3. frames with what is left: those in transit first, the rest keep pages.
//!
//! Limit: a memory back end (tests, demo) is outside of the budget; it stands for a remote store.

use forebay_engine::devices::logged::LoggedDevice;
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::layout::Layout;
use serde::Serialize;

/// Bytes of index for a page, at most.
pub const INDEX_BYTES_PER_PAGE: u64 = 32;
/// Bytes of checksum for a block of 4 KiB.
pub const CHECKSUM_BYTES_PER_BLOCK: u64 = 4;
/// A block.
const BLOCK_BYTES: u64 = forebay_core::BLOCK_BYTES as u64;
/// Code, stacks, rings, log and admin endpoint.
pub const PROGRAM_BYTES: u64 = 16 << 20;
/// A connection: its parser, its queues, its buffer for headers.
pub const CLIENT_BYTES: u64 = forebay_nbd::FrontConfig::CLIENT_BYTES_MAX;
/// A request: its parts, its locks, its operations.
pub const REQUEST_BYTES: u64 = 1 << 10;
/// Buffers of an NBD back end's connections, and slack in its copies.
pub const NBD_BUFFER_BYTES: u64 = 3 << 20;
/// Buffers of the scan and of the sweep of the slot table.
pub const TABLE_BUFFER_BYTES: u64 = 2 << 20;
/// A connection of the S3 gateway, while it waits or is slow: its task, its buffer for heads, and some of what it is sent.
pub const S3_CONNECTION_BYTES: u64 = 24 << 10;
/// Frames that the S3 gateway's requests may touch at one time, if the memory has them to spare.
pub const S3_FRAMES_MAX: u64 = 1024;
/// What is known of a version of an object: its name, its headers, and what leads to it.
pub const VERSION_BYTES: u64 = 2 << 10;
/// The longest request of two clients must find frames at one time, or neither could go on.
pub const TRANSIT_FRAMES_MIN: u64 = 2 * forebay_core::REQUEST_PAGES_MAX as u64;
/// A memory tier below this keeps nothing worth its index.
pub const KEPT_FRAMES_MIN: u64 = 16;

/// What is asked of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// All memory.
    pub memory_bytes: u64,
    /// Bytes of a page, a power of two.
    pub page_bytes: u64,
    /// Connections at one time.
    pub clients_max: u64,
    /// Requests in flight.
    pub requests_max: u64,
    /// The cache disk's size, if there is one.
    pub disk_bytes: Option<u64>,
    /// NBD back ends.
    pub nbd_volumes: u64,
    /// Write-back logs.
    pub logs: Logs,
    /// Connections to the S3 gateway; 0: there is none.
    pub s3_connections: u64,
}

/// Write-back logs, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// How many.
    pub count: u64,
    /// Bytes on the cache disk.
    pub bytes: u64,
    /// What knowing their records takes.
    pub index_bytes: u64,
}

impl Logs {
    /// Logs of these sizes; a size of 0 is none.
    #[must_use]
    pub fn of(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.filter(|bytes| *bytes > 0).fold(Self::default(), |all, bytes| Self {
            count: all.count + 1,
            bytes: all.bytes + bytes,
            index_bytes: all.index_bytes + LoggedDevice::memory_bytes(bytes),
        })
    }

    /// Bytes of frames that their buffers take.
    fn frames_bytes(self, page_bytes: u64) -> u64 {
        self.count * u64::from(LoggedDevice::frames(page_bytes as u32)) * page_bytes
    }
}

/// Bytes of unflushed writes that an NBD back end may hold copies of, when so many share the memory: a thirty-second of it.
#[must_use]
pub fn held_bytes(memory_bytes: u64, nbd_volumes: u64) -> u64 {
    (memory_bytes / 32 / nbd_volumes.max(1)).clamp(1 << 20, 32 << 20)
}

/// Versions of objects that a gateway knows at one time: a thirty-second of the memory.
#[must_use]
pub fn versions_max(memory_bytes: u64) -> u64 {
    (memory_bytes / 32 / VERSION_BYTES).max(256)
}

/// Copies of small objects: a thirty-second of the memory.
#[must_use]
pub fn small_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 32).min(64 << 20)
}

fn s3_bytes(memory_bytes: u64, s3_connections: u64) -> u64 {
    match s3_connections {
        0 => 0,
        count => count * S3_CONNECTION_BYTES + versions_max(memory_bytes) * VERSION_BYTES + small_bytes(memory_bytes),
    }
}

/// How many writes that may be: of 8 KiB each.
#[must_use]
pub fn held_count(held_bytes: u64) -> u32 {
    (held_bytes / 8192) as u32
}

/// What an NBD back end takes: the copies, each rounded up to a block, and what its connections receive into.
fn nbd_bytes(memory_bytes: u64, nbd_volumes: u64) -> u64 {
    let held = held_bytes(memory_bytes, nbd_volumes);
    nbd_volumes * (held + u64::from(held_count(held)) * BLOCK_BYTES + NBD_BUFFER_BYTES)
}

/// The memory does not do for this demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// What would do.
    pub minimum_bytes: u64,
    /// The part of it that is no frame.
    pub fixed_bytes: u64,
}

/// How the memory is divided. The parts sum to at most `memory_bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// All memory.
    pub memory_bytes: u64,
    /// See [`PROGRAM_BYTES`].
    pub program_bytes: u64,
    /// Buffers of connections, of requests, of the slot table.
    pub buffer_bytes: u64,
    /// Index of both tiers.
    pub index_bytes: u64,
    /// Checksums of the disk tier.
    pub checksum_bytes: u64,
    /// Records and buffers of write-back logs.
    pub log_bytes: u64,
    /// Bytes of a frame.
    pub page_bytes: u64,
    /// Frames that hold what is under way.
    pub transit_frames: u64,
    /// Those of them that are for the S3 gateway.
    pub s3_frames: u64,
    /// Frames that keep pages: the memory tier.
    pub kept_frames: u64,
    /// How the cache disk is divided, if there is one.
    pub disk: Option<DiskLayout>,
}

impl Budget {
    /// Divides the memory.
    ///
    /// # Errors
    /// When it is too small, or the disk has no room for a page (then the minimum is that of a memory-only cache).
    pub fn of(demand: &Demand) -> Result<Self, TooSmall> {
        let logs = demand.logs;
        let disk = demand.disk_bytes.and_then(|bytes| DiskLayout::of(bytes, demand.page_bytes, logs.bytes).ok());
        let slots = disk.as_ref().map_or(0, |disk| disk.slots);
        let table_bytes = if disk.is_some() { TABLE_BUFFER_BYTES } else { 0 };
        let growing =
            |memory_bytes| nbd_bytes(memory_bytes, demand.nbd_volumes) + s3_bytes(memory_bytes, demand.s3_connections);
        let growing_bytes = growing(demand.memory_bytes);
        let buffer_bytes =
            demand.clients_max * CLIENT_BYTES + demand.requests_max * REQUEST_BYTES + table_bytes + growing_bytes;
        let checksum_bytes = slots * (demand.page_bytes / BLOCK_BYTES) * CHECKSUM_BYTES_PER_BLOCK;
        let log_bytes = logs.index_bytes + logs.frames_bytes(demand.page_bytes);
        let fixed_bytes = PROGRAM_BYTES + buffer_bytes + checksum_bytes + slots * INDEX_BYTES_PER_PAGE + log_bytes;
        let frame_bytes = demand.page_bytes + INDEX_BYTES_PER_PAGE;
        let frames = demand.memory_bytes.saturating_sub(fixed_bytes) / frame_bytes;
        let frames = frames.min(u64::from(u32::MAX) - 2);
        let transit_min = TRANSIT_FRAMES_MIN * if demand.s3_connections > 0 { 2 } else { 1 };
        if frames < transit_min + KEPT_FRAMES_MIN {
            let frames_bytes = (transit_min + KEPT_FRAMES_MIN) * frame_bytes;
            // What NBD back ends may hold grows with the memory, a thirty-second of it, and by half for rounding; so does what is
            // known of objects.
            let mut minimum_bytes = fixed_bytes + frames_bytes;
            for _ in 0..64 {
                minimum_bytes = fixed_bytes - growing_bytes + growing(minimum_bytes) + frames_bytes;
            }
            return Err(TooSmall { minimum_bytes, fixed_bytes: minimum_bytes - frames_bytes });
        }
        // A request touches a page or two as a rule; a quarter of the memory is the most that waiting may cost.
        let s3_frames_max = if demand.s3_connections > 0 { S3_FRAMES_MAX } else { 0 };
        let transit_frames = (frames / 4).min(demand.requests_max + s3_frames_max).max(transit_min);
        let s3_frames = (transit_frames / 2).min(s3_frames_max);
        Ok(Self {
            memory_bytes: demand.memory_bytes,
            program_bytes: PROGRAM_BYTES,
            buffer_bytes,
            index_bytes: (slots + frames) * INDEX_BYTES_PER_PAGE,
            checksum_bytes,
            log_bytes,
            page_bytes: demand.page_bytes,
            transit_frames,
            s3_frames,
            kept_frames: frames - transit_frames,
            disk,
        })
    }

    /// The parts with their names, to be printed; they sum to at most `memory_bytes`.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("program", self.program_bytes),
            ("buffers", self.buffer_bytes),
            ("index", self.index_bytes),
            ("checksums", self.checksum_bytes),
            ("write-back logs", self.log_bytes),
            ("frames in transit", self.transit_frames * self.page_bytes),
            ("frames that keep pages", self.kept_frames * self.page_bytes),
        ]
    }
}

/// How a cache disk is divided (docs/design has it byte by byte).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskLayout {
    /// The device, or the part of it that is used.
    pub device_bytes: u64,
    /// Superblocks and intent maps.
    pub head_bytes: u64,
    /// The slot table.
    pub table_bytes: u64,
    /// Where the slots begin.
    pub data_offset_bytes: u64,
    /// Pages that it has room for.
    pub slots: u64,
    /// Write-back logs.
    pub logs_bytes: u64,
}

impl DiskLayout {
    /// Divides a device: slots before, logs behind.
    ///
    /// # Errors
    /// The smallest size that would do.
    pub fn of(device_bytes: u64, page_bytes: u64, logs_bytes: u64) -> Result<Self, u64> {
        let slots_bytes = device_bytes.saturating_sub(logs_bytes);
        let layout = Layout::new(slots_bytes, page_bytes as u32).map_err(|error| match error {
            forebay_wire::Error::Limit { limit, .. } => limit + logs_bytes,
            other => panic!("a layout of {device_bytes} bytes in pages of {page_bytes} is refused for {other}"),
        })?;
        Ok(Self {
            device_bytes,
            head_bytes: layout.table_offset(),
            table_bytes: layout.table_sector_count() * SECTOR_BYTES as u64,
            data_offset_bytes: layout.data_offset(),
            slots: layout.slot_count(),
            logs_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn demand(memory_bytes: u64, page_bytes: u64, disk_bytes: Option<u64>) -> Demand {
        Demand {
            memory_bytes,
            page_bytes,
            clients_max: 64,
            requests_max: 1024,
            disk_bytes,
            nbd_volumes: 0,
            logs: Logs::default(),
            s3_connections: 0,
        }
    }

    #[test]
    fn metadata_of_a_64_kib_page_is_96_bytes() {
        let budget = Budget::of(&demand(GIB, 65536, Some(20 * GIB))).expect("enough");
        let disk = budget.disk.as_ref().expect("a disk");
        let pages = disk.slots + budget.transit_frames + budget.kept_frames;
        assert_eq!(budget.index_bytes, pages * 32);
        assert_eq!(budget.checksum_bytes, disk.slots * 64);
        assert_eq!(budget.transit_frames, 1024);
    }

    #[test]
    fn the_minimum_that_is_told_suffices_and_is_the_least() {
        for disk in [None, Some(GIB), Some(100 * GIB)] {
            let TooSmall { minimum_bytes, .. } = Budget::of(&demand(0, 65536, disk)).expect_err("nothing");
            assert!(Budget::of(&demand(minimum_bytes, 65536, disk)).is_ok());
            assert!(Budget::of(&demand(minimum_bytes - 1, 65536, disk)).is_err());
        }
    }

    #[test]
    fn a_disk_that_is_too_small_is_told_what_would_do() {
        for (page, logs) in [(4096, 0), (65536, 4 << 20), (262_144, GIB)] {
            let minimum = DiskLayout::of(0, page, logs).expect_err("nothing");
            assert!(DiskLayout::of(minimum, page, logs).is_ok());
            assert_eq!(DiskLayout::of(minimum - 1, page, logs), Err(minimum));
        }
    }

    proptest! {
        #[test]
        fn the_parts_never_exceed_the_memory(
            memory in 0..64 * GIB,
            shift in 12u32..=18,
            disk in proptest::option::of(0..200 * GIB),
        ) {
            if let Ok(budget) = Budget::of(&demand(memory, 1 << shift, disk)) {
                let sum: u64 = budget.parts().iter().map(|(_, bytes)| bytes).sum();
                prop_assert!(sum <= memory);
                // And what is left over is less than a frame.
                prop_assert!(memory - sum < (1 << shift) + 32);
            }
        }
    }
}
