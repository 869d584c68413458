//! The write-back log of one volume: a local ring that takes its writes, and gives them to the back end in order (LATTE,
//! section 6.2, with the order that it leaves open).
//!
//! Why: a write behind a link takes a round trip, one to the local disk a tenth of that. But a back end that gets writes in
//! any order is worthless when the cache disk is lost: a file system's journal may be there without what it speaks of.
//! So the back end follows epoch by epoch, and is at any time what a plain disk may be after a power cut.
//!
//! How:
//! 1. [`Log::append`] gives a change its place in the order. [`Log::next_group`] writes what waits at once; so many groups
//!    may be under way, and the next gathers meanwhile. Groups are answered in their order ([`Log::group_written`]), so
//!    what is acknowledged is a prefix of the log, whatever order the disk has.
//! 2. A flush or a write with FUA closes the epoch ([`Log::close`]) and waits for the disk. An epoch that grows long is
//!    closed without a promise.
//! 3. [`Log::next_write_back`] takes the oldest epoch, merges what overwrites within it, and hands it out in long runs
//!    ([`write_back`]). When all are answered the next epoch follows; after one that ends in a promise, only when the
//!    back end has flushed.
//! 4. What is flushed there leaves the map. When the disk knows the new tail ([`Log::anchored`]) its room is free, and what
//!    follows a boundary may go to the back end.
//!
//! Why the back end is consistent: let k be the last boundary that it has flushed. A change of epoch k + 1 reaches it only
//! after that flush, and one of a later epoch only after the flush of k + 1. So each sector has its value at k, or one
//! written to it in epoch k + 1. Epochs closed without a promise are parts of that epoch, in order. A crash changes nothing
//! of this: the disk knows the tail before anything of k + 1 leaves, so no recovery writes an epoch before k again.
//!
//! Invariants: a record is in the map from its answer until the back end has flushed its epoch; records, groups and epochs
//! are in one order; the tail never passes a record that is in the map.
//!
//! Limits: the back end follows at most one boundary in a round trip, a flush and a write of the tail. A record costs memory
//! ([`LogLimits::memory_bytes`]), and there are at most `records_max`. Failed writes to the ring are the cache's affair: it gives the disk up.
//!
//! Rejected: write-back from the map of newest bytes, which merges epochs (an old epoch lacks what a later one wrote
//! over); one ring for all volumes (a back end that stalls holds the tail of all); waiting for the flush of the back end
//! after each part of a long epoch (a boundary is what was promised, no more).

mod give_up;
pub mod logged;
mod map;
mod record;
mod recovery;
mod ring;
mod span;
mod write_back;

#[cfg(test)]
mod tests;

pub use map::{ExtentMap, RecordId, Stretch};
pub use record::{GROUP_RECORDS_MAX, Group, Kind, Record, SECTOR_BYTES, Tail, descriptor_sectors_of};
pub use recovery::{FoundGroup, Scan};
pub use ring::Ring;
pub use write_back::Run;

use alloc::collections::VecDeque;
use core::ops::Range;
use record::{BLOCK_SECTORS, Epoch, descriptor_sectors};
use write_back::WriteBack;

/// Bounds of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Records in the log, answered or not, from the tail that the disk knows.
    pub records_max: u64,
    /// An epoch with so many records is closed, so that working on one is bounded.
    pub epoch_records_max: u64,
    /// And one with so many sectors of bytes, so that room comes in small steps.
    pub epoch_sectors_max: u64,
    /// Sectors of a group.
    pub group_sectors_max: u64,
    /// Groups under way.
    pub groups_max: usize,
}

impl LogLimits {
    /// Records that a log of so many bytes may have: one for each 16 KiB, but not so few that small writes find its end long
    /// before its bytes, nor so many that they cost more memory than they are worth.
    #[must_use]
    pub fn records_max_of(log_bytes: u64) -> u64 {
        (log_bytes >> 14).clamp(4_096, 1 << 20)
    }

    /// What a log of so many bytes costs in memory when it is full: 168 bytes for each record (48 in its queue, which may be
    /// half empty, 96 for its spans in the map, 24 for where its checksums are, and for a block that it has in part), the
    /// checksums of the log's blocks, and the map of the epoch that is being written back.
    #[must_use]
    pub fn memory_bytes(&self, log_bytes: u64) -> u64 {
        let checksums = log_bytes / (BLOCK_SECTORS * SECTOR_BYTES) * 8;
        self.records_max * 168 + checksums + self.epoch_records_max * 96
    }
}

