//! Logged: a back end behind a write-back log on a local disk.
//!
//! What to do is decided by [`forebay_core::log::logged`]. Here its orders are carried out: groups are gathered and
//! encoded, what is read of the log is summed up, runs go to the back end. To the layers above it is a device like any other;
//! its flush makes the log durable, and the back end follows.
//!
//! | file | what |
//! |---|---|
//! | `mod` | requests, orders, their ends |
//! | `open` | finding the log again |
//! | `memory` | buffers in frames of the shard's arena |
//! | `loss` | what is lost, for other threads |
//! | `regions` | who keeps the region map, beside the configuration |
//! | `status` | how the log is, for other threads |
//! | `control` | what its owner chooses, from other threads |
//!
//! Limits: the log's disk has sectors of 512 bytes. All of a log's reads go through a buffer and are copied once.

mod control;
mod loss;
mod memory;
mod open;
mod pieces;
mod regions;
mod status;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use forebay_core::log::logged::{Buffer, Logged, Memory, Order, OrderId, Request, Wish};
use forebay_core::log::{GROUP_RECORDS_MAX, Group, Kind, LogLimits, Tail};
use forebay_uring::Arena;
use forebay_wire::disk::log::{self, Content, GroupHead, GroupRecord};
use forebay_wire::disk::log_tail::LogTail;

use super::check::check;
use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, ForWhom, Geometry, IoError, OpKind};
pub use control::LogControl;
pub use forebay_core::log::logged::{Health, KnownRegions, LostExtent};
pub use loss::{LISTED_MAX, LossSnapshot, LossStatus};
use memory::{BlockSums, Buffers, Span};
pub use open::{LogOpenError, LogPlace};
pub use regions::{MemoryRegions, RegionStore};
pub use status::{LogSnapshot, LogStatus};

const SECTOR_BYTES: u64 = 512;
/// Sectors of a record; a longer write becomes several.
const RECORD_SECTORS_MAX: u64 = 512;
/// Sectors of a group.
const GROUP_SECTORS_MAX: u64 = 1_024;
/// Groups under way.
const GROUPS_MAX: usize = 2;
/// Core bounds groups as the disk's format does, and counts their sectors alike.
const _: () = assert!(GROUP_RECORDS_MAX == log::GROUP_RECORDS_MAX as u64);
/// Operations in hand; more are refused.
const OPERATIONS_MAX: u32 = 65_536;
/// How often time is looked at while the back end has not followed.
const TICK_NS: u64 = 50_000_000;
/// How often the status is written while much happens.
const STATUS_NS: u64 = 1_000_000;

/// What a log of so many bytes may hold, and what of it may be under way.
fn limits(log_bytes: u64) -> LogLimits {
    LogLimits {
        records_max: LogLimits::records_max_of(log_bytes),
        epoch_records_max: (LogLimits::records_max_of(log_bytes) / 16).min(4_096),
        epoch_sectors_max: log_bytes / SECTOR_BYTES / 16,
        group_sectors_max: GROUP_SECTORS_MAX,
        groups_max: GROUPS_MAX,
    }
}

/// A client's operation.
#[derive(Debug)]
struct Job {
    op: DeviceOp,
    /// Requests of it that are not answered.
    left: u32,
    result: Result<(), IoError>,
}

/// What is needed when an order ends.
#[derive(Debug, Default)]
enum Note {
    #[default]
    Nothing,
    /// The checksums of a group.
    Group(Vec<u32>),
    /// Sectors of the volume that were read into a buffer.
    Read { span: Span, sectors: std::ops::Range<u64> },
}

/// What a logged device is made of.
pub struct LoggedParts {
    /// The disk with the log.
    pub disk: Box<dyn Device>,
    /// Where it lies there.
    pub place: LogPlace,
    /// What follows.
    pub backend: Box<dyn Device>,
    /// The arena that both move bytes through.
    pub arena: Rc<Arena>,
    /// The first of [`LoggedDevice::frames`] frames of it that are nobody else's.
    pub first_frame: u32,
    /// Who keeps the region map. Without one nobody knows what the loss of the disk and of the process costs.
    pub regions: Option<Box<dyn RegionStore>>,
}

