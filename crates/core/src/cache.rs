//! The cache: its state, and the step that changes it.
//!
//! One owner, no locks: a shard's thread calls [`Cache::step`] for everything that happens and performs the orders it
//! gives. A step first takes note of the event, then *pumps*: parts that can go on do so, as long as there is room in
//! the action list. What is left over goes on with the next step ([`Cache::has_more`]).
//!
//! Downside: everything a volume does passes through one thread. Rejected: a lock a page and many threads (the order of
//! overlapping writes, the sweep and recovery would each need a protocol instead of a sequence of lines).
//!
//! Progress: a request takes transit units for all its frames before anything else. A part that holds blocks of a page
//! therefore never waits for memory, only for devices, and those answer or are given up.

use crate::action::{Action, Actions, Piece};
use crate::activity::{Activities, ActivityId};
use crate::config::CacheConfig;
use crate::disk::DiskTier;
use crate::error::{ConfigError, ReplyError};
use crate::event::{Event, IoError};
use crate::flush::Flushes;
use crate::intent::IntentMap;
use crate::memory::MemoryTier;
use crate::mode::Row;
use crate::op::{Ops, Role};
use crate::page::{BLOCK_BYTES, FrameId, OpId, PageKey, RequestId, SlotId, VolumeId};
use crate::range::Ranges;
use crate::recovery::Recovery;
use crate::request::{Kind, PartId, Requests, Stage};
use crate::stats::{Gauges, Stats, VolumeStats};
use crate::store::Admission;
use crate::sweep::{Drain, Sweep};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use forebay_policy::prefetch::StreamTable;
use forebay_policy::split::{SplitConfig, Splitter};

/// Whether the cache disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskState {
    Absent,
    Attached,
    /// Given up. `raised`: the generation says so durably, so that writes may go on.
    Detached {
        raised: bool,
    },
}

/// A part that can go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ready {
    /// It has its frames (or, for a read, the right to them) and asks for its blocks.
    Start(PartId),
    /// It holds its blocks.
    Granted(PartId),
    /// A write that waited for its region's bit.
    Issue(PartId),
}

/// A volume as the cache runs it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) space: u32,
    pub(crate) bytes: u64,
    pub(crate) row: &'static Row,
    pub(crate) range_bytes_max: u64,
    pub(crate) intent: IntentMap,
    pub(crate) streams: StreamTable,
    pub(crate) flushes: Flushes,
    /// A flush of the sweep's is at the back end.
    pub(crate) sweep_flush: bool,
    /// Ranges under way that the back end may have lost.
    pub(crate) doubts: u32,
    /// Writes that the back end answered so far, and how many of these are known to be durable there.
    pub(crate) write_seq: u64,
    pub(crate) flushed_seq: u64,
    /// Splits its hits, if anybody does.
    pub(crate) splitter: Option<Splitter>,
    /// Once so many writes are flushed: what was stored before it split has no stamp of its own.
    pub(crate) split_from_seq: u64,
}

/// The cache. See the module.
#[derive(Debug)]
pub struct Cache {
    pub(crate) config: CacheConfig,
    pub(crate) memory: MemoryTier,
    pub(crate) disk: DiskTier,
    pub(crate) disk_state: DiskState,
    /// Operations of the disk that failed, and reads that gave wrong bytes, since they were last forgiven; when that was.
    pub(crate) disk_errors: u32,
    pub(crate) disk_lies: u32,
    pub(crate) forgiven_ns: u64,
    pub(crate) requests: Requests,
    pub(crate) ops: Ops,
    pub(crate) activities: Activities,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) admission: Admission,
    /// Requests that wait for transit units, first come first served.
    pub(crate) queue: VecDeque<RequestId>,
    pub(crate) ready: VecDeque<Ready>,
    /// The last step ended for want of room.
    pub(crate) starved: bool,
    /// Writes that wait for their region's bit, or for the generation.
    pub(crate) intent_wait: VecDeque<PartId>,
    pub(crate) intent_asked: bool,
    pub(crate) ranges: Ranges,
    pub(crate) sweep: Sweep,
    pub(crate) recovery: Recovery,
    pub(crate) drain: Drain,
    pub(crate) stores: u32,
    pub(crate) stats: Stats,
}

