//! A world: one seed's machine, through several lives of the process.
//!
//! A life goes through phases; each has its traffic and its faults. It ends in order or by a crash of the process or
//! the machine, at any I/O. In between, and at the end of the last life, everything comes to rest: then nothing may be
//! left under way, and what the cache serves has to be what the back ends hold.

use crate::back::Back;
use crate::bug::Bug;
use crate::dice::Dice;
use crate::front::Shared;
use crate::host::Generation;
use crate::ledger::{Count, Counted, Ledger, SharedLedger};
use crate::life::Life;
use crate::medium::Medium;
use crate::model_device::{Character, Disk, lose_power};
use crate::nbd_server::{Conduct, Server};
use crate::oracle::Oracle;
use crate::setup::{BackendKind, Setup};
use crate::traffic::Traffic;
use forebay_wire::disk::layout::TABLE_OFFSET;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;
/// Everything comes to rest within this time once nothing fails any more.
const REST_NS: u64 = 300 * SECOND_NS;
/// Faults that every seed has at least.
pub const FAULTS_MIN: u64 = 3;

/// Where a volume's bytes are.
#[derive(Clone, Debug)]
pub enum Store {
    /// On a disk of this machine.
    Disk(Rc<Disk>),
    /// Behind an NBD server.
    Server(Rc<Server>),
}

/// What outlives the process.
pub struct Machine {
    /// All of the world's chance.
    pub dice: Dice,
    /// See there.
    pub ledger: SharedLedger,
    /// See there.
    pub setup: Setup,
    /// See there.
    pub shared: Rc<Shared>,
    /// The cache disk, if there is one.
    pub disk: Option<Rc<Disk>>,
    /// By volume.
    pub stores: Vec<Store>,
    /// The state directory.
    pub generation: Rc<Generation>,
    /// A bit of a superblock flipped since the process started last: both may be damaged.
    pub superblock_doubtful: bool,
    /// Its volumes write back.
    pub back: Option<Back>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of everything that happened, in order.
    pub digest: u64,
    /// By [`Count`].
    pub counts: Vec<u64>,
    /// Client operations.
    pub operations: u64,
    /// Faults.
    pub faults: u64,
    /// Virtual time.
    pub now_ns: u64,
}

/// Runs a seed to its end, with a bug or without; `verbose`: telling line by line what happens.
///
/// # Panics
/// When a promise is broken; the message says which.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Outcome {
    let mut machine = Machine::new(seed, bug, verbose);
    loop {
        let mut life = Life::begin(&mut machine);
        let end = machine.live(&mut life);
        life.count_states();
        machine.end(life, end);
        if machine.is_done() {
            break;
        }
    }
    let mut life = Life::begin(&mut machine);
    machine.rest(&mut life, true);
    life.count_states();
    machine.outcome()
}

/// When a life is cut short.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// After the turn in which so many I/Os were counted.
    BetweenTurns { at: u64 },
    /// After so many I/Os from now: what follows in that turn has no effect.
    InTurn { ios: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ProcessCrash,
    MachineCrash,
    Stopped,
}

impl Machine {
    fn new(seed: u64, bug: Option<Bug>, verbose: bool) -> Self {
        let mut dice = Dice::new(seed);
        let ledger = Ledger::new(bug, verbose);
        let setup = Setup::draw(&mut dice);
        ledger.say(|| format!("seed {seed}: {setup:?}"));
        Self::of(setup, dice, ledger)
    }

    /// One that has never run.
    pub(crate) fn of(setup: Setup, mut dice: Dice, ledger: SharedLedger) -> Self {
        let sectors: Vec<u64> = setup.volumes.iter().map(|v| v.sectors).collect();
        let traffic = Traffic::draw(&mut dice, &sectors, u64::from(setup.page_bytes / 512), 8);
        let shared = Shared {
            oracle: RefCell::new(Oracle::new(&sectors)),
            traffic: RefCell::new(traffic),
            operations: Cell::new(0),
            writes: Cell::new(0),
            troubled: sectors.iter().map(|_| Cell::new(false)).collect(),
            generation_troubled: Cell::new(false),
        };
        let shared = Rc::new(shared);
        let stores = setup.volumes.iter().enumerate().map(|(at, volume)| {
            let what = match volume.backend {
                BackendKind::Local => Count::StateLocal,
                BackendKind::Coarse => Count::StateCoarse,
                BackendKind::Nbd { .. } => Count::StateNbd,
            };
            ledger.add(what, 1);
            let (bytes, latency_ns) = (volume.bytes(), setup.latency_ns[1]);
            if what != Count::StateNbd {
                return Store::Disk(Disk::new(bytes, latency_ns));
            }
            let (shared, ledger) = (Rc::clone(&shared), Rc::clone(&ledger));
            Store::Server(Server::new(at, bytes, latency_ns, shared, ledger, dice.fork()))
        });
        let stores = stores.collect();
        let disk = (setup.disk_bytes > 0).then(|| Disk::new(setup.disk_bytes, setup.latency_ns[0]));
        if disk.is_none() {
            ledger.add(Count::StateMemoryOnly, 1);
        }
        let generation = Rc::new(Generation::default());
        Self { dice, ledger, setup, shared, disk, stores, generation, superblock_doubtful: false, back: None }
    }

