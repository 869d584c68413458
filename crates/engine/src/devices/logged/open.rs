//! Finding the log again: its tail, its groups, where it ends; then the disk and the back end are flushed, and a new life
//! begins.
//!
//! How: [`forebay_core::log::Scan`] says where the next group would lie; the ring is read once, from the tail on, in
//! long pieces and ahead ([`super::pieces`]). Sums of bytes decide only about groups that nobody knew to be durable.
//!
//! Blocking: nothing is served yet.

use std::ops::Range;

use forebay_core::log::logged::{Buffer, KnownRegions, Logged, OnDisk, Opening, RegionImage, regions_of};
use forebay_core::log::{FoundGroup, Kind, Log, Record, Ring, Scan, Tail};
use forebay_wire::disk::log::{Content, Found, Group, decode};
use forebay_wire::disk::log_tail::{self, LogTail, TAILS_BYTES};

use super::loss::Told;
use super::memory::{BLOCK_SECTORS, Buffers, CONFIG, sums_of};
use super::pieces::Pieces;
use super::regions::RegionStore;
use super::{
    GROUP_SECTORS_MAX, LogControl, LogSnapshot, LogStatus, LoggedDevice, LoggedParts, LossSnapshot, LossStatus,
    OPERATIONS_MAX, SECTOR_BYTES, limits,
};
use crate::device::{self, Device, DeviceOp, FrameId, Geometry, IoError, OpKind};
use crate::devices::pending::Pending;
use crate::reactor::Reactor;

/// The log's part of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// First byte; a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes; a multiple of 4 KiB.
    pub bytes: u64,
    /// What checksums start from: the cache's.
    pub seed: u32,
    /// The volume's space.
    pub space: u32,
    /// It may hold what the back end lacks. If not, whatever lies there may be somebody else's.
    pub in_use: bool,
}

impl LogPlace {
    pub(super) fn ring_sectors(&self) -> u64 {
        (self.bytes - TAILS_BYTES as u64) / SECTOR_BYTES
    }

    /// The byte of the disk where a position lies.
    pub(super) fn offset_of(&self, position: u64) -> u64 {
        self.offset + TAILS_BYTES as u64 + position % self.ring_sectors() * SECTOR_BYTES
    }
}

/// A log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogOpenError {
    /// It lies badly, or is too short.
    #[error(
        "the write-back log has {bytes} bytes at {offset}: give it a multiple of 4096 at a multiple of 4096, at least {least}"
    )]
    Place {
        /// Where.
        offset: u64,
        /// How long.
        bytes: u64,
        /// How long it must be.
        least: u64,
    },
    /// Its disk cannot be used for it.
    #[error("the write-back log's disk has sectors of {0} bytes: use one with sectors of 512")]
    Sectors(u32),
    /// Neither copy of its tail can be believed.
    #[error("where the write-back log begins cannot be read: it may hold what the back end lacks; see `forebay fsck`")]
    TailDamaged,
    /// Its copies cannot be made equal.
    #[error(
        "the copies of the write-back log cannot be brought to tell the same: check cache disk and mirror, and replace the one that fails"
    )]
    CopiesDiffer,
    /// The region map cannot be written.
    #[error("the region map of the write-back log cannot be written: make the state directory writable")]
    Regions,
    /// An operation failed.
    #[error("the write-back log cannot be {doing}: {error:?}")]
    Io {
        /// Which.
        doing: &'static str,
        /// How.
        error: IoError,
    },
}

/// One operation, waited for.
fn carry_out(
    device: &mut dyn Device,
    reactor: &mut dyn Reactor,
    op: DeviceOp,
    doing: &'static str,
) -> Result<(), LogOpenError> {
    device::carry_out(device, reactor, op).map_err(|error| LogOpenError::Io { doing, error })
}

