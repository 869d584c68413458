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
//! What is known comes from *rounds*, of [`ROUND_MIN`] answers or a window's worth, over [`ROUND_MIN_NS`] or the base. A
//! round that waited in a queue and kept the window filled sets the window to [`WINDOW_GAIN`] times base and rate; one
//! that met no queue and reached the window's end widens it. A queue before a window that was not filled is others':
//! then what was carried is only what was asked for, and can raise the rate but not lower it. After 150 rounds, when
//! half a second of the clock is full, one with a quarter of the window looks for the base anew, and sooner if the window
//! halved or the last look found another base: a path that stays slower is soon the normal one. The clock is the
//! machine's: its volumes look together, and few take the others' queues for a base. Of the paths of a volume one looks
//! at a time.
//!
//! Silence changes nothing known. But a path that gets no hits is asked again with one when it was silent for [`SILENT`]
//! of its latencies, and then after twice as long each time: one stall in its first round, and at low load it would never
//! be heard of again.
//!
//! The rate is that of the path while it is busy: the gap before an answer that found the path idle does not count.
//!
//! Writes count as being in flight, and their latencies do not count. Nor need they wait where reads do: a link carries
//! both ways at once, a file system orders the writes of a file. So where writes are around, the rate is what makes the
//! latencies of reads of what was in flight before them. While a path looks, only reads go away.
//!
//! Invariant: a path that has answered nothing yet is tried where the known ones are full, with [`WINDOW_MIN`] requests.
//!
//! Rejected: the least expected delay alone, which makes delays equal: a cache disk of 20 us that saturates keeps 50
//! requests waiting before a back end of 1 ms gets its first. Marginal delays (tolls), which need the slope of a curve
//! that noise hides. Limits from the profile: they are wrong as soon as the network is. The least latency seen as the
//! base, and the greatest rate (as BBR has it): under 30 % noise the one is never met again, and the window shrinks to
//! nothing. Rates between two answers: a device hands over many at once, and then there is no time between them.
//! A gain of 2 (BBR again): with 16 requests in flight the queue before the cache disk costs a tenth.

use super::{Done, Hit, InFlight, Meter, PATHS_MAX, Path, PathSet, Report, Split, Tick, Use};

/// A path is asked again after so many of its latencies: what that costs is one part in so many. After twice as many each
/// time it answers as before, to this most.
const SILENT: f64 = 64.0;
const SILENT_MAX: f64 = 16384.0;
/// Windows are so many times what fills the path: some queue keeps it busy.
const WINDOW_GAIN: f64 = 1.15;
/// A round this much slower than the least latency has waited in a queue.
const QUEUED: f64 = 1.15;
/// Of what is known of a path, at least so many requests.
const WINDOW_MIN: f64 = 2.0;
/// A path this many times slower than the best could not gain as much as one part in so many.
const WORTH: f64 = 32.0;
/// So it is where what is in flight is so steady, on average to its most: the window is too large.
const STEADY: f64 = 0.75;
/// Windows up to this size change by a step of theirs, both ways: bursts decide whether they are filled.
const SMALL: f64 = 4.0;
/// A window is filled if it is so on average.
const FILLED: f64 = 0.9;
/// A window that is filled without a queue grows by this part in a round, once there was a queue and before.
const GROWTH: f64 = 1.0 / 16.0;
const GROWTH_AT_FIRST: f64 = 0.5;
/// Answers in a round at least, and how long it is at least.
const ROUND_MIN: u32 = 16;
const ROUND_MIN_NS: f64 = 1e6;
/// Writes do not say how long reads take: a round has as many reads, or is as long as this, and then says nothing.
const ROUND_LONG: u32 = 8 * ROUND_MIN;
/// A round says something of the rate if the path was busy for so long.
const BUSY_MIN_NS: f64 = 2e5;
/// With so many windows in flight the base decides nothing, and it would take long until the queue is gone.
const CROWDED: f64 = 4.0;
/// Between two rounds that look for the least latency there are so many others, and the end of such a time on the clock.
const ROUNDS_BETWEEN: u32 = 150;
const LOOK_EACH_NS: u64 = 500_000_000;
/// After so many, if the window has halved since.
const ROUNDS_SUSPICIOUS: u32 = 16;
/// A least latency that is so many times the one before is another path's.
const ANOTHER: f64 = 1.4;
/// While a path looks, a hit that finds no room elsewhere may take so many times as long there.
const SPARE: f64 = 4.0;
/// The part of a new round in a mean.
const NEW: f64 = 0.25;
/// The same for a base that a look finds too high, and too low: what is longer may be the queue of neighbours.
const DOWN: f64 = 0.75;
const UP: f64 = 0.1;
/// Part of what is in flight, or of the window if that is less, in such a round.
const LOOK: f64 = 0.25;

