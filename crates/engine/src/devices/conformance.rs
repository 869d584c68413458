//! Holds a device to the contract in [`crate::device`], whatever it is: the same run for a file, an NBD export, memory,
//! a layer, and the simulator's modelled disks.
//!
//! How: a naive model knows every byte. First the whole device is written and read back. Then random operations run,
//! many at a time, overlapping ones in one 4 KiB block never together (the caller's side of the contract); every read
//! is compared with the model. Last come the ends of the device and what it must refuse.
//!
//! Each operation has frames of its own, filled with a pattern before a read; afterwards the bytes beside the range
//! must be untouched, and no hold may be left on the frame.
//!
//! A broken contract panics with the operation; the seed repeats the run.

use std::ops::Range;

use forebay_policy::rng::Rng;
use forebay_uring::Arena;

use crate::device::{Device, DeviceDone, DeviceOp, FrameId, Geometry, OpKind};
use crate::reactor::Reactor;

/// Frames of one operation: transfers may go over the end of the first.
const FRAMES_EACH: u32 = 2;
const BLOCK_BYTES: u64 = 4096;
const PATTERN: u8 = 0xa7;
/// A device that answers nothing for so long is broken.
const PATIENCE_NS: u64 = 20_000_000_000;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seeds every choice.
    pub seed: u64,
    /// Random operations.
    pub operations: u32,
    /// Operations at a time. The arena needs twice as many frames.
    pub depth: u32,
}

/// What one sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    /// What the model says.
    Known,
    /// What the model says, or zeroes: it was trimmed.
    Trimmed,
}

struct Model {
    bytes: Vec<u8>,
    sectors: Vec<Sector>,
    sector_bytes: u64,
}

impl Model {
    fn sectors_of(&self, range: &Range<u64>) -> Range<usize> {
        (range.start / self.sector_bytes) as usize..(range.end / self.sector_bytes) as usize
    }

    fn set(&mut self, range: &Range<u64>, bytes: &[u8]) {
        self.bytes[range.start as usize..range.end as usize].copy_from_slice(bytes);
        let sectors = self.sectors_of(range);
        self.sectors[sectors].fill(Sector::Known);
    }

    fn trim(&mut self, range: &Range<u64>) {
        let sectors = self.sectors_of(range);
        self.sectors[sectors].fill(Sector::Trimmed);
    }

    fn compare(&self, op: &DeviceOp, seen: &[u8]) {
        let sector_bytes = self.sector_bytes as usize;
        for (nth, (sector, seen)) in self.sectors_of(&range_of(op)).zip(seen.chunks(sector_bytes)).enumerate() {
            let known = &self.bytes[sector * sector_bytes..][..sector_bytes];
            let zeroed = self.sectors[sector] == Sector::Trimmed && seen.iter().all(|byte| *byte == 0);
            assert!(seen == known || zeroed, "{op:?}: sector {nth} of it has other bytes than were written");
        }
    }
}

fn range_of(op: &DeviceOp) -> Range<u64> {
    op.offset..op.offset + op.length
}

fn changes(kind: OpKind) -> bool {
    !matches!(kind, OpKind::Read | OpKind::Flush)
}

/// Whether two operations must not be in flight together.
fn conflict(one: &DeviceOp, other: &DeviceOp) -> bool {
    let blocks = |op: &DeviceOp| op.offset / BLOCK_BYTES..(op.offset + op.length).div_ceil(BLOCK_BYTES);
    let (a, b) = (blocks(one), blocks(other));
    (changes(one.kind) || changes(other.kind)) && a.start < b.end && b.start < a.end
}

struct Run<'a> {
    device: &'a mut dyn Device,
    reactor: &'a mut dyn Reactor,
    arena: &'a Arena,
    geometry: Geometry,
    model: Model,
    rng: Rng,
    in_flight: Vec<Option<DeviceOp>>,
    done: Vec<DeviceDone>,
    ended: u64,
}

/// Runs the contract over `device`, whose contents are lost. `arena` is the one whose frames it moves bytes through.
///
/// # Panics
/// When the contract is broken.
pub fn conform(device: &mut dyn Device, reactor: &mut dyn Reactor, arena: &Arena, plan: Plan) {
    let geometry = device.geometry();
    let sector_bytes = u64::from(geometry.sector_bytes);
    assert!(matches!(geometry.sector_bytes, 512 | 4096), "{geometry:?}");
    assert!(geometry.bytes > 0 && geometry.bytes.is_multiple_of(sector_bytes), "{geometry:?}");
    assert!(geometry.range_bytes_max >= BLOCK_BYTES && !geometry.read_only, "{geometry:?}");
    assert!(arena.frames() >= plan.depth * FRAMES_EACH, "an arena too small for {plan:?}");
    let mut run = Run {
        model: Model {
            bytes: vec![0; geometry.bytes as usize],
            sectors: vec![Sector::Known; (geometry.bytes / sector_bytes) as usize],
            sector_bytes,
        },
        device,
        reactor,
        arena,
        geometry,
        rng: Rng::new(plan.seed),
        in_flight: vec![None; plan.depth as usize],
        done: Vec::new(),
        ended: 0,
    };
    run.write_all();
    run.read_all();
    run.random(plan.operations);
    run.ends();
    run.refusals();
    run.read_all();
}

