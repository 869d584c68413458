//! The pool: how the gateway's threads ask a shard for pages, and get frames lent.
//!
//! Why: a shard is one thread that nobody may block, and HTTP runs on others. Between them is one queue each way. What is sent is the frame
//! itself: 16 MiB hits took 203 ms of CPU a GiB, where nginx with slices took 280.
//!
//! How: [`Pool`] is the gateway's end. It asks for a read, a fill, a probe or an eviction and waits for the answer. [`PoolFront`] is the shard's end,
//! polled as every front end. A read is answered with [`Page`]s: ranges of frames that are lent. When the last page of a read is dropped, on
//! whatever thread, all go back to the shard in one message, and the frames are free.
//!
//! Limits: what is asked at one time touches [`Pool::new`]'s `frames_max` frames; further asks wait. A quarter of them is for
//! fills, which are left out when that is used up: what others wait for must find room. What is lent stays pinned until it is sent, and
//! clients may be slow. So three quarters of the others may be lent for that long ([`Pool::lease`]); a read without a lease is to be
//! copied at once.
//!
//! Invariant: what is lent comes back, or the shard is gone.

use crate::flight::Arrival;
use forebay_core::{Piece, ReplyError, RequestId, Residency, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_uring::{Arena, Lent, Wake};
use hyper::body::Bytes;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Events that a call of `poll` brings at most.
const EVENTS_MAX: usize = 256;

/// Part of a frame, to be sent.
#[derive(Debug)]
pub struct Page {
    read: Arc<Reading>,
    at: usize,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.read.lent[self.at].as_ref()
    }
}

/// What a read was answered with. It goes back when its last page is dropped.
#[derive(Debug)]
struct Reading {
    lent: Vec<Lent>,
    request: RequestId,
    back: Back,
    _permits: (OwnedSemaphorePermit, Option<Lease>),
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.back.send(Message::Sent { request: self.request, lent: std::mem::take(&mut self.lent) });
    }
}

/// The way to the shard.
#[derive(Clone, Debug)]
struct Back {
    messages: Sender<Message>,
    wake: Wake,
}

impl Back {
    /// Whoever is gone needs nothing any more.
    fn send(&self, message: Message) {
        if self.messages.send(message).is_ok() {
            self.wake.wake();
        }
    }
}

type Answer<T> = oneshot::Sender<Result<T, ReplyError>>;

#[derive(Debug)]
enum Ask {
    Read { answer: Answer<Vec<Page>>, permits: (OwnedSemaphorePermit, Option<Lease>) },
    Fill { to_tell: Told, bytes: Vec<Bytes>, _permit: OwnedSemaphorePermit },
    Probe { answer: Answer<Residency>, _permit: OwnedSemaphorePermit },
    Evict { answer: Answer<()> },
}

/// Who learns that a fill has ended.
#[derive(Debug)]
enum Told {
    Asker(Answer<()>),
    /// By being dropped.
    Waiters(Arrival),
}

/// The right to keep what is read until it is sent.
#[derive(Debug)]
pub struct Lease {
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Message {
    Ask { range: Range<u64>, ask: Ask },
    Sent { request: RequestId, lent: Vec<Lent> },
}

/// The gateway's end. See the module.
#[derive(Clone, Debug)]
pub struct Pool {
    back: Back,
    page_bytes: u64,
    frames: Arc<Semaphore>,
    fills: Arc<Semaphore>,
    leases: Arc<Semaphore>,
}

/// The shard's end. See the module.
pub struct PoolFront {
    arena: Rc<Arena>,
    volume: VolumeId,
    messages: Receiver<Message>,
    back: Back,
    /// By tag.
    asks: Vec<Option<Ask>>,
    free: Vec<usize>,
    events: Vec<FrontEvent>,
}

impl Pool {
    /// Both ends. `volume` is the object space; `wake` wakes its shard, whose frames are `arena`'s, of `page_bytes` each. So many of
    /// them may be touched at one time.
    #[must_use]
    pub fn new(
        arena: Rc<Arena>,
        volume: VolumeId,
        wake: Wake,
        page_bytes: u32,
        frames_max: usize,
    ) -> (Self, PoolFront) {
        let (sender, messages) = channel();
        let back = Back { messages: sender, wake };
        let of_reads = frames_max - frames_max / 4;
        let pool = Self {
            back: back.clone(),
            page_bytes: u64::from(page_bytes),
            frames: Arc::new(Semaphore::new(of_reads)),
            fills: Arc::new(Semaphore::new(frames_max - of_reads)),
            leases: Arc::new(Semaphore::new(of_reads - of_reads / 4)),
        };
        let front = PoolFront {
            arena,
            volume,
            messages,
            back: back.clone(),
            asks: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
        };
        (pool, front)
    }

