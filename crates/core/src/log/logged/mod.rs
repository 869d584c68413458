//! A back end behind a log: changes are answered when the log has them, reads see the log over the back end, and the back
//! end follows in order.
//!
//! Why a layer of its own: to the cache it is a back end like any other, whose writes take as long as a local disk's. So
//! pages in memory and slots, the order of overlapping requests, the write-intent map and recovery are what they are
//! without a log, and a log is what it is without a cache.
//!
//! How: [`Logged::submit`] takes requests, [`Logged::next_order`] says what is to be done, [`Logged::done`] takes what was.
//! 1. A change becomes a record. Records gather while groups are under way; the next group takes them all. It is answered
//!    when its group is there, and those before it ([`serve`]). Large writes may pass the log ([`bypass`]).
//! 2. A flush, and a change with FUA, closes the epoch and waits for a flush of the log's disk; one at a time, for all that
//!    wait. Where its owner wants that ([`policy`]), it waits until the back end has it. A flush of the cache's own
//!    ([`Wish::Persist`]) closes nothing, and the log is enough for it.
//! 3. A read asks the map: what a record has comes from the log and is checked block by block, the rest from the back end.
//! 4. Runs are gathered from the log and written to the back end ([`follow`]); then it is flushed, the tail is written down,
//!    and the next epoch follows.
//!
//! Invariants: what a read of the log was told to read is not written over before it is answered; every request is
//! answered once.
//!
//! Limits: what does not fit the log waits, first come first served. When the log's disk fails, the
//! volume goes on without it ([`failing`]).

mod age;
mod balance;
mod bypass;
mod checks;
mod counts;
mod failing;
mod follow;
mod loss;
mod lost;
mod opening;
mod order;
mod pace;
mod policy;
mod regions;
mod serve;

#[cfg(test)]
mod tests;

pub use counts::LoggedCounts;
pub use failing::Health;
pub use loss::LOST_MAX;
pub use lost::{LostExtent, LostExtents};
pub use opening::{KnownRegions, OnDisk, Opening};
pub use order::{Buffer, Memory, Order, OrderId, Place, Request, Wish};
pub use policy::{Bypass, Durability, LogPolicy, OnLag};
pub use regions::{REGION_SECTORS, RegionImage, RegionSet, regions_of};

use super::record::BLOCK_SECTORS;
use super::{Group, Log, Record, RecordId, Tail};
use crate::IoError;
use age::Ages;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bypass::Bypasses;
use checks::Checks;
use core::ops::Range;
use pace::Pace;
use serve::{Change, FlushWaiter, Piece, Read};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct LoggedConfig {
    /// Sectors of a buffer: a group fits wherever it begins in its first block.
    pub buffer_sectors: u64,
    /// Reads of the log under way.
    pub log_reads_max: u32,
    /// Runs on their way to the back end, each in its buffer.
    pub runs_max: u32,
    /// Sectors of a run. Its buffer has room for it wherever it begins in its first block.
    pub run_sectors: u64,
    /// After a run or a flush failed there, so long until the next.
    pub retry_ns: u64,
    /// What nobody flushes goes to the back end after this time.
    pub open_ns: u64,
    /// What its disk has not answered by then has failed.
    pub disk_timeout_ns: u64,
    /// A part of the log that cannot be read for this time is lost.
    pub read_patience_ns: u64,
    /// When its disk failed, and the back end does not come nearer for this time, who waits for that is answered with an error.
    pub wait_ns: u64,
    /// After a client's read of the back end or change the next one is expected for so long.
    pub demand_ns: u64,
    /// After a change passed the log the next one is expected for so long: a back end with a rate answers in lumps.
    pub burst_gap_ns: u64,
}

/// What an unanswered order was for.
#[derive(Clone, Debug)]
enum Role {
    Group {
        group: Group,
        buffer: u32,
    },
    FlushLog {
        before: RecordId,
    },
    Tail {
        tail: Tail,
    },
    Piece {
        piece: Piece,
        buffer: u32,
    },
    ReadBackend {
        read: usize,
        sectors: Range<u64>,
    },
    Run {
        run: usize,
    },
    Bypass {
        request: Request,
    },
    FlushBackend,
    Regions,
    /// Nobody waits for it any more. A buffer for reads is the disk's until it ends.
    Orphan {
        read_buffer: Option<u32>,
    },
}

/// Things named by their place, which is used again.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
    live: usize,
}

