//! A run: one seed's machine, through many short lives.
//!
//! A life begins, perhaps dies in that, has phases of traffic and faults, and dies at the crash point that was drawn for it.
//! Now and then all comes to rest first: then the back ends have all that clients see, and were promised.

use super::bug::Bug;
use super::logs;
use super::seam::SharedLog;
use super::{Back, BackVolume};
use crate::back::epochs::Epochs;
use crate::content::value_in;
use crate::dice::Dice;
use crate::ledger::{Count, Ledger};
use crate::life::{Life, SimReactor};
use crate::log_world;
use crate::medium::Medium;
use crate::model_device::{Character, Disk, lose_power};
use crate::setup::{BackendKind, Setup, VolumeSetup};
use crate::table_check::check_table;
use crate::traffic::Traffic;
use crate::world::{Machine, Outcome, Store};
use forebay_core::log::logged::{Bypass, Durability, LogPolicy, OnLag};
use forebay_engine::attach::Plan;
use forebay_engine::devices::logged::Health;
use forebay_uring::Arena;
use forebay_wire::disk::log_tail::TAILS_BYTES;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;
/// The least ring that a log can have.
const RING_BYTES: u64 = 1 << 20;
/// Operations of a life, at most.
const OPERATIONS_MAX: u64 = 90;

/// Where a crash can be ordered, and how it is counted then.
const CRASHES: &[(Count, Count)] = &[
    (Count::WriteGroup, Count::CrashGroup),
    (Count::WriteTail, Count::CrashTail),
    (Count::ReadLog, Count::CrashReadLog),
    (Count::WriteBackend, Count::CrashRun),
    (Count::ZeroBackend, Count::CrashZero),
    (Count::WritePasses, Count::CrashPasses),
    (Count::FlushBackend, Count::CrashBackendFlush),
    (Count::BackendDone, Count::CrashBackendDone),
    (Count::FlushDisk, Count::CrashDiskFlush),
    (Count::DiskDone, Count::CrashDiskDone),
    (Count::WriteSlot, Count::CrashSlot),
    (Count::WriteTable, Count::CrashTable),
    (Count::WriteIntent, Count::CrashIntent),
    (Count::ReplyOk, Count::CrashReply),
];

/// Where a life ends.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// After so many I/Os.
    AtIo(u64),
    /// At the n-th of a kind.
    At(Count, Count, u64),
    /// After so many operations, between two turns.
    Between(u64),
}

/// Runs a seed to its end.
///
/// # Panics
/// When a promise is broken; the message says which.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Outcome {
    let mut machine = new(seed, bug, verbose);
    while !is_done(&mut machine) {
        let mut life = begin(&mut machine);
        live(&mut machine, &mut life);
        life.count_states();
        crash(&mut machine, Some(life));
    }
    let mut life = begin(&mut machine);
    rest(&mut machine, &mut life);
    life.count_states();
    machine.outcome()
}

fn back(machine: &mut Machine) -> &mut Back {
    machine.back.as_mut().expect("a machine that writes back")
}

fn is_done(machine: &mut Machine) -> bool {
    let back = back(machine);
    back.crashes >= back.crashes_min && machine.is_done()
}

fn new(seed: u64, bug: Option<Bug>, verbose: bool) -> Machine {
    let mut dice = Dice::new(seed);
    let in_machine = if let Some(Bug::Machine(bug)) = bug { Some(bug) } else { None };
    let ledger = Ledger::new(in_machine, verbose);
    let setup = draw(&mut dice);
    ledger.say(|| format!("seed {seed}: {setup:?}"));
    let volumes: Vec<BackVolume> = setup.volumes.iter().map(|_| BackVolume::default()).collect();
    let sectors: Vec<u64> = setup.volumes.iter().map(|volume| volume.sectors).collect();
    let (crashes_min, look_ios) = (dice.between(12, 25), dice.pick(&[7, 20, 50, 200]));
    let has_frail_disk = dice.chance(300);
    let mut machine = Machine::of(setup, dice, ledger);
    machine.shared.oracle.borrow_mut().epochs = Some(Epochs::new(&sectors));
    machine.back =
        Some(Back { bug, volumes, crashes: 0, crashes_min, look_ios, looked_at: 0, has_frail_disk, disk_before: None });
    machine
}

