//! A world: one seed's machine and store, through several lives of the gateway's process.

use super::bug::Bug;
use super::device::{SharedDesk, StoreDevice};
use super::gateway::{Gateway, GatewaySetup, Shared};
use super::met::{Count, SharedMet};
use super::store::Store;
use crate::dice::Dice;
use crate::ledger::{self, Counted, Ledger, SharedLedger};
use crate::life::SimReactor;
use crate::model_device::{Character, Disk, ModelDevice, Role, lose_power};
use crate::world::Outcome;
use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits, Notice, Profile, SplitConfig, SplitKind,
    VolumeConfig, VolumeId, WriteMode,
};
use forebay_engine::attach::{HEAD_BYTES, Plan, VolumeFacts, Wanted, plan};
use forebay_engine::device::Device;
use forebay_engine::devices::absent::Absent;
use forebay_engine::shard::{Host, Shard, ShardDisk, ShardParts};
use forebay_objects::ObjectsConfig;
use forebay_policy::evict::PolicyKind;
use forebay_uring::Arena;
use forebay_wire::disk::layout::TABLE_OFFSET;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;
/// Everything comes to rest within this time once nothing fails any more.
const REST_NS: u64 = 300 * SECOND_NS;
/// A volume that stays, so that the table is read at each start; nobody reads it.
const BESIDE_BYTES: u64 = 1 << 20;
const SPLITS: [SplitKind; 6] = [
    SplitKind::Off,
    SplitKind::Off,
    SplitKind::BackendOnly,
    SplitKind::Static { disk_permil: 500 },
    SplitKind::Climb,
    SplitKind::ExpectedDelay,
];
const POLICIES: [PolicyKind; 3] = [PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Random];

/// What outlives the process.
struct Machine {
    dice: Dice,
    ledger: SharedLedger,
    met: SharedMet,
    shared: Rc<Shared>,
    disk: Rc<Disk>,
    generation: Rc<Cell<Option<u64>>>,
    setup: Setup,
    lives: u64,
}

/// What stays through all lives.
#[derive(Clone, Debug)]
struct Setup {
    page_bytes: u32,
    pages_a_step: u64,
    disk_bytes: u64,
    operations: u64,
    ttl_ns: u64,
    versions_max: usize,
    latency_ns: u64,
}

/// The gateway's process.
struct Life {
    shard: Shard<SimReactor, Gateway>,
    until_ns: Rc<Cell<u64>>,
    tick_ns: u64,
}

struct NoHost {
    generation: Rc<Cell<Option<u64>>>,
    raised: bool,
}

impl Host for NoHost {
    fn raise_generation(&mut self) {
        self.generation.set(self.generation.get().map(|it| it + 1));
        self.raised = true;
    }

    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        std::mem::take(&mut self.raised).then_some(Ok(()))
    }

    fn backend_mtime_ns(&mut self, _volume: VolumeId) -> i64 {
        0
    }

    fn notice(&mut self, _notice: Notice) {}
}

/// Runs a seed to its end.
///
/// # Panics
/// When a promise is broken; the message says which.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Outcome {
    let mut machine = Machine::new(seed, bug, verbose);
    while machine.shared.operations.get() < machine.setup.operations {
        machine.live();
    }
    machine.outcome()
}

impl Setup {
    fn draw(dice: &mut Dice) -> Self {
        let page_bytes: u32 = dice.pick(&[8192, 16384, 65536]);
        Self {
            page_bytes,
            pages_a_step: dice.pick(&[1, 2, 3]),
            disk_bytes: (2 << 20) + dice.pick(&[16, 40, 150]) * u64::from(page_bytes),
            operations: dice.between(1500, 2500),
            ttl_ns: dice.pick(&[0, 0, 200_000_000, 5 * SECOND_NS]),
            versions_max: dice.pick(&[3, 20, 1000]),
            latency_ns: dice.pick(&[20_000, 2_000_000]),
        }
    }

    fn step_bytes(&self) -> u64 {
        self.pages_a_step * u64::from(self.page_bytes)
    }

    /// The smallest ring of such steps.
    fn space_bytes(&self) -> u64 {
        64 * self.step_bytes()
    }
}

