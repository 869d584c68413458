//! Absent: a device of any size that has nothing. What is asked of it fails.
//!
//! For a volume whose bytes only a front end can bring: the object space of a gateway whose store answers its clients alone.

use crate::device::{Device, DeviceDone, DeviceOp, Geometry, IoError};

/// See the module.
#[derive(Debug)]
pub struct Absent {
    bytes: u64,
    ended: Vec<DeviceDone>,
}

impl Absent {
    /// Of so many bytes, none of them there.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, ended: Vec::new() }
    }
}

impl Device for Absent {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes,
            sector_bytes: 512,
            read_only: true,
            can_trim: false,
            can_zero: false,
            range_bytes_max: 1 << 30,
        }
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        self.ended.push(DeviceDone { token: op.token, result: Err(IoError::Failed) });
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        // What has ended waits for the next poll.
        (!self.ended.is_empty()).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{FrameId, OpKind};

    #[test]
    fn whatever_is_asked_fails_once() {
        let mut device = Absent::new(1 << 48);
        let op = DeviceOp { token: 7, kind: OpKind::Read, offset: 1 << 40, length: 512, frame: FrameId(0), at: 0 };
        device.submit(0, op);
        let mut done = Vec::new();
        assert_eq!(device.next_ns(), Some(0));
        device.poll(0, &mut done);
        assert_eq!(done, [DeviceDone { token: 7, result: Err(IoError::Failed) }]);
        device.poll(0, &mut done);
        assert_eq!((done.len(), device.next_ns()), (1, None));
    }
}
