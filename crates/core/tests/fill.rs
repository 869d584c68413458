//! Fills: what somebody else brought from the back end is as good as what the cache fetched.
//!
//! A small world of a volume that never changes: each block has its own value, frames hold values instead of bytes, and
//! orders end in any order.

use forebay_core::{
    Action, Actions, AdmissionConfig, BRIDGE_BYTES, Cache, CacheConfig, Event, IoError, Limits, OpId, ReplyError,
    RequestId, Residency, SplitConfig, VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;
use forebay_policy::rng::Rng;
use std::collections::BTreeMap;

const VOLUME: VolumeId = VolumeId(0);
const PAGE_BYTES: u32 = 16 << 10;
const BLOCK_BYTES: u32 = 4096;
const PAGES: u64 = 40;
/// The last block is short.
const BYTES: u64 = PAGES * PAGE_BYTES as u64 - 1536;

/// Block numbers by frame; 0 is garbage. A block's value is its number in the volume and one.
type Frames = Vec<[u32; 4]>;

#[derive(Clone, Copy, Debug)]
enum Order {
    ReadSlot { slot: u32, frame: u32, first: u32, blocks: u32 },
    WriteSlot { slot: u32, frame: u32, first: u32, blocks: u32 },
    ReadBackend { block: u64, frame: u32, first: u32, blocks: u32 },
    Other,
}

struct World {
    rng: Rng,
    now_ns: u64,
    cache: Cache,
    actions: Actions,
    frames: Frames,
    slots: Frames,
    orders: BTreeMap<u32, Order>,
    /// Announced, by tag.
    receiving: Vec<(u64, RequestId)>,
    /// Where those that are not answered begin.
    filling: BTreeMap<u64, u64>,
    reading: BTreeMap<u64, u64>,
    probed: Option<Residency>,
    refused: Option<ReplyError>,
    tag: u64,
    /// What was read from the back end.
    fetched: u64,
    answers: u64,
}

fn world(seed: u64, slots: u32, kept_frames: u32, mode: WriteMode) -> World {
    world_that(true, seed, slots, kept_frames, mode)
}

/// One whose volume fetches what neither tier has, or not.
fn world_that(fetches: bool, seed: u64, slots: u32, kept_frames: u32, mode: WriteMode) -> World {
    let config = CacheConfig {
        page_bytes: PAGE_BYTES,
        slots,
        table_records_per_sector: 50,
        recover: false,
        scan_sectors_max: 16,
        frames: 64 + kept_frames,
        transit_frames: 64,
        memory_policy: PolicyKind::S3Fifo,
        disk_policy: PolicyKind::S3Fifo,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![VolumeConfig {
            space: 3,
            bytes: BYTES,
            mode,
            region_bytes: 1 << 20,
            in_flight_regions: Vec::new(),
            range_bytes_max: 1 << 30,
            fetches,
            split: SplitConfig::default(),
            profile: forebay_core::Profile::default(),
        }],
        limits: Limits::default(),
        intent_map: true,
        seed,
    };
    World {
        rng: Rng::new(seed),
        now_ns: 1,
        frames: vec![[0; 4]; config.frames as usize],
        slots: vec![[0; 4]; slots as usize],
        cache: Cache::new(config).expect("a sound configuration"),
        actions: Actions::new(),
        orders: BTreeMap::new(),
        receiving: Vec::new(),
        filling: BTreeMap::new(),
        reading: BTreeMap::new(),
        probed: None,
        refused: None,
        tag: 0,
        fetched: 0,
        answers: 0,
    }
}

impl World {
    fn step(&mut self, event: Event<'_>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.cache.step(self.now_ns, event, &mut actions);
        loop {
            for action in actions.as_slice() {
                self.perform(*action);
            }
            actions.clear();
            if !self.cache.has_more() {
                break;
            }
            self.cache.step(self.now_ns, Event::Continue, &mut actions);
        }
        self.actions = actions;
    }

    fn perform(&mut self, action: Action) {
        let (op, order) = match action {
            Action::Receive { tag, request } => return self.receiving.push((tag, request)),
            Action::ReplyRead { tag, request } => return self.read_answered(tag, request),
            Action::Probed { found, .. } => return self.probed = Some(found),
            Action::Reply { tag, result } => {
                self.answers += 1;
                self.refused = result.err();
                assert!(!self.reading.contains_key(&tag), "a read failed: {result:?}");
                self.filling.remove(&tag);
                return;
            }
            Action::Copy { from, to, at, length } => {
                let blocks = (at / BLOCK_BYTES) as usize..(at + length).div_ceil(BLOCK_BYTES) as usize;
                let values = self.frames[from.index()];
                return self.frames[to.index()][blocks.clone()].copy_from_slice(&values[blocks]);
            }
            Action::Notice(_) | Action::GiveUpRead { .. } => return,
            Action::ReadSlot { op, slot, frame, first_block: first, blocks, .. } => {
                (op, Order::ReadSlot { slot: slot.0, frame: frame.0, first, blocks })
            }
            Action::WriteSlot { op, slot, frame, first_block: first, blocks, .. } => {
                (op, Order::WriteSlot { slot: slot.0, frame: frame.0, first, blocks })
            }
            Action::ReadBackend { op, offset, piece, .. } => {
                assert_eq!(u64::from(piece.at), offset % u64::from(PAGE_BYTES), "at its natural place");
                let (first, blocks) = (piece.at / BLOCK_BYTES, piece.length.div_ceil(BLOCK_BYTES));
                let block = offset / u64::from(BLOCK_BYTES);
                (op, Order::ReadBackend { block, frame: piece.frame.0, first, blocks })
            }
            Action::WriteTable { op, .. } | Action::FlushDisk { op } | Action::FlushBackend { op, .. } => {
                (op, Order::Other)
            }
            other => panic!("nobody writes to the back end: {other:?}"),
        };
        self.orders.insert(op.0, order);
    }

    fn end(&mut self, op: u32, fault: bool) {
        let order = self.orders.remove(&op).expect("it is under way");
        let range = |first: u32, blocks: u32| first as usize..(first + blocks) as usize;
        let mut crcs = Vec::new();
        match order {
            Order::ReadSlot { slot, frame, first, blocks } => {
                for at in range(first, blocks) {
                    self.frames[frame as usize][at] = self.slots[slot as usize][at];
                    crcs.push(self.slots[slot as usize][at] + u32::from(fault));
                }
            }
            Order::WriteSlot { slot, frame, first, blocks } => {
                for at in range(first, blocks) {
                    self.slots[slot as usize][at] = self.frames[frame as usize][at];
                    crcs.push(self.frames[frame as usize][at]);
                }
            }
            Order::ReadBackend { block, frame, first, blocks } => {
                for (at, block) in range(first, blocks).zip(block as u32..) {
                    self.frames[frame as usize][at] = block + 1;
                }
                self.fetched += u64::from(blocks);
            }
            Order::Other => {}
        }
        let result = if fault && matches!(order, Order::WriteSlot { .. }) { Err(IoError::Failed) } else { Ok(()) };
        let crcs = if result.is_ok() { crcs } else { Vec::new() };
        self.step(Event::Done { op: OpId(op), result, crcs: &crcs });
    }

    fn end_all(&mut self) {
        while let Some((&op, _)) = self.orders.first_key_value() {
            self.end(op, false);
        }
    }

    /// What each block of the request should be, piece by piece.
    fn values(&self, request: RequestId, offset: u64) -> Vec<(u32, usize, u32)> {
        let mut block = (offset / u64::from(BLOCK_BYTES)) as u32;
        let mut values = Vec::new();
        for piece in self.cache.pieces(request) {
            for at in piece.at / BLOCK_BYTES..(piece.at + piece.length).div_ceil(BLOCK_BYTES) {
                values.push((piece.frame.0, at as usize, block + 1));
                block += 1;
            }
        }
        values
    }

    fn read_answered(&mut self, tag: u64, request: RequestId) {
        let offset = self.reading.remove(&tag).expect("it was asked");
        for (frame, at, value) in self.values(request, offset) {
            assert_eq!(self.frames[frame as usize][at], value, "another block's bytes");
        }
        self.answers += 1;
        self.step_later(request);
    }

    /// Sent at once: the frames are not looked at again.
    fn step_later(&mut self, request: RequestId) {
        let mut actions = Actions::new();
        self.cache.step(self.now_ns, Event::Sent { request }, &mut actions);
        for action in actions.as_slice() {
            self.perform(*action);
        }
    }

    fn read(&mut self, offset: u64, length: u32) {
        self.tag += 1;
        self.reading.insert(self.tag, offset);
        self.step(Event::Read { volume: VOLUME, tag: self.tag, offset, length });
    }

    fn fill(&mut self, offset: u64, length: u32) {
        self.tag += 1;
        self.filling.insert(self.tag, offset);
        self.step(Event::Fill { volume: VOLUME, tag: self.tag, offset, length });
    }

    /// The first that is announced gets its bytes, or never does.
    fn receive(&mut self, comes: bool) {
        let (tag, request) = self.receiving.remove(0);
        let offset = self.filling[&tag];
        if !comes {
            // There is no answer.
            self.filling.remove(&tag);
            return self.step(Event::NotReceived { request });
        }
        for (frame, at, value) in self.values(request, offset) {
            self.frames[frame as usize][at] = value;
        }
        self.step(Event::Received { request });
    }

    fn probe(&mut self, offset: u64, length: u64) -> Residency {
        self.step(Event::Probe { volume: VOLUME, tag: 0, offset, length });
        self.probed.take().expect("an answer")
    }

    /// What a probe should tell, page by page.
    fn leading_and_gap(&mut self, offset: u64, length: u64) -> (u64, u64) {
        let (page, end) = (u64::from(PAGE_BYTES), offset + length);
        let mut pages = Vec::new();
        let mut at = offset;
        while at < end {
            let next = ((at / page + 1) * page).min(end);
            pages.push((self.probe(at, next - at).absent_bytes == 0, next - at));
            at = next;
        }
        let leading: u64 = pages.iter().take_while(|(is_here, _)| *is_here).map(|(_, bytes)| bytes).sum();
        let behind = pages.iter().skip_while(|(is_here, _)| *is_here);
        let (mut gap, mut here) = (0, 0);
        for (is_here, bytes) in behind {
            match is_here {
                true => here += bytes,
                false if here < BRIDGE_BYTES => {
                    gap += here + bytes;
                    here = 0;
                }
                false => break,
            }
        }
        (leading, gap)
    }
}

#[test]
fn a_gap_ends_where_enough_is_here_to_ask_twice() {
    let mut world = world(1, 64, 64, WriteMode::ReadOnly);
    let page = u64::from(PAGE_BYTES);
    let bridge = BRIDGE_BYTES / page;
    // Here: 0, 3, and behind a gap as many as end it, less one; then behind another one as many as do.
    let first = 5..5 + bridge - 1;
    let second = first.end + 1..first.end + 1 + bridge;
    let pages = [0, 3].into_iter().chain(first).chain(second.clone());
    for at in pages {
        world.fill(at * page, PAGE_BYTES);
        world.receive(true);
        world.end_all();
    }
    let found = world.probe(0, (second.end + 2) * page);
    assert_eq!((found.leading_bytes, found.gap_bytes), (page, (second.start - 1) * page), "{found:?}");
    assert_eq!(world.leading_and_gap(0, (second.end + 2) * page), (found.leading_bytes, found.gap_bytes));
}

#[test]
fn a_volume_that_does_not_fetch_fails_what_it_lacks_and_asks_for_what_rotted() {
    let mut world = world_that(false, 1, 64, 8, WriteMode::ReadOnly);
    let page = u64::from(PAGE_BYTES);
    for at in 0..30 {
        world.fill(at * page, PAGE_BYTES);
        world.receive(true);
        world.end_all();
    }
    // Half of it is here.
    world.step(Event::Read { volume: VOLUME, tag: 0, offset: 29 * page, length: 2 * PAGE_BYTES });
    world.end_all();
    assert_eq!((world.refused.take(), world.fetched), (Some(ReplyError::Io), 0));
    world.read(0, PAGE_BYTES);
    let slot_read = *world.orders.first_key_value().expect("it is on disk").0;
    world.end(slot_read, true);
    world.end_all();
    assert_eq!(world.fetched, u64::from(PAGE_BYTES / BLOCK_BYTES));
    assert!(world.reading.is_empty() && world.cache.is_idle());
}

#[test]
fn what_was_filled_is_read_from_memory_and_disk_and_never_fetched() {
    let mut world = world(1, 64, 8, WriteMode::ReadOnly);
    let page = u64::from(PAGE_BYTES);
    world.fill(0, 2 * PAGE_BYTES);
    world.receive(true);
    let in_memory = Residency { leading_bytes: 2 * page, memory_bytes: 2 * page, ..Residency::default() };
    assert_eq!(world.probe(0, 2 * page), in_memory);
    world.read(512, 2 * PAGE_BYTES - 1024);
    world.end_all();
    // So much more that memory has lost it.
    for at in 2..30 {
        world.fill(at * page, PAGE_BYTES);
        world.receive(true);
        world.end_all();
    }
    let found = world.probe(0, 31 * page);
    assert_eq!((found.memory_bytes + found.disk_bytes, found.absent_bytes), (30 * page, page), "{found:?}");
    assert!(found.disk_bytes > 15 * page, "{found:?}");
    // Brought once more while the disk has it: nothing is written.
    let written = world.cache.stats().slot_write_bytes;
    world.fill(page, PAGE_BYTES);
    world.receive(true);
    world.end_all();
    assert_eq!((written, world.cache.stats().slot_write_bytes), (30 * page, 30 * page));
    world.read(0, PAGE_BYTES);
    world.end_all();
    let stats = &world.cache.stats().volumes[0];
    assert_eq!((world.fetched, stats.misses, stats.fill_bytes), (0, 0, 31 * page));
    assert!(world.reading.is_empty() && world.cache.is_idle());
}

#[test]
fn a_read_waits_for_a_fill_under_way_only_once_its_bytes_are_there() {
    let mut world = world(1, 0, 8, WriteMode::ReadOnly);
    world.fill(0, PAGE_BYTES);
    // Announced, and perhaps never sent: nobody may wait for a client.
    world.read(0, BLOCK_BYTES);
    world.end_all();
    assert_eq!((world.reading.len(), world.fetched), (0, 1));
    world.receive(true);
    world.read(0, PAGE_BYTES);
    assert_eq!((world.reading.len(), world.fetched), (0, 1));
}

#[test]
fn what_is_not_whole_or_not_cached_is_refused() {
    let refused = |mode, offset, length| {
        let mut world = world(1, 0, 8, mode);
        world.fill(offset, length);
        world.refused
    };
    let last = BYTES / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    assert_eq!(refused(WriteMode::ReadOnly, last, (BYTES - last) as u32), None, "the last block is short");
    assert_eq!(refused(WriteMode::ReadOnly, 0, 512), Some(ReplyError::Invalid));
    assert_eq!(refused(WriteMode::ReadOnly, 512, BLOCK_BYTES), Some(ReplyError::Invalid));
    assert_eq!(refused(WriteMode::ReadOnly, last, BLOCK_BYTES), Some(ReplyError::Invalid), "past the end");
    assert_eq!(refused(WriteMode::Pass, 0, BLOCK_BYTES), Some(ReplyError::Unsupported));
}

#[test]
fn a_probe_is_bounded() {
    let mut world = world(1, 0, 8, WriteMode::ReadOnly);
    world.step(Event::Probe { volume: VOLUME, tag: 0, offset: 0, length: BYTES + 512 });
    assert_eq!(world.refused, Some(ReplyError::Invalid));
    assert_eq!(world.probe(0, BYTES).absent_bytes, BYTES);
}

#[test]
fn fills_reads_and_evictions_in_any_order_show_every_block_as_it_is() {
    let mut seen = Residency::default();
    for seed in 0..200 {
        let mut world = world(seed, 12, 6, WriteMode::ReadOnly);
        let blocks = BYTES.div_ceil(u64::from(BLOCK_BYTES)) as u32;
        for _ in 0..400 {
            world.now_ns += 100_000;
            let first = world.rng.below(blocks);
            let count = 1 + world.rng.below(12.min(blocks - first));
            let offset = u64::from(first * BLOCK_BYTES);
            let length = u64::from(count * BLOCK_BYTES).min(BYTES - offset) as u32;
            match world.rng.below(10) {
                0..3 => world.read(offset, length),
                3..5 => {
                    world.fill(offset, length);
                }
                5..7 if !world.receiving.is_empty() => {
                    let comes = world.rng.below(5) > 0;
                    world.receive(comes);
                }
                7 => {
                    let found = world.probe(offset, u64::from(length));
                    assert_eq!(found.memory_bytes + found.disk_bytes + found.absent_bytes, u64::from(length));
                    let (leading, gap) = world.leading_and_gap(offset, u64::from(length));
                    assert_eq!((found.leading_bytes, found.gap_bytes), (leading, gap), "{found:?}");
                    seen.memory_bytes += found.memory_bytes;
                    seen.disk_bytes += found.disk_bytes;
                }
                8 => {
                    world.tag += 1;
                    let length = u64::from(length);
                    world.step(Event::Evict { volume: VOLUME, tag: world.tag, offset, length });
                }
                _ => {
                    let op =
                        world.orders.keys().nth(world.rng.below(world.orders.len().max(1) as u32) as usize).copied();
                    let fault = world.rng.below(10) == 0;
                    op.into_iter().for_each(|op| world.end(op, fault));
                }
            }
        }
        while !(world.receiving.is_empty() && world.orders.is_empty()) {
            world.end_all();
            if !world.receiving.is_empty() {
                world.receive(true);
            }
        }
        assert!(world.reading.is_empty() && world.filling.is_empty(), "seed {seed}: somebody waits");
        assert!(world.cache.is_idle(), "seed {seed}: {:?}", world.cache.gauges());
    }
    assert!(seen.memory_bytes > 0 && seen.disk_bytes > 0, "{seen:?}");
}
