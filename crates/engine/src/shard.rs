//! A shard: one thread, one cache, its disk, its back ends and its clients.
//!
//! The loop, one [`Shard::turn`] a time: 1. wait until something happened; 2. what clients did, what devices ended and
//! the control period become events; 3. after each event the orders it gave are performed; 4. the front end sends what
//! it gathered.
//!
//! Stores (writes of slots) are kept back while clients and back ends keep the loop busy, [`STORES_HELD_MAX`] of them and
//! [`STORE_HELD_NS`] at most: nobody waits for one, and started together they cost one kick of the disk instead of each
//! its own, which was a third of what a miss cost (10 us of 30 in a virtual machine).
//!
//! Everything that takes bytes in hand is here: copies between frames, checksums of slots, sectors of records. Which
//! bytes, when and why is [`Cache`]'s business. The simulator runs this same loop over its models.
//!
//! Invariants: an order's frame is not reused before its `Done`; the orders of one step are performed in their order.
//! Limit: one thread's worth of requests a volume. Rejected: an async runtime (its tasks would own the order of events,
//! and the simulator could not replay it).

pub mod measure;

use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender};

use forebay_core::{
    Action, Actions, Cache, CacheConfig, Event, FrameId, IoError, Notice, OpId, PageKey, Profile, ReplyError,
    SlotRecord, SplitConfig, VolumeId,
};
use forebay_uring::Arena;

use crate::attach::{CacheDisk, VolumeEnd, block_checksums};
use crate::device::{Device, DeviceDone, DeviceOp, Doubt, ForWhom, OpKind};
use crate::front::{Front, FrontEvent};
use crate::reactor::Reactor;
use measure::{Measure, MeasureError, MeasureOrder, Measured};

const BLOCK_BYTES: u32 = forebay_core::BLOCK_BYTES;
/// The control period.
const TICK_NS: u64 = 100_000_000;
/// The control period of a cache at rest: an idle server should not wake a virtual machine ten times a second.
const REST_TICK_NS: u64 = 1_000_000_000;
/// Tags with this bit belong to commands, those without to the front end.
const COMMAND: u64 = 1 << 63;
/// Continued steps in one turn: a long trim shares the thread with everybody else.
const CONTINUES_MAX: u32 = 4;
/// Stores that are kept back at most.
const STORES_HELD_MAX: usize = 32;
/// How long they are kept back at most.
const STORE_HELD_NS: u64 = 1_000_000;

/// What a shard asks of the machine that it runs on.
pub trait Host {
    /// Begin to raise the generation number; [`Host::generation_raised`] tells how it ended.
    fn raise_generation(&mut self);
    /// How raising ended, once.
    fn generation_raised(&mut self) -> Option<Result<(), IoError>>;
    /// When the volume's back end was modified last, as far as known (0: unknown).
    fn backend_mtime_ns(&mut self, volume: VolumeId) -> i64;
    /// Something an operator should know.
    fn notice(&mut self, notice: Notice);
}

/// What another thread may ask of a shard. The answer goes to the sender.
#[derive(Debug)]
pub struct Command {
    /// What to do.
    pub order: CommandOrder,
    /// Where the answer goes.
    pub answer: Sender<Result<(), ReplyError>>,
}

/// See [`Command`].
#[expect(missing_docs, reason = "fields as in `forebay_core::Event`")]
#[derive(Clone, Debug)]
pub enum CommandOrder {
    /// As a client's flush.
    Flush { volume: VolumeId },
    /// As [`Event::SetSplit`].
    SetSplit { volume: VolumeId, split: SplitConfig },
    /// As [`Event::SetProfile`].
    SetProfile { volume: VolumeId, profile: Box<Profile> },
    /// Tell the volume's profile, with what its policy observed, to `told`, and nothing to [`Command::answer`].
    Profile { volume: VolumeId, told: Sender<Box<Profile>> },
    /// Measure a path; what it delivers goes to `told`, and nothing to [`Command::answer`].
    Measure { order: MeasureOrder, told: Sender<Result<Measured, MeasureError>> },
    /// Drop clean pages.
    Evict { volume: VolumeId, offset: u64, length: u64 },
    /// Answer what is in flight, refuse the rest, leave the cache disk clean.
    Drain,
}

/// The cache disk of a shard.
pub struct ShardDisk {
    /// The device.
    pub device: Box<dyn Device>,
    /// How it is laid out.
    pub format: CacheDisk,
}

