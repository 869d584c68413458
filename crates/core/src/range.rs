//! Operations on ranges: trim, write zeroes, evict, and what a back end may have lost.
//!
//! A range may be a whole volume, so it is worked off in chunks of bounded length. A chunk waits until no part is busy
//! in its pages; parts that arrive meanwhile wait for the chunk. When the back end has answered, everything cached of
//! the chunk is dropped: what a trimmed block reads as is the back end's business.
//!
//! A range in doubt makes parts wait in all that it has yet to drop, not only in its chunk. The wait is as long as what
//! is under way there, and 100 us a chunk. What a failed flush lost is only where the intent map says that something is
//! not flushed: hits elsewhere in the volume go on.
//!
//! An eviction waits until recovery has ended: a record scanned after it would bring back what it dropped.
//!
//! Limits: a trim or an eviction is not atomic against other requests, its chunks are. While a back end is silent, hits
//! on what it left in doubt wait like misses. Whether a part lies in a range is asked of each range in turn; ranges are
//! few.

use crate::action::{Action, Actions, Notice};
use crate::cache::{Cache, Ready};
use crate::error::ReplyError;
use crate::event::{Event, IoError};
use crate::op::Role;
use crate::page::{PageKey, VolumeId, blocks_touched};
use crate::request::PartId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Pages and bytes of a chunk at most: about 100 us of work.
const CHUNK_PAGES_MAX: u64 = 1024;
const CHUNK_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Trim {
        fua: bool,
    },
    Zero {
        fua: bool,
        no_hole: bool,
    },
    Evict,
    /// Written by somebody else, or lost: what is cached is dropped. `only_set`: where the intent map says that something
    /// may not be flushed.
    InDoubt {
        only_set: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For parts in its pages.
    Waits,
    /// For its regions' bits.
    WaitsForIntent,
    /// For the back end.
    Working,
}

/// A range under way, at its current chunk.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Order of arrival.
    seq: u64,
    volume: VolumeId,
    kind: Kind,
    tag: Option<u64>,
    /// Where its first chunk began.
    begin: u64,
    offset: u64,
    length: u64,
    end: u64,
    /// A chunk that was done may be lost since.
    lost: bool,
    /// Pages of the chunk, first and last.
    pages: (u32, u32),
    stage: Stage,
    /// When the chunk was ordered from the back end.
    start_ns: u64,
}

impl Range {
    fn overlaps(&self, volume: VolumeId, pages: (u32, u32)) -> bool {
        self.volume == volume && self.pages.0 <= pages.1 && pages.0 <= self.pages.1
    }

    /// Whether a part of that page, which begins at `start`, has to wait. What is in doubt and not yet dropped is not to be read: it could be there
    /// now and gone with its chunk. `is_set`: something in the page's region may not be flushed.
    fn locks(&self, volume: VolumeId, page: u32, start: u64, is_set: bool) -> bool {
        let before_end = match self.kind {
            Kind::InDoubt { only_set } if is_set || !only_set => start < self.end,
            _ => page <= self.pages.1,
        };
        self.volume == volume && self.pages.0 <= page && before_end
    }
}

/// All ranges under way.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    list: Vec<Option<Range>>,
    live: u32,
    next_seq: u64,
    /// Parts that wait for a chunk.
    blocked: VecDeque<PartId>,
    /// Evictions that wait for the end of recovery: volume, tag, offset and end.
    evictions: Vec<(VolumeId, Option<u64>, u64, u64)>,
    /// Something ended that a waiting range may have waited for.
    check: bool,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> u32 {
        self.live + self.evictions.len() as u32
    }

    /// Something ended.
    pub(crate) fn recheck(&mut self) {
        self.check = true;
    }

    /// Something ended in the page.
    pub(crate) fn left(&mut self, page: u32) {
        if self.live > 0 && !self.check {
            let waits = |range: &Range| range.stage == Stage::Waits && (range.pages.0..=range.pages.1).contains(&page);
            self.check = self.list.iter().flatten().any(waits);
        }
    }

    fn get_mut(&mut self, id: usize) -> &mut Range {
        self.list[id].as_mut().expect("the range is under way")
    }

    /// The waiting range that arrived first, after `seq`.
    fn next_waiting(&self, after: Option<u64>) -> Option<(usize, Range)> {
        let waiting = |r: &Range| r.stage != Stage::Working && after.is_none_or(|seq| r.seq > seq);
        let ranges = self.list.iter().enumerate().filter_map(|(id, r)| r.filter(waiting).map(|r| (id, r)));
        ranges.min_by_key(|(_, r)| r.seq)
    }

    fn is_behind_another(&self, range: &Range) -> bool {
        // Who waits for the intent map has the pages already: the next chunk of an older range is behind it.
        let before = |r: &Range| r.seq < range.seq || r.stage != Stage::Waits;
        self.list.iter().flatten().any(|r| r.seq != range.seq && before(r) && r.overlaps(range.volume, range.pages))
    }
}

