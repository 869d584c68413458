//! Prometheus metrics: one table of rows, from which both the text and docs/reference/metrics.md are written.
//!
//! A row says how it is read from a [`Snapshot`]. Names are `forebay_<noun>_<unit>`, counters end in `_total`. The
//! text is OpenMetrics, which Prometheus reads. Durations have one bucket an octave, 1 us to 17 s: the bounds must not
//! change from scrape to scrape, and 25 of them a histogram are enough to tell a hit from a miss.

use crate::control::State;
use crate::gateway::Gateway;
use crate::latency::Latency;
use crate::snapshot::{Disk, PathEstimate, Snapshot, Split, Volume, WriteLog};
use prometheus_client::encoding::text::encode_eof;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every [`Split::mode`].
const SPLIT_MODES: [&str; 4] = ["no-table", "warmup", "stable", "congestion"];

type ReadVolume = fn(&Volume) -> u64;
type Labels = Vec<(&'static str, String)>;

enum Kind {
    Counter(fn(&Snapshot) -> Vec<(Labels, u64)>),
    Gauge(fn(&Snapshot) -> Vec<(Labels, f64)>),
    Duration(fn(&Snapshot) -> Vec<(Labels, &Latency)>),
}

struct Metric {
    /// Without `_total`, which the encoder adds.
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    kind: Kind,
}

const fn counter(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    read: fn(&Snapshot) -> Vec<(Labels, u64)>,
) -> Metric {
    Metric { name, labels, help, kind: Kind::Counter(read) }
}

const fn gauge(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    read: fn(&Snapshot) -> Vec<(Labels, f64)>,
) -> Metric {
    Metric { name, labels, help, kind: Kind::Gauge(read) }
}

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    gauge("forebay_build_info", "version", "Always 1; the label says which version runs.",
        |s| vec![(vec![("version", s.version.clone())], 1.0)]),
    gauge("forebay_state", "state", "1 for the state that the cache is in, 0 for the others.",
        |s| State::ALL.iter().map(|state| (vec![("state", state.name().to_owned())], f64::from(u8::from(*state == s.state)))).collect()),
    gauge("forebay_uptime_seconds", "", "Since the process began.", |s| one(s.uptime_seconds)),
    gauge("forebay_page_bytes", "", "Size of a page.", |s| one(s.page_bytes as f64)),
    gauge("forebay_tier_pages", "tier", "Pages kept in a tier.", |s| tiers(s, |tier| tier.pages)),
    gauge("forebay_tier_capacity_pages", "tier", "Pages that a tier has room for.", |s| tiers(s, |tier| tier.pages_max)),
    gauge("forebay_queue_requests", "queue", "Depth of a queue: requests in flight and those waiting for frames, device operations, stores to the disk tier.", queues),
    gauge("forebay_intent_regions", "", "Regions of the write-intent maps that are set: what a crash now would drop.", |s| one(s.intent_regions as f64)),
    gauge("forebay_recovery_slots", "", "Slots whose records were read since the start.", |s| one(s.recovery.scanned_slots as f64)),
    gauge("forebay_recovery_running", "", "1 while the slot table is being read.", |s| one(f64::from(u8::from(s.recovery.running)))),

    gauge("forebay_disk_attached", "", "1 while the cache disk is in use; 0 after it was given up.", |s| disk(s, |d| f64::from(u8::from(d.attached)))),
    gauge("forebay_disk_dirty_sectors", "", "Sectors of the slot table that have to be written.", |s| disk(s, |d| d.dirty_sectors as f64)),
    counter("forebay_fail_opens", "", "Times that the cache went on without its disk.", |s| disk(s, |d| d.fail_opens)),
    counter("forebay_disk_errors", "", "Operations of the cache disk that failed.", |s| disk(s, |d| d.errors)),
    counter("forebay_disk_bad_blocks", "", "Blocks of the cache disk that were not what was written there; fetched again.", |s| disk(s, |d| d.bad_blocks)),
    counter("forebay_disk_skipped_pages", "", "Pages that the disk tier did not take: too many stores in flight, or no slot could be freed.", |s| disk(s, |d| d.stores_skipped)),
    counter("forebay_disk_slot_write_bytes", "", "Bytes written to slots.", |s| disk(s, |d| d.slot_write_bytes)),
    counter("forebay_disk_table_sectors", "", "Sectors (4 KiB) of the slot table written.", |s| disk(s, |d| d.table_sector_writes)),
    counter("forebay_disk_intent_sectors", "", "Sectors (4 KiB) of the write-intent maps written.", |s| disk(s, |d| d.intent_writes)),
    counter("forebay_disk_sweeps", "", "Times that the cache disk was brought up to date.", |s| disk(s, |d| d.sweeps)),
    Metric { name: "forebay_disk_read_duration_seconds", labels: "", help: "Recent reads of slots.",
        kind: Kind::Duration(|s| s.disk.iter().map(|disk| (vec![], &disk.read_latency)).collect()) },

    counter("forebay_volume_requests", "volume, op", "Requests answered, well or not.",
        |s| by(s, "op", &[("read", |v| v.reads), ("write", |v| v.writes), ("flush", |v| v.flushes), ("trim", |v| v.trims)])),
    counter("forebay_volume_bytes", "volume, op", "Bytes that clients read and wrote.",
        |s| by(s, "op", &[("read", |v| v.read_bytes), ("write", |v| v.write_bytes)])),
    counter("forebay_volume_errors", "volume, op", "Requests that failed.",
        |s| by(s, "op", &[("read", |v| v.read_errors), ("write", |v| v.write_errors), ("flush", |v| v.flush_errors)])),
    counter("forebay_volume_read_parts", "volume, path", "Parts of reads (one a page) by the farthest path they needed: memory and disk are hits, split a hit on disk that the back end served, backend a miss.",
        |s| by(s, "path", &[("memory", |v| v.memory_hits), ("disk", |v| v.disk_hits), ("split", |v| v.backend_hits), ("backend", |v| v.misses)])),
    counter("forebay_volume_split_failover_parts", "volume", "Hits that the back end was to serve and the cache disk did: the back end failed or was late.", |s| volumes(s, |v| v.split_failovers)),
    counter("forebay_volume_split_mismatched_blocks", "volume", "Blocks that back end and cache disk did not agree about; the cached copy was dropped.", |s| volumes(s, |v| v.split_mismatches)),
    gauge("forebay_volume_split_disk_ratio", "volume", "Share of the hits on disk that the cache disk serves.", |s| split(s, |split| split.disk_share_permil as f64 / 1e3)),
    gauge("forebay_volume_split_severity_ratio", "volume", "How congested the back end seems, 0 to 1.", |s| split(s, |split| split.severity_permil as f64 / 1e3)),
    gauge("forebay_volume_split_policy", "volume, policy", "Always 1; the label says which policy splits the volume's hits.", split_policies),
    gauge("forebay_volume_split_mode", "volume, mode", "1 for the mode that the policy is in, 0 for the others.", split_modes),
    gauge("forebay_volume_split_congested", "volume", "1 while the policy takes the back end for congested.", |s| split(s, |split| f64::from(u8::from(split.mode == "congestion")))),
    gauge("forebay_volume_split_suspended", "volume", "1 while the back end is left alone, since a hit failed there or was late.", |s| split(s, |split| f64::from(u8::from(split.suspended)))),
    gauge("forebay_volume_split_budget_bytes_per_second", "volume", "What hits may take from the back end; 0: any amount.", |s| split(s, |split| split.backend_bytes_per_second_max as f64)),
    counter("forebay_volume_split_over_budget_hits", "volume", "Hits that this budget kept on the cache disk, since the policy was chosen.",
        |s| splits(s).map(|(volume, split)| (of(volume), split.over_budget)).collect()),
    gauge("forebay_volume_path_estimate_bytes_per_second", "volume, path", "What a path is thought to deliver; 0 where it is not known.", |s| estimates(s, |path| path.bytes_per_second as f64)),
    gauge("forebay_volume_path_estimate_seconds", "volume, path", "How long a read of a path is thought to take; 0 where it is not known.", |s| estimates(s, |path| path.latency_ns as f64 / 1e9)),
    gauge("forebay_volume_path_in_flight_requests", "volume, path", "Reads in flight on a path, where hits are split.", |s| estimates(s, |path| path.in_flight as f64)),
    gauge("forebay_volume_path_window_requests", "volume, path", "Reads that a path is filled with before others are preferred; 0 where the policy has no such window.", |s| estimates(s, |path| path.window as f64)),
    counter("forebay_volume_recovering_parts", "volume", "Misses while the slot table was being read; some of their pages were warm.",
        |s| volumes(s, |v| v.recovering_misses)),
    counter("forebay_volume_path_bytes", "volume, path, op", "Bytes that moved by path.", path_bytes),
    counter("forebay_volume_admitted_bytes", "volume", "Bytes that the disk tier took.", |s| volumes(s, |v| v.admitted_bytes)),
    counter("forebay_volume_hedged_reads", "volume", "Reads of slow slots that were also sent to the back end.", |s| volumes(s, |v| v.hedged_reads)),
    gauge("forebay_volume_log_bytes", "volume", "Size of a volume's write-back log.", |s| log(s, |log| log.bytes as f64)),
    gauge("forebay_volume_log_full_ratio", "volume", "How full the log is, of bytes or of records, whichever is more.", |s| log(s, WriteLog::fullness)),
    gauge("forebay_volume_log_dirty_bytes", "volume", "What the log has and the back end lacks.", |s| log(s, |log| log.dirty_bytes as f64)),
    gauge("forebay_volume_log_records", "volume", "Records in the log.", |s| log(s, |log| log.records as f64)),
    gauge("forebay_volume_log_epochs", "volume", "Epochs of writes (from flush to flush) that the back end lacks.", |s| log(s, |log| log.epochs as f64)),
    gauge("forebay_volume_log_lag_seconds", "volume", "The age of the oldest write that the back end lacks.", |s| log(s, |log| log.lag_ns as f64 / 1e9)),
    gauge("forebay_volume_log_lagging", "volume", "1 while that is older than it may be: an alert.", |s| log(s, |log| f64::from(u8::from(log.is_lagging)))),
    gauge("forebay_volume_log_throttled_seconds", "volume", "How long writers waited for the log to have room, all together.", |s| log(s, |log| log.throttled_ns as f64 / 1e9)),
    gauge("forebay_volume_log_broken", "volume", "1 after the log's disk failed.", |s| log(s, |log| f64::from(u8::from(log.health != "whole")))),
    gauge("forebay_volume_log_mirrored", "volume", "1 while a log that is to be mirrored is on cache disk and mirror, 0 while it is on one of them: an alert.", mirrored),
    gauge("forebay_volume_lost_bytes", "volume", "Bytes that neither log nor back end has any more; reading them fails until they are written or the loss is accepted.", |s| log(s, |log| log.lost_bytes as f64)),
    counter("forebay_volume_log_bad_blocks", "volume", "Blocks of the log that could not be read on a disk that works.", |s| log(s, |log| log.bad_blocks)),
    counter("forebay_volume_log_groups", "volume", "Groups of records written to the log.", |s| log(s, |log| log.groups)),
    counter("forebay_volume_log_group_bytes", "volume", "Their bytes.", |s| log(s, |log| log.group_bytes)),
    counter("forebay_volume_log_payload_bytes", "volume", "Of these, what clients wrote.", |s| log(s, |log| log.payload_bytes)),
    counter("forebay_volume_log_flushes", "volume", "Flushes of the log.", |s| log(s, |log| log.flushes)),
    counter("forebay_volume_log_runs", "volume", "Runs of sectors that the back end took from the log.", |s| log(s, |log| log.runs)),
    counter("forebay_volume_log_run_bytes", "volume", "Their bytes.", |s| log(s, |log| log.run_bytes)),
    counter("forebay_volume_log_failed_runs", "volume", "Runs that failed; each is tried again.", |s| log(s, |log| log.failed_runs)),
    counter("forebay_volume_log_backend_flushes", "volume, result", "Flushes of the back end behind the log.", backend_flushes),
    gauge("forebay_volume_size_bytes", "volume", "Size of a volume.", |s| s.volumes.iter().map(|v| (of(v), v.bytes as f64)).collect()),
    Metric { name: "forebay_volume_request_duration_seconds", labels: "volume, op", help: "From a request's first byte to its answer.",
        kind: Kind::Duration(durations) },

    gauge("forebay_nbd_connections_open", "", "NBD connections open now.", |s| one(s.nbd.connections_open as f64)),
    counter("forebay_nbd_connections", "", "NBD connections that reached a volume.", |s| one(s.nbd.connections)),
    counter("forebay_nbd_refused_connections", "", "NBD connections turned away: too many clients, or no descriptors.", |s| one(s.nbd.connections_refused)),
    counter("forebay_nbd_failed_handshakes", "reason", "NBD handshakes given up.", |s| map(&s.nbd.handshakes_failed, "reason")),
    counter("forebay_nbd_closed_connections", "reason", "NBD connections closed.", |s| map(&s.nbd.closed, "reason")),
    counter("forebay_nbd_requests", "op", "NBD requests received.", |s| map(&s.nbd.requests, "op")),
    counter("forebay_nbd_errors", "error", "NBD requests answered with an error.", |s| map(&s.nbd.errors, "error")),
    counter("forebay_nbd_received_bytes", "", "Payload received over NBD.", |s| one(s.nbd.received_bytes)),
    counter("forebay_nbd_sent_bytes", "", "Payload sent over NBD.", |s| one(s.nbd.sent_bytes)),
    counter("forebay_nbd_blocked_sends", "", "Times that a client's socket was full.", |s| one(s.nbd.sends_blocked)),

    counter("forebay_gateway_requests", "op, cache, status", "S3 requests answered. op: get and head of objects, look (all else that changes nothing), change. cache: as X-Cache has it; none if the gateway answered itself.", gateway_requests),
    counter("forebay_gateway_bypassed_requests", "reason", "S3 requests whose answer was not cached; `forebay explain s3://BUCKET/KEY` says what the reason means.", |s| gateway_map(s, "reason", |g| &g.bypassed)),
    counter("forebay_gateway_sent_bytes", "source", "Bytes of bodies sent. cache: memory or disk; copy: of a small object; passed: from the store, as it answered; fetched: from the store, since the cache lacked them.", |s| gateway_map(s, "source", |g| &g.sent_bytes)),
    counter("forebay_gateway_tier_read_bytes", "tier", "Bytes of objects that reads took from a tier.", gateway_tiers),
    counter("forebay_gateway_kept_bytes", "", "Bytes of objects that the cache took.", |s| gateway(s, |g| g.kept_bytes)),
    counter("forebay_gateway_read_parts", "path", "Parts of reads of objects (one a page) by the farthest path they needed: memory and disk are hits, split a hit on disk that the store served, backend what was read from it otherwise.", |s| gateway_map(s, "path", |g| &g.read_parts)),
    gauge("forebay_gateway_split_disk_ratio", "", "Share of the hits of objects on disk that the cache disk serves.", |s| gateway_split(s, |split| split.disk_share_permil as f64 / 1e3)),
    gauge("forebay_gateway_split_policy", "policy", "Always 1; the label says which policy splits the hits of objects.", |s| gateway_splits(s).map(|split| (vec![("policy", split.policy.clone())], 1.0)).collect()),
    gauge("forebay_gateway_split_suspended", "", "1 while the store is left alone, since a hit failed there or was late.", |s| gateway_split(s, |split| f64::from(u8::from(split.suspended)))),
    gauge("forebay_gateway_split_budget_bytes_per_second", "", "What hits may take from the store; 0: any amount.", |s| gateway_split(s, |split| split.backend_bytes_per_second_max as f64)),
    counter("forebay_gateway_split_over_budget_hits", "", "Hits that this budget kept on the cache disk.", |s| gateway_splits(s).map(|split| (Vec::new(), split.over_budget)).collect()),
    counter("forebay_gateway_split_failover_parts", "", "Hits that the store was to serve and the cache disk did: the store failed or was late.", |s| gateway(s, |g| g.split_failovers)),
    counter("forebay_gateway_split_mismatched_blocks", "", "Blocks that store and cache disk did not agree about; the cached copy was dropped.", |s| gateway(s, |g| g.split_mismatches)),
    counter("forebay_gateway_addressed_pages", "result", "Pages that were to be read from the store though the cache disk has them. served; declined: the store has another version by now; failed.", |s| gateway_map(s, "result", |g| &g.addressed_pages)),
    counter("forebay_gateway_store_requests", "purpose", "Requests to the store. pass: the client's own; confirm: whether what is cached may be read and is current; fetch: of what the cache lacked; split: of what the cache disk has, too.", |s| gateway_map(s, "purpose", |g| &g.store_requests)),
    counter("forebay_gateway_store_read_bytes", "purpose", "Bytes of bodies that were read from the store: sent (pass, fetch), or for hits (split).", gateway_store_bytes),
    counter("forebay_gateway_store_errors", "error", "Requests to the store that failed. away: it could not be reached, or broke off; late: it did not begin to answer in time.", |s| gateway_map(s, "error", |g| &g.store_errors)),
    counter("forebay_gateway_waits", "", "Times that a request waited for bytes that another one brought.", |s| gateway(s, |g| g.waits)),
    gauge("forebay_gateway_connections_open", "", "S3 connections open now.", |s| gateway(s, |g| g.connections_open as f64)),
    gauge("forebay_gateway_connections_max", "", "S3 connections at one time, at most.", |s| gateway(s, |g| g.connections_max as f64)),
    counter("forebay_gateway_connections", "", "S3 connections taken.", |s| gateway(s, |g| g.connections)),
    counter("forebay_gateway_refused_connections", "", "S3 connections turned away: too many clients.", |s| gateway(s, |g| g.connections_refused)),
    gauge("forebay_gateway_versions", "", "Versions of objects that are known.", |s| gateway(s, |g| g.versions as f64)),
    gauge("forebay_gateway_versions_max", "", "Versions of objects that are known at one time, at most; beyond, those used longest ago are forgotten.", |s| gateway(s, |g| g.versions_max as f64)),
    gauge("forebay_gateway_version_bytes", "", "The sum of the known versions' lengths, cached or not.", |s| gateway(s, |g| g.version_bytes as f64)),
    gauge("forebay_gateway_permits", "", "Answers of the store to requests that are believed for metadata_ttl.", |s| gateway(s, |g| g.permits as f64)),
    gauge("forebay_gateway_space_bytes", "", "Addresses of the object space.", |s| gateway(s, |g| g.space_bytes as f64)),
    gauge("forebay_gateway_space_used_bytes", "", "Addresses that were given out, and not cleaned since.", |s| gateway(s, |g| g.space_used_bytes() as f64)),
    counter("forebay_gateway_space_given_bytes", "", "Addresses given out; modulo the object space's size this is where in the ring the next object begins.", |s| gateway(s, |g| g.given_bytes)),
    counter("forebay_gateway_space_cleaned_bytes", "", "Addresses whose old pages were dropped, so that they can be given out again.", |s| gateway(s, |g| g.cleaned_bytes)),
    Metric { name: "forebay_gateway_first_byte_duration_seconds", labels: "cache", help: "From an S3 request's head to the first byte of its answer.",
        kind: Kind::Duration(|s| s.gateway.iter().flat_map(|g| &g.first_byte_latency).map(|(outcome, it)| (vec![("cache", outcome.clone())], it)).collect()) },
];

