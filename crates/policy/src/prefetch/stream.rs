//! Stream table: recognises sequential runs among the interleaved requests of a volume.
//!
//! A client that reads in order is worth reading ahead for, and past a length not worth caching. Its
//! requests arrive mixed with others', so one "last offset" does not do: the table follows 64 runs at
//! a time. Open CAS follows 64 a queue, bcache the last 128 requests. Over an LRU of 10 % of the pages, .44
//! of the misses of the trace P3 continue one of 64 runs, and .39 of P6.
//!
//! 1. A run is known by where its last request ended. A request that begins there continues it.
//! 2. Any other request starts a run of its own, in place of the one continued longest ago.
//! 3. A run of [`STREAM_REQUESTS_MIN`] requests is a stream: two that meet happen by chance, three hardly.
//!
//! Runs are found by a hash of their end, with chains through the table, and kept in order of use by the
//! same links as the eviction policies': about as many instructions for 64 runs as for four.
//!
//! Invariants: a run with requests is in exactly one chain; all runs are in the order of use.
//!
//! Memory: 3 KiB a volume, allocated once.
//!
//! Limits: requests of one stream that overtake each other split it into runs, each of which ends where the
//! other began; a stream is recognised only when three in a row arrive in order. More than 64 requests
//! elsewhere between two of a stream lose it. Backward and strided runs are not recognised.

use crate::evict::{Links, List, NIL};
use crate::rng::mix64;

/// Runs that a table follows.
pub const STREAMS: usize = 64;

/// Requests in a row that make a stream.
pub const STREAM_REQUESTS_MIN: u32 = 3;

const BUCKETS: usize = 2 * STREAMS;

/// The index that stands for no run.
const NONE: u8 = u8::MAX;

/// The run that a request belongs to, the request included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Bytes from the first request's start to the last one's end.
    pub run_bytes: u64,
    /// Requests in the run.
    pub run_requests: u32,
}

impl Stream {
    /// Whether the run is long enough to expect that it goes on.
    pub const fn is_stream(&self) -> bool {
        self.run_requests >= STREAM_REQUESTS_MIN
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    stream: Stream,
    /// The next run in the bucket's chain.
    chained: u8,
}

/// The sequential runs of one volume.
#[derive(Debug)]
pub struct StreamTable {
    runs: [Run; STREAMS],
    buckets: [u8; BUCKETS],
    links: Links,
    recency: List,
}

impl StreamTable {
    /// A table that has seen nothing.
    pub fn new() -> Self {
        let unused = Run { end: 0, stream: Stream { run_bytes: 0, run_requests: 0 }, chained: NONE };
        let mut table = Self {
            runs: [unused; STREAMS],
            buckets: [NONE; BUCKETS],
            links: Links::new(STREAMS as u32),
            recency: List::EMPTY,
        };
        for run in 0..STREAMS as u32 {
            table.recency.push_head(&mut table.links, run);
        }
        table
    }

    /// Notes a request for `length` bytes at `offset` of the volume.
    pub fn observe(&mut self, offset: u64, length: u32) -> Stream {
        let run = self.ending_at(offset);
        let run = run.unwrap_or_else(|| self.replace_oldest());
        let Run { end, stream, .. } = &mut self.runs[run];
        stream.run_bytes = stream.run_bytes.saturating_add(u64::from(length));
        stream.run_requests = stream.run_requests.saturating_add(1);
        *end = offset.saturating_add(u64::from(length));
        let observed = *stream;
        self.chain(run);
        self.recency.move_to_head(&mut self.links, run as u32);
        observed
    }

    /// The run that ends at `offset`, the latest if there are several; taken out of its chain.
    fn ending_at(&mut self, offset: u64) -> Option<usize> {
        let mut run = self.buckets[bucket_of(offset)];
        while run != NONE {
            if self.runs[usize::from(run)].end == offset {
                self.unchain(run);
                return Some(usize::from(run));
            }
            run = self.runs[usize::from(run)].chained;
        }
        None
    }

    /// The run continued longest ago, emptied and in no chain.
    fn replace_oldest(&mut self) -> usize {
        let oldest = self.recency.tail();
        assert!(oldest != NIL, "every run is in the order of use");
        let run = &mut self.runs[oldest as usize];
        let was_used = run.stream.run_requests > 0;
        run.stream = Stream { run_bytes: 0, run_requests: 0 };
        if was_used {
            self.unchain(oldest as u8);
        }
        oldest as usize
    }

    fn chain(&mut self, run: usize) {
        let head = &mut self.buckets[bucket_of(self.runs[run].end)];
        self.runs[run].chained = *head;
        *head = run as u8;
    }

    fn unchain(&mut self, run: u8) {
        let Run { end, chained, .. } = self.runs[usize::from(run)];
        let bucket = bucket_of(end);
        let mut at = self.buckets[bucket];
        if at == run {
            self.buckets[bucket] = chained;
            return;
        }
        while self.runs[usize::from(at)].chained != run {
            at = self.runs[usize::from(at)].chained;
        }
        self.runs[usize::from(at)].chained = chained;
    }
}

impl Default for StreamTable {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket_of(end: u64) -> usize {
    mix64(end) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// (end, bytes, requests), latest first.
    #[derive(Default)]
    struct Naive(Vec<(u64, u64, u32)>);

    impl Naive {
        fn observe(&mut self, offset: u64, length: u32) -> Stream {
            let found = self.0.iter().position(|run| run.0 == offset);
            let (_, bytes, requests) = found.map_or((0, 0, 0), |at| self.0.remove(at));
            let length = u64::from(length);
            let run = (offset + length, bytes + length, requests + 1);
            self.0.insert(0, run);
            self.0.truncate(STREAMS);
            Stream { run_bytes: run.1, run_requests: run.2 }
        }
    }

    proptest! {
        #[test]
        fn equals_a_list_of_runs_that_is_searched(
            // Few places, so that runs continue, meet and are replaced; then many, so that 64 are too few.
            places in prop_oneof![Just(40_u64), Just(400_u64)],
            requests in proptest::collection::vec((any::<u64>(), 0..4_u32), 0..1_000),
        ) {
            let mut table = StreamTable::new();
            let mut naive = Naive::default();
            for (place, blocks) in requests {
                let (offset, length) = (place % places * 4_096, blocks * 4_096);
                prop_assert_eq!(table.observe(offset, length), naive.observe(offset, length));
            }
        }
    }

    #[test]
    fn follows_64_interleaved_streams() {
        let mut table = StreamTable::new();
        for step in 1..=10 {
            for client in 0..STREAMS as u64 {
                let stream = table.observe((client << 40) + (step - 1) * 4_096, 4_096);
                assert_eq!(stream.run_bytes, step * 4_096);
                assert_eq!(stream.is_stream(), step >= 3);
            }
        }
    }

    #[test]
    fn forgets_the_stream_continued_longest_ago_for_a_65th() {
        let mut table = StreamTable::new();
        for client in 0..=STREAMS as u64 {
            table.observe(client << 40, 4_096);
        }
        assert_eq!(table.observe((1 << 40) + 4_096, 4_096).run_requests, 2);
        assert_eq!(table.observe(4_096, 4_096).run_requests, 1);
    }

    #[test]
    fn the_largest_offsets_do_not_overflow() {
        let mut table = StreamTable::new();
        table.observe(u64::MAX, u32::MAX);
        let stream = table.observe(u64::MAX, u32::MAX);
        assert_eq!(stream.run_requests, 2);
        assert_eq!(stream.run_bytes, 2 * u64::from(u32::MAX));
    }
}
