//! A client, its driver, a network and a model server, in virtual time, one step at a time.

use std::collections::BTreeMap;

use forebay_wire::nbd::client::{
    Action, Client, ClosedBy, Config, Conn, Failure, HeldId, Kind, Op, Payload, Request, Token,
};
use forebay_wire::nbd::constants::{Errno, TransmissionFlags};
use forebay_wire::nbd::{BlockSizes, Terms};

use super::oracle::{Oracle, Snapshot};
use super::random::Random;
use super::server::{BLOCK_BYTES, Server, blocks};

pub(crate) const BLOCKS: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) flags: TransmissionFlags,
    pub(crate) trim_zeroes: bool,
    /// The server sometimes fails a request.
    pub(crate) errors: bool,
}

struct Sent {
    request: Request,
    payload: Payload,
}

struct Answer {
    cookie: u64,
    result: Result<(), Errno>,
    read: Option<(Token, Vec<u64>)>,
}

enum Link {
    None,
    Connecting { given_up: bool },
    Up { incarnation: u64, closing: bool, pending: Vec<Sent>, answers: Vec<Answer> },
}

struct Zombie {
    until_ns: u64,
    incarnation: u64,
    op: Op,
    data: Vec<u64>,
}

struct Running {
    op: Op,
    number: u64,
    buffer: Vec<u64>,
    snapshot: Snapshot,
    submitted: u64,
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) now_ns: u64,
    pub(crate) server: Server,
    pub(crate) oracle: Oracle,
    pub(crate) random: Random,
    setup: Setup,
    links: Vec<Link>,
    conns: Vec<Option<Conn>>,
    zombies: Vec<Zombie>,
    running: BTreeMap<Token, Running>,
    copies: BTreeMap<HeldId, Vec<u64>>,
    numbers: u64,
    writes_in_doubt: u64,
    pub(crate) last_flush: Option<Result<(), Failure>>,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let places = usize::from(setup.config.connections_max);
        let mut world = Self {
            client: Client::new(setup.config, 0),
            now_ns: 0,
            server: Server::new(BLOCKS, setup.trim_zeroes),
            oracle: Oracle::new(BLOCKS),
            random: Random(setup.seed),
            setup,
            links: (0..places).map(|_| Link::None).collect(),
            conns: vec![None; places],
            zombies: Vec::new(),
            running: BTreeMap::new(),
            copies: BTreeMap::new(),
            numbers: 0,
            writes_in_doubt: 0,
            last_flush: None,
        };
        world.inherit();
        world.perform();
        world
    }

    /// Another process wrote something and died, or not.
    fn inherit(&mut self) {
        for block in 0..BLOCKS {
            if self.random.chance(30) {
                let tag = 1 + block as u64;
                let (offset, length) = (block as u64 * u64::from(BLOCK_BYTES), BLOCK_BYTES);
                self.server.execute(&Op { kind: Kind::Write, offset, length, fua: false }, &[tag]);
                self.oracle.inherited(block, tag);
            }
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            size_bytes: (BLOCKS as u64) * u64::from(BLOCK_BYTES),
            flags: self.setup.flags.with(TransmissionFlags::HAS_FLAGS),
            blocks: BlockSizes::UNSTATED,
            structured: true,
        }
    }

    pub(crate) fn submit(&mut self, op: Op) {
        self.numbers += 1;
        let number = self.numbers;
        let token = Token(number % 64);
        if self.running.contains_key(&token) {
            return;
        }
        let tags: Vec<u64> = match op.kind {
            Kind::Write => (0..blocks(&op).len() as u64).map(|at| number * 10 + at).collect(),
            _ => vec![u64::MAX; blocks(&op).len()],
        };
        let running = Running {
            op,
            number,
            snapshot: self.oracle.reading(&op),
            submitted: self.oracle.now(),
            buffer: tags.clone(),
        };
        if self.client.submit(self.now_ns, token, op).is_ok() {
            if op.kind.changes() {
                self.oracle.submitted(number, &op, &tags);
            }
            self.running.insert(token, running);
        }
        self.perform();
    }

    /// Carries out all orders.
    fn perform(&mut self) {
        let mut flush_failed = false;
        let writes_in_doubt = self.client.counters().writes_in_doubt;
        let loses = writes_in_doubt > std::mem::replace(&mut self.writes_in_doubt, writes_in_doubt);
        while let Some(action) = self.client.poll_action() {
            match action {
                Action::Connect { conn } => {
                    assert!(matches!(self.links[conn.index()], Link::None));
                    self.links[conn.index()] = Link::Connecting { given_up: false };
                    self.conns[conn.index()] = Some(conn);
                }
                Action::Close { conn, .. } => match &mut self.links[conn.index()] {
                    Link::Up { closing, .. } => *closing = true,
                    Link::Connecting { given_up } => *given_up = true,
                    Link::None => panic!("an order to close nothing"),
                },
                Action::Send { conn, request, payload } => self.sent(conn, request, payload),
                Action::Hold { token, held, length } => {
                    let count = (length / BLOCK_BYTES) as usize;
                    let copy = self.running[&token].buffer[..count].to_vec();
                    assert!(self.copies.insert(held, copy).is_none());
                    let bytes = self.copies.values().map(Vec::len).sum::<usize>() as u64;
                    assert!(bytes * u64::from(BLOCK_BYTES) <= self.setup.config.held_bytes_max);
                }
                Action::Release { held } => assert!(self.copies.remove(&held).is_some()),
                Action::Complete { token, result } => {
                    flush_failed |= self.completed(token, result);
                }
                Action::InDoubt { offset, length, .. } => {
                    if loses {
                        self.oracle.lost(offset, length, flush_failed);
                        self.loosen_reads();
                    }
                    self.oracle.drop_cached(offset, length);
                }
                Action::Report(_) => {}
            }
        }
        let (held, bytes) = self.client.held();
        assert!(held <= self.setup.config.held_count_max as usize);
        assert!(bytes <= self.setup.config.held_bytes_max);
        assert_eq!(self.client.outstanding(), self.running.len());
    }

    fn loosen_reads(&mut self) {
        for running in self.running.values_mut().filter(|r| r.op.kind == Kind::Read) {
            self.oracle.loosen(&running.op, &mut running.snapshot);
        }
    }

    fn sent(&mut self, conn: Conn, request: Request, payload: Payload) {
        let Link::Up { pending, .. } = &mut self.links[conn.index()] else {
            panic!("an order to send on no connection");
        };
        pending.push(Sent { request, payload });
        assert!(pending.len() <= usize::from(self.setup.config.in_flight_max));
    }

    fn completed(&mut self, token: Token, result: Result<(), Failure>) -> bool {
        let running = self.running.remove(&token).expect("a completion of nothing");
        match running.op.kind {
            Kind::Read if result.is_ok() => {
                self.oracle.read(&running.op, &running.snapshot, &running.buffer);
            }
            Kind::Read => {}
            Kind::Flush => {
                self.last_flush = Some(result);
                self.oracle.flushed(running.submitted, result);
            }
            _ => self.oracle.changed(running.number, &running.op, result),
        }
        running.op.kind == Kind::Flush && result.is_err()
    }

    fn data(&self, sent: &Sent) -> Vec<u64> {
        match sent.payload {
            // Touching a buffer after its completion finds nothing here.
            Payload::Caller(token) => self.running[&token].buffer.clone(),
            Payload::Held(held) => self.copies[&held].clone(),
            Payload::None => Vec::new(),
        }
    }

    /// The server does the `nth` request it has received, if there is one.
    pub(crate) fn execute(&mut self, nth: usize) -> bool {
        let incarnation = self.server.incarnation;
        let busy: Vec<usize> = (0..self.links.len())
            .filter(|at| {
                matches!(&self.links[*at], Link::Up { pending, incarnation: of, .. }
                if !pending.is_empty() && *of == incarnation)
            })
            .collect();
        if busy.is_empty() {
            return false;
        }
        let at = busy[nth % busy.len()];
        let Link::Up { pending, .. } = &mut self.links[at] else { unreachable!() };
        let sent = pending.remove(nth / busy.len() % pending.len());
        let answer = self.serve(&sent);
        let Link::Up { answers, .. } = &mut self.links[at] else { unreachable!() };
        answers.push(answer);
        true
    }

    fn serve(&mut self, sent: &Sent) -> Answer {
        let op = sent.request.op;
        let data = self.data(sent);
        let cookie = sent.request.cookie;
        if self.setup.errors && self.random.chance(8) {
            if op.kind == Kind::Flush {
                self.oracle.dropped();
                self.loosen_reads();
            }
            let result = Err(self.server.fail(&op, &data, &mut self.random));
            return Answer { cookie, result, read: None };
        }
        let seen = self.server.execute(&op, &data);
        self.oracle.assert_durable(&self.server.current);
        let read = match (op.kind, sent.payload) {
            (Kind::Read, Payload::Caller(token)) => Some((token, seen)),
            _ => None,
        };
        Answer { cookie, result: Ok(()), read }
    }

    /// A reply arrives, if there is one.
    pub(crate) fn answer(&mut self, nth: usize) -> bool {
        let ready: Vec<usize> = (0..self.links.len())
            .filter(|at| matches!(&self.links[*at], Link::Up { answers, .. } if !answers.is_empty()))
            .collect();
        if ready.is_empty() {
            return false;
        }
        let at = ready[nth % ready.len()];
        let Link::Up { answers, .. } = &mut self.links[at] else { unreachable!() };
        let answer = answers.remove(nth / ready.len() % answers.len());
        if let Some((token, seen)) = answer.read {
            // A late reply into a reused buffer finds nothing here.
            let running = self.running.get_mut(&token).expect("a live buffer");
            running.buffer = seen;
        }
        let conn = self.conns[at].expect("a place that was named");
        self.client.handle_reply(self.now_ns, conn, answer.cookie, answer.result);
        self.perform();
        true
    }

    /// An attempt to connect ends, if there is one.
    pub(crate) fn connect(&mut self, nth: usize, succeeds: bool) -> bool {
        let trying: Vec<usize> =
            (0..self.links.len()).filter(|at| matches!(self.links[*at], Link::Connecting { .. })).collect();
        if trying.is_empty() {
            return false;
        }
        let at = trying[nth % trying.len()];
        let conn = self.conns[at].expect("a place that was named");
        let given_up = matches!(self.links[at], Link::Connecting { given_up: true });
        if succeeds && !given_up {
            self.links[at] = Link::Up {
                incarnation: self.server.incarnation,
                closing: false,
                pending: Vec::new(),
                answers: Vec::new(),
            };
            self.client.handle_connected(self.now_ns, conn, self.terms());
        } else {
            self.links[at] = Link::None;
            self.client.handle_connect_failed(self.now_ns, conn);
        }
        self.perform();
        true
    }

    /// Connections that the client ordered closed, or whose server is gone, end.
    pub(crate) fn close_due(&mut self, nth: usize) -> bool {
        let current = self.server.incarnation;
        let due: Vec<usize> = (0..self.links.len())
            .filter(|at| {
                matches!(&self.links[*at], Link::Up { closing, incarnation, .. }
                if *closing || *incarnation != current)
            })
            .collect();
        match due.is_empty() {
            true => false,
            false => self.cut(due[nth % due.len()]),
        }
    }

    /// A connection ends.
    pub(crate) fn cut(&mut self, at: usize) -> bool {
        let at = at % self.links.len();
        if !matches!(self.links[at], Link::Up { .. }) {
            return false;
        }
        let Link::Up { incarnation, closing, pending, .. } = std::mem::replace(&mut self.links[at], Link::None) else {
            unreachable!()
        };
        let by = if closing { ClosedBy::Us } else { ClosedBy::Peer };
        for sent in pending {
            if incarnation != self.server.incarnation {
                continue;
            }
            let (op, data) = (sent.request.op, self.data(&sent));
            match by {
                ClosedBy::Peer if self.random.chance(50) => {
                    self.server.execute(&op, &data);
                }
                ClosedBy::Us if op.kind.changes() => self.zombies.push(Zombie {
                    until_ns: self.now_ns + self.setup.config.settle_ns,
                    incarnation,
                    op,
                    data,
                }),
                _ => {}
            }
        }
        self.client.handle_closed(self.now_ns, self.conns[at].expect("a place that was named"), by);
        self.perform();
        true
    }

    /// The server works on something whose connection is gone.
    pub(crate) fn haunt(&mut self, nth: usize) -> bool {
        if self.zombies.is_empty() {
            return false;
        }
        let at = nth % self.zombies.len();
        let zombie = self.zombies.swap_remove(at);
        if zombie.incarnation == self.server.incarnation {
            self.server.execute(&zombie.op, &zombie.data);
        }
        true
    }

    pub(crate) fn restart(&mut self) {
        for at in 0..self.links.len() {
            if let Link::Up { pending, .. } = &mut self.links[at] {
                for sent in std::mem::take(pending) {
                    if self.random.chance(30) {
                        let data = self.data(&sent);
                        self.server.execute(&sent.request.op, &data);
                    }
                }
            }
        }
        self.server.restart(&mut self.random);
    }

    pub(crate) fn advance(&mut self, by_ns: u64) {
        let target_ns = self.now_ns + by_ns;
        while let Some(at) = self.zombies.iter().position(|z| z.until_ns <= target_ns) {
            if self.random.chance(50) {
                self.haunt(at);
            } else {
                self.zombies.swap_remove(at);
            }
        }
        self.now_ns = target_ns;
        if self.client.next_timeout().is_some_and(|next| next <= self.now_ns) {
            self.client.handle_timeout(self.now_ns);
            self.perform();
            let next = self.client.next_timeout();
            assert!(next.is_none_or(|next| next > self.now_ns), "a timeout that stays due");
        }
    }

    /// All faults end; runs until nothing is outstanding.
    pub(crate) fn heal(&mut self) {
        self.setup.errors = false;
        for _ in 0..100_000 {
            let moved = self.close_due(0) || self.connect(0, true) || self.execute(0) || self.answer(0);
            if moved {
                continue;
            }
            if self.client.outstanding() == 0 && self.client.connected() > 0 {
                return;
            }
            let next = self.client.next_timeout().expect("something to wait for");
            self.advance(next.saturating_sub(self.now_ns).max(1));
        }
        panic!("it does not come to rest: {:?}", self.client);
    }

    fn read_all(&mut self) {
        for block in 0..BLOCKS as u64 {
            let offset = block * u64::from(BLOCK_BYTES);
            self.submit(Op { kind: Kind::Read, offset, length: BLOCK_BYTES, fua: false });
        }
        self.heal();
    }

    /// Flushes until one succeeds, restarts the server without mercy, and compares.
    pub(crate) fn settle_and_check(&mut self) {
        self.heal();
        if self.random.chance(70) {
            self.read_all();
            self.restart();
            self.heal();
        }
        for attempt in 0.. {
            assert!(attempt < 4, "flush after flush fails without a fault");
            self.last_flush = None;
            self.submit(Op::FLUSH);
            self.heal();
            if self.last_flush == Some(Ok(())) {
                break;
            }
        }
        assert_eq!(self.client.held(), (0, 0), "held after a flush of everything");
        assert!(self.copies.is_empty(), "copies left behind");
        self.oracle.assert_final(&self.server.durable);
    }
}
