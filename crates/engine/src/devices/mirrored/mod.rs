//! Mirrored: a write-back log on two devices, the cache disk and a mirror, of which either may be lost.
//!
//! Why: with one device, what it had and the back end lacked is lost with it. Nothing above this layer knows of two.
//!
//! How: a change goes to both sides, and is answered when both have it; a flush, too. A read goes to the idler one, and to the other if it
//! fails, or if the same is asked for again (its checksum was wrong). A side on which a change or a flush fails is out for good; the
//! change is answered when the state directory no longer counts that side ([`sides`]). Whoever starts next believes only
//! what counts ([`counts`]), and fills the other anew ([`fill`]).
//!
//! After a crash the sides may differ in what was not flushed. Until all logs are found again ([`Sides::opened`]) one side only is
//! read, the same for all; what was not durable for certain is written again, so that both are equal
//! ([`Device::has_copies`]).
//!
//! | file | what |
//! |---|---|
//! | `mod` | operations |
//! | `sides` | which side is in service, durably |
//! | `counts` | which side counts at a start |
//! | `fill` | a side from the other |
//!
//! Invariant: what is answered is on every side that a start would believe.
//!
//! A side that is silent for [`PATIENCE_NS`] is out, too, and nothing new goes there. What it has in hand does not end before it
//! answers: the kernel may still read or write those frames. The log above gives such operations up, is written back from the other
//! side, and is out itself until the next start. Limit: a side that comes back is filled at the next start only.
//!
//! Rejected: a number that is raised on both sides when one fails (a side cannot learn that it is old; if it is all there is at
//! a start, it looks good). Lives of the logs for the same purpose (one for each volume, and a region map to write for each).

mod counts;
mod fill;
mod sides;
#[cfg(test)]
mod tests;

use super::check::check;
use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, ForWhom, Geometry, IoError, OpKind};
pub use counts::{Counting, DiskFound, MirrorFound, MirrorRefusal, Side, which_count};
pub use fill::FillError;
pub use sides::{CountingStore, MirrorHealth, MirrorStatus, Sides};

/// Operations in hand; more are refused.
const OPERATIONS_MAX: u32 = 65_536;
/// A side that leaves an operation unanswered for so long has failed. The log above waits longer.
const PATIENCE_NS: u64 = 7_000_000_000;
/// How often that is looked for.
const LOOK_NS: u64 = 1_000_000_000;
/// Reads of which is remembered where they went.
const REMEMBERED: usize = 64;

/// A side's part of one log.
pub struct SidePart {
    /// The device.
    pub device: Box<dyn Device>,
    /// Where the log begins there; a multiple of 4 KiB.
    pub offset: u64,
}

#[derive(Debug)]
struct Job {
    op: DeviceOp,
    whom: ForWhom,
    /// By side: what is under way, and what ended well.
    waits: [bool; 2],
    has: [bool; 2],
    /// Of a read: where it was tried.
    asked: [bool; 2],
    error: IoError,
    since_ns: u64,
}

/// One log on both sides. See the module.
pub struct Mirrored {
    state: Sides,
    sides: [SidePart; 2],
    bytes: u64,
    pending: Pending<Job>,
    in_hand: usize,
    /// Reads in hand, by side.
    reads: [u32; 2],
    look_ns: u64,
    /// Changes and flushes that every side has answered, and that a side which counts lacks.
    held: Vec<u32>,
    /// Offsets of reads, and the side that was asked last.
    remembered: [(u64, Side); REMEMBERED],
    ended: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
}

impl Mirrored {
    /// A log of so many bytes, in the order of [`Side`].
    #[must_use]
    pub fn new(state: &Sides, sides: [SidePart; 2], bytes: u64) -> Self {
        assert!(sides.iter().all(|side| side.offset.is_multiple_of(4096)), "a log that is not aligned");
        Self {
            state: state.clone(),
            sides,
            bytes,
            pending: Pending::new(OPERATIONS_MAX),
            in_hand: 0,
            reads: [0; 2],
            look_ns: 0,
            held: Vec::new(),
            remembered: [(u64::MAX, Side::Disk); REMEMBERED],
            ended: Vec::new(),
            ended_below: Vec::new(),
        }
    }

    fn submit_to(&mut self, side: Side, now_ns: u64, whom: ForWhom, op: DeviceOp) {
        let part = &mut self.sides[side.at()];
        part.device.submit_for(now_ns, whom, DeviceOp { offset: op.offset + part.offset, ..op });
    }

    fn order(&mut self, now_ns: u64, index: u32, side: Side) {
        let job = self.pending.get_mut(index);
        (job.waits[side.at()], job.asked[side.at()]) = (true, true);
        // A read that the other side took long to fail is new here.
        job.since_ns = now_ns;
        let (op, whom) = (DeviceOp { token: u64::from(index), ..job.op }, job.whom);
        self.reads[side.at()] += u32::from(op.kind == OpKind::Read);
        self.submit_to(side, now_ns, whom, op);
    }

    /// Where a read goes first: to the side that has fewer in hand, so that one that hangs has no more than half of the buffers. What
    /// is asked for again goes to the other side.
    fn first_side(&mut self, offset: u64) -> Side {
        let [disk, mirror] = Side::BOTH.map(|side| self.state.in_service(side));
        if !(disk && mirror) {
            return if disk { Side::Disk } else { Side::Mirror };
        }
        if self.state.is_opening() {
            return Side::Disk;
        }
        let [disk, mirror] = self.reads;
        let idler = if mirror < disk { Side::Mirror } else { Side::Disk };
        let place = &mut self.remembered[(offset / 512) as usize % REMEMBERED];
        *place = (offset, if place.0 == offset { place.1.other() } else { idler });
        place.1
    }

