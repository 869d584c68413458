//! The ring: where on its part of the cache disk a volume's log puts the next group, and what is free.
//!
//! Positions are sectors of an endless log; position modulo size is the place. A group lies in one piece: what is left
//! before the ring's end is skipped if it is too short. The tail moves when the disk knows where it is: the room behind
//! it is then free.
//!
//! Invariant: `tail <= head <= tail + size`.

use core::ops::Range;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    size: u64,
    head: u64,
    tail: u64,
}

impl Ring {
    /// An empty ring of so many sectors, whose log goes on at that position.
    #[must_use]
    pub fn new(size: u64, at: u64) -> Self {
        assert!(size > 0, "a ring has sectors");
        Self { size, head: at, tail: at }
    }

    /// Positions in use, skipped ones among them.
    #[must_use]
    pub fn in_use(&self) -> Range<u64> {
        self.tail..self.head
    }

    /// Sectors in all.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where on the ring's part of the disk a position lies.
    #[must_use]
    pub fn place(&self, position: u64) -> u64 {
        position % self.size
    }

    /// Takes so many sectors in one piece: their first position. `None`: there is not so much free.
    pub fn take(&mut self, sectors: u64) -> Option<u64> {
        assert!(sectors > 0 && sectors <= self.size, "a group fits the ring");
        let to_end = self.size - self.place(self.head);
        let first = if sectors <= to_end { self.head } else { self.head + to_end };
        let tail = if self.head == self.tail { first } else { self.tail };
        if first + sectors > tail + self.size {
            return None;
        }
        (self.tail, self.head) = (tail, first + sectors);
        Some(first)
    }

    /// Nothing at the position and behind it was written.
    pub fn cut(&mut self, head: u64) {
        assert!((self.tail..=self.head).contains(&head), "the head is cut back, down to the tail");
        self.head = head;
    }

    /// Everything before the position is free.
    pub fn free(&mut self, before: u64) {
        assert!((self.tail..=self.head).contains(&before), "the tail moves forward, up to the head");
        self.tail = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_taken_lies_in_one_piece_and_never_over_what_is_in_use(
            size in 4..40u64,
            at in 0..100u64,
            steps in proptest::collection::vec((1..8u64, any::<bool>()), 1..100),
        ) {
            let mut ring = Ring::new(size, at);
            let mut used: VecDeque<Range<u64>> = VecDeque::new();
            for (sectors, frees) in steps {
                if let Some(oldest) = used.front().filter(|_| frees) {
                    ring.free(oldest.end);
                    used.pop_front();
                }
                let Some(first) = ring.take(sectors.min(size)) else {
                    prop_assert!(!used.is_empty(), "an empty ring has room for any group");
                    continue;
                };
                let taken = first..first + sectors.min(size);
                prop_assert!(ring.place(first) + sectors.min(size) <= size);
                for sector in taken.clone() {
                    let over = used.iter().flat_map(|it| it.clone()).any(|it| ring.place(it) == ring.place(sector));
                    prop_assert!(!over, "{taken:?} over {used:?}");
                }
                prop_assert!(used.back().is_none_or(|last| last.end <= first));
                used.push_back(taken);
            }
        }
    }
}
