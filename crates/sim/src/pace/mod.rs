//! Pace: the product's shard over paths of known speed, in virtual time, with clients in a closed loop.
//!
//! Why: what a policy gains is a matter of a few percent, and a loaded machine of two processors is off by thirty. Here
//! the same setup gives the same figures anywhere, and a minute passes in seconds. What runs is the real
//! `Cache::step` in the real shard loop; only time, clients and devices are modelled.
//!
//! 1. A [`PacedWorld`] is set up: a cache disk that holds every page of every volume, or a part of them, a back end a
//!    volume, some of them behind a common link. Memory keeps nothing, so that each hit is one on disk. A volume that
//!    writes back has its log on the cache disk, as the product has it.
//! 2. [`PacedWorld::run_for`] lets time pass. In between anything may be changed: what clients do, how fast a path is,
//!    who else is on a link. A schedule is a sequence of such calls.
//! 3. For each 100 ms there is a [`Tick`] of what paths and clients did; [`PacedWorld::between`] sums them up.
//!
//! ```
//! use forebay_sim::pace::{Competitors, Load, PacedWorld, PathModel, Setup};
//! const MB: u64 = 1_000_000;
//! const SECOND_NS: u64 = 1_000_000_000;
//! let (disk, backend) = (PathModel::new(200 * MB, 300_000), PathModel::new(200 * MB, 800_000));
//! let mut setup = Setup::one_volume(disk, backend, Load::reads(4, 16, 65536));
//! setup.links_bytes_per_second = vec![160 * MB];
//! setup.volumes[0].link = Some((0, 1));
//! let mut world = PacedWorld::new(&setup, |_config| {});
//! world.run_for(SECOND_NS);
//! world.set_competitors(0, Competitors::of_netcas(10, 160 * MB));
//! world.run_for(SECOND_NS);
//! let congested = world.between(SECOND_NS, 2 * SECOND_NS);
//! assert!((congested.bytes_per_second() / 200e6 - 1.0).abs() < 0.02);
//! assert_eq!((congested.volumes[0].disk_share(), congested.disk.writes), (1.0, 0));
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `link` | bytes a second, divided fairly |
//! | `station` | a device as a queue and a delay |
//! | `writes` | what they cost a flash disk |
//! | `warm` | a cache disk that holds what is to hit |
//! | `clients` | requests in a closed loop |
//!
//! Speed: a request costs about 1.4 us of real time and what its checksum costs, 4 us for 64 KiB. A minute of 200 MB/s
//! in requests of 64 KiB takes a second.
//!
//! Limits: the processor takes no virtual time, and answers none on their way to clients. One shard. Two reads of one
//! page at a time are one (single flight), and the second counts as a memory hit: with n requests in flight over p pages
//! that is n / p of all.

mod clients;
mod link;
#[cfg(test)]
mod log_tests;
mod station;
#[cfg(test)]
mod tests;
mod tick;
mod warm;
mod writes;

pub use clients::{Latencies, Latency, Load};
pub use link::Competitors;
pub use station::{PathCounts, PathModel};
pub use tick::{TICK_NS, Tick, VolumeTick};
pub use writes::{Collection, WriteModel};

use crate::dice::Dice;
use clients::Clients;
use forebay_core::log::logged::LogPolicy;
use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits, Notice, Profile, SplitConfig, VolumeConfig,
    VolumeId, WriteMode,
};
use forebay_engine::attach::Plan;
use forebay_engine::device::Device;
use forebay_engine::devices::logged::{LogPlace, LogSnapshot, LogStatus, LoggedDevice, LoggedParts};
use forebay_engine::devices::shared::Shared;
use forebay_engine::reactor::Reactor;
use forebay_engine::shard::measure::{MeasureError, MeasureOrder, Measured};
use forebay_engine::shard::{Command, CommandOrder, Host, Shard, ShardDisk, ShardParts};
use forebay_policy::evict::PolicyKind;
use forebay_uring::Arena;
use link::Link;
use station::{Handle, Station};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use tick::Ticks;
use warm::{Warm, WarmVolume};