impl Run<'_> {
    fn op(&self, kind: OpKind, offset: u64, length: u64) -> DeviceOp {
        DeviceOp { token: 0, kind, offset, length, frame: FrameId(0), at: 0 }
    }

    /// The longest transfer from `offset` on that fits one operation's frames and the device.
    fn room(&self, offset: u64) -> u64 {
        let frame_bytes = u64::from(self.arena.frame_bytes());
        (u64::from(FRAMES_EACH) * frame_bytes - offset % frame_bytes).min(self.geometry.bytes - offset)
    }

    fn frames_of(place: usize) -> Range<u32> {
        let first = place as u32 * FRAMES_EACH;
        first..first + FRAMES_EACH
    }

    /// All bytes of a place's frames.
    fn bytes_at(&self, place: usize) -> Vec<u8> {
        let frame_bytes = self.arena.frame_bytes() as usize;
        let mut bytes = vec![0; frame_bytes * FRAMES_EACH as usize];
        for (frame, chunk) in Self::frames_of(place).zip(bytes.chunks_mut(frame_bytes)) {
            self.arena.copy_out(frame, 0, chunk);
        }
        bytes
    }

    /// Starts an operation as soon as there is a place for it and nothing conflicts; the model has it at once.
    fn start(&mut self, op: DeviceOp) {
        let free = |run: &Self| {
            let clear = run.in_flight.iter().flatten().all(|other| !conflict(&op, other));
            run.in_flight.iter().position(Option::is_none).filter(|_| clear)
        };
        let place = loop {
            match free(self) {
                Some(place) => break place,
                None => self.wait(),
            }
        };
        let frame_bytes = u64::from(self.arena.frame_bytes());
        let frames = Self::frames_of(place);
        let at = (op.offset % frame_bytes) as u32;
        let op = DeviceOp {
            token: place as u64 | (self.rng.next_u64() >> 32 << 16),
            frame: FrameId(frames.start),
            at,
            ..op
        };
        let mut bytes = vec![PATTERN; (frame_bytes * u64::from(FRAMES_EACH)) as usize];
        match op.kind {
            OpKind::Write { .. } => {
                let written = &mut bytes[at as usize..][..op.length as usize];
                for word in written.chunks_mut(8) {
                    let random = self.rng.next_u64().to_le_bytes();
                    word.copy_from_slice(&random[..word.len()]);
                }
                self.model.set(&range_of(&op), written);
            }
            OpKind::WriteZeroes { .. } => self.model.set(&range_of(&op), &vec![0; op.length as usize]),
            OpKind::Trim { .. } => self.model.trim(&range_of(&op)),
            OpKind::Read | OpKind::Flush => {}
        }
        for (frame, chunk) in frames.zip(bytes.chunks(frame_bytes as usize)) {
            self.arena.copy_in(frame, 0, chunk);
        }
        self.in_flight[place] = Some(op);
        self.device.submit(self.reactor.now_ns(), op);
    }

    /// Polls; if nothing ended, waits for something and polls again, until something has ended.
    fn wait(&mut self) {
        let begin_ns = self.reactor.now_ns();
        let before = self.ended;
        loop {
            let now_ns = self.reactor.now_ns();
            let mut done = std::mem::take(&mut self.done);
            self.device.poll(now_ns, &mut done);
            for done in done.drain(..) {
                self.end(done);
            }
            self.done = done;
            if self.ended > before {
                return;
            }
            assert!(now_ns - begin_ns < PATIENCE_NS, "no end in sight of {:?}", self.in_flight);
            let next_ns = self.device.next_ns().unwrap_or(u64::MAX);
            self.reactor.wait(next_ns.min(now_ns + PATIENCE_NS));
        }
    }

    fn wait_all(&mut self) {
        while self.in_flight.iter().any(Option::is_some) {
            self.wait();
        }
    }

    fn end(&mut self, done: DeviceDone) {
        self.ended += 1;
        let place = (done.token & 0xffff) as usize;
        let op = self.in_flight.get_mut(place).and_then(Option::take);
        let Some(op) = op.filter(|op| op.token == done.token) else { panic!("{done:?} ends what is not in flight") };
        assert_eq!(done.result, Ok(()), "{op:?}");
        assert!(Self::frames_of(place).all(|frame| !self.arena.is_held(frame)), "{op:?} ended, its frame is held");
        if op.kind == OpKind::Read {
            let bytes = self.bytes_at(place);
            let moved = op.at as usize..op.at as usize + op.length as usize;
            self.model.compare(&op, &bytes[moved.clone()]);
            let beside = bytes[..moved.start].iter().chain(&bytes[moved.end..]);
            assert!(beside.copied().all(|byte| byte == PATTERN), "{op:?} wrote beside its range");
        }
    }

    fn write_all(&mut self) {
        let mut offset = 0;
        while offset < self.geometry.bytes {
            let length = self.room(offset);
            self.start(self.op(OpKind::Write { fua: false }, offset, length));
            offset += length;
        }
        self.wait_all();
    }

    fn read_all(&mut self) {
        self.wait_all();
        let mut offset = 0;
        while offset < self.geometry.bytes {
            let length = self.room(offset);
            self.start(self.op(OpKind::Read, offset, length));
            offset += length;
        }
        self.wait_all();
    }

    fn random_op(&mut self) -> DeviceOp {
        let sector = u64::from(self.geometry.sector_bytes);
        let sectors = self.geometry.bytes / sector;
        let mut offset = u64::from(self.rng.below(sectors as u32)) * sector;
        let fua = self.rng.below(8) == 0;
        let no_hole = self.rng.below(2) == 0;
        let kind = match self.rng.below(100) {
            0..45 => OpKind::Read,
            45..85 => OpKind::Write { fua },
            85..90 => return self.op(OpKind::Flush, 0, 0),
            90..95 => OpKind::Trim { fua },
            _ => OpKind::WriteZeroes { fua, no_hole },
        };
        // A third whole pages, a third whole blocks, a third anything.
        let unit = [sector, BLOCK_BYTES, u64::from(self.arena.frame_bytes())][self.rng.below(3) as usize];
        if unit < self.geometry.bytes {
            offset -= offset % unit;
        }
        let room = match kind {
            OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                self.geometry.range_bytes_max.min(self.geometry.bytes - offset)
            }
            _ => self.room(offset),
        };
        let units = (room / unit).clamp(1, 64) as u32;
        let length = (unit * u64::from(1 + self.rng.below(units))).min(room);
        self.op(kind, offset, length)
    }

    fn random(&mut self, operations: u32) {
        for _ in 0..operations {
            let op = self.random_op();
            self.start(op);
        }
        self.wait_all();
    }

    /// The first and the last sector and block, by every kind.
    fn ends(&mut self) {
        let sector = u64::from(self.geometry.sector_bytes);
        let bytes = self.geometry.bytes;
        for length in [sector, BLOCK_BYTES.min(bytes)] {
            for offset in [0, bytes - length] {
                for kind in [
                    OpKind::Write { fua: true },
                    OpKind::Read,
                    OpKind::WriteZeroes { fua: true, no_hole: true },
                    OpKind::Read,
                    OpKind::Write { fua: false },
                    OpKind::WriteZeroes { fua: false, no_hole: false },
                    OpKind::Flush,
                    OpKind::Write { fua: true },
                    OpKind::Trim { fua: true },
                    OpKind::Read,
                ] {
                    let (offset, length) = if kind == OpKind::Flush { (0, 0) } else { (offset, length) };
                    self.start(self.op(kind, offset, length));
                    self.wait_all();
                }
            }
        }
    }

    /// What leaves the device or is not aligned is refused, changes nothing and touches no frame.
    fn refusals(&mut self) {
        let sector = u64::from(self.geometry.sector_bytes);
        let bytes = self.geometry.bytes;
        let kinds = [OpKind::Read, OpKind::Write { fua: false }, OpKind::WriteZeroes { fua: false, no_hole: false }];
        let ranges = [
            (bytes, sector),
            (bytes - sector, 2 * sector),
            (u64::MAX - (u64::MAX % sector), sector),
            (1, sector),
            (0, sector - 1),
            (0, 0),
        ];
        for (kind, (offset, length)) in kinds.into_iter().flat_map(|kind| ranges.map(|range| (kind, range))) {
            self.arena.copy_in(0, 0, &vec![PATTERN; self.arena.frame_bytes() as usize]);
            let op = DeviceOp { token: 9, at: (offset % BLOCK_BYTES) as u32, ..self.op(kind, offset, length) };
            self.device.submit(self.reactor.now_ns(), op);
            let mut done = Vec::new();
            let begin_ns = self.reactor.now_ns();
            while done.is_empty() {
                let now_ns = self.reactor.now_ns();
                self.device.poll(now_ns, &mut done);
                assert!(now_ns - begin_ns < PATIENCE_NS, "no end in sight of {op:?}");
                if done.is_empty() {
                    self.reactor.wait(self.device.next_ns().unwrap_or(u64::MAX).min(now_ns + PATIENCE_NS));
                }
            }
            assert!(matches!(done[..], [DeviceDone { token: 9, result: Err(_) }]), "{op:?} ended with {done:?}");
            assert!(self.bytes_at(0)[..self.arena.frame_bytes() as usize].iter().all(|byte| *byte == PATTERN));
        }
    }
}
