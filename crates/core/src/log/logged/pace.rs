//! Pace: writers are slowed smoothly while the log fills (the write throttle of OpenZFS, `dmu_tx_delay`), and write-back goes
//! faster.
//!
//! Why: a log that takes all until it is full stops its writers for as long as the back end needs to make room: seconds. One
//! that slows them from the middle on makes each wait a little, and never fills while the back end takes anything.
//!
//! How:
//! 1. *Pressure* is the largest of three parts: of the log's room, of its records, and of the lag that is allowed. Below
//!    [`LOW`] nobody waits. What the back end has taken of the epoch on its way counts as gone, and an eighth of the
//!    log is left out, so that room that comes in steps is felt as if it came steadily.
//! 2. Above, each change that is let in makes the next one wait `t (p - low) / (1 - p)`: `t` is how long the back end
//!    needs for it, as measured while it is at work (nobody waits before that is known). OpenZFS takes a constant for it. So in the middle between low mark
//!    and full, writers go as fast as the back end, whatever its speed.
//! 3. Short waits are saved up to [`SLACK_NS`], so that nobody is woken for microseconds.
//! 4. Beside clients write-back has few runs under way, and more with the pressure and with the age of the oldest change
//!    ([`Logged::runs_allowed`]). A burst that passes the log holds it off altogether, for [`BURST_NS`] at most. While somebody
//!    waits until the back end has his changes, nothing holds it back.
//!
//! The lag is what a new change is to expect: what is before it, over the rate. The age of the oldest would tell too late.
//! When the back end does not answer there is no rate, and its owner's choice counts ([`super::policy::OnLag`]).
//!
//! Invariants: nobody waits below the low mark; between two changes that are let in at most [`DELAY_MAX_NS`] go by for each
//! 64 KiB, unless the log has no room or its owner wants it to stall.
//!
//! Limits: a log is full before a rate is known if it is filled while the first runs are on their way. In front of a back end
//! that takes less than 640 KB/s large writes fill it, too. Then they wait for room.

use super::Logged;
use super::policy::{Bypass, Durability, OnLag};

/// Below this pressure nobody waits.
pub(super) const LOW: f64 = 0.6;
/// Up to this pressure write-back rests while clients are at work.
const REST: f64 = 0.2;
/// Up to this pressure it keeps to one run.
const RAMP: f64 = 0.3;
/// For write-back beside clients, the oldest change's age counts as pressure, in parts of this.
const FOLLOW_NS: u64 = 10_000_000_000;
/// So many runs at most are for age below that. With 64 of them after a stall of 5 s the 99.9th percentile of writes was 3.9 ms
/// on a machine of two processors, with 16 it is 2.9, and 1.8 while nothing follows.
const FOLLOW_RUNS_MAX: u32 = 16;
/// The longest wait for a change of up to so many sectors; longer ones wait in proportion.
const DELAY_MAX_NS: f64 = 100e6;
const DELAY_MAX_SECTORS: u64 = 128;
/// Waits are saved up to this.
const SLACK_NS: u64 = 1_000_000;
/// Work that a rate is measured over, and its weight.
const WINDOW_NS: u64 = 50_000_000;
const WEIGHT: f64 = 0.2;
/// The first rate is of so much work at least.
const LEAST_NS: u64 = 1_000_000;
/// So long without an answer, and the back end does not answer.
const SILENT_NS: u64 = 2_000_000_000;

/// Until the oldest change is so old write-back leaves the back end to large writes that pass the log.
const BURST_NS: u64 = 2_000_000_000;

/// Sectors of the ring, and records.
pub(super) type Both = [u64; 2];

/// Parts of what there may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) sectors: f64,
    pub(super) records: f64,
    pub(super) lag: f64,
}

