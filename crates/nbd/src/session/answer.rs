//! Answers out: from the core's word to bytes on the wire.

use super::*;

use forebay_core::{Piece, ReplyError};
use forebay_wire::nbd::constants::Errno as NbdErrno;
use forebay_wire::nbd::reply;
use forebay_wire::nbd::request::Request as WireRequest;

use crate::failure;
use crate::outbox::Reply;

/// How long to wait before sending again where the kernel cannot say when.
const RETRY_NS: u64 = 5_000_000;

impl Session {
    /// The bytes of a read's part are in `pieces`.
    pub(crate) fn answer_read(&mut self, place: u32, id: RequestId, pieces: &[Piece], shared: &mut Shared) {
        if self.stage == Stage::Closing {
            shared.sent.push(id);
            self.forget(place, shared);
            return;
        }
        let part = shared.parts.remove(place);
        let length: u32 = pieces.iter().map(|piece| piece.length).sum();
        assert!(length == part.length, "{length} of {} bytes were read", part.length);
        self.parts_open -= 1;
        let request = shared.requests.get(part.request);
        request.parts_open -= 1;
        let last = request.is_over();
        let cookie = request.wire.cookie;
        let mut out = if self.terms.structured {
            Reply::new(&reply::data(cookie, part.offset, part.length, last), last)
        } else if request.head_out {
            Reply::new(&[], last)
        } else {
            request.head_out = true;
            Reply::new(&reply::simple(cookie, None), last)
        };
        out.request = Some(id);
        out.frames = part.frames;
        self.outbox.push(out, pieces);
        self.after_part_of_read(part.request, last, shared);
    }

    /// Any other answer to a part.
    pub(crate) fn answer(&mut self, place: u32, result: Result<(), ReplyError>, shared: &mut Shared) {
        if self.stage == Stage::Closing {
            self.forget(place, shared);
            return;
        }
        let part = shared.parts.remove(place);
        self.parts_open -= 1;
        shared.part_pool.give(&mut self.parts_held, 1);
        shared.frame_pool.give(&mut self.frames_held, part.frames);
        let request = shared.requests.get(part.request);
        request.parts_open -= 1;
        if let Err(error) = result {
            request.failed.get_or_insert(error);
        }
        if request.is_read() {
            let error = result.expect_err("a read that went well is answered with bytes");
            return self.answer_failed_read(&part, error, shared);
        }
        if part.payload != Payload::None {
            assert!(result.is_err(), "a write went well without its payload");
            // The rest of a split write is not asked for.
            request.issued = request.wire.length;
            self.drop_payload(place, &part);
        }
        self.room_made();
        if shared.requests.get(part.request).is_over() {
            self.finish(part.request, shared);
        }
    }

    /// The core refused a write before it took the payload: those bytes go nowhere.
    fn drop_payload(&mut self, place: u32, part: &Part) {
        match part.payload {
            Payload::Staged(_) => self.staging.unkeep(),
            Payload::Streamed => {
                let Input::Announced { part, left } = self.input else {
                    panic!("an answer to a payload that is not next in the stream")
                };
                assert!(part == place, "an answer to another payload");
                self.input = Input::Discard { left };
                self.wants_turn = true;
            }
            Payload::None => {}
        }
    }

    fn answer_failed_read(&mut self, part: &Part, error: ReplyError, shared: &mut Shared) {
        let (errno, words) = failure::of_reply(error);
        let request = shared.requests.get(part.request);
        // Nothing more is asked for: the client has its error.
        request.issued = request.wire.length;
        let last = request.is_over();
        let cookie = request.wire.cookie;
        shared.counters.count_error(errno);
        if self.terms.structured {
            let chunk = reply::error(cookie, errno, words, Some(part.offset), last);
            self.outbox.push(Reply::new(chunk.as_bytes(), last), &[]);
        } else if request.head_out {
            self.input = Input::Ended;
            shared.requests.remove(part.request);
            self.close(CloseReason::ReadFailed, shared);
            return;
        } else {
            self.outbox.push(Reply::new(&reply::simple(cookie, Some(errno)), last), &[]);
        }
        self.after_part_of_read(part.request, last, shared);
    }

