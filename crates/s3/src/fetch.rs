//! Fetch: the part of a version that the cache lacks, from the store, in the name of the caller who is being answered.
//!
//! How: the caller's own request, with `If-Match` of the version's ETag, and `Range` of what is missing. Where the range is signed, or a part is asked
//! for by its number, it stays as it is, and what comes before the missing part is left out here. The answer is kept on its way.
//!
//! Invariant: what is answered is of that version: its ETag, its length and its range are compared, whatever the store thinks of
//! conditions.
//!
//! Rejected: a key of the gateway's own for this (nothing that one caller may read would need it, and it would read what a
//! caller may not).

use crate::backend::BackEnd;
use crate::body::Failed;
use crate::cached::Cached;
use crate::counts::Purpose;
use crate::keep::Keeping;
use crate::passing::Passing;
use crate::serving::Sent;
use forebay_core::Residency;
use forebay_objects::{Held, Kept, may_change};
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use hyper::header::{HeaderValue, IF_MATCH, RANGE};
use hyper::http::request::Parts;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Where the bytes of a version come from: here, or there.
pub(crate) struct Origin {
    pub(crate) cached: Arc<Cached>,
    pub(crate) backend: Arc<BackEnd<Sent>>,
    pub(crate) held: Held,
    /// The caller's request.
    pub(crate) head: Parts,
}

/// Bytes that come from the store.
pub(crate) struct Fetched {
    body: Box<Passing>,
    /// Bytes before those that are wanted.
    skip: u64,
    /// Of those that are wanted.
    left: u64,
}

impl Origin {
    /// Where the page of one of the version's bytes ends.
    pub(crate) fn page_end(&self, at: u64) -> u64 {
        let (start, page_bytes) = (self.held.start, self.cached.page_bytes);
        ((start + at) / page_bytes + 1) * page_bytes - start
    }

    /// Where a range of the version's bytes is, or its beginning if that is long.
    pub(crate) async fn look(&self, range: Range<u64>) -> Residency {
        let start = self.held.start;
        self.cached.look(&(start + range.start..start + range.end)).await
    }

    /// These bytes of the version.
    ///
    /// # Errors
    /// When the store does not answer with them.
    pub(crate) async fn fetch(&self, part: Range<u64>) -> Result<Fetched, Failed> {
        let mut request = self.head.clone();
        let headers = &mut request.headers;
        if !headers.contains_key(IF_MATCH) {
            headers.insert(IF_MATCH, HeaderValue::from_str(&self.held.etag)?);
        }
        if !self.held.is_numbered && may_change(&self.head.uri, &self.head.headers, &RANGE) {
            headers.insert(RANGE, HeaderValue::try_from(format!("bytes={}-{}", part.start, part.end - 1))?);
        }
        let answer = self.backend.read(request).await;
        self.cached.counts.asked(Purpose::Fetch, &answer);
        let answer = answer?;
        let came = self.held.part_in(answer.status(), answer.headers()).filter(|came| came.contains(&part.start));
        let came = came.ok_or_else(|| refused(self.backend.address(), answer.status()))?;
        let (skip, left) = (part.start - came.start, came.end.min(part.end) - part.start);
        let kept =
            Kept { id: self.held.id, start: self.held.start, part: came, bytes: self.held.bytes, is_known: true };
        let keeping = Keeping::new(Arc::clone(&self.cached), kept);
        let body = Box::new(Passing::new(answer.into_body(), Some(keeping)));
        Ok(Fetched { body, skip, left })
    }
}

fn refused(address: &str, status: StatusCode) -> Failed {
    format!("the store {address} did not answer with the version that it confirmed, but with {status}").into()
}

impl Fetched {
    /// The next of the bytes that are wanted; `None` after the last.
    pub(crate) fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failed>>> {
        let this = &mut *self;
        while this.left > 0 {
            let Some(frame) = ready!(Pin::new(&mut *this.body).poll_frame(context)) else {
                return Poll::Ready(Some(Err("the store's answer was too short".into())));
            };
            let Ok(mut piece) = frame?.into_data() else { continue };
            let before = this.skip.min(piece.len() as u64);
            this.skip -= before;
            let piece = piece.split_off(before as usize);
            let piece = piece.slice(..piece.len().min(this.left as usize));
            if !piece.is_empty() {
                this.left -= piece.len() as u64;
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }
}