fn draw(dice: &mut Dice) -> Setup {
    let page_bytes: u32 = dice.pick(&[4096, 16384, 65536]);
    let volume = |dice: &mut Dice| VolumeSetup {
        sectors: dice.pick(&[300, 1000, 3000, 5000]),
        backend: BackendKind::Local,
        log_bytes: TAILS_BYTES as u64 + RING_BYTES + dice.pick(&[0, 4096, 1 << 18]),
    };
    let volumes: Vec<VolumeSetup> = (0..dice.pick(&[1, 1, 2])).map(|_| volume(dice)).collect();
    let slots = dice.pick(&[16, 24, 60, 300]).min(4 << 20 >> page_bytes.trailing_zeros()).max(16);
    let logs_bytes: u64 = volumes.iter().map(|volume| volume.log_bytes).sum();
    Setup {
        disk_bytes: (2 << 20) + slots * u64::from(page_bytes) + logs_bytes,
        page_bytes,
        volumes,
        operations: dice.between(1000, 1300),
        latency_ns: [dice.pick(&[20_000, 200_000, 2_000_000]), dice.pick(&[50_000, 1_000_000, 10_000_000])],
    }
}

/// Starts the process, however often that is cut short.
fn begin(machine: &mut Machine) -> Life {
    for attempt in 0.. {
        assert!(attempt < 40, "it cannot be started");
        machine.ledger.restore();
        machine.heal();
        if machine.dice.chance(250) {
            let what = machine.dice.pick(&[Count::ReadLog, Count::FlushDisk, Count::WriteTail, Count::FlushBackend]);
            match machine.dice.below(3) {
                0 => machine.ledger.cut_after(machine.dice.below(60)),
                _ => machine.ledger.cut_at(what, machine.dice.below(4)),
            }
        }
        // Power that went with the last operation of the start took that with it.
        if let Some(mut life) = Life::try_begin(machine).filter(|_| !machine.ledger.is_cut()) {
            machine.ledger.restore();
            draw_policies(machine, &mut life);
            return life;
        }
        let opens = machine.ledger.is_awaited.replace(false);
        machine.ledger.count(if opens { Count::CrashOpening } else { Count::CrashSettling }, 0, 0);
        machine.ledger.add(Count::StateLogAgain, 1);
        crash(machine, None);
    }
    unreachable!("it is started in the end")
}

/// The logs are open: what is lost is known, all else is what the volumes have. `None`: the process died meanwhile.
pub fn begun(
    machine: &mut Machine,
    plan: &Plan,
    logs: &[SharedLog],
    arena: &Arena,
    reactor: &mut SimReactor,
) -> Option<()> {
    let mut accepted = Vec::new();
    for (volume, log) in logs.iter().enumerate() {
        let lost = lost_of(machine, volume, log);
        let truth = machine.truth()[volume].borrow().current().chunks_exact(512).map(value_in).collect::<Vec<_>>();
        let shared = Rc::clone(&machine.shared);
        let mut oracle = shared.oracle.borrow_mut();
        let epochs = oracle.epochs.as_mut().expect("volumes write back");
        // Otherwise they were lost before.
        let newly = std::mem::take(&mut back(machine).volumes[volume].is_replaced);
        epochs.promise(volume, false, 0);
        for sector in lost.iter().cloned().flatten().filter(|_| newly) {
            epochs.begins_anew(volume, sector, truth[sector as usize].expect("no torn sector"));
        }
        epochs.are_gone(volume, lost.iter().cloned());
        let pending = &mut machine.back.as_mut().expect("a machine that writes back").volumes[volume].accepted;
        pending.resize(truth.len(), false);
        if !lost.is_empty() {
            machine.ledger.count(Count::StateLost, volume as u64, lost.len() as u64);
            shared.troubled[volume].set(true);
            if machine.dice.chance(400) {
                machine.ledger.count(Count::StateLossAccepted, volume as u64, 0);
                log.borrow().loss().accept();
                lost.into_iter().flatten().for_each(|sector| pending[sector as usize] = true);
                epochs.are_gone(volume, [].into_iter());
            }
        }
        // If the last start was cut short, they may have been accepted in that.
        let taken = pending.iter().zip(&truth).map(|(is_accepted, value)| value.filter(|_| *is_accepted));
        accepted.push(taken.collect());
    }
    let found = logs::settle(machine, logs, &accepted, arena, reactor)?;
    let truth: Vec<Rc<RefCell<Medium>>> = found.into_iter().map(|found| Rc::new(RefCell::new(found))).collect();
    if plan.recover {
        let oracle = machine.shared.oracle.borrow();
        let is_gone = |volume, sector| oracle.epochs.as_ref().is_some_and(|epochs| epochs.is_gone(volume, sector));
        let disk = machine.disk.as_ref().expect("there is a cache disk");
        check_table(&disk.medium.borrow(), plan, &truth, is_gone, &machine.ledger);
    }
    for volume in &mut back(machine).volumes {
        (volume.may_pass, volume.accepted) = (false, Vec::new());
    }
    Some(())
}

