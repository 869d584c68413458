//! On the way: bytes of a body that were given out and are not sent yet.
//!
//! Why: HTTP's library gathers what it is given, a quarter of a MiB for each connection. Of 2,000 slow clients that is half a GiB, or
//! as much of the cache that nobody else may use.
//!
//! How: each piece is counted until it is dropped, which is when the kernel has taken it. A body that has enough on the way waits.

use crate::body::Failed;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// What a body that is passed on may have on the way before it waits.
const PASSED_BYTES_MAX: u64 = 64 << 10;

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

/// A body that is passed on, and waits for its client.
#[derive(Debug)]
pub(crate) struct Paced<B> {
    body: B,
    on_the_way: Arc<OnTheWay>,
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, on_the_way: Arc::default() }
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Failed>,
{
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        if self.on_the_way.is_full(PASSED_BYTES_MAX, context) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let followed = |frame: Frame<Bytes>| frame.map_data(|data| OnTheWay::follow(&self.on_the_way, data));
        Poll::Ready(frame.map(|frame| frame.map(followed).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_waits_while_enough_is_on_the_way() {
        let mut body = Paced::new(Pieces(4));
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            Poll::Ready(_) => panic!("it has not ended"),
            Poll::Pending => None,
        };
        let (first, second) = (next(), next());
        assert!(first.is_some() && second.is_some() && next().is_none());
        drop(first);
        assert!(next().is_some());
    }

    /// So many, of 40 KiB each.
    struct Pieces(u32);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Failed;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
            let left = self.0;
            self.0 = left.saturating_sub(1);
            Poll::Ready((left > 0).then(|| Ok(Frame::data(Bytes::from(vec![0; 40 << 10])))))
        }
    }
}
