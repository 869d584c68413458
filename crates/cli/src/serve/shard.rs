//! The shard's thread: builds the shard, runs it, publishes what it has seen.
//!
//! Order of attaching: back ends first (their sizes decide the volumes), then the cache disk (it checks that they are
//! the ones it knows), then the cache.

use super::backend::{self, Backends};
use super::control::Published;
use super::fronts::Fronts;
use super::host::ShardHost;
use super::logs::{self, Around, LogError, VolumeLog};
use super::mirror::{self, Looked, MIRROR_OPS_MAX};
use super::runtime::{Paces, StartError, StartOptions};
use crate::config::Settings;
use crate::profile::Given;
use forebay_core::{
    Cache, CacheConfig, FrameId, Limits as CacheLimits, Profile, SplitConfig, SplitKind, VolumeConfig, VolumeId,
};
use forebay_engine::attach::{AttachOptions, Attached, Identity, Notice, VolumeFacts, attach, random_side};
use forebay_engine::device::Device;
use forebay_engine::devices::absent::Absent;
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::paced::Paced;
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::shard::{Command, Shard, ShardDisk, ShardParts};
use forebay_engine::state::GenerationFile;
use forebay_nbd::{ConnectionLimits, Export, FrontConfig, InboxSender, NbdFront, inbox};
use forebay_s3::{Pool, StoreDevice, StoreReads};
use forebay_uring::{Arena, Limits, Wake, monotonic_ns};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The cache's name in the state directory.
const CACHE_NAME: &str = "cache";
/// How often counters are published, while there is something to count.
pub(super) const PUBLISH_NS: u64 = 100_000_000;
/// Commands that may wait for the shard.
const COMMANDS_MAX: usize = 64;
/// What the object space's name on the cache disk begins with. No volume is called so.
const SPACE_NAME: &str = "s3:";
/// Its pages: the most that a volume has, in whole steps of the ring that gives them out.
const SPACE_PAGES: u64 = (1 << 32) - 64;
/// Operations that the cache disk may have under way; the rest waits in the device.
const DISK_OPS_MAX: u32 = 512;

/// What the shard told when it was ready.
pub(super) struct Started {
    pub(super) exports: Vec<Export>,
    pub(super) inbox: InboxSender,
    pub(super) commands: SyncSender<Command>,
    pub(super) wake: Wake,
    pub(super) paces: Paces,
    /// The write-back logs, by volume.
    pub(super) logs: Vec<Option<VolumeLog>>,
    /// The way to the objects, if there is a gateway.
    pub(super) objects: Option<Objects>,
}

/// What a gateway needs of the shard.
pub(super) struct Objects {
    pub(super) pool: Pool,
    /// What the shard reads from the store, where hits are split.
    pub(super) reads: Option<StoreReads>,
    pub(super) space_bytes: u64,
}

type Running = Shard<RingReactor, Fronts>;

