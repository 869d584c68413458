//! The NBD back end: the real client machine over modelled connections to a modelled server.
//!
//! What `forebay_engine::devices::nbd` does with sockets is done here with a queue of events: connect, send, answer,
//! close. The decisions (deadlines, reconnection, holding and replaying unflushed writes, doubt) are the product's.

use crate::bug::Bug;
use crate::dice::Dice;
use crate::ledger::{Count, SharedLedger};
use crate::model_device::{hold_of, order_to_backend, print_of};
use crate::nbd_server::{Arrived, Server};
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};
use forebay_uring::{Arena, Hold};
use forebay_wire::nbd::client::{
    Action, Client, ClosedBy, Config, Conn, Failure, HeldId, Kind, Op, Payload, Report, Request, Token,
};
use forebay_wire::nbd::constants::{Errno, TransmissionFlags};
use forebay_wire::nbd::{BlockSizes, Terms};
use std::collections::BTreeMap;
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Link {
    None,
    Connecting { until_ns: u64, gives_up: bool },
    Up { id: u64, incarnation: u64 },
    Closing { id: u64, until_ns: u64, by: ClosedBy },
}

struct Job {
    op: DeviceOp,
    print: u64,
    /// On its frame.
    hold: Option<Hold>,
}

/// See the module.
pub struct NbdDevice {
    volume: usize,
    server: Rc<Server>,
    arena: Rc<Arena>,
    ledger: SharedLedger,
    dice: Dice,
    client: Client,
    config: Config,
    links: Vec<(Link, Option<Conn>)>,
    jobs: BTreeMap<u64, Job>,
    held: BTreeMap<HeldId, Vec<u8>>,
    /// By place of the connection and cookie: whose buffer a read's bytes go to.
    reads: BTreeMap<(usize, u64), u64>,
    ended: Vec<DeviceDone>,
    doubts: Vec<Doubt>,
}

impl NbdDevice {
    /// A client that begins to connect.
    #[must_use]
    pub fn new(
        volume: usize,
        connections: u8,
        server: Rc<Server>,
        arena: Rc<Arena>,
        ledger: SharedLedger,
        mut dice: Dice,
    ) -> Self {
        let config = Config {
            connections_max: connections,
            in_flight_max: dice.pick(&[1, 4, 64]),
            outstanding_max: 16384,
            held_bytes_max: dice.pick(&[1 << 20, 4 << 20]),
            held_count_max: dice.pick(&[4, 64, 1024]),
            request_timeout_ns: dice.pick(&[8, 30]) * SECOND_NS,
            connect_timeout_ns: 5 * SECOND_NS,
            backoff_min_ns: SECOND_NS / 20,
            backoff_max_ns: 5 * SECOND_NS,
            settle_ns: SECOND_NS / 2,
            seed: dice.bits(),
        };
        Self {
            volume,
            client: Client::new(config, ledger.now_ns()),
            server,
            arena,
            ledger,
            dice,
            config,
            links: vec![(Link::None, None); usize::from(connections)],
            jobs: BTreeMap::new(),
            held: BTreeMap::new(),
            reads: BTreeMap::new(),
            ended: Vec::new(),
            doubts: Vec::new(),
        }
    }

    fn terms(&self) -> Terms {
        let mut flags = TransmissionFlags::HAS_FLAGS
            .with(TransmissionFlags::SEND_FLUSH)
            .with(TransmissionFlags::SEND_TRIM)
            .with(TransmissionFlags::SEND_WRITE_ZEROES)
            .with(TransmissionFlags::CAN_MULTI_CONN);
        if self.server.fua {
            flags = flags.with(TransmissionFlags::SEND_FUA);
        }
        let size_bytes = self.server.medium.borrow().bytes();
        Terms { size_bytes, flags, blocks: BlockSizes::UNSTATED, structured: true }
    }

    /// Carries out the client's orders.
    fn act(&mut self, now_ns: u64) {
        if self.ledger.is_cut() {
            return;
        }
        while let Some(action) = self.client.poll_action() {
            match action {
                Action::Connect { conn } => {
                    let in_ns = 1 + self.dice.duration_ns(2_000_000);
                    let link = Link::Connecting { until_ns: now_ns + in_ns, gives_up: false };
                    self.links[conn.index()] = (link, Some(conn));
                }
                Action::Close { conn, .. } => self.close(now_ns, conn.index(), ClosedBy::Us),
                Action::Send { conn, request, payload } => self.send(conn, request, payload),
                Action::Hold { token, held, length } => {
                    let op = self.jobs[&token.0].op;
                    let mut bytes = self.bytes_of(&op)[..length as usize].to_vec();
                    if self.ledger.has(Bug::HeldWrong) {
                        bytes.fill(0);
                    }
                    assert!(self.held.insert(held, bytes).is_none(), "a copy is held once");
                }
                Action::Release { held } => {
                    self.held.remove(&held).expect("a copy is released once");
                }
                Action::Complete { token, result } => self.complete(token, result),
                Action::InDoubt { offset, length, is_lost } => {
                    let end = offset.saturating_add(length).min(self.server.medium.borrow().bytes());
                    self.ledger.count(Count::InDoubt, offset, end - offset);
                    if !self.ledger.has(Bug::DoubtHidden) {
                        self.doubts.push(Doubt { range: offset..end, is_lost });
                    }
                }
                Action::Report(report) => self.report(report),
            }
        }
    }