/// Turns at one time, at most: some for each request in flight.
const STILL_TURNS_MAX: u32 = 100_000;

/// A volume, its back end and its clients.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSetup {
    /// Its size: whole pages.
    pub bytes: u64,
    /// Of a thousand of its pages, how many are cached.
    pub cached_permil: u32,
    /// How it treats writes.
    pub mode: WriteMode,
    /// Bytes of its write-back log; 0: it has none.
    pub log_bytes: u64,
    /// What the log's owner chose.
    pub log_policy: LogPolicy,
    /// Its share of the cache disk.
    pub weight: u32,
    /// The way to its back end.
    pub backend: PathModel,
    /// The link that the way leads over, if it is shared: its place in [`Setup::links`], and how many flows the volume
    /// is there.
    pub link: Option<(usize, u32)>,
    /// What its clients do from the start.
    pub load: Load,
}

/// A world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The cache disk.
    pub disk: PathModel,
    /// What each shared link carries in a second.
    pub links_bytes_per_second: Vec<u64>,
    /// The volumes.
    pub volumes: Vec<VolumeSetup>,
    /// Pages that requests may have in flight at a time, at most.
    pub pages_in_flight_max: u32,
    /// All chance follows from it.
    pub seed: u64,
}

impl Setup {
    /// One volume of 65,536 pages of 64 KiB, written through, with nobody else on the way to its back end.
    #[must_use]
    pub fn one_volume(disk: PathModel, backend: PathModel, load: Load) -> Self {
        let volume = VolumeSetup {
            bytes: 4 << 30,
            cached_permil: 1000,
            mode: WriteMode::Through,
            log_bytes: 0,
            log_policy: LogPolicy::default(),
            weight: 100,
            backend,
            link: None,
            load,
        };
        Self {
            page_bytes: 65536,
            disk,
            links_bytes_per_second: Vec::new(),
            volumes: vec![volume],
            pages_in_flight_max: 2048,
            seed: 1,
        }
    }
}

/// A way to serve reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The cache disk.
    Disk,
    /// The back end of a volume.
    Backend(usize),
}

/// Virtual time: waiting moves it, up to where the world stops.
struct VirtualTime {
    now_ns: Rc<Cell<u64>>,
    stop_ns: Rc<Cell<u64>>,
}

impl Reactor for VirtualTime {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn wait(&mut self, until_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(until_ns.min(self.stop_ns.get())));
    }
}

/// A machine on which nothing goes wrong.
struct SoundHost;

impl Host for SoundHost {
    fn raise_generation(&mut self) {}

    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        Some(Ok(()))
    }

    fn backend_mtime_ns(&mut self, _volume: VolumeId) -> i64 {
        0
    }

    fn notice(&mut self, notice: Notice) {
        assert!(matches!(notice, Notice::Recovered { dropped: 0, .. }), "something is wrong: {notice:?}");
    }
}

/// See the module.
pub struct PacedWorld {
    shard: Shard<VirtualTime, Clients>,
    now_ns: Rc<Cell<u64>>,
    stop_ns: Rc<Cell<u64>>,
    pages_in_flight_max: u32,
    page_bytes: u32,
    disk: Handle,
    backends: Vec<Handle>,
    links: Vec<Rc<RefCell<Link>>>,
    logs: Vec<Option<LogStatus>>,
    commands: Sender<Command>,
    ticks: Ticks,
}

