//! Settings, as plain data: what a cache is built from.

use crate::error::ConfigError;
use crate::mode::WriteMode;
use crate::page::{BLOCK_BYTES, REQUEST_PAGES_MAX};
use crate::recovery::SCANS_MAX;
use alloc::vec::Vec;
use forebay_policy::evict::PolicyKind;
use forebay_policy::split::SplitConfig;
use forebay_policy::split::profile::Profile;

/// What a cache is built from.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Bytes of a page: a power of two, 4 KiB to 256 KiB.
    pub page_bytes: u32,
    /// Slots on the cache disk; 0 without one.
    pub slots: u32,
    /// Slot-table records in a sector (the disk format's); ignored without slots.
    pub table_records_per_sector: u32,
    /// Whether the table is to be read ([`crate::Action::ScanTable`]): the disk holds pages of an earlier run.
    pub recover: bool,
    /// Sectors a [`crate::Action::ScanTable`] may ask for at once.
    pub scan_sectors_max: u32,
    /// Frames of the arena that the cache may use: those that keep pages and those in transit.
    pub frames: u32,
    /// Of these, how many may be pinned by requests and stores at one time.
    pub transit_frames: u32,
    /// Eviction of the memory tier.
    pub memory_policy: PolicyKind,
    /// Eviction of the disk tier.
    pub disk_policy: PolicyKind,
    /// Which pages the disk tier takes.
    pub admission: AdmissionConfig,
    /// The volumes, named by their place.
    pub volumes: Vec<VolumeConfig>,
    /// Hard limits.
    pub limits: Limits,
    /// Whether writes wait for the write-intent map. Off only to measure what it costs: after a crash the disk tier
    /// starts cold.
    pub intent_map: bool,
    /// Seeds every random choice.
    pub seed: u64,
}

/// Which pages the disk tier takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Only pages asked for a second time while their first is remembered.
    pub second_access: bool,
    /// Streams longer than this are not kept; 0: no cut-off.
    pub sequential_cutoff_bytes: u64,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Names its pages on the cache disk; never 0, never shared.
    pub space: u32,
    /// Its size.
    pub bytes: u64,
    /// How it treats writes.
    pub mode: WriteMode,
    /// Bytes of a region of the write-intent map.
    pub region_bytes: u64,
    /// Regions that were in flight when the cache last stopped (bit i of word i/64); their pages are dropped.
    /// Empty: none.
    pub in_flight_regions: Vec<u64>,
    /// The largest trim or zeroing that the back end takes at once.
    pub range_bytes_max: u64,
    /// Whether what neither tier has is fetched from the back end. Otherwise a read of it fails: somebody else brings it, by a fill.
    pub fetches: bool,
    /// How its hits on the cache disk are split.
    pub split: SplitConfig,
    /// What its paths deliver alone, for the policies that need to know; may be empty.
    pub profile: Profile,
}

/// Hard limits; what goes beyond waits, or is refused with [`crate::ReplyError::Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight.
    pub requests_max: u32,
    /// Slot writes in flight; beyond it a fetched page is not kept.
    pub stores_max: u32,
    /// Table sectors being written at a time.
    pub sweep_writes_max: u32,
    /// A slot read unanswered for this long is also read from the back end (the floor; ten times its p99 above it).
    pub hedge_floor_ns: u64,
    /// The cache disk is given up after this many failed operations within a minute.
    pub disk_errors_max: u32,
    /// The cache disk is given up when an operation is unanswered for this long.
    pub disk_timeout_ns: u64,
    /// A back-end read unanswered for this long fails.
    pub backend_timeout_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 1024,
            stores_max: 256,
            sweep_writes_max: 32,
            hedge_floor_ns: 100_000_000,
            disk_errors_max: 16,
            disk_timeout_ns: 10_000_000_000,
            backend_timeout_ns: 30_000_000_000,
        }
    }
}

impl CacheConfig {
    /// Blocks in a page.
    #[must_use]
    pub fn blocks_per_page(&self) -> u32 {
        self.page_bytes / BLOCK_BYTES
    }

    /// The longest request.
    #[must_use]
    pub fn request_bytes_max(&self) -> u32 {
        Self::request_bytes_max_of(self.page_bytes)
    }

    /// The longest request of a cache with such pages: 1 MiB, or 16 pages if that is less.
    #[must_use]
    pub fn request_bytes_max_of(page_bytes: u32) -> u32 {
        (page_bytes * (REQUEST_PAGES_MAX as u32 - 1)).min(1 << 20)
    }

    /// Orders about records on the cache disk that can be unanswered at a time: table sectors, an intent map a volume,
    /// scans, the clean mark.
    #[must_use]
    pub fn metadata_orders_max(&self) -> u32 {
        self.limits.sweep_writes_max + self.volumes.len() as u32 + SCANS_MAX + 1
    }

    /// The size of a region of the write-intent map for a volume of `volume_bytes`: at most 4096 regions.
    #[must_use]
    pub fn region_bytes_for(volume_bytes: u64) -> u64 {
        const MIB: u64 = 1 << 20;
        volume_bytes.div_ceil(4096).next_multiple_of(MIB).max(MIB)
    }

    /// Every rule that a configuration must keep.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(&self) -> Result<(), ConfigError> {
        let page = self.page_bytes;
        if !page.is_power_of_two() || !(BLOCK_BYTES..=64 * BLOCK_BYTES).contains(&page) {
            return Err(ConfigError::PageBytes(page));
        }
        if self.volumes.len() > usize::from(u16::MAX) {
            return Err(ConfigError::TooMany("volumes"));
        }
        if self.slots >= u32::MAX - 1 || self.frames >= u32::MAX - 1 {
            return Err(ConfigError::TooMany("pages"));
        }
        if self.limits.requests_max > 1 << 20 {
            return Err(ConfigError::TooMany("requests"));
        }
        let needed = REQUEST_PAGES_MAX as u32 * 2;
        if self.transit_frames < needed || self.frames < self.transit_frames {
            return Err(ConfigError::Frames { needed: needed.max(self.transit_frames) });
        }
        if self.limits.sweep_writes_max > 64 || self.volumes.len() > 128 {
            return Err(ConfigError::TooMany("orders at a time"));
        }
        for (volume, config) in self.volumes.iter().enumerate() {
            let shared = self.volumes[..volume].iter().any(|other| other.space == config.space);
            if config.space == 0
                || shared
                || config.region_bytes == 0
                || !config.region_bytes.is_multiple_of(u64::from(page))
            {
                return Err(ConfigError::Volume { volume });
            }
            if config.bytes == 0 || config.bytes.div_ceil(u64::from(page)) > u64::from(u32::MAX) {
                return Err(ConfigError::VolumeBytes { volume, bytes: config.bytes });
            }
        }
        Ok(())
    }
}
