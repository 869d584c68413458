//! What is sent in ordinary times: flushes first, then writes and reads in turn, each in order of submission.

use super::action::{Action, Conn, Failure, Invalid, Kind, Op, Payload, Request};
use super::connection::Work;
use super::outstanding::{Key, Stand};
use super::{Client, FlushUnderWay};
use crate::nbd::Terms;
use crate::nbd::constants::TransmissionFlags;

impl Client {
    pub(super) fn serve(&mut self, now_ns: u64) {
        if self.terms.is_none() {
            return;
        }
        self.serve_flush(now_ns);
        while !self.inherited {
            let wrote = self.serve_write();
            let read = self.serve_read();
            if !wrote && !read {
                break;
            }
        }
        // A write that found no room has forced one.
        self.serve_flush(now_ns);
    }

    /// One flush is under way at a time; those submitted meanwhile share the next.
    fn serve_flush(&mut self, now_ns: u64) {
        if self.untold && !self.flush_waiters.is_empty() {
            self.tell_doubt();
        }
        let forced = self.flush_forced || self.inherited || self.held.is_half_full();
        if self.flush.is_some() || (self.flush_waiters.is_empty() && !forced) {
            return;
        }
        if !self.can(TransmissionFlags::SEND_FLUSH) {
            self.inherited = false;
            for key in core::mem::take(&mut self.flush_waiters) {
                self.complete(key, Ok(()));
            }
            return;
        }
        let Some(conn) = self.roomiest() else { return };
        if self.flush_waiters.is_empty() {
            self.counters.flushes_forced += 1;
        }
        self.flush_forced = false;
        let waiters = core::mem::take(&mut self.flush_waiters);
        for key in &waiters {
            let operation = self.outstanding.get_mut(*key);
            operation.stand = Stand::UnderFlush;
            operation.sent = true;
        }
        let flush = FlushUnderWay { stamp: self.tick(), epoch: self.epoch, waiters };
        self.flush = Some(flush);
        let deadline_ns = now_ns.saturating_add(self.config.request_timeout_ns);
        self.send(conn, Op::FLUSH, Work::Flush, deadline_ns, Payload::None);
    }

    /// Fails the waiting flushes because acknowledged writes are lost.
    fn tell_doubt(&mut self) {
        for key in core::mem::take(&mut self.flush_waiters) {
            if self.outstanding.get(key).op.kind == Kind::Flush {
                self.untold = false;
                self.complete(key, Err(Failure::InDoubt));
            } else {
                self.flush_waiters.push(key);
            }
        }
    }

    fn serve_write(&mut self) -> bool {
        let Some(&key) = self.writes.front() else {
            return false;
        };
        let mut op = self.outstanding.get(key).op;
        if let Err(failure) = self.check(&op) {
            self.writes.pop_front();
            self.complete(key, Err(failure));
            return true;
        }
        let Some(conn) = self.roomiest() else {
            return false;
        };
        if self.is_changing(&op) {
            return false;
        }
        let flushes = self.can(TransmissionFlags::SEND_FLUSH);
        let trusts_fua = self.can(TransmissionFlags::SEND_FUA) && !self.held.overlaps(op.range());
        op.fua = (op.fua || !flushes) && trusts_fua;
        if flushes && !op.fua {
            if !self.held.reserve(&op) {
                self.flush_forced = self.flush.is_none() && !self.held.is_empty();
                return false;
            }
            self.outstanding.get_mut(key).reserved = true;
        }
        self.writes.pop_front();
        self.launch(conn, key, op);
        true
    }

    fn serve_read(&mut self) -> bool {
        let Some(&key) = self.reads.front() else {
            return false;
        };
        let op = self.outstanding.get(key).op;
        if let Err(failure) = self.check(&op) {
            self.reads.pop_front();
            self.complete(key, Err(failure));
            return true;
        }
        let Some(conn) = self.roomiest() else {
            return false;
        };
        self.reads.pop_front();
        self.launch(conn, key, op);
        true
    }

    fn launch(&mut self, conn: Conn, key: Key, op: Op) {
        let operation = self.outstanding.get_mut(key);
        if operation.sent {
            self.counters.resent += 1;
        }
        operation.sent = true;
        operation.stand = Stand::InFlight(conn.index());
        let payload = match op.kind {
            Kind::Read | Kind::Write => Payload::Caller(operation.token),
            _ => Payload::None,
        };
        let deadline_ns = operation.deadline_ns;
        self.send(conn, op, Work::Operation(key), deadline_ns, payload);
    }

    pub(super) fn send(&mut self, conn: Conn, op: Op, work: Work, deadline_ns: u64, payload: Payload) {
        self.requests += 1;
        let connection = &mut self.connections[conn.index()];
        let cookie = connection.launch(self.requests, op, work, deadline_ns);
        if op.kind.changes() {
            self.changing.push((cookie, op));
        }
        self.act(Action::Send { conn, request: Request { cookie, op }, payload });
    }

    /// True when something in flight changes a part of the op's range.
    pub(super) fn is_changing(&self, op: &Op) -> bool {
        let range = op.range();
        self.changing.iter().any(|(_, c)| c.range().overlaps(range))
    }

    /// The ready connection with the fewest requests in flight, if any has room.
    pub(super) fn roomiest(&self) -> Option<Conn> {
        let (index, connection) = self
            .connections
            .iter()
            .enumerate()
            .filter(|(_, connection)| connection.is_up())
            .max_by_key(|(_, connection)| connection.room())?;
        (connection.room() > 0).then_some(Conn(index as u8))
    }

    fn check(&self, op: &Op) -> Result<(), Failure> {
        let Some(Terms { size_bytes, blocks, .. }) = self.terms else {
            return Ok(());
        };
        let min = u64::from(blocks.min_bytes);
        let length = u64::from(op.length);
        let payload_max = match op.kind {
            Kind::Read => u64::from(blocks.max_bytes),
            Kind::Write => self.write_bytes_max(),
            _ => u64::MAX,
        };
        let offered = match op.kind {
            Kind::Trim => self.can(TransmissionFlags::SEND_TRIM),
            Kind::WriteZeroes { .. } => self.can(TransmissionFlags::SEND_WRITE_ZEROES),
            _ => true,
        };
        let table = [
            (length == 0, Failure::Invalid(Invalid::Empty)),
            (op.offset.checked_add(length).is_none_or(|end| end > size_bytes), Failure::Invalid(Invalid::OutOfRange)),
            (!op.offset.is_multiple_of(min) || !length.is_multiple_of(min), Failure::Invalid(Invalid::Misaligned)),
            (length > payload_max, Failure::Invalid(Invalid::TooLong)),
            (op.kind.changes() && self.can(TransmissionFlags::READ_ONLY), Failure::ReadOnly),
            (!offered, Failure::Unsupported),
        ];
        match table.iter().find(|(broken, _)| *broken) {
            Some((_, failure)) => Err(*failure),
            None => Ok(()),
        }
    }
}