fn one<T>(value: T) -> Vec<(Labels, T)> {
    vec![(vec![], value)]
}

fn of(volume: &Volume) -> Labels {
    vec![("volume", volume.name.clone())]
}

fn of_and(volume: &Volume, label: &'static str, value: &str) -> Labels {
    vec![("volume", volume.name.clone()), (label, value.to_owned())]
}

fn disk<T>(snapshot: &Snapshot, read: fn(&Disk) -> T) -> Vec<(Labels, T)> {
    snapshot.disk.iter().map(|disk| (vec![], read(disk))).collect()
}

fn tiers(snapshot: &Snapshot, read: fn(&crate::Tier) -> u64) -> Vec<(Labels, f64)> {
    let memory = ("memory", &snapshot.memory);
    let tiers = std::iter::once(memory).chain(snapshot.disk.iter().map(|disk| ("disk", &disk.tier)));
    tiers.map(|(name, tier)| (vec![("tier", name.to_owned())], read(tier) as f64)).collect()
}

fn queues(snapshot: &Snapshot) -> Vec<(Labels, f64)> {
    let queues = &snapshot.queues;
    let depths = [
        ("requests", queues.requests),
        ("waiting", queues.requests_waiting),
        ("operations", queues.operations),
        ("stores", queues.stores),
    ];
    depths.map(|(name, depth)| (vec![("queue", name.to_owned())], depth as f64)).into()
}

