//! File: a regular file or block device, over io_uring, past the kernel's page cache where that is possible.
//!
//! Why direct: the cache is the cache. A second copy of every page in the kernel's page cache halves the memory that
//! does any good, and a flush would have to write it all back first.
//!
//! How: an operation is carried out in steps, one after the other, until all of it is moved. Most take one step: a
//! direct transfer between frame and file. The others are what direct I/O cannot do by itself:
//!
//! | where | step |
//! |---|---|
//! | whole sectors | direct transfer; a short one is continued |
//! | part of a sector (512-byte request, 4096-byte sectors) | read the sector into a bounce buffer, change it, write it back |
//! | the last, partial sector of a regular file | transfer through the page cache, by a second descriptor |
//! | trim | punch a hole, in whole sectors of a block device |
//! | zeroing | punch or zero the range; where neither works, write zeroes |
//!
//! Durability: `fua` writes are `RWF_DSYNC`; a flush is `fdatasync`; `fua` trims and zeroing are followed by one.
//!
//! Invariants: a partial sector is read, changed and written without a lock. That is right because the caller never
//! has overlapping writes in flight within one 4 KiB block, and sectors are no larger (else the file is opened
//! without direct I/O). The tail of a file is only ever reached through the page cache, so it has one copy.
//!
//! Limits: the size is rounded down to whole 512-byte sectors. A failed flush is reported as [`IoError::Lost`]: the
//! kernel forgets what it could not write, and the next flush would succeed without it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forebay_uring::{
    Arena, ArenaId, Buf, Completion, Direct, DiskFile, Errno, Error, Fd, FileFacts, FileKind, Full, Op, OpenOptions,
    SpaceChange,
};

use super::check::check;
use super::pending::Pending;
use crate::device::{Device, DeviceDone, DeviceOp, Geometry, IoError, OpKind};
use crate::ring_reactor::Port;

/// Operations in hand, those waiting for room in the ring included; more are refused.
pub const OPERATIONS_MAX: u32 = 65536;
const SECTOR_BYTES: u64 = 512;
/// Largest sector that is read, changed and written: the block within which writes never overlap.
const BLOCK_BYTES: u32 = 4096;
const BOUNCES: u32 = 32;
const ZEROES_BYTES: u32 = 65536;
const RANGE_BYTES_MAX: u64 = 128 << 20;
/// Reads are started in such groups, not all together at the end of the turn: the first need not wait until the last
/// has been asked for. On a virtual disk, which reports a group's completions together, that gives 10 to 20 % more reads
/// at depths 16 and 64; one by one would cost a system call each and gives no more.
const READS_TOGETHER: u32 = 2;
/// How often a step is tried again after an interruption or a transfer of less than a sector.
const TRIES_MAX: u8 = 8;

/// What is being done for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Between frame and file, whole sectors.
    Transfer { length: u32 },
    /// Between frame and the partial sector at the end, through the page cache.
    Tail { length: u32 },
    /// The sector around a part, into a bounce buffer.
    ReadAround { bounce: u32, length: u32 },
    /// The changed sector, back.
    WriteAround { bounce: u32, length: u32 },
    /// Punch or zero.
    Space { change: SpaceChange, at: u64, length: u64 },
    /// Zeroes, written.
    Zeroes { length: u32, tail: bool },
    /// Make it durable.
    Sync,
}

#[derive(Debug)]
struct Job {
    op: DeviceOp,
    moved: u64,
    step: Option<Step>,
    tries: u8,
    synced: bool,
}

/// What the step function found.
enum Next {
    Step(Step),
    NoBounce,
    End,
}

