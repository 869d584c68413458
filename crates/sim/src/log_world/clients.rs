//! Clients of a logged device: many requests in flight; those that overlap wait for each other, in order.

use super::Ledger;
use super::bug::Bug;
use super::history::{ChangeId, Found, History};
use super::met::Count;
use crate::content::{SECTOR_BYTES, fill, value_in};
use crate::dice::Dice;
use crate::span::each_part;
use forebay_core::log::Log;
use forebay_core::log::logged::{Durability, LogPolicy};
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Doubt, FrameId, IoError, OpKind};
use forebay_uring::Arena;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// The longest request.
pub const SECTORS_MAX: u64 = 600;
/// Bytes of a frame.
pub const FRAME_BYTES: u32 = 64 << 10;
/// Frames of a request: it begins anywhere in a block.
const FRAMES_EACH: u32 = (SECTORS_MAX as u32 * SECTOR_BYTES as u32 + 4096).div_ceil(FRAME_BYTES);
/// Requests in flight, at most.
const DEPTH_MAX: u32 = 32;
/// Requests that wait for one that they overlap.
const QUEUE_MAX: usize = 8;
/// Sectors of a record of the log; a longer write becomes several.
const RECORD_SECTORS: u64 = 512;
/// What frames hold before a read: no sector's content.
const POISON: u8 = 0xee;

/// What clients do for a while. Chances are of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Requests in flight.
    pub depth: usize,
    reads: u32,
    zeroes: u32,
    flushes: u32,
    fua: u32,
    /// Requests of up to [`SECTORS_MAX`].
    long: u32,
    /// Of others, sectors at most.
    short_max: u64,
    /// Most requests fall into these.
    hot: u64,
    /// Between a request's end and the next, at most.
    think_ns: u64,
}

impl Traffic {
    /// Draws one for a volume of so many sectors.
    #[must_use]
    pub fn draw(dice: &mut Dice, sectors: u64) -> Self {
        Self {
            depth: dice.pick(&[1, 2, 4, 8, 16, 32]),
            reads: dice.pick(&[100, 300, 600]),
            zeroes: dice.pick(&[20, 100, 300]),
            flushes: dice.pick(&[5, 50, 200]),
            fua: dice.pick(&[0, 50, 300]),
            long: dice.pick(&[0, 30, 200]),
            short_max: dice.pick(&[1, 8, 17, 64]),
            hot: dice.pick(&[16, 100, sectors]).min(sectors),
            think_ns: dice.pick(&[0, 0, 100_000, 5_000_000]),
        }
    }
}

#[derive(Clone, Debug)]
struct Request {
    kind: OpKind,
    sectors: Range<u64>,
}

#[derive(Debug)]
struct Flying {
    request: Request,
    op: DeviceOp,
    /// When it was asked for, on the history's clock.
    asked: u64,
    change: Option<ChangeId>,
    /// A read after a start: what it sees is there from now on.
    settles: bool,
}

/// See the module.
pub struct Clients {
    /// What they know of the volume.
    pub history: History,
    /// What they do now; `None`: nothing.
    pub traffic: Option<Traffic>,
    /// Requests that ended.
    pub answered: u64,
    /// Requests that were made.
    pub asked: u64,
    /// Something may fail.
    pub troubled: bool,
    /// What starts found.
    pub found: Found,
    ledger: Ledger,
    arena: Rc<Arena>,
    dice: Dice,
    flying: BTreeMap<u64, Flying>,
    waiting: VecDeque<Request>,
    slots: Vec<u32>,
    /// Nothing is asked before this.
    next_ns: u64,
    token: u64,
    writes: u64,
    /// Records of the log before this are known to the history.
    record: u64,
    /// When something was told as lost that no flush has failed for yet.
    owed: Option<u64>,
    /// What a flush, and a change with FUA, promises to be on the back end; and since when.
    far: [bool; 2],
    far_since: u64,
}

impl Clients {
    /// Frames that they need.
    pub const FRAMES: u32 = DEPTH_MAX * FRAMES_EACH;

