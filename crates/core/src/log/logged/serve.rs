//! What clients ask: changes into the log, flushes of it, reads of log and back end.

use super::super::record::{BLOCK_SECTORS, SECTOR_BYTES};
use super::super::{Group, Kind, Record, RecordId};
use super::bypass::Route;
use super::loss::Rewrite;
use super::policy::Durability;
use super::{Buffer, Logged, Memory, Order, Place, Request, Role, Wish};
use crate::IoError;
use alloc::vec::Vec;
use core::ops::Range;

/// A change whose client is not answered.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) id: RecordId,
    pub(super) token: u64,
    /// It is durable when all before this is.
    fua_until: Option<RecordId>,
    /// It would have passed the log, had the back end followed.
    pub(super) is_large: bool,
}

impl Change {
    /// As its client asked for it.
    pub(super) fn asked_again(&self, record: &Record) -> Request {
        let fua = self.fua_until.is_some();
        let wish = match record.kind {
            Kind::Data => Wish::Write { fua },
            Kind::Zero { no_hole } => Wish::Zero { fua, no_hole },
        };
        Request { token: self.token, wish, sectors: record.range(), whole_sectors: u64::from(record.sectors) }
    }
}

/// Somebody waits until records before that are durable, and what passed the log before.
#[derive(Debug)]
pub(super) struct FlushWaiter {
    pub(super) token: u64,
    /// Not a change with FUA.
    pub(super) is_flush: bool,
    pub(super) needs: RecordId,
    /// So many that passed the log are flushed.
    pub(super) needs_answers: u64,
    /// Where.
    pub(super) level: Durability,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    token: u64,
    /// Parts that are not there yet.
    left: u32,
    error: Option<IoError>,
}

/// For whom a part of the log is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum For {
    Read(usize),
    Run(usize),
}

/// A part of the log that somebody wants: sectors of one record.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) whose: For,
    pub(super) record: RecordId,
    pub(super) sectors: Range<u64>,
    to: Place,
    /// What is read for it: whole blocks, as far as the record has them; from that position.
    pub(super) reads: Range<u64>,
    position: u64,
    pub(super) checks: Vec<u32>,
}

impl Logged {
    /// Takes changes into the log as long as it has room.
    pub(super) fn append_waiting(&mut self, now_ns: u64) {
        self.starved = false;
        while let Some(waiting) = self.waiting.front() {
            let request = waiting.request.clone();
            let rewrite = self.may_rewrite(&request.sectors);
            if rewrite == Rewrite::Never {
                self.answer(request.token, Err(IoError::Failed));
                self.waiting.pop_front();
                continue;
            }
            let route = self.route(now_ns, waiting);
            self.has_no_turn();
            match route {
                Route::Log => {}
                // The region map has its regions the next time.
                Route::Either if self.admits_at_once(&request.sectors) => {}
                Route::Around | Route::Either => {
                    self.waiting.pop_front();
                    self.bypass(now_ns, request);
                    continue;
                }
                Route::Wait => {
                    // What is left goes at once.
                    self.waits_for_no_turn(now_ns);
                    self.log.close(false);
                    self.follow.flush_due = true;
                    return;
                }
            }
            self.starved = rewrite == Rewrite::Later;
            if self.starved {
                self.waits_for_no_turn(now_ns);
            }
            if !self.broken && (self.starved || !self.may_come(now_ns) || !self.admits(&request.sectors)) {
                return;
            }
            let sectors = (request.sectors.end - request.sectors.start) as u32;
            let (kind, fua) = match request.wish {
                Wish::Write { fua } => (Kind::Data, fua),
                Wish::Zero { fua, no_hole } => (Kind::Zero { no_hole }, fua),
                Wish::Read | Wish::Flush | Wish::Persist => unreachable!("not a change: {request:?}"),
            };
            let token = request.token;
            if self.broken {
                self.answer(token, Err(IoError::Failed));
                self.waiting.pop_front();
                continue;
            }
            let record = Record::new(request.sectors.start, sectors, kind);
            let Some(id) = self.log.append(record) else {
                self.starved = true;
                return;
            };
            self.came(now_ns, record.payload_sectors() + 1);
            self.balance.log.begins(now_ns, record.payload_sectors());
            self.checks.append(record.blocks());
            self.ages.appended(self.log.first, id, now_ns);
            let fua_until = fua.then(|| self.close_boundary());
            let is_large = self.policy.bypass.is_large(request.whole_sectors);
            self.changes.push_back(Change { id, token, fua_until, is_large });
            self.waiting.pop_front();
        }
    }

