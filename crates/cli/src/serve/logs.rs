//! Opening the volumes' write-back logs: each goes between the cache and its back end.
//!
//! The logs lie on the cache disk, behind the slots. Cache and logs share one device, so that they share its queue. What
//! a log has that its back end lacks is found again here, before anything is served.

use super::mirror::{self, Looked, Mirror, MirrorError};
use crate::config::{Settings, VolumeSettings};
use forebay_core::log::logged::LogPolicy;
use forebay_core::{FrameId, IoError, VolumeId, WriteMode};
use forebay_engine::attach::CacheDisk;
use forebay_engine::device::Device;
use forebay_engine::devices::logged::{
    LogControl, LogOpenError, LogPlace, LogStatus, LoggedDevice, LoggedParts, LossStatus,
};
use forebay_engine::devices::mirrored::{MirrorStatus, Mirrored};
use forebay_engine::devices::shared::Shared;
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::state::{LogIdentity, RegionMapError, RegionMapFile};
use forebay_uring::{Arena, ArenaId, Wake};
use std::rc::Rc;

/// A log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be opened.
    #[error("volume \"{volume}\": {source}")]
    Open {
        /// Whose.
        volume: String,
        /// Why.
        source: LogOpenError,
    },
    /// What its log may have is not known.
    #[error(transparent)]
    Regions(#[from] RegionMapError),
    /// It had a log, and has none now.
    #[error(
        "volume \"{volume}\" had a write-back log, which may hold what the back end lacks: serve it with that log and cache disk as before (`forebay flush {volume} --to backend` empties it), or give that up with `forebay fsck --accept-loss {volume}`"
    )]
    LeftBehind {
        /// Which.
        volume: String,
    },
    /// Their mirror cannot be used.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The cache disk does not take the word that it holds logs.
    #[error("the cache disk cannot be written ({error:?}): check the device")]
    Disk {
        /// How.
        error: IoError,
    },
}

/// Frames of a shard's logs.
pub(super) fn frames(settings: &Settings) -> u32 {
    let logs = settings.volumes.iter().filter(|volume| volume.log_bytes > 0).count() as u32;
    logs * LoggedDevice::frames(settings.cache.page_bytes)
}

/// The weight that a volume has of which nothing is said.
const WEIGHT_OF_OBJECTS: u32 = 100;

/// What opening logs needs.
pub(super) struct Around<'a> {
    /// The shard's arena.
    pub(super) arena: &'a Rc<Arena>,
    /// Its name in the ring.
    pub(super) frames_id: ArenaId,
    /// The first of the frames that [`frames`] counts.
    pub(super) first_frame: u32,
    /// The shard's reactor.
    pub(super) reactor: &'a mut RingReactor,
    /// Wakes it.
    pub(super) wake: Wake,
}

impl Around<'_> {
    fn of_mirror(&mut self, settings: &Settings) -> mirror::Around<'_> {
        mirror::Around {
            arena: self.arena,
            frames_id: self.frames_id,
            frames: self.first_frame..self.first_frame + frames(settings),
            reactor: &mut *self.reactor,
        }
    }
}

/// A volume's log, as seen from other threads.
#[derive(Clone, Debug)]
pub(super) struct VolumeLog {
    pub(super) status: LogStatus,
    pub(super) loss: LossStatus,
    /// How its mirror is, if one is configured.
    pub(super) mirror: Option<MirrorStatus>,
    control: LogControl,
    /// Its policy in write-back.
    back: LogPolicy,
}

impl VolumeLog {
    /// Write-back, or as if there were no log.
    pub(super) fn set_mode(&self, mode: WriteMode) {
        self.control.set(if mode == WriteMode::Back { self.back } else { LogPolicy::THROUGH });
    }

    /// Nothing more is expected of clients.
    pub(super) fn rest(&self) {
        self.control.rest();
    }

    /// The mode that it is in, or on its way to.
    pub(super) fn mode(&self) -> WriteMode {
        if self.control.get() == LogPolicy::THROUGH { WriteMode::Through } else { WriteMode::Back }
    }

    fn tell_what_was_found(&self, volume: &str) {
        let lost_bytes = self.loss.get().lost_bytes;
        if lost_bytes > 0 {
            tracing::error!(
                volume,
                lost_bytes,
                "a part of the volume is lost: reading it fails until it is written, or the loss accepted (`forebay fsck --accept-loss`)"
            );
        }
        let found = self.status.get();
        if found.records > 0 {
            tracing::info!(
                volume,
                dirty_bytes = found.dirty_bytes,
                records = found.records,
                "the write-back log has what the back end lacks; the back end follows"
            );
        }
    }
}

/// A volume without a log must not have left one behind.
pub(super) fn nothing_is_lost(settings: &Settings, volume: &VolumeSettings) -> Result<(), LogError> {
    match RegionMapFile::found(&settings.cache.state_dir, &volume.name)? {
        Some(image) if !(image.dirty.is_empty() && image.lost.is_empty()) => {
            Err(LogError::LeftBehind { volume: volume.name.clone() })
        }
        _ => Ok(()),
    }
}

/// The cache disk's device for the cache, and the logs by volume.
pub(super) type Opened = (Box<dyn Device>, Vec<Option<VolumeLog>>);

