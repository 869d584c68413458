//! One io_uring: operations in as data, completions out as data.
//!
//! Why a wrapper: io_uring's own interface takes pointers that must stay valid until the kernel is
//! done with them. Here an operation names a frame range and a descriptor that the ring keeps alive,
//! so the rest of the program needs no unsafe code.
//!
//! How: [`Ring::submit`] takes the holds of the operation's ranges, remembers it in the table of
//! operations in flight, and puts an entry in the submission queue. [`Ring::wait`] hands the queue
//! to the kernel, waits, and for each completion releases the holds and appends a [`Completion`].
//! One system call an iteration of the shard's loop does both, and none when there is nothing to do.
//!
//! Invariants: each operation completes exactly once; holds last from submit to the return of the
//! `wait` that delivers the completion; operations in flight never exceed `ops_max`, for which the
//! completion queue has room.
//!
//! Dropping a ring cancels what is in flight and waits up to two seconds for it. What then still
//! runs (a disk that hangs) may write its frames at any time later, so its arenas are leaked rather
//! than unmapped.

mod arenas;
mod direct;
mod fds;
mod flight;
mod message;
mod op;
mod prepare;
mod setup;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::{Arena, Wake, monotonic_ns};
use arenas::Arenas;
use fds::FdTable;
use flight::{CANCELLATION, Flight, Kind, Operation};
use message::Pool;
pub use op::{ArenaId, Buf, Completion, Fd, Full, HEADER_BYTES_MAX, Op, PIECES_MAX, Piece, Ready, SpaceChange};
use prepare::Parts;
use setup::errno_of;

/// How long a drop waits for operations in flight.
const DROP_WAIT_NS: u64 = 2_000_000_000;
/// Most operations in flight that a ring can be made for.
const OPS_MAX: u32 = 16384;

/// How much a ring may have in hand.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations in flight, wakers included; 1 to 16384.
    pub ops_max: u32,
    /// Descriptors registered, at least 1.
    pub fds_max: u32,
}

/// An io_uring with the descriptors and arenas it works on. One thread, which made it.
pub struct Ring {
    // Declared first, so dropped first: the kernel lets go before the memory goes.
    io: IoUring,
    parts: Parts,
    flight: Flight,
    wakers: Vec<(Wake, u64)>,
    /// Entries that the ring itself wants submitted, in order: a cancellation must come after what
    /// it cancels.
    backlog: VecDeque<squeue::Entry>,
    iovecs: Vec<libc::iovec>,
    /// The ring is being dropped: wakers are not armed again.
    ending: bool,
}

impl Ring {
    /// Makes a ring.
    ///
    /// Errors: `Unavailable` names what refuses io_uring; `Limit`.
    pub fn new(limits: Limits) -> Result<Ring, Error> {
        assert!((1..=OPS_MAX).contains(&limits.ops_max), "{} operations in flight", limits.ops_max);
        assert!(limits.fds_max > 0, "a ring without descriptors");
        let io = setup::build(limits.ops_max, &setup::TIERS)?;
        Ok(Ring::over(io, limits))
    }

    fn over(io: IoUring, limits: Limits) -> Ring {
        let fixed_files = io.submitter().register_files_sparse(limits.fds_max).is_ok();
        let arenas = Arenas::new(&io);
        let fds = FdTable::new(limits.fds_max);
        Ring {
            io,
            parts: Parts { fds, fixed_files, arenas, messages: Pool::new() },
            flight: Flight::new(limits.ops_max),
            wakers: Vec::new(),
            backlog: VecDeque::new(),
            iovecs: Vec::with_capacity(PIECES_MAX),
            ending: false,
        }
    }

    /// Gives the ring a share of an arena, so that operations can name its frames. The ring keeps
    /// it until dropped. Its memory is registered with the kernel piece by piece as it is first
    /// used for disk I/O; see [`Ring::fixed_bytes`]. At most 256 arenas.
    pub fn add_arena(&mut self, arena: Rc<Arena>) -> ArenaId {
        self.parts.arenas.add(arena)
    }