    pub(super) fn order_group(&mut self) -> Option<Order> {
        if self.broken || self.group_buffers.is_empty() {
            return None;
        }
        let group = self.log.next_group()?;
        let buffer = self.group_buffers.pop()?;
        let id = self.start_on_disk(Role::Group { group: group.clone(), buffer });
        Some(Order::WriteGroup { id, group, buffer: Buffer::Group(buffer) })
    }

    pub(super) fn group_ended(&mut self, now_ns: u64, group: &Group, result: Result<(), IoError>, mut checks: &[u32]) {
        if result.is_err() || self.broken {
            return self.log_failed();
        }
        for id in group.records.clone() {
            let record = self.log.record(id);
            let (now, later) = checks.split_at(record.blocks());
            self.checks.set(id, now);
            checks = later;
            let sectors = record.payload_sectors();
            self.balance.log.ends(now_ns, sectors);
            self.counts.payload_bytes += sectors * SECTOR_BYTES;
        }
        self.counts.groups += 1;
        self.counts.group_bytes += group.sectors * SECTOR_BYTES;
        assert!(checks.is_empty(), "a checksum for each block of a group");
        for id in self.log.group_written(group.position) {
            let change = self.changes.pop_front().expect("each record has its change");
            if !change.is_large {
                self.follow.change_ended(now_ns);
            }
            assert_eq!(change.id, id, "changes are answered in their order");
            match change.fua_until {
                Some(needs) => {
                    let (token, level) = (change.token, self.policy.fua);
                    self.wait_for_flush(FlushWaiter { token, is_flush: false, needs, needs_answers: 0, level });
                }
                None => self.answer(change.token, Ok(())),
            }
        }
    }

    pub(super) fn wait_for_flush(&mut self, mut waiter: FlushWaiter) {
        if self.broken {
            waiter.level = Durability::Backend;
        }
        if self.broken && self.regions.is_none() {
            self.answer(waiter.token, Err(IoError::Lost));
        } else if self.is_met(&waiter) {
            self.answer(waiter.token, Ok(()));
        } else {
            self.flush_waiters.push(waiter);
        }
    }

    fn is_met(&self, waiter: &FlushWaiter) -> bool {
        let there = match waiter.level {
            _ if self.broken => self.is_met_without_log(waiter.needs),
            Durability::Local => waiter.needs <= self.log.durable,
            // Also in the log, and behind the tail that the disk knows: a recovery would write again what is in the log, and
            // where an epoch has several parts the first of them over what the last one wrote.
            Durability::Backend => waiter.needs <= self.log.durable.min(self.known_first()),
        };
        there && waiter.needs_answers <= self.bypass.settled()
    }

    /// Answers those who have what they wait for.
    pub(super) fn settle_waiters(&mut self) {
        let mut waiters = core::mem::take(&mut self.flush_waiters);
        waiters.retain(|waiter| {
            let is_met = self.is_met(waiter);
            if is_met {
                self.answer(waiter.token, Ok(()));
            }
            !is_met
        });
        self.flush_waiters = waiters;
    }

    pub(super) fn order_log_flush(&mut self) -> Option<Order> {
        let before = self.log.written();
        let wanted = |waiter: &FlushWaiter| waiter.needs <= before && waiter.needs > self.log.durable;
        if self.log_flush || self.broken || !self.flush_waiters.iter().any(wanted) {
            return None;
        }
        self.log_flush = true;
        let id = self.start_on_disk(Role::FlushLog { before });
        Some(Order::FlushLog { id })
    }

    pub(super) fn log_flushed(&mut self, before: RecordId, result: Result<(), IoError>) {
        self.log_flush = false;
        if result.is_err() || self.broken {
            return self.log_failed();
        }
        self.counts.log_flushes += 1;
        self.log.flushed_disk(before);
        self.settle_waiters();
    }

