//! A volume whose log's disk is not there when it is taken up: it goes on against the back end.
//!
//! Whoever decides for that gives the log up: what only it had is lost ([`forebay_core::log::logged::Opening`]), and should the disk
//! come back it will not be believed. Where the disk may be found again, waiting for it is the other choice.

use std::rc::Rc;

use forebay_core::log::logged::{KnownRegions, Logged, Opening};
use forebay_core::log::{Log, Ring};
use forebay_uring::Arena;

use super::memory::{Buffers, CONFIG};
use super::open::{Below, LogOpenError, LogPlace, carry_out, flush, keep, least_bytes};
use super::{LoggedDevice, RegionStore, SECTOR_BYTES, limits};
use crate::device::{Device, DeviceDone, DeviceOp, Geometry, IoError};
use crate::reactor::Reactor;

/// What a device is made of whose log's disk is not there.
pub struct DisklessParts {
    /// What changes go to.
    pub backend: Box<dyn Device>,
    /// The arena that bytes are moved through.
    pub arena: Rc<Arena>,
    /// The first of [`LoggedDevice::frames`] frames of it that are nobody else's.
    pub first_frame: u32,
    /// Who keeps the region map.
    pub regions: Box<dyn RegionStore>,
}

impl LoggedDevice {
    /// Goes on without the log, whose disk is not there: changes go to the back end. What the region map says that only the log had is
    /// lost, and should its disk come back later, it will not be believed. Blocks.
    ///
    /// # Errors
    /// See [`LogOpenError`].
    pub fn without_disk(parts: DisklessParts, reactor: &mut dyn Reactor) -> Result<Self, LogOpenError> {
        let DisklessParts { mut backend, arena, first_frame, regions } = parts;
        let mut regions = Some(regions);
        let known = regions.as_ref().map_or(&KnownRegions::None, |store| store.known());
        let Opening { life, image, .. } = Opening::decide(known, None, backend.geometry().bytes / SECTOR_BYTES);
        keep(regions.as_deref_mut(), reactor, &image)?;
        carry_out(&mut *backend, reactor, flush(0), "given up, because its back end does not flush")?;
        let place = LogPlace { offset: 0, bytes: least_bytes(), seed: 0, space: 0, in_use: false };
        let log = Log::new(limits(place.bytes), Ring::new(place.ring_sectors(), 0), life);
        let mut logged = Logged::new(CONFIG, log, &[]);
        logged.keep_regions(image);
        logged.goes_without();
        let buffers = Buffers::new(arena, first_frame);
        let below = Below { disk: Box::new(NoDisk::default()), place, backend, buffers, regions, life, sequence: 0 };
        Ok(Self::of(logged, below, reactor))
    }
}

/// A disk that is not there: everything fails.
#[derive(Default)]
struct NoDisk {
    ended: Vec<DeviceDone>,
}

impl Device for NoDisk {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: 0, sector_bytes: 512, read_only: true, can_trim: false, can_zero: false, range_bytes_max: 0 }
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        self.ended.push(DeviceDone { token: op.token, result: Err(IoError::Failed) });
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        (!self.ended.is_empty()).then_some(0)
    }
}
