//! What a cache has seen and holds, as plain data: the source of metrics, of `/api/v1` and of the program's tables.
//!
//! Counters only grow while the process lives. Counts of pages, requests and the like are whole numbers, sizes are
//! bytes, durations nanoseconds; names say which.

use crate::control::State;
use crate::gateway::Gateway;
use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The program's version.
    pub version: String,
    /// Where the cache stands.
    pub state: State,
    /// Since the process began.
    pub uptime_seconds: f64,
    /// The uptime that the counters are of: rates are differences of counters over differences of this.
    #[serde(default)]
    pub counted_seconds: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The memory tier.
    pub memory: Tier,
    /// The disk tier, if one is configured.
    pub disk: Option<Disk>,
    /// Reading the slot table back.
    pub recovery: Recovery,
    /// What waits and is under way.
    pub queues: Queues,
    /// Regions of the write-intent maps that are set.
    pub intent_regions: u64,
    /// By volume.
    pub volumes: Vec<Volume>,
    /// The NBD server.
    pub nbd: Nbd,
    /// The S3 gateway, if one is configured.
    #[serde(default)]
    pub gateway: Option<Gateway>,
}

/// A tier's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Kept now.
    pub pages: u64,
    /// Room for.
    pub pages_max: u64,
}

/// The disk tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its pages.
    pub tier: Tier,
    /// Whether it is in use, or was given up (fail open).
    pub attached: bool,
    /// Times the cache went on without something: the disk given up.
    pub fail_opens: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Blocks that were not what was written there.
    pub bad_blocks: u64,
    /// Pages not taken: too many stores in flight, or no slot could be freed.
    pub stores_skipped: u64,
    /// Bytes written to slots.
    pub slot_write_bytes: u64,
    /// 4 KiB sectors of the slot table written.
    pub table_sector_writes: u64,
    /// 4 KiB sectors of intent maps written.
    pub intent_writes: u64,
    /// Sweeps that ended well.
    pub sweeps: u64,
    /// Sectors of the slot table that have to be written.
    pub dirty_sectors: u64,
    /// Recent reads of slots.
    pub read_latency: Latency,
}

/// Reading the slot table back after a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whether it goes on.
    pub running: bool,
    /// Slots whose records were read.
    pub scanned_slots: u64,
    /// Slots there are.
    pub slots: u64,
}

/// Queue depths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queues {
    /// Requests in flight.
    pub requests: u64,
    /// Of them, those that wait for frames.
    pub requests_waiting: u64,
    /// Device operations unanswered.
    pub operations: u64,
    /// Stores to the disk tier in flight.
    pub stores: u64,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// How it treats writes.
    pub mode: String,
    /// Where its truth is.
    pub backend: String,
    /// Its size.
    pub bytes: u64,
    /// Reads answered, well or not.
    pub reads: u64,
    /// Writes (zeroing included) answered.
    pub writes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Trims answered.
    pub trims: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub write_bytes: u64,
    /// Parts of reads (one a page) that memory answered.
    pub memory_hits: u64,
    /// Parts of reads that the cache disk was needed for.
    pub disk_hits: u64,
    /// Parts of reads that the cache disk could have answered and the back end did, because that was faster.
    #[serde(default)]
    pub backend_hits: u64,
    /// Of these, those that the cache disk answered after all: the back end failed or was late.
    #[serde(default)]
    pub split_failovers: u64,
    /// Blocks that back end and cache disk did not agree about.
    #[serde(default)]
    pub split_mismatches: u64,
    /// How hits are split; `None` if they are not.
    #[serde(default)]
    pub split: Option<Split>,
    /// The devices that its hits are split over.
    #[serde(default)]
    pub devices: Devices,
    /// The profile of these devices, if it was given one.
    #[serde(default)]
    pub profile: Option<ProfileNote>,
    /// Its write-back log, if it has one.
    #[serde(default)]
    pub log: Option<WriteLog>,
    /// Parts of reads that the back end was needed for.
    pub misses: u64,
    /// Of the misses, those while the slot table was being read.
    pub recovering_misses: u64,
    /// Bytes that reads took from memory.
    pub memory_read_bytes: u64,
    /// Bytes read from the cache disk.
    pub disk_read_bytes: u64,
    /// Bytes read from the back end.
    pub backend_read_bytes: u64,
    /// Bytes written to the back end.
    pub backend_write_bytes: u64,
    /// Bytes that the disk tier took.
    pub admitted_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Reads of slow slots that were also sent to the back end.
    pub hedged_reads: u64,
    /// Durations of reads.
    pub read_latency: Latency,
    /// Durations of writes.
    pub write_latency: Latency,
    /// Durations of flushes.
    pub flush_latency: Latency,
}

