//! Recording: any device, with its operations and bytes counted by kind, and the last of them kept on request.
//!
//! The counts are what metrics show of a device, and what tests compare with what they asked for ("random 4 KiB misses
//! read at most 1.1 times the bytes asked").

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};

/// Operations in hand; more are refused.
pub const OPERATIONS_MAX: u32 = 65536;

/// Names of the kinds, at the places of [`Counts`]' arrays.
pub const KIND_NAMES: [&str; 5] = ["read", "write", "flush", "trim", "zero"];

fn place(kind: OpKind) -> usize {
    match kind {
        OpKind::Read => 0,
        OpKind::Write { .. } => 1,
        OpKind::Flush => 2,
        OpKind::Trim { .. } => 3,
        OpKind::WriteZeroes { .. } => 4,
    }
}

/// What was counted so far, by kind in the order of [`KIND_NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations ended.
    pub operations: [u64; 5],
    /// Bytes of those that ended well.
    pub bytes: [u64; 5],
    /// Operations that failed.
    pub errors: [u64; 5],
    /// Operations in flight.
    pub in_flight: u64,
}

#[derive(Debug, Default)]
struct Cells {
    operations: [AtomicU64; 5],
    bytes: [AtomicU64; 5],
    errors: [AtomicU64; 5],
    in_flight: AtomicU64,
    log_max: usize,
    log: Mutex<VecDeque<DeviceOp>>,
}

/// The counts, shared: they may be read from any thread while the device runs.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Cells>);

impl Record {
    /// Counts only.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts, and keeps the last `log_max` operations as they were submitted.
    #[must_use]
    pub fn with_log(log_max: usize) -> Self {
        Self(Arc::new(Cells { log_max, ..Cells::default() }))
    }

    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |cells: &[AtomicU64; 5]| std::array::from_fn(|kind| cells[kind].load(Ordering::Relaxed));
        Counts {
            operations: read(&self.0.operations),
            bytes: read(&self.0.bytes),
            errors: read(&self.0.errors),
            in_flight: self.0.in_flight.load(Ordering::Relaxed),
        }
    }

    /// Takes the operations kept so far, oldest first.
    #[must_use]
    pub fn take_log(&self) -> Vec<DeviceOp> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn submitted(&self, op: &DeviceOp) {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        if self.0.log_max > 0 {
            let mut log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == self.0.log_max {
                log.pop_front();
            }
            log.push_back(*op);
        }
    }

    fn ended(&self, kind: usize, length: u64, result: Result<(), IoError>) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.operations[kind].fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(()) => self.0.bytes[kind].fetch_add(length, Ordering::Relaxed),
            Err(_) => self.0.errors[kind].fetch_add(1, Ordering::Relaxed),
        };
    }
}

#[derive(Debug)]
struct Underway {
    token: u64,
    kind: usize,
    length: u64,
}

/// A device whose operations are counted.
#[derive(Debug)]
pub struct Recording<D> {
    below: D,
    record: Record,
    pending: Pending<Underway>,
    refused: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
}

impl<D: Device> Recording<D> {
    /// Counts what goes through to `below`.
    pub fn new(below: D, record: Record) -> Self {
        Self { below, record, pending: Pending::new(OPERATIONS_MAX), refused: Vec::new(), ended_below: Vec::new() }
    }
}

impl<D: Device> Device for Recording<D> {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.record.submitted(&op);
        let underway = Underway { token: op.token, kind: place(op.kind), length: op.length };
        match self.pending.insert(underway) {
            Ok(index) => self.below.submit(now_ns, DeviceOp { token: u64::from(index), ..op }),
            Err(Underway { token, kind, length }) => {
                let result = Err(IoError::Failed);
                self.record.ended(kind, length, result);
                self.refused.push(DeviceDone { token, result });
            }
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.refused);
        let mut ended_below = std::mem::take(&mut self.ended_below);
        self.below.poll(now_ns, &mut ended_below);
        for ended in ended_below.drain(..) {
            let Underway { token, kind, length } = self.pending.remove(ended.token as u32);
            self.record.ended(kind, length, ended.result);
            done.push(DeviceDone { token, result: ended.result });
        }
        self.ended_below = ended_below;
    }

    fn next_ns(&self) -> Option<u64> {
        if self.refused.is_empty() { self.below.next_ns() } else { Some(0) }
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.below.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::scripted::{Scripted, read, run_until_idle};

    #[test]
    fn operations_bytes_and_errors_are_counted_by_kind() {
        let record = Record::new();
        let mut device = Recording::new(Scripted::new(8192), record.clone());
        device.submit(0, read(0, 0, 4096));
        device.submit(0, read(1, 4096, 512));
        device.submit(0, read(2, 8192, 512));
        device.submit(0, DeviceOp { kind: OpKind::Write { fua: true }, ..read(3, 0, 1024) });
        device.submit(0, DeviceOp { kind: OpKind::Flush, ..read(4, 0, 0) });
        assert_eq!(record.counts().in_flight, 5);
        assert_eq!(run_until_idle(&mut device, 0).len(), 5);
        let expected =
            Counts { operations: [3, 1, 1, 0, 0], bytes: [4608, 1024, 0, 0, 0], errors: [1, 0, 0, 0, 0], in_flight: 0 };
        assert_eq!(record.counts(), expected);
    }

    #[test]
    fn the_log_keeps_the_last_operations() {
        let record = Record::with_log(2);
        let mut device = Recording::new(Scripted::new(8192), record.clone());
        for token in 0..5 {
            device.submit(0, read(token, token * 512, 512));
        }
        let offsets: Vec<u64> = record.take_log().iter().map(|op| op.offset).collect();
        assert_eq!(offsets, [1536, 2048]);
        assert!(record.take_log().is_empty());
    }
}
