//! Random reads that hit the disk tier, in process: what the cache adds to raw reads of the same disk.
//!
//! `disk_hits FILE BLOCK_BYTES DEPTH SECONDS [FILL_BYTES]`: formats FILE (sparse is fine) as a cache disk of a volume
//! in memory, fills it by reading the volume once, then reads random blocks with DEPTH requests in flight for SECONDS.
//! Prints one JSON object. The memory tier keeps next to nothing, so that every read goes to the disk.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits, Notice, Piece, ReplyError, RequestId, VolumeConfig,
    VolumeId, WriteMode,
};
use forebay_engine::attach::{AttachOptions, Attached, VolumeFacts, attach};
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::memory::Memory;
use forebay_engine::front::{Front, FrontEvent};
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::shard::{Host, Shard, ShardDisk, ShardParts};
use forebay_policy::evict::PolicyKind;
use forebay_policy::rng::Rng;
use forebay_uring::{Arena, monotonic_ns};

const PAGE_BYTES: u32 = 65536;
const VOLUME: VolumeId = VolumeId(0);
const TRANSIT_FRAMES: u32 = 1024;
const KEPT_FRAMES: u32 = 16;
const PASSES_MAX: u32 = 100;

/// Keeps `depth` reads in flight.
struct Reader {
    bytes: u64,
    block_bytes: u32,
    rng: Rng,
    /// The next offset of the filling pass; `None` once it reads at random.
    filling: Option<u64>,
    events: Vec<FrontEvent>,
    in_flight: u32,
    answered: u64,
    latencies_ns: Vec<u64>,
    started_ns: Vec<u64>,
}

impl Reader {
    fn ask(&mut self, tag: u64) {
        let (offset, length) = match &mut self.filling {
            Some(next) if *next >= self.bytes => return,
            Some(next) => {
                let offset = *next;
                *next += u64::from(PAGE_BYTES);
                (offset, PAGE_BYTES)
            }
            None => {
                let blocks = (self.bytes / u64::from(self.block_bytes)) as u32;
                (u64::from(self.rng.below(blocks)) * u64::from(self.block_bytes), self.block_bytes)
            }
        };
        self.started_ns[tag as usize] = monotonic_ns();
        self.in_flight += 1;
        self.events.push(FrontEvent::Read { volume: VOLUME, tag, offset, length });
    }
}

impl Front for Reader {
    fn poll(&mut self, _now_ns: u64, events: &mut Vec<FrontEvent>) {
        events.append(&mut self.events);
    }
    fn receive(&mut self, _now_ns: u64, _tag: u64, _request: RequestId, _pieces: &[Piece]) {}
    fn reply_read(&mut self, _now_ns: u64, tag: u64, request: RequestId, _pieces: &[Piece]) {
        self.in_flight -= 1;
        self.answered += 1;
        if self.filling.is_none() {
            self.latencies_ns.push(monotonic_ns() - self.started_ns[tag as usize]);
        }
        self.events.push(FrontEvent::Sent { request });
        self.ask(tag);
    }
    fn reply(&mut self, _now_ns: u64, _tag: u64, result: Result<(), ReplyError>) {
        panic!("a read failed: {result:?}");
    }
    fn turn_end(&mut self, _now_ns: u64) {}
    fn next_ns(&self) -> Option<u64> {
        if self.events.is_empty() { None } else { Some(0) }
    }
}

struct NoHost;

impl Host for NoHost {
    fn raise_generation(&mut self) {}
    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        None
    }
    fn backend_mtime_ns(&mut self, _volume: VolumeId) -> i64 {
        0
    }
    fn notice(&mut self, notice: Notice) {
        eprintln!("{notice:?}");
    }
}

type Running = Shard<RingReactor, Reader>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: u64| arguments.get(at).map_or(or, |text| text.parse().expect("a number"));
    let path = arguments.get(1).expect("disk_hits FILE BLOCK_BYTES DEPTH SECONDS [FILL_BYTES]");
    let (block_bytes, depth) = (number(2, 4096) as u32, number(3, 16));
    let seconds: f64 = arguments.get(4).map_or(5.0, |text| text.parse().expect("a number of seconds"));
    let bytes = number(5, 1 << 30);
    let mut shard = build(Path::new(path), bytes, block_bytes, depth);
    fill(&mut shard, depth);
    shard.front().filling = None;
    let misses = shard.cache().stats().volumes[0].misses;
    shard.front().answered = 0;
    for tag in 0..depth {
        shard.front().ask(tag);
    }
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        shard.turn();
    }
    let elapsed = start.elapsed().as_secs_f64();
    let misses = shard.cache().stats().volumes[0].misses - misses;
    let disk_hits = shard.cache().stats().volumes[0].disk_hits;
    let front = shard.front();
    front.latencies_ns.sort_unstable();
    let quantile =
        |permil: usize| front.latencies_ns.get(front.latencies_ns.len() * permil / 1000).copied().unwrap_or(0);
    println!(
        "{{\"block_bytes\": {block_bytes}, \"depth\": {depth}, \"reads_per_second\": {:.0}, \"p50_ns\": {}, \"p99_ns\": {}, \"misses\": {misses}, \"disk_hits\": {disk_hits}}}",
        front.answered as f64 / elapsed,
        quantile(500),
        quantile(990),
    );
}