/// What a shard is made of.
pub struct ShardParts<R, F> {
    /// The cache, with as many frames as the arena, less [`Shard::metadata_frames`].
    pub cache: Cache,
    /// All frames.
    pub arena: Rc<Arena>,
    /// The first of the frames that the cache does not use; there are [`Shard::metadata_frames`].
    pub metadata_frame: FrameId,
    /// Time and waiting.
    pub reactor: R,
    /// The clients.
    pub front: F,
    /// The cache disk, if there is one.
    pub disk: Option<ShardDisk>,
    /// The back ends, by volume.
    pub backends: Vec<Box<dyn Device>>,
    /// The machine.
    pub host: Box<dyn Host>,
    /// Orders from other threads, who wake the reactor after sending.
    pub commands: Option<Receiver<Command>>,
}

/// What an unanswered order needs when it ends.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Nothing,
    /// Blocks of a page in a frame: their checksums.
    Slot {
        key: PageKey,
        frame: FrameId,
        first_block: u32,
        blocks: u32,
    },
    /// A sector in a metadata frame.
    Sector {
        frame: FrameId,
    },
    Intent {
        frame: FrameId,
        volume: VolumeId,
    },
    Scan {
        frame: FrameId,
        first_sector: u32,
        sectors: u32,
    },
}

/// See the module.
pub struct Shard<R, F> {
    parts: ShardParts<R, F>,
    actions: Actions,
    pending: Vec<Pending>,
    /// By volume.
    spaces: Vec<u32>,
    metadata_free: Vec<FrameId>,
    generation_op: Option<OpId>,
    /// Stores that are kept back; since when.
    stores: Vec<DeviceOp>,
    stores_since_ns: u64,
    command_answers: Vec<Option<Sender<Result<(), ReplyError>>>>,
    measure: Option<Measure>,
    next_tick_ns: u64,
    /// Whether something happened since the last tick.
    active: bool,
    // Scratch, kept so that a turn does not allocate.
    front_events: Vec<FrontEvent>,
    done: Vec<DeviceDone>,
    crcs: Vec<u32>,
    records: Vec<SlotRecord>,
    doubts: Vec<Doubt>,
}

impl<R: Reactor, F: Front> Shard<R, F> {
    /// Frames that a shard needs beside the cache's.
    #[must_use]
    pub fn metadata_frames(config: &CacheConfig) -> u32 {
        config.metadata_orders_max()
    }

    /// A shard; nothing happens before its first turn.
    #[must_use]
    pub fn new(parts: ShardParts<R, F>, config: &CacheConfig) -> Self {
        let first = parts.metadata_frame.0;
        let metadata = Self::metadata_frames(config);
        assert!(first + metadata <= parts.arena.frames(), "the arena has no frames for records");
        assert_eq!(parts.backends.len(), config.volumes.len(), "a back end a volume");
        Self {
            parts,
            actions: Actions::new(),
            pending: Vec::with_capacity(1024),
            spaces: config.volumes.iter().map(|volume| volume.space).collect(),
            metadata_free: (first..first + metadata).rev().map(FrameId).collect(),
            generation_op: None,
            stores: Vec::with_capacity(STORES_HELD_MAX),
            stores_since_ns: 0,
            command_answers: Vec::new(),
            measure: None,
            next_tick_ns: 0,
            active: false,
            front_events: Vec::with_capacity(256),
            done: Vec::with_capacity(256),
            crcs: Vec::with_capacity(4096),
            records: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// The cache, to look at.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.parts.cache
    }

    /// All frames.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.parts.arena
    }

    /// The front end.
    pub fn front(&mut self) -> &mut F {
        &mut self.parts.front
    }

    /// The reactor.
    pub fn reactor(&mut self) -> &mut R {
        &mut self.parts.reactor
    }

    /// Takes the shard apart: for a simulated crash.
    #[must_use]
    pub fn into_parts(self) -> ShardParts<R, F> {
        self.parts
    }

    /// One round: wait, step, perform.
    pub fn turn(&mut self) {
        let busy = self.parts.cache.has_more() || !self.stores.is_empty();
        let until_ns = if busy { 0 } else { self.next_ns() };
        self.parts.reactor.wait(until_ns);
        let now_ns = self.parts.reactor.now_ns();
        let mut events = self.take_front_events(now_ns);
        events += self.take_commands(now_ns);
        events += self.take_device_events(now_ns);
        self.take_generation(now_ns);
        if events == 0 || now_ns >= self.stores_since_ns + STORE_HELD_NS {
            self.start_stores(now_ns);
        }
        self.tick(now_ns, events > 0);
        for _ in 0..CONTINUES_MAX {
            if !self.parts.cache.has_more() {
                break;
            }
            self.step(now_ns, Event::Continue);
        }
        self.parts.front.turn_end(now_ns);
    }

