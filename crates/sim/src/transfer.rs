//! Bytes between a client and frames: held as the kernel holds them while it receives or sends.

use crate::model_device::print_of;
use forebay_core::Piece;
use forebay_uring::{Access, Arena, Hold};

/// A payload on its way in, or a reply on its way out.
#[derive(Debug)]
pub struct Transfer {
    /// The request's.
    pub tag: u64,
    /// Where the bytes are.
    pub pieces: Vec<Piece>,
    /// Of the bytes of a reply, when it was handed over.
    print: u64,
    holds: Vec<Hold>,
}

impl Transfer {
    /// A payload comes: nobody else may touch its frames.
    #[must_use]
    pub fn receiving(arena: &Arena, tag: u64, pieces: &[Piece]) -> Self {
        Self { tag, pieces: pieces.to_vec(), print: 0, holds: hold(arena, pieces, Access::Write) }
    }

    /// A reply goes: nobody may change its frames.
    #[must_use]
    pub fn sending(arena: &Arena, tag: u64, pieces: &[Piece]) -> Self {
        Self { tag, pieces: pieces.to_vec(), print: print(arena, pieces), holds: hold(arena, pieces, Access::Read) }
    }

    /// It is over.
    pub fn release(&mut self, arena: &Arena) {
        self.holds.drain(..).for_each(|hold| arena.release(hold));
    }

    /// A reply was sent: it must be what was handed over.
    pub fn sent(mut self, arena: &Arena) {
        self.release(arena);
        let print = print(arena, &self.pieces);
        assert_eq!(print, self.print, "bytes of request {} changed while they were sent", self.tag);
    }
}

fn hold(arena: &Arena, pieces: &[Piece], access: Access) -> Vec<Hold> {
    pieces.iter().map(|piece| arena.hold(piece.frame.0, piece.at, piece.length, access)).collect()
}

fn print(arena: &Arena, pieces: &[Piece]) -> u64 {
    pieces
        .iter()
        .fold(0, |print: u64, piece| print.rotate_left(7) ^ print_of(arena, piece.frame.0, piece.at, piece.length))
}
