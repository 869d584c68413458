//! For tests: a closed loop of clients over two stations, each with a latency and a rate.
//!
//! A station answers a request `latency_ns` after it came, and not more than one in `each_ns`. Writes may be in flight
//! beside them, which wait for each other and not for reads, as on a link that carries both ways at once.

extern crate std;

use super::{Done, Hit, InFlight, Meter, Path, PathSet, Split, Use};
use crate::rng::Rng;
use alloc::collections::BTreeSet;

pub(crate) const BYTES: u32 = 65_536;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Station {
    pub latency_ns: u64,
    pub each_ns: u64,
}

pub(crate) struct Stations {
    pub stations: [Station; 2],
    /// Mean of an exponentially distributed part that is added to each latency, as a part of it.
    pub jitter: f64,
    /// At each station so many writes are in flight always, one is answered in so long, and no read waits for them.
    pub writes: [(u32, u64); 2],
    /// Answers are only looked for at multiples of this.
    pub reap_ns: u64,
    rng: Rng,
    free_ns: [u64; 2],
    writes_free_ns: [u64; 2],
    now_ns: u64,
    tick_ns: u64,
    meter: Meter,
    /// (end, order, path, start, in flight at the start, whether it is a write)
    under_way: BTreeSet<(u64, u64, usize, u64, InFlight, bool)>,
    order: u64,
}

impl Stations {
    pub(crate) fn new(stations: [Station; 2]) -> Self {
        let (free_ns, under_way) = ([0; 2], BTreeSet::new());
        let rng = Rng::new(1);
        Self {
            stations,
            jitter: 0.0,
            writes: [(0, 0); 2],
            reap_ns: 1,
            rng,
            free_ns,
            writes_free_ns: [0; 2],
            now_ns: 0,
            tick_ns: 100_000_000,
            meter: Meter::new(0),
            under_way,
            order: 0,
        }
    }

    fn start(&mut self, split: &mut impl Split) {
        let path = split.choose(&Hit { bytes: BYTES, paths: PathSet::DISK_AND_BACKEND }, &self.meter);
        let at = path.index();
        let station = self.stations[at];
        self.free_ns[at] = self.free_ns[at].max(self.now_ns) + station.each_ns;
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let latency_ns = station.latency_ns as f64 * (1.0 - self.jitter * (1.0 - uniform).ln());
        let end_ns = self.free_ns[at].max(self.now_ns + latency_ns as u64).next_multiple_of(self.reap_ns);
        let in_flight = self.meter.started(path, BYTES, Use::Hit);
        self.order += 1;
        self.under_way.insert((end_ns, self.order, at, self.now_ns, in_flight, false));
    }

    fn start_write(&mut self, at: usize) {
        self.writes_free_ns[at] = self.writes_free_ns[at].max(self.now_ns) + self.writes[at].1;
        let in_flight = self.meter.started(Path::new(at), BYTES, Use::Write);
        self.order += 1;
        self.under_way.insert((self.writes_free_ns[at], self.order, at, self.now_ns, in_flight, true));
    }

    fn reads(&self) -> usize {
        (0..2).map(|at| self.meter.in_flight(Path::new(at)).reads as usize).sum()
    }

    /// Runs for so long with so many requests in flight; requests a second, and the share of the first station.
    pub(crate) fn run(&mut self, split: &mut impl Split, in_flight: usize, for_ns: u64) -> (f64, f64) {
        let until_ns = self.now_ns + for_ns;
        let mut ended = [0u64; 2];
        while self.reads() < in_flight {
            self.start(split);
        }
        for at in 0..2 {
            let in_flight = self.meter.in_flight(Path::new(at));
            (in_flight.all - in_flight.reads..self.writes[at].0).for_each(|_| self.start_write(at));
        }
        while let Some((end_ns, _, at, start_ns, in_flight_then, is_write)) = self.under_way.pop_first() {
            while self.tick_ns <= end_ns {
                let tick = self.meter.tick(self.tick_ns);
                split.tick(&tick);
                self.tick_ns += 100_000_000;
            }
            self.now_ns = end_ns;
            let done = Done {
                path: Path::new(at),
                kind: if is_write { Use::Write } else { Use::Hit },
                bytes: BYTES,
                now_ns: end_ns,
                latency_ns: end_ns - start_ns,
                in_flight: in_flight_then,
            };
            self.meter.ended(&done);
            split.ended(&done);
            if is_write {
                self.start_write(at);
                if end_ns >= until_ns {
                    break;
                }
                continue;
            }
            ended[at] += 1;
            if self.reads() < in_flight && end_ns < until_ns {
                self.start(split);
            }
            if end_ns >= until_ns {
                break;
            }
        }
        let total = ended[0] + ended[1];
        (total as f64 * 1e9 / for_ns as f64, ended[0] as f64 / total.max(1) as f64)
    }

    /// Nothing happens for so long.
    pub(crate) fn pause(&mut self, split: &mut impl Split, for_ns: u64) {
        assert!(self.under_way.is_empty() || self.run(split, 0, 1_000_000_000).0 >= 0.0);
        self.now_ns += for_ns;
        while self.tick_ns <= self.now_ns {
            let tick = self.meter.tick(self.tick_ns);
            split.tick(&tick);
            self.tick_ns += 100_000_000;
        }
    }
}
