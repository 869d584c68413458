//! Drives a [`Cache`] by hand: every order stays open until the test answers it.
//!
//! Bytes do not exist here. A block's checksum is made of its place, so that a slot always gives back what was stored.
//! [`answer`](World::answer) answers the open orders that a pattern picks; what is not picked hangs, which is the point.

pub(crate) use forebay_core::{
    Action, Actions, AdmissionConfig, Cache, CacheConfig, Event, IoError, Limits, Notice, OpId, ReplyError, RequestId,
    VolumeConfig, VolumeId, WriteMode,
};
use forebay_policy::evict::PolicyKind;
use std::collections::BTreeMap;

pub(crate) const VOLUME: VolumeId = VolumeId(0);
pub(crate) const PAGE: u64 = 65536;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// Transit frames of [`config`]: about the fewest that are allowed.
pub(crate) const TRANSIT: u32 = 34;

/// A volume of 64 MiB with regions of 1 MiB.
pub(crate) fn volume(space: u32, mode: WriteMode) -> VolumeConfig {
    VolumeConfig {
        space,
        bytes: 64 << 20,
        mode,
        region_bytes: 1 << 20,
        in_flight_regions: Vec::new(),
        range_bytes_max: 1 << 30,
        fetches: true,
        split: forebay_core::SplitConfig::default(),
        profile: forebay_core::Profile::default(),
    }
}

/// One volume, 512 slots, 200 pages in memory, everything admitted.
pub(crate) fn config(mode: WriteMode) -> CacheConfig {
    CacheConfig {
        page_bytes: PAGE as u32,
        slots: 512,
        table_records_per_sector: 51,
        recover: false,
        scan_sectors_max: 16,
        frames: TRANSIT + 200,
        transit_frames: TRANSIT,
        memory_policy: PolicyKind::Lru,
        disk_policy: PolicyKind::Lru,
        admission: AdmissionConfig { second_access: false, sequential_cutoff_bytes: 0 },
        volumes: vec![volume(1, mode)],
        limits: Limits::default(),
        intent_map: true,
        seed: 1,
    }
}

/// Whether an action matches the pattern, as a closure.
macro_rules! is {
    ($pattern:pat) => {
        |action: &Action| matches!(action, $pattern)
    };
}
pub(crate) use is;

/// The order's name, if it is one that is answered.
pub(crate) fn op_of(action: &Action) -> Option<OpId> {
    match *action {
        Action::ReadSlot { op, .. }
        | Action::WriteSlot { op, .. }
        | Action::ReadBackend { op, .. }
        | Action::WriteBackend { op, .. }
        | Action::FlushBackend { op, .. }
        | Action::TrimBackend { op, .. }
        | Action::ZeroBackend { op, .. }
        | Action::WriteTable { op, .. }
        | Action::WriteIntent { op, .. }
        | Action::FlushDisk { op }
        | Action::ScanTable { op, .. }
        | Action::MarkClean { op }
        | Action::RaiseGeneration { op } => Some(op),
        _ => None,
    }
}

/// The cache, the time, and what the cache has asked for and said.
pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) now_ns: u64,
    /// Orders without an answer.
    pub(crate) open: Vec<Action>,
    /// Everything the cache ever ordered.
    pub(crate) log: Vec<Action>,
    pub(crate) replies: BTreeMap<u64, Result<(), ReplyError>>,
    /// Reads that were answered well and not yet sent.
    pub(crate) sending: BTreeMap<u64, RequestId>,
    pub(crate) notices: Vec<Notice>,
    receiving: BTreeMap<u64, RequestId>,
}

impl World {
    pub(crate) fn new(config: CacheConfig) -> Self {
        Self {
            cache: Cache::new(config).expect("a sound configuration"),
            now_ns: 1,
            open: Vec::new(),
            log: Vec::new(),
            replies: BTreeMap::new(),
            sending: BTreeMap::new(),
            notices: Vec::new(),
            receiving: BTreeMap::new(),
        }
    }

    pub(crate) fn step(&mut self, event: Event<'_>) {
        let mut actions = Actions::new();
        self.cache.step(self.now_ns, event, &mut actions);
        self.take(&actions);
        for steps in 0.. {
            if !self.cache.has_more() {
                break;
            }
            assert!(steps < 10_000, "there is always more to do");
            actions.clear();
            self.cache.step(self.now_ns, Event::Continue, &mut actions);
            self.take(&actions);
        }
    }