    /// The control period: short from the first event until a whole one passed without any and nothing is left to do.
    fn tick(&mut self, now_ns: u64, active: bool) {
        self.active |= active;
        if self.active {
            self.next_tick_ns = self.next_tick_ns.min(now_ns + TICK_NS);
        }
        if now_ns >= self.next_tick_ns {
            let at_rest = !self.active && self.parts.cache.is_at_rest();
            self.next_tick_ns = now_ns + if at_rest { REST_TICK_NS } else { TICK_NS };
            self.active = false;
            self.count_submitters(now_ns);
            self.step(now_ns, Event::Tick);
        }
    }

    /// Policies that split hits ask how many submit.
    fn count_submitters(&mut self, now_ns: u64) {
        for volume in (0..self.parts.backends.len()).map(|at| VolumeId(at as u16)) {
            if self.parts.cache.is_split(volume) {
                let count = self.parts.front.take_submitters(volume);
                self.step(now_ns, Event::Submitters { volume, count });
            }
        }
    }

    fn next_ns(&self) -> u64 {
        let disk = self.parts.disk.as_ref().and_then(|disk| disk.device.next_ns());
        let backends = self.parts.backends.iter().filter_map(|backend| backend.next_ns());
        backends.chain(disk).chain(self.parts.front.next_ns()).fold(self.next_tick_ns, u64::min)
    }

    /// How many there were.
    fn take_front_events(&mut self, now_ns: u64) -> usize {
        let mut events = std::mem::take(&mut self.front_events);
        self.parts.front.poll(now_ns, &mut events);
        let count = events.len();
        for event in events.drain(..) {
            self.step(now_ns, event_of(event));
        }
        self.front_events = events;
        count
    }

    /// How many there were.
    fn take_commands(&mut self, now_ns: u64) -> usize {
        let mut count = 0;
        while let Some(command) = self.parts.commands.as_ref().and_then(|commands| commands.try_recv().ok()) {
            count += 1;
            match command.order {
                CommandOrder::Measure { order, told } => {
                    self.begin_measure(now_ns, order, told);
                    continue;
                }
                CommandOrder::Profile { volume, told } => {
                    // Whoever asked may have given up.
                    let _ = told.send(Box::new(self.parts.cache.profile(volume).clone()));
                    continue;
                }
                _ => {}
            }
            let free = self.command_answers.iter().position(Option::is_none);
            let at = free.unwrap_or_else(|| {
                self.command_answers.push(None);
                self.command_answers.len() - 1
            });
            self.command_answers[at] = Some(command.answer);
            let tag = COMMAND | at as u64;
            self.step(
                now_ns,
                match &command.order {
                    &CommandOrder::Flush { volume } => Event::Flush { volume, tag },
                    &CommandOrder::Evict { volume, offset, length } => Event::Evict { volume, tag, offset, length },
                    CommandOrder::Drain => Event::Drain { tag },
                    &CommandOrder::SetSplit { volume, split } => Event::SetSplit { volume, tag, split },
                    CommandOrder::SetProfile { volume, profile } => Event::SetProfile { volume: *volume, tag, profile },
                    CommandOrder::Measure { .. } | CommandOrder::Profile { .. } => unreachable!("answered above"),
                },
            );
        }
        count
    }

    /// How many operations ended.
    fn take_device_events(&mut self, now_ns: u64) -> usize {
        let mut done = std::mem::take(&mut self.done);
        if let Some(disk) = &mut self.parts.disk {
            disk.device.poll(now_ns, &mut done);
        }
        for backend in &mut self.parts.backends {
            backend.poll(now_ns, &mut done);
        }
        // What is lost comes first: a flush that ended well in the same turn does not cover it.
        let mut doubts = std::mem::take(&mut self.doubts);
        for at in 0..self.parts.backends.len() {
            self.parts.backends[at].in_doubt(&mut doubts);
            for Doubt { range, is_lost } in doubts.drain(..) {
                let (volume, offset, length) = (VolumeId(at as u16), range.start, range.end - range.start);
                self.step(now_ns, Event::InDoubt { volume, offset, length, is_lost });
            }
        }
        self.doubts = doubts;
        let count = done.len();
        for DeviceDone { token, result } in done.drain(..) {
            if token & measure::TOKEN != 0 {
                self.measured(now_ns, token, result);
                continue;
            }
            self.ended(now_ns, OpId(token as u32), result);
        }
        self.done = done;
        count
    }

