//! Bypass: changes that go straight to the back end, without a record.
//!
//! Why: a burst of large writes is limited by the back end in the end. What the log takes of it is written twice and read
//! once; what goes past it costs the log's disk nothing, and both take a part of the burst.
//!
//! How: a change passes the log only in the open epoch, when
//! 1. every boundary so far is flushed on the back end, and the disk knows the tail behind all that has left the log: else
//!    an earlier epoch would lack something while a later one is there, or a recovery would write an old record over it;
//! 2. the log has nothing of its sectors, and they are not lost ([`super::loss`]): else the old record would be written over
//!    it, or it could not be read. Changes that are not answered do
//!    not overlap it, by what is asked of clients.
//!
//! A large write that may pass takes the way on which it is done sooner ([`super::balance`]); when the log is filling up, or the
//! region map lacks its regions, it passes.
//!
//! What the back end answered is not durable there. The boundary that closes the epoch *holds*: what comes after it stays in
//! the log, and no change passes, until the back end has flushed all that passed. A flush of a client's waits for that too.
//! If that flush fails, nobody has those bytes any more: the flush fails, and the ranges are told as lost. A bypass that
//! fails is logged: what it left is put right by its record.
//!
//! Invariant: between a boundary and the end of its hold nothing of a later epoch leaves for the back end.
//!
//! Limits: at most [`RANGES_MAX`] ranges are not flushed; at half of that the back end is flushed. Large writes at random places of a
//! large volume nearly all pass: the map seldom has their regions.

use super::super::{RecordId, SECTOR_BYTES};
use super::failing::Health;
use super::pace::LOW;
use super::policy::{Bypass, Durability};
use super::serve::FlushWaiter;
use super::{Logged, Memory, Order, Place, Request, Role, Waiting, Wish};
use crate::IoError;
use alloc::vec::Vec;
use core::ops::Range;

/// Ranges that the back end has answered and not flushed.
const RANGES_MAX: usize = 1024;
/// With so few records left the changes of a log that is to be empty wait for them.
const DRAIN_RECORDS_MAX: u64 = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bypasses {
    live: u32,
    /// When the last one ended.
    ended_ns: u64,
    /// Answered; the last flush that began does not cover them.
    answered: Vec<Range<u64>>,
    /// Answered; a flush under way covers them.
    flushing: Vec<Range<u64>>,
    /// How many were answered, of these how many are flushed or told as lost, and how many the flush under way covers.
    answers: u64,
    settled: u64,
    covers: u64,
    /// A boundary has closed behind some that are not flushed.
    holds: bool,
    /// Lost, and not told to the layer above.
    in_doubt: Vec<Range<u64>>,
    /// Some were lost, and no flush has failed for them yet.
    pub(super) owes_failure: bool,
}

/// Where a change goes.
pub(super) enum Route {
    Log,
    Around,
    /// Into the log if the region map has its regions, past it otherwise.
    Either,
    Wait,
}

impl Bypasses {
    /// Something is not flushed on the back end.
    pub(super) fn is_dirty(&self) -> bool {
        self.live > 0 || !self.answered.is_empty() || !self.flushing.is_empty()
    }

    /// Something is on its way past the log, or was just now.
    pub(super) fn is_burst(&self, now_ns: u64, gap_ns: u64) -> bool {
        self.live > 0 || (self.ended_ns > 0 && now_ns.saturating_sub(self.ended_ns) < gap_ns)
    }

    fn has_room(&self) -> bool {
        self.answered.len() + self.flushing.len() + (self.live as usize) < RANGES_MAX
    }

    /// A flush is wanted, and would settle something.
    pub(super) fn wants_flush(&self) -> bool {
        (self.holds && self.live == 0) || self.answered.len() >= RANGES_MAX / 2
    }

    /// A flush would not cover all that a boundary waits for.
    pub(super) fn delays_flush(&self) -> bool {
        self.holds && self.live > 0
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn flush_begins(&mut self) {
        assert!(self.flushing.is_empty(), "one flush at a time");
        core::mem::swap(&mut self.answered, &mut self.flushing);
        self.covers = self.answers;
    }

    fn answered(&mut self, sectors: Range<u64>) {
        self.answers += 1;
        match self.answered.last_mut().filter(|last| last.end == sectors.start) {
            Some(last) => last.end = sectors.end,
            None => self.answered.push(sectors),
        }
    }
}

impl Logged {
    /// Closes the epoch for somebody who is promised something.
    pub(super) fn close_boundary(&mut self) -> RecordId {
        let end = self.log.close(true);
        if self.bypass.is_dirty() && !self.bypass.holds {
            self.bypass.holds = true;
            self.log.hold(Some(end));
        }
        end
    }

