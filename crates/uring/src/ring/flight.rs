//! Operations in flight: what to do when each completes.
//!
//! The kernel carries 64 bits with an operation: the index of its entry here and the entry's
//! generation. The table never grows beyond the ring's limit, which is what bounds the ring.

use std::ptr::NonNull;

use super::message::Message;
use super::op::ArenaId;
use crate::arena::Hold;

/// What the kernel carries with a cancellation, whose own completion says nothing.
pub(super) const CANCELLATION: u64 = u64::MAX;

/// What kind of completion to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The result counts bytes.
    Transfer,
    /// The result says only whether it worked.
    Plain,
    /// The result is a new descriptor.
    Accept,
    /// Running out is success.
    Timeout,
    /// A waker's read; the token is the waker's index. Never ends.
    Wake,
}

/// An operation in flight.
pub(super) struct Operation {
    pub(super) token: u64,
    pub(super) kind: Kind,
    /// Entry of the descriptor table.
    pub(super) fd: Option<u32>,
    pub(super) hold: Option<(ArenaId, Hold)>,
    pub(super) message: Option<NonNull<Message>>,
}

struct Entry {
    generation: u32,
    operation: Option<Operation>,
}

pub(super) struct Flight {
    entries: Vec<Entry>,
    free: Vec<u32>,
    ops_max: u32,
}

impl Flight {
    pub(super) fn new(ops_max: u32) -> Self {
        let capacity = ops_max as usize;
        Flight { entries: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), ops_max }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == self.ops_max
    }

    /// Operations in flight.
    pub(super) fn len(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    /// Adds an operation; returns what the kernel shall carry.
    pub(super) fn add(&mut self, operation: Operation) -> u64 {
        assert!(!self.is_full(), "more than {} operations in flight", self.ops_max);
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, operation: None });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.operation = Some(operation);
        user_data(index, entry.generation)
    }

    /// The operation that `user_data` was given for.
    pub(super) fn get(&self, user_data: u64) -> &Operation {
        let entry = &self.entries[user_data as u32 as usize];
        assert!(entry.generation == (user_data >> 32) as u32, "a completion came twice");
        entry.operation.as_ref().expect("an operation in flight")
    }

    /// Takes out an operation that has completed.
    pub(super) fn remove(&mut self, user_data: u64) -> Operation {
        self.get(user_data);
        let index = user_data as u32;
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        entry.operation.take().expect("an operation in flight")
    }

    /// What the kernel carries with each operation in flight that `which` selects.
    pub(super) fn select(&self, which: impl Fn(&Operation) -> bool) -> impl Iterator<Item = u64> {
        self.entries.iter().enumerate().filter_map(move |(index, entry)| {
            let selected = entry.operation.as_ref().is_some_and(&which);
            selected.then(|| user_data(index as u32, entry.generation))
        })
    }
}

fn user_data(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}
