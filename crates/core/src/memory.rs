//! The memory tier: frames, those that keep pages and those in transit.
//!
//! A frame is free, attached to a page (found by its key), or detached (its page has a newer frame or none, but the
//! kernel still reads or writes it). Pins count who still needs the bytes. An attached frame that is *kept* is in the
//! eviction policy's hands; one that is not kept is freed with its last pin.
//!
//! Invariants: the bytes of valid blocks of a pinned frame do not change; a free or detached frame is in no index and
//! no policy. Transit units bound the pinned frames, so that a request that holds its units always finds its frames:
//! everything unpinned can be evicted.

use crate::index::Index;
use crate::page::{BlockMask, FrameId, PageKey};
use alloc::vec;
use alloc::vec::Vec;
use forebay_policy::evict::{Evict, Links, Policy, PolicyKind, Removal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Attached { kept: bool },
    Detached,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    state: State,
    pins: u32,
    valid: BlockMask,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MemoryTier {
    index: Index,
    frames: Vec<Frame>,
    links: Links,
    policy: Policy,
    free: Vec<u32>,
    /// Transit units in all, and unreserved.
    transit_max: u32,
    transit_units: u32,
    /// Frames set aside, see [`Self::set_aside`]: of those that keep pages, and of transit.
    aside: u32,
    aside_units: u32,
    kept: u32,
    kept_max: u32,
}

impl MemoryTier {
    pub(crate) fn new(frames: u32, transit_frames: u32, policy: PolicyKind, seed: u64) -> Self {
        let kept_max = frames - transit_frames;
        let blank = Frame { state: State::Free, pins: 0, valid: 0 };
        Self {
            index: Index::new(frames),
            frames: vec![blank; frames as usize],
            links: Links::new(frames),
            policy: Policy::new(policy, u64::from(kept_max), frames, seed),
            free: (0..frames).rev().collect(),
            transit_max: transit_frames,
            transit_units: transit_frames,
            aside: 0,
            aside_units: 0,
            kept: 0,
            kept_max,
        }
    }

    /// Pages kept.
    pub(crate) fn pages(&self) -> u32 {
        self.kept
    }

    /// Pages that can be kept.
    pub(crate) fn pages_max(&self) -> u32 {
        self.kept_max
    }

    /// Takes transit units, or none. Those who need fresh frames leave a quarter to [`Self::reserve_for_hit`].
    pub(crate) fn reserve(&mut self, units: u32) -> bool {
        self.take_units(units, self.transit_max / 4)
    }

    /// Takes a unit for a page that is in memory: hits go on while everybody else waits for a back end.
    pub(crate) fn reserve_for_hit(&mut self) -> bool {
        self.take_units(1, 0)
    }

    fn take_units(&mut self, units: u32, leave: u32) -> bool {
        if self.transit_units < units + leave {
            return false;
        }
        self.transit_units -= units;
        true
    }

    pub(crate) fn unreserve(&mut self, units: u32) {
        self.transit_units += units;
        assert!(self.transit_units <= self.transit_max, "more transit units came back than went out");
    }

    /// Sets frames aside for what is not a request's: stores, and what a silent disk may still write. All or none: at
    /// most half of those that keep pages, then half of the transit units. To be given back by [`Self::give_back`].
    pub(crate) fn set_aside(&mut self, frames: u32) -> bool {
        if self.aside + frames > self.kept_max / 2 {
            let taken = self.take_units(frames, self.transit_max / 2);
            self.aside_units += if taken { frames } else { 0 };
            return taken;
        }
        self.aside += frames;
        while self.kept > self.kept_max - self.aside {
            // None can be evicted while all are pinned; allocation is safe, since pinned ones count against transit.
            let Some(victim) = self.victim() else { break };
            self.evict(victim);
        }
        true
    }

    /// One frame less is set aside.
    pub(crate) fn give_back(&mut self) {
        if self.aside_units > 0 {
            self.aside_units -= 1;
            self.unreserve(1);
        } else {
            self.aside -= 1;
        }
    }

    pub(crate) fn lookup(&self, key: PageKey) -> Option<FrameId> {
        self.index.lookup(key).map(FrameId)
    }

    /// The page that a frame is attached to.
    pub(crate) fn key(&self, frame: FrameId) -> Option<PageKey> {
        self.index.key(frame.0)
    }

    pub(crate) fn valid(&self, frame: FrameId) -> BlockMask {
        self.frames[frame.index()].valid
    }

    pub(crate) fn add_valid(&mut self, frame: FrameId, blocks: BlockMask) {
        self.frames[frame.index()].valid |= blocks;
    }

    pub(crate) fn drop_valid(&mut self, frame: FrameId, blocks: BlockMask) {
        self.frames[frame.index()].valid &= !blocks;
    }

    pub(crate) fn is_pinned(&self, frame: FrameId) -> bool {
        self.frames[frame.index()].pins > 0
    }

    pub(crate) fn pin(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame.index()];
        assert!(f.state != State::Free, "frame {} is pinned while free", frame.0);
        f.pins += 1;
    }

    /// Ends a pin; the last one frees a frame that nothing else keeps.
    pub(crate) fn unpin(&mut self, frame: FrameId) {
        let f = &mut self.frames[frame.index()];
        f.pins = f.pins.checked_sub(1).expect("a frame is unpinned once a pin");
        if f.pins > 0 {
            return;
        }
        match f.state {
            State::Detached => self.release(frame),
            State::Attached { kept: false } => {
                self.index.remove(frame.0);
                self.release(frame);
            }
            State::Attached { kept: true } => {}
            State::Free => panic!("frame {} was pinned while free", frame.0),
        }
    }

    fn release(&mut self, frame: FrameId) {
        self.frames[frame.index()] = Frame { state: State::Free, pins: 0, valid: 0 };
        self.free.push(frame.0);
    }

    /// A frame without page, pinned once. The caller holds a transit unit, so there is one.
    pub(crate) fn allocate(&mut self) -> FrameId {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                let victim = self.victim().expect("pinned frames are bounded by the transit units");
                self.evict(victim);
                self.free.pop().expect("the victim was freed")
            }
        };
        self.frames[frame as usize] = Frame { state: State::Detached, pins: 1, valid: 0 };
        FrameId(frame)
    }

    fn victim(&mut self) -> Option<FrameId> {
        let frames = &self.frames;
        let named = self.policy.victim(&mut self.links, |f| frames[f as usize].pins > 0);
        named.map(FrameId).or_else(|| {
            // The policy looks at a bounded number of entries; pinned ones may have hidden the rest.
            let kept = State::Attached { kept: true };
            (0u32..).zip(frames).find(|(_, f)| f.state == kept && f.pins == 0).map(|(f, _)| FrameId(f))
        })
    }

    /// Gives the page, which has no frame, this detached frame.
    pub(crate) fn attach(&mut self, frame: FrameId, key: PageKey) {
        let f = &mut self.frames[frame.index()];
        assert!(f.state == State::Detached, "frame {} has a page already", frame.0);
        f.state = State::Attached { kept: false };
        self.index.insert(frame.0, key);
    }

    /// Takes the frame from its page. It lives on while pinned.
    pub(crate) fn detach(&mut self, frame: FrameId) {
        self.forget(frame, Removal::Invalidated);
    }

    fn evict(&mut self, frame: FrameId) {
        let key = self.index.key(frame.0).expect("a victim has a page");
        self.forget(frame, Removal::Evicted { key_hash: key.hash() });
    }

    fn forget(&mut self, frame: FrameId, removal: Removal) {
        self.index.remove(frame.0);
        if self.frames[frame.index()].state == (State::Attached { kept: true }) {
            self.policy.removed(&mut self.links, frame.0, removal);
            self.kept -= 1;
        }
        self.frames[frame.index()].state = State::Detached;
        if self.frames[frame.index()].pins == 0 {
            self.release(frame);
        }
    }

    /// Hands an attached frame to the eviction policy, making room if need be.
    pub(crate) fn keep(&mut self, frame: FrameId) {
        if self.kept_max <= self.aside || self.frames[frame.index()].state != (State::Attached { kept: false }) {
            return;
        }
        if self.kept + self.aside >= self.kept_max {
            let Some(victim) = self.victim() else { return };
            self.evict(victim);
        }
        let key = self.index.key(frame.0).expect("an attached frame has a page");
        self.frames[frame.index()].state = State::Attached { kept: true };
        self.policy.inserted(&mut self.links, frame.0, key.hash(), 1);
        self.kept += 1;
    }

    /// A page was used.
    pub(crate) fn touch(&mut self, frame: FrameId) {
        if self.frames[frame.index()].state == (State::Attached { kept: true }) {
            self.policy.hit(&mut self.links, frame.0);
        }
    }
}