impl Cache {
    pub(crate) fn range_event(&mut self, _now_ns: u64, event: &Event<'_>, actions: &mut Actions) {
        let (volume, kind, tag, offset, length) = match *event {
            Event::Trim { volume, tag, offset, length, fua } => (volume, Kind::Trim { fua }, Some(tag), offset, length),
            Event::WriteZeroes { volume, tag, offset, length, fua, no_hole } => {
                (volume, Kind::Zero { fua, no_hole }, Some(tag), offset, length)
            }
            Event::Evict { volume, tag, offset, length } => (volume, Kind::Evict, Some(tag), offset, length),
            Event::InDoubt { volume, offset, length, is_lost } => {
                let end = offset.saturating_add(length).min(self.volume(volume).bytes);
                if offset < end {
                    if is_lost {
                        self.tell_loss(volume, offset, end, actions);
                    }
                    self.doubt(volume, offset, end, false);
                }
                return;
            }
            _ => return,
        };
        let modifies = matches!(kind, Kind::Trim { .. } | Kind::Zero { .. });
        let refusal = match self.check_range(volume, offset, length) {
            Err(error) => Some(error),
            Ok(()) if modifies && !self.volume(volume).row.writes_allowed => Some(ReplyError::ReadOnly),
            Ok(()) if self.ranges.len() >= self.config.limits.requests_max => Some(ReplyError::Busy),
            Ok(()) => None,
        };
        if let Some(error) = refusal {
            if let Some(tag) = tag {
                actions.push(Action::Reply { tag, result: Err(error) });
            }
            return;
        }
        if kind == Kind::Evict && self.recovery.is_on() {
            return self.ranges.evictions.push((volume, tag, offset, offset + length));
        }
        self.add_range(volume, kind, tag, offset, offset + length);
    }

    /// The back end may have lost what was not flushed: everything written since leaves the cache.
    pub(crate) fn doubt_unflushed(&mut self, volume: VolumeId, actions: &mut Actions) {
        let bytes = self.volume(volume).bytes;
        self.tell_loss(volume, 0, bytes, actions);
        self.doubt(volume, 0, bytes, true);
    }

    /// Whether a part has to wait for a range; it is queued then.
    pub(crate) fn waits_for_range(&mut self, volume: VolumeId, key: PageKey, part: PartId) -> bool {
        if self.ranges.live == 0 {
            return false;
        }
        let start = self.page_start(key);
        let is_set = self.volume(volume).intent.is_set_at(start);
        let waits = self.ranges.list.iter().flatten().any(|range| range.locks(volume, key.page, start, is_set));
        if waits {
            self.ranges.blocked.push_back(part);
        }
        waits
    }

    /// From now on the regions count as written, whatever has to be waited for until they are dropped.
    fn doubt(&mut self, volume: VolumeId, offset: u64, end: u64, only_set: bool) {
        let v = &mut self.volumes[volume.index()];
        // Lost regions are set already; an empty range of them only stops the sweep in progress.
        let regions =
            if only_set { core::ops::RangeInclusive::new(1, 0) } else { v.intent.regions(offset, end - offset) };
        v.intent.doubt(regions);
        v.doubts += 1;
        self.intent_asked = true;
        self.add_range(volume, Kind::InDoubt { only_set }, None, offset, end);
    }

    /// Tells the operator. What was done of requests that are still under way may be lost. They are not answered yet, so the flush that tells
    /// of the loss does not tell of theirs: they have to fail themselves.
    fn tell_loss(&mut self, volume: VolumeId, offset: u64, end: u64, actions: &mut Actions) {
        actions.push(Action::Notice(Notice::BackendLost { volume }));
        self.requests.fail_half_written(volume, offset, end);
        for range in self.ranges.list.iter_mut().flatten() {
            let done = range.begin..range.offset;
            let counted = matches!(range.kind, Kind::Trim { .. } | Kind::Zero { .. });
            range.lost |= counted && range.volume == volume && done.start < end && offset < done.end;
        }
    }