impl<T> Slab<T> {
    fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), live: 0 }
    }

    fn insert(&mut self, it: T) -> usize {
        self.live += 1;
        match self.free.pop() {
            Some(free) => {
                self.slots[free] = Some(it);
                free
            }
            None => {
                self.slots.push(Some(it));
                self.slots.len() - 1
            }
        }
    }

    fn get_mut(&mut self, at: usize) -> &mut T {
        self.slots[at].as_mut().expect("it is there")
    }

    fn remove(&mut self, at: usize) -> T {
        self.live -= 1;
        self.free.push(at);
        self.slots[at].take().expect("it is removed once")
    }
}

/// A change that is not in the log yet.
#[derive(Debug)]
struct Waiting {
    request: Request,
    /// The back end could not take it.
    must_log: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Logged {
    config: LoggedConfig,
    policy: LogPolicy,
    bypass: Bypasses,
    balance: balance::Balance,
    pace: Pace,
    /// The first that waits finds no room.
    starved: bool,
    log: Log,
    roles: Slab<Role>,
    /// Orders that wait for nothing.
    ready: VecDeque<Order>,
    /// Changes that the log has no room for yet.
    waiting: VecDeque<Waiting>,
    /// Changes in the log that are not answered, in order of their records.
    changes: VecDeque<Change>,
    flush_waiters: Vec<FlushWaiter>,
    log_flush: bool,
    checks: Checks,
    ages: Ages,
    counts: LoggedCounts,
    reads: Slab<Read>,
    /// Parts of reads and runs that wait for a buffer.
    pieces: VecDeque<Piece>,
    /// How many are under way or wait, by record: these must not be written over.
    pins: BTreeMap<RecordId, u32>,
    group_buffers: Vec<u32>,
    read_buffers: Vec<u32>,
    follow: follow::Follow,
    /// The log's disk failed.
    broken: bool,
    /// Which regions may have bytes that only the log has, if that is kept.
    regions: Option<regions::Regions>,
    loss: loss::Loss,
    failing: failing::Failing,
}

impl Logged {
    /// Goes on with that log. `sums`: of each of its records, the checksums of its blocks.
    #[must_use]
    pub fn new(config: LoggedConfig, log: Log, sums: &[Vec<u32>]) -> Self {
        assert_eq!(sums.len() as u64, log.next() - log.first, "checksums of each record");
        let in_block = BLOCK_SECTORS - 1;
        assert!(log.limits.group_sectors_max + in_block <= config.buffer_sectors && config.log_reads_max > 0);
        assert!(log.ring.size().is_multiple_of(BLOCK_SECTORS), "a ring is of whole blocks");
        let mut checks = Checks::new(log.first);
        for (id, sums) in (log.first..).zip(sums) {
            checks.append(sums.len());
            checks.set(id, sums);
        }
        Self {
            group_buffers: (0..log.limits.groups_max as u32).rev().collect(),
            read_buffers: (0..config.log_reads_max).rev().collect(),
            checks,
            ages: Ages::new(),
            counts: LoggedCounts::default(),
            config,
            policy: LogPolicy::default(),
            bypass: Bypasses::default(),
            balance: balance::Balance::default(),
            pace: Pace::default(),
            starved: false,
            log,
            roles: Slab::new(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            changes: VecDeque::new(),
            flush_waiters: Vec::new(),
            log_flush: false,
            reads: Slab::new(),
            pieces: VecDeque::new(),
            pins: BTreeMap::new(),
            follow: follow::Follow::default(),
            broken: false,
            regions: None,
            loss: loss::Loss::default(),
            failing: failing::Failing::default(),
        }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What its owner chose.
    #[must_use]
    pub fn policy(&self) -> LogPolicy {
        self.policy
    }

    /// The owner chose something else. It counts for what is asked from now on.
    pub fn set_policy(&mut self, now_ns: u64, policy: LogPolicy) {
        self.policy = policy;
        self.append_waiting(now_ns);
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> LoggedCounts {
        self.counts
    }

    /// The age of the oldest record that is not on the back end for good; 0 when all are.
    #[must_use]
    pub fn lag_ns(&self, now_ns: u64) -> u64 {
        self.ages.oldest_ns().map_or(0, |at_ns| now_ns.saturating_sub(at_ns))
    }

    /// Whether the log's disk failed: changes fail since.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let asked = self.reads.live + self.waiting.len() + self.changes.len() + self.flush_waiters.len();
        asked + self.ready.len() + self.roles.live == self.failing.orphans
    }

    /// Takes a request.
    pub fn submit(&mut self, now_ns: u64, request: Request) {
        match request.wish {
            Wish::Read => self.read(&request),
            Wish::Flush => {
                let needs = self.close_boundary();
                self.flush(request.token, needs, self.policy.durability);
            }
            Wish::Persist => self.flush(request.token, self.log.next(), Durability::Local),
            Wish::Write { .. } | Wish::Zero { .. } => {
                self.waiting.push_back(Waiting { request, must_log: false });
                self.append_waiting(now_ns);
            }
        }
    }

    /// The next order, if there is one. To be asked until there is none, after whatever happened.
    pub fn next_order(&mut self, now_ns: u64) -> Option<Order> {
        if self.is_turn(now_ns) {
            self.append_waiting(now_ns);
        }
        if let Some(order) = self.ready.pop_front() {
            return Some(order);
        }
        self.failing.now_ns = now_ns;
        self.go_on(now_ns);
        if let Some(order) = self.ready.pop_front() {
            return Some(order);
        }
        self.order_regions(now_ns)
            .or_else(|| self.order_group())
            .or_else(|| self.order_log_flush())
            .or_else(|| self.order_piece())
            .or_else(|| self.order_tail())
            .or_else(|| self.order_run(now_ns))
            .or_else(|| self.order_backend_flush(now_ns))
    }

    /// The records of a group under way, and the tokens of their clients.
    pub fn group(&self, group: &Group) -> impl Iterator<Item = (&Record, u64)> {
        let first = self.changes.front().map_or(0, |change| change.id);
        group.records.clone().map(move |id| {
            let change = &self.changes[(id - first) as usize];
            assert_eq!(change.id, id, "changes are answered in their order");
            (self.log.record(id), change.token)
        })
    }

    /// Records before this are durable: what the group's descriptor says.
    #[must_use]
    pub fn durable(&self, group: &Group) -> RecordId {
        self.log.durable.min(group.records.start)
    }

    /// An order ended. `checks`: the checksums that it was to bring.
    pub fn done(&mut self, now_ns: u64, id: OrderId, result: Result<(), IoError>, checks: &[u32]) {
        self.failing.now_ns = now_ns;
        self.failing.ended(id);
        match self.roles.remove(id.0 as usize) {
            Role::Group { group, buffer } => {
                self.group_buffers.push(buffer);
                self.group_ended(now_ns, &group, result, checks);
            }
            Role::Orphan { read_buffer } => {
                self.failing.orphans -= 1;
                self.read_buffers.extend(read_buffer);
            }
            Role::FlushLog { before } => self.log_flushed(before, result),
            Role::Tail { tail } => self.tail_written(tail, result),
            Role::Piece { piece, buffer } => {
                self.read_buffers.push(buffer);
                self.piece_read(now_ns, piece, buffer, result, checks);
            }
            Role::ReadBackend { read, sectors } => {
                self.follow.read_ended(now_ns);
                // It may have been lost on the way.
                let is_lost = self.loss.lost.overlaps(&sectors);
                self.read_went_on(read, if is_lost { Err(IoError::Failed) } else { result });
            }
            Role::Run { run } => self.run_ended(now_ns, run, result),
            Role::Bypass { request } => self.bypass_ended(now_ns, request, result),
            Role::FlushBackend => self.backend_flushed(now_ns, result),
            Role::Regions => self.regions_written(now_ns, result),
        }
        self.look(now_ns);
        self.append_waiting(now_ns);
    }

    /// Somebody wants what was answered to be durable; his records are before `needs`.
    fn flush(&mut self, token: u64, needs: RecordId, level: Durability) {
        if self.take_owed_failure() {
            return self.answer(token, Err(IoError::Lost));
        }
        let needs_answers = self.bypass.answers();
        self.wait_for_flush(FlushWaiter { token, is_flush: true, needs, needs_answers, level });
    }

    fn start(&mut self, role: Role) -> OrderId {
        OrderId(self.roles.insert(role) as u32)
    }

    /// On the log's disk.
    fn start_on_disk(&mut self, role: Role) -> OrderId {
        let id = self.start(role);
        self.failing.began(id);
        id
    }

    fn answer(&mut self, token: u64, result: Result<(), IoError>) {
        self.ready.push_back(Order::Answer { token, result });
    }

    fn pin(&mut self, record: RecordId) {
        *self.pins.entry(record).or_default() += 1;
    }

    fn unpin(&mut self, record: RecordId) {
        let count = self.pins.get_mut(&record).expect("it is pinned");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&record);
            self.free_room();
        }
    }
}
