//! Keep: a body that is passed on from the store, and kept on its way.
//!
//! How: pieces go to the client as they come. What they are a share of is put together to pages ([`KEEP_BYTES`]) and given to the pool,
//! which takes it or not; nobody waits. Whole blocks only are kept: what is left at either end of a range is left out, but for the
//! object's own end, which is filled up with zeroes.
//!
//! Invariants: a byte is kept at the address of its place in its version; none after the end of what the answer said it has.
//! A body that breaks off is kept as far as it came.

use crate::body::Failed;
use crate::cached::Cached;
use crate::flight::Flight;
use forebay_core::BLOCK_BYTES;
use forebay_objects::Kept;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What is given to the pool at once.
const KEEP_BYTES: u64 = 64 << 10;

static ZEROES: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// See the module.
pub(crate) struct Keeping {
    body: Incoming,
    gathered: Gathered,
}

/// Bytes on their way to the pool.
struct Gathered {
    cached: Arc<Cached>,
    kept: Kept,
    /// Where the next piece belongs, in the object.
    at: u64,
    /// From where on `pieces` are.
    from: u64,
    pieces: Vec<Bytes>,
    flight: Arc<Flight>,
}

impl Keeping {
    pub(crate) fn new(cached: Arc<Cached>, kept: Kept, body: Incoming) -> Self {
        let at = kept.part.start;
        let flight = cached.flights.begin(kept.id, kept.part.clone());
        let from = at.next_multiple_of(BLOCK);
        Self { body, gathered: Gathered { cached, kept, at, from, pieces: Vec::new(), flight } }
    }
}

impl Gathered {
    fn take(&mut self, piece: &Bytes) {
        let mut piece = piece.slice(..piece.len().min((self.kept.part.end - self.at) as usize));
        let start = self.at;
        self.at += piece.len() as u64;
        if self.at <= self.from {
            return;
        }
        let piece = piece.split_off(self.from.saturating_sub(start).min(piece.len() as u64) as usize);
        self.pieces.push(piece);
        let full = self.boundary_before(self.at);
        if full > self.from {
            self.keep(full);
        }
    }

    /// The last address before `at` where what is kept at once may end, in the object.
    fn boundary_before(&self, at: u64) -> u64 {
        let start = self.kept.start;
        ((start + at) / KEEP_BYTES * KEEP_BYTES).saturating_sub(start)
    }

    /// The body has ended, well or not.
    fn end(&mut self) {
        let is_all = self.at == self.kept.bytes && self.at == self.kept.part.end;
        let end = if is_all { self.at.next_multiple_of(BLOCK) } else { self.at / BLOCK * BLOCK };
        if end <= self.from || self.pieces.is_empty() {
            return;
        }
        if end > self.at {
            self.pieces.push(Bytes::from_static(&ZEROES[..(end - self.at) as usize]));
        }
        self.keep(end);
    }

    /// Gives the pool what is gathered up to there.
    fn keep(&mut self, end: u64) {
        let from = self.from;
        let mut length = end - from;
        let range = self.kept.start + from..self.kept.start + end;
        let mut given = Vec::with_capacity(self.pieces.len());
        let mut left = Vec::new();
        for mut piece in self.pieces.drain(..) {
            let rest = piece.split_off(length.min(piece.len() as u64) as usize);
            length -= piece.len() as u64;
            given.push(piece);
            if !rest.is_empty() {
                left.push(rest);
            }
        }
        self.pieces = left;
        self.from = end;
        let arrival = self.flight.arrival(from..end);
        if self.cached.is_kept(&self.kept) {
            self.cached.pool.try_fill(range, given, arrival);
        }
    }
}

impl Body for Keeping {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(piece) = frame.data_ref() {
                    this.gathered.take(piece);
                }
                if this.gathered.at == this.gathered.kept.part.end {
                    // The last piece may be the last that is asked for.
                    this.gathered.end();
                }
            }
            Some(Err(_)) | None => this.gathered.end(),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Who asked may not want the rest: what came is kept.
impl Drop for Keeping {
    fn drop(&mut self) {
        self.gathered.end();
    }
}
