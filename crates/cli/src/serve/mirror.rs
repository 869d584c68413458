//! The mirror of the write-back logs: which side has them is decided before the cache disk is touched, and the other side is filled
//! before anything is served. How and why: [`forebay_engine::devices::mirrored`].
//!
//! 1. [`look`]: what the state directory, the cache disk and the mirror say. What does not count is dropped from the state directory.
//! 2. The cache disk is attached. A blank one becomes the cache again whose logs the mirror has.
//! 3. [`Looked::settle`]: whether the attached disk still is what counted; without any side a new mirror begins.
//! 4. [`Mirror::over`] for each log, and [`Mirror::fill`].

use crate::config::Settings;
use forebay_engine::attach::{AttachError, CacheDisk, Identity, VolumeFacts, look as look_at_disk, random_side};
use forebay_engine::device::{Device, DeviceOp, FrameId, OpKind, carry_out};
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::mirrored::{
    Counting, DiskFound, MirrorFound, MirrorRefusal, MirrorStatus, Mirrored, Side, SidePart, Sides, which_count,
};
use forebay_engine::devices::shared::Shared;
use forebay_engine::ring_reactor::RingReactor;
use forebay_engine::state::{CountingError, CountingFile};
use forebay_uring::{Arena, ArenaId, DiskFile, ErrorKind, OpenOptions, Space, Wake};
use forebay_wire::disk::mirror_label::{Found, LABEL_BYTES, MirrorLabel, MirroredLog, probe};
use forebay_wire::disk::{signature, superblock};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forebay_core::VolumeId;

/// Operations that the mirror may have under way; the rest waits in the device.
pub(super) const MIRROR_OPS_MAX: u32 = 512;

/// The mirror's name in the state directory.
const NAME: &str = "cache";

/// Why the logs cannot be served with this mirror.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The state directory.
    #[error(transparent)]
    Counting(#[from] CountingError),
    /// Which side has the logs.
    #[error("the mirror of the write-back logs: {0}")]
    Refused(#[from] MirrorRefusal),
    /// The cache disk.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The mirror cannot be used.
    #[error("the mirror of the write-back logs: {0}")]
    Device(#[from] forebay_uring::Error),
    /// It has something else.
    #[error(
        "the mirror of the write-back logs, {}, holds {what}: name another device, or erase its beginning \
         (`dd if=/dev/zero of={0} bs=128k count=1 conv=notrunc`)", path.display()
    )]
    Foreign {
        /// The device.
        path: PathBuf,
        /// What it holds.
        what: &'static str,
    },
    /// Nobody knows what it says by now.
    #[error(
        "the state directory cannot be written, where it is kept which of cache disk and mirror count: make it writable"
    )]
    NotKept,
}

/// Why a side was not filled.
enum NotFilled {
    /// The logs may go on without it.
    Side(String),
    /// Whether it counts is not known.
    Unknown,
}

impl From<String> for NotFilled {
    fn from(why: String) -> Self {
        Self::Side(why)
    }
}

/// The mirror's device, open.
struct Opened {
    file: DiskFile,
    path: PathBuf,
    label: Option<MirrorLabel>,
}

/// What is known before the cache disk is attached.
pub(super) struct Looked {
    counting: CountingFile,
    mirror: Option<Opened>,
    mirror_counts: bool,
    /// By volume, what its back end is.
    back_ends: Vec<u64>,
}

