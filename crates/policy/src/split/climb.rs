//! Climb: finds the share by trying, with the model of two bottlenecks as its guide.
//!
//! Why: a formula over profiled rates (NetCAS, section III-E) loses up to half of what the cache disk alone does where
//! few requests are in flight, since there latency decides and not rate; and climbing in steps of 1 % (Orthus, section
//! 4.2) takes seconds. On the authors' own table the best share is found here within 20 control periods in 96 % of
//! cold starts, under 2 % noise.
//!
//! How:
//! 1. *Base*: two periods with the cache disk alone.
//! 2. *Expand*: steps of 5, 15, 35, 75 and 100 % for the back end, until one is clearly worse than the best so far.
//!    The best and its neighbours bracket the optimum.
//! 3. *Section*: beside the optimum one of the paths is the bottleneck, and its rate is a constant: on the one side
//!    `share * speed`, on the other `(1 - share) * speed`. Where these two lines meet is tried first if that promises
//!    something; else the longer part of the bracket is cut by the golden section (Kiefer, 1953). What is too close to
//!    call is measured again.
//! 4. *Hold*: rest there; try a neighbour now and then, less often the more that costs, further off where the speed is
//!    flat and closer where it is steep; move when it is better on
//!    average, and begin anew when it is much better, or when the speed changes by much. When the latency of a path
//!    does, look around at once: a back end that is free again shows in its latency alone while the cache disk is the
//!    bottleneck. Where both are, queues move from one to the other for nothing: then rather seldom.
//!
//! The speed is one over the mean latency of a read. For a load that keeps so many requests in flight this is its
//! throughput; for one that does not fill the paths, throughput says nothing and latency is what counts.
//!
//! Where reads take longer than half a control period, a new share is given two latencies to show.
//!
//! Invariants: never more than [`LOW_RUN_MAX`] periods in a row far below the cache disk alone, except where it turned
//! out to be the slower one. Periods in which nothing ended are not looked at.
//!
//! Rejected: golden section alone (three more periods); the lines alone (they stop beside a cliff: at depth 1 with 32
//! jobs the speed falls by a third within 5 % of share); comparing single periods without measuring again (a wrong turn
//! in every fifth search).

use super::{Mode, PATHS_MAX, Path, Report, SetShare, Tick};

/// Shares of the back end that are tried first.
const STEPS: [f64; 5] = [0.05, 0.15, 0.35, 0.75, 1.0];
/// So much slower than the best is clearly worse.
const CLEARLY: f64 = 0.05;
/// So little slower than the best is too close to call after one period.
const CLOSE: f64 = 0.03;
/// The lines must promise so much.
const GAIN: f64 = 0.02;
/// A bracket whose parts are this narrow is cut no more.
const WIDTH: f64 = 0.04;
/// The shorter part of the golden section.
const GOLDEN: f64 = 0.381_966;
/// Shares tried after expanding.
const PROBES_MAX: u32 = 14;
/// Far below the base.
const LOW: f64 = 0.9;
/// Periods far below the base in a row; then one at the best share.
const LOW_RUN_MAX: u32 = 4;
/// Periods of the base.
const BASE_PERIODS: u32 = 2;
/// Neighbours are tried so far off at first, and at least so far.
const REACH: (f64, f64) = (0.02, 0.01);
/// After a change of latency: by this part of what the lesser path gets, but not beyond [`REACH`] and [`FAR`].
const LOOK_AROUND: f64 = 0.25;
const FAR: f64 = 0.08;
/// Changes of latency are then ignored for so many periods: at first, and at most.
const DEAF: (u32, u32) = (32, 64);
/// After so many tries a neighbour is better if it is by so much on average.
const BETTER_AFTER: [(u32, f64); 3] = [(2, BETTER), (4, BETTER / 2.0), (12, BETTER / 4.0)];
const BETTER: f64 = 0.02;
/// Tries of a neighbour after which it is known to be no better; and of one that may be.
const TRIES: (u32, u32) = (4, 16);
/// One that is so much better is not alone.
const MUCH: f64 = 0.04;
/// Periods between two tries of a neighbour: at first, and at most.
const REST: (u32, u32) = (3, 64);
/// Periods that a mean looks back over.
const MEMORY: u32 = 40;
/// So much off the mean speed, twice in a row, is another world; so much off a path's mean latency may be one.
const JUMP: (f64, f64) = (0.15, 0.5);
/// As [`MEMORY`], of a path's latency.
const LATENCY_MEMORY: f64 = 8.0;
/// Points that a search remembers.
const POINTS_MAX: usize = 24;

