//! Frames: one block of anonymous memory that user code and the kernel share safely.
//!
//! Why: every payload byte is received into, read into, written from and sent from the same memory,
//! so a hit costs no copy. The memory must then be readable by the kernel while user code goes on,
//! and Rust's rules say that nobody may hold a reference to bytes that the kernel writes.
//!
//! How: the arena hands out no references that outlive a call. Bytes go in and out by copy, or by a
//! closure that borrows them for its own duration. For each range that the kernel uses there is a
//! [`Hold`]: shared when the kernel reads it (a send, a write to disk), exclusive when the kernel
//! writes it (a receive, a read from disk). Holds of a frame are kept in two short lists, and every
//! access compares itself with them:
//!
//! | access | must not overlap |
//! |---|---|
//! | `copy_out`, `with_bytes`, a kernel read | exclusive holds |
//! | `copy_in`, `fill_zero`, `with_bytes_mut`, a kernel write | exclusive and shared holds |
//!
//! Disjoint ranges of one frame never conflict: the kernel may fill block 3 while block 7 is sent.
//! A frame without holds costs one load to check. The borrow of a closure is a hold, too, so a
//! closure that reaches back into the arena is checked like anyone else.
//!
//! Invariants: a conflict is a bug of the caller and panics, in release builds too; it is what the
//! soundness of the unsafe blocks here rests on. Frames start as zeroes.
//!
//! A copy or a borrow stays within one frame, so that an offset gone wrong cannot reach a
//! neighbour. A hold, and so a transfer by the kernel, may run on into the frames behind, for
//! transfers longer than a frame into frames that were taken side by side.
//!
//! Limits: one frame size an arena (make a second arena for another size); one thread.
//! The memory is committed as it is first touched, or ahead of that ([`Arena::populate`]); huge pages are
//! asked for, not required.

use std::cell::{Cell, OnceCell, RefCell};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::mapping::Mapping;
use crate::populate::Populating;

/// The alignment of a frame: the largest logical block size that direct I/O asks for, and a page of
/// memory on most machines.
const FRAME_ALIGN_BYTES: u32 = 4096;
/// End of a list.
const NONE: u32 = u32::MAX;
/// Holds for which there is room from the start, so that the hit path does not allocate.
const HOLDS_AT_START: usize = 4096;

/// Source of arena identities, so that a hold cannot be released in another arena.
static NEXT_ID: AtomicU32 = AtomicU32::new(0);

/// What the holder of a range does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it: others may read it too.
    Read,
    /// Writes it: nobody else may touch it.
    Write,
}

/// A range in use. Given back by [`Arena::release`]; one that is lost keeps its range held for the
/// life of the arena.
#[must_use = "a lost hold keeps its range held for ever"]
#[derive(Debug)]
pub struct Hold {
    arena: u32,
    node: u32,
}

/// The part of a held range that lies in one frame, linked into the frame's list for its kind of
/// access.
#[derive(Clone, Copy)]
struct Node {
    frame: u32,
    at: u32,
    end: u32,
    access: Access,
    previous: u32,
    next: u32,
    /// The node of the same hold in the frame before; `NONE` in the hold's first frame.
    before: u32,
}

/// The first holds of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Heads {
    reads: u32,
    writes: u32,
}

impl Heads {
    fn first(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }
}

const NO_HOLDS: Heads = Heads { reads: NONE, writes: NONE };

/// Equal frames in one mapping, addressed by index. See the module's table for what may overlap.
///
/// Every method panics if the frame does not exist, if the range leaves the frame (for a hold: the
/// arena), or if it conflicts with a hold.
pub struct Arena {
    mapping: Arc<Mapping>,
    frames: u32,
    frame_bytes: u32,
    id: u32,
    heads: Box<[Cell<Heads>]>,
    nodes: RefCell<Vec<Node>>,
    free: Cell<u32>,
    populating: OnceCell<Populating>,
}

impl Arena {
    /// Maps `frames` frames of `frame_bytes` each (a multiple of 4096), all zeroes.
    ///
    /// Errors: [`crate::ErrorKind::Limit`] if the kernel refuses that much address space.
    pub fn new(frames: u32, frame_bytes: u32) -> Result<Self, Error> {
        assert!(frames > 0 && frame_bytes > 0, "an arena without memory");
        assert!(frame_bytes.is_multiple_of(FRAME_ALIGN_BYTES), "a frame of {frame_bytes} bytes is not aligned");
        let bytes = frames as usize * frame_bytes as usize;
        let mapping = Arc::new(Mapping::new(bytes)?);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        assert!(id != u32::MAX, "arena identities are used up");
        Ok(Arena {
            mapping,
            frames,
            frame_bytes,
            id,
            heads: vec![Cell::new(NO_HOLDS); frames as usize].into_boxed_slice(),
            nodes: RefCell::new(Vec::with_capacity(HOLDS_AT_START)),
            free: Cell::new(NONE),
            populating: OnceCell::new(),
        })
    }

