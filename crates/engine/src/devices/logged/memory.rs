//! Buffers, in frames of the shard's arena: a group, what is read of the log, a run, a tail.
//!
//! A buffer is a run of frames. Bytes lie in it as they do on the disk, modulo 4 KiB.

use std::ops::Range;
use std::rc::Rc;

use forebay_core::log::logged::{Buffer, LoggedConfig};
use forebay_uring::Arena;
use forebay_wire::disk::log;
use forebay_wire::disk::log_tail::LogTail;

use super::open::LogPlace;
use super::{GROUP_SECTORS_MAX, GROUPS_MAX, SECTOR_BYTES};
use crate::device::{DeviceOp, FrameId, OpKind};

const BLOCK_BYTES: usize = 4096;
pub(super) const BLOCK_SECTORS: u64 = 8;

/// See [`LoggedConfig`].
pub(super) const CONFIG: LoggedConfig = LoggedConfig {
    buffer_sectors: GROUP_SECTORS_MAX + BLOCK_SECTORS,
    log_reads_max: 8,
    runs_max: 64,
    run_sectors: 256,
    retry_ns: 100_000_000,
    open_ns: 500_000_000,
    disk_timeout_ns: 10_000_000_000,
    read_patience_ns: 10_000_000_000,
    wait_ns: 30_000_000_000,
    demand_ns: 5_000_000,
    burst_gap_ns: 200_000_000,
};

/// A place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    frame: u32,
    at: u32,
}

/// The checksum of each block of these sectors, which are `bytes`.
pub(super) fn sums_of(space: u32, sectors: Range<u64>, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (mut first, mut bytes) = (sectors.start, bytes);
    std::iter::from_fn(move || {
        let end = (first / BLOCK_SECTORS * BLOCK_SECTORS + BLOCK_SECTORS).min(sectors.end);
        let (now, later) = bytes.split_at(((end - first) * SECTOR_BYTES) as usize);
        let sum = (first < sectors.end).then(|| log::payload_checksum(space, first, now));
        (first, bytes) = (end, later);
        sum
    })
}

/// The checksums of blocks, as they are met.
#[derive(Debug)]
pub(super) struct BlockSums {
    space: u32,
    pub(super) list: Vec<u32>,
}

impl BlockSums {
    pub(super) fn new(space: u32) -> Self {
        Self { space, list: Vec::new() }
    }

    fn add(&mut self, first: u64, bytes: &[u8]) {
        self.list.push(log::payload_checksum(self.space, first, bytes));
    }
}

/// See the module.
pub(super) struct Buffers {
    arena: Rc<Arena>,
    first_frame: u32,
    /// Of each buffer, and of one for a run.
    frames_each: u32,
    run_frames_each: u32,
}

impl Buffers {
    /// Other than for runs.
    const COUNT: u32 = GROUPS_MAX as u32 + CONFIG.log_reads_max;

    /// The last is for a tail.
    pub(super) fn frames(frame_bytes: u32) -> u32 {
        let of_runs = CONFIG.runs_max * Self::run_frames_each(frame_bytes);
        Self::COUNT * Self::frames_each(frame_bytes) + of_runs + 1
    }

    fn frames_each(frame_bytes: u32) -> u32 {
        ((CONFIG.buffer_sectors * SECTOR_BYTES) as u32).div_ceil(frame_bytes)
    }

    fn run_frames_each(frame_bytes: u32) -> u32 {
        (((CONFIG.run_sectors + BLOCK_SECTORS) * SECTOR_BYTES) as u32).div_ceil(frame_bytes)
    }

    pub(super) fn new(arena: Rc<Arena>, first_frame: u32) -> Self {
        let frame_bytes = arena.frame_bytes();
        assert!(first_frame + Self::frames(frame_bytes) <= arena.frames(), "no frames for the log's buffers");
        let (frames_each, run_frames_each) = (Self::frames_each(frame_bytes), Self::run_frames_each(frame_bytes));
        Self { frames_each, run_frames_each, arena, first_frame }
    }

    /// A sector of a buffer.
    pub(super) fn span(&self, buffer: Buffer, sector: u64) -> Span {
        let groups = GROUPS_MAX as u32;
        let (nth, of, sectors) = match buffer {
            Buffer::Group(nth) => (nth, groups, CONFIG.buffer_sectors),
            Buffer::LogRead(nth) => (groups + nth, Self::COUNT, CONFIG.buffer_sectors),
            Buffer::Run(nth) => (nth, CONFIG.runs_max, CONFIG.run_sectors + BLOCK_SECTORS),
        };
        assert!(nth < of && sector < sectors, "{buffer:?}, sector {sector}");
        let frame = match buffer {
            Buffer::Run(nth) => Self::COUNT * self.frames_each + nth * self.run_frames_each,
            Buffer::Group(_) | Buffer::LogRead(_) => nth * self.frames_each,
        };
        self.within(FrameId(self.first_frame + frame), sector * SECTOR_BYTES)
    }

