//! One life of the process: attached from what is on the disks, run by turns, ended by a crash or in order.

use crate::back::logs::{self, Around};
use crate::back::seam::SharedLog;
use crate::bug::Bug;
use crate::front::{FrontVolume, SimFront};
use crate::host::SimHost;
use crate::ledger::{Count, SharedLedger};
use crate::model_device::{ModelDevice, Role};
use crate::nbd_device::NbdDevice;
use crate::setup::{BackendKind, LifeSetup};
use crate::table_check::check_table;
use crate::world::{Machine, Store};
use forebay_core::{Cache, CacheConfig, FrameId, VolumeConfig, VolumeId, WriteMode};
use forebay_engine::attach::{CacheDisk, HEAD_BYTES, Notice, Plan, Refusal, VolumeFacts, Wanted, plan};
use forebay_engine::device::Device;
use forebay_engine::devices::sectors::Sectors;
use forebay_engine::reactor::Reactor;
use forebay_engine::shard::{Shard, ShardDisk, ShardParts};
use forebay_uring::Arena;
use forebay_wire::disk::layout::TABLE_OFFSET;
use std::cell::Cell;
use std::rc::Rc;

/// What new frames hold: no sector's content.
const POISON: u8 = 0xee;
/// Frames for the bounce buffers of a back end with large sectors.
const BOUNCE_FRAMES: u32 = 2;

/// Virtual time: waiting moves it.
pub struct SimReactor {
    ledger: SharedLedger,
    /// Time stops here, whatever the shard waits for: the world wants to have a word.
    until_ns: Rc<Cell<u64>>,
}

impl SimReactor {
    /// The world's clock, which stops at `until_ns`.
    #[must_use]
    pub fn new(ledger: SharedLedger, until_ns: Rc<Cell<u64>>) -> Self {
        Self { ledger, until_ns }
    }
}

impl Reactor for SimReactor {
    fn now_ns(&self) -> u64 {
        self.ledger.now_ns()
    }

    fn wait(&mut self, until_ns: u64) {
        let until_ns = until_ns.min(self.until_ns.get());
        self.ledger.set_now_ns(self.ledger.now_ns().max(until_ns));
    }
}

/// See the module.
pub struct Life {
    /// The shard, as the product runs it.
    pub shard: Shard<SimReactor, SimFront>,
    /// How it was set up.
    pub setup: LifeSetup,
    /// See [`SimReactor`].
    pub until_ns: Rc<Cell<u64>>,
    /// Pages that the table said.
    pub had_table: bool,
    /// Of its volumes, if they write back.
    pub logs: Vec<SharedLog>,
    arena: Rc<Arena>,
    ledger: SharedLedger,
    tick_ns: u64,
    still_turns: u32,
}

impl Life {
    /// Starts the process on what is there.
    #[must_use]
    pub fn begin(machine: &mut Machine) -> Self {
        machine.ledger.restore();
        Self::try_begin(machine).expect("nothing cuts it short")
    }

