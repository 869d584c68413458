//! Epochs: what the back ends of volumes that write back are worth alone, by what clients know.
//!
//! The promise: lose the cache disk at any moment, and there is a boundary k such that each sector of the back end holds its
//! value at k, or one written to it in the epoch after k, and nothing later.
//!
//! Clients have changes that overlap in flight, so those of a sector have no one order. What is known is when each began and
//! ended: one that began after another had ended is later. A boundary is a flush, or a change with FUA, that was answered
//! well; what was answered when it was asked for is before it, what began when it had been answered is behind.
//!
//! 1. A value is allowed at boundary k from the one before the first that was answered when its change began,
//! 2. up to the one before the first that is behind a later change which was answered well.
//! 3. One k must be allowed for all values that all sectors may be left with, whatever the back end has not flushed.
//!
//! Why beside [`crate::log_world::promise`]: there a device's requests have one order, and the log's records say how far
//! the back end must be. Here nothing is asked but what clients see, so that the cache above is judged, too.
//!
//! Limits: all zeroings of a sector have the same value. A trim may have been done or not. How far the back end lags is asked
//! only where a flush promised to be on it.

use crate::content::{describe, value_of};
use crate::oracle::{Change, Ended};
use std::ops::{Range, RangeInclusive};

/// The end of what has not ended.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: u64,
    change: u64,
    begin: u64,
    end: u64,
    /// Boundaries that were answered before it began.
    behind: usize,
    /// It was answered well, and is not known to be lost.
    answered: bool,
    /// The boundary that it is itself.
    own: usize,
}

/// A change that was answered, and that no flush has covered.
#[derive(Clone, Debug)]
struct Loose {
    change: u64,
    sectors: Range<u64>,
    end: u64,
}

#[derive(Clone, Debug)]
struct Volume {
    sectors: Vec<Vec<Entry>>,
    /// In the order of their answers: the earliest at which each, or a later one, was asked for.
    boundaries: Vec<u64>,
    loose: Vec<Loose>,
    /// The back end is at this one, or a later one.
    least: usize,
    /// What is flushed promises to be on the back end, if the flush was asked for later than this.
    far_since: u64,
    /// By sector: nobody has its newest bytes, and that was told.
    gone: Vec<bool>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Epochs {
    volumes: Vec<Volume>,
}

impl Epochs {
    /// Volumes of so many sectors, all zeroes.
    #[must_use]
    pub fn new(sectors: &[u64]) -> Self {
        let first = Entry { value: 0, change: 0, begin: 0, end: 0, behind: 0, answered: true, own: 0 };
        let volume = |count: &u64| Volume {
            sectors: vec![vec![first]; *count as usize],
            boundaries: vec![0],
            loose: Vec::new(),
            least: 0,
            far_since: NEVER,
            gone: vec![false; *count as usize],
        };
        Self { volumes: sectors.iter().map(volume).collect() }
    }

    /// A change begins: its name, and when.
    pub fn begins(&mut self, volume: usize, sectors: Range<u64>, kind: Change, (change, begin): (u64, u64)) {
        let v = &mut self.volumes[volume];
        let behind = v.boundaries.len();
        for nth in sectors {
            let value = match kind {
                Change::Write { number } => value_of(number, volume, nth),
                Change::Zero | Change::Trim => 0,
            };
            let (end, answered, own) = (NEVER, false, usize::MAX);
            v.sectors[nth as usize].push(Entry { value, change, begin, end, behind, answered, own });
        }
    }