fn volumes(snapshot: &Snapshot, read: ReadVolume) -> Vec<(Labels, u64)> {
    snapshot.volumes.iter().map(|volume| (of(volume), read(volume))).collect()
}

/// Volumes whose hits are split.
fn splits(snapshot: &Snapshot) -> impl Iterator<Item = (&Volume, &Split)> {
    snapshot.volumes.iter().filter_map(|volume| Some((volume, volume.split.as_ref()?)))
}

fn split(snapshot: &Snapshot, read: fn(&Split) -> f64) -> Vec<(Labels, f64)> {
    splits(snapshot).map(|(volume, split)| (of(volume), read(split))).collect()
}

fn split_policies(snapshot: &Snapshot) -> Vec<(Labels, f64)> {
    splits(snapshot).map(|(volume, split)| (of_and(volume, "policy", &split.policy), 1.0)).collect()
}

fn split_modes(snapshot: &Snapshot) -> Vec<(Labels, f64)> {
    let modes = |(volume, split): (&Volume, &Split)| {
        SPLIT_MODES.map(|mode| (of_and(volume, "mode", mode), f64::from(u8::from(mode == split.mode))))
    };
    splits(snapshot).flat_map(modes).collect()
}

/// Of volumes that have a log.
fn log<T>(snapshot: &Snapshot, read: fn(&WriteLog) -> T) -> Vec<(Labels, T)> {
    snapshot.volumes.iter().filter_map(|volume| Some((of(volume), read(volume.log.as_ref()?)))).collect()
}

