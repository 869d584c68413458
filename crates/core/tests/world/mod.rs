//! A small world around the state machine: one value a sector instead of bytes, orders that end in any order, faults,
//! and an oracle that knows what each sector may hold.
//!
//! The large simulator runs the shard's loop over models of devices; this one drives `Cache::step` alone, is quick
//! enough for every test run, and shrinks to a seed.

mod disk;
mod oracle;

use disk::DiskModel;
use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, IoError, Limits, Notice, OpId, RequestId, SlotRecord,
    SplitConfig, SplitKind, VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;
use forebay_policy::rng::Rng;
use oracle::Oracle;
use std::collections::BTreeMap;

pub(crate) const SECTOR_BYTES: u64 = 512;
const BLOCK_SECTORS: usize = 8;
const SPACE: u32 = 7;
const VOLUME: VolumeId = VolumeId(0);

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) page_bytes: u32,
    pub(crate) pages: u32,
    pub(crate) slots: u32,
    pub(crate) kept_frames: u32,
    pub(crate) policy: PolicyKind,
    pub(crate) mode: WriteMode,
    pub(crate) second_access: bool,
    pub(crate) split: SplitKind,
    pub(crate) clients: u32,
    /// Out of 1000 orders of each kind.
    pub(crate) faults_permil: u32,
    pub(crate) operations: u32,
    pub(crate) crashes: u32,
}

/// An order that has not ended.
#[derive(Clone, Copy, Debug)]
enum Order {
    ReadSlot { slot: u32, key: (u32, u32), frame: u32, first: u32, blocks: u32 },
    WriteSlot { slot: u32, key: (u32, u32), frame: u32, first: u32, blocks: u32 },
    ReadBackend { sector: usize, frame: u32, at: usize, sectors: usize, check: Option<(u32, u32)> },
    WriteBackend { sector: usize, frame: u32, at: usize, sectors: usize },
    Discard { sector: usize, sectors: usize },
    FlushBackend { covers: u64 },
    Table,
    Intent,
    FlushDisk { covers: usize },
    Scan { first_sector: u32, sectors: u32 },
    Ok,
}

/// What a client waits for.
#[derive(Clone, Debug)]
enum Asked {
    Read { sector: usize, sectors: usize, from: u64 },
    Write { sector: usize, sectors: usize, value: u32 },
    Discard { sector: usize, sectors: usize },
    Flush { covers: u64 },
}

