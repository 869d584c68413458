//! Measuring a path alone: what cache disk or back end delivers with so many reads of a size always in flight.
//!
//! A profile ([`forebay_policy::split::profile`]) is made of such figures. They are taken here, below the cache, because
//! a client cannot: what it reads twice comes from memory, and what it reads once from the back end.
//!
//! How: [`Measure`] names blocks of the volume that the cache disk holds, drawn by lot, and the shard reads them from
//! the path that is measured. Both paths so read the same blocks. A fifth of the time is for the path to fill; then
//! bytes are counted from one end of a read to the last.
//!
//! Invariants: only reads; no page on disk, no counter and no policy of the cache changes. What was read is not looked at.
//!
//! Limits: the reads' frames are lent by the memory tier, which keeps up to 256 pages less meanwhile; where it cannot
//! lend as many, fewer reads are in flight. Clients that read meanwhile make a path look slower, and are made slower. Checksums are not computed, so a path
//! that is faster than the processor looks a little faster than clients would find it.
//!
//! Rejected: measuring as a client, with the policy set to one path. The memory tier answers what fits into it, so that a
//! region larger than memory has to be read in first, and clients find memory full of it afterwards.

use std::sync::mpsc::Sender;

use super::Shard;
use crate::device::{Device, DeviceOp, OpKind};
use crate::front::Front;
use crate::reactor::Reactor;
use forebay_core::{BLOCK_BYTES, Cache, CachedRun, FrameId, IoError, SlotId, VolumeId};
use forebay_policy::rng::Rng;
use forebay_policy::split::Path;

/// Reads in flight at most.
pub const IN_FLIGHT_MAX: u32 = 256;
/// Device operations with this bit in their token are reads of a measurement.
pub(super) const TOKEN: u64 = 1 << 63;
/// Slots that are looked at for blocks: 10 ms at most.
const SLOTS_MAX: u32 = 1 << 16;
/// Runs of blocks that are read in turn.
const RUNS_MAX: usize = 4096;
/// With fewer, a device would answer from its own memory.
const RUNS_MIN: usize = 128;
/// Reads that are counted at least, on a path that is slow: it is given up to [`LONGER`] times as long.
const READS_MIN: u64 = 16;
const LONGER: u64 = 4;

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasureOrder {
    /// Whose blocks are read.
    pub volume: VolumeId,
    /// The cache disk or the volume's back end.
    pub path: Path,
    /// Bytes of a read: whole blocks, at most a page.
    pub block_bytes: u32,
    /// Reads in flight, at most [`IN_FLIGHT_MAX`].
    pub in_flight: u32,
    /// How long.
    pub for_ns: u64,
}

/// What a path delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Reads that were in flight: as many as were asked for, or as memory has room for.
    pub in_flight: u32,
    /// Reads that ended while it was counted.
    pub reads: u64,
    /// How long that was.
    pub elapsed_ns: u64,
}

/// Why nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// Correct the order.
    #[error("a path is measured with 1 to {IN_FLIGHT_MAX} reads in flight, of whole 4 KiB blocks, at most a page each")]
    Invalid,
    /// Configure one, or repair it.
    #[error("there is no cache disk in use")]
    NoDisk,
    /// Read the volume first.
    #[error("the cache disk holds only {found} runs of that size of the volume; {RUNS_MIN} are needed")]
    TooLittleCached {
        /// What it holds, as far as was looked.
        found: usize,
    },
    /// Try again.
    #[error("another measurement is under way")]
    Busy,
    /// Try again with fewer clients.
    #[error("memory cannot spare a single page")]
    NoMemory,
    /// Look at the path.
    #[error("a read failed: {0:?}")]
    Failed(IoError),
    /// Look at the path, or wait: it has answered too few reads for a figure.
    #[error("the path answered too few reads in time")]
    TooSlow,
}

