//! A run: one seed's disks and clients, through many lives of a logged device.
//!
//! A life opens the log, perhaps dies in that, reads the whole volume, goes through phases of traffic and faults, and
//! dies at the crash point that was drawn for it. Now and then all comes to rest: then the back end has all that the volume
//! has, for good.

use super::bug::Bug;
use super::clients::{Clients, FRAME_BYTES, Traffic};
use super::disk::{Conduct, Disk, DiskDevice, Fuse, Side};
use super::history::Losers;
use super::liar::{Liar, Lies, Surroundings};
use super::met::{CRASHES, Count, OPENING_CRASHES};
use super::{Ledger, promise};
use crate::content::value_in;
use crate::dice::Dice;
use crate::ledger::Counted;
use crate::world::Outcome;
use forebay_core::log::logged::{Bypass, Durability, LogPolicy, OnLag};
use forebay_engine::device::{Device, DeviceDone};
use forebay_engine::devices::logged::{LogOpenError, LogPlace, LoggedDevice, LoggedParts, MemoryRegions, RegionStore};
use forebay_engine::reactor::Reactor;
use forebay_uring::Arena;
use forebay_wire::disk::log_tail::{self, TAILS_BYTES};
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;
/// All comes to rest within this time once nothing fails any more.
const REST_NS: u64 = 300 * SECOND_NS;
/// A crash point that is not met so soon is one between two turns.
const REQUESTS_MAX: u64 = 90;
/// The least ring that a log can have.
const RING_BYTES: u64 = 1 << 20;

/// What stays through all lives.
#[derive(Clone, Debug)]
struct Setup {
    sectors: u64,
    ring_bytes: u64,
    /// Of the log's disk and the back end, at most.
    latency_ns: [u64; 2],
    operations: u64,
    crashes: u64,
    /// I/Os between two looks at the back end.
    look_ios: u64,
}

impl Setup {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            sectors: dice.pick(&[200, 512, 1000, 2048]),
            ring_bytes: RING_BYTES + dice.pick(&[0, 4096, 1 << 18]),
            latency_ns: [dice.pick(&[20_000, 200_000, 2_000_000]), dice.pick(&[50_000, 1_000_000, 10_000_000])],
            operations: dice.between(1000, 1300),
            crashes: dice.between(15, 30),
            look_ios: dice.pick(&[1, 7, 20, 50]),
        }
    }
}

/// Where a life ends.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// After so many I/Os.
    AtIo(u64),
    /// At the n-th of a kind.
    At(Count, Count, u64),
    /// After so many requests, between two turns.
    Between(u64),
}

/// Virtual time: waiting moves it.
struct Clock(Ledger);

impl Reactor for Clock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn wait(&mut self, until_ns: u64) {
        self.0.set_now_ns(self.0.now_ns().max(until_ns));
    }
}

struct World {
    dice: Dice,
    ledger: Ledger,
    fuse: Rc<Fuse>,
    setup: Setup,
    place: LogPlace,
    arena: Rc<Arena>,
    log: Rc<Disk>,
    backend: Rc<Disk>,
    lies: Rc<Lies>,
    /// The region map, if there is one.
    regions: Option<MemoryRegions>,
    clients: Clients,
    done: Vec<DeviceDone>,
    crashes: u64,
    looked_at: u64,
    still_turns: u32,
    /// Of this life's log, flushes of the back end that failed.
    failed_flushes: u64,
    /// How many had when the back end lost something that was not told yet.
    shaken_at: Option<u64>,
}

