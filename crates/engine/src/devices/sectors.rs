//! Sectors: 512-byte sectors over a device that has larger ones.
//!
//! Why: clients may write any 512 bytes; an export may ask for 4096 at a time.
//!
//! How: an operation falls into whole sectors, passed on as they are, and at most two parts of sectors at its ends. For
//! a part, the sector around it is read into a bounce buffer; a read takes its bytes from there, a write or zeroing
//! changes them and writes the sector back. The parts of an operation run at the same time; it ends with the last, and
//! with the first error. A trim leaves parts of sectors alone.
//!
//! Invariant: reading, changing and writing back needs no lock, because a caller never has overlapping writes in flight
//! within one 4 KiB block, and sectors are no larger.
//!
//! Limits: as many parts at a time as there are bounce buffers; the others wait in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use forebay_uring::Arena;

use super::check::check;
use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, FrameId, Geometry, IoError, OpKind};

/// Operations in hand; more are refused.
pub const OPERATIONS_MAX: u32 = 65536;
const BLOCK_BYTES: u32 = 4096;

#[derive(Debug)]
struct Whole {
    op: DeviceOp,
    parts: u32,
    result: Result<(), IoError>,
}

/// What a part is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Passed on as it is.
    Passing,
    /// No bounce buffer yet.
    Waiting,
    /// Its sector is being read.
    Reading { bounce: u32 },
    /// Its changed sector is being written.
    Writing { bounce: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Part {
    whole: u32,
    /// Bytes of the device.
    start: u64,
    end: u64,
    doing: Doing,
}

/// A device with sectors of 512 bytes.
pub struct Sectors<D> {
    below: D,
    arena: Rc<Arena>,
    sector: u64,
    bounces: Range<u32>,
    free: Vec<u32>,
    pending: Pending<Whole>,
    parts: Pending<Part>,
    waiting: VecDeque<u32>,
    ended: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
}

impl<D: Device> Sectors<D> {
    /// Puts 512-byte sectors over `below`. `arena` is the one whose frames it moves bytes through; those in `bounces`
    /// must be nobody else's.
    pub fn new(below: D, arena: Rc<Arena>, bounces: Range<u32>) -> Self {
        let sector = below.geometry().sector_bytes;
        assert!(matches!(sector, 512 | 4096), "sectors of {sector} bytes");
        let each = arena.frame_bytes() / BLOCK_BYTES;
        let count = (bounces.end - bounces.start) * each;
        assert!(count > 0 && bounces.end <= arena.frames(), "no frames for bounce buffers");
        Self {
            below,
            arena,
            sector: u64::from(sector),
            bounces,
            free: (0..count).rev().collect(),
            pending: Pending::new(OPERATIONS_MAX),
            parts: Pending::new(3 * OPERATIONS_MAX),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            ended_below: Vec::new(),
        }
    }

    /// Frame and byte of a bounce buffer.
    fn bounce_at(&self, bounce: u32) -> (u32, u32) {
        let each = self.arena.frame_bytes() / BLOCK_BYTES;
        (self.bounces.start + bounce / each, bounce % each * BLOCK_BYTES)
    }

    /// Where the frame has the byte of the device at `start`.
    fn place_of(&self, op: &DeviceOp, start: u64) -> (u32, u32) {
        let at = u64::from(op.at) + (start - op.offset);
        let frame_bytes = u64::from(self.arena.frame_bytes());
        (op.frame.0 + (at / frame_bytes) as u32, (at % frame_bytes) as u32)
    }

    /// The operation as at most three ranges, each within a sector or of whole sectors.
    fn split(&self, op: &DeviceOp) -> [Range<u64>; 3] {
        let (start, end) = (op.offset, op.offset + op.length);
        let first_whole = start.next_multiple_of(self.sector);
        let end_whole = end / self.sector * self.sector;
        match op.kind {
            OpKind::Trim { .. } if first_whole < end_whole => [first_whole..end_whole, 0..0, 0..0],
            OpKind::Trim { .. } => [0..0, 0..0, 0..0],
            _ if first_whole > end_whole => [start..end, 0..0, 0..0],
            _ => [start..first_whole, first_whole..end_whole, end_whole..end],
        }
    }

    fn start(&mut self, now_ns: u64, index: u32, range: Range<u64>) {
        let op = self.pending.get_mut(index).op;
        let whole = range.start.is_multiple_of(self.sector) && range.end.is_multiple_of(self.sector);
        let doing = if whole { Doing::Passing } else { Doing::Waiting };
        let part = Part { whole: index, start: range.start, end: range.end, doing };
        let Ok(part) = self.parts.insert(part) else { panic!("more than three parts an operation") };
        self.pending.get_mut(index).parts += 1;
        if whole {
            let (offset, length) = (range.start, range.end - range.start);
            let (frame, at) = if length == 0 { (0, 0) } else { self.place_of(&op, offset) };
            let op = DeviceOp { token: u64::from(part), offset, length, frame: FrameId(frame), at, ..op };
            self.below.submit(now_ns, op);
        } else {
            self.waiting.push_back(part);
        }
    }

    /// Gives bounce buffers to parts that wait for one.
    fn start_waiting(&mut self, now_ns: u64) {
        while let Some(bounce) = self.free.pop() {
            let Some(index) = self.waiting.pop_front() else {
                self.free.push(bounce);
                return;
            };
            self.parts.get_mut(index).doing = Doing::Reading { bounce };
            self.submit_sector(now_ns, index, bounce, OpKind::Read);
        }
    }

    fn submit_sector(&mut self, now_ns: u64, index: u32, bounce: u32, kind: OpKind) {
        let offset = self.parts.get_mut(index).start / self.sector * self.sector;
        let (frame, at) = self.bounce_at(bounce);
        let op = DeviceOp { token: u64::from(index), kind, offset, length: self.sector, frame: FrameId(frame), at };
        self.below.submit(now_ns, op);
    }

    fn ended_below(&mut self, now_ns: u64, index: u32, result: Result<(), IoError>) {
        let part = *self.parts.get_mut(index);
        match (part.doing, result) {
            (Doing::Reading { bounce }, Ok(())) => {
                if let Some(write) = self.sector_read(&part, bounce) {
                    self.parts.get_mut(index).doing = Doing::Writing { bounce };
                    return self.submit_sector(now_ns, index, bounce, write);
                }
                self.free.push(bounce);
            }
            (Doing::Reading { bounce } | Doing::Writing { bounce }, _) => self.free.push(bounce),
            (Doing::Passing | Doing::Waiting, _) => {}
        }
        self.parts.remove(index);
        let whole = self.pending.get_mut(part.whole);
        whole.result = whole.result.and(result);
        whole.parts -= 1;
        self.end_if_done(part.whole);
    }

    /// The sector around a part is in the bounce buffer: takes the part, or changes it and says how to write it back.
    fn sector_read(&mut self, part: &Part, bounce: u32) -> Option<OpKind> {
        let op = self.pending.get_mut(part.whole).op;
        let (frame, at) = self.place_of(&op, part.start);
        let (bounce_frame, bounce_at) = self.bounce_at(bounce);
        let within = bounce_at + (part.start % self.sector) as u32;
        let length = (part.end - part.start) as u32;
        match op.kind {
            OpKind::Write { fua } => {
                self.arena.copy_between(frame, at, bounce_frame, within, length);
                Some(OpKind::Write { fua })
            }
            OpKind::WriteZeroes { fua, .. } => {
                self.arena.fill_zero(bounce_frame, within, length);
                Some(OpKind::Write { fua })
            }
            OpKind::Read | OpKind::Flush | OpKind::Trim { .. } => {
                self.arena.copy_between(bounce_frame, within, frame, at, length);
                None
            }
        }
    }

    fn end_if_done(&mut self, index: u32) {
        if self.pending.get_mut(index).parts == 0 {
            let whole = self.pending.remove(index);
            self.ended.push(DeviceDone { token: whole.op.token, result: whole.result });
        }
    }
}

impl<D: Device> Device for Sectors<D> {
    fn geometry(&self) -> Geometry {
        Geometry { sector_bytes: 512, ..self.below.geometry() }
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let refused = check(&self.geometry(), &op);
        let index = match self.pending.insert(Whole { op, parts: 1, result: Ok(()) }) {
            Ok(index) if refused.is_ok() => index,
            Ok(index) => {
                self.pending.remove(index);
                return self.ended.push(DeviceDone { token: op.token, result: refused });
            }
            Err(_) => return self.ended.push(DeviceDone { token: op.token, result: Err(IoError::Failed) }),
        };
        if op.kind == OpKind::Flush {
            self.start(now_ns, index, 0..0);
        } else {
            for range in self.split(&op).into_iter().filter(|range| !range.is_empty()) {
                self.start(now_ns, index, range);
            }
        }
        // The one part that stood for the splitting itself.
        self.pending.get_mut(index).parts -= 1;
        self.end_if_done(index);
        self.start_waiting(now_ns);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let mut ended_below = std::mem::take(&mut self.ended_below);
        self.below.poll(now_ns, &mut ended_below);
        for ended in ended_below.drain(..) {
            self.ended_below(now_ns, ended.token as u32, ended.result);
        }
        self.ended_below = ended_below;
        self.start_waiting(now_ns);
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { self.below.next_ns() } else { Some(0) }
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.below.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::faulty::{Effect, Faults, Faulty, Kinds, Rule};
    use crate::devices::memory::Memory;
    use crate::devices::scripted::run_until_idle;

    /// Memory that claims sectors of 4096 bytes, and refuses anything else.
    #[derive(Debug)]
    struct Coarse(Memory);

    impl Device for Coarse {
        fn geometry(&self) -> Geometry {
            Geometry { sector_bytes: 4096, ..self.0.geometry() }
        }
        fn submit(&mut self, now_ns: u64, op: DeviceOp) {
            assert!(check(&self.geometry(), &op).is_ok(), "{op:?}");
            self.0.submit(now_ns, op);
        }
        fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
            self.0.poll(now_ns, done);
        }
        fn next_ns(&self) -> Option<u64> {
            self.0.next_ns()
        }
    }

    /// Virtual time that moves when somebody waits.
    struct Clock(u64);

    impl crate::reactor::Reactor for Clock {
        fn now_ns(&self) -> u64 {
            self.0
        }
        fn wait(&mut self, until_ns: u64) {
            self.0 = self.0.max(until_ns);
        }
    }

    #[test]
    fn it_keeps_the_contract_with_few_bounce_buffers() {
        let arena = Rc::new(Arena::new(65, 8192).unwrap());
        let below = Coarse(Memory::new(Rc::clone(&arena), 1 << 20));
        let mut device = Sectors::new(below, Rc::clone(&arena), 64..65);
        assert_eq!(device.free.len(), 2);
        for (seed, depth) in [(1, 1), (2, 32)] {
            let plan = crate::devices::conformance::Plan { seed, operations: 3000, depth };
            crate::devices::conformance::conform(&mut device, &mut Clock(0), &arena, plan);
        }
        assert_eq!(device.free.len(), 2);
    }

    #[test]
    fn an_error_in_any_part_is_the_operations_and_nothing_leaks() {
        for nth in 0..4 {
            let arena = Rc::new(Arena::new(5, 16384).unwrap());
            let faults = Faults::new();
            let below = Faulty::new(Coarse(Memory::new(Rc::clone(&arena), 1 << 20)), faults.clone());
            let mut device = Sectors::new(below, Rc::clone(&arena), 4..5);
            let op = |kind, length| DeviceOp { token: 1, kind, offset: 512, length, frame: FrameId(0), at: 512 };
            faults.add(Rule::nth(nth, Effect::Refuse(IoError::Failed)));
            device.submit(0, op(OpKind::Write { fua: false }, 12288));
            let failed = DeviceDone { token: 1, result: Err(IoError::Failed) };
            assert_eq!(run_until_idle(&mut device, 0), [(0, failed)], "operation {nth} below failed");
            assert_eq!(device.free.len(), 4);
            faults.clear();
            faults.add(Rule::of(Kinds::READ, Effect::Refuse(IoError::TimedOut)));
            device.submit(0, op(OpKind::Read, 512));
            assert_eq!(run_until_idle(&mut device, 0)[0].1.result, Err(IoError::TimedOut));
        }
    }
}