/// Builds the shard, tells how that went, and runs it until it is told to end.
pub(super) fn run(
    settings: &Settings,
    given: &[Given],
    options: StartOptions,
    published: &Mutex<Published>,
    tell: &Sender<Result<Started, StartError>>,
) {
    let (mut shard, started) = match build(settings, given, options) {
        Ok(built) => built,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    if tell.send(Ok(started)).is_err() {
        return;
    }
    let mut publish_ns = 0;
    loop {
        shard.turn();
        let now_ns = monotonic_ns();
        if now_ns >= publish_ns {
            publish_ns = now_ns + PUBLISH_NS;
            if publish(&mut shard, now_ns, published) {
                break;
            }
            // Recovery needs the memory bus for itself: 16 million records are to be known within seconds.
            if !shard.cache().gauges().recovering {
                shard.arena().populate();
            }
        }
    }
}

/// Copies what the shard has seen to where others read it. Whether the shard is to end.
fn publish(shard: &mut Running, now_ns: u64, published: &Mutex<Published>) -> bool {
    let counters = *shard.front().nbd.counters();
    let cache = shard.cache();
    let mut to = published.lock().unwrap_or_else(PoisonError::into_inner);
    to.stats.clone_from(cache.stats());
    to.gauges = cache.gauges();
    let volumes = 0..to.stats.volumes.len() as u16;
    to.splits.clear();
    to.splits.extend(volumes.map(|volume| cache.split_state(now_ns, VolumeId(volume))));
    to.at_ns = now_ns;
    to.nbd = counters;
    to.end
}

fn build(settings: &Settings, given: &[Given], options: StartOptions) -> Result<(Running, Started), StartError> {
    let budget = settings.budget();
    let page_bytes = settings.cache.page_bytes;
    let front = front_config(settings, &budget, page_bytes);
    let backend_ops: u32 = settings.volumes.iter().map(|volume| backend::ops_max(settings, volume)).sum();
    let volumes = settings.volumes.len() as u32 + u32::from(settings.s3.is_some());
    let mirror_ops = settings.cache.log_mirror.as_ref().map_or(0, |_| MIRROR_OPS_MAX);
    let ops_max = front.ops_max() + DISK_OPS_MAX + mirror_ops + backend_ops + 8;
    let mut reactor = RingReactor::new(Limits { ops_max, fds_max: settings.limits.clients_max + volumes * 20 + 64 })?;
    let wake = reactor.waker()?;
    let frames = (budget.transit_frames + budget.kept_frames) as u32;
    let metadata = settings.limits.cache.sweep_writes_max + volumes + 16;
    let log_frame = frames + metadata + volumes;
    let arena = Rc::new(Arena::new(log_frame + logs::frames(settings), page_bytes)?);
    let frames_id = reactor.add_arena(Rc::clone(&arena));

    let mut backends = backend::open_all(settings, &mut reactor, frames_id, frames + metadata)?;
    let mirror = mirror::look(settings, &backends.facts, options.force_format, wake.clone()).map_err(LogError::from)?;
    let identity = mirror.as_ref().and_then(Looked::identity);
    let space_bytes = SPACE_PAGES * u64::from(page_bytes);
    if settings.s3.is_some() {
        backends.facts.push(space_facts(space_bytes)?);
    }
    let attached = attach_disk(settings, options, &backends, identity)?;
    let mut config = cache_config(settings, given, &budget, &backends, attached.as_ref());
    if let Some(s3) = &settings.s3 {
        config.volumes.push(space_config(space_bytes, s3.split, &config, attached.as_ref()));
    }
    let cache = Cache::new(config.clone())?;
    assert!(Running::metadata_frames(&config) <= metadata, "frames for records were reserved before they were counted");

    let paces = Paces { disk: settings.cache.paced.map(backend::pace_of), backends: backends.paces.clone() };
    let names = settings.volumes.iter().map(|volume| volume.name.clone()).collect();
    let mut host = ShardHost::new(names, backends.specs.clone(), wake.clone());
    let around = Around { arena: &arena, frames_id, first_frame: log_frame, reactor: &mut reactor, wake: wake.clone() };
    let disk = match attached {
        Some(attached) => {
            Some(disk_and_logs(settings, attached, mirror, &paces, &mut backends.devices, &mut host, around)?)
        }
        None => {
            settings.volumes.iter().try_for_each(|volume| logs::nothing_is_lost(settings, volume))?;
            None
        }
    };
    let logs = host.logs().to_vec();
    let (inbox_sender, inbox) = inbox(settings.limits.clients_max, wake.clone());
    let nbd_front = NbdFront::new(reactor.port(front.ops_max()), frames_id, inbox, front)?;
    let (commands, receiver): (SyncSender<Command>, Receiver<Command>) = sync_channel(COMMANDS_MAX);
    let exports = exports(settings, &backends);
    let (mut gateway, mut objects) = (None, None);
    if let Some(s3) = &settings.s3 {
        let space = VolumeId(backends.devices.len() as u16);
        let (device, reads) = store_device(s3.split, &arena, &wake, space_bytes);
        backends.devices.push(device);
        let frames_max = budget.s3_frames as usize;
        let (pool, front) = Pool::new(Rc::clone(&arena), space, wake.clone(), page_bytes, frames_max);
        (gateway, objects) = (Some(front), Some(Objects { pool, reads, space_bytes }));
    }
    let parts = ShardParts {
        cache,
        arena,
        metadata_frame: FrameId(frames),
        reactor,
        front: Fronts { nbd: nbd_front, gateway },
        disk,
        backends: backends.devices,
        host: Box::new(host),
        commands: Some(receiver),
    };
    Ok((Shard::new(parts, &config), Started { exports, inbox: inbox_sender, commands, wake, paces, logs, objects }))
}

fn front_config(settings: &Settings, budget: &crate::budget::Budget, page_bytes: u32) -> FrontConfig {
    let (requests_max, clients_max) = (settings.limits.cache.requests_max, settings.limits.clients_max);
    FrontConfig {
        page_bytes,
        request_bytes_max: CacheConfig::request_bytes_max_of(page_bytes),
        clients_max,
        connection: ConnectionLimits::share(
            requests_max,
            (budget.transit_frames - budget.s3_frames) as u32,
            clients_max,
        ),
    }
}

fn attach_disk(
    settings: &Settings,
    options: StartOptions,
    backends: &Backends,
    identity: Option<Identity>,
) -> Result<Option<Attached>, StartError> {
    let Some(disk) = &settings.cache.disk else {
        forget_other_disks(settings)?;
        return Ok(None);
    };
    let attached = attach(&AttachOptions {
        path: &disk.path,
        bytes: (!disk.is_block_device || disk.bytes > 0).then_some(disk.bytes),
        sparse: disk.sparse,
        page_bytes: settings.cache.page_bytes,
        volumes: &backends.facts,
        state_directory: &settings.cache.state_dir,
        name: CACHE_NAME,
        cold: options.cold,
        force_format: options.force_format,
        intent_map: settings.cache.intent_map,
        identity,
    })?;
    for notice in &attached.notices {
        tracing::info!(disk = %disk.path.display(), "{}", describe(notice));
    }
    Ok(Some(attached))
}

/// A cache disk that was used before misses what is written from now on: it is not to be believed when it comes back.
fn forget_other_disks(settings: &Settings) -> Result<(), StartError> {
    let mut generation = GenerationFile::open(&settings.cache.state_dir, CACHE_NAME)?;
    if let Some(value) = generation.value() {
        generation.set(value + 1)?;
    }
    Ok(())
}

fn cache_config(
    settings: &Settings,
    given: &[Given],
    budget: &crate::budget::Budget,
    backends: &Backends,
    attached: Option<&Attached>,
) -> CacheConfig {
    let layout = attached.map(|attached| *attached.disk.layout());
    let volume = |(at, volume): (usize, &crate::config::VolumeSettings)| {
        let id = VolumeId(at as u16);
        let geometry = backends.devices[at].geometry();
        VolumeConfig {
            space: attached.map_or(at as u32 + 1, |attached| attached.disk.space(id)),
            bytes: geometry.bytes,
            mode: if geometry.read_only { forebay_core::WriteMode::ReadOnly } else { volume.mode },
            region_bytes: attached.map_or_else(
                || CacheConfig::region_bytes_for(geometry.bytes),
                |attached| attached.disk.region_bytes(id),
            ),
            in_flight_regions: attached.map_or_else(Vec::new, |attached| attached.in_flight_regions[at].clone()),
            range_bytes_max: geometry.range_bytes_max,
            fetches: true,
            split: volume.split,
            profile: given[at].profile.clone(),
        }
    };
    CacheConfig {
        page_bytes: settings.cache.page_bytes,
        slots: layout.map_or(0, |layout| layout.slot_count() as u32),
        table_records_per_sector: layout.map_or(1, |layout| layout.records_per_sector() as u32),
        recover: attached.is_some_and(|attached| attached.recover),
        scan_sectors_max: settings.cache.page_bytes / forebay_core::BLOCK_BYTES,
        frames: (budget.transit_frames + budget.kept_frames) as u32,
        transit_frames: budget.transit_frames as u32,
        memory_policy: settings.cache.memory_policy,
        disk_policy: settings.cache.disk_policy,
        admission: settings.admission,
        volumes: settings.volumes.iter().enumerate().map(volume).collect(),
        limits: CacheLimits {
            requests_max: settings.limits.cache.requests_max + budget.s3_frames as u32,
            ..settings.limits.cache
        },
        intent_map: settings.cache.intent_map,
        seed: monotonic_ns(),
    }
}

/// Objects are known to one run of the gateway, and addresses begin anew in the next. So it has another name each time: the pages of the one
/// before are nobody's.
fn space_facts(space_bytes: u64) -> Result<VolumeFacts, StartError> {
    Ok(VolumeFacts {
        name: format!("{SPACE_NAME}{:016x}", random_side()?),
        backend: SPACE_NAME.to_owned(),
        identity: 0,
        bytes: space_bytes,
        mtime_ns: 0,
        log_bytes: 0,
    })
}

/// What is behind the object space: the store, where hits are split over it and the cache disk. Else nothing: what the cache lacks is for the
/// gateway to bring, in its caller's name.
fn store_device(
    split: SplitConfig,
    arena: &Rc<Arena>,
    wake: &Wake,
    space_bytes: u64,
) -> (Box<dyn Device>, Option<StoreReads>) {
    if split.kind == SplitKind::Off {
        return (Box::new(Absent::new(space_bytes)), None);
    }
    let (device, reads) = StoreDevice::new(Rc::clone(arena), wake.clone(), space_bytes);
    (Box::new(device), Some(reads))
}

fn space_config(
    space_bytes: u64,
    split: SplitConfig,
    config: &CacheConfig,
    attached: Option<&Attached>,
) -> VolumeConfig {
    let id = VolumeId(config.volumes.len() as u16);
    VolumeConfig {
        space: attached.map_or(u32::from(id.0) + 1, |attached| attached.disk.space(id)),
        bytes: space_bytes,
        mode: forebay_core::WriteMode::ReadOnly,
        region_bytes: attached
            .map_or_else(|| CacheConfig::region_bytes_for(space_bytes), |attached| attached.disk.region_bytes(id)),
        in_flight_regions: Vec::new(),
        range_bytes_max: u64::MAX,
        fetches: false,
        split,
        profile: Profile::default(),
    }
}

/// The cache disk as the cache sees it; the logs on it go before their back ends.
fn disk_and_logs(
    settings: &Settings,
    attached: Attached,
    mirror: Option<Looked>,
    paces: &Paces,
    backends: &mut Vec<Box<dyn Device>>,
    host: &mut ShardHost,
    around: Around<'_>,
) -> Result<ShardDisk, StartError> {
    let Attached { file, path, disk: mut format, generation, .. } = attached;
    let port = around.reactor.port(DISK_OPS_MAX);
    let device = FileDevice::from_open(port, around.frames_id, &path, file, false)?;
    let device: Box<dyn Device> = match &paces.disk {
        Some(pace) => Box::new(Paced::new(device, Arc::clone(pace))),
        None => Box::new(device),
    };
    let (device, logs) = logs::open_all(settings, &mut format, device, mirror, backends, around)?;
    host.attached(generation, logs);
    Ok(ShardDisk { device, format })
}

fn exports(settings: &Settings, backends: &Backends) -> Vec<Export> {
    let volumes = settings.volumes.iter().zip(&backends.devices).enumerate();
    volumes
        .map(|(at, (volume, device))| {
            let geometry = device.geometry();
            let read_only = geometry.read_only || volume.mode == forebay_core::WriteMode::ReadOnly;
            Export::new(&volume.name, "", geometry.bytes, read_only, 0, VolumeId(at as u16))
        })
        .collect()
}

/// Lets another thread read what the shard published.
pub(super) fn read<R>(published: &Arc<Mutex<Published>>, with: impl FnOnce(&mut Published) -> R) -> R {
    with(&mut published.lock().unwrap_or_else(PoisonError::into_inner))
}

fn describe(notice: &Notice) -> String {
    match notice {
        Notice::Formatted => "formatted the cache disk".to_owned(),
        Notice::OlderVersion(version) => format!("dropped what was cached: the disk had format {version}"),
        Notice::LayoutChanged { what, was, is } => format!("dropped what was cached: {what} was {was} and is {is}"),
        Notice::LogsChanged => "dropped what was cached: the volumes' write-back logs are others".to_owned(),
        Notice::GenerationPassed => {
            "dropped what was cached: writes may have gone by the disk while it was out of use".to_owned()
        }
        Notice::GenerationUnknown => "dropped what was cached: the generation file is missing or unreadable".to_owned(),
        Notice::ColdAsked => "dropped what was cached, as asked".to_owned(),
        Notice::VolumeCold { volume, why } => format!("volume \"{volume}\" starts empty: {why}"),
        Notice::Unclean { volume, regions } => {
            format!("volume \"{volume}\" was not stopped in order: pages of {regions} regions in flight are dropped")
        }
    }
}