/// Answers of a path, until they make a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begun_ns: u64,
    last_ns: u64,
    answers: u32,
    /// Of them, reads, and the sum of their latencies.
    reads: u32,
    latency_ns: f64,
    /// The longest of them.
    longest_ns: u64,
    /// What was in flight when they were ordered, summed.
    ahead: f64,
    in_flight_max: u32,
    reads_max: u32,
    /// The gaps before answers, but for those in which the path fell idle, the answers that ended them, and the sum of
    /// their latencies.
    busy_ns: u64,
    busy_answers: u32,
    busy_latency_ns: f64,
    /// The last answers came at once after the path was idle.
    was_idle: bool,
}

impl Round {
    /// What it passes in a nanosecond.
    fn rate(&self) -> f64 {
        if self.reads < self.answers {
            // Writes may wait elsewhere than reads: how long those took that had so much before them (Little's law).
            self.ahead / self.latency_ns.max(1.0)
        } else {
            f64::from(self.busy_answers) / self.busy_ns as f64
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    round: Round,
    rounds_since_look: u32,
    looked_ns: u64,
    looked_window: f64,
    looking: bool,
    look_answers_left: u32,
    /// Requests that it may have in flight while it looks.
    look_room: f64,
    latency_ns: f64,
    /// A queue has been seen: the window grows by [`GROWTH`], no longer by [`GROWTH_AT_FIRST`].
    started: bool,
    /// It was silent for long and is asked again: what was known of base and delay of each, until it answers.
    asked_again: Option<(f64, f64)>,
    /// It is asked again after so many latencies.
    patience: f64,
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
            look_answers_left: 0,
            look_room: 1.0,
            latency_ns: 0.0,
            started: false,
            asked_again: None,
            patience: SILENT,
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

    /// Whether it is time to look for the base.
    fn ended(&mut self, done: &Done) -> bool {
        if let Some((base_ns, each_ns)) = self.asked_again.take() {
            (self.base_ns, self.each_ns) = (base_ns, each_ns);
            let is_news = done.latency_ns as f64 * ANOTHER < base_ns;
            self.patience = if is_news { SILENT } else { (2.0 * self.patience).min(SILENT_MAX) };
            self.correct_base(done.latency_ns as f64, 0.0);
            self.round = Round { begun_ns: done.now_ns, last_ns: done.now_ns, ..Round::default() };
            return false;
        }
        if self.looking && f64::from(done.in_flight.reads) > self.look_room {
            // It still waited behind others. If they do not go away, misses for example, the look is given up.
            self.look_answers_left = self.look_answers_left.saturating_sub(1);
            if self.look_answers_left == 0 {
                self.end_look(done.now_ns);
            }
            return false;
        }
        let is_look_due = done.now_ns > self.round.last_ns && self.is_round_over() && self.end_round();
        let round = &mut self.round;
        if round.answers == 0 && round.begun_ns == 0 {
            round.begun_ns = done.now_ns.saturating_sub(done.latency_ns);
            round.last_ns = round.begun_ns;
        }
        round.answers += 1;
        if done.now_ns > round.last_ns {
            // Alone when it was ordered: who asks in bursts leaves a path idle in between, and that is no rate of it.
            round.was_idle = done.in_flight.all == 1;
            round.busy_ns += if round.was_idle { 0 } else { done.now_ns - round.last_ns };
            round.last_ns = done.now_ns;
        }
        if !round.was_idle {
            round.busy_answers += 1;
            round.busy_latency_ns += done.latency_ns as f64;
        }
        if done.kind != Use::Write {
            round.reads += 1;
            round.latency_ns += done.latency_ns as f64;
            round.longest_ns = round.longest_ns.max(done.latency_ns);
            round.ahead += f64::from(done.in_flight.all);
            round.reads_max = round.reads_max.max(done.in_flight.reads);
        }
        round.in_flight_max = round.in_flight_max.max(done.in_flight.all);
        is_look_due
    }

    /// Enough answers over enough time. What the device handed over at once belongs to one round: between two such
    /// answers there is no time, and that would be a rate without limit.
    fn is_round_over(&self) -> bool {
        let Round { begun_ns, last_ns, answers, reads, .. } = self.round;
        let length_ns = (last_ns - begun_ns) as f64;
        let room = if self.looking { self.look_room } else { self.window };
        (reads >= ROUND_MIN || answers >= ROUND_LONG)
            && answers >= room as u32
            && length_ns >= self.base_ns.max(ROUND_MIN_NS)
    }

    /// Whether it is time to look for the base.
    fn end_round(&mut self) -> bool {
        let now_ns = self.round.last_ns;
        let next = Round { begun_ns: now_ns, last_ns: now_ns, ..Round::default() };
        let round = core::mem::replace(&mut self.round, next);
        if round.reads < ROUND_MIN {
            return false;
        }
        let latency_ns = (round.latency_ns / f64::from(round.reads)).max(1.0);
        let in_flight_max = f64::from(round.in_flight_max);
        if self.looking || self.base_ns == 0.0 {
            self.looked(now_ns, latency_ns);
            return false;
        }
        self.latency_ns = blend(self.latency_ns, latency_ns);
        if in_flight_max <= WINDOW_MIN {
            // Not a queue of ours. Without this a base that is a little low takes the window down, and that the rate,
            // and that the window. One that stalls says nothing of the others.
            let others_ns = round.latency_ns - round.longest_ns as f64;
            self.correct_base((others_ns / f64::from(round.reads - 1)).max(1.0), NEW);
        } else if self.latency_ns * QUEUED < self.base_ns {
            self.base_ns = self.latency_ns;
        }
        let is_queued = self.latency_ns > QUEUED * self.base_ns;
        if round.busy_ns as f64 >= BUSY_MIN_NS {
            // Bursts fill a window, and leave it empty in between. Then what was carried is what was asked for.
            let in_flight = round.busy_latency_ns / round.busy_ns as f64;
            let is_filled = in_flight > FILLED * self.window.min(STEADY * in_flight_max);
            let rate = round.rate();
            if is_queued && (is_filled || !self.started) {
                self.fit(rate);
            } else if self.started && rate * self.each_ns > 1.0 {
                self.each_ns = 1.0 / blend(1.0 / self.each_ns, rate);
            }
        }
        if !is_queued && in_flight_max + 1.0 > self.window {
            let part = if self.started { GROWTH } else { GROWTH_AT_FIRST };
            self.window += part * self.window.max(SMALL);
        }
        self.rounds_since_look += 1;
        let due = self.rounds_since_look >= ROUNDS_BETWEEN && now_ns / LOOK_EACH_NS > self.looked_ns / LOOK_EACH_NS;
        let suspicious = self.rounds_since_look >= ROUNDS_SUSPICIOUS && self.window < self.looked_window / 2.0;
        let worth_it = in_flight_max > WINDOW_MIN && in_flight_max <= CROWDED * self.window;
        self.look_room = (LOOK * self.window.min(f64::from(round.reads_max))).max(1.0);
        self.look_answers_left = round.reads_max + 2 * ROUND_MIN;
        (due || suspicious) && worth_it
    }

    /// A round with next to no queue ended.
    fn looked(&mut self, now_ns: u64, latency_ns: f64) {
        self.end_look(now_ns);
        if self.base_ns == 0.0 || latency_ns > ANOTHER * self.base_ns || latency_ns * ANOTHER < self.base_ns {
            // Another path, in effect: it starts as a new one does.
            (self.base_ns, self.latency_ns, self.started) = (latency_ns, latency_ns, false);
            // The first base is seen through a queue, and so may be the next.
            self.looked_window = f64::INFINITY;
        } else {
            self.correct_base(latency_ns, UP);
        }
    }

    /// Down faster than up: a queue makes latencies longer, and nothing makes them shorter.
    fn correct_base(&mut self, latency_ns: f64, up: f64) {
        let part = if latency_ns < self.base_ns { DOWN } else { up };
        self.base_ns += part * (latency_ns - self.base_ns);
    }

    fn end_look(&mut self, now_ns: u64) {
        (self.looking, self.rounds_since_look) = (false, 0);
        (self.looked_ns, self.looked_window) = (now_ns, self.window);
        self.round = Round { begun_ns: now_ns, last_ns: now_ns, ..Round::default() };
    }

    /// The window of a path that is bound.
    fn fit(&mut self, rate: f64) {
        let rate = if self.started { blend(1.0 / self.each_ns, rate) } else { rate };
        (self.started, self.each_ns) = (true, 1.0 / rate);
        let slowly = (self.window - GROWTH * SMALL).min(SMALL);
        self.window = (WINDOW_GAIN * self.base_ns * rate).max(slowly).max(WINDOW_MIN);
    }

    /// A control period went by, with hits elsewhere and none here.
    fn silent(&mut self, now_ns: u64) {
        let silent_ns = now_ns.saturating_sub(self.round.last_ns) as f64;
        if self.base_ns > 0.0 && self.asked_again.is_none() && silent_ns > self.patience * self.base_ns {
            // It counts as the fastest, until one answer tells.
            self.asked_again = Some((self.base_ns, self.each_ns));
            (self.base_ns, self.each_ns) = (0.0, 0.0);
        }
    }

    /// Whether one more hit fits, if this is in flight.
    #[inline]
    fn has_room(&self, in_flight: InFlight) -> bool {
        if self.looking {
            f64::from(in_flight.reads + 1) <= self.look_room
        } else {
            f64::from(in_flight.all + 1) <= self.window
        }
    }
}

/// The paths of least delay, among all and among those with room.
struct Least {
    any: Path,
    any_ns: f64,
    roomy: Path,
    roomy_ns: f64,
}

impl Least {
    #[inline(always)]
    fn look_at(&mut self, path: Path, estimate: &Estimate, in_flight: InFlight) {
        let with_it = f64::from(in_flight.all + 1);
        let delay_ns = estimate.delay_ns(with_it);
        // One that looks is spared, unless that would cost the hit much more than the look is worth.
        let spared_ns = if estimate.looking { delay_ns.max(SPARE * estimate.latency_ns) } else { delay_ns };
        if spared_ns < self.any_ns {
            (self.any, self.any_ns) = (path, spared_ns);
        }
        if delay_ns < self.roomy_ns && estimate.has_room(in_flight) {
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
        let is_look_due = self.paths[done.path.index()].ended(done);
        // One at a time: the hits that one spares go to the others, and would disturb their looks, and theirs its own.
        if is_look_due && !self.paths.iter().any(|path| path.looking) {
            self.paths[done.path.index()].looking = true;
        }
    }

    fn tick(&mut self, tick: &Tick) {
        let hits: u64 = tick.paths.iter().map(|path| path.hits).sum();
        if hits > 0 {
            self.report.disk_share = tick.paths[Path::DISK.index()].hits as f64 / hits as f64;
        }
        for (index, estimate) in self.paths.iter_mut().enumerate() {
            let path = &tick.paths[index];
            if hits > 0 && path.hits == 0 && path.requests == 0 {
                estimate.silent(tick.now_ns);
            }
            let bytes = tick.paths[index].bytes.checked_div(tick.paths[index].requests).unwrap_or(0);
            if bytes > 0 && estimate.each_ns > 0.0 {
                self.report.bytes_per_second[index] = bytes as f64 * 1e9 / estimate.each_ns;
            }
            let base_ns = estimate.asked_again.map_or(estimate.base_ns, |(base_ns, _)| base_ns);
            self.report.latency_ns[index] = base_ns as u64;
            self.report.window[index] = if base_ns > 0.0 { estimate.window as u32 } else { 0 };
        }
    }

    fn report(&self) -> Report {
        self.report
    }
}
