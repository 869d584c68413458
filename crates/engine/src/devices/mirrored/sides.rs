//! The two sides of a mirror: which are in service, and which of them the state directory says count.
//!
//! All logs of a process share them: a side that fails for one is out for all, so that one number on each side, and one small
//! file, tell whether it counts.
//!
//! Invariant: a side that left the service never comes back while the process lives, and what is written without it is answered
//! when the file no longer names it ([`Sides::counts`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::counts::{Counting, Side};
use crate::device::IoError;
use crate::reactor::Reactor;

/// After a write of the file that failed.
const RETRY_NS: u64 = 1_000_000_000;

/// Who keeps [`Counting`]: a file in the state directory ([`crate::state::CountingFile`]), or memory in tests.
pub trait CountingStore {
    /// Begins to make this durable, in place of what is kept. One at a time.
    fn begin(&mut self, counting: Counting);

    /// How it ended, once. After a failure either is kept.
    fn poll(&mut self) -> Option<Result<(), IoError>>;

    /// When to ask, if nothing wakes who waits.
    fn next_ns(&self) -> Option<u64> {
        None
    }
}

/// How a mirror is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorHealth {
    /// Both sides have everything.
    Whole,
    /// The logs are on the cache disk only.
    DiskOnly,
    /// The logs are on the mirror only.
    MirrorOnly,
}

/// How the mirror is, for other threads.
#[derive(Clone, Debug, Default)]
pub struct MirrorStatus(Arc<AtomicU8>);

impl MirrorStatus {
    /// Of a mirror that cannot be used.
    #[must_use]
    pub fn disk_only() -> Self {
        let status = Self::default();
        status.set([true, false]);
        status
    }

    /// Now.
    #[must_use]
    pub fn get(&self) -> MirrorHealth {
        match self.0.load(Ordering::Acquire) {
            1 => MirrorHealth::DiskOnly,
            2 => MirrorHealth::MirrorOnly,
            _ => MirrorHealth::Whole,
        }
    }

    fn set(&self, in_service: [bool; 2]) {
        self.0.store(u8::from(in_service[0]) + 2 * u8::from(in_service[1]), Ordering::Release);
    }
}

struct State {
    store: Box<dyn CountingStore>,
    /// What is durable.
    counting: Counting,
    in_service: [bool; 2],
    writing: Option<Counting>,
    retry_ns: u64,
    /// Logs are being found again: both sides are not equal yet.
    is_opening: bool,
    status: MirrorStatus,
}

impl State {
    fn wanted(&self) -> Counting {
        let mut wanted = self.counting;
        for side in Side::BOTH.into_iter().filter(|side| !self.in_service[side.at()]) {
            wanted.sides[side.at()] = None;
        }
        wanted
    }
}

/// See the module.
#[derive(Clone)]
pub struct Sides(Rc<RefCell<State>>);

impl Sides {
    /// The sides that count; at least one. `store` has that durably.
    #[must_use]
    pub fn new(counting: Counting, store: Box<dyn CountingStore>) -> Self {
        let in_service = counting.sides.map(|side| side.is_some());
        assert!(in_service.contains(&true), "no side counts");
        let status = MirrorStatus::default();
        status.set(in_service);
        Self(Rc::new(RefCell::new(State {
            store,
            counting,
            in_service,
            writing: None,
            retry_ns: 0,
            is_opening: true,
            status,
        })))
    }

    /// How the mirror is, for other threads.
    #[must_use]
    pub fn status(&self) -> MirrorStatus {
        self.0.borrow().status.clone()
    }

    /// All logs were found, and what both sides have of them is equal: from now on either may be read.
    pub fn opened(&self) {
        self.0.borrow_mut().is_opening = false;
    }

    pub(super) fn is_opening(&self) -> bool {
        self.0.borrow().is_opening
    }

    /// Whether what is written goes there.
    #[must_use]
    pub fn in_service(&self, side: Side) -> bool {
        self.0.borrow().in_service[side.at()]
    }

    /// Whether a start would believe it.
    pub(super) fn counts(&self, side: Side) -> bool {
        self.0.borrow().counting.sides[side.at()].is_some()
    }

    /// A side was filled, and names what it has by this number: it counts from now on. Blocks.
    ///
    /// # Errors
    /// When that could not be made durable. Whether a start would believe the side nobody knows then, so nothing may be written that
    /// it lacks: whoever starts must not go on.
    pub fn filled(&self, side: Side, name: u64, reactor: &mut dyn Reactor) -> Result<(), IoError> {
        let mut counting = self.0.borrow().counting;
        counting.sides[side.at()] = Some(name);
        assert!(self.0.borrow().writing.is_none(), "one write at a time");
        self.0.borrow_mut().store.begin(counting);
        loop {
            let ended = self.0.borrow_mut().store.poll();
            if let Some(result) = ended {
                let state = &mut *self.0.borrow_mut();
                result?;
                state.counting = counting;
                state.in_service[side.at()] = true;
                state.status.set(state.in_service);
                return Ok(());
            }
            let soon_ns = reactor.now_ns() + 1_000_000;
            reactor.wait(self.0.borrow().store.next_ns().unwrap_or(soon_ns).min(soon_ns));
        }
    }

    /// Something could not be written there: the logs go on without it, if there is another.
    pub(super) fn failed(&self, now_ns: u64, side: Side) {
        let state = &mut *self.0.borrow_mut();
        if !state.in_service[side.at()] || !state.in_service[side.other().at()] {
            return;
        }
        state.in_service[side.at()] = false;
        state.status.set(state.in_service);
        match side {
            Side::Disk => tracing::error!(
                "the cache disk fails: the write-back logs go on from their mirror; replace the cache disk and restart"
            ),
            Side::Mirror => tracing::error!(
                "the mirror of the write-back logs fails: they go on from the cache disk; replace the mirror and restart"
            ),
        }
        Self::keep(state, now_ns);
    }

    fn keep(state: &mut State, now_ns: u64) {
        let wanted = state.wanted();
        if state.writing.is_none() && wanted != state.counting && now_ns >= state.retry_ns {
            state.writing = Some(wanted);
            state.store.begin(wanted);
        }
    }

    pub(super) fn poll(&self, now_ns: u64) {
        let state = &mut *self.0.borrow_mut();
        if state.writing.is_some()
            && let Some(result) = state.store.poll()
        {
            let written = state.writing.take();
            match (result, written) {
                (Ok(()), Some(written)) => state.counting = written,
                _ => state.retry_ns = now_ns + RETRY_NS,
            }
        }
        Self::keep(state, now_ns);
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let state = self.0.borrow();
        if state.writing.is_some() {
            return state.store.next_ns();
        }
        (state.wanted() != state.counting).then_some(state.retry_ns)
    }
}
