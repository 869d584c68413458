//! A histogram of durations, as it travels: non-empty logarithmic buckets.

use serde::{Deserialize, Serialize};

/// Durations by bucket. Buckets are (upper bound, count), the bound excluded, lowest first; powers of two are bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were counted.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// (Upper bound in nanoseconds, how many in the bucket.)
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// A histogram of these buckets.
    #[must_use]
    pub fn new(count: u64, sum_ns: u64, buckets: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { count, sum_ns, buckets: buckets.into_iter().collect() }
    }

    /// Counts below `bound_ns`, which must be a power of two to be exact.
    #[must_use]
    pub fn count_below(&self, bound_ns: u64) -> u64 {
        self.buckets.iter().take_while(|(bound, _)| *bound <= bound_ns).map(|(_, count)| count).sum()
    }

    /// The bound of the bucket below which `permil` thousandths of the durations lie; `None` without any.
    #[must_use]
    pub fn quantile_ns(&self, permil: u64) -> Option<u64> {
        let total: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let rank = (u128::from(total) * u128::from(permil)).div_ceil(1000).max(1) as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|(bound, count)| {
            seen += count;
            (seen >= rank).then_some(*bound)
        })
    }

    /// What was counted since `earlier`, another look at the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bound: u64| {
            let at = earlier.buckets.binary_search_by_key(&bound, |(bound, _)| *bound);
            at.map_or(0, |at| earlier.buckets[at].1)
        };
        let gained = self.buckets.iter().map(|&(bound, count)| (bound, count.saturating_sub(before(bound))));
        Self::new(
            self.count.saturating_sub(earlier.count),
            self.sum_ns.saturating_sub(earlier.sum_ns),
            gained.filter(|(_, count)| *count > 0),
        )
    }

    /// Adds another histogram, as of another shard.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        for &(bound, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&bound, |(bound, _)| *bound) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (bound, count)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bucket_bounds() {
        let latency = Latency::new(100, 0, [(1024, 90), (2048, 9), (4096, 1)]);
        for (permil, expected) in [(0, 1024), (500, 1024), (900, 1024), (901, 2048), (990, 2048), (999, 4096)] {
            assert_eq!(latency.quantile_ns(permil), Some(expected), "{permil}");
        }
        assert_eq!(Latency::default().quantile_ns(500), None);
        assert_eq!(latency.count_below(2048), 99);
    }

    #[test]
    fn what_came_since_is_the_difference() {
        let earlier = Latency::new(3, 10, [(8, 1), (32, 2)]);
        let later = Latency::new(6, 40, [(8, 1), (16, 1), (32, 4)]);
        assert_eq!(later.since(&earlier), Latency::new(3, 30, [(16, 1), (32, 2)]));
        assert_eq!(earlier.since(&later), Latency::default(), "a server that was started anew has not gained");
    }

    #[test]
    fn shards_add_up() {
        let mut sum = Latency::new(2, 10, [(8, 1), (32, 1)]);
        sum.add(&Latency::new(2, 10, [(16, 1), (32, 1)]));
        assert_eq!(sum, Latency::new(4, 20, [(8, 1), (16, 1), (32, 2)]));
    }
}
