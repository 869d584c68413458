//! The pool: how the gateway's threads ask a shard for pages, and get frames lent.
//!
//! Why: a shard is one thread that nobody may block, and HTTP runs on others. Between them is one queue each way. What is sent is the frame
//! itself: 16 MiB hits took 203 ms of CPU a GiB, where nginx with slices took 280.
//!
//! How: [`Pool`] is the gateway's end. It asks for a read, a fill, a probe or an eviction and waits for the answer. [`PoolFront`] is the shard's end,
//! polled as every front end. A read is answered with [`Page`]s: ranges of frames that are lent. When the last page of a read is dropped, on
//! whatever thread, all go back to the shard in one message, and the frames are free.
//!
//! A fill's bytes are copied into frames; or it is received into the frames themselves, which are lent to be written ([`Pool::place`],
//! [`Place`]). What is written there is sent from there, and the cache has the frames when all has been sent.
//!
//! Limits: what is asked at one time touches [`Pool::new`]'s `frames_max` frames; further asks wait. A quarter of them is for
//! fills, which are left out when that is used up: what others wait for must find room. What is lent stays pinned until it is sent, and
//! clients may be slow. So three quarters of either may be lent for that long ([`Pool::lease`], [`Pool::place`]); a read without a lease is
//! to be copied at once.
//!
//! Invariant: what is lent comes back, or the shard is gone.

use crate::flight::Arrival;
use forebay_core::{Piece, ReplyError, RequestId, Residency, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_uring::{Arena, Blank, Filled, Lent, Wake, Written};
use hyper::body::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Frames of a range, to receive its bytes into, in order.
#[derive(Debug)]
pub(crate) struct Place {
    blanks: VecDeque<Blank>,
    filling: Arc<Filling>,
}

/// Bytes of a place, to be sent. The frame is let go before the share in the filling is: the last share gives all frames back.
struct Part {
    bytes: Written,
    _filling: Arc<Filling>,
}

/// A fill that is being received, and sent. It ends with the last share.
#[derive(Debug)]
struct Filling {
    frames: Vec<Arc<Filled>>,
    left_bytes: AtomicU64,
    tag: u64,
    request: RequestId,
    back: Back,
}

impl Place {
    /// What is to be written next: the rest of a frame. Empty when all is written.
    pub(crate) fn blank(&mut self) -> &mut [u8] {
        self.blanks.front_mut().map_or(&mut [], Blank::as_mut)
    }

    /// All that is to be written.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.filling.left_bytes.load(Ordering::Relaxed)
    }

    /// The first bytes of [`Self::blank`] are written.
    pub(crate) fn written(&mut self, bytes: usize) -> Bytes {
        let blank = self.blanks.front_mut().expect("there was a blank");
        let first = blank.split_to(bytes).written();
        if blank.as_mut().is_empty() {
            self.blanks.pop_front();
        }
        self.filling.left_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        Bytes::from_owner(Part { bytes: first, _filling: Arc::clone(&self.filling) })
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let is_whole = *self.left_bytes.get_mut() == 0;
        let frames = std::mem::take(&mut self.frames);
        self.back.send(Message::Placed { tag: self.tag, request: self.request, frames, is_whole });
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
    Fill { to_tell: Told, source: Source, _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>) },
    Probe { answer: Answer<Residency>, _permit: OwnedSemaphorePermit },
    Evict { answer: Answer<()> },
}

/// Where a fill's bytes come from.
#[derive(Debug)]
enum Source {
    Here(Vec<Bytes>),
    /// Somebody who wants frames for them.
    Place(oneshot::Sender<Place>),
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
    Placed { tag: u64, request: RequestId, frames: Vec<Arc<Filled>>, is_whole: bool },
}