    /// An operation ended: looks at its bytes if it must, and tells the cache.
    fn ended(&mut self, now_ns: u64, op: OpId, result: Result<(), IoError>) {
        let pending = std::mem::replace(&mut self.pending[op.index()], Pending::Nothing);
        let mut crcs = std::mem::take(&mut self.crcs);
        crcs.clear();
        match pending {
            Pending::Nothing => {}
            Pending::Slot { key, frame, first_block, blocks } => {
                if result.is_ok() {
                    let blocks_per_page = u64::from(self.parts.arena.frame_bytes() / BLOCK_BYTES);
                    let first = u64::from(key.page) * blocks_per_page + u64::from(first_block);
                    let (at, length) = (first_block * BLOCK_BYTES, blocks * BLOCK_BYTES);
                    self.parts.arena.with_bytes(frame.0, at, length, |bytes| {
                        block_checksums(key.space, first, bytes, &mut crcs);
                    });
                }
            }
            Pending::Sector { frame } => self.metadata_free.push(frame),
            Pending::Intent { frame, volume } => {
                self.metadata_free.push(frame);
                if result.is_ok()
                    && let Some(disk) = &mut self.parts.disk
                {
                    disk.format.intent_durable(volume);
                }
            }
            Pending::Scan { frame, first_sector, sectors } => {
                self.metadata_free.push(frame);
                if result.is_ok() {
                    self.crcs = crcs;
                    return self.scanned(now_ns, op, frame, first_sector, sectors);
                }
            }
        }
        self.step(now_ns, Event::Done { op, result, crcs: &crcs });
        self.crcs = crcs;
    }

    fn scanned(&mut self, now_ns: u64, op: OpId, frame: FrameId, first_sector: u32, sectors: u32) {
        let (mut records, mut crcs) = (std::mem::take(&mut self.records), std::mem::take(&mut self.crcs));
        records.clear();
        let disk = self.parts.disk.as_ref().expect("a disk was scanned");
        let first_slot = self.parts.arena.with_bytes(frame.0, 0, sectors * BLOCK_BYTES, |bytes| {
            disk.format.decode_table_sectors(first_sector, bytes, &mut records, &mut crcs)
        });
        self.step(now_ns, Event::TableScanned { op, first_slot, records: &records, crcs: &crcs });
        (self.records, self.crcs) = (records, crcs);
    }

    fn take_generation(&mut self, now_ns: u64) {
        if let Some(op) = self.generation_op
            && let Some(result) = self.parts.host.generation_raised()
        {
            self.generation_op = None;
            self.step(now_ns, Event::Done { op, result, crcs: &[] });
        }
    }

    fn step(&mut self, now_ns: u64, event: Event<'_>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.parts.cache.step(now_ns, event, &mut actions);
        for action in actions.as_slice() {
            self.perform(now_ns, *action);
        }
        actions.clear();
        self.actions = actions;
    }

