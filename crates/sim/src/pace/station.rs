//! A station: a device as a queue and a delay, without bytes.
//!
//! An operation waits in line, is carried at the path's rate, then travels for the latency, beside others. With n
//! requests of b bytes in flight at a time, each is answered after max(latency + b / rate, n b / rate): few requests
//! wait for the latency, many for each other. A path's rate may be cut further by a [`Link`] that it shares.
//!
//! Why not the engine's paced device: its line belongs to one device, but volumes share a link; and it delays a device
//! that moves bytes, which costs ten times as much as the rest of a simulated request. Both have the same line and delay.
//!
//! Everything that is read is zeroes, and frames are zeroes from the start: clients write zeroes, so that nothing has to
//! be moved. The shard computes and checks checksums of those zeroes as it would of anything. Only the slot table of a
//! cache disk is read for what it says ([`Warm`]), and at no cost: the world begins when it has been read. What is read of
//! a write-back log is what clients wrote: zeroes.

use super::link::{Link, Parcel};
use super::warm::Warm;
use super::writes::{Wear, WriteModel};
use crate::dice::Dice;
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Geometry, OpKind};
use forebay_uring::Arena;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

const SECOND_NS: f64 = 1e9;

/// What a path can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathModel {
    /// What it carries, reads and writes together, if writes are as reads.
    pub bytes_per_second: u64,
    /// What each request waits for beside its transfer, on average.
    pub latency_ns: u64,
    /// What each request costs beside its bytes: what makes small requests dear.
    pub overhead_bytes: u64,
    /// Latencies are spread evenly over this part of the mean, in both directions.
    pub jitter_permil: u32,
    /// What writes cost; `None`: what reads do.
    pub writes: Option<WriteModel>,
}

impl PathModel {
    /// A path without overhead and jitter.
    #[must_use]
    pub fn new(bytes_per_second: u64, latency_ns: u64) -> Self {
        Self { bytes_per_second, latency_ns, overhead_bytes: 0, jitter_permil: 0, writes: None }
    }

    /// What it delivers of reads, with so many of that size always in flight.
    #[must_use]
    pub fn delivers_bytes_per_second(&self, in_flight: u32, block_bytes: u32) -> f64 {
        let transfer_ns =
            (u64::from(block_bytes) + self.overhead_bytes) as f64 * SECOND_NS / self.bytes_per_second as f64;
        let in_flight = f64::from(in_flight);
        let latency_ns = (self.latency_ns as f64 + transfer_ns).max(in_flight * transfer_ns);
        in_flight * f64::from(block_bytes) * SECOND_NS / latency_ns
    }
}

/// What a path has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Reads that ended.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// The sum of their latencies.
    pub read_latency_ns: u64,
    /// Writes that ended, of any kind: slots, records, the back end's.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
}

/// The outside of a station: what may be changed and read while the shard has the station itself.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) link: Rc<RefCell<Link>>,
    flow: usize,
    model: Rc<Cell<PathModel>>,
    counts: Rc<Cell<PathCounts>>,
    /// Nothing takes time: the world has not begun.
    is_free: Rc<Cell<bool>>,
    is_stalled: Rc<Cell<bool>>,
}

impl Handle {
    /// A path that is so many of the link's flows.
    pub(super) fn new(link: Rc<RefCell<Link>>, flows: u32, model: PathModel) -> Self {
        assert!(model.bytes_per_second > 0, "a path that carries nothing: {model:?}");
        let flow = link.borrow_mut().join(flows, model.bytes_per_second);
        Self {
            link,
            flow,
            model: Rc::new(Cell::new(model)),
            counts: Rc::default(),
            is_free: Rc::default(),
            is_stalled: Rc::default(),
        }
    }

    pub(super) fn model(&self) -> PathModel {
        self.model.get()
    }

    /// What was not carried yet is carried at the new rate, what was not travelling yet travels at the new latency.
    pub(super) fn set_model(&self, now_ns: u64, model: PathModel) {
        assert!(model.bytes_per_second > 0, "a path that carries nothing: {model:?}");
        self.link.borrow_mut().set_flow_rate(now_ns, self.flow, model.bytes_per_second);
        self.model.set(model);
    }

    pub(super) fn counts(&self) -> PathCounts {
        self.counts.get()
    }

    /// Whether what is asked of it takes no time, and is not counted.
    pub(super) fn set_free(&self, is_free: bool) {
        self.is_free.set(is_free);
        self.counts.take();
    }

    /// A path that stalls answers nothing but what is travelling already.
    pub(super) fn set_stalled(&self, now_ns: u64, is_stalled: bool) {
        self.is_stalled.set(is_stalled);
        let bytes_per_second = if is_stalled { 1 } else { self.model().bytes_per_second };
        self.link.borrow_mut().set_flow_rate(now_ns, self.flow, bytes_per_second);
    }
}

/// When a parcel arrives; equal times by the order in which they were sent.
type Arrival = Reverse<(u64, u64, usize)>;