    fn add_range(&mut self, volume: VolumeId, kind: Kind, tag: Option<u64>, offset: u64, end: u64) {
        let seq = self.ranges.next_seq;
        self.ranges.next_seq += 1;
        let blank = Range {
            seq,
            volume,
            kind,
            tag,
            begin: offset,
            offset,
            length: 0,
            end,
            lost: false,
            pages: (0, 0),
            stage: Stage::Waits,
            start_ns: 0,
        };
        let range = self.next_chunk(blank);
        match self.ranges.list.iter().position(Option::is_none) {
            Some(free) => self.ranges.list[free] = Some(range),
            None => self.ranges.list.push(Some(range)),
        }
        self.ranges.live += 1;
        self.ranges.check = true;
    }

    /// The range at the chunk that begins at its offset.
    fn next_chunk(&self, mut range: Range) -> Range {
        let page = u64::from(self.config.page_bytes);
        if range.kind == (Kind::InDoubt { only_set: true }) {
            range.offset = self.next_doubtful(&range);
        }
        let bytes_max =
            CHUNK_BYTES_MAX.min(CHUNK_PAGES_MAX * page).min(self.volume(range.volume).range_bytes_max.max(page));
        // A chunk ends at a page boundary, so that the next one begins there.
        let stop = ((range.offset + bytes_max) / page * page).max(range.offset + 1);
        range.length = stop.min(range.end) - range.offset;
        range.pages = ((range.offset / page) as u32, ((range.offset + range.length - 1) / page) as u32);
        range.stage = Stage::Waits;
        range
    }

    /// Starts every chunk that may start.
    pub(crate) fn advance_ranges(&mut self, now_ns: u64, actions: &mut Actions) {
        if !self.recovery.is_on() {
            for (volume, tag, offset, end) in core::mem::take(&mut self.ranges.evictions) {
                self.add_range(volume, Kind::Evict, tag, offset, end);
            }
        }
        if self.ranges.live == 0 || !core::mem::take(&mut self.ranges.check) {
            return;
        }
        let mut after = None;
        while let Some((id, range)) = self.ranges.next_waiting(after) {
            after = Some(range.seq);
            if !actions.has_room_for_part() {
                self.ranges.check = true;
                self.starved = true;
                return;
            }
            if range.stage == Stage::WaitsForIntent || !(self.ranges.is_behind_another(&range) || self.is_busy(&range))
            {
                self.start_chunk(now_ns, id, actions);
            }
        }
    }

    fn is_busy(&self, range: &Range) -> bool {
        let space = self.volume(range.volume).space;
        let inside = |key: PageKey| key.space == space && (range.pages.0..=range.pages.1).contains(&key.page);
        self.activities.iter().any(|entry| entry.has_parts() && inside(entry.key))
    }

    /// The chunk has its pages for itself.
    fn start_chunk(&mut self, now_ns: u64, id: usize, actions: &mut Actions) {
        let range = *self.ranges.get_mut(id);
        let Range { volume, offset, length, .. } = range;
        let v = volume.index();
        let regions = self.volumes[v].intent.regions(offset, length);
        if range.stage == Stage::Waits && self.is_counted(&range) {
            for region in regions.clone() {
                self.volumes[v].intent.begin(region);
            }
            self.intent_asked = true;
        }
        if matches!(range.kind, Kind::Evict | Kind::InDoubt { .. }) {
            return self.end_chunk(id, Ok(()), actions);
        }
        if !regions.clone().all(|region| self.may_write(v, region)) {
            self.ranges.get_mut(id).stage = Stage::WaitsForIntent;
            return;
        }
        let at = self.ranges.get_mut(id);
        (at.stage, at.start_ns) = (Stage::Working, now_ns);
        let op = self.ops.start(now_ns, Role::Range { range: id as u32 }, None);
        actions.push(match range.kind {
            Kind::Zero { fua, no_hole } => Action::ZeroBackend { op, volume, offset, length, fua, no_hole },
            Kind::Trim { fua } => Action::TrimBackend { op, volume, offset, length, fua },
            Kind::Evict | Kind::InDoubt { .. } => unreachable!("these need no back end"),
        });
    }

