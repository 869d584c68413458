//! The real reactor: a shard sleeps in its io_uring until something completes, or until a time.
//!
//! One ring serves everything of a shard: its cache disk, its back ends, its clients. Each of them gets a [`Port`]:
//! a name space of tokens, a share of the ring's operations, and an inbox.
//!
//! How: a token in the ring is the port's number in the upper 16 bits and the owner's token in the lower 48. [`wait`]
//! starts what was submitted, sleeps, and sorts completions into inboxes; the owners drain them when they are polled.
//!
//! Invariants:
//! - the shares of all ports together are no more than the ring holds, so a port that keeps its share never finds the
//!   ring full, and no port can take another's room;
//! - an inbox holds at most the port's share: every completion in it was an operation in flight.
//!
//! Other threads wake the shard with [`RingReactor::waker`]; `wait` then returns, and that is all: what was posted is
//! looked for by whoever is polled.
//!
//! [`wait`]: Reactor::wait

use std::cell::RefCell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use forebay_uring::{
    Arena, ArenaId, Buf, Completion, Errno, Error, Fd, Full, Limits, Op, Piece, Ring, Wake, monotonic_ns,
};

use crate::reactor::Reactor;

/// Bits of a token that belong to the port's owner.
const OWN_BITS: u32 = 48;
/// The largest token of an owner.
pub const TOKEN_MAX: u64 = (1 << OWN_BITS) - 1;
/// The port number of wakers.
const WAKERS: u16 = u16::MAX;

struct Inbox {
    ops_max: u32,
    in_flight: u32,
    completions: Vec<Completion>,
    /// The port is gone: completions are thrown away, and with the last of them its share is free again.
    orphaned: bool,
}

struct Shared {
    ring: Ring,
    ops_left: u32,
    inboxes: Vec<Inbox>,
    undrained: usize,
    batch: Vec<Completion>,
}

impl Shared {
    fn sort(&mut self) {
        for mut completion in self.batch.drain(..) {
            let port = (completion.token >> OWN_BITS) as u16;
            if port == WAKERS {
                continue;
            }
            completion.token &= TOKEN_MAX;
            let inbox = &mut self.inboxes[usize::from(port)];
            inbox.in_flight -= 1;
            if inbox.orphaned {
                self.ops_left += if inbox.in_flight == 0 { std::mem::take(&mut inbox.ops_max) } else { 0 };
                continue;
            }
            inbox.completions.push(completion);
            self.undrained += 1;
        }
    }
}

/// An io_uring as a shard's reactor.
pub struct RingReactor {
    shared: Rc<RefCell<Shared>>,
}

impl fmt::Debug for RingReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReactor").finish_non_exhaustive()
    }
}

impl RingReactor {
    /// A reactor for the calling thread. `limits.ops_max` is what the ports share.
    ///
    /// # Errors
    /// Those of [`Ring::new`].
    pub fn new(limits: Limits) -> Result<Self, Error> {
        let shared = Shared {
            ring: Ring::new(limits)?,
            ops_left: limits.ops_max,
            inboxes: Vec::new(),
            undrained: 0,
            batch: Vec::with_capacity(limits.ops_max as usize),
        };
        Ok(Self { shared: Rc::new(RefCell::new(shared)) })
    }

    /// A port that may have `ops_max` operations in flight. Panics if the ring has not so many left: whoever sets a
    /// shard up adds up its ports first.
    #[must_use]
    pub fn port(&self, ops_max: u32) -> Port {
        let mut shared = self.shared.borrow_mut();
        assert!(ops_max <= shared.ops_left, "{ops_max} operations asked for, {} left", shared.ops_left);
        assert!(shared.inboxes.len() < usize::from(WAKERS), "too many ports");
        shared.ops_left -= ops_max;
        let index = shared.inboxes.len() as u16;
        let completions = Vec::with_capacity(ops_max as usize);
        shared.inboxes.push(Inbox { ops_max, in_flight: 0, completions, orphaned: false });
        Port { shared: Rc::clone(&self.shared), index }
    }

    /// Gives the ring a share of an arena, so that every port can name its frames.
    #[must_use]
    pub fn add_arena(&self, arena: Rc<Arena>) -> ArenaId {
        self.shared.borrow_mut().ring.add_arena(arena)
    }

    /// A handle with which any thread ends the shard's sleep.
    ///
    /// # Errors
    /// Those of [`Ring::waker`].
    pub fn waker(&self) -> Result<Wake, Error> {
        self.shared.borrow_mut().ring.waker(u64::from(WAKERS) << OWN_BITS)
    }