/// A measurement under way.
#[derive(Debug)]
pub(super) struct Measure {
    order: MeasureOrder,
    told: Sender<Result<Measured, MeasureError>>,
    runs: Vec<CachedRun>,
    rng: Rng,
    begin_ns: u64,
    frames: Vec<FrameId>,
    /// Reads that fit into a frame.
    reads_per_frame: u32,
    /// Places for reads that are free, by number; as many as reads are to be in flight.
    places_free: Vec<u32>,
    places: u32,
    /// The end of the read from which on is counted.
    first_ns: Option<u64>,
    last_ns: u64,
    reads: u64,
    failed: Option<IoError>,
}

impl Measure {
    /// Finds blocks to read.
    ///
    /// # Errors
    /// When there are too few, or the order cannot be followed.
    fn new(
        now_ns: u64,
        order: MeasureOrder,
        cache: &mut Cache,
        told: Sender<Result<Measured, MeasureError>>,
    ) -> Result<Self, (Sender<Result<Measured, MeasureError>>, MeasureError)> {
        let mut rng = Rng::new(now_ns);
        let runs = match runs(order, cache, &mut rng) {
            Ok(runs) => runs,
            Err(error) => return Err((told, error)),
        };
        let reads_per_frame = cache.blocks_per_page() * BLOCK_BYTES / order.block_bytes;
        let frames_max = order.in_flight.div_ceil(reads_per_frame);
        let frames: Vec<_> = (0..frames_max).map_while(|_| cache.lend_frame()).collect();
        let places = order.in_flight.min(frames.len() as u32 * reads_per_frame);
        if places == 0 {
            return Err((told, MeasureError::NoMemory));
        }
        Ok(Self {
            order,
            told,
            runs,
            rng,
            begin_ns: now_ns,
            frames,
            reads_per_frame,
            places_free: (0..places).collect(),
            places,
            first_ns: None,
            last_ns: now_ns,
            reads: 0,
            failed: None,
        })
    }

    fn goes_on(&self, now_ns: u64) -> bool {
        let passed_ns = now_ns - self.begin_ns;
        passed_ns < self.order.for_ns || (self.reads < READS_MIN && passed_ns < LONGER * self.order.for_ns)
    }

    /// The blocks to read next, and the number of the place to read them into; `None` while as many reads are in flight as there should be, and at the end.
    fn next(&mut self, now_ns: u64) -> Option<(CachedRun, u32)> {
        if !self.goes_on(now_ns) || self.failed.is_some() {
            return None;
        }
        let place = self.places_free.pop()?;
        Some((self.runs[self.rng.below(self.runs.len() as u32) as usize], place))
    }

    /// Frame and byte of a place.
    fn place(&self, place: u32) -> (FrameId, u32) {
        let at = place % self.reads_per_frame * self.order.block_bytes;
        (self.frames[(place / self.reads_per_frame) as usize], at)
    }

    /// The read into that place ended.
    fn ended(&mut self, now_ns: u64, place: u32, result: Result<(), IoError>) {
        self.places_free.push(place);
        if let Err(error) = result {
            self.failed = Some(error);
        }
        if !self.goes_on(now_ns) {
            // Fewer are in flight than should be.
            return;
        }
        match self.first_ns {
            None if now_ns >= self.begin_ns + self.order.for_ns / 5 => self.first_ns = Some(now_ns),
            // What ended together with the first belongs to the time before.
            Some(first_ns) if now_ns > first_ns => {
                self.reads += 1;
                self.last_ns = now_ns;
            }
            _ => {}
        }
    }

    /// Whether nothing is in flight: at the end.
    fn is_over(&self) -> bool {
        self.places_free.len() == self.places as usize
    }