/// Puts the logs before their back ends. Returns the cache disk's device for the cache, and the logs' states, by volume.
/// From then on the disk says that it holds them.
///
/// # Errors
/// The first log that cannot be used, or that the disk or its mirror cannot be written.
pub(super) fn open_all(
    settings: &Settings,
    disk: &mut CacheDisk,
    device: Box<dyn Device>,
    mirror: Option<Looked>,
    backends: &mut Vec<Box<dyn Device>>,
    mut around: Around<'_>,
) -> Result<Opened, LogError> {
    let places: Vec<Option<LogPlace>> = (0..backends.len()).map(|at| place(disk, VolumeId(at as u16))).collect();
    let has_logs = places.iter().any(Option::is_some);
    let mut weights: Vec<u32> = settings.volumes.iter().map(|volume| volume.weight).collect();
    // The object space is a volume too.
    weights.extend(settings.s3.as_ref().map(|_| WEIGHT_OF_OBJECTS));
    let (mut cache, mut handles) = (device, Vec::new());
    if has_logs || weights.windows(2).any(|two| two[0] != two[1]) {
        let (of_cache, of_volumes) = Shared::split(cache, &weights);
        (cache, handles) = (Box::new(of_cache), of_volumes);
    }
    let mirror = mirror.map(|mirror| mirror.settle(settings, disk, &mut around.of_mirror(settings)));
    let mut mirror = mirror.transpose()?.flatten();
    let logged = settings.volumes.iter().zip(&places).zip(handles);
    let logged = logged.filter_map(|((volume, place), handle)| Some((volume, (*place)?, handle)));
    let disks = match &mut mirror {
        Some(mirror) => over_mirror(settings, logged, mirror, disk, &mut *cache, &mut around)?,
        None => logged.map(|(_, _, handle)| Box::new(handle) as Box<dyn Device>).collect(),
    };
    let mut disks = disks.into_iter();
    let mirror_status = match &mirror {
        Some(mirror) => Some(mirror.status()),
        None => settings.cache.log_mirror.as_ref().map(|_| MirrorStatus::disk_only()),
    };
    let mut frame = around.first_frame;
    let (mut devices, mut logs) = (Vec::new(), Vec::new());
    for ((backend, place), volume) in backends.drain(..).zip(places).zip(&settings.volumes) {
        let Some(place) = place else {
            nothing_is_lost(settings, volume)?;
            devices.push(backend);
            logs.push(None);
            continue;
        };
        let volume_sectors = backend.geometry().bytes / 512;
        let identity = LogIdentity { cache_id: disk.superblock().cache_id, space: place.space, volume_sectors };
        let state_dir = &settings.cache.state_dir;
        let regions = RegionMapFile::open(state_dir, &volume.name, identity, Some(around.wake.clone()))?;
        let parts = LoggedParts {
            disk: disks.next().expect("where there are logs the disk is shared"),
            place: if mirror.is_some() { LogPlace { offset: 0, ..place } } else { place },
            backend,
            arena: Rc::clone(around.arena),
            first_frame: frame,
            regions: Some(Box::new(regions)),
        };
        let device = LoggedDevice::open(parts, around.reactor);
        let device = device.map_err(|source| LogError::Open { volume: volume.name.clone(), source })?;
        frame += LoggedDevice::frames(around.arena.frame_bytes());
        let log = VolumeLog {
            status: device.status(),
            loss: device.loss(),
            mirror: mirror_status.clone(),
            control: device.control(),
            back: volume.log_policy,
        };
        log.set_mode(volume.mode);
        log.tell_what_was_found(&volume.name);
        logs.push(Some(log));
        devices.push(Box::new(device));
    }
    *backends = devices;
    if let Some(mirror) = &mirror {
        mirror.opened();
    }
    if has_logs {
        let scratch = (&**around.arena, FrameId(around.first_frame));
        disk.logs_are_open(&mut *cache, around.reactor, scratch).map_err(|error| LogError::Disk { error })?;
    }
    Ok((cache, logs))
}

/// Each log's area on the cache disk and on the mirror, both filled.
///
/// # Errors
/// See [`Mirror::fill`].
fn over_mirror<'a>(
    settings: &Settings,
    logged: impl Iterator<Item = (&'a VolumeSettings, LogPlace, Shared)>,
    mirror: &mut Mirror,
    disk: &mut CacheDisk,
    cache: &mut dyn Device,
    around: &mut Around<'_>,
) -> Result<Vec<Box<dyn Device>>, MirrorError> {
    let over = |(volume, place, handle): (&VolumeSettings, LogPlace, Shared)| {
        mirror.over(&volume.name, handle, place.offset).expect("each log is on the label")
    };
    let mut logs: Vec<Mirrored> = logged.map(over).collect();
    mirror.fill(&mut logs, disk, cache, &mut around.of_mirror(settings))?;
    Ok(logs.into_iter().map(|log| Box::new(log) as Box<dyn Device>).collect())
}

fn place(disk: &CacheDisk, volume: VolumeId) -> Option<LogPlace> {
    let area = disk.log(volume)?;
    Some(LogPlace {
        offset: area.offset,
        bytes: area.bytes,
        seed: disk.seed(),
        space: disk.space(volume),
        in_use: area.in_use,
    })
}
