//! Counters, and latency histograms cheap enough for every request.
//!
//! Counters only grow; whoever exports them takes differences. A histogram has four buckets an octave (19 % wide at
//! most), so that a p99 read from it is within that of the true one.

use alloc::vec::Vec;

const OCTAVES: usize = 40;
const BUCKETS: usize = OCTAVES * 4;
/// Recent durations: after so many, all count half.
const RECENT_MAX: u64 = 10_000;

/// Durations by bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum_ns: 0 }
    }
}

impl Histogram {
    fn bucket(latency_ns: u64) -> usize {
        if latency_ns < 4 {
            return latency_ns as usize;
        }
        let octave = 63 - latency_ns.leading_zeros();
        let quarter = latency_ns >> (octave - 2) & 3;
        ((octave as usize - 1) * 4 + quarter as usize).min(BUCKETS - 1)
    }

    /// The first duration beyond a bucket.
    fn bound_ns(bucket: usize) -> u64 {
        if bucket < 4 {
            return bucket as u64 + 1;
        }
        let octave = bucket as u64 / 4 + 1;
        (4 + bucket as u64 % 4 + 1) << (octave - 2)
    }

    /// Counts one.
    pub fn record(&mut self, latency_ns: u64) {
        self.buckets[Self::bucket(latency_ns)] += 1;
        self.count += 1;
        self.sum_ns += latency_ns;
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// A duration that `share` (0 to 1000 permil) of those counted do not exceed; 0 if there are none.
    #[must_use]
    pub fn quantile_ns(&self, permil: u64) -> u64 {
        let rank = (self.count * permil).div_ceil(1000);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && count > 0 {
                return Self::bound_ns(bucket);
            }
        }
        0
    }

    /// The non-empty buckets as (upper bound, count), lowest first.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, &n)| (Self::bound_ns(at), n))
    }

    /// Counts one, and sees to it that old ones weigh less: for what is usual of late.
    pub(crate) fn record_recent(&mut self, latency_ns: u64) {
        self.record(latency_ns);
        if self.count > RECENT_MAX {
            self.decay();
        }
    }

    /// How long may be waited before something is late: ten times what nearly all take, between `floor_ns` and `most_ns`
    /// (at least the floor).
    pub(crate) fn late_ns(&self, floor_ns: u64, most_ns: u64) -> u64 {
        (10 * self.quantile_ns(990)).clamp(floor_ns, most_ns.max(floor_ns))
    }

    /// Halves every count.
    fn decay(&mut self) {
        self.count = 0;
        for bucket in &mut self.buckets {
            *bucket /= 2;
            self.count += *bucket;
        }
        self.sum_ns /= 2;
    }
}

/// What one volume has seen.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Debug, Default)]
pub struct VolumeStats {
    /// Requests answered, well or not.
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub trims: u64,
    /// Bytes that clients read and wrote.
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Bytes that somebody else brought from the back end.
    pub fill_bytes: u64,
    /// Parts of reads (one a page) by the farthest path they needed.
    pub memory_hits: u64,
    pub disk_hits: u64,
    /// Hits on the cache disk that the back end served.
    pub backend_hits: u64,
    pub misses: u64,
    /// Of the misses, those while the slot table was still being read.
    pub recovering: u64,
    /// Bytes that moved by path.
    pub memory_read_bytes: u64,
    pub disk_read_bytes: u64,
    pub backend_read_bytes: u64,
    pub backend_write_bytes: u64,
    /// Bytes that the disk tier took.
    pub admitted_bytes: u64,
    /// Requests that failed.
    pub read_errors: u64,
    pub write_errors: u64,
    pub flush_errors: u64,
    /// Slot reads that were given up and sent to the back end.
    pub hedged: u64,
    /// Blocks that back end and slot did not agree about, and hits that went to the slot after all.
    pub split_mismatches: u64,
    pub split_failovers: u64,
    /// Reads of the back end for hits, by latency, recent ones.
    pub split_read_latency: Histogram,
    /// From first byte known to answer ordered.
    pub read_latency: Histogram,
    pub write_latency: Histogram,
    pub flush_latency: Histogram,
}

/// What the cache has seen.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// By volume.
    pub volumes: Vec<VolumeStats>,
    /// Bytes written to slots, and sectors (4 KiB) of table and intent maps.
    pub slot_write_bytes: u64,
    pub table_sector_writes: u64,
    pub intent_writes: u64,
    /// Sweeps that ended well.
    pub sweeps: u64,
    /// Blocks on the cache disk that were not what was written there.
    pub bad_blocks: u64,
    /// Cache-disk operations that failed.
    pub disk_errors: u64,
    /// Pages not taken by the disk tier: too many stores in flight, or no slot could be freed.
    pub stores_skipped: u64,
    /// Times the cache went on without something (fail open): the cache disk given up.
    pub fail_opens: u64,
    /// Slot reads by latency, recent ones.
    pub slot_read_latency: Histogram,
}

/// What the cache holds and has under way, now.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Pages kept in memory, and how many can be.
    pub memory_pages: u32,
    pub memory_pages_max: u32,
    /// Pages on the cache disk, and slots.
    pub disk_pages: u32,
    pub disk_pages_max: u32,
    /// Slots whose records were read so far.
    pub scanned_slots: u32,
    /// Whether the table is still being read.
    pub recovering: bool,
    /// Whether the cache disk is in use.
    pub disk_attached: bool,
    /// Requests in flight, those that wait for frames, orders unanswered, stores in flight.
    pub requests: u32,
    pub requests_waiting: u32,
    pub orders: u32,
    pub stores: u32,
    /// Table sectors that have to be written.
    pub dirty_sectors: u32,
    /// Regions of all intent maps that are set.
    pub intent_regions: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        for latency_ns in 1..=100_000 {
            histogram.record(latency_ns);
        }
        for permil in [10, 500, 990, 999] {
            let (is, truth) = (histogram.quantile_ns(permil), permil * 100);
            assert!(is >= truth && is <= truth * 5 / 4 + 1, "{permil}: {is} for {truth}");
        }
    }

    #[test]
    fn every_duration_lies_below_its_buckets_bound() {
        for shift in 0..39 {
            for latency_ns in [1u64 << shift, (1 << shift) + 1, (3 << shift) / 2] {
                let bucket = Histogram::bucket(latency_ns);
                assert!(latency_ns < Histogram::bound_ns(bucket), "{latency_ns}");
                assert!(bucket == 0 || latency_ns >= Histogram::bound_ns(bucket - 1), "{latency_ns}");
            }
        }
    }
}
