//! Writes that the server acknowledged and has not yet been told to make durable.
//!
//! Kept in the order of their answers, which for overlapping ones is the order of their effects. A write takes its room
//! before it is sent, so that its answer always finds room. Bytes are the driver's; here are ranges and names.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::action::{HeldId, Kind, Op, Range};

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldWrite {
    pub(super) held: HeldId,
    pub(super) op: Op,
    /// When it was first answered, on the client's logical clock.
    pub(super) answered: u64,
    /// The server refused its replay.
    pub(super) refused: bool,
}

#[derive(Debug)]
pub(super) struct HeldWrites {
    writes: VecDeque<HeldWrite>,
    free: Vec<u32>,
    bytes: u64,
    reserved_count: usize,
    reserved_bytes: u64,
    bytes_max: u64,
    count_max: usize,
    /// The first write that this replay has not sent.
    replay_at: usize,
}

fn payload_bytes(op: &Op) -> u64 {
    match op.kind {
        Kind::Write => u64::from(op.length),
        _ => 0,
    }
}

impl HeldWrites {
    pub(super) fn new(bytes_max: u64, count_max: u32) -> Self {
        Self {
            writes: VecDeque::with_capacity(count_max as usize),
            free: (0..count_max).rev().collect(),
            bytes: 0,
            reserved_count: 0,
            reserved_bytes: 0,
            bytes_max,
            count_max: count_max as usize,
            replay_at: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HeldWrite> {
        self.writes.iter()
    }

    pub(super) fn overlaps(&self, range: Range) -> bool {
        self.writes.iter().any(|w| w.op.range().overlaps(range))
    }

    /// Takes room for a write about to be sent; false when there is none.
    pub(super) fn reserve(&mut self, op: &Op) -> bool {
        let count = self.writes.len() + self.reserved_count + 1;
        let bytes = self.bytes + self.reserved_bytes + payload_bytes(op);
        let fits = count <= self.count_max && bytes <= self.bytes_max;
        if fits {
            self.reserved_count += 1;
            self.reserved_bytes += payload_bytes(op);
        }
        fits
    }

    /// Gives the room back: the write was not acknowledged.
    pub(super) fn unreserve(&mut self, op: &Op) {
        self.reserved_count -= 1;
        self.reserved_bytes -= payload_bytes(op);
    }

    /// Turns the room taken into a held write.
    pub(super) fn hold(&mut self, op: Op, answered: u64) -> HeldId {
        self.unreserve(&op);
        let held = HeldId(self.free.pop().expect("room was reserved"));
        self.bytes += payload_bytes(&op);
        self.writes.push_back(HeldWrite { held, op, answered, refused: false });
        held
    }

    /// True when it is time to flush, so that writes seldom wait for room.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes * 2 > self.bytes_max || self.writes.len() * 2 > self.count_max
    }

    /// Lets go of the oldest write if it was answered before `stamp`.
    pub(super) fn pop_before(&mut self, stamp: u64) -> Option<HeldWrite> {
        if self.writes.front()?.answered >= stamp {
            return None;
        }
        let write = self.writes.pop_front()?;
        self.forget(&write);
        Some(write)
    }

    /// Starts a replay from the oldest.
    pub(super) fn rewind(&mut self) {
        self.replay_at = 0;
        for write in &mut self.writes {
            write.refused = false;
        }
    }

    /// The next write to replay, if not all were sent.
    pub(super) fn to_replay(&self) -> Option<HeldWrite> {
        self.writes.get(self.replay_at).copied()
    }

    /// The write of [`Self::to_replay`] was sent.
    pub(super) fn replay_sent(&mut self) {
        self.replay_at += 1;
    }

    /// The server refused the replay of the write answered at that time.
    pub(super) fn replay_refused(&mut self, answered: u64) -> Op {
        let at = self.writes.binary_search_by_key(&answered, |w| w.answered).expect("a write under replay stays held");
        self.writes[at].refused = true;
        self.writes[at].op
    }

    /// Takes one of the refused writes out.
    pub(super) fn take_refused(&mut self) -> Option<HeldWrite> {
        let at = self.writes.iter().position(|w| w.refused)?;
        let write = self.writes.remove(at)?;
        self.forget(&write);
        Some(write)
    }

    fn forget(&mut self, write: &HeldWrite) {
        self.free.push(write.held.0);
        self.bytes -= payload_bytes(&write.op);
    }
}
