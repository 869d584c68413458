//! Demand detector: how much less a path delivers than it did *when asked for as much*.
//!
//! The paper's [detector](super::detector) takes an idle pause, larger requests, more of them, and a path that stays
//! slower for congestion. All four come from comparing numbers of one load with those of another, and from baselines
//! that never forget. Little's law gives one number for capacity: with n reads in flight on a path it delivers n / L,
//! so at equal n (and equal size) less capacity is more latency, and nothing else is.
//!
//! # How
//! 1. What ended on the path in the last control periods gives a load (block size, reads in flight on the path) and a
//!    latency L: at least two periods, up to ten until there are enough reads, and all of one load. A period whose
//!    load is half as large again as that of the one before begins anew, and is itself a mixture that is not looked at.
//! 2. The [baselines](baselines) tell the longest that a read of that load may take, L0: measured at that load, or
//!    bounded by what was measured at others.
//! 3. Severity is `1000 (1 - L0 / L)`: the part of its capacity that the path lost, which is just what the formula for
//!    the share wants to know.
//! 4. Congestion begins at 70 permil, or where the path is noisy at 1.5 times the mean difference of one period's
//!    latency to the next's (nearly four mean deviations of three periods together), and ends at five sevenths of that.
//! 5. Once there is congestion the share moves away, and a path that is hardly asked shows no loss of capacity.
//!    So a severity that falls is believed only where as much is in flight as at the worst, or where latency is normal
//!    *and* more is delivered than at the worst. Else what is left of its capacity is taken for 3 % more each period,
//!    which sends the path as much more: either that is delivered, or severity is seen again.
//! 6. While there is no congestion, the latency enters the baselines, which forget in about 25 s.
//! 7. Congestion that lasts [`ACCEPT_NS`] is the new normal: the baselines are raised to it, and
//!    [`Verdict::normal_permil`] falls. When the path is found to deliver more again, it rises as far back.
//!
//! Reads that were sent to a path where none ends are congestion too, of 1000, after three times what they
//! should take and at least 300 ms.
//!
//! # Never congestion
//! A volume with fewer than [`LIGHT`] reads in flight on all paths, and a path that was not asked for a second:
//! nothing waits there.
//!
//! # Limits
//! A load that comes in bursts of some periods is never judged. The mean of what is in flight is blind to shorter
//! ones: a load that turns so looks congested until step 7. A load that was never met before is bounded by others
//! only, so severity may be too small there. A capacity that falls by less than .3 % a second is followed and never
//! seen.
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
/// A period of another load differs by this factor.
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
/// What is left of a path's capacity, where that cannot be seen, is taken for so much more each period.
const HOPE: f64 = 1.03;
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
                in_flight: (self.latency_ns / elapsed_ns).max(1.0),
            },
            latency_ns: (self.latency_ns / reads).max(1.0),
            reads: self.reads,
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
    /// Reads in flight on all paths.
    volume_in_flight: f64,
}

impl Seen {
    fn bytes_per_ns(&self) -> f64 {
        self.load.in_flight * self.load.block_bytes / self.latency_ns
    }
}

/// Congestion that is going on.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since_ns: u64,
    /// Of 1.
    severity: f64,
    /// When it was worst: reads in flight, and bytes per nanosecond.
    in_flight: f64,
    delivered: f64,
}

impl Episode {
    /// Step 5 of the module.
    fn follow(&mut self, severity: f64, seen: &Seen, threshold: f64) {
        if severity >= self.severity {
            let since_ns = self.since_ns;
            *self = Self::new(severity, seen, since_ns);
        } else if seen.load.in_flight >= AS_MUCH * self.in_flight {
            self.severity = severity;
        } else if severity < threshold && seen.bytes_per_ns() > MORE * self.delivered {
            self.severity = 0.0;
        } else {
            self.severity = 1.0 - (1.0 - self.severity).max(SLOWEST) * HOPE;
        }
    }