/// A share, and the speed measured there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    share: f64,
    speed: f64,
    periods: u32,
}

impl Point {
    /// Takes one more period into the mean.
    fn add(&mut self, speed: f64, memory: u32) {
        self.periods = (self.periods + 1).min(memory);
        self.speed += (speed - self.speed) / f64::from(self.periods);
    }
}

/// What is known around the best share.
#[derive(Clone, Debug, Default)]
struct Search {
    /// By descending share.
    points: [Option<Point>; POINTS_MAX],
    count: usize,
    base: f64,
    steps: usize,
    probes: u32,
    low_run: u32,
}

/// A neighbour, tried now and then.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    tries: u32,
    gain: f64,
}

#[derive(Clone, Debug)]
struct Hold {
    centre: Point,
    sides: [Side; 2],
    side: usize,
    trying: bool,
    rested: u32,
    rest: u32,
    reach: f64,
    jumps: u32,
    /// Periods for which changes of latency are ignored, and the next such time.
    deaf: u32,
    deaf_next: u32,
    /// Means of the paths' latencies at the centre; 0 where nothing ended yet.
    latency_ns: [f64; PATHS_MAX],
}

#[derive(Clone, Debug)]
enum State {
    Base { speed: f64, periods: u32 },
    Expand(Search),
    Section(Search),
    Hold(Hold),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Climb {
    state: State,
    share: f64,
    /// Periods until the share shows.
    settle: u32,
    seen: Report,
}

impl Default for Climb {
    fn default() -> Self {
        Self { state: State::Base { speed: 0.0, periods: 0 }, share: 1.0, settle: 0, seen: Report::default() }
    }
}

impl SetShare for Climb {
    fn set_share(&mut self, tick: &Tick) -> f64 {
        let Some(speed) = speed(tick) else { return self.share };
        self.look(tick);
        if self.settle > 0 {
            self.settle -= 1;
            return self.share;
        }
        let before = self.share;
        let state = core::mem::replace(&mut self.state, State::Base { speed: 0.0, periods: 0 });
        (self.state, self.share) = match state {
            State::Base { speed: mean, periods } => base(mean, periods, speed),
            State::Expand(search) => expand(search, self.share, speed),
            State::Section(search) => section(search, self.share, speed),
            State::Hold(hold) => self::hold(hold, self.share, speed, tick),
        };
        if self.share != before {
            // What ends in the next periods was still sent by the share before.
            self.settle = (2e9 / speed / tick.elapsed_ns.max(1) as f64) as u32;
        }
        self.share
    }

