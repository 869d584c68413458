//! A shard with a pool, on a thread of its own.

use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits as CacheLimits, Notice, Profile, SplitConfig,
    VolumeConfig, VolumeId, WriteMode,
};
use forebay_engine::device::Device;
use forebay_engine::devices::absent::Absent;
use forebay_engine::devices::memory::Memory;
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::shard::{Host, Shard, ShardParts};
use forebay_policy::evict::PolicyKind;
use forebay_s3::{Pool, PoolFront};
use forebay_uring::{Arena, Limits, Wake};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

pub(crate) const PAGE_BYTES: u32 = 64 << 10;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const VOLUME_BYTES: u64 = 64 << 20;
const TRANSIT: u32 = 256;
/// Kept, beside those in transit.
const KEPT: u32 = 64;

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
            split: SplitConfig::default(),
            profile: Profile::default(),
        }],
        limits: CacheLimits::default(),
        intent_map: true,
        seed: 1,
    }
}

/// A shard on a thread of its own.
pub(crate) struct Running {
    pub(crate) pool: Pool,
    pub(crate) wake: Wake,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl Running {
    /// Its back end has nothing if it `is_absent`, and zeroes otherwise.
    pub(crate) fn start(is_absent: bool) -> Self {
        let (tell, told) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut config = config();
            if is_absent {
                config.frames += 1024;
            }
            let reactor = RingReactor::new(Limits { ops_max: 64, fds_max: 8 }).expect("a ring");
            let wake = reactor.waker().expect("a waker");
            let frames = config.frames;
            let metadata = Shard::<RingReactor, PoolFront>::metadata_frames(&config);
            let arena = Rc::new(Arena::new(frames + metadata, PAGE_BYTES).expect("memory"));
            let (pool, front) = Pool::new(Rc::clone(&arena), VolumeId(0), wake.clone(), PAGE_BYTES, 64 * 4);
            let backend: Box<dyn Device> = match is_absent {
                true => Box::new(Absent::new(VOLUME_BYTES)),
                false => Box::new(Memory::new(Rc::clone(&arena), VOLUME_BYTES)),
            };
            let parts = ShardParts {
                cache: Cache::new(config.clone()).expect("a sound configuration"),
                arena,
                metadata_frame: FrameId(frames),
                reactor,
                front,
                disk: None,
                backends: vec![backend],
                host: Box::new(NoHost),
                commands: None,
            };
            let mut shard = Shard::new(parts, &config);
            tell.send((pool, wake)).expect("somebody waits");
            while !until.load(Ordering::Relaxed) {
                shard.turn();
            }
            shard.turn();
            shard.cache().is_idle()
        });
        let (pool, wake) = told.recv().expect("it starts");
        Self { pool, wake, ends, thread: Some(thread) }
    }

    /// Whether nothing was under way at the end.
    pub(crate) fn stop(mut self) -> bool {
        self.ends.store(true, Ordering::Relaxed);
        self.wake.wake();
        self.thread.take().expect("it runs").join().expect("it did not panic")
    }
}