    pub(super) fn read(&mut self, request: &Request) {
        // One part more than there are, until all are ordered.
        let read = self.reads.insert(Read { token: request.token, left: 1, error: None });
        let mut left = request.sectors.clone();
        while let Some(stretch) = self.log.map().first(&left) {
            left.start = stretch.sectors.end;
            let skip = stretch.sectors.start - request.sectors.start;
            let to = Place { memory: Memory::Client(request.token), skip };
            match stretch.record {
                None if self.loss.lost.overlaps(&stretch.sectors) => {
                    self.reads.get_mut(read).error = Some(IoError::Failed);
                }
                None => {
                    self.reads.get_mut(read).left += 1;
                    self.follow.reads += 1;
                    let id = self.start(Role::ReadBackend { read, sectors: stretch.sectors.clone() });
                    self.ready.push_back(Order::ReadBackend { id, to, sectors: stretch.sectors });
                }
                Some(record) if self.log.record(record).kind == Kind::Data => {
                    self.reads.get_mut(read).left += 1;
                    self.want(For::Read(read), record, stretch.sectors, to);
                }
                Some(_) => {
                    let sectors = stretch.sectors.end - stretch.sectors.start;
                    self.ready.push_back(Order::Clear { at: to, sectors });
                }
            }
        }
        self.read_went_on(read, Ok(()));
    }

    /// A part of a read is there, or is not to be had.
    pub(super) fn read_went_on(&mut self, read: usize, result: Result<(), IoError>) {
        let it = self.reads.get_mut(read);
        it.left -= 1;
        if let Err(error) = result {
            it.error.get_or_insert(error);
        }
        if it.left == 0 {
            let Read { token, error, .. } = self.reads.remove(read);
            self.answer(token, error.map_or(Ok(()), Err));
        }
    }

    /// Somebody wants sectors of a record.
    pub(super) fn want(&mut self, whose: For, record: RecordId, sectors: Range<u64>, to: Place) {
        let range = self.log.record(record).range();
        let reads = (sectors.start / BLOCK_SECTORS * BLOCK_SECTORS).max(range.start)
            ..sectors.end.next_multiple_of(BLOCK_SECTORS).min(range.end);
        let position = self.log.position(record, reads.start);
        let first_block = range.start / BLOCK_SECTORS;
        let blocks = reads.start / BLOCK_SECTORS - first_block..reads.end.div_ceil(BLOCK_SECTORS) - first_block;
        let checks = self.checks.of(record, blocks.start as usize..blocks.end as usize).collect();
        self.pin(record);
        self.pieces.push_back(Piece { whose, record, sectors, to, reads, position, checks });
    }

    pub(super) fn order_piece(&mut self) -> Option<Order> {
        if self.pieces.is_empty() {
            return None;
        }
        let Some(buffer) = self.read_buffers.pop() else {
            return self.refuse_piece();
        };
        let piece = self.pieces.pop_front()?;
        let (position, sectors) = (piece.position, piece.reads.clone());
        let is_demand = matches!(piece.whose, For::Read(_));
        let end = position % BLOCK_SECTORS + sectors.end - sectors.start;
        assert!(end <= self.config.buffer_sectors, "a record fits a buffer");
        let id = self.start_on_disk(Role::Piece { piece, buffer });
        Some(Order::ReadLog { id, buffer: Buffer::LogRead(buffer), position, sectors, is_demand })
    }

    pub(super) fn piece_read(
        &mut self,
        now_ns: u64,
        piece: Piece,
        buffer: u32,
        result: Result<(), IoError>,
        checks: &[u32],
    ) {
        let is_right = checks == piece.checks;
        match (piece.whose, result) {
            (_, Ok(())) if is_right => self.log_was_read(now_ns, &piece),
            (For::Run(_), result) => self.run_unread(now_ns, &piece, result.is_ok().then_some(checks)),
            (For::Read(_), _) => {}
        }
        let result = result.and(if is_right { Ok(()) } else { Err(IoError::Failed) });
        if result.is_ok() {
            let skip = piece.position % BLOCK_SECTORS + piece.sectors.start - piece.reads.start;
            let from = Place { memory: Memory::Driver(Buffer::LogRead(buffer)), skip };
            let sectors = piece.sectors.end - piece.sectors.start;
            self.ready.push_back(Order::Copy { from, to: piece.to, sectors });
        }
        self.unpin(piece.record);
        match piece.whose {
            For::Read(read) => self.read_went_on(read, result),
            For::Run(run) => self.run_gathered(now_ns, run, result),
        }
    }
}
