//! Memory: bytes in RAM. Operations end when they are next polled for.
//!
//! For trying things out, and the fastest back end there is: what it costs is what the cache costs. It forgets
//! everything when the process ends.

use std::fmt;
use std::rc::Rc;

use forebay_uring::Arena;

use crate::device::{Device, DeviceDone, DeviceOp, Geometry, IoError, OpKind};
use crate::devices::check::check;

const SECTOR_BYTES: u32 = 512;

/// A device in RAM.
pub struct Memory {
    arena: Rc<Arena>,
    bytes: Vec<u8>,
    ended: Vec<DeviceDone>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Memory {
    /// Zeroes, moved through frames of `arena`. `bytes` is rounded down to whole sectors. The memory is committed as
    /// it is first written.
    #[must_use]
    pub fn new(arena: Rc<Arena>, bytes: u64) -> Self {
        let bytes = bytes - bytes % u64::from(SECTOR_BYTES);
        Self { arena, bytes: vec![0; bytes as usize], ended: Vec::new() }
    }

    fn perform(&mut self, op: &DeviceOp) -> Result<(), IoError> {
        check(&self.geometry(), op)?;
        let range = op.offset as usize..(op.offset + op.length) as usize;
        match op.kind {
            OpKind::Flush => {}
            OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => self.bytes[range].fill(0),
            OpKind::Read | OpKind::Write { .. } => {
                let frame_bytes = self.arena.frame_bytes();
                let (mut frame, mut at) = (op.frame.0 + op.at / frame_bytes, op.at % frame_bytes);
                let mut rest = &mut self.bytes[range];
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at_mut(rest.len().min((frame_bytes - at) as usize));
                    match op.kind {
                        OpKind::Read => self.arena.copy_in(frame, at, piece),
                        _ => self.arena.copy_out(frame, at, piece),
                    }
                    (frame, at, rest) = (frame + 1, 0, behind);
                }
            }
        }
        Ok(())
    }
}

impl Device for Memory {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.len() as u64,
            sector_bytes: SECTOR_BYTES,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: 128 << 20,
        }
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        let result = self.perform(&op);
        self.ended.push(DeviceDone { token: op.token, result });
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { None } else { Some(0) }
    }
}
