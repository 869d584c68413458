//! Requests in: parsing, limits, and payloads on their way into frames.

use super::*;

use forebay_core::Piece;
use forebay_wire::nbd::constants::{CommandFlags, Errno as NbdErrno};
use forebay_wire::nbd::request::{PAYLOAD_DRAIN_BYTES_MAX, REQUEST_BYTES, Request as WireRequest};

use crate::counters::RequestKind;

/// Requests of one connection parsed in a turn, before the others get theirs.
const TURN_STEPS_MAX: u32 = 64;

/// Why parsing pauses.
enum Step {
    /// It does not.
    On,
    /// For bytes from the client.
    Starved,
    /// For the core, the kernel, or room.
    Waits,
}

impl Session {
    /// Parses what is staged.
    pub(crate) fn advance(&mut self, now_ns: u64, shared: &mut Shared) {
        self.wants_turn = false;
        if self.stage == Stage::Closing {
            return;
        }
        let was_next = self.is_next(shared);
        if was_next {
            shared.borrows_next = None;
        }
        let waited_since_ns = self.waits_since_ns.take();
        self.parse(now_ns, shared);
        if self.waits_since_ns.is_some() {
            self.waits_since_ns = waited_since_ns.or(self.waits_since_ns);
        }
        if was_next && !self.is_next(shared) {
            self.let_others_borrow(shared);
        }
    }

    fn parse(&mut self, now_ns: u64, shared: &mut Shared) {
        for _ in 0..TURN_STEPS_MAX {
            match self.step(now_ns, shared) {
                Step::On => {}
                Step::Starved => return self.receive(shared),
                Step::Waits => return,
            }
        }
        self.wants_turn = true;
    }

    fn step(&mut self, now_ns: u64, shared: &mut Shared) -> Step {
        match self.input {
            Input::Head => self.next_request(now_ns, shared),
            Input::Split { request } => self.next_part_of_read(now_ns, request, shared),
            Input::Payload { request, left } => self.next_part_of_write(now_ns, request, left, shared),
            Input::Discard { left } => self.discard(left),
            Input::Filling { .. } => {
                // Only when the ring was full before.
                self.receive_payload(now_ns, shared);
                Step::Waits
            }
            Input::Announced { .. } | Input::Ended => Step::Waits,
        }
    }

    fn next_request(&mut self, now_ns: u64, shared: &mut Shared) -> Step {
        if shared.stopping {
            self.drain(CloseReason::Stopped, shared);
            return Step::Waits;
        }
        if (self.staging.len() as usize) < REQUEST_BYTES {
            return Step::Starved;
        }
        if self.requests_open >= shared.config.connection.requests_max {
            return self.wait_for_room();
        }
        if !self.may_ask(0, shared) {
            return self.wait_for_pool(now_ns, shared);
        }
        let Some(wire) = WireRequest::decode(&self.staging.peek::<REQUEST_BYTES>()) else {
            self.close(CloseReason::Garbage, shared);
            return Step::Waits;
        };
        if let Err(errno) = self.check(&wire, shared) {
            return self.refuse(&wire, errno, shared);
        }
        match wire.command {
            Command::Read => self.begin_read(now_ns, wire, shared),
            Command::Write => self.begin_write(now_ns, wire, shared),
            Command::Disconnect => {
                self.take_head(&wire, shared);
                self.drain(CloseReason::Disconnect, shared);
                Step::Waits
            }
            _ => {
                self.begin_plain(wire, shared);
                Step::On
            }
        }
    }

    fn check(&self, wire: &WireRequest, shared: &Shared) -> Result<(), NbdErrno> {
        wire.check(&self.terms)?;
        let whole = wire.flags.has(CommandFlags::DF);
        if whole && wire.length > shared.config.request_bytes_max {
            return Err(NbdErrno::Overflow);
        }
        Ok(())
    }

    /// The head of a request is understood and done with.
    fn take_head(&mut self, wire: &WireRequest, shared: &mut Shared) {
        self.staging.skip(REQUEST_BYTES as u32);
        shared.counters.requests[RequestKind::of(wire.command) as usize] += 1;
    }

