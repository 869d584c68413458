//! A liar stands between a logged device and one of its disks, and does what a planted bug says. Without one it passes on.

use super::bug::Bug;
use super::disk::Side;
use crate::content::SECTOR_BYTES;
use crate::dice::Dice;
use crate::medium::Medium;
use crate::span::each_part;
use forebay_engine::device::{Device, DeviceDone, DeviceOp, Geometry, OpKind};
use forebay_engine::devices::logged::LogPlace;
use forebay_uring::Arena;
use forebay_wire::disk::log::{self, Content, Found, GroupHead, GroupRecord};
use forebay_wire::disk::log_tail::{self, TAILS_BYTES};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Groups that are remembered.
const GROUPS_MAX: usize = 64;

/// A group that was sent to the log's disk.
#[derive(Clone, Debug)]
struct Sent {
    /// On the disk.
    offset: u64,
    head: GroupHead,
    records: Vec<GroupRecord>,
    crcs: Vec<u32>,
    descriptor_bytes: usize,
}

/// What a liar remembers through all lives.
#[derive(Debug)]
pub struct Lies {
    /// The log's.
    pub place: LogPlace,
    sent: RefCell<Vec<Sent>>,
}

impl Lies {
    /// None yet.
    #[must_use]
    pub fn new(place: LogPlace) -> Self {
        Self { place, sent: RefCell::default() }
    }

    fn remember(&self, op: &DeviceOp, bytes: &[u8]) {
        let position = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        let Found::Group(group) = log::decode(self.place.seed, self.place.space, position, bytes) else {
            return;
        };
        let records: Vec<GroupRecord> = group.records().map(|placed| placed.record).collect();
        let crcs: Vec<u32> =
            (0..records.iter().map(|it| it.crc_count() as usize).sum()).map(|at| group.crc(at)).collect();
        let descriptor_bytes = log::descriptor_sectors(records.len(), crcs.len()) * SECTOR_BYTES;
        let head = *group.head();
        let mut sent = self.sent.borrow_mut();
        sent.push(Sent { offset: op.offset, head, records, crcs, descriptor_bytes });
        let over = sent.len().saturating_sub(GROUPS_MAX);
        sent.drain(..over);
    }

    /// A torn group gets checksums that fit what it has.
    pub fn mend(&self, medium: &RefCell<Medium>) {
        let mut medium = medium.borrow_mut();
        for sent in self.sent.borrow().iter() {
            let end = sent.offset + u64::from(sent.head.sectors) * SECTOR;
            let bytes = medium.current()[sent.offset as usize..end as usize].to_vec();
            let there = log::decode(self.place.seed, self.place.space, sent.head.position, &bytes);
            if !matches!(there, Found::Group(_)) {
                continue;
            }
            let (mut crcs, mut at) = (Vec::new(), sent.descriptor_bytes);
            for record in sent.records.iter().filter(|it| it.content == Content::Data) {
                let (mut first, end) = (record.first, record.first + u64::from(record.sectors));
                while first < end {
                    let next = (first / 8 * 8 + 8).min(end);
                    let length = (next - first) as usize * SECTOR_BYTES;
                    crcs.push(log::payload_checksum(self.place.space, first, &bytes[at..at + length]));
                    (first, at) = (next, at + length);
                }
            }
            if crcs != sent.crcs {
                let mut descriptor = vec![0; sent.descriptor_bytes];
                log::encode(self.place.seed, &sent.head, &sent.records, &crcs, &mut descriptor);
                medium.write(sent.offset, &descriptor);
                medium.settle(sent.offset, descriptor.len() as u64);
            }
        }
    }
}

/// What a liar knows of the world.
pub struct Surroundings {
    /// Which disk it stands before.
    pub side: Side,
    /// That disk's bytes.
    pub medium: Rc<RefCell<Medium>>,
    /// What is planted.
    pub bug: Option<Bug>,
    /// Bytes of clients lie in frames before this one: they do not come from the log.
    pub own_frames: u32,
    /// Whether the power is out.
    pub is_cut: Box<dyn Fn() -> bool>,
    /// Whether the log is being opened.
    pub is_opening: Box<dyn Fn() -> bool>,
}