    /// Where a read goes that failed. A side that is out has what it had; whoever reads knows the checksum. At a start nobody does.
    fn next_side(&self, asked: [bool; 2]) -> Option<Side> {
        let may = |side: &Side| self.state.in_service(*side) || !self.state.is_opening();
        Side::BOTH.into_iter().filter(|side| !asked[side.at()]).find(may)
    }

    fn ended_on(&mut self, now_ns: u64, side: Side, done: DeviceDone) {
        let index = done.token as u32;
        let job = self.pending.get_mut(index);
        job.waits[side.at()] = false;
        let (kind, asked) = (job.op.kind, job.asked);
        match done.result {
            Ok(()) => job.has[side.at()] = true,
            Err(error) => job.error = error,
        }
        if kind == OpKind::Read {
            self.reads[side.at()] -= 1;
            return match (done.result, self.next_side(asked)) {
                (Err(_), Some(other)) => self.order(now_ns, index, other),
                (result, _) => self.end(index, result),
            };
        }
        if done.result.is_err() {
            self.state.failed(now_ns, side);
        }
        if !self.settle(index) {
            self.held.push(index);
        }
    }

    /// Ends a change or a flush, if it may end: every side that counts has it, or one that cannot be done without does not.
    fn settle(&mut self, index: u32) -> bool {
        let job = self.pending.get_mut(index);
        if job.waits.contains(&true) {
            // Whichever ends last asks again.
            return true;
        }
        let (has, error) = (job.has, job.error);
        let lacks = |side: &Side| !has[side.at()];
        if Side::BOTH.iter().filter(|side| self.state.in_service(**side)).any(lacks) {
            self.end(index, Err(error));
        } else if Side::BOTH.iter().filter(|side| self.state.counts(**side)).any(lacks) {
            return false;
        } else {
            self.end(index, Ok(()));
        }
        true
    }

    fn end(&mut self, index: u32, result: Result<(), IoError>) {
        let job = self.pending.remove(index);
        self.in_hand -= 1;
        self.ended.push(DeviceDone { token: job.op.token, result });
    }

    /// A side that does not answer is out.
    fn look_for_silence(&mut self, now_ns: u64) {
        if self.in_hand == 0 || now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns + LOOK_NS;
        let mut silent = [false; 2];
        for job in self.pending.iter_mut().filter(|job| now_ns.saturating_sub(job.since_ns) >= PATIENCE_NS) {
            Side::BOTH.iter().for_each(|side| silent[side.at()] |= job.waits[side.at()]);
        }
        // Where both are, it is not one of them.
        if silent != [true; 2] {
            let silent = Side::BOTH.into_iter().filter(|side| silent[side.at()]);
            silent.for_each(|side| self.state.failed(now_ns, side));
        }
    }

    fn settle_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        for index in held {
            if !self.settle(index) {
                self.held.push(index);
            }
        }
    }
}

impl Device for Mirrored {
    fn geometry(&self) -> Geometry {
        let [disk, mirror] = [0, 1].map(|at| self.sides[at].device.geometry());
        Geometry {
            bytes: self.bytes,
            sector_bytes: disk.sector_bytes.max(mirror.sector_bytes),
            read_only: disk.read_only || mirror.read_only,
            can_trim: disk.can_trim && mirror.can_trim,
            can_zero: disk.can_zero && mirror.can_zero,
            range_bytes_max: disk.range_bytes_max.min(mirror.range_bytes_max),
        }
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.submit_for(now_ns, ForWhom::CLIENT, op);
    }

    fn submit_for(&mut self, now_ns: u64, whom: ForWhom, op: DeviceOp) {
        if let Err(error) = check(&self.geometry(), &op) {
            return self.ended.push(DeviceDone { token: op.token, result: Err(error) });
        }
        let [waits, has, asked] = [[false; 2]; 3];
        let job = Job { op, whom, waits, has, asked, error: IoError::Failed, since_ns: now_ns };
        let index = match self.pending.insert(job) {
            Ok(index) => index,
            Err(job) => return self.ended.push(DeviceDone { token: job.op.token, result: Err(IoError::Failed) }),
        };
        if self.in_hand == 0 {
            self.look_ns = now_ns + LOOK_NS;
        }
        self.in_hand += 1;
        if op.kind == OpKind::Read {
            let side = self.first_side(op.offset);
            return self.order(now_ns, index, side);
        }
        let in_service = Side::BOTH.map(|side| self.state.in_service(side));
        for side in Side::BOTH.into_iter().filter(|side| in_service[side.at()]) {
            self.order(now_ns, index, side);
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let mut below = std::mem::take(&mut self.ended_below);
        for side in Side::BOTH {
            self.sides[side.at()].device.poll(now_ns, &mut below);
            for ended in below.drain(..) {
                self.ended_on(now_ns, side, ended);
            }
        }
        self.ended_below = below;
        self.look_for_silence(now_ns);
        self.state.poll(now_ns);
        self.settle_held();
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(0);
        }
        // Another log may have seen what is held come free.
        let is_free =
            !self.held.is_empty() && Side::BOTH.iter().all(|s| self.state.in_service(*s) == self.state.counts(*s));
        let held_ns = is_free.then_some(0);
        let below = Side::BOTH.into_iter().filter_map(|side| self.sides[side.at()].device.next_ns());
        let look_ns = (self.in_hand > 0).then_some(self.look_ns);
        below.chain(self.state.next_ns()).chain(held_ns).chain(look_ns).min()
    }

    fn has_copies(&self) -> bool {
        Side::BOTH.into_iter().all(|side| self.state.in_service(side))
    }
}