    /// Clients of a volume of so many sectors.
    #[must_use]
    pub fn new(sectors: u64, ledger: Ledger, arena: Rc<Arena>, dice: Dice) -> Self {
        Self {
            history: History::new(sectors),
            traffic: None,
            answered: 0,
            asked: 0,
            troubled: false,
            found: Found::default(),
            ledger,
            arena,
            dice,
            flying: BTreeMap::new(),
            waiting: VecDeque::new(),
            slots: (0..DEPTH_MAX).rev().collect(),
            next_ns: 0,
            token: 0,
            writes: 0,
            record: 0,
            owed: None,
            far: [false; 2],
            far_since: 0,
        }
    }

    /// A life begins, with a log that goes on with that record.
    pub fn begin(&mut self, record: u64) {
        self.record = record;
        self.policy(&LogPolicy::default());
    }

    /// The log's policy is this from now on.
    pub fn policy(&mut self, policy: &LogPolicy) {
        self.far = [policy.durability, policy.fua].map(|where_to| where_to == Durability::Backend);
        self.far_since = self.history.asks();
    }

    /// Looks which changes have records now.
    pub fn watch(&mut self, log: &Log) {
        if self.record > log.next() {
            // Of a log that failed, what is not written is as if it had never been in it.
            self.history.forgets(log.next());
            self.record = log.next();
        }
        while self.record < log.next() {
            let range = log.record(self.record).range();
            let has = |flying: &&Flying| {
                let sectors = &flying.request.sectors;
                flying.change.is_some() && sectors.start <= range.start && range.end <= sectors.end
            };
            let change = self.flying.values().find(has).and_then(|flying| flying.change);
            self.history.logs(change.expect("a record is of a change in flight"), range, self.record);
            self.record += 1;
        }
    }

    /// Whether a promise was refused with one of these.
    #[must_use]
    pub fn refused(&self, done: &[DeviceDone]) -> bool {
        let failed = |done: &DeviceDone| {
            let kind = self.flying.get(&done.token).map(|flying| flying.request.kind);
            done.result.is_err() && kind.is_some_and(|kind| kind == OpKind::Flush || is_fua(kind))
        };
        done.iter().any(failed)
    }

    /// Something was told as lost. `refused`: and a promise at the same time.
    pub fn told_lost(&mut self, doubts: &[Doubt], refused: bool) {
        let lost = doubts.iter().filter(|doubt| doubt.is_lost);
        let ranges: Vec<_> = lost.map(|doubt| doubt.range.start / SECTOR..doubt.range.end / SECTOR).collect();
        if ranges.is_empty() {
            return;
        }
        self.ledger.count(Count::StatePassedAndLost, ranges.len() as u64, ranges[0].start);
        ranges.into_iter().for_each(|sectors| self.history.told_lost(sectors));
        if !refused {
            self.owed = Some(self.history.asks());
        }
    }