    /// The same. `None`: the power went out before it was done.
    #[must_use]
    pub fn try_begin(machine: &mut Machine) -> Option<Self> {
        let mut setup = LifeSetup::draw(&mut machine.dice, &machine.setup);
        if let Some(back) = &machine.back {
            back.change(&mut setup, &machine.setup);
        }
        let planned = machine.disk.is_some().then(|| attach(machine, &setup));
        let config = config(machine, &setup, planned.as_ref());
        machine.ledger.say(|| format!("start: {config:?}"));
        let metadata = Shard::<SimReactor, SimFront>::metadata_frames(&config);
        let coarse = machine.setup.volumes.iter().filter(|v| v.backend == BackendKind::Coarse).count() as u32;
        let own_frames = config.frames + metadata + coarse * BOUNCE_FRAMES;
        let frames = own_frames + logs::frames(machine, setup.page_bytes);
        let arena = Rc::new(Arena::new(frames, setup.page_bytes).expect("memory for frames"));
        for frame in 0..own_frames {
            arena.with_bytes_mut(frame, 0, setup.page_bytes, |bytes| bytes.fill(POISON));
        }
        let until_ns = Rc::new(Cell::new(u64::MAX));
        let had_table = planned.as_ref().is_some_and(|plan| plan.recover);
        let mut disk = planned.as_ref().map(|plan| disk_of(machine, &arena, plan.disk.clone()));
        let mut backends = backends(machine, &arena, config.frames + metadata);
        let mut logs = Vec::new();
        if machine.back.is_some() {
            let reactor = || SimReactor { ledger: Rc::clone(&machine.ledger), until_ns: Rc::clone(&until_ns) };
            let (mut settles, reactor) = (reactor(), reactor());
            let around = Around { arena: &arena, own_frames, first_frame: own_frames, reactor };
            let (opened, found) = logs::open_all(machine, disk.take()?, &mut backends, around)?;
            (disk, logs) = (Some(opened), found);
            crate::back::world::begun(machine, planned.as_ref()?, &logs, &arena, &mut settles)?;
        }
        let volumes = config.volumes.iter().map(|v| FrontVolume { sectors: v.bytes / 512, mode: v.mode }).collect();
        let ledger = Rc::clone(&machine.ledger);
        let front = SimFront::new(
            Rc::clone(&machine.shared),
            Rc::clone(&arena),
            Rc::clone(&ledger),
            machine.dice.fork(),
            volumes,
            setup.chains,
            machine.truth(),
        );
        let host = SimHost::new(
            Rc::clone(&machine.generation),
            Rc::clone(&machine.shared),
            Rc::clone(&ledger),
            machine.dice.fork(),
        );
        let parts = ShardParts {
            cache: Cache::new(config.clone()).expect("a sound configuration"),
            arena: Rc::clone(&arena),
            metadata_frame: FrameId(config.frames),
            reactor: SimReactor { ledger: Rc::clone(&ledger), until_ns: Rc::clone(&until_ns) },
            front,
            disk,
            backends,
            host: Box::new(host),
            commands: None,
        };
        let shard = Shard::new(parts, &config);
        Some(Self { shard, setup, until_ns, had_table, logs, arena, ledger, tick_ns: 0, still_turns: 0 })
    }

    /// All frames.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The back ends have all that the logs have.
    #[must_use]
    pub fn logs_have_followed(&self) -> bool {
        self.logs.iter().all(|log| log.borrow().logged().has_followed())
    }

    /// One turn of the loop.
    pub fn turn(&mut self) {
        let before_ns = self.ledger.now_ns();
        self.shard.turn();
        let now_ns = self.ledger.now_ns();
        self.still_turns = if now_ns == before_ns { self.still_turns + 1 } else { 0 };
        assert!(self.still_turns < 20_000, "the loop turns and time stands still");
        if self.shard.cache().has_more() {
            self.ledger.count(Count::Continue, 0, 0);
        }
        if now_ns >= self.tick_ns {
            self.tick_ns = now_ns + 100_000_000;
            self.ledger.count(Count::Tick, 0, 0);
            self.shard.front().assert_nothing_is_stuck();
        }
    }

    /// Counts what the cache says of itself; at the end of a life.
    pub fn count_states(&self) {
        let (stats, gauges) = (self.shard.cache().stats(), self.shard.cache().gauges());
        let add = |what, n| self.ledger.add(what, n);
        for volume in &stats.volumes {
            add(Count::StateMemoryHit, volume.memory_hits);
            add(Count::StateDiskHit, volume.disk_hits);
            add(Count::StateSplitHit, volume.backend_hits);
            add(Count::StateSplitFailover, volume.split_failovers);
            add(Count::StateMiss, volume.misses);
            add(Count::StateRecoveringMiss, volume.recovering);
            add(Count::StateHedged, volume.hedged);
            self.ledger.mix(volume.memory_hits << 32 | volume.disk_hits);
        }
        add(Count::StateStoreSkipped, stats.stores_skipped);
        add(Count::StateBadBlock, stats.bad_blocks);
        add(Count::StateDetached, stats.fail_opens);
        add(Count::StateEvictedMemory, u64::from(gauges.memory_pages == gauges.memory_pages_max));
        add(Count::StateEvictedDisk, u64::from(gauges.disk_pages == gauges.disk_pages_max && gauges.disk_pages > 0));
        add(Count::StateIntentOff, u64::from(!self.setup.intent_map));
        for mode in &self.setup.modes {
            let what = match mode {
                WriteMode::Through => Count::StateThrough,
                WriteMode::Around => Count::StateAround,
                WriteMode::Pass => Count::StatePass,
                WriteMode::ReadOnly => Count::StateReadOnly,
                WriteMode::Back => Count::StateBack,
            };
            add(what, 1);
        }
    }
}

