//! Shared: one device for the cache and its volumes, each with a handle of its own, and a share by weight.
//!
//! Why: slots and write-back logs lie on one cache disk. Two devices over it would each have a queue, and a pace, of their
//! own. First come first served gives most to whoever asks for most: a volume with 8 writes in flight beside one with 128
//! got .23 of its share.
//!
//! How:
//! 1. A volume is a user of a [`StartTimeFair`] queue, with what its log does and what the cache does for it
//!    ([`Device::submit_for`]). It has two flows: what a client waits for, and what nobody does (slots that are written,
//!    records that are read for the back end), which weighs [`DEMAND`] times less. Otherwise a volume that had few writes
//!    in flight would spend most of its share on what is behind them.
//! 2. What the cache does for nobody alone (slot table, intent maps) is of a user that weighs as much as all volumes:
//!    all wait for it.
//! 3. Reads and writes wait for their turn, and cost their bytes and [`OPERATION_BYTES`]. A flush goes at once: it
//!    covers only what was answered before, so nothing that waits here concerns it. It costs as an operation.
//! 4. When nothing that waited has ended below for [`SILENT_NS`], what is there counts no more: an operation that hangs
//!    must not hold up those of all volumes, whose logs would be given up for it.
//! 5. An operation goes below under a name of the layer's; its end goes back to whoever submitted it, and waits there
//!    until it is asked for.
//!
//! While one user alone wants something of the device nothing waits here: it has the device as if there were no layer.
//!
//! Invariants: a handle gets the ends of its own operations only; nothing is allocated once tables have grown; while
//! something waits here something is in service below.
//!
//! Limits: one thread. What was below before a second user came is before it. While several write no more is below than
//! keeps the disk's own memory busy; a disk that answers writes only when its flash has them is slower for it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use forebay_core::VolumeId;
use forebay_policy::queue::{Charge, Share, StartTimeFair};

use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, ForWhom, Geometry, IoError, OpKind};

/// Operations in hand; more are refused.
const OPERATIONS_MAX: u32 = 131_072;
/// What an operation costs beside its bytes. Flash disks that read 6.7 GB/s read 949,000 blocks of 4 KiB (Alibaba's local
/// storage paper, Table 4): 3 KB for a read, and less for a write.
const OPERATION_BYTES: u64 = 2048;
/// What goes below while several want something: as much as keeps a disk busy and no more, since what is there is
/// served in the disk's own order. Some 170 reads of 4 KiB, or 15 of 64 KiB.
const DEPTH_BYTES: u64 = 1 << 20;
/// So many times that of a read is the depth of a write, which the disk answers from its own memory (after 15 us, where a
/// read takes 75; Table 1 of that paper): eight of 4 KiB, or one of 64 KiB. With twice as many below, the worst of
/// `writeback-neighbours` got .6 of its share.
const WRITE_DEPTH: u64 = 20;
/// After this time what is below is no longer waited for.
const SILENT_NS: u64 = 1_000_000_000;
/// What a client waits for weighs so many times what nobody does.
const DEMAND: u32 = 2;

/// An operation in hand.
#[derive(Debug)]
struct InHand {
    /// Whose it is, and its name there.
    handle: usize,
    token: u64,
    flow: usize,
    op: DeviceOp,
    /// What it counts of the depth now.
    depth_bytes: u64,
}

struct Whole {
    device: Box<dyn Device>,
    pending: Pending<InHand>,
    /// By place among those in hand.
    queue: StartTimeFair<u32>,
    /// What ended, by handle.
    ended: Vec<VecDeque<DeviceDone>>,
    ended_below: Vec<DeviceDone>,
    /// When something that had waited last ended, or the first one began.
    heard_ns: u64,
}

/// What it counts, if it waits for its turn at all.
fn charge(op: &DeviceOp) -> Option<Charge> {
    let cost_bytes = op.length + OPERATION_BYTES;
    match op.kind {
        OpKind::Read => Some(Charge { cost_bytes, depth_bytes: cost_bytes }),
        OpKind::Write { .. } => Some(Charge { cost_bytes, depth_bytes: cost_bytes * WRITE_DEPTH }),
        _ => None,
    }
}

impl Whole {
    fn submit(&mut self, now_ns: u64, (handle, flow): (usize, usize), op: DeviceOp) {
        let Ok(index) = self.pending.insert(InHand { handle, token: op.token, flow, op, depth_bytes: 0 }) else {
            return self.ended[handle].push_back(DeviceDone { token: op.token, result: Err(IoError::Failed) });
        };
        match charge(&op) {
            Some(charge) => {
                self.queue.arrive(flow, charge, index);
                self.start(now_ns);
            }
            None => {
                self.queue.charge(flow, OPERATION_BYTES);
                self.device.submit(now_ns, DeviceOp { token: u64::from(index), ..op });
            }
        }
    }

