//! The machine of the write-back experiments: a local disk and a cloud disk, as far apart as those of Alibaba's authors.
//!
//! Their local disk reads 6.7 GB/s and 949,000 blocks of 4 KiB a second (Table 4), after 75 us, and writes 4.1 GB/s, after
//! 15 us (Table 1). Filled, it settles at 230,000 random writes a second, and its p99.9 passes 1 ms with 128 of them in
//! flight (Fig. 12, 13b); fresh, it takes as many as it reads (Fig. 13c). Their cloud disk carries 4 GB/s, collects no
//! garbage, and is 1 ms away. A request costs both as much beside its bytes, so that they stay 6.7 to 4 at any size.
//!
//! Limits: what the authors print is what their stacks deliver; latencies of their cloud disk are in figures only, so that
//! 1 ms is our choice. The processor takes no virtual time: one thread does not do 949,000 requests a second. The region map
//! of a log, beside the configuration, is not modelled.

use forebay_core::log::logged::Bypass;
use forebay_core::{SplitKind, WriteMode};
use forebay_sim::pace::{Collection, Load, PacedWorld, PathModel, Setup, WriteModel};

/// A page.
pub(crate) const PAGE_BYTES: u32 = 65536;
/// A small request.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// A large one.
pub(crate) const LARGE_BYTES: u32 = 131_072;
/// Writes that pass a log: those of a whole page, which is what a large one comes in.
pub(crate) const LARGE: Bypass = Bypass::Large { bytes_min: PAGE_BYTES as u64 };
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

const DISK_READ_LATENCY_NS: u64 = 75_000;
const DISK_WRITE_LATENCY_NS: u64 = 15_000;
const DISK_JITTER_PERMIL: u32 = 100;
/// 949,000 blocks of 4 KiB a second.
const READ_OVERHEAD_BYTES: u64 = 2_964;
/// As many.
const WRITE_OVERHEAD_BYTES: u64 = 224;
/// 230,000 random writes of 4 KiB a second, and p99.9 just above 1 ms with 128 of them.
const COLLECTION: Collection = Collection { copies_permil: 3_126, pause_ns: 500_000 };
/// From the server of the cloud disk and back.
pub(crate) const BACKEND_LATENCY_NS: u64 = 1_000_000;
const BACKEND_JITTER_PERMIL: u32 = 300;

/// How a local disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskState {
    /// It has erased blocks enough.
    Fresh,
    /// It collects garbage.
    Collecting,
}

impl DiskState {
    pub(crate) const BOTH: [Self; 2] = [Self::Fresh, Self::Collecting];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Collecting => "collecting",
        }
    }
}

/// The local disk.
pub(crate) fn disk(state: DiskState) -> PathModel {
    let writes = WriteModel {
        bytes_per_second: 4_100_000_000,
        latency_ns: DISK_WRITE_LATENCY_NS,
        overhead_bytes: WRITE_OVERHEAD_BYTES,
        collection: (state == DiskState::Collecting).then_some(COLLECTION),
    };
    PathModel {
        bytes_per_second: 6_700_000_000,
        latency_ns: DISK_READ_LATENCY_NS,
        overhead_bytes: READ_OVERHEAD_BYTES,
        jitter_permil: DISK_JITTER_PERMIL,
        writes: Some(writes),
    }
}

/// The cloud disk.
pub(crate) fn backend() -> PathModel {
    PathModel {
        bytes_per_second: 4_000_000_000,
        latency_ns: BACKEND_LATENCY_NS,
        overhead_bytes: READ_OVERHEAD_BYTES,
        jitter_permil: BACKEND_JITTER_PERMIL,
        writes: None,
    }
}

/// What a volume is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    pub(crate) bytes: u64,
    pub(crate) cached_permil: u32,
    pub(crate) mode: WriteMode,
    pub(crate) log_bytes: u64,
    pub(crate) bypass: Bypass,
}

/// Volumes of one kind, each with this load and a cloud disk of its own.
pub(crate) fn setup(state: DiskState, volume: Volume, volumes: usize, load: Load, seed: u64) -> Setup {
    let mut setup = Setup::one_volume(disk(state), backend(), load);
    let Volume { bytes, cached_permil, mode, log_bytes, bypass } = volume;
    setup.page_bytes = PAGE_BYTES;
    let pages = load.block_bytes.div_ceil(PAGE_BYTES);
    setup.pages_in_flight_max = (volumes as u32 * load.in_flight() * pages).max(64);
    setup.seed = seed;
    let one = &mut setup.volumes[0];
    (one.bytes, one.cached_permil, one.mode, one.log_bytes) = (bytes, cached_permil, mode, log_bytes);
    one.log_policy.bypass = bypass;
    setup.volumes = vec![setup.volumes[0]; volumes];
    setup
}

/// The same, whose clients have the cloud disk itself instead of a volume.
pub(crate) fn cloud_disk(state: DiskState, bytes: u64, load: Load, seed: u64) -> Setup {
    let volume = Volume { bytes, cached_permil: 0, mode: WriteMode::Pass, log_bytes: 0, bypass: Bypass::Never };
    setup(state, volume, 1, load, seed)
}

/// The same, whose clients have the local disk itself.
pub(crate) fn local_disk(state: DiskState, bytes: u64, load: Load, seed: u64) -> Setup {
    let mut setup = cloud_disk(state, bytes, load, seed);
    setup.volumes[0].backend = disk(state);
    setup
}

/// A world whose misses are not kept, so that what hits stays the same, and whose hits are split so.
pub(crate) fn world(setup: &Setup, kind: SplitKind) -> PacedWorld {
    PacedWorld::new(setup, |config| {
        config.admission.sequential_cutoff_bytes = 1;
        for volume in &mut config.volumes {
            volume.split.kind = kind;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::SECOND_NS;

    fn local(state: DiskState, load: Load) -> (f64, forebay_sim::pace::Latencies) {
        let mut world = PacedWorld::new(&local_disk(state, GIB, load, 1), |_| {});
        world.run_for(SECOND_NS / 2);
        world.take_latencies(0);
        world.run_for(SECOND_NS / 2);
        let tick = world.between(SECOND_NS / 2, SECOND_NS);
        (tick.bytes_per_second() / f64::from(load.block_bytes), world.take_latencies(0))
    }

    #[test]
    fn the_local_disk_is_that_of_the_authors() {
        let near = |is: f64, theirs: f64| assert!((is / theirs - 1.0).abs() < 0.03, "{is}, not {theirs}");
        near(local(DiskState::Collecting, Load::reads(1, 128, BLOCK_BYTES)).0, 949e3);
        near(local(DiskState::Fresh, Load::writes(1, 128, BLOCK_BYTES)).0, 949e3);
        let sequential = Load { sequential: true, ..Load::writes(1, 128, LARGE_BYTES) };
        near(local(DiskState::Collecting, sequential).0 * f64::from(LARGE_BYTES), 4.1e9);
        let (rate, latencies) = local(DiskState::Collecting, Load::writes(1, 128, BLOCK_BYTES));
        near(rate, 230e3);
        assert!(latencies.writes.histogram.quantile_ns(999) > 1_000_000, "{latencies:?}");
    }
}
