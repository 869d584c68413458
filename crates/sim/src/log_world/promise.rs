//! What the back end is worth alone: whether it is at a boundary.
//!
//! The promise: lose the log's disk at any moment, and there is a boundary k, no older than the log says, such that each
//! sector of the back end holds its value at k, or one written to it in the epoch after k, and nothing later. That is what
//! a plain disk may hold after a power cut.
//!
//! How: of each sector all values are looked at that the back end may be left with, whatever it loses of what it has not
//! flushed and does of what is in flight. A value stands for a change of the sector. It is allowed at boundary k
//! - from the k on, behind which that change may have been written: the one before the first that was answered when it
//!   began is too old;
//! - up to the k before which a later change of the sector certainly was.
//!
//! One k must be allowed for all values of all sectors. That is more than asked of each image by itself, and it is what the
//! log claims: unflushed sectors are free to go, so the images are all of these.
//!
//! Limits: all zeroings of a sector have the same value, so a sector of zeroes may stand for any of them.

use super::history::{Entry, History, Sector};
use crate::content::describe;
use std::ops::RangeInclusive;

/// Boundaries at which a value is allowed.
type Span = (usize, usize);

/// The boundaries at which the back end is, if it has these values; they are all between the first and the last of them.
///
/// # Errors
/// Which values have no boundary together.
pub fn check(
    history: &History,
    values: impl IntoIterator<Item = (u64, Option<u64>)>,
) -> Result<RangeInclusive<usize>, String> {
    let newest = history.boundaries().len() - 1;
    let (mut low, mut high) = ((0, None), (newest, None));
    // Values that stand for several changes.
    let mut several: Vec<(u64, Vec<Span>)> = Vec::new();
    for (nth, value) in values {
        let sector = history.sector(nth);
        let spans = spans(history, sector, value);
        let Some((first, last)) = spans.first().copied() else { return Err(foreign(sector, nth, value)) };
        if spans.len() > 1 {
            several.push((nth, spans));
            continue;
        }
        if first > low.0 {
            low = (first, Some((nth, value)));
        }
        if last < high.0 {
            high = (last, Some((nth, value)));
        }
    }
    let allows = |k: usize| several.iter().find(|(_, spans)| !spans.iter().any(|span| span.0 <= k && k <= span.1));
    let mut alone = None;
    for k in low.0..=high.0 {
        match allows(k) {
            None => return Ok(k..=high.0),
            found => alone = found,
        }
    }
    let told = |bound: (usize, Option<(u64, Option<u64>)>)| match bound.1 {
        Some((nth, value)) => {
            let value = value.map_or(String::new(), describe);
            format!("{} (sector {nth}: {value}, of {})", bound.0, history.sector(nth).describe())
        }
        None => bound.0.to_string(),
    };
    let also = alone.map_or(String::new(), |(nth, spans)| format!("; sector {nth} is zeroes, of {spans:?}"));
    Err(format!("the back end is at no boundary: at {} or later, at {} or earlier{also}", told(low), told(high)))
}

/// For each change that the value may stand for, the boundaries at which it is allowed.
fn spans(history: &History, sector: &Sector, value: Option<u64>) -> Vec<Span> {
    let floor = sector.floor();
    let follows = sector.entries[floor].change;
    let mut spans = Vec::new();
    // The change that was answered next: it is before each boundary that was asked for since.
    let mut next: Option<&Entry> = None;
    for (at, entry) in sector.entries.iter().enumerate().rev() {
        if Some(entry.value) == value && (at >= floor || entry.change == follows) {
            let over = next.map_or(history.boundaries().len(), |next| history.first_after(next));
            if over > 0 {
                spans.push((entry.behind.saturating_sub(1), over - 1));
            }
            if entry.value != 0 && !sector.again {
                break;
            }
        }
        if at <= floor && !sector.again {
            break;
        }
        if entry.answered.is_some() {
            next = Some(entry);
        }
    }
    spans
}

