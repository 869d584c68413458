mod loss;

use std::cell::{Cell, RefCell};

use forebay_core::log::logged::{Bypass, LogPolicy, OnLag};
use forebay_policy::rng::Rng;

use super::*;
use crate::device::FrameId;
use crate::devices::conformance::{Plan, conform};
use crate::devices::faulty::{Faults, Faulty};
use crate::devices::memory::Memory as Ram;
use crate::devices::paced::{Pace, Paced};
use crate::reactor::Reactor;

const FRAME_BYTES: u32 = 16 << 10;
const CLIENT_FRAMES: u32 = 64;
const LOG_BYTES: u64 = 2 << 20;
const VOLUME_BYTES: u64 = 1 << 20;
const PLACE: LogPlace = LogPlace { offset: 8192, bytes: LOG_BYTES, seed: 5, space: 3, in_use: false };

/// A device that outlives who uses it.
#[derive(Clone)]
struct Kept {
    ram: Rc<RefCell<Ram>>,
    /// Nothing ends.
    stalls: Rc<Cell<bool>>,
}

impl Kept {
    fn new(arena: &Rc<Arena>, bytes: u64) -> Self {
        let ram = Rc::new(RefCell::new(Ram::new(Rc::clone(arena), bytes)));
        Self { ram, stalls: Rc::default() }
    }
}

impl Device for Kept {
    fn geometry(&self) -> Geometry {
        self.ram.borrow().geometry()
    }
    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.ram.borrow_mut().submit(now_ns, op);
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        if !self.stalls.get() {
            self.ram.borrow_mut().poll(now_ns, done);
        }
    }
    fn next_ns(&self) -> Option<u64> {
        if self.stalls.get() { None } else { self.ram.borrow().next_ns() }
    }
}

struct Clock(u64);

impl Reactor for Clock {
    fn now_ns(&self) -> u64 {
        self.0
    }
    fn wait(&mut self, until_ns: u64) {
        self.0 = self.0.max(until_ns).max(self.0 + 1_000);
    }
}

struct Rig {
    arena: Rc<Arena>,
    disk: Kept,
    backend: Kept,
    backend_pace: std::sync::Arc<Pace>,
    clock: Clock,
    /// It was opened before.
    in_use: bool,
    regions: MemoryRegions,
    /// Of the log's disk.
    faults: Faults,
}

impl Rig {
    fn new() -> Self {
        Self::with_volume(VOLUME_BYTES)
    }

    fn with_volume(volume_bytes: u64) -> Self {
        let frames = CLIENT_FRAMES + LoggedDevice::frames(FRAME_BYTES);
        let arena = Rc::new(Arena::new(frames, FRAME_BYTES).unwrap());
        let disk = Kept::new(&arena, PLACE.offset + LOG_BYTES);
        let backend = Kept::new(&arena, volume_bytes);
        let backend_pace = Pace::new(100_000_000, 1_000_000);
        Self {
            arena,
            disk,
            backend,
            backend_pace,
            clock: Clock(1),
            in_use: false,
            regions: MemoryRegions::default(),
            faults: Faults::new(),
        }
    }

    fn open(&mut self) -> Result<LoggedDevice, LogOpenError> {
        // What the last one left under way ended with it.
        self.disk.poll(0, &mut Vec::new());
        self.backend.poll(0, &mut Vec::new());
        let disk = Paced::new(self.disk.clone(), Pace::new(500_000_000, 50_000));
        let parts = LoggedParts {
            disk: Box::new(Faulty::new(disk, self.faults.clone())),
            place: LogPlace { in_use: std::mem::replace(&mut self.in_use, true), ..PLACE },
            backend: Box::new(Paced::new(self.backend.clone(), self.backend_pace.clone())),
            arena: Rc::clone(&self.arena),
            first_frame: CLIENT_FRAMES,
            regions: Some(Box::new(self.regions.reopened())),
        };
        LoggedDevice::open(parts, &mut self.clock)
    }

    fn turn(&mut self, device: &mut LoggedDevice) -> Vec<DeviceDone> {
        let mut done = Vec::new();
        device.poll(self.clock.now_ns(), &mut done);
        if done.is_empty() {
            let next_ns = device.next_ns().unwrap_or(self.clock.now_ns() + 1_000_000);
            self.clock.wait(next_ns);
        }
        done
    }

    fn run(&mut self, device: &mut LoggedDevice, op: DeviceOp) {
        device.submit(self.clock.now_ns(), op);
        loop {
            if let Some(done) = self.turn(device).pop() {
                assert_eq!(done, DeviceDone { token: op.token, result: Ok(()) });
                return;
            }
        }
    }

    fn op(&self, kind: OpKind, offset: u64, length: u64) -> DeviceOp {
        DeviceOp { token: 9, kind, offset, length, frame: FrameId(0), at: (offset % u64::from(FRAME_BYTES)) as u32 }
    }

