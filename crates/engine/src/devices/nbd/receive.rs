//! What becomes of a link's operations when they end, and of the bytes it received.

use forebay_uring::{Arena, Buf, Errno};
use forebay_wire::Error;
use forebay_wire::nbd::client::{ClosedBy, Fed, Framer, Token};
use forebay_wire::nbd::client_handshake::{ClientHandshake, Progress};

use super::NbdDevice;
use super::link::{DIRECT_BYTES_MIN, State, Task, ended_by};

/// Receives without the ring, one after the other, before the rest of the shard gets its turn.
const RECEIVES_MAX: usize = 16;

impl NbdDevice {
    pub(super) fn completed(&mut self, now_ns: u64, index: usize, task: Task, result: Result<u32, Errno>) {
        let mut sent = std::mem::take(&mut self.sent_owners);
        self.links[index].ended(task, &mut sent);
        self.sent(now_ns, &mut sent);
        self.sent_owners = sent;
        if matches!(self.links[index].state, State::Closing { .. }) {
            return self.settle(now_ns, index);
        }
        match (task, result) {
            (Task::Connect, Ok(_)) => self.shake_hands(now_ns, index),
            (Task::Send, Ok(_)) => {
                let link = &mut self.links[index];
                link.send_handshake(&self.port);
                link.send(&self.port);
            }
            (Task::Receive, Ok(bytes)) if bytes > 0 => {
                self.links[index].unread = (0, bytes);
                self.received(now_ns, index);
            }
            (Task::Payload, Ok(bytes)) if bytes > 0 => {
                if let State::Up(framer) = &mut self.links[index].state {
                    framer.delivered(bytes);
                }
                self.received(now_ns, index);
            }
            (_, result) => self.broken(now_ns, index, result),
        }
    }

    /// An operation failed, or the peer has closed.
    fn broken(&mut self, now_ns: u64, index: usize, result: Result<u32, Errno>) {
        let (why, final_word) = match (&self.links[index].state, result) {
            (State::Handshaking(handshake), Ok(_)) => told(&handshake.closed()),
            (_, Ok(_)) => ("the server closed the connection".to_owned(), false),
            (_, Err(errno)) => (errno.to_string(), false),
        };
        self.lose(now_ns, index, ended_by(result), why, final_word);
    }

    fn shake_hands(&mut self, now_ns: u64, index: usize) {
        match ClientHandshake::new(&self.target.export, true) {
            Ok(handshake) => {
                let link = &mut self.links[index];
                link.state = State::Handshaking(Box::new(handshake));
                link.receive(&self.port, self.buffers);
            }
            Err(error) => self.lose(now_ns, index, ClosedBy::Us, error.to_string(), true),
        }
    }

    /// Takes apart what the link received, then receives on.
    fn received(&mut self, now_ns: u64, index: usize) {
        if let State::Handshaking(_) = self.links[index].state {
            self.received_handshake(now_ns, index);
        }
        for _ in 0..RECEIVES_MAX {
            if !matches!(self.links[index].state, State::Up(_)) {
                break;
            }
            self.received_replies(now_ns, index);
            if !self.links[index].receive_head_now(&self.port, self.buffers) {
                break;
            }
        }
        if self.links[index].unread.0 < self.links[index].unread.1 {
            self.received_replies(now_ns, index);
        }
        let link = &mut self.links[index];
        if matches!(link.state, State::Handshaking(_) | State::Up(_)) && !self.links[index].is_receiving() {
            self.links[index].receive(&self.port, self.buffers);
        }
    }

    fn received_handshake(&mut self, now_ns: u64, index: usize) {
        let link = &mut self.links[index];
        let State::Handshaking(handshake) = &mut link.state else { return };
        let (from, to) = link.unread;
        let (taken, progress) =
            self.buffer_arena.with_bytes(index as u32, from, to - from, |bytes| handshake.feed(bytes));
        link.unread.0 += taken as u32;
        match progress {
            Progress::Pending => link.send_handshake(&self.port),
            Progress::Failed(error) => {
                link.send_handshake(&self.port);
                let (why, final_word) = told(&error);
                self.lose(now_ns, index, ClosedBy::Us, why, final_word);
            }
            Progress::Ready(terms) => {
                link.state = State::Up(Framer::new(terms.structured, self.options.in_flight_max));
                if let Some(conn) = self.conns[index] {
                    self.client.handle_connected(now_ns, conn, terms);
                    self.act(now_ns);
                }
            }
        }
    }

