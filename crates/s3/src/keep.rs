//! Keep: a body's bytes on their way from the store, put where they belong in the cache.
//!
//! Why: what is received into the cache's frames and sent from them is copied by nobody.
//!
//! How: a quick client's body is received into frames that the pool lends ([`Place`]), [`PLACE_BYTES_MAX`] at a time, the next ones asked for
//! ahead. The rest is received into buffers: the beginning of a body, that of a slow client, and where no frames are to be had. Of those, pages are put together and given to the pool, which
//! copies them or not; nobody waits. Whole blocks only are kept: what is left at either end of a range is left out, but for the object's
//! own end, which is filled up with zeroes.
//!
//! Invariants: a byte is kept at the address of its place in its version; none after the end of what the answer said it has.
//! A body that breaks off is kept as far as it came, but for the place that it was received into.

use crate::cached::Cached;
use crate::flight::Flight;
use crate::pool::Place;
use forebay_core::BLOCK_BYTES;
use forebay_objects::Kept;
use hyper::body::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What is given to the pool at once, and what of a place others may have without the rest.
const KEEP_BYTES: u64 = 64 << 10;
/// The same for a slow client.
const SLOW_KEEP_BYTES: u64 = 16 << 10;
/// Pieces that are gathered: more, tiny ones, are put together. Each takes some 32 bytes beside its own.
const PIECES_MAX: usize = 256;
/// The most that is received into at once.
const PLACE_BYTES_MAX: u64 = 512 << 10;
/// How long frames are waited for.
const PLACE_WAIT: Duration = Duration::from_millis(20);

static ZEROES: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// See the module.
#[derive(Debug)]
pub(crate) struct Keeping {
    cached: Arc<Cached>,
    kept: Kept,
    /// Where the next byte belongs, in the object.
    at: u64,
    /// From where on `pieces` are.
    from: u64,
    pieces: Vec<Bytes>,
    place: Option<Place>,
    asked: Option<AskedFor>,
    /// No frames were to be had here.
    refused_at: Option<u64>,
    flight: Arc<Flight>,
}

/// A place that was asked for, and where it ends.
#[derive(Debug)]
struct AskedFor {
    place: Pin<Box<Timeout<oneshot::Receiver<Place>>>>,
    end: u64,
}

impl Keeping {
    pub(crate) fn new(cached: Arc<Cached>, kept: Kept) -> Self {
        let at = kept.part.start;
        let flight = cached.flights.begin(kept.id, kept.part.clone());
        let from = at.next_multiple_of(BLOCK);
        Self { cached, kept, at, from, pieces: Vec::new(), place: None, asked: None, refused_at: None, flight }
    }

    /// Whether the next bytes are to be received into [`Self::blank`].
    pub(crate) fn poll_place(&mut self, context: &mut Context<'_>, window_bytes: u64) -> Poll<bool> {
        if self.place.is_some() {
            return Poll::Ready(true);
        }
        if self.asked.is_none() && self.is_at_boundary() && self.refused_at != Some(self.at) {
            self.asked = self.ask(self.at, window_bytes);
        }
        let Some(asked) = &mut self.asked else { return Poll::Ready(false) };
        let came = ready!(asked.place.as_mut().poll(context));
        let end = asked.end;
        self.asked = None;
        let Ok(Ok(place)) = came else {
            self.refused_at = Some(self.at);
            return Poll::Ready(false);
        };
        self.place = Some(place);
        self.asked = self.ask(end, window_bytes / 2);
        Poll::Ready(true)
    }