    fn report(&self, report: Report) {
        self.ledger.say(|| format!("NBD client of volume {}: {report:?}", self.volume));
        match report {
            Report::FlushFailed { .. } => self.server.flush_failed(),
            Report::ReplayRefused { .. } => self.server.replay_refused(),
            // The answers may be those of a server that has died since.
            Report::ReplayFinished if !self.is_cut_off() => self.server.replayed(),
            Report::ReplayStarted { count, bytes } => {
                self.ledger.count(Count::StateReplay, u64::from(count), bytes);
                self.server.replay_starts();
            }
            _ => {}
        }
    }

    /// The server has restarted, and the client has yet to see it.
    fn is_cut_off(&self) -> bool {
        let now = self.server.incarnation.get();
        self.links.iter().any(|(link, _)| match link {
            Link::Up { incarnation, .. } => *incarnation != now,
            Link::Closing { by, .. } => *by == ClosedBy::Peer,
            Link::Connecting { .. } | Link::None => false,
        })
    }

    fn bytes_of(&self, op: &DeviceOp) -> Vec<u8> {
        let mut bytes = vec![0; op.length as usize];
        self.arena.copy_out(op.frame.0, op.at, &mut bytes);
        bytes
    }

    fn send(&mut self, conn: Conn, request: Request, payload: Payload) {
        let data = match (request.op.kind, payload) {
            (Kind::Write, Payload::Caller(token)) => self.bytes_of(&self.jobs[&token.0].op),
            (Kind::Write, Payload::Held(held)) => self.held[&held].clone(),
            _ => Vec::new(),
        };
        if let (Link::Up { id, incarnation }, _) = self.links[conn.index()] {
            let (cookie, op) = (request.cookie, request.op);
            if let (Kind::Read, Payload::Caller(token)) = (op.kind, payload) {
                self.reads.insert((conn.index(), cookie), token.0);
            }
            // What is sent to a server that is gone reaches nobody, least of all the next one.
            if incarnation == self.server.incarnation.get() {
                self.server.send(Arrived { link: id, cookie, op, data });
            }
        }
    }

    fn close(&mut self, now_ns: u64, at: usize, by: ClosedBy) {
        // The end of one connection may be seen long after that of another, and after a new one is up.
        let late_ns =
            if by == ClosedBy::Peer { self.dice.pick(&[1_000_000, 1_000_000, 500_000_000]) } else { 1_000_000 };
        let in_ns = 1 + self.dice.duration_ns(late_ns);
        let link = &mut self.links[at].0;
        match link {
            Link::Up { id, .. } => *link = Link::Closing { id: *id, until_ns: now_ns + in_ns, by },
            Link::Connecting { gives_up, .. } => *gives_up = true,
            Link::Closing { .. } | Link::None => {}
        }
    }

    fn complete(&mut self, token: Token, result: Result<(), Failure>) {
        let job = self.jobs.remove(&token.0).expect("an operation ends once");
        let op = job.op;
        if let Some(hold) = job.hold {
            self.arena.release(hold);
        }
        if matches!(op.kind, OpKind::Write { .. }) {
            let print = print_of(&self.arena, op.frame.0, op.at, op.length as u32);
            assert_eq!(print, job.print, "bytes changed while they were written: {op:?}");
        }
        let result = result.map_err(|failure| io_error(op.kind, failure));
        let what = match result {
            Ok(()) => Count::BackendDone,
            Err(IoError::TimedOut) => Count::BackendTimedOut,
            Err(IoError::Lost) => Count::FlushLost,
            Err(_) => Count::BackendFailed,
        };
        self.ledger.count(what, op.token, op.offset);
        self.ended.push(DeviceDone { token: op.token, result });
    }