/// Which logs count; the state directory says so from now on. `facts` is by volume. `None`: there is nothing to mirror, and never
/// was.
///
/// # Errors
/// Why nothing may be served.
pub(super) fn look(
    settings: &Settings,
    facts: &[VolumeFacts],
    force_format: bool,
    wake: Wake,
) -> Result<Option<Looked>, MirrorError> {
    let Some(disk) = &settings.cache.disk else { return Ok(None) };
    let mut counting = CountingFile::open(&settings.cache.state_dir, NAME, Some(wake))?;
    let disk = match look_at_disk(&disk.path)? {
        _ if force_format => DiskFound::Blank,
        superblock::Found::Valid(found) => DiskFound::Cache { cache_id: found.cache_id, side: found.mirror_side },
        superblock::Found::Blank | superblock::Found::Older(_) => DiskFound::Blank,
        // It will be refused as it is.
        superblock::Found::Foreign(_) | superblock::Found::Newer(_) | superblock::Found::Damaged => return Ok(None),
    };
    let logs_bytes: u64 = settings.volumes.iter().map(|volume| volume.log_bytes).sum();
    let path = settings.cache.log_mirror.as_deref().filter(|_| logs_bytes > 0);
    let (found, mirror) = match path {
        None => (MirrorFound::NotAsked, None),
        Some(path) => match open(settings, path, MirrorLabel::device_bytes(logs_bytes)) {
            Ok(file) => look_at_mirror(settings, path, file)?,
            Err(error) if error.kind() == ErrorKind::InUse => return Err(error.into()),
            Err(error) => {
                tracing::error!("the mirror of the write-back logs cannot be used: {error}");
                (MirrorFound::Missing, None)
            }
        },
    };
    let was_mirrored = matches!(disk, DiskFound::Cache { side, .. } if side != 0);
    let known = counting.known();
    if known.is_none() && mirror.is_none() && !was_mirrored {
        return Ok(None);
    }
    let [disk_counts, mirror_counts] = which_count(known.as_ref(), disk, found)?;
    let label = mirror.as_ref().and_then(|mirror| mirror.label.as_ref()).filter(|_| mirror_counts && !disk_counts);
    if label.is_some_and(|label| !are_its_back_ends(facts, label)) {
        return Err(MirrorRefusal::OtherVolumes.into());
    }
    if let Some(known) = known.filter(|_| disk_counts || mirror_counts) {
        let [disk, mirror] = known.sides;
        let sides = [disk.filter(|_| disk_counts), mirror.filter(|_| mirror_counts)];
        counting.set(Counting { sides, ..known })?;
    }
    let back_ends = facts.iter().map(|facts| facts.identity).collect();
    Ok(Some(Looked { counting, mirror, mirror_counts, back_ends }))
}

fn open(settings: &Settings, path: &Path, bytes: u64) -> Result<DiskFile, forebay_uring::Error> {
    // A device that is not there is not to become a file.
    let create = !path.starts_with("/dev");
    let mut file = DiskFile::open(path, OpenOptions { write: true, direct: true, exclusive: true, create })?;
    if file.facts().size_bytes < bytes {
        let is_sparse = settings.cache.disk.as_ref().is_some_and(|disk| disk.sparse);
        file.resize(bytes, if is_sparse { Space::Sparse } else { Space::Allocated })?;
    }
    Ok(file)
}

fn look_at_mirror(
    settings: &Settings,
    path: &Path,
    file: DiskFile,
) -> Result<(MirrorFound, Option<Opened>), MirrorError> {
    let head = Arena::new(1, signature::PROBE_BYTES as u32)?;
    let probed =
        head.with_bytes_mut(0, 0, signature::PROBE_BYTES as u32, |bytes| file.read_at(0, bytes).map(|()| probe(bytes)));
    let path = path.to_owned();
    let (found, label) = match probed {
        Err(error) => {
            tracing::error!("the mirror of the write-back logs cannot be used: {error}");
            return Ok((MirrorFound::Missing, None));
        }
        Ok(Found::Foreign(what)) => return Err(MirrorError::Foreign { path, what }),
        Ok(Found::Blank) => (MirrorFound::Blank, None),
        Ok(Found::Damaged) => (MirrorFound::Damaged, None),
        Ok(Found::Label(label)) => {
            let (cache_id, side) = (label.cache_id, label.side);
            (MirrorFound::Logs { cache_id, side, fits: fits(settings, &label, &file) }, Some(label))
        }
    };
    Ok((found, Some(Opened { file, path, label })))
}

/// Whether these are the logs of the configured volumes.
fn fits(settings: &Settings, label: &MirrorLabel, file: &DiskFile) -> bool {
    let logged = || settings.volumes.iter().filter(|volume| volume.log_bytes > 0);
    let is_there =
        |log: &MirroredLog| log.offset.checked_add(log.bytes).is_some_and(|end| end <= file.facts().size_bytes);
    label.next_space <= u32::MAX / 2
        && logged().count() == label.logs.len()
        && label.logs.iter().all(is_there)
        && logged().all(|volume| label.log(&volume.name).is_some_and(|log| log.bytes == volume.log_bytes))
}

/// Whether the logs are to be written back to these. The cache disk knows that, too, and is asked if it counts.
fn are_its_back_ends(facts: &[VolumeFacts], label: &MirrorLabel) -> bool {
    let is_its = |facts: &VolumeFacts| label.log(&facts.name).is_none_or(|log| log.backend_identity == facts.identity);
    facts.iter().all(is_its)
}