    fn bytes(&mut self, device: &mut LoggedDevice) -> Vec<u8> {
        let mut bytes = vec![0; VOLUME_BYTES as usize];
        for (nth, chunk) in bytes.chunks_mut(FRAME_BYTES as usize).enumerate() {
            let offset = nth as u64 * u64::from(FRAME_BYTES);
            let read = self.op(OpKind::Read, offset, u64::from(FRAME_BYTES));
            self.run(device, read);
            self.arena.copy_out(0, 0, chunk);
        }
        bytes
    }

    fn backend_bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; VOLUME_BYTES as usize];
        for (nth, chunk) in bytes.chunks_mut(FRAME_BYTES as usize).enumerate() {
            let offset = nth as u64 * u64::from(FRAME_BYTES);
            let mut done = Vec::new();
            self.backend.submit(0, self.op(OpKind::Read, offset, u64::from(FRAME_BYTES)));
            self.backend.poll(0, &mut done);
            self.arena.copy_out(0, 0, chunk);
        }
        bytes
    }

    /// A random write or zeroing, answered.
    fn change(&mut self, device: &mut LoggedDevice, rng: &mut Rng, model: &mut [u8]) {
        let first = rng.next_u64() % (VOLUME_BYTES / 512);
        let most = (VOLUME_BYTES / 512 - first).min(40);
        let (offset, length) = (first * 512, (1 + rng.next_u64() % most) * 512);
        let range = offset as usize..(offset + length) as usize;
        if rng.next_u64().is_multiple_of(5) {
            model[range].fill(0);
            return self.run(device, self.op(OpKind::WriteZeroes { fua: false, no_hole: false }, offset, length));
        }
        model[range.clone()].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        let write = self.op(OpKind::Write { fua: rng.next_u64().is_multiple_of(9) }, offset, length);
        let mut rest = &model[range];
        let (mut frame, mut at) = (0, write.at);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min((FRAME_BYTES - at) as usize));
            self.arena.copy_in(frame, at, now);
            (frame, at, rest) = (frame + 1, 0, later);
        }
        self.run(device, write);
    }
}

#[test]
fn it_is_a_device_like_any_other() {
    let large = Bypass::Large { bytes_min: 8 << 10 };
    let policies = [LogPolicy::default(), LogPolicy { bypass: large, ..LogPolicy::default() }, LogPolicy::THROUGH];
    for (seed, policy) in (0..6).zip(policies.iter().cycle()) {
        let mut rig = Rig::new();
        let mut device = rig.open().unwrap();
        device.control().set(*policy);
        let plan = Plan { seed, operations: 2_000, depth: 8 };
        conform(&mut device, &mut rig.clock, &rig.arena, plan);
        assert_eq!(device.logged().counts().bypasses > 0, policy.bypass != Bypass::Never);
    }
}

#[test]
fn what_was_answered_is_found_again_and_the_back_end_has_it_in_the_end() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new();
        let mut model = vec![0; VOLUME_BYTES as usize];
        for life in 1..=4 {
            let mut device = rig.open().unwrap();
            assert_eq!(device.life, life);
            assert!(rig.bytes(&mut device) == model, "seed {seed}, life {life}");
            for _ in 0..rng.next_u64() % 60 {
                rig.change(&mut device, &mut rng, &mut model);
            }
        }
        let mut device = rig.open().unwrap();
        rig.run(&mut device, rig.op(OpKind::Flush, 0, 0));
        while !device.logged().has_followed() {
            rig.turn(&mut device);
        }
        assert!(rig.backend_bytes() == model, "seed {seed}");
    }
}

#[test]
fn a_log_whose_tail_is_damaged_is_not_begun_anew_if_it_may_have_anything() {
    let mut rig = Rig::new();
    let mut device = rig.open().unwrap();
    rig.run(&mut device, rig.op(OpKind::Write { fua: false }, 0, 4096));
    drop(device);
    rig.arena.fill_zero(0, 0, FRAME_BYTES);
    rig.arena.copy_in(0, 0, &[1]);
    for offset in [PLACE.offset, PLACE.offset + 4096] {
        let write = DeviceOp { at: 0, ..rig.op(OpKind::Write { fua: false }, offset, 4096) };
        rig.disk.submit(0, write);
    }
    rig.disk.poll(0, &mut Vec::new());
    assert_eq!(rig.open().err(), Some(LogOpenError::TailDamaged));
    let mut regions = rig.regions.reopened();
    regions.begin(forebay_core::log::logged::RegionImage::new(1, VOLUME_BYTES / SECTOR_BYTES));
    regions.poll().unwrap().unwrap();
    assert!(rig.open().is_ok(), "the map says that it has nothing");
}

