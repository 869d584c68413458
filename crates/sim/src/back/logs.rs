//! Opening the logs of a life, as `forebay serve` does; and reading what they make of the volumes before anybody is served.
//!
//! Blocking, and so it may be cut short: then the process is gone.

use super::Back;
use super::bug::Bug;
use super::seam::{Regions, Seam, SharedLog};
use crate::content::{SECTOR_BYTES, value_in};
use crate::dice::Dice;
use crate::ledger::{Count, SharedLedger};
use crate::life::SimReactor;
use crate::log_world::disk::Side;
use crate::log_world::liar::{Liar, Surroundings};
use crate::medium::Medium;
use crate::span::each_part;
use crate::world::{Machine, Store};
use forebay_core::{FrameId, VolumeId};
use forebay_engine::attach::CacheDisk;
use forebay_engine::device::{Device, DeviceOp, IoError, OpKind};
use forebay_engine::devices::logged::{LogOpenError, LogPlace, LoggedDevice, LoggedParts};
use forebay_engine::devices::shared::Shared;
use forebay_engine::reactor::Reactor;
use forebay_engine::shard::ShardDisk;
use forebay_uring::Arena;
use std::cell::RefCell;
use std::rc::Rc;

/// Sectors of a read of what was recovered.
const READ_SECTORS: u64 = 256;

/// Frames that the logs of a machine need.
#[must_use]
pub fn frames(machine: &Machine, page_bytes: u32) -> u32 {
    let logs = machine.setup.volumes.iter().filter(|volume| volume.log_bytes > 0).count() as u32;
    logs * frames_each(page_bytes)
}

/// Those of its log, and one of the seam's.
fn frames_each(page_bytes: u32) -> u32 {
    LoggedDevice::frames(page_bytes) + 1
}

/// What opening needs.
pub struct Around<'a> {
    /// The life's arena.
    pub arena: &'a Rc<Arena>,
    /// The first frame that is not the cache's own.
    pub own_frames: u32,
    /// The first of [`frames`].
    pub first_frame: u32,
    /// Time.
    pub reactor: SimReactor,
}

/// Puts logs before the back ends. `None`: the process died meanwhile.
pub fn open_all(
    machine: &mut Machine,
    disk: ShardDisk,
    backends: &mut Vec<Box<dyn Device>>,
    mut around: Around<'_>,
) -> Option<(ShardDisk, Vec<SharedLog>)> {
    machine.ledger.is_awaited.set(true);
    let ShardDisk { device, mut format } = disk;
    let weights: Vec<u32> = backends.iter().map(|_| machine.dice.pick(&[1, 1, 5])).collect();
    let (of_cache, of_volumes) = Shared::split(device, &weights);
    let mut cache: Box<dyn Device> = Box::new(of_cache);
    let mut logs = Vec::new();
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    let mut frame = around.first_frame;
    for ((volume, backend), handle) in backends.drain(..).enumerate().zip(of_volumes) {
        let log = open(machine, volume, &format, (Box::new(handle), backend), (frame, &mut around))?;
        let log = Rc::new(RefCell::new(log));
        frame += frames_each(around.arena.frame_bytes());
        let bug = if let Some(Bug::Seam(bug)) = back(machine).bug { Some(bug) } else { None };
        let (arena, ledger) = (Rc::clone(around.arena), Rc::clone(&machine.ledger));
        let seam = Seam::new(Rc::clone(&log), arena, ledger, bug, machine.dice.fork(), FrameId(frame - 1));
        devices.push(Box::new(seam));
        logs.push(log);
    }
    *backends = devices;
    let scratch = (&**around.arena, FrameId(around.first_frame));
    format.logs_are_open(&mut *cache, &mut around.reactor, scratch).ok()?;
    machine.ledger.is_awaited.set(false);
    (!machine.ledger.is_cut()).then_some((ShardDisk { device: cache, format }, logs))
}

fn back(machine: &mut Machine) -> &mut Back {
    machine.back.as_mut().expect("a machine that writes back")
}