impl Machine {
    fn new(seed: u64, bug: Option<Bug>, verbose: bool) -> Self {
        let mut dice = Dice::new(seed);
        let setup = Setup::draw(&mut dice);
        let (ledger, met): (SharedLedger, SharedMet) = (Ledger::new(None, verbose), Ledger::new(bug, verbose));
        ledger.say(|| format!("seed {seed}: {setup:?}"));
        let store = Store::new(dice.between(2, 12) as usize, dice.chance(400), setup.step_bytes());
        let shared = Shared {
            store: RefCell::new(store),
            ledger: Rc::clone(&ledger),
            met: Rc::clone(&met),
            operations: Cell::new(0),
            is_on: Cell::new(false),
        };
        let disk = Disk::new(setup.disk_bytes, setup.latency_ns);
        Self { dice, ledger, met, shared: Rc::new(shared), disk, generation: Rc::default(), setup, lives: 0 }
    }

    fn outcome(&self) -> Outcome {
        let met = |what: ledger::Count| self.ledger.count_of(what);
        let of_disk =
            [ledger::Count::FaultDiskError, ledger::Count::FaultDiskSlow, ledger::Count::FaultDiskHang].map(met);
        let of_writes = [ledger::Count::FaultLostWrite, ledger::Count::FaultMisdirectedWrite].map(met);
        self.met.add(Count::FaultDisk, of_disk.iter().sum());
        self.met.add(Count::FaultWrite, of_writes.iter().sum());
        let counts = self.met.counts();
        let is_fault = |what: &&Count| matches!(what.name().0, "fault" | "crash");
        let faults = Count::ALL.iter().filter(is_fault).map(|what| counts[what.place()]).sum();
        Outcome {
            digest: self.met.digest() ^ self.ledger.digest(),
            operations: self.shared.operations.get(),
            faults,
            counts,
            now_ns: self.ledger.now_ns(),
        }
    }

    /// One life, to its end.
    fn live(&mut self) {
        self.ledger.restore();
        self.disk.character.set(Character::sound(self.setup.latency_ns));
        let mut life = self.begin();
        let until = self.shared.operations.get() + self.dice.between(50, 600);
        while self.shared.operations.get() < until {
            self.draw_faults();
            let crash = self.dice.chance(100).then(|| self.dice.below(300));
            if let Some(ios) = crash {
                self.ledger.cut_after(ios);
            }
            if self.phase(&mut life) {
                return self.crash(life);
            }
            self.ledger.restore();
            if self.dice.chance(200) {
                self.rest(&mut life);
            }
        }
        self.rest(&mut life);
        // The cache disk may come up to date.
        let until_ns = self.ledger.now_ns() + self.dice.pick(&[0, 6]) * SECOND_NS;
        self.run_until(&mut life, |life, now_ns| now_ns >= until_ns && life.shard.cache().is_idle());
        match self.dice.chance(500) {
            true => self.stop(life),
            false => self.crash(life),
        }
    }

    /// In order.
    fn stop(&mut self, mut life: Life) {
        life.shard.front().drain();
        self.run_until(&mut life, |life, _| life.shard.front().is_drained());
        self.count_states(&life);
        self.met.count(Count::Stop, self.lives, 0);
    }

    fn begin(&mut self) -> Life {
        self.lives += 1;
        let planned = self.attach();
        let config = self.config(&planned);
        let metadata = Shard::<SimReactor, Gateway>::metadata_frames(&config);
        let arena = Rc::new(Arena::new(config.frames + metadata, config.page_bytes).expect("memory for frames"));
        let until_ns = Rc::new(Cell::new(u64::MAX));
        let layout = planned.disk.layout();
        let role = Role::CacheDisk { bounds: [8192, TABLE_OFFSET, layout.data_offset(), u64::MAX] };
        let (disk, ledger) = (Rc::clone(&self.disk), Rc::clone(&self.ledger));
        let device = ModelDevice::new(disk, Rc::clone(&arena), Rc::clone(&ledger), role, 4096, self.dice.fork());
        let setup = self.gateway();
        let desk = SharedDesk::default();
        let parts = ShardParts {
            cache: Cache::new(config.clone()).expect("a sound configuration"),
            arena: Rc::clone(&arena),
            metadata_frame: FrameId(config.frames),
            reactor: SimReactor::new(ledger, Rc::clone(&until_ns)),
            front: Gateway::new(Rc::clone(&self.shared), Rc::clone(&arena), Rc::clone(&desk), self.dice.fork(), setup),
            disk: Some(ShardDisk { device: Box::new(device), format: planned.disk.clone() }),
            backends: vec![
                self.store_device(config.volumes[0].split, arena, desk),
                Box::new(Absent::new(BESIDE_BYTES)),
            ],
            host: Box::new(NoHost { generation: Rc::clone(&self.generation), raised: false }),
            commands: None,
        };
        Life { shard: Shard::new(parts, &config), until_ns, tick_ns: 0 }
    }