pub(crate) struct World {
    setting: Setting,
    rng: Rng,
    now_ns: u64,
    cache: Cache,
    config: CacheConfig,
    actions: Actions,
    frames: Vec<Vec<u32>>,
    orders: BTreeMap<u32, (Order, u64)>,
    asked: BTreeMap<u64, Asked>,
    receiving: BTreeMap<u32, u64>,
    /// Replies whose frames are being sent: (request, what was in them).
    sending: Vec<(RequestId, Vec<u32>)>,
    next_tag: u64,
    next_value: u32,
    disk: DiskModel,
    oracle: Oracle,
    intents: BTreeMap<u32, Vec<u64>>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let sectors = setting.pages as usize * (setting.page_bytes as usize / 512);
        let config = config_of(&setting, Vec::new(), false);
        Self {
            rng: Rng::new(setting.seed),
            now_ns: 1,
            cache: Cache::new(config.clone()).expect("a sound configuration"),
            actions: Actions::new(),
            frames: vec![vec![u32::MAX; setting.page_bytes as usize / 512]; config.frames as usize],
            orders: BTreeMap::new(),
            asked: BTreeMap::new(),
            receiving: BTreeMap::new(),
            sending: Vec::new(),
            next_tag: 1,
            next_value: 1,
            disk: DiskModel::new(setting.slots as usize, setting.page_bytes as usize / 512),
            oracle: Oracle::new(sectors),
            intents: BTreeMap::new(),
            counts: BTreeMap::new(),
            config,
            setting,
        }
    }

    /// Runs it to the end, with checks throughout.
    pub(crate) fn run(&mut self) {
        for round in 0..=self.setting.crashes {
            let operations = self.setting.operations / (self.setting.crashes + 1);
            let mut left = operations;
            while left > 0 {
                left -= u32::from(self.turn());
            }
            if round < self.setting.crashes {
                self.crash();
                // Or it goes on while the table is still being read.
                if self.rng.below(2) == 0 {
                    self.read_back();
                }
            }
        }
        self.settle();
        self.read_back();
        self.settle();
        self.count_stats();
        assert!(self.cache.is_idle(), "something is left over: {:?}", self.cache.gauges());
    }

    /// One random thing happens. Whether it was a client's operation.
    fn turn(&mut self) -> bool {
        self.now_ns += u64::from(self.rng.below(2_000_000));
        match self.rng.below(10) {
            0..=3 if (self.asked.len() as u32) < self.setting.clients => {
                self.ask();
                return true;
            }
            0 => self.tick(),
            1 => self.sent(),
            2 if !self.receiving.is_empty() => self.received(),
            _ if !self.orders.is_empty() => self.end_some_order(),
            _ => self.tick(),
        }
        false
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn count_stats(&mut self) {
        let (volume, all) = (&self.cache.stats().volumes[0], self.cache.stats());
        let seen = [
            ("hedged", volume.hedged),
            ("recovering", volume.recovering),
            ("disk hit", volume.disk_hits),
            ("split hit", volume.backend_hits),
            ("split failed over", volume.split_failovers),
            ("memory hit", volume.memory_hits),
            ("sweep", all.sweeps),
            ("store skipped", all.stores_skipped),
        ];
        for (what, n) in seen {
            *self.counts.entry(what).or_default() += n;
        }
    }

    fn ask(&mut self) {
        let sectors_all = self.oracle.sectors() as u32;
        let longest = (self.config.request_bytes_max() / 512).min(sectors_all);
        // Short requests on few pages meet each other; now and then a long one crosses many.
        let most = if self.rng.below(8) == 0 { longest } else { longest.min(20) };
        let mut sectors = 1 + self.rng.below(most) as usize;
        let mut sector = self.rng.below(sectors_all - sectors as u32 + 1) as usize;
        if self.rng.below(2) == 0 {
            sectors = sectors.next_multiple_of(BLOCK_SECTORS).min(longest as usize / BLOCK_SECTORS * BLOCK_SECTORS);
            sector = sector.min(sectors_all as usize - sectors) / BLOCK_SECTORS * BLOCK_SECTORS;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let (offset, length) = (sector as u64 * SECTOR_BYTES, sectors as u32 * 512);
        match self.rng.below(20) {
            0..=9 => {
                let from = self.oracle.now();
                self.asked.insert(tag, Asked::Read { sector, sectors, from });
                self.step(Event::Read { volume: VOLUME, tag, offset, length });
            }
            10..=16 => {
                let value = self.next_value;
                self.next_value += 1;
                self.asked.insert(tag, Asked::Write { sector, sectors, value });
                let fua = self.rng.below(8) == 0;
                self.step(Event::Write { volume: VOLUME, tag, offset, length, fua });
            }
            17 => {
                self.oracle.begin(sector, sectors);
                self.asked.insert(tag, Asked::Discard { sector, sectors });
                let length = u64::from(length);
                let zero = Event::WriteZeroes { volume: VOLUME, tag, offset, length, fua: false, no_hole: false };
                let trim = Event::Trim { volume: VOLUME, tag, offset, length, fua: false };
                let event = if self.rng.below(2) == 0 { zero } else { trim };
                self.step(event);
            }
            18 => {
                self.asked.insert(tag, Asked::Flush { covers: self.oracle.answered() });
                self.step(Event::Flush { volume: VOLUME, tag });
            }
            _ => {
                self.asked.insert(tag, Asked::Flush { covers: 0 });
                self.step(Event::Evict { volume: VOLUME, tag, offset, length: u64::from(length) });
            }
        }
    }

    fn tick(&mut self) {
        self.now_ns += 100_000_000;
        self.step(Event::Tick);
    }

    fn sent(&mut self) {
        if self.sending.is_empty() {
            return;
        }
        let at = self.rng.below(self.sending.len() as u32) as usize;
        let (request, values) = self.sending.swap_remove(at);
        assert_eq!(self.values_of(request), values, "a frame changed while it was being sent");
        self.step(Event::Sent { request });
    }

    fn values_of(&self, request: RequestId) -> Vec<u32> {
        let pieces = self.cache.pieces(request);
        let sectors = |at: u32, length: u32| (at / 512) as usize..((at + length) / 512) as usize;
        pieces.iter().flat_map(|p| self.frames[p.frame.index()][sectors(p.at, p.length)].to_vec()).collect()
    }

    fn received(&mut self) {
        let (&request, &tag) = self.receiving.iter().next().expect("one is being received");
        self.receiving.remove(&request);
        let request = RequestId(request);
        if self.rng.below(16) == 0 {
            self.count("not received");
            self.asked.remove(&tag);
            return self.step(Event::NotReceived { request });
        }
        let Some(Asked::Write { sector, sectors, value }) = self.asked.get(&tag).cloned() else {
            panic!("not a write")
        };
        self.oracle.begin(sector, sectors);
        for piece in self.cache.pieces(request).to_vec() {
            let range = (piece.at / 512) as usize..((piece.at + piece.length) / 512) as usize;
            self.frames[piece.frame.index()][range].fill(value);
        }
        self.step(Event::Received { request });
    }

    fn end_some_order(&mut self) {
        let at = self.rng.below(self.orders.len() as u32) as usize;
        let op = *self.orders.keys().nth(at).expect("an order");
        let fault = self.rng.below(1000) < self.setting.faults_permil;
        self.end_order(op, fault);
    }

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
        let sector_of = |offset: u64| (offset / SECTOR_BYTES) as usize;
        let (op, order) = match action {
            Action::Receive { tag, request } => {
                self.receiving.insert(request.0, tag);
                return;
            }
            Action::ReplyRead { tag, request } => return self.replied_read(tag, request),
            Action::Reply { tag, result } => return self.replied(tag, result.is_ok()),
            Action::Copy { from, to, at, length } => {
                let range = (at / 512) as usize..((at + length) / 512) as usize;
                let values = self.frames[from.index()][range.clone()].to_vec();
                self.frames[to.index()][range].copy_from_slice(&values);
                return self.count("copy");
            }
            Action::Probed { .. } => panic!("nobody asked"),
            Action::Notice(notice) => return self.noticed(notice),
            Action::GiveUpRead { .. } => return self.count("read given up"),
            Action::ReadSlot { op, slot, key, frame, first_block, blocks } => {
                let key = (key.space, key.page);
                (op, Order::ReadSlot { slot: slot.0, key, frame: frame.0, first: first_block, blocks })
            }
            Action::WriteSlot { op, slot, key, frame, first_block, blocks } => {
                let key = (key.space, key.page);
                (op, Order::WriteSlot { slot: slot.0, key, frame: frame.0, first: first_block, blocks })
            }
            Action::ReadBackend { op, offset, piece, check, .. } => {
                let (at, sectors) = ((piece.at / 512) as usize, (piece.length / 512) as usize);
                let check = check.map(|key| (key.space, key.page));
                (op, Order::ReadBackend { sector: sector_of(offset), frame: piece.frame.0, at, sectors, check })
            }
            Action::WriteBackend { op, offset, piece, .. } => {
                let (at, sectors) = ((piece.at / 512) as usize, (piece.length / 512) as usize);
                self.check_intent(sector_of(offset), sectors);
                self.oracle.order(sector_of(offset), sectors);
                (op, Order::WriteBackend { sector: sector_of(offset), frame: piece.frame.0, at, sectors })
            }
            Action::TrimBackend { op, offset, length, .. } | Action::ZeroBackend { op, offset, length, .. } => {
                let (sector, sectors) = (sector_of(offset), (length / SECTOR_BYTES) as usize);
                self.check_intent(sector, sectors);
                self.oracle.order(sector, sectors);
                (op, Order::Discard { sector, sectors })
            }
            Action::FlushBackend { op, .. } => (op, Order::FlushBackend { covers: self.oracle.applied() }),
            Action::WriteTable { op, sector } => {
                let records = self.cache.table_sector(sector);
                let records = records.map(|(key, crcs)| (key.map(|k| (k.space, k.page)), crcs.to_vec())).collect();
                self.disk.write_table(sector, records);
                (op, Order::Table)
            }
            Action::WriteIntent { op, volume } => {
                self.intents.insert(op.0, self.cache.intent_words(volume).to_vec());
                (op, Order::Intent)
            }
            Action::FlushDisk { op } => (op, Order::FlushDisk { covers: self.disk.written() }),
            Action::ScanTable { op, first_sector, sectors } => (op, Order::Scan { first_sector, sectors }),
            Action::MarkClean { op } | Action::RaiseGeneration { op } => (op, Order::Ok),
        };
        assert!(self.orders.insert(op.0, (order, self.now_ns)).is_none(), "order {} is not answered yet", op.0);
    }

    /// The bit of every region that the back end is written in is durable first.
    fn check_intent(&self, sector: usize, sectors: usize) {
        if self.setting.slots == 0 || !self.cache.gauges().disk_attached {
            return;
        }
        let region_sectors = (self.config.volumes[0].region_bytes / SECTOR_BYTES) as usize;
        for region in sector / region_sectors..=(sector + sectors - 1) / region_sectors {
            let set = self.disk.intent.get(region / 64).is_some_and(|word| word >> (region % 64) & 1 == 1);
            assert!(set, "region {region} is written before its bit is durable");
        }
    }

    fn noticed(&mut self, notice: Notice) {
        self.count(match notice {
            Notice::DiskDetached { .. } => "disk detached",
            Notice::BadBlock { .. } => "bad block",
            Notice::Recovered { .. } => "recovered",
            Notice::GenerationStuck => "generation stuck",
            Notice::BackendLost { .. } => "back end lost",
        });
    }

    fn replied_read(&mut self, tag: u64, request: RequestId) {
        let Some(Asked::Read { sector, sectors, from }) = self.asked.remove(&tag) else { panic!("not a read") };
        let values = self.values_of(request);
        assert_eq!(values.len(), sectors);
        for (sector, value) in (sector..).zip(&values) {
            self.oracle.check_read(sector, *value, from);
        }
        self.count("read");
        self.sending.push((request, values));
    }

    fn replied(&mut self, tag: u64, ok: bool) {
        match self.asked.remove(&tag).expect("something was asked") {
            Asked::Read { .. } => self.count("read failed"),
            Asked::Write { sector, sectors, .. } => {
                self.oracle.end(sector, sectors, ok);
                self.count(if ok { "write" } else { "write failed" });
            }
            Asked::Discard { sector, sectors } => {
                self.oracle.end(sector, sectors, ok);
                self.count(if ok { "discard" } else { "discard failed" });
            }
            Asked::Flush { covers } => {
                self.count(if ok { "flush" } else { "flush failed" });
                if ok {
                    self.oracle.flushed(covers);
                }
            }
        }
    }

    fn end_order(&mut self, op: u32, fault: bool) {
        let (order, _) = self.orders.remove(&op).expect("the order is under way");
        let (mut result, mut crcs) = (if fault { Err(IoError::Failed) } else { Ok(()) }, Vec::new());
        match order {
            Order::ReadSlot { slot, key, frame, first, blocks } if !fault => {
                let at = first as usize * BLOCK_SECTORS;
                let sectors = blocks as usize * BLOCK_SECTORS;
                let values = self.disk.read_slot(slot as usize, at, sectors);
                self.frames[frame as usize][at..at + sectors].copy_from_slice(&values);
                if self.rng.below(1000) < self.setting.faults_permil {
                    self.count("bit rot");
                    self.frames[frame as usize][at] ^= 0x8000_0000;
                }
                crcs = self.crcs(key, frame, first, blocks);
            }
            Order::WriteSlot { slot, key, frame, first, blocks } => {
                let at = first as usize * BLOCK_SECTORS;
                let values = self.frames[frame as usize][at..at + blocks as usize * BLOCK_SECTORS].to_vec();
                // A lost write: the device says yes and does nothing.
                if self.rng.below(1000) < 1000 - self.setting.faults_permil {
                    self.disk.write_slot(slot as usize, at, values);
                } else {
                    self.count("lost slot write");
                }
                crcs = if fault { Vec::new() } else { self.crcs(key, frame, first, blocks) };
            }
            Order::ReadBackend { sector, frame, at, sectors, check } if !fault => {
                let values = self.oracle.read_backend(sector, sectors);
                self.frames[frame as usize][at..at + sectors].copy_from_slice(&values);
                if let Some(key) = check {
                    let (first, blocks) = ((at / BLOCK_SECTORS) as u32, (sectors / BLOCK_SECTORS) as u32);
                    crcs = self.crcs(key, frame, first, blocks);
                }
            }
            Order::WriteBackend { sector, frame, at, sectors } => {
                let values = self.frames[frame as usize][at..at + sectors].to_vec();
                // One that fails may have happened, in part or not at all.
                let done = if fault { self.rng.below(sectors as u32 + 1) as usize } else { sectors };
                self.oracle.write_backend(sector, &values[..done]);
            }
            Order::Discard { sector, sectors } => {
                let done = if fault { self.rng.below(sectors as u32 + 1) as usize } else { sectors };
                self.oracle.write_backend(sector, &vec![0; done]);
            }
            Order::FlushBackend { covers } if !fault => self.oracle.backend_flushed(covers),
            Order::Intent => {
                let words = self.intents.remove(&op).expect("a map was being written");
                // Faults of records cost the whole disk, so they are rare.
                result = if fault && self.rng.below(20) == 0 { result } else { Ok(()) };
                if result.is_ok() || self.rng.below(2) == 0 {
                    self.disk.intent = words;
                }
            }
            Order::Table | Order::Ok => result = if self.rng.below(20) == 0 { result } else { Ok(()) },
            Order::FlushDisk { covers } => {
                result = if self.rng.below(20) == 0 { result } else { Ok(()) };
                if result.is_ok() {
                    self.disk.flush(covers);
                }
            }
            Order::Scan { first_sector, sectors } if !fault => return self.end_scan(op, first_sector, sectors),
            _ => {}
        }
        if result.is_err() {
            self.count("fault");
        }
        self.step(Event::Done { op: OpId(op), result, crcs: &crcs });
    }

    fn crcs(&self, key: (u32, u32), frame: u32, first: u32, blocks: u32) -> Vec<u32> {
        let block = |block: u32| {
            let at = block as usize * BLOCK_SECTORS;
            disk::crc(key, block, &self.frames[frame as usize][at..at + BLOCK_SECTORS])
        };
        (first..first + blocks).map(block).collect()
    }

    fn end_scan(&mut self, op: u32, first_sector: u32, sectors: u32) {
        let per_sector = self.config.table_records_per_sector;
        let blocks = self.config.blocks_per_page() as usize;
        let (mut records, mut crcs) = (Vec::new(), Vec::new());
        for sector in first_sector..first_sector + sectors {
            let slots = per_sector.min(self.setting.slots - sector * per_sector) as usize;
            let found = self.disk.table.get(&sector);
            for slot in 0..slots {
                let (key, of) = found.map_or((None, vec![0; blocks]), |records| records[slot].clone());
                let (space, page) = key.unwrap_or((0, 0));
                records.push(SlotRecord { space, page: u64::from(page) });
                crcs.extend(of);
            }
        }
        let first_slot = first_sector * per_sector;
        self.step(Event::TableScanned { op: OpId(op), first_slot, records: &records, crcs: &crcs });
    }

    /// The process ends, and with it what was in memory; the machine may end too. Then everything starts again.
    fn crash(&mut self) {
        self.count_stats();
        self.count("crash");
        let orders: Vec<Order> = std::mem::take(&mut self.orders).into_values().map(|(order, _)| order).collect();
        for order in orders {
            let happens = self.rng.below(2) == 0;
            match order {
                Order::WriteBackend { sector, frame, at, sectors } if happens => {
                    let values = self.frames[frame as usize][at..at + sectors].to_vec();
                    self.oracle.write_backend(sector, &values);
                }
                Order::Discard { sector, sectors } if happens => self.oracle.write_backend(sector, &vec![0; sectors]),
                Order::WriteSlot { slot, frame, first, blocks, .. } if happens => {
                    let at = first as usize * BLOCK_SECTORS;
                    let values = self.frames[frame as usize][at..at + blocks as usize * BLOCK_SECTORS].to_vec();
                    self.disk.write_slot(slot as usize, at, values);
                }
                _ => {}
            }
        }
        if let Some(words) = std::mem::take(&mut self.intents).into_values().next()
            && self.rng.below(2) == 0
        {
            self.disk.intent = words;
        }
        if self.rng.below(2) == 0 {
            self.count("machine crash");
            self.disk.crash(&mut self.rng);
            self.oracle.crash(&mut self.rng);
        }
        self.oracle.restart();
        self.asked.clear();
        self.receiving.clear();
        self.sending.clear();
        let was_attached = self.cache.gauges().disk_attached;
        self.disk.keep_all();
        if !was_attached {
            // The generation was raised: what the disk holds is not believed.
            self.disk = DiskModel::new(self.setting.slots as usize, self.setting.page_bytes as usize / 512);
        }
        self.config = config_of(&self.setting, self.disk.intent.clone(), true);
        self.cache = Cache::new(self.config.clone()).expect("a sound configuration");
        self.step(Event::Tick);
    }

    /// Ends everything under way, without faults.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.receiving.is_empty() {
                self.received();
            } else if !self.sending.is_empty() {
                self.sent();
            } else if let Some(&op) = self.orders.keys().next() {
                self.end_order(op, false);
            } else if self.asked.is_empty() {
                return;
            } else {
                self.tick();
            }
        }
        panic!("these are never answered: {:?} with {:?}", self.asked, self.cache.gauges());
    }

    /// Reads everything through the cache, twice, and compares it with the back end.
    fn read_back(&mut self) {
        let faults = std::mem::take(&mut self.setting.faults_permil);
        self.settle();
        let page_sectors = self.setting.page_bytes as usize / 512;
        // The second time, some of it is in frames; what is not is on the disk.
        for _ in 0..2 {
            for sector in (0..self.oracle.sectors()).step_by(page_sectors) {
                let tag = self.next_tag;
                self.next_tag += 1;
                let from = self.oracle.now();
                self.asked.insert(tag, Asked::Read { sector, sectors: page_sectors, from });
                let (offset, length) = (sector as u64 * SECTOR_BYTES, self.setting.page_bytes);
                self.step(Event::Read { volume: VOLUME, tag, offset, length });
                self.settle();
            }
        }
        self.setting.faults_permil = faults;
    }
}

