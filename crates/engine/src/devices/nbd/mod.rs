//! NBD: an export of an NBD server, over one connection or several.
//!
//! What to do is decided by [`forebay_wire::nbd::client`]: deadlines, reconnection, and the replay of writes that a
//! restarted server may have lost. Here its orders are carried out on sockets of the shard's ring: connect and shake
//! hands, send, receive into frames, keep copies of unflushed writes.
//!
//! | file | what |
//! |---|---|
//! | `target` | addresses, and looking them up |
//! | `link` | one connection |
//! | `held` | copies of unflushed writes |
//!
//! Limits: requests longer than the server's limit are not split; an export whose limit is below a frame is refused
//! when it is opened. An export without zeroing gets zeroes written. A trim that the server does not know does nothing.

mod held;
mod link;
mod options;
mod receive;
mod status;
mod target;

use std::fmt;
use std::rc::Rc;

use forebay_uring::{Arena, ArenaId, Buf, stream_socket};
use forebay_wire::nbd::Terms;
use forebay_wire::nbd::client::{Action, Client, CloseWhy, ClosedBy, Conn, Failure, Kind, Op, Payload, Report, Token};
use forebay_wire::nbd::constants::{CommandFlags, Errno, TransmissionFlags};
use forebay_wire::nbd::request::{Command, Request};

use super::check::check;
use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};
use crate::reactor::Reactor;
use crate::ring_reactor::Port;
use held::HeldCopies;
use link::{BUFFER_BYTES, LONG_BYTES, Link, Outgoing, Owner, State, Task};
pub use options::NbdOptions;
pub use status::{NbdSnapshot, NbdStatus};
use target::Addresses;
pub use target::{NbdAddress, NbdTarget};

const ZEROES_BYTES: u32 = 64 << 10;
const RANGE_BYTES_MAX: u64 = 128 << 20;
/// Operations that one link may have under way: a send, and a connect or receive.
const OPS_EACH: u32 = 2;

/// An operation of the caller's.
#[derive(Debug)]
struct Job {
    op: DeviceOp,
    /// Bytes of a zeroing that is done by writing; such a job's buffer is the frame of zeroes.
    zeroed: Option<u64>,
    /// Sends under way, or due, from its buffer. An answer may overtake the end of the send that it answers.
    sends: u32,
    /// Its result, while only a send is still to end.
    result: Option<Result<(), Failure>>,
}

/// An export.
pub struct NbdDevice {
    name: String,
    target: NbdTarget,
    client: Client,
    port: Port,
    frames: ArenaId,
    arena: Rc<Arena>,
    /// Receive buffers, a frame for each link.
    buffers: ArenaId,
    buffer_arena: Rc<Arena>,
    zeroes: ArenaId,
    zero_arena: Rc<Arena>,
    addresses: Addresses,
    links: Vec<Link>,
    conns: Vec<Option<Conn>>,
    held: HeldCopies,
    geometry: Geometry,
    terms: Option<Terms>,
    options: NbdOptions,
    pending: Pending<Job>,
    ended: Vec<DeviceDone>,
    completions: Vec<forebay_uring::Completion>,
    sent_owners: Vec<Owner>,
    last_failure: Option<Failed>,
    failing: bool,
    status: NbdStatus,
    published: NbdSnapshot,
    /// Ranges that the server may have lost, not told yet.
    doubts: Vec<Doubt>,
}

/// Why the last attempt to connect failed.
#[derive(Clone, Debug)]
struct Failed {
    why: String,
    /// Trying again will not help.
    final_word: bool,
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdDevice").field("name", &self.name).field("client", &self.client).finish_non_exhaustive()
    }
}

/// An export cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the back end {name} cannot be opened: {why}: {next}")]
pub struct NbdOpenError {
    name: String,
    why: String,
    next: &'static str,
}

impl NbdDevice {
    /// The port operations that a device with `options` needs.
    #[must_use]
    pub fn ops_max(options: &NbdOptions) -> u32 {
        u32::from(options.connections_max) * OPS_EACH
    }

    /// Memory for copies of unflushed writes and for receiving.
    #[must_use]
    pub fn memory_bytes(options: &NbdOptions) -> u64 {
        held::memory_bytes(options.held_bytes_max, options.held_count_max)
            + u64::from(options.connections_max) * u64::from(BUFFER_BYTES)
            + u64::from(ZEROES_BYTES)
    }

