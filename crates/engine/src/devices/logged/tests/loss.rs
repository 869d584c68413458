//! The log's disk is lost: what the region map says then.

use super::*;
use crate::devices::faulty::{Effect, Kinds, Rule};
use forebay_core::log::logged::REGION_SECTORS;

const REGION_BYTES: u64 = REGION_SECTORS * SECTOR_BYTES;
const REGIONS: u64 = 64;

fn rig() -> Rig {
    Rig::with_volume(REGIONS * REGION_BYTES)
}

impl Rig {
    /// How an operation ended.
    fn ended(&mut self, device: &mut LoggedDevice, op: DeviceOp) -> Result<(), IoError> {
        device.submit(self.clock.now_ns(), op);
        loop {
            if let Some(done) = self.turn(device).pop() {
                return done.result;
            }
        }
    }

    fn write(&mut self, device: &mut LoggedDevice, offset: u64, byte: u8) -> Result<(), IoError> {
        let op = self.op(OpKind::Write { fua: false }, offset, 4096);
        self.arena.copy_in(0, op.at, &[byte; 4096]);
        self.ended(device, op)
    }

    /// The byte that 4 KiB are full of.
    fn read(&mut self, device: &mut LoggedDevice, offset: u64) -> Result<u8, IoError> {
        let op = self.op(OpKind::Read, offset, 4096);
        self.ended(device, op)?;
        let mut bytes = [0; 4096];
        self.arena.copy_out(0, op.at, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one write of whole blocks");
        Ok(bytes[0])
    }

    /// The disk is a new one, without anything.
    fn lose_disk(&mut self) {
        self.disk = Kept::new(&self.arena, PLACE.offset + LOG_BYTES);
        self.in_use = false;
    }

    /// Flushes, and waits until the back end has everything.
    fn follow(&mut self, device: &mut LoggedDevice) {
        self.run(device, self.op(OpKind::Flush, 0, 0));
        while !device.logged().has_followed() {
            self.turn(device);
        }
    }
}

#[test]
fn regions_that_only_the_log_had_cannot_be_read_when_it_is_lost_and_others_can() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    for region in 0..4 {
        rig.write(&mut device, region * REGION_BYTES, 1).unwrap();
    }
    rig.follow(&mut device);
    rig.clock.wait(rig.clock.now_ns() + 60_000_000_000);
    while device.logged().needs_ticks() {
        rig.turn(&mut device);
        rig.clock.wait(rig.clock.now_ns() + 1_000_000_000);
    }
    rig.write(&mut device, REGION_BYTES, 2).unwrap();
    rig.write(&mut device, 3 * REGION_BYTES, 2).unwrap();
    drop(device);
    rig.lose_disk();
    let mut device = rig.open().unwrap();
    let lost: Vec<_> = device.logged().lost().iter().map(|it| it.sectors).collect();
    assert_eq!(lost, [REGION_SECTORS..2 * REGION_SECTORS, 3 * REGION_SECTORS..4 * REGION_SECTORS]);
    assert_eq!([0, 2].map(|region| rig.read(&mut device, region * REGION_BYTES)), [Ok(1); 2]);
    assert_eq!(rig.read(&mut device, REGION_BYTES), Err(IoError::Failed));
    assert_eq!(rig.read(&mut device, 2 * REGION_BYTES - 4096), Err(IoError::Failed));
    // What is written again can be read, and nothing beside it; also after a restart, whoever has it by then.
    rig.write(&mut device, REGION_BYTES + 4096, 3).unwrap();
    for round in 0..3 {
        let around = [0, 4096, 8192].map(|at| rig.read(&mut device, REGION_BYTES + at));
        assert_eq!(around, [Err(IoError::Failed), Ok(3), Err(IoError::Failed)], "{round}");
        if round == 1 {
            rig.follow(&mut device);
        }
        drop(device);
        device = rig.open().unwrap();
    }
    // The second loss finds the back end with everything, and what was lost is lost still.
    drop(device);
    rig.lose_disk();
    let mut device = rig.open().unwrap();
    assert_eq!(rig.read(&mut device, REGION_BYTES), Err(IoError::Failed));
}

#[test]
fn a_disk_that_comes_back_after_it_was_replaced_is_not_believed() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    rig.write(&mut device, 0, 1).unwrap();
    drop(device);
    let old = rig.disk.clone();
    rig.lose_disk();
    let mut device = rig.open().unwrap();
    rig.write(&mut device, 0, 2).unwrap();
    rig.follow(&mut device);
    drop(device);
    rig.disk = old;
    let mut device = rig.open().unwrap();
    // Its region is in the map still: nobody knows that the back end has everything.
    assert_eq!(rig.read(&mut device, 0), Err(IoError::Failed));
    assert_eq!(rig.read(&mut device, REGION_BYTES), Ok(0));
    assert!(device.logged().has_followed(), "its records are not of the log");
}

