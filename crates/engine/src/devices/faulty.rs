//! Faulty: any device, with errors, delays and hangs by rule, switched on and off while it runs.
//!
//! Why: every error path is to be walked in tests, and a device that fails at the N-th operation for every N walks
//! them all.
//!
//! How: each operation is compared with the rules in their order; the first that matches decides its [`Effect`].
//! Clearing the rules lets hanging operations go on and delayed ones end at their time.
//!
//! Limits: at most [`OPERATIONS_MAX`] operations in hand; more are refused.

use std::ops::{BitOr, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError, OpKind};

/// Operations in hand.
pub const OPERATIONS_MAX: u32 = 65536;

/// A set of kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// Reads.
    pub const READ: Self = Self(1);
    /// Writes.
    pub const WRITE: Self = Self(2);
    /// Flushes.
    pub const FLUSH: Self = Self(4);
    /// Trims.
    pub const TRIM: Self = Self(8);
    /// Zeroing.
    pub const ZERO: Self = Self(16);
    /// Every kind.
    pub const ALL: Self = Self(31);

    /// The set of this one kind.
    #[must_use]
    pub fn of(kind: OpKind) -> Self {
        match kind {
            OpKind::Read => Self::READ,
            OpKind::Write { .. } => Self::WRITE,
            OpKind::Flush => Self::FLUSH,
            OpKind::Trim { .. } => Self::TRIM,
            OpKind::WriteZeroes { .. } => Self::ZERO,
        }
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Kinds {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails and never reaches the device below.
    Refuse(IoError),
    /// The device below performs it; the answer is this failure all the same.
    FailAfter(IoError),
    /// Its answer comes this much later.
    DelayNs(u64),
    /// It does not reach the device below until the rules are cleared.
    Hang,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which kinds.
    pub kinds: Kinds,
    /// Operations that touch this range of bytes; flushes touch every range.
    pub range: Range<u64>,
    /// So many matching operations are spared first.
    pub skip: u64,
    /// Then so many are hit.
    pub times: u64,
    /// How.
    pub effect: Effect,
}

impl Rule {
    /// Every operation, until the rules are cleared.
    #[must_use]
    pub fn every(effect: Effect) -> Self {
        Self { kinds: Kinds::ALL, range: 0..u64::MAX, skip: 0, times: u64::MAX, effect }
    }

    /// Only the `n`-th operation from now, counted from 0.
    #[must_use]
    pub fn nth(n: u64, effect: Effect) -> Self {
        Self { skip: n, times: 1, ..Self::every(effect) }
    }

    /// Every operation of these kinds.
    #[must_use]
    pub fn of(kinds: Kinds, effect: Effect) -> Self {
        Self { kinds, ..Self::every(effect) }
    }

    /// The same, only where `range` is touched.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Whether it hits this operation; counts it.
    fn hits(&mut self, op: &DeviceOp) -> bool {
        let everywhere = op.kind == OpKind::Flush;
        let touches = op.offset < self.range.end && op.offset.saturating_add(op.length) > self.range.start;
        if !self.kinds.contains(Kinds::of(op.kind)) || !(everywhere || touches) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let hits = self.times > 0;
        self.times = self.times.saturating_sub(1);
        hits
    }
}

#[derive(Debug, Default)]
struct Plan {
    rules: Vec<Rule>,
    clearings: u64,
    seen: u64,
    hit: u64,
}

/// The rules, shared: they may be changed from any thread while the device runs.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    /// No faults yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule behind the others.
    pub fn add(&self, rule: Rule) {
        self.plan().rules.push(rule);
    }

    /// Forgets all rules; hanging operations go on at the device's next poll.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.clearings += 1;
    }

    /// Operations that came by.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.plan().seen
    }

    /// Operations that a rule hit.
    #[must_use]
    pub fn hit(&self) -> u64 {
        self.plan().hit
    }
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    token: u64,
    effect: Option<Effect>,
}

/// A device with faults.
#[derive(Debug)]
pub struct Faulty<D> {
    below: D,
    faults: Faults,
    clearings: u64,
    pending: Pending<Underway>,
    ended: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
    /// (when due, the answer), in no order: delays are few.
    delayed: Vec<(u64, DeviceDone)>,
    hanging: Vec<DeviceOp>,
}

impl<D: Device> Faulty<D> {
    /// Puts faults on `below`.
    pub fn new(below: D, faults: Faults) -> Self {
        let clearings = faults.plan().clearings;
        Self {
            below,
            faults,
            clearings,
            pending: Pending::new(OPERATIONS_MAX),
            ended: Vec::new(),
            ended_below: Vec::new(),
            delayed: Vec::new(),
            hanging: Vec::new(),
        }
    }

    fn effect_on(&mut self, op: &DeviceOp) -> Option<Effect> {
        let mut plan = self.faults.plan();
        plan.seen += 1;
        let effect = plan.rules.iter_mut().find_map(|rule| rule.hits(op).then_some(rule.effect));
        plan.hit += u64::from(effect.is_some());
        effect
    }

