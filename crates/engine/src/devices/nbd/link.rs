//! One connection to the server: its socket, its handshake, what waits to be sent, and what is being received.
//!
//! How it sends: requests queue up; all that queued while one send was under way leave in the next, headers and
//! payload in one call. Payload is sent from the caller's frames.
//!
//! How it receives: into a buffer of its own, from which heads are taken apart and short payload is copied. When a
//! long read is outstanding, it asks for no more than [`HEAD_BYTES`] at a time, so that nearly all of the payload is
//! still in the socket when its head is known, and goes from there straight into the caller's frame. What is in the
//! socket already is taken at once ([`Link::receive_now`]); only for what is not does a receive go to the ring. That
//! spares two rounds of the shard's loop a long read.
//!
//! At most one send and one receive (or one connect) are under way at a time. A link is closed only when none is: from
//! then on nothing touches any buffer for it.

use std::collections::VecDeque;

use forebay_uring::{ArenaId, Buf, Errno, Fd, HEADER_BYTES_MAX, Op, PIECES_MAX, Piece};
use forebay_wire::nbd::client::{ClosedBy, Framer};
use forebay_wire::nbd::client_handshake::ClientHandshake;
use forebay_wire::nbd::request::REQUEST_BYTES;

use crate::ring_reactor::Port;

/// Reads at least so long are received straight into their frame.
pub(super) const LONG_BYTES: u32 = 16 << 10;
/// What is asked for while such a read is outstanding.
const HEAD_BYTES: u32 = 256;
/// A rest of payload shorter than this goes by the buffer.
pub(super) const DIRECT_BYTES_MIN: u32 = 4096;
/// The receive buffer.
pub(super) const BUFFER_BYTES: u32 = 64 << 10;

/// Where a link stands.
#[derive(Debug)]
pub(super) enum State {
    /// No connection, none ordered.
    Idle,
    /// A connect is under way.
    Connecting,
    /// The handshake is under way.
    Handshaking(Box<ClientHandshake>),
    /// Requests are sent.
    Up(Framer),
    /// Waits for the last operation.
    Closing {
        /// It was up.
        was_up: bool,
        /// Who ended it.
        by: ClosedBy,
    },
}

/// What an operation of the link was, in the lower bits of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Connect,
    Send,
    Receive,
    Payload,
}

impl Task {
    pub(super) fn token(self, link: usize) -> u64 {
        (link as u64) << 2 | self as u64
    }

    pub(super) fn of(token: u64) -> (usize, Self) {
        let task = [Self::Connect, Self::Send, Self::Receive, Self::Payload][(token & 3) as usize];
        ((token >> 2) as usize, task)
    }
}

/// Whose bytes are sent with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The operation of that index.
    Job(u32),
    /// The run of held copies of that index.
    Held(u32),
}

/// A request that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) header: [u8; REQUEST_BYTES],
    pub(super) payload: Option<(Owner, Buf)>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) index: usize,
    pub(super) state: State,
    pub(super) fd: Option<Fd>,
    outbox: VecDeque<Outgoing>,
    /// Whose bytes are being sent.
    owners: Vec<Owner>,
    sending: bool,
    receiving: bool,
    /// The received bytes not yet looked at, in the link's frame of the buffer arena.
    pub(super) unread: (u32, u32),
    /// Long reads outstanding.
    pub(super) long_reads: u32,
    /// Which of the places for requests in flight hold a long read.
    pub(super) long_places: Vec<bool>,
}

impl Link {
    pub(super) fn new(index: usize, in_flight_max: u16) -> Self {
        Self {
            index,
            state: State::Idle,
            fd: None,
            outbox: VecDeque::new(),
            owners: Vec::new(),
            sending: false,
            receiving: false,
            unread: (0, 0),
            long_reads: 0,
            long_places: vec![false; usize::from(in_flight_max)],
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.sending || self.receiving
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.receiving
    }

    fn submit(&mut self, port: &Port, task: Task, op: Op<'_>) {
        // The port has room for all operations of all links, so it is never full.
        if port.submit(task.token(self.index), op).is_err() {
            panic!("a port with too little room for its connections");
        }
        match task {
            Task::Send => self.sending = true,
            Task::Connect | Task::Receive | Task::Payload => self.receiving = true,
        }
    }

    /// An operation ended; appends the owners of what is no longer being sent.
    pub(super) fn ended(&mut self, task: Task, sent: &mut Vec<Owner>) {
        match task {
            Task::Send => {
                self.sending = false;
                sent.append(&mut self.owners);
            }
            Task::Connect | Task::Receive | Task::Payload => self.receiving = false,
        }
    }

    /// Starts over with a new socket: everything of the last connection is forgotten.
    pub(super) fn connect(&mut self, port: &Port, fd: Fd, to: &forebay_uring::Address) {
        assert!(!self.is_busy(), "a link in use");
        self.fd = Some(fd);
        self.state = State::Connecting;
        self.outbox.clear();
        self.unread = (0, 0);
        self.long_reads = 0;
        self.long_places.fill(false);
        self.submit(port, Task::Connect, Op::Connect { fd, to });
    }

    /// Queues a request; [`Self::send`] sends it.
    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.outbox.push_back(outgoing);
    }

