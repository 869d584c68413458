//! Demand detector: how much less a path delivers than it did *when asked for as much*.
//!
//! The paper's [detector](super::detector) takes an idle pause, larger requests, more of them, and a path that stays
//! slower for congestion. All four come from comparing numbers of one load with those of another, and from baselines
//! that never forget. Little's law gives one number for capacity: with n reads in flight on a path it delivers n / L,
//! so at equal n (and equal size) less capacity is more latency, and nothing else is.
//!
//! # How
//! 1. What ended on the path in each control period gives a load (block size, reads in flight on the path) and a
//!    latency L. The last three periods are looked at together, or up to ten until there are enough reads.
//! 2. The baselines (`baselines.rs`) tell the longest that a read of that load may take, L0: measured at that load, or
//!    bounded by what was measured at others.
//! 3. Severity is `1000 (1 - L0 / L)`: the part of its capacity that the path lost, which is just what the formula for
//!    the share wants to know.
//! 4. Congestion begins at 70 permil, or where the path is noisy at 1.5 times the mean difference of one period's
//!    latency to the next's (nearly four mean deviations of three periods together), if two periods in a row are so by
//!    themselves: one may be a mixture of two loads. It ends at five sevenths of that.
//! 5. Once there is congestion the share moves away, and a path that is hardly asked shows no loss of capacity.
//!    So a severity that falls is believed only where as much is in flight as at the worst, or where latency is normal
//!    *and* more is delivered than at the worst. Else what is left of its capacity is taken for 3 % more each period,
//!    which sends the path as much more: either that is delivered, or severity is seen again.
//! 6. While there is no congestion, the latency enters the baselines, which forget in about 25 s.
//! 7. Congestion that lasts [`ACCEPT_NS`] is the new normal. Capacity is watched as before, but
//!    [`Verdict::normal_permil`] tells it and severity counts from there; it rises as the path delivers more again.
//!
//! Reads that were sent to a path where none ends are congestion too, of 1000, after three times what they
//! should take and at least 300 ms.
//!
//! # Never congestion
//! A volume with fewer than [`LIGHT`] reads in flight on all paths, and a path that was not asked for a second:
//! nothing waits there.
//!
//! # Limits
//! The mean of what is in flight in a period is blind to bursts that are shorter: a load that turns so looks congested
//! until step 7. A load that was never met before is bounded by others only, so severity may be too small there. A
//! capacity that falls by less than .3 % a second is followed and never seen.
//!
//! # Rejected
//! Throughput as a second signal: it is the same number, divided by what was asked for. The lowest latency as
//! the baseline: on a noisy path it lies far below the mean, and everything is congestion. A model of two
//! parameters, base latency and bandwidth: real devices bend between the two, by more than the 7 % to be seen.

mod baselines;
#[cfg(test)]
mod tests;

use super::detector::{Detect, Verdict};
use super::{Path, Tick};
use baselines::{Baselines, Load};

/// Congestion that lasts so long is the new normal.
pub const ACCEPT_NS: u64 = 60_000_000_000;
/// With fewer reads in flight on all paths nothing waits.
pub const LIGHT: f64 = 0.5;
/// Control periods that are looked at: at least, so many until there are enough reads, and at most.
const PERIODS_MIN: usize = 2;
const PERIODS_ENOUGH: usize = 3;
const PERIODS_MAX: usize = 10;
const READS_ENOUGH: u64 = 32;
/// Periods whose loads differ by this factor say nothing of jitter.
const OTHER_LOAD: f64 = 1.5;
/// With fewer reads the last verdict stands, for so long.
const READS_MIN: u64 = 3;
const SILENCE_NS: u64 = 1_000_000_000;
/// A path where nothing ends has stalled after so long, and so many times what a read takes.
const STALL_NS: f64 = 300_000_000.0;
const STALL_TIMES: f64 = 3.0;
/// Severity, of 1, at which congestion begins at least, and in jitter; the part of it at which it ends.
const ENTER: f64 = 0.07;
const ENTER_JITTER: f64 = 1.5;
const LEAVE_PART: f64 = 5.0 / 7.0;
/// How fast the jitter follows, after a mean of the first periods.
const JITTER_PART_MIN: f64 = 1.0 / 64.0;
/// A path is faster than it was if it is so for so many periods.
const FASTER_PERIODS: u32 = 5;
/// A path is never taken for slower than this part of what it was.
const SLOWEST: f64 = 0.01;
/// What is left of a path's capacity, where that cannot be seen, is taken for so much more each period: during
/// congestion, and where it is normal.
const HOPE: f64 = 1.03;
const NORMAL_HOPE: f64 = 1.01;
/// As much in flight as at the worst, and more delivered than then.
const AS_MUCH: f64 = 0.9;
const MORE: f64 = 1.05;