fn config_of(setting: &Setting, in_flight_regions: Vec<u64>, recover: bool) -> CacheConfig {
    let bytes = u64::from(setting.pages) * u64::from(setting.page_bytes);
    let volume = VolumeConfig {
        space: SPACE,
        bytes,
        mode: setting.mode,
        // Small regions, so that there are several.
        region_bytes: u64::from(setting.page_bytes) * 4,
        in_flight_regions,
        range_bytes_max: u64::from(setting.page_bytes) * 3,
        fetches: true,
        split: SplitConfig { kind: setting.split, backend_bytes_per_second_max: 0 },
        profile: forebay_core::Profile::default(),
    };
    CacheConfig {
        page_bytes: setting.page_bytes,
        slots: setting.slots,
        table_records_per_sector: 5,
        recover,
        scan_sectors_max: 2,
        frames: 40 + setting.kept_frames,
        transit_frames: 40,
        memory_policy: setting.policy,
        disk_policy: setting.policy,
        admission: AdmissionConfig { second_access: setting.second_access, sequential_cutoff_bytes: 0 },
        volumes: vec![volume],
        limits: Limits { requests_max: 64, stores_max: 16, disk_errors_max: 50, ..Limits::default() },
        intent_map: true,
        seed: setting.seed,
    }
}
