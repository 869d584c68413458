//! Device: the store behind the object space, read by addresses.
//!
//! Why: to the cache's core objects are pages of a volume. With a device that can read them, its split over cache disk and back end, its hedges, and the
//! healing of bad blocks serve objects as they serve volumes.
//!
//! How: [`StoreDevice`] is the shard's end. What it is asked within a turn it hands over at once, so that what lies together becomes one request. Each read
//! lends its frame to be written, and whoever has it ([`Ask`]) says how it ended, on any thread; that wakes the shard. What the bytes at some
//! addresses are is found out at the gateway's end ([`crate::by_address`]).
//!
//! Invariants: a read ends once, whatever becomes of its [`Ask`]; its frame is the shard's again before it has ended.
//!
//! Limits: [`READS_MAX`] reads at a time; the rest is declined, and comes from the cache disk.

use forebay_engine::device::{Device, DeviceDone, DeviceOp, Geometry, IoError, OpKind};
use forebay_uring::{Arena, Blank, Filled, Wake};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Reads at a time: what a link of 10 Gbit/s and 13 ms has under way, in pages of 64 KiB.
const READS_MAX: usize = 256;

/// The shard's end. See the module.
#[derive(Debug)]
pub struct StoreDevice {
    arena: Rc<Arena>,
    bytes: u64,
    wake: Wake,
    asks: Sender<Vec<Ask>>,
    /// Of this turn, not handed over yet.
    gathered: Vec<Ask>,
    /// By token: how to be given up.
    in_flight: BTreeMap<u64, oneshot::Sender<()>>,
    end: mpsc::Sender<End>,
    ends: mpsc::Receiver<End>,
    ended: Vec<DeviceDone>,
}

/// The gateway's end. See the module.
#[derive(Debug)]
pub struct StoreReads {
    asks: Receiver<Vec<Ask>>,
}

/// A read, in the hands of who serves it. Dropped before it was ended, it failed.
#[derive(Debug)]
pub(crate) struct Ask {
    addresses: Range<u64>,
    /// Until it ends.
    blank: Option<Blank>,
    frame: Option<Arc<Filled>>,
    given_up: Option<oneshot::Receiver<()>>,
    token: u64,
    result: Result<(), IoError>,
    end: mpsc::Sender<End>,
    wake: Wake,
}

#[derive(Debug)]
struct End {
    token: u64,
    frame: Arc<Filled>,
    result: Result<(), IoError>,
}

impl StoreDevice {
    /// Both ends of an object space of so many bytes; `wake` wakes its shard, whose frames are `arena`'s.
    #[must_use]
    pub fn new(arena: Rc<Arena>, wake: Wake, bytes: u64) -> (Self, StoreReads) {
        let (asks, asked) = channel(READS_MAX);
        let (end, ends) = mpsc::channel();
        let (gathered, in_flight, ended) = (Vec::new(), BTreeMap::new(), Vec::new());
        (Self { arena, bytes, wake, asks, gathered, in_flight, end, ends, ended }, StoreReads { asks: asked })
    }

    /// How what nobody else is asked for ends: flushes (nothing is written), what is refused, and what is too much.
    fn ends_at_once(&self, op: &DeviceOp) -> Option<Result<(), IoError>> {
        let is_inside = op.offset.checked_add(op.length).is_some_and(|end| end <= self.bytes) && op.length > 0;
        match op.kind {
            OpKind::Flush => Some(Ok(())),
            OpKind::Read if !is_inside => Some(Err(IoError::Failed)),
            OpKind::Read => (self.in_flight.len() >= READS_MAX).then_some(Err(IoError::Declined)),
            _ => Some(Err(IoError::Unsupported)),
        }
    }
}

impl Device for StoreDevice {
    fn geometry(&self) -> Geometry {
        let (bytes, sector_bytes, range_bytes_max) = (self.bytes, 512, 1 << 30);
        Geometry { bytes, sector_bytes, read_only: true, can_trim: false, can_zero: false, range_bytes_max }
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        if let Some(result) = self.ends_at_once(&op) {
            return self.ended.push(DeviceDone { token: op.token, result });
        }
        let blank = self.arena.lend_blank(op.frame.0, op.at, op.length as u32);
        let (give_up, given_up) = oneshot::channel();
        self.in_flight.insert(op.token, give_up);
        self.gathered.push(Ask {
            addresses: op.offset..op.offset + op.length,
            frame: Some(blank.whole()),
            blank: Some(blank),
            given_up: Some(given_up),
            token: op.token,
            result: Err(IoError::Failed),
            end: self.end.clone(),
            wake: self.wake.clone(),
        });
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        if !self.gathered.is_empty() {
            // Without a gateway they fail.
            drop(self.asks.try_send(std::mem::take(&mut self.gathered)));
        }
        while let Ok(End { token, frame, result }) = self.ends.try_recv() {
            self.arena.take_back(frame);
            self.in_flight.remove(&token).expect("a read ends once");
            done.push(DeviceDone { token, result });
        }
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        (!self.gathered.is_empty() || !self.ended.is_empty()).then_some(0)
    }

    fn give_up(&mut self, _now_ns: u64, token: u64) {
        let Some(give_up) = self.in_flight.get_mut(&token) else { return };
        let (nobody, _) = oneshot::channel();
        // It may have ended just now.
        let _ = std::mem::replace(give_up, nobody).send(());
    }
}

impl StoreReads {
    /// What the shard asked within a turn, in its order; `None` when it is gone.
    pub(crate) async fn next(&mut self) -> Option<Vec<Ask>> {
        self.asks.recv().await
    }
}

impl Ask {
    /// What is to be read.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// Where to.
    pub(crate) fn blank(&mut self) -> &mut [u8] {
        self.blank.as_mut().expect("it has not ended").as_mut()
    }

    /// Tells when nobody waits for it any more. To be asked once.
    pub(crate) fn given_up(&mut self) -> oneshot::Receiver<()> {
        self.given_up.take().expect("it is asked once")
    }

    /// It ended so.
    pub(crate) fn end(mut self, result: Result<(), IoError>) {
        self.result = result;
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        // The shard takes back what has no parts.
        self.blank = None;
        let frame = self.frame.take().expect("it ends once");
        // A shard that is gone needs nothing any more.
        if self.end.send(End { token: self.token, frame, result: self.result }).is_ok() {
            self.wake.wake();
        }
    }
}
