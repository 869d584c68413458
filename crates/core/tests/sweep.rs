//! What the sweep does in which order, on a cache that is driven by hand.

use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, Limits, OpId, SlotRecord, VolumeConfig, VolumeId,
    WriteMode,
};
use forebay_policy::evict::PolicyKind;

const SECOND_NS: u64 = 1_000_000_000;

fn config(in_flight_regions: Vec<u64>) -> CacheConfig {
    CacheConfig {
        page_bytes: 4096,
        slots: 16,
        table_records_per_sector: 16,
        recover: true,
        scan_sectors_max: 1,
        frames: 64,
        transit_frames: 40,
        memory_policy: PolicyKind::Lru,
        disk_policy: PolicyKind::Lru,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![VolumeConfig {
            space: 1,
            bytes: 4 << 20,
            mode: WriteMode::Through,
            region_bytes: 1 << 20,
            in_flight_regions,
            range_bytes_max: 1 << 20,
            fetches: true,
            split: forebay_core::SplitConfig::default(),
            profile: forebay_core::Profile::default(),
        }],
        limits: Limits::default(),
        intent_map: true,
        seed: 1,
    }
}

/// Answers every order of the step with success, and theirs in turn; returns what was ordered.
fn run(cache: &mut Cache, now_ns: u64, event: Event<'_>) -> Vec<Action> {
    let mut actions = Actions::new();
    let mut ordered = Vec::new();
    cache.step(now_ns, event, &mut actions);
    let mut at = 0;
    ordered.extend_from_slice(actions.as_slice());
    while at < ordered.len() {
        actions.clear();
        match ordered[at] {
            Action::ScanTable { op, .. } => {
                let void = [SlotRecord { space: 0, page: 0 }; 16];
                let event = Event::TableScanned { op, first_slot: 0, records: &void, crcs: &[0; 16] };
                cache.step(now_ns, event, &mut actions);
            }
            Action::WriteIntent { op, .. } | Action::FlushBackend { op, .. } | Action::FlushDisk { op } => {
                done(cache, now_ns, op, &mut actions);
            }
            Action::WriteTable { op, .. } => done(cache, now_ns, op, &mut actions),
            _ => {}
        }
        ordered.extend_from_slice(actions.as_slice());
        at += 1;
    }
    ordered
}

fn done(cache: &mut Cache, now_ns: u64, op: OpId, actions: &mut Actions) {
    cache.step(now_ns, Event::Done { op, result: Ok(()), crcs: &[] }, actions);
}

#[test]
fn regions_in_flight_at_the_last_stop_are_cleared_only_after_the_back_end_was_flushed() {
    let mut cache = Cache::new(config(vec![0b10])).unwrap();
    let mut ordered = Vec::new();
    for second in 0..6 {
        ordered.extend(run(&mut cache, second * SECOND_NS, Event::Tick));
    }
    let flush = ordered.iter().position(|a| matches!(a, Action::FlushBackend { .. }));
    let clear = ordered.iter().position(|a| matches!(a, Action::WriteIntent { .. })).expect("the region is cleared");
    assert!(flush.is_some_and(|flush| flush < clear), "the last run's writes may be in the back end's cache still");
    assert_eq!(cache.intent_words(VolumeId(0)), [0]);
}

#[test]
fn a_volume_without_regions_in_flight_and_without_writes_is_not_flushed() {
    let mut cache = Cache::new(config(Vec::new())).unwrap();
    for second in 0..6 {
        let ordered = run(&mut cache, second * SECOND_NS, Event::Tick);
        assert!(!ordered.iter().any(|a| matches!(a, Action::FlushBackend { .. })));
    }
}