/// Writes the region map, and waits for it.
fn keep(
    regions: Option<&mut (dyn RegionStore + 'static)>,
    reactor: &mut dyn Reactor,
    image: &RegionImage,
) -> Result<(), LogOpenError> {
    let Some(regions) = regions else { return Ok(()) };
    regions.begin(image.clone());
    loop {
        if let Some(result) = regions.poll() {
            return result.map_err(|_| LogOpenError::Regions);
        }
        let soon_ns = reactor.now_ns() + 1_000_000;
        reactor.wait(regions.next_ns().unwrap_or(soon_ns).min(soon_ns));
    }
}

fn flush(token: u64) -> DeviceOp {
    DeviceOp { token, kind: OpKind::Flush, offset: 0, length: 0, frame: FrameId(0), at: 0 }
}

/// The tail's copies.
fn tails(
    disk: &mut dyn Device,
    buffers: &Buffers,
    place: &LogPlace,
    reactor: &mut dyn Reactor,
) -> Result<Vec<u8>, LogOpenError> {
    let span = buffers.span(Buffer::Group(0), 0);
    let op = DeviceOp { kind: OpKind::Read, offset: place.offset, length: TAILS_BYTES as u64, ..flush(0) };
    carry_out(disk, reactor, buffers.placed(op, span), "read")?;
    let mut copies = vec![0; TAILS_BYTES];
    buffers.take(span, &mut copies);
    Ok(copies)
}

fn unread(error: IoError) -> LogOpenError {
    LogOpenError::Io { doing: "read", error }
}

/// A group as it was found, by itself.
struct Kept {
    position: u64,
    first: u64,
    epoch: u64,
    durable: u64,
    life: u64,
    records: Vec<Record>,
    sums: Vec<Vec<u32>>,
    /// In sectors.
    descriptor: u64,
    sectors: u64,
}

impl Kept {
    /// The group at a position, if one is there.
    fn at(pieces: &mut Pieces<'_>, place: &LogPlace, position: u64, is_next: bool) -> Result<Option<Self>, IoError> {
        let mut bytes = pieces.sectors(position, 1, is_next)?;
        if let Found::Longer(all) = decode(place.seed, place.space, position, &bytes) {
            bytes = pieces.sectors(position, all as u64, is_next)?;
        }
        match decode(place.seed, place.space, position, &bytes) {
            Found::Group(group) => Ok(Some(Self::of(&group, (bytes.len() as u64) / SECTOR_BYTES))),
            Found::Longer(_) | Found::End => Ok(None),
        }
    }

    fn of(group: &Group<'_>, descriptor: u64) -> Self {
        let head = *group.head();
        let mut kept = Self {
            descriptor,
            sectors: u64::from(head.sectors),
            position: head.position,
            first: head.first_record,
            epoch: head.epoch,
            durable: head.durable,
            life: head.life,
            records: Vec::new(),
            sums: Vec::new(),
        };
        for placed in group.records() {
            let kind = match placed.record.content {
                Content::Data => Kind::Data,
                Content::Zero { no_hole } => Kind::Zero { no_hole },
            };
            let mut record = Record::new(placed.record.first, placed.record.sectors, kind);
            record.boundary = placed.record.boundary;
            kept.records.push(record);
            kept.sums.push(placed.crcs.map(|at| group.crc(at)).collect());
        }
        kept
    }

    fn found(&self) -> FoundGroup<'_> {
        let Self { position, first, epoch, durable, life, records, .. } = self;
        FoundGroup { position: *position, first: *first, records, epoch: *epoch, durable: *durable, life: *life }
    }
}

/// What a scan found.
struct FoundLog {
    log: Log,
    sums: Vec<Vec<u32>>,
    /// Positions from the first group that nobody knew to be durable to the log's end.
    unverified: Range<u64>,
}

impl FoundLog {
    fn is_as(&self, other: &Self) -> bool {
        let ends = [self, other].map(|it| (it.log.next(), &it.unverified));
        ends[0] == ends[1] && self.sums == other.sums
    }
}

/// All groups from the tail on, and the log that they make.
fn scan(pieces: &mut Pieces<'_>, place: &LogPlace, tail: Tail, life: u64) -> Result<FoundLog, IoError> {
    let mut scan = Scan::new(limits(place.bytes), Ring::new(place.ring_sectors(), tail.position), tail);
    let mut kept: Vec<(Kept, bool)> = Vec::new();
    loop {
        let [next, wrapped] = scan.next();
        let mut here: Vec<Kept> = Kept::at(pieces, place, next, true)?.into_iter().collect();
        if wrapped != next {
            here.extend(Kept::at(pieces, place, wrapped, false)?);
        }
        let found: Vec<FoundGroup<'_>> = here.iter().map(Kept::found).collect();
        let Some(at) = scan.found_one_of(&found) else { break };
        let group = here.swap_remove(at);
        // What it says of later groups is not known yet: whether it must be whole turns out in the end.
        let is_whole = match pieces.sectors(group.position, group.sectors, true) {
            Ok(bytes) => group.is_whole(&bytes, place.space),
            Err(_) => group.is_whole_where_it_is_read(pieces, place.space),
        };
        kept.push((group, is_whole));
    }
    let is_whole = |position: u64| {
        let at = kept.binary_search_by_key(&position, |(group, _)| group.position);
        at.is_ok_and(|at| kept[at].1)
    };
    let groups = scan.unverified();
    let torn = groups.iter().map(|group| group.position).find(|position| !is_whole(*position));
    if let Some(position) = torn {
        scan.cut(position);
    }
    let [end, _] = scan.next();
    let unverified = groups.first().map_or(end, |group| group.position.min(end))..end;
    let log = scan.into_log(life);
    let sums = kept.into_iter().flat_map(|(group, _)| (group.first..).zip(group.sums));
    let inside = tail.first..log.next();
    let sums = sums.filter(|(id, _)| inside.contains(id)).map(|(_, sums)| sums).collect();
    Ok(FoundLog { log, sums, unverified })
}

