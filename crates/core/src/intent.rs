//! The write-intent map of a volume: which regions may differ between cache disk and back end if we stopped now.
//!
//! A region's bit is durable on the cache disk before the back end is written there. It is cleared by the sweep, once
//! the records of everything that changed are durable and the back end is flushed. After a crash the pages of regions
//! whose bit is set are dropped; the rest is warm.
//!
//! Invariant: `durable` is a subset of what is on disk whatever happens to a map that is being written. That is why a
//! bit leaves `durable` when the map without it is *ordered*, and enters it when the map with it has *arrived*.
//! At most one map of a volume is being written at a time.
//!
//! Whoever writes in sequence would wait at each region: all of its requests in flight, for a write of the map, every 2 MiB of a volume
//! of 8 GiB. So a run of [`RUN_REGIONS`] sets the bits of [`AHEAD_BYTES`] before it. A bit that nobody needed costs a region's pages after a crash
//! and is cleared by the next sweep. Limit: one run a volume at a time.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// What a run brings with it, and after how many regions one after the other it is one.
const AHEAD_BYTES: u64 = 16 << 20;
const RUN_REGIONS: u32 = 4;

/// Regions as bits.
type Words = Vec<u64>;

/// See the module.
#[derive(Debug)]
pub(crate) struct IntentMap {
    region_bytes: u64,
    /// What the map is to be.
    wanted: Words,
    /// What is certainly on disk.
    durable: Words,
    /// The map ordered last.
    ordered: Words,
    /// What is being written.
    writing: Option<Words>,
    /// Regions written since the sweep in progress began.
    since_capture: Words,
    /// Regions that the sweep in progress may clear.
    captured: Words,
    /// Writes in flight by region.
    in_flight: Vec<u32>,
    set: u32,
    /// Behind where a run is, to the end of what it has brought with it.
    next: Range<u32>,
    /// How many regions it has begun.
    run_regions: u32,
}

fn get(words: &[u64], region: u32) -> bool {
    words[region as usize / 64] >> (region % 64) & 1 == 1
}

fn set(words: &mut [u64], region: u32, on: bool) {
    let bit = 1 << (region % 64);
    let word = &mut words[region as usize / 64];
    *word = if on { *word | bit } else { *word & !bit };
}

impl IntentMap {
    /// A map for a volume; `at_start` are the regions in flight when the cache last stopped (or empty).
    pub(crate) fn new(volume_bytes: u64, region_bytes: u64, at_start: &[u64]) -> Self {
        let regions = volume_bytes.div_ceil(region_bytes) as usize;
        let words = regions.div_ceil(64);
        let mut wanted = vec![0; words];
        for (to, from) in wanted.iter_mut().zip(at_start) {
            *to = *from;
        }
        let set = wanted.iter().map(|w: &u64| w.count_ones()).sum();
        Self {
            region_bytes,
            durable: wanted.clone(),
            ordered: wanted.clone(),
            wanted,
            writing: None,
            since_capture: vec![0; words],
            captured: vec![0; words],
            in_flight: vec![0; regions],
            set,
            next: u32::MAX..u32::MAX,
            run_regions: 0,
        }
    }

    /// The regions of a range.
    pub(crate) fn regions(&self, offset: u64, length: u64) -> core::ops::RangeInclusive<u32> {
        (offset / self.region_bytes) as u32..=((offset + length - 1) / self.region_bytes) as u32
    }

    /// Regions with their bit set.
    pub(crate) fn set_count(&self) -> u32 {
        self.set
    }

    /// The map as it is to be on disk.
    pub(crate) fn words(&self) -> &[u64] {
        self.writing.as_deref().unwrap_or(&self.wanted)
    }

    /// A write to the region begins. Until it ends the region is not cleared. True if the map is to have more than before.
    pub(crate) fn begin(&mut self, region: u32) -> bool {
        self.in_flight[region as usize] += 1;
        set(&mut self.since_capture, region, true);
        let set_before = self.set;
        self.want(region);
        self.run_on(region, self.set > set_before);
        self.set > set_before
    }

    fn want(&mut self, region: u32) {
        if !get(&self.wanted, region) {
            set(&mut self.wanted, region, true);
            self.set += 1;
        }
    }

    /// Whether the write is part of a run, and what that wants to have.
    fn run_on(&mut self, region: u32, is_new: bool) {
        let is_ahead = self.next.contains(&region);
        if !is_new && !is_ahead {
            return;
        }
        let ahead = (AHEAD_BYTES / self.region_bytes) as u32;
        self.run_regions = if region == self.next.start || is_ahead { self.run_regions.saturating_add(1) } else { 1 };
        let goes_on = self.next.is_empty() && self.run_regions >= RUN_REGIONS;
        let mut end = if is_ahead { self.next.end } else { region + 1 };
        if goes_on || (is_ahead && end - region <= ahead / 2) {
            end = (region + 1 + ahead).min(self.in_flight.len() as u32);
            (region + 1..end).for_each(|region| self.want(region));
        }
        self.next = region + 1..end;
    }

    /// The write ended, well or not.
    pub(crate) fn end(&mut self, region: u32) {
        self.in_flight[region as usize] -= 1;
        set(&mut self.since_capture, region, true);
    }

    /// Whether the back end may be written in the region.
    pub(crate) fn is_durable(&self, region: u32) -> bool {
        get(&self.durable, region)
    }

    /// Whether the region was in flight at the last stop, or written since.
    pub(crate) fn is_set(&self, region: u32) -> bool {
        get(&self.wanted, region)
    }

    /// As [`Self::is_set`], of the region of that byte.
    pub(crate) fn is_set_at(&self, offset: u64) -> bool {
        self.is_set(*self.regions(offset, 1).start())
    }