fn mirrored(snapshot: &Snapshot) -> Vec<(Labels, f64)> {
    let logs = snapshot.volumes.iter().filter_map(|volume| Some((volume, volume.log.as_ref()?)));
    let logs = logs.filter(|(_, log)| !log.mirror.is_empty());
    logs.map(|(volume, log)| (of(volume), f64::from(u8::from(log.mirror == "whole")))).collect()
}

fn backend_flushes(snapshot: &Snapshot) -> Vec<(Labels, u64)> {
    let logs = snapshot.volumes.iter().filter_map(|volume| Some((volume, volume.log.as_ref()?)));
    let counts = |(volume, log): (&Volume, &WriteLog)| {
        let counts = [("well", log.backend_flushes), ("failed", log.failed_backend_flushes)];
        counts.map(|(result, count)| (of_and(volume, "result", result), count))
    };
    logs.flat_map(counts).collect()
}

fn estimates(snapshot: &Snapshot, read: fn(&PathEstimate) -> f64) -> Vec<(Labels, f64)> {
    let paths = |(volume, split): (&Volume, &Split)| {
        let paths = [("disk", &split.disk), ("backend", &split.backend)];
        paths.map(|(name, path)| (of_and(volume, "path", name), read(path)))
    };
    splits(snapshot).flat_map(paths).collect()
}

