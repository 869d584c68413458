//! One connection in transmission: requests in, answers out.
//!
//! How requests come in (`intake`): bytes are received into the staging buffer and parsed as far as limits allow.
//! A request becomes a part, or several, and each part an event for the core. A write's payload is either staged
//! whole, and then parsing goes on behind it, or the stream stops at it: nothing more is parsed until the core has
//! named its frames, what is staged is copied there and the rest is received there directly.
//!
//! How answers go out (`answer`): the core's answers become replies in the outbox, which is sent at the end of the
//! turn. With structured replies a split read is answered chunk by chunk in any order. With simple ones it runs alone
//! on its connection, since its pieces must follow each other.
//!
//! Its life: *open*; *draining* after DISC, the end of the stream or a stop of the server (nothing is parsed, what is
//! in flight is answered); *closing* (the socket is gone; frames come home as the kernel and the core let go of them).
//! A closing session stays until the core answered every part and the ring gave back every operation, so that nothing
//! in flight can meet its successor.
//!
//! Invariants:
//! - at most one receive is in flight, into the staging buffer or into frames;
//! - a receive into the staging buffer is in flight only when no whole request is staged;
//! - each `Receive` of the core is answered by one `Received` or `NotReceived`, each `ReplyRead` by one `Sent`.

mod answer;
mod intake;

use std::rc::Rc;

use forebay_core::{RequestId, VolumeId};
use forebay_engine::front::FrontEvent;
use forebay_engine::ring_reactor::Port;
use forebay_uring::{Arena, ArenaId, Buf, Errno, Fd, Op, Ready};
use forebay_wire::nbd::Terms;
use forebay_wire::nbd::request::Command;

use crate::config::FrontConfig;
use crate::counters::{CloseReason, Counters};
use crate::inbox::Admission;
use crate::inflight::{Part, Payload, Request, Table};
use crate::outbox::{Outbox, Sent};
use crate::pool::Pool;
use crate::staging::{STAGING_BYTES, Staging};

/// After a write at least this long, the next receive into the staging buffer is short, so that the payload of the
/// next such write goes to its frames without a copy.
const LONG_PAYLOAD_BYTES: u32 = 16 << 10;
const SHORT_RECEIVE_BYTES: u32 = 4096;

/// What all sessions of a shard work with.
pub(crate) struct Shared {
    pub(crate) port: Port,
    /// The shard's frames.
    pub(crate) frames: Rc<Arena>,
    pub(crate) frames_id: ArenaId,
    pub(crate) config: FrontConfig,
    pub(crate) requests: Table<Request>,
    pub(crate) parts: Table<Part>,
    /// Requests that the core takes.
    pub(crate) part_pool: Pool,
    pub(crate) frame_pool: Pool,
    /// The session that borrows next.
    pub(crate) borrows_next: Option<u32>,
    /// The longest part whose frames are always a client's own.
    pub(crate) own_part_bytes: u32,
    /// What the core is to hear.
    pub(crate) events: Vec<FrontEvent>,
    /// Requests whose frames are free again; heard before `events`.
    pub(crate) sent: Vec<RequestId>,
    pub(crate) counters: Counters,
    /// No request is begun any more.
    pub(crate) stopping: bool,
}

/// Which of a session's operations a completion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A receive into the staging buffer.
    Stage = 0,
    /// A receive into frames.
    Fill = 1,
    /// A wait for room to send.
    Writable = 2,
}

impl Operation {
    const COUNT: u64 = 3;

    /// The token for the ring.
    fn token(self, session: u32) -> u64 {
        u64::from(session) * Self::COUNT + self as u64
    }

