//! Through: an upload that is kept on its way to the store, so that a read after it finds it here.
//!
//! How: the body goes to the store as it came, byte for byte, and the object's bytes in it to the cache ([`Keeping`]), under a version that nothing
//! leads to ([`forebay_objects::Write`]). When the store has said yes, and which version that is, and all bytes have passed, the name leads there; the client
//! gets the store's answer when what was given to the cache has arrived.
//!
//! Invariants: an upload that fails, breaks off, is malformed or is given up leaves nothing that could be read ([`Upload`]). What the cache does not
//! take, for want of room or of time, is left out: the store's yes is never kept from the client.
//!
//! Cost: the bytes are copied once, where they were received, into frames of the cache: so HTTP's library receives the next ones into the
//! same buffer. Without that it was another one each time, and the copy was the shard's, on another processor: 1.5 times the CPU of an upload
//! around, .94 of its rate. Rejected: to send from the frames (no copy less), to receive into them (the client's connection is HTTP's library's).

use crate::body::Failed;
use crate::cached::Cached;
use crate::keep::Keeping;
use crate::outgoing::Outgoing;
use forebay_objects::{AwsChunked, Framing, Write, Writing};
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::HeaderMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// An upload under way. What it kept is forgotten when this is dropped before the store's yes.
pub(crate) struct Upload {
    cached: Arc<Cached>,
    writing: Writing,
    whole: oneshot::Receiver<()>,
    is_linked: bool,
}

/// Its body, on its way to the store.
#[derive(Debug)]
pub(crate) struct Through {
    body: Outgoing,
    /// What came and is not looked at yet.
    held: Bytes,
    /// `None` when nothing more is kept.
    decoding: Option<Decoding>,
}

#[derive(Debug)]
struct Decoding {
    keeping: Keeping,
    framing: Option<AwsChunked>,
    /// Of the piece that is looked at; kept for its memory.
    ours: Vec<Range<usize>>,
    whole: oneshot::Sender<()>,
}

impl Upload {
    /// With the body that is to be sent. Or why it is not kept on its way, with the body as it came.
    pub(crate) fn begin(
        cached: &Arc<Cached>,
        write: &Write,
        body: Outgoing,
    ) -> Result<(Self, Through), (&'static str, Outgoing)> {
        let writing = match cached.objects().writing(cached.now_ns(), write) {
            Ok(writing) => writing,
            Err(why) => return Err((why, body)),
        };
        let (sender, whole) = oneshot::channel();
        let keeping = Keeping::new(Arc::clone(cached), writing.kept.clone());
        let framing = match write.framing {
            Framing::Plain => None,
            Framing::AwsChunked => Some(AwsChunked::new(write.bytes)),
        };
        let decoding = Decoding { keeping, framing, ours: Vec::new(), whole: sender };
        // An empty body brings no piece: it is whole already.
        let decoding =
            if write.bytes == 0 && write.framing == Framing::Plain { decoding.end() } else { Some(decoding) };
        let upload = Self { cached: Arc::clone(cached), writing, whole, is_linked: false };
        Ok((upload, Through { body, held: Bytes::new(), decoding }))
    }

    /// The store answered. Why nothing is kept, if so.
    pub(crate) async fn answered(mut self, status: StatusCode, headers: &HeaderMap) -> Result<(), &'static str> {
        self.whole.try_recv().map_err(|_| "torn")?;
        let kept = &self.writing.kept;
        if kept.bytes > 0 {
            // What has not arrived by then comes later or not at all.
            self.cached.flights.wait(kept.id, kept.bytes - 1).await;
        }
        self.cached.objects().wrote(&self.writing, status, headers)?;
        self.is_linked = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_linked {
            let kept = &self.writing.kept;
            self.cached.objects().distrust(kept.id);
            self.cached.evict_whole_pages(kept.start..kept.start + kept.bytes);
        }
    }
}

impl Decoding {
    /// The next piece of the body. `None` when nothing more is to be kept.
    fn take(mut self, piece: &Bytes) -> Option<Self> {
        let Some(framing) = &mut self.framing else {
            self.keeping.copy(piece);
            return if self.keeping.is_whole() { self.end() } else { Some(self) };
        };
        self.ours.clear();
        if framing.feed(piece, &mut self.ours).is_err() {
            // Without saying that it is whole.
            return None;
        }
        let is_whole = framing.is_whole();
        for range in self.ours.drain(..) {
            self.keeping.copy(&piece.slice(range));
        }
        if is_whole { self.end() } else { Some(self) }
    }

    /// All came: there is nothing more.
    fn end(self) -> Option<Self> {
        // Who waits for it may have gone.
        let _ = self.whole.send(());
        None
    }
}

impl Through {
    /// What is not kept.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        if self.held.is_empty() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.held)))))
    }
}

impl Body for Through {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = &mut *self;
        let Some(decoding) = &mut this.decoding else { return this.poll_rest(context) };
        let room_bytes = ready!(decoding.keeping.poll_room(context));
        if this.held.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => this.held = data,
                other => {
                    this.decoding = None;
                    return Poll::Ready(other.and_then(Result::err).map(Ok));
                }
            }
        }
        // A byte of the body is one of the object at most.
        let piece = this.held.split_to(this.held.len().min(room_bytes));
        this.decoding = this.decoding.take().and_then(|decoding| decoding.take(&piece));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Asked for before the first byte.
        self.body.size_hint()
    }
}
