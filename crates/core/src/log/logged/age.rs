//! Ages: when records were appended, roughly.
//!
//! Why: how far the back end lags behind is the age of the oldest record that it lacks; a time for each record would cost a
//! third of what a record does.
//!
//! How: a mark (record, time) when the last one is older than [`APART_NS`]. A record is as old as the last mark at it or
//! before it, so ages are overstated by what lies between two marks. When there are too many, they are thinned to lie twice
//! as far apart.

use super::super::RecordId;
use alloc::collections::VecDeque;

/// Between two marks at first.
const APART_NS: u64 = 1_000_000;
const MARKS_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Ages {
    marks: VecDeque<(RecordId, u64)>,
    apart_ns: u64,
}

impl Ages {
    pub(super) fn new() -> Self {
        Self { marks: VecDeque::new(), apart_ns: APART_NS }
    }

    /// The log took records from `first` on; the last of them is `id`.
    pub(super) fn appended(&mut self, first: RecordId, id: RecordId, now_ns: u64) {
        let due = self.marks.back().is_none_or(|(_, at_ns)| now_ns.saturating_sub(*at_ns) >= self.apart_ns);
        if !due {
            return;
        }
        while self.marks.len() == MARKS_MAX {
            self.apart_ns *= 2;
            let (apart_ns, mut last_ns) = (self.apart_ns, None);
            self.marks.retain(|(_, at_ns)| {
                let keeps = last_ns.is_none_or(|last_ns| at_ns - last_ns >= apart_ns);
                last_ns = if keeps { Some(*at_ns) } else { last_ns };
                keeps
            });
        }
        self.marks.push_back((if self.marks.is_empty() { first } else { id }, now_ns));
    }

    /// Records before `first` have left; `next` would be the next one.
    pub(super) fn left(&mut self, first: RecordId, next: RecordId) {
        while self.marks.get(1).is_some_and(|(id, _)| *id <= first) {
            self.marks.pop_front();
        }
        if first == next {
            *self = Self::new();
        }
    }

    /// When the oldest record was appended.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.marks.front().map(|(_, at_ns)| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_record_is_said_to_be_younger_than_it_is_nor_older_by_more_than_two_marks(
            steps in proptest::collection::vec((0..3_000_000u64, any::<bool>()), 1..3_000),
        ) {
            let (mut ages, mut times, mut now_ns, mut first) = (Ages::new(), VecDeque::new(), 0, 0);
            for (wait_ns, leaves) in steps {
                now_ns += wait_ns;
                times.push_back(now_ns);
                ages.appended(first, first + times.len() as u64 - 1, now_ns);
                if leaves && times.len() > 1 {
                    (first, _) = (first + 1, times.pop_front());
                    ages.left(first, first + times.len() as u64);
                }
                let (oldest_ns, said_ns) = (times[0], ages.oldest_ns().unwrap());
                prop_assert!(said_ns <= oldest_ns && oldest_ns - said_ns <= 2 * ages.apart_ns);
                prop_assert!(ages.marks.len() <= MARKS_MAX);
            }
            ages.left(first + times.len() as u64, first + times.len() as u64);
            prop_assert_eq!(ages.oldest_ns(), None);
        }
    }
}
