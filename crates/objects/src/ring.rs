//! The ring of addresses that objects are given ranges of.
//!
//! Why: a page's key names a place, and a place must not name another object's bytes while pages of the first may be cached. So
//! addresses are given out in order, once; when they are used up, they begin again at 0, behind whoever cleans up.
//!
//! How: `head` is where the next range begins. From there to `clean` nothing is cached. Before the head may pass `clean` the
//! range behind it is to be cleaned: its objects forgotten, its pages evicted. [`Ring::to_clean`] says which, a step
//! ahead of need.
//!
//! An object that is smaller than a page takes whole blocks behind the one before, if the page has room for it: small objects share
//! a page. Others begin with a page, so that a range of 4 KiB lies in one.
//!
//! Invariants: two ranges given out do not overlap unless what lies between was cleaned. Positions only grow; the address is the
//! position in the ring.

use std::ops::Range;

/// What is cleaned at once: this part of the ring.
const STEPS: u64 = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: u64,
    page_bytes: u64,
    block_bytes: u64,
    /// Positions.
    head: u64,
    clean: u64,
}

impl Ring {
    /// Of so many bytes, all clean. A page is a multiple of a block; the ring of 64 steps of whole pages at least.
    ///
    /// # Panics
    /// When they are not.
    #[must_use]
    pub fn new(bytes: u64, page_bytes: u64, block_bytes: u64) -> Self {
        assert!(page_bytes.is_multiple_of(block_bytes) && block_bytes > 0, "pages are of whole blocks");
        assert!(bytes.is_multiple_of(page_bytes * STEPS) && bytes > 0, "a ring is of {STEPS} steps of whole pages");
        Self { bytes, page_bytes, block_bytes, head: 0, clean: bytes }
    }

    fn step_bytes(&self) -> u64 {
        self.bytes / STEPS
    }

    /// The longest range there is.
    #[must_use]
    pub fn range_bytes_max(&self) -> u64 {
        self.step_bytes()
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes given out since the beginning, what was left out between them included.
    #[must_use]
    pub fn given_bytes(&self) -> u64 {
        self.head
    }

    /// Bytes cleaned since the beginning.
    #[must_use]
    pub fn cleaned_bytes(&self) -> u64 {
        self.clean - self.bytes
    }

    /// A range for so many bytes, whole blocks; `None` while what lies there is not clean, or when it is too long.
    pub fn take(&mut self, bytes: u64) -> Option<Range<u64>> {
        let length = bytes.max(1).checked_next_multiple_of(self.block_bytes)?;
        if length > self.range_bytes_max() {
            return None;
        }
        let in_page = self.head % self.page_bytes;
        let shares = length < self.page_bytes && in_page + length <= self.page_bytes;
        let mut start = if shares { self.head } else { self.head.next_multiple_of(self.page_bytes) };
        // A range does not go around the end.
        if start % self.bytes + length > self.bytes {
            start = start.next_multiple_of(self.bytes);
        }
        if start + length > self.clean {
            return None;
        }
        self.head = start + length;
        let address = start % self.bytes;
        Some(address..address + length)
    }

    /// The addresses to be cleaned next, if it is time: until that is said to be done nothing of them is given out.
    #[must_use]
    pub fn to_clean(&self) -> Option<Range<u64>> {
        let step = self.step_bytes();
        // Two steps ahead: one is the longest range.
        let ahead = self.head + 2 * step > self.clean;
        let address = self.clean % self.bytes;
        // What is given out now stays: the whole ring behind the head is somebody's.
        (ahead && self.clean + step <= self.head.next_multiple_of(self.page_bytes) + self.bytes)
            .then_some(address..address + step)
    }

    /// What [`Self::to_clean`] said is clean.
    pub fn cleaned(&mut self) {
        self.clean += self.step_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 64;
    const BLOCK: u64 = 4;

    #[test]
    fn small_ranges_share_a_page_and_others_begin_with_one() {
        let mut ring = Ring::new(64 * 1024, PAGE, BLOCK);
        assert_eq!(ring.take(3), Some(0..4));
        assert_eq!(ring.take(40), Some(4..44));
        assert_eq!(ring.take(24), Some(64..88), "it does not fit the page");
        assert_eq!(ring.take(PAGE), Some(128..192));
        assert_eq!(ring.take(PAGE + 1), Some(192..260));
        assert_eq!(ring.take(0), Some(260..264));
        assert_eq!(ring.take(1025), None, "longer than a step");
        assert_eq!(ring.take(1024), Some(320..1344));
        assert_eq!((ring.bytes(), ring.given_bytes(), ring.cleaned_bytes()), (64 * 1024, 1344, 0));
    }

    proptest! {
        #[test]
        fn no_address_is_given_out_twice_before_it_was_cleaned(
            lengths in proptest::collection::vec(0..600u64, 1..2000),
            lazy in 1..8usize,
        ) {
            let mut ring = Ring::new(64 * 640, PAGE, BLOCK);
            let mut used: Vec<Range<u64>> = Vec::new();
            let (mut given, mut refused) = (0, 0);
            for (nth, length) in lengths.iter().enumerate() {
                if nth % lazy == 0 && let Some(range) = ring.to_clean() {
                    used.retain(|it| it.end <= range.start || range.end <= it.start);
                    ring.cleaned();
                }
                let Some(range) = ring.take(*length) else {
                    refused += 1;
                    continue;
                };
                given += 1;
                prop_assert!(range.end <= 64 * 640 && range.end - range.start >= *length);
                let overlaps = used.iter().any(|it| it.start < range.end && range.start < it.end);
                prop_assert!(!overlaps, "{range:?} is somebody's");
                used.push(range);
            }
            // Whoever cleans up each time is never refused.
            prop_assert!(lazy > 1 || refused == 0, "{refused} of {}", given + refused);
        }
    }
}