/// A volume's write-back log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteLog {
    /// Its size.
    pub bytes: u64,
    /// Of it, what is in use.
    pub used_bytes: u64,
    /// What the back end lacks.
    pub dirty_bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Records that it has room for.
    pub records_max: u64,
    /// How many records it ever took.
    pub appended_record: u64,
    /// Records before this are on the back end, for good.
    pub followed_record: u64,
    /// Epochs of writes that are closed and not on the back end.
    pub epochs: u64,
    /// The age of the oldest write that the back end lacks; 0: it lacks none.
    pub lag_ns: u64,
    /// That is older than it may be.
    pub is_lagging: bool,
    /// How long writers waited for the log to have room, all together.
    pub throttled_ns: u64,
    /// Groups of records written.
    pub groups: u64,
    /// Their bytes.
    pub group_bytes: u64,
    /// Of these, what clients wrote.
    pub payload_bytes: u64,
    /// Flushes of the log.
    pub flushes: u64,
    /// Runs that the back end took.
    pub runs: u64,
    /// Their bytes.
    pub run_bytes: u64,
    /// Runs that failed, each tried again.
    pub failed_runs: u64,
    /// Flushes of the back end.
    pub backend_flushes: u64,
    /// Flushes of the back end that failed; what they covered is written again.
    pub failed_backend_flushes: u64,
    /// How its disk is: `whole`; or it failed, and what the log has goes to the back end (`draining`), is being given up
    /// (`losing`, `giving-up`), and then changes go to the back end (`through`).
    pub health: String,
    /// Its mirror: `whole` where cache disk and mirror have it, or which of them has it alone (`disk-only`, `mirror-only`); empty
    /// without a mirror.
    #[serde(default)]
    pub mirror: String,
    /// Blocks of it that could not be read on a disk that works.
    pub bad_blocks: u64,
    /// Bytes that neither the log nor the back end has any more. Reading them fails until they are written, or the loss is
    /// accepted.
    pub lost_bytes: u64,
    /// Which; the first thousand.
    pub lost: Vec<LostRange>,
}

/// A range that is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// Its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The epoch of writes it is of; unknown when the process that knew has died, too.
    pub epoch: Option<u64>,
}

impl WriteLog {
    /// How full it is, 0 to 1: of bytes or of records, whichever is more.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        share(self.used_bytes, self.bytes).max(share(self.records, self.records_max))
    }
}

/// A cache disk and a back end, as far as they can be told apart from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// The cache disk's model; empty if there is none.
    pub disk_model: String,
    /// Its serial number; empty if it tells none.
    pub disk_serial: String,
    /// What kind of back end it is.
    pub backend_kind: String,
    /// The speed of the link to the back end; 0 if it is not known, or there is none.
    pub link_bits_per_second: u64,
}

/// A profile that a volume was given, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileNote {
    /// Where it is saved.
    pub file: String,
    /// Loads that it has figures for; 0 if it is not used.
    pub points: u64,
    /// Why it is not used, or what to know when it is; empty if nothing.
    pub note: String,
}