/// Attaches the cache disk by the plan that the product makes.
fn attach(machine: &mut Machine, setup: &LifeSetup) -> Plan {
    let disk = Rc::clone(machine.disk.as_ref().expect("there is a cache disk"));
    let volumes = &machine.setup.volumes;
    let facts = |(at, volume): (usize, &crate::setup::VolumeSetup)| VolumeFacts {
        name: format!("v{at}"),
        backend: "modelled".to_owned(),
        identity: at as u64 + 1,
        bytes: volume.bytes(),
        mtime_ns: 1_000_000 + at as i64,
        log_bytes: volume.log_bytes,
    };
    let facts: Vec<VolumeFacts> = volumes.iter().enumerate().map(facts).collect();
    let cold = machine.dice.chance(20);
    for attempt in 0u8.. {
        let mut new_cache_id = [attempt; 16];
        new_cache_id[..8].copy_from_slice(&machine.dice.bits().to_le_bytes());
        let wanted = Wanted {
            page_bytes: setup.page_bytes,
            device_bytes: disk.medium.borrow().bytes(),
            volumes: &facts,
            generation: machine.generation.value.get(),
            cold,
            force_format: false,
            intent_map: setup.intent_map,
            new_cache_id,
            identity: None,
        };
        let decide = |wanted| plan(&disk.medium.borrow().current()[..HEAD_BYTES], wanted);
        let planned = match decide(&wanted) {
            // Only then may both superblocks be damaged, and only by force does it go on.
            Err(Refusal::Damaged | Refusal::Foreign { .. }) if machine.superblock_doubtful => {
                decide(&Wanted { force_format: true, ..wanted })
            }
            planned => planned,
        };
        let mut planned = planned.unwrap_or_else(|refusal| panic!("the cache disk is refused: {refusal}"));
        // Behind logs there is only a part of the truth: there it is checked when they are open.
        if planned.recover && machine.back.is_none() {
            check_table(&disk.medium.borrow(), &planned, &machine.truth(), |_, _| false, &machine.ledger);
        }
        machine.generation.value.set(Some(planned.generation));
        let crashes = attempt < 3 && machine.dice.chance(80);
        if carry_out(machine, &planned, crashes) {
            count_start(machine, &planned);
            machine.superblock_doubtful = false;
            if machine.ledger.has(Bug::RegionsForgotten) {
                planned.in_flight_regions.iter_mut().flatten().for_each(|word| *word = 0);
            }
            return planned;
        }
    }
    unreachable!("attaching ends")
}

/// Writes what the plan says. False: the machine crashed in the middle.
fn carry_out(machine: &mut Machine, planned: &Plan, crashes: bool) -> bool {
    let disk = machine.disk.as_ref().expect("there is a cache disk");
    let stop = if crashes { machine.dice.below(planned.writes.len() as u64) as usize } else { usize::MAX };
    for (nth, group) in planned.writes.iter().enumerate() {
        for write in group {
            if nth < stop || machine.dice.chance(700) {
                disk.medium.borrow_mut().write(write.offset, &write.bytes);
            }
        }
        if nth == stop {
            machine.ledger.count(Count::FaultCrashWhileAttaching, nth as u64, 0);
            crate::model_device::lose_power(disk, &machine.ledger, &mut machine.dice);
            if machine.back.is_some() {
                machine.all_lose();
            }
            // The first superblock of all may be torn, and there is no other.
            machine.superblock_doubtful |= planned.notices.contains(&Notice::Formatted);
            return false;
        }
        let mark = disk.medium.borrow().mark();
        disk.medium.borrow_mut().flush(mark);
    }
    true
}