    fn perform(&mut self, now_ns: u64, action: Action) {
        let parts = &mut self.parts;
        match action {
            Action::Receive { tag, request } => parts.front.receive(now_ns, tag, request, parts.cache.pieces(request)),
            Action::ReplyRead { tag, request } => {
                parts.front.reply_read(now_ns, tag, request, parts.cache.pieces(request));
            }
            Action::Probed { tag, found } => parts.front.probed(now_ns, tag, found),
            Action::Reply { tag, result } if tag & COMMAND != 0 => self.answer_command(tag, result),
            Action::Reply { tag, result } => parts.front.reply(now_ns, tag, result),
            Action::Copy { from, to, at, length } => parts.arena.copy_between(from.0, at, to.0, at, length),
            Action::ReadSlot { op, slot, key, frame, first_block, blocks } => {
                let pending = Pending::Slot { key, frame, first_block, blocks };
                self.slot_io(now_ns, op, slot.0, OpKind::Read, pending);
            }
            Action::WriteSlot { op, slot, key, frame, first_block, blocks } => {
                let pending = Pending::Slot { key, frame, first_block, blocks };
                self.slot_io(now_ns, op, slot.0, OpKind::Write { fua: false }, pending);
            }
            Action::ReadBackend { op, volume, offset, piece, check } => {
                let (frame, at, length) = (piece.frame, piece.at, u64::from(piece.length));
                let read = DeviceOp { token: u64::from(op.0), kind: OpKind::Read, offset, length, frame, at };
                self.backend_io(now_ns, volume, read);
                if let Some(key) = check {
                    let (first_block, blocks) = (at / BLOCK_BYTES, piece.length / BLOCK_BYTES);
                    self.note(op, Pending::Slot { key, frame, first_block, blocks });
                }
            }
            Action::GiveUpRead { op, volume } => parts.backends[volume.index()].give_up(now_ns, u64::from(op.0)),
            Action::WriteBackend { op, volume, offset, piece, fua } => {
                let (frame, at, length) = (piece.frame, piece.at, u64::from(piece.length));
                let kind = OpKind::Write { fua };
                self.backend_io(now_ns, volume, DeviceOp { token: u64::from(op.0), kind, offset, length, frame, at });
            }
            Action::FlushBackend { op, volume, promised } => {
                self.note(op, Pending::Nothing);
                let flush = without_bytes(op, OpKind::Flush, 0, 0);
                let backend = &mut self.parts.backends[volume.index()];
                if promised { backend.submit(now_ns, flush) } else { backend.persist(now_ns, flush) }
            }
            Action::TrimBackend { op, volume, offset, length, fua } => {
                self.backend_io(now_ns, volume, without_bytes(op, OpKind::Trim { fua }, offset, length));
            }
            Action::ZeroBackend { op, volume, offset, length, fua, no_hole } => {
                self.backend_io(
                    now_ns,
                    volume,
                    without_bytes(op, OpKind::WriteZeroes { fua, no_hole }, offset, length),
                );
            }
            Action::WriteTable { .. }
            | Action::WriteIntent { .. }
            | Action::FlushDisk { .. }
            | Action::ScanTable { .. }
            | Action::MarkClean { .. } => self.perform_on_records(now_ns, action),
            Action::RaiseGeneration { op } => {
                self.generation_op = Some(op);
                parts.host.raise_generation();
            }
            Action::Notice(notice) => parts.host.notice(notice),
        }
    }

    fn answer_command(&mut self, tag: u64, result: Result<(), ReplyError>) {
        let answer = self.command_answers[(tag & !COMMAND) as usize].take().expect("a command is answered once");
        // Whoever asked may have given up.
        let _ = answer.send(result);
    }

    fn note(&mut self, op: OpId, pending: Pending) {
        if self.pending.len() <= op.index() {
            self.pending.resize(op.index() + 1, Pending::Nothing);
        }
        self.pending[op.index()] = pending;
    }

    fn backend_io(&mut self, now_ns: u64, volume: VolumeId, op: DeviceOp) {
        self.note(OpId(op.token as u32), Pending::Nothing);
        self.parts.backends[volume.index()].submit(now_ns, op);
    }

    fn slot_io(&mut self, now_ns: u64, op: OpId, slot: u32, kind: OpKind, pending: Pending) {
        let Pending::Slot { frame, first_block, blocks, .. } = pending else { unreachable!("a slot's blocks") };
        self.note(op, pending);
        let disk = self.disk();
        let at = first_block * BLOCK_BYTES;
        let offset = disk.format.layout().slot_offset(u64::from(slot)) + u64::from(at);
        let length = u64::from(blocks * BLOCK_BYTES);
        let op = DeviceOp { token: u64::from(op.0), kind, offset, length, frame, at };
        if kind == OpKind::Read {
            return self.start_on_slot(now_ns, op, true);
        }
        if self.stores.is_empty() {
            self.stores_since_ns = now_ns;
        }
        self.stores.push(op);
        if self.stores.len() == STORES_HELD_MAX {
            self.start_stores(now_ns);
        }
    }

    /// Starts what was kept back.
    fn start_stores(&mut self, now_ns: u64) {
        let mut stores = std::mem::take(&mut self.stores);
        for op in stores.drain(..) {
            self.start_on_slot(now_ns, op, false);
        }
        self.stores = stores;
    }

    /// From the share of the volume whose page it is.
    fn start_on_slot(&mut self, now_ns: u64, op: DeviceOp, is_demand: bool) {
        let Pending::Slot { key, .. } = self.pending[op.token as usize] else { unreachable!("a slot's blocks") };
        let volume = self.spaces.iter().position(|space| *space == key.space).expect("the page of a volume");
        let whom = ForWhom { volume: Some(VolumeId(volume as u16)), is_demand };
        self.disk().device.submit_for(now_ns, whom, op);
    }

