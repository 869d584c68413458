//! A logged back end over a disk and a back end of numbers, whose operations end in any order, fail, and are cut short.
//!
//! A sector's bytes are one number, told by its write; 0 is what was there at first, and zeroes.
//!
//! The back end is looked at after every step ([`boundaries`]), so the log's disk may be lost at any.

mod answers;
mod boundaries;
mod crashes;
mod disks;
mod loss;

use super::super::{FoundGroup, Kind, LogLimits, Record, Ring, Scan};
use super::*;
use alloc::vec;
use boundaries::{Boundaries, By, Flushed};
use core::ops::Range;
use forebay_policy::rng::Rng;

const SECTORS: u64 = 64;
const RING: u64 = 200;
const LIMITS: LogLimits =
    LogLimits { records_max: 40, epoch_records_max: 12, epoch_sectors_max: 60, group_sectors_max: 40, groups_max: 3 };
const CONFIG: LoggedConfig = LoggedConfig {
    buffer_sectors: 48,
    log_reads_max: 3,
    runs_max: 2,
    run_sectors: 40,
    retry_ns: 5,
    open_ns: 300,
    disk_timeout_ns: u64::MAX,
    read_patience_ns: u64::MAX,
    wait_ns: 3_000,
    demand_ns: 10,
    burst_gap_ns: 10,
};

type Value = u64;

#[derive(Debug)]
struct Client {
    wish: Wish,
    sectors: Range<u64>,
    /// Its memory.
    bytes: Vec<Value>,
    /// When it was asked: what was answered before, a flush covers.
    asked_ns: u64,
    /// What its owner wanted then.
    policy: LogPolicy,
    /// Sectors that were told as lost meanwhile.
    lost: Vec<u64>,
    /// Of a flush: something that was answered before was lost.
    must_fail: bool,
    /// Changes that had passed the log when it was asked.
    answers: u64,
}

/// A change that was asked for.
#[derive(Debug)]
struct Asked {
    token: u64,
    sectors: Range<u64>,
    zero: bool,
    answered_ns: Option<u64>,
    /// A client was told that it is durable.
    promised: bool,
    /// It was found there, and what wrote it has that token.
    settled: bool,
}

/// What takes longer than all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Nothing,
    Tails,
    LogsDisk,
    Flushes,
}

#[derive(Debug)]
struct OnDisk {
    group: Group,
    records: Vec<Record>,
    checks: Vec<Vec<u32>>,
    durable: RecordId,
    /// Not ended; ended; flushed since.
    state: u8,
}

struct World {
    logged: Logged,
    rng: Rng,
    now_ns: u64,
    /// By place in the ring.
    cells: Vec<Value>,
    groups: Vec<OnDisk>,
    tail: Tail,
    /// As it is kept.
    regions: RegionImage,
    life: u64,
    /// Of each sector, what is durable and what was written since.
    backend: Vec<(Value, Vec<Value>)>,
    memory: BTreeMap<Buffer, Vec<Value>>,
    clients: BTreeMap<u64, Client>,
    /// Changes in the order in which they were asked for.
    history: Vec<Asked>,
    /// Records before this were written when the log's flush began.
    flush_before: RecordId,
    /// Of each sector, what was written since the last flush of the back end when this one began.
    flush_covers: Vec<usize>,
    under_way: Vec<Order>,
    next_token: u64,
    /// Parts in a hundred of the back end's orders that fail.
    fails: u64,
    boundaries: Boundaries,
    /// Records before this are known there.
    seen: RecordId,
    /// When the policy was changed last.
    policy_ns: u64,
    /// Now and then it is.
    changes_policy: bool,
    slow: Slow,
    /// Changes that passed the log and that the back end answered.
    passed: Vec<u64>,
    /// Something of that was lost, and no flush has failed for it.
    owes: bool,
    /// Steps in a hundred that ask for something.
    asks: u64,
    /// Reads that were right, flushes, crashes, failures, bypasses, sectors told as lost, flushes by the back end.
    counts: [usize; 7],
}

fn check_of(first: u64, values: &[Value]) -> u32 {
    values.iter().fold(first as u32 + 1, |hash, value| hash.wrapping_mul(0x9E37_79B1) ^ *value as u32)
}

