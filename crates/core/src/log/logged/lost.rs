//! Sectors whose newest bytes are lost: disjoint extents, each with the epoch that they were lost with.
//!
//! How: a tree by first sector. Extents of one epoch that touch are one.
//!
//! Memory: 32 bytes an extent and a tree's slack, at most 64. Who inserts sees to the bound: a removal adds one extent at
//! most, an insertion two.

use super::super::span::{Span, cut};
use alloc::collections::BTreeMap;
use core::ops::Range;

/// Lost with one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostExtent {
    /// Sectors of the volume.
    pub sectors: Range<u64>,
    /// Boundaries before what is lost; `None` when the process that knew died, too.
    pub epoch: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostExtents {
    spans: BTreeMap<u64, Span<Option<u64>>>,
    sectors: u64,
}

impl LostExtents {
    /// How many extents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// In all extents.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// All, by first sector.
    pub fn iter(&self) -> impl Iterator<Item = LostExtent> + '_ {
        self.spans.iter().map(|(first, span)| LostExtent { sectors: *first..span.end, epoch: span.of })
    }

    /// Whether any of the sectors is lost.
    #[must_use]
    pub fn overlaps(&self, sectors: &Range<u64>) -> bool {
        let last = self.spans.range(..sectors.end).next_back();
        !sectors.is_empty() && last.is_some_and(|(_, span)| span.end > sectors.start)
    }

    /// Those of the sectors that are lost.
    pub fn within(&self, sectors: &Range<u64>) -> impl Iterator<Item = LostExtent> + '_ {
        let sectors = sectors.clone();
        let begin = self.spans.range(..sectors.start).next_back().map_or(sectors.start, |(first, _)| *first);
        self.spans.range(begin..sectors.end.max(begin)).filter_map(move |(first, span)| {
            let part = (*first).max(sectors.start)..span.end.min(sectors.end);
            (!part.is_empty()).then_some(LostExtent { sectors: part, epoch: span.of })
        })
    }

    /// No more than so many extents: where there are, their ends are moved apart until enough of them meet. Sectors between are lost
    /// that were not.
    pub fn coarsen(&mut self, extents_max: usize) {
        let mut unit = 8;
        while self.spans.len() > extents_max.max(1) {
            for extent in core::mem::take(self).iter() {
                let sectors = extent.sectors.start / unit * unit..extent.sectors.end.next_multiple_of(unit);
                // Of one epoch only, so that they become one.
                self.insert(sectors, None);
            }
            unit *= 2;
        }
    }

    /// These are lost, whatever was known of them.
    pub fn insert(&mut self, sectors: Range<u64>, epoch: Option<u64>) {
        if sectors.is_empty() {
            return;
        }
        self.remove(sectors.clone());
        self.sectors += sectors.end - sectors.start;
        let Range { mut start, mut end } = sectors;
        if let Some((&first, &span)) = self.spans.range(..start).next_back()
            && span == (Span { end: start, of: epoch })
        {
            start = first;
        }
        if let Some(next) = self.spans.get(&end).copied().filter(|next| next.of == epoch) {
            self.spans.remove(&end);
            end = next.end;
        }
        self.spans.insert(start, Span { end, of: epoch });
    }

    /// These are not.
    pub fn remove(&mut self, sectors: Range<u64>) {
        self.sectors -= cut(&mut self.spans, &sectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const SECTORS: u64 = 64;

    proptest! {
        #[test]
        fn it_is_an_array_of_epochs(
            steps in proptest::collection::vec((0..SECTORS, 0..16u64, proptest::option::of(0..3u64), any::<bool>()), 1..60),
        ) {
            let mut lost = LostExtents::default();
            let mut array = vec![None; SECTORS as usize];
            for (first, count, epoch, inserts) in steps {
                let sectors = first..(first + count).min(SECTORS);
                let here = &mut array[sectors.start as usize..sectors.end as usize];
                if inserts {
                    here.fill(Some(epoch));
                    lost.insert(sectors, epoch);
                } else {
                    here.fill(None);
                    lost.remove(sectors);
                }
                let mut shown = vec![None; SECTORS as usize];
                let mut last: Option<LostExtent> = None;
                for extent in lost.iter() {
                    prop_assert!(extent.sectors.start < extent.sectors.end);
                    if let Some(last) = last {
                        let touches = last.sectors.end == extent.sectors.start;
                        prop_assert!(last.sectors.end <= extent.sectors.start && !(touches && last.epoch == extent.epoch));
                    }
                    shown[extent.sectors.start as usize..extent.sectors.end as usize].fill(Some(extent.epoch));
                    last = Some(extent);
                }
                prop_assert_eq!(&shown, &array);
                prop_assert_eq!(lost.sectors(), array.iter().flatten().count() as u64);
                let mut coarse = lost.clone();
                coarse.coarsen(3);
                prop_assert!(coarse.len() <= lost.len().min(3));
                prop_assert!(lost.len() > 3 || coarse == lost);
                prop_assert!(lost.iter().all(|it| coarse.within(&it.sectors).map(|it| it.sectors).eq([it.sectors])));
                for first in 0..SECTORS {
                    let end = (first + 3).min(SECTORS);
                    let within: u64 = lost.within(&(first..end)).map(|it| it.sectors.end - it.sectors.start).sum();
                    let counted = array[first as usize..end as usize].iter().flatten().count();
                    prop_assert_eq!(within, counted as u64);
                    let any = array[first as usize..end as usize].iter().any(Option::is_some);
                    prop_assert_eq!(lost.overlaps(&(first..end)), any);
                }
            }
        }
    }
}