/// What ended on the path in a control period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    reads: u64,
    bytes: u64,
    /// Of all reads together.
    latency_ns: f64,
    elapsed_ns: f64,
    /// Reads in flight on all paths, times the period.
    volume_ns: f64,
}

impl Period {
    fn plus(self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            bytes: self.bytes + other.bytes,
            latency_ns: self.latency_ns + other.latency_ns,
            elapsed_ns: self.elapsed_ns + other.elapsed_ns,
            volume_ns: self.volume_ns + other.volume_ns,
        }
    }

    fn seen(&self) -> Seen {
        let reads = self.reads.max(1) as f64;
        let elapsed_ns = self.elapsed_ns.max(1.0);
        Seen {
            load: Load {
                block_bytes: (self.bytes as f64 / reads).max(1.0),
                in_flight: at_least_half(self.latency_ns / elapsed_ns),
            },
            latency_ns: (self.latency_ns / reads).max(1.0),
            reads: self.reads,
            bytes_per_ns: self.bytes as f64 / elapsed_ns,
            volume_in_flight: self.volume_ns / elapsed_ns,
        }
    }
}

/// The last control periods.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    load: Load,
    latency_ns: f64,
    reads: u64,
    bytes_per_ns: f64,
    /// Reads in flight on all paths.
    volume_in_flight: f64,
}

/// Below one read in flight a read seldom meets another: what it waits for grows with the chance that it does.
fn at_least_half(in_flight: f64) -> f64 {
    if in_flight < 1.0 { (1.0 + in_flight) / 2.0 } else { in_flight }
}

/// Less capacity than the baselines say.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// What is left, of 1.
    left: f64,
    /// When it was worst: reads in flight, and bytes per nanosecond.
    in_flight: f64,
    delivered: f64,
}

impl Loss {
    fn new(left: f64, seen: &Seen) -> Self {
        Self { left, in_flight: seen.load.in_flight, delivered: seen.bytes_per_ns }
    }

