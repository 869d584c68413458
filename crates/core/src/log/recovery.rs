//! Recovery: the log that a scan finds on the disk, from its tail to where it ends.
//!
//! How:
//! 1. The scan begins at the tail that the disk knows. [`Scan::next`] says where the next group would lie: behind the last
//!    one, or at the ring's beginning if it did not fit there.
//! 2. [`Scan::found`] takes it, if it is the next: its records follow, and it was written in no earlier life than the one
//!    before it, or than the tail says. The scan ends where no group is.
//! 3. Bytes may be torn only in groups that nobody knew to be durable: [`Scan::unverified`] names them, and at the first
//!    with a bad checksum the log is cut ([`Scan::cut`]).
//! 4. [`Scan::into_log`]: all that is left was written, and after a flush is durable. Its last epoch ends in a boundary,
//!    whoever closed it: what was lost behind it is lost, and what comes now comes after.
//!
//! What was acknowledged is before the end: groups are answered in order, and a flush makes a prefix durable. After a
//! crash of the process alone everything answered is there.
//!
//! Invariant: scanning changes nothing on the disk, so that a crash meanwhile costs only time.

use super::record::{Group, Record, Tail, descriptor_sectors};
use super::ring::Ring;
use super::{Log, LogLimits, RecordId};
use alloc::vec::Vec;

/// A group, as it says of itself.
#[derive(Clone, Debug)]
pub struct FoundGroup<'a> {
    /// Where it lies.
    pub position: u64,
    /// Its first record.
    pub first: RecordId,
    /// Its records.
    pub records: &'a [Record],
    /// Boundaries before its first.
    pub epoch: u64,
    /// Records before this were durable when it was written.
    pub durable: RecordId,
    /// Attaches before it was written.
    pub life: u64,
}

#[cfg(test)]
impl Group {
    /// As a scan would find it.
    pub(super) fn found<'a>(&self, records: &'a [Record], durable: RecordId) -> FoundGroup<'a> {
        let Self { position, epoch, life, .. } = *self;
        FoundGroup { position, first: self.records.start, records, epoch, durable, life }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Scan {
    log: Log,
    tail: Tail,
    durable: RecordId,
    life: u64,
}

impl Scan {
    /// Begins at the tail that the disk knows. `ring`: empty, at its position.
    #[must_use]
    pub fn new(limits: LogLimits, ring: Ring, tail: Tail) -> Self {
        assert_eq!(ring.in_use(), tail.position..tail.position);
        let mut log = Log::new(limits, ring, tail.life);
        log.begin_at(tail.first);
        Self { log, tail, durable: tail.first, life: tail.life }
    }

    /// Where the next group lies, if there is one: at the first of these positions, or at the second.
    #[must_use]
    pub fn next(&self) -> [u64; 2] {
        let ring = &self.log.ring;
        let head = ring.in_use().end;
        [head, head.next_multiple_of(ring.size())]
    }

    /// The highest life that was seen.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Takes the next of the groups that lie at the next positions, and says which; `None`: the log ends before them. If both
    /// could follow, the one of the later life does: a log that was cut at the first may have gone on at the second.
    pub fn found_one_of(&mut self, here: &[FoundGroup<'_>]) -> Option<usize> {
        let mut latest_first: Vec<usize> = (0..here.len()).collect();
        latest_first.sort_by_key(|at| core::cmp::Reverse(here[*at].life));
        latest_first.into_iter().find(|at| self.found(&here[*at]))
    }

    /// Takes a group that lies at one of the next positions. False: it is not the next, and the log ends before it.
    pub fn found(&mut self, group: &FoundGroup<'_>) -> bool {
        let log = &mut self.log;
        let end = group.first + group.records.len() as u64;
        let is_first = log.groups.is_empty();
        // The tail may lie within its group, but not behind it.
        let follows = if is_first { group.first <= log.first && log.first < end } else { group.first == log.next() };
        let is_later = group.epoch >= log.grouped_epoch && group.life >= self.life;
        let descriptor = descriptor_sectors(group.records.iter().map(Record::descriptor_bytes).sum());
        let sectors = descriptor + group.records.iter().map(Record::payload_sectors).sum::<u64>();
        let fits = sectors <= log.limits.group_sectors_max && end.saturating_sub(log.first) <= log.limits.records_max;
        let mut ring = log.ring;
        if !follows || !is_later || !fits || ring.take(sectors) != Some(group.position) {
            return false;
        }
        log.ring = ring;
        if group.epoch > log.grouped_epoch && !is_first {
            log.close(true);
        }
        (log.grouped_epoch, self.life) = (group.epoch, group.life);
        self.durable = self.durable.max(group.durable);
        self.take_records(group, group.position + descriptor);
        let group = Group {
            records: group.first..end,
            epoch: group.epoch,
            life: group.life,
            position: group.position,
            descriptor_sectors: descriptor,
            sectors,
        };
        self.log.groups.push_back((group, true));
        true
    }

    fn take_records(&mut self, group: &FoundGroup<'_>, mut at: u64) {
        for (id, record) in (group.first..).zip(group.records) {
            self.log.grouped_epoch += u64::from(record.boundary);
            if id >= self.tail.first {
                let taken = self.log.append(Record { position: at, boundary: false, ..*record });
                assert_eq!(taken, Some(id), "there is room, and they follow each other");
                if record.boundary {
                    // Before it counts as grouped: its boundary is counted above.
                    self.log.close(true);
                }
                self.log.grouped = id + 1;
            }
            at += record.payload_sectors();
        }
    }

    /// Groups whose bytes may be torn, oldest first.
    #[must_use]
    pub fn unverified(&self) -> Vec<Group> {
        let groups = self.log.groups.iter().map(|(group, _)| group);
        groups.filter(|group| group.records.end > self.durable).cloned().collect()
    }

    /// The group at that position is torn: the log ends before it.
    pub fn cut(&mut self, position: u64) {
        let log = &mut self.log;
        let at = log.groups.iter().position(|(group, _)| group.position == position).expect("a group of the log");
        let group = log.groups[at].0.clone();
        assert!(group.records.end > self.durable, "what was durable is torn");
        let end = group.records.start.max(log.first);
        match at.checked_sub(1) {
            Some(last) => log.ring.cut(log.groups[last].0.end()),
            // It may have lain behind sectors that were skipped.
            None => log.ring = Ring::new(log.ring.size(), self.tail.position),
        }
        log.groups.truncate(at);
        log.records.truncate((end - log.first) as usize);
        log.epochs.retain(|epoch| epoch.end <= end);
        log.grouped = end;
    }

    /// The log as it goes on, in a life that the disk knows before anything is written to it. The disk is flushed before the
    /// first answer.
    #[must_use]
    pub fn into_log(mut self, life: u64) -> Log {
        assert!(life >= self.life, "a life of before");
        self.log.life = life;
        let end = self.log.close(true);
        for id in self.log.first..end {
            let range = self.log.record(id).range();
            self.log.map.insert(range, id);
        }
        (self.log.written, self.log.durable) = (end, end);
        self.log
    }
}