    /// A change ends.
    pub fn ends(&mut self, volume: usize, sectors: Range<u64>, change: u64, ended: Ended, now: u64) {
        let v = &mut self.volumes[volume];
        let fua = ended == Ended::Well { fua: true };
        let own = if fua { v.boundaries.len() } else { usize::MAX };
        let mut asked = now;
        for nth in sectors.clone() {
            let entries = &mut v.sectors[nth as usize];
            let Some(at) = entries.iter().rposition(|entry| entry.change == change) else { continue };
            if ended == Ended::Refused {
                entries.remove(at);
                continue;
            }
            let entry = &mut entries[at];
            (entry.end, entry.own) = (now, own);
            entry.answered = matches!(ended, Ended::Well { .. });
            asked = asked.min(entry.begin);
        }
        match ended {
            Ended::Well { fua: true } => v.bounds(asked),
            Ended::Well { fua: false } => v.loose.push(Loose { change, sectors, end: now }),
            Ended::Unknown | Ended::Refused => {}
        }
    }

    /// A flush that was asked for then is answered well; or a process has started, and nothing of before is under way.
    pub fn boundary(&mut self, volume: usize, asked: u64) {
        let v = &mut self.volumes[volume];
        v.bounds(asked);
        v.loose.retain(|loose| loose.end >= asked);
        if asked > v.far_since {
            v.least = v.boundaries.len() - 1;
        }
    }

    /// From now on a flush promises that the back end has it, or (`far`: false) that the log has.
    pub fn promise(&mut self, volume: usize, far: bool, now: u64) {
        let since = &mut self.volumes[volume].far_since;
        *since = match far {
            true => now.min(*since),
            false => NEVER,
        };
    }

    /// The last boundary is on the back end: so it was promised.
    pub fn follows(&mut self, volume: usize) {
        let v = &mut self.volumes[volume];
        v.least = v.boundaries.len() - 1;
    }

    /// What no flush has covered is there or not.
    pub fn lost(&mut self, volume: usize) {
        let v = &mut self.volumes[volume];
        for loose in std::mem::take(&mut v.loose) {
            for nth in loose.sectors {
                let entries = v.sectors[nth as usize].iter_mut();
                entries.filter(|entry| entry.change == loose.change).for_each(|entry| entry.answered = false);
            }
        }
    }

    /// Of these sectors, and no others, nobody has the newest bytes: what they were given is on the back end or not.
    pub fn are_gone(&mut self, volume: usize, all: impl Iterator<Item = Range<u64>>) {
        let v = &mut self.volumes[volume];
        let before = std::mem::replace(&mut v.gone, vec![false; v.sectors.len()]);
        all.for_each(|sectors| v.gone[sectors.start as usize..sectors.end as usize].fill(true));
        // Also at the end: it may have been lost twice.
        for (entries, _) in v.sectors.iter_mut().zip(v.gone.iter().zip(before)).filter(|(_, (is, was))| *is != was) {
            entries.iter_mut().for_each(|entry| entry.answered = false);
        }
    }

    /// Whether nobody has a sector's newest bytes.
    #[must_use]
    pub fn is_gone(&self, volume: usize, sector: u64) -> bool {
        self.volumes[volume].gone.get(sector as usize) == Some(&true)
    }

    /// What a sector of the back end has now counts as older than any boundary, and what else it was given was never done.
    pub fn begins_anew(&mut self, volume: usize, sector: u64, value: u64) {
        let first = Entry { value, change: 0, begin: 0, end: 0, behind: 0, answered: true, own: 0 };
        self.volumes[volume].sectors[sector as usize] = vec![first];
    }

