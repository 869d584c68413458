//! Where the bytes of an operation lie, if they are in several frames that follow each other.

use forebay_engine::device::DeviceOp;
use forebay_uring::Arena;

/// Where a byte of an operation lies: frames follow each other.
#[must_use]
pub fn place(arena: &Arena, op: &DeviceOp, byte: u64) -> (u32, u32) {
    let at = u64::from(op.at) + byte;
    let frame_bytes = u64::from(arena.frame_bytes());
    (op.frame.0 + (at / frame_bytes) as u32, (at % frame_bytes) as u32)
}

/// Each part of an operation's bytes that lies in one frame: its frame, its place there, and its bytes of the operation.
pub fn each_part(arena: &Arena, op: &DeviceOp, mut part: impl FnMut(u32, u32, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < op.length {
        let (frame, at) = place(arena, op, done);
        let length = u64::from(arena.frame_bytes() - at).min(op.length - done);
        part(frame, at, done as usize..(done + length) as usize);
        done += length;
    }
}
