//! Link: a wire that has a rate and a latency, between a connection and who serves it.
//!
//! Why: a gain is seen beside a store that is as far away as stores are, on a machine that has no namespaces and no `tc`.
//!
//! How: each way has one [`Way`], shared by all connections as a wire is. What was read leaves when the way is free, and arrives a latency later.
//! Times are absolute, so that a timer that is late does not lower the rate.
//!
//! Invariant: a way never carries more than its rate allows, whatever the connections are. Limit: at most [`UNDER_WAY_MAX`] pieces
//! a connection and way are under way; 64 MiB a second over 60 ms need no more.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

/// What is sent at once.
const PIECE_BYTES: usize = 32 << 10;
const UNDER_WAY_MAX: usize = 128;

/// How a link is.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Each way.
    pub bytes_per_s: u64,
    /// From one end to the other.
    pub latency: Duration,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Link {
    there: Arc<Way>,
    back: Arc<Way>,
}

impl Link {
    /// A link that nobody uses yet.
    #[must_use]
    pub fn new(config: LinkConfig) -> Self {
        let way = || Arc::new(Way { config, free: Mutex::new(None) });
        Self { there: way(), back: way() }
    }

    /// The far end of a connection. Call it in a runtime; the ends of both sides are passed on.
    pub(crate) fn over<S: AsyncRead + AsyncWrite + Send + 'static>(&self, near: S) -> DuplexStream {
        let (far, ours) = tokio::io::duplex(PIECE_BYTES);
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(ours);
        tokio::spawn(carry(Arc::clone(&self.there), near_read, far_write));
        tokio::spawn(carry(Arc::clone(&self.back), far_read, near_write));
        far
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    config: LinkConfig,
    /// When what was given to it has left.
    free: Mutex<Option<Instant>>,
}

impl Way {
    /// When so many bytes that are given to it now have arrived.
    fn arrival(&self, now: Instant, bytes: usize) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.config.bytes_per_s as f64);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let left = free.map_or(now, |free| free.max(now)) + takes;
        *free = Some(left);
        left + self.config.latency
    }
}

/// Until either side ends; how is seen by the other.
async fn carry(way: Arc<Way>, mut from: impl AsyncRead + Unpin, into: impl AsyncWrite + Unpin + Send + 'static) {
    let (queue, arriving) = mpsc::channel(UNDER_WAY_MAX);
    tokio::spawn(deliver(arriving, into));
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let arrival = way.arrival(Instant::now(), length);
        if queue.send((arrival, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut arriving: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut into: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some((arrival, piece)) = arriving.recv().await {
        tokio::time::sleep_until(arrival.into()).await;
        into.write_all(&piece).await?;
        into.flush().await?;
    }
    into.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: LinkConfig = LinkConfig { bytes_per_s: 1_000_000, latency: Duration::from_millis(5) };

    #[test]
    fn a_way_is_shared_and_never_faster_than_its_rate() {
        let way = Way { config: CONFIG, free: Mutex::new(None) };
        let (now, ms) = (Instant::now(), Duration::from_millis(1));
        assert_eq!(way.arrival(now, 1000), now + 6 * ms);
        assert_eq!(way.arrival(now, 2000), now + 8 * ms, "behind the first");
        assert_eq!(way.arrival(now + 100 * ms, 1000), now + 106 * ms, "idle time is not saved up");
    }

    #[test]
    fn bytes_arrive_in_order_and_late_and_so_does_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(carried());
    }

    async fn carried() {
        let link = Link::new(CONFIG);
        let (mut client, near) = tokio::io::duplex(1 << 10);
        let mut far = link.over(near);
        let sent: Vec<u8> = (0..100_000).map(|at: u32| (at % 251) as u8).collect();
        let begun = Instant::now();
        let expected = sent.clone();
        tokio::spawn(async move {
            client.write_all(&sent).await.expect("sent");
            client.shutdown().await.expect("ended");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.expect("the far end ends too");
        });
        let mut found = Vec::new();
        far.read_to_end(&mut found).await.expect("all of it");
        assert!(found == expected, "other bytes");
        assert!(begun.elapsed() >= Duration::from_millis(100), "{:?} for 100 ms of bytes", begun.elapsed());
    }
}