impl Load {
    pub(super) fn pressure(&self) -> f64 {
        self.sectors.max(self.records).max(self.lag)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    rates: Option<[f64; 2]>,
    /// Where the window began, how much work is in it, and when it was last looked at, at work or not.
    base: Both,
    followed: Both,
    work_ns: u64,
    seen_ns: u64,
    works: bool,
    /// The next change may come then.
    next_ns: u64,
    /// Since when the first that waits does so for its turn.
    since_ns: Option<u64>,
    /// They wait for something else than their turn.
    stalls: bool,
}

impl Pace {
    /// The back end has followed so far, and is at work or not.
    pub(super) fn look(&mut self, now_ns: u64, followed: Both, works: bool) {
        if self.works {
            self.work_ns += now_ns.saturating_sub(self.seen_ns);
        }
        (self.seen_ns, self.works, self.followed) = (now_ns, works, followed);
        let is_back = (0..2).any(|at| followed[at] < self.base[at]);
        let went = [0, 1].map(|at| followed[at].saturating_sub(self.base[at]));
        if is_back {
            (self.base, self.work_ns) = (followed, 0);
        } else if self.work_ns >= WINDOW_NS && went[1] > 0 {
            let now = went.map(|it| it as f64 / self.work_ns as f64);
            let old = self.rates.unwrap_or(now);
            self.rates = Some([0, 1].map(|at| old[at] + (now[at] - old[at]) * WEIGHT));
            (self.base, self.work_ns) = (followed, 0);
        }
    }

    /// Of each, how many a nanosecond of work, if that is known.
    fn rates(&self) -> Option<[f64; 2]> {
        let first = || {
            let went = [0, 1].map(|at| self.followed[at].saturating_sub(self.base[at]));
            (self.work_ns >= LEAST_NS && went[1] > 0).then(|| went.map(|it| it as f64 / self.work_ns as f64))
        };
        self.rates.or_else(first)
    }

    /// How long the back end needs for so much, if it is known.
    pub(super) fn needs_ns(&self, behind: Both) -> Option<f64> {
        let rates = self.rates()?;
        Some((behind[0] as f64 / rates[0]).max(behind[1] as f64 / rates[1]))
    }

    /// Whether the next change may come.
    pub(super) fn is_open(&self, now_ns: u64, load: &Load) -> bool {
        load.pressure() <= LOW || self.next_ns < now_ns + SLACK_NS
    }

    /// A change of so many sectors came.
    pub(super) fn came(&mut self, now_ns: u64, sectors: u64, load: &Load) {
        let pressure = load.pressure();
        if pressure <= LOW {
            return;
        }
        let longest_ns = DELAY_MAX_NS * (sectors as f64 / DELAY_MAX_SECTORS as f64).max(1.0);
        let Some(rates) = self.rates() else { return };
        let takes_ns = if load.records > load.sectors { 1.0 / rates[1] } else { sectors as f64 / rates[0] };
        let delay_ns = if pressure < 1.0 { takes_ns * (pressure - LOW) / (1.0 - pressure) } else { longest_ns };
        self.next_ns = self.next_ns.max(now_ns) + delay_ns.min(longest_ns) as u64;
    }
}

impl Logged {
    /// Looks at how far the back end is.
    pub(super) fn look(&mut self, now_ns: u64) {
        let works = self.follow.works();
        self.pace.look(now_ns, self.log.followed(), works);
    }

    pub(super) fn load(&self, now_ns: u64) -> Load {
        let followed = self.log.followed();
        let behind = [self.log.ring().in_use().end - followed[0], self.log.next() - followed[1]];
        let part = |behind: u64, of: u64| behind as f64 / (of - of / 8) as f64;
        let silent = self.is_silent(now_ns) && self.policy.on_lag == OnLag::Continue;
        let lag_ns = self.pace.needs_ns(behind).filter(|_| !silent).unwrap_or(0.0);
        Load {
            sectors: part(behind[0], self.log.ring().size()),
            records: part(behind[1], self.log.limits().records_max),
            lag: lag_ns / self.policy.lag_max_ns.max(1) as f64,
        }
    }

    /// Whether the back end fails, or has been told something and said nothing for long.
    fn is_silent(&self, now_ns: u64) -> bool {
        self.follow.fails() || self.follow.is_silent(now_ns, SILENT_NS)
    }

    /// Whether the oldest change waits for longer than the back end may lag.
    #[must_use]
    pub fn is_lagging(&self, now_ns: u64) -> bool {
        self.lag_ns(now_ns) > self.policy.lag_max_ns
    }

    /// The first that waits does so for something else, until its pace is asked for.
    pub(super) fn has_no_turn(&mut self) {
        self.pace.stalls = true;
    }

