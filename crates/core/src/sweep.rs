//! The sweep: what changed in memory becomes durable on the cache disk, and then intent bits are cleared.
//!
//! Every two seconds: 1. take the marked table sectors, and the regions at rest; 2. write the sectors; 3. flush the
//! cache disk; 4. flush the back ends that were written; 5. clear the regions that are still untouched.
//!
//! Why in this order: a region's bit says "the records on disk may be older than the back end here". It may go only
//! when every change of a record that happened before the region came to rest is durable, dropped blocks and evicted
//! slots included, and when the back end no longer holds the writes in a volatile cache.
//!
//! Why lazily: a block that is overwritten in place would cost a sector (4 KiB) of table a write; swept, a thousand
//! writes to a gigabyte of cache share at most 328 sectors. The price: pages fetched in the last seconds before a crash
//! are cold. Rejected: a journal of records (it needs a checkpoint of the same table, and replay before serving).
//!
//! Also here: how the cache disk is given up, how a shutdown leaves it clean.

use crate::action::{Action, Actions, Notice};
use crate::cache::{Cache, DiskState};
use crate::error::ReplyError;
use crate::event::IoError;
use crate::op::{Op, Role};
use crate::page::VolumeId;
use alloc::vec::Vec;

/// From one sweep to the next. A region is clear at most two periods and the writing after its last write.
const PERIOD_NS: u64 = 2_000_000_000;
/// Errors of the cache disk are forgiven after this time.
const FORGIVE_NS: u64 = 60_000_000_000;
/// So many reads with wrong bytes count as much as a failed operation.
const LIES_AN_ERROR: u32 = 16;
/// From one attempt to raise the generation to the next; who waits for it longer fails.
const RAISE_NS: u64 = 1_000_000_000;
/// Sweeps that a shutdown tries before it leaves regions marked (their back end does not flush).
const DRAIN_SWEEPS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Table,
    Disk,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    stage: Stage,
    next_ns: u64,
    sectors: Vec<u64>,
    cursor: usize,
    /// Orders of the stage that are unanswered.
    unanswered: u32,
    /// When raising the generation is tried again, and whether it has failed.
    raise_ns: u64,
    raise_failed: bool,
}

/// A shutdown under way.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    pub(crate) asked: Option<u64>,
    sweeps: u32,
    marking: bool,
    answered: bool,
}

impl Cache {
    pub(crate) fn begin_sweep(&mut self, now_ns: u64, actions: &mut Actions) {
        let in_use = self.disk_state == DiskState::Attached;
        if !in_use || self.sweep.stage != Stage::Idle || now_ns < self.sweep.next_ns || !self.has_unswept() {
            return;
        }
        self.sweep.next_ns = now_ns + PERIOD_NS;
        // Records not yet scanned may be older than the back end: no bit goes before they are all known.
        if !self.recovery.is_on() {
            for volume in self.volumes.iter_mut().filter(|volume| !volume.sweep_flush && volume.doubts == 0) {
                volume.intent.capture();
            }
        }
        self.disk.take_dirty(&mut self.sweep.sectors);
        self.sweep.cursor = 0;
        self.sweep.stage = Stage::Table;
        self.write_sectors(now_ns, actions);
    }

    /// Whether there are sectors to write or regions to clear.
    pub(crate) fn has_unswept(&self) -> bool {
        self.disk.dirty_sectors() > 0 || self.volumes.iter().any(|volume| volume.intent.set_count() > 0)
    }

    fn write_sectors(&mut self, now_ns: u64, actions: &mut Actions) {
        while self.sweep.unanswered < self.config.limits.sweep_writes_max {
            let Some(sector) = self.next_sector() else { break };
            self.sweep.unanswered += 1;
            self.stats.table_sector_writes += 1;
            let op = self.ops.start(now_ns, Role::SweepTable, None);
            actions.push(Action::WriteTable { op, sector });
        }
        if self.sweep.unanswered == 0 {
            self.sweep.stage = Stage::Disk;
            let op = self.ops.start(now_ns, Role::SweepDisk, None);
            actions.push(Action::FlushDisk { op });
        }
    }

