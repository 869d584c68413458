//! Start-time fair queueing with depth, SFQ(D): a device's work is shared by weight among the flows that want some.
//!
//! Goyal, Vin and Cheng, SIGCOMM 1996, section 2 (start and finish tags); Jin, Chase and Kaur, SIGMETRICS 2004, section 4
//! (a server with several in service at a time). First come first served shares a disk by how much each keeps in
//! flight: a volume with 8 writes in flight beside one with 128 got .23 of its share.
//!
//! # How
//! 1. An operation that comes gets a start tag: the virtual time, or the finish tag of the one before it in its flow if
//!    that is later. Its finish tag is its cost over the flow's weight later.
//! 2. The one with the least start tag goes next. Virtual time is the start tag of what went last. Within a flow they
//!    go in the order in which they came.
//! 3. What is in service is bounded by a depth, and the next goes when something ends. Without that all would be in the device's
//!    own queue, whose order is not ours. An operation may have another weight there than its cost: what a device needs
//!    in flight to be busy is not what it costs.
//! 4. A user may have several flows, of different weights. While a single user wants anything there is nobody to be fair
//!    to, and no bound.
//! 5. When nothing is left, virtual time passes to the last finish tag: a new busy period owes nothing to the last.
//!
//! # Invariants
//! - Work conserving: while anything waits, something is in service, and no less than the depth.
//! - Between two flows that always have something waiting, cost that went over weight differs by no more than the
//!   largest operation of each over its weight (Theorem 1 of Goyal's), however much the others want.
//! - An idle flow saves nothing up, and is not punished for what it had while it was alone.
//! - Nothing is allocated once the lines have grown to their working length. Finding the least tag takes a look at each flow
//!   that waits.
//!
//! # Rejected
//! - Deficit round robin: no tags and no search, but a flow that comes back waits for a round of all others, and with
//!   weights of 1 to 1000 a round is long.
//! - BFQ's budgets: a disk to itself for one flow at a time costs a flash disk its parallelism.
//! - The four tags of FSFQ(D) and its kin: what it repairs are flows that have less waiting than the depth, and the depth here is
//!   small beside what a volume has in flight.
//! - A depth that follows the device's latency (SFQ(D2)): what the least latency is cannot be seen while the
//!   device is busy, and is that of a disk's own cache where it has one.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Virtual time in a byte at a weight of 1. Whole for weights that are powers of two, and fine enough for the sums of others.
const SCALE: u64 = 1 << 24;

/// What an operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Of its flow's share, in bytes.
    pub cost_bytes: u64,
    /// Of the depth while it is in service.
    pub depth_bytes: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    start: u128,
    depth_bytes: u64,
    item: T,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// At least 1.
    pub weight: u32,
    /// Whose it is.
    pub user: usize,
}

#[derive(Debug)]
struct Flow<T> {
    /// Virtual time that a byte takes.
    per_byte: u64,
    /// The finish tag of what came last.
    finish: u128,
    line: VecDeque<Waiting<T>>,
    user: usize,
}

/// See the module.
#[derive(Debug)]
pub struct StartTimeFair<T> {
    flows: Vec<Flow<T>>,
    /// Flows that have something waiting.
    waiting: Vec<usize>,
    /// What each user has waiting or in service, and how many users have anything.
    in_hand: Vec<u32>,
    active: u32,
    depth_bytes_max: u64,
    in_service_bytes: u64,
    virtual_time: u128,
    /// The latest of all.
    finish: u128,
}

impl<T> StartTimeFair<T> {
    /// These flows; what is in service begins while it is less than `depth_bytes_max`.
    #[must_use]
    pub fn new(shares: &[Share], depth_bytes_max: u64) -> Self {
        assert!(depth_bytes_max > 0, "nothing may be in service");
        let flow = |share: &Share| {
            assert!(share.weight > 0, "a flow of no weight");
            let per_byte = SCALE / u64::from(share.weight);
            Flow { per_byte, finish: 0, line: VecDeque::new(), user: share.user }
        };
        Self {
            flows: shares.iter().map(flow).collect(),
            waiting: Vec::with_capacity(shares.len()),
            in_hand: vec![0; shares.iter().map(|share| share.user + 1).max().unwrap_or(0)],
            active: 0,
            depth_bytes_max,
            in_service_bytes: 0,
            virtual_time: 0,
            finish: 0,
        }
    }

    /// An operation of a flow comes, and waits until [`Self::start`] gives it.
    pub fn arrive(&mut self, flow: usize, charge: Charge, item: T) {
        let start = self.tag(flow, charge.cost_bytes);
        let Flow { line, user, .. } = &mut self.flows[flow];
        if line.is_empty() {
            self.waiting.push(flow);
        }
        line.push_back(Waiting { start, depth_bytes: charge.depth_bytes, item });
        self.active += u32::from(self.in_hand[*user] == 0);
        self.in_hand[*user] += 1;
    }

    /// A flow has work done that does not wait: it counts for what the flow asks for afterwards.
    pub fn charge(&mut self, flow: usize, cost_bytes: u64) {
        self.tag(flow, cost_bytes);
        self.rest();
    }

    /// The start tag of what comes now.
    fn tag(&mut self, flow: usize, cost_bytes: u64) -> u128 {
        let flow = &mut self.flows[flow];
        let start = self.virtual_time.max(flow.finish);
        flow.finish = start + u128::from(cost_bytes) * u128::from(flow.per_byte);
        self.finish = self.finish.max(flow.finish);
        start
    }

    /// What is to be started now, if anything. To be asked again until nothing is.
    pub fn start(&mut self) -> Option<T> {
        if self.in_service_bytes >= self.depth_bytes_max && self.active > 1 {
            return None;
        }
        let head = |at: &usize| self.flows[self.waiting[*at]].line.front().map(|head| head.start);
        let at = (0..self.waiting.len()).min_by_key(head)?;
        let flow = &mut self.flows[self.waiting[at]];
        let Waiting { start, depth_bytes, item } = flow.line.pop_front()?;
        if flow.line.is_empty() {
            self.waiting.swap_remove(at);
        }
        self.virtual_time = start;
        self.in_service_bytes += depth_bytes;
        Some(item)
    }

    /// What was started of a flow ended; it is said again what it counted of the depth.
    pub fn end(&mut self, flow: usize, depth_bytes: u64) {
        let in_hand = &mut self.in_hand[self.flows[flow].user];
        assert!(*in_hand > 0 && self.in_service_bytes >= depth_bytes, "it was not in service");
        *in_hand -= 1;
        self.in_service_bytes -= depth_bytes;
        self.active -= u32::from(*in_hand == 0);
        self.rest();
    }

    /// When nobody has anything nobody owes anything.
    fn rest(&mut self) {
        if self.active == 0 {
            self.virtual_time = self.finish;
        }
    }

    /// Whether something waits to be started.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What counts so much of the depth does not from now on, though it is in service still: it ends with 0.
    pub fn write_off(&mut self, depth_bytes: u64) {
        assert!(self.in_service_bytes >= depth_bytes, "it was not in service");
        self.in_service_bytes -= depth_bytes;
    }

    /// What is in service, of the depth.
    #[must_use]
    pub fn in_service_bytes(&self) -> u64 {
        self.in_service_bytes
    }
}