fn by(snapshot: &Snapshot, label: &'static str, rows: &[(&'static str, ReadVolume)]) -> Vec<(Labels, u64)> {
    let of_volume = |volume| rows.iter().map(move |(value, read)| (of_and(volume, label, value), read(volume)));
    snapshot.volumes.iter().flat_map(of_volume).collect()
}

fn path_bytes(snapshot: &Snapshot) -> Vec<(Labels, u64)> {
    let of_volume = |volume: &Volume| {
        let moved = [
            ("memory", "read", volume.memory_read_bytes),
            ("disk", "read", volume.disk_read_bytes),
            ("backend", "read", volume.backend_read_bytes),
            ("backend", "write", volume.backend_write_bytes),
        ];
        let labels =
            |path: &str, op: &str| [of(volume), vec![("path", path.to_owned()), ("op", op.to_owned())]].concat();
        moved.map(|(path, op, bytes)| (labels(path, op), bytes))
    };
    snapshot.volumes.iter().flat_map(of_volume).collect()
}

fn durations(snapshot: &Snapshot) -> Vec<(Labels, &Latency)> {
    fn of_volume(volume: &Volume) -> [(Labels, &Latency); 3] {
        let Volume { read_latency, write_latency, flush_latency, .. } = volume;
        let of_op = |op: &str| [of(volume), vec![("op", op.to_owned())]].concat();
        [(of_op("read"), read_latency), (of_op("write"), write_latency), (of_op("flush"), flush_latency)]
    }
    snapshot.volumes.iter().flat_map(of_volume).collect()
}

