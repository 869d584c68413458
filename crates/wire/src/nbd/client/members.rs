//! How connections come and go.

use super::action::{Action, CloseWhy, ClosedBy, Conn, Failure, Report};
use super::connection::{Flight, State, Work};
use super::outstanding::{Key, Stand};
use super::{Client, Kind};
use crate::nbd::Terms;
use crate::nbd::constants::TransmissionFlags;

impl Client {
    /// The handshake ended well.
    pub fn handle_connected(&mut self, now_ns: u64, conn: Conn, terms: Terms) {
        let connection = &mut self.connections[conn.index()];
        if matches!(connection.state, State::Closing { .. }) {
            // It crossed the order to give up; the driver still answers that.
            return;
        }
        assert!(matches!(connection.state, State::Connecting { .. }), "connected without an order to connect");
        connection.state = State::Up { since_ns: now_ns };
        self.counters.connected += 1;
        if let Some(known) = self.terms.filter(|known| !is_same_export(known, &terms)) {
            self.refuse_export(known, terms);
            return;
        }
        self.changed = false;
        self.terms = Some(terms);
        self.act(Action::Report(Report::Connected { conn }));
        self.membership_changed(now_ns);
        self.plan_connections(now_ns);
        self.advance(now_ns);
    }

    /// The connection could not be made, or the handshake failed.
    pub fn handle_connect_failed(&mut self, now_ns: u64, conn: Conn) {
        let connection = &mut self.connections[conn.index()];
        assert!(
            matches!(connection.state, State::Connecting { .. } | State::Closing { was_up_since_ns: None }),
            "failed to connect without an order to connect"
        );
        self.counters.connect_failures += 1;
        self.forget_orders(conn);
        self.retry_later(now_ns, conn);
        self.advance(now_ns);
    }

    /// The connection is closed: no buffer is touched for it any more.
    pub fn handle_closed(&mut self, now_ns: u64, conn: Conn, by: ClosedBy) {
        self.forget_orders(conn);
        let connection = &mut self.connections[conn.index()];
        let since_ns = match connection.state {
            State::Up { since_ns } | State::Closing { was_up_since_ns: Some(since_ns) } => since_ns,
            _ => return self.handle_connect_failed(now_ns, conn),
        };
        if now_ns.saturating_sub(since_ns) >= self.config.backoff_max_ns {
            connection.failures = 0;
        }
        let lost = connection.take_flights();
        self.counters.lost += 1;
        self.act(Action::Report(Report::Lost { conn, unanswered: lost.len() as u32 }));
        let changing = lost.iter().any(|flight| flight.op.kind.changes());
        if by == ClosedBy::Us && changing {
            let settled_at_ns = now_ns.saturating_add(self.config.settle_ns);
            self.settled_at_ns = self.settled_at_ns.max(settled_at_ns);
        }
        for flight in lost {
            self.unanswered(flight);
        }
        self.membership_changed(now_ns);
        self.retry_later(now_ns, conn);
        self.advance(now_ns);
    }

    fn unanswered(&mut self, flight: Flight) {
        self.changing.retain(|(cookie, _)| *cookie != flight.cookie);
        match flight.work {
            Work::Operation(key) if self.outstanding.get(key).stand == Stand::Expired => {
                self.complete_failed(key, Failure::Unanswered);
            }
            Work::Operation(key) => self.queue_again(key),
            // The held write is still held, and the change of members restarts the replay.
            Work::Replay(_) => {}
            Work::Flush => {
                let flush = self.flush.take().expect("a flush under way");
                self.flush_unheard |= !self.held.is_empty();
                self.flush_again(flush);
            }
        }
    }

    fn queue_again(&mut self, key: Key) {
        let operation = self.outstanding.get_mut(key);
        operation.stand = Stand::Queued;
        let (op, number) = (operation.op, operation.number);
        if core::mem::take(&mut operation.reserved) {
            self.held.unreserve(&op);
        }
        let queue = match op.kind {
            Kind::Read => &mut self.reads,
            _ => &mut self.writes,
        };
        let at = queue.partition_point(|other| self.outstanding.get(*other).number < number);
        queue.insert(at, key);
    }

    fn refuse_export(&mut self, known: Terms, offered: Terms) {
        if !self.changed {
            self.changed = true;
            self.act(Action::Report(Report::ExportChanged { known, offered }));
            self.doubt_everything();
        }
        self.close_all(CloseWhy::ExportChanged);
    }

    fn retry_later(&mut self, now_ns: u64, conn: Conn) {
        let connection = &mut self.connections[conn.index()];
        if self.stopping && self.outstanding.len() == 0 {
            connection.state = State::Idle;
            return;
        }
        let failures = connection.failures;
        connection.failures = failures.saturating_add(1);
        let retry_in_ns = self.backoff.delay_ns(failures);
        connection.state = State::Waiting { until_ns: now_ns.saturating_add(retry_in_ns) };
        self.act(Action::Report(Report::Retrying { conn, failures: failures + 1, retry_in_ns }));
    }

    /// Orders the connections that are wanted and due: the first always, the others beside one that is ready.
    pub(super) fn plan_connections(&mut self, now_ns: u64) {
        for index in 0..self.connections.len() {
            let due = match self.connections[index].state {
                State::Idle => true,
                State::Waiting { until_ns } => until_ns <= now_ns,
                _ => false,
            };
            if due && self.is_wanted(index) {
                let deadline_ns = now_ns.saturating_add(self.config.connect_timeout_ns);
                self.connections[index].state = State::Connecting { deadline_ns };
                self.act(Action::Connect { conn: Conn(index as u8) });
            }
        }
    }

    pub(super) fn is_wanted(&self, index: usize) -> bool {
        let beside = self.can(TransmissionFlags::CAN_MULTI_CONN) && self.connected() > 0;
        !(self.stopping && self.outstanding.len() == 0) && (index == 0 || beside)
    }

    pub(super) fn close(&mut self, conn: Conn, why: CloseWhy) {
        let connection = &mut self.connections[conn.index()];
        connection.state = match connection.state {
            State::Up { since_ns } => State::Closing { was_up_since_ns: Some(since_ns) },
            State::Connecting { .. } => State::Closing { was_up_since_ns: None },
            _ => return,
        };
        self.act(Action::Close { conn, why });
    }

    pub(super) fn close_all(&mut self, why: CloseWhy) {
        for index in 0..self.connections.len() {
            self.close(Conn(index as u8), why);
            if why == CloseWhy::Stopped && matches!(self.connections[index].state, State::Waiting { .. }) {
                self.connections[index].state = State::Idle;
            }
        }
    }

    /// Orders for a connection that is gone are not carried out.
    fn forget_orders(&mut self, gone: Conn) {
        self.actions.retain(|action| match action {
            Action::Send { conn, .. } | Action::Close { conn, .. } => *conn != gone,
            _ => true,
        });
    }
}

/// True when what is held and cached for one is good for the other.
fn is_same_export(known: &Terms, offered: &Terms) -> bool {
    known.size_bytes == offered.size_bytes
        && known.flags == offered.flags
        && known.blocks.min_bytes == offered.blocks.min_bytes
        && known.blocks.max_bytes == offered.blocks.max_bytes
}
