//! What happened in a tick, and in several.

use super::clients::ClientCounts;
use super::station::PathCounts;
use forebay_core::Stats;

/// A tick.
pub const TICK_NS: u64 = 100_000_000;
const SECOND_NS: f64 = 1e9;

/// What a volume's clients and its back end did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumeTick {
    /// Reads answered.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Mean latency of reads; 0 without any.
    pub read_latency_ns: u64,
    /// What 99 of 100 reads did not exceed, within a fifth; over several ticks: the worst of them.
    pub read_latency_p99_ns: u64,
    /// What its back end did.
    pub backend: PathCounts,
    /// Bytes that the cache ordered from the cache disk: what was decided, where `backend` is what came of it.
    pub disk_ordered_bytes: u64,
    /// Bytes that it ordered from the back end.
    pub backend_ordered_bytes: u64,
}

/// What happened from one time to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tick {
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// The cache disk, for all volumes.
    pub disk: PathCounts,
    /// By volume.
    pub volumes: Vec<VolumeTick>,
}

impl Tick {
    /// A count as one of a second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * SECOND_NS / (self.to_ns - self.from_ns) as f64
    }

    /// What all clients got.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.volumes.iter().map(VolumeTick::bytes).sum())
    }
}

impl VolumeTick {
    /// Bytes read and written by its clients.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }

    /// Of the bytes ordered, the share of the cache disk; 1 if none were.
    #[must_use]
    pub fn disk_share(&self) -> f64 {
        match self.disk_ordered_bytes + self.backend_ordered_bytes {
            0 => 1.0,
            bytes => self.disk_ordered_bytes as f64 / bytes as f64,
        }
    }

    fn with(&self, other: &Self) -> Self {
        let reads = self.reads + other.reads;
        let latency_ns = self.reads * self.read_latency_ns + other.reads * other.read_latency_ns;
        Self {
            reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
            read_latency_ns: latency_ns.checked_div(reads).unwrap_or(0),
            read_latency_p99_ns: self.read_latency_p99_ns.max(other.read_latency_p99_ns),
            backend: self.backend.with(&other.backend),
            disk_ordered_bytes: self.disk_ordered_bytes + other.disk_ordered_bytes,
            backend_ordered_bytes: self.backend_ordered_bytes + other.backend_ordered_bytes,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ticks {
    all: Vec<Tick>,
    /// Counts since the start, when the last tick ended: the disk's; by volume the back end's, and bytes ordered.
    disk: PathCounts,
    volumes: Vec<(PathCounts, [u64; 2])>,
}

impl Ticks {
    pub(super) fn new(volumes: usize) -> Self {
        Self { all: Vec::new(), disk: PathCounts::default(), volumes: vec![Default::default(); volumes] }
    }

    pub(super) fn all(&self) -> &[Tick] {
        &self.all
    }

    /// When the one that runs ends.
    pub(super) fn next_ns(&self) -> u64 {
        (self.all.len() as u64 + 1) * TICK_NS
    }

    /// Ends it, with the counts of paths and cache since the start, and the clients' since the last.
    pub(super) fn end(
        &mut self,
        disk: PathCounts,
        backends: impl Iterator<Item = PathCounts>,
        stats: &Stats,
        clients: Vec<ClientCounts>,
    ) {
        let to_ns = self.next_ns();
        let ordered = stats.volumes.iter().map(|volume| [volume.disk_read_bytes, volume.backend_read_bytes]);
        let now = backends.zip(ordered);
        let volumes = clients.iter().zip(now).zip(&mut self.volumes).map(|((clients, now), before)| {
            let (backend, ordered) = std::mem::replace(before, now);
            let latency = &clients.read_latency;
            VolumeTick {
                reads: clients.reads,
                read_bytes: clients.read_bytes,
                writes: clients.writes,
                write_bytes: clients.write_bytes,
                flushes: clients.flushes,
                read_latency_ns: latency.sum_ns().checked_div(latency.count()).unwrap_or(0),
                read_latency_p99_ns: latency.quantile_ns(990),
                backend: now.0.since(&backend),
                disk_ordered_bytes: now.1[0] - ordered[0],
                backend_ordered_bytes: now.1[1] - ordered[1],
            }
        });
        let volumes = volumes.collect();
        self.all.push(Tick { from_ns: to_ns - TICK_NS, to_ns, disk: disk.since(&self.disk), volumes });
        self.disk = disk;
    }

    /// Sums up those that lie between two times.
    pub(super) fn sum(&self, from_ns: u64, to_ns: u64) -> Tick {
        let inside = |tick: &&Tick| tick.from_ns >= from_ns && tick.to_ns <= to_ns;
        let mut ticks = self.all.iter().filter(inside);
        let first = ticks.next().unwrap_or_else(|| panic!("no tick lies between {from_ns} and {to_ns}"));
        ticks.fold(first.clone(), |mut sum, tick| {
            sum.to_ns = tick.to_ns;
            sum.disk = sum.disk.with(&tick.disk);
            sum.volumes.iter_mut().zip(&tick.volumes).for_each(|(sum, volume)| *sum = sum.with(volume));
            sum
        })
    }
}

impl PathCounts {
    fn since(&self, before: &Self) -> Self {
        self.each(before, |now, before| now - before)
    }

    fn with(&self, other: &Self) -> Self {
        self.each(other, |this, other| this + other)
    }

    fn each(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            read_latency_ns: f(self.read_latency_ns, other.read_latency_ns),
            writes: f(self.writes, other.writes),
            write_bytes: f(self.write_bytes, other.write_bytes),
        }
    }
}
