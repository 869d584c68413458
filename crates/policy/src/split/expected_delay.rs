//! Expected delay: a path is filled to its bandwidth-delay product, and what comes first is served first.
//!
//! Why: a share is right for one load and one condition. What each path can bear shows in what it answers: beyond its
//! product of rate and least latency, more requests in flight only wait (Kleinrock, 1979; BBR, Cardwell et al., 2016).
//! Below it, a hit that goes to the other path gains nothing for anybody. So few requests in flight stay on the faster
//! path, as the best split does on the published surface, and many fill both to the sum of their rates; a back end that
//! slows down is given less after the first slow answers, within milliseconds and not a control period.
//!
//! How: each path has a base (its mean latency without a queue), a rate (where it is bound) and a window. A hit goes
//! 1. of the paths with room in their window to the one whose expected delay is least: the base, or what is in flight
//!    over the rate, whichever is greater;
//! 2. if none has room, to the one with the least expected delay of all;
//! 3. and never to one whose delay is beyond [`WORTH`] times the least of all: by Little's law it could not gain 3 %.
//!
//! What is known comes from *rounds*, of [`ROUND_MIN`] answers or a window's worth. A round that waited in a queue sets
//! the window to [`WINDOW_GAIN`] times base and rate; one that filled the window and met no queue widens it. Every 200
//! rounds one with a quarter of the window looks for the base anew, and sooner if the window halved: a path that stays
//! slower is soon the normal one. Silence changes nothing.
//!
//! Invariant: a path that has answered nothing yet is tried where the known ones are full, with [`WINDOW_MIN`] requests.
//!
//! Rejected: the least expected delay alone, which makes delays equal: a cache disk of 20 us that saturates keeps 50
//! requests waiting before a back end of 1 ms gets its first. Marginal delays (tolls), which need the slope of a curve
//! that noise hides. Limits from the profile: they are wrong as soon as the network is. The least latency seen as the
//! base, and the greatest rate (as BBR has it): under 30 % noise the one is never met again, and the window shrinks to
//! nothing. A gain of 2 (BBR again): with 16 requests in flight the queue before the cache disk costs a tenth.

use super::{Done, Hit, Meter, PATHS_MAX, Path, PathSet, Report, Split, Tick, Use};

/// Windows are so many times what fills the path: some queue keeps it busy.
const WINDOW_GAIN: f64 = 1.15;
/// A round this much slower than the least latency has waited in a queue.
const QUEUED: f64 = 1.15;
/// Of what is known of a path, at least so many requests.
const WINDOW_MIN: f64 = 2.0;
/// A path this many times slower than the best could not gain as much as one part in so many.
const WORTH: f64 = 32.0;
/// A window that is filled without a queue grows by this part in a round, once there was a queue and before.
const GROWTH: f64 = 1.0 / 16.0;
const GROWTH_AT_FIRST: f64 = 0.5;
/// Answers in a round at least.
const ROUND_MIN: u32 = 16;
/// With so many windows in flight the base decides nothing, and it would take long until the queue is gone.
const CROWDED: f64 = 4.0;
/// Between two rounds that look for the least latency there are so many others, and so much time.
const ROUNDS_BETWEEN: u32 = 200;
const LOOK_EACH_NS: u64 = 500_000_000;
/// After so many, if the window has halved since.
const ROUNDS_SUSPICIOUS: u32 = 16;
/// A least latency that is so many times the one before is another path's.
const ANOTHER: f64 = 1.4;
/// The part of a new round in a mean.
const NEW: f64 = 0.25;
/// Part of the window in such a round.
const LOOK: f64 = 0.25;

/// Answers of a path, until they make a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begun_ns: u64,
    answers: u32,
    /// Of them, reads, and the sum of their latencies.
    reads: u32,
    latency_ns: f64,
    in_flight_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    round: Round,
    rounds_since_look: u32,
    looked_ns: u64,
    looked_window: f64,
    looking: bool,
    latency_ns: f64,
    /// A queue has been seen: the window grows by one and no longer by its half.
    started: bool,
    /// What a choice needs: the least latency, the delay that each request in flight adds, and how many there may be.
    base_ns: f64,
    each_ns: f64,
    window: f64,
}

impl Default for Estimate {
    fn default() -> Self {
        Self {
            round: Round::default(),
            rounds_since_look: 0,
            looked_ns: 0,
            looked_window: 0.0,
            looking: false,
            latency_ns: 0.0,
            started: false,
            base_ns: 0.0,
            each_ns: 0.0,
            window: WINDOW_MIN,
        }
    }
}

fn blend(mean: f64, new: f64) -> f64 {
    mean + NEW * (new - mean)
}

impl Estimate {
    /// Of the last of so many in flight. Neither is ever no number, which `max` would look for at every choice.
    #[inline]
    fn delay_ns(&self, in_flight: f64) -> f64 {
        let queue_ns = self.each_ns * in_flight;
        if queue_ns > self.base_ns { queue_ns } else { self.base_ns }
    }

    fn ended(&mut self, done: &Done) {
        if self.looking && f64::from(done.in_flight) > self.room() {
            return; // It still waited behind others.
        }
        let round = &mut self.round;
        if round.answers == 0 && round.begun_ns == 0 {
            round.begun_ns = done.now_ns - done.latency_ns;
        }
        round.answers += 1;
        if done.kind != Use::Write {
            round.reads += 1;
            round.latency_ns += done.latency_ns as f64;
        }
        round.in_flight_max = round.in_flight_max.max(done.in_flight);
        if round.answers >= ROUND_MIN.max(self.room() as u32) {
            self.end_round(done.now_ns);
        }
    }

