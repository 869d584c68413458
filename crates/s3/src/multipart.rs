//! Multipart: an upload in parts that were kept on their way becomes an object ([`forebay_objects::Assembly`]).
//!
//! How: the request that completes it passes as it came, and so does the answer; a copy of either is read when the answer ends. From then on the object is
//! known. Its bytes are moved to its own addresses by a task ([`assemble`]), one object at a time: read from where they were kept, given to the cache as any
//! other body on its way ([`Keeping`]), so that a read meanwhile waits for them instead of asking the store.
//!
//! Limits: [`COMPLETION_BYTES_MAX`] of either; [`ASSEMBLIES_MAX`] objects wait to be moved. What is beyond that, or was evicted meanwhile, is read from the store.

use crate::body::{Body, Failed};
use crate::cached::Cached;
use crate::keep::Keeping;
use crate::outgoing::Outgoing;
use forebay_objects::{Assembly, COMPLETION_BYTES_MAX, Completing, Kept, KeptPart, VersionId};
use hyper::StatusCode;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::HeaderMap;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Objects that wait to be moved.
pub(crate) const ASSEMBLIES_MAX: usize = 64;
/// Moved at once.
const STEP_BYTES: u64 = 512 << 10;

/// What has passed of a body; `None` once that is too much.
type Copy = Arc<Mutex<Option<Vec<u8>>>>;

/// A body of which a copy is made on its way.
#[derive(Debug)]
pub(crate) struct Copied {
    body: Outgoing,
    copy: Copy,
}

/// An upload that is being completed.
pub(crate) struct Completion {
    cached: Arc<Cached>,
    completing: Completing,
    asked: Copy,
}

/// The store's answer to that, on its way to the client.
pub(crate) struct Answered {
    body: Body,
    told: Copy,
    /// `None` after the end.
    completion: Option<(Completion, StatusCode, HeaderMap)>,
}

fn add(copy: &Copy, piece: &[u8]) {
    let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *copy {
        Some(bytes) if bytes.len() + piece.len() <= COMPLETION_BYTES_MAX => bytes.extend_from_slice(piece),
        copy => *copy = None,
    }
}

fn take(copy: &Copy) -> Option<Vec<u8>> {
    copy.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn empty() -> Copy {
    Arc::new(Mutex::new(Some(Vec::new())))
}

impl Completion {
    pub(crate) fn begin(cached: &Arc<Cached>, completing: Completing, body: Outgoing) -> (Self, Copied) {
        let asked = empty();
        let copied = Copied { body, copy: Arc::clone(&asked) };
        (Self { cached: Arc::clone(cached), completing, asked }, copied)
    }

    /// The answer, of which the end completes it.
    pub(crate) fn answered(self, status: StatusCode, headers: &HeaderMap, body: Body) -> Answered {
        Answered { body, told: empty(), completion: Some((self, status, headers.clone())) }
    }

    fn end(self, status: StatusCode, headers: &HeaderMap, told: &Copy) {
        let (Some(asked), Some(told)) = (take(&self.asked), take(told)) else { return };
        let completed = self.cached.objects().completed(&self.completing, &asked, (status, headers, &told));
        let Ok(assembly) = completed else { return };
        if let Err(refused) = self.cached.assemblies.try_send(assembly) {
            let assembly = refused.into_inner();
            assembly.parts.iter().for_each(|(_, part)| forget(&self.cached, part));
        }
    }
}

/// What a part was kept as is of no use any more.
fn forget(cached: &Cached, part: &KeptPart) {
    cached.objects().distrust(part.id);
    cached.evict_whole_pages(part.start..part.start + part.bytes);
}

/// Moves objects' bytes to where they belong, forever.
pub(crate) async fn assemble(cached: Arc<Cached>, mut assemblies: mpsc::Receiver<Assembly>) {
    while let Some(Assembly { kept, parts }) = assemblies.recv().await {
        let mut run = Vec::new();
        for (range, part) in &parts {
            for step in steps(range, part) {
                if cached.missing(&step.addresses).await == 0 {
                    run.push(step);
                } else {
                    move_run(&cached, &kept, std::mem::take(&mut run)).await;
                }
            }
        }
        move_run(&cached, &kept, run).await;
        parts.iter().for_each(|(_, part)| forget(&cached, part));
    }
}

/// What is moved at once.
struct Step {
    of: VersionId,
    addresses: Range<u64>,
    /// Which bytes of the object they are.
    range: Range<u64>,
}

fn steps(range: &Range<u64>, part: &KeptPart) -> impl Iterator<Item = Step> {
    let (from, bytes, start, of) = (range.start, part.bytes, part.start, part.id);
    (0..bytes).step_by(STEP_BYTES as usize).map(move |at| {
        let end = bytes.min(at + STEP_BYTES);
        Step { of, addresses: start + at..start + end, range: from + at..from + end }
    })
}

/// Steps that follow each other.
async fn move_run(cached: &Arc<Cached>, kept: &Kept, run: Vec<Step>) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let part = first.range.start..last.range.end;
    let mut keeping = Keeping::new(Arc::clone(cached), Kept { part, ..kept.clone() });
    for step in run {
        let Some(bytes) = read(cached, step).await else { return };
        give(&mut keeping, bytes).await;
    }
}

/// A copy; `None` if they are not its own any more.
async fn read(cached: &Cached, Step { of, addresses, .. }: Step) -> Option<Bytes> {
    let sectors = Cached::sectors(&addresses);
    let (before, bytes) = ((addresses.start - sectors.start) as usize, (addresses.end - addresses.start) as usize);
    let pages = cached.pool.read(sectors, None).await.ok()?;
    let mut copy = Vec::with_capacity(bytes + 1024);
    pages.iter().for_each(|page| copy.extend_from_slice(page.as_ref()));
    // Until now they were.
    cached.is_known(of).then(|| Bytes::from(copy).slice(before..before + bytes))
}

async fn give(keeping: &mut Keeping, mut bytes: Bytes) {
    while !bytes.is_empty() && !keeping.is_whole() {
        let room_bytes = poll_fn(|context| keeping.poll_room(context)).await;
        keeping.copy(&bytes.split_to(bytes.len().min(room_bytes)));
    }
}

impl HttpBody for Copied {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(piece) = frame.data_ref()
        {
            add(&self.copy, piece);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(piece) = frame.data_ref()
        {
            add(&this.told, piece);
        }
        let has_broken_off = matches!(frame, Some(Err(_)));
        let is_end = frame.is_none() || this.body.is_end_stream();
        if (has_broken_off || is_end)
            && let Some((completion, status, headers)) = this.completion.take()
            && !has_broken_off
        {
            completion.end(status, &headers, &this.told);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.completion.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
