//! Opening the volumes' back ends.

use crate::budget;
use crate::config::{self, Backend, Settings, VolumeSettings};
use forebay_core::WriteMode;
use forebay_engine::attach::VolumeFacts;
use forebay_engine::device::Device;
use forebay_engine::devices::nbd::{NbdAddress, NbdOptions, NbdTarget};
use forebay_engine::devices::paced::{Pace, Paced};
use forebay_engine::devices::spec::{self, BackendOptions, BackendSpec, Surroundings};
use forebay_engine::ring_reactor::RingReactor;
use forebay_uring::ArenaId;
use std::sync::Arc;

/// How long a back end may take to answer at the start.
const OPEN_NS: u64 = 10_000_000_000;

/// Why a back end could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("volume \"{volume}\": {source}")]
pub struct BackendError {
    volume: String,
    source: spec::BackendError,
}

/// All back ends, by volume.
pub(super) struct Backends {
    pub(super) devices: Vec<Box<dyn Device>>,
    pub(super) facts: Vec<VolumeFacts>,
    pub(super) specs: Vec<BackendSpec>,
    /// Of those that are paced.
    pub(super) paces: Vec<Option<Arc<Pace>>>,
}

/// Opens every volume's back end. `first_bounce` is the first of as many frames as there are volumes that nobody else
/// uses.
///
/// # Errors
/// The first that cannot be opened.
pub(super) fn open_all(
    settings: &Settings,
    reactor: &mut RingReactor,
    frames: ArenaId,
    first_bounce: u32,
) -> Result<Backends, BackendError> {
    let mut backends = Backends { devices: Vec::new(), facts: Vec::new(), specs: Vec::new(), paces: Vec::new() };
    for (volume, bounce) in settings.volumes.iter().zip(first_bounce..) {
        let spec = spec_of(&volume.backend);
        let around = Surroundings { reactor, frames, bounces: bounce..bounce + 1 };
        let opened = spec.open(&options_of(settings, volume), around);
        let opened = opened.map_err(|source| BackendError { volume: volume.name.clone(), source })?;
        backends.facts.push(VolumeFacts {
            name: volume.name.clone(),
            backend: volume.backend.to_string(),
            identity: opened.identity,
            bytes: opened.device.geometry().bytes,
            mtime_ns: opened.mtime_ns,
            log_bytes: volume.log_bytes,
        });
        backends.specs.push(spec);
        let pace = volume.paced.map(pace_of);
        backends.devices.push(match &pace {
            Some(pace) => Box::new(Paced::new(opened.device, Arc::clone(pace))),
            None => opened.device,
        });
        backends.paces.push(pace);
    }
    Ok(backends)
}

/// Operations on the ring that a volume's back end may have under way.
pub(super) fn ops_max(settings: &Settings, volume: &VolumeSettings) -> u32 {
    spec_of(&volume.backend).ops_max(&options_of(settings, volume))
}

fn spec_of(backend: &Backend) -> BackendSpec {
    let nbd = |address, export: &String| BackendSpec::Nbd(NbdTarget { address, export: export.clone() });
    match backend {
        Backend::NbdTcp { host, port, export } => nbd(NbdAddress::Tcp { host: host.clone(), port: *port }, export),
        Backend::NbdUnix { socket, export } => nbd(NbdAddress::Unix(socket.clone()), export),
        Backend::Path(path) => BackendSpec::Path(path.clone()),
        Backend::Memory { bytes } => BackendSpec::Memory { bytes: *bytes },
    }
}

fn options_of(settings: &Settings, volume: &VolumeSettings) -> BackendOptions {
    let held_bytes_max = budget::held_bytes(settings.cache.memory_bytes, settings.nbd_volumes());
    let nbd = NbdOptions {
        connections_max: volume.connections.clamp(1, 16) as u8,
        held_bytes_max,
        held_count_max: budget::held_count(held_bytes_max),
        request_timeout_ns: volume.timeout_ns,
        ..NbdOptions::default()
    };
    BackendOptions { write: volume.mode != WriteMode::ReadOnly, nbd, open_timeout_ns: OPEN_NS }
}

/// A pace that can be changed while the device runs.
pub(super) fn pace_of(paced: config::Paced) -> Arc<Pace> {
    // A rate of 0 is no limit.
    Pace::new(paced.rate_bytes_per_s.unwrap_or(0), paced.latency_ns)
}