    /// Bytes of arena memory registered with the kernel, and why no more are, if registration stopped.
    #[must_use]
    pub fn fixed_bytes(&self) -> (u64, Option<Errno>) {
        self.shared.borrow().ring.fixed_bytes()
    }
}

impl Reactor for RingReactor {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Panics when the kernel refuses to go on with the ring: nothing can be read or answered any more, and the
    /// process must end as if it had been killed.
    fn wait(&mut self, until_ns: u64) {
        let mut shared = self.shared.borrow_mut();
        let shared = &mut *shared;
        let min = u32::from(shared.undrained == 0);
        if let Err(error) = shared.ring.wait(min, Some(until_ns), &mut shared.batch) {
            panic!("the shard cannot go on: {error}");
        }
        shared.sort();
    }
}

/// One owner's part of a ring. Its share is free again when it is dropped and its last operation has completed.
pub struct Port {
    shared: Rc<RefCell<Shared>>,
    index: u16,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let shared = &mut *self.shared.borrow_mut();
        let inbox = &mut shared.inboxes[usize::from(self.index)];
        shared.undrained -= inbox.completions.len();
        inbox.completions = Vec::new();
        inbox.orphaned = true;
        if inbox.in_flight == 0 {
            shared.ops_left += std::mem::take(&mut inbox.ops_max);
        }
    }
}

impl Port {
    fn ring_token(&self, token: u64) -> u64 {
        assert!(token <= TOKEN_MAX, "token {token:#x} is longer than {OWN_BITS} bits");
        u64::from(self.index) << OWN_BITS | token
    }

    /// Queues an operation; it starts when the shard next waits. Its completion comes by [`Port::drain`] and carries
    /// `token` (at most [`TOKEN_MAX`]).
    ///
    /// # Errors
    /// [`Full`] when the port's share is in flight: submit again after draining.
    pub fn submit(&self, token: u64, op: Op<'_>) -> Result<(), Full> {
        let token = self.ring_token(token);
        let shared = &mut *self.shared.borrow_mut();
        let inbox = &mut shared.inboxes[usize::from(self.index)];
        // What was not drained yet counts, too: the inbox is bounded by it.
        if inbox.in_flight as usize + inbox.completions.len() >= inbox.ops_max as usize {
            return Err(Full);
        }
        shared.ring.submit(token, op)?;
        inbox.in_flight += 1;
        Ok(())
    }

    /// Starts what is queued on the ring now, instead of at the next wait, if it is `count` operations or more.
    pub fn start_when(&self, count: u32) {
        let ring = &mut self.shared.borrow_mut().ring;
        if ring.queued() >= count {
            // Whatever this meets, the next wait meets it, too, and reports it.
            let _ = ring.flush();
        }
    }

