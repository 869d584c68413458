//! Reads warm 4 KiB blocks over and over: what a memory hit costs `core`.
//!
//! For callgrind: `--toggle-collect='memory_hit::hit*' memory_hit N` counts N hits, from `Read` to its reply.
#![allow(clippy::print_stdout, reason = "a program")]

use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, Limits, RequestId, VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;

const VOLUME: VolumeId = VolumeId(0);

fn main() {
    let hits: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let volume = VolumeConfig {
        space: 1,
        bytes: 1 << 30,
        mode: WriteMode::Through,
        region_bytes: CacheConfig::region_bytes_for(1 << 30),
        in_flight_regions: Vec::new(),
        range_bytes_max: 1 << 30,
        fetches: true,
        split: forebay_core::SplitConfig::default(),
        profile: forebay_core::Profile::default(),
    };
    let mut cache = Cache::new(CacheConfig {
        page_bytes: 65536,
        slots: 0,
        table_records_per_sector: 51,
        recover: false,
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
    for page in 0..64 {
        warm(&mut cache, &mut actions, page * 65536);
    }
    let mut offset = 0;
    for n in 0..hits {
        // Another page each time, and another block, so that no stream is seen.
        offset = (offset + 7 * 65536 + 4096) % (64 * 65536);
        let request = hit(&mut cache, &mut actions, n, offset);
        cache.step(n, Event::Sent { request }, &mut actions);
        assert!(actions.as_slice().is_empty(), "nothing follows a hit");
    }
    println!("{hits} hits, {} misses", cache.stats().volumes[0].misses);
}

fn warm(cache: &mut Cache, actions: &mut Actions, offset: u64) {
    cache.step(0, Event::Read { volume: VOLUME, tag: 0, offset, length: 65536 }, actions);
    let [Action::ReadBackend { op, .. }] = *actions.as_slice() else { panic!("not one fetch: {actions:?}") };
    actions.clear();
    cache.step(0, Event::Done { op, result: Ok(()), crcs: &[] }, actions);
    let [Action::ReplyRead { request, .. }] = *actions.as_slice() else { panic!("not one reply: {actions:?}") };
    actions.clear();
    cache.step(0, Event::Sent { request }, actions);
}

#[inline(never)]
fn hit(cache: &mut Cache, actions: &mut Actions, tag: u64, offset: u64) -> RequestId {
    cache.step(tag, Event::Read { volume: VOLUME, tag, offset, length: 4096 }, actions);
    let [Action::ReplyRead { request, .. }] = *actions.as_slice() else { panic!("not a hit: {actions:?}") };
    actions.clear();
    request
}