/// Runs a seed to its end.
///
/// # Panics
/// When a promise is broken; the message says which.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Outcome {
    let mut world = World::new(seed, bug, verbose);
    while world.crashes < world.setup.crashes || world.clients.asked < world.setup.operations {
        let mut device = world.open();
        world.live(&mut device);
        world.crash(Some(device));
    }
    let mut device = world.open();
    world.rest(&mut device);
    world.ledger.add(Count::StateOverwrite, world.clients.history.overwritten);
    let counts = world.ledger.counts();
    let faults = Count::ALL.iter().filter(|what| matches!(what.name().0, "fault" | "crash"));
    Outcome {
        digest: world.ledger.digest(),
        operations: world.clients.asked,
        faults: faults.map(|what| counts[*what as usize]).sum(),
        counts,
        now_ns: world.ledger.now_ns(),
    }
}

impl World {
    fn new(seed: u64, bug: Option<Bug>, verbose: bool) -> Self {
        let mut dice = Dice::new(seed);
        let ledger: Ledger = crate::ledger::Ledger::new(bug, verbose);
        let setup = Setup::draw(&mut dice);
        ledger.say(|| format!("seed {seed}: {setup:?}"));
        let frames = Clients::FRAMES + LoggedDevice::frames(FRAME_BYTES);
        let arena = Rc::new(Arena::new(frames, FRAME_BYTES).expect("memory for frames"));
        let bytes = TAILS_BYTES as u64 + setup.ring_bytes;
        let place = LogPlace { offset: 0, bytes, seed: 11, space: 1, in_use: false };
        Self {
            clients: Clients::new(setup.sectors, Rc::clone(&ledger), Rc::clone(&arena), dice.fork()),
            log: Disk::new(Side::Log, bytes, setup.latency_ns[0]),
            backend: Disk::new(Side::Backend, setup.sectors * 512, setup.latency_ns[1]),
            lies: Rc::new(Lies::new(place)),
            fuse: Rc::new(Fuse::default()),
            regions: dice.chance(500).then(MemoryRegions::default),
            dice,
            ledger,
            setup,
            place,
            arena,
            done: Vec::new(),
            crashes: 0,
            looked_at: 0,
            still_turns: 0,
            failed_flushes: 0,
            shaken_at: None,
        }
    }

    fn device(&mut self, disk: &Rc<Disk>) -> Box<dyn Device> {
        let (arena, ledger, fuse) = (Rc::clone(&self.arena), Rc::clone(&self.ledger), Rc::clone(&self.fuse));
        let device =
            DiskDevice::new(Rc::clone(disk), Rc::clone(&arena), Rc::clone(&ledger), Rc::clone(&fuse), self.dice.fork());
        let surroundings = Surroundings {
            side: disk.side,
            medium: Rc::clone(&disk.medium),
            bug: ledger.bug(),
            own_frames: Clients::FRAMES,
            is_cut: Box::new(move || ledger.is_cut()),
            is_opening: Box::new(move || fuse.opening.get()),
        };
        Box::new(Liar::new(device, surroundings, Rc::clone(&self.lies), arena, self.dice.fork()))
    }

    /// Opens the log and reads the volume, however often that is cut short.
    fn open(&mut self) -> LoggedDevice {
        for attempt in 0u64.. {
            assert!(attempt < 40, "the log cannot be opened");
            self.heal();
            if self.dice.chance(100) {
                // Opening has no second try of its own.
                self.log.conduct.set(Conduct { read_errors: 100, ..self.log.conduct.get() });
                self.backend.conduct.set(Conduct { flush_errors: 300, ..self.backend.conduct.get() });
            }
            let told = self.arm_opening();
            let (disk, backend) = (Rc::clone(&self.log), Rc::clone(&self.backend));
            let parts = LoggedParts {
                disk: self.device(&disk),
                place: self.place,
                backend: self.device(&backend),
                arena: Rc::clone(&self.arena),
                first_frame: Clients::FRAMES,
                regions: self.regions.as_ref().map(|kept| Box::new(kept.reopened()) as Box<dyn RegionStore>),
            };
            self.fuse.opening.set(true);
            let opened = LoggedDevice::open(parts, &mut Clock(Rc::clone(&self.ledger)));
            self.fuse.opening.set(false);
            let device = match opened {
                Ok(device) => Some(device),
                Err(LogOpenError::Io { .. }) if self.ledger.is_cut() => None,
                Err(LogOpenError::Io { .. }) => {
                    self.ledger.count(Count::FaultOpen, 0, 0);
                    // Whoever starts it was told.
                    let backend = self.backend.dropped.take();
                    self.clients.history.lost(Losers { backend, log: false });
                    continue;
                }
                Err(error) => panic!("the log cannot be opened: {error}"),
            };
            if let Some(device) = self.begin(device)
                && !self.ledger.is_cut()
            {
                return device;
            }
            self.count_crash(told);
            self.ledger.add(Count::StateAgain, 1);
            self.crash(None);
        }
        unreachable!("it is opened in the end")
    }

