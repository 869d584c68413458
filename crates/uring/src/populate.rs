//! Commits an arena's memory in the background.
//!
//! Why: the first touch of a page of memory makes the kernel find and zero it. On the thread that serves, this was 85 %
//! of its time while a fresh tier filled (4 KiB misses in a virtual machine: 4,000 a second instead of 11,000), and
//! registering a chunk that nobody had touched stood still for 30 ms.
//!
//! How: a thread of the lowest priority goes through the mapping in steps of [`STEP_BYTES`] with
//! `MADV_POPULATE_WRITE`, which makes pages present and changes no byte. Whoever registers memory asks
//! [`Populating::covers`] first.
//!
//! Invariant: the thread has ended before the mapping goes; [`Populating`] joins it when dropped. Limit: a kernel
//! without the advice (before 5.14) commits memory as it is first touched, as without this.
//!
//! Rejected: `MAP_POPULATE` (a tier of 64 GiB would keep the first client waiting for half a minute).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rustix::mm::{Advice, madvise};
use rustix::process::setpriority_process;

/// Pages are made present in such steps: the thread looks in between whether it is to stop.
/// Each holds the lock of the process's memory, and on a busy machine a thread of the lowest priority is long about it: with 4 MiB
/// whoever mapped something else waited for 110 ms.
const STEP_BYTES: usize = 256 << 10;
/// The lowest priority.
const NICE: i32 = 19;

/// The memory of an arena, for the thread alone.
struct Span {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the thread only gives the address to the kernel, with advice that reads and changes no byte.
unsafe impl Send for Span {}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Bytes from the beginning that are present, or that will not be made so.
    done_bytes: AtomicUsize,
}

/// See the module.
pub(crate) struct Populating {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Populating {
    /// Starts the thread. Without one (no threads left), everything counts as done.
    ///
    /// # Safety
    /// `base..base + bytes` is a private anonymous mapping that stays until this is dropped.
    pub(crate) unsafe fn start(base: NonNull<c_void>, bytes: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let (span, of_thread) = (Span { base, bytes }, Arc::clone(&shared));
        let thread = thread::Builder::new().name("memory".to_owned()).spawn(move || run(&span, &of_thread)).ok();
        if thread.is_none() {
            shared.done_bytes.store(bytes, Ordering::Release);
        }
        Self { shared, thread }
    }

    /// Whether the first `bytes` bytes need not be waited for.
    pub(crate) fn covers(&self, bytes: usize) -> bool {
        self.shared.done_bytes.load(Ordering::Acquire) >= bytes
    }
}

impl Drop for Populating {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, it has ended all the same.
            let _ = thread.join();
        }
    }
}

fn run(span: &Span, shared: &Shared) {
    // Refused or not, the work is the same.
    let _ = setpriority_process(None, NICE);
    let mut done = 0;
    while done < span.bytes && !shared.stop.load(Ordering::Relaxed) {
        let step = STEP_BYTES.min(span.bytes - done);
        // SAFETY: the range lies in the mapping (`start`); the advice changes no contents, and whoever uses the pages
        // meanwhile finds them as they were.
        let populated = unsafe { madvise(span.base.as_ptr().byte_add(done), step, Advice::LinuxPopulateWrite) };
        done = if populated.is_ok() { done + step } else { span.bytes };
        shared.done_bytes.store(done, Ordering::Release);
    }
}
