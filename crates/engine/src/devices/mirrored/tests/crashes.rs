//! A write-back log over a mirror, in worlds with crashes of process and machine, sides that fail, are replaced, or come back as they
//! were long ago.

use super::*;
use crate::devices::logged::{LogPlace, LoggedDevice, LoggedParts, MemoryRegions};
use crate::devices::paced::{Pace, Paced};

const FRAME_BYTES: u32 = 16 << 10;
const CLIENT_FRAMES: u32 = 16;
const LOG_BYTES: u64 = (1 << 20) + (64 << 10);
const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;

/// The back end, which keeps what it has.
#[derive(Clone)]
struct Back(Rc<RefCell<Memory>>);

impl Device for Back {
    fn geometry(&self) -> Geometry {
        self.0.borrow().geometry()
    }
    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.0.borrow_mut().submit(now_ns, op);
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        self.0.borrow_mut().poll(now_ns, done);
    }
    fn next_ns(&self) -> Option<u64> {
        self.0.borrow().next_ns()
    }
}

/// What is in a bay: a device, and the number on it. 0: none.
#[derive(Clone)]
struct Bay {
    disk: Disk,
    name: u64,
}

#[derive(Default, Debug)]
struct Counts {
    powers: u32,
    crashes: u32,
    replaced: [u32; 2],
    returned: [u32; 2],
    failed: [u32; 2],
    filled: [u32; 2],
    reads: u32,
    found: u32,
    interrupted: u32,
    idle: u32,
}

struct World {
    arena: Rc<Arena>,
    bays: [Bay; 2],
    /// As they were at some time.
    shelf: [Option<Bay>; 2],
    kept: Kept,
    regions: MemoryRegions,
    backend: Back,
    clock: Clock,
    rng: Rng,
    next_name: u64,
    /// Of each block: what a read may find, the last one that was written last. More than one only until it is read after a crash.
    may: Vec<Vec<u32>>,
    /// Of each block: how many of these a flush covers, and how many were answered to a process that ended alone.
    flushed: Vec<usize>,
    answered: Vec<usize>,
    next_value: u32,
    counts: Counts,
}

const BAY_BASES: [u64; 2] = [4096, 65536];

impl World {
    fn new(seed: u64) -> Self {
        let arena = Rc::new(Arena::new(CLIENT_FRAMES + LoggedDevice::frames(FRAME_BYTES), FRAME_BYTES).unwrap());
        let backend = Back(Rc::new(RefCell::new(Memory::new(Rc::clone(&arena), BLOCKS * BLOCK))));
        let bays = [0, 1].map(|at| Bay { disk: Self::blank(&arena, at, seed), name: at as u64 + 1 });
        let kept = Kept::default();
        kept.set(Counting { cache_id: [1; 16], sides: [Some(1), Some(2)] });
        Self {
            arena,
            bays,
            shelf: [None, None],
            kept,
            regions: MemoryRegions::default(),
            backend,
            clock: Clock(1, u32::MAX),
            rng: Rng::new(seed),
            next_name: 3,
            may: vec![vec![0]; BLOCKS as usize],
            flushed: vec![1; BLOCKS as usize],
            answered: vec![1; BLOCKS as usize],
            next_value: 1,
            counts: Counts::default(),
        }
    }

    fn blank(arena: &Rc<Arena>, at: usize, seed: u64) -> Disk {
        Disk::new(arena, (BAY_BASES[at] + LOG_BYTES) as usize, seed * 2 + at as u64)
    }

    fn odds(&mut self, one_in: u32) -> bool {
        self.rng.below(one_in) == 0
    }

    fn found(&self) -> (DiskFound, MirrorFound) {
        let disk = match self.bays[0].name {
            0 => DiskFound::Blank,
            side => DiskFound::Cache { cache_id: [1; 16], side },
        };
        let mirror = match self.bays[1].name {
            0 => MirrorFound::Blank,
            side => MirrorFound::Logs { cache_id: [1; 16], side, fits: true },
        };
        (disk, mirror)
    }