/// The checksums of the blocks that these sectors lie in.
fn checks_of(sectors: &Range<u64>, values: &[Value]) -> Vec<u32> {
    let mut checks = Vec::new();
    let mut first = sectors.start;
    while first < sectors.end {
        let end = (first / 8 * 8 + 8).min(sectors.end);
        checks.push(check_of(first, &values[(first - sectors.start) as usize..(end - sectors.start) as usize]));
        first = end;
    }
    checks
}

fn is_flush(wish: Wish) -> bool {
    matches!(wish, Wish::Flush | Wish::Persist)
}

fn request(token: u64, wish: Wish, sectors: Range<u64>) -> Request {
    let whole_sectors = sectors.end - sectors.start;
    Request { token, wish, sectors, whole_sectors }
}

fn value_of(token: u64, sector: u64) -> Value {
    token * 1000 + sector
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self::without_regions(seed);
        world.logged.keep_regions(world.regions.clone());
        world
    }

    fn without_regions(seed: u64) -> Self {
        Self {
            logged: Logged::new(CONFIG, Log::new(LIMITS, Ring::new(RING, 3), 0), &[]),
            rng: Rng::new(seed),
            now_ns: 0,
            cells: vec![0; RING as usize],
            groups: Vec::new(),
            tail: Tail { position: 3, first: 0, life: 0 },
            regions: RegionImage::new(0, SECTORS),
            life: 0,
            backend: vec![(0, Vec::new()); SECTORS as usize],
            memory: BTreeMap::new(),
            clients: BTreeMap::new(),
            history: Vec::new(),
            flush_before: 0,
            flush_covers: Vec::new(),
            under_way: Vec::new(),
            next_token: 1,
            fails: 20,
            boundaries: Boundaries::new(SECTORS),
            seen: 0,
            policy_ns: 0,
            changes_policy: false,
            slow: Slow::Nothing,
            passed: Vec::new(),
            owes: false,
            asks: 35,
            counts: [0; 7],
        }
    }

    fn set_policy(&mut self, policy: LogPolicy) {
        self.policy_ns = self.now_ns;
        self.logged.set_policy(self.now_ns, policy);
        self.observe();
    }

    fn any_policy(&mut self) -> LogPolicy {
        let mut level = || [Durability::Local, Durability::Backend][self.below(2) as usize];
        let (durability, fua) = (level(), level());
        let bypass = match self.below(4) {
            0 => Bypass::Never,
            1 => Bypass::All,
            _ => Bypass::Large { bytes_min: self.below(20) * 512 },
        };
        LogPolicy { durability, fua, bypass, ..LogPolicy::LOCAL }
    }

    /// Enters what has become part of an epoch: what passed the log did so before the next boundary closed.
    fn observe(&mut self) {
        for role in self.logged.roles.slots.iter().flatten() {
            let Role::Bypass { request } = role else { continue };
            let by = By::Bypass(request.token, Flushed::No);
            if !self.boundaries.knows(request.token, request.sectors.start) {
                let zero = matches!(request.wish, Wish::Zero { .. });
                let value = |sector| if zero { 0 } else { value_of(request.token, sector) };
                self.boundaries.wrote(request.sectors.clone(), by, value);
                self.counts[4] += 1;
            }
        }
        for id in self.seen..self.logged.log().next() {
            let record = *self.logged.log().record(id);
            let token = self.logged.changes.iter().find(|it| it.id == id).expect("a change is not answered").token;
            let zero = record.kind != Kind::Data;
            let value = |sector| if zero { 0 } else { value_of(token, sector) };
            self.boundaries.wrote(record.range(), By::Record(id), value);
            if record.boundary {
                self.boundaries.close();
            }
        }
        self.seen = self.logged.log().next();
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn step(&mut self) {
        self.now_ns += 1;
        match self.below(100) {
            0 => self.logged.tick(self.now_ns),
            nth if nth <= self.asks => self.ask(),
            _ => self.end_one(),
        }
        self.observe();
        if self.changes_policy && self.below(100) == 0 {
            let policy = self.any_policy();
            self.set_policy(policy);
        }
        self.perform();
    }

    /// Requests that overlap one under way are not asked.
    fn ask(&mut self) {
        let first = self.below(SECTORS);
        let sectors = first..first + 1 + self.below(30.min(SECTORS - first));
        let overlaps = |it: &Range<u64>| it.start < sectors.end && sectors.start < it.end;
        let wish = match self.below(20) {
            0..8 => Wish::Write { fua: self.below(6) == 0 },
            8..10 => Wish::Zero { fua: self.below(6) == 0, no_hole: self.below(2) == 0 },
            10..18 => Wish::Read,
            18 if self.below(2) == 0 => Wish::Persist,
            _ => Wish::Flush,
        };
        let busy = self.clients.values().any(|it| !is_flush(it.wish) && overlaps(&it.sectors));
        if self.clients.len() == 6 || (busy && !is_flush(wish)) {
            return;
        }
        let token = self.next_token;
        self.next_token += 1;
        let bytes = sectors.clone().map(|sector| value_of(token, sector)).collect();
        let zero = matches!(wish, Wish::Zero { .. });
        if matches!(wish, Wish::Write { .. } | Wish::Zero { .. }) {
            self.history.push(Asked {
                token,
                sectors: sectors.clone(),
                zero,
                answered_ns: None,
                promised: false,
                settled: false,
            });
        }
        let (asked_ns, policy, answers) = (self.now_ns, self.logged.policy(), self.logged.bypass.answers());
        let must_fail = is_flush(wish) && core::mem::take(&mut self.owes);
        self.clients.insert(
            token,
            Client { wish, sectors: sectors.clone(), bytes, asked_ns, policy, lost: Vec::new(), must_fail, answers },
        );
        self.logged.submit(asked_ns, request(token, wish, sectors));
        if wish == Wish::Flush {
            self.boundaries.close();
        }
    }

    fn place(&self, position: u64) -> usize {
        (position % RING) as usize
    }

    fn memory(&mut self, memory: Memory) -> &mut Vec<Value> {
        match memory {
            Memory::Client(token) => &mut self.clients.get_mut(&token).expect("a client that waits").bytes,
            Memory::Driver(buffer) => self.memory.entry(buffer).or_insert_with(|| vec![0; 48]),
        }
    }

    fn put(&mut self, to: Place, values: &[Value]) {
        self.memory(to.memory)[to.skip as usize..][..values.len()].copy_from_slice(values);
    }

    fn perform(&mut self) {
        while let Some(order) = self.logged.next_order(self.now_ns) {
            match order {
                Order::Copy { from, to, sectors } => {
                    let values = self.memory(from.memory)[from.skip as usize..][..sectors as usize].to_vec();
                    self.put(to, &values);
                }
                Order::Clear { at, sectors } => self.put(at, &vec![0; sectors as usize]),
                Order::Answer { token, result } => self.answered(token, result),
                Order::WriteGroup { ref group, .. } => {
                    self.begin_group(group);
                    self.under_way.push(order);
                }
                Order::FlushLog { .. } => {
                    self.flush_before = self.logged.log().written();
                    self.under_way.push(order);
                }
                _ => self.begin(order),
            }
        }
    }

    fn begin(&mut self, order: Order) {
        if matches!(order, Order::FlushBackend { .. }) {
            self.flush_covers = self.backend.iter().map(|(_, since)| since.len()).collect();
            self.boundaries.flush_begins();
        }
        self.under_way.push(order);
    }

    /// What lies where it will lie is gone from now on.
    fn begin_group(&mut self, group: &Group) {
        for (record, _) in self.logged.group(group) {
            let regions = regions_of(&record.range());
            assert!(self.regions.dirty.contains_all(regions), "the map knows the regions of a record first");
        }
        let places = |it: &Group| (it.position % RING)..(it.position % RING) + it.sectors;
        let ours = places(group);
        self.groups.retain(|it| places(&it.group).end <= ours.start || ours.end <= places(&it.group).start);
        let mut values = Vec::new();
        let (mut records, mut checks) = (Vec::new(), Vec::new());
        for (record, token) in self.logged.group(group) {
            let bytes = &self.clients[&token].bytes;
            let data = record.kind == Kind::Data;
            checks.push(if data { checks_of(&record.range(), bytes) } else { Vec::new() });
            values.extend_from_slice(if data { bytes } else { &[] });
            records.push(*record);
        }
        let at = self.place(group.position + group.descriptor_sectors);
        self.cells[at..at + values.len()].copy_from_slice(&values);
        let durable = self.logged.durable(group);
        self.groups.push(OnDisk { group: group.clone(), records, checks, durable, state: 0 });
    }
}