    pub(super) fn route(&self, now_ns: u64, Waiting { request, must_log }: &Waiting) -> Route {
        let is_large =
            request.wish == (Wish::Write { fua: false }) && self.policy.bypass.is_large(request.whole_sectors);
        if self.broken || (self.lacks_map(&request.sectors) && !must_log) {
            return self.route_past(request);
        }
        let is_all = self.policy.bypass == Bypass::All;
        let is_lost = self.loss.lost.overlaps(&request.sectors);
        if is_lost || *must_log || !(is_large || is_all) {
            return Route::Log;
        }
        if self.bypass.has_room() && !self.bypass.holds && self.log.takes_bypass(&request.sectors) {
            let sectors = request.sectors.end - request.sectors.start;
            let is_sooner = is_all || self.balance.is_past(now_ns, sectors) || self.load(now_ns).pressure() > LOW;
            return if is_sooner { Route::Around } else { Route::Either };
        }
        let is_near = self.log.next() - self.log.first <= DRAIN_RECORDS_MAX && !self.follow.fails();
        if is_all && is_near { Route::Wait } else { Route::Log }
    }

    /// A log that takes nothing, or whose region map does not: past it, when that is allowed.
    fn route_past(&self, request: &Request) -> Route {
        let is_free = self.bypass.has_room() && !self.bypass.holds;
        match self.failing.health {
            Health::Whole if self.broken => Route::Log,
            Health::Whole | Health::Through if is_free && self.log.takes_bypass(&request.sectors) => Route::Around,
            _ => Route::Wait,
        }
    }

    pub(super) fn bypass(&mut self, now_ns: u64, request: Request) {
        self.bypass.live += 1;
        self.balance.past.begins(now_ns, request.sectors.end - request.sectors.start);
        let (token, sectors) = (request.token, request.sectors.clone());
        let from = Place { memory: Memory::Client(token), skip: 0 };
        let wish = request.wish;
        let id = self.start(Role::Bypass { request });
        self.ready.push_back(match wish {
            Wish::Zero { no_hole, .. } => Order::ZeroBackend { id, sectors, no_hole },
            _ => Order::WriteBackend { id, from, sectors },
        });
    }

    pub(super) fn bypass_ended(&mut self, now_ns: u64, request: Request, result: Result<(), IoError>) {
        self.bypass.live -= 1;
        self.bypass.ended_ns = now_ns;
        self.balance.past.ends(now_ns, request.sectors.end - request.sectors.start);
        self.follow.went(now_ns, result.is_ok());
        if let Err(error) = result {
            self.counts.failed_bypasses += 1;
            if self.broken {
                self.answer(request.token, Err(error));
                return self.hold_ends();
            }
            self.waiting.push_front(Waiting { request, must_log: true });
            return self.hold_ends();
        }
        self.counts.bypasses += 1;
        self.counts.bypass_bytes += (request.sectors.end - request.sectors.start) * SECTOR_BYTES;
        self.loss.passed(&request.sectors);
        self.bypass.answered(request.sectors);
        let (Wish::Write { fua } | Wish::Zero { fua, .. }) = request.wish else { unreachable!("{:?}", request.wish) };
        if fua {
            self.close_boundary();
            let needs_answers = self.bypass.answers;
            let token = request.token;
            let level = Durability::Backend;
            self.wait_for_flush(FlushWaiter { token, is_flush: false, needs: 0, needs_answers, level });
        } else {
            self.answer(request.token, Ok(()));
        }
    }

    /// A flush of the back end ended.
    pub(super) fn bypasses_flushed(&mut self, is_well: bool) {
        if is_well {
            self.bypass.flushing.clear();
            self.bypass.settled = self.bypass.covers;
        } else if !(self.bypass.flushing.is_empty() && self.bypass.answered.is_empty()) {
            // Also what was answered since it began.
            let lost = self.bypass.flushing.drain(..).chain(self.bypass.answered.drain(..));
            self.bypass.in_doubt.extend(lost);
            let settled = core::mem::replace(&mut self.bypass.settled, self.bypass.answers);
            let mut told = false;
            for waiter in self.flush_waiters.extract_if(.., |waiter| waiter.needs_answers > settled) {
                told |= waiter.is_flush;
                self.ready.push_back(Order::Answer { token: waiter.token, result: Err(IoError::Lost) });
            }
            self.bypass.owes_failure |= !told;
        }
        self.hold_ends();
    }

    fn hold_ends(&mut self) {
        if self.bypass.holds && !self.bypass.is_dirty() {
            self.bypass.holds = false;
            self.log.hold(None);
        }
    }

    /// Something is lost, and no flush has failed for it.
    pub(super) fn owe_failure(&mut self) {
        self.bypass.owes_failure = true;
    }

    /// Whether something was lost that no client's flush has failed for: now one does.
    pub(super) fn take_owed_failure(&mut self) -> bool {
        core::mem::take(&mut self.bypass.owes_failure)
    }

    /// Ranges that the back end answered past the log and then lost, since asked last.
    pub fn in_doubt(&mut self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.bypass.in_doubt.drain(..)
    }
}