    fn new(severity: f64, seen: &Seen, since_ns: u64) -> Self {
        Self { since_ns, severity, in_flight: seen.load.in_flight, delivered: seen.bytes_per_ns() }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct DemandDetector {
    path: Path,
    periods: [Period; PERIODS_MAX],
    pushed: usize,
    /// How many of the last periods are of one load.
    alike: usize,
    baselines: Baselines,
    /// Mean of |L - L'| / L over periods of one load, and how many.
    jitter: f64,
    jitters: u32,
    /// Periods in which it was faster than it used to be.
    faster: u32,
    episode: Option<Episode>,
    /// Below the threshold.
    severity: f64,
    /// When a verdict was last possible, and the latency then.
    judged_ns: u64,
    latency_ns: f64,
    /// Hits that were sent and did not end, and since when nothing did.
    pending: u64,
    stalled_ns: f64,
    /// How many times as long a read takes as at first, where that was accepted; and what was delivered then.
    slower: f64,
    accepted: f64,
}

impl DemandDetector {
    /// Watches `path`; nothing is known.
    #[must_use]
    pub fn new(path: Path) -> Self {
        Self {
            path,
            periods: [Period::default(); PERIODS_MAX],
            pushed: 0,
            alike: 0,
            baselines: Baselines::new(),
            jitter: 0.0,
            jitters: 0,
            faster: 0,
            episode: None,
            severity: 0.0,
            judged_ns: 0,
            latency_ns: 0.0,
            pending: 0,
            stalled_ns: 0.0,
            slower: 1.0,
            accepted: 0.0,
        }
    }

    fn push(&mut self, tick: &Tick) {
        let path = &tick.paths[self.path.index()];
        self.pending = (self.pending + path.hits).saturating_sub(path.requests);
        let waits = self.pending > 0 && path.requests == 0;
        self.stalled_ns = if waits { self.stalled_ns + tick.elapsed_ns as f64 } else { 0.0 };
        if tick.in_flight() == 0.0 {
            self.alike = 0;
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
        self.compare(&period.seen());
        self.periods[self.pushed % PERIODS_MAX] = period;
        self.pushed += 1;
    }

    /// A period with the one before.
    fn compare(&mut self, is: &Seen) {
        if self.pushed == 0 {
            return;
        }
        let was = self.periods[(self.pushed - 1) % PERIODS_MAX].seen();
        let is_near = |a: f64, b: f64| a < OTHER_LOAD * b && b < OTHER_LOAD * a;
        if !is_near(is.load.in_flight, was.load.in_flight) || !is_near(is.load.block_bytes, was.load.block_bytes) {
            self.alike = 0;
            return;
        }
        self.alike = (self.alike + 1).min(PERIODS_MAX);
        self.jitters = self.jitters.saturating_add(1);
        let part = (1.0 / f64::from(self.jitters)).max(JITTER_PART_MIN);
        let difference = (is.latency_ns - was.latency_ns).abs() / is.latency_ns.max(was.latency_ns);
        self.jitter += (difference - self.jitter) * part;
    }

    /// The newest periods of one load: three, or more until there are enough reads.
    fn window(&self) -> impl Iterator<Item = &Period> {
        let mut reads = 0;
        let newest = (1..=self.alike).map(|back| &self.periods[(self.pushed - back) % PERIODS_MAX]);
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
        if self.episode.is_some() { enter * LEAVE_PART } else { enter }
    }

    fn calm(&mut self) {
        self.episode = None;
        self.severity = 0.0;
    }

    fn stall(&mut self, now_ns: u64) {
        self.judged_ns = now_ns;
        let since_ns = self.episode.map_or(now_ns, |episode| episode.since_ns);
        self.episode = Some(Episode { since_ns, severity: 1.0, in_flight: 0.0, delivered: 0.0 });
    }

    /// Steps 2 to 7 of the module.
    fn judge(&mut self, seen: &Seen, now_ns: u64) {
        self.judged_ns = now_ns;
        self.latency_ns = seen.latency_ns;
        let Some(longest) = self.longest() else {
            self.baselines.learn(seen.load, seen.latency_ns);
            return;
        };
        let ratio = seen.latency_ns / longest;
        let threshold = self.threshold();
        self.severity = (1.0 - 1.0 / ratio).max(0.0);
        match &mut self.episode {
            Some(episode) => {
                episode.follow(self.severity, seen, threshold);
                if episode.severity <= threshold {
                    self.calm();
                } else if now_ns - episode.since_ns >= ACCEPT_NS {
                    self.accept();
                }
            }
            None if self.severity > threshold => self.episode = Some(Episode::new(self.severity, seen, now_ns)),
            None => self.learn(seen, ratio),
        }
    }

    fn learn(&mut self, seen: &Seen, ratio: f64) {
        let is_faster = self.baselines.knows(seen.load) && ratio < 1.0 - self.threshold();
        self.faster = if is_faster { self.faster + 1 } else { 0 };
        if self.faster == FASTER_PERIODS {
            self.faster = 0;
            if self.slower > 1.0 && seen.bytes_per_ns() > MORE * self.accepted {
                self.change_normal(ratio.max(1.0 / self.slower));
            }
            self.baselines.forget(seen.load);
        }
        self.baselines.learn(seen.load, seen.latency_ns);
    }

    fn accept(&mut self) {
        if let Some(episode) = self.episode {
            self.accepted = episode.delivered;
            self.change_normal(1.0 / (1.0 - episode.severity).max(SLOWEST));
        }
        self.calm();
    }

    /// Everything takes `factor` times as long from now on.
    fn change_normal(&mut self, factor: f64) {
        let slower = (self.slower * factor).min(1.0 / SLOWEST);
        self.baselines.scale(slower / self.slower);
        self.slower = slower;
    }

    fn verdict(&self) -> Verdict {
        let severity = self.episode.map_or(self.severity, |episode| episode.severity);
        Verdict {
            severity_permil: (1_000.0 * severity + 0.5) as u32,
            congested: self.episode.is_some(),
            normal_permil: (1_000.0 / self.slower + 0.5) as u32,
        }
    }
}

impl Detect for DemandDetector {
    fn tick(&mut self, tick: &Tick) -> Verdict {
        self.push(tick);
        let seen = self.window().fold(Period::default(), Period::plus).seen();
        if self.is_stalled() {
            self.stall(tick.now_ns);
        } else if tick.in_flight() > 0.0 && self.alike >= PERIODS_MIN && seen.volume_in_flight < LIGHT {
            self.calm();
        } else if tick.paths[self.path.index()].requests > 0 && self.alike >= PERIODS_MIN && seen.reads >= READS_MIN {
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
