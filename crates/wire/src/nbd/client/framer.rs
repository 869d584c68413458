//! Splits the bytes received on one connection into payloads and finished replies.
//!
//! Why: payload must go from the socket into the caller's buffer without a stop, and nothing a server sends may leave
//! a part of that buffer as it was: the buffer may hold another volume's old data.
//!
//! How, for each connection:
//! 1. [`Framer::sent`] for every request, when it is sent.
//! 2. [`Framer::feed`] received bytes, again and again with what it did not take, until [`Fed::More`].
//! 3. At [`Fed::Payload`], put the next bytes of the stream (those not taken, then those received next) where it says,
//!    and report each portion with [`Framer::delivered`]; then feed on.
//!
//! Invariants: a read that succeeds had each byte of its buffer named exactly once. A server that answers what was not
//! asked, sends bytes outside the request or twice, or ends a reply too early gets [`Error::Protocol`]: close then.
//!
//! Limits: a reply in more than 64 pieces at a time that do not touch is refused (in order there is only one). Chunks
//! that bring nothing forward are bounded by the request's deadline.
//!
//! More liberal than the specification in one point: a simple reply to a read is accepted with structured replies, when
//! it is an error. Nothing is ambiguous in it, and servers send it.

use alloc::vec::Vec;

use super::action::{Kind, Payload, Range, Request, Token};
use crate::Error;
use crate::nbd::constants::Errno;
use crate::nbd::reply::{Decoded, Head, decode};

const PIECES_MAX: usize = 64;

/// What the bytes fed so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// All bytes were taken; more are needed.
    More,
    /// The next `length` bytes of the stream belong into the token's buffer.
    Payload {
        /// Whose buffer.
        token: Token,
        /// Where in the buffer; 0 is the first byte asked for.
        at: u32,
        /// How many bytes.
        length: u32,
    },
    /// This part of the token's buffer is zero. It has not been sent.
    Zeroes {
        /// Whose buffer.
        token: Token,
        /// Where in the buffer; 0 is the first byte asked for.
        at: u32,
        /// How many bytes.
        length: u32,
    },
    /// A reply is complete: for `Client::handle_reply`.
    Reply {
        /// The request's cookie.
        cookie: u64,
        /// What the server said.
        result: Result<(), Errno>,
    },
}

#[derive(Debug)]
struct Expected {
    cookie: u64,
    /// The buffer and the range of the export that a read fills.
    read: Option<(Token, Range)>,
    /// What of it was named, sorted and joined.
    covered: Vec<Range>,
    error: Option<Errno>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Payload { place: usize, at: u32, left: u32, done: bool },
    Done { place: usize },
}

/// Takes apart what one connection receives.
#[derive(Debug)]
pub struct Framer {
    structured: bool,
    expected: Vec<Option<Expected>>,
    /// The beginning of a head.
    partial: Vec<u8>,
    state: State,
}

impl Framer {
    /// For a new connection; `structured` as the handshake agreed, `in_flight_max` as in the client's `Config`.
    pub fn new(structured: bool, in_flight_max: u16) -> Self {
        Self {
            structured,
            expected: (0..in_flight_max).map(|_| None).collect(),
            partial: Vec::new(),
            state: State::Head,
        }
    }

    /// A request is being sent, so that a reply may come.
    ///
    /// # Panics
    /// When its place is taken: the request is not one the client ordered for this connection.
    pub fn sent(&mut self, request: &Request, payload: Payload) {
        let read = match (request.op.kind, payload) {
            (Kind::Read, Payload::Caller(token)) => Some((token, request.op.range())),
            _ => None,
        };
        let expected = Expected { cookie: request.cookie, read, covered: Vec::new(), error: None };
        let before = self.expected[request.place()].replace(expected);
        assert!(before.is_none(), "two requests in one place");
    }