    /// Whether the first that waits may go into the log, as far as its pace is concerned.
    pub(super) fn may_come(&mut self, now_ns: u64) -> bool {
        let stalls = self.policy.on_lag == OnLag::Stall && self.is_silent(now_ns) && self.is_lagging(now_ns);
        let is_open = !stalls && self.pace.is_open(now_ns, &self.load(now_ns));
        self.pace.stalls = stalls;
        if is_open {
            self.waits_for_no_turn(now_ns);
        } else {
            self.pace.since_ns.get_or_insert(now_ns);
        }
        is_open
    }

    /// Whatever the first that waits is waiting for, it is not its turn.
    pub(super) fn waits_for_no_turn(&mut self, now_ns: u64) {
        let since_ns = self.pace.since_ns.take();
        self.counts.throttled_ns += since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
    }

    /// A change went into the log.
    pub(super) fn came(&mut self, now_ns: u64, sectors: u64) {
        let load = self.load(now_ns);
        self.pace.came(now_ns, sectors, &load);
    }

    /// When time is to be told although nothing happens: somebody's turn comes, or clients rest.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let rest_ns = self.follow.rest_ns(self.config.demand_ns);
        let rest_ns = rest_ns.filter(|at_ns| *at_ns > self.failing.now_ns && self.log.next() > self.log.first);
        self.turn_ns().into_iter().chain(rest_ns).min()
    }

    /// When somebody's turn comes.
    fn turn_ns(&self) -> Option<u64> {
        // Who is stalled has no turn until the back end answers.
        let waits = self.pace.since_ns.is_some() && !self.waiting.is_empty() && !self.pace.stalls;
        waits.then(|| (self.pace.next_ns + 1).saturating_sub(SLACK_NS))
    }

