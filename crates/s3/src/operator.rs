//! Operator: what the gateway is asked by who runs it: its counts, where objects are, why an answer was not kept, and to forget objects.
//!
//! How: what is known is read under the lock of [`Objects`](forebay_objects::Objects), a batch at a time; where its pages are the shard says. A range that is partly
//! here and partly not is asked for by halves, so a thousand pages in a row cost one question.
//!
//! What is forgotten is forgotten first: nothing leads to its pages then, and nothing new is kept of it. They are evicted after that, and once more when
//! the last body that was bringing some of them has ended. A body that was being sent goes on: what it lacks comes from the store.
//!
//! Limits: [`VERSIONS_MAX`] versions an answer, and [`PROBES_MAX`] questions to the shard; what is left out is said.

use crate::cached::Cached;
use crate::counts::{Counted, Counts};
use forebay_core::{ReplyError, Residency};
use forebay_objects::{Gauges, Known, Name, Note, Selection};
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Versions that an answer tells of.
pub const VERSIONS_MAX: usize = 1000;
/// Questions to the shard for an answer.
const PROBES_MAX: u32 = 4096;
/// Versions that are forgotten at once.
const BATCH: usize = 256;
/// Notes that an answer tells.
const NOTES_MAX: usize = 16;

/// See the module. Its calls wait for the shard: not for a thread that may not.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) cached: Option<Arc<Cached>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    pub(crate) runtime: Handle,
}

/// What was counted, and what there is now.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What was counted.
    pub counted: Counted,
    /// What is known of objects.
    pub gauges: Gauges,
    /// Connections open now.
    pub connections_open: u64,
    /// At most.
    pub connections_max: u64,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory.
    Memory,
    /// On the cache disk, and not in memory.
    Disk,
    /// In the store only.
    Absent,
}

/// Bytes of a version that are in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte, in the object.
    pub first: u64,
    /// How many.
    pub bytes: u64,
    /// Where.
    pub place: Place,
}

/// A version, and where it is.
#[derive(Clone, Debug)]
pub struct Located {
    /// Which.
    pub known: Known,
    /// Since the store was asked whether the name is this version, if it is.
    pub current_age_ns: Option<u64>,
    /// What is where, from the first byte on. Bytes that are in none of them were not asked for.
    pub extents: Vec<Extent>,
    /// Whether there is a copy of it, since it is small.
    pub has_copy: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The first of them.
    pub versions: Vec<Located>,
    /// Whether there are more.
    pub has_more: bool,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// How many versions.
    pub versions: u64,
    /// The sum of their lengths.
    pub bytes: u64,
}

impl Located {
    /// Bytes in a place.
    #[must_use]
    pub fn bytes_in(&self, place: Place) -> u64 {
        self.extents.iter().filter(|extent| extent.place == place).map(|extent| extent.bytes).sum()
    }
}