    /// Draws whether the log's opening is cut short.
    fn arm_opening(&mut self) -> Option<Count> {
        if !self.dice.chance(250) {
            self.fuse.disarm();
            return None;
        }
        if self.dice.chance(200) {
            // In what follows upon it, as the volume is read.
            self.ledger.cut_after(self.dice.below(40));
            return Some(Count::CrashAtIo);
        }
        let (what, told) = self.dice.pick(OPENING_CRASHES);
        let nth = if what == Count::ScanEnded { self.dice.below(8) } else { 0 };
        self.fuse.arm(what, nth);
        Some(told)
    }

    /// The log is open: what it found becomes what the volume is. `None`: the process died meanwhile.
    fn begin(&mut self, device: Option<LoggedDevice>) -> Option<LoggedDevice> {
        let mut device = device?;
        let log = device.logged().log();
        let records = log.next() - log.tail().first;
        self.ledger.count(if records > 0 { Count::StateRecovered } else { Count::StateEmpty }, records, log.next());
        // Nothing is served before that is known for good.
        self.place.in_use = true;
        self.clients.begin(log.next());
        self.failed_flushes = 0;
        self.clients.history.opened(log.next());
        self.heal();
        self.clients.troubled = false;
        self.clients.traffic = None;
        self.clients.found = Default::default();
        self.clients.history.are_gone(device.logged().lost().iter().map(|lost| lost.sectors));
        self.read_all(&mut device, true);
        if self.ledger.is_cut() {
            // What it had under way is torn as it goes.
            return Some(device);
        }
        self.clients.history.settled();
        let found = self.clients.found;
        self.ledger.add(Count::StateSettled, 1);
        self.ledger.add(Count::StateMore, found.more);
        self.ledger.add(Count::StateLess, found.less);
        self.ledger.add(Count::StateMoved, found.moved);
        self.fuse.disarm();
        self.ledger.restore();
        Some(device)
    }

    /// One life, up to its crash.
    fn live(&mut self, device: &mut LoggedDevice) {
        self.draw_policy(device);
        let crash = self.draw_crash();
        self.ledger.say(|| format!("next: {crash:?}"));
        let end = self.clients.asked + REQUESTS_MAX;
        loop {
            self.draw_phase();
            let until = self.clients.asked + self.dice.between(5, 60);
            let until_ns = self.ledger.now_ns() + 20 * SECOND_NS;
            while self.clients.asked < until && self.ledger.now_ns() < until_ns {
                self.turn(device);
                let told = match crash {
                    Crash::AtIo(_) if self.ledger.is_cut() => Count::CrashAtIo,
                    Crash::At(_, told, _) if self.ledger.is_cut() => told,
                    Crash::Between(requests) if self.clients.asked + REQUESTS_MAX >= end + requests => {
                        Count::CrashBetween
                    }
                    _ if self.clients.asked >= end => Count::CrashBetween,
                    _ if device.logged().is_broken() && self.dice.chance(50) => Count::CrashBetween,
                    _ => continue,
                };
                return self.count_crash(Some(told));
            }
            if self.dice.chance(100) {
                self.draw_policy(device);
                self.ledger.add(Count::PolicyChanged, 1);
            }
            if !device.logged().is_broken() && self.dice.chance(100) {
                self.fuse.disarm();
                self.ledger.restore();
                self.rest(device);
                return self.count_crash(Some(Count::CrashBetween));
            }
        }
    }

