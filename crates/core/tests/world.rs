//! The cache in a small random world: see `world/mod.rs`.
//!
//! `FOREBAY_WORLD_SEED=N FOREBAY_WORLD_SEEDS=1` repeats one run; more seeds take longer and see more.
#![allow(clippy::print_stdout, reason = "what a run has met is worth reading")]

#[path = "world/mod.rs"]
mod world;

use forebay_core::{SplitKind, WriteMode};
use forebay_policy::evict::PolicyKind;
use forebay_policy::rng::Rng;
use std::collections::BTreeMap;
use world::{Setting, World};

/// What a run of many seeds must have met, or it proves little.
const MUST_HAPPEN: [&str; 22] = [
    "read",
    "read failed",
    "write",
    "write failed",
    "discard",
    "flush",
    "flush failed",
    "not received",
    "copy",
    "crash",
    "machine crash",
    "recovered",
    "bad block",
    "lost slot write",
    "disk detached",
    "hedged",
    "recovering",
    "disk hit",
    "split hit",
    "split failed over",
    "sweep",
    "store skipped",
];

fn setting(seed: u64) -> Setting {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut pick = |n: u32| rng.below(n);
    let policies = [PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Lfu, PolicyKind::Random, PolicyKind::S3Fifo];
    let modes = [WriteMode::Through, WriteMode::Through, WriteMode::Through, WriteMode::Around, WriteMode::Pass];
    let half = SplitKind::Static { disk_permil: 500 };
    let splits = [SplitKind::Off, SplitKind::BackendOnly, half, SplitKind::Climb, SplitKind::ExpectedDelay];
    Setting {
        seed,
        page_bytes: [4096, 16384, 65536, 262_144][pick(4) as usize],
        pages: 4 + pick(28),
        slots: [0, 1 + pick(8), 1 + pick(24), 8 + pick(24)][pick(4) as usize],
        kept_frames: pick(12),
        policy: policies[pick(5) as usize],
        mode: modes[pick(5) as usize],
        second_access: pick(4) == 0,
        split: splits[pick(5) as usize],
        clients: 1 + pick(24),
        faults_permil: [0, 0, 5, 30][pick(4) as usize],
        operations: 600,
        crashes: pick(4),
    }
}

fn run(seed: u64, counts: &mut BTreeMap<&'static str, u64>) {
    let setting = setting(seed);
    let result = std::panic::catch_unwind(|| {
        let mut world = World::new(setting);
        world.run();
        world.counts
    });
    match result {
        Ok(seen) => seen.into_iter().for_each(|(what, n)| *counts.entry(what).or_default() += n),
        Err(_) => panic!("seed {seed} failed: {setting:?}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is told what to repeat")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_a_read_returns_what_was_written() {
    let mut counts = BTreeMap::new();
    let first = number("FOREBAY_WORLD_SEED").unwrap_or(1);
    let seeds = number("FOREBAY_WORLD_SEEDS").unwrap_or(300);
    for seed in first..first + seeds {
        run(seed, &mut counts);
    }
    println!("{counts:#?}");
    if seeds >= 300 {
        for what in MUST_HAPPEN {
            assert!(counts.get(what).is_some_and(|n| *n > 0), "\"{what}\" never happened: {counts:?}");
        }
    }
}
