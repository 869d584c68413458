//! Ranges whose contents are not certain to outlive the server: what is cached of them must be dropped when it restarts.
//!
//! A write that failed, or was not answered in time, may have left anything, in a cache that the server may lose. So
//! did a write that was acknowledged but could not be made durable. Whoever read the range since caches what a restart
//! may take back. A flush that succeeds ends that. The list is bounded; beyond the bound it means the whole export.

use alloc::vec::Vec;

use super::action::Range;

/// The most ranges named at once; more than that are told as the whole export.
pub const IN_DOUBT_RANGES_MAX: usize = 64;

/// Any export, whatever its size.
pub(super) const EVERYTHING: Range = Range { start: 0, end: u64::MAX };

/// Uncertain ranges, with the time on the client's logical clock after which a flush settles them.
#[derive(Debug, Default)]
pub(super) struct Uncertain {
    ranges: Vec<(Range, u64)>,
}

impl Uncertain {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn add(&mut self, range: Range, stamp: u64) {
        if self.ranges.len() == IN_DOUBT_RANGES_MAX {
            self.ranges.clear();
            self.ranges.push((EVERYTHING, stamp));
            return;
        }
        self.ranges.push((range, stamp));
    }

    /// A flush sent at `stamp` succeeded.
    pub(super) fn settle_before(&mut self, stamp: u64) {
        self.ranges.retain(|(_, added)| *added >= stamp);
    }

    pub(super) fn ranges(&self) -> Vec<Range> {
        self.ranges.iter().map(|(range, _)| *range).collect()
    }
}

/// Sorts and joins ranges; more than [`IN_DOUBT_RANGES_MAX`] become one that covers everything up to `size_bytes`.
pub(super) fn join(mut ranges: Vec<Range>, size_bytes: u64) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for range in ranges {
        let end = range.end.min(size_bytes);
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(end),
            _ => joined.push(Range { start: range.start, end }),
        }
    }
    if joined.len() > IN_DOUBT_RANGES_MAX {
        joined.clear();
        joined.push(Range { start: 0, end: size_bytes });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn touching_ranges_are_told_as_one() {
        let joined = join(alloc::vec![range(20, 30), range(0, 10), range(10, 12), range(5, 8)], 100);
        assert_eq!(joined, [range(0, 12), range(20, 30)]);
    }

    #[test]
    fn too_many_ranges_are_told_as_everything() {
        let many = |count: u64| (0..count).map(|n| range(n * 10, n * 10 + 5)).collect();
        assert_eq!(join(many(64), 5_000).len(), 64);
        assert_eq!(join(many(65), 5_000), [range(0, 5_000)]);
        let mut uncertain = Uncertain::default();
        for n in 0..65 {
            uncertain.add(range(n * 10, n * 10 + 5), n);
        }
        assert_eq!(join(uncertain.ranges(), 5_000), [range(0, 5_000)]);
        uncertain.settle_before(64);
        assert!(!uncertain.is_empty(), "the newest is not settled yet");
        uncertain.settle_before(65);
        assert!(uncertain.is_empty());
    }
}
