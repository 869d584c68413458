//! Hit: a body that comes from the cache, and what the cache lacks of it from the store.
//!
//! How: it is read [`READ_BYTES_MAX`] at a time, as it is sent ([`crate::pace`]). A client that takes what it is sent quickly gets the frames themselves, more
//! at a time as it keeps up; one that is slow gets a page at a time, and a copy of [`COPY_BYTES`] when others have
//! borrowed what there is. So thousands of slow clients hold a page each at most.
//!
//! What cannot be read is on its way for somebody else, and waited for; or it is fetched ([`crate::fetch`]), as far as it is missing, and kept on
//! its way. A fetch that breaks off is begun again where it ended, [`FETCHES_MAX`] times at most.
//!
//! Invariant: bytes of one version only: its addresses are its own until it is dropped, which is asked after each read; and a fetch is of that
//! version or fails.

use crate::body::Failed;
use crate::cached::Cached;
use crate::counts::Source;
use crate::fetch::{Fetched, Origin};
use crate::pace::Pace;
use crate::pool::Page;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The most that is read at once.
const READ_BYTES_MAX: u64 = 1 << 20;
const READ_PAGES_MAX: u64 = 16;
/// What a client may have on the way at first, and at most: half of it is read at once.
const WINDOW_BYTES: u64 = 1 << 20;
const WINDOW_BYTES_MAX: u64 = 2 * READ_BYTES_MAX;
/// What is copied at once where nothing can be borrowed, and what a client may have of copies.
const COPY_BYTES: u64 = 32 << 10;
/// Fetches for one body that may break off.
const FETCHES_MAX: u32 = 3;

/// See the module.
pub(crate) struct Hit {
    origin: Arc<Origin>,
    /// Of the object's bytes, those that are still to be got.
    left: Range<u64>,
    /// Bytes that are still to be sent.
    bytes_left: u64,
    pages: VecDeque<Bytes>,
    /// What the client may have of them on the way.
    on_the_way_bytes_max: u64,
    pace: Pace,
    stage: Stage,
    fetches_left: u32,
}

type Getting = Pin<Box<dyn Future<Output = Result<Got, Failed>> + Send>>;

enum Stage {
    Idle,
    /// The next bytes are asked for.
    Getting(Getting),
    /// They come from the store.
    Fetched(Fetched),
}

/// What came of asking.
enum Got {
    /// The next bytes; whether they are lent.
    Pages(Vec<Bytes>, bool),
    /// They come.
    Fetched(Fetched),
}

impl Hit {
    /// A range of the object's bytes.
    pub(crate) fn new(origin: Origin, part: Range<u64>) -> Self {
        Self {
            origin: Arc::new(origin),
            bytes_left: part.end - part.start,
            left: part,
            pages: VecDeque::new(),
            on_the_way_bytes_max: 0,
            pace: Pace::new(WINDOW_BYTES, WINDOW_BYTES_MAX),
            stage: Stage::Idle,
            fetches_left: FETCHES_MAX,
        }
    }

    /// What is to be read next.
    fn next_read(&self) -> Range<u64> {
        let page_bytes = self.origin.cached.page_bytes;
        let pages = (self.pace.window_bytes() / 2 / page_bytes).clamp(1, READ_PAGES_MAX);
        let end = self.origin.page_end(self.left.start) + (pages - 1) * page_bytes;
        self.left.start..end.min(self.left.end)
    }

    fn get(&mut self) -> Getting {
        let part = self.next_read();
        let (origin, end) = (Arc::clone(&self.origin), self.left.end);
        Box::pin(async move {
            let here = coming(&origin, part).await;
            if let Some((pages, is_lent)) = read(&origin, &here).await {
                return Ok(Got::Pages(pages, is_lent));
            }
            let found = origin.look(here.start..end).await;
            let leading = here.start..here.start + found.leading_bytes.min(READ_BYTES_MAX);
            if !leading.is_empty()
                && let Some((pages, is_lent)) = read(&origin, &leading).await
            {
                return Ok(Got::Pages(pages, is_lent));
            }
            // What seems to be here and cannot be read has to be brought too.
            let missing_bytes = (found.leading_bytes + found.gap_bytes).max(1);
            Ok(Got::Fetched(origin.fetch(here.start..(here.start + missing_bytes).min(end)).await?))
        })
    }

    /// The store broke off: again from where it ended, if that was not too often.
    fn retry(&mut self, error: Failed) -> Result<(), Failed> {
        self.fetches_left -= 1;
        self.stage = Stage::Idle;
        if self.fetches_left == 0 { Err(error) } else { Ok(()) }
    }
}