#[test]
fn the_status_tells_how_far_the_back_end_is() {
    let mut rig = Rig::new();
    let mut device = rig.open().unwrap();
    let status = device.status();
    assert!(status.get().has_followed && status.get().log_bytes == LOG_BYTES - 8192);
    for nth in 0..5 {
        rig.run(&mut device, rig.op(OpKind::Write { fua: false }, nth * 4096, 4096));
    }
    rig.run(&mut device, rig.op(OpKind::Flush, 0, 0));
    rig.clock.0 += STATUS_NS;
    rig.turn(&mut device);
    let now = status.get();
    assert_eq!((now.appended_record, now.written_record, now.followed_record), (5, 5, 0));
    assert_eq!((now.dirty_bytes, now.counts.payload_bytes, now.epochs_open), (5 * 4096, 5 * 4096, 1));
    assert!(now.used_bytes >= 5 * 4608 && now.lag_ns > 0 && !now.has_followed, "{now:?}");
    while !status.get().has_followed {
        rig.turn(&mut device);
    }
    rig.clock.0 += 1_000_000_000;
    rig.turn(&mut device);
    let now = status.get();
    assert_eq!((now.followed_record, now.dirty_bytes, now.lag_ns, now.used_bytes), (5, 0, 0, 0));
    assert_eq!((now.counts.runs, now.counts.run_bytes, now.counts.backend_flushes), (1, 5 * 4096, 1));
}

#[test]
fn a_log_that_is_switched_to_through_drains_and_stays_empty() {
    let mut rig = Rig::new();
    let mut device = rig.open().unwrap();
    let status = device.status();
    for nth in 0..50 {
        rig.run(&mut device, rig.op(OpKind::Write { fua: false }, nth * 4096, 4096));
    }
    device.control().set(LogPolicy::THROUGH);
    rig.run(&mut device, rig.op(OpKind::Flush, 0, 0));
    rig.clock.0 += STATUS_NS;
    rig.turn(&mut device);
    let drained = status.get();
    assert_eq!((drained.policy, drained.followed_record, drained.has_followed), (LogPolicy::THROUGH, 50, true));
    for nth in 0..20 {
        rig.run(&mut device, rig.op(OpKind::Write { fua: nth % 4 == 0 }, nth * 4096, 4096));
        rig.run(&mut device, rig.op(OpKind::WriteZeroes { fua: nth % 5 == 0, no_hole: true }, nth * 4096, 4096));
    }
    rig.run(&mut device, rig.op(OpKind::Flush, 0, 0));
    rig.clock.0 += STATUS_NS;
    rig.turn(&mut device);
    let now = status.get();
    assert_eq!((now.appended_record, now.counts.bypasses, now.has_followed), (50, 40, true));
    assert_eq!(now.counts.groups, drained.counts.groups);
}

#[test]
fn the_core_counts_a_descriptors_sectors_as_the_format_does() {
    for (records, checksums) in [(1, 1), (1, 200), (27, 0), (28, 0), (400, 1_000), (4_096, 8_192)] {
        let of_format = log::descriptor_sectors(records, checksums) as u64;
        assert_eq!(forebay_core::log::descriptor_sectors_of(records as u64, checksums as u64), of_format);
    }
}

#[test]
fn more_trims_than_a_group_has_records_are_several_groups() {
    let mut rig = Rig::new();
    let mut device = rig.open().unwrap();
    for nth in 0..6_000 {
        let trim = DeviceOp { token: nth, ..rig.op(OpKind::Trim { fua: false }, nth % 2_000 * 512, 512) };
        device.submit(rig.clock.now_ns(), trim);
    }
    let mut ended = 0;
    while ended < 6_000 {
        ended += rig.turn(&mut device).len();
    }
}

#[test]
fn a_log_at_rest_leaves_nothing_to_be_lost() {
    let (mut rig, mut rng) = (Rig::new(), Rng::new(3));
    let mut model = vec![0; VOLUME_BYTES as usize];
    let mut device = rig.open().unwrap();
    for rests in [false, true] {
        if rests {
            device.control().rest();
        }
        (0..20).for_each(|_| rig.change(&mut device, &mut rng, &mut model));
        let until_ns = rig.clock.now_ns() + 3_000_000_000;
        while rig.clock.now_ns() < until_ns && !device.status().get().is_settled {
            rig.turn(&mut device);
        }
        assert!(device.logged().has_followed());
        let dirty = rig.regions.image().unwrap().dirty;
        assert_eq!((device.is_settled(), dirty.is_empty(), device.status().get().is_settled), (rests, rests, rests));
    }
    drop(device);
    // Another disk in its place: nothing of the volume is lost.
    rig.regions.disk_is_another();
    let mut device = rig.open().unwrap();
    assert_eq!(rig.bytes(&mut device), model);
}