/// What settling needs.
pub(super) struct Around<'a> {
    pub(super) arena: &'a Rc<Arena>,
    pub(super) frames_id: ArenaId,
    /// Frames that nobody uses yet.
    pub(super) frames: Range<u32>,
    pub(super) reactor: &'a mut RingReactor,
}

impl Looked {
    /// The cache that a cache disk becomes which has to be formatted.
    pub(super) fn identity(&self) -> Option<Identity> {
        let label = self.mirror.as_ref()?.label.as_ref().filter(|_| self.mirror_counts)?;
        let spaces = label.logs.iter().map(|log| (log.volume.clone(), log.space)).collect();
        Some(Identity { cache_id: label.cache_id, next_space: label.next_space, spaces })
    }

    /// Whether the attached disk and the mirror count, and with what they go on. `None`: without a mirror.
    ///
    /// # Errors
    /// When the mirror or the state directory cannot be written, or the volumes are others than the mirror's.
    pub(super) fn settle(
        self,
        settings: &Settings,
        disk: &CacheDisk,
        around: &mut Around<'_>,
    ) -> Result<Option<Mirror>, MirrorError> {
        let Self { mut counting, mirror, mirror_counts, back_ends } = self;
        let label = label(settings, &back_ends, disk);
        let known = counting.known().filter(|known| known.cache_id == label.cache_id);
        let side = disk.superblock().mirror_side;
        let disk_counts = known.is_some_and(|known| known.sides[0] == Some(side));
        let its_label = mirror.as_ref().and_then(|mirror| mirror.label.clone()).filter(|_| mirror_counts);
        let mirror_counts = its_label.as_ref().is_some_and(|its| is_of(its, &label)) && known.is_some();
        let known = match known.filter(|_| disk_counts || mirror_counts) {
            Some(known) => {
                let sides = [known.sides[0].filter(|_| disk_counts), known.sides[1].filter(|_| mirror_counts)];
                Counting { sides, ..known }
            }
            // The mirror's logs are of other volumes by now, or of other sizes; the cache disk has none of them.
            None if its_label.is_some() => return Err(MirrorRefusal::OtherVolumes.into()),
            None => {
                if let Some(mirror) = &mirror {
                    erase(&mirror.file)?;
                }
                Counting { cache_id: label.cache_id, sides: [Some(side), None] }
            }
        };
        counting.set(known)?;
        let Some(Opened { file, path, .. }) = mirror else { return Ok(None) };
        if !mirror_counts {
            erase(&file)?;
        }
        let label = its_label.filter(|_| mirror_counts).unwrap_or(label);
        let device = FileDevice::from_open(around.reactor.port(MIRROR_OPS_MAX), around.frames_id, &path, file, false)?;
        let weights: Vec<u32> = settings.volumes.iter().map(|volume| volume.weight).collect();
        let (whole, handles) = Shared::split(Box::new(device), &weights);
        let names = settings.volumes.iter().map(|volume| volume.name.clone());
        let handles = names.zip(handles).collect();
        Ok(Some(Mirror { sides: Sides::new(known, Box::new(counting)), label, whole, handles }))
    }
}

/// The label of a mirror for the attached disk's logs, without its number.
fn label(settings: &Settings, back_ends: &[u64], disk: &CacheDisk) -> MirrorLabel {
    let volumes = (0..).map(VolumeId).zip(settings.volumes.iter().zip(back_ends));
    let logs = volumes.filter_map(|(id, (volume, back_end))| {
        Some((volume.name.as_str(), disk.space(id), *back_end, disk.log(id)?.bytes))
    });
    let superblock = disk.superblock();
    MirrorLabel::new(superblock.cache_id, 1, superblock.next_space, logs)
}

/// Whether a label names the same logs as another.
fn is_of(label: &MirrorLabel, other: &MirrorLabel) -> bool {
    let same = |log: &MirroredLog| {
        label.log(&log.volume).is_some_and(|it| MirroredLog { offset: it.offset, ..log.clone() } == *it)
    };
    label.cache_id == other.cache_id && label.logs.len() == other.logs.len() && other.logs.iter().all(same)
}

/// It has no logs from now on.
fn erase(file: &DiskFile) -> Result<(), MirrorError> {
    let blank = Arena::new(1, LABEL_BYTES as u32)?;
    blank.with_bytes(0, 0, LABEL_BYTES as u32, |bytes| file.write_at(0, bytes))?;
    Ok(file.sync()?)
}

/// A mirror in use.
pub(super) struct Mirror {
    sides: Sides,
    label: MirrorLabel,
    /// For its label.
    whole: Shared,
    /// By volume.
    handles: Vec<(String, Shared)>,
}