/// In which little is asked, and all that is long passes the log where it may.
fn run_passing(seed: u64, crashes: bool) -> World {
    let mut world = World::new(seed);
    world.slow = [Slow::Nothing, Slow::Tails, Slow::LogsDisk, Slow::Flushes][(seed % 4) as usize];
    world.asks = 20;
    let durability = [Durability::Local, Durability::Backend][(seed / 4 % 2) as usize];
    let bypass = Bypass::Large { bytes_min: [512, 10 * 512][(seed / 8 % 2) as usize] };
    world.set_policy(LogPolicy { durability, bypass, ..LogPolicy::default() });
    for _ in 0..1_000 {
        world.step();
        if crashes && world.below(150) == 0 {
            world.crash();
        }
    }
    world
}

fn run(seed: u64, steps: usize, crashes: bool) -> World {
    let mut world = World::new(seed);
    world.changes_policy = seed.is_multiple_of(2);
    world.slow = [Slow::Nothing, Slow::Tails, Slow::LogsDisk, Slow::Flushes][(seed / 2 % 4) as usize];
    world.asks = [35, 10][(seed / 8 % 2) as usize];
    if world.changes_policy {
        let policy = world.any_policy();
        world.set_policy(policy);
    }
    for _ in 0..steps {
        world.step();
        if crashes && world.below(150) == 0 {
            world.crash();
        }
    }
    world
}