    /// Takes bytes; returns how many it took and what they amount to.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the server broke the protocol: close the connection.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Fed), Error> {
        match self.state {
            State::Head => {}
            State::Done { place } => return Ok((0, self.finish(place)?)),
            State::Payload { place, at, left, .. } => {
                let (token, _) = self.read_at(place)?;
                let length = left;
                return Ok((0, Fed::Payload { token, at, length }));
            }
        }
        let mut taken = 0;
        loop {
            let (portion, fed) = self.feed_head(&bytes[taken..])?;
            taken += portion;
            if let Some(fed) = fed {
                return Ok((taken, fed));
            }
        }
    }

    /// Takes at most one head; `None` when that head leads to nothing but the next.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<(usize, Option<Fed>), Error> {
        if self.partial.is_empty() {
            return match decode(bytes) {
                Decoded::Broken(error) => Err(error),
                Decoded::Head(head, length) => Ok((length, self.headed(head)?)),
                Decoded::Need(_) => {
                    self.partial.extend_from_slice(bytes);
                    Ok((bytes.len(), Some(Fed::More)))
                }
            };
        }
        let mut partial = core::mem::take(&mut self.partial);
        let mut taken = 0;
        loop {
            let need = match decode(&partial) {
                Decoded::Broken(error) => return Err(error),
                Decoded::Head(head, _) => {
                    let fed = self.headed(head)?;
                    partial.clear();
                    self.partial = partial;
                    return Ok((taken, fed));
                }
                Decoded::Need(need) => need - partial.len(),
            };
            let portion = need.min(bytes.len() - taken);
            partial.extend_from_slice(&bytes[taken..taken + portion]);
            taken += portion;
            if portion < need {
                self.partial = partial;
                return Ok((taken, Some(Fed::More)));
            }
        }
    }

    /// The next `bytes` bytes of the stream went where [`Fed::Payload`] said.
    ///
    /// # Panics
    /// When no payload is due, or less than that.
    pub fn delivered(&mut self, bytes: u32) {
        let State::Payload { place, at, left, done } = self.state else {
            panic!("payload delivered that was not due");
        };
        assert!(bytes <= left, "more payload delivered than was due");
        self.state = match (left - bytes, done) {
            (0, true) => State::Done { place },
            (0, false) => State::Head,
            (left, _) => State::Payload { place, at: at + bytes, left, done },
        };
    }

    fn headed(&mut self, head: Head<'_>) -> Result<Option<Fed>, Error> {
        let structured = !matches!(head, Head::Simple { .. });
        if structured && !self.structured {
            return Err(protocol("a structured reply that was not negotiated"));
        }
        match head {
            Head::Simple { cookie, error } => self.simple(cookie, error).map(Some),
            Head::Data { cookie, done, offset, data_bytes } => {
                let place = self.place_of(cookie)?;
                let (token, at) = self.cover(place, offset, data_bytes)?;
                self.state = State::Payload { place, at, left: data_bytes, done };
                let length = data_bytes;
                Ok(Some(Fed::Payload { token, at, length }))
            }
            Head::Hole { cookie, done, offset, hole_bytes } => {
                let place = self.place_of(cookie)?;
                let (token, at) = self.cover(place, offset, hole_bytes)?;
                self.ended(place, done);
                let length = hole_bytes;
                Ok(Some(Fed::Zeroes { token, at, length }))
            }
            Head::Done { cookie } => {
                let place = self.place_of(cookie)?;
                self.finish(place).map(Some)
            }
            Head::Failed { cookie, done, errno, .. } => {
                let place = self.place_of(cookie)?;
                self.expected_at(place)?.error.get_or_insert(errno);
                match done {
                    true => self.finish(place).map(Some),
                    false => Ok(None),
                }
            }
        }
    }

    fn simple(&mut self, cookie: u64, error: Option<Errno>) -> Result<Fed, Error> {
        let place = self.place_of(cookie)?;
        let structured = self.structured;
        let expected = self.expected_at(place)?;
        let (Some((_, range)), None) = (expected.read, error) else {
            expected.error = expected.error.or(error);
            return self.finish(place);
        };
        if structured {
            return Err(protocol("a simple reply to a read after structured replies were agreed"));
        }
        let length = (range.end - range.start) as u32;
        let (token, at) = self.cover(place, range.start, length)?;
        self.state = State::Payload { place, at, left: length, done: true };
        Ok(Fed::Payload { token, at, length })
    }

    /// Notes that bytes of a read are named; returns where they belong.
    fn cover(&mut self, place: usize, offset: u64, length: u32) -> Result<(Token, u32), Error> {
        let (token, whole) = self.read_at(place)?;
        let end = offset.checked_add(u64::from(length)).filter(|end| *end <= whole.end);
        let (Some(end), true) = (end, offset >= whole.start) else {
            return Err(protocol("data outside the range that was asked for"));
        };
        let covered = &mut self.expected_at(place)?.covered;
        let at = covered.partition_point(|piece| piece.end < offset);
        let mut piece = Range { start: offset, end };
        // At most the piece that ends here and the one that starts at the end can touch.
        while let Some(next) = covered.get(at).copied().filter(|next| next.start <= piece.end) {
            if next.overlaps(piece) {
                return Err(protocol("data of a read sent twice"));
            }
            piece.start = piece.start.min(next.start);
            piece.end = piece.end.max(next.end);
            covered.remove(at);
        }
        covered.insert(at, piece);
        if covered.len() > PIECES_MAX {
            return Err(protocol("the data of a read in too many scattered pieces"));
        }
        Ok((token, (offset - whole.start) as u32))
    }

    fn ended(&mut self, place: usize, done: bool) {
        self.state = match done {
            true => State::Done { place },
            false => State::Head,
        };
    }

    fn finish(&mut self, place: usize) -> Result<Fed, Error> {
        self.state = State::Head;
        let Some(expected) = self.expected[place].take() else {
            return Err(protocol("a reply to nothing that was asked"));
        };
        if let (Some((_, whole)), None) = (expected.read, expected.error)
            && expected.covered != [whole]
        {
            return Err(protocol("a reply to a read that ends without all of its data"));
        }
        Ok(Fed::Reply { cookie: expected.cookie, result: expected.error.map_or(Ok(()), Err) })
    }

    fn place_of(&self, cookie: u64) -> Result<usize, Error> {
        let place = super::action::cookie_place(cookie);
        match self.expected.get(place) {
            Some(Some(expected)) if expected.cookie == cookie => Ok(place),
            _ => Err(protocol("a reply to nothing that was asked")),
        }
    }

    fn expected_at(&mut self, place: usize) -> Result<&mut Expected, Error> {
        self.expected[place].as_mut().ok_or(protocol("a reply to nothing that was asked"))
    }

    fn read_at(&mut self, place: usize) -> Result<(Token, Range), Error> {
        self.expected_at(place)?.read.ok_or(protocol("data in a reply to something other than a read"))
    }
}

fn protocol(what: &'static str) -> Error {
    Error::Protocol { what }
}