fn gateway<T>(snapshot: &Snapshot, read: fn(&Gateway) -> T) -> Vec<(Labels, T)> {
    snapshot.gateway.iter().map(|gateway| (vec![], read(gateway))).collect()
}

fn gateway_map(
    snapshot: &Snapshot,
    label: &'static str,
    read: fn(&Gateway) -> &BTreeMap<String, u64>,
) -> Vec<(Labels, u64)> {
    snapshot.gateway.iter().flat_map(|gateway| map(read(gateway), label)).collect()
}

/// A gateway whose hits are split.
fn gateway_splits(snapshot: &Snapshot) -> impl Iterator<Item = &Split> {
    snapshot.gateway.iter().filter_map(|gateway| gateway.split.as_ref())
}

fn gateway_split(snapshot: &Snapshot, read: fn(&Split) -> f64) -> Vec<(Labels, f64)> {
    gateway_splits(snapshot).map(|split| (vec![], read(split))).collect()
}

fn gateway_requests(snapshot: &Snapshot) -> Vec<(Labels, u64)> {
    let requests = snapshot.gateway.iter().flat_map(|gateway| &gateway.requests);
    let labels = requests.map(|it| {
        let labels = [("op", &it.operation), ("cache", &it.outcome), ("status", &it.class)];
        (labels.map(|(label, value)| (label, value.clone())).into(), it.count)
    });
    labels.collect()
}

