//! The arenas that a ring works on, and their registration with the kernel.
//!
//! Why: for an unregistered buffer the kernel looks up and pins its pages for every operation;
//! `READ_FIXED` and `WRITE_FIXED` skip that. But registering pins the memory at once: a tier of
//! 64 GiB would be zeroed and locked before the first request is served.
//!
//! How: an arena is cut into chunks of at least 16 MiB, and a chunk is registered when a frame of it
//! is first used for disk I/O. So memory is committed as it is used, and no single stall is longer
//! than zeroing a chunk. An arena that is being populated is registered as far as that has come: what is
//! committed is registered in a fraction of a millisecond. Once the kernel refuses (the limit on locked memory, an old kernel), the
//! rest stays unregistered, and the plain operations are used.

use std::rc::Rc;

use io_uring::IoUring;
use rustix::io::Errno;

use super::op::{ArenaId, Buf};
use super::setup::errno_of;
use crate::Arena;

/// Buffers the kernel takes at most (`IORING_MAX_REG_BUFFERS`).
const BUFFERS_MAX: u32 = 16384;
/// Chunks of one arena at most, so that several large arenas fit.
const CHUNKS_MAX: u32 = 4096;
/// Smallest chunk.
const CHUNK_BYTES_MIN: u64 = 16 << 20;
/// The longest buffer the kernel takes.
const CHUNK_BYTES_MAX: u64 = 1 << 30;

struct Shared {
    arena: Rc<Arena>,
    /// A chunk is `1 << chunk_shift` frames.
    chunk_shift: u32,
    /// The kernel's index of the first chunk.
    first_buffer: u32,
    /// Whether a chunk has been registered. Empty: none will be.
    registered: Box<[bool]>,
}

pub(super) struct Arenas {
    shared: Vec<Shared>,
    buffers: u32,
    fixed_bytes: u64,
    refused: Option<Errno>,
}

impl Arenas {
    /// Reserves the kernel's table.
    pub(super) fn new(io: &IoUring) -> Self {
        let refused = io.submitter().register_buffers_sparse(BUFFERS_MAX).err();
        let refused = refused.map(|error| errno_of(&error));
        Arenas { shared: Vec::new(), buffers: 0, fixed_bytes: 0, refused }
    }

    pub(super) fn add(&mut self, arena: Rc<Arena>) -> ArenaId {
        let frame_bytes = u64::from(arena.frame_bytes());
        let arena_bytes = u64::from(arena.frames()) * frame_bytes;
        let chunk_bytes = CHUNK_BYTES_MIN.max(arena_bytes.div_ceil(u64::from(CHUNKS_MAX)));
        let chunk_shift = chunk_bytes.div_ceil(frame_bytes).next_power_of_two().trailing_zeros();
        let chunks = arena.frames().div_ceil(1 << chunk_shift);
        let fits = frame_bytes << chunk_shift <= CHUNK_BYTES_MAX && self.buffers + chunks <= BUFFERS_MAX;
        let registered = vec![false; if fits { chunks as usize } else { 0 }].into_boxed_slice();
        let first_buffer = self.buffers;
        self.buffers += registered.len() as u32;
        self.shared.push(Shared { arena, chunk_shift, first_buffer, registered });
        assert!(self.shared.len() <= 256, "more than 256 arenas in one ring");
        ArenaId((self.shared.len() - 1) as u8)
    }

    #[inline]
    pub(super) fn get(&self, id: ArenaId) -> &Rc<Arena> {
        &self.shared[usize::from(id.0)].arena
    }

    /// Bytes registered, and the refusal that ended it.
    pub(super) fn fixed_bytes(&self) -> (u64, Option<Errno>) {
        (self.fixed_bytes, self.refused)
    }

    /// The kernel's index of the registered buffer that holds the whole range; registers it if this
    /// is its first use.
    #[inline]
    pub(super) fn fixed(&mut self, io: &IoUring, buf: Buf) -> Option<u16> {
        let shared = &self.shared[usize::from(buf.arena.0)];
        let chunk = buf.frame >> shared.chunk_shift;
        if !*shared.registered.get(chunk as usize)? {
            self.register(io, buf.arena, chunk)?;
        }
        let shared = &self.shared[usize::from(buf.arena.0)];
        let last = u64::from(buf.at) + u64::from(buf.len) - 1;
        let last = u64::from(buf.frame) + last / u64::from(shared.arena.frame_bytes());
        (last >> shared.chunk_shift == u64::from(chunk)).then_some((shared.first_buffer + chunk) as u16)
    }

    #[cold]
    fn register(&mut self, io: &IoUring, id: ArenaId, chunk: u32) -> Option<()> {
        if self.refused.is_some() {
            return None;
        }
        let shared = &mut self.shared[usize::from(id.0)];
        let first = chunk << shared.chunk_shift;
        let frames = (shared.arena.frames() - first).min(1 << shared.chunk_shift);
        if !shared.arena.is_populated(first + frames - 1) {
            return None;
        }
        let len = frames * shared.arena.frame_bytes();
        let at = shared.arena.span(first, 0, len);
        let buffer = libc::iovec { iov_base: at.as_ptr().cast(), iov_len: len as usize };
        // SAFETY: the buffer is a part of the arena's mapping, which stays until the ring is gone:
        // the ring owns a share of the arena, and drops (or leaks) it after the io_uring. What the
        // kernel does in it is under the arena's holds, like all other I/O.
        let result = unsafe { io.submitter().register_buffers_update(shared.first_buffer + chunk, &[buffer], None) };
        match result {
            Ok(()) => {
                shared.registered[chunk as usize] = true;
                self.fixed_bytes += u64::from(len);
                Some(())
            }
            Err(error) => {
                self.refused = Some(errno_of(&error));
                None
            }
        }
    }

    /// Gives up the arenas without freeing their memory.
    pub(super) fn leak(&mut self) {
        self.shared.drain(..).for_each(|shared| std::mem::forget(shared.arena));
    }
}