/// The gateway's end. See the module.
#[derive(Clone, Debug)]
pub struct Pool {
    back: Back,
    page_bytes: u64,
    frames: Arc<Semaphore>,
    fills: Arc<Semaphore>,
    leases: Arc<Semaphore>,
    places: Arc<Semaphore>,
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
        let of_fills = frames_max / 4;
        let of_reads = frames_max - of_fills;
        let pool = Self {
            back: back.clone(),
            page_bytes: u64::from(page_bytes),
            frames: Arc::new(Semaphore::new(of_reads)),
            fills: Arc::new(Semaphore::new(of_fills)),
            leases: Arc::new(Semaphore::new(of_reads - of_reads / 4)),
            places: Arc::new(Semaphore::new(of_fills - of_fills / 4)),
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

    async fn permit(of: &Arc<Semaphore>, frames: u32) -> Result<OwnedSemaphorePermit, ReplyError> {
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
        let permit = Self::permit(&self.frames, self.frames_of(&range)).await?;
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
        let permit = Self::permit(&self.fills, self.frames_of(&range)).await?;
        let (answer, answered) = oneshot::channel();
        let ask = whole_fill(&range, Told::Asker(answer), bytes, permit);
        self.answered(range, ask, answered).await
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

    /// Frames to receive a range's bytes into, if there are some to be had now: they come soon, or never. All of them are to be written.
    /// `arrival` is dropped when the cache has them, or has not got them.
    pub(crate) fn place(&self, range: Range<u64>, arrival: Arrival) -> Option<oneshot::Receiver<Place>> {
        let frames = self.frames_of(&range);
        let place = Arc::clone(&self.places).try_acquire_many_owned(frames).ok()?;
        let fill = Arc::clone(&self.fills).try_acquire_many_owned(frames).ok()?;
        let (answer, answered) = oneshot::channel();
        let (to_tell, source) = (Told::Waiters(arrival), Source::Place(answer));
        self.back.send(Message::Ask { range, ask: Ask::Fill { to_tell, source, _permits: (fill, Some(place)) } });
        Some(answered)
    }

    /// Drops what is cached of a range. As [`forebay_core::Event::Evict`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn evict(&self, range: Range<u64>) -> Result<(), ReplyError> {
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Evict { answer }, answered).await
    }

    /// The same for who does not wait.
    pub(crate) fn start_evict(&self, range: Range<u64>) {
        let (answer, _) = oneshot::channel();
        self.back.send(Message::Ask { range, ask: Ask::Evict { answer } });
    }

    /// Where a range is. As [`forebay_core::Event::Probe`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn probe(&self, range: Range<u64>) -> Result<Residency, ReplyError> {
        let permit = Self::permit(&self.frames, 1).await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Probe { answer, _permit: permit }, answered).await
    }
}

fn whole_fill(range: &Range<u64>, to_tell: Told, bytes: Vec<Bytes>, permit: OwnedSemaphorePermit) -> Ask {
    let length: usize = bytes.iter().map(Bytes::len).sum();
    assert_eq!(length as u64, range.end - range.start, "a fill is of all bytes of its range");
    Ask::Fill { to_tell, source: Source::Here(bytes), _permits: (permit, None) }
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

    /// Lends the frames of a fill to who receives it.
    fn lend_place(&self, tag: u64, request: RequestId, pieces: &[Piece]) -> Place {
        let blanks: VecDeque<Blank> =
            pieces.iter().map(|piece| self.arena.lend_blank(piece.frame.0, piece.at, piece.length)).collect();
        let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let frames = blanks.iter().map(Blank::whole).collect();
        let back = self.back.clone();
        Place { blanks, filling: Arc::new(Filling { frames, left_bytes: AtomicU64::new(bytes), tag, request, back }) }
    }

    fn copy_in(&self, bytes: Vec<Bytes>, pieces: &[Piece]) {
        let mut left = bytes.into_iter();
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
                Message::Placed { tag, request, frames, is_whole } => {
                    frames.into_iter().for_each(|frame| self.arena.take_back(frame));
                    if is_whole {
                        events.push(FrontEvent::Received { request });
                    } else {
                        drop(self.end(tag));
                        events.push(FrontEvent::NotReceived { request });
                    }
                }
            }
        }
        if events.len() >= EVENTS_MAX {
            // What is left is looked at in the next turn.
            self.back.wake.wake();
        }
    }

    fn receive(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let Some(Ask::Fill { source, .. }) = &mut self.asks[tag as usize] else { panic!("only a fill is received") };
        match std::mem::replace(source, Source::Here(Vec::new())) {
            Source::Here(bytes) => {
                self.copy_in(bytes, pieces);
                self.events.push(FrontEvent::Received { request });
                self.back.wake.wake();
            }
            // Who is gone gives them back unwritten.
            Source::Place(answer) => drop(answer.send(self.lend_place(tag, request, pieces))),
        }
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
