//! Waking a shard from another thread.
//!
//! An eventfd that the ring keeps a read on. A flag beside it folds wakes: only the first after the
//! ring has seen the last one costs a system call.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

struct Shared {
    eventfd: OwnedFd,
    signalled: AtomicBool,
}

/// A handle with which any thread wakes the ring that made it ([`crate::Ring::waker`]). Wakes that
/// come before the ring has seen the first one are folded into it. Waking a ring that is gone does
/// nothing.
#[derive(Clone)]
pub struct Wake {
    shared: Arc<Shared>,
}

impl Wake {
    pub(crate) fn new() -> Result<Wake, Errno> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Wake { shared: Arc::new(Shared { eventfd, signalled: AtomicBool::new(false) }) })
    }

    /// Makes the ring's [`crate::Ring::wait`] return, with a completion that carries the waker's
    /// token. Anything written before this call is visible to the shard after that completion.
    pub fn wake(&self) {
        if !self.shared.signalled.swap(true, Ordering::AcqRel) {
            // Cannot block: the counter is at most 1, since the flag admits one write a read.
            let written = rustix::io::write(&self.shared.eventfd, &1_u64.to_ne_bytes());
            assert!(written == Ok(8), "an eventfd takes a count: {written:?}");
        }
    }

    /// The ring has seen the wakes up to now; the next one must signal again.
    pub(crate) fn seen(&self) {
        self.shared.signalled.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn eventfd(&self) -> &OwnedFd {
        &self.shared.eventfd
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}