    /// Hands down what may go.
    fn start(&mut self, now_ns: u64) {
        if self.queue.in_service_bytes() == 0 {
            self.heard_ns = now_ns;
        }
        while let Some(index) = self.queue.start() {
            let job = self.pending.get_mut(index);
            let op = job.op;
            job.depth_bytes = charge(&op).map_or(0, |charge| charge.depth_bytes);
            self.device.submit(now_ns, DeviceOp { token: u64::from(index), ..op });
        }
    }

    fn poll(&mut self, now_ns: u64) {
        self.device.poll(now_ns, &mut self.ended_below);
        if self.ended_below.is_empty() {
            return self.go_on(now_ns);
        }
        for DeviceDone { token, result } in self.ended_below.drain(..) {
            let InHand { handle, token, flow, op, depth_bytes } = self.pending.remove(token as u32);
            if charge(&op).is_some() {
                self.queue.end(flow, depth_bytes);
                self.heard_ns = now_ns;
            }
            self.ended[handle].push_back(DeviceDone { token, result });
        }
        self.start(now_ns);
        self.go_on(now_ns);
    }

    /// When those that wait here go below whatever is there.
    fn silent_ns(&self) -> Option<u64> {
        self.queue.has_waiting().then_some(self.heard_ns + SILENT_NS)
    }

    /// What has been silent for long is not waited for.
    fn go_on(&mut self, now_ns: u64) {
        if self.silent_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        for job in self.pending.iter_mut() {
            self.queue.write_off(std::mem::take(&mut job.depth_bytes));
        }
        self.start(now_ns);
    }
}

/// One user's handle. See the module.
pub struct Shared {
    whole: Rc<RefCell<Whole>>,
    handle: usize,
}

impl Shared {
    /// The cache's handle of a device, and one for each volume, whose weights these are.
    #[must_use]
    pub fn split(device: Box<dyn Device>, weights: &[u32]) -> (Self, Vec<Self>) {
        let volumes = weights.len();
        let of_cache = weights.iter().sum::<u32>().max(1);
        let flows = |(user, weight)| [Share { weight: weight * DEMAND, user }, Share { weight, user }];
        let shares: Vec<Share> = weights.iter().copied().chain([of_cache]).enumerate().flat_map(flows).collect();
        let whole = Whole {
            device,
            pending: Pending::new(OPERATIONS_MAX),
            queue: StartTimeFair::new(&shares, DEPTH_BYTES),
            ended: (0..=volumes).map(|_| VecDeque::new()).collect(),
            ended_below: Vec::new(),
            heard_ns: 0,
        };
        let whole = Rc::new(RefCell::new(whole));
        let handle = |handle| Self { whole: Rc::clone(&whole), handle };
        (handle(volumes), (0..volumes).map(handle).collect())
    }
}

impl Device for Shared {
    fn geometry(&self) -> Geometry {
        self.whole.borrow().device.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.submit_for(now_ns, ForWhom::CLIENT, op);
    }

    fn submit_for(&mut self, now_ns: u64, whom: ForWhom, op: DeviceOp) {
        let user = whom.volume.map_or(self.handle, VolumeId::index);
        let flow = 2 * user + usize::from(!whom.is_demand);
        self.whole.borrow_mut().submit(now_ns, (self.handle, flow), op);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let whole = &mut *self.whole.borrow_mut();
        whole.poll(now_ns);
        done.extend(whole.ended[self.handle].drain(..));
    }

