//! Write-back: the log's epochs, given to the back end in order.
//!
//! How: the oldest epoch that is not there becomes the *plan*: a map of its newest bytes, made of its records in their
//! order. The plan is handed out in runs, from the first sector to the last; a run that fails is handed out again. When
//! all are answered the epoch is *applied*, and the next becomes the plan: at once if the last one was closed without a
//! promise, else when the back end has flushed it and the disk knows. What is applied is released by a flush.
//!
//! If the back end's flush fails, nobody knows what it dropped: everything applied since the last good flush is applied
//! again, in order. Each sector then goes again through values of epochs that may already be there, all behind the same
//! boundary.
//!
//! When the ring is full, what is written of an epoch becomes a part of its own: the rest waits for its room.
//!
//! Invariants: runs under way never overlap; nothing is handed out while the back end flushes.
//!
//! Limit: an epoch is merged in one step, so its records are bounded ([`super::LogLimits::epoch_records_max`]).

use super::Log;
use super::map::{ExtentMap, RecordId};
use super::record::{Epoch, Kind};
use alloc::vec::Vec;
use core::ops::Range;

/// The epoch that is being written back.
#[derive(Debug, Default)]
struct Plan {
    map: ExtentMap,
    /// Nothing before this sector is still to be handed out.
    from: u64,
    under_way: Vec<Range<u64>>,
    /// Sectors that are written.
    done: u64,
    /// Runs that failed.
    again: Vec<Range<u64>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    plan: Option<Plan>,
    /// Epochs, from the oldest in the list, that are applied.
    applied: usize,
    /// The back end flushes so many of them.
    flushing: Option<usize>,
    /// Records before this are flushed there.
    flushed: RecordId,
    /// The last boundary of them.
    promised: RecordId,
}

/// A run to write to the back end: adjacent sectors of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Sectors of the volume.
    pub sectors: Range<u64>,
    /// Bytes, or zeroes.
    pub kind: Kind,
}

impl WriteBack {
    /// Everything before that record is on the back end.
    pub(super) fn at(record: RecordId) -> Self {
        Self { flushed: record, promised: record, ..Self::default() }
    }

    pub(super) fn flushed(&self) -> RecordId {
        self.flushed
    }

    pub(super) fn promised(&self) -> RecordId {
        self.promised
    }

    /// A boundary closes behind what is flushed.
    pub(super) fn promised_all(&mut self) {
        self.promised = self.flushed;
    }
}

impl Log {
    /// The next run of at most so many sectors; `None` when there is nothing that may be written now.
    ///
    /// Where its bytes are: [`Log::run_record`].
    pub fn next_write_back(&mut self, sectors_max: u64) -> Option<Run> {
        if self.write_back.flushing.is_some() || !self.has_plan() {
            return None;
        }
        let plan = self.write_back.plan.as_mut()?;
        if let Some(mut sectors) = plan.again.pop() {
            if sectors.end - sectors.start > sectors_max {
                plan.again.push(sectors.start + sectors_max..sectors.end);
                sectors.end = sectors.start + sectors_max;
            }
            plan.under_way.push(sectors.clone());
            let id = plan.map.first(&sectors)?.record?;
            return Some(Run { sectors, kind: self.record(id).kind });
        }
        let first = plan.map.held_from(plan.from)?;
        let kind = |id: RecordId| self.records[(id - self.first) as usize].kind;
        let run_kind = kind(first.record?);
        let mut sectors = first.sectors;
        while sectors.end - sectors.start < sectors_max {
            let Some(next) = plan.map.held_from(sectors.end) else { break };
            if next.sectors.start != sectors.end || next.record.map(kind) != Some(run_kind) {
                break;
            }
            sectors.end = next.sectors.end;
        }
        sectors.end = sectors.end.min(sectors.start + sectors_max);
        plan.from = sectors.end;
        plan.under_way.push(sectors.clone());
        Some(Run { sectors, kind: run_kind })
    }

    /// Of a run under way, the first stretch at that sector that one record has, and which.
    #[must_use]
    pub fn run_record(&self, sectors: &Range<u64>) -> Option<(Range<u64>, RecordId)> {
        let stretch = self.write_back.plan.as_ref()?.map.first(sectors)?;
        stretch.record.map(|id| (stretch.sectors, id))
    }

    /// The back end answered a run.
    pub fn written_back(&mut self, sectors: &Range<u64>, is_well: bool) {
        let plan = self.write_back.plan.as_mut().expect("a run is of the plan");
        let at = plan.under_way.iter().position(|run| run == sectors).expect("a run ends once");
        let run = plan.under_way.swap_remove(at);
        if is_well {
            plan.done += run.end - run.start;
        } else {
            plan.do_again(run);
        }
        if plan.is_done() {
            self.write_back.plan = None;
            self.write_back.applied += 1;
        }
    }

    /// These sectors of a run under way cannot be had: when it ends, badly, it is handed out again without them.
    pub(super) fn leave_out(&mut self, sectors: &Range<u64>) {
        if let Some(plan) = &mut self.write_back.plan {
            plan.map.cut(sectors);
        }
    }