/// See the module.
#[derive(Debug)]
pub struct Log {
    limits: LogLimits,
    /// Rises with each attach.
    life: u64,
    ring: Ring,
    /// Those in the log, oldest first; the first of them is `first`.
    records: VecDeque<Record>,
    first: RecordId,
    /// Groups with a record in the log, and whether they are written.
    groups: VecDeque<(Group, bool)>,
    /// How many of them are not.
    groups_under_way: usize,
    /// Records before this are in a group.
    grouped: RecordId,
    /// Boundaries before that record.
    grouped_epoch: u64,
    /// Records before this are written, and so are all before them.
    written: RecordId,
    /// Records before this are durable on the cache disk.
    durable: RecordId,
    /// The disk knows that records before this are on the back end.
    anchored: RecordId,
    /// Closed ones that the back end has not flushed.
    epochs: VecDeque<Epoch>,
    /// The last boundary that was closed is before this.
    closed: RecordId,
    /// Nothing from this record on may be written back.
    hold: Option<RecordId>,
    /// Sectors of bytes in the open epoch.
    open_sectors: u64,
    map: ExtentMap,
    write_back: WriteBack,
}

impl Log {
    /// An empty log, whose next group lies at the ring's head. `life`: higher than that of any group on the disk.
    #[must_use]
    pub fn new(limits: LogLimits, ring: Ring, life: u64) -> Self {
        assert!(limits.records_max > 0 && limits.epoch_records_max > 0 && limits.groups_max > 0);
        assert!(limits.group_sectors_max <= ring.size());
        Self {
            limits,
            life,
            ring,
            records: VecDeque::new(),
            first: 0,
            groups: VecDeque::new(),
            groups_under_way: 0,
            grouped: 0,
            grouped_epoch: 0,
            written: 0,
            durable: 0,
            anchored: 0,
            epochs: VecDeque::new(),
            closed: 0,
            hold: None,
            open_sectors: 0,
            map: ExtentMap::default(),
            write_back: WriteBack::default(),
        }
    }

    /// An empty log goes on with that record.
    fn begin_at(&mut self, first: RecordId) {
        assert!(self.records.is_empty() && self.epochs.is_empty());
        (self.first, self.grouped, self.written) = (first, first, first);
        (self.durable, self.anchored, self.closed) = (first, first, first);
        self.write_back = WriteBack::at(first);
    }

    /// The record that the next change will be.
    #[must_use]
    pub fn next(&self) -> RecordId {
        self.first + self.records.len() as u64
    }

    /// Records before this are written: their clients may be answered.
    #[must_use]
    pub fn written(&self) -> RecordId {
        self.written
    }

    /// The record of that name. It is in the log.
    #[must_use]
    pub fn record(&self, id: RecordId) -> &Record {
        &self.records[(id - self.first) as usize]
    }

    /// The oldest record in the log: all before it are on the back end, for good.
    #[must_use]
    pub fn first(&self) -> RecordId {
        self.first
    }

    /// Records before this are durable on the log's disk.
    #[must_use]
    pub fn durable(&self) -> RecordId {
        self.durable
    }

    /// Its bounds.
    #[must_use]
    pub fn limits(&self) -> &LogLimits {
        &self.limits
    }

    /// Its place on the disk.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Epochs that are closed, and not flushed by the back end.
    #[must_use]
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// Which records have the newest bytes.
    #[must_use]
    pub fn map(&self) -> &ExtentMap {
        &self.map
    }

    /// The position in the log of a sector of a record's payload.
    #[must_use]
    pub fn position(&self, id: RecordId, sector: u64) -> u64 {
        let record = self.record(id);
        assert!(record.kind == Kind::Data && record.range().contains(&sector));
        record.position + (sector - record.first)
    }

    /// Takes a change into the order; `None` when the log has as many records as it may.
    pub fn append(&mut self, record: Record) -> Option<RecordId> {
        assert!(record.sectors > 0 && self.sectors_of(&record) <= self.limits.group_sectors_max);
        let id = self.next();
        // Until the disk knows the tail, a recovery would find those before it, too.
        if id - self.anchored == self.limits.records_max {
            return None;
        }
        self.records.push_back(record);
        self.open_sectors += record.payload_sectors();
        let is_long = self.open_sectors >= self.limits.epoch_sectors_max;
        if is_long || self.next() - self.open_begin() == self.limits.epoch_records_max {
            self.close(false);
        }
        Some(id)
    }