/// A file or block device.
#[derive(Debug)]
pub struct FileDevice {
    port: Port,
    frames: ArenaId,
    frame_bytes: u32,
    path: PathBuf,
    fd: Fd,
    tail_fd: Option<Fd>,
    geometry: Geometry,
    facts: FileFacts,
    /// The unit of transfers.
    unit: u64,
    /// The unit of punching and zeroing.
    space_unit: u64,
    can_punch: bool,
    can_zero: bool,
    bounces: Option<(ArenaId, Rc<Arena>)>,
    free_bounces: Vec<u32>,
    zeroes: Option<ArenaId>,
    pending: Pending<Job>,
    /// Jobs whose next step has no room in the ring.
    waiting_for_room: VecDeque<u32>,
    /// Jobs whose next step has no bounce buffer. A line of its own: those that hold one must be able to go on.
    waiting_for_bounce: VecDeque<u32>,
    ended: Vec<DeviceDone>,
    completions: Vec<Completion>,
    failing: bool,
}

impl FileDevice {
    /// Opens `path` as a device that reads into and writes from frames of `frames`.
    ///
    /// # Errors
    /// Those of [`DiskFile::open`].
    pub fn open(port: Port, frames: ArenaId, path: &Path, options: OpenOptions) -> Result<Self, Error> {
        let mut file = DiskFile::open(path, options)?;
        let facts = file.facts();
        if facts.sector_bytes.max(facts.memory_align_bytes) > BLOCK_BYTES && facts.direct == Direct::On {
            drop(file);
            file = DiskFile::open(path, OpenOptions { direct: false, ..options })?;
        }
        Self::from_open(port, frames, path, file, !options.write)
    }

    /// Takes a file that is open already; `path` names it in messages.
    ///
    /// # Errors
    /// The ring's limits; for a file with a partial last sector also those of [`DiskFile::open`].
    pub fn from_open(port: Port, frames: ArenaId, path: &Path, file: DiskFile, read_only: bool) -> Result<Self, Error> {
        let facts = file.facts();
        let unit = match facts.direct {
            Direct::On => u64::from(facts.sector_bytes.max(facts.memory_align_bytes)),
            _ => u64::from(facts.sector_bytes),
        };
        let bytes = facts.size_bytes - facts.size_bytes % SECTOR_BYTES;
        let tail_fd = if bytes.is_multiple_of(unit) {
            None
        } else {
            let options = OpenOptions { write: !read_only, direct: false, exclusive: false, create: false };
            Some(port.register(DiskFile::open(path, options)?.into_fd())?)
        };
        let bounces = if unit > SECTOR_BYTES {
            let arena = Rc::new(Arena::new(BOUNCES, BLOCK_BYTES)?);
            Some((port.add_arena(Rc::clone(&arena)), arena))
        } else {
            None
        };
        let geometry = Geometry {
            bytes,
            sector_bytes: SECTOR_BYTES as u32,
            read_only,
            can_trim: facts.punch,
            can_zero: facts.punch,
            range_bytes_max: RANGE_BYTES_MAX,
        };
        Ok(Self {
            frame_bytes: port.arena(frames).frame_bytes(),
            frames,
            path: path.to_owned(),
            fd: port.register(file.into_fd())?,
            port,
            tail_fd,
            geometry,
            facts,
            unit,
            space_unit: if facts.kind == FileKind::Block { unit.max(SECTOR_BYTES) } else { 1 },
            can_punch: facts.punch,
            can_zero: true,
            free_bounces: if bounces.is_some() { (0..BOUNCES).collect() } else { Vec::new() },
            bounces,
            zeroes: None,
            pending: Pending::new(OPERATIONS_MAX),
            waiting_for_room: VecDeque::new(),
            waiting_for_bounce: VecDeque::new(),
            ended: Vec::new(),
            completions: Vec::new(),
            failing: false,
        })
    }