    /// Connects, and waits until the export is known. `frames` is the arena that callers' frames are in; `port` must
    /// have [`Self::ops_max`] operations.
    ///
    /// # Errors
    /// When the server is not there by `until_ns`, refuses, or offers an export that cannot be used.
    pub fn open(
        port: Port,
        frames: ArenaId,
        target: NbdTarget,
        options: NbdOptions,
        reactor: &mut dyn Reactor,
        until_ns: u64,
    ) -> Result<Self, NbdOpenError> {
        let name = target.to_string();
        let failed = |why: String, next| NbdOpenError { name: name.clone(), why, next };
        let local = |error: forebay_uring::Error| failed(error.to_string(), "see there");
        let addresses = Addresses::find(&target.address).map_err(|why| failed(why, "check the address"))?;
        let links = usize::from(options.connections_max);
        let buffer_arena = Rc::new(Arena::new(links as u32, BUFFER_BYTES).map_err(local)?);
        let zero_arena = Rc::new(Arena::new(1, ZEROES_BYTES).map_err(local)?);
        let mut device = Self {
            client: Client::new(options.config(), reactor.now_ns()),
            held: HeldCopies::new(&port, options.held_bytes_max, options.held_count_max).map_err(local)?,
            arena: port.arena(frames),
            frames,
            buffers: port.add_arena(Rc::clone(&buffer_arena)),
            buffer_arena,
            zeroes: port.add_arena(Rc::clone(&zero_arena)),
            zero_arena,
            port,
            addresses,
            links: (0..links).map(|index| Link::new(index, options.in_flight_max)).collect(),
            conns: vec![None; links],
            geometry: Geometry {
                bytes: 0,
                sector_bytes: 512,
                read_only: true,
                can_trim: false,
                can_zero: false,
                range_bytes_max: RANGE_BYTES_MAX,
            },
            terms: None,
            pending: Pending::new(options.outstanding_max),
            ended: Vec::new(),
            completions: Vec::new(),
            sent_owners: Vec::new(),
            last_failure: None,
            failing: false,
            status: NbdStatus::default(),
            published: NbdSnapshot::default(),
            doubts: Vec::new(),
            options,
            name: name.clone(),
            target,
        };
        device.wait_for_terms(reactor, until_ns)?;
        Ok(device)
    }

    fn wait_for_terms(&mut self, reactor: &mut dyn Reactor, until_ns: u64) -> Result<(), NbdOpenError> {
        let failed = |name: &str, why: String, next| NbdOpenError { name: name.to_owned(), why, next };
        loop {
            let now_ns = reactor.now_ns();
            self.turn(now_ns);
            if let Some(terms) = self.client.terms().copied() {
                return self.take_terms(terms).map_err(|why| failed(&self.name, why, "serve it otherwise"));
            }
            match &self.last_failure {
                Some(Failed { why, final_word: true }) => {
                    return Err(failed(&self.name, why.clone(), "check the address and the export's name"));
                }
                Some(Failed { why, .. }) if now_ns >= until_ns => {
                    return Err(failed(&self.name, why.clone(), "start the server, or check the address"));
                }
                None if now_ns >= until_ns => {
                    return Err(failed(&self.name, "no answer in time".to_owned(), "check the server and the network"));
                }
                _ => {}
            }
            let next_ns = self.next_ns().unwrap_or(until_ns);
            reactor.wait(next_ns.min(until_ns));
        }
    }

    /// What the export can do, as a geometry.
    fn take_terms(&mut self, terms: Terms) -> Result<(), String> {
        let has = |flag| terms.flags.has(flag);
        let sector_bytes = match terms.blocks.min_bytes {
            ..=512 => 512,
            513..=4096 => 4096,
            larger => return Err(format!("its smallest block is {larger} bytes, more than 4096")),
        };
        if terms.blocks.max_bytes < self.arena.frame_bytes() {
            let (max, page) = (terms.blocks.max_bytes, self.arena.frame_bytes());
            return Err(format!("its longest request is {max} bytes, less than a page of {page}"));
        }
        let bytes = terms.size_bytes - terms.size_bytes % u64::from(sector_bytes);
        if bytes == 0 {
            return Err(format!("its {} bytes are not one sector", terms.size_bytes));
        }
        self.terms = Some(terms);
        self.geometry = Geometry {
            bytes,
            sector_bytes,
            read_only: has(TransmissionFlags::READ_ONLY),
            can_trim: has(TransmissionFlags::SEND_TRIM),
            can_zero: has(TransmissionFlags::SEND_WRITE_ZEROES),
            range_bytes_max: RANGE_BYTES_MAX,
        };
        Ok(())
    }

    /// How it is, for metrics; stays up to date.
    #[must_use]
    pub fn status(&self) -> NbdStatus {
        self.status.clone()
    }

