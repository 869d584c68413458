//! The cache as its operator sees it: what the shard published, and orders to it.

use super::logs::VolumeLog;
use super::objects::ObjectsControl;
use super::shard::{PUBLISH_NS, read};
use crate::config::Settings;
use crate::profile::{Given, ProfileFile};
use forebay_admin::{
    Control, ControlError, Devices, Disk, ErrorKind, ExplainedObject, ForgottenObjects, FoundObjects, Latency,
    LostRange, Measure, Nbd, PathEstimate, PathRate, ProfileNote, Queues, Recovery, Snapshot, Split, State, Tier,
    Volume, WriteLog,
};
use forebay_core::{
    Gauges, Histogram, ReplyError, SplitConfig, SplitKind, SplitMode, SplitState, Stats, VolumeId, VolumeStats,
    WriteMode,
};
use forebay_engine::devices::logged::{Health, LogSnapshot, LossSnapshot, LostExtent};
use forebay_engine::devices::mirrored::{MirrorHealth, MirrorStatus};
use forebay_engine::shard::measure::{MeasureError, MeasureOrder};
use forebay_engine::shard::{Command, CommandOrder};
use forebay_nbd::{Clients, CloseReason, Counters, ERRNOS, Export, Listener, RequestKind};
use forebay_policy::split::Path;
use forebay_uring::{Wake, monotonic_ns};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long an order may take, beyond the back end's own deadline.
const ORDER_MAX: Duration = Duration::from_secs(60);

/// How often a log that comes to rest is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// The names of [`ERRNOS`].
const ERRNO_NAMES: [&str; ERRNOS.len()] =
    ["EPERM", "EIO", "ENOMEM", "EINVAL", "ENOSPC", "EOVERFLOW", "ENOTSUP", "ESHUTDOWN"];

/// What the shard publishes, and one word to it.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) stats: Stats,
    pub(super) gauges: Gauges,
    pub(super) nbd: Counters,
    /// By volume; `None` where nothing is split.
    pub(super) splits: Vec<Option<SplitState>>,
    /// When that was.
    pub(super) at_ns: u64,
    /// The shard is to end.
    pub(super) end: bool,
}

/// What is known of the volumes' devices, and the profiles that they have.
pub(super) struct Profiles {
    pub(super) devices: Vec<Devices>,
    pub(super) notes: Mutex<Vec<Option<ProfileNote>>>,
}

struct VolumeName {
    name: String,
    mode: String,
    backend: String,
    bytes: u64,
    /// See [`SplitConfig`].
    split_limit: u64,
}

/// See the module.
pub(super) struct ShardControl {
    started: Instant,
    page_bytes: u64,
    has_disk: bool,
    volumes: Vec<VolumeName>,
    profiles: Profiles,
    /// The write-back logs, by volume.
    logs: Vec<Option<VolumeLog>>,
    published: Arc<Mutex<Published>>,
    commands: SyncSender<Command>,
    wake: Wake,
    draining: AtomicBool,
    clients: OnceLock<Clients>,
    /// Of the S3 gateway.
    pub(super) objects: ObjectsControl,
}

impl ShardControl {
    pub(super) fn new(
        settings: &Settings,
        exports: &[Export],
        profiles: Profiles,
        logs: Vec<Option<VolumeLog>>,
        published: Arc<Mutex<Published>>,
        (commands, wake): (SyncSender<Command>, Wake),
    ) -> Self {
        let volumes = settings.volumes.iter().zip(exports).map(|(volume, export)| VolumeName {
            name: volume.name.clone(),
            mode: volume.mode.name().to_owned(),
            backend: volume.backend.to_string(),
            bytes: export.info.size_bytes,
            split_limit: volume.split.backend_bytes_per_second_max,
        });
        Self {
            started: Instant::now(),
            page_bytes: u64::from(settings.cache.page_bytes),
            has_disk: settings.cache.disk.is_some(),
            volumes: volumes.collect(),
            profiles,
            logs,
            published,
            commands,
            wake,
            draining: AtomicBool::new(false),
            clients: OnceLock::new(),
            objects: ObjectsControl::default(),
        }
    }