    fn end_round(&mut self, now_ns: u64) {
        let next = Round { begun_ns: now_ns, ..Round::default() };
        let round = core::mem::replace(&mut self.round, next);
        if round.reads == 0 {
            return;
        }
        let latency_ns = (round.latency_ns / f64::from(round.reads)).max(1.0);
        let rate = f64::from(round.answers) / (now_ns - round.begun_ns).max(1) as f64;
        let in_flight_max = f64::from(round.in_flight_max);
        if self.looking || self.base_ns == 0.0 {
            return self.looked(now_ns, latency_ns);
        }
        self.latency_ns = blend(self.latency_ns, latency_ns);
        if self.latency_ns * QUEUED < self.base_ns {
            self.base_ns = self.latency_ns;
        }
        let is_filled = in_flight_max + 1.0 > self.window;
        if self.latency_ns > QUEUED * self.base_ns {
            // Where others made the queue, what was carried is what was asked for.
            if is_filled || rate * self.each_ns > 1.0 {
                self.fit(rate);
            }
        } else if is_filled {
            let part = if self.started { GROWTH } else { GROWTH_AT_FIRST };
            self.window += part * self.window.max(4.0);
        }
        self.rounds_since_look += 1;
        let due = self.rounds_since_look >= ROUNDS_BETWEEN && now_ns >= self.looked_ns + LOOK_EACH_NS;
        let suspicious = self.rounds_since_look >= ROUNDS_SUSPICIOUS && self.window < self.looked_window / 2.0;
        let worth_it = in_flight_max > 2.0 * LOOK * self.window && in_flight_max <= CROWDED * self.window;
        self.looking = (due || suspicious) && worth_it;
    }

    /// A round with next to no queue ended.
    fn looked(&mut self, now_ns: u64, latency_ns: f64) {
        if self.base_ns == 0.0 || latency_ns > ANOTHER * self.base_ns || latency_ns * ANOTHER < self.base_ns {
            // Another path, in effect: it starts as a new one does.
            (self.base_ns, self.latency_ns, self.started) = (latency_ns, latency_ns, false);
        } else {
            self.base_ns = blend(self.base_ns, latency_ns);
        }
        (self.looking, self.rounds_since_look) = (false, 0);
        (self.looked_ns, self.looked_window) = (now_ns, self.window);
    }

    /// The window of a path that is bound.
    fn fit(&mut self, rate: f64) {
        let rate = if self.started { blend(1.0 / self.each_ns, rate) } else { rate };
        (self.started, self.each_ns) = (true, 1.0 / rate);
        self.window = (WINDOW_GAIN * self.base_ns * rate).max(WINDOW_MIN);
    }

    /// Requests that it may have in flight now.
    fn room(&self) -> f64 {
        if self.looking { (LOOK * self.window).max(1.0) } else { self.window }
    }
}

/// The paths of least delay, among all that are not looked at and among those with room.
struct Least {
    any: Path,
    any_ns: f64,
    roomy: Path,
    roomy_ns: f64,
}

impl Least {
    #[inline(always)]
    fn look_at(&mut self, path: Path, estimate: &Estimate, in_flight: u32) {
        let with_it = f64::from(in_flight + 1);
        let delay_ns = estimate.delay_ns(with_it);
        if delay_ns < self.any_ns && !estimate.looking {
            (self.any, self.any_ns) = (path, delay_ns);
        }
        if delay_ns < self.roomy_ns && with_it <= estimate.room() {
            (self.roomy, self.roomy_ns) = (path, delay_ns);
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ExpectedDelay {
    paths: [Estimate; PATHS_MAX],
    report: Report,
}

impl Split for ExpectedDelay {
    fn choose(&mut self, hit: &Hit, meter: &Meter) -> Path {
        let first = hit.paths.first();
        let mut least = Least { any: first, any_ns: f64::INFINITY, roomy: first, roomy_ns: f64::INFINITY };
        let mut look_at = |path: Path| least.look_at(path, &self.paths[path.index()], meter.in_flight(path));
        if hit.paths == PathSet::DISK_AND_BACKEND {
            // Nearly always. Without the loop a choice has half as many instructions.
            look_at(Path::DISK);
            look_at(Path::BACKEND);
        } else {
            hit.paths.iter().for_each(look_at);
        }
        if least.roomy_ns <= WORTH * least.any_ns { least.roomy } else { least.any }
    }

    fn ended(&mut self, done: &Done) {
        self.paths[done.path.index()].ended(done);
    }

    fn tick(&mut self, tick: &Tick) {
        let hits: u64 = tick.paths.iter().map(|path| path.hits).sum();
        if hits > 0 {
            self.report.disk_share = tick.paths[Path::DISK.index()].hits as f64 / hits as f64;
        }
        for (index, estimate) in self.paths.iter().enumerate() {
            let bytes = tick.paths[index].bytes.checked_div(tick.paths[index].requests).unwrap_or(0);
            if bytes > 0 && estimate.each_ns > 0.0 {
                self.report.bytes_per_second[index] = bytes as f64 * 1e9 / estimate.each_ns;
            }
            self.report.latency_ns[index] = estimate.base_ns as u64;
            self.report.window[index] = if estimate.base_ns > 0.0 { estimate.window as u32 } else { 0 };
        }
    }

    fn report(&self) -> Report {
        self.report
    }
}
