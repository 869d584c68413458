//! Opening the volumes' write-back logs: each goes between the cache and its back end.
//!
//! The logs lie on the cache disk, behind the slots. Cache and logs share one device, so that they share its queue. What
//! a log has that its back end lacks is found again here, before anything is served.

use crate::config::Settings;
use forebay_core::{FrameId, IoError, VolumeId};
use forebay_engine::attach::CacheDisk;
use forebay_engine::device::Device;
use forebay_engine::devices::logged::{LogOpenError, LogPlace, LogStatus, LoggedDevice, LoggedParts};
use forebay_engine::devices::shared::Shared;
use forebay_engine::ring_reactor::RingReactor;
use forebay_uring::{Arena, ArenaId};
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
}

/// The cache disk's device for the cache, and the logs' states by volume.
pub(super) type Opened = (Box<dyn Device>, Vec<Option<LogStatus>>);

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
    let Around { arena, first_frame, reactor, .. } = around;
    let places: Vec<Option<LogPlace>> = (0..backends.len()).map(|at| place(disk, VolumeId(at as u16))).collect();
    let count = places.iter().flatten().count();
    if count == 0 {
        return Ok((device, backends.iter().map(|_| None).collect()));
    }
    let mut frame = first_frame;
    let mut handles = Shared::split(device, 1 + count).into_iter();
    let mut cache: Box<dyn Device> = Box::new(handles.next().expect("the cache's own"));
    let (mut devices, mut statuses) = (Vec::new(), Vec::new());
    for ((backend, place), volume) in backends.drain(..).zip(places).zip(&settings.volumes) {
        let Some(place) = place else {
            devices.push(backend);
            statuses.push(None);
            continue;
        };
        let disk: Box<dyn Device> = Box::new(handles.next().expect("a handle each"));
        let parts = LoggedParts { disk, place, backend, arena: Rc::clone(arena), first_frame: frame, regions: None };
        let log = LoggedDevice::open(parts, reactor);
        let log = log.map_err(|source| LogError::Open { volume: volume.name.clone(), source })?;
        frame += LoggedDevice::frames(arena.frame_bytes());
        let status = log.status();
        let found = status.get();
        if found.records > 0 {
            tracing::info!(
                volume = volume.name,
                dirty_bytes = found.dirty_bytes,
                records = found.records,
                "the write-back log has what the back end lacks; the back end follows"
            );
        }
        statuses.push(Some(status));
        devices.push(Box::new(log));
    }
    *backends = devices;
    let scratch = (&**arena, FrameId(first_frame));
    disk.logs_are_open(&mut *cache, reactor, scratch).map_err(|error| LogError::Disk { error })?;
    Ok((cache, statuses))
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
