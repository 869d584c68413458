//! The extent map: which record of the log holds a sector's newest bytes (LATTE's L2P, section 6.2).
//!
//! Why: a read asks the log before the slots and the back end. Records are any run of 512-byte sectors, so a page may have
//! bytes of several, and the newest wins.
//!
//! How: disjoint spans in a tree by first sector. A new record cuts what it covers; a record that leaves the log takes
//! with it what is still its own. Each insertion adds at most two spans (itself, and the far end of one that it falls
//! into), so a log of `n` records has at most `2 n` of them.
//!
//! Memory: 24 bytes a span and a tree's slack, at most 48: 96 bytes for each record that is in the log.
//!
//! Rejected: an array by block (a log of any 512-byte extents in volumes of terabytes); a mask for each page (sectors of
//! one block may be in eight records).

use super::span::{Span, cut};
use alloc::collections::BTreeMap;
use core::ops::Range;

/// Names a record: its place in the order of all that the volume's log ever took.
pub type RecordId = u64;

/// A run of sectors that one record holds, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Sectors.
    pub sectors: Range<u64>,
    /// Who has their newest bytes.
    pub record: Option<RecordId>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    spans: BTreeMap<u64, Span<RecordId>>,
    /// In all spans.
    sectors: u64,
}

impl ExtentMap {
    /// How many spans there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no record holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Sectors that records hold.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The sectors have their newest bytes in that record now.
    pub fn insert(&mut self, sectors: Range<u64>, record: RecordId) {
        assert!(sectors.start < sectors.end, "a record has sectors");
        self.cut(&sectors);
        self.sectors += sectors.end - sectors.start;
        self.spans.insert(sectors.start, Span { end: sectors.end, of: record });
    }

    /// The record leaves: what it holds of these sectors, it holds no more.
    pub fn remove(&mut self, sectors: Range<u64>, record: RecordId) {
        let mut from = sectors.start;
        while let Some((&first, &span)) = self.spans.range(from..sectors.end).next() {
            if span.of == record {
                self.spans.remove(&first);
                self.sectors -= span.end - first;
            }
            from = span.end.min(sectors.end);
        }
    }

    /// The first stretch of the sectors, from their start; `None` when there are none.
    #[must_use]
    pub fn first(&self, sectors: &Range<u64>) -> Option<Stretch> {
        if sectors.start >= sectors.end {
            return None;
        }
        let stretch = |end: u64, record| Stretch { sectors: sectors.start..end.min(sectors.end), record };
        if let Some((_, span)) = self.spans.range(..=sectors.start).next_back()
            && span.end > sectors.start
        {
            return Some(stretch(span.end, Some(span.of)));
        }
        let next = self.spans.range(sectors.start..sectors.end).next();
        Some(stretch(next.map_or(sectors.end, |(first, _)| *first), None))
    }

    /// The first sectors at `from` or behind it that a record holds.
    #[must_use]
    pub fn held_from(&self, from: u64) -> Option<Stretch> {
        let here = self.first(&(from..from.checked_add(1)?))?;
        if here.record.is_some() {
            return self.first(&(from..u64::MAX));
        }
        let (first, span) = self.spans.range(from..).next()?;
        Some(Stretch { sectors: *first..span.end, record: Some(span.of) })
    }

    /// Whether a record holds any of the sectors.
    #[must_use]
    pub fn overlaps(&self, sectors: &Range<u64>) -> bool {
        self.spans.range(..sectors.end).next_back().is_some_and(|(_, span)| span.end > sectors.start)
    }

    /// Takes the sectors out of every span.
    pub(super) fn cut(&mut self, sectors: &Range<u64>) {
        self.sectors -= cut(&mut self.spans, sectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SECTORS: u64 = 64;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Range<u64>),
        Remove(usize),
    }

    fn sectors() -> impl Strategy<Value = Range<u64>> {
        (0..SECTORS, 1..=16u64).prop_map(|(first, count)| first..(first + count).min(SECTORS))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => sectors().prop_map(Step::Insert),
            2 => (0..40usize).prop_map(Step::Remove),
        ]
    }

    fn stretches(map: &ExtentMap, sectors: Range<u64>) -> Vec<Option<RecordId>> {
        let mut all = Vec::new();
        let mut left = sectors;
        while let Some(stretch) = map.first(&left) {
            assert!(stretch.sectors.start == left.start && stretch.sectors.end > left.start);
            all.extend(stretch.sectors.clone().map(|_| stretch.record));
            left.start = stretch.sectors.end;
        }
        all
    }

    proptest! {
        #[test]
        fn it_is_an_array_of_newest_records(steps in proptest::collection::vec(step(), 1..60)) {
            let mut map = ExtentMap::default();
            let mut newest = vec![None; SECTORS as usize];
            let mut records: Vec<Range<u64>> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(sectors) => {
                        newest[sectors.start as usize..sectors.end as usize].fill(Some(records.len() as u64));
                        map.insert(sectors.clone(), records.len() as u64);
                        records.push(sectors);
                    }
                    Step::Remove(nth) if nth < records.len() => {
                        newest.iter_mut().filter(|it| **it == Some(nth as u64)).for_each(|it| *it = None);
                        map.remove(records[nth].clone(), nth as u64);
                    }
                    Step::Remove(_) => {}
                }
                prop_assert_eq!(&stretches(&map, 0..SECTORS), &newest);
                prop_assert!(map.len() <= 2 * records.len());
                prop_assert_eq!(map.sectors(), newest.iter().flatten().count() as u64);
                for from in 0..SECTORS {
                    let held = map.held_from(from).map(|it| (it.sectors.start, it.record));
                    let expected = (from..SECTORS).find(|at| newest[*at as usize].is_some());
                    prop_assert_eq!(held, expected.map(|at| (at, newest[at as usize])));
                    let to = (from + 3).min(SECTORS);
                    let any = newest[from as usize..to as usize].iter().any(Option::is_some);
                    prop_assert_eq!(map.overlaps(&(from..to)), any);
                }
            }
        }
    }
}
