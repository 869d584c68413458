//! What a seed means: the machine, its cache and its volumes. All sizes are small, so that everything that happens to
//! a full cache happens all the time.

use crate::dice::Dice;
use forebay_core::{AdmissionConfig, Limits, SplitConfig, SplitKind, WriteMode};
use forebay_policy::evict::PolicyKind;

const SECTOR_BYTES: u64 = 512;

/// What is behind a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// A disk of this machine.
    Local,
    /// The same with sectors of 4 KiB.
    Coarse,
    /// An NBD server over so many connections.
    Nbd {
        /// How many.
        connections: u8,
    },
}

/// A volume that stays what it is through all lives.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSetup {
    /// Its size.
    pub sectors: u64,
    /// What is behind it.
    pub backend: BackendKind,
    /// Of its write-back log; 0: none.
    pub log_bytes: u64,
}

/// What stays through all lives.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cache disk's size; 0: none.
    pub disk_bytes: u64,
    /// Bytes of a page, in the first life.
    pub page_bytes: u32,
    /// The volumes.
    pub volumes: Vec<VolumeSetup>,
    /// Client operations in all.
    pub operations: u64,
    /// Latencies of a sound cache disk and back end, at most.
    pub latency_ns: [u64; 2],
}

/// What may differ from one life to the next: what a user may change between two starts.
#[derive(Clone, Debug)]
pub struct LifeSetup {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Frames that keep pages.
    pub kept_frames: u32,
    /// Frames in transit.
    pub transit_frames: u32,
    /// Eviction of both tiers.
    pub policies: [PolicyKind; 2],
    /// Admission.
    pub admission: AdmissionConfig,
    /// By volume.
    pub modes: Vec<WriteMode>,
    /// By volume: how its hits are split.
    pub splits: Vec<SplitConfig>,
    /// Limits.
    pub limits: Limits,
    /// Table sectors a scan.
    pub scan_sectors_max: u32,
    /// See `CacheConfig::intent_map`.
    pub intent_map: bool,
    /// Requests in flight.
    pub chains: usize,
}

const HALF: SplitKind = SplitKind::Static { disk_permil: 500 };
const SPLITS: [SplitKind; 6] =
    [SplitKind::Off, SplitKind::Off, SplitKind::Off, HALF, SplitKind::BackendOnly, SplitKind::ExpectedDelay];
const POLICIES: [PolicyKind; 5] =
    [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Random, PolicyKind::Fifo, PolicyKind::S3Fifo];

impl Setup {
    /// Draws one.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        let page_bytes: u32 = dice.pick(&[4096, 4096, 8192, 16384, 16384, 65536, 262_144]);
        let volumes = (0..dice.pick(&[1, 1, 2, 3])).map(|_| VolumeSetup::draw(dice)).collect();
        let slots = dice.pick(&[16, 17, 24, 40, 100, 300]).min(4 << 20 >> page_bytes.trailing_zeros()).max(16);
        let disk_bytes = if dice.chance(80) { 0 } else { (2 << 20) + slots * u64::from(page_bytes) };
        Self {
            disk_bytes,
            page_bytes,
            volumes,
            operations: dice.between(1000, 1300),
            latency_ns: [dice.pick(&[20_000, 200_000, 5_000_000]), dice.pick(&[50_000, 500_000, 10_000_000])],
        }
    }
}

impl Setup {
    /// Where slots end on the cache disk and logs begin, or before.
    #[must_use]
    pub fn slots_end(&self) -> u64 {
        self.disk_bytes - self.volumes.iter().map(|volume| volume.log_bytes).sum::<u64>()
    }
}

impl VolumeSetup {
    fn draw(dice: &mut Dice) -> Self {
        let backend = match dice.below(10) {
            0..3 => BackendKind::Local,
            3 => BackendKind::Coarse,
            _ => BackendKind::Nbd { connections: dice.pick(&[1, 1, 2, 3]) },
        };
        let sectors = match dice.below(4) {
            0 => dice.between(1, 600),
            1 => dice.between(600, 4096),
            _ => dice.between(4096, 10_000),
        };
        let unit = if backend == BackendKind::Coarse { 8 } else { dice.pick(&[1, 8, 512]) };
        Self { sectors: sectors.next_multiple_of(unit), backend, log_bytes: 0 }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }
}

impl LifeSetup {
    /// Draws one.
    #[must_use]
    pub fn draw(dice: &mut Dice, setup: &Setup) -> Self {
        // Drawn aside: what was drawn before there were splits stays as it was.
        let mut aside = dice.clone().fork();
        let split = |_| SplitConfig {
            kind: aside.pick(&SPLITS),
            backend_bytes_per_second_max: aside.pick(&[0, 0, 0, 1 << 20]),
        };
        let splits = setup.volumes.iter().map(split).collect();
        let modes = setup.volumes.iter().map(|_| {
            dice.pick(&[
                WriteMode::Through,
                WriteMode::Through,
                WriteMode::Through,
                WriteMode::Through,
                WriteMode::Around,
                WriteMode::Pass,
                WriteMode::ReadOnly,
            ])
        });
        let modes = modes.collect();
        let page_bytes = if dice.chance(30) { dice.pick(&[4096, 16384]) } else { setup.page_bytes };
        let hedge_ms = dice.pick(&[100, 100, 20]);
        Self {
            page_bytes,
            kept_frames: dice.pick(&[0, 1, 4, 16, 60]),
            transit_frames: 34 + dice.pick(&[0, 3, 30]),
            policies: [dice.pick(&POLICIES), dice.pick(&POLICIES)],
            admission: AdmissionConfig {
                second_access: dice.chance(200),
                sequential_cutoff_bytes: dice.pick(&[0, 0, 256 << 10]),
            },
            modes,
            splits,
            limits: Limits {
                requests_max: dice.pick(&[4, 16, 64, 256]),
                stores_max: dice.pick(&[1, 4, 64]),
                sweep_writes_max: dice.pick(&[1, 4, 32]),
                hedge_floor_ns: hedge_ms * 1_000_000,
                disk_errors_max: dice.pick(&[2, 16, 1000]),
                ..Limits::default()
            },
            scan_sectors_max: dice.pick(&[1, 1, 3]).min(page_bytes / 4096),
            intent_map: !dice.chance(40),
            chains: dice.pick(&[1, 4, 12, 32]),
        }
    }
}
