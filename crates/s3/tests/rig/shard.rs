//! A shard with a pool, on a thread of its own.

use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits as CacheLimits, Notice, Profile, SplitConfig,
    VolumeConfig, VolumeId, VolumeStats, WriteMode,
};
use forebay_engine::attach::{AttachOptions, Attached, VolumeFacts, attach};
use forebay_engine::device::Device;
use forebay_engine::devices::absent::Absent;
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::memory::Memory;
use forebay_engine::devices::paced::{Pace, Paced};
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::shard::{Host, Shard, ShardDisk, ShardParts};
use forebay_policy::evict::PolicyKind;
use forebay_s3::{Pool, PoolFront, StoreDevice, StoreReads};
use forebay_uring::{Arena, Limits, Wake};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub(crate) const PAGE_BYTES: u32 = 64 << 10;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const VOLUME_BYTES: u64 = 256 << 20;
const TRANSIT: u32 = 256;
/// Kept, beside those in transit.
const KEPT: u32 = 64;
/// The same where most hits are to be on the cache disk.
const KEPT_OF_DISK: u32 = 8;
const DISK_BYTES: u64 = 64 << 20;

struct NoHost;

impl Host for NoHost {
    fn raise_generation(&mut self) {}
    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        None
    }
    fn backend_mtime_ns(&mut self, _volume: VolumeId) -> i64 {
        0
    }
    fn notice(&mut self, _notice: Notice) {}
}

/// What is behind the object space.
#[derive(Clone, Copy)]
enum Behind {
    Nothing,
    Zeroes,
    /// A cache disk before the store.
    Store(SplitConfig),
}

fn config() -> CacheConfig {
    CacheConfig {
        page_bytes: PAGE_BYTES,
        slots: 0,
        table_records_per_sector: 1,
        recover: false,
        scan_sectors_max: 1,
        frames: TRANSIT + KEPT,
        transit_frames: TRANSIT,
        memory_policy: PolicyKind::S3Fifo,
        disk_policy: PolicyKind::S3Fifo,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![VolumeConfig {
            space: 1,
            bytes: VOLUME_BYTES,
            mode: WriteMode::ReadOnly,
            region_bytes: 1 << 20,
            in_flight_regions: Vec::new(),
            range_bytes_max: 1 << 20,
            fetches: true,
            split: SplitConfig::default(),
            profile: Profile::default(),
        }],
        limits: CacheLimits::default(),
        intent_map: true,
        seed: 1,
    }
}

/// A new cache disk in that directory.
fn attached(directory: &Path) -> Attached {
    let volume = VolumeFacts {
        name: "objects".to_owned(),
        backend: "store".to_owned(),
        identity: 0,
        bytes: VOLUME_BYTES,
        mtime_ns: 0,
        log_bytes: 0,
    };
    let options = AttachOptions {
        path: &directory.join("disk"),
        bytes: Some(DISK_BYTES),
        sparse: true,
        page_bytes: PAGE_BYTES,
        volumes: &[volume],
        state_directory: directory,
        name: "cache",
        cold: true,
        force_format: false,
        intent_map: true,
        identity: None,
    };
    attach(&options).expect("a cache disk")
}

/// What the thread tells when it runs.
struct Told {
    pool: Pool,
    wake: Wake,
    reads: Option<StoreReads>,
}