    /// Whether somebody's turn may have come.
    pub(super) fn is_turn(&self, now_ns: u64) -> bool {
        self.turn_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// Runs that may be under way: all while clients rest, otherwise what the pressure asks for ([`runs_beside_clients`]).
    pub(super) fn runs_allowed(&self, now_ns: u64) -> u32 {
        let all = self.config.runs_max.min(self.policy.runs_max).max(1);
        // A client waits until the back end has what it changed, or the log is to be empty, or its disk failed.
        let is_awaited = self.flush_waiters.iter().any(|waiter| waiter.level == Durability::Backend);
        if is_awaited || self.policy.bypass == Bypass::All || self.broken {
            return all;
        }
        let pressure = self.load(now_ns).pressure();
        // A burst that passes the log has the back end for itself at first.
        let is_burst = !self.broken
            && self.bypass.is_burst(now_ns, self.config.burst_gap_ns)
            && matches!(self.policy.bypass, Bypass::Large { .. });
        if is_burst && self.lag_ns(now_ns) < BURST_NS && pressure < LOW {
            return 0;
        }
        // Large changes wait for the back end to have followed, and then pass the log.
        let changes = self.changes.back().is_some_and(|change| !change.is_large);
        if !self.follow.is_demanded(now_ns, self.config.demand_ns) && !changes {
            return all;
        }
        let follow_ns = self.policy.lag_max_ns.clamp(1, FOLLOW_NS);
        let age = self.lag_ns(now_ns) as f64 / follow_ns as f64;
        let for_age = if age < 1.0 { runs_beside_clients(all.min(FOLLOW_RUNS_MAX), age) } else { all };
        runs_beside_clients(all, pressure).max(for_age)
    }
}

/// None up to the pressure of [`REST`], one up to [`RAMP`], all from [`LOW`] on, and in proportion between: the shape that OpenZFS
/// gives its asynchronous writes (`zfs_dirty_data_sync_percent` 20, `zfs_vdev_async_write_active_min_dirty_percent` 30,
/// `_max_dirty_percent` 60).
fn runs_beside_clients(all: u32, pressure: f64) -> u32 {
    if pressure < REST {
        return 0;
    }
    let part = ((pressure - RAMP) / (LOW - RAMP)).clamp(0.0, 1.0);
    1 + (f64::from(all - 1) * part) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECTORS: u64 = 1 << 18;
    const RECORDS: u64 = 1 << 13;

    /// A log behind which a back end takes so many sectors a millisecond, and frees its room a sixteenth at a time.
    struct Model {
        pace: Pace,
        per_ms: f64,
        now_ns: u64,
        came: Both,
        followed: [f64; 2],
        /// What each record that is in the log has.
        lengths: alloc::collections::VecDeque<u64>,
        /// What of the first is done.
        done: f64,
    }

    impl Model {
        fn load(&self) -> Load {
            let part = |at: usize, of: u64| (self.came[at] as f64 - self.followed[at]) / (of - of / 8) as f64;
            Load { sectors: part(0, SECTORS), records: part(1, RECORDS), lag: 0.0 }
        }

        fn wait(&mut self, ns: u64) {
            self.now_ns += ns;
            let mut room = self.per_ms * ns as f64 / 1e6;
            while let Some(length) = self.lengths.front().copied() {
                let takes = length as f64 - self.done;
                let now = takes.min(room);
                (self.followed[0], self.done, room) = (self.followed[0] + now, self.done + now, room - now);
                if takes > now {
                    break;
                }
                (self.followed[1], self.done) = (self.followed[1] + 1.0, 0.0);
                self.lengths.pop_front();
            }
            let followed = self.followed.map(|it| it as u64);
            self.pace.look(self.now_ns, followed, !self.lengths.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Writers that always have something more, of a size, over a back end of 1 to 500 MB/s.
        #[test]
        fn writers_go_as_fast_as_the_back_end_and_none_waits_long(
            per_ms in prop_oneof![2.0..20.0f64, 20.0..1_000.0f64],
            sectors in prop_oneof![Just(9u64), Just(65), Just(129), Just(513)],
        ) {
            let mut model = Model {
                pace: Pace::default(),
                per_ms,
                now_ns: 0,
                came: [0; 2],
                followed: [0.0; 2],
                lengths: Default::default(),
                done: 0.0,
            };
            // What the back end does is known before it matters.
            while model.pace.rates().is_none() {
                while (model.came[0] as f64) < model.followed[0] + 2.0 * per_ms {
                    model.came = [model.came[0] + sectors, model.came[1] + 1];
                    model.lengths.push_back(sectors);
                }
                model.wait(1_000_000);
            }
            let (begin_ns, mut last_ns, mut longest_ns, mut fullest) = (model.now_ns, model.now_ns, 0, 0.0f64);
            let mut at_half = [0; 2];
            let total_ns = 10_000_000_000 + (6.0 * SECTORS as f64 / per_ms) as u64 * 1_000_000;
            while model.now_ns < begin_ns + total_ns {
                let load = model.load();
                fullest = fullest.max(load.pressure());
                if !model.pace.is_open(model.now_ns, &load) {
                    prop_assert!(load.pressure() > LOW);
                    model.wait(1_000_000);
                    continue;
                }
                longest_ns = longest_ns.max(model.now_ns - last_ns);
                last_ns = model.now_ns;
                model.came = [model.came[0] + sectors, model.came[1] + 1];
                model.lengths.push_back(sectors);
                model.pace.came(model.now_ns, sectors, &load);
                // A local disk of 1 GB/s.
                model.wait(sectors * 512);
                if at_half == [0; 2] && model.now_ns > begin_ns + total_ns / 2 {
                    at_half = model.came;
                }
            }
            let per_ms = (model.came[0] - at_half[0]) as f64 / (total_ns as f64 / 2e6);
            prop_assert!(per_ms > 0.9 * model.per_ms && per_ms < 1.1 * model.per_ms, "{per_ms} {}", model.per_ms);
            let most_ns = 100_000_000 * sectors.div_ceil(DELAY_MAX_SECTORS) + 2_000_000;
            prop_assert!(longest_ns <= most_ns, "{longest_ns}");
            prop_assert!(fullest < 1.0, "{fullest}");
        }
    }

    #[test]
    fn runs_beside_clients_grow_with_the_pressure() {
        for (pressure, runs) in [(0.0, 0), (0.2, 1), (0.3, 1), (0.45, 32), (0.6, 64), (1.2, 64)] {
            assert_eq!(runs_beside_clients(64, pressure), runs, "{pressure}");
        }
        assert_eq!(runs_beside_clients(1, 0.45), 1);
    }

    #[test]
    fn a_rate_is_that_of_work_and_not_of_idleness() {
        let mut pace = Pace::default();
        for nth in 0..100 {
            pace.look(nth * 100_000_000, [nth * 1_000, nth * 10], true);
            pace.look(nth * 100_000_000 + 50_000_000, [nth * 1_000 + 1_000, nth * 10 + 10], false);
        }
        let needs_ns = pace.needs_ns([2_000, 1]).unwrap();
        assert!((needs_ns - 100e6).abs() < 1e6, "{needs_ns}");
    }
}