/// Writers that always have 32 writes of 4 KiB under way, for so long: bytes a second in the second half, the longest wait, and
/// the longest before the pressure was felt.
fn write_on(rig: &mut Rig, device: &mut LoggedDevice, for_ns: u64) -> (f64, u64, u64) {
    let mut rng = Rng::new(1);
    let (begin_ns, mut since, mut second) = (rig.clock.0, [0; 32], 0);
    let (mut longest_ns, mut longest_free_ns) = (0, 0);
    let write = |rig: &mut Rig, device: &mut LoggedDevice, rng: &mut Rng, token: u64| {
        let offset = rng.next_u64() % (VOLUME_BYTES / 4096) * 4096;
        let op = DeviceOp { token, at: 0, ..rig.op(OpKind::Write { fua: false }, offset, 4096) };
        device.submit(rig.clock.0, op);
    };
    for token in 0..32 {
        since[token as usize] = rig.clock.0;
        write(rig, device, &mut rng, token);
    }
    while rig.clock.0 < begin_ns + for_ns {
        for done in rig.turn(device) {
            let waited_ns = rig.clock.0 - std::mem::replace(&mut since[done.token as usize], rig.clock.0);
            longest_ns = longest_ns.max(waited_ns);
            if device.logged().counts().throttled_ns == 0 {
                longest_free_ns = longest_free_ns.max(waited_ns);
            }
            second += u64::from(rig.clock.0 > begin_ns + for_ns / 2);
            write(rig, device, &mut rng, done.token);
        }
    }
    ((second * 4096) as f64 / (for_ns as f64 / 2e9), longest_ns, longest_free_ns)
}

#[test]
fn a_log_that_fills_slows_its_writers_to_what_the_back_end_takes() {
    for rate in [4e6, 10e6] {
        let mut rig = Rig::new();
        rig.backend_pace = Pace::new(rate as u64, 1_000_000);
        let mut device = rig.open().unwrap();
        let (taken, longest_ns, longest_free_ns) = write_on(&mut rig, &mut device, 10_000_000_000);
        assert!(taken > 0.75 * rate && taken < 1.25 * rate, "{taken} of {rate}");
        // Each of 32 waits for the others: that is the back end's time for 32 writes.
        let share_ns = (32.0 * 4096.0 * 1e9 / rate) as u64;
        assert!(longest_ns < 2 * share_ns + 20_000_000, "{longest_ns}, at {rate}");
        assert!(longest_free_ns < 1_000_000, "{longest_free_ns}, at {rate}");
    }
}

/// Writes answered one after the other, for so long: how many, and how long the longest took.
fn write_slowly(rig: &mut Rig, device: &mut LoggedDevice, for_ns: u64) -> (u64, u64) {
    let (end_ns, mut longest_ns, mut count) = (rig.clock.0 + for_ns, 0, 0);
    while rig.clock.0 < end_ns {
        let begin_ns = rig.clock.0;
        device.submit(begin_ns, rig.op(OpKind::Write { fua: false }, count % 32 * 4096, 4096));
        while rig.turn(device).is_empty() {
            if rig.clock.0 > end_ns {
                return (count, longest_ns);
            }
        }
        (longest_ns, count) = (longest_ns.max(rig.clock.0 - begin_ns), count + 1);
        let next_ns = begin_ns + 50_000_000;
        while rig.clock.0 < next_ns {
            rig.turn(device);
        }
    }
    (count, longest_ns)
}

#[test]
fn a_back_end_that_stalls_is_not_felt_until_it_lags_too_far_and_its_owner_wants_that() {
    for on_lag in [OnLag::Stall, OnLag::Continue] {
        let mut rig = Rig::new();
        let mut device = rig.open().unwrap();
        device.control().set(LogPolicy { on_lag, lag_max_ns: 8_000_000_000, ..LogPolicy::LOCAL });
        write_slowly(&mut rig, &mut device, 1_000_000_000);
        rig.backend.stalls.set(true);
        let (count, longest_ns) = write_slowly(&mut rig, &mut device, 7_000_000_000);
        assert!(count > 100 && longest_ns < 1_000_000, "{count}, {longest_ns}");
        let (count, longest_ns) = write_slowly(&mut rig, &mut device, 5_000_000_000);
        match on_lag {
            OnLag::Stall => assert!(count < 40, "{count}"),
            OnLag::Continue => assert!(count > 90 && longest_ns < 1_000_000, "{count}, {longest_ns}"),
        }
        assert!(device.status().get().is_lagging);
        rig.backend.stalls.set(false);
        let (count, _) = write_slowly(&mut rig, &mut device, 5_000_000_000);
        assert!(count > 90, "{count}");
        assert!(!device.status().get().is_lagging);
    }
}