    /// Publishes how it is, if that changed.
    fn publish(&mut self) {
        let snapshot = NbdSnapshot { connected: self.client.connected() as u64, counters: *self.client.counters() };
        if self.published != snapshot {
            self.published = snapshot;
            self.status.set(snapshot);
        }
    }

    /// Takes in what happened and carries out what follows.
    fn turn(&mut self, now_ns: u64) {
        let mut completions = std::mem::take(&mut self.completions);
        self.port.drain(&mut completions);
        for completion in completions.drain(..) {
            let (link, task) = Task::of(completion.token);
            self.completed(now_ns, link, task, completion.result);
        }
        self.completions = completions;
        if self.client.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            self.client.handle_timeout(now_ns);
        }
        self.act(now_ns);
        for link in &mut self.links {
            link.send(&self.port);
        }
        self.publish();
    }

    /// Carries out the client's orders.
    fn act(&mut self, now_ns: u64) {
        while let Some(action) = self.client.poll_action() {
            match action {
                Action::Connect { conn } => self.connect(now_ns, conn),
                Action::Close { conn, why } => self.close(now_ns, conn, why),
                Action::Send { conn, request, payload } => self.send(now_ns, conn, request, payload),
                Action::Hold { token, held, length } => {
                    let (arena, buf) = self.buffer_of(token);
                    self.held.hold(held.index(), &arena, buf.frame, buf.at, length);
                }
                Action::Release { held } => self.held.release(held.index()),
                Action::Complete { token, result } => self.complete(now_ns, token, result),
                Action::InDoubt { offset, length, is_lost } => {
                    let range = offset..offset.saturating_add(length).min(self.geometry.bytes);
                    if is_lost {
                        tracing::error!(backend = %self.name, ?range, "the back end may have lost written data here");
                    } else {
                        tracing::info!(backend = %self.name, ?range, "what was read here may be old: it is read anew");
                    }
                    self.doubts.push(Doubt { range, is_lost });
                }
                Action::Report(report) => self.report(report),
            }
        }
    }

    fn connect(&mut self, now_ns: u64, conn: Conn) {
        self.conns[conn.index()] = Some(conn);
        let address = self.addresses.current().clone();
        let socket = stream_socket(&address).and_then(|socket| self.port.register(socket));
        match socket {
            Ok(fd) => self.links[conn.index()].connect(&self.port, fd, &address),
            Err(error) => {
                self.last_failure = Some(Failed { why: error.to_string(), final_word: false });
                self.client.handle_connect_failed(now_ns, conn);
            }
        }
    }

    fn close(&mut self, now_ns: u64, conn: Conn, why: CloseWhy) {
        let link = &mut self.links[conn.index()];
        if matches!(why, CloseWhy::Stopped | CloseWhy::ServerStopping) {
            link.say_goodbye(&self.port, &goodbye());
        }
        if why == CloseWhy::ConnectTimeout {
            self.last_failure = Some(Failed { why: "no answer in time".to_owned(), final_word: false });
            self.addresses.failed();
        }
        let mut unsent = Vec::new();
        link.close(&self.port, ClosedBy::Us, &mut unsent);
        self.sent(now_ns, &mut unsent);
        self.settle(now_ns, conn.index());
    }

    /// Ends a link for what its operation or its bytes said.
    fn lose(&mut self, now_ns: u64, index: usize, by: ClosedBy, why: String, final_word: bool) {
        let link = &mut self.links[index];
        if !matches!(link.state, State::Up(_) | State::Closing { .. }) {
            self.last_failure = Some(Failed { why, final_word });
            self.addresses.failed();
        } else if matches!(link.state, State::Up(_)) {
            tracing::warn!(backend = %self.name, connection = index, why, "connection lost");
        }
        let mut unsent = Vec::new();
        link.close(&self.port, by, &mut unsent);
        self.sent(now_ns, &mut unsent);
        self.settle(now_ns, index);
    }

    /// Reports a closing link as closed once nothing is under way on it.
    fn settle(&mut self, now_ns: u64, index: usize) {
        let link = &mut self.links[index];
        let State::Closing { was_up, by } = link.state else { return };
        let (false, Some(conn)) = (link.is_busy(), self.conns[index]) else { return };
        link.state = State::Idle;
        if was_up {
            self.client.handle_closed(now_ns, conn, by);
        } else {
            self.client.handle_connect_failed(now_ns, conn);
        }
    }

    fn send(&mut self, now_ns: u64, conn: Conn, request: forebay_wire::nbd::client::Request, payload: Payload) {
        let payload_buf = match payload {
            Payload::Caller(token) if request.op.kind == Kind::Write => {
                Some((Owner::Job(token.0 as u32), self.buffer_of(token).1))
            }
            Payload::Held(held) => match self.held.pin(held.index()) {
                Some((run, buf)) => Some((Owner::Held(run), buf)),
                // There was no room to keep it: as good as refused by the server.
                None => return self.client.handle_reply(now_ns, conn, request.cookie, Err(Errno::Io)),
            },
            Payload::Caller(_) | Payload::None => None,
        };
        let payload_buf = payload_buf.map(|(owner, buf)| (owner, Buf { len: request.op.length, ..buf }));
        let link = &mut self.links[conn.index()];
        let State::Up(framer) = &mut link.state else {
            if let Some((Owner::Held(run), _)) = payload_buf {
                self.held.unpin(run);
            }
            return;
        };
        framer.sent(&request, payload);
        if request.op.kind == Kind::Read && request.op.length >= LONG_BYTES {
            link.long_places[request.place()] = true;
            link.long_reads += 1;
        }
        link.push(Outgoing { header: header_of(&request), payload: payload_buf });
        if let Some((Owner::Job(index), _)) = payload_buf {
            self.pending.get_mut(index).sends += 1;
        }
    }

    /// Buffers that are no longer being sent from.
    fn sent(&mut self, now_ns: u64, owners: &mut Vec<Owner>) {
        for owner in owners.drain(..) {
            match owner {
                Owner::Held(run) => self.held.unpin(run),
                Owner::Job(index) => {
                    let job = self.pending.get_mut(index);
                    job.sends -= 1;
                    if let Some(result) = job.result.take_if(|_| job.sends == 0) {
                        self.complete(now_ns, Token(u64::from(index)), result);
                    }
                }
            }
        }
    }

    /// The buffer of an operation: the caller's frame, or the zeroes.
    fn buffer_of(&mut self, token: Token) -> (Rc<Arena>, Buf) {
        let job = self.pending.get_mut(token.0 as u32);
        if job.zeroed.is_some() {
            let buf = Buf { arena: self.zeroes, frame: 0, at: 0, len: ZEROES_BYTES };
            return (Rc::clone(&self.zero_arena), buf);
        }
        let frame_bytes = self.arena.frame_bytes();
        let (frame, at) = (job.op.frame.0 + job.op.at / frame_bytes, job.op.at % frame_bytes);
        (Rc::clone(&self.arena), Buf { arena: self.frames, frame, at, len: job.op.length as u32 })
    }

    fn complete(&mut self, now_ns: u64, token: Token, result: Result<(), Failure>) {
        let job = self.pending.get_mut(token.0 as u32);
        if job.sends > 0 {
            job.result = Some(result);
            return;
        }
        if let (Some(zeroed), Ok(())) = (job.zeroed, result) {
            let zeroed = zeroed + (job.op.length - zeroed).min(u64::from(ZEROES_BYTES));
            job.zeroed = Some(zeroed);
            if zeroed < job.op.length {
                return self.start(now_ns, token.0 as u32);
            }
        }
        let job = self.pending.remove(token.0 as u32);
        // Only the first of a row of failures: the metrics count them all.
        if let (Err(failure), false) = (result, self.failing) {
            let (backend, op) = (&self.name, &job.op);
            tracing::warn!(%backend, op = ?op.kind, op.offset, op.length, ?failure, "I/O failed");
        }
        self.failing = result.is_err();
        let result = result.map_err(|failure| io_error(job.op.kind, failure));
        self.ended.push(DeviceDone { token: job.op.token, result });
    }

    /// Hands an operation, or the next part of one, to the client.
    fn start(&mut self, now_ns: u64, index: u32) {
        let Job { op, zeroed, .. } = self.pending.get_mut(index);
        let kind = match op.kind {
            OpKind::Read => Kind::Read,
            OpKind::Write { .. } => Kind::Write,
            OpKind::Flush => Kind::Flush,
            OpKind::Trim { .. } => Kind::Trim,
            OpKind::WriteZeroes { .. } if zeroed.is_some() => Kind::Write,
            OpKind::WriteZeroes { no_hole, .. } => Kind::WriteZeroes { no_hole },
        };
        let fua = match op.kind {
            OpKind::Write { fua } | OpKind::Trim { fua } | OpKind::WriteZeroes { fua, .. } => fua,
            OpKind::Read | OpKind::Flush => false,
        };
        let done = zeroed.unwrap_or(0);
        let length = match zeroed {
            Some(done) => (op.length - *done).min(u64::from(ZEROES_BYTES)),
            None => op.length,
        };
        let (offset, length) = if kind == Kind::Flush { (0, 0) } else { (op.offset + done, length as u32) };
        let token = Token(u64::from(index));
        if self.client.submit(now_ns, token, Op { kind, offset, length, fua }).is_err() {
            let job = self.pending.remove(index);
            self.ended.push(DeviceDone { token: job.op.token, result: Err(IoError::Failed) });
        }
    }

    fn report(&self, report: Report) {
        let backend = &self.name;
        match report {
            Report::Connected { conn } => tracing::info!(%backend, connection = conn.index(), "connected"),
            Report::Retrying { conn, failures, retry_in_ns } => {
                let why = self.last_failure.as_ref().map_or("", |failed| failed.why.as_str());
                let retry_in_ms = retry_in_ns / 1_000_000;
                // The first of a row, then ever fewer.
                if failures.is_power_of_two() {
                    tracing::warn!(%backend, connection = conn.index(), failures, retry_in_ms, why, "not connected");
                }
            }
            Report::Lost { conn, unanswered } => {
                tracing::warn!(%backend, connection = conn.index(), unanswered, "connection closed");
            }
            Report::ReplayStarted { count, bytes } => {
                tracing::warn!(%backend, count, bytes, "sending unflushed writes again")
            }
            Report::ReplayFinished => tracing::info!(%backend, "unflushed writes were taken again"),
            Report::ReplayRefused { offset, length, error } => {
                tracing::error!(%backend, offset, length, ?error, "an acknowledged write is refused now");
            }
            Report::FlushFailed { error, in_doubt } => tracing::error!(%backend, ?error, in_doubt, "flush failed"),
            Report::ExportChanged { known, offered } => {
                tracing::error!(%backend, ?known, ?offered, "the server offers another export than before: refused");
            }
        }
    }
}