    /// As the product does it: the object space has another name at each start, since addresses begin anew.
    fn attach(&mut self) -> Plan {
        let facts = |name: String, bytes| VolumeFacts {
            name,
            backend: "absent".to_owned(),
            identity: 1,
            bytes,
            mtime_ns: 0,
            log_bytes: 0,
        };
        let objects = facts(format!("objects-{}", self.lives), self.setup.space_bytes());
        let mut new_cache_id = [7; 16];
        new_cache_id[..8].copy_from_slice(&self.dice.bits().to_le_bytes());
        let wanted = Wanted {
            page_bytes: self.setup.page_bytes,
            device_bytes: self.setup.disk_bytes,
            volumes: &[objects, facts("beside".to_owned(), BESIDE_BYTES)],
            generation: self.generation.get(),
            cold: false,
            force_format: false,
            intent_map: true,
            new_cache_id,
            identity: None,
        };
        let mut medium = self.disk.medium.borrow_mut();
        let planned = plan(&medium.current()[..HEAD_BYTES], &wanted).expect("the cache disk is not refused");
        self.generation.set(Some(planned.generation));
        for write in planned.writes.iter().flatten() {
            medium.write(write.offset, &write.bytes);
        }
        let mark = medium.mark();
        medium.flush(mark);
        drop(medium);
        self.ledger.say(|| format!("attached: {:?} {:?}", planned.notices, planned.disk.space(VolumeId(0))));
        if planned.recover {
            self.met.count(Count::WarmDisk, self.lives, 0);
        }
        planned
    }

    fn config(&mut self, planned: &Plan) -> CacheConfig {
        let layout = planned.disk.layout();
        let split = SplitConfig {
            kind: self.dice.pick(&SPLITS),
            backend_bytes_per_second_max: self.dice.pick(&[0, 0, 1 << 20]),
        };
        let volume = |(at, bytes): (usize, u64)| VolumeConfig {
            space: planned.disk.space(VolumeId(at as u16)),
            bytes,
            mode: WriteMode::ReadOnly,
            region_bytes: planned.disk.region_bytes(VolumeId(at as u16)),
            in_flight_regions: planned.in_flight_regions[at].clone(),
            range_bytes_max: 1 << 20,
            fetches: at != 0,
            split: if at == 0 { split } else { SplitConfig::default() },
            profile: Profile::default(),
        };
        let transit_frames = 40 + self.dice.pick(&[0, 20]);
        CacheConfig {
            page_bytes: self.setup.page_bytes,
            slots: layout.slot_count() as u32,
            table_records_per_sector: layout.records_per_sector() as u32,
            recover: planned.recover,
            scan_sectors_max: 1,
            frames: transit_frames + self.dice.pick(&[2, 16, 60]),
            transit_frames,
            memory_policy: self.dice.pick(&POLICIES),
            disk_policy: self.dice.pick(&POLICIES),
            admission: AdmissionConfig {
                second_access: self.dice.chance(100),
                sequential_cutoff_bytes: self.dice.pick(&[0, 256 << 10]),
            },
            volumes: [self.setup.space_bytes(), BESIDE_BYTES].into_iter().enumerate().map(volume).collect(),
            limits: Limits { stores_max: self.dice.pick(&[1, 4, 64]), ..Limits::default() },
            intent_map: true,
            seed: self.dice.bits(),
        }
    }

    /// As the product does it.
    fn store_device(&self, split: SplitConfig, arena: Rc<Arena>, desk: SharedDesk) -> Box<dyn Device> {
        match split.kind {
            SplitKind::Off => Box::new(Absent::new(self.setup.space_bytes())),
            _ => Box::new(StoreDevice::new(arena, self.setup.space_bytes(), desk)),
        }
    }

