//! Counts: what the gateway did, for metrics.
//!
//! How: each is an atomic that is added to and ordered with nothing. A request that is answered adds to three of them, a body
//! from the cache once for each page, one that is passed on once in all. What an answer was is read from what the client is told.
//!
//! Invariant: counts only grow.

use crate::backend::BackEndError;
use crate::body::{Body, Failed};
use forebay_objects::{REASONS, Verb, reason_of};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::HeaderName;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub(crate) const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What a request asks for: bytes or headers of an object, something else that changes nothing, the rest.
pub const OPERATIONS: [&str; 4] = ["get", "head", "look", "change"];
/// As `X-Cache` has them; the last is an answer of the gateway's own, that the store does not answer.
pub const OUTCOMES: [&str; 6] = ["HIT", "REVALIDATED", "PARTIAL", "MISS", "BYPASS", "NONE"];
/// Of HTTP's statuses.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const BYPASS: usize = 4;
const NONE: usize = 5;

/// Where bytes that are sent come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The pool: memory or disk.
    Cache,
    /// Copies of small objects.
    Copy,
    /// The store, by a request that was passed on.
    Passed,
    /// The store, since the cache lacked them.
    Fetched,
}
/// Of [`Source`], in order.
pub const SOURCES: [&str; 4] = ["cache", "copy", "passed", "fetched"];

/// What the store is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What the client asks.
    Pass,
    /// Whether what is cached may be read, and is current.
    Confirm,
    /// What the cache lacks.
    Fetch,
    /// What the cache disk has, too: by its addresses.
    Split,
}
/// Of [`Purpose`], in order.
pub const PURPOSES: [&str; 4] = ["pass", "confirm", "fetch", "split"];

/// How a read by addresses ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressed {
    /// With its bytes.
    Served,
    /// The store has another version by now, or there is none at these addresses.
    Declined,
    /// The store was no help.
    Failed,
}
/// Of [`Addressed`], in order.
pub const ADDRESSED: [&str; 3] = ["served", "declined", "failed"];

/// The first bucket of durations ends at this power of two, in nanoseconds; 25 follow, and one for the rest.
const OCTAVE_MIN: u32 = 10;
const OCTAVES: usize = 26;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: [[[AtomicU64; CLASSES.len()]; OUTCOMES.len()]; OPERATIONS.len()],
    reasons: [AtomicU64; REASONS.len()],
    sent_bytes: [AtomicU64; SOURCES.len()],
    asked: [AtomicU64; PURPOSES.len()],
    addressed: [AtomicU64; ADDRESSED.len()],
    addressed_bytes: AtomicU64,
    away: AtomicU64,
    late: AtomicU64,
    waited: AtomicU64,
    connections: AtomicU64,
    refused: AtomicU64,
    durations: [Durations; OUTCOMES.len()],
}

#[derive(Debug, Default)]
struct Durations {
    octaves: [AtomicU64; OCTAVES],
    sum_ns: AtomicU64,
}

/// Durations as they were counted: (upper bound in nanoseconds, how many in the bucket), and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationCounts {
    /// By bucket, lowest first; the bound is excluded, and `u64::MAX` for the rest.
    pub buckets: Vec<(u64, u64)>,
    /// Nanoseconds.
    pub sum_ns: u64,
}

/// A look at the counts. Arrays are in the order of the names: [`OPERATIONS`], [`OUTCOMES`], [`CLASSES`], [`REASONS`], [`SOURCES`],
/// [`PURPOSES`], [`ADDRESSED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests answered.
    pub requests: [[[u64; CLASSES.len()]; OUTCOMES.len()]; OPERATIONS.len()],
    /// Answers that were not cached, by why.
    pub reasons: [u64; REASONS.len()],
    /// Bytes of bodies that were sent.
    pub sent_bytes: [u64; SOURCES.len()],
    /// Requests to the store.
    pub asked: [u64; PURPOSES.len()],
    /// Pages that were read by addresses, or were to be.
    pub addressed: [u64; ADDRESSED.len()],
    /// Bytes that came of them.
    pub addressed_bytes: u64,
    /// Of the requests, those that found no store.
    pub away: u64,
    /// And those that it did not begin to answer in time.
    pub late: u64,
    /// Times that a request waited for bytes that another one brought.
    pub waited: u64,
    /// Connections taken.
    pub connections: u64,
    /// Connections turned away.
    pub refused: u64,
    /// From a request's head to its answer's, by outcome.
    pub durations: [DurationCounts; OUTCOMES.len()],
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn gets<const N: usize>(counts: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|at| get(&counts[at]))
}

/// What the client is told of an answer: the outcome, and why it was not cached.
fn told(answer: &Response<Body>) -> (usize, Option<usize>) {
    let headers = answer.headers();
    let Some(value) = headers.get(X_CACHE) else { return (NONE, None) };
    let outcome = OUTCOMES.iter().position(|known| value.as_bytes() == known.as_bytes()).unwrap_or(NONE);
    let reason = || {
        let status = headers.get(CACHE_STATUS)?.to_str().ok()?;
        Some(reason_of(status.rsplit_once("detail=")?.1))
    };
    (outcome, (outcome == BYPASS).then(reason).flatten())
}