fn count_start(machine: &Machine, planned: &Plan) {
    machine.ledger.say(|| format!("attached: {:?}", planned.notices));
    let regions: u32 = planned.in_flight_regions.iter().flatten().map(|word| word.count_ones()).sum();
    let unclean = planned.notices.iter().any(|notice| matches!(notice, Notice::Unclean { .. }));
    let passed = planned.notices.contains(&Notice::GenerationPassed);
    let count = |what| machine.ledger.count(what, u64::from(regions), 0);
    count(if planned.recover { Count::StateWarmStart } else { Count::StateColdStart });
    if unclean && regions > 0 {
        count(Count::StateUncleanStart);
    } else if planned.recover && !unclean {
        count(Count::StateCleanStart);
    }
    if passed {
        count(Count::StateGenerationPassed);
    }
}

fn config(machine: &mut Machine, setup: &LifeSetup, planned: Option<&Plan>) -> CacheConfig {
    let volume = |(at, volume): (usize, &crate::setup::VolumeSetup)| {
        let id = VolumeId(at as u16);
        VolumeConfig {
            space: planned.map_or(at as u32 + 1, |plan| plan.disk.space(id)),
            bytes: volume.bytes(),
            mode: setup.modes[at],
            region_bytes: planned
                .map_or_else(|| CacheConfig::region_bytes_for(volume.bytes()), |plan| plan.disk.region_bytes(id)),
            in_flight_regions: planned.map_or_else(Vec::new, |plan| plan.in_flight_regions[at].clone()),
            range_bytes_max: 1 << 20,
            fetches: true,
            split: setup.splits[at],
            profile: forebay_core::Profile::default(),
        }
    };
    let layout = planned.map(|plan| *plan.disk.layout());
    CacheConfig {
        page_bytes: setup.page_bytes,
        slots: layout.map_or(0, |layout| layout.slot_count() as u32),
        table_records_per_sector: layout.map_or(1, |layout| layout.records_per_sector() as u32),
        recover: planned.is_some_and(|plan| plan.recover),
        scan_sectors_max: setup.scan_sectors_max,
        frames: setup.transit_frames + setup.kept_frames,
        transit_frames: setup.transit_frames,
        memory_policy: setup.policies[0],
        disk_policy: setup.policies[1],
        admission: setup.admission,
        volumes: machine.setup.volumes.iter().enumerate().map(volume).collect(),
        limits: setup.limits,
        intent_map: setup.intent_map,
        seed: machine.dice.bits(),
    }
}

fn disk_of(machine: &mut Machine, arena: &Rc<Arena>, format: CacheDisk) -> ShardDisk {
    let disk = machine.disk.as_ref().expect("there is a cache disk");
    let logs = if machine.back.is_some() { format.layout().device_bytes() } else { u64::MAX };
    let bounds = [8192, TABLE_OFFSET, format.layout().data_offset(), logs];
    let role = Role::CacheDisk { bounds };
    let dice = machine.dice.fork();
    let sector = if machine.back.is_some() { 512 } else { 4096 };
    let device = ModelDevice::new(Rc::clone(disk), Rc::clone(arena), Rc::clone(&machine.ledger), role, sector, dice);
    ShardDisk { device: Box::new(device), format }
}

fn backends(machine: &mut Machine, arena: &Rc<Arena>, mut bounces: u32) -> Vec<Box<dyn Device>> {
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    for volume in 0..machine.stores.len() {
        let dice = machine.dice.fork();
        let ledger = Rc::clone(&machine.ledger);
        match (&machine.stores[volume], machine.setup.volumes[volume].backend) {
            (Store::Server(server), kind) => {
                let BackendKind::Nbd { connections } = kind else { unreachable!("a server speaks NBD") };
                let (server, arena) = (Rc::clone(server), Rc::clone(arena));
                devices.push(Box::new(NbdDevice::new(volume, connections, server, arena, ledger, dice)));
            }
            (Store::Disk(disk), kind) => {
                let coarse = kind == BackendKind::Coarse;
                let sector = if coarse { 4096 } else { 512 };
                let behind_log = machine.back.is_some().then_some(bounces);
                let role = Role::Backend { volume, behind_log };
                let device = ModelDevice::new(Rc::clone(disk), Rc::clone(arena), ledger, role, sector, dice);
                if coarse {
                    let frames = bounces..bounces + BOUNCE_FRAMES;
                    bounces += BOUNCE_FRAMES;
                    devices.push(Box::new(Sectors::new(device, Rc::clone(arena), frames)));
                } else {
                    devices.push(Box::new(device));
                }
            }
        }
    }
    devices
}