impl Cache {
    /// A cache. Nothing happens before the first [`Event::Tick`].
    ///
    /// # Errors
    /// See [`CacheConfig::check`].
    pub fn new(config: CacheConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let blocks = config.blocks_per_page();
        let volumes: Vec<Volume> = config
            .volumes
            .iter()
            .map(|volume| Volume {
                space: volume.space,
                bytes: volume.bytes,
                row: volume.mode.row(),
                range_bytes_max: volume.range_bytes_max,
                intent: IntentMap::new(volume.bytes, volume.region_bytes, &volume.in_flight_regions),
                streams: StreamTable::new(),
                flushes: Flushes::default(),
                sweep_flush: false,
                doubts: 0,
                // Regions in flight at the last stop: what was written there may still be in the back end's cache.
                write_seq: u64::from(volume.in_flight_regions.iter().any(|word| *word != 0)),
                flushed_seq: 0,
                splitter: None,
                split_from_seq: 0,
            })
            .collect();
        let recover = config.recover && config.slots > 0;
        let disk_policy = config.disk_policy;
        let disk =
            DiskTier::new(config.slots, blocks, config.table_records_per_sector, disk_policy, config.seed, recover);
        let splits: Vec<SplitConfig> = config.volumes.iter().map(|volume| volume.split).collect();
        let mut cache = Self {
            memory: MemoryTier::new(config.frames, config.transit_frames, config.memory_policy, config.seed),
            recovery: Recovery::new(recover, disk.sectors(), config.scan_sectors_max),
            disk,
            disk_state: if config.slots > 0 { DiskState::Attached } else { DiskState::Absent },
            disk_errors: 0,
            disk_lies: 0,
            forgiven_ns: 0,
            requests: Requests::new(config.limits.requests_max),
            ops: Ops::default(),
            activities: Activities::new(),
            admission: Admission::new(&config.admission, config.slots),
            queue: VecDeque::with_capacity(config.limits.requests_max as usize),
            ready: VecDeque::with_capacity(64),
            starved: false,
            intent_wait: VecDeque::new(),
            intent_asked: volumes.iter().any(|v| v.intent.wants_write()),
            ranges: Ranges::default(),
            sweep: Sweep::default(),
            drain: Drain::default(),
            stores: 0,
            stats: Stats { volumes: alloc::vec![VolumeStats::default(); volumes.len()], ..Stats::default() },
            volumes,
            config,
        };
        for (volume, split) in splits.into_iter().enumerate() {
            cache.set_split(0, VolumeId(volume as u16), split);
        }
        Ok(cache)
    }

    /// Takes what happened at `now_ns` and appends orders to `actions`, which is to be empty.
    pub fn step(&mut self, now_ns: u64, event: Event<'_>, actions: &mut Actions) {
        assert!(actions.as_slice().is_empty(), "the orders of the last step were not performed");
        match event {
            Event::Read { volume, tag, offset, length } => {
                self.submit(now_ns, Kind::Read, (volume, tag, offset, length), actions);
            }
            Event::Write { volume, tag, offset, length, fua } => {
                self.submit(now_ns, Kind::Write { fua }, (volume, tag, offset, length), actions);
            }
            Event::Fill { volume, tag, offset, length } => {
                self.submit(now_ns, Kind::Fill, (volume, tag, offset, length), actions);
            }
            Event::Probe { volume, tag, offset, length } => self.probe(volume, tag, offset, length, actions),
            Event::Received { request } => self.received(request),
            Event::NotReceived { request } => self.not_received(request),
            Event::Sent { request } => self.sent(request),
            Event::Flush { volume, tag } => self.flush(now_ns, volume, tag, actions),
            Event::Trim { .. } | Event::WriteZeroes { .. } | Event::Evict { .. } | Event::InDoubt { .. } => {
                self.range_event(now_ns, &event, actions);
            }
            Event::Done { op, result, crcs } => self.done(now_ns, op, result, crcs, actions),
            Event::TableScanned { op, first_slot, records, crcs } => self.scanned(op, first_slot, records, crcs),
            Event::SetSplit { volume, tag, split } => {
                self.set_split(now_ns, volume, split);
                actions.push(Action::Reply { tag, result: Ok(()) });
            }
            Event::SetProfile { volume, tag, profile } => {
                self.set_profile(now_ns, volume, profile);
                actions.push(Action::Reply { tag, result: Ok(()) });
            }
            Event::Submitters { volume, count } => {
                if let Some(splitter) = &mut self.volumes[volume.index()].splitter {
                    splitter.set_submitters(count);
                }
            }
            Event::Drain { tag } if self.drain.asked.is_some() => {
                actions.push(Action::Reply { tag, result: Err(ReplyError::ShuttingDown) });
            }
            Event::Drain { tag } => self.drain.asked = Some(tag),
            Event::Tick => self.tick(now_ns, actions),
            Event::Continue => {}
        }
        self.pump(now_ns, actions);
    }

