//! A mirror by itself, and under a write-back log: either side is lost, fails, comes back, and both lose their power with
//! different parts of what was not flushed.

mod crashes;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use forebay_policy::rng::Rng;
use forebay_uring::Arena;

use super::*;
use crate::device::{FrameId, carry_out};
use crate::devices::conformance::{Plan, conform};
use crate::devices::memory::Memory;
use crate::reactor::Reactor;

const SECTOR: usize = 512;

/// Time, and after how many waits whoever waits is interrupted.
struct Clock(u64, u32);

/// What interrupts.
struct Interrupted;

impl Reactor for Clock {
    fn now_ns(&self) -> u64 {
        self.0
    }
    fn wait(&mut self, until_ns: u64) {
        self.0 = self.0.max(until_ns).max(self.0 + 1_000);
        self.1 = self.1.saturating_sub(1);
        if self.1 == 0 {
            std::panic::resume_unwind(Box::new(Interrupted));
        }
    }
}

struct Platter {
    arena: Rc<Arena>,
    /// What is read now, and what a loss of power leaves for certain.
    now: Vec<u8>,
    durable: Vec<u8>,
    unflushed: BTreeSet<usize>,
    under_way: Vec<(u64, DeviceOp)>,
    rng: Rng,
    /// Operations begun.
    begun: u64,
    /// From this one on all changes fail, or everything.
    dies_at: u64,
    dies_whole: bool,
    /// Nothing ends.
    hangs: bool,
}

/// A disk with a volatile cache, whose operations take their time; it outlives who uses it.
#[derive(Clone)]
struct Disk(Rc<RefCell<Platter>>);

impl Disk {
    fn new(arena: &Rc<Arena>, bytes: usize, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Platter {
            arena: Rc::clone(arena),
            now: vec![0; bytes],
            durable: vec![0; bytes],
            unflushed: BTreeSet::new(),
            under_way: Vec::new(),
            rng: Rng::new(seed),
            begun: 0,
            dies_at: u64::MAX,
            dies_whole: false,
            hangs: false,
        })))
    }

    fn begun(&self) -> u64 {
        self.0.borrow().begun
    }

    fn dies_at(&self, at: u64, whole: bool) {
        let platter = &mut *self.0.borrow_mut();
        (platter.dies_at, platter.dies_whole) = (at, whole);
    }

    /// The same, as it is now.
    fn copied(&self) -> Self {
        let platter = self.0.borrow();
        let copy = Self::new(&platter.arena, platter.now.len(), 0);
        copy.0.borrow_mut().now.clone_from(&platter.now);
        copy.0.borrow_mut().durable.clone_from(&platter.now);
        copy
    }

    /// Whoever used it is gone. What was under way was done, or not; without power, by sectors, as what was not flushed.
    fn crash(&self, power: bool) {
        let platter = &mut *self.0.borrow_mut();
        (platter.dies_at, platter.dies_whole) = (u64::MAX, false);
        // Of 16 sectors.
        let keeps = [1, 8, 15][platter.rng.below(3) as usize];
        for (_, op) in std::mem::take(&mut platter.under_way) {
            let begin = op.offset as usize;
            let is_done = platter.rng.below(2) == 0;
            if !matches!(op.kind, OpKind::Write { .. }) {
                continue;
            }
            let bytes = platter.bytes_of(&op);
            for (nth, sector) in bytes.chunks(SECTOR).enumerate() {
                let at = begin + nth * SECTOR;
                let is_kept = if power { platter.rng.below(16) < keeps } else { is_done };
                if is_kept {
                    platter.now[at..at + SECTOR].copy_from_slice(sector);
                    platter.unflushed.insert(at / SECTOR);
                }
            }
        }
        if !power {
            return;
        }
        for sector in std::mem::take(&mut platter.unflushed) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            if platter.rng.below(16) < keeps {
                let (now, durable) = (&platter.now, &mut platter.durable);
                durable[range.clone()].copy_from_slice(&now[range]);
            }
        }
        platter.now.clone_from(&platter.durable);
    }
}

impl Platter {
    fn bytes_of(&self, op: &DeviceOp) -> Vec<u8> {
        let mut bytes = vec![0; op.length as usize];
        self.parts(op, |frame, at, range| self.arena.copy_out(frame, at, &mut bytes[range]));
        bytes
    }

    fn parts(&self, op: &DeviceOp, mut part: impl FnMut(u32, u32, std::ops::Range<usize>)) {
        let frame_bytes = self.arena.frame_bytes();
        let (mut frame, mut at, mut done) = (op.frame.0 + op.at / frame_bytes, op.at % frame_bytes, 0);
        while done < op.length as usize {
            let length = ((frame_bytes - at) as usize).min(op.length as usize - done);
            part(frame, at, done..done + length);
            (frame, at, done) = (frame + 1, 0, done + length);
        }
    }

