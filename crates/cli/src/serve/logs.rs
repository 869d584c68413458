//! Opening the volumes' write-back logs: each goes between the cache and its back end.
//!
//! The logs lie on the cache disk, behind the slots. Cache and logs share one device, so that they share its queue. What
//! a log has that its back end lacks is found again here, before anything is served.

use crate::config::{Settings, VolumeSettings};
use forebay_core::log::logged::LogPolicy;
use forebay_core::{FrameId, IoError, VolumeId, WriteMode};
use forebay_engine::attach::CacheDisk;
use forebay_engine::device::Device;
use forebay_engine::devices::logged::{
    LogControl, LogOpenError, LogPlace, LogStatus, LoggedDevice, LoggedParts, LossStatus,
};
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

/// A volume's log, as seen from other threads.
#[derive(Clone, Debug)]
pub(super) struct VolumeLog {
    pub(super) status: LogStatus,
    pub(super) loss: LossStatus,
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
/// The first log that cannot be used, or that the disk cannot be written.
pub(super) fn open_all(
    settings: &Settings,
    disk: &mut CacheDisk,
    device: Box<dyn Device>,
    backends: &mut Vec<Box<dyn Device>>,
    around: Around<'_>,
) -> Result<Opened, LogError> {
    let Around { arena, first_frame, reactor, wake, .. } = around;
    let places: Vec<Option<LogPlace>> = (0..backends.len()).map(|at| place(disk, VolumeId(at as u16))).collect();
    let has_logs = places.iter().any(Option::is_some);
    let mut frame = first_frame;
    let weights: Vec<u32> = settings.volumes.iter().map(|volume| volume.weight).collect();
    let (mut cache, mut handles) = (device, Vec::new().into_iter());
    if has_logs || weights.windows(2).any(|two| two[0] != two[1]) {
        let (of_cache, of_volumes) = Shared::split(cache, &weights);
        (cache, handles) = (Box::new(of_cache), of_volumes.into_iter());
    }
    let (mut devices, mut logs) = (Vec::new(), Vec::new());
    for ((backend, place), volume) in backends.drain(..).zip(places).zip(&settings.volumes) {
        let handle = handles.next();
        let Some(place) = place else {
            nothing_is_lost(settings, volume)?;
            devices.push(backend);
            logs.push(None);
            continue;
        };
        let volume_sectors = backend.geometry().bytes / 512;
        let identity = LogIdentity { cache_id: disk.superblock().cache_id, space: place.space, volume_sectors };
        let state_dir = &settings.cache.state_dir;
        let regions = RegionMapFile::open(state_dir, &volume.name, identity, Some(wake.clone()))?;
        let parts = LoggedParts {
            disk: Box::new(handle.expect("where there are logs the disk is shared")),
            place,
            backend,
            arena: Rc::clone(arena),
            first_frame: frame,
            regions: Some(Box::new(regions)),
        };
        let device = LoggedDevice::open(parts, reactor);
        let device = device.map_err(|source| LogError::Open { volume: volume.name.clone(), source })?;
        frame += LoggedDevice::frames(arena.frame_bytes());
        let log = VolumeLog {
            status: device.status(),
            loss: device.loss(),
            control: device.control(),
            back: volume.log_policy,
        };
        log.set_mode(volume.mode);
        log.tell_what_was_found(&volume.name);
        logs.push(Some(log));
        devices.push(Box::new(device));
    }
    *backends = devices;
    if has_logs {
        let scratch = (&**arena, FrameId(first_frame));
        disk.logs_are_open(&mut *cache, reactor, scratch).map_err(|error| LogError::Disk { error })?;
    }
    Ok((cache, logs))
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
