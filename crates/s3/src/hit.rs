//! Hit: a body that comes from the cache, and what the cache lacks of it from the store.
//!
//! How: it is read [`READ_BYTES_MAX`] at a time, as it is sent. A client that takes what it is sent quickly gets the frames themselves, more
//! at a time as it keeps up; one that is slow gets a page at a time, and a copy of a few KiB when others have
//! borrowed what there is. So thousands of slow clients hold a page each at most.
//!
//! What cannot be read is on its way for somebody else, and waited for; or it is fetched ([`crate::fetch`]), as far as it is missing, and kept on
//! its way. A fetch that breaks off is begun again where it ended, [`FETCHES_MAX`] times at most.
//!
//! Invariant: bytes of one version only: its addresses are its own, and a fetch is of that version or fails.

use crate::body::Failed;
use crate::cached::Cached;
use crate::fetch::{Fetched, Origin};
use crate::on_the_way::OnTheWay;
use crate::pool::Page;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The most that is read at once.
const READ_BYTES_MAX: u64 = 1 << 20;
const READ_PAGES_MAX: u64 = 16;
/// What is copied at once where nothing can be borrowed.
const COPY_BYTES: u64 = 32 << 10;
/// A client that took what was read within this time is quick.
const QUICK: Duration = Duration::from_millis(20);
/// Fetches for one body that may break off.
const FETCHES_MAX: u32 = 3;

/// See the module.
pub(crate) struct Hit {
    origin: Arc<Origin>,
    /// Of the object's bytes, those that are still to be got.
    left: Range<u64>,
    /// Bytes that are still to be sent.
    bytes_left: u64,
    /// Pages that are read at once.
    window_pages: u64,
    pages: VecDeque<Bytes>,
    on_the_way: Arc<OnTheWay>,
    stage: Stage,
    fetches_left: u32,
    since: Instant,
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
    /// The next bytes.
    Pages(Vec<Bytes>),
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
            window_pages: 4,
            pages: VecDeque::new(),
            on_the_way: Arc::default(),
            stage: Stage::Idle,
            fetches_left: FETCHES_MAX,
            since: Instant::now(),
        }
    }

    /// What is to be read next.
    fn next_read(&mut self) -> Range<u64> {
        let page_bytes = self.origin.cached.page_bytes;
        let pages_max = (READ_BYTES_MAX / page_bytes).clamp(1, READ_PAGES_MAX);
        // Twice as much for who took the last quickly.
        self.window_pages = if self.since.elapsed() < QUICK { (self.window_pages * 2).min(pages_max) } else { 1 };
        let end = self.origin.page_end(self.left.start) + (self.window_pages - 1) * page_bytes;
        self.left.start..end.min(self.left.end)
    }

    fn get(&mut self) -> Getting {
        let part = self.next_read();
        let (origin, end) = (Arc::clone(&self.origin), self.left.end);
        Box::pin(async move {
            let here = coming(&origin, part).await;
            if let Some(pages) = read(&origin, &here).await {
                return Ok(Got::Pages(pages));
            }
            let found = origin.look(here.start..end).await;
            let leading = here.start..here.start + found.leading_bytes.min(READ_BYTES_MAX);
            if !leading.is_empty()
                && let Some(pages) = read(&origin, &leading).await
            {
                return Ok(Got::Pages(pages));
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
        0 => flights.wait(origin.held.id, part.start).await.unwrap_or(part.end),
        here => part.start + here,
    };
    part.start..end.min(part.end)
}

/// The bytes, or as many from the first on as may be had at once; `None` if one is missing.
async fn read(origin: &Origin, part: &Range<u64>) -> Option<Vec<Bytes>> {
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
    Some(match is_lent {
        true => cut(pages.into_iter().map(Bytes::from_owner), skip, length),
        false => cut(pages.iter().map(copied), skip, length),
    })
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
                let window_bytes = this.window_pages * this.origin.cached.page_bytes;
                if this.on_the_way.is_full(2 * window_bytes, context) {
                    this.pages.push_front(page);
                    return Poll::Pending;
                }
                this.bytes_left -= page.len() as u64;
                return Poll::Ready(Some(Ok(Frame::data(OnTheWay::follow(&this.on_the_way, page)))));
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
                        Ok(Got::Pages(pages)) => {
                            this.left.start += pages.iter().map(|it| it.len() as u64).sum::<u64>();
                            this.pages = pages.into();
                            this.since = Instant::now();
                        }
                        Ok(Got::Fetched(fetched)) => this.stage = Stage::Fetched(fetched),
                        Err(error) => this.retry(error)?,
                    }
                }
                Stage::Fetched(fetched) => match ready!(Pin::new(fetched).poll_next(context)) {
                    Some(Ok(piece)) => {
                        this.left.start += piece.len() as u64;
                        this.pages.push_back(piece);
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