fn foreign(sector: &Sector, nth: u64, value: Option<u64>) -> String {
    let value = value.map_or("torn or foreign bytes".to_owned(), describe);
    let floor = describe(sector.entries[sector.floor()].value);
    format!("sector {nth} of the back end may be {value}, and is said to have followed to {floor}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::value_of;

    /// A volume of two sectors; writes of both, a flush, writes of both.
    struct Told {
        history: History,
        number: u64,
    }

    impl Told {
        fn new() -> Self {
            Self { history: History::new(2), number: 0 }
        }

        fn write(&mut self, sector: u64) -> u64 {
            self.number += 1;
            let id = self.history.begins(sector..sector + 1, Some(self.number));
            self.history.logs(id, sector..sector + 1, self.number - 1);
            self.history.ends(id, None);
            self.number
        }

        fn flush(&mut self) {
            let asked = self.history.asks();
            self.history.boundary(asked);
        }

        /// With each sector holding any of these writes.
        fn check(&self, sectors: [&[u64]; 2]) -> Result<RangeInclusive<usize>, String> {
            let value = |sector: u64, number: u64| if number == 0 { 0 } else { value_of(number, 0, sector) };
            let of = |nth: u64| sectors[nth as usize].iter().map(move |number| (nth, Some(value(nth, *number))));
            check(&self.history, of(0).chain(of(1)))
        }
    }

    #[test]
    fn an_epoch_is_there_in_any_part() {
        let mut told = Told::new();
        assert_eq!((told.write(0), told.write(1), told.write(0)), (1, 2, 3));
        for sectors in [[0, 0], [1, 0], [0, 2], [3, 2], [3, 0]] {
            assert!(told.check([&sectors[..1], &sectors[1..]]).is_ok(), "{sectors:?}");
        }
        assert!(told.check([&[0, 1, 3], &[0, 2]]).is_ok(), "any of them, after a power loss");
        assert!(told.check([&[4], &[0]]).is_err(), "nobody wrote that");
    }

    #[test]
    fn nothing_of_an_epoch_is_there_before_all_of_the_last() {
        let mut told = Told::new();
        told.write(0);
        told.write(1);
        told.flush();
        told.write(0);
        assert_eq!(told.check([&[3], &[2]]), Ok(1..=1));
        assert_eq!(told.check([&[1], &[2]]), Ok(0..=1));
        assert_eq!(told.check([&[0], &[2]]), Ok(0..=0));
        assert!(told.check([&[3], &[0]]).is_err(), "a lost barrier");
        assert!(told.check([&[3], &[2, 0]]).is_err(), "it may be lost yet: the back end has not flushed it");
        told.flush();
        told.write(1);
        assert!(told.check([&[1], &[4]]).is_err(), "an epoch is missing");
        assert!(told.check([&[3, 1], &[2]]).is_ok());
    }

    #[test]
    fn a_change_in_flight_at_a_boundary_is_on_either_side() {
        let mut told = Told::new();
        told.write(0);
        let asked = told.history.asks();
        let flying = told.history.begins(1..2, Some(2));
        told.history.boundary(asked);
        told.history.ends(flying, None);
        told.number = 2;
        told.write(0);
        for sectors in [[1, 0], [1, 2], [0, 2], [3, 0], [3, 2]] {
            assert!(told.check([&sectors[..1], &sectors[1..]]).is_ok(), "{sectors:?}");
        }
        told.flush();
        told.write(0);
        assert!(told.check([&[4], &[0]]).is_err(), "it is before the second boundary");
    }

    #[test]
    fn a_write_with_fua_is_before_its_own_boundary() {
        let mut told = Told::new();
        let asked = told.history.asks();
        let id = told.history.begins(0..1, Some(1));
        told.history.ends(id, Some(asked));
        told.number = 1;
        told.write(1);
        assert!(told.check([&[0], &[2]]).is_err());
        assert_eq!(told.check([&[1], &[2]]), Ok(1..=1));
    }

    #[test]
    fn what_the_log_says_is_there_is_there() {
        let mut told = Told::new();
        told.write(0);
        told.flush();
        told.write(1);
        told.history.follows(1, false);
        assert!(told.check([&[1], &[0]]).is_ok());
        assert!(told.check([&[0], &[0]]).is_err(), "older than the lag that is stated");
        told.history.crashed();
        assert!(told.check([&[0], &[0]]).is_ok(), "the next life may begin at an older tail");
        told.history.follows(1, true);
        told.history.crashed();
        assert!(told.check([&[0], &[0]]).is_err(), "but not at one before what the disk knows");
    }

    #[test]
    fn a_boundary_that_was_promised_on_the_back_end_is_there() {
        let mut told = Told::new();
        told.write(0);
        told.flush();
        assert!(told.check([&[0], &[0]]).is_ok());
        let asked = told.history.asks();
        told.write(1);
        told.history.boundary(asked);
        told.history.boundary_follows(asked, false);
        assert!(told.check([&[0], &[0]]).is_err());
        assert!(told.check([&[1], &[0]]).is_ok());
    }

    #[test]
    fn what_was_told_as_lost_is_there_or_not_until_it_is_written_again() {
        let mut told = Told::new();
        let id = told.history.begins(0..1, Some(1));
        told.history.ends(id, None);
        told.history.told_lost(0..1);
        told.number = 1;
        told.flush();
        told.write(1);
        for first in [0, 1] {
            assert!(told.check([&[first], &[2]]).is_ok());
        }
        told.write(0);
        told.flush();
        told.write(1);
        assert!(told.check([&[1], &[4]]).is_err());
        assert!(told.check([&[3], &[4]]).is_ok());
    }

    #[test]
    fn zeroes_stand_for_any_zeroing() {
        let mut told = Told::new();
        told.write(0);
        told.flush();
        let id = told.history.begins(0..1, None);
        told.history.ends(id, None);
        told.write(1);
        assert_eq!(told.check([&[0], &[0]]), Ok(0..=1));
        assert_eq!(told.check([&[0], &[2]]), Ok(1..=1));
        told.flush();
        assert!(told.check([&[1], &[2]]).is_ok());
        told.write(1);
        assert!(told.check([&[1], &[3]]).is_err());
        assert_eq!(told.check([&[0], &[3]]), Ok(2..=2));
    }
}
