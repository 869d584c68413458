//! Paced: any device, as slow as you like: a rate in bytes per second, and a latency on top.
//!
//! Why: a cache is judged against a slow back end, and the throttles that machines offer let through bursts of 100 ms.
//! A burst of 100 ms at 200 MB/s is 20 MB: it hides exactly the queueing that a cache is to even out.
//!
//! How: a link that carries one operation after the other, and a delay behind it.
//! 1. An operation is handed to the device below at once, and queues for the link.
//! 2. It occupies the link for length / rate. The link's schedule is kept in exact times, not in ticks: a late poll
//!    does not slow it while it is busy, and an idle link saves nothing up.
//! 3. It then travels for the latency, beside others.
//! 4. It ends when it has arrived and the device below has ended it, whichever is later.
//!
//! A change of rate applies from the next poll, to the operation on the link too. Flushes, trims and zeroing carry no
//! bytes: they take the latency only.
//!
//! Limits: at most [`OPERATIONS_MAX`] operations in hand; more are refused. Rejected: a token bucket with a depth,
//! which is a burst by another name.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};

/// Operations in hand.
pub const OPERATIONS_MAX: u32 = 65536;
const SECOND_NS: u128 = 1_000_000_000;

/// The pace, shared: it may be changed from any thread while the device runs.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: AtomicU64,
    latency_ns: AtomicU64,
}

impl Pace {
    /// A pace. `bytes_per_second` 0: as fast as the device below.
    #[must_use]
    pub fn new(bytes_per_second: u64, latency_ns: u64) -> Arc<Self> {
        Arc::new(Self { bytes_per_second: AtomicU64::new(bytes_per_second), latency_ns: AtomicU64::new(latency_ns) })
    }

    /// Changes it.
    pub fn set(&self, bytes_per_second: u64, latency_ns: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
        self.latency_ns.store(latency_ns, Ordering::Relaxed);
    }

    /// (bytes per second, latency in ns) now.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        (self.bytes_per_second.load(Ordering::Relaxed), self.latency_ns.load(Ordering::Relaxed))
    }
}

/// One operation on its way.
#[derive(Debug)]
struct Underway {
    token: u64,
    arrived: bool,
    result: Option<Result<(), IoError>>,
}

/// The link: operations in line, the first of them being carried.
#[derive(Debug, Default)]
struct Link {
    line: VecDeque<(u32, u64)>,
    /// Since when the first is carried, and what was left of it then.
    since_ns: u64,
    bytes_left: u64,
    bytes_per_second: u64,
}

impl Link {
    fn push(&mut self, now_ns: u64, index: u32, bytes: u64) {
        if self.line.is_empty() {
            self.since_ns = now_ns;
            self.bytes_left = bytes;
        }
        self.line.push_back((index, bytes));
    }

    /// When the first operation is through.
    fn through_ns(&self) -> Option<u64> {
        self.line.front()?;
        if self.bytes_per_second == 0 {
            return Some(self.since_ns);
        }
        let carry_ns = (u128::from(self.bytes_left) * SECOND_NS).div_ceil(u128::from(self.bytes_per_second));
        Some(self.since_ns.saturating_add(u64::try_from(carry_ns).unwrap_or(u64::MAX)))
    }

    /// The next operation that is through by `now_ns`, and when it was.
    fn pop(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        let through_ns = self.through_ns().filter(|&through_ns| through_ns <= now_ns)?;
        let (index, _) = self.line.pop_front()?;
        self.since_ns = through_ns;
        self.bytes_left = self.line.front().map_or(0, |&(_, bytes)| bytes);
        Some((index, through_ns))
    }

    /// Takes another rate from now on; what was carried at the old one counts.
    fn change(&mut self, now_ns: u64, bytes_per_second: u64) {
        if self.bytes_per_second != 0 && !self.line.is_empty() {
            let elapsed_ns = u128::from(now_ns.saturating_sub(self.since_ns));
            let carried = elapsed_ns * u128::from(self.bytes_per_second) / SECOND_NS;
            self.bytes_left -= u64::try_from(carried).unwrap_or(u64::MAX).min(self.bytes_left);
            self.since_ns = self.since_ns.max(now_ns);
        }
        self.bytes_per_second = bytes_per_second;
    }
}

/// A device at a pace.
#[derive(Debug)]
pub struct Paced<D> {
    below: D,
    pace: Arc<Pace>,
    link: Link,
    travelling: BinaryHeap<Reverse<(u64, u32)>>,
    pending: Pending<Underway>,
    refused: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
}

impl<D: Device> Paced<D> {
    /// Puts a pace on `below`.
    pub fn new(below: D, pace: Arc<Pace>) -> Self {
        let link = Link { bytes_per_second: pace.get().0, ..Link::default() };
        Self {
            below,
            pace,
            link,
            travelling: BinaryHeap::new(),
            pending: Pending::new(OPERATIONS_MAX),
            refused: Vec::new(),
            ended_below: Vec::new(),
        }
    }

    /// Moves the link up to now.
    fn carry(&mut self, now_ns: u64) {
        let (bytes_per_second, latency_ns) = self.pace.get();
        loop {
            while let Some((index, through_ns)) = self.link.pop(now_ns) {
                self.travelling.push(Reverse((through_ns.saturating_add(latency_ns), index)));
            }
            if self.link.bytes_per_second == bytes_per_second {
                return;
            }
            self.link.change(now_ns, bytes_per_second);
        }
    }