/// What passes the logs, and what a flush promises.
fn draw_policies(machine: &mut Machine, life: &mut Life) {
    use Durability::{Backend, Local};
    for (volume, log) in life.logs.iter().enumerate() {
        let dice = &mut machine.dice;
        let (durability, fua) = dice.pick(&[(Local, Local), (Local, Local), (Local, Backend), (Backend, Backend)]);
        let bytes_min = 512 * dice.pick(&[8, 32, 128]);
        let bypass =
            dice.pick(&[Bypass::Never, Bypass::Never, Bypass::Large { bytes_min }, Bypass::Large { bytes_min }]);
        let policy = LogPolicy {
            durability,
            fua,
            bypass,
            lag_max_ns: dice.pick(&[100_000_000, SECOND_NS, 60 * SECOND_NS]),
            on_lag: dice.pick(&[OnLag::Stall, OnLag::Continue]),
            runs_max: dice.pick(&[1, 2, u32::MAX]),
        };
        let policy = if dice.chance(100) { LogPolicy::THROUGH } else { policy };
        let what = if policy == LogPolicy::THROUGH { Count::StateBackThrough } else { Count::StateBack };
        machine.ledger.count(what, volume as u64, 0);
        let far = policy.durability == Backend;
        machine.ledger.count(if far { Count::StatePolicyBackend } else { Count::StatePolicyLocal }, volume as u64, 0);
        let mut oracle = machine.shared.oracle.borrow_mut();
        let now = oracle.flush_begins();
        oracle.epochs.as_mut().expect("volumes write back").promise(volume, far, now);
        let back = machine.back.as_mut().expect("a machine that writes back");
        let forgets = back.bug == Some(Bug::Log(log_world::bug::Bug::FlushLocal)) && policy != LogPolicy::THROUGH;
        let durability = if forgets { Local } else { policy.durability };
        log.borrow().control().set(LogPolicy { durability, ..policy });
        back.volumes[volume].may_pass |= policy.bypass != Bypass::Never;
    }
}

/// One life, up to its crash.
fn live(machine: &mut Machine, life: &mut Life) {
    let crash = draw_crash(machine);
    machine.ledger.say(|| format!("next: {crash:?}"));
    let begin = machine.shared.operations.get();
    let done = |machine: &Machine| machine.shared.operations.get() - begin;
    loop {
        draw_phase(machine, life);
        life.shard.front().wake();
        let until = done(machine) + machine.dice.between(5, 60);
        let until_ns = machine.ledger.now_ns() + 20 * SECOND_NS;
        while done(machine) < until && machine.ledger.now_ns() < until_ns {
            turn(machine, life);
            let told = match crash {
                Crash::AtIo(_) if machine.ledger.is_cut() => Count::CrashAtIo,
                Crash::At(_, told, _) if machine.ledger.is_cut() => told,
                Crash::Between(operations) if done(machine) >= operations => Count::CrashBetween,
                _ if done(machine) >= OPERATIONS_MAX => Count::CrashBetween,
                _ => continue,
            };
            return machine.ledger.count(told, 0, 0);
        }
        if machine.dice.chance(150) {
            draw_policies(machine, life);
        }
        match machine.dice.below(16) {
            0 | 1 => {
                machine.ledger.restore();
                rest(machine, life);
                return machine.ledger.count(Count::CrashAtRest, 0, 0);
            }
            2 => {
                machine.ledger.restore();
                machine.heal();
                life.logs.iter().for_each(|log| log.borrow().control().rest());
                let what = if machine.stop(life) { Count::CrashAtRest } else { Count::CrashStopping };
                return machine.ledger.count(what, 0, 0);
            }
            _ => {}
        }
        if machine.dice.chance(200) && idle(machine, life, crash) {
            return;
        }
    }
}