    /// Session and operation of a token.
    pub(crate) fn of_token(token: u64) -> (u32, Self) {
        let operation = match token % Self::COUNT {
            0 => Self::Stage,
            1 => Self::Fill,
            _ => Self::Writable,
        };
        ((token / Self::COUNT) as u32, operation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Draining(CloseReason),
    Closing,
}

/// Where in the client's stream the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Between requests.
    Head,
    /// In a split read: parts are left to issue, or, for a simple reply, to answer.
    Split { request: u32 },
    /// In a payload of which `left` bytes are to come, and the core does not know of the next part.
    Payload { request: u32, left: u32 },
    /// The core was told of the part and has not named frames.
    Announced { part: u32, left: u32 },
    /// The part is being received into its frames.
    Filling { part: u32, request: RequestId, left: u32 },
    /// In a payload that nobody wants.
    Discard { left: u32 },
    /// Nothing more is read.
    Ended,
}

/// One connection.
pub(crate) struct Session {
    index: u32,
    fd: Fd,
    terms: Terms,
    volume: VolumeId,
    peer: String,
    _admission: Admission,
    stage: Stage,
    input: Input,
    staging: Staging,
    outbox: Outbox,
    /// Where the payload in [`Input::Filling`] goes.
    fill: Vec<Buf>,
    /// Requests whose reply is not wholly out.
    requests_open: u32,
    /// Whether there was one since this was last asked.
    submitted: bool,
    /// Parts that the core has not answered.
    parts_open: u32,
    /// Held of the pools: parts that the core has not forgotten, and the frames that they pin.
    parts_held: u32,
    frames_held: u32,
    /// Operations in flight, by [`Operation`].
    in_flight: [bool; Operation::COUNT as usize],
    long_payloads: bool,
    /// It could go on if there were room: the end of a reply makes room.
    wants_room: bool,
    /// It can go on.
    wants_turn: bool,
    /// Since when it has waited for what others hold.
    waits_since_ns: Option<u64>,
    /// Since when the client has not taken a byte of its replies.
    send_stalled_ns: Option<u64>,
    /// Since when the client has owed a payload.
    fill_stalled_ns: Option<u64>,
}

/// What a session is made from.
pub(crate) struct Opening {
    pub(crate) index: u32,
    pub(crate) fd: Fd,
    pub(crate) terms: Terms,
    pub(crate) volume: VolumeId,
    pub(crate) peer: String,
    pub(crate) admission: Admission,
    pub(crate) staging: Staging,
}

impl Session {
    pub(crate) fn new(opening: Opening) -> Self {
        let Opening { index, fd, terms, volume, peer, admission, staging } = opening;
        Self {
            index,
            fd,
            terms,
            volume,
            peer,
            _admission: admission,
            stage: Stage::Open,
            input: Input::Head,
            staging,
            outbox: Outbox::default(),
            fill: Vec::with_capacity(forebay_core::REQUEST_PAGES_MAX),
            requests_open: 0,
            submitted: false,
            parts_open: 0,
            parts_held: 0,
            frames_held: 0,
            in_flight: [false; Operation::COUNT as usize],
            long_payloads: false,
            wants_room: false,
            wants_turn: true,
            waits_since_ns: None,
            send_stalled_ns: None,
            fill_stalled_ns: None,
        }
    }

    /// The staging frame, to be used again.
    pub(crate) fn staging_frame(&self) -> u32 {
        self.staging.frame()
    }

    /// Whether [`Self::advance`] can do something.
    pub(crate) fn wants_turn(&self) -> bool {
        self.wants_turn
    }

    /// Whether replies wait that the socket may take.
    pub(crate) fn wants_send(&self) -> bool {
        !self.outbox.is_empty() && !self.in_flight[Operation::Writable as usize]
    }

    /// Whether nothing of it is left anywhere.
    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Closing && self.parts_open == 0 && self.in_flight == [false; 3]
    }

    /// Since when it has waited for requests or frames that others hold.
    pub(crate) fn waits_since_ns(&self) -> Option<u64> {
        self.waits_since_ns
    }

    /// Whether it had a request of that volume in flight since this was last asked.
    pub(crate) fn take_submitted(&mut self, volume: VolumeId) -> bool {
        self.volume == volume && std::mem::replace(&mut self.submitted, self.requests_open > 0)
    }

    /// Whether nobody borrows before it.
    fn is_next(&self, shared: &Shared) -> bool {
        shared.borrows_next == Some(self.index)
    }

    fn let_others_borrow(&self, shared: &mut Shared) {
        shared.borrows_next = None;
        shared.frame_pool.note_given();
    }

    /// Others gave something back.
    pub(crate) fn pool_given(&mut self) {
        self.wants_turn = self.stage != Stage::Closing;
    }

    /// Since when the client keeps others from what it holds.
    pub(crate) fn stalled_ns(&self) -> Option<u64> {
        match (self.send_stalled_ns, self.fill_stalled_ns) {
            (Some(send), Some(fill)) => Some(send.min(fill)),
            (send, fill) => send.or(fill),
        }
    }