    /// Begins to commit all memory, on a thread of its own that ends with its work or with the arena.
    pub fn populate(&self) {
        let bytes = self.frames as usize * self.frame_bytes as usize;
        // SAFETY: the mapping made by `new`; `drop` ends the thread before it gives its share back.
        self.populating.get_or_init(|| unsafe { Populating::start(self.mapping.base().cast(), bytes) });
    }

    /// Whether memory up to the end of that frame is committed, as far as [`Self::populate`] will do it.
    pub(crate) fn is_populated(&self, frame: u32) -> bool {
        let end = (frame as usize + 1) * self.frame_bytes as usize;
        self.populating.get().is_none_or(|populating| populating.covers(end))
    }

    /// A share of its memory.
    pub(crate) fn share(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }

    /// Frames of this arena; valid indices are below it.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of one frame.
    #[must_use]
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Copies `bytes` into the frame from byte `at` on.
    pub fn copy_in(&self, frame: u32, at: u32, bytes: &[u8]) {
        let to = self.checked(frame, at, bytes.len(), Access::Write);
        // SAFETY: `checked` gave a range of `bytes.len()` bytes in the mapping that neither the
        // kernel nor a closure uses; so `bytes`, if it borrows from this arena, does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Fills `bytes` from the frame from byte `at` on.
    pub fn copy_out(&self, frame: u32, at: u32, bytes: &mut [u8]) {
        let from = self.checked(frame, at, bytes.len(), Access::Read);
        // SAFETY: `checked` gave an initialised range of `bytes.len()` bytes that nobody writes;
        // `bytes`, if it borrows from this arena, holds its range for writing, so cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes from one place to another, in the same frame or not. The two ranges may
    /// overlap.
    pub fn copy_between(&self, from: u32, from_at: u32, to: u32, to_at: u32, len: u32) {
        let source = self.checked(from, from_at, len as usize, Access::Read);
        let target = self.checked(to, to_at, len as usize, Access::Write);
        // SAFETY: both ranges lie in the mapping; nobody writes the source, nobody uses the target.
        unsafe { std::ptr::copy(source.as_ptr(), target.as_ptr(), len as usize) }
    }

    /// Sets `len` bytes from byte `at` on to zero.
    pub fn fill_zero(&self, frame: u32, at: u32, len: u32) {
        let target = self.checked(frame, at, len as usize, Access::Write);
        // SAFETY: the range lies in the mapping and nobody uses it.
        unsafe { std::ptr::write_bytes(target.as_ptr(), 0, len as usize) }
    }

    /// Calls `f` with `len` bytes of the frame from byte `at` on.
    pub fn with_bytes<R>(&self, frame: u32, at: u32, len: u32, f: impl FnOnce(&[u8]) -> R) -> R {
        let borrow = Borrow::new(self, frame, at, len, Access::Read);
        // SAFETY: the borrow checked that nobody writes the range, and its hold keeps it so until
        // it is dropped, after `f`.
        let bytes = unsafe { slice::from_raw_parts(self.pointer(frame, at), len as usize) };
        let result = f(bytes);
        drop(borrow);
        result
    }

    /// Calls `f` with `len` bytes of the frame from byte `at` on, to change them.
    pub fn with_bytes_mut<R>(&self, frame: u32, at: u32, len: u32, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let borrow = Borrow::new(self, frame, at, len, Access::Write);
        // SAFETY: the borrow checked that nobody uses the range, and its hold keeps it so until it
        // is dropped, after `f`.
        let bytes = unsafe { slice::from_raw_parts_mut(self.pointer(frame, at), len as usize) };
        let result = f(bytes);
        drop(borrow);
        result
    }

    /// Holds a range for somebody who will read or write it from outside: the kernel, or a model of
    /// a device. Conflicts panic now rather than corrupt later.
    pub fn hold(&self, frame: u32, at: u32, len: u32, access: Access) -> Hold {
        self.checked_span(frame, at, len, access);
        let mut node = NONE;
        self.each_part(frame, at, len, |frame, at, end| {
            node = self.link(Node { frame, at, end, access, previous: NONE, next: NONE, before: node });
        });
        Hold { arena: self.id, node }
    }

    /// Ends a hold.
    pub fn release(&self, hold: Hold) {
        assert!(hold.arena == self.id, "a hold of another arena");
        let mut node = hold.node;
        while node != NONE {
            node = self.unlink(node);
        }
    }

    /// Puts a node into its frame's list and returns its index.
    fn link(&self, mut node: Node) -> u32 {
        let head = &self.heads[node.frame as usize];
        let mut heads = head.get();
        let first = heads.first(node.access);
        node.next = *first;
        let mut nodes = self.nodes.borrow_mut();
        let index = match self.free.get() {
            NONE => {
                nodes.push(node);
                nodes.len() as u32 - 1
            }
            index => {
                self.free.set(nodes[index as usize].next);
                nodes[index as usize] = node;
                index
            }
        };
        if node.next != NONE {
            nodes[node.next as usize].previous = index;
        }
        *first = index;
        head.set(heads);
        index
    }

    /// Takes a node out of its frame's list and returns the node before it in the same hold.
    fn unlink(&self, index: u32) -> u32 {
        let mut nodes = self.nodes.borrow_mut();
        let node = nodes[index as usize];
        if node.next != NONE {
            nodes[node.next as usize].previous = node.previous;
        }
        if node.previous != NONE {
            nodes[node.previous as usize].next = node.next;
        } else {
            let head = &self.heads[node.frame as usize];
            let mut heads = head.get();
            *heads.first(node.access) = node.next;
            head.set(heads);
        }
        nodes[index as usize].next = self.free.get();
        self.free.set(index);
        node.before
    }

    /// Whether any range of the frame is held: by the kernel, or by a closure that is running.
    #[must_use]
    pub fn is_held(&self, frame: u32) -> bool {
        self.heads[frame as usize].get() != NO_HOLDS
    }

    /// Where the range begins, after checking that it lies in the frame and conflicts with no hold.
    #[inline]
    pub(crate) fn checked(&self, frame: u32, at: u32, len: usize, access: Access) -> NonNull<u8> {
        let end = at as usize + len;
        assert!(frame < self.frames, "frame {frame} of {}", self.frames);
        assert!(end <= self.frame_bytes as usize, "bytes {at}..{end} of a frame of {}", self.frame_bytes);
        self.check(frame, at, end as u32, access);
        NonNull::new(self.pointer(frame, at)).expect("inside a mapping")
    }

    /// Compares bytes `at..end` of one frame with its holds.
    #[inline]
    fn check(&self, frame: u32, at: u32, end: u32, access: Access) {
        let heads = self.heads[frame as usize].get();
        if heads != NO_HOLDS {
            self.assert_free_of(heads.writes, at, end, access);
            if access == Access::Write {
                self.assert_free_of(heads.reads, at, end, access);
            }
        }
    }

    /// Where the range begins, after checking that it lies in the arena and that no frame it spans
    /// has a conflicting hold.
    pub(crate) fn checked_span(&self, frame: u32, at: u32, len: u32, access: Access) -> NonNull<u8> {
        let start = self.span(frame, at, len);
        self.each_part(frame, at, len, |frame, at, end| self.check(frame, at, end, access));
        start
    }

    /// Calls `each` with the frame, start and end of each frame's part of a range in the arena.
    #[inline]
    fn each_part(&self, frame: u32, at: u32, len: u32, mut each: impl FnMut(u32, u32, u32)) {
        let (mut frame, mut at, mut left) = (frame, at, len);
        loop {
            let end = left.min(self.frame_bytes - at) + at;
            each(frame, at, end);
            left -= end - at;
            if left == 0 {
                return;
            }
            frame += 1;
            at = 0;
        }
    }

    /// Where the range begins, after checking that it lies in the arena. It may span frames.
    pub(crate) fn span(&self, frame: u32, at: u32, len: u32) -> NonNull<u8> {
        assert!(frame < self.frames && at < self.frame_bytes, "byte {at} of frame {frame}");
        let room = (self.frames - frame) as usize * self.frame_bytes as usize;
        assert!(at as usize + len as usize <= room, "{len} bytes from frame {frame} of {}", self.frames);
        NonNull::new(self.pointer(frame, at)).expect("inside a mapping")
    }

    /// Panics if a hold of the list that begins at `first` overlaps `at..end`.
    #[cold]
    fn assert_free_of(&self, first: u32, at: u32, end: u32, access: Access) {
        let nodes = self.nodes.borrow();
        let mut next = first;
        while next != NONE {
            let node = nodes[next as usize];
            assert!(
                node.end <= at || end <= node.at || at == end,
                "{access:?} of bytes {at}..{end} of frame {}, of which {}..{} are held for {:?}",
                node.frame,
                node.at,
                node.end,
                node.access
            );
            next = node.next;
        }
    }

    /// The address of a byte. The caller has checked that it exists.
    fn pointer(&self, frame: u32, at: u32) -> *mut u8 {
        let offset = frame as usize * self.frame_bytes as usize + at as usize;
        // SAFETY: every caller has compared the frame and offset with the size: the sum lies within
        // the mapping.
        unsafe { self.mapping.base().as_ptr().add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Its thread has a pointer into the mapping.
        drop(self.populating.take());
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} x {} bytes)", self.frames, self.frame_bytes)
    }
}

/// The hold of a closure: released when the closure returns or unwinds.
struct Borrow<'a> {
    arena: &'a Arena,
    hold: Option<Hold>,
}

impl<'a> Borrow<'a> {
    fn new(arena: &'a Arena, frame: u32, at: u32, len: u32, access: Access) -> Self {
        Borrow { arena, hold: Some(arena.hold(frame, at, len, access)) }
    }
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.arena.release(hold);
        }
    }
}
