//! What the cache takes of the memory: nothing on a hit, a promised amount for each page.

use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, Limits, VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;

const VOLUME: VolumeId = VolumeId(0);
const PAGE_BYTES: u32 = 65536;

fn config(slots: u32, disk_policy: PolicyKind) -> CacheConfig {
    CacheConfig {
        page_bytes: PAGE_BYTES,
        slots,
        table_records_per_sector: 50,
        recover: false,
        scan_sectors_max: 16,
        frames: 256,
        transit_frames: 128,
        memory_policy: PolicyKind::S3Fifo,
        disk_policy,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![VolumeConfig {
            space: 1,
            bytes: 1 << 30,
            mode: WriteMode::Through,
            region_bytes: CacheConfig::region_bytes_for(1 << 30),
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

fn read(cache: &mut Cache, actions: &mut Actions, offset: u64) {
    cache.step(0, Event::Read { volume: VOLUME, tag: 0, offset, length: 4096 }, actions);
    while let [first, ..] = *actions.as_slice() {
        actions.clear();
        match first {
            Action::ReadBackend { op, .. } => cache.step(0, Event::Done { op, result: Ok(()), crcs: &[] }, actions),
            Action::ReplyRead { request, .. } => cache.step(0, Event::Sent { request }, actions),
            other => panic!("not a part of a read: {other:?}"),
        }
    }
}

#[test]
fn a_memory_hit_allocates_nothing() {
    let mut cache = Cache::new(config(0, PolicyKind::S3Fifo)).expect("a sound configuration");
    let mut actions = Actions::new();
    let offsets: Vec<u64> = (0..64).map(|page| page * u64::from(PAGE_BYTES) * 3).collect();
    offsets.iter().for_each(|offset| read(&mut cache, &mut actions, *offset));
    let misses = cache.stats().volumes[0].misses;
    let taken = allocation_counter::measure(|| {
        for _ in 0..100 {
            offsets.iter().for_each(|offset| read(&mut cache, &mut actions, *offset));
        }
    });
    assert_eq!(cache.stats().volumes[0].misses, misses, "these were to be hits");
    assert_eq!(taken.count_total, 0, "hits allocated");
}

#[test]
fn a_page_of_the_disk_tier_takes_96_bytes() {
    const SLOTS: u32 = 1 << 20;
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Fifo, PolicyKind::Lfu, PolicyKind::Random] {
        let bytes = |slots| {
            let taken = allocation_counter::measure(|| drop(Cache::new(config(slots, policy)).expect("sound")));
            taken.bytes_max
        };
        // A hundredth is the marks of table sectors: a bit for 50 pages.
        let per_page = (bytes(SLOTS) - bytes(0)) as f64 / f64::from(SLOTS);
        assert!(per_page <= 96.01, "{policy} takes {per_page} bytes a page: 64 are checksums, 32 the rest");
    }
}
