//! A volume of a few sectors over a log, on a cache disk and a back end that both may lose what they have not flushed.
//!
//! The back end is looked at after every step: whatever it may hold after a power cut, there is a boundary k such that
//! each sector has its value at k, or one written to it in the epoch after k. So the cache disk may be lost at any step.
//! The volume is read whole after every step, too. And now and then Forebay is killed, or loses power.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use forebay_policy::rng::Rng;

const SECTORS: u64 = 24;
const LIMITS: LogLimits =
    LogLimits { records_max: 24, epoch_records_max: 6, epoch_sectors_max: 20, group_sectors_max: 20, groups_max: 3 };
/// Values are numbers of changes; 0 is what was there at first, and zeroes.
type Value = u64;
type Bytes = Vec<(Range<u64>, Value)>;

/// A change that a client asked for.
struct Change {
    sectors: Range<u64>,
    value: Value,
    /// Boundaries before it.
    epoch: usize,
    /// Its record; `None` for what a crash left of one on the back end.
    id: Option<RecordId>,
    /// A crash took its record.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Written,
    Durable,
    TornBytes,
}

/// A group on the cache disk.
#[derive(Debug)]
struct OnDisk {
    group: Group,
    records: Vec<Record>,
    durable: RecordId,
    state: State,
}

struct World {
    log: Log,
    rng: Rng,
    history: Vec<Change>,
    epoch: usize,
    disk: Vec<OnDisk>,
    /// The disk flushes: what was written when it began.
    disk_flush: Option<RecordId>,
    /// The tail that the disk knows, and the one that is on its way.
    tail: Tail,
    anchor: Option<Tail>,
    life: u64,
    /// Runs under way, and their bytes.
    runs: Vec<(Run, Bytes)>,
    backend_flushes: bool,
    /// Of each sector: what is durable, and what has been written since.
    backend: Vec<(Value, Vec<Value>)>,
    /// Records released, boundaries, crashes, records lost, groups torn.
    counts: [usize; 5],
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl World {
    fn new(seed: u64) -> Self {
        let ring = Ring::new(64, 5);
        Self {
            log: Log::new(LIMITS, ring, 0),
            rng: Rng::new(seed),
            history: Vec::new(),
            epoch: 1,
            disk: Vec::new(),
            disk_flush: None,
            tail: Tail { position: 5, first: 0, life: 0 },
            anchor: None,
            life: 0,
            runs: Vec::new(),
            backend_flushes: false,
            backend: vec![(0, Vec::new()); SECTORS as usize],
            counts: [0; 5],
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn step(&mut self) {
        match self.below(100) {
            0..24 => self.append(),
            24..32 => self.next_group(),
            32..42 => self.group_ends(),
            42..50 => self.close(),
            50..56 => self.disk_flush = self.disk_flush.or(Some(self.log.written())),
            56..62 => self.disk_flush_ends(),
            62..72 => self.hand_out(),
            72..82 => self.run_ends(),
            82..88 => self.backend_flushes |= self.log.flush_begins(false),
            88..92 => self.backend_flush_ends(),
            92..95 => self.anchor = self.anchor.or(self.log.wants_anchor().then(|| self.log.tail())),
            95..99 => self.anchor_ends(),
            _ => self.crash(),
        }
    }

    fn append(&mut self) {
        let first = self.below(SECTORS);
        let sectors = 1 + self.below(6.min(SECTORS - first));
        let kind = if self.below(5) == 0 { Kind::Zero { no_hole: false } } else { Kind::Data };
        let Some(id) = self.log.append(Record::new(first, sectors as u32, kind)) else { return };
        let value = if kind == Kind::Data { self.history.len() as u64 + 1 } else { 0 };
        self.history.push(Change {
            sectors: first..first + sectors,
            value,
            epoch: self.epoch,
            id: Some(id),
            lost: false,
        });
    }

    fn close(&mut self) {
        let is_boundary = self.below(3) > 0;
        self.log.close(is_boundary);
        if is_boundary {
            self.epoch += 1;
            self.counts[1] += 1;
        }
    }

    fn next_group(&mut self) {
        let Some(group) = self.log.next_group() else { return };
        let places = |it: &Group| (it.position % 64)..(it.position % 64) + it.sectors;
        self.disk.retain(|it| !overlap(&places(&it.group), &places(&group)));
        let records = group.records.clone().map(|id| *self.log.record(id)).collect();
        let durable = self.log.durable.min(group.records.start);
        self.disk.push(OnDisk { group, records, durable, state: State::UnderWay });
    }

    fn pick_on_disk(&mut self, state: State) -> Option<usize> {
        let all: Vec<usize> = (0..self.disk.len()).filter(|at| self.disk[*at].state == state).collect();
        if all.is_empty() { None } else { Some(all[self.below(all.len() as u64) as usize]) }
    }

    fn group_ends(&mut self) {
        let Some(at) = self.pick_on_disk(State::UnderWay) else { return };
        self.disk[at].state = State::Written;
        let answered = self.log.group_written(self.disk[at].group.position);
        assert_eq!(answered.end, self.log.written());
    }

    fn disk_flush_ends(&mut self) {
        let Some(before) = self.disk_flush.take() else { return };
        for it in self.disk.iter_mut().filter(|it| it.state == State::Written && it.group.records.end <= before) {
            it.state = State::Durable;
        }
        self.log.flushed_disk(before);
    }

    fn anchor_ends(&mut self) {
        let Some(tail) = self.anchor.take() else { return };
        self.tail = tail;
        self.log.anchored(tail);
    }

    fn value_of(&self, id: RecordId) -> Value {
        self.history.iter().rfind(|it| it.id == Some(id) && !it.lost).expect("a change of the log").value
    }

    fn hand_out(&mut self) {
        let sectors_max = 1 + self.below(8);
        let Some(run) = self.log.next_write_back(sectors_max) else { return };
        assert!(run.sectors.end - run.sectors.start <= sectors_max);
        let mut bytes = Vec::new();
        let mut left = run.sectors.clone();
        while let Some((stretch, id)) = self.log.run_record(&left) {
            assert_eq!(self.log.record(id).kind, run.kind);
            left.start = stretch.end;
            bytes.push((stretch, self.value_of(id)));
        }
        assert!(left.is_empty(), "a run has all its bytes");
        assert!(!self.backend_flushes && !self.runs.iter().any(|(other, _)| overlap(&other.sectors, &run.sectors)));
        self.runs.push((run, bytes));
    }

    fn run_ends(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let nth = self.below(self.runs.len() as u64) as usize;
        let (run, bytes) = self.runs.swap_remove(nth);
        let is_well = self.below(4) > 0;
        self.do_run(&bytes, is_well);
        self.log.written_back(&run.sectors, is_well);
    }

    /// Well, or in part and not.
    fn do_run(&mut self, bytes: &[(Range<u64>, Value)], is_well: bool) {
        for (stretch, value) in bytes {
            for sector in stretch.clone() {
                if is_well || self.below(2) == 0 {
                    self.backend[sector as usize].1.push(*value);
                }
            }
        }
    }

    fn backend_flush_ends(&mut self) {
        if !core::mem::take(&mut self.backend_flushes) {
            return;
        }
        let is_well = self.below(4) > 0;
        self.flush_backend(is_well);
        let before = self.log.first;
        self.log.flushed_back(is_well);
        self.counts[0] += (self.log.first - before) as usize;
    }

    /// One that fails drops what it likes, and keeps what it likes.
    fn flush_backend(&mut self, is_well: bool) {
        for nth in 0..self.backend.len() {
            let drops = !is_well && self.below(2) == 0;
            let (durable, since) = &mut self.backend[nth];
            if !drops && let Some(last) = since.last() {
                *durable = *last;
            }
            since.clear();
        }
    }

    /// Forebay is killed; perhaps with the power of its machine, perhaps with that of the back end's.
    fn crash(&mut self) {
        let (power, backend_power) = (self.below(2) == 0, self.below(2) == 0);
        for (_, bytes) in core::mem::take(&mut self.runs) {
            self.do_run(&bytes, false);
        }
        for nth in 0..self.disk.len() {
            let may_tear = match self.disk[nth].state {
                State::UnderWay => true,
                State::Written => power,
                State::Durable | State::TornBytes => false,
            };
            if may_tear {
                self.disk[nth].state = [State::Durable, State::TornBytes, State::UnderWay][self.below(3) as usize];
            } else if self.disk[nth].state == State::Written {
                self.disk[nth].state = State::Durable;
            }
        }
        // What has no whole descriptor is not there.
        self.disk.retain(|it| it.state != State::UnderWay);
        if self.below(2) == 0 {
            self.tail = self.anchor.unwrap_or(self.tail);
        }
        (self.disk_flush, self.anchor, self.backend_flushes) = (None, None, false);
        if backend_power {
            for nth in 0..self.backend.len() {
                let held = self.backend[nth].1.len() as u64;
                let kept = self.below(held + 1) as usize;
                self.backend[nth].1.truncate(kept);
            }
        }
        // A back end is flushed before the log goes on.
        self.flush_backend(true);
        let must = if power { self.log.durable } else { self.log.written() };
        self.recover();
        assert!(self.log.next() >= must, "{} records are there, {must} were promised", self.log.next());
        self.counts[2] += 1;
        self.check_volume();
        self.check();
    }

    fn recover(&mut self) {
        let mut scan = Scan::new(LIMITS, Ring::new(64, self.tail.position), self.tail);
        loop {
            let next = scan.next();
            let here = self.disk.iter().filter(|it| next.contains(&it.group.position));
            let here: Vec<FoundGroup<'_>> = here.map(|it| it.group.found(&it.records, it.durable)).collect();
            if scan.found_one_of(&here).is_none() {
                break;
            }
        }
        let torn = |group: &Group| {
            self.disk.iter().any(|it| it.group.position == group.position && it.state == State::TornBytes)
        };
        if let Some(group) = scan.unverified().iter().find(|group| torn(group)) {
            self.counts[4] += 1;
            scan.cut(group.position);
        }
        assert!(scan.life() <= self.life);
        self.life += 1;
        self.log = scan.into_log(self.life);
        let end = self.log.next();
        let mut left = Vec::new();
        for change in self.history.iter_mut().filter(|it| !it.lost && it.id.is_some_and(|id| id >= end)) {
            change.lost = true;
            self.counts[3] += 1;
        }
        // What lost records have left on the back end is there from now on, where the log has nothing.
        for sector in 0..SECTORS {
            let here = self.backend[sector as usize].0;
            let is_seen = self.log.map().first(&(sector..sector + 1)).is_some_and(|it| it.record.is_none());
            let lost = self.history.iter().rfind(|it| it.lost && it.value == here && it.sectors.contains(&sector));
            if let Some(lost) = lost.filter(|_| is_seen) {
                left.push(Change {
                    sectors: sector..sector + 1,
                    value: here,
                    epoch: lost.epoch,
                    id: None,
                    lost: false,
                });
            }
        }
        self.history.extend(left);
        self.epoch += 1;
    }

    /// The value of a sector at the end of a client's epoch, and what the epoch after it wrote there.
    fn at_boundary(&self, k: usize, sector: u64) -> BTreeSet<Value> {
        let here = self.history.iter().filter(|it| it.sectors.contains(&sector));
        let at = here.clone().rfind(|it| it.epoch <= k && !it.lost).map_or(0, |it| it.value);
        here.filter(|it| it.epoch == k + 1).map(|it| it.value).chain([at]).collect()
    }

    fn read(&self, sector: u64) -> Value {
        match self.log.map().first(&(sector..sector + 1)).unwrap().record {
            Some(id) => {
                assert!(id >= self.log.first, "a record that has left is in the map");
                self.value_of(id)
            }
            None => self.backend[sector as usize].1.last().copied().unwrap_or(self.backend[sector as usize].0),
        }
    }

    /// What is read after a crash is what a plain disk may hold.
    fn check_volume(&self) {
        let allowed = |k: usize| (0..SECTORS).all(|sector| self.at_boundary(k, sector).contains(&self.read(sector)));
        assert!((0..=self.epoch).any(allowed), "the volume follows no boundary");
    }

    fn check(&self) {
        let allowed = |k: usize| {
            (0..SECTORS).all(|sector| {
                let (durable, since) = &self.backend[sector as usize];
                let allowed = self.at_boundary(k, sector);
                allowed.contains(durable) && since.iter().all(|value| allowed.contains(value))
            })
        };
        assert!((0..=self.epoch).any(allowed), "the back end follows no boundary: {:?}", self.backend);
        for sector in 0..SECTORS {
            let is_written = |it: &&Change| !it.lost && it.id.is_none_or(|id| id < self.log.written());
            let newest = self.history.iter().filter(is_written).rfind(|it| it.sectors.contains(&sector));
            let newest = newest.map_or(0, |it| it.value);
            assert_eq!(self.read(sector), newest, "sector {sector} is not what was written last");
        }
    }
}

#[test]
fn the_back_end_is_at_any_time_what_a_plain_disk_may_be_after_a_power_cut() {
    let mut counts = [0; 5];
    for seed in 0..600 {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
            world.check();
        }
        counts.iter_mut().zip(world.counts).for_each(|(sum, one)| *sum += one);
    }
    assert!(counts.iter().all(|count| *count > 100), "released, boundaries, crashes, lost, torn: {counts:?}");
}

#[test]
fn groups_lie_apart_and_hold_the_records_in_their_order() {
    let limits = LogLimits {
        records_max: 100,
        epoch_records_max: 50,
        epoch_sectors_max: 100,
        group_sectors_max: 40,
        groups_max: 2,
    };
    let mut log = Log::new(limits, Ring::new(200, 0), 0);
    for nth in 0..6 {
        assert_eq!(log.append(Record::new(nth * 8, 8, Kind::Data)), Some(nth));
    }
    let groups: Vec<Group> = core::iter::from_fn(|| log.next_group()).collect();
    let shape: Vec<_> =
        groups.iter().map(|it| (it.records.clone(), it.position, it.descriptor_sectors, it.sectors)).collect();
    assert_eq!(shape, [(0..4, 0, 1, 33), (4..6, 33, 1, 17)]);
    assert_eq!((log.position(0, 3), log.position(5, 47)), (4, 33 + 1 + 8 + 7));
    assert_eq!(log.group_written(33), 0..0, "an answer waits for those before it");
    assert_eq!(log.group_written(0), 0..6);
    let places: BTreeMap<u64, RecordId> = (0..6).map(|id| (log.record(id).position, id)).collect();
    assert!(places.into_values().eq(0..6));
}

/// Records that wait were taken as one group, for which there was no room, while the log was not full: it stood still.
#[test]
fn a_group_takes_what_the_ring_has_room_for() {
    let limits = LogLimits {
        records_max: 100,
        epoch_records_max: 50,
        epoch_sectors_max: 100,
        group_sectors_max: 40,
        groups_max: 4,
    };
    let mut log = Log::new(limits, Ring::new(80, 0), 0);
    for nth in 0..8 {
        log.append(Record::new(nth * 8, 8, Kind::Data));
    }
    let groups: Vec<_> = core::iter::from_fn(|| log.next_group()).map(|it| (it.records, it.position)).collect();
    assert_eq!(groups, [(0..4, 0), (4..8, 33)]);
    for nth in 8..10 {
        log.append(Record::new(nth * 8, 8, Kind::Data));
    }
    assert!(!log.is_full(), "of 14 sectors a record takes 9");
    assert!(log.next_group().is_some_and(|it| it.records == (8..9)), "both take 17");
    assert!(log.is_full() && log.next_group().is_none());
}

#[test]
fn a_group_of_an_earlier_life_is_not_the_next() {
    let records = [Record::new(0, 8, Kind::Data)];
    let group = |position, first, life| FoundGroup { position, first, records: &records, epoch: 0, durable: 0, life };
    let mut scan = Scan::new(LIMITS, Ring::new(64, 0), Tail::default());
    assert!(scan.found(&group(0, 0, 3)) && scan.found(&group(9, 1, 3)) && scan.found(&group(18, 2, 4)));
    assert!(!scan.found(&group(27, 3, 3)), "it was there before the last one");
    assert!(!scan.found(&group(28, 3, 4)), "it is not behind the last one");
    assert!(!scan.found(&group(27, 4, 4)), "a record is missing");
    assert!(scan.found(&group(27, 3, 4)));
    assert_eq!(scan.into_log(5).next(), 4);
}

/// The log's only group lay at the ring's beginning, behind sectors that were too few for it.
#[test]
fn a_log_that_is_cut_at_its_first_group_goes_on_at_its_tail() {
    let records = [Record::new(0, 8, Kind::Data)];
    let tail = Tail { position: 60, ..Tail::default() };
    let mut scan = Scan::new(LIMITS, Ring::new(64, 60), tail);
    assert!(scan.found(&FoundGroup { position: 64, first: 0, records: &records, epoch: 0, durable: 0, life: 0 }));
    scan.cut(64);
    let mut log = scan.into_log(1);
    assert_eq!((log.tail(), log.next()), (Tail { life: 1, ..tail }, 0));
    log.append(records[0]);
    assert!(log.next_group().is_some_and(|group| group.position == 64));
}

/// A group that a crash took from the log, because the one before it was torn, came back when the tail was moved to it.
#[test]
fn a_group_that_was_lost_does_not_come_back_when_the_tail_reaches_it() {
    let limits = LogLimits { groups_max: 2, ..LIMITS };
    let records = [Record::new(0, 8, Kind::Data)];
    let mut log = Scan::new(limits, Ring::new(64, 0), Tail::default()).into_log(1);
    log.append(records[0]);
    let group = log.next_group().unwrap();
    log.group_written(group.position);
    log.close(true);
    let run = log.next_write_back(8).unwrap();
    log.written_back(&run.sectors, true);
    assert!(log.flush_begins(false));
    log.flushed_back(true);
    let tail = log.tail();
    assert_eq!(tail, Tail { position: 9, first: 1, life: 1 });
    let mut scan = Scan::new(limits, Ring::new(64, 9), tail);
    let lost = FoundGroup { position: 9, first: 1, records: &records, epoch: 1, durable: 0, life: 0 };
    assert!(!scan.found(&lost) && scan.found(&FoundGroup { life: 1, ..lost }));
}

/// A flush behind what the back end has flushed already is a boundary, too: a recovery that wrote the epoch before it again in
/// parts would bring back what the flush was behind of.
#[test]
fn a_boundary_behind_an_empty_log_is_known_to_the_disk_before_anything_of_the_next_epoch_leaves() {
    let mut log = Log::new(LIMITS, Ring::new(64, 0), 0);
    let written = |log: &mut Log, sector| {
        log.append(Record::new(sector, 1, Kind::Data));
        let group = log.next_group().unwrap();
        log.group_written(group.position);
        log.close(false);
        group.epoch
    };
    assert_eq!(written(&mut log, 0), 0);
    let run = log.next_write_back(8).unwrap();
    log.written_back(&run.sectors, true);
    assert!(log.flush_begins(false));
    log.flushed_back(true);
    log.close(true);
    assert_eq!(written(&mut log, 1), 1);
    assert!(log.next_write_back(8).is_none() && log.wants_anchor());
    log.anchored(log.tail());
    assert!(log.next_write_back(8).is_some());
}