    fn pass(&mut self, now_ns: u64, op: DeviceOp, effect: Option<Effect>) {
        match self.pending.insert(Underway { token: op.token, effect }) {
            Ok(index) => self.below.submit(now_ns, DeviceOp { token: u64::from(index), ..op }),
            Err(_) => self.ended.push(DeviceDone { token: op.token, result: Err(IoError::Failed) }),
        }
    }
}

impl<D: Device> Device for Faulty<D> {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        match self.effect_on(&op) {
            Some(Effect::Refuse(error)) => self.ended.push(DeviceDone { token: op.token, result: Err(error) }),
            Some(Effect::Hang) if self.hanging.len() < OPERATIONS_MAX as usize => self.hanging.push(op),
            effect => self.pass(now_ns, op, effect),
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let clearings = self.faults.plan().clearings;
        if clearings != self.clearings {
            self.clearings = clearings;
            for op in std::mem::take(&mut self.hanging) {
                self.pass(now_ns, op, None);
            }
        }
        done.append(&mut self.ended);
        let mut ended_below = std::mem::take(&mut self.ended_below);
        self.below.poll(now_ns, &mut ended_below);
        for ended in ended_below.drain(..) {
            let Underway { token, effect } = self.pending.remove(ended.token as u32);
            match effect {
                Some(Effect::DelayNs(delay_ns)) => {
                    let due_ns = now_ns.saturating_add(delay_ns);
                    self.delayed.push((due_ns, DeviceDone { token, result: ended.result }));
                }
                Some(Effect::FailAfter(error)) => done.push(DeviceDone { token, result: Err(error) }),
                _ => done.push(DeviceDone { token, result: ended.result }),
            }
        }
        self.ended_below = ended_below;
        done.extend(self.delayed.extract_if(.., |(due_ns, _)| *due_ns <= now_ns).map(|(_, ended)| ended));
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(0);
        }
        let due_ns = self.delayed.iter().map(|(due_ns, _)| *due_ns).min();
        [due_ns, self.below.next_ns()].into_iter().flatten().min()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.below.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::scripted::{Scripted, read, run_until_idle};

    fn faulty() -> (Faults, Faulty<Scripted>) {
        let faults = Faults::new();
        (faults.clone(), Faulty::new(Scripted::new(1 << 20), faults))
    }

    fn results(device: &mut Faulty<Scripted>, now_ns: u64) -> Vec<(u64, u64, bool)> {
        let mut ended = run_until_idle(device, now_ns);
        ended.sort_by_key(|(_, done)| done.token);
        ended.into_iter().map(|(at_ns, done)| (done.token, at_ns, done.result.is_ok())).collect()
    }

    #[test]
    fn only_the_nth_fails_and_never_reaches_the_device() {
        let (faults, mut device) = faulty();
        faults.add(Rule::nth(2, Effect::Refuse(IoError::Failed)));
        for token in 0..4 {
            device.submit(0, read(token, 0, 512));
        }
        assert_eq!(results(&mut device, 0), [(0, 0, true), (1, 0, true), (2, 0, false), (3, 0, true)]);
        assert_eq!(device.below.submitted, 3);
        assert_eq!((faults.seen(), faults.hit()), (4, 1));
    }

    #[test]
    fn rules_go_by_kind_and_by_range() {
        let (faults, mut device) = faulty();
        faults.add(Rule::of(Kinds::READ, Effect::FailAfter(IoError::TimedOut)).within(4096..8192));
        faults.add(Rule::of(Kinds::FLUSH | Kinds::TRIM, Effect::Refuse(IoError::Lost)).within(0..1));
        device.submit(0, read(0, 0, 4096));
        device.submit(0, read(1, 3584, 1024));
        device.submit(0, read(2, 8192, 4096));
        device.submit(0, DeviceOp { kind: OpKind::Write { fua: false }, ..read(3, 4096, 4096) });
        device.submit(0, DeviceOp { kind: OpKind::Flush, ..read(4, 0, 0) });
        let ok: Vec<bool> = results(&mut device, 0).into_iter().map(|(_, _, ok)| ok).collect();
        assert_eq!(ok, [true, false, true, true, false]);
        assert_eq!(device.below.submitted, 4);
    }

    #[test]
    fn delays_and_hangs_end_when_they_should() {
        let (faults, mut device) = faulty();
        faults.add(Rule::nth(0, Effect::DelayNs(700)));
        faults.add(Rule::every(Effect::Hang));
        for token in 0..3 {
            device.submit(100, read(token, 0, 512));
        }
        assert_eq!(results(&mut device, 100), [(0, 800, true)]);
        assert_eq!(device.below.submitted, 1);
        faults.clear();
        assert_eq!(results(&mut device, 1000), [(1, 1000, true), (2, 1000, true)]);
        device.submit(1000, read(3, 0, 512));
        assert_eq!(results(&mut device, 1000), [(3, 1000, true)]);
    }
}
