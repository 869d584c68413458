//! Filling a side from the other, before anything is served.
//!
//! All of the log's area is copied, whatever is in it: then every argument about what lies behind a log's end holds for the copy as
//! for the original. Several pieces are on their way at a time. Blocking.

use std::ops::Range;

use super::{Mirrored, Side};
use crate::device::{DeviceDone, DeviceOp, ForWhom, FrameId, IoError, OpKind};
use crate::reactor::Reactor;

/// Bytes of a piece.
const PIECE_BYTES: u64 = 512 << 10;
/// Pieces on their way.
const PIECES_MAX: u32 = 8;

/// A side could not be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// What it is filled from.
    #[error("the side that has the write-back logs cannot be read ({0:?})")]
    Read(IoError),
    /// The side itself.
    #[error("it cannot be written ({0:?})")]
    Write(IoError),
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Free,
    /// At this offset of the log.
    Read(u64),
    Written(u64),
}

impl Mirrored {
    /// Copies all of the log from the other side, durably. `frames`, of so many bytes each, are nobody else's.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn fill(
        &mut self,
        side: Side,
        reactor: &mut dyn Reactor,
        frames: &Range<u32>,
        frame_bytes: u32,
    ) -> Result<(), FillError> {
        let frames_each = (PIECE_BYTES as u32).div_ceil(frame_bytes);
        let count = ((frames.end - frames.start) / frames_each).min(PIECES_MAX);
        assert!(count > 0, "no frames to copy with");
        let mut pieces = vec![Piece::Free; count as usize];
        let (mut next, mut result) = (0, Ok(()));
        let mut done = Vec::new();
        loop {
            for (at, piece) in pieces.iter_mut().enumerate() {
                if *piece == Piece::Free && next < self.bytes && result.is_ok() {
                    *piece = Piece::Read(next);
                    let frame = FrameId(frames.start + at as u32 * frames_each);
                    let op = self.piece(at, next, frame, OpKind::Read);
                    self.submit_to(side.other(), reactor.now_ns(), ForWhom::CLIENT, op);
                    next += op.length;
                }
            }
            if pieces.iter().all(|piece| *piece == Piece::Free) {
                break;
            }
            for from in Side::BOTH {
                self.sides[from.at()].device.poll(reactor.now_ns(), &mut done);
            }
            if done.is_empty() {
                let second_ns = reactor.now_ns() + 1_000_000_000;
                let next_ns = Side::BOTH.into_iter().filter_map(|side| self.sides[side.at()].device.next_ns()).min();
                reactor.wait(next_ns.unwrap_or(second_ns).min(second_ns));
            }
            for DeviceDone { token, result: ended } in done.drain(..) {
                let at = token as usize;
                pieces[at] = match (pieces[at], ended) {
                    (Piece::Read(offset), Ok(())) if result.is_ok() => {
                        let frame = FrameId(frames.start + at as u32 * frames_each);
                        let op = self.piece(at, offset, frame, OpKind::Write { fua: false });
                        self.submit_to(side, reactor.now_ns(), ForWhom::CLIENT, op);
                        Piece::Written(offset)
                    }
                    (Piece::Read(_), Err(error)) => {
                        result = result.and(Err(FillError::Read(error)));
                        Piece::Free
                    }
                    (Piece::Written(_), Err(error)) => {
                        result = result.and(Err(FillError::Write(error)));
                        Piece::Free
                    }
                    _ => Piece::Free,
                };
            }
        }
        result?;
        let flush =
            DeviceOp { token: 0, kind: OpKind::Flush, offset: 0, length: 0, frame: FrameId(frames.start), at: 0 };
        crate::device::carry_out(&mut *self.sides[side.at()].device, reactor, flush).map_err(FillError::Write)
    }

    /// The piece at an offset. Frames hold 4 KiB or more, and the log begins at a multiple of that on both sides.
    fn piece(&self, at: usize, offset: u64, frame: FrameId, kind: OpKind) -> DeviceOp {
        let length = PIECE_BYTES.min(self.bytes - offset);
        DeviceOp { token: at as u64, kind, offset, length, frame, at: 0 }
    }
}
