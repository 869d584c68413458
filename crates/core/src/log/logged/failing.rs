//! The log's disk fails: what the log has is written back while it can be read, the rest is lost, and the volume goes on
//! against the back end.
//!
//! How:
//! 1. **Draining**, from the first write or flush of the log that fails or is not answered in time. Nothing more is appended. Changes that were not answered
//!    are as if they had just come, and wait; so do new ones, for none may overtake what the log has. Flushes wait until
//!    the back end has what they promise. The back end follows as always, but for the tail, which goes into the region map.
//! 2. **Losing**, when a part of an epoch cannot be read for [`super::LoggedConfig::read_patience_ns`], and nothing else could be
//!    read since. What is on the back end is flushed. Everything from that epoch on is lost: its sectors are listed, and
//!    flushes that wait fail. So the back end stays what a plain disk may be after a power cut, should the loss be accepted.
//! 3. **Giving up**: the region map says that the log is of no worth any more: if its disk comes back at the next start, its
//!    records are behind what the back end has by then.
//! 4. **Through**: changes and flushes go to the back end ([`super::bypass`]).
//!
//! Who has waited for [`super::LoggedConfig::wait_ns`] since the disk failed is answered with an error: changes fail, and a flush is lost.
//!
//! A block of the log that reads wrong three times, on a disk that works, is lost alone: its run is written back without it. So is a
//! part that cannot be read while others can.
//!
//! Without a region map nothing may go past the log (step 3 would be missing): changes fail from then on, and what can be read
//! is written back.
//!
//! Limits: one failed write gives the log up until the next start. A part that cannot be read is lost as a whole, up to 256 KiB.
//!
//! Rejected: writing the newest of what can be read behind an epoch that cannot (more is saved, but the back end is no disk that
//! ever was); answering changes with an error at once (a file system goes read-only for what a wait of a second can mend).

use super::super::record::BLOCK_SECTORS;
use super::super::{RecordId, Tail};
use super::balance::Flow;
use super::policy::Durability;
use super::serve::{FlushWaiter, Piece};
use super::{Logged, Order, OrderId, Role, Waiting};
use crate::IoError;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// How often a block may read wrong.
const WRONG_MAX: u32 = 3;

/// How a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It takes changes.
    #[default]
    Whole,
    /// Its disk failed. The back end follows; changes wait.
    Draining,
    /// It cannot be read any more.
    Losing,
    /// The region map is being told so.
    GivingUp,
    /// Changes go to the back end.
    Through,
}

impl Health {
    /// It stays so, if nothing fails.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Self::Whole | Self::Through)
    }
}

/// What could not be read of the log, and since when.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Its last sector is before this.
    end: u64,
    since_ns: u64,
    wrong: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Failing {
    pub(super) health: Health,
    /// The last time that time was told.
    pub(super) now_ns: u64,
    /// When the disk failed, or the back end last came nearer.
    since_ns: u64,
    /// By record and first sector: parts of runs that could not be read.
    stuck: BTreeMap<(RecordId, u64), Stuck>,
    /// When the log was last read well.
    read_ns: u64,
    /// Of each record, sectors that could not be read, and were not written back with its epoch.
    dropped: BTreeMap<RecordId, Vec<Range<u64>>>,
    /// Blocks that were lost alone.
    bad_blocks: u64,
    /// What the disk was told to do, and when. Few.
    on_disk: Vec<(OrderId, u64)>,
    /// Orders of these that nobody waits for any more.
    pub(super) orphans: usize,
}

impl Failing {
    pub(super) fn began(&mut self, id: OrderId) {
        self.on_disk.push((id, self.now_ns));
    }

    pub(super) fn ended(&mut self, id: OrderId) {
        self.on_disk.retain(|(other, _)| *other != id);
    }

    pub(super) fn waits_for_disk(&self) -> bool {
        !self.on_disk.is_empty()
    }
}

impl Logged {
    /// What the disk should have answered by now has failed. Memory that it may still write is not used until it has.
    pub(super) fn give_up_orders(&mut self, now_ns: u64) {
        self.failing.now_ns = now_ns;
        let timeout_ns = self.config.disk_timeout_ns;
        let is_over = |began_ns: u64| now_ns.saturating_sub(began_ns) >= timeout_ns;
        let over: Vec<_> = self.failing.on_disk.extract_if(.., |(_, began_ns)| is_over(*began_ns)).collect();
        for (id, _) in over {
            self.failing.orphans += 1;
            let role = self.roles.get_mut(id.0 as usize);
            let read_buffer = if let Role::Piece { buffer, .. } = role { Some(*buffer) } else { None };
            match core::mem::replace(role, Role::Orphan { read_buffer }) {
                Role::Group { group, .. } => self.group_ended(now_ns, &group, Err(IoError::TimedOut), &[]),
                Role::FlushLog { before } => self.log_flushed(before, Err(IoError::TimedOut)),
                Role::Tail { tail } => self.tail_written(tail, Err(IoError::TimedOut)),
                Role::Piece { piece, buffer } => {
                    self.piece_read(now_ns, piece, buffer, Err(IoError::TimedOut), &[]);
                }
                role => unreachable!("not on the disk: {role:?}"),
            }
        }
    }

