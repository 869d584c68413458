//! On the way: bytes of a body that were given out and are not sent yet.
//!
//! Why: HTTP's library gathers what it is given, a quarter of a MiB for each connection. Of 2,000 slow clients that is half a GiB, or
//! as much of the cache that nobody else may use.
//!
//! How: each piece is counted until it is dropped, which is when the kernel has taken it. A body that has enough on the way waits.

use hyper::body::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    state: Mutex<(u64, Option<Waker>)>,
}

/// Some of them.
struct Piece {
    bytes: Bytes,
    on_the_way: Arc<OnTheWay>,
}

impl OnTheWay {
    fn state(&self) -> MutexGuard<'_, (u64, Option<Waker>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are so many; then the task is woken when there are fewer.
    pub(crate) fn is_full(&self, bytes_max: u64, context: &Context<'_>) -> bool {
        let mut state = self.state();
        let is_full = state.0 >= bytes_max;
        if is_full {
            state.1 = Some(context.waker().clone());
        }
        is_full
    }

    /// Counts the bytes until they are dropped.
    pub(crate) fn follow(this: &Arc<Self>, bytes: Bytes) -> Bytes {
        this.state().0 += bytes.len() as u64;
        Bytes::from_owner(Piece { bytes, on_the_way: Arc::clone(this) })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = self.on_the_way.state();
        state.0 -= self.bytes.len() as u64;
        if let Some(waker) = state.1.take() {
            drop(state);
            waker.wake();
        }
    }
}