    /// Step 5 of the module. `left` is what seems to be left, `enough` what is no loss.
    fn follow(&mut self, left: f64, seen: &Seen, enough: f64, hope: f64) {
        if left <= self.left {
            *self = Self::new(left, seen);
        } else if seen.load.in_flight >= AS_MUCH * self.in_flight {
            self.left = left;
        } else if left > enough && seen.bytes_per_ns > MORE * self.delivered {
            self.left = 1.0;
        } else {
            self.left = (self.left.max(SLOWEST) * hope).min(1.0);
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct DemandDetector {
    path: Path,
    periods: [Period; PERIODS_MAX],
    pushed: usize,
    /// How many of the last periods are in a row, without silence.
    in_row: usize,
    baselines: Baselines,
    /// Mean of |L - L'| / L over periods of one load, and how many.
    jitter: f64,
    jitters: u32,
    /// Periods in which it was faster than it used to be.
    faster: u32,
    loss: Option<Loss>,
    /// The last period alone was one of less capacity.
    is_short: bool,
    /// Since when congestion lasts.
    congested_ns: Option<u64>,
    /// Severity of what is no congestion, of 1.
    severity: f64,
    /// What is left of a path's capacity normally, now and at most; 1 but where congestion was accepted.
    normal: f64,
    normal_max: f64,
    /// When a verdict was last possible, and the latency then.
    judged_ns: u64,
    latency_ns: f64,
    /// Hits that were sent and did not end, and since when nothing did.
    pending: u64,
    stalled_ns: f64,
}

impl DemandDetector {
    /// Watches `path`; nothing is known.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self {
            path,
            periods: [Period::default(); PERIODS_MAX],
            pushed: 0,
            in_row: 0,
            baselines: Baselines::new(),
            jitter: 0.0,
            jitters: 0,
            faster: 0,
            loss: None,
            is_short: false,
            congested_ns: None,
            severity: 0.0,
            normal: 1.0,
            normal_max: 1.0,
            judged_ns: 0,
            latency_ns: 0.0,
            pending: 0,
            stalled_ns: 0.0,
        }
    }

    fn push(&mut self, tick: &Tick) {
        let path = &tick.paths[self.path.index()];
        self.pending = (self.pending + path.hits).saturating_sub(path.requests);
        let waits = self.pending > 0 && path.requests == 0;
        self.stalled_ns = if waits { self.stalled_ns + tick.elapsed_ns as f64 } else { 0.0 };
        if tick.in_flight() == 0.0 {
            self.in_row = 0;
        }
        if path.requests == 0 {
            return;
        }
        let period = Period {
            reads: path.requests,
            bytes: path.bytes,
            latency_ns: path.latency_ns as f64 * path.requests as f64,
            elapsed_ns: tick.elapsed_ns as f64,
            volume_ns: tick.in_flight() * tick.elapsed_ns as f64,
        };
        if self.in_row > 0 {
            self.learn_jitter(&period.seen());
        }
        self.periods[self.pushed % PERIODS_MAX] = period;
        self.pushed += 1;
        self.in_row = (self.in_row + 1).min(PERIODS_MAX);
    }

    /// A period with the one before.
    fn learn_jitter(&mut self, is: &Seen) {
        let was = self.periods[(self.pushed - 1) % PERIODS_MAX].seen();
        let is_near = |a: f64, b: f64| a < OTHER_LOAD * b && b < OTHER_LOAD * a;
        if !is_near(is.load.in_flight, was.load.in_flight) || !is_near(is.load.block_bytes, was.load.block_bytes) {
            return;
        }
        self.jitters = self.jitters.saturating_add(1);
        let part = (1.0 / f64::from(self.jitters)).max(JITTER_PART_MIN);
        let difference = (is.latency_ns - was.latency_ns).abs() / is.latency_ns.max(was.latency_ns);
        self.jitter += (difference - self.jitter) * part;
    }

    /// The newest periods: three, or more until there are enough reads.
    fn window(&self) -> impl Iterator<Item = &Period> {
        let mut reads = 0;
        let newest = (1..=self.in_row).map(|back| &self.periods[(self.pushed - back) % PERIODS_MAX]);
        newest.enumerate().map_while(move |(nth, period)| {
            let is_needed = nth < PERIODS_ENOUGH || reads < READS_ENOUGH;
            reads += period.reads;
            is_needed.then_some(period)
        })
    }

    /// The longest that the reads of the window may have taken, as a mean. Bounded period by period: the bound of a
    /// mean load is no bound of a mean latency.
    fn longest(&self) -> Option<f64> {
        let mut sum = 0.0;
        let mut reads = 0.0;
        for period in self.window() {
            sum += self.baselines.longest(period.seen().load)? * period.reads as f64;
            reads += period.reads as f64;
        }
        Some(sum / reads)
    }

    fn is_stalled(&self) -> bool {
        self.stalled_ns > (STALL_TIMES * self.latency_ns).max(STALL_NS)
    }

    /// Congestion begins at this severity, of 1, and ends below.
    fn threshold(&self) -> f64 {
        let enter = (ENTER_JITTER * self.jitter).max(ENTER);
        if self.congested_ns.is_some() { enter * LEAVE_PART } else { enter }
    }

    /// Nothing can be said, so there is no congestion; what is normal stays so.
    fn calm(&mut self) {
        self.is_short = false;
        self.congested_ns = None;
        self.severity = 0.0;
        match &mut self.loss {
            Some(loss) if self.normal < 1.0 => loss.left = self.normal,
            _ => self.loss = None,
        }
    }

    /// That is no new normal, however long it lasts; and what is seen after it is believed.
    fn stall(&mut self, now_ns: u64) {
        self.judged_ns = now_ns;
        self.congested_ns = Some(now_ns);
        self.loss = Some(Loss { left: 0.0, in_flight: 0.0, delivered: 0.0 });
    }

    /// Steps 2 to 7 of the module.
    fn judge(&mut self, seen: &Seen, now_ns: u64) {
        self.judged_ns = now_ns;
        self.latency_ns = seen.latency_ns;
        let newest = self.periods[(self.pushed - 1) % PERIODS_MAX].seen();
        let Some((longest, longest_newest)) = self.longest().zip(self.baselines.longest(newest.load)) else {
            self.baselines.learn(newest.load, newest.latency_ns);
            return;
        };
        let left = longest / seen.latency_ns;
        self.severity = (1.0 - left).max(0.0);
        let enough = 1.0 - self.threshold();
        let hope = if self.congested_ns.is_some() { HOPE } else { NORMAL_HOPE };
        let is_short = longest_newest < enough * newest.latency_ns;
        let was_short = core::mem::replace(&mut self.is_short, is_short);
        match &mut self.loss {
            Some(loss) => loss.follow(left, seen, enough, hope),
            None if left >= enough => self.learn(&newest, left),
            None if was_short && is_short => self.loss = Some(Loss::new(left, seen)),
            None => {}
        }
        self.loss = self.loss.filter(|loss| loss.left < enough);
        self.compare_with_normal(now_ns);
    }

    fn compare_with_normal(&mut self, now_ns: u64) {
        let left = self.loss.map_or(1.0, |loss| loss.left.max(SLOWEST));
        if left < self.normal_max * (1.0 - self.threshold()) {
            let since_ns = *self.congested_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) < ACCEPT_NS {
                return;
            }
            self.normal_max = left;
        }
        self.congested_ns = None;
        self.normal = left;
        self.normal_max = self.normal_max.max(left);
    }

