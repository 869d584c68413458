//! One trait for everything that holds bytes: the cache disk, every back end, and the layers put over them.
//!
//! A device is asynchronous and single-threaded: [`Device::submit`] starts an operation, [`Device::poll`] collects
//! what ended. Time is an argument, so that the same layers run in the simulator. Payload is in frames of the shard's
//! arena; nothing is copied on the way.
//!
//! Contract (held by one conformance suite over every implementation):
//! - each submitted operation ends exactly once; failure is a completion, never a panic;
//! - short transfers are finished inside: a completion is all or nothing to the caller;
//! - `fua` is honoured: where the device below cannot, it flushes before it answers;
//! - a flush covers every operation answered before it was submitted;
//! - after an operation ended, the device no longer touches its frame;
//! - operations that overlap are not ordered: the caller orders them.

use forebay_core::VolumeId;
pub use forebay_core::{FrameId, IoError};

use crate::reactor::Reactor;

/// What a device can do and in which units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this (512 or 4096).
    pub sector_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Whether a trim does something.
    pub can_trim: bool,
    /// Whether zeroing is cheaper than writing zeroes; it works in any case.
    pub can_zero: bool,
    /// The longest trim or zeroing at once.
    pub range_bytes_max: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Device to frame.
    Read,
    /// Frame to device.
    Write {
        /// Durable before it ends.
        fua: bool,
    },
    /// Make answered operations durable.
    Flush,
    /// Discard a range.
    Trim {
        /// Durable before it ends.
        fua: bool,
    },
    /// Zero a range.
    WriteZeroes {
        /// Durable before it ends.
        fua: bool,
        /// Keep the space allocated.
        no_hole: bool,
    },
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOp {
    /// The caller's name for it; comes back in [`DeviceDone`]. Unique among those in flight.
    pub token: u64,
    /// What to do.
    pub kind: OpKind,
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes (reads and writes: at most 4 GiB - 1, all inside contiguous frames).
    pub length: u64,
    /// First frame; ignored by flush, trim and zeroing.
    pub frame: FrameId,
    /// Byte in that frame where the transfer starts; reads and writes: congruent to `offset` modulo 4096.
    pub at: u32,
}

/// For whom an operation is, on a device that several share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForWhom {
    /// Whose share it is taken from; `None`: that of the device's user.
    pub volume: Option<VolumeId>,
    /// Whether a client waits for it.
    pub is_demand: bool,
}

impl ForWhom {
    /// The device's user has a client who waits.
    pub const CLIENT: Self = Self { volume: None, is_demand: true };
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDone {
    /// The operation's token.
    pub token: u64,
    /// How it ended.
    pub result: Result<(), IoError>,
}

/// A range whose cached bytes are to be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Bytes of the device.
    pub range: std::ops::Range<u64>,
    /// Answered writes may be gone (the device restarted without them). Otherwise only what was read may be old.
    pub is_lost: bool,
}

/// An asynchronous byte device. See the module's contract.
pub trait Device {
    /// Size and abilities; constant while the device is attached.
    fn geometry(&self) -> Geometry;

    /// Starts an operation. Refusal is a completion too.
    fn submit(&mut self, now_ns: u64, op: DeviceOp);

    /// The same for somebody. To most devices it is all the same; a layer over one that several share passes it on.
    fn submit_for(&mut self, now_ns: u64, _whom: ForWhom, op: DeviceOp) {
        self.submit(now_ns, op);
    }

    /// Appends what ended since the last call.
    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>);

    /// When `poll` should next be called even if nothing outside happens.
    fn next_ns(&self) -> Option<u64> {
        None
    }

    /// The bytes of a read are wanted from elsewhere by now. A device that holds it back (no connection) ends it as failed;
    /// all others go on with it. Layers need not pass it on.
    fn give_up(&mut self, _now_ns: u64, _token: u64) {}

    /// Takes a flush that no client is promised anything by. What was answered becomes durable as with any other; a device that
    /// keeps the order of flushes may leave it out. Layers need not pass it on.
    fn persist(&mut self, now_ns: u64, flush: DeviceOp) {
        self.submit(now_ns, flush);
    }

    /// Whether all that it answered is where it belongs: a log before a back end has nothing that the back end lacks.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether it is several copies, which may differ after a crash in what was not flushed. Whoever finds something again there
    /// writes again what is not durable for certain, so that no copy tells another story later.
    fn has_copies(&self) -> bool {
        false
    }

    /// Appends what has come in doubt since asked last. A loss is told once, after the flush that failed for it. Layers
    /// pass it on.
    fn in_doubt(&mut self, _doubts: &mut Vec<Doubt>) {}
}

/// One operation, waited for: at the start, when nothing is served and the device does nothing else.
///
/// # Errors
/// How it ended.
pub fn carry_out(device: &mut dyn Device, reactor: &mut dyn Reactor, op: DeviceOp) -> Result<(), IoError> {
    device.submit(reactor.now_ns(), op);
    let mut done = Vec::new();
    loop {
        device.poll(reactor.now_ns(), &mut done);
        if let Some(done) = done.pop() {
            return done.result;
        }
        let second_ns = reactor.now_ns() + 1_000_000_000;
        reactor.wait(device.next_ns().unwrap_or(second_ns).min(second_ns));
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        (**self).submit(now_ns, op);
    }
    fn submit_for(&mut self, now_ns: u64, whom: ForWhom, op: DeviceOp) {
        (**self).submit_for(now_ns, whom, op);
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        (**self).poll(now_ns, done);
    }
    fn next_ns(&self) -> Option<u64> {
        (**self).next_ns()
    }
    fn give_up(&mut self, now_ns: u64, token: u64) {
        (**self).give_up(now_ns, token);
    }
    fn persist(&mut self, now_ns: u64, flush: DeviceOp) {
        (**self).persist(now_ns, flush);
    }
    fn is_settled(&self) -> bool {
        (**self).is_settled()
    }
    fn has_copies(&self) -> bool {
        (**self).has_copies()
    }
    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        (**self).in_doubt(doubts);
    }
}