    fn received_replies(&mut self, now_ns: u64, index: usize) {
        loop {
            let link = &mut self.links[index];
            let State::Up(framer) = &mut link.state else { return };
            let (from, to) = link.unread;
            let fed = if from < to {
                self.buffer_arena.with_bytes(index as u32, from, to - from, |bytes| framer.feed(bytes))
            } else {
                framer.feed(&[])
            };
            let (taken, fed) = match fed {
                Ok(fed) => fed,
                Err(error) => return self.lose(now_ns, index, ClosedBy::Us, error.to_string(), false),
            };
            link.unread.0 += taken as u32;
            match fed {
                Fed::More => return,
                Fed::Payload { token, at, length } => {
                    if !self.take_payload(index, token, at, length) {
                        return;
                    }
                }
                Fed::Zeroes { token, at, length } => self.fill_zero(token, at, length),
                Fed::Reply { cookie, result } => {
                    // The place is the lower half of the cookie, as the client's requests have it.
                    if let Some(long) = link.long_places.get_mut(usize::from(cookie as u16)) {
                        link.long_reads -= u32::from(std::mem::take(long));
                    }
                    if let Some(conn) = self.conns[index] {
                        self.client.handle_reply(now_ns, conn, cookie, result);
                        self.act(now_ns);
                    }
                }
            }
        }
    }

    /// Puts what is there of a payload in its place. False if the rest must be received first.
    fn take_payload(&mut self, index: usize, token: Token, at: u32, length: u32) -> bool {
        let (_, whole) = self.buffer_of(token);
        let place = if at == 0 { whole } else { whole.rest(at, self.arena.frame_bytes()) };
        let link = &mut self.links[index];
        let (from, to) = link.unread;
        let here = length.min(to - from);
        if here > 0 {
            copy(&self.buffer_arena, index as u32, from, &self.arena, place, here);
            link.unread.0 += here;
        }
        let mut there = here;
        let frame_bytes = self.arena.frame_bytes();
        let after = |there| if there == 0 { place } else { place.rest(there, frame_bytes) };
        while length - there >= DIRECT_BYTES_MIN {
            let now = link.receive_now(&self.port, Buf { len: length - there, ..after(there) });
            if now == 0 {
                break;
            }
            there += now;
        }
        let State::Up(framer) = &mut link.state else { return false };
        framer.delivered(there);
        let rest = length - there;
        if rest >= DIRECT_BYTES_MIN {
            link.receive_payload(&self.port, Buf { len: rest, ..after(there) });
        }
        rest == 0
    }

    fn fill_zero(&mut self, token: Token, at: u32, length: u32) {
        let (_, whole) = self.buffer_of(token);
        let frame_bytes = self.arena.frame_bytes();
        let mut place = if at == 0 { whole } else { whole.rest(at, frame_bytes) };
        let mut left = length;
        while left > 0 {
            let portion = left.min(frame_bytes - place.at);
            self.arena.fill_zero(place.frame, place.at, portion);
            left -= portion;
            if left > 0 {
                place = place.rest(portion, frame_bytes);
            }
        }
    }
}

/// Copies between arenas; the source is within one frame.
fn copy(from: &Arena, frame: u32, at: u32, to: &Arena, place: Buf, bytes: u32) {
    from.with_bytes(frame, at, bytes, |mut bytes| {
        let (mut frame, mut at) = (place.frame, place.at);
        while !bytes.is_empty() {
            let portion = bytes.len().min((to.frame_bytes() - at) as usize);
            to.copy_in(frame, at, &bytes[..portion]);
            bytes = &bytes[portion..];
            (frame, at) = (frame + 1, 0);
        }
    });
}

/// An error of the handshake in words, and whether trying again will not help.
fn told(error: &Error) -> (String, bool) {
    let final_word = match error {
        Error::Refused { .. } | Error::Limit { .. } | Error::Protocol { .. } => true,
        Error::Unavailable { .. } => false,
    };
    (error.to_string(), final_word)
}
