//! The checksums of what the log holds: of each record, one for each block that it touches.
//!
//! How: all in one queue, in the order of records; of each record, where its first lies. A group that is written brings
//! those of its records, in whatever order groups end.
//!
//! Memory: 4 bytes a block, and 8 a record.

use super::super::RecordId;
use alloc::collections::VecDeque;
use core::ops::Range;

/// See the module.
#[derive(Debug)]
pub(super) struct Checks {
    /// The record whose checksums come first.
    first: RecordId,
    /// Of each record, the place of its first.
    places: VecDeque<u64>,
    /// The place of `sums[0]`.
    begin: u64,
    sums: VecDeque<u32>,
}

impl Checks {
    pub(super) fn new(first: RecordId) -> Self {
        Self { first, places: VecDeque::new(), begin: 0, sums: VecDeque::new() }
    }

    fn end(&self) -> u64 {
        self.begin + self.sums.len() as u64
    }

    /// The next record touches so many blocks; their sums are not known yet.
    pub(super) fn append(&mut self, blocks: usize) {
        self.places.push_back(self.end());
        self.sums.resize(self.sums.len() + blocks, 0);
    }

    fn range(&self, record: RecordId) -> Range<usize> {
        let nth = (record - self.first) as usize;
        let end = self.places.get(nth + 1).copied().unwrap_or(self.end());
        (self.places[nth] - self.begin) as usize..(end - self.begin) as usize
    }

    /// The sums of a record's blocks.
    pub(super) fn set(&mut self, record: RecordId, sums: &[u32]) {
        let range = self.range(record);
        assert_eq!(range.len(), sums.len(), "a sum for each block");
        self.sums.range_mut(range).zip(sums).for_each(|(into, sum)| *into = *sum);
    }

    /// Those of some of a record's blocks.
    pub(super) fn of(&self, record: RecordId, blocks: Range<usize>) -> impl Iterator<Item = u32> {
        let range = self.range(record);
        assert!(blocks.end <= range.len(), "blocks of the record");
        self.sums.range(range.start + blocks.start..range.start + blocks.end).copied()
    }

    /// Records before that one have left.
    pub(super) fn left(&mut self, first: RecordId) {
        while self.first < first {
            self.places.pop_front();
            self.first += 1;
        }
        let begin = self.places.front().copied().unwrap_or(self.end());
        self.sums.drain(..(begin - self.begin) as usize);
        self.begin = begin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_record_has_its_own_whatever_the_order_in_which_they_come_and_leave() {
        let mut checks = Checks::new(7);
        for blocks in [2, 0, 3, 1] {
            checks.append(blocks);
        }
        let of = |checks: &Checks, record, blocks| checks.of(record, blocks).collect::<Vec<u32>>();
        checks.set(9, &[30, 31, 32]);
        checks.set(7, &[10, 11]);
        assert_eq!((of(&checks, 7, 0..2), of(&checks, 9, 1..3)), (Vec::from([10, 11]), Vec::from([31, 32])));
        checks.left(9);
        checks.set(10, &[40]);
        checks.append(1);
        checks.set(11, &[50]);
        assert_eq!((of(&checks, 9, 0..1), of(&checks, 10, 0..1)), (Vec::from([30]), Vec::from([40])));
        checks.left(12);
        checks.append(1);
        checks.set(12, &[60]);
        assert_eq!(of(&checks, 12, 0..1), [60]);
    }
}
