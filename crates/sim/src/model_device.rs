//! A modelled disk: the cache disk, or a back end on this machine.
//!
//! An operation takes effect when it ends, after a latency of its own, so that operations in flight overtake each
//! other. Faults are drawn by the disk's character, which the world changes as it goes: errors (after a part was done),
//! slowness, silence, death, and for slots writes that are lost or go elsewhere though the disk says yes.
//!
//! When the power is out nothing has any effect any more; what was in flight is torn when the process is dropped.
//!
//! It also watches its caller: it holds the frames of what is under way, as the kernel would, so that the arena panics
//! when anybody changes what is written, or touches what is read. And the bytes of a write are the same in the end.

use crate::bug::Bug;
use crate::content::{SECTOR_BYTES, value_in};
use crate::dice::Dice;
use crate::ledger::{Count, SharedLedger};
use crate::medium::{Keep, Medium};
use crate::span::{each_part, place};
use forebay_engine::device::{Device, DeviceDone, DeviceOp, FrameId, Geometry, IoError, OpKind};
use forebay_uring::{Access, Arena, Hold};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a disk behaves. Chances are of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Character {
    /// Latencies are up to this.
    pub latency_ns: u64,
    /// Operations that fail.
    pub errors: u32,
    /// Operations that take up to `slow_ns`.
    pub slow: u32,
    /// See `slow`.
    pub slow_ns: u64,
    /// Operations that take up to `hang_ns`.
    pub hangs: u32,
    /// See `hangs`.
    pub hang_ns: u64,
    /// Writes of slots that are acknowledged and not done.
    pub lost: u32,
    /// Writes of slots that are done elsewhere.
    pub misdirected: u32,
    /// Everything fails.
    pub dead: bool,
}

impl Character {
    /// No faults.
    #[must_use]
    pub fn sound(latency_ns: u64) -> Self {
        Self { latency_ns, errors: 0, slow: 0, slow_ns: 0, hangs: 0, hang_ns: 0, lost: 0, misdirected: 0, dead: false }
    }
}

/// What a disk is to the world: how its operations and faults are counted.
#[derive(Clone, Debug)]
pub enum Role {
    /// The cache disk.
    CacheDisk {
        /// Where superblocks end and intent maps begin, where these end and the table begins, where slots begin, where
        /// logs begin.
        bounds: [u64; 4],
    },
    /// A volume's back end.
    Backend {
        /// Which volume's.
        volume: usize,
        /// It is behind a log; frames before this one are the cache's.
        behind_log: Option<u32>,
    },
}

impl Role {
    fn ignores_flush(&self) -> Bug {
        match self {
            Self::CacheDisk { .. } => Bug::DiskIgnoresFlush,
            Self::Backend { .. } => Bug::BackendIgnoresFlush,
        }
    }
}

/// What outlives the process: the medium, and how the disk behaves.
#[derive(Debug)]
pub struct Disk {
    /// The bytes.
    pub medium: Rc<RefCell<Medium>>,
    /// How it behaves from now on.
    pub character: Cell<Character>,
    /// An operation failed or was slow enough to be given up, ever.
    pub erred: Cell<bool>,
    /// A write came straight from a client, past the log.
    pub passed: Cell<bool>,
    /// By the time of their end, and a number that keeps those apart.
    running: RefCell<BTreeMap<(u64, u64), Running>>,
    /// For [`Bug::TableStale`]: the table when a life began.
    table: RefCell<Vec<u8>>,
}

impl Disk {
    /// A sound disk of zeroes.
    #[must_use]
    pub fn new(bytes: u64, latency_ns: u64) -> Rc<Self> {
        Rc::new(Self {
            medium: Rc::new(RefCell::new(Medium::new(bytes))),
            character: Cell::new(Character::sound(latency_ns)),
            erred: Cell::new(false),
            passed: Cell::new(false),
            running: RefCell::default(),
            table: RefCell::default(),
        })
    }

