//! Replies of one connection, in the order in which they go out.
//!
//! Replies are gathered during a turn of the shard and sent in as few system calls as possible: one takes up to 64
//! replies with their payload from the frames. The socket takes what it has room for, and the rest waits until it is
//! writable. A reply's frames are let go as soon as its last byte is in the socket.
//!
//! Rejected: handing the whole batch to the ring (`SendVectored`). It saves little, because a send ends in the call
//! that starts it or waits for the client in any case, and it hides how far a slow client has come.

use std::collections::VecDeque;

use forebay_core::{Piece, RequestId};
use forebay_engine::ring_reactor::Port;
use forebay_uring::{ArenaId, Buf, Errno, Fd, HEADER_BYTES_MAX, PIECES_MAX, Piece as Outgoing};

/// The longest head: an error chunk with its words.
pub(crate) const HEAD_BYTES_MAX: usize = 72;
/// A system call is given no more than this: sockets take less, and gathering costs time.
const SEND_BYTES_MAX: u64 = 1 << 20;

/// A reply, or a chunk of one.
#[derive(Debug)]
pub(crate) struct Reply {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: u8,
    pieces: u8,
    /// Head and payload.
    bytes: u64,
    /// What the core is to hear when it was sent: its frames are free.
    pub(crate) request: Option<RequestId>,
    /// Frames that are free when it was sent.
    pub(crate) frames: u32,
    /// It ends its request's reply.
    pub(crate) last: bool,
}

impl Reply {
    /// A reply that begins with `head`, which may be empty.
    pub(crate) fn new(head: &[u8], last: bool) -> Self {
        let mut reply = Self {
            head: [0; HEAD_BYTES_MAX],
            head_bytes: head.len() as u8,
            pieces: 0,
            bytes: head.len() as u64,
            request: None,
            frames: 0,
            last,
        };
        reply.head[..head.len()].copy_from_slice(head);
        reply
    }

    pub(crate) fn payload_bytes(&self) -> u64 {
        self.bytes - u64::from(self.head_bytes)
    }

    fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }
}

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything is out.
    All,
    /// The socket took these bytes, perhaps none, and has no room for more.
    Full(u64),
    /// The connection failed.
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    replies: VecDeque<Reply>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first reply that are out.
    sent_bytes: u64,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(crate) fn push(&mut self, mut reply: Reply, pieces: &[Piece]) {
        reply.pieces = pieces.len() as u8;
        reply.bytes += pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        assert!(reply.bytes > 0, "an empty reply");
        self.pieces.extend(pieces);
        self.replies.push_back(reply);
    }

    /// Takes out what is there, sent or not.
    pub(crate) fn pop(&mut self) -> Option<Reply> {
        let reply = self.replies.pop_front()?;
        self.pieces.drain(..usize::from(reply.pieces));
        self.sent_bytes = 0;
        Some(reply)
    }

    /// Sends as much as the socket takes; calls `done` with each reply whose last byte is out.
    pub(crate) fn send(&mut self, port: &Port, fd: Fd, frames: ArenaId, mut done: impl FnMut(Reply)) -> Sent {
        let mut taken = 0;
        while !self.replies.is_empty() {
            let (offered, result) = self.send_once(port, fd, frames);
            match result {
                Ok(bytes) => {
                    taken += bytes;
                    self.advance(bytes, &mut done);
                    if bytes < offered {
                        return Sent::Full(taken);
                    }
                }
                Err(Errno::AGAIN) => return Sent::Full(taken),
                Err(Errno::INTR) => {}
                Err(_) => return Sent::Failed,
            }
        }
        Sent::All
    }

    /// One system call; returns what it was offered, too.
    fn send_once(&self, port: &Port, fd: Fd, frames: ArenaId) -> (u64, Result<u64, Errno>) {
        let mut list = [Outgoing::Bytes(&[]); PIECES_MAX];
        let (mut used, mut head_bytes, mut bytes, mut pieces_used) = (0, 0, 0, 0);
        for reply in &self.replies {
            let pieces = usize::from(reply.pieces);
            head_bytes += usize::from(reply.head_bytes);
            if used + 1 + pieces > PIECES_MAX || head_bytes > HEADER_BYTES_MAX || bytes > SEND_BYTES_MAX {
                break;
            }
            if reply.head_bytes > 0 {
                list[used] = Outgoing::Bytes(reply.head());
                used += 1;
            }
            for piece in self.pieces.range(pieces_used..pieces_used + pieces) {
                let buf = Buf { arena: frames, frame: piece.frame.0, at: piece.at, len: piece.length };
                list[used] = Outgoing::Frame(buf);
                used += 1;
            }
            pieces_used += pieces;
            bytes += reply.bytes;
        }
        (bytes - self.sent_bytes, port.try_send(fd, &list[..used], self.sent_bytes))
    }

    fn advance(&mut self, bytes: u64, done: &mut impl FnMut(Reply)) {
        let mut sent_bytes = self.sent_bytes + bytes;
        while let Some(first) = self.replies.front() {
            if sent_bytes < first.bytes {
                break;
            }
            sent_bytes -= first.bytes;
            done(self.pop().expect("there is a first one"));
        }
        self.sent_bytes = sent_bytes;
    }
}
