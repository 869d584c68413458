//! The pool: how the gateway's threads ask a shard for pages, and get frames lent.
//!
//! Why: a shard is one thread that nobody may block, and HTTP runs on others. Between them is one queue each way.
//!
//! How: [`Pool`] is the gateway's end. It asks for a read, a fill or a probe and waits for the answer. [`PoolFront`] is the shard's end,
//! polled as every front end. A read is answered with [`Page`]s: ranges of frames that are lent. When the last page of a read is dropped, on
//! whatever thread, all go back to the shard in one message, and the frames are free.
//!
//! Limits: [`Pool::new`]'s `asks_max` under way; further ones wait. What is lent stays pinned until it is sent, so a read should be as
//! short as its client is slow.
//!
//! Invariant: what is lent comes back, or the shard is gone.

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
    _permit: OwnedSemaphorePermit,
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
    Read { answer: Answer<Vec<Page>>, permit: OwnedSemaphorePermit },
    Fill { answer: Answer<()>, bytes: Vec<Bytes>, _permit: OwnedSemaphorePermit },
    Probe { answer: Answer<Residency>, _permit: OwnedSemaphorePermit },
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
    /// Both ends. `volume` is the object space; `wake` wakes its shard, whose frames are `arena`'s.
    #[must_use]
    pub fn new(arena: Rc<Arena>, volume: VolumeId, wake: Wake, asks_max: usize) -> (Self, PoolFront) {
        let (sender, messages) = channel();
        let back = Back { messages: sender, wake };
        let front = PoolFront {
            arena,
            volume,
            messages,
            back: back.clone(),
            asks: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
        };
        (Self { back, places: Arc::new(Semaphore::new(asks_max)) }, front)
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, ReplyError> {
        Arc::clone(&self.places).acquire_owned().await.map_err(|_| ReplyError::ShuttingDown)
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

    /// The bytes of a range, in order. As [`forebay_core::Event::Read`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<Page>, ReplyError> {
        let permit = self.place().await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Read { answer, permit }, answered).await
    }

    /// Gives the cache the bytes of a range. As [`forebay_core::Event::Fill`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    ///
    /// # Panics
    /// When they are not as many as the range has.
    pub async fn fill(&self, range: Range<u64>, bytes: Vec<Bytes>) -> Result<(), ReplyError> {
        let length: usize = bytes.iter().map(Bytes::len).sum();
        assert_eq!(length as u64, range.end - range.start, "a fill is of all bytes of its range");
        let permit = self.place().await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Fill { answer, bytes, _permit: permit }, answered).await
    }

    /// Where a range is. As [`forebay_core::Event::Probe`].
    ///
    /// # Errors
    /// As the shard's answer; also when it is gone.
    pub async fn probe(&self, range: Range<u64>) -> Result<Residency, ReplyError> {
        let permit = self.place().await?;
        let (answer, answered) = oneshot::channel();
        self.answered(range, Ask::Probe { answer, _permit: permit }, answered).await
    }
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
        let Ask::Read { answer, permit } = self.end(tag) else { panic!("not a read") };
        let lend = |piece: &Piece| self.arena.lend(piece.frame.0, piece.at, piece.length);
        let lent: Vec<Lent> = pieces.iter().map(lend).collect();
        let count = lent.len();
        let read = Arc::new(Reading { lent, request, back: self.back.clone(), _permit: permit });
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
            Ask::Fill { answer, .. } => tell(answer, result),
            Ask::Probe { answer, .. } => tell(answer, Err(failed(result))),
        }
    }

    fn turn_end(&mut self, _now_ns: u64) {}
}