fn gateway_tiers(snapshot: &Snapshot) -> Vec<(Labels, u64)> {
    let tiers = |gateway: &Gateway| [("memory", gateway.memory_read_bytes), ("disk", gateway.disk_read_bytes)];
    snapshot.gateway.iter().flat_map(tiers).map(|(tier, bytes)| (vec![("tier", tier.to_owned())], bytes)).collect()
}

fn gateway_store_bytes(snapshot: &Snapshot) -> Vec<(Labels, u64)> {
    let purposes = |gateway: &Gateway| {
        [("pass", gateway.sent("passed")), ("fetch", gateway.sent("fetched")), ("split", gateway.addressed_bytes)]
    };
    let read = snapshot.gateway.iter().flat_map(purposes);
    read.map(|(purpose, bytes)| (vec![("purpose", purpose.to_owned())], bytes)).collect()
}

fn map(counts: &BTreeMap<String, u64>, label: &'static str) -> Vec<(Labels, u64)> {
    counts.iter().map(|(value, count)| (vec![(label, value.clone())], *count)).collect()
}

/// A snapshot as OpenMetrics text.
pub(crate) fn text(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(snapshot)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode_registry(&mut text, &registry)?;
    encode_eof(&mut text)?;
    Ok(text)
}

#[derive(Debug)]
struct Collected(Snapshot);

