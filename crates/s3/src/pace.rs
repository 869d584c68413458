//! Pace: how much a client may have on the way, by how quickly it takes that.
//!
//! Why: a quick client is served in few large steps; 2,000 slow ones must not hold a large buffer each.
//!
//! How: a body that is given out waits while its window is on the way. When a window has been given out and the waiting in it took less than [`QUICK`]
//! the next one is twice as large, up to a limit; otherwise it is the smallest.

use crate::on_the_way::OnTheWay;
use hyper::body::Bytes;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Who waits less than this for a window's room has a quick client.
const QUICK: Duration = Duration::from_millis(20);
/// The least that a client may have on the way.
const WINDOW_BYTES_MIN: u64 = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    on_the_way: Arc<OnTheWay>,
    window_bytes: u64,
    window_bytes_max: u64,
    /// Of the window, what was given out.
    given_bytes: u64,
    /// In it.
    waited: Duration,
    waits_since: Option<Instant>,
}

impl Pace {
    /// What a client may have on the way at first, and at most.
    pub(crate) fn new(window_bytes: u64, window_bytes_max: u64) -> Self {
        Self {
            on_the_way: Arc::default(),
            window_bytes,
            window_bytes_max,
            given_bytes: 0,
            waited: Duration::ZERO,
            waits_since: None,
        }
    }

    /// What the client may have on the way now.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Waits until more may be given out: the window, or what `bytes_max` says.
    pub(crate) fn poll_room(&mut self, bytes_max: u64, context: &Context<'_>) -> Poll<()> {
        if self.on_the_way.is_full(self.window_bytes.min(bytes_max), context) {
            self.waits_since.get_or_insert_with(Instant::now);
            return Poll::Pending;
        }
        if let Some(since) = self.waits_since.take() {
            self.waited += since.elapsed();
        }
        Poll::Ready(())
    }

    /// Gives them out.
    pub(crate) fn give(&mut self, bytes: Bytes) -> Bytes {
        self.given_bytes += bytes.len() as u64;
        if self.given_bytes >= self.window_bytes {
            let is_quick = self.waited < QUICK;
            self.window_bytes =
                if is_quick { (self.window_bytes * 2).min(self.window_bytes_max) } else { WINDOW_BYTES_MIN };
            self.given_bytes = 0;
            self.waited = Duration::ZERO;
        }
        OnTheWay::follow(&self.on_the_way, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn give(pace: &mut Pace, bytes: usize) -> Option<Bytes> {
        let context = Context::from_waker(Waker::noop());
        pace.poll_room(u64::MAX, &context).is_ready().then(|| pace.give(Bytes::from(vec![0; bytes])))
    }

    #[test]
    fn a_body_waits_while_its_window_is_on_the_way() {
        let mut pace = Pace::new(64 << 10, 256 << 10);
        let (first, second) = (give(&mut pace, 40 << 10), give(&mut pace, 40 << 10));
        // The first window was given out without waiting.
        assert_eq!(pace.window_bytes(), 128 << 10);
        let third = give(&mut pace, 50 << 10);
        assert!(first.is_some() && second.is_some() && third.is_some());
        assert!(give(&mut pace, 1).is_none());
        drop(first);
        assert!(give(&mut pace, 1).is_some());
    }

    #[test]
    fn a_slow_client_has_little_on_the_way_until_it_is_quick() {
        let mut pace = Pace::new(64 << 10, 256 << 10);
        let first = give(&mut pace, 128 << 10);
        assert!(give(&mut pace, 1).is_none());
        std::thread::sleep(QUICK);
        drop(first);
        assert!(give(&mut pace, 128 << 10).is_some());
        assert_eq!(pace.window_bytes(), WINDOW_BYTES_MIN);
        for _ in 0..20 {
            assert!(give(&mut pace, 256 << 10).is_some());
        }
        assert_eq!(pace.window_bytes(), 256 << 10);
    }
}