    /// What was found out about the file when it was opened.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.facts
    }

    /// Decides the next step of a job from how far it is.
    fn next_step(&mut self, index: u32) -> Next {
        let job = self.pending.get_mut(index);
        let DeviceOp { kind, offset, length, .. } = job.op;
        let (position, left) = (offset + job.moved, length - job.moved);
        let sync_left = !job.synced;
        match kind {
            OpKind::Flush => return if sync_left { Next::Step(Step::Sync) } else { Next::End },
            OpKind::Trim { fua } | OpKind::WriteZeroes { fua, .. } if left == 0 => {
                return if fua && sync_left { Next::Step(Step::Sync) } else { Next::End };
            }
            _ if left == 0 => return Next::End,
            OpKind::Trim { .. } => {
                let at = position.next_multiple_of(self.space_unit);
                let end = (position + left) / self.space_unit * self.space_unit;
                if !self.can_punch || at >= end {
                    job.moved = length;
                    return self.next_step(index);
                }
                return Next::Step(Step::Space { change: SpaceChange::Punch, at, length: end - at });
            }
            OpKind::WriteZeroes { no_hole, .. } => {
                let change = match (self.can_punch && !no_hole, self.can_zero) {
                    (true, _) => Some(SpaceChange::Punch),
                    (false, true) => Some(SpaceChange::Zero),
                    (false, false) => None,
                };
                let whole = left - left % self.space_unit;
                if let (Some(change), true, true) = (change, position.is_multiple_of(self.space_unit), whole > 0) {
                    return Next::Step(Step::Space { change, at: position, length: whole });
                }
            }
            OpKind::Read | OpKind::Write { .. } => {}
        }
        self.next_transfer(index, position, left)
    }

    /// The next step of something that moves bytes, zeroes included.
    fn next_transfer(&mut self, index: u32, position: u64, left: u64) -> Next {
        let op = self.pending.get_mut(index).op;
        let zeroing = matches!(op.kind, OpKind::WriteZeroes { .. });
        let room = if zeroing {
            u64::from(ZEROES_BYTES)
        } else {
            let at = u64::from(op.at) + (position - op.offset);
            u64::from(self.frame_bytes) - at % u64::from(self.frame_bytes)
        };
        let whole = left.min(room) / self.unit * self.unit;
        let sector = position / self.unit * self.unit;
        let in_tail = sector + self.unit > self.geometry.bytes;
        let step = if position == sector && whole > 0 && !in_tail {
            // The tail's sector is never whole, so `whole` ends before it.
            let length = whole as u32;
            if zeroing { Step::Zeroes { length, tail: false } } else { Step::Transfer { length } }
        } else {
            let length = left.min(room).min(sector + self.unit - position) as u32;
            if in_tail {
                if zeroing { Step::Zeroes { length, tail: true } } else { Step::Tail { length } }
            } else {
                let Some(bounce) = self.free_bounces.pop() else { return Next::NoBounce };
                Step::ReadAround { bounce, length }
            }
        };
        Next::Step(step)
    }

    /// Starts the job's step, deciding on one first if it has none; where there is no room for it, the job waits.
    fn start(&mut self, index: u32) {
        if self.pending.get_mut(index).step.is_none() {
            match self.next_step(index) {
                Next::Step(step) => self.pending.get_mut(index).step = Some(step),
                Next::NoBounce => return self.waiting_for_bounce.push_back(index),
                Next::End => return self.end(index, Ok(())),
            }
        }
        match self.submit_step(index) {
            Ok(Ok(())) => {}
            Ok(Err(Full)) => self.waiting_for_room.push_back(index),
            Err(error) => self.end(index, Err(error)),
        }
    }

    /// Starts what waits, as far as there is room now.
    fn start_waiting(&mut self) {
        for _ in 0..self.waiting_for_room.len() {
            if let Some(index) = self.waiting_for_room.pop_front() {
                self.start(index);
            }
            if self.port.is_full() {
                break;
            }
        }
        while !self.free_bounces.is_empty() {
            let Some(index) = self.waiting_for_bounce.pop_front() else { break };
            self.start(index);
        }
    }

    fn submit_step(&mut self, index: u32) -> Result<Result<(), Full>, IoError> {
        let job = self.pending.get_mut(index);
        let Some(step) = job.step else { return Ok(Ok(())) };
        let op = job.op;
        let moved = job.moved;
        let position = op.offset + moved;
        let dsync = matches!(op.kind, OpKind::Write { fua: true });
        let sector = position / self.unit * self.unit;
        let frame_buf = |length| {
            let at = u64::from(op.at) + moved;
            let frame_bytes = u64::from(self.frame_bytes);
            let frame = op.frame.0 + (at / frame_bytes) as u32;
            Buf { arena: self.frames, frame, at: (at % frame_bytes) as u32, len: length }
        };
        let transfer = |fd, length| match op.kind {
            OpKind::Read => Op::Read { fd, at: position, buf: frame_buf(length) },
            _ => Op::Write { fd, at: position, buf: frame_buf(length), dsync },
        };
        let order = match step {
            Step::Transfer { length } => transfer(self.fd, length),
            Step::Tail { length } => transfer(self.tail_fd.unwrap_or(self.fd), length),
            Step::ReadAround { bounce, .. } => Op::Read { fd: self.fd, at: sector, buf: self.bounce_buf(bounce) },
            Step::WriteAround { bounce, .. } => {
                Op::Write { fd: self.fd, at: sector, buf: self.bounce_buf(bounce), dsync }
            }
            Step::Space { change, at, length } => Op::Fallocate { fd: self.fd, change, at, len: length },
            Step::Zeroes { length, tail } => {
                let fd = if tail { self.tail_fd.unwrap_or(self.fd) } else { self.fd };
                let buf = Buf { arena: self.zeroes()?, frame: 0, at: 0, len: length };
                Op::Write { fd, at: position, buf, dsync: false }
            }
            Step::Sync => {
                // The tail's descriptor is of the same file: one fdatasync covers both.
                Op::Fsync { fd: self.fd, datasync: true }
            }
        };
        Ok(self.port.submit(u64::from(index), order))
    }

    fn bounce_buf(&self, bounce: u32) -> Buf {
        match &self.bounces {
            Some((arena, _)) => Buf { arena: *arena, frame: bounce, at: 0, len: self.unit as u32 },
            None => panic!("a bounce buffer in a device that has none"),
        }
    }

    /// A frame of zeroes; made when first needed.
    fn zeroes(&mut self) -> Result<ArenaId, IoError> {
        if self.zeroes.is_none() {
            let arena = Arena::new(1, ZEROES_BYTES).map_err(|_| IoError::Failed)?;
            self.zeroes = Some(self.port.add_arena(Rc::new(arena)));
        }
        self.zeroes.ok_or(IoError::Failed)
    }

    /// Takes the end of a step. Returns the error that the whole operation ends with, if it does.
    fn step_ended(&mut self, index: u32, result: Result<u32, Errno>) -> Result<(), Errno> {
        let unit = self.unit;
        let job = self.pending.get_mut(index);
        let Some(step) = job.step else { panic!("a completion for an operation that has no step") };
        let moved = match (step, result) {
            (_, Err(Errno::INTR | Errno::AGAIN)) if job.tries < TRIES_MAX => {
                job.tries += 1;
                return Ok(());
            }
            (Step::Space { change, .. }, Err(errno)) if is_unsupported(errno) => {
                job.step = None;
                match change {
                    SpaceChange::Punch => self.can_punch = false,
                    SpaceChange::Zero => self.can_zero = false,
                }
                return Ok(());
            }
            (_, Err(errno)) => return Err(errno),
            (Step::Transfer { length } | Step::Zeroes { length, tail: false }, Ok(bytes)) => {
                assert!(bytes <= length, "the kernel moved {bytes} of {length} bytes");
                u64::from(bytes) / unit * unit
            }
            (Step::Tail { .. } | Step::Zeroes { .. }, Ok(bytes)) => u64::from(bytes),
            (Step::ReadAround { bounce, length }, Ok(bytes)) if u64::from(bytes) == unit => {
                return self.sector_read(index, bounce, length);
            }
            (Step::WriteAround { length, .. }, Ok(bytes)) if u64::from(bytes) == unit => u64::from(length),
            (Step::ReadAround { .. } | Step::WriteAround { .. }, Ok(_)) => 0,
            (Step::Space { at, length, .. }, Ok(_)) => match job.op.kind {
                OpKind::Trim { .. } => job.op.length,
                _ => at + length - (job.op.offset + job.moved),
            },
            (Step::Sync, Ok(_)) => {
                job.synced = true;
                job.step = None;
                return Ok(());
            }
        };
        if moved == 0 {
            // The end of a file that has become shorter, or less than a sector moved: again, but not for ever.
            job.tries += 1;
            return if job.tries > TRIES_MAX { Err(Errno::IO) } else { Ok(()) };
        }
        job.moved += moved;
        job.tries = 0;
        self.drop_step(index);
        Ok(())
    }

    /// The sector around a part was read: take the part, or change it and write the sector back.
    fn sector_read(&mut self, index: u32, bounce: u32, length: u32) -> Result<(), Errno> {
        let arena = self.port.arena(self.frames);
        let Some((_, bounces)) = &self.bounces else { panic!("a bounce buffer in a device that has none") };
        let job = self.pending.get_mut(index);
        let within = ((job.op.offset + job.moved) % self.unit) as u32;
        let at = u64::from(job.op.at) + job.moved;
        let frame = job.op.frame.0 + (at / u64::from(self.frame_bytes)) as u32;
        let at = (at % u64::from(self.frame_bytes)) as u32;
        let mut bytes = [0; BLOCK_BYTES as usize];
        let bytes = &mut bytes[..length as usize];
        match job.op.kind {
            OpKind::Read => {
                bounces.copy_out(bounce, within, bytes);
                arena.copy_in(frame, at, bytes);
                job.moved += u64::from(length);
                job.tries = 0;
                self.drop_step(index);
                return Ok(());
            }
            OpKind::WriteZeroes { .. } => bounces.fill_zero(bounce, within, length),
            _ => {
                arena.copy_out(frame, at, bytes);
                bounces.copy_in(bounce, within, bytes);
            }
        }
        job.step = Some(Step::WriteAround { bounce, length });
        Ok(())
    }

    fn drop_step(&mut self, index: u32) {
        if let Some(Step::ReadAround { bounce, .. } | Step::WriteAround { bounce, .. }) =
            self.pending.get_mut(index).step.take()
        {
            self.free_bounces.push(bounce);
        }
    }

    fn end(&mut self, index: u32, result: Result<(), IoError>) {
        self.drop_step(index);
        let job = self.pending.remove(index);
        self.ended.push(DeviceDone { token: job.op.token, result });
    }

    /// Logs the first of a row of failures; the count is in the metrics.
    fn note(&mut self, index: u32, errno: Errno) {
        if !self.failing {
            let op = self.pending.get_mut(index).op;
            tracing::warn!(path = %self.path.display(), op = ?op.kind, op.offset, op.length, %errno, "I/O failed");
        }
        self.failing = true;
    }
}