    fn gateway(&mut self) -> GatewaySetup {
        GatewaySetup {
            objects: ObjectsConfig {
                space_bytes: self.setup.space_bytes(),
                page_bytes: u64::from(self.setup.page_bytes),
                block_bytes: 4096,
                versions_max: self.setup.versions_max,
                metadata_ttl_ns: match self.met.has(Bug::TimeUnbounded) {
                    true => self.setup.ttl_ns * 100,
                    false => self.setup.ttl_ns,
                },
            },
            ttl_ns: self.setup.ttl_ns,
            chains: self.dice.pick(&[1, 4, 12]),
            wait_ns: self.dice.pick(&[500_000, 20_000_000, SECOND_NS]),
            reads: self.dice.pick(&[500, 700, 900]),
            evictions: self.dice.pick(&[0, 10, 100]),
        }
    }

    fn draw_faults(&mut self) {
        let mut character = Character::sound(self.setup.latency_ns);
        if self.dice.chance(400) {
            character.errors = self.dice.pick(&[0, 0, 20]);
            character.slow = self.dice.pick(&[0, 100]);
            character.slow_ns = 200_000_000;
            character.hangs = self.dice.pick(&[0, 0, 10]);
            character.hang_ns = 8 * SECOND_NS;
            character.lost = self.dice.pick(&[0, 50]);
            character.misdirected = self.dice.pick(&[0, 50]);
        }
        self.disk.character.set(character);
        if self.dice.chance(150) {
            let mut medium = self.disk.medium.borrow_mut();
            let slots = medium.bytes() - (2 << 20);
            for _ in 0..self.dice.between(1, 30) {
                let byte = (2 << 20) + self.dice.below(slots);
                medium.rot(byte, self.dice.below(8) as u32);
                self.met.count(Count::FaultRot, byte, 0);
            }
        }
    }

    /// Clients do as they like. True: it is time to crash.
    fn phase(&mut self, life: &mut Life) -> bool {
        let operations = self.shared.operations.get() + self.dice.between(10, 200);
        self.shared.is_on.set(true);
        life.shard.front().wake();
        while self.shared.operations.get() < operations {
            life.turn(&self.ledger);
            if self.ledger.is_cut() {
                return true;
            }
        }
        false
    }

    /// Nothing new begins, and nothing fails: then nothing may be left under way.
    fn rest(&mut self, life: &mut Life) {
        self.shared.is_on.set(false);
        self.disk.character.set(Character::sound(self.setup.latency_ns));
        self.run_until(life, |life, _| life.shard.front().is_idle() && life.shard.cache().is_idle());
    }

    fn run_until(&self, life: &mut Life, mut is_done: impl FnMut(&mut Life, u64) -> bool) {
        let end_ns = self.ledger.now_ns() + REST_NS;
        while !is_done(life, self.ledger.now_ns()) {
            assert!(self.ledger.now_ns() < end_ns, "something is left under way: {:?}", life.shard.cache().gauges());
            life.until_ns.set(self.ledger.now_ns() + SECOND_NS);
            life.turn(&self.ledger);
        }
        life.until_ns.set(u64::MAX);
    }

    fn count_states(&self, life: &Life) {
        let stats = life.shard.cache().stats();
        self.met.add(Count::BadBlock, stats.bad_blocks);
        for volume in &stats.volumes {
            self.met.add(Count::MemoryHit, volume.memory_hits);
            self.met.add(Count::DiskHit, volume.disk_hits);
            self.met.add(Count::StoreHit, volume.backend_hits);
            self.met.mix(volume.memory_hits << 32 | volume.disk_hits);
        }
    }

    fn crash(&mut self, mut life: Life) {
        life.shard.front().abandon();
        self.count_states(&life);
        drop(life);
        self.ledger.restore();
        let is_power = self.dice.chance(500);
        self.met.count(if is_power { Count::CrashMachine } else { Count::CrashProcess }, self.lives, 0);
        if is_power {
            lose_power(&self.disk, &self.ledger, &mut self.dice);
        }
    }
}

impl Life {
    fn turn(&mut self, ledger: &SharedLedger) {
        self.shard.turn();
        if ledger.now_ns() >= self.tick_ns {
            self.tick_ns = ledger.now_ns() + SECOND_NS;
            self.shard.front().assert_nothing_is_stuck();
        }
    }
}
