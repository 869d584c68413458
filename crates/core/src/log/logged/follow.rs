//! The back end follows: runs gathered from the log, flushes, and the tail. How many runs at a time is in [`super::pace`].

use super::super::record::{BLOCK_SECTORS, SECTOR_BYTES};
use super::super::write_back::Run;
use super::super::{Kind, RecordId, Tail};
use super::failing::Health;
use super::pace::LOW;
use super::policy::{Bypass, Durability};
use super::serve::For;
use super::{Buffer, Logged, Memory, Order, Place, Role};
use crate::IoError;
use alloc::vec::Vec;

/// A run on its way.
#[derive(Debug)]
struct Gathering {
    run: Run,
    /// Parts that are not gathered yet.
    left: u32,
    failed: bool,
}

/// How far the back end follows.
#[derive(Debug, Default)]
pub(super) struct Follow {
    /// By buffer.
    runs: Vec<Option<Gathering>>,
    live: u32,
    /// Nothing is tried before this.
    retry_ns: u64,
    flushing: bool,
    /// A tail is on its way to the disk.
    writes_tail: bool,
    /// The disk knows this tail; the room before it is still being read.
    known: Option<Tail>,
    /// When the open epoch was last closed without a promise.
    closed_ns: u64,
    /// What is applied is to be flushed, though nobody was promised anything.
    pub(super) flush_due: bool,
    /// The last operation on the back end failed.
    fails: bool,
    /// When it last ended one, or was told to begin after a rest.
    heard_ns: u64,
    /// Reads of clients under way there, and when the last one ended, or a change of theirs.
    pub(super) reads: u32,
    demand_ns: u64,
}

impl Follow {
    /// An operation on the back end ended.
    pub(super) fn went(&mut self, now_ns: u64, is_well: bool) {
        (self.fails, self.heard_ns) = (!is_well, now_ns);
    }

    /// Something is to be done for it: runs, flushes, tails.
    pub(super) fn works(&self) -> bool {
        self.live > 0 || self.flushing || self.writes_tail
    }

    fn begins(&mut self, now_ns: u64) {
        if self.live == 0 && !self.flushing {
            self.heard_ns = now_ns;
        }
    }

    /// The back end has something to do, and said nothing for so long.
    pub(super) fn is_silent(&self, now_ns: u64, for_ns: u64) -> bool {
        (self.live > 0 || self.flushing) && now_ns.saturating_sub(self.heard_ns) > for_ns
    }

    pub(super) fn read_ended(&mut self, now_ns: u64) {
        (self.reads, self.demand_ns) = (self.reads - 1, now_ns);
    }

    pub(super) fn change_ended(&mut self, now_ns: u64) {
        self.demand_ns = now_ns;
    }

    /// Clients read the back end, or just did, or just changed something.
    pub(super) fn is_demanded(&self, now_ns: u64, for_ns: u64) -> bool {
        self.reads > 0 || (self.demand_ns > 0 && now_ns.saturating_sub(self.demand_ns) < for_ns)
    }

    /// When clients count as at rest, if none of them comes until then.
    pub(super) fn rest_ns(&self, for_ns: u64) -> Option<u64> {
        (self.reads == 0 && self.demand_ns > 0).then_some(self.demand_ns + for_ns)
    }

    pub(super) fn fails(&self) -> bool {
        self.fails
    }

    /// Runs are on their way, or a flush.
    pub(super) fn is_busy(&self) -> bool {
        self.live > 0 || self.flushing
    }

    /// A tail is on its way, or what is before it is being read.
    pub(super) fn moves_tail(&self) -> bool {
        self.writes_tail || self.known.is_some()
    }

    pub(super) fn forget_tail(&mut self) {
        self.known = None;
    }
}

