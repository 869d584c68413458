//! The pool, before a real shard: what is filled is read, from threads that are not the shard's; what is lent is given back.

use forebay_core::{
    AdmissionConfig, Cache, CacheConfig, FrameId, IoError, Limits as CacheLimits, Notice, Profile, ReplyError,
    SplitConfig, VolumeConfig, VolumeId, WriteMode,
};
use forebay_engine::devices::memory::Memory;
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::shard::{Host, Shard, ShardParts};
use forebay_policy::evict::PolicyKind;
use forebay_s3::{Pool, PoolFront};
use forebay_uring::{Arena, Limits, Wake};
use hyper::body::Bytes;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

const PAGE_BYTES: u32 = 64 << 10;
const PAGE: u64 = PAGE_BYTES as u64;
const VOLUME_BYTES: u64 = 64 << 20;
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
        frames: 64 + KEPT,
        transit_frames: 64,
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

/// A shard on a thread of its own; its back end is all zeroes.
struct Running {
    pool: Pool,
    wake: Wake,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl Running {
    fn start() -> Self {
        let (tell, told) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let config = config();
            let reactor = RingReactor::new(Limits { ops_max: 64, fds_max: 8 }).expect("a ring");
            let wake = reactor.waker().expect("a waker");
            let frames = config.frames;
            let metadata = Shard::<RingReactor, PoolFront>::metadata_frames(&config);
            let arena = Rc::new(Arena::new(frames + metadata, PAGE_BYTES).expect("memory"));
            let (pool, front) = Pool::new(Rc::clone(&arena), VolumeId(0), wake.clone(), 64);
            let parts = ShardParts {
                cache: Cache::new(config.clone()).expect("a sound configuration"),
                arena: Rc::clone(&arena),
                metadata_frame: FrameId(frames),
                reactor,
                front,
                disk: None,
                backends: vec![Box::new(Memory::new(arena, VOLUME_BYTES))],
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
    fn stop(mut self) -> bool {
        self.ends.store(true, Ordering::Relaxed);
        self.wake.wake();
        self.thread.take().expect("it runs").join().expect("it did not panic")
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn bytes(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

fn joined(pages: &[forebay_s3::Page]) -> Vec<u8> {
    pages.iter().flat_map(|page| page.as_ref().to_vec()).collect()
}

#[test]
fn what_was_filled_in_any_pieces_is_read_as_one() {
    let running = Running::start();
    let pool = running.pool.clone();
    runtime().block_on(async {
        let range = 3 * PAGE..6 * PAGE;
        let whole = bytes(1, range.end - range.start);
        // Cut where neither pages nor blocks end; an empty one is no harm.
        let cuts = [0, 1, 4095, 4097, 70_000, 70_000, 150_000, whole.len()];
        let pieces = cuts.windows(2).map(|cut| Bytes::copy_from_slice(&whole[cut[0]..cut[1]])).collect();
        assert_eq!(pool.probe(range.clone()).await.expect("an answer").absent_bytes, 3 * PAGE);
        pool.fill(range.clone(), pieces).await.expect("it is taken");
        assert_eq!(pool.probe(range.clone()).await.expect("an answer").memory_bytes, 3 * PAGE);
        let pages = pool.read(range.start + 512..range.end - 1024).await.expect("an answer");
        assert_eq!(joined(&pages), whole[512..whole.len() - 1024]);
        // What was not filled comes from the back end.
        assert_eq!(joined(&pool.read(0..PAGE).await.expect("an answer")), vec![0; PAGE as usize]);
        assert_eq!(pool.read(VOLUME_BYTES..VOLUME_BYTES + 512).await.err(), Some(ReplyError::Invalid));
        drop(pages);
    });
    assert!(running.stop(), "something is held");
}

#[test]
fn many_at_once_read_what_they_filled_and_keep_it_while_they_hold_it() {
    let running = Running::start();
    let runtime = runtime();
    let tasks: Vec<_> = (0..16u64)
        .map(|who| {
            let pool = running.pool.clone();
            runtime.spawn(async move {
                for round in 0..40u64 {
                    let start = (who * 40 + round) * PAGE;
                    let whole = bytes(start, PAGE);
                    pool.fill(start..start + PAGE, vec![Bytes::from(whole.clone())]).await.expect("it is taken");
                    let pages = pool.read(start..start + PAGE).await.expect("an answer");
                    tokio::task::yield_now().await;
                    // Memory holds a tenth of all: it is perhaps evicted, and read from the back end, which has zeroes.
                    let read = joined(&pages);
                    assert!(read == whole || read.iter().all(|it| *it == 0), "{start}: another's bytes");
                    let other = pool.read(0..4096).await.map(|it| joined(&it));
                    assert!(other.is_ok_and(|it| it == bytes(0, 4096) || it.iter().all(|it| *it == 0)));
                    assert_eq!(joined(&pages), read, "it changed while it was lent");
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert!(running.stop(), "something is held");
}

#[test]
fn who_does_not_wait_for_the_answer_holds_nothing() {
    let running = Running::start();
    let pool = running.pool.clone();
    runtime().block_on(async {
        for at in 0..100u64 {
            let read = pool.read(at * PAGE..(at + 1) * PAGE);
            // Polled once, and dropped.
            let _ = tokio::time::timeout(std::time::Duration::ZERO, read).await;
        }
        assert!(pool.read(0..PAGE).await.is_ok());
    });
    // What came back after its asker had gone is on its way once more.
    std::thread::sleep(std::time::Duration::from_millis(200));
    running.wake.wake();
    assert!(running.stop(), "something is held");
}