/// What of a part to read now: if somebody else brings it, only what is here or has come. To read what is on its way would make it fail
/// for whoever waits for the same.
async fn coming(origin: &Origin, part: Range<u64>) -> Range<u64> {
    let flights = &origin.cached.flights;
    if flights.coming(origin.held.id, &(part.start..part.start + 1)) == 0 {
        return part;
    }
    let here = origin.look(part.clone()).await.leading_bytes;
    let end = match here {
        0 => {
            origin.cached.counts.waits();
            flights.wait(origin.held.id, part.start).await.unwrap_or(part.end)
        }
        here => part.start + here,
    };
    part.start..end.min(part.end)
}

/// The bytes, or as many from the first on as may be had at once, and whether they are lent; `None` if one is missing.
async fn read(origin: &Origin, part: &Range<u64>) -> Option<(Vec<Bytes>, bool)> {
    let pool = &origin.cached.pool;
    let start = origin.held.start;
    let mut wanted = start + part.start..start + part.end;
    let lease = pool.lease(&Cached::sectors(&wanted));
    let is_lent = lease.is_some();
    if !is_lent {
        wanted.end = wanted.end.min(wanted.start + COPY_BYTES);
    }
    let sectors = Cached::sectors(&wanted);
    let (skip, length) = ((wanted.start - sectors.start) as usize, (wanted.end - wanted.start) as usize);
    let pages = pool.read(sectors, lease).await.ok()?;
    // Else the addresses may be another's by now.
    if !origin.cached.is_known(origin.held.id) {
        return None;
    }
    origin.cached.counts.sent(Source::Cache, length as u64);
    let bytes = match is_lent {
        true => cut(pages.into_iter().map(Bytes::from_owner), skip, length),
        false => cut(pages.iter().map(copied), skip, length),
    };
    Some((bytes, is_lent))
}

fn copied(page: &Page) -> Bytes {
    Bytes::copy_from_slice(page.as_ref())
}

/// Without the first `skip` bytes, and so many of the rest.
fn cut(pieces: impl Iterator<Item = Bytes>, mut skip: usize, mut length: usize) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(17);
    for mut piece in pieces {
        let before = skip.min(piece.len());
        skip -= before;
        let piece = piece.split_off(before);
        let piece = piece.slice(..piece.len().min(length));
        length -= piece.len();
        if !piece.is_empty() {
            out.push(piece);
        }
    }
    out
}

impl Body for Hit {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = &mut *self;
        loop {
            if let Some(page) = this.pages.pop_front() {
                if this.pace.poll_room(this.on_the_way_bytes_max, context).is_pending() {
                    this.pages.push_front(page);
                    return Poll::Pending;
                }
                this.bytes_left -= page.len() as u64;
                return Poll::Ready(Some(Ok(Frame::data(this.pace.give(page)))));
            }
            if this.bytes_left == 0 {
                return Poll::Ready(None);
            }
            match &mut this.stage {
                Stage::Idle => this.stage = Stage::Getting(this.get()),
                Stage::Getting(getting) => {
                    let got = ready!(getting.as_mut().poll(context));
                    this.stage = Stage::Idle;
                    match got {
                        Ok(Got::Pages(pages, is_lent)) => {
                            this.left.start += pages.iter().map(|it| it.len() as u64).sum::<u64>();
                            this.pages = pages.into();
                            this.on_the_way_bytes_max = if is_lent { WINDOW_BYTES_MAX } else { COPY_BYTES };
                        }
                        Ok(Got::Fetched(fetched)) => this.stage = Stage::Fetched(fetched),
                        Err(error) => this.retry(error)?,
                    }
                }
                Stage::Fetched(fetched) => match ready!(Pin::new(fetched).poll_next(context)) {
                    Some(Ok(piece)) => {
                        this.left.start += piece.len() as u64;
                        this.origin.cached.counts.sent(Source::Fetched, piece.len() as u64);
                        this.pages.push_back(piece);
                        this.on_the_way_bytes_max = WINDOW_BYTES_MAX;
                    }
                    Some(Err(error)) => this.retry(error)?,
                    None => this.stage = Stage::Idle,
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_what_was_asked_for() {
        let pieces = || [&b"abc"[..], b"", b"defg", b"h"].into_iter().map(Bytes::from_static);
        let cut = |skip, length| cut(pieces(), skip, length).concat();
        assert_eq!(cut(0, 8), b"abcdefgh");
        assert_eq!(cut(2, 3), b"cde");
        assert_eq!(cut(3, 4), b"defg");
        assert_eq!(cut(7, 1), b"h");
        assert_eq!(cut(0, 0), b"");
    }
}