    fn next_ns(&self) -> Option<u64> {
        let whole = self.whole.borrow();
        if !whole.ended[self.handle].is_empty() {
            return Some(0);
        }
        [whole.device.next_ns(), whole.silent_ns()].into_iter().flatten().min()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.whole.borrow_mut().device.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use forebay_uring::Arena;

    use super::*;
    use crate::device::FrameId;
    use crate::devices::conformance::{Plan, conform};
    use crate::devices::memory::Memory;
    use crate::devices::paced::{Pace, Paced};
    use crate::devices::scripted::{Scripted, read, run_until_idle};
    use crate::reactor::Reactor;

    struct Clock(u64);

    impl Reactor for Clock {
        fn now_ns(&self) -> u64 {
            self.0
        }
        fn wait(&mut self, until_ns: u64) {
            self.0 = self.0.max(until_ns);
        }
    }

    #[test]
    fn each_handle_keeps_the_contract() {
        let arena = Rc::new(Arena::new(16, 65536).unwrap());
        let device = Paced::new(Memory::new(Rc::clone(&arena), 1 << 20), Pace::new(0, 1000));
        let (cache, volumes) = Shared::split(Box::new(device), &[100]);
        for (seed, handle) in (0..).zip([cache].into_iter().chain(volumes)) {
            conform(&mut { handle }, &mut Clock(0), &arena, Plan { seed, operations: 500, depth: 8 });
        }
    }

    #[test]
    fn ends_wait_for_whoever_submitted_them() {
        let arena = Rc::new(Arena::new(4, 65536).unwrap());
        let mut handles = Shared::split(Box::new(Memory::new(arena, 1 << 20)), &[100; 2]).1;
        let read = |token| DeviceOp { token, kind: OpKind::Read, offset: 0, length: 512, frame: FrameId(0), at: 0 };
        handles[0].submit(0, read(7));
        handles[1].submit(0, read(7));
        handles[1].submit(0, read(9));
        let tokens = |handle: &mut Shared| {
            let mut done = Vec::new();
            handle.poll(0, &mut done);
            done.iter().map(|done| done.token).collect::<Vec<_>>()
        };
        assert_eq!(tokens(&mut handles[0]), [7]);
        assert_eq!((handles[0].next_ns(), handles[1].next_ns()), (None, Some(0)));
        assert_eq!(tokens(&mut handles[1]), [7, 9]);
        assert_eq!(handles[1].next_ns(), None);
    }

    const MS: u64 = 1_000_000;

    /// A disk that takes 100 MB/s, shared by volumes of these weights.
    fn slow(weights: &[u32]) -> (Shared, Vec<Shared>) {
        Shared::split(Box::new(Paced::new(Scripted::new(1 << 30), Pace::new(100_000_000, MS / 100))), weights)
    }

    fn write(token: u64) -> DeviceOp {
        DeviceOp { kind: OpKind::Write { fua: false }, ..read(token, token * 4096, 4096) }
    }

    /// Keeps as many operations in flight for each as it is given for so long; how many each got.
    fn closed_loop(handles: &mut [Shared], each: &[(u64, DeviceOp)], until_ns: u64) -> Vec<u64> {
        let mut got = vec![0; each.len()];
        let mut now_ns = 0;
        for (handle, (in_flight, op)) in handles.iter_mut().zip(each) {
            (0..*in_flight).for_each(|token| handle.submit(0, DeviceOp { token, ..*op }));
        }
        let mut done = Vec::new();
        while now_ns < until_ns {
            let next_ns = handles.iter().filter_map(Device::next_ns).min();
            now_ns = now_ns.max(next_ns.expect("something is in flight"));
            for ((handle, (_, op)), got) in handles.iter_mut().zip(each).zip(&mut got) {
                handle.poll(now_ns, &mut done);
                for ended in done.drain(..) {
                    *got += 1;
                    handle.submit(now_ns, DeviceOp { token: ended.token, ..*op });
                }
            }
        }
        got
    }

    #[test]
    fn volumes_get_their_shares_however_much_each_asks_for() {
        let mut handles = slow(&[400, 200, 100, 100]).1;
        let each = [(64, write(0)), (64, write(0)), (64, write(0)), (512, write(0))];
        let got = closed_loop(&mut handles, &each, 1_000 * MS);
        let all = got.iter().sum::<u64>() as f64;
        // 100 MB in a second, less what is in flight.
        assert!(all > 24_000.0, "{got:?}");
        for (got, share) in got.iter().zip([0.5, 0.25, 0.125, 0.125]) {
            assert!((*got as f64 / all / share - 1.0).abs() < 0.05, "{got} of {all} is not {share}");
        }
    }

    #[test]
    fn large_operations_get_no_more_bytes_than_small_ones_cost() {
        let mut handles = slow(&[100; 2]).1;
        let large = DeviceOp { length: 262_144, ..write(0) };
        let got = closed_loop(&mut handles, &[(8, large), (256, write(0))], 1_000 * MS);
        let costs = [got[0] * (262_144 + OPERATION_BYTES), got[1] * (4096 + OPERATION_BYTES)];
        assert!((costs[0] as f64 / costs[1] as f64 - 1.0).abs() < 0.05, "{got:?}");
    }

    #[test]
    fn one_alone_has_the_device_as_if_it_were_its_own() {
        let plain = || Paced::new(Scripted::new(1 << 30), Pace::new(100_000_000, MS / 100));
        let (mut alone, mut handles) = (plain(), Shared::split(Box::new(plain()), &[1; 8]).1);
        for token in 0..10_000 {
            let op = if token % 3 == 0 { write(token) } else { read(token, 0, 65536) };
            alone.submit(0, op);
            handles[3].submit(0, op);
        }
        assert_eq!(run_until_idle(&mut handles[3], 0), run_until_idle(&mut alone, 0));
    }

    /// Never ends what is at its beginning.
    struct Hangs(Scripted);

    impl Device for Hangs {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn submit(&mut self, now_ns: u64, op: DeviceOp) {
            if op.offset > 0 || op.kind == OpKind::Flush {
                self.0.submit(now_ns, op);
            }
        }
        fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
            self.0.poll(now_ns, done);
        }
        fn next_ns(&self) -> Option<u64> {
            self.0.next_ns()
        }
    }