    /// Clients can come now.
    pub(super) fn listens(&self, listener: &Listener, clients: Clients) {
        let endpoints: Vec<String> = listener.endpoints().iter().map(ToString::to_string).collect();
        tracing::info!(endpoints = endpoints.join(" "), "listening");
        let _ = self.clients.set(clients);
    }

    /// Gives the shard an order and waits for its answer.
    pub(super) fn order(
        &self,
        order: CommandOrder,
        wait_max: Duration,
    ) -> Result<Result<(), ReplyError>, RecvTimeoutError> {
        if matches!(order, CommandOrder::Drain) {
            self.draining.store(true, Ordering::Relaxed);
        }
        self.send(order)?.recv_timeout(wait_max)
    }

    fn send(&self, order: CommandOrder) -> Result<Receiver<Result<(), ReplyError>>, RecvTimeoutError> {
        let (answer, answered) = channel();
        self.commands.try_send(Command { order, answer }).map_err(|_| RecvTimeoutError::Disconnected)?;
        self.wake.wake();
        Ok(answered)
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Option<ProfileNote>>> {
        self.profiles.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the write-back logs come to rest, and waits for it a while.
    pub(super) fn rest_logs(&self, wait_max: Duration) {
        let logs = || self.volumes.iter().zip(&self.logs).filter_map(|(volume, log)| Some((volume, log.as_ref()?)));
        logs().for_each(|(_, log)| log.rest());
        self.wake.wake();
        let begin = Instant::now();
        while begin.elapsed() < wait_max && !logs().all(|(_, log)| log.status.get().is_settled) {
            std::thread::sleep(LOOK_PERIOD);
        }
        for (volume, log) in logs().filter(|(_, log)| !log.status.get().has_followed) {
            tracing::warn!(
                volume = volume.name,
                dirty_bytes = log.status.get().dirty_bytes,
                "the back end lacks what the write-back log has; it follows when the volume is served again"
            );
        }
    }

    /// The shard ends.
    pub(super) fn end(&self) {
        read(&self.published, |published| published.end = true);
        self.wake.wake();
    }

    fn volume(&self, name: &str) -> Result<VolumeId, ControlError> {
        let at = self.volumes.iter().position(|volume| volume.name == name);
        at.map(|at| VolumeId(at as u16)).ok_or_else(|| ControlError::no_volume(name))
    }

    fn obeyed(&self, name: &str, order: CommandOrder) -> Result<(), ControlError> {
        let error = |kind, cause: &str, next: &str| Err(about(name, kind, cause, next));
        match self.order(order, ORDER_MAX) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ReplyError::Invalid)) => error(
                ErrorKind::Invalid,
                "the range is not inside the volume or not of whole sectors",
                "`forebay status` shows its size",
            ),
            Ok(Err(ReplyError::Busy)) => error(ErrorKind::Temporary, "too many requests are in flight", "try again"),
            Ok(Err(ReplyError::ShuttingDown)) => {
                error(ErrorKind::Temporary, "the cache is stopping", "try again when it runs")
            }
            Ok(Err(_)) => error(ErrorKind::Failed, "the back end failed", "look at the log, and at the back end"),
            Err(RecvTimeoutError::Timeout) => error(ErrorKind::Temporary, "it was not answered in time", "try again"),
            Err(RecvTimeoutError::Disconnected) => Err(silent(name)),
        }
    }
}