/// See the module.
pub struct Liar<D> {
    inner: D,
    around: Surroundings,
    lies: Rc<Lies>,
    arena: Rc<Arena>,
    dice: Dice,
    ended: Vec<DeviceDone>,
    /// Writes that are done later: when, and a number that keeps those apart; where, and what.
    later: BTreeMap<(u64, u64), (u64, Vec<u8>)>,
    submitted: u64,
    /// For [`Bug::BypassReplayed`]: by sector, what a run did.
    runs: BTreeMap<u64, Vec<u8>>,
    /// Reads of a scan.
    reads: Vec<DeviceOp>,
}

impl<D: Device> Liar<D> {
    /// One before that device.
    #[must_use]
    pub fn new(inner: D, around: Surroundings, lies: Rc<Lies>, arena: Rc<Arena>, dice: Dice) -> Self {
        let (ended, later, runs, reads) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { inner, around, lies, arena, dice, ended, later, submitted: 0, runs, reads }
    }

    /// Whether the bytes of an operation are a client's.
    fn is_clients(&self, op: &DeviceOp) -> bool {
        op.frame.0 < self.around.own_frames
    }

    fn bytes(&self, op: &DeviceOp) -> Vec<u8> {
        let mut bytes = vec![0; op.length as usize];
        each_part(&self.arena, op, |frame, at, part| self.arena.copy_out(frame, at, &mut bytes[part]));
        bytes
    }

    fn has(&self, bug: Bug) -> bool {
        self.around.bug == Some(bug)
    }

    /// Answers well, and does nothing.
    fn answer(&mut self, op: &DeviceOp) -> Option<DeviceOp> {
        self.ended.push(DeviceDone { token: op.token, result: Ok(()) });
        None
    }

    /// Does it, too, some time later.
    fn do_later(&mut self, now_ns: u64, op: &DeviceOp, within_ns: u64) {
        self.submitted += 1;
        let at_ns = now_ns + 1 + self.dice.below(within_ns);
        self.later.insert((at_ns, self.submitted), (op.offset, self.bytes(op)));
    }

    /// What becomes of an operation on the log's disk.
    fn on_log(&mut self, now_ns: u64, mut op: DeviceOp) -> Option<DeviceOp> {
        match op.kind {
            OpKind::Flush if self.has(Bug::LogFlushIgnored) => return self.answer(&op),
            OpKind::Read if (self.around.is_opening)() && self.has(Bug::ScanShort) => self.reads.push(op),
            OpKind::Write { .. } if op.offset < self.lies.place.offset + TAILS_BYTES as u64 => return self.on_tail(op),
            OpKind::Write { .. } => {
                let bytes = self.bytes(&op);
                self.lies.remember(&op, &bytes);
                if self.has(Bug::GroupEarly) {
                    self.do_later(now_ns, &op, 20_000_000);
                    return self.answer(&op);
                }
                if self.has(Bug::GroupHollow) && self.dice.chance(100) {
                    let descriptor = self.lies.sent.borrow().last().map(|sent| sent.descriptor_bytes as u64);
                    op.length = descriptor.unwrap_or(op.length);
                }
            }
            _ => {}
        }
        Some(op)
    }

    fn on_tail(&mut self, mut op: DeviceOp) -> Option<DeviceOp> {
        if self.has(Bug::TailForgotten) && !(self.around.is_opening)() {
            return self.answer(&op);
        }
        if self.has(Bug::TailVolatile) {
            op.kind = OpKind::Write { fua: false };
        }
        if self.has(Bug::TailEarly) && !(self.around.is_opening)() && self.dice.chance(200) {
            let mut copies = vec![0; TAILS_BYTES];
            copies[(op.offset - self.lies.place.offset) as usize..][..op.length as usize]
                .copy_from_slice(&self.bytes(&op));
            let (seed, space) = (self.lies.place.seed, self.lies.place.space);
            if let log_tail::Found::Tail(mut tail) = log_tail::newest(seed, space, &copies) {
                let sent = self.lies.sent.borrow();
                let heads = sent.iter().map(|sent| sent.head);
                if let Some(next) = heads.filter(|it| it.position > tail.position).min_by_key(|it| it.position) {
                    (tail.position, tail.first_record, tail.group_life) = (next.position, next.first_record, next.life);
                    self.arena.with_bytes_mut(op.frame.0, op.at, op.length as u32, |bytes| tail.encode(seed, bytes));
                }
            }
        }
        Some(op)
    }

