//! One io_uring: operations in as data, completions out as data.

mod op;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::{Arena, Error, Wake};
pub use op::{
    ArenaId, Buf, Completion, Fd, Full, HEADER_BYTES_MAX, Op, PIECES_MAX, Piece, Ready, SpaceChange,
};

/// How much a ring may have in hand.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations in flight, wakers included.
    pub ops_max: u32,
    /// Descriptors registered.
    pub fds_max: u32,
}

/// An io_uring with the descriptors and arenas it works on. One thread, which made it.
pub struct Ring {
    _private: Rc<()>,
}

impl Ring {
    /// Makes a ring.
    ///
    /// Errors: `Unavailable` names what refuses io_uring; `Limit`.
    pub fn new(limits: Limits) -> Result<Ring, Error> {
        let _ = limits;
        todo!()
    }

    /// Gives the ring a share of an arena, so that operations can name its frames. The ring keeps
    /// it until dropped. Its memory is registered with the kernel piece by piece as it is first
    /// used for disk I/O; see [`Ring::fixed_bytes`].
    pub fn add_arena(&mut self, arena: Rc<Arena>) -> ArenaId {
        let _ = arena;
        todo!()
    }

    /// An arena of this ring.
    #[must_use]
    pub fn arena(&self, id: ArenaId) -> &Rc<Arena> {
        let _ = id;
        todo!()
    }

    /// Bytes of arena memory registered with the kernel so far, and why registration stopped, if it
    /// did (`NOMEM`: the limit on locked memory). Unregistered memory works, a little slower.
    #[must_use]
    pub fn fixed_bytes(&self) -> (u64, Option<Errno>) {
        todo!()
    }

    /// Gives the ring a descriptor. It is made blocking (`O_NONBLOCK` off): the ring waits instead.
    ///
    /// Errors: `Limit` when `fds_max` are registered; the descriptor is closed then.
    pub fn register(&mut self, fd: OwnedFd) -> Result<Fd, Error> {
        let _ = fd;
        todo!()
    }

    /// Borrows a descriptor, to set options on it or shut it down.
    #[must_use]
    pub fn borrow(&self, fd: Fd) -> BorrowedFd<'_> {
        let _ = fd;
        todo!()
    }

    /// Takes a descriptor out of the ring, for another ring; `None` while operations are in flight
    /// on it.
    pub fn take(&mut self, fd: Fd) -> Option<OwnedFd> {
        let _ = fd;
        todo!()
    }

    /// Ends a descriptor. Operations in flight on it are cancelled where the kernel can (sockets,
    /// not disks) and complete as usual; it is closed after the last of them.
    pub fn close(&mut self, fd: Fd) {
        let _ = fd;
        todo!()
    }

    /// Queues an operation; it starts at the next [`Ring::wait`] or [`Ring::flush`]. Its completion
    /// carries `token`.
    ///
    /// Panics if a frame range conflicts with one in flight, or a descriptor is stale: bugs.
    pub fn submit(&mut self, token: u64, op: Op<'_>) -> Result<(), Full> {
        let _ = (token, op);
        todo!()
    }

    /// Asks for the cancellation of all operations with this token; each completes with `CANCELED`,
    /// or as usual if it was too late. Returns how many there are.
    pub fn cancel(&mut self, token: u64) -> u32 {
        let _ = token;
        todo!()
    }

    /// Operations in flight, wakers not counted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        todo!()
    }

    /// Starts everything queued, without waiting.
    pub fn flush(&mut self) -> Result<(), Error> {
        todo!()
    }

    /// Starts everything queued, waits until `min` operations have completed or `until_ns`
    /// ([`crate::monotonic_ns`]) has come, and appends all completions to `completions`. `None`
    /// waits without a bound: only with a waker or a timeout in flight. With `min` 0 it never
    /// blocks. A signal ends the wait early. One waker event counts as one completion.
    ///
    /// Errors: `Io`, when the kernel refuses to go on; the ring is then unusable.
    pub fn wait(
        &mut self,
        min: u32,
        until_ns: Option<u64>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let _ = (min, until_ns, completions);
        todo!()
    }

    /// Makes a handle with which other threads wake [`Ring::wait`]: it then delivers a completion
    /// with `token` and 0. It stays armed for the life of the ring.
    pub fn waker(&mut self, token: u64) -> Result<Wake, Error> {
        let _ = token;
        todo!()
    }

    /// Sends what the socket takes now, by a direct system call, leaving out the first `skip_bytes`
    /// of `pieces`. Returns the bytes sent, perhaps fewer than there are; `AGAIN` if none now.
    /// Do not mix with a send in flight on the same descriptor: their order would be undefined.
    pub fn try_send(
        &mut self,
        fd: Fd,
        pieces: &[Piece<'_>],
        skip_bytes: u64,
    ) -> Result<u64, Errno> {
        let _ = (fd, pieces, skip_bytes);
        todo!()
    }

    /// Receives what is there now, by a direct system call: 0 at the end of the connection, `AGAIN`
    /// if there is nothing yet.
    pub fn try_recv(&mut self, fd: Fd, buf: Buf) -> Result<u32, Errno> {
        let _ = (fd, buf);
        todo!()
    }
}