fn open(
    machine: &mut Machine,
    volume: usize,
    disk: &CacheDisk,
    (handle, backend): (Box<dyn Device>, Box<dyn Device>),
    (first_frame, around): (u32, &mut Around<'_>),
) -> Option<LoggedDevice> {
    let id = VolumeId(volume as u16);
    let area = disk.log(id).expect("each volume has a log");
    let (offset, bytes, in_use) = (area.offset, area.bytes, area.in_use);
    let place = LogPlace { offset, bytes, seed: disk.seed(), space: disk.space(id), in_use };
    let cache_id = disk.superblock().cache_id;
    let cache_disk = Rc::clone(&machine.disk.as_ref().expect("there is a cache disk").medium);
    let Store::Disk(store) = &machine.stores[volume] else { unreachable!("a local back end") };
    let store = Rc::clone(&store.medium);
    let (ledger, dice) = (Rc::clone(&machine.ledger), &mut machine.dice);
    let back = machine.back.as_mut().expect("a machine that writes back");
    let each = &mut back.volumes[volume];
    if each.cache_id.replace(cache_id).is_some_and(|before| before != cache_id) {
        each.regions.disk_is_another();
        each.is_replaced = true;
    }
    let lies = each.lies_at(place);
    let seam_bug = if let Some(Bug::Seam(bug)) = back.bug { Some(bug) } else { None };
    let log_bug = if let Some(Bug::Log(bug)) = back.bug { Some(bug) } else { None };
    let regions = Regions::reopened(&back.volumes[volume].regions, seam_bug);
    let surroundings = |side, medium| Surroundings {
        side,
        medium,
        bug: log_bug,
        own_frames: around.own_frames,
        is_cut: {
            let ledger = Rc::clone(&ledger);
            Box::new(move || ledger.is_cut())
        },
        is_opening: {
            let ledger = Rc::clone(&ledger);
            Box::new(move || ledger.is_awaited.get())
        },
    };
    let arena = Rc::clone(around.arena);
    let liar = |inner, surroundings, dice: Dice| -> Box<dyn Device> {
        Box::new(Liar::new(inner, surroundings, Rc::clone(&lies), Rc::clone(&arena), dice))
    };
    let parts = LoggedParts {
        disk: liar(handle, surroundings(Side::Log, cache_disk), dice.fork()),
        place,
        backend: liar(backend, surroundings(Side::Backend, store), dice.fork()),
        arena: Rc::clone(&arena),
        first_frame,
        regions: Some(Box::new(regions)),
    };
    match LoggedDevice::open(parts, &mut around.reactor) {
        Ok(log) => {
            let records = log.logged().log().next() - log.logged().log().tail().first;
            ledger.count(if records > 0 { Count::StateLogRecovered } else { Count::StateLogEmpty }, records, 0);
            Some(log)
        }
        Err(LogOpenError::Io { .. }) if ledger.is_cut() => None,
        Err(error) => panic!("the log of volume {volume} cannot be opened: {error}"),
    }
}

/// Reads what the logs and the back ends make of the volumes: that is what they have from now on. What is lost is not
/// there. `accepted`: what the back ends have of sectors whose loss was accepted. `None`: the process died meanwhile.
pub fn settle(
    machine: &mut Machine,
    logs: &[SharedLog],
    accepted: &[Vec<Option<u64>>],
    arena: &Arena,
    reactor: &mut SimReactor,
) -> Option<Vec<Medium>> {
    let mut volumes = Vec::new();
    for (volume, log) in logs.iter().enumerate() {
        let sectors = machine.setup.volumes[volume].sectors;
        let mut found = Medium::new(sectors * SECTOR_BYTES as u64);
        let mut values = Vec::new();
        // What is accepted is so when the log is next polled.
        log.borrow_mut().poll(reactor.now_ns(), &mut Vec::new());
        for run in there(log, sectors) {
            let begin = machine.shared.oracle.borrow_mut().read_begins();
            let (offset, length) = (run.start * SECTOR_BYTES as u64, (run.end - run.start) * SECTOR_BYTES as u64);
            let (frame, at) = (FrameId(0), (offset % 4096) as u32);
            let op = DeviceOp { token: 0, kind: OpKind::Read, offset, length, frame, at };
            let read = read(&mut log.borrow_mut(), reactor, op, &machine.ledger)?;
            read.unwrap_or_else(|error| panic!("volume {volume} cannot be read at {offset}: {error:?}"));
            let mut bytes = vec![0; length as usize];
            each_part(arena, &op, |frame, at, part| arena.copy_out(frame, at, &mut bytes[part]));
            found.write(offset, &bytes);
            let seen: Vec<Option<u64>> = bytes.chunks_exact(SECTOR_BYTES).map(value_in).collect();
            let mut oracle = machine.shared.oracle.borrow_mut();
            for (sector, value) in (run.start..).zip(&seen) {
                let taken = accepted[volume][sector as usize].filter(|taken| *value == Some(*taken));
                taken.into_iter().for_each(|taken| oracle.accepted(volume, sector, taken));
            }
            if let Err(wrong) = oracle.read_ends(volume, run.start, begin, seen.iter().copied()) {
                panic!("after a start: {}", wrong.0);
            }
            values.extend((run.start..).zip(seen));
        }
        let mut oracle = machine.shared.oracle.borrow_mut();
        values.iter().for_each(|(sector, value)| oracle.settle(volume, *sector, value.expect("no torn sector")));
        let begin = oracle.flush_begins();
        oracle.flushed(volume, begin);
        let mark = found.mark();
        found.flush(mark);
        volumes.push(found);
    }
    machine.ledger.add(Count::StateSettled, volumes.len() as u64);
    Some(volumes)
}

/// One read, waited for. `None`: the process died meanwhile.
fn read(
    log: &mut LoggedDevice,
    reactor: &mut SimReactor,
    op: DeviceOp,
    ledger: &SharedLedger,
) -> Option<Result<(), IoError>> {
    log.submit(reactor.now_ns(), op);
    let mut done = Vec::new();
    loop {
        log.poll(reactor.now_ns(), &mut done);
        if ledger.is_cut() {
            return None;
        }
        if let Some(done) = done.pop() {
            return Some(done.result);
        }
        let second_ns = reactor.now_ns() + 1_000_000_000;
        reactor.wait(log.next_ns().unwrap_or(second_ns).min(second_ns).max(reactor.now_ns() + 100));
    }
}

/// Runs of sectors that are not lost.
fn there(log: &SharedLog, sectors: u64) -> Vec<std::ops::Range<u64>> {
    let log = log.borrow();
    let (mut runs, mut at) = (Vec::new(), 0);
    for lost in log.logged().lost().iter().map(|lost| lost.sectors).chain(std::iter::once(sectors..sectors)) {
        while at < lost.start.min(sectors) {
            let end = (at + READ_SECTORS).min(lost.start).min(sectors);
            runs.push(at..end);
            at = end;
        }
        at = lost.end;
    }
    runs
}

/// The ledger, for who only counts.
pub fn count_full(logs: &[SharedLog], ledger: &SharedLedger) {
    let full = logs.iter().filter(|log| log.borrow().logged().log().is_full()).count();
    ledger.add(Count::StateLogFull, full as u64);
}
