//! Does: io_uring, and the memory that the kernel reads and writes. The only unsafe code of the
//! project.
//!
//! A shard is one thread with one [`Ring`] and one or more [`Arena`]s. All payload bytes live in
//! arena frames; an operation names a range of a frame ([`Buf`]), never a pointer. Three rules make
//! the interface safe to use from code that forbids unsafe:
//!
//! 1. **Memory outlives the operation.** The ring owns a share of every arena it was given, and
//!    copies small things (reply headers, addresses, iovecs) into storage of its own until the
//!    operation has completed.
//! 2. **A range in flight is not touched.** The arena keeps a [`Hold`] for each range that the
//!    kernel uses. A copy into a range that the kernel reads, or any access to a range that the
//!    kernel writes, is a bug and panics, in release builds too.
//! 3. **A descriptor outlives the operation.** Descriptors are handed to the ring
//!    ([`Ring::register`]) and named by [`Fd`]; they are closed when the last operation on them has
//!    completed.
//!
//! Every call that waits has a bound, and every queue has one; a full queue is an answer
//! ([`Full`]), not an error.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod address;
mod arena;
mod blank;
mod clock;
mod error;
mod file;
mod lent;
mod mapping;
mod populate;
mod ring;
mod wake;

pub use address::{Address, stream_socket};
pub use arena::{Access, Arena, Hold};
pub use blank::{Blank, Filled, Written};
pub use clock::monotonic_ns;
pub use error::{Error, ErrorKind};
pub use file::{Direct, DiskFile, FileFacts, FileKind, OpenOptions, Space};
pub use lent::Lent;
pub use ring::{
    ArenaId, Buf, Completion, Fd, Full, HEADER_BYTES_MAX, Limits, Op, PIECES_MAX, Piece, Ready, Ring, SpaceChange,
};
/// The kernel's error numbers, as they come with a [`Completion`].
pub use rustix::io::Errno;
pub use wake::Wake;
