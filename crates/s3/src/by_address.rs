//! By address: pages of the object space, read from the store for the shard.
//!
//! How: the catalogue says which bytes lie at the addresses ([`Stretch`]). What lies together in one version is asked for at once, [`STRETCH_BYTES_MAX`] at
//! most, in the gateway's own name, and received into the frames themselves.
//!
//! Who reads them was let in before: the cache is asked for pages only of an answer that was confirmed, or is believed. So it does not matter here
//! who it is.
//!
//! Invariants: what is given to the shard are bytes of the version that has the addresses, or nothing. It has them until the read has ended: they are
//! cleaned by an eviction, which waits for it.
//!
//! Limits: an answer that does not say how long it is counts as a failure. One that is not what was asked for ends its connection.

use crate::backend::BackEnd;
use crate::body::Failed;
use crate::cached::Cached;
use crate::counts::{Addressed, Purpose};
use crate::device::{Ask, StoreReads};
use crate::serving::Sent;
use forebay_engine::device::IoError;
use forebay_objects::{Judged, Stretch};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;

/// Of one request.
const STRETCH_BYTES_MAX: u64 = 1 << 20;

/// Pages that are read by one request.
struct Together {
    stretch: Stretch,
    asks: Vec<Ask>,
}

/// Why there are no bytes.
enum Without {
    Changed,
    Trouble(Failed),
}

/// Serves what the shard asks, until it is gone.
pub(crate) async fn serve(cached: Arc<Cached>, backend: Arc<BackEnd<Sent>>, mut reads: StoreReads) {
    while let Some(asks) = reads.next().await {
        for together in together(&cached, asks) {
            tokio::spawn(read(Arc::clone(&cached), Arc::clone(&backend), together));
        }
    }
}

/// Those of a turn that lie at known addresses; what lies behind each other as one.
fn together(cached: &Cached, asks: Vec<Ask>) -> Vec<Together> {
    let objects = cached.objects();
    let mut found: Vec<Together> = Vec::new();
    for ask in asks {
        let Some(stretch) = objects.stretch(ask.addresses()) else {
            cached.counts.addressed(Addressed::Declined, 1, 0);
            ask.end(Err(IoError::Declined));
            continue;
        };
        if let Some(last) = found.last_mut()
            && last.stretch.join(&stretch, STRETCH_BYTES_MAX)
        {
            last.asks.push(ask);
        } else {
            found.push(Together { stretch, asks: vec![ask] });
        }
    }
    found
}

async fn read(cached: Arc<Cached>, backend: Arc<BackEnd<Sent>>, mut together: Together) {
    let given_up: Vec<_> = together.asks.iter_mut().map(Ask::given_up).collect();
    let received = unless_given_up(given_up, received(&cached, &backend, &mut together)).await;
    let part = together.stretch.part();
    let (result, how, bytes) = match received {
        Ok(()) => (Ok(()), Addressed::Served, part.end - part.start),
        Err(Without::Changed) => (Err(IoError::Declined), Addressed::Declined, 0),
        Err(Without::Trouble(error)) => {
            tracing::debug!(%error, "the store was to serve what the cache disk has");
            (Err(IoError::Failed), Addressed::Failed, 0)
        }
    };
    cached.counts.addressed(how, together.asks.len(), bytes);
    together.asks.into_iter().for_each(|ask| ask.end(result));
}

/// Receives the bytes into the frames.
async fn received(cached: &Cached, backend: &BackEnd<Sent>, together: &mut Together) -> Result<(), Without> {
    let Together { stretch, asks } = together;
    let request = stretch.request().ok_or(Without::Changed)?;
    let answer = backend.read_own(request).await;
    cached.counts.asked(Purpose::Split, &answer);
    let answer = answer.map_err(|error| Without::Trouble(error.into()))?;
    match stretch.judge(answer.status(), answer.headers()) {
        Judged::Bytes => {}
        Judged::Changed => return Err(Without::Changed),
        Judged::Refused => {
            let told = format!("the store {} answers {} to the gateway's key", backend.address(), answer.status());
            return Err(Without::Trouble(told.into()));
        }
    }
    let mut body = answer.into_body();
    let mut left = stretch.part().end - stretch.part().start;
    for ask in asks {
        let blank = ask.blank();
        let bytes = left.min(blank.len() as u64);
        left -= bytes;
        let (of_object, behind) = blank.split_at_mut(bytes as usize);
        body.fill(of_object).await.map_err(Without::Trouble)?;
        behind.fill(0);
    }
    Ok(())
}

/// As it ends, or as soon as nobody waits for one of them any more.
async fn unless_given_up(
    mut given_up: Vec<oneshot::Receiver<()>>,
    reading: impl Future<Output = Result<(), Without>>,
) -> Result<(), Without> {
    let mut reading = pin!(reading);
    poll_fn(|context| {
        if given_up.iter_mut().any(|it| Pin::new(it).poll(context).is_ready()) {
            return Poll::Ready(Err(Without::Trouble("it took too long".into())));
        }
        reading.as_mut().poll(context)
    })
    .await
}