#[test]
fn whoever_writes_in_sequence_seldom_waits_for_the_map() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    let before = rig.regions.writes();
    for block in 0..REGIONS * REGION_BYTES / 65536 {
        rig.write(&mut device, block * 65536, 1).unwrap();
    }
    let writes = rig.regions.writes() - before;
    assert!((3..=6).contains(&writes), "{writes} writes of the map for {REGIONS} regions");
    drop(device);
    rig.lose_disk();
    let device = rig.open().unwrap();
    assert_eq!(device.logged().lost().sectors(), REGIONS * REGION_SECTORS);
}

#[test]
fn a_map_that_cannot_be_written_for_a_while_costs_time() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    rig.regions.fail(1);
    rig.write(&mut device, 0, 1).unwrap();
    assert_eq!(device.logged().counts().bypasses, 1, "it goes past the log meanwhile");
    rig.clock.wait(rig.clock.now_ns() + 1_000_000_000);
    rig.write(&mut device, REGION_BYTES, 2).unwrap();
    assert_eq!([rig.read(&mut device, 0), rig.read(&mut device, REGION_BYTES)], [Ok(1), Ok(2)]);
    rig.follow(&mut device);
    drop(device);
    rig.regions.fail(1);
    assert_eq!(rig.open().err(), Some(LogOpenError::Regions));
}

const DEAD: Effect = Effect::Refuse(IoError::Failed);

/// Writes, flushes and reads of blocks in some regions, while the disk dies at its n-th operation; its reads may go on. Returns how many
/// operations it saw.
fn story(dies_at: u64, kinds: Kinds, comes_back: bool) -> u64 {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    let mut rng = Rng::new(dies_at);
    let begin = rig.faults.seen();
    rig.faults.add(Rule { kinds, skip: dies_at, ..Rule::every(DEAD) });
    let mut model = [0; 8];
    let reads_die = kinds == Kinds::ALL;
    for nth in 1..40 {
        let at = (rng.next_u64() % 8) as usize;
        let offset = at as u64 * (REGION_BYTES / 2) + 4096;
        match nth % 5 {
            0 => {
                let flush = rig.op(OpKind::Flush, 0, 0);
                let result = rig.ended(&mut device, flush);
                assert!(result.is_ok() || (reads_die && result == Err(IoError::Lost)), "{result:?}");
            }
            3 => match rig.read(&mut device, offset) {
                Ok(byte) => assert_eq!(byte, model[at], "block {at} at operation {nth}"),
                Err(_) => assert!(reads_die && rig.faults.hit() > 0),
            },
            _ => {
                rig.write(&mut device, offset, nth).unwrap();
                model[at] = nth;
            }
        }
    }
    let seen = rig.faults.seen() - begin;
    rig.follow_or_lose(&mut device);
    let lost = device.loss().get();
    assert!(reads_die || lost.lost_bytes == 0, "{lost:?}");
    assert_eq!(lost.extents.iter().map(|it| it.sectors.end - it.sectors.start).sum::<u64>() * 512, lost.lost_bytes);
    // Also after a restart, with the disk as it was or without one.
    for round in 0..2 {
        for (at, byte) in model.iter().enumerate() {
            let first = at as u64 * (REGION_SECTORS / 2) + 8;
            let is_lost = lost.extents.iter().any(|it| it.sectors.contains(&first));
            let read = rig.read(&mut device, first * 512);
            assert_eq!(read, if is_lost { Err(IoError::Failed) } else { Ok(*byte) }, "block {at}, round {round}");
        }
        drop(device);
        rig.faults.clear();
        if !comes_back {
            rig.lose_disk();
        }
        device = rig.open().unwrap();
    }
    seen
}

impl Rig {
    /// Until the log takes changes or is given up, and the back end has what it will get.
    fn follow_or_lose(&mut self, device: &mut LoggedDevice) {
        for _ in 0..100_000 {
            let is_settled = matches!(device.logged().health(), Health::Whole | Health::Through);
            if is_settled && device.logged().has_followed() && device.logged().is_idle() {
                // The map forgets the regions, too.
                self.clock.wait(self.clock.now_ns() + 30_000_000_000);
                while device.logged().needs_ticks() {
                    self.turn(device);
                    self.clock.wait(self.clock.now_ns() + 1_000_000_000);
                }
                return;
            }
            self.turn(device);
        }
        panic!("it does not come to rest: {:?}", device.logged());
    }
}

#[test]
fn whichever_operation_is_the_disks_last_the_volume_goes_on_and_nothing_old_is_read() {
    let changes = Kinds::WRITE | Kinds::FLUSH;
    for (kinds, comes_back) in [(changes, true), (changes, false), (Kinds::ALL, true), (Kinds::ALL, false)] {
        let all = story(u64::MAX, kinds, comes_back);
        assert!(all > 30, "{all} operations");
        for dies_at in 0..all {
            story(dies_at, kinds, comes_back);
        }
    }
}

