//! Storage that an operation needs besides its frames, kept by the ring until it completes: iovecs
//! and headers of a vectored send, an address, a time, the count of a waker.
//!
//! A message is a heap block that never moves; the kernel holds pointers into it while its
//! operation is in flight. Blocks are reused, so that the hit path does not allocate. Invariant: a
//! block is either in the pool, or being filled or emptied by the ring, or with an operation in
//! flight; in the last case nobody but the kernel touches it.

use std::ptr::{self, NonNull};

use io_uring::types::Timespec;
use rustix::net::SocketAddrAny;

use super::arenas::Arenas;
use super::op::{ArenaId, HEADER_BYTES_MAX, PIECES_MAX, Piece};
use crate::arena::Hold;

/// What the kernel is given pointers to.
pub(super) struct Message {
    header: libc::msghdr,
    iovecs: [libc::iovec; PIECES_MAX],
    bytes: [u8; HEADER_BYTES_MAX],
    address: Option<SocketAddrAny>,
    time: Timespec,
    count: u64,
    /// The frame ranges that the iovecs point to.
    holds: Vec<(ArenaId, Hold)>,
}

/// Messages that no operation uses, and all that there are.
pub(super) struct Pool {
    free: Vec<NonNull<Message>>,
    all: Vec<NonNull<Message>>,
}

const NO_BYTES: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

impl Pool {
    pub(super) fn new() -> Self {
        Pool { free: Vec::new(), all: Vec::new() }
    }

    /// A message that no operation uses.
    pub(super) fn take(&mut self) -> NonNull<Message> {
        if let Some(message) = self.free.pop() {
            return message;
        }
        // SAFETY: msghdr is plain data for which all zeroes is a valid, empty value.
        let header = unsafe { std::mem::zeroed() };
        let message = Box::new(Message {
            header,
            iovecs: [NO_BYTES; PIECES_MAX],
            bytes: [0; HEADER_BYTES_MAX],
            address: None,
            time: Timespec::new(),
            count: 0,
            holds: Vec::with_capacity(PIECES_MAX),
        });
        let message = NonNull::from(Box::leak(message));
        self.all.push(message);
        message
    }

    /// Takes back a message whose operation has completed.
    pub(super) fn give_back(&mut self, message: NonNull<Message>) {
        self.free.push(message);
    }

    /// Frees all messages.
    ///
    /// # Safety
    /// No operation that uses one may be in flight.
    pub(super) unsafe fn free_all(&mut self) {
        self.free.clear();
        for message in self.all.drain(..) {
            // SAFETY: it came from `Box::leak` in `take`, is in `all` once, and the caller says
            // that the kernel does not use it.
            drop(unsafe { Box::from_raw(message.as_ptr()) });
        }
    }
}

/// Fills a message's iovecs one by one.
pub(super) struct Filling {
    message: NonNull<Message>,
    iovecs: usize,
    bytes: usize,
}

impl Filling {
    /// Begins to fill `message`.
    ///
    /// # Safety
    /// `message` must be out of the pool and not in use by an operation.
    pub(super) unsafe fn new(message: NonNull<Message>) -> Self {
        Filling { message, iovecs: 0, bytes: 0 }
    }

