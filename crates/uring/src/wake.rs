//! Waking a shard from another thread.

/// A handle with which any thread wakes the ring that made it ([`crate::Ring::waker`]). Wakes that
/// come before the ring has seen the first one are folded into it.
#[derive(Clone, Debug)]
pub struct Wake {}

impl Wake {
    /// Makes the ring's [`crate::Ring::wait`] return, with a completion that carries the waker's
    /// token. Anything written before this call is visible to the shard after that completion.
    pub fn wake(&self) {
        todo!()
    }
}
