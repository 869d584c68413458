//! The seam between the cache and a log: what the cache owes the device below it is checked here, and bugs are planted.
//!
//! Checked: changes that overlap are never in flight together. A log orders what is in flight by its records, and so relies
//! on that. A read that was given up may be overlapped: nobody looks at its bytes.

use super::bug::SeamBug;
use crate::dice::Dice;
use crate::ledger::{Count, SharedLedger};
use forebay_core::FrameId;
use forebay_core::log::logged::{LostExtents, RegionImage};
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};
use forebay_engine::devices::logged::{KnownRegions, LoggedDevice, MemoryRegions, RegionStore};
use forebay_uring::Arena;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A log of this life.
pub type SharedLog = Rc<RefCell<LoggedDevice>>;

/// The seam's own operation: no token of the cache's.
const OWN: u64 = u64::MAX;
/// Requests in flight that are worth a count.
const DEEP: usize = 8;
/// Writes that are remembered.
const WRITES_MAX: usize = 8;

/// A write that has ended: its sectors' bytes.
struct Written {
    offset: u64,
    bytes: Vec<u8>,
}

/// See the module.
pub struct Seam {
    log: SharedLog,
    arena: Rc<Arena>,
    ledger: SharedLedger,
    bug: Option<SeamBug>,
    dice: Dice,
    flying: BTreeMap<u64, DeviceOp>,
    ended: Vec<DeviceDone>,
    /// For [`SeamBug::OrderSwapped`]: a frame of its own, the last writes, and the one that is done again.
    spare: FrameId,
    written: Vec<Written>,
    again: Option<DeviceOp>,
}

impl Seam {
    /// Above a log. `spare`: a frame that is nobody else's.
    #[must_use]
    pub fn new(
        log: SharedLog,
        arena: Rc<Arena>,
        ledger: SharedLedger,
        bug: Option<SeamBug>,
        dice: Dice,
        spare: FrameId,
    ) -> Self {
        let (flying, ended, written) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { log, arena, ledger, bug, dice, flying, ended, spare, written, again: None }
    }

    fn check(&self, op: &DeviceOp) {
        let overlaps = |other: &&DeviceOp| {
            let apart = op.offset + op.length <= other.offset || other.offset + other.length <= op.offset;
            !apart && changes(other)
        };
        let other = self.flying.values().find(overlaps).filter(|_| changes(op));
        assert!(other.is_none(), "changes that overlap are in flight together: {op:?} and {other:?}");
    }

    /// A write has ended: the one before it in the same place is remembered, and perhaps done again.
    fn remember(&mut self, now_ns: u64, op: &DeviceOp) {
        let whole = op.length <= u64::from(self.arena.frame_bytes() - op.at);
        if !matches!(op.kind, OpKind::Write { .. }) || !whole {
            return;
        }
        let inside =
            |old: &&Written| old.offset >= op.offset && old.offset + (old.bytes.len() as u64) <= op.offset + op.length;
        let old = self.written.iter().find(inside).filter(|_| self.again.is_none() && self.dice.chance(300));
        let mut bytes = vec![0; op.length as usize];
        self.arena.copy_out(op.frame.0, op.at, &mut bytes);
        if let Some(Written { offset, bytes }) = old {
            self.arena.copy_in(self.spare.0, 0, bytes);
            let (offset, length, kind) = (*offset, bytes.len() as u64, OpKind::Write { fua: false });
            let again = DeviceOp { token: OWN, kind, offset, length, frame: self.spare, at: 0 };
            self.again = Some(again);
            self.log.borrow_mut().submit(now_ns, again);
        }
        self.written.push(Written { offset: op.offset, bytes });
        let over = self.written.len().saturating_sub(WRITES_MAX);
        self.written.drain(..over);
    }
}

fn changes(op: &DeviceOp) -> bool {
    !matches!(op.kind, OpKind::Read | OpKind::Flush)
}

impl Device for Seam {
    fn geometry(&self) -> Geometry {
        self.log.borrow().geometry()
    }

    fn submit(&mut self, now_ns: u64, mut op: DeviceOp) {
        self.check(&op);
        self.ledger.add(Count::StateBelowQueued, u64::from(self.flying.len() == DEEP));
        self.flying.insert(op.token, op);
        match (self.bug, op.kind) {
            (Some(SeamBug::FlushEarly), OpKind::Flush) => {
                return self.ended.push(DeviceDone { token: op.token, result: Ok(()) });
            }
            (Some(SeamBug::FuaDropped), OpKind::Write { fua: true }) => op.kind = OpKind::Write { fua: false },
            _ => {}
        }
        self.log.borrow_mut().submit(now_ns, op);
    }

    fn persist(&mut self, now_ns: u64, flush: DeviceOp) {
        self.ledger.add(Count::StatePersisted, 1);
        self.flying.insert(flush.token, flush);
        if self.bug == Some(SeamBug::PersistEarly) {
            return self.ended.push(DeviceDone { token: flush.token, result: Ok(()) });
        }
        self.log.borrow_mut().persist(now_ns, flush);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let first = done.len();
        self.log.borrow_mut().poll(now_ns, done);
        if self.again.is_some() {
            let before = done.len();
            done.retain(|done| done.token != OWN);
            self.again.take_if(|_| done.len() < before);
        }
        done.append(&mut self.ended);
        for ended in &done[first..] {
            let op = self.flying.remove(&ended.token).expect("an operation ends once");
            if self.bug == Some(SeamBug::OrderSwapped) && ended.result.is_ok() {
                self.remember(now_ns, &op);
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { self.log.borrow().next_ns() } else { Some(0) }
    }

    fn is_settled(&self) -> bool {
        self.log.borrow().is_settled()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.log.borrow_mut().in_doubt(doubts);
    }
}

/// Who keeps the region map: memory that outlives the process. With a bug it does not keep it.
pub struct Regions {
    kept: MemoryRegions,
    known: KnownRegions,
    lies: bool,
    answers: Option<Result<(), IoError>>,
}

impl Regions {
    /// As who starts finds it.
    #[must_use]
    pub fn reopened(kept: &MemoryRegions, bug: Option<SeamBug>) -> Self {
        let kept = kept.reopened();
        let unlost = |image| RegionImage { lost: LostExtents::default(), ..image };
        let known = match (kept.known().clone(), bug) {
            (KnownRegions::Same(image), Some(SeamBug::LossForgotten)) => KnownRegions::Same(unlost(image)),
            (KnownRegions::OfAnother(image), Some(SeamBug::LossForgotten)) => KnownRegions::OfAnother(unlost(image)),
            (KnownRegions::OfAnother(image), Some(SeamBug::AnotherBelieved)) => {
                KnownRegions::Same(RegionImage { life: 0, ..image })
            }
            (known, _) => known,
        };
        // The first image of all is kept, so that there is one.
        let lies = bug == Some(SeamBug::RegionsUnkept) && !matches!(known, KnownRegions::None);
        Self { kept, known, lies, answers: None }
    }
}

impl RegionStore for Regions {
    fn known(&self) -> &KnownRegions {
        &self.known
    }

    fn begin(&mut self, image: RegionImage) {
        if self.lies {
            self.answers = Some(Ok(()));
        } else {
            self.kept.begin(image);
        }
    }

    fn poll(&mut self) -> Option<Result<(), IoError>> {
        self.answers.take().or_else(|| self.kept.poll())
    }

    fn next_ns(&self) -> Option<u64> {
        self.answers.map_or_else(|| self.kept.next_ns(), |_| Some(0))
    }
}
