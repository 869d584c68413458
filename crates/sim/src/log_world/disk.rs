//! A disk of such a world: the log's, or the back end.
//!
//! An operation takes effect when it ends, after a latency of its own. What was in flight when the process dies is done
//! sector by sector, or not. Faults are errors (after a part was done), slowness, a flush that fails and drops what it
//! was to cover, a back end that restarts without what it had not flushed; and, read from the log, bytes with a flipped
//! bit or older ones. A disk that lost what it had acknowledged says so: its next flush fails.
//!
//! Like [`crate::model_device`] it watches its caller: it holds the frames of what is under way.

use super::Ledger;
use super::bug::Bug;
use super::clients::Clients;
use super::met::Count;
use crate::content::{SECTOR_BYTES, value_in};
use crate::dice::Dice;
use crate::medium::{Keep, Medium};
use crate::model_device::{hold_of, print_of};
use crate::span::{each_part, place};
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Geometry, IoError, OpKind};
use forebay_uring::{Arena, Hold};
use forebay_wire::disk::log_tail::TAILS_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Tails, then the ring.
    Log,
    /// The volume.
    Backend,
}

/// How a disk behaves. Chances are of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// Latencies are up to this.
    pub latency_ns: u64,
    /// Operations that take up to half a second more.
    pub slow: u32,
    /// Operations that fail, by kind.
    pub read_errors: u32,
    /// See `read_errors`.
    pub write_errors: u32,
    /// See `read_errors`.
    pub flush_errors: u32,
    /// Operations at which the disk restarts.
    pub restarts: u32,
    /// Reads with a flipped bit.
    pub rot: u32,
    /// Reads of older bytes.
    pub stale: u32,
}

impl Conduct {
    /// No faults.
    #[must_use]
    pub fn sound(latency_ns: u64) -> Self {
        Self { latency_ns, slow: 0, read_errors: 0, write_errors: 0, flush_errors: 0, restarts: 0, rot: 0, stale: 0 }
    }
}

/// Where the next crash is to be: at the n-th of a kind.
#[derive(Debug, Default)]
pub struct Fuse {
    armed: Cell<Option<(usize, u64)>>,
    /// The log is being opened.
    pub opening: Cell<bool>,
}

impl Fuse {
    /// Crashes at the n-th from now.
    pub fn arm(&self, what: Count, nth: u64) {
        self.armed.set(Some((what as usize, nth)));
    }

    /// Does not.
    pub fn disarm(&self) {
        self.armed.set(None);
    }