/// See the module.
pub(super) struct Station {
    handle: Handle,
    geometry: Geometry,
    dice: Dice,
    /// For a cache disk: its slot table, and the frames to read it into.
    warm: Option<(Warm, Rc<Arena>)>,
    wear: Wear,
    travelling: BinaryHeap<Arrival>,
    parcels: Vec<Parcel>,
    free: Vec<usize>,
    sent: u64,
    /// What is not carried, and waits for the end of a stall.
    held: Vec<Parcel>,
}

impl Station {
    /// A device of so many bytes at the end of a path.
    pub(super) fn new(handle: Handle, bytes: u64, dice: Dice, warm: Option<(Warm, Rc<Arena>)>) -> Self {
        let geometry = Geometry {
            bytes,
            sector_bytes: 512,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: 1 << 30,
        };
        let (travelling, parcels, free, held) = (BinaryHeap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { handle, geometry, dice, warm, wear: Wear::default(), travelling, parcels, free, sent: 0, held }
    }

    fn travel(&mut self, arrives_ns: u64, parcel: Parcel) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.parcels.push(parcel);
            self.parcels.len() - 1
        });
        self.parcels[place] = parcel;
        self.sent += 1;
        self.travelling.push(Reverse((arrives_ns, self.sent, place)));
    }

    fn latency_ns(&mut self, kind: OpKind) -> u64 {
        let PathModel { latency_ns, jitter_permil, writes, .. } = self.handle.model();
        let latency_ns = match (kind, writes) {
            (OpKind::Read, _) | (_, None) => latency_ns,
            (_, Some(writes)) => writes.latency_ns,
        };
        if jitter_permil == 0 {
            return latency_ns;
        }
        let spread = u64::from(jitter_permil);
        latency_ns * self.dice.between(1000 - spread, 1000 + spread) / 1000
    }

    /// What an operation costs of what the path carries.
    fn cost_bytes(&mut self, op: &DeviceOp) -> u64 {
        let model = self.handle.model();
        match (op.kind, &model.writes) {
            (OpKind::Write { .. }, Some(writes)) => {
                let busy_ns = self.wear.write_ns(writes, op.offset, op.length, &mut self.dice);
                (busy_ns as f64 * model.bytes_per_second as f64 / SECOND_NS) as u64
            }
            _ => op.length + model.overhead_bytes,
        }
    }

    fn count(&self, now_ns: u64, parcel: &Parcel) {
        let mut counts = self.handle.counts.get();
        match parcel.kind {
            OpKind::Read => {
                counts.reads += 1;
                counts.read_bytes += parcel.length;
                counts.read_latency_ns += now_ns - parcel.start_ns;
            }
            OpKind::Write { .. } => {
                counts.writes += 1;
                counts.write_bytes += parcel.length;
            }
            OpKind::Flush | OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {}
        }
        self.handle.counts.set(counts);
    }
}

impl Device for Station {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        assert!(op.offset + op.length <= self.geometry.bytes, "it leaves the device: {op:?}");
        let mut parcel = Parcel { token: op.token, kind: op.kind, length: op.length, start_ns: now_ns };
        match op.kind {
            _ if self.handle.is_free.get() => {
                parcel.length = 0;
                self.travel(now_ns, parcel);
            }
            OpKind::Read if self.warm.as_ref().is_some_and(|(warm, arena)| warm.read(arena, &op)) => {
                parcel.length = 0;
                self.travel(now_ns, parcel);
            }
            OpKind::Read | OpKind::Write { .. } => {
                let cost_bytes = self.cost_bytes(&op);
                self.handle.link.borrow_mut().push(now_ns, self.handle.flow, cost_bytes, parcel);
            }
            _ if self.handle.is_stalled.get() => self.held.push(parcel),
            OpKind::Flush | OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                let latency_ns = self.latency_ns(op.kind);
                self.travel(now_ns + latency_ns, parcel);
            }
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        loop {
            let through = self.handle.link.borrow_mut().pop(now_ns, self.handle.flow);
            let Some((through_ns, parcel)) = through else { break };
            let latency_ns = self.latency_ns(parcel.kind);
            self.travel(through_ns + latency_ns, parcel);
        }
        while let Some(parcel) = self.held.pop_if(|_| !self.handle.is_stalled.get()) {
            let latency_ns = self.latency_ns(parcel.kind);
            self.travel(now_ns + latency_ns, parcel);
        }
        while let Some(&Reverse((arrives_ns, _, place))) = self.travelling.peek()
            && arrives_ns <= now_ns
        {
            self.travelling.pop();
            self.free.push(place);
            let parcel = self.parcels[place];
            self.count(now_ns, &parcel);
            done.push(DeviceDone { token: parcel.token, result: Ok(()) });
        }
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.held.is_empty() && !self.handle.is_stalled.get() {
            return Some(0);
        }
        let arrives_ns = self.travelling.peek().map(|Reverse((arrives_ns, ..))| *arrives_ns);
        let through_ns = self.handle.link.borrow().next_ns(self.handle.flow);
        [arrives_ns, through_ns].into_iter().flatten().min()
    }
}
