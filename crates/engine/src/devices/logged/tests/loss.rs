//! The log's disk is lost: what the region map says then.

use super::*;
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
    while device.logged().has_regions() {
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
