//! When the client must be called again, and what has come due then.

use alloc::vec::Vec;

use super::action::{CloseWhy, Conn, Failure, Kind};
use super::connection::{State, Work};
use super::outstanding::{Key, Stand};
use super::{Client, Phase};

impl Client {
    /// When to call [`Client::handle_timeout`], at the latest.
    pub fn next_timeout(&self) -> Option<u64> {
        let mut next = self.outstanding.oldest().map(|(_, deadline_ns)| deadline_ns);
        let mut sooner = |at_ns: u64| next = Some(next.map_or(at_ns, |next: u64| next.min(at_ns)));
        for (index, connection) in self.connections.iter().enumerate() {
            match connection.state {
                State::Waiting { until_ns } if self.is_wanted(index) => sooner(until_ns),
                State::Connecting { deadline_ns } => sooner(deadline_ns),
                State::Up { .. } if self.has_own_deadlines() => {
                    connection.flights().for_each(|f| sooner(f.deadline_ns));
                }
                _ => {}
            }
        }
        if self.phase == Phase::Draining && self.is_quiet() && self.connected() > 0 {
            sooner(self.settled_at_ns);
        }
        next
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.expire_connections(now_ns);
        while let Some((key, deadline_ns)) = self.outstanding.oldest() {
            if deadline_ns > now_ns {
                break;
            }
            self.expire(key);
        }
        self.plan_connections(now_ns);
        self.advance(now_ns);
    }

    /// Replays and flushes have deadlines that no operation has.
    fn has_own_deadlines(&self) -> bool {
        self.phase != Phase::Serving || self.flush.is_some()
    }

    fn expire_connections(&mut self, now_ns: u64) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let own = |work| !matches!(work, Work::Operation(_));
            let why = match connection.state {
                State::Connecting { deadline_ns } if deadline_ns <= now_ns => CloseWhy::ConnectTimeout,
                State::Up { .. } if (connection.flights()).any(|f| own(f.work) && f.deadline_ns <= now_ns) => {
                    CloseWhy::RequestTimeout
                }
                _ => continue,
            };
            self.close(Conn(index as u8), why);
        }
    }

    fn expire(&mut self, key: Key) {
        let operation = *self.outstanding.get(key);
        let failure = match operation.sent {
            true => Failure::Unanswered,
            false => Failure::Unsent,
        };
        match operation.stand {
            Stand::Expired => unreachable!("an expired operation has no deadline"),
            Stand::InFlight(index) => {
                self.outstanding.expire(key);
                self.close(Conn(index as u8), CloseWhy::RequestTimeout);
            }
            Stand::Queued => {
                let queue = match operation.op.kind {
                    Kind::Read => &mut self.reads,
                    _ => &mut self.writes,
                };
                queue.retain(|other| *other != key);
                self.fail_expired(key, failure);
            }
            Stand::ForFlush => {
                self.leave_flush(&[key]);
                self.fail_expired(key, failure);
            }
            Stand::UnderFlush => {
                // No buffer is in use, so it need not wait for the close.
                self.leave_flush(&[key]);
                self.fail_expired(key, failure);
                self.close_flushing();
            }
        }
    }

    /// An operation that never went out has left nothing behind.
    fn fail_expired(&mut self, key: Key, failure: Failure) {
        match failure {
            Failure::Unsent => self.complete(key, Err(failure)),
            _ => self.complete_failed(key, failure),
        }
    }

    fn close_flushing(&mut self) {
        let flushing: Vec<Conn> = (self.connections.iter().enumerate())
            .filter(|(_, c)| c.is_up() && c.flights().any(|f| f.work == Work::Flush))
            .map(|(index, _)| Conn(index as u8))
            .collect();
        for conn in flushing {
            self.close(conn, CloseWhy::RequestTimeout);
        }
    }
}