    /// What the back ends hold.
    #[must_use]
    pub fn truth(&self) -> Vec<Rc<RefCell<Medium>>> {
        self.stores
            .iter()
            .map(|store| match store {
                Store::Disk(disk) => Rc::clone(&disk.medium),
                Store::Server(server) => Rc::clone(&server.medium),
            })
            .collect()
    }

    pub(crate) fn faults(&self) -> u64 {
        let counts = self.ledger.counts();
        let of = |what: &&Count| what.name().0 == "fault";
        Count::ALL.iter().filter(of).map(|what| counts[*what as usize]).sum()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.shared.operations.get() >= self.setup.operations && self.faults() >= FAULTS_MIN
    }

    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            digest: self.ledger.digest(),
            counts: self.ledger.counts(),
            operations: self.shared.operations.get(),
            faults: self.faults(),
            now_ns: self.ledger.now_ns(),
        }
    }

    /// One life, up to its end.
    fn live(&mut self, life: &mut Life) -> End {
        let end = self.dice.pick(&[End::ProcessCrash, End::ProcessCrash, End::MachineCrash, End::Stopped]);
        self.heal();
        if life.had_table && self.dice.chance(300) {
            // What the table brought back, before anything changes.
            self.rest(life, true);
        }
        let until = self.shared.operations.get() + self.dice.between(40, 500);
        while self.shared.operations.get() < until {
            self.draw_phase(life);
            let crash = (end != End::Stopped && self.dice.chance(150)).then(|| self.draw_crash(300));
            if self.phase(life, crash) {
                return end;
            }
            match self.dice.below(10) {
                0 => self.rest(life, self.shared.operations.get().is_multiple_of(3)),
                1 | 2 => {
                    let crash = (end != End::Stopped && self.dice.chance(300)).then(|| self.draw_crash(20));
                    if self.idle(life, 5 * SECOND_NS, crash) {
                        return end;
                    }
                }
                _ => {}
            }
        }
        if end == End::Stopped && !self.stop(life) {
            return self.dice.pick(&[End::ProcessCrash, End::MachineCrash]);
        }
        end
    }

    /// When to crash: within so many I/Os.
    fn draw_crash(&mut self, ios_max: u64) -> Crash {
        let ios = self.dice.below(ios_max);
        if self.dice.chance(700) { Crash::InTurn { ios } } else { Crash::BetweenTurns { at: self.ledger.ios() + ios } }
    }

    /// One turn. True: it is time to crash.
    fn turn(&self, life: &mut Life, crash: Option<Crash>) -> bool {
        life.turn();
        if self.ledger.is_cut() {
            self.ledger.add(Count::StateCutTurn, 1);
            return true;
        }
        matches!(crash, Some(Crash::BetweenTurns { at }) if self.ledger.ios() >= at)
    }

    /// Runs until the phase has had its operations. True: it is time to crash.
    fn phase(&mut self, life: &mut Life, crash: Option<Crash>) -> bool {
        let operations = self.shared.operations.get() + self.dice.between(10, 150);
        let end_ns = self.ledger.now_ns() + 60 * SECOND_NS;
        life.shard.front().wake();
        let restart_at = self.draw_restart();
        let mut restart_at = restart_at.as_ref();
        self.arm(crash);
        while self.shared.operations.get() < operations && self.ledger.now_ns() < end_ns {
            if self.turn(life, crash) {
                return true;
            }
            if let Some((server, _, down_ns)) = restart_at.take_if(|(_, at, _)| self.ledger.ios() >= *at) {
                server.restart(*down_ns);
            }
        }
        self.ledger.restore();
        false
    }

    fn arm(&self, crash: Option<Crash>) {
        if let Some(Crash::InTurn { ios }) = crash {
            self.ledger.cut_after(ios);
        }
    }

    /// A server, the operation at which it restarts, and for how long it is gone then.
    fn draw_restart(&mut self) -> Option<(Rc<Server>, u64, u64)> {
        let Store::Server(server) = &self.stores[self.dice.below(self.stores.len() as u64) as usize] else {
            return None;
        };
        if !self.dice.chance(250) {
            return None;
        }
        let at = self.ledger.ios() + self.dice.below(200);
        let down_ns = self.dice.pick(&[0, 100_000_000, 2 * SECOND_NS, 45 * SECOND_NS]);
        if down_ns > 2 * SECOND_NS {
            self.ledger.count(Count::FaultOutage, down_ns, 0);
            server.trouble();
        }
        Some((Rc::clone(server), at, down_ns))
    }

    /// Time goes by without new requests. True: it is time to crash.
    fn idle(&mut self, life: &mut Life, for_ns: u64, crash: Option<Crash>) -> bool {
        self.shared.traffic.borrow_mut().on = false;
        let until_ns = self.ledger.now_ns() + for_ns;
        self.arm(crash);
        while self.ledger.now_ns() < until_ns {
            if self.turn(life, crash) {
                return true;
            }
        }
        self.ledger.restore();
        false
    }

    fn draw_phase(&mut self, life: &Life) {
        let sectors: Vec<u64> = self.setup.volumes.iter().map(|v| v.sectors).collect();
        let page = life.setup.page_bytes;
        let longest = forebay_core::CacheConfig::request_bytes_max_of(page) / 512;
        *self.shared.traffic.borrow_mut() =
            Traffic::draw(&mut self.dice, &sectors, u64::from(page / 512), u64::from(longest));
        self.heal();
        if let Some(disk) = self.disk.clone()
            && self.dice.chance(500)
        {
            let character = draw_character(&mut self.dice, disk.character.get(), true);
            disk.character.set(character);
            if self.dice.chance(150) {
                let bytes = disk.medium.borrow().bytes();
                self.rot(&disk, bytes);
            }
        }
        for (volume, store) in self.stores.iter().enumerate() {
            if !self.dice.chance(300) {
                continue;
            }
            match store {
                Store::Disk(disk) => {
                    let character = draw_character(&mut self.dice, disk.character.get(), false);
                    disk.character.set(character);
                    self.shared.troubled[volume].set(true);
                }
                Store::Server(server) => {
                    let conduct = draw_conduct(&mut self.dice, server.conduct.get());
                    server.conduct.set(conduct);
                }
            }
        }
        self.generation.fails.set(self.dice.chance(150));
    }

    /// All faults end.
    pub(crate) fn heal(&mut self) {
        if let Some(disk) = &self.disk {
            disk.character.set(Character::sound(self.setup.latency_ns[0]));
        }
        for store in &self.stores {
            match store {
                Store::Disk(disk) => disk.character.set(Character::sound(self.setup.latency_ns[1])),
                Store::Server(server) => {
                    server.conduct.set(Conduct::sound(self.setup.latency_ns[1]));
                    server.up_at_ns.set(0);
                }
            }
        }
        self.generation.fails.set(false);
    }

    /// A bit of the cache disk flips.
    pub(crate) fn rot(&mut self, disk: &Disk, bytes: u64) {
        let (what, from, to) = match self.dice.below(8) {
            0 => (Count::FaultSuperblockRot, 0, 8192),
            1 => (Count::FaultIntentRot, 8192, 8192 + 4096 * 2 * self.setup.volumes.len() as u64),
            2 | 3 => (Count::FaultTableRot, TABLE_OFFSET, TABLE_OFFSET + 4 * 4096),
            _ => (Count::FaultDiskRot, 1 << 20, bytes),
        };
        let byte = self.dice.between(from, to - 1);
        let bit = self.dice.below(8) as u32;
        self.ledger.count(what, byte, u64::from(bit));
        self.superblock_doubtful |= what == Count::FaultSuperblockRot;
        disk.medium.borrow_mut().rot(byte, bit);
    }

    /// Everything comes to rest and is looked at.
    pub(crate) fn rest(&mut self, life: &mut Life, compare: bool) {
        self.heal();
        self.shared.traffic.borrow_mut().on = false;
        self.run_until(life, |life| {
            let gauges = life.shard.cache().gauges();
            life.shard.front().is_quiet() && life.shard.cache().is_idle() && !gauges.recovering
        });
        self.flush(life);
        self.idle(life, 5 * SECOND_NS, None);
        self.run_until(life, |life| life.logs_have_followed());
        let gauges = life.shard.cache().gauges();
        if gauges.disk_attached && life.setup.intent_map {
            assert_eq!(gauges.intent_regions, 0, "regions are clear 5 s after the last write");
            assert_eq!(gauges.dirty_sectors, 0, "the table is written");
        }
        if compare {
            self.compare(life);
            self.run_until(life, |life| life.shard.front().is_quiet() && life.shard.cache().is_idle());
        }
        self.ledger.say(|| "all is at rest".to_owned());
    }

    pub(crate) fn run_until(&mut self, life: &mut Life, done: impl Fn(&mut Life) -> bool) {
        let end_ns = self.ledger.now_ns() + REST_NS;
        while !done(life) && !self.ledger.is_cut() {
            assert!(self.ledger.now_ns() < end_ns, "it does not come to rest: {:?}", life.shard.cache().gauges());
            life.turn();
        }
    }

    /// Flushes until it succeeds: once is enough if nothing had gone wrong.
    fn flush(&mut self, life: &mut Life) {
        for attempt in 0.. {
            life.shard.front().flush_all();
            let volumes = self.stores.len();
            self.run_until(life, |life| life.shard.front().flush_results().len() == volumes);
            if life.shard.front().flush_results().iter().all(Result::is_ok) {
                return;
            }
            assert!(attempt < 4, "flush after flush fails and nothing is wrong");
        }
    }

    /// Reads everything through the cache, and compares.
    fn compare(&mut self, life: &mut Life) {
        self.ledger.add(Count::StateWholeReadBack, 1);
        let portion = u64::from(life.setup.page_bytes / 512).max(128);
        for volume in 0..self.stores.len() {
            let sectors = self.setup.volumes[volume].sectors;
            for first in (0..sectors).step_by(portion as usize) {
                life.shard.front().compare(volume, first, portion.min(sectors - first));
                self.run_until(life, |life| life.shard.front().is_quiet());
            }
        }
    }

    /// An orderly stop. False: it ends in a crash.
    pub(crate) fn stop(&mut self, life: &mut Life) -> bool {
        {
            // Clients who go on are refused from now on; they should not fill the books.
            let mut traffic = self.shared.traffic.borrow_mut();
            traffic.on = self.dice.chance(500);
            traffic.think_ns = SECOND_NS;
        }
        let crash = self.dice.chance(250).then(|| Crash::InTurn { ios: self.dice.below(30) });
        self.arm(crash);
        life.shard.front().drain();
        self.run_until(life, |life| life.shard.front().drained().is_some());
        self.shared.traffic.borrow_mut().on = false;
        self.run_until(life, |life| life.shard.front().is_quiet());
        let crashed = self.ledger.is_cut();
        self.ledger.add(Count::StateCutStop, u64::from(crashed));
        self.ledger.restore();
        !crashed
    }

    /// The process is gone, one way or another.
    fn end(&mut self, life: Life, end: End) {
        self.ledger.say(|| format!("end: {end:?}"));
        drop(life);
        self.shared.oracle.borrow_mut().crashed();
        match end {
            End::Stopped if self.dice.chance(300) => self.power_fails(),
            End::Stopped => {}
            End::ProcessCrash => self.ledger.count(Count::FaultProcessCrash, 0, 0),
            End::MachineCrash => self.power_fails(),
        }
    }

    /// The machine stops; so do the back ends.
    pub(crate) fn power_fails(&mut self) {
        self.ledger.count(Count::FaultMachineCrash, 0, 0);
        if let Some(disk) = &self.disk {
            lose_power(disk, &self.ledger, &mut self.dice);
        }
        for store in &self.stores {
            match store {
                Store::Disk(disk) => {
                    lose_power(disk, &self.ledger, &mut self.dice);
                }
                Store::Server(server) => server.lose_power(),
            }
        }
        self.all_lose();
    }

    /// What no flush has covered may be gone.
    pub(crate) fn all_lose(&self) {
        let mut oracle = self.shared.oracle.borrow_mut();
        for volume in 0..self.stores.len() {
            oracle.lost(volume);
            oracle.excuse(volume);
        }
    }
}