impl Operator {
    /// What was counted, and what there is now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let open = self.connections_max.saturating_sub(self.places.available_permits());
        Figures {
            counted: self.counts.look(),
            gauges: self.cached.as_ref().map(|cached| cached.objects().gauges()).unwrap_or_default(),
            connections_open: open as u64,
            connections_max: self.connections_max as u64,
        }
    }

    /// What is known of objects, and where it is.
    #[must_use]
    pub fn find(&self, selection: &Selection) -> Found {
        let Some(cached) = &self.cached else { return Found::default() };
        let mut known: Vec<Known> =
            cached.objects().catalogue().selected(selection, None).take(VERSIONS_MAX + 1).collect();
        let has_more = known.len() > VERSIONS_MAX;
        known.truncate(VERSIONS_MAX);
        let mut probes_left = PROBES_MAX;
        let now_ns = cached.now_ns();
        let versions = known.into_iter().map(|known| Located {
            current_age_ns: known.current_ns.map(|at_ns| now_ns.saturating_sub(at_ns)),
            extents: self.runtime.block_on(extents(cached, &known, &mut probes_left)),
            has_copy: cached.small.has(known.id),
            known,
        });
        Found { versions: versions.collect(), has_more }
    }

    /// Why the last answers for an object were not kept, the latest first, each with its age in nanoseconds.
    #[must_use]
    pub fn notes(&self, name: &Name) -> Vec<(u64, Note)> {
        let Some(cached) = &self.cached else { return Vec::new() };
        let now_ns = cached.now_ns();
        let notes = cached.notes();
        notes.of(name).take(NOTES_MAX).map(|note| (now_ns.saturating_sub(note.at_ns), note.clone())).collect()
    }

    /// Forgets objects: the next read of each is a miss.
    ///
    /// # Errors
    /// As the shard's answer; then pages may be left that nothing leads to. They age out.
    pub fn forget(&self, selection: &Selection) -> Result<Forgotten, ReplyError> {
        let Some(cached) = &self.cached else { return Ok(Forgotten::default()) };
        let (mut forgotten, mut after) = (Forgotten::default(), None);
        loop {
            let batch = cached.objects().forget(selection, after.as_ref(), BATCH);
            let Some(last) = batch.last() else { return Ok(forgotten) };
            after = Some(last.identity.clone());
            forgotten.versions += batch.len() as u64;
            forgotten.bytes += batch.iter().map(|known| known.identity.bytes).sum::<u64>();
            for known in &batch {
                cached.small.forget(known.id);
                self.evict_when_it_came(cached, known);
            }
            for range in merged(batch.iter().map(addresses).collect()) {
                self.runtime.block_on(cached.pool.evict(range))?;
            }
        }
    }

    /// Who was bringing bytes of it may have given some to the shard when it was forgotten.
    fn evict_when_it_came(&self, cached: &Arc<Cached>, known: &Known) {
        let (id, range) = (known.id, addresses(known));
        if cached.flights.coming(id, &(0..u64::MAX)) > 0 {
            let cached = Arc::clone(cached);
            self.runtime.spawn(async move {
                cached.flights.end(id).await;
                // Nothing leads to what is left.
                let _ = cached.pool.evict(range).await;
            });
        }
    }
}

/// Of a version, whole sectors.
fn addresses(known: &Known) -> Range<u64> {
    Cached::sectors(&(known.start..known.start + known.identity.bytes))
}

/// Ranges in order; those that follow each other without a gap are one. Empty ones are left out.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

async fn extents(cached: &Cached, known: &Known, probes_left: &mut u32) -> Vec<Extent> {
    let (start, end) = (known.start, known.start + known.identity.bytes);
    let (mut extents, mut at): (Vec<Extent>, u64) = (Vec::new(), start);
    while at < end {
        let chunk_end = cached.look_end(&(at..end));
        let mut open = Vec::from([(at, chunk_end)]);
        while let Some((from, until)) = open.pop() {
            let range = from..until;
            let Some(left) = probes_left.checked_sub(1) else { return extents };
            *probes_left = left;
            let Ok(found) = cached.pool.probe(Cached::sectors(&range)).await else { return extents };
            match only_place(&found) {
                Some(place) => {
                    extend(&mut extents, Extent { first: range.start - start, bytes: range.end - range.start, place })
                }
                None => {
                    let page_bytes = cached.page_bytes;
                    let pages = range.start / page_bytes..range.end.div_ceil(page_bytes);
                    let middle = (pages.start + pages.end).div_ceil(2) * page_bytes;
                    open.extend([(middle, range.end), (range.start, middle)]);
                }
            }
        }
        at = chunk_end;
    }
    extents
}

/// Where all of a range is; `None` if it is in several places.
fn only_place(found: &Residency) -> Option<Place> {
    match (found.memory_bytes, found.disk_bytes, found.absent_bytes) {
        (_, 0, 0) => Some(Place::Memory),
        (0, _, 0) => Some(Place::Disk),
        (0, 0, _) => Some(Place::Absent),
        _ => None,
    }
}

fn extend(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.place == next.place && last.first + last.bytes == next.first => last.bytes += next.bytes,
        _ => extents.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(merged(vec![8..12, 0..4, 4..8, 20..20, 30..31]), [0..12, 30..31]);
    }

    #[test]
    fn extents_of_one_place_are_one() {
        let mut extents = Vec::new();
        for (first, bytes, place) in [(0, 4, Place::Memory), (4, 4, Place::Memory), (8, 4, Place::Absent)] {
            extend(&mut extents, Extent { first, bytes, place });
        }
        let all = [(0, 8, Place::Memory), (8, 4, Place::Absent)];
        assert_eq!(extents, all.map(|(first, bytes, place)| Extent { first, bytes, place }));
    }
}