    /// Gives back what was lent, and tells whoever asked.
    fn end(self, cache: &mut Cache) {
        for frame in self.frames {
            cache.take_back_frame(frame);
        }
        let counted = self.first_ns.filter(|_| self.reads > 0);
        let result = match (self.failed, counted) {
            (Some(error), _) => Err(MeasureError::Failed(error)),
            (None, None) => Err(MeasureError::TooSlow),
            (None, Some(first_ns)) => {
                let elapsed_ns = self.last_ns - first_ns;
                Ok(Measured { in_flight: self.places, reads: self.reads, elapsed_ns })
            }
        };
        // Whoever asked may have given up.
        let _ = self.told.send(result);
    }
}

/// Blocks to read: slots are looked at from a place drawn by lot on.
fn runs(order: MeasureOrder, cache: &Cache, rng: &mut Rng) -> Result<Vec<CachedRun>, MeasureError> {
    let blocks = order.block_bytes / BLOCK_BYTES;
    let is_sound = order.block_bytes.is_multiple_of(BLOCK_BYTES)
        && (1..=cache.blocks_per_page()).contains(&blocks)
        && (1..=IN_FLIGHT_MAX).contains(&order.in_flight);
    if !is_sound {
        return Err(MeasureError::Invalid);
    }
    let gauges = cache.gauges();
    if !gauges.disk_attached {
        return Err(MeasureError::NoDisk);
    }
    let slots = gauges.disk_pages_max;
    // Whole stretches would leave out what was cached at another time.
    let stretches = slots.div_ceil(SLOTS_MAX).max(1);
    let from = rng.below(stretches);
    let looked_at = (from..slots).step_by(stretches as usize).map(SlotId);
    let found = looked_at.filter_map(|slot| cache.cached_run(order.volume, slot, blocks));
    let runs: Vec<_> = found.take(RUNS_MAX).collect();
    if runs.len() < RUNS_MIN { Err(MeasureError::TooLittleCached { found: runs.len() }) } else { Ok(runs) }
}

impl<R: Reactor, F: Front> Shard<R, F> {
    pub(super) fn begin_measure(
        &mut self,
        now_ns: u64,
        order: MeasureOrder,
        told: Sender<Result<Measured, MeasureError>>,
    ) {
        let begun = match self.measure {
            Some(_) => Err((told, MeasureError::Busy)),
            None => Measure::new(now_ns, order, &mut self.parts.cache, told),
        };
        match begun {
            Ok(measure) => {
                self.measure = Some(measure);
                self.go_on_measuring(now_ns);
            }
            // Whoever asked may have given up.
            Err((told, error)) => drop(told.send(Err(error))),
        }
    }

    pub(super) fn measured(&mut self, now_ns: u64, token: u64, result: Result<(), IoError>) {
        let measure = self.measure.as_mut().expect("its reads end before it does");
        measure.ended(now_ns, (token & !TOKEN) as u32, result);
        self.go_on_measuring(now_ns);
    }

    /// Keeps as many reads in flight as were asked for, until it is over.
    fn go_on_measuring(&mut self, now_ns: u64) {
        let Some(mut measure) = self.measure.take() else { return };
        let MeasureOrder { volume, path, block_bytes, .. } = measure.order;
        while let Some((run, place)) = measure.next(now_ns) {
            let disk = self.parts.disk.as_mut().filter(|_| path == Path::DISK);
            let start = match &disk {
                Some(disk) => disk.format.layout().slot_offset(u64::from(run.slot.0)),
                None => run.page_start,
            };
            let offset = start + u64::from(run.first_block * BLOCK_BYTES);
            let (frame, at) = measure.place(place);
            let (token, length) = (TOKEN | u64::from(place), u64::from(block_bytes));
            let op = DeviceOp { token, kind: OpKind::Read, offset, length, frame, at };
            match disk {
                Some(disk) => disk.device.submit(now_ns, op),
                None => self.parts.backends[volume.index()].submit(now_ns, op),
            }
        }
        if measure.is_over() {
            measure.end(&mut self.parts.cache);
        } else {
            self.measure = Some(measure);
        }
    }
}