/// How a volume's hits on the cache disk are split, and what the policy believes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The policy's name.
    pub policy: String,
    /// `no-table`, `warmup`, `stable` or `congestion`.
    pub mode: String,
    /// Of a thousand hits, those for the cache disk.
    pub disk_share_permil: u64,
    /// How congested the back end seems, 0 to 1000.
    pub severity_permil: u64,
    /// What hits may take from the back end; 0: any amount.
    pub backend_bytes_per_second_max: u64,
    /// Hits that this limit kept on the cache disk, since the policy was chosen.
    #[serde(default)]
    pub over_budget: u64,
    /// Whether the back end is left alone for a while, since a hit failed there or was late.
    #[serde(default)]
    pub suspended: bool,
    /// The cache disk.
    pub disk: PathEstimate,
    /// The back end.
    pub backend: PathEstimate,
}

/// A path as the policy sees it; estimates are 0 where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEstimate {
    /// What it delivers.
    pub bytes_per_second: u64,
    /// How long a read takes.
    pub latency_ns: u64,
    /// Reads in flight there now, misses too.
    #[serde(default)]
    pub in_flight: u64,
    /// Reads that it is filled with before others are preferred; 0 where the policy has no such window.
    #[serde(default)]
    pub window: u64,
}

impl Volume {
    /// Hits in either tier, of all parts of reads; `None` before the first.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.memory_hits + self.disk_hits + self.backend_hits;
        let parts = hits + self.misses;
        (parts > 0).then(|| hits as f64 / parts as f64)
    }

    /// Requests that failed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.read_errors + self.write_errors + self.flush_errors
    }
}

/// The NBD server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nbd {
    /// Connections open now.
    pub connections_open: u64,
    /// Connections that reached a volume.
    pub connections: u64,
    /// Connections turned away: too many clients, or no descriptors.
    pub connections_refused: u64,
    /// Handshakes given up, by reason.
    pub handshakes_failed: BTreeMap<String, u64>,
    /// Connections closed, by reason.
    pub closed: BTreeMap<String, u64>,
    /// Requests, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Requests that failed, by the error that the client was told.
    pub errors: BTreeMap<String, u64>,
    /// Payload received.
    pub received_bytes: u64,
    /// Payload sent.
    pub sent_bytes: u64,
    /// Times that a client's socket was full.
    pub sends_blocked: u64,
}

/// The short form, for `forebay status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Where the cache stands.
    pub state: State,
    /// Since the process began.
    pub uptime_seconds: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The memory tier.
    pub memory: Tier,
    /// The disk tier, if one is configured.
    pub disk: Option<Tier>,
    /// Whether the disk tier is in use.
    pub disk_attached: bool,
    /// Reading the slot table back.
    pub recovery: Recovery,
    /// NBD connections open now.
    pub connections_open: u64,
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// A volume in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// How it treats writes.
    pub mode: String,
    /// Where its truth is.
    pub backend: String,
    /// Its size.
    pub bytes: u64,
    /// Hits of all parts of reads, 0 to 1; `None` before the first.
    pub hit_ratio: Option<f64>,
    /// Requests that failed.
    pub errors: u64,
    /// Its write-back log, if it has one.
    #[serde(default)]
    pub log: Option<WriteLog>,
}

impl From<&Snapshot> for Status {
    fn from(snapshot: &Snapshot) -> Self {
        let volumes = snapshot.volumes.iter().map(|volume| VolumeStatus {
            name: volume.name.clone(),
            mode: volume.mode.clone(),
            backend: volume.backend.clone(),
            bytes: volume.bytes,
            hit_ratio: volume.hit_ratio(),
            errors: volume.errors(),
            log: volume.log.clone(),
        });
        Self {
            version: snapshot.version.clone(),
            state: snapshot.state,
            uptime_seconds: snapshot.uptime_seconds,
            page_bytes: snapshot.page_bytes,
            memory: snapshot.memory,
            disk: snapshot.disk.as_ref().map(|disk| disk.tier),
            disk_attached: snapshot.disk.as_ref().is_some_and(|disk| disk.attached),
            recovery: snapshot.recovery,
            connections_open: snapshot.nbd.connections_open,
            volumes: volumes.collect(),
        }
    }
}
