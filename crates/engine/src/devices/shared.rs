//! Shared: one device for several users, each with a handle of its own.
//!
//! Why: slots and write-back logs lie on one cache disk. Two devices over it would each have a queue, and a pace, of their
//! own.
//!
//! How: an operation goes below under a name of the layer's; its end goes back to whoever submitted it, and waits there
//! until it is asked for.
//!
//! Invariant: a handle gets the ends of its own operations only. Limit: one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, Geometry, IoError};

/// Operations in hand; more are refused.
const OPERATIONS_MAX: u32 = 131_072;

struct Whole {
    device: Box<dyn Device>,
    /// Whose, and the name it has there.
    pending: Pending<(usize, u64)>,
    /// What ended, by handle.
    ended: Vec<VecDeque<DeviceDone>>,
    ended_below: Vec<DeviceDone>,
}

/// One user's handle. See the module.
pub struct Shared {
    whole: Rc<RefCell<Whole>>,
    user: usize,
}

impl Shared {
    /// So many handles of a device.
    #[must_use]
    pub fn split(device: Box<dyn Device>, users: usize) -> Vec<Self> {
        let ended = (0..users).map(|_| VecDeque::new()).collect();
        let pending = Pending::new(OPERATIONS_MAX);
        let whole = Rc::new(RefCell::new(Whole { device, pending, ended, ended_below: Vec::new() }));
        (0..users).map(|user| Self { whole: Rc::clone(&whole), user }).collect()
    }
}

impl Device for Shared {
    fn geometry(&self) -> Geometry {
        self.whole.borrow().device.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let whole = &mut *self.whole.borrow_mut();
        match whole.pending.insert((self.user, op.token)) {
            Ok(index) => whole.device.submit(now_ns, DeviceOp { token: u64::from(index), ..op }),
            Err(_) => whole.ended[self.user].push_back(DeviceDone { token: op.token, result: Err(IoError::Failed) }),
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let whole = &mut *self.whole.borrow_mut();
        whole.device.poll(now_ns, &mut whole.ended_below);
        for DeviceDone { token, result } in whole.ended_below.drain(..) {
            let (user, token) = whole.pending.remove(token as u32);
            whole.ended[user].push_back(DeviceDone { token, result });
        }
        done.extend(whole.ended[self.user].drain(..));
    }

    fn next_ns(&self) -> Option<u64> {
        let whole = self.whole.borrow();
        if whole.ended[self.user].is_empty() { whole.device.next_ns() } else { Some(0) }
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        self.whole.borrow_mut().device.in_doubt(doubts);
    }
}

#[cfg(test)]
mod tests {
    use forebay_uring::Arena;

    use super::*;
    use crate::device::{FrameId, OpKind};
    use crate::devices::conformance::{Plan, conform};
    use crate::devices::memory::Memory;
    use crate::devices::paced::{Pace, Paced};
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
        let mut handles = Shared::split(Box::new(device), 2);
        for (seed, handle) in (0..).zip(&mut handles) {
            conform(handle, &mut Clock(0), &arena, Plan { seed, operations: 500, depth: 8 });
        }
    }

    #[test]
    fn ends_wait_for_whoever_submitted_them() {
        let arena = Rc::new(Arena::new(4, 65536).unwrap());
        let mut handles = Shared::split(Box::new(Memory::new(arena, 1 << 20)), 2);
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
}