    fn next_sector(&mut self) -> Option<u32> {
        let sweep = &mut self.sweep;
        while let Some(word) = sweep.sectors.get_mut(sweep.cursor) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                return Some(sweep.cursor as u32 * 64 + bit);
            }
            sweep.cursor += 1;
        }
        None
    }

    pub(crate) fn sweep_table_written(&mut self, now_ns: u64, result: Result<(), IoError>, actions: &mut Actions) {
        self.sweep.unanswered -= 1;
        if result.is_ok() && self.disk_state == DiskState::Attached {
            self.write_sectors(now_ns, actions);
        }
        self.abandon_if_detached();
    }

    pub(crate) fn sweep_disk_flushed(&mut self, now_ns: u64, result: Result<(), IoError>, actions: &mut Actions) {
        if result.is_err() || self.disk_state != DiskState::Attached {
            return self.abandon_if_detached();
        }
        self.stats.sweeps += 1;
        self.sweep.stage = Stage::Idle;
        for at in 0..self.volumes.len() {
            let v = &self.volumes[at];
            // An earlier sweep's flush that a back end has not answered holds up its own volume only.
            if v.sweep_flush || !v.intent.has_captured() {
                continue;
            }
            if v.flushed_seq == v.write_seq {
                self.clear_regions(at);
                continue;
            }
            let volume = VolumeId(at as u16);
            let op = self.ops.start(now_ns, Role::SweepBackend { volume, covers: v.write_seq }, None);
            actions.push(Action::FlushBackend { op, volume, promised: false });
            self.volumes[at].sweep_flush = true;
        }
    }

    pub(crate) fn sweep_backend_flushed(
        &mut self,
        volume: VolumeId,
        covers: u64,
        result: Result<(), IoError>,
        actions: &mut Actions,
    ) {
        let v = &mut self.volumes[volume.index()];
        v.sweep_flush = false;
        v.flushes.own_ended(result);
        if result.is_ok() {
            v.flushed_seq = v.flushed_seq.max(covers);
            self.clear_regions(volume.index());
        } else if result != Err(IoError::TimedOut) {
            self.doubt_unflushed(volume, actions);
        }
    }

    fn clear_regions(&mut self, volume: usize) {
        if self.volumes[volume].intent.clear_captured() {
            self.intent_asked = true;
        }
    }

    fn abandon_if_detached(&mut self) {
        if self.disk_state != DiskState::Attached && self.sweep.unanswered == 0 {
            self.sweep.stage = Stage::Idle;
        }
    }

    /// Orders the intent maps that have changed.
    pub(crate) fn order_intents(&mut self, now_ns: u64, actions: &mut Actions) {
        if !core::mem::take(&mut self.intent_asked) || self.disk_state != DiskState::Attached || !self.config.intent_map
        {
            return;
        }
        for (at, volume) in self.volumes.iter_mut().enumerate() {
            if volume.intent.wants_write() {
                volume.intent.write_begins();
                self.stats.intent_writes += 1;
                let volume = VolumeId(at as u16);
                let op = self.ops.start(now_ns, Role::Intent { volume }, None);
                actions.push(Action::WriteIntent { op, volume });
            }
        }
    }

    pub(crate) fn intent_written(&mut self, volume: VolumeId, result: Result<(), IoError>) {
        self.volumes[volume.index()].intent.write_ended(result.is_ok());
        self.intent_asked = true;
        self.wake_intent_waiters();
    }

    /// The cache disk answered: how fast, and whether it is still to be trusted.
    pub(crate) fn disk_answered(&mut self, op: &Op, result: Result<(), IoError>, now_ns: u64, actions: &mut Actions) {
        if matches!(op.role, Role::FetchSlot { .. } | Role::Orphan { .. }) {
            self.stats.slot_read_latency.record_recent(now_ns.saturating_sub(op.start_ns));
        }
        if result.is_ok() {
            return;
        }
        self.stats.disk_errors += 1;
        let vital = matches!(op.role, Role::SweepTable | Role::SweepDisk | Role::Intent { .. } | Role::Clean);
        if vital {
            self.detach("its records could not be written", now_ns, actions);
        } else {
            self.disk_failed(now_ns, actions);
        }
    }

    /// The disk failed once; after a number of times in a minute it is given up.
    fn disk_failed(&mut self, now_ns: u64, actions: &mut Actions) {
        self.forgive(now_ns);
        self.disk_errors += 1;
        if self.disk_errors >= self.config.limits.disk_errors_max {
            self.detach("too many of its operations failed", now_ns, actions);
        }
    }

    /// A read gave other bytes than were written. Rot is mended block by block; a disk that lies all the time is given up.
    pub(crate) fn disk_lied(&mut self, now_ns: u64, actions: &mut Actions) {
        self.forgive(now_ns);
        self.disk_lies += 1;
        if self.disk_lies >= self.config.limits.disk_errors_max.saturating_mul(LIES_AN_ERROR) {
            self.detach("too many of its blocks were not what was written", now_ns, actions);
        }
    }

    fn forgive(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.forgiven_ns) >= FORGIVE_NS {
            self.forgiven_ns = now_ns;
            (self.disk_errors, self.disk_lies) = (0, 0);
        }
    }

    /// Gives the cache disk up; the cache goes on with memory and back end.
    pub(crate) fn detach(&mut self, reason: &'static str, now_ns: u64, actions: &mut Actions) {
        if self.disk_state != DiskState::Attached {
            return;
        }
        self.disk_state = DiskState::Detached { raised: false };
        self.stats.fail_opens += 1;
        self.recovery.stop();
        actions.push(Action::Notice(Notice::DiskDetached { reason }));
        self.raise_generation(now_ns, actions);
        self.abandon_if_detached();
    }

    /// From now on the disk misses writes; that has to be known before the first of them, whatever happens.
    fn raise_generation(&mut self, now_ns: u64, actions: &mut Actions) {
        self.sweep.raise_ns = now_ns + RAISE_NS;
        let op = self.ops.start(now_ns, Role::Generation, None);
        actions.push(Action::RaiseGeneration { op });
    }

    pub(crate) fn generation_raised(&mut self, result: Result<(), IoError>, actions: &mut Actions) {
        if result.is_ok() {
            self.disk_state = DiskState::Detached { raised: true };
            self.wake_intent_waiters();
        } else if !core::mem::replace(&mut self.sweep.raise_failed, true) {
            actions.push(Action::Notice(Notice::GenerationStuck));
        }
    }

    /// Tries again now and then. Whoever waits for it for long, because it fails or hangs, fails.
    pub(crate) fn retry_generation(&mut self, now_ns: u64, actions: &mut Actions) {
        let stuck = self.disk_state == (DiskState::Detached { raised: false });
        if !stuck || now_ns < self.sweep.raise_ns {
            return;
        }
        if self.ops.iter().all(|(_, op)| op.role != Role::Generation) {
            self.raise_generation(now_ns, actions);
        }
        for _ in 0..self.intent_wait.len() {
            if !actions.has_room_for_part() {
                break;
            }
            let Some(part) = self.intent_wait.pop_front() else { break };
            self.written(now_ns, part, Err(IoError::Failed), actions);
        }
        self.fail_ranges_without_intent(actions);
    }

    /// Works towards a clean shutdown: everything answered, everything swept, then the clean mark.
    pub(crate) fn advance_drain(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(tag) = self.drain.asked else { return };
        let busy = self.requests.len() > 0 || !self.ranges.is_empty() || !self.flushes_at_rest();
        if busy || self.drain.answered {
            return;
        }
        if self.disk_state != DiskState::Attached {
            return self.answer_drain(tag, Ok(()), actions);
        }
        let flushing = self.volumes.iter().any(|volume| volume.sweep_flush);
        let sweeping = self.sweep.stage != Stage::Idle || flushing;
        if self.stores > 0 || self.drain.marking || self.recovery.is_on() || sweeping {
            return;
        }
        let regions: u32 = self.volumes.iter().map(|v| v.intent.set_count()).sum();
        let behind = self.config.intent_map && self.volumes.iter().any(|v| v.intent.is_behind());
        if self.disk.dirty_sectors() > 0 || (regions > 0 && self.drain.sweeps < DRAIN_SWEEPS_MAX) {
            self.drain.sweeps += 1;
            self.sweep.next_ns = now_ns;
            self.begin_sweep(now_ns, actions);
        } else if regions > 0 {
            // Their back end does not flush. The bits stay, and the mark that would overrule them is not made.
            self.answer_drain(tag, Err(ReplyError::Io), actions);
        } else if !behind {
            self.drain.marking = true;
            let op = self.ops.start(now_ns, Role::Clean, None);
            actions.push(Action::MarkClean { op });
        }
    }

    pub(crate) fn marked_clean(&mut self, actions: &mut Actions) {
        self.drain.marking = false;
        if let Some(tag) = self.drain.asked.filter(|_| !self.drain.answered) {
            self.answer_drain(tag, Ok(()), actions);
        }
    }

    fn answer_drain(&mut self, tag: u64, result: Result<(), ReplyError>, actions: &mut Actions) {
        self.drain.answered = true;
        actions.push(Action::Reply { tag, result });
    }
}