impl Control for ShardControl {
    fn state(&self) -> State {
        if Arc::strong_count(&self.published) < 2 && !self.draining.load(Ordering::Relaxed) {
            // The shard's thread has dropped its half.
            return State::Failed;
        }
        if self.draining.load(Ordering::Relaxed) {
            return State::Draining;
        }
        if self.clients.get().is_none() {
            return State::Starting;
        }
        if read(&self.published, |published| published.gauges.recovering) { State::Recovering } else { State::Ready }
    }

    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let state = self.state();
        let (stats, gauges, nbd, mut splits, at_ns) =
            read(&self.published, |p| (p.stats.clone(), p.gauges, p.nbd, p.splits.clone(), p.at_ns));
        splits.resize(stats.volumes.len(), None);
        // Behind the volumes is the object space.
        let space = self.volumes.len();
        let split_of_space = splits.get(space).copied().flatten().map(split_of);
        // A shard with nothing to do publishes nothing: what was counted then is still so.
        let age_ns = monotonic_ns().saturating_sub(at_ns).min(PUBLISH_NS);
        let uptime_seconds = self.started.elapsed().as_secs_f64();
        let volumes = self.volumes.iter().zip(&stats.volumes).zip(splits);
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            uptime_seconds,
            counted_seconds: (uptime_seconds - age_ns as f64 / 1e9).max(0.0),
            page_bytes: self.page_bytes,
            memory: Tier { pages: gauges.memory_pages.into(), pages_max: gauges.memory_pages_max.into() },
            disk: self.has_disk.then(|| disk(&stats, &gauges)),
            recovery: Recovery {
                running: gauges.recovering,
                scanned_slots: gauges.scanned_slots.into(),
                slots: gauges.disk_pages_max.into(),
            },
            queues: Queues {
                requests: gauges.requests.into(),
                requests_waiting: gauges.requests_waiting.into(),
                operations: gauges.orders.into(),
                stores: gauges.stores.into(),
            },
            intent_regions: gauges.intent_regions.into(),
            volumes: volumes
                .zip(self.profiles.devices.iter().zip(self.notes().iter()).zip(&self.logs))
                .map(|(((name, stats), split), ((devices, profile), log))| Volume {
                    devices: devices.clone(),
                    profile: profile.clone(),
                    log: log.as_ref().map(|log| log_of(&log.status.get(), &log.loss.get(), log.mirror.as_ref())),
                    mode: log.as_ref().map_or_else(|| name.mode.clone(), |log| log.mode().name().to_owned()),
                    ..volume(name, stats, split)
                })
                .collect(),
            nbd: nbd_of(&nbd),
            gateway: self.objects.gateway(stats.volumes.get(space), split_of_space),
        })
    }

    fn flush(&self, volume: &str) -> Result<(), ControlError> {
        let id = self.volume(volume)?;
        self.obeyed(volume, CommandOrder::Flush { volume: id })
    }

    fn evict(&self, volume: &str, offset: u64, length: Option<u64>) -> Result<(), ControlError> {
        let id = self.volume(volume)?;
        let length = length.unwrap_or_else(|| self.volumes[id.index()].bytes.saturating_sub(offset));
        self.obeyed(volume, CommandOrder::Evict { volume: id, offset, length })
    }

    fn split(&self, volume: &str, policy: &str, disk_percent: Option<u64>) -> Result<(), ControlError> {
        let id = self.volume(volume)?;
        let invalid = |cause: String, next: &str| {
            Err(ControlError::new(ErrorKind::Invalid, format!("policy \"{policy}\""), cause, next))
        };
        let permil = disk_percent.map_or(1000, |percent| percent.min(100) as u16 * 10);
        let Some(kind) = SplitKind::from_name(policy, permil) else {
            let names = SplitKind::NAMED.map(|(name, _)| name).join(", ");
            return invalid("there is none of that name".to_owned(), &format!("known are {names}"));
        };
        if matches!(kind, SplitKind::Static { .. }) != disk_percent.is_some() {
            return invalid("a static split has a share, and only that".to_owned(), "give disk_percent with static");
        }
        let backend_bytes_per_second_max = self.volumes[id.index()].split_limit;
        let split = SplitConfig { kind, backend_bytes_per_second_max };
        self.obeyed(volume, CommandOrder::SetSplit { volume: id, split })
    }

    fn mode(&self, volume: &str, mode: &str) -> Result<(), ControlError> {
        let id = self.volume(volume)?;
        let Some(mode) = [WriteMode::Back, WriteMode::Through].into_iter().find(|known| known.name() == mode) else {
            let cause = "a volume is switched between these two only";
            return Err(ControlError::new(
                ErrorKind::Invalid,
                format!("mode \"{mode}\""),
                cause,
                "use back or through",
            ));
        };
        let Some(log) = &self.logs[id.index()] else {
            let (cause, next) = ("it has no write-back log", "give it one in the configuration: log = \"1GiB\"");
            return Err(about(volume, ErrorKind::Invalid, cause, next));
        };
        log.set_mode(mode);
        self.wake.wake();
        tracing::info!(volume, mode = mode.name(), "the volume's mode is changed until the cache stops");
        Ok(())
    }

    fn accept_loss(&self, volume: &str) -> Result<(), ControlError> {
        let id = self.volume(volume)?;
        if let Some(log) = &self.logs[id.index()] {
            tracing::warn!(volume, lost_bytes = log.loss.get().lost_bytes, "what is lost of the volume is accepted");
            log.loss.accept();
            self.wake.wake();
        }
        Ok(())
    }

    fn measure(&self, volume: &str, measure: Measure) -> Result<PathRate, ControlError> {
        let id = self.volume(volume)?;
        let Measure { is_backend, block_bytes, in_flight, milliseconds } = measure;
        let path = if is_backend { Path::BACKEND } else { Path::DISK };
        let order = MeasureOrder { volume: id, path, block_bytes, in_flight, for_ns: milliseconds * 1_000_000 };
        let (told, tells) = channel();
        self.send(CommandOrder::Measure { order, told }).map_err(|_| silent(volume))?;
        match tells.recv_timeout(ORDER_MAX) {
            Ok(Ok(measured)) => {
                let bytes = measured.reads * u64::from(block_bytes);
                let bytes_per_second = bytes as f64 * 1e9 / measured.elapsed_ns.max(1) as f64;
                Ok(PathRate { bytes_per_second, in_flight: measured.in_flight, reads: measured.reads })
            }
            Ok(Err(error)) => Err(not_measured(volume, error)),
            Err(RecvTimeoutError::Timeout) => {
                Err(about(volume, ErrorKind::Temporary, "it was not measured in time", "try again"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(silent(volume)),
        }
    }

    fn learnt(&self, volume: &str) -> Result<serde_json::Value, ControlError> {
        let id = self.volume(volume)?;
        let (told, tells) = channel();
        self.send(CommandOrder::Profile { volume: id, told }).map_err(|_| silent(volume))?;
        let profile = tells.recv_timeout(ORDER_MAX).map_err(|_| silent(volume))?;
        let file = ProfileFile::new(volume, &self.profiles.devices[id.index()], 0, None, &profile);
        serde_json::to_value(file)
            .map_err(|error| about(volume, ErrorKind::Failed, error.to_string(), "report this as a bug"))
    }

    fn profile(&self, volume: &str, file: &str) -> Result<ProfileNote, ControlError> {
        let id = self.volume(volume)?;
        let given = Given::from(std::path::Path::new(file), &self.profiles.devices[id.index()]);
        if let Some(why) = given.refused() {
            let (cause, next) = why.rsplit_once("; ").unwrap_or((why, ""));
            return Err(ControlError::new(ErrorKind::Invalid, "the profile", cause, next));
        }
        let note = given.note.clone().unwrap_or_default();
        self.obeyed(volume, CommandOrder::SetProfile { volume: id, profile: Box::new(given.profile) })?;
        self.notes()[id.index()] = Some(note.clone());
        Ok(note)
    }

    fn find_objects(&self, uri: &str) -> Result<FoundObjects, ControlError> {
        self.objects.find(uri)
    }

    fn forget_objects(&self, uri: &str) -> Result<ForgottenObjects, ControlError> {
        self.objects.forget(uri)
    }

    fn explain_object(&self, uri: &str) -> Result<ExplainedObject, ControlError> {
        self.objects.explain(uri)
    }
}

fn about(volume: &str, kind: ErrorKind, cause: impl Into<String>, next: &str) -> ControlError {
    ControlError::new(kind, format!("volume \"{volume}\""), cause, next)
}

fn silent(volume: &str) -> ControlError {
    about(volume, ErrorKind::Failed, "the shard does not answer", "restart the cache")
}

fn not_measured(volume: &str, error: MeasureError) -> ControlError {
    let (kind, next) = match error {
        MeasureError::Invalid => (ErrorKind::Invalid, "correct the load"),
        MeasureError::NoDisk => (ErrorKind::Failed, "configure one, or look at the log for why it was given up"),
        MeasureError::TooLittleCached { .. } => (ErrorKind::Failed, "read more of the volume first, in long requests"),
        MeasureError::Busy => (ErrorKind::Temporary, "try again when it is done"),
        MeasureError::NoMemory => (ErrorKind::Temporary, "try again with fewer requests of clients, or more memory"),
        MeasureError::Failed(_) => (ErrorKind::Failed, "look at the log, and at the back end"),
        MeasureError::TooSlow => {
            (ErrorKind::Failed, "look at the path; nothing is measured of one that hardly answers")
        }
    };
    about(volume, kind, error.to_string(), next)
}

fn log_of(log: &LogSnapshot, loss: &LossSnapshot, mirror: Option<&MirrorStatus>) -> WriteLog {
    let counts = &log.counts;
    WriteLog {
        bytes: log.log_bytes,
        used_bytes: log.used_bytes,
        dirty_bytes: log.dirty_bytes,
        records: log.records,
        records_max: log.records_max,
        appended_record: log.appended_record,
        followed_record: log.followed_record,
        epochs: log.epochs_open,
        lag_ns: log.lag_ns,
        is_lagging: log.is_lagging,
        throttled_ns: counts.throttled_ns,
        groups: counts.groups,
        group_bytes: counts.group_bytes,
        payload_bytes: counts.payload_bytes,
        flushes: counts.log_flushes,
        runs: counts.runs,
        run_bytes: counts.run_bytes,
        failed_runs: counts.failed_runs,
        backend_flushes: counts.backend_flushes,
        failed_backend_flushes: counts.failed_flushes,
        health: health_name(loss.health).to_owned(),
        mirror: mirror.map_or("", |mirror| mirror_name(mirror.get())).to_owned(),
        bad_blocks: loss.bad_blocks,
        lost_bytes: loss.lost_bytes,
        lost: loss.extents.iter().map(lost_range).collect(),
    }
}

fn health_name(health: Health) -> &'static str {
    match health {
        Health::Whole => "whole",
        Health::Draining => "draining",
        Health::Losing => "losing",
        Health::GivingUp => "giving-up",
        Health::Through => "through",
    }
}

fn mirror_name(health: MirrorHealth) -> &'static str {
    match health {
        MirrorHealth::Whole => "whole",
        MirrorHealth::DiskOnly => "disk-only",
        MirrorHealth::MirrorOnly => "mirror-only",
    }
}