    fn perform(&mut self, nth: u64, op: &DeviceOp) -> Result<(), IoError> {
        if nth >= self.dies_at && (self.dies_whole || op.kind != OpKind::Read) {
            return Err(IoError::Failed);
        }
        let range = op.offset as usize..(op.offset + op.length) as usize;
        match op.kind {
            OpKind::Read => self.parts(op, |frame, at, part| {
                self.arena.copy_in(frame, at, &self.now[range.start + part.start..range.start + part.end]);
            }),
            OpKind::Write { fua } => {
                let bytes = self.bytes_of(op);
                self.now[range.clone()].copy_from_slice(&bytes);
                self.unflushed.extend(range.start / SECTOR..range.end / SECTOR);
                if fua {
                    self.durable[range.clone()].copy_from_slice(&bytes);
                    self.unflushed.retain(|sector| !(range.start / SECTOR..range.end / SECTOR).contains(sector));
                }
            }
            OpKind::Flush => {
                self.durable.clone_from(&self.now);
                self.unflushed.clear();
            }
            OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                self.now[range.clone()].fill(0);
                self.durable[range].fill(0);
            }
        }
        Ok(())
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        let bytes = self.0.borrow().now.len() as u64;
        let (can_trim, can_zero) = (true, true);
        Geometry { bytes, sector_bytes: 512, read_only: false, can_trim, can_zero, range_bytes_max: 1 << 20 }
    }
    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        let platter = &mut *self.0.borrow_mut();
        let nth = platter.begun;
        platter.begun += 1;
        platter.under_way.push((nth, op));
    }
    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        let platter = &mut *self.0.borrow_mut();
        let mut at = 0;
        while !platter.hangs && at < platter.under_way.len() {
            // A flush covers what was answered before; it may end before what came with it.
            if platter.rng.below(3) == 0 {
                let (nth, op) = platter.under_way.swap_remove(at);
                let result = platter.perform(nth, &op);
                done.push(DeviceDone { token: op.token, result });
            } else {
                at += 1;
            }
        }
    }
    fn next_ns(&self) -> Option<u64> {
        let platter = self.0.borrow();
        (!platter.hangs && !platter.under_way.is_empty()).then_some(0)
    }
}

#[derive(Default)]
struct Cupboard {
    kept: Option<Counting>,
    writing: Option<Counting>,
    /// Polls until the write ends.
    left: u32,
    slow: u32,
    fails: u32,
}

/// What counts, in memory that outlives who uses it.
#[derive(Clone, Default)]
struct Kept(Rc<RefCell<Cupboard>>);

impl Kept {
    fn known(&self) -> Option<Counting> {
        self.0.borrow().kept
    }

    fn set(&self, counting: Counting) {
        self.0.borrow_mut().kept = Some(counting);
    }

    fn crash(&self, rng: &mut Rng) {
        let cell = &mut *self.0.borrow_mut();
        if let Some(counting) = cell.writing.take()
            && rng.below(2) == 0
        {
            cell.kept = Some(counting);
        }
    }
}

impl CountingStore for Kept {
    fn begin(&mut self, counting: Counting) {
        let cell = &mut *self.0.borrow_mut();
        assert!(cell.writing.replace(counting).is_none(), "one write at a time");
        cell.left = cell.slow;
    }
    fn poll(&mut self) -> Option<Result<(), IoError>> {
        let cell = &mut *self.0.borrow_mut();
        cell.writing?;
        if cell.left > 0 {
            cell.left -= 1;
            return None;
        }
        let written = cell.writing.take();
        if cell.fails > 0 {
            cell.fails -= 1;
            return Some(Err(IoError::Failed));
        }
        cell.kept = written;
        Some(Ok(()))
    }
    fn next_ns(&self) -> Option<u64> {
        self.0.borrow().writing.map(|_| 0)
    }
}

const BYTES: u64 = 1 << 20;
const BASES: [u64; 2] = [8192, 1 << 20];
const BOTH: Counting = Counting { cache_id: [1; 16], sides: [Some(5), Some(6)] };

struct Rig {
    arena: Rc<Arena>,
    disks: [Disk; 2],
    kept: Kept,
    state: Sides,
}

