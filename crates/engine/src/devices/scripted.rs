//! A device for the tests of layers: holds no bytes, ends everything at once, refuses what leaves it.

use crate::device::{Device, DeviceDone, DeviceOp, FrameId, Geometry, IoError, OpKind};

#[derive(Debug)]
pub(crate) struct Scripted {
    bytes: u64,
    ended: Vec<DeviceDone>,
    pub(crate) submitted: u64,
}

impl Scripted {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, ended: Vec::new(), submitted: 0 }
    }
}

impl Device for Scripted {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes,
            sector_bytes: 512,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: self.bytes,
        }
    }
    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        self.submitted += 1;
        let result = if op.offset + op.length <= self.bytes { Ok(()) } else { Err(IoError::Failed) };
        self.ended.push(DeviceDone { token: op.token, result });
    }
    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.ended);
    }
    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { None } else { Some(0) }
    }
}

pub(crate) fn read(token: u64, offset: u64, length: u64) -> DeviceOp {
    DeviceOp { token, kind: OpKind::Read, offset, length, frame: FrameId(0), at: 0 }
}

/// Polls at the times that the device asks for, until it asks for none; gives what ended, and when.
pub(crate) fn run_until_idle(device: &mut impl Device, mut now_ns: u64) -> Vec<(u64, DeviceDone)> {
    let mut ended = Vec::new();
    let mut done = Vec::new();
    loop {
        device.poll(now_ns, &mut done);
        ended.extend(done.drain(..).map(|done| (now_ns, done)));
        match device.next_ns() {
            Some(next_ns) => now_ns = now_ns.max(next_ns),
            None => return ended,
        }
    }
}