/// Ends everything, with everything on the back end.
fn drain(world: &mut World) {
    world.fails = 0;
    for _ in 0..20_000 {
        world.now_ns += 1;
        world.logged.tick(world.now_ns);
        world.perform();
        world.end_one();
        world.perform();
        if world.clients.is_empty() && world.under_way.is_empty() && world.logged.has_followed() {
            break;
        }
    }
    let rests = world.clients.is_empty() && world.logged.is_idle() && world.logged.has_followed();
    assert!(rests, "it does not come to rest: {:?} {:?}", world.under_way, world.logged);
    assert!(world.logged.log().map().is_empty());
}

#[test]
fn reads_see_what_was_answered_last_and_the_back_end_has_it_in_the_end() {
    let mut counts = [0; 7];
    for seed in 0..400 {
        let mut world = run(seed, 1_500, false);
        drain(&mut world);
        for sector in 0..SECTORS {
            assert_eq!(world.on_backend(sector), world.newest(sector), "seed {seed}, sector {sector}");
        }
        counts.iter_mut().zip(world.counts).for_each(|(sum, one)| *sum += one);
    }
    let least = [10_000, 2_000, 0, 2_000, 500, 500, 100];
    assert!(counts.iter().zip(least).all(|(count, least)| *count >= least), "{counts:?}");
}

#[test]
fn what_passes_the_log_is_part_of_its_order_and_a_loss_is_told() {
    let mut counts = [0; 7];
    for seed in 2_000..2_600 {
        let crashes = seed % 3 > 0;
        let mut world = run_passing(seed, crashes);
        drain(&mut world);
        for sector in 0..SECTORS {
            assert_eq!(world.on_backend(sector), world.newest(sector), "seed {seed}, sector {sector}");
        }
        counts.iter_mut().zip(world.counts).for_each(|(sum, one)| *sum += one);
    }
    let least = [5_000, 1_000, 1_000, 1_000, 2_000, 1_000, 500];
    assert!(counts.iter().zip(least).all(|(count, least)| *count >= least), "{counts:?}");
}