fn rig(counting: Counting) -> (Rig, Mirrored) {
    let arena = Rc::new(Arena::new(32, 65536).unwrap());
    let disks = [0, 1].map(|at| Disk::new(&arena, (BASES[at] + BYTES) as usize, at as u64));
    let kept = Kept::default();
    kept.set(counting);
    let state = Sides::new(counting, Box::new(kept.clone()));
    let mirrored = over(&state, &disks);
    (Rig { arena, disks, kept, state }, mirrored)
}

fn over(state: &Sides, disks: &[Disk; 2]) -> Mirrored {
    let part = |at: usize| SidePart { device: Box::new(disks[at].clone()), offset: BASES[at] };
    Mirrored::new(state, [part(0), part(1)], BYTES)
}

fn op(kind: OpKind, offset: u64, length: u64) -> DeviceOp {
    DeviceOp { token: 3, kind, offset, length, frame: FrameId(0), at: (offset % 4096) as u32 }
}

impl Rig {
    fn of_log(&self, side: Side) -> Vec<u8> {
        let base = BASES[side.at()] as usize;
        self.disks[side.at()].0.borrow().now[base..base + BYTES as usize].to_vec()
    }
}

#[test]
fn it_is_a_device_like_any_other_with_both_sides_or_one() {
    for (seed, sides) in (0..).zip([[Some(5), Some(6)], [Some(5), None], [None, Some(6)]]) {
        for opened in [false, true] {
            let (rig, mut mirrored) = rig(Counting { sides, ..BOTH });
            if opened {
                rig.state.opened();
            }
            conform(&mut mirrored, &mut Clock(0, u32::MAX), &rig.arena, Plan { seed, operations: 1_500, depth: 8 });
            for side in Side::BOTH {
                let untouched = rig.disks[side.at()].begun() == 0;
                assert_eq!(untouched, sides[side.at()].is_none(), "{side:?} of {sides:?}");
            }
            if sides == BOTH.sides {
                assert!(rig.of_log(Side::Disk) == rig.of_log(Side::Mirror), "both have everything");
            }
        }
    }
}

#[test]
fn whichever_change_fails_on_a_side_it_goes_out_durably_before_the_answer() {
    for (side, whole) in [(Side::Disk, false), (Side::Disk, true), (Side::Mirror, false), (Side::Mirror, true)] {
        for nth in 0..24 {
            let (rig, mut mirrored) = rig(BOTH);
            rig.state.opened();
            rig.kept.0.borrow_mut().slow = 5;
            rig.disks[side.at()].dies_at(nth, whole);
            let mut clock = Clock(0, u32::MAX);
            for round in 0..24u64 {
                let kind = if round % 6 == 5 { OpKind::Flush } else { OpKind::Write { fua: round % 5 == 1 } };
                let length = if kind == OpKind::Flush { 0 } else { 4096 };
                rig.arena.copy_in(0, 0, &[round as u8 + 1; 4096]);
                let change = op(kind, if length == 0 { 0 } else { round * 4096 }, length);
                assert_eq!(carry_out(&mut mirrored, &mut clock, change), Ok(()), "{side:?} fails at {nth}");
                let sides = rig.kept.known().unwrap().sides;
                let is_out = round >= nth;
                assert_eq!(sides[side.at()].is_none(), is_out, "{side:?} fails at {nth}, {round}");
                assert!(sides[side.other().at()].is_some());
            }
            let health = if side == Side::Disk { MirrorHealth::MirrorOnly } else { MirrorHealth::DiskOnly };
            assert_eq!(rig.state.status().get(), health);
            for round in (0..24u64).filter(|round| round % 6 != 5) {
                assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Read, round * 4096, 4096)), Ok(()));
                let mut bytes = [0; 4096];
                rig.arena.copy_out(0, 0, &mut bytes);
                assert!(bytes == [round as u8 + 1; 4096], "{side:?} failed at {nth}: {round}");
            }
        }
    }
}

#[test]
fn while_it_cannot_be_said_that_a_side_is_out_nothing_is_answered_that_it_lacks() {
    let (rig, mut mirrored) = rig(BOTH);
    rig.kept.0.borrow_mut().fails = 3;
    rig.disks[0].dies_at(0, false);
    let mut clock = Clock(0, u32::MAX);
    let begin = clock.0;
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Write { fua: false }, 0, 4096)), Ok(()));
    assert!(clock.0 - begin >= 3_000_000_000, "three attempts failed, a second apart");
    assert_eq!(rig.kept.known().unwrap().sides, [None, Some(6)]);
}