fn goodbye() -> [u8; 28] {
    Request { flags: CommandFlags::NONE, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 }.encode()
}

fn header_of(request: &forebay_wire::nbd::client::Request) -> [u8; 28] {
    let op = request.op;
    let (command, no_hole) = match op.kind {
        Kind::Read => (Command::Read, false),
        Kind::Write => (Command::Write, false),
        Kind::WriteZeroes { no_hole } => (Command::WriteZeroes, no_hole),
        Kind::Trim => (Command::Trim, false),
        Kind::Flush => (Command::Flush, false),
    };
    let fua = if op.fua { CommandFlags::FUA } else { CommandFlags::NONE };
    let no_hole = if no_hole { CommandFlags::NO_HOLE } else { CommandFlags::NONE };
    Request { flags: fua.with(no_hole), command, cookie: request.cookie, offset: op.offset, length: op.length }.encode()
}

/// What a failure means for the cache.
fn io_error(kind: OpKind, failure: Failure) -> IoError {
    match failure {
        Failure::InDoubt => IoError::Lost,
        // A flush that failed has dropped what it was to make durable.
        Failure::Server(_) if kind == OpKind::Flush => IoError::Lost,
        Failure::Server(Errno::NotSupported) | Failure::ReadOnly | Failure::Unsupported => IoError::Unsupported,
        Failure::Server(_) | Failure::Invalid(_) => IoError::Failed,
        Failure::Unsent | Failure::Unanswered => IoError::TimedOut,
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        for link in &mut self.links {
            link.say_goodbye(&self.port, &goodbye());
            link.close(&self.port, ClosedBy::Us, &mut Vec::new());
        }
    }
}

impl Device for NbdDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let refused = check(&self.geometry, &op);
        let trim = matches!(op.kind, OpKind::Trim { .. });
        if refused.is_err() || (trim && !self.geometry.can_trim) {
            self.ended.push(DeviceDone { token: op.token, result: refused });
            return;
        }
        let by_writing = matches!(op.kind, OpKind::WriteZeroes { .. }) && !self.geometry.can_zero;
        match self.pending.insert(Job { op, zeroed: by_writing.then_some(0), sends: 0, result: None }) {
            Ok(index) => {
                self.start(now_ns, index);
                self.act(now_ns);
                self.links.iter_mut().for_each(|link| link.send(&self.port));
            }
            Err(job) => self.ended.push(DeviceDone { token: job.op.token, result: Err(IoError::Failed) }),
        }
    }

    fn give_up(&mut self, now_ns: u64, token: u64) {
        if let Some(index) = self.pending.find(|job| job.op.token == token) {
            self.client.give_up(Token(u64::from(index)));
            self.act(now_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        self.turn(now_ns);
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() && self.doubts.is_empty() { self.client.next_timeout() } else { Some(0) }
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        doubts.append(&mut self.doubts);
    }
}