    fn meet(&self, ledger: &Ledger, what: Count) {
        match self.armed.get() {
            Some((armed, 0)) if armed == what as usize && !ledger.is_cut() => {
                self.disarm();
                ledger.cut_after(0);
            }
            Some((armed, nth)) if armed == what as usize && nth > 0 => self.armed.set(Some((armed, nth - 1))),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    /// Done up to this many sectors, then failed.
    Fails(u64),
    /// A flush that fails, and drops what is not durable.
    Drops,
}

#[derive(Debug)]
struct Flying {
    op: DeviceOp,
    fate: Fate,
    /// Of a write's bytes when it was submitted.
    print: u64,
    hold: Option<Hold>,
    /// For a flush: what it covers.
    mark: u64,
}

/// What outlives the process.
pub struct Disk {
    /// Which.
    pub side: Side,
    /// The bytes.
    pub medium: Rc<RefCell<Medium>>,
    /// How it behaves from now on.
    pub conduct: Cell<Conduct>,
    /// It has lost what it had acknowledged, and its next flush says so.
    pub owes: Cell<bool>,
    /// The same, for who asks whether it ever happened.
    pub dropped: Cell<bool>,
    /// By the time of their end, and a number that keeps those apart.
    flying: RefCell<BTreeMap<(u64, u64), Flying>>,
    /// Where the last group lies.
    group: Cell<u64>,
}

impl Disk {
    /// Zeroes.
    #[must_use]
    pub fn new(side: Side, bytes: u64, latency_ns: u64) -> Rc<Self> {
        Rc::new(Self {
            side,
            medium: Rc::new(RefCell::new(Medium::new(bytes))),
            conduct: Cell::new(Conduct::sound(latency_ns)),
            owes: Cell::new(false),
            dropped: Cell::new(false),
            flying: RefCell::default(),
            group: Cell::new(0),
        })
    }

    /// Each value that each sector may be left with, whatever is lost of what is not durable and done of what is in flight.
    pub fn each_possible(&self, arena: &Arena, mut found: impl FnMut(u64, Option<u64>)) {
        let medium = self.medium.borrow();
        for (nth, bytes) in medium.durable().chunks_exact(SECTOR_BYTES).enumerate() {
            found(nth as u64, value_in(bytes));
        }
        medium.each_unflushed(|sector, bytes| found(sector, value_in(bytes)));
        for flying in self.flying.borrow().values() {
            let op = &flying.op;
            for nth in 0..op.length / SECTOR {
                let sector = op.offset / SECTOR + nth;
                match op.kind {
                    OpKind::Write { .. } => found(sector, arena_value(arena, op, nth)),
                    OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => found(sector, Some(0)),
                    OpKind::Read | OpKind::Flush => {}
                }
            }
        }
    }

    /// Power is lost, and nothing is in flight. How many sectors are gone.
    pub fn lose_power(&self, ledger: &Ledger, dice: &mut Dice) {
        let keep = Keep::draw(dice);
        let gone = self.medium.borrow_mut().lose(keep, dice);
        ledger.add(Count::FaultForgotten, gone);
        ledger.mix(gone);
    }
}

/// Whether an operation's bytes lie with the client: then they do not come from the log.
pub fn is_clients(op: &DeviceOp) -> bool {
    op.frame.0 < Clients::FRAMES
}

/// The value in a sector of an operation's frames.
pub fn arena_value(arena: &Arena, op: &DeviceOp, nth: u64) -> Option<u64> {
    let (frame, at) = place(arena, op, nth * SECTOR);
    arena.with_bytes(frame, at, SECTOR_BYTES as u32, value_in)
}

/// The device of one life over a disk.
pub struct DiskDevice {
    disk: Rc<Disk>,
    arena: Rc<Arena>,
    ledger: Ledger,
    fuse: Rc<Fuse>,
    dice: Dice,
    submitted: u64,
    buffer: Vec<u8>,
    /// Operations that the process still asks for while its crash is under way, as it opens the log.
    refused: Vec<u64>,
}

impl DiskDevice {
    /// A device.
    #[must_use]
    pub fn new(disk: Rc<Disk>, arena: Rc<Arena>, ledger: Ledger, fuse: Rc<Fuse>, dice: Dice) -> Self {
        Self { disk, arena, ledger, fuse, dice, submitted: 0, buffer: Vec::new(), refused: Vec::new() }
    }

    fn met(&self, op: &DeviceOp, ended: bool) {
        use Count::*;
        let tail = op.offset < TAILS_BYTES as u64;
        let pair = match (self.disk.side, op.kind, self.fuse.opening.get()) {
            (Side::Log, OpKind::Read, true) => [ScanBegun, ScanEnded],
            (Side::Log, OpKind::Flush, true) => [OpenFlushBegun, OpenFlushEnded],
            (Side::Log, _, true) => [OpenTailBegun, OpenTailEnded],
            (Side::Backend, _, true) => [OpenBackendBegun, OpenBackendEnded],
            (Side::Log, OpKind::Read, false) => [LogReadBegun, LogReadEnded],
            (Side::Log, OpKind::Flush, false) => [LogFlushBegun, LogFlushEnded],
            (Side::Log, _, false) if tail => [TailBegun, TailEnded],
            (Side::Log, _, false) => [GroupBegun, GroupEnded],
            (Side::Backend, OpKind::Read, false) => [BackendReadBegun, BackendReadEnded],
            (Side::Backend, OpKind::Flush, false) => [BackendFlushBegun, BackendFlushEnded],
            (Side::Backend, OpKind::Write { .. }, false) if is_clients(op) => [BypassBegun, BypassEnded],
            (Side::Backend, OpKind::Write { .. }, false) => [RunBegun, RunEnded],
            (Side::Backend, _, false) => [RunZeroBegun, RunZeroEnded],
        };
        let what = pair[usize::from(ended)];
        if what == GroupBegun && self.disk.group.replace(op.offset) > op.offset {
            self.ledger.add(StateWrapped, 1);
        }
        self.ledger.count(what, op.offset, op.length);
        self.fuse.meet(&self.ledger, what);
    }

    fn fate(&mut self, op: &DeviceOp) -> (u64, Fate) {
        let conduct = self.disk.conduct.get();
        let is_log = self.disk.side == Side::Log;
        let fault = |log: Count, backend: Count| {
            self.ledger.count(if is_log { log } else { backend }, op.offset, op.length);
        };
        let mut delay_ns = 1 + self.dice.duration_ns(conduct.latency_ns);
        if self.dice.chance(conduct.slow) {
            fault(Count::FaultLogSlow, Count::FaultBackendSlow);
            delay_ns += self.dice.duration_ns(500_000_000);
        }
        let fate = match op.kind {
            OpKind::Flush if self.dice.chance(conduct.flush_errors) => {
                fault(Count::FaultLogFlush, Count::FaultBackendFlush);
                if self.dice.chance(500) { Fate::Drops } else { Fate::Fails(0) }
            }
            OpKind::Read if self.dice.chance(conduct.read_errors) => {
                fault(Count::FaultLogRead, Count::FaultBackendRead);
                Fate::Fails(0)
            }
            OpKind::Flush | OpKind::Read => Fate::Well,
            _ if self.dice.chance(conduct.write_errors) => {
                fault(Count::FaultLogWrite, Count::FaultBackendWrite);
                Fate::Fails(self.dice.below(op.length / SECTOR + 1))
            }
            _ => Fate::Well,
        };
        (delay_ns, fate)
    }

    /// It goes down and comes up without what was not durable.
    fn restart(&mut self) {
        self.ledger.count(Count::FaultRestart, 0, 0);
        self.tear(true);
        let keep = Keep::Some(self.dice.pick(&[0, 500, 900]));
        self.drop_unflushed(keep);
        self.disk.flying.borrow_mut().values_mut().for_each(|flying| flying.fate = Fate::Fails(0));
    }

    fn drop_unflushed(&mut self, keep: Keep) {
        let gone = self.disk.medium.borrow_mut().lose(keep, &mut self.dice);
        self.ledger.add(Count::FaultForgotten, gone);
        self.ledger.mix(gone);
        self.disk.dropped.set(true);
        self.disk.owes.set(!self.ledger.has(Bug::LossHidden) || self.disk.side == Side::Log);
    }

    fn end(&mut self, flying: &Flying) -> Result<(), IoError> {
        let op = &flying.op;
        match flying.fate {
            Fate::Well if op.kind == OpKind::Flush && self.disk.owes.take() => Err(IoError::Failed),
            Fate::Well => {
                self.perform(op, flying.mark);
                Ok(())
            }
            Fate::Fails(sectors) => {
                if op.kind != OpKind::Flush && op.kind != OpKind::Read {
                    self.perform(&DeviceOp { length: sectors * SECTOR, ..*op }, flying.mark);
                }
                Err(IoError::Failed)
            }
            Fate::Drops => {
                self.ledger.count(Count::FaultDropped, 0, 0);
                self.drop_unflushed(Keep::Some(500));
                self.disk.owes.set(false);
                let hides = self.ledger.has(Bug::LossHidden) && self.disk.side == Side::Backend;
                if hides { Ok(()) } else { Err(IoError::Failed) }
            }
        }
    }

    fn perform(&mut self, op: &DeviceOp, mark: u64) {
        let mut medium = self.disk.medium.borrow_mut();
        let fua = match op.kind {
            OpKind::Flush => return medium.flush(mark),
            _ if op.length == 0 => return,
            OpKind::Read => {
                drop(medium);
                return self.read(op);
            }
            OpKind::Write { fua } => {
                self.buffer.resize(op.length as usize, 0);
                each_part(&self.arena, op, |frame, at, bytes| {
                    self.arena.copy_out(frame, at, &mut self.buffer[bytes]);
                });
                medium.write(op.offset, &self.buffer);
                fua
            }
            OpKind::Trim { fua } | OpKind::WriteZeroes { fua, .. } => {
                medium.zero(op.offset, op.length);
                fua
            }
        };
        if fua {
            medium.settle(op.offset, op.length);
        }
    }

    fn read(&mut self, op: &DeviceOp) {
        let conduct = self.disk.conduct.get();
        // A scan believes that what is damaged was never whole.
        let serves = !self.fuse.opening.get();
        let medium = self.disk.medium.borrow();
        let range = op.offset as usize..(op.offset + op.length) as usize;
        let is_stale = serves && self.dice.chance(conduct.stale);
        let bytes = if is_stale { &medium.durable()[range.clone()] } else { &medium.current()[range.clone()] };
        if is_stale && bytes != &medium.current()[range] {
            self.ledger.count(Count::FaultStale, op.offset, op.length);
        }
        each_part(&self.arena, op, |frame, at, part| self.arena.copy_in(frame, at, &bytes[part]));
        if serves && self.dice.chance(conduct.rot) {
            let (frame, at) = place(&self.arena, op, self.dice.below(op.length));
            let bit = self.dice.below(8);
            self.arena.with_bytes_mut(frame, at, 1, |byte| byte[0] ^= 1 << bit);
            self.ledger.count(Count::FaultRot, op.offset, bit);
        }
    }

    /// Of what is in flight, each sector is done or not. `stays`: it is still in flight, for whoever asked.
    fn tear(&mut self, stays: bool) {
        let all = std::mem::take(&mut *self.disk.flying.borrow_mut());
        for (key, mut flying) in all {
            let op = flying.op;
            let writes = !matches!(op.kind, OpKind::Read | OpKind::Flush);
            if writes && flying.fate == Fate::Well {
                let permille = self.dice.pick(&[0, 500, 1000]);
                for nth in 0..op.length / SECTOR {
                    if self.dice.chance(permille) {
                        let (frame, at) = place(&self.arena, &op, nth * SECTOR);
                        let offset = op.offset + nth * SECTOR;
                        let frame = forebay_engine::device::FrameId(frame);
                        self.perform(&DeviceOp { offset, length: SECTOR, frame, at, ..op }, flying.mark);
                    }
                }
                if permille == 500 {
                    self.ledger.count(Count::FaultTorn, op.offset, op.length);
                }
            }
            if stays {
                self.disk.flying.borrow_mut().insert(key, flying);
            } else if let Some(hold) = flying.hold.take() {
                self.arena.release(hold);
            }
        }
    }
}

impl Drop for DiskDevice {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.tear(false);
        }
    }
}

