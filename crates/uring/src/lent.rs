//! Lent bytes: a range of a frame that another thread reads, for instance to send it.
//!
//! Why: what a hit sends is the frame itself. A front end whose protocol a library speaks, on threads of its own, would have to
//! copy every byte otherwise.
//!
//! How: [`Arena::lend`] holds the range for reading and gives it out with a share of the mapping. Whoever has it sees the bytes, on any
//! thread. It is to come back to the arena's thread ([`Arena::give_back`]), which ends the hold.
//!
//! Invariant: while it is lent nobody writes the range: the hold makes that panic. Limit: one that never comes back keeps its range
//! held, and the memory mapped.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::arena::{Access, Arena, Hold};
use crate::mapping::Mapping;

/// Bytes of a frame, to be read. See the module.
#[must_use = "a range that is not given back stays held"]
#[derive(Debug)]
pub struct Lent {
    start: NonNull<u8>,
    bytes: usize,
    hold: Hold,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes are initialised and in the mapping, of which it has a share, and nobody writes them while the hold lasts, which
// ends only when the value is given back and so gone.
unsafe impl Send for Lent {}
// SAFETY: as above: several threads only read.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see `Send`. The reference cannot outlive `self`, and so the hold.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Arena {
    /// Lends `len` bytes of the frame from byte `at` on. As with a hold, a conflict panics.
    pub fn lend(&self, frame: u32, at: u32, len: u32) -> Lent {
        let start = self.checked(frame, at, len as usize, Access::Read);
        let hold = self.hold(frame, at, len, Access::Read);
        Lent { start, bytes: len as usize, hold, _mapping: self.share() }
    }

    /// Takes back what was lent.
    pub fn give_back(&self, lent: Lent) {
        self.release(lent.hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_reads_what_was_lent_and_outlives_the_arena() {
        let arena = Arena::new(2, 4096).unwrap();
        arena.copy_in(1, 10, b"hello");
        let lent = arena.lend(1, 10, 5);
        let (lent, told) = std::thread::spawn(move || {
            let told = lent.as_ref().to_vec();
            (lent, told)
        })
        .join()
        .unwrap();
        assert_eq!(told, b"hello");
        assert!(arena.is_held(1));
        arena.give_back(lent);
        assert!(!arena.is_held(1));
        let last = arena.lend(1, 12, 2);
        drop(arena);
        assert_eq!(last.as_ref(), b"ll");
    }

    #[test]
    #[should_panic(expected = "held for Read")]
    fn what_is_lent_is_not_written() {
        let arena = Arena::new(1, 4096).unwrap();
        let _lent = arena.lend(0, 0, 100);
        arena.copy_in(0, 99, b"x");
    }

    #[test]
    #[should_panic(expected = "a hold of another arena")]
    fn it_is_given_back_where_it_came_from() {
        let (arena, other) = (Arena::new(1, 4096).unwrap(), Arena::new(1, 4096).unwrap());
        other.give_back(arena.lend(0, 0, 100));
    }
}