impl Logged {
    /// Time goes by: what nobody flushes goes to the back end, too.
    pub fn tick(&mut self, now_ns: u64) {
        self.give_up_orders(now_ns);
        self.look(now_ns);
        let open_ns = if self.policy.bypass == Bypass::All { 0 } else { self.config.open_ns };
        if now_ns.saturating_sub(self.follow.closed_ns) >= open_ns {
            self.follow.closed_ns = now_ns;
            self.log.close(false);
            self.follow.flush_due = !self.has_followed();
        }
        if self.log.next() > self.log.first && self.ages.oldest_ns().is_none() {
            // Records that were found, not appended, are as old as the first look at them.
            self.ages.appended(self.log.first, self.log.next(), now_ns);
        }
    }

    /// Whether everything is on the back end, for good.
    #[must_use]
    pub fn has_followed(&self) -> bool {
        self.log.next() == self.log.first && !self.bypass.is_dirty()
    }

    pub(super) fn order_run(&mut self, now_ns: u64) -> Option<Order> {
        if now_ns < self.follow.retry_ns || self.follow.live >= self.config.runs_max || self.bypass.wants_flush() {
            return None;
        }
        if self.failing.health == Health::Losing {
            return None;
        }
        // Parts follow each other; but what is applied must be flushed for its room, too.
        let is_due = self.follow.flush_due || self.is_short(now_ns);
        if (is_due && self.log.waits_between_parts()) || self.follow.live >= self.runs_allowed(now_ns) {
            return None;
        }
        let run = self.log.next_write_back(self.config.run_sectors)?;
        self.follow.begins(now_ns);
        let at = match self.follow.runs.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.follow.runs.push(None);
                self.follow.runs.len() - 1
            }
        };
        self.follow.live += 1;
        let (sectors, kind) = (run.sectors.clone(), run.kind);
        self.follow.runs[at] = Some(Gathering { run, left: 0, failed: false });
        if let Kind::Zero { no_hole } = kind {
            let id = self.start(Role::Run { run: at });
            return Some(Order::ZeroBackend { id, sectors, no_hole });
        }
        let mut left = sectors.clone();
        while let Some((stretch, record)) = self.log.run_record(&left) {
            left.start = stretch.end;
            self.gathering(at).left += 1;
            let memory = Memory::Driver(Buffer::Run(at as u32));
            let skip = sectors.start % BLOCK_SECTORS + stretch.start - sectors.start;
            self.want(For::Run(at), record, stretch, Place { memory, skip });
        }
        assert!(left.is_empty(), "a run has all its bytes");
        self.order_piece()
    }

    fn gathering(&mut self, run: usize) -> &mut Gathering {
        self.follow.runs[run].as_mut().expect("a run is on its way")
    }

    /// A part of a run was read, or could not be.
    pub(super) fn run_gathered(&mut self, now_ns: u64, run: usize, result: Result<(), IoError>) {
        let it = self.gathering(run);
        it.left -= 1;
        it.failed |= result.is_err();
        let (left, failed, sectors) = (it.left, it.failed, it.run.sectors.clone());
        if left > 0 {
            return;
        }
        if failed {
            return self.run_not_read(now_ns, run);
        }
        let id = self.start(Role::Run { run });
        let from = Place { memory: Memory::Driver(Buffer::Run(run as u32)), skip: sectors.start % BLOCK_SECTORS };
        self.ready.push_back(Order::WriteBackend { id, from, sectors });
    }

    /// The log's failure, not the back end's: it is tried again, and nobody is told.
    fn run_not_read(&mut self, now_ns: u64, run: usize) {
        let it = self.follow.runs[run].take().expect("a run ends once");
        self.follow.live -= 1;
        self.log.written_back(&it.run.sectors, false);
        self.counts.failed_runs += 1;
        self.follow.retry_ns = now_ns + self.config.retry_ns;
    }

    pub(super) fn run_ended(&mut self, now_ns: u64, run: usize, result: Result<(), IoError>) {
        let it = self.follow.runs[run].take().expect("a run ends once");
        self.follow.live -= 1;
        self.log.written_back(&it.run.sectors, result.is_ok());
        self.follow.went(now_ns, result.is_ok());
        if let Err(error) = result {
            self.counts.failed_runs += 1;
            self.follow_failed(now_ns, error);
        } else {
            self.went_on(now_ns);
            self.counts.runs += 1;
            self.counts.run_bytes += (it.run.sectors.end - it.run.sectors.start) * SECTOR_BYTES;
        }
    }

    /// Whoever waits for the back end is told that it fails; what he waits for is tried again.
    fn follow_failed(&mut self, now_ns: u64, error: IoError) {
        self.follow.retry_ns = now_ns + self.config.retry_ns;
        for waiter in self.flush_waiters.extract_if(.., |waiter| waiter.level == Durability::Backend) {
            self.ready.push_back(Order::Answer { token: waiter.token, result: Err(error) });
        }
    }

    /// Room is wanted.
    fn is_short(&self, now_ns: u64) -> bool {
        self.starved || self.log.is_full() || self.load(now_ns).pressure() > LOW
    }

    /// Somebody waits until the back end has flushed what passed the log.
    fn waits_for_bypasses(&self) -> bool {
        self.flush_waiters.iter().any(|waiter| waiter.needs_answers > self.bypass.settled())
    }

    /// Behind a boundary; where room is short or time has passed; and for what passed the log.
    pub(super) fn order_backend_flush(&mut self, now_ns: u64) -> Option<Order> {
        let is_losing = self.failing.health == Health::Losing;
        let for_log = self.log.waits_for_flush() || self.follow.flush_due || self.is_short(now_ns) || is_losing;
        let is_due = self.follow.flush_due || self.waits_for_bypasses();
        let for_bypasses = self.bypass.wants_flush() || (is_due && self.bypass.is_dirty());
        if !(for_log || for_bypasses) || now_ns < self.follow.retry_ns || self.bypass.delays_flush() {
            return None;
        }
        if self.follow.flushing || !self.log.flush_begins(for_bypasses) {
            return None;
        }
        self.bypass.flush_begins();
        self.follow.begins(now_ns);
        self.loss.flush_begins();
        (self.follow.flushing, self.follow.flush_due) = (true, false);
        let id = self.start(Role::FlushBackend);
        Some(Order::FlushBackend { id })
    }

    pub(super) fn backend_flushed(&mut self, now_ns: u64, result: Result<(), IoError>) {
        self.follow.flushing = false;
        match result {
            Ok(()) => self.released(self.log.flushing_until()),
            Err(_) => self.not_released(),
        }
        self.loss.flushed(result.is_ok());
        self.log.flushed_back(result.is_ok());
        self.follow.went(now_ns, result.is_ok());
        self.bypasses_flushed(result.is_ok());
        if let Err(error) = result {
            self.counts.failed_flushes += 1;
            self.follow_failed(now_ns, error);
        } else {
            self.counts.backend_flushes += 1;
        }
        self.checks.left(self.log.first);
        self.ages.left(self.log.first, self.log.next());
        self.settle_waiters();
    }

    pub(super) fn order_tail(&mut self) -> Option<Order> {
        let busy = self.follow.writes_tail || self.follow.known.is_some() || self.broken;
        if busy || !self.log.wants_anchor() || !self.knows_lost() {
            return None;
        }
        self.follow.writes_tail = true;
        let tail = self.log.tail();
        let id = self.start_on_disk(Role::Tail { tail });
        Some(Order::WriteTail { id, tail })
    }

    pub(super) fn tail_written(&mut self, tail: Tail, result: Result<(), IoError>) {
        self.follow.writes_tail = false;
        if result.is_err() || self.broken {
            return self.log_failed();
        }
        self.counts.tails += 1;
        self.tail_is_known(Some(tail));
    }

    pub(super) fn tail_is_known(&mut self, tail: Option<Tail>) {
        self.follow.known = tail;
        self.free_room();
        self.settle_waiters();
    }

    /// The first record that a recovery would find.
    pub(super) fn known_first(&self) -> RecordId {
        self.follow.known.map_or(self.log.anchored, |tail| tail.first)
    }

    /// What is before the tail may be written over, once nobody reads it.
    pub(super) fn free_room(&mut self) {
        let Some(tail) = self.follow.known else { return };
        if self.pins.first_key_value().is_none_or(|(record, _)| *record >= tail.first) {
            self.follow.known = None;
            self.log.anchored(tail);
        }
    }
}