impl PacedWorld {
    /// A world at time 0, everything cached, its clients about to begin. `configure` may change what the cache is told,
    /// how it splits hits above all; not its sizes.
    ///
    /// # Panics
    /// When the setup makes no sense.
    #[must_use]
    pub fn new(setup: &Setup, configure: impl FnOnce(&mut CacheConfig)) -> Self {
        let mut dice = Dice::new(setup.seed);
        let volume_bytes: Vec<u64> = setup.volumes.iter().map(|volume| volume.bytes).collect();
        let whole = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(u64::from(setup.page_bytes));
        assert!(volume_bytes.iter().all(whole), "volumes are whole pages: {volume_bytes:?}");
        let warm = |volume: &VolumeSetup| WarmVolume {
            bytes: volume.bytes,
            cached_permil: volume.cached_permil,
            log_bytes: volume.log_bytes,
        };
        let (warm, planned) = Warm::attach(setup.page_bytes, &setup.volumes.iter().map(warm).collect::<Vec<_>>());
        let mut config = config(setup, &planned, dice.bits());
        configure(&mut config);
        let metadata = Shard::<VirtualTime, Clients>::metadata_frames(&config);
        let logs = setup.volumes.iter().filter(|volume| volume.log_bytes > 0).count() as u32;
        let frames = config.frames + metadata + logs * LoggedDevice::frames(setup.page_bytes);
        let arena = Rc::new(Arena::new(frames, setup.page_bytes).expect("memory for frames"));
        let links = setup.links_bytes_per_second.iter().map(|rate| Rc::new(RefCell::new(Link::new(Some(*rate)))));
        let links: Vec<_> = links.collect();
        let alone = || Rc::new(RefCell::new(Link::new(None)));
        let disk = Handle::new(alone(), 1, setup.disk);
        let backend = |volume: &VolumeSetup| match volume.link {
            Some((link, flows)) => Handle::new(Rc::clone(&links[link]), flows, volume.backend),
            None => Handle::new(alone(), 1, volume.backend),
        };
        let backends: Vec<Handle> = setup.volumes.iter().map(backend).collect();
        let (disk_bytes, pages) = (warm.device_bytes(), warm.pages());
        let device = Station::new(disk.clone(), disk_bytes, dice.fork(), Some((warm, Rc::clone(&arena))));
        let stations = backends.iter().zip(&volume_bytes);
        let stations = stations.map(|(handle, bytes)| Station::new(handle.clone(), *bytes, dice.fork(), None));
        let stations = stations.map(|station| Box::new(station) as Box<dyn Device>).collect();
        let all = || backends.iter().chain([&disk]);
        all().for_each(|path| path.set_free(true));
        let first_frame = config.frames + metadata;
        let (device, stations, logs) = open_logs(setup, &planned, Box::new(device), stations, (&arena, first_frame));
        all().for_each(|path| path.set_free(false));
        let (now_ns, stop_ns) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (commands, orders) = channel();
        let parts = ShardParts {
            cache: Cache::new(config.clone()).expect("a sound configuration"),
            arena,
            metadata_frame: FrameId(config.frames),
            reactor: VirtualTime { now_ns: Rc::clone(&now_ns), stop_ns: Rc::clone(&stop_ns) },
            front: Clients::new(&volume_bytes, &mut dice),
            disk: Some(ShardDisk { device, format: planned.disk }),
            backends: stations,
            host: Box::new(SoundHost),
            commands: Some(orders),
        };
        let mut world = Self {
            shard: Shard::new(parts, &config),
            now_ns,
            stop_ns,
            pages_in_flight_max: setup.pages_in_flight_max,
            page_bytes: setup.page_bytes,
            disk,
            ticks: Ticks::new(backends.len()),
            backends,
            links,
            logs,
            commands,
        };
        world.recover(pages);
        for (volume, setup) in setup.volumes.iter().enumerate() {
            world.set_load(volume, setup.load);
        }
        world
    }