    fn refuse(&mut self, wire: &WireRequest, errno: NbdErrno, shared: &mut Shared) -> Step {
        self.take_head(wire, shared);
        if wire.payload_bytes() > PAYLOAD_DRAIN_BYTES_MAX {
            self.close(CloseReason::Oversized, shared);
            return Step::Waits;
        }
        self.requests_open += 1;
        self.submitted = true;
        self.reply_refusal(wire, errno, shared);
        self.input = Input::Discard { left: wire.payload_bytes() };
        Step::On
    }

    fn begin_read(&mut self, now_ns: u64, wire: WireRequest, shared: &mut Shared) -> Step {
        let request = Request::new(wire);
        let Some(part) = self.next_part(&request, shared) else {
            return self.wait_for_pool(now_ns, shared);
        };
        let split = part.1 < wire.length;
        if split && !self.terms.structured && self.requests_open > 0 {
            // It must be alone.
            return self.wait_for_room();
        }
        self.take_head(&wire, shared);
        let request = self.open(request, shared);
        if split {
            self.input = Input::Split { request };
        } else {
            self.ask(request, part, Payload::None, shared);
        }
        Step::On
    }

    fn next_part_of_read(&mut self, now_ns: u64, place: u32, shared: &mut Shared) -> Step {
        let request = *shared.requests.get(place);
        let all_issued = request.issued == request.wire.length;
        if all_issued && self.terms.structured {
            self.input = Input::Head;
            return Step::On;
        }
        if !self.terms.structured && (all_issued || request.parts_open > 0) {
            // The answer goes on.
            return Step::Waits;
        }
        let Some(part) = self.next_part(&request, shared) else {
            return self.wait_for_pool(now_ns, shared);
        };
        self.ask(place, part, Payload::None, shared);
        Step::On
    }

    fn begin_write(&mut self, now_ns: u64, wire: WireRequest, shared: &mut Shared) -> Step {
        let request = Request::new(wire);
        let Some(part) = self.next_part(&request, shared) else {
            return self.wait_for_pool(now_ns, shared);
        };
        self.take_head(&wire, shared);
        self.long_payloads = wire.length >= LONG_PAYLOAD_BYTES;
        let request = self.open(request, shared);
        if part.1 == wire.length && wire.length <= self.staging.len() {
            let at = self.staging.keep(wire.length);
            self.ask(request, part, Payload::Staged(at), shared);
        } else {
            self.input = Input::Payload { request, left: wire.length };
        }
        Step::On
    }

    fn next_part_of_write(&mut self, now_ns: u64, place: u32, left: u32, shared: &mut Shared) -> Step {
        let request = shared.requests.get(place);
        if request.failed.is_some() {
            request.issued = request.wire.length;
            self.input = Input::Discard { left };
            if request.is_over() {
                self.finish(place, shared);
            }
            return Step::On;
        }
        let request = *request;
        let Some(part) = self.next_part(&request, shared) else {
            return self.wait_for_pool(now_ns, shared);
        };
        let part = self.ask(place, part, Payload::Streamed, shared);
        self.input = Input::Announced { part, left };
        Step::Waits
    }

    fn begin_plain(&mut self, wire: WireRequest, shared: &mut Shared) {
        self.take_head(&wire, shared);
        let request = self.open(Request::new(wire), shared);
        self.ask(request, (wire.offset, wire.length), Payload::None, shared);
    }

    fn open(&mut self, request: Request, shared: &mut Shared) -> u32 {
        self.requests_open += 1;
        self.submitted = true;
        shared.requests.insert(request)
    }

    /// Offset and length of the next part of a read or write that the pools allow: as long as the core takes it if the
    /// client may borrow so much, else, for a read, what fits into its own part.
    fn next_part(&self, request: &Request, shared: &Shared) -> Option<(u64, u32)> {
        let longest = request.next_part(shared.config.request_bytes_max);
        let frames = |(offset, length)| pages_touched(offset, length, shared.config.page_bytes);
        if self.may_ask(frames(longest), shared) {
            return Some(longest);
        }
        let may_shorten = request.is_read() && !request.wire.flags.has(CommandFlags::DF);
        let shorter = request.next_part(shared.own_part_bytes);
        let is_own = shared.frame_pool.entitles(self.frames_held, frames(shorter));
        (may_shorten && is_own && self.may_ask(0, shared)).then_some(shorter)
    }