    /// Sends what the handshake has to say, if nothing is being sent.
    pub(super) fn send_handshake(&mut self, port: &Port) {
        let (State::Handshaking(handshake), Some(fd), false) = (&mut self.state, self.fd, self.sending) else { return };
        let output = handshake.output();
        let bytes = output.len().min(HEADER_BYTES_MAX);
        if bytes == 0 {
            return;
        }
        let mut copy = [0; HEADER_BYTES_MAX];
        copy[..bytes].copy_from_slice(&output[..bytes]);
        handshake.sent(bytes);
        self.submit(port, Task::Send, Op::SendVectored { fd, pieces: &[Piece::Bytes(&copy[..bytes])], skip_bytes: 0 });
    }

    /// Sends what is queued, if nothing is being sent.
    pub(super) fn send(&mut self, port: &Port) {
        let (State::Up(_), Some(fd), false) = (&self.state, self.fd, self.sending) else { return };
        if self.outbox.is_empty() {
            return;
        }
        let batch = self.outbox.len().min(PIECES_MAX / 2).min(HEADER_BYTES_MAX / REQUEST_BYTES);
        let mut headers = [[0; REQUEST_BYTES]; PIECES_MAX / 2];
        let mut payloads = [None; PIECES_MAX / 2];
        for (nth, outgoing) in self.outbox.drain(..batch).enumerate() {
            (headers[nth], payloads[nth]) = (outgoing.header, outgoing.payload);
        }
        let mut pieces = [Piece::Bytes(&[]); PIECES_MAX];
        let mut count = 0;
        for (header, payload) in headers[..batch].iter().zip(&payloads) {
            pieces[count] = Piece::Bytes(header);
            count += 1;
            if let Some((owner, buf)) = payload {
                self.owners.push(*owner);
                pieces[count] = Piece::Frame(*buf);
                count += 1;
            }
        }
        self.submit(port, Task::Send, Op::SendVectored { fd, pieces: &pieces[..count], skip_bytes: 0 });
    }

    /// Receives into the link's buffer, if nothing is being received. All that was received before must be taken.
    pub(super) fn receive(&mut self, port: &Port, buffers: ArenaId) {
        let (Some(fd), false) = (self.fd, self.receiving) else { return };
        assert!(self.unread.0 == self.unread.1, "{:?} is not taken yet", self.unread);
        let len = if self.long_reads > 0 { HEAD_BYTES } else { BUFFER_BYTES };
        let buf = Buf { arena: buffers, frame: self.index as u32, at: 0, len };
        self.submit(port, Task::Receive, Op::Recv { fd, buf, all: false });
    }

    /// Receives payload straight into its place.
    pub(super) fn receive_payload(&mut self, port: &Port, buf: Buf) {
        let Some(fd) = self.fd else { return };
        self.submit(port, Task::Payload, Op::Recv { fd, buf, all: true });
    }

    /// Receives into `buf` what is in the socket now; 0 when there is nothing, or only the ring can say how it is.
    pub(super) fn receive_now(&self, port: &Port, buf: Buf) -> u32 {
        match (self.fd, self.receiving) {
            (Some(fd), false) => port.try_recv(fd, buf).unwrap_or(0),
            _ => 0,
        }
    }

    /// Receives the head of the next reply into the link's buffer, if it is in the socket and long reads are outstanding.
    pub(super) fn receive_head_now(&mut self, port: &Port, buffers: ArenaId) -> bool {
        if self.long_reads == 0 || self.unread.0 < self.unread.1 {
            return false;
        }
        let buf = Buf { arena: buffers, frame: self.index as u32, at: 0, len: HEAD_BYTES };
        self.unread = (0, self.receive_now(port, buf));
        self.unread.1 > 0
    }

    /// Ends the connection; what is under way is cancelled. It is closed when nothing is. Appends the owners of what
    /// will not be sent.
    pub(super) fn close(&mut self, port: &Port, by: ClosedBy, unsent: &mut Vec<Owner>) {
        let was_up = match self.state {
            State::Idle | State::Closing { .. } => return,
            State::Connecting | State::Handshaking(_) => false,
            State::Up(_) => true,
        };
        self.state = State::Closing { was_up, by };
        unsent.extend(self.outbox.drain(..).filter_map(|outgoing| Some(outgoing.payload?.0)));
        if let Some(fd) = self.fd.take() {
            port.close(fd);
        }
    }

    /// Tells the server that nothing more comes, if that is possible at once.
    pub(super) fn say_goodbye(&self, port: &Port, header: &[u8; REQUEST_BYTES]) {
        if let (State::Up(_), Some(fd), false) = (&self.state, self.fd, self.sending) {
            // A courtesy: whether it arrives changes nothing.
            let _ = port.try_send(fd, &[Piece::Bytes(header)], 0);
        }
    }
}

/// Who ended a connection on which an operation ended like this.
pub(super) fn ended_by(result: Result<u32, Errno>) -> ClosedBy {
    match result {
        Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) => ClosedBy::Peer,
        _ => ClosedBy::Us,
    }
}