    /// Lets the cache read its table, which takes no time.
    fn recover(&mut self, pages: u64) {
        self.shard.turn();
        while self.shard.cache().gauges().recovering {
            self.shard.turn();
        }
        let gauges = self.shard.cache().gauges();
        assert!(
            self.now_ns() == 0 && u64::from(gauges.disk_pages) == pages,
            "{pages} pages are cached from the start: {gauges:?}"
        );
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Lets time pass.
    pub fn run_for(&mut self, elapsed_ns: u64) {
        self.run_until(self.now_ns() + elapsed_ns);
    }

    /// Lets time pass until then.
    pub fn run_until(&mut self, until_ns: u64) {
        while self.now_ns() < until_ns {
            let tick_ns = self.ticks.next_ns();
            self.stop_ns.set(until_ns.min(tick_ns));
            let mut turns = 0;
            while self.now_ns() < self.stop_ns.get() {
                let before_ns = self.now_ns();
                self.shard.turn();
                turns = if self.now_ns() == before_ns { turns + 1 } else { 0 };
                assert!(turns < STILL_TURNS_MAX, "the loop turns and time stands still at {before_ns}");
            }
            if self.now_ns() == tick_ns {
                let volumes = 0..self.backends.len();
                let clients = volumes.map(|volume| self.shard.front().take_counts(volume)).collect();
                let backends = self.backends.iter().map(Handle::counts);
                self.ticks.end(self.disk.counts(), backends, self.shard.cache().stats(), clients);
            }
        }
    }

    /// From now on the clients of a volume do this; what they have in flight is answered first.
    ///
    /// # Panics
    /// When all clients together have more in flight than the setup says.
    pub fn set_load(&mut self, volume: usize, load: Load) {
        let now_ns = self.now_ns();
        let (page_bytes, volumes) = (self.page_bytes, self.backends.len());
        let front = self.shard.front();
        front.set_load(now_ns, volume, load);
        let pages = |load: Load| load.in_flight() * load.block_bytes.div_ceil(page_bytes);
        let pages: u32 = (0..volumes).map(|volume| pages(front.load(volume))).sum();
        assert!(pages <= self.pages_in_flight_max, "{pages} pages in flight");
    }

    /// From the next turn on, the volume's hits are split so.
    pub fn set_split(&mut self, volume: usize, split: SplitConfig) {
        let order = CommandOrder::SetSplit { volume: VolumeId(volume as u16), split };
        // Nobody waits for the answer: it cannot be refused.
        let (answer, _) = channel();
        self.commands.send(Command { order, answer }).expect("the shard is there");
    }

    /// Gives the policies of a volume another profile from the next turn on.
    pub fn set_profile(&mut self, volume: usize, profile: Profile) {
        let order = CommandOrder::SetProfile { volume: VolumeId(volume as u16), profile: Box::new(profile) };
        let (answer, _) = channel();
        self.commands.send(Command { order, answer }).expect("the shard is there");
    }

    /// Measures what a path delivers, as `forebay profile` does. Takes as long as the order says, or longer.
    ///
    /// # Errors
    /// As the order's answer.
    pub fn measure(&mut self, order: MeasureOrder) -> Result<Measured, MeasureError> {
        let ((told, tells), (answer, _)) = (channel(), channel());
        self.commands
            .send(Command { order: CommandOrder::Measure { order, told }, answer })
            .expect("the shard is there");
        self.run_for(order.for_ns);
        loop {
            if let Ok(measured) = tells.try_recv() {
                return measured;
            }
            self.run_for(TICK_NS / 100);
        }
    }

    fn path(&self, path: Path) -> &Handle {
        match path {
            Path::Disk => &self.disk,
            Path::Backend(volume) => &self.backends[volume],
        }
    }

    /// What a path can do now.
    #[must_use]
    pub fn path_model(&self, path: Path) -> PathModel {
        self.path(path).model()
    }

    /// Changes what a path can do, from now on and for what is under way.
    pub fn set_path(&mut self, path: Path, model: PathModel) {
        self.path(path).set_model(self.now_ns(), model);
    }

    /// Changes a path's rate.
    pub fn set_rate(&mut self, path: Path, bytes_per_second: u64) {
        self.set_path(path, PathModel { bytes_per_second, ..self.path_model(path) });
    }

    /// From now on a path answers nothing but what is travelling, or all that it was asked meanwhile. A stall ends before
    /// the path is changed.
    pub fn set_stalled(&mut self, path: Path, is_stalled: bool) {
        self.path(path).set_stalled(self.now_ns(), is_stalled);
    }

    /// Changes what a link carries.
    pub fn set_link(&mut self, link: usize, bytes_per_second: u64) {
        self.links[link].borrow_mut().set_rate(self.now_ns(), bytes_per_second);
    }

    /// Changes who else is on a link.
    pub fn set_competitors(&mut self, link: usize, competitors: Competitors) {
        self.links[link].borrow_mut().set_competitors(self.now_ns(), competitors);
    }

    /// What happened in each 100 ms so far.
    #[must_use]
    pub fn ticks(&self) -> &[Tick] {
        self.ticks.all()
    }

    /// What happened in the ticks from one time to another.
    #[must_use]
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Tick {
        self.ticks.sum(from_ns, to_ns)
    }

    /// How long requests of a volume's clients took that were answered since this was last asked.
    pub fn take_latencies(&mut self, volume: usize) -> Latencies {
        self.shard.front().take_latencies(volume)
    }

    /// How a volume's write-back log is, if it has one.
    #[must_use]
    pub fn log(&self, volume: usize) -> Option<LogSnapshot> {
        self.logs[volume].as_ref().map(LogStatus::get)
    }

    /// The cache: its counters, and what its policies believe.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        self.shard.cache()
    }
}