/// See the module.
pub struct LoggedDevice {
    logged: Logged,
    regions: Option<Box<dyn RegionStore>>,
    /// The order that the region map is being written for.
    writes_regions: Option<OrderId>,
    disk: Box<dyn Device>,
    backend: Box<dyn Device>,
    place: LogPlace,
    /// Attaches of the log, this one included.
    life: u64,
    /// The tail written last.
    tail_sequence: u64,
    buffers: Buffers,
    geometry: Geometry,
    pending: Pending<Job>,
    notes: Vec<Note>,
    ended: Vec<DeviceDone>,
    ended_below: Vec<DeviceDone>,
    tick_ns: u64,
    control: LogControl,
    /// Of the control, what was taken up last.
    control_version: u64,
    status: LogStatus,
    loss: LossStatus,
    told: loss::Told,
    /// Bytes that passed the log and were lost, not told to the layer above.
    passed_and_lost: Vec<std::ops::Range<u64>>,
    /// Something happened that the status does not tell.
    is_stale: bool,
    status_ns: u64,
    /// Changes were taken since orders were last carried out: they gather until the next poll.
    gathers: bool,
}

/// The token of a request: its operation, and which of its parts.
fn token_of(index: u32, part: u64) -> u64 {
    u64::from(index) | part << 32
}

impl LoggedDevice {
    /// Frames of so many bytes that a device needs for itself.
    #[must_use]
    pub fn frames(frame_bytes: u32) -> u32 {
        Buffers::frames(frame_bytes)
    }

    /// What a log of so many bytes costs in memory besides its frames, when it is full.
    #[must_use]
    pub fn memory_bytes(log_bytes: u64) -> u64 {
        limits(log_bytes).memory_bytes(log_bytes)
    }