    /// Whether the port's share is used up.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let inbox = &self.shared.borrow().inboxes[usize::from(self.index)];
        inbox.in_flight as usize + inbox.completions.len() >= inbox.ops_max as usize
    }

    /// Appends what completed since the last call.
    pub fn drain(&self, completions: &mut Vec<Completion>) {
        let shared = &mut *self.shared.borrow_mut();
        let inbox = &mut shared.inboxes[usize::from(self.index)];
        shared.undrained -= inbox.completions.len();
        completions.append(&mut inbox.completions);
    }

    /// Asks for the cancellation of all operations with this token; see [`Ring::cancel`].
    pub fn cancel(&self, token: u64) -> u32 {
        let token = self.ring_token(token);
        self.shared.borrow_mut().ring.cancel(token)
    }

    /// Gives the ring a descriptor.
    ///
    /// # Errors
    /// Those of [`Ring::register`].
    pub fn register(&self, fd: OwnedFd) -> Result<Fd, Error> {
        self.shared.borrow_mut().ring.register(fd)
    }

    /// Takes a descriptor out of the ring; `None` while operations are in flight on it.
    #[must_use]
    pub fn take(&self, fd: Fd) -> Option<OwnedFd> {
        self.shared.borrow_mut().ring.take(fd)
    }

    /// Ends a descriptor; operations on a socket are cancelled and complete as usual.
    pub fn close(&self, fd: Fd) {
        self.shared.borrow_mut().ring.close(fd);
    }

    /// An arena of the ring.
    #[must_use]
    pub fn arena(&self, id: ArenaId) -> Rc<Arena> {
        Rc::clone(self.shared.borrow().ring.arena(id))
    }

    /// Gives the ring a share of an arena of the owner's own.
    #[must_use]
    pub fn add_arena(&self, arena: Rc<Arena>) -> ArenaId {
        self.shared.borrow_mut().ring.add_arena(arena)
    }

    /// Sends what the socket takes now; see [`Ring::try_send`].
    ///
    /// # Errors
    /// `AGAIN` when it takes nothing now; else the connection's error.
    pub fn try_send(&self, fd: Fd, pieces: &[Piece<'_>], skip_bytes: u64) -> Result<u64, Errno> {
        self.shared.borrow_mut().ring.try_send(fd, pieces, skip_bytes)
    }

    /// Receives what is there now; see [`Ring::try_recv`].
    ///
    /// # Errors
    /// `AGAIN` when nothing is there now; else the connection's error.
    pub fn try_recv(&self, fd: Fd, buf: Buf) -> Result<u32, Errno> {
        self.shared.borrow_mut().ring.try_recv(fd, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reactor(ops_max: u32) -> RingReactor {
        RingReactor::new(Limits { ops_max, fds_max: 8 }).expect("io_uring works here")
    }

    #[test]
    fn completions_reach_the_port_that_asked() {
        let mut reactor = reactor(16);
        let (first, second) = (reactor.port(4), reactor.port(4));
        let now_ns = reactor.now_ns();
        first.submit(TOKEN_MAX, Op::Timeout { at_ns: now_ns }).expect("room");
        second.submit(7, Op::Timeout { at_ns: now_ns }).expect("room");
        let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
        while of_first.is_empty() || of_second.is_empty() {
            reactor.wait(now_ns + 5_000_000_000);
            first.drain(&mut of_first);
            second.drain(&mut of_second);
        }
        assert_eq!(of_first.iter().map(|completion| completion.token).collect::<Vec<_>>(), [TOKEN_MAX]);
        assert_eq!(of_second.iter().map(|completion| completion.token).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_port_keeps_to_its_share_until_it_drains() {
        let mut reactor = reactor(4);
        let port = reactor.port(2);
        let now_ns = reactor.now_ns();
        assert_eq!(port.submit(1, Op::Timeout { at_ns: now_ns }), Ok(()));
        assert_eq!(port.submit(2, Op::Timeout { at_ns: now_ns + 1_000_000 }), Ok(()));
        assert_eq!(port.submit(3, Op::Timeout { at_ns: now_ns }), Err(Full));
        while reactor.shared.borrow().undrained < 2 {
            reactor.wait(now_ns + 5_000_000_000);
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(port.submit(3, Op::Timeout { at_ns: now_ns }), Err(Full));
        let mut completions = Vec::new();
        port.drain(&mut completions);
        assert_eq!(completions.len(), 2);
        assert_eq!(port.submit(3, Op::Timeout { at_ns: now_ns }), Ok(()));
    }

    #[test]
    fn a_dropped_port_gives_its_share_back_when_its_last_operation_ended() {
        let mut reactor = reactor(4);
        let port = reactor.port(4);
        let at_ns = reactor.now_ns() + 1_000_000;
        port.submit(1, Op::Timeout { at_ns }).expect("room");
        drop(port);
        assert_eq!(reactor.shared.borrow().ops_left, 0);
        while reactor.shared.borrow().ops_left == 0 {
            reactor.wait(at_ns + 5_000_000_000);
        }
        drop(reactor.port(4));
        assert_eq!(reactor.shared.borrow().undrained, 0);
        assert_eq!(reactor.shared.borrow().ops_left, 4);
    }

    #[test]
    fn another_thread_ends_the_sleep() {
        let mut reactor = reactor(4);
        let waker = reactor.waker().expect("a waker");
        let begin_ns = reactor.now_ns();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            waker.wake();
        });
        reactor.wait(begin_ns + 10_000_000_000);
        let slept_ns = reactor.now_ns() - begin_ns;
        assert!((9_000_000..5_000_000_000).contains(&slept_ns), "slept {slept_ns} ns");
        thread.join().expect("the thread ends");
    }

    #[test]
    fn a_wait_ends_at_its_time() {
        let mut reactor = reactor(4);
        let until_ns = reactor.now_ns() + 2_000_000;
        reactor.wait(until_ns);
        assert!(reactor.now_ns() >= until_ns);
    }
}