impl Counts {
    /// A request that took so long to be answered with this. The answer, whose body counts itself if nobody else does, and why it was
    /// not cached.
    pub(crate) fn answered(
        self: &Arc<Self>,
        verb: Verb,
        took: Duration,
        answer: Response<Body>,
    ) -> (Response<Body>, Option<usize>) {
        let operation = match verb {
            Verb::Read { head: false } => 0,
            Verb::Read { head: true } => 1,
            Verb::Look => 2,
            Verb::Change => 3,
        };
        let (outcome, reason) = told(&answer);
        let class = usize::from(answer.status().as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        add(&self.requests[operation][outcome][class], 1);
        let took_ns = took.as_nanos() as u64;
        let octave = (u64::BITS - took_ns.leading_zeros()).saturating_sub(OCTAVE_MIN) as usize;
        add(&self.durations[outcome].octaves[octave.min(OCTAVES - 1)], 1);
        add(&self.durations[outcome].sum_ns, took_ns);
        if let Some(reason) = reason {
            add(&self.reasons[reason], 1);
        }
        let is_passed = matches!(OUTCOMES[outcome], "MISS" | "BYPASS");
        let answer = match is_passed && !answer.body().is_end_stream() {
            true => answer.map(|body| Counting { body, counts: Arc::clone(self), bytes: 0 }.boxed_unsync()),
            false => answer,
        };
        (answer, reason)
    }

    /// Bytes of a body are given out.
    pub(crate) fn sent(&self, source: Source, bytes: u64) {
        add(&self.sent_bytes[source as usize], bytes);
    }

    /// The store was asked.
    pub(crate) fn asked<T>(&self, purpose: Purpose, answer: &Result<T, BackEndError>) {
        add(&self.asked[purpose as usize], 1);
        match answer {
            Err(BackEndError::Away { .. } | BackEndError::Untrusted { .. }) => add(&self.away, 1),
            Err(BackEndError::Late { .. }) => add(&self.late, 1),
            Ok(_) | Err(BackEndError::Address { .. } | BackEndError::Trust(_)) => {}
        }
    }

    /// So many pages were read by their addresses, or were to be; so many bytes came of them.
    pub(crate) fn addressed(&self, how: Addressed, pages: usize, bytes: u64) {
        add(&self.addressed[how as usize], pages as u64);
        add(&self.addressed_bytes, bytes);
    }

    /// A request waits for what another one brings.
    pub(crate) fn waits(&self) {
        add(&self.waited, 1);
    }

    /// A client came, and found a place or none.
    pub(crate) fn came(&self, is_refused: bool) {
        add(if is_refused { &self.refused } else { &self.connections }, 1);
    }

    /// What was counted until now.
    pub(crate) fn look(&self) -> Counted {
        let durations = |of: &Durations| {
            let bound = |at: usize| if at + 1 == OCTAVES { u64::MAX } else { 1 << (OCTAVE_MIN as usize + at) };
            let buckets = of.octaves.iter().enumerate().map(|(at, count)| (bound(at), get(count)));
            DurationCounts { buckets: buckets.filter(|it| it.1 > 0).collect(), sum_ns: get(&of.sum_ns) }
        };
        let by_outcome = |of: &[[AtomicU64; CLASSES.len()]; OUTCOMES.len()]| std::array::from_fn(|at| gets(&of[at]));
        Counted {
            requests: std::array::from_fn(|at| by_outcome(&self.requests[at])),
            reasons: gets(&self.reasons),
            sent_bytes: gets(&self.sent_bytes),
            asked: gets(&self.asked),
            addressed: gets(&self.addressed),
            addressed_bytes: get(&self.addressed_bytes),
            away: get(&self.away),
            late: get(&self.late),
            waited: get(&self.waited),
            connections: get(&self.connections),
            refused: get(&self.refused),
            durations: std::array::from_fn(|at| durations(&self.durations[at])),
        }
    }
}

/// A body that is passed on, and counted when it has ended.
struct Counting {
    body: Body,
    counts: Arc<Counts>,
    bytes: u64,
}

impl HttpBody for Counting {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.counts.sent(Source::Passed, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::whole;

    fn answer(status: u16, x_cache: Option<&str>, detail: Option<&str>) -> Response<Body> {
        let mut answer = Response::builder().status(status);
        if let Some(x_cache) = x_cache {
            answer = answer.header(X_CACHE, x_cache);
        }
        if let Some(detail) = detail {
            answer = answer.header(CACHE_STATUS, format!("forebay; fwd=bypass; detail={detail}"));
        }
        answer.body(whole("12345")).expect("an answer")
    }

    #[test]
    fn an_answer_counts_as_what_the_client_is_told() {
        let counts = Arc::new(Counts::default());
        let get = Verb::Read { head: false };
        let mut reasons = Vec::new();
        for (verb, took_ns, it) in [
            (get, 1500, answer(206, Some("HIT"), None)),
            (get, 900, answer(200, Some("HIT"), None)),
            (get, 1 << 50, answer(403, Some("BYPASS"), Some("status"))),
            (Verb::Change, 0, answer(200, Some("BYPASS"), Some("something new"))),
            (Verb::Look, 0, answer(503, None, None)),
        ] {
            let (answer, reason) = counts.answered(verb, Duration::from_nanos(took_ns), it);
            reasons.extend(reason.map(|it| REASONS[it].0));
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(answer.into_body().collect()).expect("a body");
        }
        assert_eq!(reasons, ["status", "other"]);
        let counted = counts.look();
        assert_eq!((counted.requests[0][0][1], counted.requests[0][BYPASS][3]), (2, 1));
        assert_eq!((counted.requests[3][BYPASS][1], counted.requests[2][NONE][4]), (1, 1));
        assert_eq!(counted.requests.iter().flatten().flatten().sum::<u64>(), 5);
        assert_eq!(counted.durations[0], DurationCounts { buckets: vec![(1024, 1), (2048, 1)], sum_ns: 2400 });
        assert_eq!(counted.durations[BYPASS].buckets, [(1024, 1), (u64::MAX, 1)]);
        assert_eq!(counted.sent_bytes, [0, 0, 10, 0], "a hit's body counts itself");
    }
}