    /// Frames that a range touches.
    fn frames_of(&self, range: &Range<u64>) -> u32 {
        (range.end.div_ceil(self.page_bytes) - range.start / self.page_bytes) as u32
    }

    async fn place(of: &Arc<Semaphore>, frames: u32) -> Result<OwnedSemaphorePermit, ReplyError> {
        Arc::clone(of).acquire_many_owned(frames).await.map_err(|_| ReplyError::ShuttingDown)
    }

    /// The right to keep what a read of that range brings, if there is one to be had now.
    #[must_use]
    pub fn lease(&self, range: &Range<u64>) -> Option<Lease> {
        let permit = Arc::clone(&self.leases).try_acquire_many_owned(self.frames_of(range)).ok()?;
        Some(Lease { _permit: permit })
    }

    async fn answered<T>(
        &self,
        range: Range<u64>,
        ask: Ask,
        answer: oneshot::Receiver<Result<T, ReplyError>>,
    ) -> Result<T, ReplyError> {
        self.back.send(Message::Ask { range, ask });
        answer.await.unwrap_or(Err(ReplyError::ShuttingDown))
    }

    /// The bytes of a range, in order. As [`forebay_core::Event::Read`]. Without a lease they are to be copied and dropped at once.
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn read(&self, range: Range<u64>, lease: Option<Lease>) -> Result<Vec<Page>, ReplyError> {
        let permit = Self::place(&self.frames, self.frames_of(&range)).await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Read { answer, permits: (permit, lease) }, answered).await
    }

    /// Gives the cache the bytes of a range. As [`forebay_core::Event::Fill`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    ///
    /// # Panics
    /// When they are not as many as the range has.
    pub async fn fill(&self, range: Range<u64>, bytes: Vec<Bytes>) -> Result<(), ReplyError> {
        let permit = Self::place(&self.fills, self.frames_of(&range)).await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range.clone(), whole_fill(&range, Told::Asker(answer), bytes, permit), answered).await
    }

    /// The same for who does not wait: left out while too much is under way. `arrival` is dropped when it has ended.
    ///
    /// # Panics
    /// When they are not as many as the range has.
    pub(crate) fn try_fill(&self, range: Range<u64>, bytes: Vec<Bytes>, arrival: Arrival) {
        if let Ok(permit) = Arc::clone(&self.fills).try_acquire_many_owned(self.frames_of(&range)) {
            let ask = whole_fill(&range, Told::Waiters(arrival), bytes, permit);
            self.back.send(Message::Ask { range, ask });
        }
    }

    /// Drops what is cached of a range. As [`forebay_core::Event::Evict`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn evict(&self, range: Range<u64>) -> Result<(), ReplyError> {
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Evict { answer }, answered).await
    }

    /// Where a range is. As [`forebay_core::Event::Probe`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn probe(&self, range: Range<u64>) -> Result<Residency, ReplyError> {
        let permit = Self::place(&self.frames, 1).await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Probe { answer, _permit: permit }, answered).await
    }
}

fn whole_fill(range: &Range<u64>, to_tell: Told, bytes: Vec<Bytes>, permit: OwnedSemaphorePermit) -> Ask {
    let length: usize = bytes.iter().map(Bytes::len).sum();
    assert_eq!(length as u64, range.end - range.start, "a fill is of all bytes of its range");
    Ask::Fill { to_tell, bytes, _permit: permit }
}

