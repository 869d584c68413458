//! The policies replay a published block trace and must miss exactly as often as libCacheSim does.
//!
//! The trace is w92 of the CloudPhysics set as libCacheSim publishes it: 113 872 requests for 48 974
//! objects, 24-byte records (u32 time, u64 object, u32 size, i64 next access; little-endian, packed).
//! Objects count as one unit; sizes are per cent of the distinct objects, rounded to nearest. The trace
//! is looked for in `../shared/traces` beside the repository; without it the tests say that they skip.

use forebay_policy::{
    evict::{Evict, Links, Policy, PolicyKind, Removal},
    rng::mix64,
};
use std::io::Write;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/cloudphysics_w92.oracleGeneral.bin");
const RECORD_BYTES: usize = 24;

struct Trace {
    /// Each request's object, numbered 0..objects.
    requests: Vec<u32>,
    objects: u32,
}

fn trace(test: &str) -> Option<Trace> {
    let Ok(bytes) = std::fs::read(TRACE) else {
        // Past the test harness's capture, so that a skip is seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {TRACE} is missing");
        return None;
    };
    let ids: Vec<u64> = bytes
        .chunks_exact(RECORD_BYTES)
        .map(|record| u64::from_le_bytes(record[4..12].try_into().expect("8 bytes")))
        .collect();
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let number = |id| distinct.binary_search(&id).expect("it is there") as u32;
    let trace = Trace { requests: ids.into_iter().map(number).collect(), objects: distinct.len() as u32 };
    assert_eq!((trace.requests.len(), trace.objects), (113_872, 48_974));
    Some(trace)
}

/// The share of requests that miss a cache of `per_cent` of the objects.
fn miss_ratio(trace: &Trace, kind: PolicyKind, per_cent: u32, seed: u64) -> f64 {
    const ABSENT: u32 = u32::MAX;
    let capacity = (trace.objects * per_cent + 50) / 100;
    let mut links = Links::new(capacity);
    let mut policy = Policy::new(kind, u64::from(capacity), capacity, seed);
    let mut slot_of = vec![ABSENT; trace.objects as usize];
    let mut object_in = Vec::with_capacity(capacity as usize);
    let mut misses = 0;
    for &object in &trace.requests {
        let cached = slot_of[object as usize];
        if cached != ABSENT {
            policy.hit(&mut links, cached);
            continue;
        }
        misses += 1;
        let slot = if policy.has_room(1) {
            object_in.push(object);
            object_in.len() as u32 - 1
        } else {
            let slot = policy.victim(&mut links, |_| false).expect("none is busy");
            let gone = core::mem::replace(&mut object_in[slot as usize], object);
            let key_hash = mix64(u64::from(gone));
            policy.removed(&mut links, slot, Removal::Evicted { key_hash });
            slot_of[gone as usize] = ABSENT;
            slot
        };
        policy.inserted(&mut links, slot, mix64(u64::from(object)), 1);
        slot_of[object as usize] = slot;
    }
    f64::from(misses) / trace.requests.len() as f64
}

/// (policy, per cent of the objects, libCacheSim's miss ratio to four digits, tolerance)
const ANCHORS: [(PolicyKind, u32, f64, f64); 10] = [
    (PolicyKind::Lru, 1, 0.8379, EXACT),
    (PolicyKind::Lru, 10, 0.8049, EXACT),
    (PolicyKind::Fifo, 1, 0.8476, EXACT),
    (PolicyKind::Fifo, 10, 0.8054, EXACT),
    (PolicyKind::Lfu, 1, 0.8497, 0.002),
    (PolicyKind::Lfu, 10, 0.7907, 0.002),
    (PolicyKind::S3Fifo, 1, 0.8304, 0.002),
    (PolicyKind::S3Fifo, 10, 0.7525, 0.002),
    // libCacheSim draws from its hash table, not evenly: only nearness can be asked for.
    (PolicyKind::Random, 1, 0.8440, 0.01),
    (PolicyKind::Random, 10, 0.7997, 0.01),
];

/// Half a unit of the fourth digit.
const EXACT: f64 = 0.000_05;

#[test]
fn every_policy_reproduces_the_published_miss_ratios() {
    let Some(trace) = trace("every_policy_reproduces_the_published_miss_ratios") else {
        return;
    };
    let mut report = String::new();
    let mut all_within = true;
    for (kind, per_cent, anchor, tolerance) in ANCHORS {
        let ours = miss_ratio(&trace, kind, per_cent, 1);
        let within = (ours - anchor).abs() <= tolerance;
        all_within &= within;
        let verdict = if within { "" } else { " <- differs" };
        report += &format!("{kind:>7} {per_cent:>3} %: {ours:.5}, anchor {anchor:.4}{verdict}\n");
    }
    assert!(all_within, "\n{report}");
}
