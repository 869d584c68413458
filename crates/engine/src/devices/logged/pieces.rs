//! Pieces: a log's ring, read in order and ahead of who asks.
//!
//! Why: finding a log again is one pass over what is in it. With one read at a time the disk waits for each answer: 24 MiB in
//! small groups took 9 s, since a group and what may follow it at the ring's beginning were read in turn.
//!
//! How: the ring is cut into pieces of half a MiB. Who asks for one in order has the next ones read, too; the last few that
//! were asked for are kept. Of a piece that cannot be read, those sectors that are asked for are read by themselves: one bad
//! sector hides no other.
//!
//! Blocking: nothing is served yet.

use std::collections::VecDeque;

use forebay_core::log::logged::Buffer;

use super::memory::{Buffers, CONFIG};
use super::open::LogPlace;
use super::{GROUP_SECTORS_MAX, SECTOR_BYTES};
use crate::device::{self, Device, DeviceDone, DeviceOp, FrameId, IoError, OpKind};
use crate::reactor::Reactor;

const PIECE_SECTORS: u64 = GROUP_SECTORS_MAX;
/// Pieces that are read ahead.
const AHEAD: u64 = 6;
/// Pieces that are kept: what is read ahead, the ring's first, and a group over two of them.
const KEPT_MAX: usize = 12;

/// See the module.
pub(super) struct Pieces<'a> {
    disk: &'a mut dyn Device,
    buffers: &'a Buffers,
    place: LogPlace,
    reactor: &'a mut dyn Reactor,
    /// The one asked for last is last.
    kept: VecDeque<(u64, Result<Vec<u8>, IoError>)>,
    /// By buffer.
    under_way: Vec<Option<u64>>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(
        disk: &'a mut dyn Device,
        buffers: &'a Buffers,
        place: LogPlace,
        reactor: &'a mut dyn Reactor,
    ) -> Self {
        let under_way = vec![None; CONFIG.log_reads_max as usize];
        Self { disk, buffers, place, reactor, kept: VecDeque::new(), under_way }
    }

    /// Sectors of the ring from a position on, as far as its end. `in_order`: those that follow will be asked for.
    pub(super) fn sectors(&mut self, position: u64, sectors: u64, in_order: bool) -> Result<Vec<u8>, IoError> {
        let ring = self.place.ring_sectors();
        let (mut at, mut bytes) = (position % ring, Vec::with_capacity((sectors * SECTOR_BYTES) as usize));
        let end = (at + sectors).min(ring);
        while at < end {
            let (index, skip) = (at / PIECE_SECTORS, at % PIECE_SECTORS);
            let length = (PIECE_SECTORS - skip).min(end - at);
            let within = (skip * SECTOR_BYTES) as usize..((skip + length) * SECTOR_BYTES) as usize;
            match self.piece(index, in_order) {
                Ok(piece) => bytes.extend_from_slice(&piece[within]),
                Err(_) => bytes.extend(self.alone(at, length)?),
            }
            at += length;
        }
        Ok(bytes)
    }

    /// Nothing is under way any more: the disk and the buffers are whose they were.
    pub(super) fn end(mut self) {
        self.settle();
    }

    fn settle(&mut self) {
        while self.under_way.iter().any(Option::is_some) {
            self.wait();
        }
    }

    fn alone(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>, IoError> {
        self.settle();
        let span = self.buffers.span(Buffer::LogRead(0), at % 8);
        let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        let (offset, length) = (self.place.offset_of(at), bytes.len() as u64);
        let op = DeviceOp { token: 0, kind: OpKind::Read, offset, length, frame: FrameId(0), at: 0 };
        device::carry_out(self.disk, self.reactor, self.buffers.placed(op, span))?;
        self.buffers.take(span, &mut bytes);
        Ok(bytes)
    }

    fn piece(&mut self, index: u64, in_order: bool) -> Result<&[u8], IoError> {
        let count = self.place.ring_sectors().div_ceil(PIECE_SECTORS);
        let ahead = if in_order { AHEAD.min(count - 1) } else { 0 };
        for next in index..=index + ahead {
            self.start(next % count);
        }
        let at = loop {
            if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == index) {
                break at;
            }
            self.wait();
            self.start(index);
        };
        let piece = self.kept.remove(at).expect("it was just found");
        self.kept.push_back(piece);
        let (_, result) = self.kept.back().expect("it was just put there");
        result.as_deref().map_err(|error| *error)
    }

    /// Has a piece read, if it is not there or on its way, and a buffer is free.
    fn start(&mut self, index: u64) {
        if self.under_way.contains(&Some(index)) || self.kept.iter().any(|(kept, _)| *kept == index) {
            return;
        }
        let Some(buffer) = self.under_way.iter().position(Option::is_none) else { return };
        self.under_way[buffer] = Some(index);
        let position = index * PIECE_SECTORS;
        let length = PIECE_SECTORS.min(self.place.ring_sectors() - position) * SECTOR_BYTES;
        let (token, offset) = (buffer as u64, self.place.offset_of(position));
        let op = DeviceOp { token, kind: OpKind::Read, offset, length, frame: FrameId(0), at: 0 };
        let op = self.buffers.placed(op, self.buffers.span(Buffer::LogRead(buffer as u32), 0));
        self.disk.submit(self.reactor.now_ns(), op);
    }

    /// Waits until something ends.
    fn wait(&mut self) {
        let mut done = Vec::new();
        self.disk.poll(self.reactor.now_ns(), &mut done);
        if done.is_empty() {
            let second_ns = self.reactor.now_ns() + 1_000_000_000;
            self.reactor.wait(self.disk.next_ns().unwrap_or(second_ns).min(second_ns));
        }
        for DeviceDone { token, result } in done {
            let index = self.under_way[token as usize].take().expect("a read ends once");
            let length = PIECE_SECTORS.min(self.place.ring_sectors() - index * PIECE_SECTORS) * SECTOR_BYTES;
            let bytes = result.map(|()| {
                let mut bytes = vec![0; length as usize];
                self.buffers.take(self.buffers.span(Buffer::LogRead(token as u32), 0), &mut bytes);
                bytes
            });
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back((index, bytes));
        }
    }
}