    /// How many bytes [`Self::copy`] may be given next, after it was waited for frames for them: as many as there are, or until a page begins.
    pub(crate) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let _ = ready!(self.poll_place(context, u64::MAX));
        let room_bytes = self.place.as_ref().map_or(self.until_boundary(), Place::left_bytes);
        Poll::Ready(usize::try_from(room_bytes).unwrap_or(usize::MAX))
    }

    /// The next bytes came, elsewhere.
    pub(crate) fn copy(&mut self, piece: &Bytes) {
        let mut left = &piece[..];
        while self.place.is_some() && !left.is_empty() {
            let blank = self.blank();
            let (first, rest) = left.split_at(left.len().min(blank.len()));
            blank[..first.len()].copy_from_slice(first);
            left = rest;
            drop(self.placed(first.len()));
        }
        if !left.is_empty() {
            self.take(&piece.slice_ref(left), u64::MAX);
        }
    }

    /// Nothing is gathered, and a page begins.
    fn is_at_boundary(&self) -> bool {
        self.at == self.from && self.pieces.is_empty() && (self.kept.start + self.at).is_multiple_of(KEEP_BYTES)
    }

    /// Asks for frames for what comes from there on, half a window at most.
    fn ask(&self, from: u64, window_bytes: u64) -> Option<AskedFor> {
        let bytes_max = (window_bytes / 2).min(PLACE_BYTES_MAX) / KEEP_BYTES * KEEP_BYTES;
        let end = self.end_of_blocks(self.kept.part.end).min(from + bytes_max);
        if from + KEEP_BYTES > end || !self.cached.is_kept(&self.kept) {
            return None;
        }
        let range = self.kept.start + from..self.kept.start + end;
        let place = self.cached.pool.place(range, self.flight.arrival(from..end))?;
        Some(AskedFor { place: Box::pin(timeout(PLACE_WAIT, place)), end })
    }

    /// Where the bytes come to an end that are kept, if those before `end` are known.
    fn end_of_blocks(&self, end: u64) -> u64 {
        if end == self.kept.bytes { end.next_multiple_of(BLOCK) } else { end / BLOCK * BLOCK }
    }

    /// Where the next bytes are to be received into, after `poll_place` said so.
    pub(crate) fn blank(&mut self) -> &mut [u8] {
        let left = usize::try_from(self.kept.part.end - self.at).unwrap_or(usize::MAX);
        let blank = self.place.as_mut().expect("there is a place").blank();
        let bytes = blank.len().min(left);
        &mut blank[..bytes]
    }

    /// So many were received there: they are to be sent.
    pub(crate) fn placed(&mut self, bytes: usize) -> Bytes {
        let place = self.place.as_mut().expect("there is a place");
        let piece = place.written(bytes);
        self.at += bytes as u64;
        self.from = self.at;
        if self.at == self.kept.part.end {
            // The object's own end.
            let rest = place.blank();
            let length = rest.len();
            rest.fill(0);
            if length > 0 {
                drop(place.written(length));
            }
            self.from = self.at.next_multiple_of(BLOCK);
        }
        if place.blank().is_empty() {
            self.place = None;
        }
        piece
    }

    /// Whether all that was to come did.
    pub(crate) fn is_whole(&self) -> bool {
        self.at == self.kept.part.end
    }

    /// Bytes until the next page begins.
    pub(crate) fn until_boundary(&self) -> u64 {
        KEEP_BYTES - (self.kept.start + self.at) % KEEP_BYTES
    }

    /// The next bytes came in a buffer.
    pub(crate) fn take(&mut self, piece: &Bytes, window_bytes: u64) {
        let mut piece = piece.slice(..piece.len().min((self.kept.part.end - self.at) as usize));
        let start = self.at;
        self.at += piece.len() as u64;
        if self.at > self.from {
            if self.pieces.len() == PIECES_MAX {
                self.pieces = vec![Bytes::from(self.pieces.concat())];
            }
            self.pieces.push(piece.split_off(self.from.saturating_sub(start).min(piece.len() as u64) as usize));
            let full = self.boundary_before(if window_bytes < KEEP_BYTES { SLOW_KEEP_BYTES } else { KEEP_BYTES });
            if full > self.from {
                self.keep(full);
            }
        }
        if self.at == self.kept.part.end {
            // The last piece may be the last that is asked for.
            self.end();
        }
    }

    /// The last place before the next byte where what is kept at once may end.
    fn boundary_before(&self, step: u64) -> u64 {
        let start = self.kept.start;
        ((start + self.at) / step * step).saturating_sub(start)
    }

    /// The body has ended, well or not.
    fn end(&mut self) {
        let is_all = self.at == self.kept.part.end;
        let end = if is_all { self.end_of_blocks(self.at) } else { self.at / BLOCK * BLOCK };
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
        let (given, left) = split(self.pieces.drain(..), end - from);
        self.pieces = left;
        self.from = end;
        let arrival = self.flight.arrival(from..end);
        if self.cached.is_kept(&self.kept) {
            self.cached.pool.try_fill(self.kept.start + from..self.kept.start + end, given, arrival);
        }
    }
}

/// The first `length` bytes of some pieces, and the rest.
fn split(pieces: impl Iterator<Item = Bytes>, mut length: u64) -> (Vec<Bytes>, Vec<Bytes>) {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for mut piece in pieces {
        let behind = piece.split_off(length.min(piece.len() as u64) as usize);
        length -= piece.len() as u64;
        first.push(piece);
        if !behind.is_empty() {
            rest.push(behind);
        }
    }
    (first, rest)
}

/// Who asked may not want the rest: what came is kept.
impl Drop for Keeping {
    fn drop(&mut self) {
        self.end();
    }
}