    /// As the program starts.
    fn open(&mut self) -> LoggedDevice {
        let known = self.kept.known().expect("it is always known");
        let (disk, mirror) = self.found();
        let counts = which_count(Some(&known), disk, mirror).expect("a side counts");
        assert!(counts.contains(&true), "{known:?} {disk:?} {mirror:?}");
        let mut counting = known;
        for side in Side::BOTH.into_iter().filter(|side| !counts[side.at()]) {
            counting.sides[side.at()] = None;
        }
        self.kept.set(counting);
        self.kept.0.borrow_mut().slow = self.rng.below(20);
        let state = Sides::new(counting, Box::new(self.kept.clone()));
        let part = |at: usize| SidePart { device: Box::new(self.bays[at].disk.clone()), offset: BAY_BASES[at] };
        let mut mirrored = Mirrored::new(&state, [part(0), part(1)], LOG_BYTES);
        for side in Side::BOTH.into_iter().filter(|side| !counts[side.at()]) {
            let frames = CLIENT_FRAMES..self.arena.frames();
            if mirrored.fill(side, &mut self.clock, &frames, FRAME_BYTES).is_ok() {
                self.bays[side.at()].name = self.next_name;
                self.next_name += 1;
                state.filled(side, self.bays[side.at()].name, &mut self.clock).unwrap();
                self.counts.filled[side.at()] += 1;
            }
        }
        let place = LogPlace { offset: 0, bytes: LOG_BYTES, seed: 5, space: 3, in_use: true };
        let pace = Pace::new(2_000_000, 3_000_000);
        let parts = LoggedParts {
            disk: Box::new(mirrored),
            place: LogPlace { in_use: self.counts.found > 0, ..place },
            backend: Box::new(Paced::new(self.backend.clone(), pace)),
            arena: Rc::clone(&self.arena),
            first_frame: CLIENT_FRAMES,
            regions: Some(Box::new(self.regions.reopened())),
        };
        self.backend.poll(0, &mut Vec::new());
        let logged = LoggedDevice::open(parts, &mut self.clock).unwrap();
        self.counts.found += 1;
        state.opened();
        logged
    }

    fn turn(&mut self, device: &mut LoggedDevice, done: &mut Vec<DeviceDone>) {
        device.poll(self.clock.now_ns(), done);
        if done.is_empty() {
            let next_ns = device.next_ns().unwrap_or(self.clock.now_ns() + 1_000_000);
            self.clock.wait(next_ns);
        }
    }

    fn value(&self, frame: u32) -> u32 {
        let mut bytes = [0; BLOCK as usize];
        self.arena.copy_out(frame, 0, &mut bytes);
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert!(words.iter().all(|word| *word == words[0]), "torn: {:?}", &words[..4]);
        words[0]
    }

    fn read_all(&mut self, device: &mut LoggedDevice) {
        for block in 0..BLOCKS {
            let read = DeviceOp { token: 0, frame: FrameId(0), at: 0, ..op(OpKind::Read, block * BLOCK, BLOCK) };
            assert_eq!(carry_out(device, &mut self.clock, read), Ok(()), "block {block}");
            let value = self.value(0);
            let at = block as usize;
            let may = &self.may[at][self.answered[at] - 1..];
            assert!(may.contains(&value), "block {block} has {value} and may have {may:?}; {:?}", self.counts);
            self.counts.reads += 1;
            (self.may[at], self.flushed[at], self.answered[at]) = (vec![value], 1, 1);
        }
    }

    /// Changes in flight together, in blocks apart; each in a frame of its own. True: all were answered.
    fn changes(&mut self, device: &mut LoggedDevice, give_up: bool) -> bool {
        let count = 1 + u64::from(self.rng.below(6));
        let first = u64::from(self.rng.below(BLOCKS as u32));
        let blocks: Vec<u64> = (0..count).map(|nth| (first + nth * 7) % BLOCKS).collect();
        for (token, block) in (0..).zip(&blocks) {
            let value = self.next_value;
            self.next_value += 1;
            self.arena.copy_in(token as u32, 0, &value.to_le_bytes().repeat(BLOCK as usize / 4));
            let kind = OpKind::Write { fua: self.rng.below(12) == 0 };
            device.submit(
                self.clock.now_ns(),
                DeviceOp { token, kind, offset: block * BLOCK, length: BLOCK, frame: FrameId(token as u32), at: 0 },
            );
            self.may[*block as usize].push(value);
        }
        let (mut done, mut answered) = (Vec::new(), vec![false; blocks.len()]);
        let mut turns = self.rng.below(60);
        while !answered.iter().all(|it| *it) {
            if give_up && turns == 0 {
                break;
            }
            turns = turns.saturating_sub(1);
            self.turn(device, &mut done);
            for done in done.drain(..) {
                assert_eq!(done.result, Ok(()), "one side is enough");
                answered[done.token as usize] = true;
            }
        }
        answered.iter().all(|it| *it)
    }

    fn flush(&mut self, device: &mut LoggedDevice) {
        assert_eq!(carry_out(device, &mut self.clock, op(OpKind::Flush, 0, 0)), Ok(()));
        self.flushed = self.may.iter().map(Vec::len).collect();
    }

    /// What a read may find after a crash: what a flush covered, and what came later; without a loss of power nothing before the last
    /// that was answered, as long as there is no such loss before the log is found again.
    fn crash(&mut self, power: bool) {
        self.kept.crash(&mut self.rng);
        for bay in &self.bays {
            bay.disk.crash(power);
        }
        if power {
            self.answered.clone_from(&self.flushed);
        }
        if power { self.counts.powers += 1 } else { self.counts.crashes += 1 }
    }