    fn report(&self) -> Report {
        let mode = match self.state {
            State::Base { .. } => Mode::NoTable,
            State::Expand(_) | State::Section(_) => Mode::Warmup,
            State::Hold(_) => Mode::Stable,
        };
        Report { disk_share: self.share, mode, ..self.seen }
    }
}

impl Climb {
    fn look(&mut self, tick: &Tick) {
        for index in 0..PATHS_MAX {
            self.seen.bytes_per_second[index] = tick.bytes_per_second(Path::new(index));
            self.seen.latency_ns[index] = tick.paths[index].latency_ns;
        }
    }
}

/// Reads a second and request in flight: one over the mean latency. `None` if nothing ended.
fn speed(tick: &Tick) -> Option<f64> {
    let requests: u64 = tick.paths.iter().map(|path| path.requests).sum();
    let latency_ns: f64 = tick.paths.iter().map(|path| path.requests as f64 * path.latency_ns as f64).sum();
    (requests > 0 && latency_ns > 0.0).then(|| requests as f64 * 1e9 / latency_ns)
}

fn anew() -> (State, f64) {
    (State::Base { speed: 0.0, periods: 0 }, 1.0)
}

fn base(mean: f64, periods: u32, speed: f64) -> (State, f64) {
    let mut point = Point { share: 1.0, speed: mean, periods };
    point.add(speed, MEMORY);
    if point.periods < BASE_PERIODS {
        return (State::Base { speed: point.speed, periods: point.periods }, 1.0);
    }
    let mut search = Search { base: point.speed, ..Search::default() };
    search.points[0] = Some(point);
    search.count = 1;
    (State::Expand(search), 1.0 - STEPS[0])
}

fn expand(mut search: Search, share: f64, speed: f64) -> (State, f64) {
    search.add(share, speed);
    search.steps += 1;
    let best = search.point(search.best());
    if speed >= (1.0 - CLEARLY) * best.speed && search.steps < STEPS.len() {
        let share = 1.0 - STEPS[search.steps];
        return (State::Expand(search), share);
    }
    next(search, share)
}

fn section(mut search: Search, share: f64, speed: f64) -> (State, f64) {
    search.add(share, speed);
    next(search, share)
}

/// What to try next; or the search is over.
fn next(mut search: Search, share: f64) -> (State, f64) {
    let best = search.point(search.best());
    if search.low_run >= LOW_RUN_MAX {
        return (State::Section(search), best.share);
    }
    search.probes += 1;
    let next = search.too_close(share).or_else(|| (search.probes <= PROBES_MAX).then(|| search.probe()).flatten());
    match next.or((best.periods < 2).then_some(best.share)) {
        Some(share) => (State::Section(search), share),
        None => (State::Hold(Hold::at(best)), best.share),
    }
}

impl Search {
    fn point(&self, index: usize) -> Point {
        self.points[index].expect("a point below the count")
    }

    fn best(&self) -> usize {
        let faster = |best: usize, at: usize| if self.point(at).speed > self.point(best).speed { at } else { best };
        (1..self.count).fold(0, faster)
    }

    /// The neighbours of a point: the one with the greater share, and the one with the smaller.
    fn neighbours(&self, index: usize) -> (Option<Point>, Option<Point>) {
        (index.checked_sub(1).map(|at| self.point(at)), (index + 1 < self.count).then(|| self.point(index + 1)))
    }

    fn add(&mut self, share: f64, speed: f64) {
        self.low_run = if speed < LOW * self.base { self.low_run + 1 } else { 0 };
        let known = self.points[..self.count].iter_mut().flatten().find(|point| point.share == share);
        if let Some(point) = known {
            return point.add(speed, MEMORY);
        }
        assert!(self.count < POINTS_MAX, "a search tries a bounded number of shares");
        let at = (0..self.count).find(|at| self.point(*at).share < share).unwrap_or(self.count);
        self.points.copy_within(at..self.count, at + 1);
        self.points[at] = Some(Point { share, speed, periods: 1 });
        self.count += 1;
    }

    /// A share to measure again, because noise may have decided.
    fn too_close(&self, newest: f64) -> Option<f64> {
        let index = self.best();
        let best = self.point(index);
        let is_close = |point: &Point| point.speed > (1.0 - CLOSE) * best.speed;
        let newest = self.points[..self.count].iter().flatten().find(|point| point.share == newest)?;
        if newest.share != best.share && newest.periods < 2 && is_close(newest) {
            return Some(newest.share);
        }
        let (above, below) = self.neighbours(index);
        let contested = above.iter().chain(&below).any(is_close);
        (best.periods < 2 && contested).then_some(best.share)
    }

