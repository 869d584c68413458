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

#[derive(Clone, Debug)]
struct Change {
    sectors: Range<u64>,
    /// Records before this are its own and older ones'. `None`: it has none.
    records_end: Option<u64>,
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
    changes: Vec<Change>,
    /// In the order of their answers. The first is the beginning of the world.
    boundaries: Vec<Boundary>,
    /// Answered well and not known to be durable, with the times of their answers.
    unsettled: Vec<(usize, u64)>,
    /// Changes that have records, in order, that the back end is not known to have: by this life's log, by its tail.
    logged: [Vec<usize>; 2],
    /// Values that were given over one of the same epoch.
    pub overwritten: u64,
}

impl History {
    /// A volume of zeroes.
    #[must_use]
    pub fn new(sectors: u64) -> Self {
        let first = Entry { value: 0, change: usize::MAX, behind: 0, answered: Some(0), own: Some(0) };
        let sector = Sector { entries: vec![first], again: false, answered: 0, durable: 0, floor: [0; 2] };
        Self {
            clock: 0,
            sectors: vec![sector; sectors as usize],
            changes: Vec::new(),
            boundaries: vec![Boundary { asked: 0 }],
            unsettled: Vec::new(),
            logged: [Vec::new(), Vec::new()],
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

    /// A change begins; `number`: of a write, `None`: zeroes. `records_end`: the log's records before it, and its own.
    pub fn begins(&mut self, sectors: Range<u64>, number: Option<u64>, records_end: Option<u64>) -> ChangeId {
        self.tick();
        let change = self.changes.len();
        let behind = self.boundaries.len();
        for nth in sectors.clone() {
            let value = number.map_or(0, |number| value_of(number, 0, nth));
            let entries = &mut self.sectors[nth as usize].entries;
            self.overwritten += u64::from(entries.last().is_some_and(|last| last.behind == behind));
            entries.push(Entry { value, change, behind, answered: None, own: None });
        }
        if records_end.is_some() {
            self.logged.iter_mut().for_each(|logged| logged.push(change));
        }
        self.changes.push(Change { sectors, records_end });
        ChangeId(change)
    }

    /// A change was answered well. `fua`: when it was asked for, if it had the flag.
    pub fn ends(&mut self, id: ChangeId, fua: Option<u64>) {
        let now = self.tick();
        let own = fua.map(|_| self.boundaries.len());
        for nth in self.changes[id.0].sectors.clone() {
            let sector = &mut self.sectors[nth as usize];
            let at = sector.of(id.0);
            (sector.entries[at].answered, sector.entries[at].own) = (Some(now), own);
            sector.answered = sector.answered.max(at);
        }
        self.unsettled.push((id.0, if fua.is_some() { 0 } else { now }));
        if let Some(asked) = fua {
            self.boundary(asked);
        }
    }

    /// Something is asked for.
    pub fn asks(&mut self) -> u64 {
        self.tick()
    }

    /// A boundary that was asked for then is answered well.
    pub fn boundary(&mut self, asked: u64) {
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
            for nth in changes[*change].sectors.clone() {
                let sector = &mut sectors[nth as usize];
                sector.durable = sector.durable.max(sector.of(*change));
            }
            false
        });
    }

    /// A read ends.
    ///
    /// # Errors
    /// What it may not have seen.
    pub fn read(&self, first: u64, values: &[Option<u64>]) -> Result<(), String> {
        for (nth, value) in (first..).zip(values) {
            let sector = &self.sectors[nth as usize];
            if sector.seen(*value).is_none() {
                return Err(sector.wrong(nth, *value));
            }
        }
        Ok(())
    }

    /// The log's disk has lost power, or dropped what a failed flush was to cover.
    pub fn log_lost(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.answered = sector.durable);
    }

    /// The process is gone.
    pub fn crashed(&mut self) {
        self.unsettled.clear();
        self.logged[0] = self.logged[1].clone();
        for sector in &mut self.sectors {
            sector.floor[0] = sector.floor[1];
        }
    }

    /// A log was opened that has records before `records_end`; they are durable.
    pub fn opened(&mut self, records_end: u64) {
        for sector in &mut self.sectors {
            sector.durable = sector.answered;
        }
        for change in &mut self.changes {
            change.records_end.take_if(|end| *end > records_end);
        }
        let changes = &self.changes;
        self.logged.iter_mut().for_each(|logged| logged.retain(|change| changes[*change].records_end.is_some()));
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
            let Some(at) = sector.seen(*value) else { return Err(sector.wrong(nth, *value)) };
            let mut seen = sector.entries[at];
            found.more += u64::from(seen.answered.is_none());
            found.less += sector.entries[at + 1..].iter().filter(|it| it.answered.is_some()).count() as u64;
            let lost = self.changes.get(seen.change).is_some_and(|change| change.records_end.is_none());
            found.moved += u64::from(lost && seen.change != usize::MAX);
            if at + 1 < sector.entries.len() {
                (seen.behind, seen.answered, seen.own) = (behind, Some(now), None);
                sector.entries.push(seen);
                sector.again = true;
            } else {
                let last = sector.entries.last_mut().expect("it was seen");
                last.answered.get_or_insert(now);
            }
            (sector.answered, sector.durable) = (sector.entries.len() - 1, sector.entries.len() - 1);
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
        let (sectors, changes) = (&mut self.sectors, &self.changes);
        let logged = &mut self.logged[usize::from(by_tail)];
        let done = logged.iter().take_while(|change| changes[**change].records_end.is_some_and(|end| end <= record));
        let done = done.count();
        for change in logged.drain(..done) {
            for nth in changes[change].sectors.clone() {
                let sector = &mut sectors[nth as usize];
                let at = sector.of(change);
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
    fn seen(&self, value: Option<u64>) -> Option<usize> {
        let at = self.entries.iter().rposition(|it| Some(it.value) == value)?;
        (at >= self.answered).then_some(at)
    }

    /// The back end has this entry or a later one.
    #[must_use]
    pub fn floor(&self) -> usize {
        self.floor[0].max(self.floor[1])
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
        let one = history.begins(0..1, Some(1), None);
        assert!(history.read(0, &[Some(0)]).is_ok() && history.read(0, &of(1)).is_ok());
        history.ends(one, None);
        assert!(history.read(0, &[Some(0)]).is_err() && history.read(0, &[None]).is_err());
        history.begins(0..1, Some(2), None);
        assert!(history.read(0, &of(1)).is_ok() && history.read(0, &of(2)).is_ok());
    }

    #[test]
    fn a_power_loss_leaves_what_was_before_a_boundary() {
        let mut history = History::new(1);
        let one = history.begins(0..1, Some(1), None);
        history.ends(one, None);
        let asked = history.asks();
        let two = history.begins(0..1, Some(2), None);
        history.ends(two, None);
        history.boundary(asked);
        history.crashed();
        assert!(history.read(0, &of(1)).is_err(), "the process alone is gone");
        history.log_lost();
        assert!(history.read(0, &[Some(0)]).is_err());
        assert!(history.read(0, &of(1)).is_ok() && history.read(0, &of(2)).is_ok());
        assert_eq!(history.settle(0, &of(1)), Ok(Found { less: 1, moved: 1, ..Found::default() }));
        assert!(history.read(0, &of(2)).is_err(), "what was read stays");
    }
}