    /// How the log is, for other threads.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.status.clone()
    }

    /// Its policy, for other threads. At first nothing passes the log, and the log is enough for a flush.
    #[must_use]
    pub fn control(&self) -> LogControl {
        self.control.clone()
    }

    fn take_policy(&mut self, now_ns: u64) {
        if let Some(policy) = self.control.since(&mut self.control_version) {
            self.logged.set_policy(now_ns, policy);
            if self.control.rests() {
                self.logged.rest();
            }
            self.is_stale = true;
        }
    }

    /// What passed the log and was lost may be a part of a write that is not answered yet: its client must not take it for done.
    fn take_passed_and_lost(&mut self) {
        let first = self.passed_and_lost.len();
        self.passed_and_lost.extend(self.logged.in_doubt().map(bytes_of));
        for lost in &self.passed_and_lost[first..] {
            for job in self.pending.iter_mut() {
                let changes = !matches!(job.op.kind, OpKind::Read | OpKind::Flush);
                if changes && job.op.offset < lost.end && lost.start < job.op.offset + job.op.length {
                    job.result = Err(IoError::Lost);
                }
            }
        }
    }

    fn tell(&mut self, now_ns: u64) {
        let is_due = now_ns >= self.status_ns || self.logged.is_idle();
        if self.is_stale && is_due {
            (self.is_stale, self.status_ns) = (false, now_ns + STATUS_NS);
            self.status.set(LogSnapshot::of(&self.logged, now_ns));
            self.loss.set(LossSnapshot::of(&self.logged));
            self.told.tell(self.regions.as_ref().map_or("", |regions| regions.volume()), &self.logged);
        }
    }

    /// What is lost, for other threads; there it can be accepted, too.
    #[must_use]
    pub fn loss(&self) -> LossStatus {
        self.loss.clone()
    }

    /// The state of the log.
    #[must_use]
    pub fn logged(&self) -> &Logged {
        &self.logged
    }

    fn act(&mut self, now_ns: u64) {
        self.gathers = false;
        while let Some(order) = self.logged.next_order(now_ns) {
            self.perform(now_ns, order);
        }
    }

    fn perform(&mut self, now_ns: u64, order: Order) {
        match order {
            Order::WriteGroup { id, group, buffer } => self.write_group(now_ns, id, &group, buffer),
            Order::FlushLog { id } => self.disk.submit(now_ns, plain(id, OpKind::Flush, 0, 0)),
            Order::WriteTail { id, tail } => self.write_tail(now_ns, id, tail),
            Order::ReadLog { id, buffer, position, sectors, is_demand } => {
                let span = self.buffers.span(buffer, position % 8);
                let length = (sectors.end - sectors.start) * SECTOR_BYTES;
                self.note(id, Note::Read { span, sectors });
                let op = plain(id, OpKind::Read, self.place.offset_of(position), length);
                let whom = ForWhom { volume: None, is_demand };
                self.disk.submit_for(now_ns, whom, self.buffers.placed(op, span));
            }
            Order::Copy { from, to, sectors } => {
                let (from, to) = (self.span(from.memory, from.skip), self.span(to.memory, to.skip));
                self.buffers.copy(from, to, sectors * SECTOR_BYTES);
            }
            Order::Clear { at, sectors } => {
                let span = self.span(at.memory, at.skip);
                self.buffers.clear(span, sectors * SECTOR_BYTES);
            }
            Order::ReadBackend { id, to, sectors } => {
                let span = self.span(to.memory, to.skip);
                self.backend.submit(now_ns, self.buffers.placed(of_sectors(id, OpKind::Read, &sectors), span));
            }
            Order::WriteBackend { id, from, sectors } => {
                let span = self.span(from.memory, from.skip);
                let op = of_sectors(id, OpKind::Write { fua: false }, &sectors);
                self.backend.submit(now_ns, self.buffers.placed(op, span));
            }
            Order::ZeroBackend { id, sectors, no_hole } => {
                let kind = OpKind::WriteZeroes { fua: false, no_hole };
                self.backend.submit(now_ns, of_sectors(id, kind, &sectors));
            }
            Order::FlushBackend { id } => self.backend.submit(now_ns, plain(id, OpKind::Flush, 0, 0)),
            Order::WriteRegions { id, image } => {
                self.writes_regions = Some(id);
                self.regions.as_mut().expect("who orders it knows of a region map").begin(*image);
            }
            Order::Answer { token, result } => self.answered(token, result),
        }
    }

    /// Whether the region map was written.
    fn poll_regions(&mut self, now_ns: u64) {
        if let Some(id) = self.writes_regions
            && let Some(result) = self.regions.as_mut().and_then(|store| store.poll())
        {
            self.writes_regions = None;
            self.is_stale = true;
            self.logged.done(now_ns, id, result, &[]);
        }
    }

    fn note(&mut self, id: OrderId, note: Note) {
        let at = id.0 as usize;
        if self.notes.len() <= at {
            self.notes.resize_with(at + 1, Note::default);
        }
        self.notes[at] = note;
    }

    /// Where the bytes of either lie.
    fn span(&mut self, memory: Memory, skip: u64) -> Span {
        match memory {
            Memory::Driver(buffer) => self.buffers.span(buffer, skip),
            Memory::Client(token) => {
                let op = self.pending.get_mut(token as u32).op;
                let sector = (token >> 32) * RECORD_SECTORS_MAX + skip;
                self.buffers.within(op.frame, u64::from(op.at) + sector * SECTOR_BYTES)
            }
        }
    }

    /// Gathers a group's bytes, sums them up, and writes it.
    fn write_group(&mut self, now_ns: u64, id: OrderId, group: &Group, buffer: Buffer) {
        let begin = self.buffers.span(buffer, group.position % 8);
        let records: Vec<_> = self.logged.group(group).map(|(record, token)| (*record, token)).collect();
        let mut encoded = Vec::with_capacity(records.len());
        let mut sums = BlockSums::new(self.place.space);
        let mut to = self.buffers.span(buffer, group.position % 8 + group.descriptor_sectors);
        for (record, token) in &records {
            let content = match record.kind {
                Kind::Data => Content::Data,
                Kind::Zero { no_hole } => Content::Zero { no_hole },
            };
            encoded.push(GroupRecord {
                first: record.first,
                sectors: record.sectors,
                content,
                boundary: record.boundary,
            });
            if record.kind == Kind::Data {
                let from = self.span(Memory::Client(*token), 0);
                self.buffers.move_summed(from, to, record.range(), &mut sums);
                to = self.buffers.behind(to, u64::from(record.sectors) * SECTOR_BYTES);
            }
        }
        let head = GroupHead {
            space: self.place.space,
            position: group.position,
            first_record: group.records.start,
            epoch: group.epoch,
            durable: self.logged.durable(group),
            tail: self.logged.log().tail().position,
            sectors: group.sectors as u32,
            life: group.life,
        };
        let mut descriptor = vec![0; (group.descriptor_sectors * SECTOR_BYTES) as usize];
        log::encode(self.place.seed, &head, &encoded, &sums.list, &mut descriptor);
        self.buffers.put(begin, &descriptor);
        self.note(id, Note::Group(sums.list));
        let kind = OpKind::Write { fua: false };
        let op = plain(id, kind, self.place.offset_of(group.position), group.sectors * SECTOR_BYTES);
        self.disk.submit(now_ns, self.buffers.placed(op, begin));
    }

    fn write_tail(&mut self, now_ns: u64, id: OrderId, tail: Tail) {
        self.tail_sequence += 1;
        let tail = LogTail {
            sequence: self.tail_sequence,
            space: self.place.space,
            position: tail.position,
            first_record: tail.first,
            life: self.life,
            group_life: tail.life,
        };
        let op = self.buffers.tail(&self.place, &tail);
        self.disk.submit(now_ns, DeviceOp { token: u64::from(id.0), ..op });
    }

    fn answered(&mut self, token: u64, result: Result<(), IoError>) {
        let index = token as u32;
        let job = self.pending.get_mut(index);
        job.left -= 1;
        job.result = job.result.and(result);
        if job.left == 0 {
            let job = self.pending.remove(index);
            self.ended.push(DeviceDone { token: job.op.token, result: job.result });
        }
    }

    /// An order ended below.
    fn ended(&mut self, now_ns: u64, done: &DeviceDone) {
        let at = done.token as usize;
        let note = self.notes.get_mut(at).map(std::mem::take).unwrap_or_default();
        let sums = match note {
            Note::Nothing => Vec::new(),
            Note::Group(sums) => sums,
            Note::Read { span, sectors } if done.result.is_ok() => {
                let mut sums = BlockSums::new(self.place.space);
                self.buffers.sum(span, sectors, &mut sums);
                sums.list
            }
            Note::Read { .. } => Vec::new(),
        };
        self.logged.done(now_ns, OrderId(done.token as u32), done.result, &sums);
    }

    fn take(&mut self, now_ns: u64, op: DeviceOp, persists: bool) {
        if let Err(error) = check(&self.geometry, &op) {
            return self.ended.push(DeviceDone { token: op.token, result: Err(error) });
        }
        match self.pending.insert(Job { op, left: 1, result: Ok(()) }) {
            Ok(index) => {
                self.take_policy(now_ns);
                self.start(now_ns, index, persists);
                (self.gathers, self.is_stale) = (true, true);
                if op.kind == OpKind::Read || op.kind == OpKind::Flush {
                    self.act(now_ns);
                }
            }
            Err(job) => self.ended.push(DeviceDone { token: job.op.token, result: Err(IoError::Failed) }),
        }
    }

    /// Hands an operation to the log, in parts that fit. A flush `persists` if no client is promised anything by it.
    fn start(&mut self, now_ns: u64, index: u32, persists: bool) {
        let op = self.pending.get_mut(index).op;
        let sectors = op.offset / SECTOR_BYTES..(op.offset + op.length) / SECTOR_BYTES;
        let wish = match op.kind {
            OpKind::Read => Wish::Read,
            OpKind::Write { fua } => Wish::Write { fua },
            OpKind::Flush if persists => Wish::Persist,
            OpKind::Flush => Wish::Flush,
            OpKind::Trim { fua } => Wish::Zero { fua, no_hole: false },
            OpKind::WriteZeroes { fua, no_hole } => Wish::Zero { fua, no_hole },
        };
        let whole_sectors = sectors.end - sectors.start;
        if !matches!(wish, Wish::Write { .. }) {
            return self.logged.submit(now_ns, Request { token: token_of(index, 0), wish, sectors, whole_sectors });
        }
        let parts = whole_sectors.div_ceil(RECORD_SECTORS_MAX);
        self.pending.get_mut(index).left = parts as u32;
        for part in 0..parts {
            let first = sectors.start + part * RECORD_SECTORS_MAX;
            let sectors = first..(first + RECORD_SECTORS_MAX).min(sectors.end);
            self.logged.submit(now_ns, Request { token: token_of(index, part), wish, sectors, whole_sectors });
        }
    }
}

