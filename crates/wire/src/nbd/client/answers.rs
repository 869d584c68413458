//! What a reply means for the operation, the held writes and the flush.

use alloc::vec::Vec;

use super::action::{Action, CloseWhy, Conn, Failure, Kind, Op, Report};
use super::connection::Work;
use super::doubt::{EVERYTHING, Uncertain};
use super::outstanding::{Key, Stand};
use super::{Client, FlushUnderWay, Phase};
use crate::nbd::constants::{Errno, TransmissionFlags};

impl Client {
    /// A reply arrived; a read's bytes are in its buffer.
    ///
    /// Replies of a connection that is being closed count for nothing.
    pub fn handle_reply(&mut self, now_ns: u64, conn: Conn, cookie: u64, result: Result<(), Errno>) {
        let connection = &mut self.connections[conn.index()];
        if !connection.is_up() {
            return;
        }
        let Some(flight) = connection.flight(cookie) else {
            self.close(conn, CloseWhy::UnknownCookie);
            return;
        };
        if result == Err(Errno::Shutdown) {
            // Not the request's fault: it stays unanswered, and is sent again to whoever comes next.
            self.close(conn, CloseWhy::ServerStopping);
            return;
        }
        connection.land(cookie);
        // It serves: the next outage is a new one. One failure stays, for a server that dies of what it is asked.
        connection.failures = connection.failures.min(1);
        self.changing.retain(|(other, _)| *other != cookie);
        match flight.work {
            Work::Operation(key) => self.answered(key, flight.op, result),
            Work::Replay(answered) => self.replay_answered(answered, result),
            Work::Flush => self.flush_answered(result),
        }
        self.advance(now_ns);
    }

    /// `sent` is the operation as it went out: its FUA flag tells whether the answer means durable.
    fn answered(&mut self, key: Key, sent: Op, result: Result<(), Errno>) {
        if let Err(error) = result {
            self.complete_failed(key, Failure::Server(error));
            return;
        }
        let operation = self.outstanding.get_mut(key);
        let (token, op, reserved) = (operation.token, operation.op, operation.reserved);
        operation.reserved = false;
        let may_be_old = op.kind == Kind::Read && (self.flush.is_some() || self.flush_unheard);
        if may_be_old && self.held.overlaps(op.range()) {
            let stamp = self.tick();
            self.read_under_flush.add(op.range(), stamp);
        }
        if reserved {
            let answered = self.tick();
            let held = self.held.hold(sent, answered);
            if sent.kind == Kind::Write {
                self.act(Action::Hold { token, held, length: sent.length });
            }
        }
        if op.fua && !sent.fua && self.can(TransmissionFlags::SEND_FLUSH) {
            self.outstanding.get_mut(key).stand = Stand::ForFlush;
            self.flush_waiters.push(key);
        } else {
            self.complete(key, Ok(()));
        }
    }

    fn flush_answered(&mut self, result: Result<(), Errno>) {
        let flush = self.flush.take().expect("a flush under way");
        self.read_under_flush = Uncertain::default();
        match result {
            Err(error) => self.flush_failed(flush, error),
            Ok(()) if flush.epoch == self.epoch => self.flush_done(flush),
            // Whoever said yes may not be who had the writes. What forced it, if anything, still does.
            Ok(()) => self.flush_again(flush),
        }
    }

    pub(super) fn flush_again(&mut self, flush: FlushUnderWay) {
        for key in &flush.waiters {
            self.outstanding.get_mut(*key).stand = Stand::ForFlush;
        }
        self.flush_waiters.splice(0..0, flush.waiters);
    }

    fn flush_done(&mut self, flush: FlushUnderWay) {
        while let Some(write) = self.held.pop_before(flush.stamp) {
            self.release(write.op, write.held);
        }
        self.uncertain.settle_before(flush.stamp);
        self.inherited = false;
        let mut told = false;
        for key in flush.waiters {
            let tells = self.untold && self.outstanding.get(key).op.kind == Kind::Flush;
            told |= tells;
            self.complete(key, if tells { Err(Failure::InDoubt) } else { Ok(()) });
        }
        self.untold &= !told;
    }

    /// After a failed flush a server may have dropped what it could not write, and say yes to the next one.
    fn flush_failed(&mut self, flush: FlushUnderWay, error: Errno) {
        let told = (flush.waiters.iter()).any(|key| self.outstanding.get(*key).op.kind == Kind::Flush);
        let covered = self.held.iter().all(|write| write.answered < flush.stamp);
        self.act(Action::Report(Report::FlushFailed { error, in_doubt: self.held.len() as u32 }));
        for key in flush.waiters {
            self.complete_failed(key, Failure::Server(error));
        }
        // What failed writes left behind may be dropped as well.
        let left_behind = self.uncertain.ranges();
        self.name_in_doubt(left_behind, true);
        let dropped = self.drop_held();
        let inherited = core::mem::take(&mut self.inherited);
        if inherited {
            // Nothing was read yet. What is left of it may be read from now on, and be dropped later.
            let stamp = self.tick();
            self.uncertain.add(EVERYTHING, stamp);
        }
        self.untold |= (dropped && !(told && covered)) || (inherited && !told);
        if !self.changing.is_empty() {
            // Done at the server before its flush failed, answered after: dropped too, for all we know. They are held
            // when answered, and sent again before the next flush.
            self.phase = Phase::Draining;
        }
    }

    fn replay_answered(&mut self, answered: u64, result: Result<(), Errno>) {
        if let Err(error) = result {
            let op = self.held.replay_refused(answered);
            self.act(Action::Report(Report::ReplayRefused { offset: op.offset, length: op.length, error }));
        }
    }

    /// FUA writes that only wait for a flush fail with the doubt: theirs may be the write that is lost.
    pub(super) fn fail_durable_waiters(&mut self) {
        let mut waiting: Vec<Key> = self.flush_waiters.clone();
        if let Some(flush) = &self.flush {
            waiting.extend_from_slice(&flush.waiters);
        }
        waiting.retain(|key| self.outstanding.get(*key).op.kind != Kind::Flush);
        self.leave_flush(&waiting);
        for key in waiting {
            self.complete_failed(key, Failure::InDoubt);
        }
    }

    /// Takes operations out of those that wait for a flush.
    pub(super) fn leave_flush(&mut self, keys: &[Key]) {
        self.flush_waiters.retain(|key| !keys.contains(key));
        if let Some(flush) = &mut self.flush {
            flush.waiters.retain(|key| !keys.contains(key));
        }
    }
}