impl prometheus_client::collector::Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        METRICS.iter().try_for_each(|metric| encode(metric, &self.0, &mut encoder))
    }
}

fn encode(metric: &Metric, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    // The encoder ends the help text with a stop of its own.
    let help = metric.help.trim_end_matches('.');
    let mut descriptor = encoder.encode_descriptor(metric.name, help, None, metric.kind.metric_type())?;
    match &metric.kind {
        Kind::Counter(read) => read(snapshot).iter().try_for_each(|(labels, count)| {
            labelled(&mut descriptor, labels, |sample| sample.encode_counter::<NoLabelSet, _, f64>(count, None))
        }),
        Kind::Gauge(read) => read(snapshot)
            .iter()
            .try_for_each(|(labels, value)| labelled(&mut descriptor, labels, |sample| sample.encode_gauge(value))),
        Kind::Duration(read) => read(snapshot).iter().try_for_each(|(labels, latency)| {
            let sum_seconds = latency.sum_ns as f64 / 1e9;
            let buckets = duration_buckets(latency);
            labelled(&mut descriptor, labels, |sample| {
                sample.encode_histogram::<NoLabelSet>(sum_seconds, latency.count, &buckets, None)
            })
        }),
    }
}

/// Writes a sample with its labels; without any, it has no braces.
fn labelled(
    descriptor: &mut MetricEncoder<'_>,
    labels: &Labels,
    write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { write(descriptor) } else { write(&mut descriptor.encode_family(labels)?) }
}

/// (Upper bound in seconds, count in the bucket), one an octave; the last has the rest.
fn duration_buckets(latency: &Latency) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets: Vec<_> = (10..=34)
        .map(|exponent| {
            let bound_ns = 1u64 << exponent;
            let count = latency.count_below(bound_ns) - below;
            below += count;
            (bound_ns as f64 / 1e9, count)
        })
        .collect();
    buckets.push((f64::INFINITY, latency.count.saturating_sub(below)));
    buckets
}

impl Kind {
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
            Self::Duration(_) => MetricType::Histogram,
        }
    }
}

/// docs/reference/metrics.md.
#[must_use]
pub fn reference() -> String {
    let mut page = "# Metrics\n\n<!-- Generated by `forebay docs`; edit crates/admin/src/metrics.rs instead. -->\n\n\
        `GET /metrics` of the admin endpoint, in OpenMetrics text.\n\n\
        | metric | type | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for Metric { name, labels, help, kind } in METRICS {
        let (suffix, kind) = match kind {
            Kind::Counter(_) => ("_total", "counter"),
            Kind::Gauge(_) => ("", "gauge"),
            Kind::Duration(_) => ("", "histogram"),
        };
        let _ = writeln!(page, "| `{name}{suffix}` | {kind} | {labels} | {help} |");
    }
    page
}

#[cfg(test)]
mod tests;
