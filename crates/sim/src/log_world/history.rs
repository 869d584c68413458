//! The history of a volume: for each sector the changes in their order, and the boundaries that somebody was promised.
//!
//! Why so simple: changes that overlap are never in flight together, so those of a sector have one order. What is not known
//! is only which of the last ones a crash has left, and that is asked by reading the volume after each start.
//!
//! How: a clock ticks with each beginning and end. A *boundary* is a flush or a change with FUA that was answered well; and
//! each start of the log is one, since what comes after is written after. Of a boundary that was asked for at `asked` and
//! answered at `answered`, a change is *before* if it had been answered at `asked`, *behind* if it began after `answered`;
//! a change in flight meanwhile may be either.
//!
//! What is checked here: a read sees the last answered change of a sector, or a later one that was not answered; after a
//! power loss of the log's disk the last one before a boundary, or a later one. What was read after a start is the sector's
//! value from then on, and durable.
//!
//! Limits: a change that failed may come and go until the next start.

use crate::content::{describe, value_of};
use std::collections::VecDeque;
use std::ops::Range;

/// A change of the volume, by its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeId(usize);

/// A value that a sector was given.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The value.
    pub value: u64,
    /// What gave it; again where a start found that no later one was left.
    pub change: usize,
    /// Boundaries that were answered before it began; it is behind each of them.
    pub behind: usize,
    /// When it was answered well; `None` if it was not.
    pub answered: Option<u64>,
    /// It is before this boundary whatever the clock says: it had the FUA flag, and is the boundary.
    pub own: Option<usize>,
    /// It has a record; what has none went straight to the back end.
    logged: bool,
    /// It had one, and a start did not find it.
    lost: bool,
    /// It is durable, or what came later is.
    kept: bool,
}

/// A promise that was given.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    /// The earliest at which this one, or a later one, was asked for.
    pub asked: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Sector {
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// A value of an earlier entry came again.
    pub again: bool,
    /// A read sees this entry or a later one.
    answered: usize,
    /// That much is left by a power loss.
    durable: usize,
    /// The back end has this entry or a later one, this life's log says; and what its tail on the disk says.
    floor: [usize; 2],
}

/// A record of a change.
#[derive(Clone, Debug)]
struct Logged {
    record: u64,
    sectors: Range<u64>,
    change: usize,
}

/// Which disks have lost something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losers {
    /// The log's.
    pub log: bool,
    /// The back end.
    pub backend: bool,
}

/// What a boundary makes durable.
#[derive(Clone, Copy, Debug)]
struct Covers {
    /// Of what is in the log.
    logged: bool,
    /// Of what passed it.
    passed: bool,
}

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Changes that are there and had not been answered.
    pub more: u64,
    /// Changes that had been answered and are gone.
    pub less: u64,
    /// Sectors with a change that is gone from the log and is on the back end.
    pub moved: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct History {
    clock: u64,
    sectors: Vec<Sector>,
    /// Where each change is.
    changes: Vec<Range<u64>>,
    /// In the order of their answers. The first is the beginning of the world.
    boundaries: Vec<Boundary>,
    /// Answered well and not known to be durable, with the times of their answers.
    unsettled: Vec<(usize, u64)>,
    /// Records that the back end is not known to have, in order: by this life's log, by its tail.
    logged: [VecDeque<Logged>; 2],
    /// The back end has lost something that passed the log, and nobody was told yet: reads decide nothing.
    pub shaken: bool,
    /// By sector: the log says that nobody has its newest bytes.
    gone: Vec<bool>,
    /// Values that were given over one of the same epoch.
    pub overwritten: u64,
}