#[test]
fn a_disk_that_answers_nothing_any_more_has_failed() {
    for kinds in [Kinds::WRITE | Kinds::FLUSH, Kinds::ALL] {
        let mut rig = rig();
        let mut device = rig.open().unwrap();
        rig.write(&mut device, 0, 1).unwrap();
        rig.faults.add(Rule::of(kinds, Effect::Hang));
        rig.write(&mut device, 4096, 2).unwrap();
        rig.follow_or_lose(&mut device);
        assert_eq!(device.logged().health(), Health::Through);
        let lost = if kinds == Kinds::ALL { Err(IoError::Failed) } else { Ok(1) };
        assert_eq!([rig.read(&mut device, 0), rig.read(&mut device, 4096)], [lost, Ok(2)]);
        // What it answers at last is nobody's.
        rig.faults.clear();
        rig.follow_or_lose(&mut device);
        assert_eq!([rig.read(&mut device, 0), rig.read(&mut device, 4096)], [lost, Ok(2)]);
    }
}

#[test]
fn what_is_accepted_reads_as_what_the_back_end_has_and_stays_so() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    rig.write(&mut device, 0, 1).unwrap();
    rig.follow(&mut device);
    rig.write(&mut device, 0, 2).unwrap();
    rig.write(&mut device, 8192, 2).unwrap();
    rig.faults.add(Rule::every(DEAD));
    rig.write(&mut device, 4096, 3).unwrap();
    rig.follow_or_lose(&mut device);
    let loss = device.loss();
    let listed = loss.get();
    assert_eq!(listed.health, Health::Through);
    assert_eq!(listed.extents.iter().map(|it| it.sectors.clone()).collect::<Vec<_>>(), [0..8, 16..24]);
    assert!(listed.extents.iter().all(|it| it.epoch.is_some()), "{listed:?}");
    let all = [0, 4096, 8192];
    assert_eq!(all.map(|at| rig.read(&mut device, at)), [Err(IoError::Failed), Ok(3), Err(IoError::Failed)]);
    let mut doubts = Vec::new();
    device.in_doubt(&mut doubts);
    assert!(doubts.iter().any(|doubt| doubt.range.contains(&0)), "what is cached of it is to be dropped");
    loss.accept();
    rig.turn(&mut device);
    rig.follow_or_lose(&mut device);
    assert_eq!(loss.get().lost_bytes, 0);
    assert_eq!(all.map(|at| rig.read(&mut device, at)), [Ok(1), Ok(3), Ok(0)]);
    drop(device);
    rig.faults.clear();
    let mut device = rig.open().unwrap();
    assert_eq!(all.map(|at| rig.read(&mut device, at)), [Ok(1), Ok(3), Ok(0)]);
}

#[test]
fn a_block_of_the_log_that_is_damaged_is_lost_alone() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    // One record of four blocks, which the back end cannot take yet.
    let op = rig.op(OpKind::Write { fua: false }, 0, 16384);
    rig.arena.copy_in(0, 0, &[5; 16384]);
    rig.run(&mut device, op);
    let log = PLACE.offset + 8192;
    let byte = DeviceOp { at: 0, ..rig.op(OpKind::Read, log, 16384) };
    rig.disk.submit(0, byte);
    rig.disk.poll(0, &mut Vec::new());
    let mut found = vec![0; 16384];
    rig.arena.copy_out(0, 0, &mut found);
    let payload = found.iter().position(|byte| *byte == 5 && found[512..].contains(byte)).unwrap().max(512);
    // The second of its blocks.
    rig.arena.copy_in(0, (payload / 512 * 512 + 4096 + 100) as u32, &[6]);
    rig.disk.submit(0, DeviceOp { kind: OpKind::Write { fua: false }, ..byte });
    rig.disk.poll(0, &mut Vec::new());
    let all = [0, 4096, 8192, 12288];
    for _ in 0..2 {
        assert_eq!(all.map(|at| rig.read(&mut device, at)), [Ok(5), Err(IoError::Failed), Ok(5), Ok(5)]);
        rig.follow(&mut device);
    }
    let loss = device.loss().get();
    assert_eq!((loss.health, loss.bad_blocks, loss.lost_bytes), (Health::Whole, 1, 4096));
    rig.write(&mut device, 4096, 7).unwrap();
    assert_eq!(all.map(|at| rig.read(&mut device, at)), [Ok(5), Ok(7), Ok(5), Ok(5)]);
    rig.follow(&mut device);
    assert_eq!(device.logged().lost().sectors(), 0);
}

/// A group that could not be read was taken for torn, and what had been answered was gone.
#[test]
fn a_sector_that_a_start_cannot_read_hides_no_other() {
    let mut rig = rig();
    let mut device = rig.open().unwrap();
    rig.arena.copy_in(0, 0, &[5; 16384]);
    let op = rig.op(OpKind::Write { fua: false }, 0, 16384);
    rig.run(&mut device, op);
    rig.write(&mut device, 16384, 6).unwrap();
    drop(device);
    // The second of the first record's blocks.
    let bad = PLACE.offset + 8192 + 512 + 4096;
    rig.faults.add(Rule::of(Kinds::of(OpKind::Read), Effect::Refuse(IoError::Failed)).within(bad..bad + 512));
    let mut device = rig.open().unwrap();
    let found = [0, 4096, 8192, 16384].map(|at| rig.read(&mut device, at));
    assert_eq!(found, [Ok(5), Err(IoError::Failed), Ok(5), Ok(6)]);
}
