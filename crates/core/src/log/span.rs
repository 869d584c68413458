//! Spans: disjoint runs of sectors in a tree by first sector, each of somebody.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// One of them; its first sector is its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span<T> {
    pub(super) end: u64,
    pub(super) of: T,
}

/// Takes the sectors out of every span. Returns how many there were.
pub(super) fn cut<T: Copy>(spans: &mut BTreeMap<u64, Span<T>>, sectors: &Range<u64>) -> u64 {
    let mut gone = 0;
    if sectors.is_empty() {
        return gone;
    }
    if let Some((_, span)) = spans.range_mut(..sectors.start).next_back()
        && span.end > sectors.start
    {
        let tail = *span;
        span.end = sectors.start;
        gone += tail.end.min(sectors.end) - sectors.start;
        if tail.end > sectors.end {
            spans.insert(sectors.end, tail);
        }
    }
    while let Some((&first, &span)) = spans.range(sectors.clone()).next() {
        spans.remove(&first);
        gone += span.end.min(sectors.end) - first;
        if span.end > sectors.end {
            spans.insert(sectors.end, span);
        }
    }
    gone
}