    /// The boundaries at which a back end is that may be left with these values.
    ///
    /// # Errors
    /// Which values have no boundary together.
    pub fn check(
        &self,
        volume: usize,
        values: impl IntoIterator<Item = (u64, Option<u64>)>,
    ) -> Result<RangeInclusive<usize>, String> {
        let v = &self.volumes[volume];
        let newest = v.boundaries.len() - 1;
        let (mut low, mut high) = ((v.least, None), (newest, None));
        // Values that stand for several changes.
        let mut several: Vec<(u64, Vec<(usize, usize)>)> = Vec::new();
        for (nth, value) in values {
            if v.gone[nth as usize] {
                continue;
            }
            let spans = v.spans(nth, value);
            match spans[..] {
                [] => return Err(format!("volume {volume}: {}", v.told(nth, value))),
                [(first, last)] => {
                    if first > low.0 {
                        low = (first, Some((nth, value)));
                    }
                    if last < high.0 {
                        high = (last, Some((nth, value)));
                    }
                }
                _ => several.push((nth, spans)),
            }
        }
        let refuses = |k: usize| several.iter().find(|(_, spans)| !spans.iter().any(|span| span.0 <= k && k <= span.1));
        let mut alone = None;
        for k in low.0..=high.0 {
            match refuses(k) {
                None => return Ok(k..=high.0),
                found => alone = found,
            }
        }
        let told = |bound: (usize, Option<(u64, Option<u64>)>)| {
            bound.1.map_or(bound.0.to_string(), |(nth, value)| format!("{} ({})", bound.0, v.told(nth, value)))
        };
        let also = alone.map_or(String::new(), |(nth, spans)| format!("; {}, of {spans:?}", v.told(*nth, Some(0))));
        Err(format!("volume {volume} is at no boundary: at {} or later, at {} or earlier{also}", told(low), told(high)))
    }

    /// Boundaries of a volume.
    #[must_use]
    pub fn boundaries(&self, volume: usize) -> usize {
        self.volumes[volume].boundaries.len()
    }
}

impl Volume {
    fn bounds(&mut self, asked: u64) {
        for earlier in self.boundaries.iter_mut().rev() {
            if *earlier <= asked {
                break;
            }
            *earlier = asked;
        }
        self.boundaries.push(asked);
    }

    /// The first boundary that an answered change is certainly before.
    fn first_after(&self, entry: &Entry) -> usize {
        self.boundaries.partition_point(|asked| *asked <= entry.end).min(entry.own)
    }

    /// For each change that the value may stand for, the boundaries at which it is allowed.
    fn spans(&self, nth: u64, value: Option<u64>) -> Vec<(usize, usize)> {
        let entries = &self.sectors[nth as usize];
        let mut spans = Vec::new();
        for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| Some(entry.value) == value) {
            let later = entries[at + 1..].iter().filter(|it| it.answered && it.begin > entry.end);
            let over = later.map(|it| self.first_after(it)).min().unwrap_or(self.boundaries.len());
            let low = entry.behind.saturating_sub(1);
            if over > low && over > self.least {
                spans.push((low, over - 1));
            }
        }
        spans
    }