    /// While nobody serves: a side that is not needed is replaced by a blank one, or by what it once was.
    fn rummage(&mut self) {
        let sides = self.kept.known().unwrap().sides;
        let at = self.rng.below(2) as usize;
        let is_needed = sides[1 - at].is_none() || self.bays[1 - at].name != sides[1 - at].unwrap();
        if self.odds(3) {
            let bay = &self.bays[at];
            self.shelf[at] = Some(Bay { disk: bay.disk.copied(), name: bay.name });
        }
        if is_needed || !self.odds(2) {
            return;
        }
        let is_old = self.rng.below(2) == 0 && self.shelf[at].as_ref().is_some_and(|old| Some(old.name) != sides[at]);
        if is_old {
            self.bays[at] = self.shelf[at].take().unwrap();
            self.counts.returned[at] += 1;
        } else {
            self.bays[at] = Bay { disk: Self::blank(&self.arena, at, self.rng.next_u64() >> 8), name: 0 };
            self.counts.replaced[at] += 1;
        }
    }

    fn live(&mut self) {
        if self.odds(3) {
            // A side fails while it serves, perhaps while the log is found.
            let at = self.rng.below(2) as usize;
            let counts = self.kept.known().unwrap().sides;
            let other = &self.bays[1 - at];
            if counts[1 - at] == Some(other.name) && counts[at] == Some(self.bays[at].name) {
                let dies_at = self.bays[at].disk.begun() + u64::from(self.rng.below(120));
                let whole = self.odds(2);
                self.bays[at].disk.dies_at(dies_at, whole);
                self.counts.failed[at] += 1;
            }
        }
        if self.odds(5) {
            self.clock.1 = 1 + self.rng.below(150);
        }
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.open()));
        self.clock.1 = u32::MAX;
        let mut device = match opened {
            Ok(device) => device,
            Err(why) if why.is::<Interrupted>() => {
                let power = self.odds(2);
                self.counts.interrupted += 1;
                self.crash(power);
                return self.rummage();
            }
            Err(why) => std::panic::resume_unwind(why),
        };
        self.read_all(&mut device);
        if self.odds(4) {
            self.counts.idle += 1;
            drop(device);
            let power = self.odds(2);
            self.crash(power);
            return self.rummage();
        }
        let rounds = self.rng.below(12);
        for round in 0..=rounds {
            if self.changes(&mut device, round == rounds) {
                self.answered = self.may.iter().map(Vec::len).collect();
            }
            if self.odds(3) && round < rounds {
                self.flush(&mut device);
            }
        }
        drop(device);
        let power = self.odds(2);
        self.crash(power);
        self.rummage();
    }
}

#[test]
fn whichever_side_is_left_has_what_was_promised_and_an_old_one_is_never_believed() {
    let mut all = Counts::default();
    for seed in 0..80 {
        let mut world = World::new(seed);
        for life in 0..14 {
            let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
            assert!(said.is_ok(), "seed {seed}, life {life}: {:?}", world.counts);
        }
        let counts = world.counts;
        all.powers += counts.powers;
        all.crashes += counts.crashes;
        all.reads += counts.reads;
        all.found += counts.found;
        all.interrupted += counts.interrupted;
        all.idle += counts.idle;
        for at in 0..2 {
            all.replaced[at] += counts.replaced[at];
            all.returned[at] += counts.returned[at];
            all.failed[at] += counts.failed[at];
            all.filled[at] += counts.filled[at];
        }
    }
    let each = [all.powers, all.crashes, all.interrupted, all.idle]
        .into_iter()
        .chain(all.replaced)
        .chain(all.returned)
        .chain(all.failed);
    assert!(each.chain(all.filled).all(|count| count >= 20), "{all:?}");
}

#[test]
fn a_side_that_hangs_for_good_costs_the_log_and_no_data() {
    for seed in 0..10 {
        let at = seed as usize % 2;
        let mut world = World::new(seed);
        let mut device = world.open();
        for _ in 0..20 {
            world.changes(&mut device, false);
        }
        world.flush(&mut device);
        world.changes(&mut device, false);
        world.bays[at].disk.0.borrow_mut().hangs = true;
        for _ in 0..20 {
            world.changes(&mut device, false);
        }
        world.flush(&mut device);
        world.may.iter_mut().for_each(|may| drop(may.drain(..may.len() - 1)));
        (world.flushed, world.answered) = (vec![1; BLOCKS as usize], vec![1; BLOCKS as usize]);
        world.read_all(&mut device);
        assert_eq!(device.logged().lost().sectors(), 0, "side {at} hangs");
    }
}
