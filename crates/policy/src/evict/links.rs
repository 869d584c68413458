//! The slot pool's links: 12 bytes a slot, shared by every eviction policy over the pool.
//!
//! An eviction policy needs an order over the cached pages. Lists with nodes of their own cost an
//! allocation and a pointer chase a page; here a slot *is* its node. Each slot has two indices and one
//! word that its policy owns. A slot belongs to at most one policy instance at a time, so any number of
//! instances (one a tenant, one a tier) live over one pool at no cost in links.
//!
//! A slot's word holds the entry's weight (24 bits) and 8 bits that mean what the policy wants. A weight
//! is at least 1, so a word of 0 says that the slot is free; a new pool is all zeroes and its memory is
//! touched only as slots are used, which matters at 16 million pages (192 MiB).
//!
//! Invariants: a free slot has word 0; a slot in a list is reachable from the list's head by `next`
//! and from its tail by `prev`. `prev` leads to the newer neighbour, `next` to the older.

use alloc::vec::Vec;

/// The index that stands for no slot.
pub(crate) const NIL: u32 = u32::MAX;

/// The largest weight of one entry.
pub const WEIGHT_MAX: u32 = (1 << 24) - 1;

const PREV: usize = 0;
const NEXT: usize = 1;
const WORD: usize = 2;

/// Bytes of links a slot.
pub const LINK_BYTES: usize = size_of::<[u32; 3]>();

/// The links of one pool of slots.
#[derive(Debug)]
pub struct Links {
    // Arrays, not a struct: the allocator hands out zeroed arrays without touching them.
    slots: Vec<[u32; 3]>,
}

impl Links {
    /// Links for slots `0..slots`, all free.
    ///
    /// # Panics
    /// When `slots` is `u32::MAX`.
    pub fn new(slots: u32) -> Self {
        assert!(slots < NIL, "slot {NIL} stands for none");
        Self { slots: alloc::vec![[0; 3]; slots as usize] }
    }

    /// Slots in the pool.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether some policy instance holds `slot`.
    #[inline]
    pub fn is_held(&self, slot: u32) -> bool {
        self.word(slot) != 0
    }

    /// Marks a free slot as held, with its weight and the policy's own 8 bits.
    #[inline]
    pub(crate) fn hold(&mut self, slot: u32, weight: u32, mark: u8) {
        assert!((1..=WEIGHT_MAX).contains(&weight), "slot {slot}: weight {weight} is not in 1..={WEIGHT_MAX}");
        let word = &mut self.slots[slot as usize][WORD];
        assert!(*word == 0, "slot {slot} is inserted while it is held");
        *word = weight << 8 | u32::from(mark);
    }

    /// Marks a held slot as free.
    #[inline]
    pub(crate) fn free(&mut self, slot: u32) {
        self.slots[slot as usize][WORD] = 0;
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> u32 {
        self.slots[slot as usize][WORD]
    }

    /// The weight of a held slot.
    #[inline]
    pub(crate) fn weight(&self, slot: u32) -> u32 {
        let word = self.word(slot);
        assert!(word != 0, "slot {slot} is used while it is free");
        word >> 8
    }

    /// The policy's own 8 bits of a held slot.
    #[inline]
    pub(crate) fn mark(&self, slot: u32) -> u8 {
        self.word(slot) as u8
    }

    #[inline]
    pub(crate) fn set_mark(&mut self, slot: u32, mark: u8) {
        let word = &mut self.slots[slot as usize][WORD];
        *word = *word & !0xff | u32::from(mark);
    }

    #[inline]
    pub(crate) fn prev(&self, slot: u32) -> u32 {
        self.slots[slot as usize][PREV]
    }

    #[inline]
    pub(crate) fn next(&self, slot: u32) -> u32 {
        self.slots[slot as usize][NEXT]
    }

    #[inline]
    pub(crate) fn set_prev(&mut self, slot: u32, prev: u32) {
        self.slots[slot as usize][PREV] = prev;
    }

    #[inline]
    pub(crate) fn set_next(&mut self, slot: u32, next: u32) {
        self.slots[slot as usize][NEXT] = next;
    }
}

/// A doubly linked list of slots, newest at the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The oldest slot, or `NIL`.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    #[inline]
    pub(crate) fn push_head(&mut self, links: &mut Links, slot: u32) {
        links.set_prev(slot, NIL);
        links.set_next(slot, self.head);
        match self.head {
            NIL => self.tail = slot,
            head => links.set_prev(head, slot),
        }
        self.head = slot;
    }

    #[inline]
    pub(crate) fn unlink(&mut self, links: &mut Links, slot: u32) {
        let (prev, next) = (links.prev(slot), links.next(slot));
        match prev {
            NIL => {
                assert!(self.head == slot, "slot {slot} is not in this list");
                self.head = next;
            }
            newer => links.set_next(newer, next),
        }
        match next {
            NIL => {
                assert!(self.tail == slot, "slot {slot} is not in this list");
                self.tail = prev;
            }
            older => links.set_prev(older, prev),
        }
    }

    #[inline]
    pub(crate) fn move_to_head(&mut self, links: &mut Links, slot: u32) {
        if self.head != slot {
            self.unlink(links, slot);
            self.push_head(links, slot);
        }
    }

    /// The oldest slot that is not busy, at most `skips` busy ones on; what is left of `skips` stays in it.
    #[inline]
    pub(crate) fn oldest_idle(
        &self,
        links: &Links,
        skips: &mut u32,
        busy: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut slot = self.tail;
        while slot != NIL {
            if !busy(slot) {
                return Some(slot);
            }
            *skips = skips.checked_sub(1)?;
            slot = links.prev(slot);
        }
        None
    }
}
