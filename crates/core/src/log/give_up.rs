//! A log whose disk fails: it takes nothing more, and what it has is written back or given up.
//!
//! Nothing is grouped from then on, so numbers that only matter for new groups are not kept right.

use super::record::Epoch;
use super::write_back::WriteBack;
use super::{Log, Record, RecordId};
use alloc::vec::Vec;

impl Log {
    /// What was not written is no longer in the log: those records, in their order. What is left of their epoch is one.
    pub(super) fn forget_unwritten(&mut self) -> Vec<Record> {
        let end = self.written;
        let forgotten: Vec<Record> = self.records.drain((end - self.first) as usize..).collect();
        let grouped = (self.grouped - end) as usize;
        let boundaries = forgotten[..grouped].iter().filter(|record| record.boundary).count();
        self.grouped_epoch -= boundaries as u64;
        self.grouped = end;
        self.groups.retain(|(group, _)| group.records.end <= end);
        let cut = self.epochs.iter().position(|epoch| epoch.end > end).unwrap_or(self.epochs.len());
        self.closed = self.closed.min(end);
        self.hold = self.hold.map(|hold| hold.min(end));
        let boundary = self.epochs.drain(cut..).any(|epoch| epoch.boundary);
        if self.open_begin() < end {
            self.epochs.push_back(Epoch { end, boundary });
        }
        forgotten
    }

    /// Boundaries before the oldest record.
    pub(super) fn first_epoch(&self) -> u64 {
        let grouped = self.records.iter().take((self.grouped - self.first) as usize);
        self.grouped_epoch - grouped.filter(|record| record.boundary).count() as u64
    }

    /// The records that are left, and the boundaries before each.
    pub(super) fn with_epochs(&self) -> impl Iterator<Item = (RecordId, &Record, u64)> {
        let before = self.records.iter().scan(self.first_epoch(), |epoch, record| {
            let before = *epoch;
            *epoch += u64::from(record.boundary);
            Some(before)
        });
        (self.first..).zip(self.records.iter().zip(before)).map(|(id, (record, epoch))| (id, record, epoch))
    }

    /// Nothing is left, and nothing is expected of the disk any more. No run is under way, nor a flush of the back end.
    pub(super) fn give_up(&mut self) {
        let end = self.next();
        self.records.clear();
        self.groups.clear();
        self.epochs.clear();
        self.map = super::ExtentMap::default();
        (self.first, self.grouped, self.written) = (end, end, end);
        (self.durable, self.anchored) = (end, end);
        self.closed = self.closed.min(end);
        self.write_back = WriteBack::at(end);
    }
}
