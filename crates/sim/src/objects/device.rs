//! The store as the object space's device: what the shard wants read by addresses is left for the gateway, which looks it up.
//!
//! As in `forebay-s3`: a read has its frame held until it has ended, and one that is given up fails soon.

use forebay_engine::device::{Device, DeviceDone, DeviceOp, Geometry, IoError, OpKind};
use forebay_uring::{Access, Arena, Hold};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What passes between the shard's end and the gateway's.
#[derive(Debug, Default)]
pub struct Desk {
    asked: Vec<DeviceOp>,
    given_up: Vec<u64>,
    /// With what has come.
    ended: Vec<(DeviceDone, Vec<u8>)>,
}

/// Both ends' hands on it.
pub type SharedDesk = Rc<RefCell<Desk>>;

/// See the module.
#[derive(Debug)]
pub struct StoreDevice {
    arena: Rc<Arena>,
    bytes: u64,
    desk: SharedDesk,
    held: BTreeMap<u64, (DeviceOp, Hold)>,
    /// There is nothing to flush.
    flushed: Vec<DeviceDone>,
}

impl Desk {
    /// What was asked, and which reads were given up, since this was called last.
    pub fn take(&mut self) -> (Vec<DeviceOp>, Vec<u64>) {
        (std::mem::take(&mut self.asked), std::mem::take(&mut self.given_up))
    }

    /// A read ended, and these bytes of it had come.
    pub fn end(&mut self, token: u64, result: Result<(), IoError>, bytes: Vec<u8>) {
        self.ended.push((DeviceDone { token, result }, bytes));
    }

    /// Nobody has looked at what was asked.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty() || !self.given_up.is_empty()
    }
}

impl StoreDevice {
    /// The object space has so many bytes.
    #[must_use]
    pub fn new(arena: Rc<Arena>, bytes: u64, desk: SharedDesk) -> Self {
        Self { arena, bytes, desk, held: BTreeMap::new(), flushed: Vec::new() }
    }
}

impl Device for StoreDevice {
    fn geometry(&self) -> Geometry {
        let (bytes, sector_bytes, range_bytes_max) = (self.bytes, 512, 1 << 30);
        Geometry { bytes, sector_bytes, read_only: true, can_trim: false, can_zero: false, range_bytes_max }
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        if op.kind == OpKind::Flush {
            return self.flushed.push(DeviceDone { token: op.token, result: Ok(()) });
        }
        assert_eq!(op.kind, OpKind::Read, "objects are only read");
        let hold = self.arena.hold(op.frame.0, op.at, op.length as u32, Access::Write);
        assert!(self.held.insert(op.token, (op, hold)).is_none(), "tokens in flight are unique");
        self.desk.borrow_mut().asked.push(op);
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.flushed);
        for (ended, bytes) in self.desk.borrow_mut().ended.drain(..) {
            let (op, hold) = self.held.remove(&ended.token).expect("a read ends once");
            self.arena.release(hold);
            self.arena.copy_in(op.frame.0, op.at, &bytes);
            done.push(ended);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        (!self.flushed.is_empty() || !self.desk.borrow().ended.is_empty()).then_some(0)
    }

    fn give_up(&mut self, _now_ns: u64, token: u64) {
        self.desk.borrow_mut().given_up.push(token);
    }
}