    /// What passes the log, and what a flush promises.
    fn draw_policy(&mut self, device: &LoggedDevice) {
        use Durability::{Backend, Local};
        let (durability, fua) = self.dice.pick(&[(Local, Local), (Local, Local), (Local, Backend), (Backend, Backend)]);
        let bytes_min = 512 * self.dice.pick(&[1, 8, 32, 128]);
        let bypass =
            self.dice.pick(&[Bypass::Never, Bypass::Large { bytes_min }, Bypass::Large { bytes_min }, Bypass::All]);
        let lag_max_ns = self.dice.pick(&[100_000_000, SECOND_NS, 60 * SECOND_NS]);
        let on_lag = self.dice.pick(&[OnLag::Stall, OnLag::Continue]);
        let runs_max = self.dice.pick(&[1, 2, u32::MAX]);
        let policy = LogPolicy { durability, fua, bypass, lag_max_ns, on_lag, runs_max };
        self.clients.policy(&policy);
        let forgets = self.ledger.has(Bug::FlushLocal);
        device.control().set(LogPolicy { durability: if forgets { Local } else { durability }, ..policy });
        let far = match (durability, fua) {
            (Backend, _) => Count::PolicyBackend,
            (Local, Backend) => Count::PolicyFuaBackend,
            (Local, Local) => Count::PolicyLocal,
        };
        let passes = match bypass {
            Bypass::Never => Count::PolicyNever,
            Bypass::Large { .. } => Count::PolicyLarge,
            Bypass::All => Count::PolicyAll,
        };
        self.ledger.count(far, 0, 0);
        self.ledger.count(passes, 0, 0);
    }

    fn draw_crash(&mut self) -> Crash {
        let crash = match self.dice.below(10) {
            0 | 1 => Crash::AtIo(self.dice.below(300)),
            2 => Crash::Between(self.dice.below(REQUESTS_MAX)),
            _ => {
                let (what, told) = self.dice.pick(CRASHES);
                let most = self.dice.pick(&[2, 6, 20]);
                Crash::At(what, told, self.dice.below(most))
            }
        };
        match crash {
            Crash::AtIo(ios) => self.ledger.cut_after(ios),
            Crash::At(what, _, nth) => self.fuse.arm(what, nth),
            Crash::Between(_) => {}
        }
        crash
    }

    fn draw_phase(&mut self) {
        self.clients.traffic = Some(Traffic::draw(&mut self.dice, self.setup.sectors));
        let [log_ns, backend_ns] = self.setup.latency_ns;
        let (mut log, mut backend) = (Conduct::sound(log_ns), Conduct::sound(backend_ns));
        let many = self.dice.pick(&[5, 50]);
        match self.dice.below(10) {
            0 => log.rot = many * 4,
            1 => log.stale = many * 4,
            2 => log.read_errors = many,
            3 if self.dice.chance(300) => (log.write_errors, log.flush_errors) = (many, many),
            4 => log.slow = many,
            _ => {}
        }
        match self.dice.below(10) {
            0 => backend.write_errors = many,
            1 => backend.flush_errors = many * 10,
            2 => backend.read_errors = many,
            3 => backend.slow = many * 3,
            4 => backend.restarts = many / 2,
            5 => (backend.write_errors, backend.flush_errors, backend.restarts) = (many, many, many / 5),
            _ => {}
        }
        self.log.conduct.set(log);
        self.backend.conduct.set(backend);
        self.clients.troubled = true;
    }

    /// All faults end.
    fn heal(&self) {
        self.log.conduct.set(Conduct::sound(self.setup.latency_ns[0]));
        self.backend.conduct.set(Conduct::sound(self.setup.latency_ns[1]));
    }

