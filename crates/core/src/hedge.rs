//! Hedging: what a slow slot does not bring is read from the back end too, and the first good answer wins.
//!
//! A hit on the cache disk must not take longer than a miss for long. Yet the disk may only be slow, and the back end
//! gone: so the slot's answer counts to the end.
//!
//! 1. `watch` ([`crate::read`]) finds a slot read that is late. The part's unanswered blocks are read from the back end into a
//!    second frame (`hedge`). A part is hedged once.
//! 2. The first side that has all its blocks wins. If it is the slot's, the part is answered from its own frame. If it is
//!    the back end's, the second frame takes the place of the first, in the page too; the bytes that were there are
//!    copied.
//! 3. What the loser is still asked for becomes an orphan: it holds the loser's frame, which the device may write at any
//!    time, until the device answers.
//! 4. A side that fails leaves it to the other. The read fails when both have. A disk that was given up counts as failed.
//!
//! Invariants: a frame that an order may still write is in no page once its part has ended; a hedge's budget of silent
//! frames covers the orders of either loser.
//! Limits: with the budget used up, late reads wait for their slots. Rejected: hedging block by block (a part has one
//! frame, and one answer).

use crate::action::{Action, Actions};
use crate::cache::{Cache, DiskState};
use crate::op::Role;
use crate::page::{BLOCK_BYTES, BlockMask, FrameId, runs};
use crate::request::{Hedge, PartId};

impl Cache {
    /// Whether something can be done about a slot read of the part that takes too long.
    pub(crate) fn can_help_late_slot(&self, id: PartId) -> bool {
        let part = self.requests.part(id);
        !part.hedged || (part.hedge.is_none() && self.disk_state != DiskState::Attached)
    }

    /// Does it. False, and nothing done, if too many frames are in silent hands already.
    pub(crate) fn help_late_slot(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) -> bool {
        let part = *self.requests.part(id);
        if !self.memory.set_aside(u32::from(part.ops_left)) {
            return false;
        }
        let blocks = self.unanswered(id);
        if part.hedged {
            self.give_up_slot(now_ns, id, blocks, actions);
        } else {
            self.hedge(now_ns, id, blocks, part.ops_left, actions);
        }
        true
    }

    /// Blocks that the part waits for.
    fn unanswered(&self, id: PartId) -> BlockMask {
        let fetches = self.ops.iter().filter_map(|(_, op)| fetch_of(op.role, id));
        fetches.fold(0, |all, (blocks, _)| all | blocks)
    }

    /// Asks the slot for what the back end is late with. False, and nothing done, as above.
    pub(crate) fn hedge_from_slot(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) -> bool {
        let part = *self.requests.part(id);
        if !self.memory.set_aside(u32::from(part.ops_left)) {
            return false;
        }
        let blocks = self.unanswered(id);
        let frame = self.memory.allocate();
        let orders_left = self.order_slot_hedge(now_ns, id, frame, blocks, actions);
        self.hedge_begun(id, Hedge { frame, blocks, orders_left, reserved: part.ops_left });
        true
    }

    /// Asks the back end for what the part still waits for, into a second frame.
    fn hedge(&mut self, now_ns: u64, id: PartId, blocks: BlockMask, reserved: u16, actions: &mut Actions) {
        let frame = self.memory.allocate();
        let orders_left = self.order_backend_reads(now_ns, id, frame, blocks, |_| Role::Hedge { part: id }, actions);
        self.hedge_begun(id, Hedge { frame, blocks, orders_left, reserved });
    }

    fn hedge_begun(&mut self, id: PartId, hedge: Hedge) {
        assert!(0 < hedge.orders_left && hedge.orders_left <= hedge.reserved, "a hedge has its part's runs at most");
        let part = self.requests.part_mut(id);
        part.hedged = true;
        part.hedge = Some(hedge);
        let volume = self.requests.get(id.request()).volume;
        self.stats.volumes[volume.index()].hedged += 1;
    }

    /// The back end answered an order of the part's hedge.
    pub(crate) fn hedge_answered(&mut self, now_ns: u64, id: PartId, is_good: bool, actions: &mut Actions) {
        let hedge = self.requests.part_mut(id).hedge.as_mut().expect("an order of a hedge has its hedge");
        hedge.orders_left -= 1;
        if !is_good {
            self.drop_hedge(id);
        } else if hedge.orders_left > 0 {
            return;
        } else {
            self.take_hedge(id, actions);
        }
        if self.requests.part(id).ops_left == 0 {
            self.finish_fetch(now_ns, id, actions);
        }
    }