    pub(crate) fn range_done(&mut self, _now_ns: u64, id: u32, result: Result<(), IoError>, actions: &mut Actions) {
        let range = *self.ranges.get_mut(id as usize);
        let is_trim = matches!(range.kind, Kind::Trim { .. });
        let result = match result {
            Err(IoError::Unsupported) if is_trim => Ok(()),
            Err(IoError::Unsupported) => Err(ReplyError::Unsupported),
            Err(_) => Err(ReplyError::Io),
            Ok(()) => Ok(()),
        };
        self.volumes[range.volume.index()].write_seq += 1;
        self.end_chunk(id as usize, result, actions);
    }

    /// Drops what is cached of the chunk, and goes on with the next one or answers.
    fn end_chunk(&mut self, id: usize, result: Result<(), ReplyError>, actions: &mut Actions) {
        let range = *self.ranges.get_mut(id);
        self.drop_chunk(&range);
        if self.is_counted(&range) {
            let v = &mut self.volumes[range.volume.index()];
            for region in v.intent.regions(range.offset, range.length) {
                v.intent.end(region);
            }
        }
        let offset = range.offset + range.length;
        let abandoned = self.is_counted(&range) && range.tag.is_none();
        if result.is_ok() && offset < range.end && !abandoned {
            let next = self.next_chunk(Range { offset, ..range });
            *self.ranges.get_mut(id) = next;
        } else {
            self.ranges.list[id] = None;
            self.ranges.live -= 1;
            if matches!(range.kind, Kind::InDoubt { .. }) {
                self.volumes[range.volume.index()].doubts -= 1;
            }
            let result = if range.lost { result.and(Err(ReplyError::Io)) } else { result };
            if let Some(tag) = range.tag {
                let stats = &mut self.stats.volumes[range.volume.index()];
                stats.trims += u64::from(range.kind != Kind::Evict);
                stats.write_errors += u64::from(result.is_err());
                actions.push(Action::Reply { tag, result });
            }
        }
        self.ready.extend(self.ranges.blocked.drain(..).map(Ready::Start));
        self.ranges.check = true;
        // A chunk that needed no answer is followed by the next one without an event.
        self.starved = true;
    }

    /// Whether the range counts in its regions as a write does. One in doubt does not: its regions are held by `doubts`.
    fn is_counted(&self, range: &Range) -> bool {
        matches!(range.kind, Kind::Trim { .. } | Kind::Zero { .. })
    }

    /// Where the next region begins that may hold something lost; the range's last byte if there is none.
    fn next_doubtful(&self, range: &Range) -> u64 {
        let intent = &self.volume(range.volume).intent;
        let from = (range.offset / intent.region_bytes()) as u32;
        let start = intent.next_set(from).map(|region| u64::from(region) * intent.region_bytes());
        start.unwrap_or(range.end - 1).clamp(range.offset, range.end - 1)
    }

    /// Fails the trims that a back end has left unanswered until their deadline. Their pages stay locked until it answers.
    pub(crate) fn fail_late_ranges(&mut self, now_ns: u64, actions: &mut Actions) {
        let timeout_ns = self.config.limits.backend_timeout_ns;
        for range in self.ranges.list.iter_mut().flatten() {
            let late = now_ns.saturating_sub(range.start_ns) >= timeout_ns && range.stage == Stage::Working;
            if late
                && actions.has_room_for_part()
                && let Some(tag) = range.tag.take()
            {
                self.stats.volumes[range.volume.index()].write_errors += 1;
                actions.push(Action::Reply { tag, result: Err(ReplyError::Io) });
            }
        }
    }

    /// Fails the ranges that wait for the generation.
    pub(crate) fn fail_ranges_without_intent(&mut self, actions: &mut Actions) {
        for id in 0..self.ranges.list.len() {
            let waits = self.ranges.list[id].is_some_and(|range| range.stage == Stage::WaitsForIntent);
            if waits && actions.has_room_for_part() {
                self.end_chunk(id, Err(ReplyError::Io), actions);
            }
        }
    }

    fn drop_chunk(&mut self, range: &Range) {
        let page_bytes = u64::from(self.config.page_bytes);
        let space = self.volume(range.volume).space;
        for page in range.pages.0..=range.pages.1 {
            let start = u64::from(page) * page_bytes;
            let from = range.offset.max(start) - start;
            let to = (range.offset + range.length).min(start + page_bytes) - start;
            self.drop_cached(PageKey { space, page }, blocks_touched(from as u32, (to - from) as u32));
        }
    }
}