impl Mirror {
    /// How it is, for other threads.
    pub(super) fn status(&self) -> MirrorStatus {
        self.sides.status()
    }

    /// A log on both sides; `disk` and `offset`: on the cache disk.
    pub(super) fn over(&mut self, volume: &str, disk: Shared, offset: u64) -> Option<Mirrored> {
        let log = self.label.log(volume)?;
        let at = self.handles.iter().position(|(name, _)| name == volume)?;
        let mirror = SidePart { device: Box::new(self.handles.swap_remove(at).1), offset: log.offset };
        Some(Mirrored::new(&self.sides, [SidePart { device: Box::new(disk), offset }, mirror], log.bytes))
    }

    /// Fills the side that does not count, if there is one. If that fails, the logs go on without it.
    ///
    /// # Errors
    /// When the state directory cannot be written: it may say that the side counts.
    pub(super) fn fill(
        &mut self,
        logs: &mut [Mirrored],
        disk: &mut CacheDisk,
        cache: &mut dyn Device,
        around: &mut Around<'_>,
    ) -> Result<(), MirrorError> {
        let Some(side) = Side::BOTH.into_iter().find(|side| !self.sides.in_service(*side)) else { return Ok(()) };
        let which = if side == Side::Disk { "cache disk" } else { "mirror" };
        let bytes: u64 = self.label.logs.iter().map(|log| log.bytes).sum();
        tracing::info!(bytes, "the write-back logs are copied to the {which}");
        match self.try_fill(side, logs, disk, cache, around) {
            Ok(()) => tracing::info!("the write-back logs are on cache disk and mirror"),
            Err(NotFilled::Side(why)) => tracing::error!(
                "the {which} was not filled with the write-back logs, which go on without it: {why}; replace it and restart"
            ),
            Err(NotFilled::Unknown) => return Err(MirrorError::NotKept),
        }
        Ok(())
    }

    fn try_fill(
        &mut self,
        side: Side,
        logs: &mut [Mirrored],
        disk: &mut CacheDisk,
        cache: &mut dyn Device,
        around: &mut Around<'_>,
    ) -> Result<(), NotFilled> {
        let name = random_side().map_err(|error| error.to_string())?;
        self.copy(side, logs, around)?;
        self.name(side, name, disk, cache, around)?;
        if disk.superblock().mirror_side == 0 {
            // It was never mirrored. Only now: should the process end before the state directory knows it, the mirror counts.
            let name = random_side().map_err(|error| error.to_string())?;
            match self.name(Side::Disk, name, disk, cache, around) {
                // Both sides count, and the cache disk goes on without a name.
                Err(NotFilled::Side(why)) => {
                    tracing::error!("the cache disk takes no name for its write-back logs: {why}");
                }
                named => named?,
            }
        }
        Ok(())
    }

    fn copy(&mut self, side: Side, logs: &mut [Mirrored], around: &mut Around<'_>) -> Result<(), String> {
        let frame_bytes = around.arena.frame_bytes();
        let mut fill = |log: &mut Mirrored| log.fill(side, around.reactor, &around.frames, frame_bytes);
        logs.iter_mut().try_for_each(&mut fill).map_err(|error| error.to_string())
    }

    /// Says on the side what it has; from then on it counts.
    fn name(
        &mut self,
        side: Side,
        name: u64,
        disk: &mut CacheDisk,
        cache: &mut dyn Device,
        around: &mut Around<'_>,
    ) -> Result<(), NotFilled> {
        let first = FrameId(around.frames.start);
        let written = match side {
            Side::Disk => disk.logs_are_filled(name, cache, around.reactor, (around.arena, first)),
            Side::Mirror => {
                self.label.side = name;
                let bytes = self.label.encode();
                let chunks = bytes.chunks(around.arena.frame_bytes() as usize);
                (first.0..).zip(chunks).for_each(|(frame, chunk)| around.arena.copy_in(frame, 0, chunk));
                let (kind, length) = (OpKind::Write { fua: true }, bytes.len() as u64);
                let op = DeviceOp { token: 0, kind, offset: 0, length, frame: first, at: 0 };
                carry_out(&mut self.whole, around.reactor, op)
            }
        };
        written.map_err(|error| format!("it cannot be written ({error:?})"))?;
        self.sides.filled(side, name, around.reactor).map_err(|_| NotFilled::Unknown)
    }

    /// All logs were found: see [`Sides::opened`].
    pub(super) fn opened(&self) {
        self.sides.opened();
    }
}