    /// Nothing is in flight, and nothing waits.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty()
    }

    /// A request more may be made.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.slots.is_empty()
    }

    /// When something is asked next.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let traffic = self.traffic?;
        (self.flying.len() < traffic.depth && self.waiting.len() < QUEUE_MAX).then_some(self.next_ns)
    }

    /// Asks for what is to be asked now.
    pub fn ask(&mut self, now_ns: u64, device: &mut dyn Device) {
        while let Some(traffic) = self.traffic
            && self.next_ns().is_some_and(|at_ns| at_ns <= now_ns)
        {
            let request = self.draw(&traffic);
            self.next_ns = now_ns + self.dice.below(traffic.think_ns + 1);
            self.waiting.push_back(request);
            self.start_waiting(now_ns, device);
        }
    }

    fn draw(&mut self, traffic: &Traffic) -> Request {
        let fua = self.dice.chance(traffic.fua);
        let kind = if self.dice.chance(traffic.flushes) {
            return Request { kind: OpKind::Flush, sectors: 0..0 };
        } else if self.dice.chance(traffic.reads) {
            OpKind::Read
        } else if self.dice.chance(traffic.zeroes) {
            match self.dice.below(3) {
                0 => OpKind::Trim { fua },
                nth => OpKind::WriteZeroes { fua, no_hole: nth == 1 },
            }
        } else {
            OpKind::Write { fua }
        };
        let all = self.history.len() as u64;
        let most = if self.dice.chance(traffic.long) { SECTORS_MAX } else { traffic.short_max };
        let first = if self.dice.chance(900) { self.dice.below(traffic.hot) } else { self.dice.below(all) };
        let count = self.dice.between(1, most.min(all - first));
        Request { kind, sectors: first..first + count }
    }

    /// Asks for a flush.
    pub fn flush(&mut self, now_ns: u64, device: &mut dyn Device) {
        self.waiting.push_back(Request { kind: OpKind::Flush, sectors: 0..0 });
        self.start_waiting(now_ns, device);
    }

    /// Reads these sectors; `settles`: what is seen is there from now on.
    pub fn read(&mut self, now_ns: u64, sectors: Range<u64>, settles: bool, device: &mut dyn Device) {
        self.start(now_ns, Request { kind: OpKind::Read, sectors }, settles, device);
    }

    fn start_waiting(&mut self, now_ns: u64, device: &mut dyn Device) {
        let mut at = 0;
        while at < self.waiting.len() && !self.slots.is_empty() {
            let it = &self.waiting[at];
            let flying = self.flying.values().map(|flying| &flying.request);
            if self.waiting.iter().take(at).chain(flying).any(|other| conflict(it, other)) {
                self.ledger.add(Count::StateQueued, 1);
                at += 1;
                continue;
            }
            let request = self.waiting.remove(at).expect("it is there");
            self.start(now_ns, request, false, device);
        }
    }

    fn start(&mut self, now_ns: u64, request: Request, settles: bool, device: &mut dyn Device) {
        let slot = self.slots.pop().expect("a free slot");
        self.token += 1;
        self.asked += 1;
        let offset = request.sectors.start * SECTOR;
        let length = (request.sectors.end - request.sectors.start) * SECTOR;
        let frame = FrameId(slot * FRAMES_EACH);
        let mut op =
            DeviceOp { token: self.token, kind: request.kind, offset, length, frame, at: (offset % 4096) as u32 };
        let asked = self.history.asks();
        let change = match op.kind {
            OpKind::Write { .. } => Some(self.write(&op, &request.sectors)),
            OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                Some(self.history.begins(request.sectors.clone(), None))
            }
            OpKind::Read => {
                each_part(&self.arena, &op, |frame, at, part| {
                    self.arena.with_bytes_mut(frame, at, part.len() as u32, |bytes| bytes.fill(POISON));
                });
                None
            }
            OpKind::Flush => None,
        };
        self.ledger.count(count_of(op.kind), op.offset, op.length);
        if self.ledger.has(Bug::FuaDropped) && op.kind == (OpKind::Write { fua: true }) {
            op.kind = OpKind::Write { fua: false };
        }
        let flying = Flying { request, op, asked, change, settles };
        self.flying.insert(self.token, flying);
        if self.flying.len() >= 8 {
            self.ledger.add(Count::StateDeep, 1);
        }
        device.submit(now_ns, op);
        if self.ledger.has(Bug::FlushEarly) && op.kind == OpKind::Flush {
            self.history.boundary(asked);
        }
    }

    fn write(&mut self, op: &DeviceOp, sectors: &Range<u64>) -> ChangeId {
        self.writes += 1;
        let number = self.writes;
        each_part(&self.arena, op, |frame, at, part| {
            let first = sectors.start + part.start as u64 / SECTOR;
            self.arena.with_bytes_mut(frame, at, part.len() as u32, |bytes| {
                for (nth, sector) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
                    fill(sector, crate::content::value_of(number, 0, nth));
                }
            });
        });
        let records = (sectors.end - sectors.start).div_ceil(RECORD_SECTORS);
        if records > 1 {
            self.ledger.add(Count::WriteLong, 1);
        }
        self.history.begins(sectors.clone(), Some(number))
    }

    /// Requests ended.
    pub fn ended(&mut self, now_ns: u64, done: &[DeviceDone], device: &mut dyn Device) {
        for done in done {
            let flying = self.flying.remove(&done.token).expect("a request ends once");
            self.slots.push(flying.op.frame.0 / FRAMES_EACH);
            self.answered += 1;
            self.ledger.mix(done.token << 1 | u64::from(done.result.is_ok()));
            match done.result {
                Ok(()) => self.ended_well(flying),
                Err(error) => self.failed(&flying, error),
            }
        }
        if !done.is_empty() {
            self.start_waiting(now_ns, device);
        }
    }

    fn ended_well(&mut self, flying: Flying) {
        let Flying { request, op, asked, change, settles } = flying;
        if let Some(change) = change {
            let fua = is_fua(request.kind).then_some(asked);
            self.ledger.add(Count::StatePassed, u64::from(self.history.passed(change) > 0));
            self.history.ends(change, fua);
            if fua.is_some() {
                self.bounded(asked, true);
            }
            return;
        }
        if request.kind == OpKind::Flush {
            let is_hidden = self.owed.is_some_and(|told| told < asked);
            assert!(!is_hidden, "a flush went well, and none had failed for what was lost");
            self.history.boundary(asked);
            return self.bounded(asked, false);
        }
        let mut values = Vec::with_capacity((op.length / SECTOR) as usize);
        each_part(&self.arena, &op, |frame, at, part| {
            self.arena.with_bytes(frame, at, part.len() as u32, |bytes| {
                values.extend(bytes.chunks_exact(SECTOR_BYTES).map(value_in));
            });
        });
        values.iter().for_each(|value| self.ledger.mix(value.unwrap_or(1)));
        let first = request.sectors.start;
        if !settles {
            return self.history.read(first, &values).unwrap_or_else(|wrong| panic!("a read is wrong: {wrong}"));
        }
        match self.history.settle(first, &values) {
            Ok(found) => {
                self.found.more += found.more;
                self.found.less += found.less;
                self.found.moved += found.moved;
            }
            Err(wrong) => panic!("after a start something is lost: {wrong}"),
        }
    }

    /// A boundary that was asked for then was answered; it is a flush, or a change with FUA.
    fn bounded(&mut self, asked: u64, is_fua: bool) {
        let far = self.far[usize::from(is_fua)];
        if far && asked > self.far_since {
            self.history.boundary_follows(asked, is_fua);
            self.ledger.add(Count::StatePromisedFar, 1);
        }
        self.ledger.count(Count::StateBoundary, self.history.boundaries().len() as u64, 0);
        let changes = self.flying.values().any(|flying| flying.change.is_some() && flying.asked < asked);
        self.ledger.add(Count::StateFlownOver, u64::from(changes));
        let others = self.flying.values().any(|it| it.request.kind == OpKind::Flush || self::is_fua(it.request.kind));
        self.ledger.add(Count::StateNested, u64::from(others));
    }

    fn failed(&mut self, flying: &Flying, error: IoError) {
        let is_gone = flying.request.sectors.clone().any(|nth| self.history.is_gone(nth));
        assert!(self.troubled || is_gone, "a request failed ({error:?}) and nothing is wrong: {:?}", flying.request);
        let what = match flying.request.kind {
            OpKind::Read => Count::ReadFailed,
            OpKind::Flush => Count::FlushFailed,
            _ => Count::ChangeFailed,
        };
        if what == Count::FlushFailed || is_fua(flying.request.kind) {
            self.owed = None;
        }
        self.ledger.count(what, flying.op.offset, flying.op.length);
    }

    /// The process is gone.
    pub fn crashed(&mut self) {
        for (_, flying) in std::mem::take(&mut self.flying) {
            self.slots.push(flying.op.frame.0 / FRAMES_EACH);
        }
        self.slots.sort_unstable_by(|a, b| b.cmp(a));
        self.waiting.clear();
        self.owed = None;
        self.history.crashed();
    }
}

fn is_fua(kind: OpKind) -> bool {
    matches!(kind, OpKind::Write { fua: true } | OpKind::Trim { fua: true } | OpKind::WriteZeroes { fua: true, .. })
}

/// Whether two requests may not be in flight together.
fn conflict(one: &Request, other: &Request) -> bool {
    let overlap = one.sectors.start < other.sectors.end && other.sectors.start < one.sectors.end;
    overlap && !(one.kind == OpKind::Read && other.kind == OpKind::Read)
}

fn count_of(kind: OpKind) -> Count {
    match kind {
        OpKind::Read => Count::Read,
        OpKind::Write { fua: false } => Count::Write,
        OpKind::Write { fua: true } => Count::WriteFua,
        OpKind::Flush => Count::Flush,
        OpKind::Trim { fua: true } | OpKind::WriteZeroes { fua: true, .. } => Count::ZeroFua,
        OpKind::Trim { fua: false } => Count::Trim,
        OpKind::WriteZeroes { fua: false, no_hole: false } => Count::Zero,
        OpKind::WriteZeroes { fua: false, no_hole: true } => Count::ZeroNoHole,
    }
}
