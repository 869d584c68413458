//! The NBD client as a state machine without I/O: several connections, deadlines, reconnection, and replay of writes
//! that a restarted server may have lost.
//!
//! Why: an NBD server acknowledges a write once it is in a cache that dies with it. A client that merely reconnects
//! after a crash then lies at the next flush: the server flushes an empty cache and says yes. To keep the promise
//! "flush means durable", whatever was acknowledged since the last flush must be sent again, in order, before anything
//! else. That costs a copy of at most `held_bytes_max` bytes, and no round trip while nothing breaks.
//!
//! How to drive it (time is an argument, as in quinn-proto; nothing here reads a clock or touches a byte of payload):
//! 1. [`Client::new`]; then, after every call, carry out [`Client::poll_action`] until it returns `None`.
//! 2. [`Client::submit`] operations. Each completes exactly once, with [`Action::Complete`].
//! 3. Answer each [`Action::Connect`] once, with `handle_connected` or `handle_connect_failed`; report the end of each
//!    connection once, with `handle_closed`, whether [`Action::Close`] asked for it or not.
//! 4. Feed received bytes to the connection's [`Framer`]; give each reply it yields to `handle_reply`. When it
//!    finds the server at fault, close the connection and report it.
//! 5. Call `handle_timeout` at [`Client::next_timeout`].
//!
//! Rules:
//! - **Buffers.** A token's buffer is the driver's from `submit` to `Complete`. An operation in flight at its deadline
//!   has its connection closed, and completes when the driver confirms that: a late reply never meets a reused buffer.
//!   One that is queued at its deadline completes at once.
//! - **Dead first.** What was in flight on a connection is sent again only after `handle_closed`. If the peer's end was
//!   not seen ([`ClosedBy::Us`]) and something that changes contents was in flight, nothing at all is sent before
//!   `settle_ns` passed: the server may still work on it, and a late old write must not follow a newer one.
//! - **Order.** Overlapping changes are never in flight together: they reach the server in order of submission.
//! - **Held writes.** A write, trim or write-zeroes answered without FUA is held until a flush *sent after the answer*
//!   succeeds. Room for it is taken before it is sent; without room it waits, and a flush is forced (one is started at
//!   half of the room already). A FUA write is durable when answered, and is not held. Over a held one it gets a flush
//!   behind it instead: the older one's replay would undo it, and if this process dies in the middle, for good.
//! - **Replay.** All members are connections to one server process as long as they answer. When one is lost or joins
//!   while anything is held or changing, that may no longer hold: even an answer that comes later may be from a server
//!   that died, if it waited in a buffer. Then nothing new is sent; what is in flight is answered or its connection
//!   closed; all held writes are sent again in their order, overlapping ones one after the other; when all are answered,
//!   unanswered operations are sent again, then new ones. A loss or a join meanwhile starts this over. A flush
//!   counts only if no member was lost or joined between its sending and its answer.
//! - **Doubt.** If a held write cannot be replayed (refused by the server), a flush fails, or the export comes back with
//!   another size, flags or block sizes, the writes are no longer held, [`Action::InDoubt`] names their ranges, and the
//!   next flush fails with [`Failure::InDoubt`], once (a flush that itself failed has told already). What was in flight
//!   when a flush failed is replayed once answered. Ranges of writes that failed are named too when a replay is due and
//!   when a flush fails, until one succeeds: a restart may change what they read as. A flush whose answer is lost may
//!   have failed too: what was read since it was sent, of ranges with held writes, may be older than these, which the
//!   replay brings back. It is named as well. For a caller that caches: drop what is named, and what was read since is
//!   good again.
//! - **Inheritance.** A process that died may have left unflushed writes behind, which nobody holds: a server that restarts
//!   forgets them, whoever has read them since. So the first request is a flush, and nothing else is sent before its
//!   answer. If it fails, so does the next that is asked for, and everything is uncertain until one succeeds.
//! - **Changed export.** It is refused: everything is in doubt, and operations fail at their deadlines until the
//!   export is again what it was.
//! - **No flush.** A server that does not offer flush is trusted to write through: nothing is held and a flush succeeds
//!   at once. If it offers FUA, every write is sent with it. A server with flush but without FUA gets a flush behind each
//!   FUA write, before that completes.
//! - **Several connections** only with `CAN_MULTI_CONN`; the first goes up alone and tells.
//!
//! Invariants: every operation completes once; held writes fit `held_bytes_max` and `held_count_max`; each write
//! acknowledged since the last flush is held, or named in doubt with the next flush failing.
//!
//! Limits:
//! - One process behind all connections: a server of processes with separate volatile caches breaks `CAN_MULTI_CONN`.
//! - A server that works for longer than `settle_ns` on what came over a connection given up can still reorder it.
//! - The loss of one of several connections stalls everything until what is in flight on the others is answered.
//! - One caller: a flush that fails for doubt has told it, and the next may succeed.
//!
//! Rejected: closing all connections when one is lost (simpler to argue, but one slow request would then put all others
//! in flight twice); releasing held writes that a later one covers (a search per write; a flush forced a little earlier
//! is cheaper); replaying only what the lost connection answered (order across connections would be lost).