#[test]
fn what_a_flush_promised_is_there_after_a_crash() {
    let mut crashes = 0;
    for seed in 1_000..1_400 {
        crashes += run(seed, 1_500, true).counts[2];
    }
    assert!(crashes > 2_000, "{crashes} crashes");
}

#[test]
fn without_a_region_map_changes_fail_with_the_logs_disk_but_what_is_there_can_be_read() {
    let held = |logged: &Logged| {
        let stretch = logged.log().map().held_from(0)?;
        (logged.log().record(stretch.record?).kind == Kind::Data).then_some(stretch.sectors.start)
    };
    // Of a world where a group is under way while the log holds something.
    let mut worlds = (0..100).map(|seed| {
        let mut world = World::without_regions(seed);
        world.regions.dirty.insert_all(0..SECTORS);
        world.fails = 0;
        while held(&world.logged).is_none() {
            world.step();
        }
        world
    });
    let found = worlds.find_map(|mut world| {
        let at = world.under_way.iter().position(|it| matches!(it, Order::WriteGroup { .. }))?;
        let (group, held) = (world.under_way.swap_remove(at), held(&world.logged)?);
        Some((world, group, held))
    });
    let (mut world, group, held) = found.expect("one of a hundred");
    let Order::WriteGroup { id, .. } = group else { unreachable!() };
    world.logged.done(world.now_ns, id, Err(IoError::Failed), &[]);
    let mut failed = 0;
    while let Some(order) = world.logged.next_order(world.now_ns) {
        if let Order::Answer { token, result: Err(_) } = order {
            failed += usize::from(world.clients.remove(&token).is_some());
        }
    }
    assert!(failed > 0);
    world.logged.submit(world.now_ns, request(0, Wish::Write { fua: false }, 0..1));
    world.logged.submit(world.now_ns, request(1, Wish::Flush, 0..0));
    world.logged.submit(world.now_ns, request(2, Wish::Read, held..held + 1));
    let orders: Vec<Order> = core::iter::from_fn(|| world.logged.next_order(world.now_ns)).collect();
    assert!(orders.contains(&Order::Answer { token: 0, result: Err(IoError::Failed) }));
    assert!(orders.contains(&Order::Answer { token: 1, result: Err(IoError::Lost) }));
    assert!(orders.iter().any(|it| matches!(it, Order::ReadLog { .. })));
}

/// Of an epoch in parts a recovery writes the first one again, over what the last one wrote and a flush had promised.
#[test]
fn a_flush_that_is_for_the_back_end_waits_for_the_tail() {
    let mut logged = Logged::new(CONFIG, Log::new(LIMITS, Ring::new(RING, 3), 0), &[]);
    logged.set_policy(0, LogPolicy { durability: Durability::Backend, ..LogPolicy::default() });
    logged.submit(0, request(1, Wish::Write { fua: false }, 0..8));
    logged.submit(0, request(2, Wish::Flush, 0..0));
    let (mut answered, mut tail) = (Vec::new(), None);
    while let Some(order) = logged.next_order(0) {
        match order {
            Order::Answer { token, result } => answered.push((token, result)),
            Order::WriteTail { id, .. } => tail = Some(id),
            Order::WriteGroup { id, .. } | Order::ReadLog { id, .. } => logged.done(0, id, Ok(()), &[7]),
            Order::FlushLog { id } | Order::WriteBackend { id, .. } | Order::FlushBackend { id } => {
                logged.done(0, id, Ok(()), &[]);
            }
            _ => {}
        }
    }
    assert_eq!(answered, [(1, Ok(()))]);
    logged.done(0, tail.expect("the back end has it"), Ok(()), &[]);
    assert_eq!(logged.next_order(0), Some(Order::Answer { token: 2, result: Ok(()) }));
}