impl Device for DiskDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.disk.medium.borrow().bytes(),
            sector_bytes: 512,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: 1 << 20,
        }
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        if op.kind != OpKind::Flush {
            let inside = op.offset + op.length <= self.geometry().bytes;
            let aligned = op.offset.is_multiple_of(SECTOR) && op.length.is_multiple_of(SECTOR) && op.length > 0;
            assert!(inside && aligned, "an order that the disk cannot take: {op:?}");
        }
        if !self.ledger.io() {
            return self.refused.push(op.token);
        }
        let (delay_ns, fate) = self.fate(&op);
        let print = match op.kind {
            OpKind::Write { .. } => self.print(&op),
            _ => 0,
        };
        let hold = hold_of(&self.arena, &op);
        let mark = self.disk.medium.borrow().mark();
        self.submitted += 1;
        let flying = Flying { op, fate, print, hold, mark };
        self.disk.flying.borrow_mut().insert((now_ns + delay_ns, self.submitted), flying);
        self.met(&op, false);
        if !self.fuse.opening.get() && self.dice.chance(self.disk.conduct.get().restarts) && !self.ledger.is_cut() {
            self.restart();
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let is_due =
            |disk: &Disk| disk.flying.borrow().first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns);
        while is_due(&self.disk) && self.ledger.io() {
            let entry = self.disk.flying.borrow_mut().pop_first();
            let (_, mut flying) = entry.expect("it is due");
            let op = flying.op;
            if let Some(hold) = flying.hold.take() {
                self.arena.release(hold);
            }
            if matches!(op.kind, OpKind::Write { .. }) {
                assert_eq!(self.print(&op), flying.print, "bytes changed while they were written: {op:?}");
            }
            let result = self.end(&flying);
            done.push(DeviceDone { token: op.token, result });
            self.met(&op, true);
        }
        if self.fuse.opening.get() && self.ledger.is_cut() {
            // Opening blocks; so it is told, and what was in flight is torn all the same.
            let flying = self.disk.flying.borrow();
            let tokens = self.refused.drain(..).chain(flying.values().map(|flying| flying.op.token));
            done.extend(tokens.map(|token| DeviceDone { token, result: Err(IoError::Failed) }));
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.disk.flying.borrow().first_key_value().map(|((at_ns, _), _)| *at_ns)
    }
}

impl DiskDevice {
    /// A fingerprint of a write's bytes.
    fn print(&self, op: &DeviceOp) -> u64 {
        let mut print = 0u64;
        each_part(&self.arena, op, |frame, at, bytes| {
            print = print.rotate_left(1) ^ print_of(&self.arena, frame, at, bytes.len() as u32);
        });
        print
    }
}
