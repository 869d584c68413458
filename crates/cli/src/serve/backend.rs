//! Opening the volumes' back ends.

use crate::config::{Backend, Settings, VolumeSettings};
use forebay_engine::attach::VolumeFacts;
use forebay_engine::device::Device;
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::memory::Memory;
use forebay_engine::devices::nbd::{NbdAddress, NbdDevice, NbdOpenError, NbdOptions, NbdTarget};
use forebay_engine::devices::paced::{Pace, Paced};
use forebay_engine::reactor::Reactor;
use forebay_engine::ring_reactor::RingReactor;
use forebay_uring::{Arena, ArenaId, OpenOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How long a back end may take to answer at the start.
const OPEN_NS: u64 = 10_000_000_000;
/// Operations that a file may have under way; the rest waits in the device.
const FILE_OPS_MAX: u32 = 512;

/// Why a back end could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A file or block device.
    #[error("volume \"{volume}\": {source}")]
    File {
        /// The volume.
        volume: String,
        /// The cause.
        source: forebay_uring::Error,
    },
    /// An NBD export.
    #[error("volume \"{volume}\": {source}")]
    Nbd {
        /// The volume.
        volume: String,
        /// The cause.
        source: NbdOpenError,
    },
}

/// All back ends, by volume.
pub(super) struct Backends {
    pub(super) devices: Vec<Box<dyn Device>>,
    pub(super) facts: Vec<VolumeFacts>,
    /// The file that is the back end, where it is one.
    pub(super) paths: Vec<Option<PathBuf>>,
}

/// What a device is opened with.
struct Opener<'a> {
    reactor: &'a mut RingReactor,
    frames: ArenaId,
    arena: &'a Rc<Arena>,
    requests_max: u32,
}

/// Opens every volume's back end.
///
/// # Errors
/// The first that cannot be opened.
pub(super) fn open_all(
    settings: &Settings,
    reactor: &mut RingReactor,
    frames: ArenaId,
    arena: &Rc<Arena>,
    requests_max: u32,
) -> Result<Backends, BackendError> {
    let mut opener = Opener { reactor, frames, arena, requests_max };
    let mut backends = Backends { devices: Vec::new(), facts: Vec::new(), paths: Vec::new() };
    for volume in &settings.volumes {
        let (device, identity, mtime_ns) = opener.open(volume)?;
        backends.facts.push(VolumeFacts {
            name: volume.name.clone(),
            backend: volume.backend.to_string(),
            identity,
            bytes: device.geometry().bytes,
            mtime_ns,
        });
        backends.paths.push(match &volume.backend {
            Backend::Path(path) => Some(path.clone()),
            _ => None,
        });
        backends.devices.push(paced(device, volume));
    }
    Ok(backends)
}

impl Opener<'_> {
    /// The device, what it is, and when it was modified last.
    fn open(&mut self, volume: &VolumeSettings) -> Result<(Box<dyn Device>, u64, i64), BackendError> {
        match &volume.backend {
            Backend::Path(path) => self.open_file(volume, path),
            Backend::Memory { bytes } => {
                let device = Memory::new(Rc::clone(self.arena), *bytes);
                Ok((Box::new(device), identity_of(&volume.backend.to_string()), 0))
            }
            Backend::NbdTcp { host, port, export } => {
                let address = NbdAddress::Tcp { host: host.clone(), port: *port };
                self.open_nbd(volume, NbdTarget { address, export: export.clone() })
            }
            Backend::NbdUnix { socket, export } => {
                let address = NbdAddress::Unix(socket.clone());
                self.open_nbd(volume, NbdTarget { address, export: export.clone() })
            }
        }
    }

    fn open_file(&self, volume: &VolumeSettings, path: &Path) -> Result<(Box<dyn Device>, u64, i64), BackendError> {
        let failed = |source| BackendError::File { volume: volume.name.clone(), source };
        let write = volume.mode != forebay_core::WriteMode::ReadOnly;
        let options = OpenOptions { write, direct: true, exclusive: true, create: false };
        let device =
            FileDevice::open(self.reactor.port(ops_max(volume, self.requests_max)), self.frames, path, options)
                .map_err(failed)?;
        let facts = device.facts();
        let identity = identity_of(&format!("file {} {}", facts.identity.0, facts.identity.1));
        Ok((Box::new(device), identity, facts.mtime_ns))
    }

    fn open_nbd(
        &mut self,
        volume: &VolumeSettings,
        target: NbdTarget,
    ) -> Result<(Box<dyn Device>, u64, i64), BackendError> {
        let options = nbd_options(volume);
        let port = self.reactor.port(NbdDevice::ops_max(&options));
        let until_ns = self.reactor.now_ns() + OPEN_NS;
        let identity = identity_of(&target.to_string());
        let device = NbdDevice::open(port, self.frames, target, options, self.reactor, until_ns);
        let device = device.map_err(|source| BackendError::Nbd { volume: volume.name.clone(), source })?;
        Ok((Box::new(device), identity, 0))
    }
}

/// How a volume's NBD back end is used.
fn nbd_options(volume: &VolumeSettings) -> NbdOptions {
    NbdOptions {
        connections_max: volume.connections.clamp(1, 16) as u8,
        request_timeout_ns: volume.timeout_ns,
        ..NbdOptions::default()
    }
}

/// Operations on the ring that a volume's back end may have under way.
pub(super) fn ops_max(volume: &VolumeSettings, requests_max: u32) -> u32 {
    match volume.backend {
        Backend::Path(_) => requests_max.min(FILE_OPS_MAX),
        Backend::NbdTcp { .. } | Backend::NbdUnix { .. } => NbdDevice::ops_max(&nbd_options(volume)),
        Backend::Memory { .. } => 0,
    }
}

fn paced(device: Box<dyn Device>, volume: &VolumeSettings) -> Box<dyn Device> {
    let Some(pace) = volume.paced else { return device };
    let rate = pace.rate_bytes_per_s.unwrap_or(u64::MAX);
    Box::new(Paced::new(device, Pace::new(rate, pace.latency_ns)))
}

/// FNV-1a of 64 bits: what is remembered of a back end's name.
fn identity_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