    fn disk(&mut self) -> &mut ShardDisk {
        self.parts.disk.as_mut().expect("orders for the cache disk come only where there is one")
    }

    /// The orders that read and write records on the cache disk.
    fn perform_on_records(&mut self, now_ns: u64, action: Action) {
        if let Action::FlushDisk { op } = action {
            self.note(op, Pending::Nothing);
            return self.disk().device.submit(now_ns, without_bytes(op, OpKind::Flush, 0, 0));
        }
        let frame = self.metadata_free.pop().expect("the cache keeps its limits on records under way");
        let parts = &mut self.parts;
        let disk = parts.disk.as_mut().expect("orders for the cache disk come only where there is one");
        let (cache, format) = (&parts.cache, &mut disk.format);
        let mut length = BLOCK_BYTES;
        let (op, kind, offset, pending) = match action {
            Action::WriteTable { op, sector } => {
                let encode = |bytes: &mut [u8]| format.encode_table_sector(cache, sector, bytes);
                let offset = parts.arena.with_bytes_mut(frame.0, 0, length, encode);
                (op, OpKind::Write { fua: false }, offset, Pending::Sector { frame })
            }
            Action::WriteIntent { op, volume } => {
                let encode = |bytes: &mut [u8]| format.encode_intent(volume, cache.intent_words(volume), bytes);
                let offset = parts.arena.with_bytes_mut(frame.0, 0, length, encode);
                (op, OpKind::Write { fua: true }, offset, Pending::Intent { frame, volume })
            }
            Action::MarkClean { op } => {
                let settled = parts.backends.iter().map(|backend| backend.is_settled());
                let end = |(at, log_has_followed)| VolumeEnd {
                    mtime_ns: parts.host.backend_mtime_ns(VolumeId(at)),
                    log_has_followed,
                };
                let ends: Vec<VolumeEnd> = (0..).zip(settled).map(end).collect();
                let encode = |bytes: &mut [u8]| format.encode_clean(&ends, bytes);
                let offset = parts.arena.with_bytes_mut(frame.0, 0, length, encode);
                (op, OpKind::Write { fua: true }, offset, Pending::Sector { frame })
            }
            Action::ScanTable { op, first_sector, sectors } => {
                length = sectors * BLOCK_BYTES;
                let offset = format.layout().table_sector_offset(u64::from(first_sector));
                (op, OpKind::Read, offset, Pending::Scan { frame, first_sector, sectors })
            }
            _ => unreachable!("not an order about records: {action:?}"),
        };
        let op_on_disk = DeviceOp { token: u64::from(op.0), kind, offset, length: u64::from(length), frame, at: 0 };
        disk.device.submit(now_ns, op_on_disk);
        self.note(op, pending);
    }
}

fn without_bytes(op: OpId, kind: OpKind, offset: u64, length: u64) -> DeviceOp {
    DeviceOp { token: u64::from(op.0), kind, offset, length, frame: FrameId(0), at: 0 }
}

/// The cache's word for what a client did.
fn event_of(event: FrontEvent) -> Event<'static> {
    match event {
        FrontEvent::Read { volume, tag, offset, length } => Event::Read { volume, tag, offset, length },
        FrontEvent::Write { volume, tag, offset, length, fua } => Event::Write { volume, tag, offset, length, fua },
        FrontEvent::Fill { volume, tag, offset, length } => Event::Fill { volume, tag, offset, length },
        FrontEvent::Probe { volume, tag, offset, length } => Event::Probe { volume, tag, offset, length },
        FrontEvent::Received { request } => Event::Received { request },
        FrontEvent::NotReceived { request } => Event::NotReceived { request },
        FrontEvent::Sent { request } => Event::Sent { request },
        FrontEvent::Flush { volume, tag } => Event::Flush { volume, tag },
        FrontEvent::Trim { volume, tag, offset, length, fua } => Event::Trim { volume, tag, offset, length, fua },
        FrontEvent::WriteZeroes { volume, tag, offset, length, fua, no_hole } => {
            Event::WriteZeroes { volume, tag, offset, length, fua, no_hole }
        }
        FrontEvent::Evict { volume, tag, offset, length } => Event::Evict { volume, tag, offset, length },
        FrontEvent::Drain { tag } => Event::Drain { tag },
    }
}