/// Sectors as bytes.
fn bytes_of(sectors: std::ops::Range<u64>) -> std::ops::Range<u64> {
    sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES
}

/// Of sectors of the volume.
fn of_sectors(id: OrderId, kind: OpKind, sectors: &std::ops::Range<u64>) -> DeviceOp {
    plain(id, kind, sectors.start * SECTOR_BYTES, (sectors.end - sectors.start) * SECTOR_BYTES)
}

fn plain(id: OrderId, kind: OpKind, offset: u64, length: u64) -> DeviceOp {
    DeviceOp { token: u64::from(id.0), kind, offset, length, frame: crate::device::FrameId(0), at: 0 }
}

impl Device for LoggedDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        self.take(now_ns, op, false);
    }

    fn persist(&mut self, now_ns: u64, flush: DeviceOp) {
        self.take(now_ns, flush, true);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        let mut below = std::mem::take(&mut self.ended_below);
        self.disk.poll(now_ns, &mut below);
        self.backend.poll(now_ns, &mut below);
        self.is_stale |= !below.is_empty();
        for ended in below.drain(..) {
            self.ended(now_ns, &ended);
        }
        self.ended_below = below;
        self.take_passed_and_lost();
        self.take_policy(now_ns);
        self.poll_regions(now_ns);
        if self.loss.is_accepted() {
            self.is_stale = true;
            self.logged.accept_loss();
        }
        if now_ns >= self.tick_ns {
            self.tick_ns = now_ns + TICK_NS;
            self.is_stale |= !self.logged.has_followed();
            self.logged.tick(now_ns);
        }
        self.act(now_ns);
        self.tell(now_ns);
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() || self.gathers {
            return Some(0);
        }
        let tick_ns = (!self.logged.has_followed() || self.logged.needs_ticks()).then_some(self.tick_ns);
        let regions_ns = self.writes_regions.and(self.regions.as_ref()).and_then(|store| store.next_ns());
        [regions_ns, tick_ns, self.logged.next_ns(), self.disk.next_ns(), self.backend.next_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    fn is_settled(&self) -> bool {
        self.logged.is_settled()
    }

    fn in_doubt(&mut self, doubts: &mut Vec<Doubt>) {
        // What the back end lost it had not flushed, so it is in the log still, and goes there again.
        let first = doubts.len();
        self.backend.in_doubt(doubts);
        doubts[first..].iter_mut().for_each(|doubt| doubt.is_lost = false);
        // What is cached of what is lost is not what will be read of it, when it is accepted.
        let lost = self.logged.take_lost().into_iter();
        doubts.extend(lost.map(|sectors| Doubt { range: bytes_of(sectors), is_lost: false }));
        // But what passed the log is nowhere else.
        doubts.extend(self.passed_and_lost.drain(..).map(|range| Doubt { range, is_lost: true }));
    }
}