    fn learn(&mut self, seen: &Seen, left: f64) {
        let is_faster = self.baselines.knows(seen.load) && left > 1.0 + self.threshold();
        self.faster = if is_faster { self.faster + 1 } else { 0 };
        if self.faster == FASTER_PERIODS {
            self.faster = 0;
            self.baselines.forget(seen.load);
        }
        self.baselines.learn(seen.load, seen.latency_ns);
    }

    fn verdict(&self) -> Verdict {
        let severity = match &self.loss {
            Some(loss) if self.congested_ns.is_some() => 1.0 - loss.left / self.normal,
            Some(_) => 0.0,
            None => self.severity,
        };
        Verdict {
            severity_permil: (1_000.0 * severity.max(0.0) + 0.5) as u32,
            congested: self.congested_ns.is_some(),
            normal_permil: (1_000.0 * self.normal + 0.5) as u32,
        }
    }
}

impl Detect for DemandDetector {
    fn tick(&mut self, tick: &Tick) -> Verdict {
        self.push(tick);
        let seen = self.window().fold(Period::default(), Period::plus).seen();
        if self.is_stalled() {
            self.stall(tick.now_ns);
        } else if tick.in_flight() > 0.0 && self.in_row >= PERIODS_MIN && seen.volume_in_flight < LIGHT {
            self.calm();
        } else if tick.paths[self.path.index()].requests > 0 && self.in_row >= PERIODS_MIN && seen.reads >= READS_MIN {
            self.judge(&seen, tick.now_ns);
        } else if tick.now_ns.saturating_sub(self.judged_ns) >= SILENCE_NS {
            self.calm();
        }
        self.verdict()
    }

    fn is_warm(&self) -> bool {
        self.baselines.is_warm()
    }
}