/// It had the time of a turn that had passed: whoever waited for that did not wait at all.
#[test]
fn who_stalls_has_no_turn_until_the_back_end_answers() {
    let mut logged = Logged::new(CONFIG, Log::new(LIMITS, Ring::new(RING, 3), 0), &[]);
    logged.set_policy(0, LogPolicy { lag_max_ns: 10, ..LogPolicy::default() });
    logged.submit(0, request(1, Wish::Write { fua: true }, 0..8));
    for now_ns in 0..40 {
        while let Some(order) = logged.next_order(now_ns) {
            match order {
                Order::WriteGroup { id, .. } | Order::ReadLog { id, .. } => logged.done(now_ns, id, Ok(()), &[7]),
                Order::FlushLog { id } => logged.done(now_ns, id, Ok(()), &[]),
                Order::WriteBackend { id, .. } => logged.done(now_ns, id, Err(IoError::Failed), &[]),
                _ => {}
            }
        }
    }
    logged.submit(40, request(2, Wish::Write { fua: false }, 0..8));
    while logged.next_order(40).is_some() {}
    assert!(logged.is_lagging(40) && !logged.waiting.is_empty());
    assert_eq!(logged.next_ns(), None);
}

/// A burst has the back end for itself, and clients come before write-back; but who waits for write-back is a client, too.
#[test]
fn a_flush_that_is_for_the_back_end_waits_neither_for_a_burst_nor_for_other_clients() {
    let mut logged = Logged::new(CONFIG, Log::new(LIMITS, Ring::new(RING, 3), 0), &[]);
    let bypass = Bypass::Large { bytes_min: 16 * 512 };
    logged.set_policy(0, LogPolicy { durability: Durability::Backend, bypass, ..LogPolicy::default() });
    logged.submit(0, request(1, Wish::Write { fua: false }, 0..16));
    let mut answered = Vec::new();
    for (now_ns, token, wish, allowed) in [(1, 2, Wish::Write { fua: false }, 0), (2, 3, Wish::Flush, 2)] {
        while let Some(order) = logged.next_order(now_ns) {
            match order {
                Order::WriteGroup { id, .. } | Order::ReadLog { id, .. } => logged.done(now_ns, id, Ok(()), &[7]),
                Order::WriteBackend { id, .. } => logged.done(now_ns, id, Ok(()), &[]),
                order => assert!(matches!(order, Order::Answer { .. }), "{order:?}"),
            }
        }
        logged.submit(now_ns, request(token, wish, 24..32));
        assert_eq!(logged.runs_allowed(now_ns), allowed);
    }
    while let Some(order) = logged.next_order(2) {
        match order {
            Order::Answer { token, result } => answered.push((token, result)),
            Order::ReadLog { id, .. } => logged.done(2, id, Ok(()), &[7]),
            Order::FlushLog { id }
            | Order::FlushBackend { id }
            | Order::WriteBackend { id, .. }
            | Order::WriteTail { id, .. } => logged.done(2, id, Ok(()), &[]),
            _ => {}
        }
    }
    assert_eq!(answered, [(3, Ok(()))]);
}

/// Whoever loses the disk would be told of 33 regions for each of them.
#[test]
fn a_change_that_passes_for_want_of_its_regions_asks_for_those_and_a_run_for_more() {
    let mut logged = Logged::new(CONFIG, Log::new(LIMITS, Ring::new(RING, 3), 0), &[]);
    logged.keep_regions(RegionImage::new(0, 100 * REGION_SECTORS));
    let bypass = Bypass::Large { bytes_min: 16 * 512 };
    logged.set_policy(0, LogPolicy { bypass, ..LogPolicy::default() });
    let map = |logged: &mut Logged, token, region| {
        let first = region * REGION_SECTORS;
        logged.submit(0, request(token, Wish::Write { fua: false }, first..first + 16));
        let orders = core::iter::from_fn(|| logged.next_order(0));
        orders.filter_map(|it| if let Order::WriteRegions { id, image } = it { Some((id, image)) } else { None }).last()
    };
    assert!(map(&mut logged, 1, 10).is_none());
    let (id, image) = map(&mut logged, 2, 40).expect("it may take either way");
    assert_eq!(image.dirty.iter().collect::<Vec<_>>(), [40, 41]);
    assert!(map(&mut logged, 3, 42).is_none());
    logged.done(0, id, Ok(()), &[]);
    let (_, image) = map(&mut logged, 4, 80).expect("a run goes on");
    assert_eq!(image.dirty.iter().collect::<Vec<_>>(), (42..44 + 32).collect::<Vec<_>>());
}