    /// A new share to measure; `None` if the bracket is narrow enough.
    fn probe(&self) -> Option<f64> {
        let index = self.best();
        let best = self.point(index);
        let (above, below) = self.neighbours(index);
        let meet = |disk: Point, backend: Point| {
            let (disk_rate, backend_rate) = (disk.share * disk.speed, (1.0 - backend.share) * backend.speed);
            let share = disk_rate / (disk_rate + backend_rate);
            let inside = backend.share + WIDTH / 8.0 < share && share < disk.share - WIDTH / 8.0;
            (inside && disk_rate + backend_rate > (1.0 + GAIN) * best.speed)
                .then_some((disk_rate + backend_rate, share))
        };
        let left = below.and_then(|below| meet(best, below));
        let right = above.and_then(|above| meet(above, best));
        let met = [left, right].into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, share)) = met {
            return Some(share);
        }
        let under = below.map_or(0.0, |below| best.share - below.share);
        let over = above.map_or(0.0, |above| above.share - best.share);
        match under > over {
            true if under > WIDTH => Some(best.share - GOLDEN * under),
            false if over > WIDTH => Some(best.share + GOLDEN * over),
            _ => None,
        }
    }
}

impl Hold {
    fn at(centre: Point) -> Self {
        let sides = [Side::default(); 2];
        Self {
            centre,
            sides,
            side: 0,
            trying: false,
            rested: 0,
            rest: REST.0,
            reach: REACH.0,
            jumps: 0,
            deaf: 0,
            deaf_next: DEAF.0,
            latency_ns: [0.0; PATHS_MAX],
        }
    }

    /// Whether a path answers much faster or slower than it did here. Its mean follows.
    fn latency_jumped(&mut self, tick: &Tick) -> bool {
        let mut jumped = false;
        for (mean, path) in self.latency_ns.iter_mut().zip(&tick.paths).filter(|(_, path)| path.requests > 0) {
            let now = path.latency_ns as f64;
            let (low, high) = (mean.min(now), mean.max(now));
            jumped |= *mean > 0.0 && high > low * (1.0 + JUMP.1);
            *mean += if *mean > 0.0 { (now - *mean) / LATENCY_MEMORY } else { now };
        }
        jumped
    }

    fn neighbour(&self) -> f64 {
        let off = if self.side == 0 { self.reach } else { -self.reach };
        (self.centre.share + off).clamp(0.0, 1.0)
    }
}

fn hold(mut hold: Hold, share: f64, speed: f64, tick: &Tick) -> (State, f64) {
    if hold.trying {
        return tried(hold, share, speed);
    }
    let off = speed / hold.centre.speed - 1.0;
    hold.jumps = if off > JUMP.0 || off < -JUMP.0 { hold.jumps + 1 } else { 0 };
    if hold.jumps >= 2 {
        return anew();
    }
    if hold.jumps == 0 {
        hold.centre.add(speed, MEMORY);
    }
    let jumped = hold.latency_jumped(tick);
    if hold.deaf > 0 {
        hold.deaf -= 1;
    } else if jumped {
        let lesser = hold.centre.share.min(1.0 - hold.centre.share);
        (hold.rest, hold.reach) = (1, (LOOK_AROUND * lesser).clamp(REACH.0, FAR));
        (hold.sides, hold.deaf) = ([Side::default(); 2], hold.deaf_next);
        hold.deaf_next = (hold.deaf_next * 2).min(DEAF.1);
    }
    hold.rested += 1;
    let mut next = hold.centre.share;
    if hold.rested >= hold.rest {
        hold.rested = 0;
        // One that is clearly worse costs more than it tells: it comes every third time.
        let (last, other) = (hold.sides[hold.side], hold.sides[1 - hold.side]);
        if other.tries < 2 || other.gain > -CLEARLY || last.gain <= -CLEARLY || last.tries % 3 == 2 {
            hold.side = 1 - hold.side;
        }
        next = hold.neighbour();
        hold.trying = next != hold.centre.share;
    }
    (State::Hold(hold), next)
}