    fn end_if_both(&mut self, index: u32, done: &mut Vec<DeviceDone>) {
        let Underway { token, arrived, result } = *self.pending.get_mut(index);
        if let (true, Some(result)) = (arrived, result) {
            self.pending.remove(index);
            done.push(DeviceDone { token, result });
        }
    }
}

impl<D: Device> Device for Paced<D> {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let underway = Underway { token: op.token, arrived: false, result: None };
        let Ok(index) = self.pending.insert(underway) else {
            self.refused.push(DeviceDone { token: op.token, result: Err(IoError::Failed) });
            return;
        };
        self.carry(now_ns);
        match op.kind {
            OpKind::Read | OpKind::Write { .. } => self.link.push(now_ns, index, op.length),
            OpKind::Flush | OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                self.travelling.push(Reverse((now_ns.saturating_add(self.pace.get().1), index)));
            }
        }
        self.below.submit(now_ns, DeviceOp { token: u64::from(index), ..op });
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.refused);
        let mut ended_below = std::mem::take(&mut self.ended_below);
        self.below.poll(now_ns, &mut ended_below);
        for ended in ended_below.drain(..) {
            let index = ended.token as u32;
            self.pending.get_mut(index).result = Some(ended.result);
            self.end_if_both(index, done);
        }
        self.ended_below = ended_below;
        self.carry(now_ns);
        while let Some(&Reverse((due_ns, index))) = self.travelling.peek() {
            if due_ns > now_ns {
                break;
            }
            self.travelling.pop();
            self.pending.get_mut(index).arrived = true;
            self.end_if_both(index, done);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.refused.is_empty() {
            return Some(0);
        }
        let due_ns = self.travelling.peek().map(|Reverse((due_ns, _))| *due_ns);
        [self.link.through_ns(), due_ns, self.below.next_ns()].into_iter().flatten().min()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.below.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::scripted::{Scripted, read, run_until_idle};

    const MS: u64 = 1_000_000;

    #[test]
    fn operations_leave_at_the_rate_one_by_one_and_the_latency_is_paid_beside_others() {
        // 64 KiB at 64 MiB/s is one in 976,562.5 ns.
        let mut device = Paced::new(Scripted::new(1 << 30), Pace::new(64 << 20, 2 * MS));
        for token in 0..100 {
            device.submit(0, read(token, token * 65536, 65536));
        }
        let ended = run_until_idle(&mut device, 0);
        assert_eq!(ended.len(), 100);
        for (nth, (at_ns, done)) in ended.iter().enumerate() {
            let carried_ns = (nth as u64 + 1) * 976_562;
            assert_eq!(done.token, nth as u64);
            assert!((carried_ns + 2 * MS..carried_ns + 2 * MS + 200).contains(at_ns), "{nth} ended at {at_ns}");
        }
    }

    #[test]
    fn an_idle_link_saves_nothing_up() {
        let mut device = Paced::new(Scripted::new(1 << 30), Pace::new(1_000_000, 0));
        device.submit(0, read(1, 0, 4096));
        assert_eq!(run_until_idle(&mut device, 0)[0].0, 4_096_000);
        let later_ns = 1_000 * MS;
        device.submit(later_ns, read(2, 0, 4096));
        device.submit(later_ns, read(3, 0, 4096));
        let ended = run_until_idle(&mut device, later_ns);
        assert_eq!([ended[0].0, ended[1].0], [later_ns + 4_096_000, later_ns + 8_192_000]);
    }

    #[test]
    fn a_new_rate_applies_to_what_is_on_the_link() {
        let pace = Pace::new(1_000_000, 0);
        let mut device = Paced::new(Scripted::new(1 << 30), Arc::clone(&pace));
        device.submit(0, read(1, 0, 1_000_000 / 512 * 512));
        let mut done = Vec::new();
        device.poll(500 * MS, &mut done);
        assert!(done.is_empty());
        pace.set(500_000, 0);
        device.poll(500 * MS, &mut done);
        let at_ns = device.next_ns().expect("an operation is on the link");
        assert!((1_490 * MS..1_500 * MS).contains(&at_ns), "half at half the rate ends at {at_ns}");
        pace.set(0, 0);
        device.poll(600 * MS, &mut done);
        assert_eq!(done.len(), 1);
    }

    #[test]
    fn a_flush_waits_for_the_latency_only() {
        let mut device = Paced::new(Scripted::new(1 << 30), Pace::new(1, 3 * MS));
        device.submit(0, DeviceOp { kind: OpKind::Flush, ..read(7, 0, 0) });
        assert_eq!(run_until_idle(&mut device, 0), [(3 * MS, DeviceDone { token: 7, result: Ok(()) })]);
    }

    #[test]
    fn more_than_the_table_holds_is_refused() {
        let mut device = Paced::new(Scripted::new(1 << 30), Pace::new(0, 1));
        for token in 0..=u64::from(OPERATIONS_MAX) {
            device.submit(0, read(token, 0, 512));
        }
        let ended = run_until_idle(&mut device, 0);
        assert_eq!(ended.len(), OPERATIONS_MAX as usize + 1);
        assert_eq!(ended.iter().filter(|(_, done)| done.result.is_err()).count(), 1);
    }
}