    fn take(&mut self, actions: &Actions) {
        for &action in actions.as_slice() {
            self.log.push(action);
            match action {
                Action::Reply { tag, result } => self.reply(tag, result),
                Action::ReplyRead { tag, request } => {
                    self.sending.insert(tag, request);
                    self.reply(tag, Ok(()));
                }
                Action::Receive { tag, request } => {
                    self.receiving.insert(tag, request);
                }
                Action::Notice(notice) => self.notices.push(notice),
                Action::Copy { .. } | Action::GiveUpRead { .. } => {}
                _ => self.open.push(action),
            }
        }
    }

    fn reply(&mut self, tag: u64, result: Result<(), ReplyError>) {
        assert!(self.replies.insert(tag, result).is_none(), "request {tag} is answered twice");
    }

    /// Answers one open order.
    pub(crate) fn done(&mut self, op: OpId, result: Result<(), IoError>) {
        let at = self.open.iter().position(|action| op_of(action) == Some(op)).expect("the order is open");
        let crcs = match self.open.remove(at) {
            Action::ReadBackend { check: Some(key), piece, .. } if result.is_ok() => {
                let (first_block, blocks) = (piece.at / 4096, piece.length / 4096);
                (first_block..first_block + blocks).map(|block| key.page * 16 + block + 1).collect()
            }
            Action::WriteSlot { key, first_block, blocks, .. } | Action::ReadSlot { key, first_block, blocks, .. }
                if result.is_ok() =>
            {
                (first_block..first_block + blocks).map(|block| key.page * 16 + block + 1).collect()
            }
            _ => Vec::new(),
        };
        self.step(Event::Done { op, result, crcs: &crcs });
    }

    /// Answers a read of a slot, or one that is checked against it, with blocks that are not what was stored.
    pub(crate) fn done_with_bad_blocks(&mut self, op: OpId) {
        let at = self.open.iter().position(|action| op_of(action) == Some(op)).expect("the order is open");
        let blocks = match self.open.remove(at) {
            Action::ReadSlot { blocks, .. } => blocks,
            Action::ReadBackend { check: Some(_), piece, .. } => piece.length / 4096,
            action => panic!("nothing checks {action:?}"),
        };
        self.step(Event::Done { op, result: Ok(()), crcs: &vec![u32::MAX; blocks as usize] });
    }

    /// Answers the open orders that `which` picks, until there are none.
    pub(crate) fn answer(&mut self, result: Result<(), IoError>, which: impl Fn(&Action) -> bool) {
        while let Some(op) = self.find(&which) {
            self.done(op, result);
        }
    }

    /// Answers the orders that are open now, and none that these bring.
    pub(crate) fn answer_once(&mut self, result: Result<(), IoError>) {
        let ops: Vec<OpId> = self.open.iter().filter_map(op_of).collect();
        for op in ops {
            self.done(op, result);
        }
    }

    /// Every device answers well.
    pub(crate) fn settle(&mut self) {
        self.answer(Ok(()), |_| true);
    }

    /// The first open order that `which` picks.
    pub(crate) fn find(&self, which: impl Fn(&Action) -> bool) -> Option<OpId> {
        self.open.iter().find(|action| which(action)).and_then(op_of)
    }

    /// Open orders that `which` picks.
    pub(crate) fn count(&self, which: impl Fn(&Action) -> bool) -> usize {
        self.open.iter().filter(|action| which(action)).count()
    }

    pub(crate) fn read(&mut self, tag: u64, offset: u64, length: u32) {
        self.step(Event::Read { volume: VOLUME, tag, offset, length });
    }

    /// Asks for a write and hands over its payload.
    pub(crate) fn write(&mut self, tag: u64, offset: u64, length: u32) {
        self.step(Event::Write { volume: VOLUME, tag, offset, length, fua: false });
        if let Some(request) = self.receiving.remove(&tag) {
            self.step(Event::Received { request });
        }
    }

    pub(crate) fn trim(&mut self, tag: u64, offset: u64, length: u64) {
        self.step(Event::Trim { volume: VOLUME, tag, offset, length, fua: false });
    }

    pub(crate) fn sent(&mut self, tag: u64) {
        let request = self.sending.remove(&tag).expect("the read was answered");
        self.step(Event::Sent { request });
    }

    pub(crate) fn sent_all(&mut self) {
        for request in std::mem::take(&mut self.sending).into_values() {
            self.step(Event::Sent { request });
        }
    }

    pub(crate) fn tick(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        self.step(Event::Tick);
    }

    /// So many seconds of control periods.
    pub(crate) fn ticks(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.tick(100 * MS);
        }
    }

    /// Reads a page into both tiers.
    pub(crate) fn warm(&mut self, tag: u64, page: u64) {
        self.read(tag, page * PAGE, PAGE as u32);
        self.settle();
        self.sent(tag);
    }

    pub(crate) fn is_answered(&self, tag: u64) -> bool {
        self.replies.contains_key(&tag)
    }
}