/// Whether the kernel, file system or device does not know how to do this at all.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::NODEV)
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.port.close(self.fd);
        if let Some(fd) = self.tail_fd {
            self.port.close(fd);
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        if let Err(error) = check(&self.geometry, &op) {
            self.ended.push(DeviceDone { token: op.token, result: Err(error) });
            return;
        }
        let natural = u64::from(op.at) % u64::from(BLOCK_BYTES) == op.offset % u64::from(BLOCK_BYTES);
        assert!(natural || !matches!(op.kind, OpKind::Read | OpKind::Write { .. }), "{op:?} is not at its place");
        match self.pending.insert(Job { op, moved: 0, step: None, tries: 0, synced: false }) {
            Ok(index) => {
                self.start(index);
                if op.kind == OpKind::Read {
                    self.port.start_when(READS_TOGETHER);
                }
            }
            Err(job) => self.ended.push(DeviceDone { token: job.op.token, result: Err(IoError::Failed) }),
        }
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.port.drain(&mut completions);
        for completion in completions.drain(..) {
            let index = completion.token as u32;
            match self.step_ended(index, completion.result) {
                Ok(()) => self.start(index),
                Err(errno) => {
                    self.note(index, errno);
                    let flush = self.pending.get_mut(index).step == Some(Step::Sync);
                    self.end(index, Err(if flush { IoError::Lost } else { IoError::Failed }));
                }
            }
        }
        self.completions = completions;
        self.start_waiting();
        if self.ended.iter().any(|ended| ended.result.is_ok()) {
            self.failing = false;
        }
        done.append(&mut self.ended);
    }

    fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { None } else { Some(0) }
    }
}
