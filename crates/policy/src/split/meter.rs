//! Counts what is in flight on each path, and what ended there in a control period.
//!
//! The owner tells it of every read of a path, also of those that had no choice (misses), and of writes: they use the
//! path too. Writes count as being in flight, and nowhere else. A control period ends with [`Meter::tick`], which gives
//! what was counted and begins anew.
//!
//! Invariant: what started ends once, on the path that it started on.

use super::{Done, InFlight, PATHS_MAX, Path, Use};

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    in_flight: InFlight,
    in_flight_bytes: u64,
    ended: u64,
    ended_bytes: u64,
    latency_ns: u64,
    hits: u64,
}

/// What happened on a path in a control period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathTick {
    /// Reads that ended.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their mean latency; 0 if none ended.
    pub latency_ns: u64,
    /// Hits that were sent there.
    pub hits: u64,
    /// Reads in flight, as a mean over the period: latencies of what ended, over its length (Little's law).
    pub in_flight: f64,
}

/// What a policy sees when a control period ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    /// The time now.
    pub now_ns: u64,
    /// How long the period was.
    pub elapsed_ns: u64,
    /// The paths.
    pub paths: [PathTick; PATHS_MAX],
    /// Of a thousand reads, how many found nothing in the cache.
    pub miss_permil: u32,
    /// Clients with requests in flight; at least 1.
    pub submitters: u32,
}

impl Tick {
    /// What a path delivered.
    #[must_use]
    pub fn bytes_per_second(&self, path: Path) -> f64 {
        self.paths[path.index()].bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// What all paths delivered.
    #[must_use]
    pub fn total_bytes_per_second(&self) -> f64 {
        self.paths.iter().map(|path| path.bytes as f64).sum::<f64>() * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Reads in flight on all paths, as a mean over the period.
    #[must_use]
    pub fn in_flight(&self) -> f64 {
        self.paths.iter().map(|path| path.in_flight).sum()
    }

    /// Mean size of the reads that ended; `None` if none did.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        let requests: u64 = self.paths.iter().map(|path| path.requests).sum();
        let bytes: u64 = self.paths.iter().map(|path| path.bytes).sum();
        bytes.checked_div(requests).map(|mean| mean as u32)
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    paths: [Counts; PATHS_MAX],
    since_ns: u64,
}

impl Meter {
    /// Nothing is in flight.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self { paths: Default::default(), since_ns: now_ns }
    }

    /// What is in flight on a path.
    #[must_use]
    pub fn in_flight(&self, path: Path) -> InFlight {
        self.paths[path.index()].in_flight
    }

    /// Bytes in flight on a path.
    #[must_use]
    pub fn in_flight_bytes(&self, path: Path) -> u64 {
        self.paths[path.index()].in_flight_bytes
    }

    /// A read or a write was ordered. What is in flight there now: [`Done::in_flight`].
    pub fn started(&mut self, path: Path, bytes: u32, kind: Use) -> InFlight {
        let counts = &mut self.paths[path.index()];
        counts.in_flight.all += 1;
        counts.in_flight.reads += u32::from(kind != Use::Write);
        counts.in_flight_bytes += u64::from(bytes);
        counts.hits += u64::from(kind == Use::Hit);
        counts.in_flight
    }

    /// It ended without having moved a byte: it counts nowhere.
    pub fn declined(&mut self, done: &Done) {
        self.left(done);
    }

    fn left(&mut self, done: &Done) {
        let counts = &mut self.paths[done.path.index()];
        assert!(
            counts.in_flight.all > 0 && counts.in_flight_bytes >= u64::from(done.bytes),
            "what did not start ended"
        );
        counts.in_flight.all -= 1;
        counts.in_flight.reads -= u32::from(done.kind != Use::Write);
        counts.in_flight_bytes -= u64::from(done.bytes);
    }

    /// It ended, well or not.
    pub fn ended(&mut self, done: &Done) {
        self.left(done);
        if done.kind == Use::Write {
            return;
        }
        let counts = &mut self.paths[done.path.index()];
        counts.ended += 1;
        counts.ended_bytes += u64::from(done.bytes);
        counts.latency_ns += done.latency_ns;
    }

    /// What was counted since the last call; counting begins anew. The caller fills in what the meter does not know.
    pub fn tick(&mut self, now_ns: u64) -> Tick {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        let mut tick = Tick { now_ns, elapsed_ns, submitters: 1, ..Tick::default() };
        for (counts, path) in self.paths.iter_mut().zip(&mut tick.paths) {
            *path = PathTick {
                requests: counts.ended,
                bytes: counts.ended_bytes,
                latency_ns: counts.latency_ns.checked_div(counts.ended).unwrap_or(0),
                hits: counts.hits,
                in_flight: counts.latency_ns as f64 / elapsed_ns.max(1) as f64,
            };
            *counts =
                Counts { in_flight: counts.in_flight, in_flight_bytes: counts.in_flight_bytes, ..Counts::default() };
        }
        tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_counted_once_and_what_is_in_flight_stays() {
        let mut meter = Meter::new(0);
        let of = |all, reads| InFlight { all, reads };
        assert_eq!(meter.started(Path::DISK, 4_096, Use::Hit), of(1, 1));
        assert_eq!(meter.started(Path::DISK, 4_096, Use::Hit), of(2, 2));
        assert_eq!(meter.started(Path::BACKEND, 8_192, Use::Miss), of(1, 1));
        assert_eq!(meter.started(Path::BACKEND, 512, Use::Write), of(2, 1));
        assert_eq!(meter.in_flight_bytes(Path::BACKEND), 8_704);
        let (path, kind) = (Path::DISK, Use::Hit);
        meter.ended(&Done { path, kind, bytes: 4_096, now_ns: 60, latency_ns: 50, in_flight: of(1, 1) });
        let (path, kind) = (Path::BACKEND, Use::Write);
        meter.ended(&Done { path, kind, bytes: 512, now_ns: 60, latency_ns: 5_000, in_flight: of(2, 1) });
        let tick = meter.tick(100);
        assert_eq!(tick.paths[0], PathTick { requests: 1, bytes: 4_096, latency_ns: 50, hits: 2, in_flight: 0.5 });
        assert_eq!((tick.paths[1].requests, tick.paths[1].hits), (0, 0));
        assert_eq!((tick.elapsed_ns, tick.block_bytes()), (100, Some(4_096)));
        assert_eq!((meter.in_flight(Path::DISK), meter.in_flight_bytes(Path::BACKEND)), (of(1, 1), 8_192));
        assert_eq!(meter.tick(200).paths, [PathTick::default(); PATHS_MAX]);
    }

    #[test]
    fn what_is_declined_was_in_flight_and_is_counted_nowhere_else() {
        let mut meter = Meter::new(0);
        let (path, kind) = (Path::BACKEND, Use::Hit);
        let in_flight = meter.started(path, 4_096, kind);
        meter.declined(&Done { path, kind, bytes: 4_096, now_ns: 60, latency_ns: 50, in_flight });
        assert_eq!((meter.in_flight(path), meter.in_flight_bytes(path)), (InFlight::default(), 0));
        let counted = meter.tick(100).paths[path.index()];
        assert_eq!((counted.requests, counted.bytes, counted.latency_ns), (0, 0, 0));
    }

    #[test]
    #[should_panic = "what did not start ended"]
    fn a_read_ends_once() {
        let (path, kind) = (Path::DISK, Use::Hit);
        Meter::new(0).ended(&Done {
            path,
            kind,
            bytes: 1,
            now_ns: 1,
            latency_ns: 1,
            in_flight: InFlight { all: 1, reads: 1 },
        });
    }
}