    /// A byte of frames that follow each other.
    pub(super) fn within(&self, frame: FrameId, at: u64) -> Span {
        let frame_bytes = u64::from(self.arena.frame_bytes());
        Span { frame: frame.0 + (at / frame_bytes) as u32, at: (at % frame_bytes) as u32 }
    }

    pub(super) fn behind(&self, span: Span, bytes: u64) -> Span {
        self.within(FrameId(span.frame), u64::from(span.at) + bytes)
    }

    /// The operation, with its bytes there.
    pub(super) fn placed(&self, op: DeviceOp, span: Span) -> DeviceOp {
        DeviceOp { frame: FrameId(span.frame), at: span.at, ..op }
    }

    /// Each part of so many bytes that lies in one frame of each.
    fn each_part(&self, mut spans: [Span; 2], mut bytes: u64, mut part: impl FnMut([Span; 2], u32)) {
        while bytes > 0 {
            let room = |span: Span| self.arena.frame_bytes() - span.at;
            let length = room(spans[0]).min(room(spans[1])).min(bytes.min(u64::from(u32::MAX)) as u32);
            part(spans, length);
            spans = spans.map(|span| self.behind(span, u64::from(length)));
            bytes -= u64::from(length);
        }
    }

    pub(super) fn copy(&self, from: Span, to: Span, bytes: u64) {
        self.each_part([from, to], bytes, |[from, to], length| {
            self.arena.copy_between(from.frame, from.at, to.frame, to.at, length);
        });
    }

    pub(super) fn clear(&self, at: Span, bytes: u64) {
        self.each_part([at, at], bytes, |[at, _], length| self.arena.fill_zero(at.frame, at.at, length));
    }

    pub(super) fn put(&self, at: Span, mut bytes: &[u8]) {
        self.each_part([at, at], bytes.len() as u64, |[at, _], length| {
            let (now, later) = bytes.split_at(length as usize);
            self.arena.copy_in(at.frame, at.at, now);
            bytes = later;
        });
    }

    pub(super) fn take(&self, at: Span, mut bytes: &mut [u8]) {
        self.each_part([at, at], bytes.len() as u64, |[at, _], length| {
            let (now, later) = std::mem::take(&mut bytes).split_at_mut(length as usize);
            self.arena.copy_out(at.frame, at.at, now);
            bytes = later;
        });
    }

    /// The checksum of each block of these sectors, which lie there.
    pub(super) fn sum(&self, at: Span, sectors: Range<u64>, sums: &mut BlockSums) {
        self.each_block(at, sectors, |first, bytes, _| sums.add(first, bytes));
    }

    /// Copies these sectors, and sums them up.
    pub(super) fn move_summed(&self, from: Span, to: Span, sectors: Range<u64>, sums: &mut BlockSums) {
        self.each_block(from, sectors, |first, bytes, at| {
            sums.add(first, bytes);
            self.put(self.behind(to, at), bytes);
        });
    }

    /// What these sectors have of each block: its first sector, its bytes, and how far from the beginning.
    fn each_block(&self, at: Span, sectors: Range<u64>, mut block: impl FnMut(u64, &[u8], u64)) {
        let mut copy = [0; BLOCK_BYTES];
        let mut first = sectors.start;
        while first < sectors.end {
            let end = (first / BLOCK_SECTORS * BLOCK_SECTORS + BLOCK_SECTORS).min(sectors.end);
            let bytes = &mut copy[..((end - first) * SECTOR_BYTES) as usize];
            let skip = (first - sectors.start) * SECTOR_BYTES;
            self.take(self.behind(at, skip), bytes);
            block(first, bytes, skip);
            first = end;
        }
    }

    /// The order that writes a tail; one at a time.
    pub(super) fn tail(&self, place: &LogPlace, tail: &LogTail) -> DeviceOp {
        let frame = FrameId(self.first_frame + Self::frames(self.arena.frame_bytes()) - 1);
        self.arena.with_bytes_mut(frame.0, 0, BLOCK_BYTES as u32, |bytes| tail.encode(place.seed, bytes));
        DeviceOp {
            token: 0,
            kind: OpKind::Write { fua: true },
            offset: place.offset + tail.offset(),
            length: BLOCK_BYTES as u64,
            frame,
            at: 0,
        }
    }
}