    #[test]
    fn what_hangs_holds_nobody_up_for_long() {
        let (_, mut handles) = Shared::split(Box::new(Hangs(Scripted::new(1 << 30))), &[100; 2]);
        handles[0].submit(0, DeviceOp { length: 262_144, ..write(0) });
        for token in 1..=100 {
            handles[1].submit(0, DeviceOp { length: 65_536, ..write(token) });
        }
        // Also while flushes end.
        let mut done = Vec::new();
        for nth in 0..20 {
            handles[0].submit(nth * 50 * MS, DeviceOp { kind: OpKind::Flush, ..read(0, 0, 0) });
            handles[1].poll(nth * 50 * MS, &mut done);
        }
        assert!(done.is_empty() && handles[1].next_ns() == Some(SILENT_NS));
        let ended = run_until_idle(&mut handles[1], SILENT_NS);
        assert_eq!((ended.len(), ended.last().map(|(at_ns, _)| *at_ns)), (100, Some(SILENT_NS)));
    }

    #[test]
    fn a_flush_does_not_wait_behind_what_others_have_queued() {
        let (_, mut handles) = slow(&[100; 2]);
        for token in 0..1_000 {
            handles[0].submit(0, write(token));
            handles[1].submit(0, write(token));
        }
        handles[1].submit(0, DeviceOp { kind: OpKind::Flush, ..read(7_777, 0, 0) });
        let mut done = Vec::new();
        handles[1].poll(MS / 100, &mut done);
        assert_eq!(done, [DeviceDone { token: 7_777, result: Ok(()) }]);
    }

    #[test]
    fn what_the_cache_does_for_a_volume_is_of_the_volumes_share() {
        let (mut cache, mut handles) = slow(&[100; 2]);
        for token in 0..1_000 {
            handles[1].submit(0, write(token));
            handles[0].submit(0, write(token));
            cache.submit_for(0, ForWhom { volume: Some(VolumeId(0)), is_demand: true }, write(token));
        }
        let (mut done, mut got, mut now_ns) = (Vec::new(), [0usize; 2], 0);
        while got[1] < 900 {
            now_ns = now_ns.max(handles[1].next_ns().expect("something is in flight"));
            handles[0].poll(now_ns, &mut done);
            cache.poll(now_ns, &mut done);
            got[0] += done.drain(..).count();
            handles[1].poll(now_ns, &mut done);
            got[1] += done.drain(..).count();
        }
        assert!(got[0].abs_diff(900) < 50, "{got:?}");
    }

    #[test]
    fn what_nobody_waits_for_gets_less_than_what_somebody_does_and_is_not_starved() {
        let mut handles = slow(&[100; 2]).1;
        let behind = ForWhom { volume: None, is_demand: false };
        // What a client waits for comes last.
        for token in 0..2_000 {
            handles[1].submit(0, write(token));
            handles[0].submit_for(0, behind, write(10_000 + token));
        }
        (0..2_000).for_each(|token| handles[0].submit(0, write(token)));
        let (mut done, mut got, mut now_ns) = (Vec::new(), [0usize; 3], 0);
        while got[1] < 1_600 {
            now_ns = now_ns.max(handles[1].next_ns().expect("something is in flight"));
            handles[0].poll(now_ns, &mut done);
            done.drain(..).for_each(|done| got[if done.token >= 10_000 { 2 } else { 0 }] += 1);
            handles[1].poll(now_ns, &mut done);
            got[1] += done.drain(..).count();
        }
        assert!(got[0].abs_diff(1_600) < 20 && got[2].abs_diff(800) < 20, "{got:?}");
    }
}