    /// There is no buffer to read the log into. If the disk has kept them all, it is not read any more.
    pub(super) fn refuse_piece(&mut self) -> Option<Order> {
        if self.failing.orphans >= self.config.log_reads_max as usize {
            while let Some(piece) = self.pieces.pop_front() {
                self.piece_read(self.failing.now_ns, piece, u32::MAX, Err(IoError::TimedOut), &[]);
            }
        }
        self.ready.pop_front()
    }

    /// How the log is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.failing.health
    }

    /// Blocks of the log that could not be read on a disk that works, and were lost alone.
    #[must_use]
    pub fn bad_blocks(&self) -> u64 {
        self.failing.bad_blocks
    }

    /// The log's disk cannot be written: nothing new is promised by it.
    pub(super) fn log_failed(&mut self) {
        if self.broken {
            return;
        }
        self.broken = true;
        self.balance.log = Flow::default();
        self.failing.since_ns = self.failing.now_ns;
        if self.regions.is_none() {
            return self.fail_all();
        }
        self.failing.health = Health::Draining;
        let forgotten = self.log.forget_unwritten();
        let changes = core::mem::take(&mut self.changes);
        assert_eq!(changes.len(), forgotten.len(), "each record that was not written has its change");
        for (change, record) in changes.into_iter().zip(&forgotten).rev() {
            self.waiting.push_front(Waiting { request: change.asked_again(record), must_log: false });
        }
        // What is written the back end will have, and then it is durable.
        let written = self.log.written();
        for waiter in &mut self.flush_waiters {
            (waiter.needs, waiter.level) = (waiter.needs.min(written), Durability::Backend);
        }
    }

    /// Everybody who waits is answered with an error.
    fn fail_all(&mut self) {
        for change in core::mem::take(&mut self.changes) {
            self.answer(change.token, Err(IoError::Failed));
        }
        for waiting in core::mem::take(&mut self.waiting) {
            self.answer(waiting.request.token, Err(IoError::Failed));
        }
        for waiter in core::mem::take(&mut self.flush_waiters) {
            self.answer(waiter.token, Err(IoError::Lost));
        }
    }

    /// From one step to the next, and an end of patience.
    pub(super) fn go_on(&mut self, now_ns: u64) {
        let rests = !self.follow.is_busy() && self.log.applied() == 0;
        match self.failing.health {
            Health::Whole | Health::Through => return,
            Health::Draining if rests && self.log.first == self.log.next() => self.give_up(),
            Health::Losing if rests => {
                self.lose_rest();
                self.give_up();
            }
            Health::Draining | Health::Losing | Health::GivingUp => {}
        }
        if now_ns.saturating_sub(self.failing.since_ns) >= self.config.wait_ns {
            self.fail_all();
        }
    }

    fn give_up(&mut self) {
        self.failing.health = Health::GivingUp;
        self.failing.stuck.clear();
        self.failing.dropped.clear();
        self.follow.forget_tail();
        self.log.give_up();
        self.checks.left(self.log.next());
        self.ages.left(self.log.next(), self.log.next());
    }

    /// What is left in the log is lost.
    fn lose_rest(&mut self) {
        for (_, record, epoch) in self.log.with_epochs() {
            self.loss.lost.insert(record.range(), Some(epoch));
        }
        self.loss.grew();
        let first = self.log.first;
        if !self.lost_to_waiters(|waiter| waiter.needs > first) {
            self.owe_failure();
        }
    }

    /// Those who wait for what is lost are told; whether there are any.
    fn lost_to_waiters(&mut self, waits: impl Fn(&FlushWaiter) -> bool) -> bool {
        let before = self.ready.len();
        for waiter in self.flush_waiters.extract_if(.., |waiter| waits(waiter)) {
            self.ready.push_back(Order::Answer { token: waiter.token, result: Err(IoError::Lost) });
        }
        self.ready.len() > before
    }

    /// The log was read well, for whoever wanted that.
    pub(super) fn log_was_read(&mut self, now_ns: u64, piece: &Piece) {
        self.failing.read_ns = now_ns;
        if !self.failing.stuck.is_empty() {
            let is_other = |id, first, stuck: &Stuck| {
                id != piece.record || first >= piece.sectors.end || stuck.end <= piece.sectors.start
            };
            self.failing.stuck.retain(|(id, first), stuck| is_other(*id, *first, stuck));
        }
    }

    /// A part of a run could not be read. `found`: the checksums of what was read instead. Where there is no hope its run is
    /// written without it, or the log is given up.
    pub(super) fn run_unread(&mut self, now_ns: u64, piece: &Piece, found: Option<&[u32]>) {
        if self.regions.is_none() || matches!(self.failing.health, Health::Losing | Health::GivingUp) {
            return;
        }
        let new = Stuck { end: piece.sectors.end, since_ns: now_ns, wrong: 0 };
        let stuck = self.failing.stuck.entry((piece.record, piece.sectors.start)).or_insert(new);
        stuck.wrong += u32::from(found.is_some());
        let Stuck { since_ns, wrong, .. } = *stuck;
        let is_over = now_ns.saturating_sub(since_ns) >= self.config.read_patience_ns;
        match found {
            Some(_) if wrong < WRONG_MAX => return,
            None if !is_over => return,
            None if self.failing.read_ns <= since_ns => {
                self.log_failed();
                self.failing.health = Health::Losing;
                return;
            }
            _ => {}
        }
        let first = piece.reads.start / BLOCK_SECTORS;
        for (block, known) in (first..).zip(&piece.checks) {
            let is_bad = found.is_none_or(|found| found.get((block - first) as usize) != Some(known));
            let sectors =
                (block * BLOCK_SECTORS).max(piece.sectors.start)..((block + 1) * BLOCK_SECTORS).min(piece.sectors.end);
            if is_bad && !sectors.is_empty() {
                self.failing.bad_blocks += 1;
                self.log.leave_out(&sectors);
                self.failing.dropped.entry(piece.record).or_default().push(sectors);
            }
        }
    }

    /// The back end flushes, and then has the records before `end`: what was lost of their sectors is lost no more, but for
    /// what could not be read of them.
    pub(super) fn released(&mut self, end: RecordId) {
        self.failing.since_ns = self.failing.now_ns;
        if self.loss.lost.is_empty() && self.failing.dropped.is_empty() {
            return;
        }
        let (mut shrank, mut first_lost) = (false, None);
        let records = self.log.with_epochs().take_while(|(id, ..)| *id < end);
        for (id, record, epoch) in records {
            if self.loss.lost.overlaps(&record.range()) {
                self.loss.lost.remove(record.range());
                shrank = true;
            }
            for sectors in self.failing.dropped.remove(&id).into_iter().flatten() {
                self.loss.lost.insert(sectors, Some(epoch));
                first_lost = first_lost.or(Some(id));
            }
        }
        self.loss.version += u64::from(shrank);
        if let Some(id) = first_lost {
            self.loss.grew();
            self.lost_to_waiters(|waiter| waiter.level == Durability::Backend && waiter.needs > id);
        }
        self.failing.stuck.retain(|(id, _), _| *id >= end);
    }

    /// The back end comes nearer.
    pub(super) fn went_on(&mut self, now_ns: u64) {
        self.failing.since_ns = now_ns;
    }

    /// The back end did not flush: what it has is written again.
    pub(super) fn not_released(&mut self) {
        self.failing.dropped.clear();
        if self.failing.health == Health::Losing {
            self.failing.health = Health::Draining;
        }
    }

    /// The region map was written: with a later life, or with a tail.
    pub(super) fn regions_know(&mut self, is_later: bool, tail: Option<Tail>) {
        match self.failing.health {
            Health::GivingUp if is_later => self.failing.health = Health::Through,
            Health::Draining if tail.is_some() => self.tail_is_known(tail),
            _ => {}
        }
    }

    /// Whether somebody who waits until the back end has what is before that record does so no longer. If the process died, the log's
    /// disk might be read again, and have less than it had: what is before the tail that the map knows is safe from that.
    pub(super) fn is_met_without_log(&self, needs: RecordId) -> bool {
        match self.failing.health {
            Health::Draining => needs <= self.log.anchored,
            Health::Through => self.has_told_lost(),
            Health::Whole | Health::Losing | Health::GivingUp => false,
        }
    }

    /// The tail that the region map is to have, since the log's disk takes none.
    pub(super) fn tail_for_regions(&self) -> Option<Tail> {
        let wanted = self.failing.health == Health::Draining && self.log.wants_anchor() && !self.follow.moves_tail();
        wanted.then(|| self.log.tail())
    }
}