impl PoolFront {
    fn ask(&mut self, range: &Range<u64>, ask: Ask) -> FrontEvent {
        let (volume, offset, length) = (self.volume, range.start, range.end - range.start);
        let tag = self.free.pop().unwrap_or_else(|| {
            self.asks.push(None);
            self.asks.len() - 1
        });
        let event = match ask {
            Ask::Read { .. } => FrontEvent::Read { volume, tag: tag as u64, offset, length: length as u32 },
            Ask::Fill { .. } => FrontEvent::Fill { volume, tag: tag as u64, offset, length: length as u32 },
            Ask::Probe { .. } => FrontEvent::Probe { volume, tag: tag as u64, offset, length },
            Ask::Evict { .. } => FrontEvent::Evict { volume, tag: tag as u64, offset, length },
        };
        self.asks[tag] = Some(ask);
        event
    }

    fn end(&mut self, tag: u64) -> Ask {
        self.free.push(tag as usize);
        self.asks[tag as usize].take().expect("an ask is answered once")
    }
}

/// Who asked may have gone: then nobody needs the answer.
fn tell<T>(answer: Answer<T>, result: Result<T, ReplyError>) {
    let _ = answer.send(result);
}

impl Front for PoolFront {
    fn poll(&mut self, _now_ns: u64, events: &mut Vec<FrontEvent>) {
        events.append(&mut self.events);
        while events.len() < EVENTS_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            match message {
                Message::Ask { range, ask } => {
                    let event = self.ask(&range, ask);
                    events.push(event);
                }
                Message::Sent { request, lent } => {
                    lent.into_iter().for_each(|lent| self.arena.give_back(lent));
                    events.push(FrontEvent::Sent { request });
                }
            }
        }
        if events.len() >= EVENTS_MAX {
            // What is left is looked at in the next turn.
            self.back.wake.wake();
        }
    }

    fn receive(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let Some(Ask::Fill { bytes, .. }) = &mut self.asks[tag as usize] else { panic!("only a fill is received") };
        let mut left = std::mem::take(bytes).into_iter();
        let mut now = left.next().unwrap_or_default();
        for piece in pieces {
            let (mut at, end) = (piece.at, piece.at + piece.length);
            while at < end {
                if now.is_empty() {
                    now = left.next().expect("a fill has all its bytes");
                    continue;
                }
                let part = now.split_to(now.len().min((end - at) as usize));
                self.arena.copy_in(piece.frame.0, at, &part);
                at += part.len() as u32;
            }
        }
        self.events.push(FrontEvent::Received { request });
        self.back.wake.wake();
    }

    fn reply_read(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let Ask::Read { answer, permits } = self.end(tag) else { panic!("not a read") };
        let lend = |piece: &Piece| self.arena.lend(piece.frame.0, piece.at, piece.length);
        let lent: Vec<Lent> = pieces.iter().map(lend).collect();
        let count = lent.len();
        let read = Arc::new(Reading { lent, request, back: self.back.clone(), _permits: permits });
        tell(answer, Ok((0..count).map(|at| Page { read: Arc::clone(&read), at }).collect()));
    }

    fn probed(&mut self, _now_ns: u64, tag: u64, found: Residency) {
        let Ask::Probe { answer, .. } = self.end(tag) else { panic!("not a probe") };
        tell(answer, Ok(found));
    }

    fn reply(&mut self, _now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        let failed = |result: Result<(), ReplyError>| result.err().unwrap_or(ReplyError::Io);
        match self.end(tag) {
            Ask::Read { answer, .. } => tell(answer, Err(failed(result))),
            Ask::Fill { to_tell: Told::Asker(answer), .. } | Ask::Evict { answer } => tell(answer, result),
            Ask::Fill { to_tell: Told::Waiters(arrival), .. } => drop(arrival),
            Ask::Probe { answer, .. } => tell(answer, Err(failed(result))),
        }
    }

    fn turn_end(&mut self, _now_ns: u64) {}
}