    /// Whether the map has to be written and nothing is being written.
    pub(crate) fn wants_write(&self) -> bool {
        self.writing.is_none() && self.wanted != self.ordered
    }

    /// The map is ordered to disk.
    pub(crate) fn write_begins(&mut self) {
        assert!(self.writing.is_none(), "one map of a volume is written at a time");
        for (durable, wanted) in self.durable.iter_mut().zip(&self.wanted) {
            *durable &= wanted;
        }
        self.ordered.clone_from(&self.wanted);
        self.writing = Some(self.wanted.clone());
    }

    /// Whether what is on disk is not what it is to be.
    pub(crate) fn is_behind(&self) -> bool {
        self.writing.is_some() || self.wanted != self.ordered
    }

    /// The map arrived, or not.
    pub(crate) fn write_ended(&mut self, arrived: bool) {
        let written = self.writing.take().expect("a map was being written");
        if arrived {
            // A bit cleared since the order would be a lie; one set since is not yet durable.
            for ((durable, written), wanted) in self.durable.iter_mut().zip(&written).zip(&self.wanted) {
                *durable = written & wanted;
            }
        } else {
            self.ordered.clone_from(&self.durable);
        }
    }

    /// A sweep begins: regions at rest now may be cleared at its end.
    pub(crate) fn capture(&mut self) {
        self.since_capture.fill(0);
        self.captured.clone_from(&self.wanted);
        for (region, &writes) in (0u32..).zip(&self.in_flight) {
            if writes > 0 {
                set(&mut self.captured, region, false);
            }
        }
    }

    /// The back end may have lost writes in these regions: they count as written, and the sweep in progress clears nothing.
    pub(crate) fn doubt(&mut self, regions: core::ops::RangeInclusive<u32>) {
        self.captured.fill(0);
        for region in regions {
            self.want(region);
        }
    }

    /// The first region from `from` on whose bit is set.
    pub(crate) fn next_set(&self, from: u32) -> Option<u32> {
        (from..self.in_flight.len() as u32).find(|region| get(&self.wanted, *region))
    }

    /// Bytes of a region.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// Whether the sweep in progress has something to clear.
    pub(crate) fn has_captured(&self) -> bool {
        self.captured.iter().zip(&self.since_capture).any(|(c, s)| c & !s != 0)
    }

    /// The sweep is durable: clears what was captured and not written since. True if the map changed.
    pub(crate) fn clear_captured(&mut self) -> bool {
        let mut changed = false;
        for ((wanted, captured), since) in self.wanted.iter_mut().zip(&mut self.captured).zip(&self.since_capture) {
            let clear = *captured & !since;
            changed |= clear & *wanted != 0;
            self.set -= (clear & *wanted).count_ones();
            *wanted &= !clear;
            *captured = 0;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_bit_is_durable_only_after_its_map_arrived() {
        let mut map = IntentMap::new(8 * MIB, MIB, &[]);
        map.begin(3);
        assert!(map.wants_write() && !map.is_durable(3));
        map.write_begins();
        map.begin(4);
        assert!(!map.is_durable(3));
        map.write_ended(true);
        assert!(map.is_durable(3) && !map.is_durable(4) && map.wants_write());
    }

    #[test]
    fn a_run_brings_regions_with_it_and_random_writes_do_not() {
        let set = |map: &IntentMap| (0..4096).filter(|region| map.is_set(*region)).collect::<Vec<_>>();
        let mut map = IntentMap::new(8192 * MIB, 2 * MIB, &[]);
        for region in [7, 3, 20, 7, 3] {
            map.begin(region);
        }
        assert_eq!(set(&map), [3, 7, 20]);
        (98..101).for_each(|region| assert!(map.begin(region)));
        assert_eq!(set(&map)[3..], [98, 99, 100]);
        map.begin(101);
        assert_eq!(set(&map)[5..], (100..110).collect::<Vec<_>>());
        assert!(!(102..106).any(|region| map.begin(region)));
        assert_eq!(set(&map)[5..], (100..110).collect::<Vec<_>>());
        assert!(map.begin(106));
        assert_eq!(set(&map)[5..], (100..115).collect::<Vec<_>>());
        // Elsewhere, and where a region is large.
        map.begin(4095);
        assert!(map.is_set(4095) && map.set_count() == 21);
        let mut map = IntentMap::new(1 << 40, 256 * MIB, &[]);
        (8..14).for_each(|region| assert!(map.begin(region)));
        assert_eq!(set(&map), (8..14).collect::<Vec<_>>());
    }

    #[test]
    fn a_region_set_again_while_its_clearing_is_written_waits_for_the_next_map() {
        let mut map = IntentMap::new(8 * MIB, MIB, &[]);
        map.begin(3);
        map.write_begins();
        map.write_ended(true);
        map.end(3);
        map.capture();
        assert!(map.clear_captured());
        map.write_begins();
        map.begin(3);
        assert!(!map.is_durable(3), "the map on its way does not have it");
        map.write_ended(true);
        assert!(!map.is_durable(3) && map.wants_write());
    }

    #[test]
    fn a_region_written_since_the_capture_is_not_cleared() {
        let mut map = IntentMap::new(8 * MIB, MIB, &[0b110]);
        map.capture();
        map.begin(1);
        map.end(1);
        assert!(map.clear_captured());
        assert!(map.is_set(1) && !map.is_set(2));
    }

    #[test]
    fn a_map_that_did_not_arrive_leaves_only_the_old_bits_durable() {
        let mut map = IntentMap::new(8 * MIB, MIB, &[]);
        map.begin(0);
        map.write_begins();
        map.write_ended(false);
        assert!(!map.is_durable(0) && map.wants_write());
    }
}