#[test]
fn what_fails_on_the_last_side_fails_and_that_side_counts_still() {
    let (rig, mut mirrored) = rig(BOTH);
    let mut clock = Clock(0, u32::MAX);
    rig.disks[0].dies_at(0, true);
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Write { fua: false }, 0, 4096)), Ok(()));
    rig.disks[1].dies_at(0, false);
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Write { fua: false }, 0, 4096)), Err(IoError::Failed));
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Flush, 0, 0)), Err(IoError::Failed));
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Read, 0, 4096)), Ok(()));
    assert_eq!(rig.kept.known().unwrap().sides, [None, Some(6)]);
}

#[test]
fn a_read_that_fails_is_answered_by_the_other_side_and_one_that_is_repeated_too() {
    let (rig, mut mirrored) = rig(BOTH);
    let mut clock = Clock(0, u32::MAX);
    for (side, byte) in [(0, 1), (1, 2)] {
        rig.disks[side].0.borrow_mut().now.fill(byte);
    }
    let read = |mirrored: &mut Mirrored, clock: &mut Clock, offset| {
        carry_out(mirrored, clock, op(OpKind::Read, offset, 512)).unwrap();
        let mut byte = [0];
        rig.arena.copy_out(0, (offset % 4096) as u32, &mut byte);
        byte[0]
    };
    assert_eq!([0; 3].map(|at| read(&mut mirrored, &mut clock, at)), [1; 3], "one side only while logs are found");
    rig.disks[0].dies_at(0, true);
    assert_eq!(read(&mut mirrored, &mut clock, 0), 2, "but for what fails");
    rig.disks[0].crash(false);
    rig.state.opened();
    assert_eq!([0; 4].map(|at| read(&mut mirrored, &mut clock, at)), [1, 2, 1, 2]);
    assert_eq!([512, 0, 1024].map(|at| read(&mut mirrored, &mut clock, at)), [1; 3]);
    rig.disks[0].dies_at(0, true);
    assert_eq!([2048; 2].map(|at| read(&mut mirrored, &mut clock, at)), [2; 2]);
}

#[test]
fn a_side_that_is_out_is_read_only_by_who_knows_the_checksum() {
    let (rig, mut mirrored) = rig(Counting { sides: [None, Some(6)], ..BOTH });
    rig.disks[1].dies_at(0, true);
    let mut clock = Clock(0, u32::MAX);
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Read, 0, 512)), Err(IoError::Failed));
    assert_eq!(rig.disks[0].begun(), 0);
    rig.state.opened();
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Read, 0, 512)), Ok(()));
    assert_eq!(rig.disks[0].begun(), 1);
}

#[test]
fn a_side_is_filled_whole_or_does_not_count() {
    for side in Side::BOTH {
        for nth in [None, Some(0), Some(1), Some(2)] {
            let mut counting = BOTH;
            counting.sides[side.at()] = None;
            let (rig, mut mirrored) = rig(counting);
            let mut rng = Rng::new(9);
            rig.disks[side.other().at()].0.borrow_mut().now.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
            if let Some(nth) = nth {
                rig.disks[side.at()].dies_at(nth, false);
            }
            let filled = mirrored.fill(side, &mut Clock(0, u32::MAX), &(4..32), 65536);
            assert_eq!(filled.is_ok(), nth.is_none(), "{side:?} {nth:?}");
            if filled.is_err() {
                continue;
            }
            rig.disks[side.at()].crash(true);
            assert!(rig.of_log(Side::Disk) == rig.of_log(Side::Mirror), "{side:?}");
            assert!(!rig.state.in_service(side));
            rig.kept.0.borrow_mut().fails = 1;
            assert_eq!(rig.state.filled(side, 7, &mut Clock(0, u32::MAX)), Err(IoError::Failed));
            assert!(!rig.state.in_service(side));
            rig.state.filled(side, 7, &mut Clock(0, u32::MAX)).unwrap();
            assert_eq!(rig.kept.known().unwrap().sides[side.at()], Some(7));
            assert!(rig.state.in_service(side));
            assert_eq!(rig.state.status().get(), MirrorHealth::Whole);
        }
    }
    // What cannot be read cannot be copied.
    let (rig, mut mirrored) = rig(Counting { sides: [Some(5), None], ..BOTH });
    rig.disks[0].dies_at(1, true);
    let failed = mirrored.fill(Side::Mirror, &mut Clock(0, u32::MAX), &(4..32), 65536);
    assert_eq!(failed, Err(FillError::Read(IoError::Failed)));
}

#[test]
fn a_side_out_for_one_log_is_out_for_all() {
    let (rig, mut one) = rig(BOTH);
    let other_disks = [0, 1].map(|at| Disk::new(&rig.arena, (BASES[at] + BYTES) as usize, 7 + at as u64));
    let mut other = over(&rig.state, &other_disks);
    let mut clock = Clock(0, u32::MAX);
    rig.disks[1].dies_at(0, true);
    assert_eq!(carry_out(&mut one, &mut clock, op(OpKind::Flush, 0, 0)), Ok(()));
    assert_eq!(carry_out(&mut other, &mut clock, op(OpKind::Write { fua: true }, 0, 512)), Ok(()));
    assert_eq!(other_disks[1].begun(), 0);
}