impl History {
    /// A volume of zeroes.
    #[must_use]
    pub fn new(sectors: u64) -> Self {
        let first = Entry {
            value: 0,
            change: usize::MAX,
            behind: 0,
            answered: Some(0),
            own: Some(0),
            logged: true,
            lost: false,
            kept: true,
        };
        let sector = Sector { entries: vec![first], again: false, answered: 0, durable: 0, floor: [0; 2] };
        Self {
            clock: 0,
            sectors: vec![sector; sectors as usize],
            changes: Vec::new(),
            boundaries: vec![Boundary { asked: 0 }],
            unsettled: Vec::new(),
            logged: [VecDeque::new(), VecDeque::new()],
            shaken: false,
            gone: vec![false; sectors as usize],
            overwritten: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// How many sectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sectors.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// One of them.
    #[must_use]
    pub fn sector(&self, sector: u64) -> &Sector {
        &self.sectors[sector as usize]
    }

    /// Of these sectors nobody has the newest bytes, the log says; of all others somebody has.
    pub fn are_gone(&mut self, all: impl Iterator<Item = Range<u64>>) {
        self.gone.fill(false);
        all.for_each(|sectors| self.gone[sectors.start as usize..sectors.end as usize].fill(true));
    }

    /// Whether the log says that nobody has a sector's newest bytes.
    #[must_use]
    pub fn is_gone(&self, sector: u64) -> bool {
        self.gone[sector as usize]
    }

    /// Runs of at most so many sectors that are not gone.
    #[must_use]
    pub fn there(&self, sectors_max: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for nth in (0..self.gone.len() as u64).filter(|nth| !self.is_gone(*nth)) {
            match runs.last_mut().filter(|run| run.end == nth && run.end - run.start < sectors_max) {
                Some(run) => run.end = nth + 1,
                None => runs.push(nth..nth + 1),
            }
        }
        runs
    }

    /// All so far.
    #[must_use]
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// The first boundary that an answered change is certainly before.
    #[must_use]
    pub fn first_after(&self, entry: &Entry) -> usize {
        let answered = entry.answered.unwrap_or(u64::MAX);
        let by_time = self.boundaries.partition_point(|boundary| boundary.asked <= answered);
        by_time.min(entry.own.unwrap_or(usize::MAX))
    }

    /// A change begins; `number`: of a write, `None`: zeroes.
    pub fn begins(&mut self, sectors: Range<u64>, number: Option<u64>) -> ChangeId {
        self.tick();
        let change = self.changes.len();
        let behind = self.boundaries.len();
        for nth in sectors.clone() {
            let value = number.map_or(0, |number| value_of(number, 0, nth));
            let entries = &mut self.sectors[nth as usize].entries;
            self.overwritten += u64::from(entries.last().is_some_and(|last| last.behind == behind));
            let (answered, own, logged, lost, kept) = (None, None, false, false, false);
            entries.push(Entry { value, change, behind, answered, own, logged, lost, kept });
        }
        self.changes.push(sectors);
        ChangeId(change)
    }

    /// The log has a record of these sectors of a change.
    pub fn logs(&mut self, id: ChangeId, sectors: Range<u64>, record: u64) {
        for nth in sectors.clone() {
            let sector = &mut self.sectors[nth as usize];
            let at = sector.of(id.0);
            sector.entries[at].logged = true;
        }
        let logged = Logged { record, sectors, change: id.0 };
        self.logged.iter_mut().for_each(|list| list.push_back(logged.clone()));
    }

    /// The log has no records from this one on.
    pub fn forgets(&mut self, record: u64) {
        for gone in self.logged[0].iter().filter(|it| it.record >= record) {
            for nth in gone.sectors.clone() {
                let sector = &mut self.sectors[nth as usize];
                let at = sector.of(gone.change);
                sector.entries[at].logged = false;
            }
        }
        self.logged.iter_mut().for_each(|list| list.retain(|it| it.record < record));
    }

    /// Sectors of a change that have no record.
    #[must_use]
    pub fn passed(&self, id: ChangeId) -> u64 {
        let entries = self.changes[id.0].clone().map(|nth| &self.sectors[nth as usize]);
        entries.filter(|sector| !sector.entries[sector.of(id.0)].logged).count() as u64
    }

    /// A change was answered well. `fua`: when it was asked for, if it had the flag.
    pub fn ends(&mut self, id: ChangeId, fua: Option<u64>) {
        let now = self.tick();
        let own = fua.map(|_| self.boundaries.len());
        for nth in self.changes[id.0].clone() {
            let sector = &mut self.sectors[nth as usize];
            let at = sector.of(id.0);
            (sector.entries[at].answered, sector.entries[at].own) = (Some(now), own);
            sector.answered = sector.answered.max(at);
        }
        self.unsettled.push((id.0, if fua.is_some() { 0 } else { now }));
        if let Some(asked) = fua {
            let logged = self.passed(id) == 0;
            self.bounds(asked, Covers { logged, passed: false });
        }
    }

    /// Something is asked for.
    pub fn asks(&mut self) -> u64 {
        self.tick()
    }

    /// A flush that was asked for then is answered well.
    pub fn boundary(&mut self, asked: u64) {
        self.bounds(asked, Covers { logged: true, passed: true });
    }

    /// A change with FUA is durable itself; if it is in the log, so is what was logged before.
    fn bounds(&mut self, asked: u64, covers: Covers) {
        self.tick();
        for earlier in self.boundaries.iter_mut().rev() {
            if earlier.asked <= asked {
                break;
            }
            earlier.asked = asked;
        }
        self.boundaries.push(Boundary { asked });
        let (sectors, changes) = (&mut self.sectors, &self.changes);
        self.unsettled.retain(|(change, answered)| {
            if *answered >= asked {
                return true;
            }
            let mut waits = false;
            for nth in changes[*change].clone() {
                let sector = &mut sectors[nth as usize];
                let at = sector.of(*change);
                let entry = &mut sector.entries[at];
                let is_covered = entry.own.is_some() || if entry.logged { covers.logged } else { covers.passed };
                waits |= !is_covered;
                entry.kept |= is_covered;
                // Of what was told as lost nobody knows.
                if is_covered && entry.answered.is_some() {
                    sector.durable = sector.durable.max(at);
                }
            }
            waits
        });
    }

    /// The last boundary, asked for then, is on the back end, too: so it was promised. Of one that is a change with FUA
    /// (`alone`), that is the change.
    pub fn boundary_follows(&mut self, asked: u64, alone: bool) {
        let last = self.boundaries.len() - 1;
        for sector in &mut self.sectors {
            let is_before = |it: &Entry| it.own == Some(last) || (!alone && it.answered.is_some_and(|at| at < asked));
            let newest = sector.entries.iter().rposition(is_before).unwrap_or(0);
            sector.floor[1] = sector.floor[1].max(newest);
        }
    }

    /// A read ends.
    ///
    /// # Errors
    /// What it may not have seen.
    pub fn read(&self, first: u64, values: &[Option<u64>]) -> Result<(), String> {
        let losers = Losers { backend: self.shaken, log: false };
        for (nth, value) in (first..).zip(values) {
            let sector = &self.sectors[nth as usize];
            if sector.seen(*value, sector.left_by(losers)).is_none() {
                return Err(sector.wrong(nth, *value));
            }
        }
        Ok(())
    }

    /// These have lost power, or dropped what they had answered and not flushed; nobody lives to tell.
    pub fn lost(&mut self, losers: Losers) {
        for sector in &mut self.sectors {
            sector.answered = sector.left_by(losers);
            sector.forget(losers);
        }
    }

    /// Who asks was told that what passed the log there may be gone.
    pub fn told_lost(&mut self, sectors: Range<u64>) {
        for nth in sectors {
            let sector = &mut self.sectors[nth as usize];
            sector.forget(Losers { backend: true, log: false });
            sector.answered = sector.left_by(Losers::default());
        }
    }

    /// The process is gone.
    pub fn crashed(&mut self) {
        self.unsettled.clear();
        self.logged[0] = self.logged[1].clone();
        for sector in &mut self.sectors {
            sector.floor[0] = sector.floor[1];
        }
    }

    /// A log was opened that has records before `records_end`; what is there is durable.
    pub fn opened(&mut self, records_end: u64) {
        for sector in &mut self.sectors {
            sector.durable = sector.answered;
        }
        for lost in self.logged[1].iter().filter(|it| it.record >= records_end) {
            for nth in lost.sectors.clone() {
                let sector = &mut self.sectors[nth as usize];
                let at = sector.of(lost.change);
                sector.entries[at].lost = true;
            }
        }
        self.logged.iter_mut().for_each(|list| list.retain(|it| it.record < records_end));
    }

    /// What is read after a start is what is there from now on.
    ///
    /// # Errors
    /// What may not be there.
    pub fn settle(&mut self, first: u64, values: &[Option<u64>]) -> Result<Found, String> {
        let now = self.tick();
        let behind = self.boundaries.len();
        let mut found = Found::default();
        for (nth, value) in (first..).zip(values) {
            let sector = &mut self.sectors[nth as usize];
            let Some(at) = sector.seen(*value, sector.answered) else { return Err(sector.wrong(nth, *value)) };
            let mut seen = sector.entries[at];
            found.more += u64::from(seen.answered.is_none());
            found.less += sector.entries[at + 1..].iter().filter(|it| it.lost).count() as u64;
            found.moved += u64::from(seen.lost);
            if at + 1 < sector.entries.len() {
                (seen.behind, seen.answered, seen.own) = (behind, Some(now), None);
                sector.entries.push(seen);
                sector.again = true;
            } else {
                let last = sector.entries.last_mut().expect("it was seen");
                last.answered.get_or_insert(now);
            }
            (sector.answered, sector.durable) = (sector.entries.len() - 1, sector.entries.len() - 1);
            sector.entries[sector.durable].kept = true;
        }
        Ok(found)
    }

    /// The whole volume was read after a start.
    pub fn settled(&mut self) {
        let asked = self.tick();
        self.boundary(asked);
    }

    /// Records before this are on the back end for good: this life's log says so, or (`by_tail`) its tail on the disk.
    pub fn follows(&mut self, record: u64, by_tail: bool) {
        let list = &mut self.logged[usize::from(by_tail)];
        while list.front().is_some_and(|logged| logged.record < record) {
            let Some(logged) = list.pop_front() else { break };
            for nth in logged.sectors {
                let sector = &mut self.sectors[nth as usize];
                let at = sector.of(logged.change);
                let floor = &mut sector.floor[usize::from(by_tail)];
                *floor = at.max(*floor);
            }
        }
    }
}

impl Sector {
    /// Its entry of that change.
    fn of(&self, change: usize) -> usize {
        self.entries.iter().rposition(|it| it.change == change).expect("the change gave it a value")
    }

    /// The entry that a read saw: the last that it may have been.
    fn seen(&self, value: Option<u64>, least: usize) -> Option<usize> {
        let at = self.entries.iter().rposition(|it| Some(it.value) == value)?;
        (at >= least).then_some(at)
    }

    /// What is not durable may be there or not: whoever asked for it was not promised more.
    fn forget(&mut self, losers: Losers) {
        let is_lost = |entry: &&mut Entry| !entry.kept && if entry.logged { losers.log } else { losers.backend };
        self.entries.iter_mut().filter(is_lost).for_each(|entry| entry.answered = None);
    }

    /// The entry that is there, or a later one, when these have lost what they had not flushed.
    fn left_by(&self, losers: Losers) -> usize {
        let stays = |entry: &Entry| {
            let is_lost = if entry.logged { losers.log } else { losers.backend };
            entry.answered.is_some() && !is_lost
        };
        let later = &self.entries[self.durable + 1..self.answered.max(self.durable) + 1];
        later.iter().rposition(stays).map_or(self.durable, |at| self.durable + 1 + at)
    }

    /// The back end has this entry or a later one.
    #[must_use]
    pub fn floor(&self) -> usize {
        self.floor[0].max(self.floor[1])
    }

    /// Its last entries.
    #[must_use]
    pub fn describe(&self) -> String {
        let one = |entry: &Entry| {
            let flags = [(entry.logged, " logged"), (entry.lost, " lost"), (entry.own.is_some(), " fua")];
            let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
            let answered = entry.answered.map_or("never".to_owned(), |at| at.to_string());
            format!("{} behind {} answered {answered}{flags}", describe(entry.value), entry.behind)
        };
        let shown = &self.entries[self.entries.len().saturating_sub(6)..];
        shown.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn wrong(&self, nth: u64, value: Option<u64>) -> String {
        let value = value.map_or("torn or foreign bytes".to_owned(), describe);
        let known: Vec<String> = self.entries[self.answered..].iter().map(|it| describe(it.value)).collect();
        format!("sector {nth} is {value}; it may be {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u64) -> [Option<u64>; 1] {
        [Some(value_of(number, 0, 0))]
    }

    #[test]
    fn a_read_sees_the_last_answered_change_or_a_later_one() {
        let mut history = History::new(1);
        let one = history.begins(0..1, Some(1));
        assert!(history.read(0, &[Some(0)]).is_ok() && history.read(0, &of(1)).is_ok());
        history.ends(one, None);
        assert!(history.read(0, &[Some(0)]).is_err() && history.read(0, &[None]).is_err());
        history.begins(0..1, Some(2));
        assert!(history.read(0, &of(1)).is_ok() && history.read(0, &of(2)).is_ok());
    }

    #[test]
    fn a_power_loss_leaves_what_was_before_a_boundary() {
        let mut history = History::new(1);
        let write = |history: &mut History, number| {
            let id = history.begins(0..1, Some(number));
            history.logs(id, 0..1, number);
            history.ends(id, None);
        };
        write(&mut history, 1);
        let asked = history.asks();
        write(&mut history, 2);
        history.boundary(asked);
        history.crashed();
        assert!(history.read(0, &of(1)).is_err(), "the process alone is gone");
        history.lost(Losers { backend: true, log: false });
        assert!(history.read(0, &of(1)).is_err(), "the log has it");
        history.lost(Losers { backend: false, log: true });
        history.opened(2);
        assert!(history.read(0, &[Some(0)]).is_err());
        assert!(history.read(0, &of(1)).is_ok() && history.read(0, &of(2)).is_ok());
        assert_eq!(history.settle(0, &of(1)), Ok(Found { less: 1, ..Found::default() }));
        assert!(history.read(0, &of(2)).is_err(), "what was read stays");
    }

    #[test]
    fn what_passed_the_log_is_lost_with_the_back_end_or_when_it_is_told() {
        let mut history = History::new(2);
        let id = history.begins(0..2, Some(1));
        history.ends(id, None);
        assert_eq!(history.passed(id), 2);
        history.lost(Losers { backend: false, log: true });
        assert!(history.read(0, &[Some(0)]).is_err());
        history.shaken = true;
        assert!(history.read(0, &[Some(0)]).is_ok(), "nobody was told yet");
        history.shaken = false;
        history.told_lost(0..1);
        assert!(history.read(0, &[Some(0)]).is_ok() && history.read(1, &[Some(0)]).is_err());
        let asked = history.asks();
        history.boundary(asked);
        assert!(history.read(0, &[Some(0)]).is_ok(), "a flush does not bring it back");
        history.lost(Losers { backend: true, log: true });
        assert!(history.read(1, &[Some(0)]).is_err(), "it is behind a boundary");
    }
}