    /// Takes what has happened by `now_ns` to the client.
    fn progress(&mut self, now_ns: u64) {
        if self.ledger.is_cut() {
            return;
        }
        for link in self.server.take_cut() {
            let at = self.links.iter().position(|(it, _)| matches!(it, Link::Up { id, .. } if *id == link));
            if let Some(at) = at {
                self.close(now_ns, at, ClosedBy::Peer);
            }
        }
        for at in 0..self.links.len() {
            self.advance_link(now_ns, at);
        }
        self.server.work(now_ns);
        while let Some(answer) = self.server.answer(now_ns) {
            self.answered(now_ns, answer);
        }
        if self.client.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            self.client.handle_timeout(now_ns);
            self.act(now_ns);
        }
    }

    fn advance_link(&mut self, now_ns: u64, at: usize) {
        let (link, Some(conn)) = self.links[at] else { return };
        match link {
            Link::Connecting { until_ns, gives_up } if gives_up || until_ns <= now_ns => {
                if gives_up || self.server.up_at_ns.get() > now_ns {
                    self.links[at].0 = Link::None;
                    self.client.handle_connect_failed(now_ns, conn);
                } else {
                    let (id, incarnation) = (self.server.number(), self.server.incarnation.get());
                    self.links[at].0 = Link::Up { id, incarnation };
                    self.client.handle_connected(now_ns, conn, self.terms());
                }
            }
            Link::Up { incarnation, .. } if incarnation != self.server.incarnation.get() => {
                self.close(now_ns, at, ClosedBy::Peer);
            }
            Link::Closing { id, until_ns, by } if until_ns <= now_ns => {
                self.links[at].0 = Link::None;
                self.reads.retain(|(place, _), _| *place != at);
                match by {
                    ClosedBy::Peer => self.server.forget_link(id),
                    ClosedBy::Us => self.server.abandon_link(id, self.config.settle_ns),
                }
                self.client.handle_closed(now_ns, conn, by);
            }
            _ => return,
        }
        self.act(now_ns);
    }

    fn answered(&mut self, now_ns: u64, answer: crate::nbd_server::Answer) {
        let of = |link: &Link| match link {
            Link::Up { id, .. } => *id == answer.link,
            Link::Closing { id, by: ClosedBy::Peer, .. } => *id == answer.link,
            _ => false,
        };
        // Nobody reads what comes over a connection that was given up.
        let Some((_, Some(conn))) = self.links.iter().find(|(link, _)| of(link)).copied() else { return };
        let token = self.reads.remove(&(conn.index(), answer.cookie));
        if let (Ok(()), Some(token)) = (answer.result, token) {
            let Job { op, hold, .. } = self.jobs.get_mut(&token).expect("the buffer of a read under way");
            if let Some(hold) = hold.take() {
                self.arena.release(hold);
            }
            self.arena.copy_in(op.frame.0, op.at, &answer.data);
            *hold = hold_of(&self.arena, op);
        }
        self.client.handle_reply(now_ns, conn, answer.cookie, answer.result);
        self.act(now_ns);
    }
}

/// What a failure means for the cache: as the product's device has it.
fn io_error(kind: OpKind, failure: Failure) -> IoError {
    match failure {
        Failure::InDoubt => IoError::Lost,
        Failure::Server(_) if kind == OpKind::Flush => IoError::Lost,
        Failure::Server(Errno::NotSupported) | Failure::ReadOnly | Failure::Unsupported => IoError::Unsupported,
        Failure::Server(_) | Failure::Invalid(_) => IoError::Failed,
        Failure::Unsent | Failure::Unanswered => IoError::TimedOut,
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.client_gone();
        }
    }
}

impl Device for NbdDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.server.medium.borrow().bytes(),
            sector_bytes: 512,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: 1 << 20,
        }
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let (kind, fua) = match op.kind {
            OpKind::Read => (Kind::Read, false),
            OpKind::Write { fua } => (Kind::Write, fua),
            OpKind::Flush => (Kind::Flush, false),
            OpKind::Trim { fua } => (Kind::Trim, fua),
            OpKind::WriteZeroes { fua, no_hole } => (Kind::WriteZeroes { no_hole }, fua),
        };
        if self.ledger.is_cut() {
            return;
        }
        self.ledger.count(order_to_backend(op.kind), op.offset, op.length << 8 | self.volume as u64);
        let (offset, length) = if kind == Kind::Flush { (0, 0) } else { (op.offset, op.length as u32) };
        let print = match op.kind {
            OpKind::Write { .. } => print_of(&self.arena, op.frame.0, op.at, length),
            _ => 0,
        };
        let hold = hold_of(&self.arena, &op);
        assert!(self.jobs.insert(op.token, Job { op, print, hold }).is_none(), "tokens in flight are unique");
        let taken = self.client.submit(now_ns, Token(op.token), Op { kind, offset, length, fua });
        assert!(taken.is_ok(), "more operations than the client takes");
        self.act(now_ns);
    }

    fn give_up(&mut self, now_ns: u64, token: u64) {
        if !self.ledger.is_cut() {
            self.client.give_up(Token(token));
            self.act(now_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        self.progress(now_ns);
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() || !self.doubts.is_empty() || self.server.has_cut() {
            return Some(0);
        }
        let incarnation = self.server.incarnation.get();
        let links = self.links.iter().filter_map(|(link, _)| match link {
            Link::Connecting { gives_up: true, .. } => Some(0),
            Link::Connecting { until_ns, .. } | Link::Closing { until_ns, .. } => Some(*until_ns),
            Link::Up { incarnation: of, .. } if *of != incarnation => Some(0),
            Link::Up { .. } | Link::None => None,
        });
        links.chain(self.server.next_ns()).chain(self.client.next_timeout()).min()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        if !self.doubts.is_empty() && !self.ledger.is_cut() {
            self.server.doubted(self.doubts.iter().any(|doubt| doubt.is_lost));
            doubts.append(&mut self.doubts);
        }
    }
}