    fn told(&self, nth: u64, value: Option<u64>) -> String {
        let value = value.map_or("torn or foreign bytes".to_owned(), describe);
        let one = |entry: &Entry| {
            let end = if entry.end == NEVER { "..".to_owned() } else { entry.end.to_string() };
            let flags = [(entry.answered, " answered"), (entry.own < usize::MAX, " fua")];
            let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
            format!("{} behind {} from {} to {end}{flags}", describe(entry.value), entry.behind, entry.begin)
        };
        let entries = &self.sectors[nth as usize];
        let known: Vec<String> = entries[entries.len().saturating_sub(6)..].iter().map(one).collect();
        format!("sector {nth} has {value}; known: {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume of two sectors, and its clients' clock.
    struct Told {
        epochs: Epochs,
        clock: u64,
    }

    impl Told {
        fn new() -> Self {
            Self { epochs: Epochs::new(&[2]), clock: 0 }
        }

        fn tick(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn begin(&mut self, sector: u64, number: u64) {
            let begin = self.tick();
            self.epochs.begins(0, sector..sector + 1, Change::Write { number }, (number, begin));
        }

        fn end(&mut self, sector: u64, number: u64, fua: bool) {
            let now = self.tick();
            self.epochs.ends(0, sector..sector + 1, number, Ended::Well { fua }, now);
        }

        fn write(&mut self, sector: u64, number: u64) {
            self.begin(sector, number);
            self.end(sector, number, false);
        }

        fn flush(&mut self) {
            let asked = self.tick();
            self.epochs.boundary(0, asked);
        }

        /// With each sector holding any of these writes.
        fn check(&self, sectors: [&[u64]; 2]) -> Result<RangeInclusive<usize>, String> {
            let value = |sector: u64, number: u64| if number == 0 { 0 } else { value_of(number, 0, sector) };
            let of = |nth: u64| sectors[nth as usize].iter().map(move |number| (nth, Some(value(nth, *number))));
            self.epochs.check(0, of(0).chain(of(1)))
        }
    }

    #[test]
    fn nothing_of_an_epoch_is_there_before_all_of_the_last() {
        let mut told = Told::new();
        told.write(0, 1);
        told.write(1, 2);
        told.flush();
        told.write(0, 3);
        assert_eq!(told.check([&[3], &[2]]), Ok(1..=1));
        assert_eq!(told.check([&[1], &[2]]), Ok(0..=1));
        assert_eq!(told.check([&[0], &[2]]), Ok(0..=0));
        assert!(told.check([&[3], &[0]]).is_err(), "a lost barrier");
        assert!(told.check([&[3], &[2, 0]]).is_err(), "the back end has not flushed it");
        told.flush();
        told.write(1, 4);
        assert!(told.check([&[1], &[4]]).is_err(), "an epoch is missing");
        told.epochs.follows(0);
        assert!(told.check([&[1], &[2]]).is_err(), "it was promised on the back end");
    }

    #[test]
    fn of_overlapping_changes_either_is_the_last() {
        let mut told = Told::new();
        told.begin(0, 1);
        told.begin(0, 2);
        told.end(0, 2, false);
        told.end(0, 1, false);
        told.flush();
        told.write(1, 3);
        assert!(told.check([&[1], &[3]]).is_ok() && told.check([&[2], &[3]]).is_ok());
        assert!(told.check([&[0], &[3]]).is_err());
        told.write(0, 4);
        told.flush();
        told.write(1, 5);
        assert!(told.check([&[1], &[5]]).is_err() && told.check([&[4], &[5]]).is_ok());
    }

    #[test]
    fn a_change_in_flight_at_a_boundary_is_on_either_side() {
        let mut told = Told::new();
        told.write(0, 1);
        let asked = told.tick();
        told.begin(1, 2);
        told.epochs.boundary(0, asked);
        told.end(1, 2, false);
        told.write(0, 3);
        for sectors in [[1, 0], [1, 2], [0, 2], [3, 0], [3, 2]] {
            assert!(told.check([&sectors[..1], &sectors[1..]]).is_ok(), "{sectors:?}");
        }
        told.flush();
        told.write(0, 4);
        assert!(told.check([&[4], &[0]]).is_err(), "it is before the second boundary");
    }

    #[test]
    fn a_write_with_fua_is_before_its_own_boundary() {
        let mut told = Told::new();
        told.begin(0, 1);
        told.end(0, 1, true);
        told.write(1, 2);
        assert!(told.check([&[0], &[2]]).is_err());
        assert_eq!(told.check([&[1], &[2]]), Ok(1..=1));
    }

    #[test]
    fn a_flush_may_promise_the_back_end() {
        let mut told = Told::new();
        told.write(0, 1);
        let now = told.tick();
        told.epochs.promise(0, true, now);
        told.flush();
        assert!(told.check([&[0], &[0]]).is_err() && told.check([&[1], &[0]]).is_ok());
        let now = told.tick();
        told.epochs.promise(0, false, now);
        told.write(0, 2);
        told.flush();
        assert!(told.check([&[1], &[0]]).is_ok());
    }

    #[test]
    fn what_a_power_loss_took_is_not_asked_for() {
        let mut told = Told::new();
        told.write(0, 1);
        told.epochs.lost(0);
        told.flush();
        told.write(1, 2);
        assert!(told.check([&[0], &[2]]).is_ok() && told.check([&[1], &[2]]).is_ok());
    }
}