/// Sectors as bytes.
pub(crate) fn lost_range(extent: &LostExtent) -> LostRange {
    let LostExtent { sectors, epoch } = extent;
    LostRange { offset: sectors.start * 512, length: (sectors.end - sectors.start) * 512, epoch: *epoch }
}

fn latency(histogram: &Histogram) -> Latency {
    Latency::new(histogram.count(), histogram.sum_ns(), histogram.buckets())
}

fn disk(stats: &Stats, gauges: &Gauges) -> Disk {
    Disk {
        tier: Tier { pages: gauges.disk_pages.into(), pages_max: gauges.disk_pages_max.into() },
        attached: gauges.disk_attached,
        fail_opens: stats.fail_opens,
        errors: stats.disk_errors,
        bad_blocks: stats.bad_blocks,
        stores_skipped: stats.stores_skipped,
        slot_write_bytes: stats.slot_write_bytes,
        table_sector_writes: stats.table_sector_writes,
        intent_writes: stats.intent_writes,
        sweeps: stats.sweeps,
        dirty_sectors: gauges.dirty_sectors.into(),
        read_latency: latency(&stats.slot_read_latency),
    }
}

fn split_of(state: SplitState) -> Split {
    let SplitState { config, report, .. } = state;
    let path = |path: Path| PathEstimate {
        bytes_per_second: report.bytes_per_second[path.index()] as u64,
        latency_ns: report.latency_ns[path.index()],
        in_flight: state.in_flight[path.index()].into(),
        window: report.window[path.index()].into(),
    };
    Split {
        policy: config.kind.name().to_owned(),
        mode: match report.mode {
            SplitMode::NoTable => "no-table",
            SplitMode::Warmup => "warmup",
            SplitMode::Stable => "stable",
            SplitMode::Congestion => "congestion",
        }
        .to_owned(),
        disk_share_permil: (report.disk_share * 1000.0).round() as u64,
        severity_permil: report.severity_permil.into(),
        backend_bytes_per_second_max: config.backend_bytes_per_second_max,
        over_budget: state.over_budget,
        suspended: state.is_suspended,
        disk: path(Path::DISK),
        backend: path(Path::BACKEND),
    }
}