/// Reads the volume through until a pass misses nothing: the back end is faster than the disk takes its pages.
fn fill(shard: &mut Running, depth: u64) {
    for _ in 0..PASSES_MAX {
        let before = shard.cache().stats().volumes[0].misses;
        shard.front().filling = Some(0);
        for tag in 0..depth {
            shard.front().ask(tag);
        }
        while shard.front().in_flight > 0 || shard.cache().gauges().stores > 0 {
            shard.turn();
        }
        if shard.cache().stats().volumes[0].misses == before {
            return;
        }
    }
    panic!("the volume does not fit the cache disk");
}

fn build(path: &Path, bytes: u64, block_bytes: u32, depth: u64) -> Running {
    let reactor = RingReactor::new(forebay_uring::Limits { ops_max: 1024, fds_max: 16 }).expect("io_uring");
    let facts =
        VolumeFacts { name: "v".into(), backend: "memory".into(), identity: 1, bytes, mtime_ns: 0, log_bytes: 0 };
    let state = std::env::temp_dir().join(format!("disk_hits.{}", std::process::id()));
    std::fs::create_dir_all(&state).expect("a state directory");
    let Attached { file, path, disk, .. } = attach(&AttachOptions {
        path,
        bytes: Some(bytes + bytes / 16 + (64 << 20)),
        sparse: true,
        page_bytes: PAGE_BYTES,
        volumes: &[facts],
        state_directory: &state,
        name: "cache",
        cold: true,
        force_format: true,
        intent_map: true,
        identity: None,
    })
    .expect("a cache disk");
    let _ = std::fs::remove_dir_all(&state);
    let config = config(&disk, bytes);
    let frames = config.frames;
    let arena = Rc::new(Arena::new(frames + Running::metadata_frames(&config), PAGE_BYTES).expect("memory"));
    let frames_id = reactor.add_arena(Rc::clone(&arena));
    let device = FileDevice::from_open(reactor.port(512), frames_id, &path, file, false).expect("a device");
    let front = Reader {
        bytes,
        block_bytes,
        rng: Rng::new(1),
        filling: Some(0),
        events: Vec::new(),
        in_flight: 0,
        answered: 0,
        latencies_ns: Vec::with_capacity(1 << 22),
        started_ns: vec![0; depth as usize],
    };
    let parts = ShardParts {
        cache: Cache::new(config.clone()).expect("a sound configuration"),
        metadata_frame: FrameId(frames),
        reactor,
        front,
        disk: Some(ShardDisk { device: Box::new(device), format: disk }),
        backends: vec![Box::new(Memory::new(Rc::clone(&arena), bytes))],
        arena,
        host: Box::new(NoHost),
        commands: None,
    };
    Shard::new(parts, &config)
}

fn config(disk: &forebay_engine::attach::CacheDisk, bytes: u64) -> CacheConfig {
    CacheConfig {
        page_bytes: PAGE_BYTES,
        slots: disk.layout().slot_count() as u32,
        table_records_per_sector: disk.layout().records_per_sector() as u32,
        recover: false,
        scan_sectors_max: PAGE_BYTES / 4096,
        frames: TRANSIT_FRAMES + KEPT_FRAMES,
        transit_frames: TRANSIT_FRAMES,
        memory_policy: PolicyKind::Fifo,
        disk_policy: PolicyKind::S3Fifo,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![VolumeConfig {
            space: disk.space(VOLUME),
            bytes,
            mode: WriteMode::Through,
            region_bytes: disk.region_bytes(VOLUME),
            in_flight_regions: Vec::new(),
            range_bytes_max: 1 << 30,
            fetches: true,
            split: forebay_core::SplitConfig::default(),
            profile: forebay_core::Profile::default(),
        }],
        limits: Limits::default(),
        intent_map: true,
        seed: 1,
    }
}