    /// Gives the client up if it has stalled for too long.
    pub(crate) fn check_stall(&mut self, now_ns: u64, others_wait: bool, shared: &mut Shared) {
        let borrowed =
            shared.frame_pool.has_borrowed(self.frames_held) || shared.part_pool.has_borrowed(self.parts_held);
        let limits = &shared.config.connection;
        let patience_ns = if others_wait && borrowed { limits.grace_ns } else { limits.stall_timeout_ns };
        if self.stalled_ns().is_some_and(|since_ns| since_ns + patience_ns <= now_ns) {
            self.close(CloseReason::Stalled, shared);
        }
    }

    /// Gives back everything that it holds of the pools: the end of a session that is gone.
    pub(crate) fn leave_pools(&mut self, shared: &mut Shared) {
        let (parts, frames) = (self.parts_held, self.frames_held);
        shared.part_pool.give(&mut self.parts_held, parts);
        shared.frame_pool.give(&mut self.frames_held, frames);
    }

    /// Takes the completion of one of its operations.
    pub(crate) fn completed(
        &mut self,
        now_ns: u64,
        operation: Operation,
        result: Result<u32, Errno>,
        shared: &mut Shared,
    ) {
        self.in_flight[operation as usize] = false;
        match operation {
            Operation::Stage => self.staged(result, shared),
            Operation::Fill => self.filled(result, shared),
            Operation::Writable => self.flush(now_ns, true, shared),
        }
    }

    /// Parses nothing more; answers what is in flight, then closes.
    fn drain(&mut self, reason: CloseReason, shared: &mut Shared) {
        self.input = Input::Ended;
        self.stage = Stage::Draining(reason);
        self.close_if_drained(shared);
    }

    fn close_if_drained(&mut self, shared: &mut Shared) {
        if let Stage::Draining(reason) = self.stage
            && self.requests_open == 0
        {
            self.close(reason, shared);
        }
    }

    /// Closes the connection now. What the kernel or the core still holds comes back later.
    pub(crate) fn close(&mut self, reason: CloseReason, shared: &mut Shared) {
        if self.stage == Stage::Closing {
            return;
        }
        tracing::debug!(peer = %self.peer, reason = reason.name(), "NBD connection closed");
        self.stage = Stage::Closing;
        shared.counters.closed[reason as usize] += 1;
        shared.counters.connections_open -= 1;
        shared.port.close(self.fd);
        while let Some(reply) = self.outbox.pop() {
            shared.sent.extend(reply.request);
        }
        self.abandon_input(shared);
        if self.is_next(shared) {
            self.let_others_borrow(shared);
        }
        (self.send_stalled_ns, self.fill_stalled_ns) = (None, None);
        self.waits_since_ns = None;
        (self.wants_room, self.wants_turn) = (false, false);
    }

    /// Lets go of the request that the stream was in the middle of.
    fn abandon_input(&mut self, shared: &mut Shared) {
        match self.input {
            // The ring still has the frames: they are given back when the operation ends.
            Input::Filling { .. } if self.in_flight[Operation::Fill as usize] => return,
            Input::Filling { part, request, .. } => self.give_back(part, request, shared),
            Input::Split { request } | Input::Payload { request, .. }
                if shared.requests.get(request).parts_open == 0 =>
            {
                shared.requests.remove(request);
            }
            _ => {}
        }
        self.input = Input::Ended;
    }

    /// Receives into the staging buffer.
    fn receive(&mut self, shared: &mut Shared) {
        if self.in_flight[Operation::Stage as usize] {
            return;
        }
        let bytes_max = if self.long_payloads { SHORT_RECEIVE_BYTES } else { STAGING_BYTES };
        // Without room, kept payloads are waiting for frames: their end makes room.
        let Some(buf) = self.staging.room(bytes_max) else {
            self.wants_room = true;
            return;
        };
        let op = Op::Recv { fd: self.fd, buf, all: false };
        self.submit(Operation::Stage, op, shared);
    }

    /// Starts an operation; a full ring is tried again in the next turn.
    fn submit(&mut self, operation: Operation, op: Op<'_>, shared: &mut Shared) {
        match shared.port.submit(operation.token(self.index), op) {
            Ok(()) => self.in_flight[operation as usize] = true,
            Err(_) => self.wants_turn = true,
        }
    }

    /// A request's reply is out, or a kept payload has gone: there is room.
    fn room_made(&mut self) {
        if self.wants_room {
            self.wants_room = false;
            self.wants_turn = true;
        }
    }
}

/// Pages that a range touches.
fn pages_touched(offset: u64, length: u32, page_bytes: u32) -> u32 {
    let page_bytes = u64::from(page_bytes);
    ((offset + u64::from(length) - 1) / page_bytes - offset / page_bytes + 1) as u32
}
