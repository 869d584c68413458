//! Balance: which of two ways a large write takes, the log or past it, when it may take either.
//!
//! Why: a burst is over soonest when both are busy to its end. All of it past the log goes at the back end's rate (.4 of
//! both, with 150 MB/s of disk before 90 MB/s of link); all of it into the log at the disk's.
//!
//! How: each way's rate is measured over the time that something is under way on it. A write takes the way on which it, and what is
//! before it, would be done first (join the shortest queue, in time). Before both rates are known, bytes are compared. The rate of
//! a way that nothing took for [`FORGET_NS`] does not count until something takes it: a way that was slow once would never be taken
//! again.
//!
//! Limits: the log's rate is that of its groups, small writes included. After a pause the first write passes the log.

/// A rate is of so much time in use at least.
const WINDOW_NS: u64 = 10_000_000;
/// What the newest window counts.
const WEIGHT: f64 = 0.3;
/// A way that was not taken for so long may have become another.
const FORGET_NS: u64 = 100_000_000;

/// What is under way on one way.
#[derive(Debug, Default)]
pub(super) struct Flow {
    sectors: u64,
    /// How long something was under way since the rate was last renewed, and what ended in that time.
    used_ns: u64,
    ended: u64,
    /// When it was last looked at.
    seen_ns: u64,
    /// Sectors a nanosecond.
    rate: Option<f64>,
}

impl Flow {
    pub(super) fn begins(&mut self, now_ns: u64, sectors: u64) {
        self.look(now_ns);
        self.sectors += sectors;
    }

    pub(super) fn ends(&mut self, now_ns: u64, sectors: u64) {
        self.look(now_ns);
        self.sectors -= sectors;
        self.ended += sectors;
        if self.used_ns >= WINDOW_NS {
            let now = self.ended as f64 / self.used_ns as f64;
            let old = self.rate.unwrap_or(now);
            self.rate = Some(old + (now - old) * WEIGHT);
            (self.used_ns, self.ended) = (0, 0);
        }
    }

    fn look(&mut self, now_ns: u64) {
        if self.sectors > 0 {
            self.used_ns += now_ns.saturating_sub(self.seen_ns);
        }
        self.seen_ns = now_ns;
    }

    fn rate(&self, now_ns: u64) -> Option<f64> {
        let is_forgotten = self.sectors == 0 && now_ns.saturating_sub(self.seen_ns) > FORGET_NS;
        self.rate.filter(|_| !is_forgotten)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Balance {
    pub(super) log: Flow,
    pub(super) past: Flow,
}

impl Balance {
    /// Whether a write of so many sectors is done sooner past the log.
    pub(super) fn is_past(&self, now_ns: u64, sectors: u64) -> bool {
        let [log, past] = [&self.log, &self.past].map(|flow| (flow.sectors + sectors) as f64);
        match (self.log.rate(now_ns), self.past.rate(now_ns)) {
            (Some(log_rate), Some(past_rate)) => past / past_rate <= log / log_rate,
            _ => past <= log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    /// A way that takes so many sectors a microsecond, one write after the other.
    struct Way {
        per_us: u64,
        ends_ns: VecDeque<u64>,
    }

    const SECTORS: u64 = 256;

    proptest! {
        /// Writers of 128 KiB at a depth: together the ways take nearly what both can.
        #[test]
        fn a_burst_takes_both_ways(log in 1..40u64, past in 1..40u64, depth in 8..64usize) {
            let mut ways = [log, past].map(|per_us| Way { per_us, ends_ns: VecDeque::new() });
            let (mut balance, mut now_ns, mut done) = (Balance::default(), 0, 0);
            let end_ns = 2_000_000_000;
            while now_ns < end_ns {
                while ways[0].ends_ns.len() + ways[1].ends_ns.len() < depth {
                    let at = usize::from(balance.is_past(now_ns, SECTORS));
                    let flow = if at == 1 { &mut balance.past } else { &mut balance.log };
                    flow.begins(now_ns, SECTORS);
                    let way = &mut ways[at];
                    let begin_ns = way.ends_ns.back().copied().unwrap_or(now_ns).max(now_ns);
                    way.ends_ns.push_back(begin_ns + SECTORS * 1000 / way.per_us);
                }
                let at = (0..2).min_by_key(|at| ways[*at].ends_ns.front().copied().unwrap_or(u64::MAX)).unwrap();
                now_ns = ways[at].ends_ns.pop_front().unwrap();
                let flow = if at == 1 { &mut balance.past } else { &mut balance.log };
                flow.ends(now_ns, SECTORS);
                done += SECTORS;
            }
            let most = (log + past) * end_ns / 1000;
            // A way whose turn is shorter than a write's share of the queue is empty now and then.
            let least = if log.max(past) <= log.min(past) * depth as u64 / 4 { 0.9 } else { 0.75 };
            prop_assert!(done as f64 >= least * most as f64, "{done} of {most}");
        }
    }

    #[test]
    fn the_slower_way_is_taken_when_the_faster_one_has_enough() {
        let mut balance = Balance::default();
        for nth in 1..=10u64 {
            for (flow, rate) in [(&mut balance.log, 1000), (&mut balance.past, 100)] {
                flow.begins((nth - 1) * 20_000_000, rate);
                flow.ends(nth * 20_000_000, rate);
            }
        }
        let now_ns = 250_000_000;
        assert!(!balance.is_past(now_ns, 100));
        balance.log.begins(now_ns, 1000);
        assert!(balance.is_past(now_ns, 100));
        balance.past.begins(now_ns, 100);
        assert!(!balance.is_past(now_ns, 100));
    }

    #[test]
    fn a_way_that_was_slow_once_is_tried_again() {
        let mut balance = Balance::default();
        balance.log.begins(0, 100);
        balance.past.begins(0, 100);
        balance.past.ends(20_000_000, 100);
        balance.log.ends(2_000_000_000, 100);
        let now_ns = 2_010_000_000;
        balance.past.begins(now_ns, 1000);
        assert!(balance.is_past(now_ns, 100));
        assert!(!balance.is_past(now_ns + FORGET_NS, 100));
    }
}