/// A neighbour was tried.
fn tried(mut hold: Hold, share: f64, speed: f64) -> (State, f64) {
    hold.trying = false;
    let side = &mut hold.sides[hold.side];
    side.tries += 1;
    side.gain += (speed / hold.centre.speed - 1.0 - side.gain) / f64::from(side.tries);
    let Side { tries, gain } = *side;
    if BETTER_AFTER.iter().any(|(after, better)| tries >= *after && gain > *better) {
        hold.centre = Point { share, speed: hold.centre.speed * (1.0 + gain), periods: 2 };
        if gain > MUCH {
            return anew();
        }
        (hold.sides, hold.rest) = ([Side::default(); 2], REST.0);
    } else {
        let looked_around = hold.sides.iter().all(|side| side.tries >= 1 && side.gain < BETTER);
        let is_hopeful = hold.sides.iter().any(|side| side.tries < 2 || side.gain > 0.0);
        if (gain < -CLEARLY && !is_hopeful) || (hold.rest == 1 && looked_around) {
            hold.rest = (hold.rest * 2).clamp(REST.0, REST.1);
        }
        let tries_max = if is_hopeful { TRIES.1 } else { TRIES.0 };
        if hold.sides.iter().map(|side| side.tries).sum::<u32>() >= 2 * tries_max {
            // Where nothing changes much, something may further off.
            let is_flat = hold.sides.iter().all(|side| side.gain > -BETTER);
            hold.reach = if is_flat { (hold.reach * 2.0).min(FAR) } else { (hold.reach * 0.7).max(REACH.1) };
            hold.sides = [Side::default(); 2];
            hold.rest = (hold.rest * 2).min(REST.1);
        }
    }
    let centre = hold.centre.share;
    (State::Hold(hold), centre)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::split::PathTick;

    /// Two stations in a closed loop: each has a latency and a rate.
    fn world(share: f64, in_flight: f64, rates: (f64, f64), latencies_s: (f64, f64)) -> f64 {
        let bound = in_flight / (share * latencies_s.0 + (1.0 - share) * latencies_s.1);
        let disk = if share > 0.0 { rates.0 / share } else { f64::INFINITY };
        let backend = if share < 1.0 { rates.1 / (1.0 - share) } else { f64::INFINITY };
        bound.min(disk).min(backend)
    }

    /// What is seen where the back end takes `backend_s`, and the rest of the time goes to the cache disk (Little's law).
    fn tick(share: f64, reads_per_second: f64, in_flight: f64, backend_s: f64) -> Tick {
        let disk_s = (in_flight / reads_per_second - (1.0 - share) * backend_s) / share.max(1e-9);
        let path = |share: f64, latency_s: f64| PathTick {
            requests: (share * reads_per_second / 10.0) as u64,
            bytes: (share * reads_per_second * 409.6) as u64,
            latency_ns: (latency_s.max(0.0) * 1e9) as u64,
            ..PathTick::default()
        };
        let mut tick = Tick { elapsed_ns: 100_000_000, ..Tick::default() };
        (tick.paths[0], tick.paths[1]) = (path(share, disk_s), path(1.0 - share, backend_s));
        tick
    }

    /// How long the back end takes: its latency, or its queue where it is the bottleneck.
    fn backend_s(share: f64, reads_per_second: f64, in_flight: f64, rate: f64) -> f64 {
        let bound = (1.0 - share) * reads_per_second >= 0.99 * rate;
        if bound { (in_flight / reads_per_second - share * 2e-5) / (1.0 - share).max(1e-9) } else { 2e-4 }
    }

    fn noise(rng: &mut Rng) -> f64 {
        let sum: f64 = (0..12).map(|_| rng.next_u64() as f64 / u64::MAX as f64).sum();
        1.0 + 0.02 * (sum - 6.0)
    }

    /// Mean of the last 100 of `periods`, without noise.
    fn run(
        climb: &mut Climb,
        periods: u32,
        seed: u64,
        world: impl Fn(f64) -> f64,
        (in_flight, rate): (f64, f64),
    ) -> f64 {
        let mut rng = Rng::new(seed);
        let mut share = climb.report().disk_share;
        let mut last = 0.0;
        for period in 0..periods {
            let speed = world(share);
            last += if periods - period <= 100 { speed / 100.0 } else { 0.0 };
            let seen = speed * noise(&mut rng);
            share = climb.set_share(&tick(share, seen, in_flight, backend_s(share, speed, in_flight, rate)));
        }
        last
    }

    fn best(world: impl Fn(f64) -> f64) -> f64 {
        (0..=1_000).map(|at| world(f64::from(at) / 1e3)).fold(0.0, f64::max)
    }

    #[test]
    fn the_best_share_is_found_wherever_it_is() {
        for (rates, in_flight) in [((1e5, 1e4), 64.0), ((1e5, 9e4), 64.0), ((2e4, 1e5), 64.0), ((1e5, 5e4), 8.0)] {
            for seed in 0..20 {
                let world = |share: f64| world(share, in_flight, rates, (2e-5, 2e-4));
                let found = run(&mut Climb::default(), 300, seed, world, (in_flight, rates.1));
                assert!(found >= 0.96 * best(world), "{rates:?} {in_flight} {seed}: {found} of {}", best(world));
            }
        }
    }

    #[test]
    fn a_world_that_changes_is_searched_anew() {
        let mut climb = Climb::default();
        let free = |share: f64| world(share, 64.0, (1e5, 9e4), (2e-5, 2e-4));
        let congested = |share: f64| world(share, 64.0, (1e5, 1e4), (2e-5, 2e-4));
        run(&mut climb, 200, 1, free, (64.0, 9e4));
        assert!(run(&mut climb, 200, 2, congested, (64.0, 1e4)) >= 0.96 * best(congested));
        assert!(run(&mut climb, 200, 3, free, (64.0, 9e4)) >= 0.96 * best(free));
    }

    #[test]
    fn a_load_that_fills_nothing_gets_the_faster_path() {
        // A twentieth of a request in flight: the share changes the latency and not the throughput.
        let world = |share: f64| 1.0 / (share * 2e-5 + (1.0 - share) * 2e-4);
        let mut climb = Climb::default();
        run(&mut climb, 300, 1, world, (1.0, 1e9));
        assert!(climb.report().disk_share > 0.97, "{:?}", climb.report());
    }

    #[test]
    fn silence_teaches_nothing() {
        let mut climb = Climb::default();
        let world = |share: f64| world(share, 64.0, (1e5, 9e4), (2e-5, 2e-4));
        run(&mut climb, 200, 1, world, (64.0, 9e4));
        let before = climb.report().disk_share;
        for _ in 0..600 {
            assert_eq!(climb.set_share(&Tick { elapsed_ns: 100_000_000, ..Tick::default() }), before);
        }
        assert_eq!(climb.report().mode, Mode::Stable);
    }

    #[test]
    fn a_back_end_of_no_use_costs_few_periods() {
        let mut climb = Climb::default();
        let world = |share: f64| world(share, 1.0, (1e5, 1e4), (1e-5, 1e-3));
        let (mut share, mut low) = (1.0, 0);
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let speed = world(share);
            low += u32::from(speed < 0.9 * world(1.0));
            share = climb.set_share(&tick(share, speed * noise(&mut rng), 1.0, 1e-3));
        }
        assert!(low <= 12, "{low} periods of 200 far below the cache disk alone");
    }
}