    /// Epochs that the back end has, and has not flushed.
    pub(super) fn applied(&self) -> usize {
        self.write_back.applied
    }

    /// Whether an epoch is applied that is not being flushed, and no other is on its way.
    pub(super) fn waits_between_parts(&self) -> bool {
        let WriteBack { plan, applied, flushing, .. } = &self.write_back;
        plan.is_none() && *applied > 0 && flushing.is_none()
    }

    /// How far the back end is, flushed or not: a position of the ring, and a record. Of the epoch on its way, the part that is
    /// written.
    pub(super) fn followed(&self) -> [u64; 2] {
        let WriteBack { plan, applied, flushed, .. } = &self.write_back;
        let begin = applied.checked_sub(1).map_or(*flushed, |last| self.epochs[last].end);
        let position = |id: RecordId| {
            if id < self.grouped { self.record(id).position } else { self.ring.in_use().end }
        };
        let Some(plan) = plan else { return [position(begin), begin] };
        let end = self.epochs[*applied].end;
        let part = |from: u64, to: u64| {
            let done = u128::from(to - from) * u128::from(plan.done) / u128::from(plan.map.sectors().max(1));
            (from + done as u64).min(to)
        };
        [part(position(begin), position(end)), part(begin, end)]
    }

    /// Whether the back end must flush before anything more can be written back.
    #[must_use]
    pub fn waits_for_flush(&self) -> bool {
        let applied = self.write_back.applied;
        applied > 0 && self.epochs[applied - 1].boundary && self.write_back.plan.is_none()
    }

    /// The back end is told to flush. False when there is nothing to flush (`always`: there is something that the log does
    /// not know of), or runs are under way.
    pub fn flush_begins(&mut self, always: bool) -> bool {
        let under_way = self.write_back.plan.as_ref().is_some_and(|plan| !plan.under_way.is_empty());
        if (self.write_back.applied == 0 && !always) || under_way || self.write_back.flushing.is_some() {
            return false;
        }
        self.write_back.flushing = Some(self.write_back.applied);
        true
    }

    /// The records that the flush under way covers are before this.
    pub(super) fn flushing_until(&self) -> RecordId {
        let last = self.write_back.flushing.and_then(|flushing| flushing.checked_sub(1));
        last.map_or(self.first, |last| self.epochs[last].end)
    }

    /// The back end's flush ended.
    pub fn flushed_back(&mut self, is_well: bool) {
        let flushed = self.write_back.flushing.take().expect("a flush ends once");
        if !is_well {
            // Also what the plan has written is in doubt; it begins again in its turn.
            (self.write_back.applied, self.write_back.plan) = (0, None);
            return;
        }
        self.write_back.applied -= flushed;
        for epoch in self.epochs.drain(..flushed) {
            self.write_back.flushed = epoch.end;
            if epoch.boundary {
                self.write_back.promised = epoch.end;
            }
        }
        self.release();
    }

    /// Makes the next epoch the plan if it may be; whether there is one.
    fn has_plan(&mut self) -> bool {
        if self.write_back.plan.is_some() {
            return true;
        }
        let applied = self.write_back.applied;
        let last = applied.checked_sub(1).map(|last| self.epochs[last]);
        let begin = last.map_or(self.write_back.flushed, |last| last.end);
        let is_written = self.epochs.get(applied).is_some_and(|epoch| epoch.end <= self.written);
        if !is_written && begin < self.written && self.is_full() {
            // The rest of the epoch waits for the room of what is written of it.
            self.epochs.insert(applied, Epoch { end: self.written, boundary: false });
        }
        let Some(epoch) = self.epochs.get(applied).copied() else { return false };
        // The disk must know where the last boundary is, or a recovery writes what is before it again, over what follows.
        let is_kept = last.is_none_or(|last| !last.boundary) && self.write_back.promised <= self.anchored;
        let is_held = self.hold.is_some_and(|hold| begin >= hold);
        if !is_kept || is_held || epoch.end > self.written {
            return false;
        }
        let mut map = ExtentMap::default();
        for id in begin..epoch.end {
            map.insert(self.record(id).range(), id);
        }
        self.write_back.plan = Some(Plan { map, ..Plan::default() });
        true
    }

    /// Records whose epoch the back end has flushed leave.
    fn release(&mut self) {
        while self.first < self.write_back.flushed {
            let record = self.records.pop_front().expect("what is flushed was in the log");
            self.map.remove(record.range(), self.first);
            self.first += 1;
        }
        while self.groups.front().is_some_and(|(group, _)| group.records.end <= self.first) {
            self.groups.pop_front();
        }
    }
}

impl Plan {
    /// What is left of a run, in runs without a gap.
    fn do_again(&mut self, mut run: Range<u64>) {
        while let Some(held) = self.map.held_from(run.start).filter(|held| held.sectors.start < run.end) {
            let mut end = held.sectors.end;
            while let Some(next) = self.map.held_from(end).filter(|next| next.sectors.start == end && end < run.end) {
                end = next.sectors.end;
            }
            self.again.push(held.sectors.start..end.min(run.end));
            run.start = end.min(run.end);
            if run.is_empty() {
                break;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.again.is_empty() && self.map.held_from(self.from).is_none()
    }
}
