//! All NBD connections of a shard: the [`Front`] that the shard's loop polls.
//!
//! A call of `poll` takes over new connections, looks at what the ring completed, gives each session that can go on a
//! turn (round robin, a bounded number of requests each), and delivers what the core is to hear. Replies that the
//! core gives are gathered, and sent in `turn_end`.
//!
//! `Sent` is not urgent: frames that went out stay pinned a little longer, and telling the core costs a round of the
//! shard's loop that could be spent asleep. It rides along with the client's next request, or follows after
//! [`SENT_DELAY_NS`].
//!
//! Limits: `clients_max` sessions; [`EVENTS_MAX`] events a call and one turn more.

use std::collections::VecDeque;
use std::rc::Rc;

use forebay_core::{Piece, ReplyError, RequestId, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_engine::ring_reactor::Port;
use forebay_uring::{Arena, ArenaId, Completion, Error};

use crate::config::FrontConfig;
use crate::counters::{CloseReason, Counters};
use crate::inbox::{Handover, Inbox};
use crate::inflight::Table;
use crate::pool::Pool;
use crate::session::{Opening, Operation, Session, Shared};
use crate::staging::{STAGING_BYTES, Staging};

/// After this many events, the rest of the sessions wait for the next call.
const EVENTS_MAX: usize = 512;
/// How long the core may have to wait to hear of frames that are free.
const SENT_DELAY_NS: u64 = 100_000;

/// The NBD front end of one shard.
pub struct NbdFront {
    shared: Shared,
    inbox: Inbox,
    staging: Rc<Arena>,
    staging_id: ArenaId,
    staging_free: Vec<u32>,
    sessions: Vec<Option<Seat>>,
    seats_free: Vec<u32>,
    /// Sessions that can go on, in turn.
    ready: VecDeque<u32>,
    /// Sessions with replies to send.
    gathered: Vec<u32>,
    /// Sessions that wait for what others hold.
    waiting: Vec<u32>,
    completions: Vec<Completion>,
    /// When to look next who has stalled for too long.
    stall_check_ns: Option<u64>,
    sent_deadline_ns: Option<u64>,
}

/// A session and the queues it is in.
struct Seat {
    session: Session,
    in_ready: bool,
    in_gathered: bool,
    in_waiting: bool,
}

impl NbdFront {
    /// A front end that works on `port` (of [`FrontConfig::ops_max`] operations), in the frames of `frames`, and takes
    /// its clients from `inbox`.
    ///
    /// # Errors
    /// When there is no memory for the staging buffers.
    ///
    /// # Panics
    /// When a frame is not a page long, or the limits leave no room for the longest request.
    pub fn new(port: Port, frames: ArenaId, inbox: Inbox, config: FrontConfig) -> Result<Self, Error> {
        let arena = port.arena(frames);
        assert!(arena.frame_bytes() == config.page_bytes, "frames that are not pages");
        assert!(config.request_bytes_max.is_power_of_two(), "a longest request that is no power of two");
        let staging = Rc::new(Arena::new(config.clients_max, STAGING_BYTES)?);
        let staging_id = port.add_arena(Rc::clone(&staging));
        let limits = &config.connection;
        let part_pool = Pool::new(limits.core_requests, config.clients_max, 1, 1);
        // The shortest part is a page, which may touch two.
        let pages_max = config.request_bytes_max / config.page_bytes + 1;
        let frame_pool = Pool::new(limits.frames, config.clients_max, 2, pages_max);
        let shared = Shared {
            port,
            frames: arena,
            frames_id: frames,
            config,
            requests: Table::new(),
            parts: Table::new(),
            part_pool,
            frame_pool,
            borrows_next: None,
            own_part_bytes: own_part_bytes(&frame_pool, &config),
            events: Vec::new(),
            sent: Vec::new(),
            counters: Counters::default(),
            stopping: false,
        };
        Ok(Self {
            shared,
            inbox,
            staging,
            staging_id,
            staging_free: (0..config.clients_max).rev().collect(),
            sessions: Vec::new(),
            seats_free: Vec::new(),
            ready: VecDeque::new(),
            gathered: Vec::new(),
            waiting: Vec::new(),
            completions: Vec::new(),
            stall_check_ns: None,
            sent_deadline_ns: None,
        })
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Begins to stop: no request is begun any more, what is in flight is answered, then connections close.
    pub fn stop(&mut self) {
        self.shared.stopping = true;
        for (index, seat) in self.sessions.iter_mut().enumerate() {
            if let Some(seat) = seat
                && !seat.in_ready
            {
                seat.in_ready = true;
                self.ready.push_back(index as u32);
            }
        }
    }

    /// Requests and parts of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.requests.len() + self.shared.parts.len()
    }

    /// Whether no connection is left and nothing of one is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.len() == self.seats_free.len() && self.shared.events.is_empty() && self.shared.sent.is_empty()
    }

    fn take_over(&mut self, handover: Handover) {
        let Handover { socket, unread, terms, volume, peer, admission } = handover;
        if self.shared.stopping {
            return;
        }
        let Some(frame) = self.staging_free.pop() else {
            self.shared.counters.connections_refused += 1;
            return;
        };
        let fd = match self.shared.port.register(socket) {
            Ok(fd) => fd,
            Err(error) => {
                tracing::debug!(%peer, %error, "an NBD connection could not be taken over");
                self.shared.counters.connections_refused += 1;
                self.staging_free.push(frame);
                return;
            }
        };
        let mut staging = Staging::new(Rc::clone(&self.staging), self.staging_id, frame);
        staging.push(&unread);
        let index = self.seats_free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() as u32 - 1
        });
        tracing::debug!(%peer, volume = volume.0, structured = terms.structured, "NBD connection opened");
        let session = Session::new(Opening { index, fd, terms, volume, peer, admission, staging });
        self.sessions[index as usize] = Some(Seat { session, in_ready: false, in_gathered: false, in_waiting: false });
        self.shared.counters.connections += 1;
        self.shared.counters.connections_open += 1;
        self.settle(index);
    }

    /// Calls `f` with a session, then puts it where it belongs.
    fn with(&mut self, index: u32, f: impl FnOnce(&mut Session, &mut Shared)) {
        let seat = self.sessions[index as usize].as_mut().expect("a session in use is not gone");
        f(&mut seat.session, &mut self.shared);
        self.settle(index);
    }

    fn seat(&mut self, index: u32) -> &mut Seat {
        self.sessions[index as usize].as_mut().expect("a session in use is not gone")
    }

    /// Queues a session for what it wants, or lets it go.
    fn settle(&mut self, index: u32) {
        let seat = self.sessions[index as usize].as_mut().expect("a session in use is not gone");
        if seat.session.wants_turn() && !seat.in_ready {
            seat.in_ready = true;
            self.ready.push_back(index);
        }
        if seat.session.wants_send() && !seat.in_gathered {
            seat.in_gathered = true;
            self.gathered.push(index);
        }
        let waits = seat.session.waits_since_ns().is_some();
        if waits != seat.in_waiting {
            seat.in_waiting = waits;
            match waits {
                true => self.waiting.push(index),
                false => self.waiting.retain(|&waiting| waiting != index),
            }
        }
        if let Some(since_ns) = seat.session.stalled_ns() {
            let check_ns = since_ns + self.shared.config.connection.stall_timeout_ns;
            self.stall_check_ns = Some(self.stall_check_ns.map_or(check_ns, |at_ns| at_ns.min(check_ns)));
        }
        // A seat in line for a turn stays until its turn comes.
        if seat.session.is_gone() && !seat.in_ready && !seat.in_gathered {
            seat.session.leave_pools(&mut self.shared);
            self.staging_free.push(seat.session.staging_frame());
            self.sessions[index as usize] = None;
            self.seats_free.push(index);
        }
    }

    fn complete(&mut self, now_ns: u64) {
        let mut completions = std::mem::take(&mut self.completions);
        self.shared.port.drain(&mut completions);
        for completion in completions.drain(..) {
            let (index, operation) = Operation::of_token(completion.token);
            self.with(index, |session, shared| session.completed(now_ns, operation, completion.result, shared));
        }
        self.completions = completions;
    }

    fn give_turns(&mut self, now_ns: u64) {
        for _ in 0..self.ready.len() {
            if self.shared.events.len() >= EVENTS_MAX {
                return;
            }
            let Some(index) = self.ready.pop_front() else { return };
            self.seat(index).in_ready = false;
            self.with(index, |session, shared| session.advance(now_ns, shared));
        }
    }

    fn was_given(&self) -> bool {
        self.shared.part_pool.was_given() || self.shared.frame_pool.was_given()
    }

    /// Lets those go on that wait for what was given back.
    fn share_what_was_given(&mut self) {
        if !self.was_given() {
            return;
        }
        self.shared.part_pool.forget_given();
        self.shared.frame_pool.forget_given();
        for place in 0..self.waiting.len() {
            self.with(self.waiting[place], |session, _| session.pool_given());
        }
    }

    /// Who has waited for longest, and the one after, with their times.
    fn longest_waits(&self) -> [Option<(u64, u32)>; 2] {
        let mut longest = [None; 2];
        for &index in &self.waiting {
            let seat = self.sessions[index as usize].as_ref();
            let since_ns = seat.and_then(|seat| seat.session.waits_since_ns()).unwrap_or(u64::MAX);
            let this = Some((since_ns, index));
            if longest[0].is_none_or(|first| (since_ns, index) < first) {
                longest = [this, longest[0]];
            } else if longest[1].is_none_or(|second| (since_ns, index) < second) {
                longest[1] = this;
            }
        }
        longest
    }

    /// Sees to it that stalls are looked for while somebody waits.
    fn watch_who_waits(&mut self, now_ns: u64) {
        if let [Some((since_ns, _)), _] = self.longest_waits() {
            let grace_ns = self.shared.config.connection.grace_ns;
            self.check_stalls_at((since_ns + grace_ns).max(now_ns + grace_ns / 4));
        }
    }

    fn check_stalls_at(&mut self, check_ns: u64) {
        self.stall_check_ns = Some(self.stall_check_ns.map_or(check_ns, |at_ns| at_ns.min(check_ns)));
    }

    fn check_stalls(&mut self, now_ns: u64) {
        if self.stall_check_ns.is_none_or(|check_ns| now_ns < check_ns) {
            return;
        }
        self.stall_check_ns = None;
        let grace_ns = self.shared.config.connection.grace_ns;
        let waits = self.longest_waits();
        for index in 0..self.sessions.len() as u32 {
            if self.sessions[index as usize].is_some() {
                let of_others = waits.iter().flatten().find(|&&(_, waiting)| waiting != index);
                let others_wait = of_others.is_some_and(|(since_ns, _)| since_ns + grace_ns <= now_ns);
                self.with(index, |session, shared| session.check_stall(now_ns, others_wait, shared));
            }
        }
    }
}