    /// An arena of this ring.
    #[must_use]
    pub fn arena(&self, id: ArenaId) -> &Rc<Arena> {
        self.parts.arenas.get(id)
    }

    /// Bytes of arena memory registered with the kernel so far, and why registration stopped, if it
    /// did (`NOMEM`: the limit on locked memory). Unregistered memory works, a little slower.
    #[must_use]
    pub fn fixed_bytes(&self) -> (u64, Option<Errno>) {
        self.parts.arenas.fixed_bytes()
    }

    /// Gives the ring a descriptor. It is made blocking (`O_NONBLOCK` off): the ring waits instead.
    ///
    /// Errors: `Limit` when `fds_max` are registered; the descriptor is closed then.
    pub fn register(&mut self, fd: OwnedFd) -> Result<Fd, Error> {
        let flags = rustix::fs::fcntl_getfl(&fd);
        if let Ok(flags) = flags
            && flags.contains(OFlags::NONBLOCK)
        {
            let set = rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK);
            set.map_err(|errno| refused_descriptor(Some(errno)))?;
        }
        let raw = fd.as_raw_fd();
        let fd = self.parts.fds.insert(fd).map_err(|_| refused_descriptor(None))?;
        if self.parts.fixed_files
            && let Err(error) = self.io.submitter().register_files_update(fd.index, &[raw])
        {
            self.parts.fds.close(fd);
            return Err(refused_descriptor(Some(errno_of(&error))));
        }
        Ok(fd)
    }

    /// Borrows a descriptor, to set options on it or shut it down.
    #[must_use]
    pub fn borrow(&self, fd: Fd) -> BorrowedFd<'_> {
        self.parts.fds.get(fd).as_fd()
    }

    /// Takes a descriptor out of the ring, for another ring; `None` while operations are in flight
    /// on it.
    pub fn take(&mut self, fd: Fd) -> Option<OwnedFd> {
        let taken = self.parts.fds.take(fd);
        if taken.is_some() {
            self.forget_file(fd.index);
        }
        taken
    }

    /// Ends a descriptor. Operations in flight on it are cancelled where the kernel can (sockets,
    /// not disks) and complete as usual; it is closed after the last of them.
    pub fn close(&mut self, fd: Fd) {
        let cancel = self.flight.select(|operation| operation.fd == Some(fd.index));
        self.backlog.extend(cancel.map(cancellation));
        if let Some(closed) = self.parts.fds.close(fd) {
            self.forget_file(fd.index);
            drop(closed);
        }
    }

    /// Queues an operation; it starts at the next [`Ring::wait`] or [`Ring::flush`]. Its completion
    /// carries `token`.
    ///
    /// Panics if a frame range conflicts with one in flight, or a descriptor is stale: bugs.
    pub fn submit(&mut self, token: u64, op: Op<'_>) -> Result<(), Full> {
        if self.flight.is_full() {
            return Err(Full);
        }
        if self.io.submission().is_full() {
            // Whatever this meets, the next wait meets it, too, and reports it.
            let _ = self.enter(0, None);
            if self.io.submission().is_full() {
                return Err(Full);
            }
        }
        let (entry, operation) = self.parts.prepare(&self.io, token, op);
        let entry = entry.user_data(self.flight.add(operation));
        assert!(push(&mut self.io, &entry), "the queue has room, as just seen");
        Ok(())
    }

    /// Asks for the cancellation of all operations with this token; each completes with `CANCELED`,
    /// or as usual if it was too late. Returns how many there are.
    pub fn cancel(&mut self, token: u64) -> u32 {
        let before = self.backlog.len();
        let chosen = |operation: &Operation| operation.token == token && operation.kind != Kind::Wake;
        self.backlog.extend(self.flight.select(chosen).map(cancellation));
        (self.backlog.len() - before) as u32
    }

    /// Operations in flight, wakers not counted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.flight.len() - self.wakers.len() as u32
    }

    /// Operations queued and not started.
    pub fn queued(&mut self) -> u32 {
        self.io.submission().len() as u32
    }

    /// Starts everything queued, without waiting.
    ///
    /// Errors: as [`Ring::wait`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.feed_backlog()?;
        if self.io.submission().is_empty() { Ok(()) } else { self.enter(0, None) }
    }

    /// Starts everything queued, waits until `min` operations have completed or `until_ns`
    /// ([`crate::monotonic_ns`]) has come, and appends all completions to `completions`. `None`
    /// waits without a bound: only with a waker or a timeout in flight. With `min` 0 it never
    /// blocks. It may return early, with fewer: after a signal or a cancellation, or when an
    /// [`Op::Timeout`] runs out.
    ///
    /// Errors: `Io`, when the kernel refuses to go on; the ring is then unusable.
    pub fn wait(&mut self, min: u32, until_ns: Option<u64>, completions: &mut Vec<Completion>) -> Result<(), Error> {
        self.feed_backlog()?;
        let ready = self.io.completion().len() as u32;
        // The kernel counts those that are ready, too.
        let want = if ready >= min { 0 } else { min };
        let queue = self.io.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        if want > 0 || !idle {
            self.enter(want, until_ns)?;
        }
        self.reap(completions);
        Ok(())
    }

    /// Makes a handle with which other threads wake [`Ring::wait`]: it then delivers a completion
    /// with `token` and 0. It stays armed for the life of the ring.
    ///
    /// Errors: `Limit`.
    pub fn waker(&mut self, token: u64) -> Result<Wake, Error> {
        if self.flight.is_full() {
            return Err(Error::new(ErrorKind::Limit, None, "no room for a waker: raise ops_max"));
        }
        let wake = Wake::new().map_err(|errno| refused_descriptor(Some(errno)))?;
        let message = Some(self.parts.messages.take());
        let index = self.wakers.len();
        let read = Operation { token: index as u64, kind: Kind::Wake, fd: None, hold: None, message };
        let user_data = self.flight.add(read);
        self.wakers.push((wake.clone(), token));
        self.arm_waker(user_data);
        Ok(wake)
    }

    /// Sends what the socket takes now, by a direct system call, leaving out the first `skip_bytes`
    /// of `pieces`. Returns the bytes sent, perhaps fewer than there are; `AGAIN` if none now.
    /// Do not mix with a send in flight on the same descriptor: their order would be undefined.
    pub fn try_send(&mut self, fd: Fd, pieces: &[Piece<'_>], skip_bytes: u64) -> Result<u64, Errno> {
        self.parts.try_send(fd, pieces, skip_bytes, &mut self.iovecs)
    }

    /// Receives what is there now, by a direct system call: 0 at the end of the connection, `AGAIN`
    /// if there is nothing yet.
    pub fn try_recv(&mut self, fd: Fd, buf: Buf) -> Result<u32, Errno> {
        self.parts.try_recv(fd, buf)
    }

    /// Moves the backlog into the submission queue, submitting when that is full.
    fn feed_backlog(&mut self) -> Result<(), Error> {
        while let Some(entry) = self.backlog.pop_front() {
            if push(&mut self.io, &entry) {
                continue;
            }
            self.backlog.push_front(entry);
            self.enter(0, None)?;
            if self.io.submission().is_full() {
                // The kernel takes nothing until completions are reaped; the next call goes on.
                break;
            }
        }
        Ok(())
    }

    /// Submits the queue and waits for `want` completions or until `until_ns`.
    fn enter(&mut self, want: u32, until_ns: Option<u64>) -> Result<(), Error> {
        let mut left = Timespec::new();
        let mut args = SubmitArgs::new();
        let mut want = want;
        if let Some(until_ns) = until_ns.filter(|_| want > 0) {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            left = left.sec(left_ns / 1_000_000_000).nsec((left_ns % 1_000_000_000) as u32);
            args = args.timespec(&left);
            if left_ns == 0 {
                want = 0;
            }
        }
        let queued = self.io.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: the argument is of the type that EXT_ARG asks for and lives until the call
        // returns. The entries in the queue are valid: `prepare` made them, and what they point to
        // stays until their completion is reaped.
        let entered = unsafe { self.io.submitter().enter(queued, want, flags.bits(), Some(&args)) };
        match entered.map_err(|error| errno_of(&error)) {
            // Not now (out of resources, or completions must be reaped first): the entries stay
            // queued, and the next call goes on.
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => {
                let message = format!("the kernel refuses to run the io_uring ({errno}): restart the program");
                Err(Error::new(ErrorKind::Io, Some(errno), message))
            }
        }
    }

    /// Takes all completions off the queue.
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        // As many as there are now; each pass of the shard's loop does bounded work.
        let ready = self.io.completion().len();
        for _ in 0..ready {
            let Some(entry) = self.io.completion().next() else {
                break;
            };
            match entry.user_data() {
                CANCELLATION => {}
                user_data => self.complete(user_data, entry.result(), completions),
            }
        }
    }

    /// Ends the operation: nothing of it is left with the kernel.
    fn complete(&mut self, user_data: u64, result: i32, completions: &mut Vec<Completion>) {
        if self.flight.get(user_data).kind == Kind::Wake {
            return self.woken(user_data, result, completions);
        }
        let operation = self.flight.remove(user_data);
        let result = if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(result as u32) };
        let mut accepted = None;
        let result = match (operation.kind, result) {
            (Kind::Accept, Ok(fd)) => {
                // SAFETY: the kernel has just made this descriptor for this operation alone.
                accepted = Some(unsafe { OwnedFd::from_raw_fd(fd as i32) });
                Ok(0)
            }
            (Kind::Timeout, Err(Errno::TIME)) => Ok(0),
            (Kind::Transfer, result) => result,
            (_, result) => result.map(|_| 0),
        };
        let token = operation.token;
        self.release(operation);
        completions.push(Completion { token, result, accepted });
    }

    /// Gives back what a completed operation used.
    fn release(&mut self, operation: Operation) {
        if let Some((arena, hold)) = operation.hold {
            self.parts.arenas.get(arena).release(hold);
        }
        if let Some(message) = operation.message {
            // SAFETY: the operation was the message's only user, and it has completed.
            while let Some((arena, hold)) = unsafe { message::pop_hold(message) } {
                self.parts.arenas.get(arena).release(hold);
            }
            self.parts.messages.give_back(message);
        }
        if let Some(index) = operation.fd
            && let Some(closed) = self.parts.fds.end(index)
        {
            self.forget_file(index);
            drop(closed);
        }
    }

    /// A waker's read has ended: pass it on and read again, unless the ring is being dropped.
    fn woken(&mut self, user_data: u64, result: i32, completions: &mut Vec<Completion>) {
        if self.ending {
            let operation = self.flight.remove(user_data);
            return self.release(operation);
        }
        let again = [8, -Errno::INTR.raw_os_error(), -Errno::AGAIN.raw_os_error()];
        assert!(again.contains(&result), "a waker's read ended with {result}");
        let index = self.flight.get(user_data).token as usize;
        let (wake, token) = &self.wakers[index];
        wake.seen();
        completions.push(Completion { token: *token, result: Ok(0), accepted: None });
        self.arm_waker(user_data);
    }

    /// Reads the waker's eventfd, which completes when it is signalled.
    fn arm_waker(&mut self, user_data: u64) {
        let Operation { token, message, .. } = self.flight.get(user_data);
        let count = message::count(message.expect("a waker has a message"));
        let eventfd = types::Fd(self.wakers[*token as usize].0.eventfd().as_raw_fd());
        self.backlog.push_back(opcode::Read::new(eventfd, count, 8).build().user_data(user_data));
    }

    /// Takes a descriptor out of the kernel's table, which would keep the file open.
    fn forget_file(&mut self, index: u32) {
        if self.parts.fixed_files {
            let updated = self.io.submitter().register_files_update(index, &[-1]);
            assert!(updated.is_ok(), "descriptor {index} cannot be unregistered: {updated:?}");
        }
    }

    /// Cancels everything and waits for it, up to `DROP_WAIT_NS`. Whether nothing is left.
    fn drain(&mut self) -> bool {
        self.ending = true;
        let until_ns = monotonic_ns() + DROP_WAIT_NS;
        let everything = self.flight.select(|_| true);
        self.backlog.extend(everything.map(cancellation));
        let mut completions = Vec::new();
        while self.flight.len() > 0 {
            if monotonic_ns() >= until_ns || self.wait(1, Some(until_ns), &mut completions).is_err() {
                return false;
            }
            completions.clear();
        }
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.drain() {
            // SAFETY: nothing is in flight.
            unsafe { self.parts.messages.free_all() };
        } else {
            self.parts.arenas.leak();
        }
        if self.parts.fixed_files {
            // Else the files would stay open, and locked, until the kernel has taken the ring apart
            // in the background.
            let _ = self.io.submitter().unregister_files();
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} in flight)", self.in_flight())
    }
}