    /// One turn: what is to be asked is asked, what ended is looked at, and time goes on.
    fn turn(&mut self, device: &mut LoggedDevice) {
        let now_ns = self.ledger.now_ns();
        let asked = self.clients.asked;
        self.clients.ask(now_ns, device);
        self.clients.watch(device.logged().log());
        self.done.clear();
        device.poll(now_ns, &mut self.done);
        self.clients.watch(device.logged().log());
        self.shake();
        let refused = self.clients.refused(&self.done);
        self.clients.ended(now_ns, &self.done, device);
        self.doubt(device, refused);
        self.clients.watch(device.logged().log());
        if self.ledger.is_cut() {
            return;
        }
        self.follow(device);
        if self.ledger.ios() >= self.looked_at + self.setup.look_ios {
            self.look();
        }
        let moved = !self.done.is_empty() || self.clients.asked > asked;
        let next_ns = [device.next_ns(), self.clients.next_ns()].into_iter().flatten().min();
        let next_ns = if moved { 0 } else { next_ns.unwrap_or(now_ns + 10_000_000) };
        self.ledger.set_now_ns(next_ns.max(now_ns + 100));
        self.still_turns = if moved || next_ns > now_ns { 0 } else { self.still_turns + 1 };
        let stands = self.still_turns >= 100_000;
        assert!(!stands, "turns go by and nothing happens: {next_ns} {now_ns} {:?}", device.logged());
    }

    /// Whether the back end has lost something, which it will tell with its next flush.
    fn shake(&mut self) {
        if self.backend.dropped.get() && self.shaken_at.is_none() {
            (self.shaken_at, self.clients.history.shaken) = (Some(self.failed_flushes), true);
        }
    }

    /// What was told as lost.
    fn doubt(&mut self, device: &mut LoggedDevice, refused: bool) {
        let mut doubts = Vec::new();
        device.in_doubt(&mut doubts);
        self.clients.told_lost(&doubts, refused);
        if self.shaken_at.is_some_and(|before| self.failed_flushes > before) {
            // A flush has failed since, in an earlier turn: all was told.
            (self.shaken_at, self.clients.history.shaken) = (None, false);
            self.backend.dropped.set(false);
        }
        self.failed_flushes = device.logged().counts().failed_flushes;
    }

    /// What the log says of the back end.
    fn follow(&mut self, device: &LoggedDevice) {
        let log = device.logged().log();
        self.clients.history.follows(log.tail().first, false);
        self.clients.history.are_gone(device.logged().lost().iter().map(|lost| lost.sectors));
        self.ledger.add(Count::StateFull, u64::from(log.is_full()));
    }

    /// Looks at the back end as if the log's disk were gone.
    fn look(&mut self) {
        self.looked_at = self.ledger.ios();
        let copies = self.log.medium.borrow().current()[..TAILS_BYTES].to_vec();
        if let log_tail::Found::Tail(tail) = log_tail::newest(self.place.seed, self.place.space, &copies) {
            self.clients.history.follows(tail.first_record, true);
        }
        let mut values = Vec::with_capacity(self.setup.sectors as usize * 2);
        self.backend.each_possible(&self.arena, |sector, value| values.push((sector, value)));
        let open = values.len() > self.setup.sectors as usize;
        values.retain(|(sector, _)| !self.clients.history.is_gone(*sector));
        let found = promise::check(&self.clients.history, values);
        let at = found.unwrap_or_else(|wrong| panic!("without its log {wrong}"));
        let behind = self.clients.history.boundaries().len() - 1 - at.end();
        self.ledger.count(Count::StateImage, *at.start() as u64, *at.end() as u64);
        self.ledger.add(Count::StateImageOpen, u64::from(open));
        self.ledger.add(Count::StateImageFollows, u64::from(behind == 0));
        self.ledger.add(Count::StateImageLags, u64::from(behind >= 8));
    }

