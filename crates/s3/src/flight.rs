//! Flights: what is on its way from the store, so that nobody else fetches it too.
//!
//! Why: a training job's workers open the same file at one time. Each has to be allowed by the store, but the bytes need
//! to come once.
//!
//! How: a body that is kept on its way announces its range and says how far it came ([`Flight`]). Whoever wants a byte that is not here looks for a
//! flight that will bring it, and waits while that makes progress ([`Flights::wait`]). Before there is a version to speak of, a
//! read of the same part of the same name waits for the answer's head ([`Flights::lead`]).
//!
//! Limits: a flight is as fast as its own client. Who has waited [`PATIENCE`] in vain fetches for itself.

use forebay_core::BLOCK_BYTES;
use forebay_objects::{Asked, Name, VersionId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a flight may stand still before others stop waiting for it.
const PATIENCE: Duration = Duration::from_millis(500);

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What is being asked for before its version is known.
pub(crate) type Question = (Name, Option<Box<str>>, Asked);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    flights: BTreeMap<(VersionId, u64), Ranged>,
    questions: BTreeMap<Question, watch::Receiver<()>>,
}

#[derive(Debug)]
struct Ranged {
    /// Of the object's bytes.
    range: Range<u64>,
    /// How far it came.
    came: watch::Receiver<u64>,
}

/// A body on its way. It ends when the body has, and all of it is in the cache: with the last share in this.
#[derive(Debug)]
pub(crate) struct Flight {
    flights: Arc<Flights>,
    id: (VersionId, u64),
    came: watch::Sender<u64>,
    /// What came, behind something that has not: its beginning and end.
    beyond: Mutex<BTreeMap<u64, u64>>,
}

/// A part of a flight, that comes when this is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    flight: Arc<Flight>,
    part: Range<u64>,
}

/// Who asks first.
#[derive(Debug)]
pub(crate) enum Lead {
    /// This one; others wait until it is dropped.
    Own(Leading),
    /// Another one; it was waited for.
    Other,
}

/// See [`Lead`].
#[derive(Debug)]
pub(crate) struct Leading {
    flights: Arc<Flights>,
    question: Question,
    _answered: watch::Sender<()>,
}

impl Flights {
    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These bytes of a version are on their way.
    pub(crate) fn begin(self: &Arc<Self>, id: VersionId, range: Range<u64>) -> Arc<Flight> {
        let (sender, came) = watch::channel(range.start);
        let mut under_way = self.under_way();
        under_way.next += 1;
        let id = (id, under_way.next);
        under_way.flights.insert(id, Ranged { range, came });
        Arc::new(Flight { flights: Arc::clone(self), id, came: sender, beyond: Mutex::default() })
    }

    /// Bytes of the range that are on their way.
    pub(crate) fn coming(&self, id: VersionId, range: &Range<u64>) -> u64 {
        let under_way = self.under_way();
        let of_version = under_way.flights.range((id, 0)..=(id, u64::MAX));
        let overlap = |it: &Ranged| it.range.end.min(range.end).saturating_sub(it.range.start.max(range.start));
        // Two flights of one byte are rare; then more seems to come than does, and is fetched after all.
        of_version.map(|(_, it)| overlap(it)).sum()
    }

    /// Waits until all that is under way now has ended: it may still have addresses of versions that are forgotten.
    pub(crate) async fn settled(&self) {
        let latest = self.under_way().next;
        self.ended(|(_, number)| *number <= latest).await;
    }

    /// Waits until the byte is here, or nobody brings it. If it came: everything before which byte did.
    pub(crate) async fn wait(&self, id: VersionId, at: u64) -> Option<u64> {
        let found = {
            let under_way = self.under_way();
            let mut of_version = under_way.flights.range((id, 0)..=(id, u64::MAX));
            of_version.find(|(_, it)| it.range.contains(&at)).map(|(_, it)| it.came.clone())
        };
        let mut came = found?;
        // In time, or it has ended, or stands still.
        let _ = timeout(PATIENCE, came.wait_for(|came| *came > at)).await;
        let came = *came.borrow();
        (came > at).then_some(came)
    }

    /// Waits until no byte of the version is on its way any more.
    pub(crate) async fn end(&self, id: VersionId) {
        self.ended(|(version, _)| *version == id).await;
    }

    /// Waits until there is none of these.
    async fn ended(&self, is_one: impl Fn(&(VersionId, u64)) -> bool) {
        let next = || self.under_way().flights.iter().find(|(id, _)| is_one(id)).map(|(_, it)| it.came.clone());
        while let Some(mut came) = next() {
            // The sender goes with the flight.
            let _ = came.wait_for(|_| false).await;
        }
    }

    /// Asks first, or waits for who does.
    pub(crate) async fn lead(self: &Arc<Self>, question: Question) -> Lead {
        let mut answered = {
            let mut under_way = self.under_way();
            match under_way.questions.get(&question) {
                Some(answered) => answered.clone(),
                None => {
                    let (sender, receiver) = watch::channel(());
                    under_way.questions.insert(question.clone(), receiver);
                    return Lead::Own(Leading { flights: Arc::clone(self), question, _answered: sender });
                }
            }
        };
        // The sender only ever goes.
        let _ = timeout(PATIENCE, answered.changed()).await;
        Lead::Other
    }
}

impl Flight {
    /// These bytes are given to the cache.
    pub(crate) fn arrival(self: &Arc<Self>, part: Range<u64>) -> Arrival {
        Arrival { flight: Arc::clone(self), part }
    }

    fn came(&self, part: &Range<u64>) {
        let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond.insert(part.start, part.end);
        let mut came = *self.came.borrow();
        // The first block may begin behind the first byte.
        while let Some(next) = beyond.first_entry().filter(|next| *next.key() < came + BLOCK) {
            came = came.max(next.remove());
        }
        self.came.send_replace(came);
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.flight.came(&self.part);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.under_way().flights.remove(&self.id);
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.flights.under_way().questions.remove(&self.question);
    }
}