    /// Whether the next group finds no room in the ring.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let next = self.records.get((self.grouped - self.first) as usize);
        let mut ring = self.ring;
        next.is_some_and(|record| ring.take(self.sectors_of(record)).is_none())
    }

    fn sectors_of(&self, record: &Record) -> u64 {
        descriptor_sectors(record.descriptor_bytes()) + record.payload_sectors()
    }

    /// What waits, as one write; `None` when nothing does, enough is under way, or the ring is full.
    pub fn next_group(&mut self) -> Option<Group> {
        if self.grouped == self.next() || self.groups_under_way == self.limits.groups_max {
            return None;
        }
        let (mut descriptor_bytes, mut payload, mut end) = (0, 0, self.grouped);
        while end < self.next().min(self.grouped + GROUP_RECORDS_MAX) {
            let record = self.record(end);
            let more = (descriptor_bytes + record.descriptor_bytes(), payload + record.payload_sectors());
            let sectors = descriptor_sectors(more.0) + more.1;
            let mut ring = self.ring;
            // What fits goes: the rest may wait for its room.
            if sectors > self.limits.group_sectors_max || ring.take(sectors).is_none() {
                break;
            }
            (descriptor_bytes, payload) = more;
            end += 1;
        }
        if end == self.grouped {
            return None;
        }
        let descriptor = descriptor_sectors(descriptor_bytes);
        let position = self.ring.take(descriptor + payload)?;
        let records = self.grouped..end;
        let mut at = position + descriptor;
        let epoch = self.grouped_epoch;
        for record in self.records.range_mut((records.start - self.first) as usize..(end - self.first) as usize) {
            record.position = at;
            at += record.payload_sectors();
            self.grouped_epoch += u64::from(record.boundary);
        }
        self.grouped = end;
        let (life, sectors) = (self.life, descriptor + payload);
        let group = Group { records, epoch, life, position, descriptor_sectors: descriptor, sectors };
        self.groups.push_back((group.clone(), false));
        self.groups_under_way += 1;
        Some(group)
    }

    /// A group is on the disk (in its cache at least). Gives the records that may be answered now, in order.
    pub fn group_written(&mut self, position: u64) -> Range<RecordId> {
        let begin = self.written;
        // A log may have as many groups as records: those answered long ago are not looked at.
        let unanswered = self.groups.partition_point(|(group, _)| group.records.end <= begin);
        let mut groups = self.groups.range_mut(unanswered..);
        let it = groups.find(|(group, is_written)| group.position == position && !is_written);
        it.expect("a group ends once").1 = true;
        self.groups_under_way -= 1;
        let written = self.groups.range(unanswered..).take_while(|(_, is_written)| *is_written).last();
        self.written = written.map_or(begin, |(group, _)| group.records.end);
        for id in begin..self.written {
            let range = self.record(id).range();
            self.map.insert(range, id);
        }
        begin..self.written
    }

    fn open_begin(&self) -> RecordId {
        self.epochs.back().map_or(self.write_back.flushed(), |epoch| epoch.end)
    }

    /// Closes the open epoch behind all that was appended. `boundary`: somebody will be promised that all of it is durable.
    /// Whoever was promised waits until [`Log::written`] is where this says, and then for a flush of the disk.
    pub fn close(&mut self, boundary: bool) -> RecordId {
        let end = self.next();
        self.open_sectors = 0;
        if self.open_begin() < end {
            self.epochs.push_back(Epoch { end, boundary });
        } else if let Some(last) = self.epochs.back_mut() {
            last.boundary |= boundary;
        }
        if let Some(last) = self.records.back_mut().filter(|last| boundary && !last.boundary) {
            last.boundary = true;
            // Its descriptor may be written already: the next one tells.
            self.grouped_epoch += u64::from(self.grouped == end);
        }
        if boundary {
            if self.records.is_empty() && self.write_back.promised() < end {
                // It ends with a record that the back end has flushed already. The disk must know before a later one leaves.
                self.write_back.promised_all();
                self.grouped_epoch += 1;
            }
            self.closed = end;
        }
        end
    }

    /// The disk has flushed, and the records before that were written before the flush began.
    pub fn flushed_disk(&mut self, before: RecordId) {
        assert!(before <= self.written, "what is flushed was written");
        self.durable = self.durable.max(before);
    }

    /// Where the log begins. When the disk knows for good: [`Log::anchored`].
    #[must_use]
    pub fn tail(&self) -> Tail {
        let group = self.groups.front().map(|(group, _)| (group.position, group.life));
        let (position, life) = group.unwrap_or((self.ring.in_use().end, self.life));
        Tail { position, first: self.first, life }
    }

    /// Whether somebody waits for the disk to know the tail: what follows a boundary, or whoever needs room.
    #[must_use]
    pub fn wants_anchor(&self) -> bool {
        self.anchored < self.first || self.ring.in_use().start < self.tail().position
    }

    /// Whether a change of these sectors may go to the back end without a record: it has flushed all up to the last boundary,
    /// no recovery would write an older record over it, nor would write-back.
    #[must_use]
    pub fn takes_bypass(&self, sectors: &Range<u64>) -> bool {
        self.closed <= self.write_back.promised() && self.anchored == self.first && !self.map.overlaps(sectors)
    }

    /// Nothing from this record on may be written back, until this is taken back. It lies behind a boundary.
    pub fn hold(&mut self, from: Option<RecordId>) {
        self.hold = from;
    }

    /// The disk knows this tail, for good.
    pub fn anchored(&mut self, tail: Tail) {
        assert!(tail.position <= self.tail().position && tail.first <= self.first && tail.first >= self.anchored);
        self.ring.free(tail.position);
        self.anchored = tail.first;
    }
}