/// Time goes by without new requests: the cache sweeps, the back ends follow. True: the crash was met.
fn idle(machine: &mut Machine, life: &mut Life, crash: Crash) -> bool {
    machine.shared.traffic.borrow_mut().on = false;
    let until_ns = machine.ledger.now_ns() + 3 * SECOND_NS;
    while machine.ledger.now_ns() < until_ns {
        turn(machine, life);
        if machine.ledger.is_cut() {
            let told = if let Crash::At(_, told, _) = crash { told } else { Count::CrashAtIo };
            machine.ledger.count(told, 0, 0);
            return true;
        }
    }
    false
}

fn turn(machine: &mut Machine, life: &mut Life) {
    life.turn();
    logs::count_full(&life.logs, &machine.ledger);
    if life.logs.iter().any(|log| !log.borrow().logged().lost().is_empty()) {
        know_gone(machine, life);
    }
    let ios = machine.ledger.ios();
    let back = back(machine);
    if ios >= back.looked_at + back.look_ios && !machine.ledger.is_cut() {
        know_gone(machine, life);
        look(machine, Some(life.arena()));
    }
}

fn draw_crash(machine: &mut Machine) -> Crash {
    let dice = &mut machine.dice;
    let crash = match dice.below(10) {
        0 | 1 => Crash::AtIo(dice.below(600)),
        2 => Crash::Between(dice.below(OPERATIONS_MAX)),
        _ => {
            let (what, told) = dice.pick(CRASHES);
            let most = dice.pick(&[2, 6, 20]);
            Crash::At(what, told, dice.below(most))
        }
    };
    match crash {
        Crash::AtIo(ios) => machine.ledger.cut_after(ios),
        Crash::At(what, _, nth) => machine.ledger.cut_at(what, nth),
        Crash::Between(_) => {}
    }
    crash
}

fn draw_phase(machine: &mut Machine, life: &Life) {
    machine.heal();
    let sectors: Vec<u64> = machine.setup.volumes.iter().map(|volume| volume.sectors).collect();
    let page = life.setup.page_bytes;
    let longest = forebay_core::CacheConfig::request_bytes_max_of(page) / 512;
    let (dice, back) = (&mut machine.dice, machine.back.as_ref().expect("a machine that writes back"));
    let mut traffic = Traffic::draw(dice, &sectors, u64::from(page / 512), u64::from(longest));
    if dice.chance(600) {
        traffic.weights = dice.pick(&[[200, 600, 150, 20, 20, 10], [300, 500, 20, 60, 60, 20], [300, 600, 5, 5, 5, 5]]);
    }
    *machine.shared.traffic.borrow_mut() = traffic;
    let many = dice.pick(&[3, 30]);
    let disk = Rc::clone(machine.disk.as_ref().expect("there is a cache disk"));
    let sound = disk.character.get();
    let character = match dice.below(if back.has_frail_disk { 10 } else { 30 }) {
        0 => Character { errors: many, ..sound },
        1 => Character { errors: many, hangs: many, hang_ns: 15 * SECOND_NS, ..sound },
        2 => Character { dead: dice.chance(500), ..sound },
        3 => Character { lost: many, misdirected: many, ..sound },
        4..7 => Character { slow: many * 3, slow_ns: 150_000_000, ..sound },
        _ => sound,
    };
    disk.character.set(character);
    let rots = dice.chance(70);
    for (volume, store) in machine.stores.iter().enumerate() {
        let Store::Disk(store) = store else { continue };
        let sound = store.character.get();
        let character = match dice.below(8) {
            0 => Character { errors: many, ..sound },
            1 => Character { slow: many * 3, slow_ns: 600_000_000, ..sound },
            2 => Character { hangs: many / 3, hang_ns: dice.pick(&[5, 15]) * SECOND_NS, ..sound },
            3 => Character { errors: many, slow: many, slow_ns: 150_000_000, ..sound },
            _ => sound,
        };
        store.character.set(character);
        machine.shared.troubled[volume].set(true);
    }
    machine.generation.fails.set(machine.dice.chance(100));
    if rots {
        machine.rot(&disk, machine.setup.slots_end());
    }
}

/// All comes to rest, and the back ends have all.
fn rest(machine: &mut Machine, life: &mut Life) {
    machine.rest(life, true);
    if machine.ledger.is_cut() {
        return;
    }
    know_gone(machine, life);
    let mut oracle = machine.shared.oracle.borrow_mut();
    let epochs = oracle.epochs.as_mut().expect("volumes write back");
    (0..machine.stores.len()).for_each(|volume| epochs.follows(volume));
    drop(oracle);
    look(machine, Some(life.arena()));
}