/// Puts an entry in the submission queue, if it has room.
fn push(io: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: entries are made by `prepare`, `cancellation` and `arm_waker` only. What they point
    // to is held: frames by the arena's holds and the ring's share of the arena, messages by being
    // out of the pool, both until the completion is reaped; `drop` waits, or leaks them.
    unsafe { io.submission().push(entry) }.is_ok()
}

/// An entry that cancels the operation that carries `target`.
fn cancellation(target: u64) -> squeue::Entry {
    opcode::AsyncCancel::new(target).build().user_data(CANCELLATION)
}

fn refused_descriptor(errno: Option<Errno>) -> Error {
    let why = match errno {
        Some(errno) => {
            format!("the kernel refuses one more descriptor ({errno}): raise the limit (ulimit -n)")
        }
        None => "all descriptors of the ring are in use: allow fewer connections, or raise fds_max".to_owned(),
    };
    Error::new(ErrorKind::Limit, errno, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn each_set_of_flags_that_the_kernel_takes_does_the_same() {
        let limits = Limits { ops_max: 8, fds_max: 4 };
        for tier in setup::TIERS {
            let Ok(io) = setup::build(limits.ops_max, &[tier]) else { continue };
            let mut ring = Ring::over(io, limits);
            let arena = ring.add_arena(Rc::new(Arena::new(1, 4096).unwrap()));
            let wake = ring.waker(1).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let fd = ring.register(ours.into()).unwrap();
            let buf = Buf { arena, frame: 0, at: 0, len: 5 };
            ring.submit(2, Op::Recv { fd, buf, all: true }).unwrap();
            ring.flush().unwrap();
            theirs.write_all(b"bytes").unwrap();
            wake.wake();
            let until_ns = Some(monotonic_ns() + 5_000_000_000);
            let mut completions = Vec::new();
            ring.wait(2, until_ns, &mut completions).unwrap();
            let mut ended: Vec<_> =
                completions.iter().map(|completion| (completion.token, completion.result)).collect();
            ended.sort_by_key(|&(token, _)| token);
            assert_eq!(ended, [(1, Ok(0)), (2, Ok(5))]);
            ring.arena(arena).with_bytes(0, 0, 5, |bytes| assert_eq!(bytes, b"bytes"));
            let start_ns = monotonic_ns();
            drop(ring);
            assert!(monotonic_ns() < start_ns + DROP_WAIT_NS / 2, "the waker's read was not cancelled");
        }
    }
}