    /// Each value that each sector may be left with, whatever is lost of what is not durable and done of what is in flight.
    pub fn each_possible(&self, arena: Option<&Arena>, mut found: impl FnMut(u64, Option<u64>)) {
        let medium = self.medium.borrow();
        for (nth, bytes) in (0..).zip(medium.durable().chunks_exact(SECTOR_BYTES)) {
            found(nth, value_in(bytes));
        }
        medium.each_unflushed(|sector, bytes| found(sector, value_in(bytes)));
        let Some(arena) = arena else { return };
        for op in self.running.borrow().values().map(|running| &running.op) {
            let first = op.offset / SECTOR_BYTES as u64;
            match op.kind {
                OpKind::Write { .. } => each_part(arena, op, |frame, at, part| {
                    arena.with_bytes(frame, at, part.len() as u32, |bytes| {
                        let sectors =
                            (first + (part.start / SECTOR_BYTES) as u64..).zip(bytes.chunks_exact(SECTOR_BYTES));
                        sectors.for_each(|(sector, bytes)| found(sector, value_in(bytes)));
                    });
                }),
                OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => {
                    (first..first + op.length / SECTOR_BYTES as u64).for_each(|sector| found(sector, Some(0)));
                }
                OpKind::Read | OpKind::Flush => {}
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    /// Done up to this many sectors, then failed.
    Fails {
        sectors: u64,
    },
    Lost,
    Misdirected {
        offset: u64,
    },
}

#[derive(Debug)]
struct Running {
    op: DeviceOp,
    fate: Fate,
    /// Of a write's bytes when it was submitted.
    print: u64,
    /// On its frame.
    hold: Option<Hold>,
    /// For a flush: what it covers.
    mark: u64,
    /// Who waits for it was told that it will not end.
    is_told: bool,
}

/// The device of one life.
pub struct ModelDevice {
    disk: Rc<Disk>,
    arena: Rc<Arena>,
    ledger: SharedLedger,
    role: Role,
    geometry: Geometry,
    dice: Dice,
    submitted: u64,
    /// What was asked for after the power went out.
    refused: Vec<u64>,
    buffer: Vec<u8>,
    /// For [`Bug::RotAfterCheck`]: reads that have ended.
    goes_on: Vec<DeviceOp>,
    /// For [`Bug::WriteRepeated`]: what is written again, and when.
    repeats: BTreeMap<(u64, u64), (u64, Vec<u8>)>,
    /// For [`Bug::TableStale`]: the table when the last life began.
    old_table: Vec<u8>,
}

impl ModelDevice {
    /// A device over a disk.
    #[must_use]
    pub fn new(
        disk: Rc<Disk>,
        arena: Rc<Arena>,
        ledger: SharedLedger,
        role: Role,
        sector_bytes: u32,
        dice: Dice,
    ) -> Self {
        let geometry = Geometry {
            bytes: disk.medium.borrow().bytes(),
            sector_bytes,
            read_only: false,
            can_trim: true,
            can_zero: true,
            range_bytes_max: 1 << 20,
        };
        let old_table = match &role {
            Role::CacheDisk { bounds: [_, table, slots, _] } if ledger.has(Bug::TableStale) => {
                let now = disk.medium.borrow().current()[*table as usize..*slots as usize].to_vec();
                disk.table.replace(now)
            }
            _ => Vec::new(),
        };
        Self {
            disk,
            arena,
            ledger,
            role,
            geometry,
            dice,
            submitted: 0,
            refused: Vec::new(),
            buffer: Vec::new(),
            goes_on: Vec::new(),
            repeats: BTreeMap::new(),
            old_table,
        }
    }

    fn fate(&mut self, op: &DeviceOp) -> (u64, Fate) {
        if let Some(fate) = self.planted(op) {
            return (1 + self.dice.duration_ns(self.disk.character.get().latency_ns), fate);
        }
        let character = self.disk.character.get();
        let mut delay_ns = 1 + self.dice.duration_ns(character.latency_ns);
        let sectors = op.length / SECTOR_BYTES as u64;
        if character.dead {
            self.fault(Count::FaultDiskDead, Count::FaultOutage, op);
            return (delay_ns, Fate::Fails { sectors: 0 });
        }
        if self.dice.chance(character.hangs) {
            self.fault(Count::FaultDiskHang, Count::FaultBackendHang, op);
            delay_ns += self.dice.duration_ns(character.hang_ns);
        } else if self.dice.chance(character.slow) {
            self.fault(Count::FaultDiskSlow, Count::FaultBackendSlow, op);
            delay_ns += self.dice.duration_ns(character.slow_ns);
        }
        if self.dice.chance(character.errors) {
            self.fault(Count::FaultDiskError, Count::FaultBackendError, op);
            return (delay_ns, Fate::Fails { sectors: self.dice.below(sectors + 1) });
        }
        let Role::CacheDisk { bounds } = &self.role else { return (delay_ns, Fate::Well) };
        if !matches!(op.kind, OpKind::Write { .. }) || op.offset < bounds[2] || op.offset >= bounds[3] {
            return (delay_ns, Fate::Well);
        }
        if self.dice.chance(character.lost) {
            self.ledger.count(Count::FaultLostWrite, op.token, op.offset);
            return (delay_ns, Fate::Lost);
        }
        if self.dice.chance(character.misdirected) {
            let blocks = (self.geometry.bytes.min(bounds[3]) - op.length - bounds[2]) / 4096;
            let offset = bounds[2] + self.dice.below(blocks + 1) * 4096;
            self.ledger.count(Count::FaultMisdirectedWrite, op.offset, offset);
            return (delay_ns, Fate::Misdirected { offset });
        }
        (delay_ns, Fate::Well)
    }

    fn fault(&self, disk: Count, backend: Count, op: &DeviceOp) {
        let what = if matches!(self.role, Role::CacheDisk { .. }) { disk } else { backend };
        self.ledger.count(what, op.token, op.offset);
        // What is merely slow has to end well.
        if what != Count::FaultDiskSlow && what != Count::FaultBackendSlow {
            self.disk.erred.set(true);
        }
    }

    fn count_order(&self, op: &DeviceOp) {
        let what = match &self.role {
            Role::CacheDisk { bounds: [intents, table, slots, logs] } => match op.kind {
                OpKind::Flush => Count::FlushDisk,
                OpKind::Read if op.offset >= *logs => Count::ReadLog,
                OpKind::Write { fua: true } if op.offset >= *logs => Count::WriteTail,
                _ if op.offset >= *logs => Count::WriteGroup,
                OpKind::Read if op.offset < *slots => Count::ScanTable,
                OpKind::Read => Count::ReadSlot,
                _ if op.offset < *intents => Count::MarkClean,
                _ if op.offset < *table => Count::WriteIntent,
                _ if op.offset < *slots => Count::WriteTable,
                _ => Count::WriteSlot,
            },
            Role::Backend { volume, behind_log } => {
                self.ledger.mix(*volume as u64);
                let passes = behind_log.is_some_and(|own| op.frame.0 < own) && matches!(op.kind, OpKind::Write { .. });
                self.disk.passed.set(self.disk.passed.get() || passes);
                if passes { Count::WritePasses } else { order_to_backend(op.kind) }
            }
        };
        self.ledger.count(what, op.offset, op.length);
    }

    fn end(&mut self, running: &Running) -> Result<(), IoError> {
        let op = &running.op;
        match running.fate {
            Fate::Fails { sectors } => {
                if op.kind != OpKind::Flush && op.kind != OpKind::Read {
                    self.perform(&DeviceOp { length: sectors * SECTOR_BYTES as u64, ..*op }, op.offset, running);
                }
                Err(IoError::Failed)
            }
            Fate::Well => {
                self.perform(op, op.offset, running);
                Ok(())
            }
            Fate::Misdirected { offset } => {
                self.perform(op, offset, running);
                Ok(())
            }
            Fate::Lost => Ok(()),
        }
    }

    fn perform(&mut self, op: &DeviceOp, offset: u64, running: &Running) {
        let mut medium = self.disk.medium.borrow_mut();
        match op.kind {
            OpKind::Flush if self.ledger.has(self.role.ignores_flush()) => return,
            OpKind::Flush => return medium.flush(running.mark),
            _ if op.length == 0 => return,
            OpKind::Read => {
                let bytes = &medium.current()[offset as usize..(offset + op.length) as usize];
                each_part(&self.arena, op, |frame, at, part| self.arena.copy_in(frame, at, &bytes[part]));
                drop(medium);
                return self.spoil_read(op);
            }
            OpKind::Write { .. } => {
                self.buffer.resize(op.length as usize, 0);
                each_part(&self.arena, op, |frame, at, part| self.arena.copy_out(frame, at, &mut self.buffer[part]));
                medium.write(offset, &self.buffer);
                let repeats = matches!(self.role, Role::Backend { .. }) && self.ledger.has(Bug::WriteRepeated);
                if repeats && self.dice.chance(20) {
                    let at_ns = self.ledger.now_ns() + self.dice.below(100_000_000);
                    self.repeats.insert((at_ns, self.submitted), (offset, self.buffer.clone()));
                }
            }
            OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => medium.zero(offset, op.length),
        }
        let fua = matches!(
            op.kind,
            OpKind::Write { fua: true } | OpKind::Trim { fua: true } | OpKind::WriteZeroes { fua: true, .. }
        );
        let ignored = matches!(self.role, Role::Backend { .. }) && self.ledger.has(Bug::BackendIgnoresFua);
        if fua && !ignored {
            medium.settle(offset, op.length);
        }
    }

    /// What a planted bug does to the bytes of a read.
    fn spoil_read(&mut self, op: &DeviceOp) {
        let Role::CacheDisk { bounds: [_, table, slots, logs] } = self.role else {
            if self.ledger.has(Bug::ReadHalved) && self.dice.chance(20) {
                let half = op.length as u32 / 2;
                self.arena.with_bytes_mut(op.frame.0, op.at + half, half, |bytes| bytes.fill(0xee));
            }
            return;
        };
        if op.offset >= logs {
            return;
        }
        if op.offset >= slots && self.ledger.has(Bug::RotAfterCheck) && self.dice.chance(100) {
            self.goes_on.push(*op);
        }
        // Empty without that bug.
        let at = (op.offset - table) as usize;
        if let Some(bytes) = self.old_table.get(at..at + op.length as usize) {
            self.arena.copy_in(op.frame.0, op.at, bytes);
        }
    }

    /// What a planted bug makes of a write.
    fn planted(&mut self, op: &DeviceOp) -> Option<Fate> {
        if !matches!(op.kind, OpKind::Write { .. }) {
            return None;
        }
        match &self.role {
            Role::CacheDisk { bounds } => {
                let intent = (bounds[0]..bounds[1]).contains(&op.offset);
                (intent && self.ledger.has(Bug::IntentForgotten)).then_some(Fate::Lost)
            }
            Role::Backend { .. } if self.ledger.has(Bug::WriteForgotten) => self.dice.chance(20).then_some(Fate::Lost),
            Role::Backend { .. } if self.ledger.has(Bug::WriteMisdirected) => {
                let sector = u64::from(self.geometry.sector_bytes);
                let offset = self.dice.below((self.geometry.bytes - op.length) / sector + 1) * sector;
                self.dice.chance(20).then_some(Fate::Misdirected { offset })
            }
            Role::Backend { .. } => None,
        }
    }

    /// A fingerprint of a write's bytes.
    fn print(&self, op: &DeviceOp) -> u64 {
        let mut print = 0u64;
        each_part(&self.arena, op, |frame, at, bytes| {
            print = print.rotate_left(1) ^ print_of(&self.arena, frame, at, bytes.len() as u32);
        });
        print
    }

    /// What planted bugs do after an operation has ended.
    fn go_on(&mut self, now_ns: u64) {
        for op in std::mem::take(&mut self.goes_on) {
            self.arena.with_bytes_mut(op.frame.0, op.at, op.length as u32, |bytes| bytes[8] ^= 1);
        }
        while let Some(entry) = self.repeats.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let (offset, bytes) = entry.remove();
            self.disk.medium.borrow_mut().write(offset, &bytes);
        }
    }

    /// The process is gone: of what was in flight, each sector is done or not.
    fn crash(&mut self) {
        let running = std::mem::take(&mut *self.disk.running.borrow_mut());
        for running in running.into_values() {
            let op = running.op;
            if matches!(op.kind, OpKind::Read | OpKind::Flush) || !matches!(running.fate, Fate::Well) {
                continue;
            }
            let permille = self.dice.pick(&[0, 500, 1000]);
            for nth in 0..op.length / SECTOR_BYTES as u64 {
                if self.dice.chance(permille) {
                    let at = nth * SECTOR_BYTES as u64;
                    let (frame, in_frame) = place(&self.arena, &op, at);
                    let part = DeviceOp { length: SECTOR_BYTES as u64, frame: FrameId(frame), at: in_frame, ..op };
                    self.perform(&part, op.offset + at, &running);
                } else if permille > 0 {
                    self.ledger.count(Count::FaultTornWrite, op.offset, nth);
                }
            }
        }
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.crash();
        }
    }
}

/// How an order to a back end is counted.
pub(crate) fn order_to_backend(kind: OpKind) -> Count {
    match kind {
        OpKind::Read => Count::ReadBackend,
        OpKind::Write { fua: false } => Count::WriteBackend,
        OpKind::Write { fua: true } => Count::WriteBackendFua,
        OpKind::Flush => Count::FlushBackend,
        OpKind::Trim { .. } => Count::TrimBackend,
        OpKind::WriteZeroes { .. } => Count::ZeroBackend,
    }
}

/// What a device holds of an operation's frame while it is under way.
pub(crate) fn hold_of(arena: &Arena, op: &DeviceOp) -> Option<Hold> {
    let access = match op.kind {
        OpKind::Read => Access::Write,
        OpKind::Write { .. } => Access::Read,
        OpKind::Flush | OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => return None,
    };
    Some(arena.hold(op.frame.0, op.at, op.length as u32, access))
}

/// A fingerprint of a stretch of a frame: the ends of each sector.
pub(crate) fn print_of(arena: &Arena, frame: u32, at: u32, length: u32) -> u64 {
    arena.with_bytes(frame, at, length, |bytes| {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        bytes.chunks(SECTOR_BYTES).fold(u64::from(length), |print, sector| {
            let ends = word(&sector[..8]) ^ word(&sector[sector.len() - 8..]).rotate_left(32);
            (print ^ ends).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        })
    })
}

/// A power loss over a disk that has no operation in flight.
pub fn lose_power(disk: &Disk, ledger: &SharedLedger, dice: &mut Dice) -> u64 {
    let keep = Keep::draw(dice);
    let gone = disk.medium.borrow_mut().lose(keep, dice);
    ledger.add(Count::FaultForgottenWrite, gone);
    ledger.mix(gone);
    gone
}

impl Device for ModelDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now_ns: u64, op: DeviceOp) {
        let sector = u64::from(self.geometry.sector_bytes);
        if op.kind != OpKind::Flush {
            let inside = op.offset + op.length <= self.geometry.bytes;
            let aligned = op.offset.is_multiple_of(sector) && op.length.is_multiple_of(sector) && op.length > 0;
            assert!(inside && aligned, "an order that the device cannot take: {op:?}");
        }
        if !self.ledger.io() {
            return self.refused.push(op.token);
        }
        self.count_order(&op);
        let (delay_ns, fate) = self.fate(&op);
        let print = match op.kind {
            OpKind::Write { .. } => self.print(&op),
            _ => 0,
        };
        let hold = hold_of(&self.arena, &op);
        let mark = self.disk.medium.borrow().mark();
        self.submitted += 1;
        let running = Running { op, fate, print, hold, mark, is_told: false };
        self.disk.running.borrow_mut().insert((now_ns + delay_ns, self.submitted), running);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<DeviceDone>) {
        self.go_on(now_ns);
        let is_due =
            |disk: &Disk| disk.running.borrow().first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns);
        while is_due(&self.disk) && self.ledger.io() {
            let first = self.disk.running.borrow_mut().pop_first();
            let (_, mut running) = first.expect("it is due");
            let op = running.op;
            if let Some(hold) = running.hold.take() {
                self.arena.release(hold);
            }
            if matches!(op.kind, OpKind::Write { .. }) {
                assert_eq!(self.print(&op), running.print, "bytes changed while they were written: {op:?}");
            }
            let result = self.end(&running);
            let what = match (&self.role, result) {
                (Role::CacheDisk { .. }, Ok(())) => Count::DiskDone,
                (Role::CacheDisk { .. }, Err(_)) => Count::DiskFailed,
                (Role::Backend { .. }, Ok(())) => Count::BackendDone,
                (Role::Backend { .. }, Err(_)) => Count::BackendFailed,
            };
            self.ledger.count(what, op.token, op.offset);
            done.push(DeviceDone { token: op.token, result });
        }
        if self.ledger.is_awaited.get() && self.ledger.is_cut() {
            // Who waits for it blocks; so it is told, and what was in flight is torn all the same.
            let mut running = self.disk.running.borrow_mut();
            let tell = |running: &mut Running| !std::mem::replace(&mut running.is_told, true);
            let untold = running.values_mut().filter_map(|running| tell(running).then_some(running.op.token));
            let tokens = self.refused.drain(..).chain(untold);
            done.extend(tokens.map(|token| DeviceDone { token, result: Err(IoError::Failed) }));
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.disk.running.borrow().first_key_value().map(|((at_ns, _), _)| *at_ns)
    }
}