    /// Adds a copy of `bytes`.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        assert!(self.bytes + bytes.len() <= HEADER_BYTES_MAX, "more than {HEADER_BYTES_MAX} header bytes");
        // SAFETY: the message is ours until it is submitted (`new`); the copy stays inside `bytes`,
        // as just checked, and cannot overlap memory of the caller.
        let copy = unsafe {
            let copy = (&raw mut (*self.message.as_ptr()).bytes).cast::<u8>().add(self.bytes);
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            copy
        };
        self.bytes += bytes.len();
        self.push(copy, bytes.len());
    }

    /// Adds a range of a frame, which is held until the operation completes.
    pub(super) fn push_frame(&mut self, arena: ArenaId, hold: Hold, at: *mut u8, len: usize) {
        // SAFETY: the message is ours until it is submitted (`new`), and nobody else has a
        // reference to its holds.
        unsafe { (*self.message.as_ptr()).holds.push((arena, hold)) };
        self.push(at, len);
    }

    fn push(&mut self, at: *mut u8, len: usize) {
        assert!(self.iovecs < PIECES_MAX, "more than {PIECES_MAX} pieces");
        // SAFETY: the message is ours until it is submitted (`new`); the index is in bounds, as
        // just checked.
        unsafe {
            let iovecs = (&raw mut (*self.message.as_ptr()).iovecs).cast::<libc::iovec>();
            iovecs.add(self.iovecs).write(libc::iovec { iov_base: at.cast(), iov_len: len });
        }
        self.iovecs += 1;
    }

    /// The message header of what was filled in.
    pub(super) fn finish(self) -> *mut libc::msghdr {
        assert!(self.iovecs > 0, "a message without bytes");
        let message = self.message.as_ptr();
        // SAFETY: the message is ours until it is submitted (`new`). The header points to iovecs
        // of the same block, which lives as long.
        unsafe {
            (*message).header.msg_iov = (&raw mut (*message).iovecs).cast();
            (*message).header.msg_iovlen = self.iovecs as _;
            &raw mut (*message).header
        }
    }
}

/// Stores an address in the message; returns what the kernel is to be given.
///
/// # Safety
/// `message` must be out of the pool and not in use by an operation.
pub(super) unsafe fn store_address(
    message: NonNull<Message>,
    address: SocketAddrAny,
) -> (*const libc::sockaddr, libc::socklen_t) {
    // SAFETY: by the function's contract nobody else uses the message now.
    let slot = unsafe { &mut (*message.as_ptr()).address };
    let address = slot.insert(address);
    (address.as_ptr().cast(), address.addr_len())
}

/// Stores a time in the message; returns where.
///
/// # Safety
/// `message` must be out of the pool and not in use by an operation.
pub(super) unsafe fn store_time(message: NonNull<Message>, at_ns: u64) -> *const Timespec {
    let time = Timespec::new().sec(at_ns / 1_000_000_000).nsec((at_ns % 1_000_000_000) as u32);
    // SAFETY: by the function's contract nobody else uses the message now.
    unsafe {
        (*message.as_ptr()).time = time;
        &raw const (*message.as_ptr()).time
    }
}

/// The next frame range to release of a message whose operation has completed.
///
/// # Safety
/// `message` must be out of the pool and not in use by an operation.
pub(super) unsafe fn pop_hold(message: NonNull<Message>) -> Option<(ArenaId, Hold)> {
    // SAFETY: by the function's contract nobody else uses the message now.
    unsafe { (*message.as_ptr()).holds.pop() }
}

/// Where the 8 bytes of a waker's count are read to.
pub(super) fn count(message: NonNull<Message>) -> *mut u8 {
    // SAFETY: computes an address inside a live block; nothing is read or written.
    unsafe { (&raw mut (*message.as_ptr()).count).cast() }
}

/// Calls `each` with the pieces that are left after the first `skip_bytes`.
///
/// Panics if there are none.
pub(super) fn for_each_unsent<'a>(
    pieces: &[Piece<'a>],
    skip_bytes: u64,
    arenas: &Arenas,
    mut each: impl FnMut(Piece<'a>),
) {
    let mut skip = skip_bytes;
    let mut any = false;
    for &piece in pieces {
        let len = match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Frame(buf) => u64::from(buf.len),
        };
        if len <= skip {
            skip -= len;
            continue;
        }
        any = true;
        match piece {
            Piece::Bytes(bytes) => each(Piece::Bytes(&bytes[skip as usize..])),
            Piece::Frame(buf) => {
                let frame_bytes = arenas.get(buf.arena).frame_bytes();
                each(Piece::Frame(buf.rest(skip as u32, frame_bytes)));
            }
        }
        skip = 0;
    }
    assert!(any, "nothing is left to send");
}