    /// Whether work was left over for want of room: step again with [`Event::Continue`].
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.starved
    }

    fn pump(&mut self, now_ns: u64, actions: &mut Actions) {
        self.starved = false;
        loop {
            if !actions.has_room_for_part() {
                self.starved = true;
                return;
            }
            if let Some(ready) = self.ready.pop_front() {
                self.go_on(now_ns, ready, actions);
            } else if let Some(&request) = self.queue.front()
                && self.memory.reserve(u32::from(self.requests.get(request).parts_count))
            {
                self.queue.pop_front();
                self.begin(now_ns, request, actions);
            } else if !self.advance(now_ns, actions) {
                return;
            }
        }
    }

    /// The work that is nobody's part: trims, intent maps, recovery, draining. Whether it made a part ready.
    fn advance(&mut self, now_ns: u64, actions: &mut Actions) -> bool {
        self.advance_ranges(now_ns, actions);
        self.order_intents(now_ns, actions);
        self.advance_recovery(now_ns, actions);
        self.advance_drain(now_ns, actions);
        !self.ready.is_empty()
    }

    fn go_on(&mut self, now_ns: u64, ready: Ready, actions: &mut Actions) {
        match ready {
            Ready::Start(part) => self.start_part(now_ns, part, actions),
            Ready::Granted(part) => self.granted_late(now_ns, part, actions),
            Ready::Issue(part) => self.issue_write(now_ns, part, actions),
        }
    }

    /// Checks a request, and queues it for its frames.
    fn submit(
        &mut self,
        now_ns: u64,
        kind: Kind,
        (volume, tag, offset, length): (VolumeId, u64, u64, u32),
        actions: &mut Actions,
    ) {
        let checked = self.check_range(volume, offset, u64::from(length)).and_then(|()| {
            if length > self.config.request_bytes_max() {
                return Err(ReplyError::Invalid);
            }
            self.check_kind(volume, kind, offset, length)?;
            self.requests.take().ok_or(ReplyError::Busy)
        });
        let id = match checked {
            Ok(id) => id,
            Err(error) => return actions.push(Action::Reply { tag, result: Err(error) }),
        };
        let request = self.requests.get_mut(id);
        request.stage = Stage::Queued;
        request.kind = kind;
        request.volume = volume;
        request.tag = tag;
        request.offset = offset;
        request.length = length;
        request.start_ns = now_ns;
        request.error = None;
        request.answered = false;
        request.split = None;
        let run = self.volumes[volume.index()].streams.observe(offset, length).run_bytes;
        let v = &self.volumes[volume.index()];
        self.requests.cut(id, v.space, v.bytes, self.config.page_bytes, run);
        // Most requests find nobody before them; the queue would only cost them.
        let count = self.requests.get(id).parts_count;
        let is_next = self.ready.is_empty() && (self.queue.is_empty() && self.memory.reserve(u32::from(count)));
        if is_next || (self.is_memory_hit(id) && self.memory.reserve_for_hit()) {
            self.begin(now_ns, id, actions);
        } else {
            self.queue.push_back(id);
        }
    }

    /// Whether the volume takes such a request at all.
    fn check_kind(&self, volume: VolumeId, kind: Kind, offset: u64, length: u32) -> Result<(), ReplyError> {
        let volume = self.volume(volume);
        let block = u64::from(BLOCK_BYTES);
        let end = offset + u64::from(length);
        let is_whole = offset.is_multiple_of(block) && (end.is_multiple_of(block) || end == volume.bytes);
        match kind {
            Kind::Write { .. } if !volume.row.writes_allowed => Err(ReplyError::ReadOnly),
            Kind::Fill if !volume.row.reads_cached => Err(ReplyError::Unsupported),
            Kind::Fill if !is_whole => Err(ReplyError::Invalid),
            Kind::Read | Kind::Write { .. } | Kind::Fill => Ok(()),
        }
    }

    /// Whether the request is a read of one page that memory can answer.
    fn is_memory_hit(&self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let part = self.requests.part(PartId::new(id, 0));
        request.kind == Kind::Read
            && request.parts_count == 1
            && self.memory.lookup(part.key).is_some_and(|frame| part.blocks() & !self.memory.valid(frame) == 0)
    }

    /// Whether a range may be asked for at all.
    pub(crate) fn check_range(&self, volume: VolumeId, offset: u64, length: u64) -> Result<(), ReplyError> {
        let volume = self.volume(volume);
        let end = offset.checked_add(length).filter(|end| *end <= volume.bytes);
        // The last sector of a volume whose size is not a multiple of 512 is shorter.
        let ends_well = length.is_multiple_of(512) || end == Some(volume.bytes);
        if self.drain.asked.is_some() {
            Err(ReplyError::ShuttingDown)
        } else if length == 0 || end.is_none() || !offset.is_multiple_of(512) || !ends_well {
            Err(ReplyError::Invalid)
        } else {
            Ok(())
        }
    }

    /// The request has its transit units.
    fn begin(&mut self, now_ns: u64, id: RequestId, actions: &mut Actions) {
        let request = self.requests.get_mut(id);
        let (tag, count) = (request.tag, usize::from(request.parts_count));
        match request.kind {
            Kind::Read => {
                request.stage = Stage::Working;
                if count == 1 {
                    return self.start_part(now_ns, PartId::new(id, 0), actions);
                }
                self.ready.extend((0..count).map(|place| Ready::Start(PartId::new(id, place))));
            }
            Kind::Write { .. } | Kind::Fill => {
                request.stage = Stage::Receiving;
                for place in 0..count {
                    let frame = self.memory.allocate();
                    self.requests.set_frame(PartId::new(id, place), frame);
                }
                actions.push(Action::Receive { tag, request: id });
            }
        }
    }

    /// Asks for a part's blocks: behind trims of its range, writes and fetches of its blocks, and whoever waits already.
    fn start_part(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let request = self.requests.get(id.request());
        let (volume, write) = (request.volume, request.kind != Kind::Read);
        let part = self.requests.part(id);
        let (key, blocks) = (part.key, part.blocks());
        if self.waits_for_range(volume, key, id) {
            return;
        }
        let activity = if write { Some(self.activities.join(key)) } else { self.activities.join_existing(key) };
        self.requests.part_mut(id).activity = activity;
        if activity.is_none_or(|activity| self.activities.ask(activity, id, blocks, write)) {
            self.granted(now_ns, id, actions);
        }
    }

    /// A part that waited may go on. A read holds nothing yet, so that another may have come before it.
    fn granted_late(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        let part = self.requests.part(id);
        let (activity, blocks) = (part.activity.expect("a part waits at its page"), part.blocks());
        let is_read = self.requests.get(id.request()).kind == Kind::Read;
        if !is_read || self.activities.ask_again(activity, id, blocks) {
            self.granted(now_ns, id, actions);
        }
    }

    fn granted(&mut self, now_ns: u64, id: PartId, actions: &mut Actions) {
        match self.requests.get(id.request()).kind {
            Kind::Read => self.serve(now_ns, id, actions),
            Kind::Write { .. } => self.write_granted(now_ns, id, actions),
            Kind::Fill => self.filled(now_ns, id, actions),
        }
    }

    /// Stops using a page's activity; parts that waited for it go on.
    pub(crate) fn leave(&mut self, activity: ActivityId) {
        let mut reads = 0;
        while let Some(part) = self.activities.grant(activity, &mut reads) {
            self.ready.push_back(Ready::Granted(part));
        }
        let key = self.activities.get(activity).key;
        self.activities.leave(activity);
        self.ranges.left(key.page);
    }

    fn sent(&mut self, id: RequestId) {
        assert!(self.requests.get(id).stage == Stage::Sending, "request {} was not being sent", id.0);
        self.release_request(id);
    }

    fn received(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        assert!(request.stage == Stage::Receiving, "request {} was not being received", id.0);
        request.stage = Stage::Working;
        let count = usize::from(request.parts_count);
        self.ready.extend((0..count).map(|place| Ready::Start(PartId::new(id, place))));
    }

    fn not_received(&mut self, id: RequestId) {
        assert!(self.requests.get(id).stage == Stage::Receiving, "request {} was not being received", id.0);
        self.release_request(id);
    }

    /// An order ended.
    fn done(&mut self, now_ns: u64, id: OpId, result: Result<(), IoError>, crcs: &[u32], actions: &mut Actions) {
        let op = self.ops.end(id);
        self.measured(now_ns, &op, result);
        if op.role.on_disk() {
            self.disk_answered(&op, result, now_ns, actions);
        }
        match op.role {
            Role::Free => panic!("order {} ended twice", id.0),
            Role::FetchSlot { part, slot, first, blocks } => {
                let frame = op.frame.expect("a fetch has its frame");
                self.fetched_slot(now_ns, part, frame, (slot, first, blocks), result.map(|()| crcs), actions);
            }
            Role::FetchBackend { part, blocks } => self.fetched_backend(now_ns, part, blocks, result, actions),
            Role::FetchSplit { part, slot, first, blocks } => {
                self.fetched_split(now_ns, part, op.start_ns, (slot, first, blocks), result.map(|()| crcs), actions);
            }
            Role::HedgeSlot { part, slot, first, .. } => {
                self.hedged_slot(now_ns, part, (slot, first), result.map(|()| crcs), actions);
            }
            Role::Hedge { part } => self.hedge_answered(now_ns, part, result.is_ok(), actions),
            Role::Orphan { .. } => {
                self.memory.unpin(op.frame.expect("an orphan has its frame"));
                self.memory.give_back();
            }
            Role::Write { part } => self.written(now_ns, part, result, actions),
            Role::Store { activity, slot, first, blocks } => {
                let frame = op.frame.expect("a store has its frame");
                self.stored(activity, frame, (slot, first, blocks), result.map(|()| crcs));
            }
            Role::Flush { volume, covers } => self.flushed(now_ns, volume, covers, result, actions),
            Role::Range { range } => self.range_done(now_ns, range, result, actions),
            Role::SweepTable => self.sweep_table_written(now_ns, result, actions),
            Role::SweepDisk => self.sweep_disk_flushed(now_ns, result, actions),
            Role::SweepBackend { volume, covers } => self.sweep_backend_flushed(volume, covers, result, actions),
            Role::Intent { volume } => self.intent_written(volume, result),
            Role::Clean => self.marked_clean(actions),
            Role::Generation => self.generation_raised(result, actions),
            Role::Scan { first_sector, sectors } => self.scan_failed(first_sector, sectors),
        }
    }

    /// The control period: what depends on time.
    fn tick(&mut self, now_ns: u64, actions: &mut Actions) {
        self.watch(now_ns, actions);
        self.fail_late_flushes(now_ns, actions);
        self.fail_late_ranges(now_ns, actions);
        self.begin_sweep(now_ns, actions);
        self.retry_generation(now_ns, actions);
        for splitter in self.volumes.iter_mut().filter_map(|volume| volume.splitter.as_mut()) {
            splitter.tick(now_ns);
        }
    }

    pub(crate) fn volume(&self, volume: VolumeId) -> &Volume {
        &self.volumes[volume.index()]
    }

    /// Whose pages are of that space.
    pub(crate) fn volume_of(&self, space: u32) -> Option<VolumeId> {
        self.volumes.iter().position(|volume| volume.space == space).map(|at| VolumeId(at as u16))
    }

    /// The slot that a page may be read from.
    pub(crate) fn slot_of(&self, key: PageKey) -> Option<SlotId> {
        if self.disk_state == DiskState::Attached { self.disk.lookup(key) } else { None }
    }

    pub(crate) fn page_start(&self, key: PageKey) -> u64 {
        u64::from(key.page) * u64::from(self.config.page_bytes)
    }

    /// The frames of a request, in order.
    #[must_use]
    pub fn pieces(&self, request: RequestId) -> &[Piece] {
        self.requests.get(request).pieces()
    }

    /// The records of a table sector as they are to be on disk: for each of its slots the page (`None`: void) and its
    /// checksums.
    pub fn table_sector(&self, sector: u32) -> impl Iterator<Item = (Option<PageKey>, &[u32])> {
        self.disk.sector_slots(sector).map(|slot| (self.disk.key(slot), self.disk.crcs(slot)))
    }

    /// A volume's intent map as it is to be on disk: bit i of word i/64 for region i.
    #[must_use]
    pub fn intent_words(&self, volume: VolumeId) -> &[u64] {
        self.volume(volume).intent.words()
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What is held and under way now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            memory_pages: self.memory.pages(),
            memory_pages_max: self.memory.pages_max(),
            disk_pages: self.disk.pages(),
            disk_pages_max: self.disk.slots(),
            scanned_slots: self.disk.scanned(),
            recovering: self.recovery.is_on(),
            disk_attached: self.disk_state == DiskState::Attached,
            requests: self.requests.len(),
            requests_waiting: self.queue.len() as u32,
            orders: self.ops.len(),
            stores: self.stores,
            dirty_sectors: self.disk.dirty_sectors(),
            intent_regions: self.volumes.iter().map(|v| v.intent.set_count()).sum(),
        }
    }

    /// Whether nothing is under way: no request, no order. The simulator's check that nothing leaks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.len() == 0 && self.ops.len() == 0 && self.activities.len() == 0 && self.ranges.is_empty()
    }

    /// Whether ticks have nothing to do: idle, and nothing waits for a sweep.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_idle() && !self.has_unswept()
    }

    pub(crate) fn frame_of(&self, id: PartId) -> FrameId {
        self.requests.part(id).frame.expect("the part has its frame")
    }
}