    fn after_part_of_read(&mut self, place: u32, last: bool, shared: &mut Shared) {
        let splitting = self.input == Input::Split { request: place };
        if splitting {
            self.wants_turn = true;
        }
        if last {
            shared.requests.remove(place);
            if splitting {
                self.input = Input::Head;
            }
        }
    }

    /// Replies to a request other than a read, all of whose parts are answered.
    pub(super) fn finish(&mut self, place: u32, shared: &mut Shared) {
        let request = shared.requests.remove(place);
        match request.failed {
            None => self.outbox.push(Reply::new(&reply::simple(request.wire.cookie, None), true), &[]),
            Some(error) => {
                let (errno, words) = failure::of_reply(error);
                self.reply_error(&request.wire, errno, words, shared);
            }
        }
    }

    /// Replies to a request that the core is not asked about.
    pub(super) fn reply_refusal(&mut self, wire: &WireRequest, errno: NbdErrno, shared: &mut Shared) {
        self.reply_error(wire, errno, failure::words(errno), shared);
    }

    fn reply_error(&mut self, wire: &WireRequest, errno: NbdErrno, words: &str, shared: &mut Shared) {
        shared.counters.count_error(errno);
        let out = if self.terms.structured {
            Reply::new(reply::error(wire.cookie, errno, words, None, true).as_bytes(), true)
        } else {
            Reply::new(&reply::simple(wire.cookie, Some(errno)), true)
        };
        self.outbox.push(out, &[]);
    }

    /// A part of a closing session was answered, or will not be.
    pub(super) fn forget(&mut self, place: u32, shared: &mut Shared) {
        let part = shared.parts.remove(place);
        self.parts_open -= 1;
        let request = shared.requests.get(part.request);
        request.parts_open -= 1;
        if request.parts_open == 0 {
            shared.requests.remove(part.request);
        }
    }

    /// Sends what the socket takes. `woken`: the kernel has said that there is room.
    pub(crate) fn flush(&mut self, now_ns: u64, woken: bool, shared: &mut Shared) {
        if self.stage == Stage::Closing || self.in_flight[Operation::Writable as usize] {
            return;
        }
        let Shared { port, frames_id, sent, counters, part_pool, frame_pool, .. } = shared;
        let (requests_open, parts_held, frames_held) =
            (&mut self.requests_open, &mut self.parts_held, &mut self.frames_held);
        let outcome = self.outbox.send(port, self.fd, *frames_id, |reply| {
            counters.payload_bytes_out += reply.payload_bytes();
            sent.extend(reply.request);
            part_pool.give(parts_held, u32::from(reply.request.is_some()));
            frame_pool.give(frames_held, reply.frames);
            *requests_open -= u32::from(reply.last);
        });
        counters.sends += 1;
        match outcome {
            Sent::All => {
                self.send_stalled_ns = None;
                self.close_if_drained(shared);
            }
            Sent::Full(bytes) => {
                counters.sends_blocked += 1;
                if bytes > 0 {
                    self.send_stalled_ns = None;
                }
                self.send_stalled_ns.get_or_insert(now_ns);
                if self.is_next(shared) {
                    self.let_others_borrow(shared);
                }
                let op = if woken && bytes == 0 {
                    // Woken for nothing: a poll also ends, at once and every time, when the client has shut down
                    // its side.
                    Op::Timeout { at_ns: now_ns + RETRY_NS }
                } else {
                    Op::Poll { fd: self.fd, ready: Ready::Writable }
                };
                self.submit(Operation::Writable, op, shared);
            }
            Sent::Failed => return self.close(CloseReason::Reset, shared),
        }
        self.room_made();
    }
}
