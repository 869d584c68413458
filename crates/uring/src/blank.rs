//! Blank bytes: a range of a frame that another thread writes, for instance by receiving into it, and then reads.
//!
//! Why: what is passed on and kept would be copied otherwise, by another processor than the one that received it.
//!
//! How: [`Arena::lend_blank`] holds the range for writing and gives it out. Whoever has it writes it from its beginning on and splits off what is
//! written ([`Blank::split_to`], [`Blank::written`]), to be read on any thread. When all parts are gone, [`Filled`] goes back to the arena's thread
//! ([`Arena::take_back`]), which ends the hold.
//!
//! Invariants: parts never overlap, so that who writes one is alone with it; nobody else touches the range while it is held. Limit: one that
//! never comes back keeps its range held, and the memory mapped.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::arena::{Access, Arena, Hold};
use crate::mapping::Mapping;

/// Bytes of a frame, to be written. See the module.
#[derive(Debug)]
pub struct Blank {
    start: NonNull<u8>,
    bytes: usize,
    filled: Arc<Filled>,
}

/// Bytes that were written, to be read.
#[derive(Debug)]
pub struct Written {
    start: NonNull<u8>,
    bytes: usize,
    _filled: Arc<Filled>,
}

/// The right to the whole range, shared by its parts.
#[derive(Debug)]
pub struct Filled {
    hold: Hold,
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes are initialised (frames start as zeroes) and in the mapping, of which it has a share; it alone refers to them, since parts are
// disjoint, and the hold keeps others away until `take_back`, which wants all parts gone.
unsafe impl Send for Blank {}
// SAFETY: as above, and nobody writes them any more: several threads only read.
unsafe impl Send for Written {}
// SAFETY: as above.
unsafe impl Sync for Written {}

impl Blank {
    /// Splits off the first `bytes`, or all if there are fewer.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        let first = Self { start: self.start, bytes, filled: Arc::clone(&self.filled) };
        // SAFETY: `bytes` are at most what is left: the sum lies in the range, or at its end.
        self.start = unsafe { self.start.add(bytes) };
        self.bytes -= bytes;
        first
    }

    /// They are written.
    #[must_use]
    pub fn written(self) -> Written {
        Written { start: self.start, bytes: self.bytes, _filled: self.filled }
    }

    /// The right to the whole range, to be given back when all parts are gone.
    #[must_use]
    pub fn whole(&self) -> Arc<Filled> {
        Arc::clone(&self.filled)
    }
}

impl AsMut<[u8]> for Blank {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: see `Send`. The reference cannot outlive `self`, and so the hold; nobody shares bytes with it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see `Send`. The reference cannot outlive `self`, and so the hold.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Arena {
    /// Lends `len` bytes of the frame from byte `at` on, to be written. As with a hold, a conflict panics.
    pub fn lend_blank(&self, frame: u32, at: u32, len: u32) -> Blank {
        let start = self.checked(frame, at, len as usize, Access::Write);
        let hold = self.hold(frame, at, len, Access::Write);
        Blank { start, bytes: len as usize, filled: Arc::new(Filled { hold, _mapping: self.share() }) }
    }

    /// Takes back what was lent to be written.
    ///
    /// # Panics
    /// While there are parts of it.
    pub fn take_back(&self, filled: Arc<Filled>) {
        let filled = Arc::try_unwrap(filled).expect("parts of a frame are still in use");
        self.release(filled.hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_writes_and_others_read_what_it_has_written() {
        let arena = Arena::new(2, 4096).unwrap();
        let mut blank = arena.lend_blank(1, 10, 8);
        let whole = blank.whole();
        let (first, rest) = std::thread::spawn(move || {
            let mut first = blank.split_to(3);
            first.as_mut().copy_from_slice(b"abc");
            let first = first.written();
            blank.as_mut().copy_from_slice(b"defgh");
            assert_eq!(first.as_ref(), b"abc");
            (first, blank.split_to(100).written())
        })
        .join()
        .unwrap();
        assert_eq!((first.as_ref(), rest.as_ref()), (&b"abc"[..], &b"defgh"[..]));
        drop((first, rest));
        arena.take_back(whole);
        assert!(!arena.is_held(1));
        arena.with_bytes(1, 10, 8, |bytes| assert_eq!(bytes, b"abcdefgh"));
    }

    #[test]
    #[should_panic(expected = "held for Write")]
    fn what_is_lent_to_be_written_is_not_read() {
        let arena = Arena::new(1, 4096).unwrap();
        let _blank = arena.lend_blank(0, 0, 100);
        arena.copy_out(0, 99, &mut [0]);
    }

    #[test]
    #[should_panic(expected = "still in use")]
    fn it_is_given_back_whole() {
        let arena = Arena::new(1, 4096).unwrap();
        let mut blank = arena.lend_blank(0, 0, 100);
        let _part = blank.split_to(1);
        let whole = blank.whole();
        drop(blank);
        arena.take_back(whole);
    }
}