    fn count_crash(&mut self, told: Option<Count>) {
        self.ledger.count(told.unwrap_or(Count::CrashAtIo), self.crashes, 0);
    }

    /// The process is gone, and perhaps power with it.
    fn crash(&mut self, device: Option<LoggedDevice>) {
        self.crashes += 1;
        self.fuse.disarm();
        if let Some(device) = device {
            self.clients.watch(device.logged().log());
            self.ledger.add(Count::StatePassFailed, device.logged().counts().failed_bypasses);
            self.ledger.add(Count::StateLostAlone, device.logged().bad_blocks());
        }
        self.clients.crashed();
        let mut losers = Losers { log: self.log.dropped.take(), backend: self.backend.dropped.take() };
        (self.shaken_at, self.clients.history.shaken) = (None, false);
        let what = match self.dice.below(10) {
            0..4 => Count::FaultProcessCrash,
            4 | 5 => Count::FaultLogPower,
            6 | 7 => Count::FaultBackendPower,
            _ => Count::FaultBothPower,
        };
        self.ledger.count(what, 0, 0);
        if matches!(what, Count::FaultLogPower | Count::FaultBothPower) {
            self.log.lose_power(&self.ledger, &mut self.dice);
            losers.log = true;
            if self.ledger.has(Bug::GroupMended) {
                self.lies.mend(&self.log.medium);
            }
        }
        if matches!(what, Count::FaultBackendPower | Count::FaultBothPower) {
            self.backend.lose_power(&self.ledger, &mut self.dice);
            losers.backend = true;
        }
        self.clients.history.lost(losers);
        // Whoever is told of a loss is gone.
        self.log.owes.set(false);
        self.backend.owes.set(self.backend.owes.get() && self.dice.chance(500));
        self.look();
        self.ledger.restore();
    }

    /// All comes to rest: the back end has what the volume has, for good.
    fn rest(&mut self, device: &mut LoggedDevice) {
        self.clients.traffic = None;
        self.run_until(device, |world, _| world.clients.is_quiet());
        self.heal();
        if device.logged().is_broken() || self.ledger.is_cut() {
            return;
        }
        // What came in doubt is told by a flush.
        for _ in 0..3 {
            let now_ns = self.ledger.now_ns();
            self.clients.flush(now_ns, device);
            self.run_until(device, |world, device| world.clients.is_quiet() && device.logged().has_followed());
        }
        self.clients.troubled = false;
        self.read_all(device, false);
        self.run_until(device, |_, device| device.logged().is_idle());
        self.look();
        let medium = self.backend.medium.borrow();
        let values: Vec<Option<u64>> = medium.durable().chunks_exact(512).map(value_in).collect();
        drop(medium);
        for run in self.clients.history.there(u64::MAX) {
            let here = self.clients.history.read(run.start, &values[run.start as usize..run.end as usize]);
            here.unwrap_or_else(|wrong| panic!("all is at rest, and the back end lacks something: {wrong}"));
        }
        self.ledger.count(Count::StateRest, 0, 0);
    }

    /// Reads all that is not gone.
    fn read_all(&mut self, device: &mut LoggedDevice, settles: bool) {
        for run in self.clients.history.there(500) {
            self.run_until(device, |world, _| world.clients.has_room());
            if !self.ledger.is_cut() {
                let now_ns = self.ledger.now_ns();
                self.clients.read(now_ns, run, settles, device);
            }
        }
        self.run_until(device, |world, _| world.clients.is_quiet());
    }

    fn run_until(&mut self, device: &mut LoggedDevice, done: impl Fn(&Self, &LoggedDevice) -> bool) {
        let end_ns = self.ledger.now_ns() + REST_NS;
        while !done(self, device) && !self.ledger.is_cut() {
            let rests = self.ledger.now_ns() < end_ns;
            assert!(rests, "it does not come to rest: {:?}", device.logged());
            self.turn(device);
        }
    }
}