    /// The hedge, if there is one, lost.
    pub(crate) fn drop_hedge(&mut self, id: PartId) {
        let Some(hedge) = self.requests.part_mut(id).hedge.take() else { return };
        let orphans = self.orphan(hedge.frame, |role| match role {
            Role::Hedge { part } if part == id => Some(false),
            Role::HedgeSlot { part, .. } if part == id => Some(true),
            _ => None,
        });
        assert_eq!(orphans, hedge.orders_left, "a hedge's orders have their records");
        self.release_orphans(hedge.reserved - orphans);
        self.memory.unpin(hedge.frame);
    }

    /// The hedge won: its frame takes the place of the one that the slot may still write.
    fn take_hedge(&mut self, id: PartId, actions: &mut Actions) {
        let hedge = self.requests.part_mut(id).hedge.take().expect("what wins is there");
        let part = *self.requests.part(id);
        let (old, new, blocks) = (self.frame_of(id), hedge.frame, hedge.blocks);
        let orphans = self.orphan_fetches(id, old);
        self.release_orphans(hedge.reserved - orphans);
        let was_attached = self.memory.key(old) == Some(part.key);
        let valid = (self.memory.valid(old) | (part.fetch & !part.failed)) & !blocks;
        // What the part asked for was there when it began, even if a write has dropped it from the page since.
        let there = valid | (part.blocks() & !part.fetch);
        for (first, count) in runs(there) {
            let (at, length) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
            actions.push(Action::Copy { from: old, to: new, at, length });
        }
        if was_attached {
            self.memory.detach(old);
            self.memory.attach(new, part.key);
            self.memory.add_valid(new, valid);
        }
        self.requests.set_frame(id, new);
        self.memory.unpin(old);
        // What the slot still has is not stored again.
        let in_slot = self.slot_of(part.key).map_or(0, |slot| self.disk.valid(slot));
        let part = self.requests.part_mut(id);
        part.failed &= !blocks;
        part.from_backend |= blocks & !in_slot;
    }

    /// Both sides have failed: the back end said no, and the disk was given up before it answered.
    fn give_up_slot(&mut self, now_ns: u64, id: PartId, blocks: BlockMask, actions: &mut Actions) {
        let frame = self.frame_of(id);
        self.orphan_fetches(id, frame);
        if self.memory.key(frame) == Some(self.requests.part(id).key) {
            self.memory.detach(frame);
        }
        self.requests.part_mut(id).failed |= blocks;
        self.finish_fetch(now_ns, id, actions);
    }

    /// Cuts every unanswered fetch of the part loose from it. How many.
    fn orphan_fetches(&mut self, id: PartId, frame: FrameId) -> u16 {
        let orphans = self.orphan(frame, |role| fetch_of(role, id).map(|(_, slot)| slot));
        let part = self.requests.part_mut(id);
        assert_eq!(orphans, part.ops_left, "a part's orders have their records");
        part.ops_left = 0;
        orphans
    }

    /// Makes orphans of the orders that `which` picks (and says whether the slot is to answer); each holds the frame by
    /// itself now. How many.
    fn orphan(&mut self, frame: FrameId, which: impl Fn(Role) -> Option<bool>) -> u16 {
        let mut orphans = 0;
        loop {
            let found = self.ops.iter().find_map(|(op, record)| Some((op, which(record.role)?)));
            let Some((op, slot)) = found else { return orphans };

            self.memory.pin(frame);
            self.ops.set_role(op, Role::Orphan { slot });
            orphans += 1;
        }
    }

    fn release_orphans(&mut self, orphans: u16) {
        for _ in 0..orphans {
            self.memory.give_back();
        }
    }
}

/// The blocks that an order fetches into the part's own frame, and whether from the slot.
fn fetch_of(role: Role, id: PartId) -> Option<(BlockMask, bool)> {
    match role {
        Role::FetchSlot { part, blocks, .. } if part == id => Some((blocks, true)),
        Role::FetchBackend { part, blocks } | Role::FetchSplit { part, blocks, .. } if part == id => {
            Some((blocks, false))
        }
        _ => None,
    }
}
