//! Reads pages that only the cache disk holds: what a disk hit costs `core`, and what splitting adds.
//!
//! For callgrind: `--toggle-collect='disk_hit::hit*' disk_hit N POLICY` counts N hits, from `Read` to its reply. With
//! `--toggle-collect='disk_hit::choose*'` it counts N choices of the policy alone, in a place of their own.

use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, Limits, OpId, RequestId, SlotRecord, SplitConfig,
    SplitKind, VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;
use forebay_policy::split::profile::Profile;
use forebay_policy::split::{Done, Path, Splitter, Use};
use std::collections::VecDeque;

const VOLUME: VolumeId = VolumeId(0);
const PAGE_BYTES: u32 = 65536;
const BLOCKS: usize = 16;
/// Many more than frames, each with a slot of its own.
const PAGES: u64 = 16384;
const CRCS: [u32; BLOCKS] = [1; BLOCKS];
/// From order to end, on the cache disk and on the back end: so far apart that the disk serves every hit.
const DISK_NS: u64 = 20_000;
const BACKEND_NS: u64 = 20_000_000;
/// Hits in which a policy that measures gets to know both.
const FIRST_HITS: u64 = 1000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let hits: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let name = arguments.next().unwrap_or("off".into());
    let kind = SplitKind::from_name(&name, 1000).expect("a policy's name");
    let mut cache = warm_cache(kind);
    let mut actions = Actions::new();
    let mut now_ns = 0;
    for n in 0..FIRST_HITS + hits {
        // Another page each time, so that it is not in memory, and no stream is seen.
        let offset = n * 7 % PAGES * u64::from(PAGE_BYTES);
        let request = if n < FIRST_HITS {
            read(&mut cache, &mut actions, &mut now_ns, offset)
        } else {
            hit(&mut cache, &mut actions, &mut now_ns, offset)
        };
        cache.step(now_ns, Event::Sent { request }, &mut actions);
        assert!(actions.as_slice().is_empty(), "nothing follows a hit");
    }
    let Some(mut splitter) = Splitter::new(SplitConfig { kind, ..SplitConfig::default() }, &Profile::default(), 0)
    else {
        return;
    };
    for n in 0..FIRST_HITS + hits {
        let path = if n < FIRST_HITS { splitter.choose(now_ns, PAGE_BYTES) } else { choose(&mut splitter, now_ns) };
        assert!(path == Path::DISK || n < FIRST_HITS, "the back end was chosen");
        let latency_ns = if path == Path::DISK { DISK_NS } else { BACKEND_NS };
        let in_flight = splitter.started(path, PAGE_BYTES, Use::Hit);
        now_ns += latency_ns;
        splitter.ended(&Done { path, kind: Use::Hit, bytes: PAGE_BYTES, now_ns, latency_ns, in_flight });
    }
}

/// A cache whose disk holds every page of a volume, as after a restart.
fn warm_cache(split: SplitKind) -> Cache {
    let bytes = PAGES * u64::from(PAGE_BYTES);
    let volume = VolumeConfig {
        space: 1,
        bytes,
        mode: WriteMode::Through,
        region_bytes: CacheConfig::region_bytes_for(bytes),
        in_flight_regions: Vec::new(),
        range_bytes_max: 1 << 30,
        fetches: true,
        split: SplitConfig { kind: split, ..SplitConfig::default() },
        profile: Profile::default(),
    };
    let mut cache = Cache::new(CacheConfig {
        page_bytes: PAGE_BYTES,
        slots: PAGES as u32,
        table_records_per_sector: 51,
        recover: true,
        scan_sectors_max: 16,
        frames: 4096,
        transit_frames: 1024,
        memory_policy: PolicyKind::S3Fifo,
        disk_policy: PolicyKind::S3Fifo,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![volume],
        limits: Limits::default(),
        intent_map: true,
        seed: 1,
    })
    .expect("a sound configuration");
    let mut actions = Actions::new();
    cache.step(0, Event::Tick, &mut actions);
    let mut orders = VecDeque::from(actions.as_slice().to_vec());
    while let Some(order) = orders.pop_front() {
        actions.clear();
        answer(&mut cache, order, &mut actions);
        orders.extend(actions.as_slice());
    }
    actions.clear();
    assert!(!cache.gauges().recovering && u64::from(cache.gauges().disk_pages) == PAGES, "not every page is on disk");
    cache
}

/// The table says that slot n holds page n.
fn answer(cache: &mut Cache, order: Action, actions: &mut Actions) {
    let Action::ScanTable { op, first_sector, sectors } = order else { return };
    let (first, count) = (u64::from(first_sector) * 51, u64::from(sectors) * 51);
    let records: Vec<_> = (first..(first + count).min(PAGES)).map(|page| SlotRecord { space: 1, page }).collect();
    let crcs = vec![1; records.len() * BLOCKS];
    cache.step(0, Event::TableScanned { op, first_slot: first as u32, records: &records, crcs: &crcs }, actions);
}

#[inline(never)]
fn hit(cache: &mut Cache, actions: &mut Actions, now_ns: &mut u64, offset: u64) -> RequestId {
    cache.step(*now_ns, Event::Read { volume: VOLUME, tag: 0, offset, length: PAGE_BYTES }, actions);
    let [Action::ReadSlot { op, .. }] = *actions.as_slice() else { panic!("not a hit on disk: {actions:?}") };
    *now_ns += DISK_NS;
    replied(cache, actions, *now_ns, op)
}

/// The same, from wherever it is read.
fn read(cache: &mut Cache, actions: &mut Actions, now_ns: &mut u64, offset: u64) -> RequestId {
    cache.step(*now_ns, Event::Read { volume: VOLUME, tag: 0, offset, length: PAGE_BYTES }, actions);
    let (op, latency_ns) = match *actions.as_slice() {
        [Action::ReadSlot { op, .. }] => (op, DISK_NS),
        [Action::ReadBackend { op, .. }] => (op, BACKEND_NS),
        _ => panic!("not one order: {actions:?}"),
    };
    *now_ns += latency_ns;
    replied(cache, actions, *now_ns, op)
}

#[inline(always)]
fn replied(cache: &mut Cache, actions: &mut Actions, now_ns: u64, op: OpId) -> RequestId {
    actions.clear();
    cache.step(now_ns, Event::Done { op, result: Ok(()), crcs: &CRCS }, actions);
    let [Action::ReplyRead { request, .. }] = *actions.as_slice() else { panic!("not one reply: {actions:?}") };
    actions.clear();
    request
}

#[inline(never)]
fn choose(splitter: &mut Splitter, now_ns: u64) -> Path {
    splitter.choose(now_ns, PAGE_BYTES)
}