fn volume(name: &VolumeName, stats: &VolumeStats, split: Option<SplitState>) -> Volume {
    Volume {
        split: split.map(split_of),
        devices: Devices::default(),
        profile: None,
        log: None,
        name: name.name.clone(),
        mode: name.mode.clone(),
        backend: name.backend.clone(),
        bytes: name.bytes,
        reads: stats.reads,
        writes: stats.writes,
        flushes: stats.flushes,
        trims: stats.trims,
        read_bytes: stats.read_bytes,
        write_bytes: stats.write_bytes,
        memory_hits: stats.memory_hits,
        disk_hits: stats.disk_hits,
        backend_hits: stats.backend_hits,
        split_failovers: stats.split_failovers,
        split_mismatches: stats.split_mismatches,
        misses: stats.misses,
        recovering_misses: stats.recovering,
        memory_read_bytes: stats.memory_read_bytes,
        disk_read_bytes: stats.disk_read_bytes,
        backend_read_bytes: stats.backend_read_bytes,
        backend_write_bytes: stats.backend_write_bytes,
        admitted_bytes: stats.admitted_bytes,
        read_errors: stats.read_errors,
        write_errors: stats.write_errors,
        flush_errors: stats.flush_errors,
        hedged_reads: stats.hedged,
        read_latency: latency(&stats.read_latency),
        write_latency: latency(&stats.write_latency),
        flush_latency: latency(&stats.flush_latency),
    }
}

fn nbd_of(counters: &Counters) -> Nbd {
    fn by<'a>(names: impl Iterator<Item = &'a str>, counts: &[u64]) -> BTreeMap<String, u64> {
        names.zip(counts).map(|(name, &count)| (name.to_owned(), count)).collect()
    }
    Nbd {
        connections_open: counters.connections_open,
        connections: counters.connections,
        connections_refused: counters.connections_refused,
        handshakes_failed: BTreeMap::new(),
        closed: by(CloseReason::ALL.iter().map(|reason| reason.name()), &counters.closed),
        requests: by(RequestKind::ALL.iter().map(|kind| kind.name()), &counters.requests),
        errors: by(ERRNO_NAMES.into_iter(), &counters.errors),
        received_bytes: counters.payload_bytes_in,
        sent_bytes: counters.payload_bytes_out,
        sends_blocked: counters.sends_blocked,
    }
}
