//! Decides: whether a log line passes. A fixed window for each place in the code that logs.
//!
//! Memory is bounded by the number of such places, which is the program's.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tracing::callsite::Identifier;

/// The period.
pub(super) const PERIOD_NS: u64 = 10_000_000_000;
/// Lines of a place in a period.
pub(super) const LINES_MAX: u64 = 20;
/// The same for places that log at debug and trace, which somebody asked for.
pub(super) const DEBUG_LINES_MAX: u64 = 5000;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// It passes, after so many were left out.
    PassAfter {
        left_out: u64,
    },
    LeaveOut,
}

#[derive(Debug)]
pub(super) struct Limiter<Place = Identifier> {
    windows: Mutex<HashMap<Place, Window>>,
}

impl<Place> Default for Limiter<Place> {
    fn default() -> Self {
        Self { windows: Mutex::default() }
    }
}

#[derive(Debug)]
struct Window {
    begin_ns: u64,
    lines: u64,
}

impl<Place: Eq + std::hash::Hash> Limiter<Place> {
    pub(super) fn judge(&self, place: Place, lines_max: u64, now_ns: u64) -> Verdict {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(place).or_insert(Window { begin_ns: now_ns, lines: 0 });
        if now_ns.saturating_sub(window.begin_ns) < PERIOD_NS {
            window.lines += 1;
            return if window.lines <= lines_max { Verdict::Pass } else { Verdict::LeaveOut };
        }
        let left_out = window.lines.saturating_sub(lines_max);
        *window = Window { begin_ns: now_ns, lines: 1 };
        if left_out > 0 { Verdict::PassAfter { left_out } } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_repeats_is_cut_and_says_so_later() {
        let limiter = Limiter::default();
        let judge = |place: &'static str, now_ns| limiter.judge(place, 3, now_ns);
        for now_ns in 0..3 {
            assert_eq!(judge("a", now_ns), Verdict::Pass);
        }
        assert_eq!(judge("a", 4), Verdict::LeaveOut);
        assert_eq!(judge("a", PERIOD_NS - 1), Verdict::LeaveOut);
        assert_eq!(judge("b", 5), Verdict::Pass);
        assert_eq!(judge("a", PERIOD_NS), Verdict::PassAfter { left_out: 2 });
        assert_eq!(judge("a", PERIOD_NS + 1), Verdict::Pass);
        assert_eq!(judge("a", 2 * PERIOD_NS), Verdict::Pass);
    }
}
