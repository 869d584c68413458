//! Bytes received from a client and not yet understood: one frame of an arena of its own.
//!
//! A receive takes whatever the client has sent, so that many small requests cost one system call. The payload of a
//! small write is then here, too, and is copied into its frames once the core has named them; until then its bytes
//! stay where they are while the requests behind it go on. Room is regained by moving what is left to the front,
//! when no payload is kept and no receive is in flight.
//!
//! ```text
//! 0         kept payloads      start        end                STAGING_BYTES
//! | . . . . [wwwwww] . . . . . | not parsed | room for receives |
//! ```

use std::rc::Rc;

use forebay_core::Piece;
use forebay_uring::{Arena, ArenaId, Buf};

/// Room for 15 writes of 4 KiB or 2,340 reads. Also the size of the arena's frames.
pub(crate) const STAGING_BYTES: u32 = 64 << 10;
/// A receive into less room than this is not worth its system call.
const ROOM_MIN_BYTES: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Staging {
    arena: Rc<Arena>,
    id: ArenaId,
    frame: u32,
    start: u32,
    end: u32,
    /// Payloads kept before `start`.
    kept: u32,
}

impl Staging {
    /// Stages in `frame` of `arena`, which the ring knows as `id`.
    pub(crate) fn new(arena: Rc<Arena>, id: ArenaId, frame: u32) -> Self {
        assert!(arena.frame_bytes() == STAGING_BYTES, "a frame of another size");
        Self { arena, id, frame, start: 0, end: 0, kept: 0 }
    }

    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    /// Bytes not parsed.
    pub(crate) fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Adds bytes that came by another way.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.arena.copy_in(self.frame, self.end, bytes);
        self.end += bytes.len() as u32;
    }

    /// The first bytes not parsed. Panics if there are fewer.
    pub(crate) fn peek<const N: usize>(&self) -> [u8; N] {
        assert!(self.len() as usize >= N, "peeked beyond what was received");
        let mut bytes = [0; N];
        self.arena.copy_out(self.frame, self.start, &mut bytes);
        bytes
    }

    /// Drops the first `bytes` bytes.
    pub(crate) fn skip(&mut self, bytes: u32) {
        assert!(bytes <= self.len(), "skipped beyond what was received");
        self.start += bytes;
    }

    /// Keeps the first `bytes` bytes as a payload and goes on behind it; returns where it is.
    pub(crate) fn keep(&mut self, bytes: u32) -> u32 {
        let at = self.start;
        self.skip(bytes);
        self.kept += 1;
        at
    }

    /// Copies a kept payload into `pieces` of `frames`, which it fills, and lets it go.
    pub(crate) fn unkeep_into(&mut self, at: u32, frames: &Arena, pieces: &[Piece]) {
        let mut at = at;
        for piece in pieces {
            self.copy_to(at, frames, piece.frame.0, piece.at, piece.length);
            at += piece.length;
        }
        self.unkeep();
    }

    /// Lets a kept payload go.
    pub(crate) fn unkeep(&mut self) {
        assert!(self.kept > 0, "no payload is kept");
        self.kept -= 1;
    }

    /// Moves the first bytes into a frame.
    pub(crate) fn move_to(&mut self, frames: &Arena, frame: u32, frame_at: u32, bytes: u32) {
        assert!(bytes <= self.len(), "moved beyond what was received");
        self.copy_to(self.start, frames, frame, frame_at, bytes);
        self.start += bytes;
    }

    fn copy_to(&self, at: u32, frames: &Arena, frame: u32, frame_at: u32, bytes: u32) {
        self.arena.with_bytes(self.frame, at, bytes, |bytes| frames.copy_in(frame, frame_at, bytes));
    }

    /// Where to receive up to `bytes_max` more bytes, with no receive in flight; `None` while there is no room.
    pub(crate) fn room(&mut self, bytes_max: u32) -> Option<Buf> {
        if self.kept == 0 && self.start > 0 {
            self.arena.copy_between(self.frame, self.start, self.frame, 0, self.len());
            self.end -= self.start;
            self.start = 0;
        }
        let room = STAGING_BYTES - self.end;
        (room >= ROOM_MIN_BYTES).then(|| Buf {
            arena: self.id,
            frame: self.frame,
            at: self.end,
            len: room.min(bytes_max),
        })
    }

    /// A receive into [`Self::room`] brought `bytes` bytes.
    pub(crate) fn received(&mut self, bytes: u32) {
        self.end += bytes;
        assert!(self.end <= STAGING_BYTES, "received beyond the room");
    }
}