/// The longest part, a power of two, that touches no more pages than a client is entitled to.
fn own_part_bytes(frames: &Pool, config: &FrontConfig) -> u32 {
    let pages = frames.entitled() - 1;
    (config.page_bytes << pages.min(1 << 12).ilog2()).min(config.request_bytes_max)
}

impl Front for NbdFront {
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>) {
        while let Some(handover) = self.inbox.pop() {
            self.take_over(handover);
        }
        self.complete(now_ns);
        self.check_stalls(now_ns);
        self.share_what_was_given();
        self.give_turns(now_ns);
        self.watch_who_waits(now_ns);
        events.extend(self.shared.sent.drain(..).map(|request| FrontEvent::Sent { request }));
        events.append(&mut self.shared.events);
        self.sent_deadline_ns = None;
    }

    fn receive(&mut self, now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let part = tag as u32;
        let session = self.shared.parts.get(part).session;
        self.with(session, |session, shared| session.take_payload(now_ns, part, request, pieces, shared));
    }

    fn reply_read(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let part = tag as u32;
        let session = self.shared.parts.get(part).session;
        self.with(session, |session, shared| session.answer_read(part, request, pieces, shared));
    }

    fn reply(&mut self, _now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        let part = tag as u32;
        let session = self.shared.parts.get(part).session;
        self.with(session, |session, shared| session.answer(part, result, shared));
    }

    fn take_submitters(&mut self, volume: VolumeId) -> u32 {
        let sessions = self.sessions.iter_mut().flatten().map(|seat| &mut seat.session);
        sessions.map(|session| u32::from(session.take_submitted(volume))).sum()
    }

    fn turn_end(&mut self, now_ns: u64) {
        let mut gathered = std::mem::take(&mut self.gathered);
        for &index in &gathered {
            self.seat(index).in_gathered = false;
            self.with(index, |session, shared| session.flush(now_ns, false, shared));
        }
        gathered.clear();
        // Only sessions that met a full ring are in the list again.
        gathered.append(&mut self.gathered);
        self.gathered = gathered;
        if !self.shared.sent.is_empty() {
            self.sent_deadline_ns.get_or_insert(now_ns + SENT_DELAY_NS);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let waiting_may_go_on = !self.waiting.is_empty() && self.was_given();
        if !self.ready.is_empty() || !self.shared.events.is_empty() || waiting_may_go_on {
            return Some(0);
        }
        [self.sent_deadline_ns, self.stall_check_ns].into_iter().flatten().min()
    }
}

impl Drop for NbdFront {
    fn drop(&mut self) {
        // The ring lets go of what it has in flight by itself; the sockets are closed here.
        for seat in self.sessions.iter_mut().flatten() {
            seat.session.close(CloseReason::Stopped, &mut self.shared);
        }
    }
}