    /// Whether the pools have what a part with so many frames needs.
    fn may_ask(&self, frames: u32, shared: &Shared) -> bool {
        let may_borrow = shared.borrows_next.is_none_or(|next| next == self.index);
        let allows = |pool: &Pool, holds, more| pool.entitles(holds, more) || may_borrow && pool.lends(holds, more);
        allows(&shared.part_pool, self.parts_held, 1)
            && (frames == 0 || allows(&shared.frame_pool, self.frames_held, frames))
    }

    /// For something of its own to end.
    fn wait_for_room(&mut self) -> Step {
        self.wants_room = true;
        Step::Waits
    }

    /// For anybody to give something back.
    fn wait_for_pool(&mut self, now_ns: u64, shared: &mut Shared) -> Step {
        self.waits_since_ns = Some(now_ns);
        // Nobody waits for one whose client does not take what it has.
        if self.send_stalled_ns.is_none() {
            shared.borrows_next.get_or_insert(self.index);
        }
        self.wait_for_room()
    }

    /// Asks the core for a part of a request, of this offset and length; returns the part.
    fn ask(&mut self, place: u32, (offset, length): (u64, u32), payload: Payload, shared: &mut Shared) -> u32 {
        let request = shared.requests.get(place);
        let wire = request.wire;
        let frames = match wire.command {
            Command::Read | Command::Write => pages_touched(offset, length, shared.config.page_bytes),
            _ => 0,
        };
        request.issued += length;
        request.parts_open += 1;
        shared.part_pool.take(&mut self.parts_held, 1);
        shared.frame_pool.take(&mut self.frames_held, frames);
        self.parts_open += 1;
        let part = Part { session: self.index, request: place, offset, length, frames, payload };
        let part = shared.parts.insert(part);
        let (volume, tag) = (self.volume, u64::from(part));
        let fua = wire.flags.has(CommandFlags::FUA);
        shared.events.push(match wire.command {
            Command::Read => FrontEvent::Read { volume, tag, offset, length },
            Command::Write => FrontEvent::Write { volume, tag, offset, length, fua },
            Command::Flush => FrontEvent::Flush { volume, tag },
            Command::Trim => FrontEvent::Trim { volume, tag, offset, length: u64::from(length), fua },
            Command::WriteZeroes => {
                let no_hole = wire.flags.has(CommandFlags::NO_HOLE);
                FrontEvent::WriteZeroes { volume, tag, offset, length: u64::from(length), fua, no_hole }
            }
            other => unreachable!("{other:?} was not refused"),
        });
        part
    }

    fn discard(&mut self, left: u32) -> Step {
        let bytes = left.min(self.staging.len());
        self.staging.skip(bytes);
        if bytes == left {
            self.input = Input::Head;
            return Step::On;
        }
        self.input = Input::Discard { left: left - bytes };
        Step::Starved
    }

    /// A receive into the staging buffer ended.
    pub(super) fn staged(&mut self, result: Result<u32, Errno>, shared: &mut Shared) {
        if self.stage == Stage::Closing {
            return;
        }
        match result {
            Ok(0) if self.input == Input::Head && self.staging.len() == 0 => {
                self.drain(CloseReason::EndOfStream, shared);
            }
            Ok(0) if self.input == Input::Ended => {}
            Ok(0) => self.close(CloseReason::Truncated, shared),
            Ok(bytes) => {
                self.staging.received(bytes);
                self.wants_turn = true;
            }
            Err(Errno::INTR | Errno::AGAIN) => self.wants_turn = true,
            Err(_) => self.close(CloseReason::Reset, shared),
        }
    }