mod action;
mod answers;
mod backoff;
mod config;
mod connection;
mod deadlines;
mod doubt;
mod framer;
mod held;
mod members;
mod outstanding;
mod recovery;
mod serving;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use action::{
    Action, CloseWhy, ClosedBy, Conn, Failure, HeldId, Invalid, Kind, Op, Payload, Refused, Report, Request, Token,
};
pub use config::Config;
pub use doubt::IN_DOUBT_RANGES_MAX;
pub use framer::{Fed, Framer};

use super::Terms;
use super::constants::TransmissionFlags;
use backoff::Backoff;
use connection::Connection;
use doubt::Uncertain;
use held::HeldWrites;
use outstanding::{Key, Outstanding, Stand};

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Operations.
    Serving,
    /// Nothing: a replay is due when all is answered or closed.
    Draining,
    /// Held writes.
    Replaying,
}

#[derive(Debug)]
struct FlushUnderWay {
    /// It covers what was answered before this on the logical clock.
    stamp: u64,
    /// The membership it was sent under.
    epoch: u64,
    waiters: Vec<Key>,
}

/// What happened so far, for metrics. All count from the client's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that became ready.
    pub connected: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Ready connections that ended.
    pub lost: u64,
    /// Operations that failed for their deadline.
    pub timeouts: u64,
    /// Operations sent again after their connection was lost.
    pub resent: u64,
    /// Held writes sent again.
    pub replayed: u64,
    /// Flushes sent because of the bound on held writes.
    pub flushes_forced: u64,
    /// Held writes that fell in doubt.
    pub writes_in_doubt: u64,
}