#[test]
fn a_side_that_is_silent_is_out_and_what_it_has_in_hand_ends_when_it_answers() {
    let (rig, mut mirrored) = rig(BOTH);
    rig.state.opened();
    let mut clock = Clock(0, u32::MAX);
    rig.disks[0].0.borrow_mut().hangs = true;
    mirrored.submit(0, DeviceOp { token: 1, ..op(OpKind::Write { fua: true }, 0, 4096) });
    mirrored.submit(0, DeviceOp { token: 2, ..op(OpKind::Read, 8192, 512) });
    let mut done = Vec::new();
    while rig.state.status().get() == MirrorHealth::Whole {
        mirrored.poll(clock.0, &mut done);
        clock.wait(mirrored.next_ns().expect("something is in hand"));
        assert!(clock.0 < 2 * PATIENCE_NS, "no end in sight");
    }
    assert!(done.is_empty() && clock.0 >= PATIENCE_NS);
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Write { fua: true }, 4096, 4096)), Ok(()));
    assert_eq!(carry_out(&mut mirrored, &mut clock, op(OpKind::Read, 4096, 4096)), Ok(()));
    assert_eq!(rig.kept.known().unwrap().sides, [None, Some(6)]);
    rig.disks[0].0.borrow_mut().hangs = false;
    while done.len() < 2 {
        mirrored.poll(clock.0, &mut done);
        clock.wait(clock.0);
    }
    done.sort_by_key(|done| done.token);
    assert_eq!(done, [1, 2].map(|token| DeviceDone { token, result: Ok(()) }));
}

/// A disk may try for seconds before it says that a sector cannot be read. The side that is asked then was not silent so long.
#[test]
fn a_side_is_not_silent_for_the_time_that_the_other_took_to_fail_a_read() {
    let (rig, mut mirrored) = rig(BOTH);
    rig.state.opened();
    let mut done = Vec::new();
    let set = |side: usize, hangs| rig.disks[side].0.borrow_mut().hangs = hangs;
    [0, 1].into_iter().for_each(|side| set(side, true));
    mirrored.submit(0, op(OpKind::Read, 0, 512));
    mirrored.poll(PATIENCE_NS - LOOK_NS / 2, &mut done);
    rig.disks[0].dies_at(0, true);
    set(0, false);
    // All in the time between two looks.
    (0..64).for_each(|_| mirrored.poll(PATIENCE_NS - 1, &mut done));
    mirrored.poll(PATIENCE_NS + LOOK_NS / 2, &mut done);
    assert_eq!((rig.state.status().get(), done.len()), (MirrorHealth::Whole, 0));
    mirrored.poll(2 * PATIENCE_NS, &mut done);
    assert_eq!(rig.state.status().get(), MirrorHealth::DiskOnly, "but for its own");
    set(1, false);
    (0..64).for_each(|_| mirrored.poll(2 * PATIENCE_NS, &mut done));
    assert_eq!(done, [DeviceDone { token: 3, result: Ok(()) }]);
}

/// So that nobody is taken for idle who waits.
#[test]
fn what_is_held_for_another_log_comes_free_without_being_woken() {
    let (rig, mut one) = rig(BOTH);
    let other_disks = [0, 1].map(|at| Disk::new(&rig.arena, (BASES[at] + BYTES) as usize, 7 + at as u64));
    let mut other = over(&rig.state, &other_disks);
    rig.kept.0.borrow_mut().slow = 40;
    other_disks[0].dies_at(0, false);
    rig.disks[0].dies_at(0, false);
    let (mut clock, mut ends) = (Clock(0, u32::MAX), [0; 2]);
    one.submit(0, op(OpKind::Flush, 0, 0));
    other.submit(0, op(OpKind::Flush, 0, 0));
    let mut seen = 0;
    while ends != [1; 2] {
        let mut done = Vec::new();
        one.poll(clock.0, &mut done);
        ends[0] += done.drain(..).count();
        other.poll(clock.0, &mut done);
        ends[1] += done.len();
        let next_ns = [one.next_ns(), other.next_ns()].into_iter().flatten().min();
        assert!(ends == [1; 2] || next_ns.is_some(), "nobody will ask again");
        clock.wait(next_ns.unwrap_or(0));
        seen += 1;
        assert!(seen < 10_000, "no end in sight");
    }
}