    /// The core has named the frames of a write's part.
    pub(crate) fn take_payload(
        &mut self,
        now_ns: u64,
        place: u32,
        request: RequestId,
        pieces: &[Piece],
        shared: &mut Shared,
    ) {
        if self.stage == Stage::Closing {
            self.give_back(place, request, shared);
            return;
        }
        let part = shared.parts.get(place);
        let length: u32 = pieces.iter().map(|piece| piece.length).sum();
        assert!(length == part.length, "frames for {length} of {} bytes", part.length);
        shared.counters.payload_bytes_in += u64::from(length);
        match std::mem::replace(&mut part.payload, Payload::None) {
            Payload::Staged(at) => {
                self.staging.unkeep_into(at, &shared.frames, pieces);
                shared.events.push(FrontEvent::Received { request });
                self.room_made();
            }
            Payload::Streamed => {
                let Input::Announced { part, left } = self.input else {
                    panic!("frames for a payload that is not next in the stream")
                };
                assert!(part == place, "frames for another payload");
                self.input = Input::Filling { part, request, left };
                self.fill_from_staging(pieces, shared);
                self.receive_payload(now_ns, shared);
            }
            Payload::None => panic!("frames for a part without payload"),
        }
    }

    /// Moves what is staged into the frames, and notes where the rest goes.
    fn fill_from_staging(&mut self, pieces: &[Piece], shared: &Shared) {
        self.fill.clear();
        for piece in pieces {
            let staged = piece.length.min(self.staging.len());
            if staged > 0 {
                self.staging.move_to(&shared.frames, piece.frame.0, piece.at, staged);
            }
            if staged < piece.length {
                let (at, len) = (piece.at + staged, piece.length - staged);
                self.fill.push(Buf { arena: shared.frames_id, frame: piece.frame.0, at, len });
            }
        }
    }

    /// Receives the rest of a payload into its frames.
    fn receive_payload(&mut self, now_ns: u64, shared: &mut Shared) {
        if self.in_flight[Operation::Fill as usize] {
            return;
        }
        self.receive_what_is_there(shared);
        if self.fill.is_empty() {
            return self.payload_complete(shared);
        }
        self.fill_stalled_ns.get_or_insert(now_ns);
        let fill = std::mem::take(&mut self.fill);
        let op = Op::RecvVectored { fd: self.fd, bufs: &fill, all: true };
        self.submit(Operation::Fill, op, shared);
        self.fill = fill;
    }

    /// Takes from the socket what is in it already: the ring would need a round of the shard's loop for it.
    fn receive_what_is_there(&mut self, shared: &Shared) {
        while let Some(first) = self.fill.first_mut() {
            match shared.port.try_recv(self.fd, *first) {
                Ok(bytes) if bytes == first.len => drop(self.fill.remove(0)),
                Ok(bytes) if bytes > 0 => *first = first.rest(bytes, shared.config.page_bytes),
                // Nothing now, the end, or an error: the ring tells which.
                _ => return,
            }
        }
    }

    /// A receive into frames ended.
    pub(super) fn filled(&mut self, result: Result<u32, Errno>, shared: &mut Shared) {
        let Input::Filling { part, request, .. } = self.input else { panic!("a payload came that was not asked for") };
        let wanted: u32 = self.fill.iter().map(|buf| buf.len).sum();
        self.fill_stalled_ns = None;
        if result == Ok(wanted) && self.stage != Stage::Closing {
            self.fill.clear();
            return self.payload_complete(shared);
        }
        if self.stage == Stage::Closing {
            self.input = Input::Ended;
            return self.give_back(part, request, shared);
        }
        let reason = if result.is_ok() { CloseReason::Truncated } else { CloseReason::Reset };
        self.close(reason, shared);
    }

    fn payload_complete(&mut self, shared: &mut Shared) {
        let Input::Filling { part, request, left } = self.input else { panic!("no payload is being received") };
        shared.events.push(FrontEvent::Received { request });
        let part = shared.parts.get(part);
        let left = left - part.length;
        self.input = match left {
            0 => Input::Head,
            left => Input::Payload { request: part.request, left },
        };
        self.wants_turn = true;
    }

    /// A payload will never come.
    pub(super) fn give_back(&mut self, place: u32, request: RequestId, shared: &mut Shared) {
        shared.events.push(FrontEvent::NotReceived { request });
        self.forget(place, shared);
    }
}