/// Scans, and sees to it that all copies tell what was found. What is made equal need not be what was scanned, if a part of a copy
/// cannot be read; so it is looked at again, until both are the same.
fn find(
    disk: &mut dyn Device,
    buffers: &Buffers,
    place: LogPlace,
    reactor: &mut dyn Reactor,
    tail: Tail,
    life: u64,
) -> Result<FoundLog, LogOpenError> {
    let mut before: Option<FoundLog> = None;
    for _ in 0..SCANS_MAX {
        let mut pieces = Pieces::new(disk, buffers, place, reactor);
        let found = scan(&mut pieces, &place, tail, life);
        pieces.end();
        let found = found.map_err(unread)?;
        if !disk.has_copies() || before.is_some_and(|before| before.is_as(&found)) {
            return Ok(found);
        }
        make_equal(disk, buffers, &place, reactor, &found.unverified)?;
        before = Some(found);
    }
    Err(LogOpenError::CopiesDiffer)
}

/// Writes again what the disk's copies may differ in, as it was found: the groups that nobody knew to be durable, and where the
/// next group would lie, so that no copy has one there that the others lack. Tails need it not: the next one is on every copy
/// before anything rests on it.
fn make_equal(
    disk: &mut dyn Device,
    buffers: &Buffers,
    place: &LogPlace,
    reactor: &mut dyn Reactor,
    unverified: &Range<u64>,
) -> Result<(), LogOpenError> {
    let ring = place.ring_sectors();
    let behind = (unverified.end - unverified.start + GROUP_SECTORS_MAX).min(ring);
    for (first, sectors) in [(unverified.start, behind), (0, GROUP_SECTORS_MAX)] {
        let mut at = first;
        while at < first + sectors {
            let length = GROUP_SECTORS_MAX.min(first + sectors - at).min(ring - at % ring);
            let span = buffers.span(Buffer::LogRead(0), at % 8);
            let (kind, offset) = (OpKind::Read, place.offset_of(at));
            let read = DeviceOp { kind, offset, length: length * SECTOR_BYTES, ..flush(0) };
            // What no copy can be read of is equal enough.
            if device::carry_out(disk, reactor, buffers.placed(read, span)).is_ok() {
                let write = DeviceOp { kind: OpKind::Write { fua: false }, ..read };
                carry_out(disk, reactor, buffers.placed(write, span), "written")?;
            }
            at += length;
        }
    }
    Ok(())
}

impl Kept {
    /// Whether the bytes of a group are those that were written.
    fn is_whole(&self, bytes: &[u8], space: u32) -> bool {
        let mut payload = bytes.get((self.descriptor * SECTOR_BYTES) as usize..).unwrap_or_default();
        for (record, known) in self.records.iter().zip(&self.sums) {
            if record.kind != Kind::Data {
                continue;
            }
            let length = (u64::from(record.sectors) * SECTOR_BYTES) as usize;
            let Some((bytes, rest)) = payload.split_at_checked(length) else { return false };
            if !sums_of(space, record.range(), bytes).eq(known.iter().copied()) {
                return false;
            }
            payload = rest;
        }
        true
    }

    /// The same, block by block. What cannot be read is not torn for that: it may have been answered. A read of it fails.
    fn is_whole_where_it_is_read(&self, pieces: &mut Pieces<'_>, space: u32) -> bool {
        let mut position = self.position + self.descriptor;
        for (record, known) in self.records.iter().zip(&self.sums) {
            let mut left = record.range();
            for known in known {
                let block = left.start..(left.start / BLOCK_SECTORS * BLOCK_SECTORS + BLOCK_SECTORS).min(left.end);
                let sectors = block.end - block.start;
                let bytes = pieces.sectors(position, sectors, false);
                if bytes.is_ok_and(|bytes| !sums_of(space, block.clone(), &bytes).eq([*known])) {
                    return false;
                }
                (position, left.start) = (position + sectors, block.end);
            }
        }
        true
    }
}

/// How often copies are looked at until they tell the same.
const SCANS_MAX: u32 = 4;

/// The shortest log.
fn least_bytes() -> u64 {
    TAILS_BYTES as u64 + 2 * GROUP_SECTORS_MAX * SECTOR_BYTES
}

/// Whether a log may have what the back end lacks.
fn may_have(known: &KnownRegions) -> bool {
    match known {
        KnownRegions::None => true,
        KnownRegions::Same(image) | KnownRegions::OfAnother(image) => !image.dirty.is_empty(),
    }
}