    /// What becomes of an operation on the back end.
    fn on_backend(&mut self, now_ns: u64, mut op: DeviceOp) -> Option<DeviceOp> {
        match op.kind {
            OpKind::Flush if self.has(Bug::BackendFlushIgnored) => return self.answer(&op),
            OpKind::WriteZeroes { .. } if self.has(Bug::ZeroForgotten) && self.dice.chance(200) => {
                return self.answer(&op);
            }
            OpKind::Write { .. } if self.is_clients(&op) => {
                if self.has(Bug::BypassUnflushed) {
                    self.do_later(now_ns, &op, 20_000_000);
                    return self.answer(&op);
                }
                self.repeat_under(now_ns, &op);
            }
            OpKind::Write { .. } => {
                if self.has(Bug::BypassReplayed) {
                    let bytes = self.bytes(&op);
                    let first = op.offset / SECTOR;
                    self.runs.extend((first..).zip(bytes.chunks_exact(SECTOR_BYTES).map(<[u8]>::to_vec)));
                }
                if self.has(Bug::RunForgotten) && self.dice.chance(20) {
                    return self.answer(&op);
                }
                if self.has(Bug::RunEarly) {
                    self.do_later(now_ns, &op, 20_000_000);
                    return self.answer(&op);
                }
                if self.has(Bug::RunRepeated) && self.dice.chance(50) {
                    self.do_later(now_ns, &op, 100_000_000);
                }
                if self.has(Bug::RunTorn) && op.length > SECTOR && self.dice.chance(50) {
                    op.length = op.length / SECTOR / 2 * SECTOR;
                }
                if self.has(Bug::RunMisplaced) && self.dice.chance(20) {
                    let places = (self.geometry().bytes - op.length) / SECTOR + 1;
                    op.offset = self.dice.below(places) * SECTOR;
                }
            }
            _ => {}
        }
        Some(op)
    }

    /// Does again, some time later, what runs did where something passes the log now.
    fn repeat_under(&mut self, now_ns: u64, op: &DeviceOp) {
        for sector in op.offset / SECTOR..(op.offset + op.length) / SECTOR {
            if let Some(bytes) = self.runs.remove(&sector) {
                self.submitted += 1;
                let at_ns = now_ns + 10_000_000 + self.dice.below(100_000_000);
                self.later.insert((at_ns, self.submitted), (sector * SECTOR, bytes));
            }
        }
    }

    /// Reads of a scan find nothing where the newest group lies.
    fn hide_newest(&mut self, done: &[DeviceDone]) {
        let newest = self.lies.sent.borrow().last().map(|sent| sent.offset);
        let is_done = |op: &mut DeviceOp| done.iter().any(|done| done.token == op.token);
        for op in self.reads.extract_if(.., is_done).collect::<Vec<_>>() {
            let Some(offset) = newest.filter(|at| (op.offset..op.offset + op.length).contains(at)) else { continue };
            each_part(&self.arena, &op, |frame, at, part| {
                let inside = op.offset + part.start as u64..op.offset + part.end as u64;
                if inside.contains(&offset) {
                    self.arena.fill_zero(frame, at + (offset - inside.start) as u32, SECTOR_BYTES as u32);
                }
            });
        }
    }
}

impl<D: Device> Device for Liar<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let op = match self.around.side {
            Side::Log => self.on_log(now_ns, op),
            Side::Backend => self.on_backend(now_ns, op),
        };
        if let Some(op) = op {
            self.inner.submit(now_ns, op);
        }
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        while let Some(entry) =
            self.later.first_entry().filter(|entry| entry.key().0 <= now_ns && !(self.around.is_cut)())
        {
            let (offset, bytes) = entry.remove();
            self.around.medium.borrow_mut().write(offset, &bytes);
        }
        let before = done.len();
        self.inner.poll(now_ns, done);
        if !self.reads.is_empty() {
            self.hide_newest(&done[before..]);
        }
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(0);
        }
        let later_ns = self.later.first_key_value().map(|((at_ns, _), _)| *at_ns);
        [later_ns, self.inner.next_ns()].into_iter().flatten().min()
    }
}