/// What a log says is lost of its volume; the last region may go beyond that.
fn lost_of(machine: &Machine, volume: usize, log: &SharedLog) -> Vec<Range<u64>> {
    let sectors = machine.setup.volumes[volume].sectors;
    let log = log.borrow();
    log.logged().lost().iter().map(|lost| lost.sectors.start..lost.sectors.end.min(sectors)).collect()
}

/// What is lost, so far as the logs know.
fn know_gone(machine: &Machine, life: &Life) {
    let mut oracle = machine.shared.oracle.borrow_mut();
    let epochs = oracle.epochs.as_mut().expect("volumes write back");
    for (volume, log) in life.logs.iter().enumerate() {
        epochs.are_gone(volume, lost_of(machine, volume, log).into_iter());
    }
}

/// Looks at the back ends as if the cache disk were gone.
fn look(machine: &mut Machine, arena: Option<&Arena>) {
    let ios = machine.ledger.ios();
    back(machine).looked_at = ios;
    let oracle = machine.shared.oracle.borrow();
    let epochs = oracle.epochs.as_ref().expect("volumes write back");
    for (volume, store) in machine.stores.iter().enumerate() {
        let Store::Disk(store) = store else { continue };
        let sectors = machine.setup.volumes[volume].sectors as usize;
        let mut values = Vec::with_capacity(sectors * 2);
        store.each_possible(arena, |sector, value| values.push((sector, value)));
        let open = values.len() > sectors;
        let at = epochs.check(volume, values).unwrap_or_else(|wrong| panic!("without the cache disk {wrong}"));
        let behind = epochs.boundaries(volume) - 1 - at.end();
        machine.ledger.count(Count::StateImage, *at.start() as u64, *at.end() as u64);
        machine.ledger.add(Count::StateImageOpen, u64::from(open));
        machine.ledger.add(Count::StateImageFollows, u64::from(behind == 0));
        machine.ledger.add(Count::StateImageLags, u64::from(behind >= 8));
    }
}

/// The process is gone, and perhaps power with it, or the cache disk.
fn crash(machine: &mut Machine, life: Option<Life>) {
    back(machine).crashes += 1;
    if let Some(life) = life {
        know_gone(machine, &life);
        for (volume, log) in back(machine).volumes.iter_mut().zip(&life.logs) {
            volume.may_pass |= log.borrow().logged().health() != Health::Whole;
        }
        drop(life);
    }
    machine.shared.oracle.borrow_mut().crashed();
    machine.ledger.restore();
    look(machine, None);
    match machine.dice.below(12) {
        0..4 => machine.ledger.count(Count::FaultProcessCrash, 0, 0),
        4 | 5 => {
            machine.ledger.count(Count::FaultDiskPower, 0, 0);
            let disk = Rc::clone(machine.disk.as_ref().expect("there is a cache disk"));
            lose_power(&disk, &machine.ledger, &mut machine.dice);
            machine.all_lose();
        }
        6 | 7 => backends_lose_power(machine),
        8 | 9 => machine.power_fails(),
        nth => {
            replace_disk(machine);
            if nth == 11 {
                backends_lose_power(machine);
            }
        }
    }
    look(machine, None);
}

/// Another cache disk: an empty one, or one that was in use before and knows nothing of what came since. What may have become of
/// its superblocks goes with it.
fn replace_disk(machine: &mut Machine) {
    let before = back(machine).disk_before.take().filter(|_| machine.dice.chance(500));
    let what = if before.is_some() { Count::FaultDiskBack } else { Count::FaultDiskReplaced };
    machine.ledger.count(what, 0, 0);
    let empty = || (Disk::new(machine.setup.disk_bytes, machine.setup.latency_ns[0]), false);
    let (disk, doubtful) = before.unwrap_or_else(empty);
    let doubtful = std::mem::replace(&mut machine.superblock_doubtful, doubtful);
    let before = machine.disk.replace(disk).map(|disk| (disk, doubtful));
    back(machine).disk_before = before;
}

/// Where nothing may have passed the log, that costs nothing.
fn backends_lose_power(machine: &mut Machine) {
    machine.ledger.count(Count::FaultBackendPower, 0, 0);
    for volume in 0..machine.stores.len() {
        let Store::Disk(store) = &machine.stores[volume] else { continue };
        lose_power(store, &machine.ledger, &mut machine.dice);
        if machine.back.as_ref().is_some_and(|back| back.volumes[volume].may_pass) {
            let mut oracle = machine.shared.oracle.borrow_mut();
            oracle.lost(volume);
            oracle.excuse(volume);
        }
    }
}