fn draw_conduct(dice: &mut Dice, sound: Conduct) -> Conduct {
    let many = dice.pick(&[3, 30]);
    match dice.below(6) {
        0 => Conduct { errors: many, ..sound },
        1 => Conduct { slow: many * 3, slow_ns: 600_000_000, ..sound },
        2 => Conduct { slow: many / 3, slow_ns: dice.pick(&[15, 60]) * SECOND_NS, ..sound },
        3 => Conduct { flush_errors: many * 10, ..sound },
        4 => Conduct { cuts: many, ..sound },
        _ => Conduct { errors: many / 2, flush_errors: many, cuts: many / 3, ..sound },
    }
}

fn draw_character(dice: &mut Dice, sound: Character, is_disk: bool) -> Character {
    let kind = dice.below(if is_disk { 8 } else { 5 });
    let many = dice.pick(&[3, 30]);
    match kind {
        0 => Character { errors: many, ..sound },
        1 => Character { slow: many * 3, slow_ns: 600_000_000, ..sound },
        2 => Character { hangs: many / 3, hang_ns: dice.pick(&[15, 45]) * SECOND_NS, ..sound },
        3 => Character { dead: dice.chance(300), ..sound },
        4 => Character { errors: many / 2, slow: many, slow_ns: 150_000_000, ..sound },
        5 => Character { lost: many, ..sound },
        6 => Character { misdirected: many, ..sound },
        _ => Character { lost: many, misdirected: many, errors: many / 6, ..sound },
    }
}