/// The client of one export.
#[derive(Debug)]
pub struct Client {
    config: Config,
    connections: Vec<Connection>,
    terms: Option<Terms>,
    /// The export was other than `terms` when last seen.
    changed: bool,
    outstanding: Outstanding,
    reads: VecDeque<Key>,
    writes: VecDeque<Key>,
    flush_waiters: Vec<Key>,
    flush_forced: bool,
    flush: Option<FlushUnderWay>,
    held: HeldWrites,
    uncertain: Uncertain,
    /// What was read of held writes since the last flush was sent.
    read_under_flush: Uncertain,
    /// A flush was lost with its connection, and the replay that is due has not begun.
    flush_unheard: bool,
    /// No flush was answered yet: what would be read may be another process's, and go when the server restarts.
    inherited: bool,
    /// Acknowledged writes are lost, and no flush has told yet.
    untold: bool,
    /// Requests in flight that change contents: cookies and ops.
    changing: Vec<(u64, Op)>,
    phase: Phase,
    /// Rises with every loss and join.
    epoch: u64,
    settled_at_ns: u64,
    /// The logical clock that orders answers and flushes.
    clock: u64,
    requests: u64,
    backoff: Backoff,
    stopping: bool,
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Client {
    /// Starts a client, which connects at once.
    ///
    /// # Panics
    /// When a field of `config` is outside the range it names.
    pub fn new(config: Config, now_ns: u64) -> Self {
        config.assert_sound();
        let mut client = Self {
            connections: (0..config.connections_max).map(|_| Connection::new(config.in_flight_max)).collect(),
            terms: None,
            changed: false,
            outstanding: Outstanding::new(config.outstanding_max),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            flush_waiters: Vec::new(),
            flush_forced: false,
            flush: None,
            held: HeldWrites::new(config.held_bytes_max, config.held_count_max),
            uncertain: Uncertain::default(),
            read_under_flush: Uncertain::default(),
            flush_unheard: false,
            inherited: true,
            untold: false,
            changing: Vec::new(),
            phase: Phase::Serving,
            epoch: 0,
            settled_at_ns: 0,
            clock: 0,
            requests: 0,
            backoff: Backoff::new(config.backoff_min_ns, config.backoff_max_ns, config.seed),
            stopping: false,
            actions: VecDeque::new(),
            counters: Counters::default(),
            config,
        };
        client.plan_connections(now_ns);
        client
    }

    /// Takes an operation; its deadline is `request_timeout_ns` from now.
    ///
    /// Before the first connection everything is taken. What does not fit the export fails once that is known.
    ///
    /// # Errors
    /// When there are too many outstanding, or the client stops. Nothing was taken then.
    pub fn submit(&mut self, now_ns: u64, token: Token, op: Op) -> Result<(), Refused> {
        if self.stopping {
            return Err(Refused::Stopped);
        }
        let stand = match op.kind {
            Kind::Flush => Stand::ForFlush,
            _ => Stand::Queued,
        };
        let deadline_ns = now_ns.saturating_add(self.config.request_timeout_ns);
        let key = self.outstanding.insert(token, op, deadline_ns, stand).ok_or(Refused::Full)?;
        match op.kind {
            Kind::Read => self.reads.push_back(key),
            Kind::Flush => self.flush_waiters.push(key),
            _ => self.writes.push_back(key),
        }
        self.advance(now_ns);
        Ok(())
    }

    /// Gives up a read that no connection has in hand: it completes as failed. One that was sent goes on, since its
    /// answer may come into its buffer at any time.
    pub fn give_up(&mut self, token: Token) {
        let waits = |key: &Key| self.outstanding.get(*key).token == token;
        if let Some(at) = self.reads.iter().position(waits) {
            let key = self.reads.remove(at).expect("it was found there");
            self.complete(key, Err(Failure::Unsent));
        }
    }

    /// The next order, if there is one. Poll until `None` after every other call.
    ///
    /// One call leaves at most a few orders for each operation outstanding and each held write.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Takes no more operations; when those outstanding are completed, closes all connections.
    ///
    /// It does not flush: submit a flush first.
    pub fn stop(&mut self, now_ns: u64) {
        self.stopping = true;
        self.advance(now_ns);
    }

    /// True when, after [`Self::stop`], all is completed and closed.
    pub fn is_stopped(&self) -> bool {
        let idle = |c: &Connection| c.state == connection::State::Idle;
        self.stopping && self.outstanding.len() == 0 && self.connections.iter().all(idle)
    }

    /// The export, once a connection was ready.
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// The longest write, in bytes, that can be submitted to the export.
    pub fn write_bytes_max(&self) -> u64 {
        let export = self.terms.map_or(u32::MAX, |terms| terms.blocks.max_bytes);
        u64::from(export).min(self.config.held_bytes_max)
    }

    /// Connections that are ready.
    pub fn connected(&self) -> usize {
        self.connections.iter().filter(|c| c.is_up()).count()
    }

    /// True while the server offers another export than the one first seen.
    pub fn is_export_changed(&self) -> bool {
        self.changed
    }

    /// Operations submitted and not completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Held writes and the bytes kept for them.
    pub fn held(&self) -> (usize, u64) {
        (self.held.len(), self.held.bytes())
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn can(&self, flag: TransmissionFlags) -> bool {
        self.terms.is_some_and(|terms| terms.flags.has(flag))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    fn complete(&mut self, key: Key, result: Result<(), Failure>) {
        let operation = self.outstanding.remove(key);
        if operation.reserved {
            self.held.unreserve(&operation.op);
        }
        if matches!(result, Err(Failure::Unsent | Failure::Unanswered)) {
            self.counters.timeouts += 1;
        }
        self.act(Action::Complete { token: operation.token, result });
    }

    /// A write failed, so what it left behind is open.
    fn complete_failed(&mut self, key: Key, failure: Failure) {
        let op = self.outstanding.get(key).op;
        if op.kind.changes() && self.can(TransmissionFlags::SEND_FLUSH) {
            let stamp = self.tick();
            self.uncertain.add(op.range(), stamp);
        }
        self.complete(key, Err(failure));
    }

    /// Does whatever has become possible.
    fn advance(&mut self, now_ns: u64) {
        if self.phase != Phase::Serving {
            self.recover(now_ns);
        }
        if self.phase == Phase::Serving {
            self.serve(now_ns);
        }
        if self.stopping && self.outstanding.len() == 0 && self.flush.is_none() {
            self.close_all(CloseWhy::Stopped);
        }
    }
}
