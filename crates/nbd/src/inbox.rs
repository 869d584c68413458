//! From the listener's thread to a shard: connections that agreed on an export.
//!
//! The queue is bounded by the clients that are allowed at all; the shard looks into it once a turn, which costs one
//! atomic load while it is empty.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::VolumeId;
use forebay_uring::Wake;
use forebay_wire::nbd::Terms;

/// How many clients are served at a time, counted over all shards.
#[derive(Clone, Debug)]
pub struct Clients {
    open: Arc<AtomicU32>,
    max: u32,
}

impl Clients {
    /// At most `max`.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { open: Arc::new(AtomicU32::new(0)), max }
    }

    /// How many there are.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.max
    }

    /// A place for one more, given back when it is dropped; `None` when there is none.
    pub(crate) fn admit(&self) -> Option<Admission> {
        let admitted =
            self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < self.max).then_some(open + 1));
        admitted.ok().map(|_| Admission { open: Arc::clone(&self.open) })
    }
}

/// A client's place among those served.
#[derive(Debug)]
pub(crate) struct Admission {
    open: Arc<AtomicU32>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub struct Handover {
    /// The connection.
    pub(crate) socket: OwnedFd,
    /// What the client sent behind its last option: the beginning of its first requests.
    pub(crate) unread: Vec<u8>,
    /// What was agreed.
    pub(crate) terms: Terms,
    /// The volume, in the shard.
    pub(crate) volume: VolumeId,
    /// Who it is, for the log.
    pub(crate) peer: String,
    /// Its place.
    pub(crate) admission: Admission,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<VecDeque<Handover>>,
    any: AtomicBool,
    capacity: usize,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Handover>> {
        // Nothing can panic while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listener's end.
#[derive(Clone, Debug)]
pub struct InboxSender {
    queue: Arc<Queue>,
    wake: Wake,
}

/// The shard's end.
#[derive(Debug)]
pub struct Inbox {
    queue: Arc<Queue>,
}

/// A queue of at most `capacity` connections to the shard that `wake` wakes.
#[must_use]
pub fn inbox(capacity: u32, wake: Wake) -> (InboxSender, Inbox) {
    let capacity = capacity as usize;
    let waiting = Mutex::new(VecDeque::with_capacity(capacity));
    let queue = Arc::new(Queue { waiting, any: AtomicBool::new(false), capacity });
    (InboxSender { queue: Arc::clone(&queue), wake }, Inbox { queue })
}

impl InboxSender {
    /// Hands a connection over; gives it back when the queue is full.
    pub(crate) fn push(&self, handover: Handover) -> Result<(), Box<Handover>> {
        {
            let mut waiting = self.queue.lock();
            if waiting.len() >= self.queue.capacity {
                return Err(Box::new(handover));
            }
            waiting.push_back(handover);
            self.queue.any.store(true, Ordering::Release);
        }
        self.wake.wake();
        Ok(())
    }
}

impl Inbox {
    /// The next connection.
    pub(crate) fn pop(&self) -> Option<Handover> {
        if !self.queue.any.load(Ordering::Acquire) {
            return None;
        }
        let mut waiting = self.queue.lock();
        let handover = waiting.pop_front();
        if waiting.is_empty() {
            self.queue.any.store(false, Ordering::Release);
        }
        handover
    }
}