impl LoggedDevice {
    /// Finds the log, or begins one where nothing was ever written, and goes on with it. Blocks.
    ///
    /// # Errors
    /// See [`LogOpenError`].
    pub fn open(parts: LoggedParts, reactor: &mut dyn Reactor) -> Result<Self, LogOpenError> {
        let LoggedParts { mut disk, place, mut backend, arena, first_frame, mut regions } = parts;
        let least = least_bytes();
        let aligned = place.offset.is_multiple_of(4096) && place.bytes.is_multiple_of(4096);
        if !aligned || place.bytes < least || place.offset + place.bytes > disk.geometry().bytes {
            return Err(LogOpenError::Place { offset: place.offset, bytes: place.bytes, least });
        }
        if disk.geometry().sector_bytes != 512 {
            return Err(LogOpenError::Sectors(disk.geometry().sector_bytes));
        }
        let buffers = Buffers::new(arena, first_frame);
        let copies = tails(&mut *disk, &buffers, &place, reactor)?;
        let known = regions.as_ref().map_or(&KnownRegions::None, |store| store.known());
        let (on_disk, sequence) = match log_tail::newest(place.seed, place.space, &copies) {
            log_tail::Found::Tail(LogTail { sequence, life, position, first_record, group_life, .. }) => {
                let tail = Tail { position, first: first_record, life: group_life };
                (Some(OnDisk { life, tail }), sequence)
            }
            log_tail::Found::Blank | log_tail::Found::Damaged if !place.in_use || !may_have(known) => (None, 0),
            log_tail::Found::Blank | log_tail::Found::Damaged => return Err(LogOpenError::TailDamaged),
        };
        let below = backend.geometry();
        let Opening { life, tail, mut image } = Opening::decide(known, on_disk, below.bytes / SECTOR_BYTES);
        let begins = tail.is_none();
        let (log, sums) = match tail {
            Some(tail) => {
                let FoundLog { log, sums, .. } = find(&mut *disk, &buffers, place, reactor, tail, life)?;
                (log, sums)
            }
            None => (Log::new(limits(place.bytes), Ring::new(place.ring_sectors(), 0), life), Vec::new()),
        };
        for id in log.first()..log.next() {
            image.dirty.insert_all(regions_of(&log.record(id).range()));
        }
        let Tail { position, first, .. } = tail.unwrap_or_default();
        let tail = LogTail {
            sequence: sequence + 1,
            space: place.space,
            position,
            first_record: first,
            life,
            group_life: log.tail().life,
        };
        // The order matters, whatever happens between: see [`Opening`].
        if begins {
            keep(regions.as_deref_mut(), reactor, &image)?;
        }
        carry_out(&mut *disk, reactor, flush(0), "flushed")?;
        carry_out(&mut *disk, reactor, buffers.tail(&place, &tail), "written")?;
        if !begins {
            keep(regions.as_deref_mut(), reactor, &image)?;
        }
        // What lost records have left there stays.
        carry_out(&mut *backend, reactor, flush(0), "begun, because its back end does not flush")?;
        let mut logged = Logged::new(CONFIG, log, &sums);
        if regions.is_some() {
            logged.keep_regions(image);
        }
        let sequence = tail.sequence;
        Ok(Self::of(logged, Below { disk, place, backend, buffers, regions, life, sequence }, reactor))
    }

    fn of(logged: Logged, below: Below, reactor: &dyn Reactor) -> Self {
        let Below { disk, place, backend, buffers, regions, life, sequence } = below;
        let (status, loss) = (LogStatus::default(), LossStatus::default());
        status.set(LogSnapshot::of(&logged, reactor.now_ns()));
        loss.set(LossSnapshot::of(&logged));
        Self {
            geometry: Geometry { sector_bytes: 512, can_trim: true, can_zero: true, ..backend.geometry() },
            logged,
            regions,
            writes_regions: None,
            disk,
            backend,
            place,
            life,
            tail_sequence: sequence,
            buffers,
            pending: Pending::new(OPERATIONS_MAX),
            notes: Vec::new(),
            ended: Vec::new(),
            ended_below: Vec::new(),
            tick_ns: 0,
            control: LogControl::default(),
            control_version: 0,
            status,
            loss,
            told: Told::default(),
            passed_and_lost: Vec::new(),
            is_stale: true,
            status_ns: 0,
            gathers: false,
        }
    }
}

/// What an opened log lies over.
struct Below {
    disk: Box<dyn Device>,
    place: LogPlace,
    backend: Box<dyn Device>,
    buffers: Buffers,
    regions: Option<Box<dyn RegionStore>>,
    life: u64,
    sequence: u64,
}