/// A shard on a thread of its own.
pub(crate) struct Running {
    pub(crate) pool: Pool,
    pub(crate) wake: Wake,
    /// What the shard reads from the store, if it may: for one gateway.
    pub(crate) reads: Mutex<Option<StoreReads>>,
    /// How fast its cache disk is, if it has one.
    pub(crate) pace: Arc<Pace>,
    /// Where that is.
    pub(crate) directory: tempfile::TempDir,
    seen: Arc<Mutex<VolumeStats>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl Running {
    /// Its back end has nothing if it `is_absent`, and zeroes otherwise.
    pub(crate) fn start(is_absent: bool) -> Self {
        Self::before(if is_absent { Behind::Nothing } else { Behind::Zeroes })
    }

    /// With a cache disk before the store.
    pub(crate) fn splitting(split: SplitConfig) -> Self {
        Self::before(Behind::Store(split))
    }

    fn before(behind: Behind) -> Self {
        let (tell, told) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let seen: Arc<Mutex<VolumeStats>> = Arc::default();
        let pace = Pace::new(0, 0);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let of_thread = (Arc::clone(&ends), Arc::clone(&seen), Arc::clone(&pace));
        let thread = std::thread::spawn(move || {
            let (ends, seen, pace) = of_thread;
            let mut shard = shard(behind, &path, pace, &tell);
            while !ends.load(Ordering::Relaxed) {
                shard.turn();
                seen.lock().expect("no thread died").clone_from(&shard.cache().stats().volumes[0]);
            }
            shard.turn();
            shard.cache().is_idle()
        });
        let Told { pool, wake, reads } = told.recv().expect("it starts");
        Self { pool, wake, reads: Mutex::new(reads), pace, directory, seen, ends, thread: Some(thread) }
    }

    /// What the shard counted.
    pub(crate) fn seen(&self) -> VolumeStats {
        self.seen.lock().expect("no thread died").clone()
    }

    /// Whether nothing was under way at the end.
    pub(crate) fn stop(mut self) -> bool {
        self.ends.store(true, Ordering::Relaxed);
        self.wake.wake();
        self.thread.take().expect("it runs").join().expect("it did not panic")
    }
}

fn shard(behind: Behind, directory: &Path, pace: Arc<Pace>, tell: &Sender<Told>) -> Shard<RingReactor, PoolFront> {
    let mut config = config();
    let reactor = RingReactor::new(Limits { ops_max: 256, fds_max: 8 }).expect("a ring");
    let wake = reactor.waker().expect("a waker");
    let mut disk = None;
    config.volumes[0].fetches = matches!(behind, Behind::Zeroes);
    match behind {
        Behind::Zeroes => {}
        Behind::Nothing => config.frames += 1024,
        Behind::Store(split) => {
            let attached = attached(directory);
            let layout = attached.disk.layout();
            config.slots = layout.slot_count() as u32;
            config.table_records_per_sector = layout.records_per_sector() as u32;
            config.frames = TRANSIT + KEPT_OF_DISK;
            config.volumes[0].space = attached.disk.space(VolumeId(0));
            config.volumes[0].region_bytes = attached.disk.region_bytes(VolumeId(0));
            config.volumes[0].split = split;
            disk = Some(attached);
        }
    }
    let frames = config.frames;
    let metadata = Shard::<RingReactor, PoolFront>::metadata_frames(&config);
    let arena = Rc::new(Arena::new(frames + metadata, PAGE_BYTES).expect("memory"));
    let frames_id = reactor.add_arena(Rc::clone(&arena));
    let (pool, front) = Pool::new(Rc::clone(&arena), VolumeId(0), wake.clone(), PAGE_BYTES, 64 * 4);
    let mut reads = None;
    let backend: Box<dyn Device> = match behind {
        Behind::Nothing => Box::new(Absent::new(VOLUME_BYTES)),
        Behind::Zeroes => Box::new(Memory::new(Rc::clone(&arena), VOLUME_BYTES)),
        Behind::Store(_) => {
            let (device, from) = StoreDevice::new(Rc::clone(&arena), wake.clone(), VOLUME_BYTES);
            reads = Some(from);
            Box::new(device)
        }
    };
    let disk = disk.map(|attached| {
        let device = FileDevice::from_open(reactor.port(200), frames_id, &attached.path, attached.file, false);
        let device = Box::new(Paced::new(device.expect("an open file"), pace));
        ShardDisk { device, format: attached.disk }
    });
    let parts = ShardParts {
        cache: Cache::new(config.clone()).expect("a sound configuration"),
        arena,
        metadata_frame: FrameId(frames),
        reactor,
        front,
        disk,
        backends: vec![backend],
        host: Box::new(NoHost),
        commands: None,
    };
    tell.send(Told { pool, wake, reads }).expect("somebody waits");
    Shard::new(parts, &config)
}