/// The cache disk for the cache, the back ends with their logs before them, and those logs.
type Opened = (Box<dyn Device>, Vec<Box<dyn Device>>, Vec<Option<LogStatus>>);

/// Puts logs before their back ends, as the product does; each is found empty. The frames behind the first are theirs.
fn open_logs(
    setup: &Setup,
    planned: &Plan,
    device: Box<dyn Device>,
    stations: Vec<Box<dyn Device>>,
    (arena, mut first_frame): (&Rc<Arena>, u32),
) -> Opened {
    let area = |at: usize| planned.disk.log(VolumeId(at as u16));
    if (0..stations.len()).filter_map(area).count() == 0 {
        let none = stations.iter().map(|_| None).collect();
        return (device, stations, none);
    }
    let mut reactor = VirtualTime { now_ns: Rc::default(), stop_ns: Rc::default() };
    let weights: Vec<u32> = setup.volumes.iter().map(|volume| volume.weight).collect();
    let (cache, handles) = Shared::split(device, &weights);
    let open = |(at, (backend, handle)): (usize, (Box<dyn Device>, Shared))| {
        let Some(area) = area(at) else { return (backend, None) };
        let place = LogPlace {
            offset: area.offset,
            bytes: area.bytes,
            seed: planned.disk.seed(),
            space: planned.disk.space(VolumeId(at as u16)),
            in_use: false,
        };
        let disk = Box::new(handle);
        let parts = LoggedParts { disk, place, backend, regions: None, arena: Rc::clone(arena), first_frame };
        first_frame += LoggedDevice::frames(arena.frame_bytes());
        let log = LoggedDevice::open(parts, &mut reactor).unwrap_or_else(|error| panic!("{error}"));
        log.control().set(setup.volumes[at].log_policy);
        let status = log.status();
        (Box::new(log) as Box<dyn Device>, Some(status))
    };
    let (backends, statuses) = stations.into_iter().zip(handles).enumerate().map(open).unzip();
    (Box::new(cache), backends, statuses)
}

fn config(setup: &Setup, planned: &Plan, seed: u64) -> CacheConfig {
    let layout = planned.disk.layout();
    let volume = |(at, volume): (usize, &VolumeSetup)| VolumeConfig {
        space: planned.disk.space(VolumeId(at as u16)),
        bytes: volume.bytes,
        mode: volume.mode,
        region_bytes: planned.disk.region_bytes(VolumeId(at as u16)),
        in_flight_regions: planned.in_flight_regions[at].clone(),
        range_bytes_max: 1 << 30,
        fetches: true,
        split: SplitConfig::default(),
        profile: Profile::default(),
    };
    // As many again for stores, and a quarter that only memory hits may use.
    let frames = setup.pages_in_flight_max * 3 + 64;
    CacheConfig {
        page_bytes: setup.page_bytes,
        slots: layout.slot_count() as u32,
        table_records_per_sector: layout.records_per_sector() as u32,
        recover: true,
        scan_sectors_max: setup.page_bytes / 4096,
        frames,
        transit_frames: frames,
        memory_policy: PolicyKind::Lru,
        disk_policy: PolicyKind::Lru,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: setup.volumes.iter().enumerate().map(volume).collect(),
        limits: Limits { requests_max: setup.pages_in_flight_max, ..Limits::default() },
        intent_map: true,
        seed,
    }
}
