//! The region map: which 1 MiB regions of the volume may have bytes that only the log has, kept beside the configuration.
//!
//! Why: when the cache disk is lost and the process with it, nobody else knows what the back end lacks. Old data would be
//! served in silence, or the whole volume would have to be given up.
//!
//! How:
//! 1. A change waits until the map has its regions durably; then it is appended. Regions that all waiting changes need go
//!    into one write of the map.
//! 2. A region that follows one in use brings [`AHEAD_REGIONS`] more with it, when half of those are used up. So whoever
//!    writes in sequence waits twice, at the beginning, and the map is written once in 17 MiB; a random writer waits once a
//!    region, together with whoever else waits.
//!    A large write that may pass the log does not wait: it passes, and the map is to have its regions for those behind it.
//! 3. A region leaves when it has had no record in the log and no change for a whole [`CLEAR_NS`]. The map is then written,
//!    at most once in that time, and no more when it is empty.
//!
//! Cost: a sequential writer of 64 MiB has the map written four times; a write is a bit for each MiB of the volume, 128 KiB for 1 TiB, .4 ms
//! where a flush costs nothing. While the file cannot be written, changes to new regions go past the log ([`super::bypass`]).
//!
//! Beside the regions the image has what else must outlive the log: sectors that are lost ([`super::lost`]), the least life of
//! a log that is to be believed, and the tail, if the log's own disk may not know it.
//!
//! Invariant: each record's regions are in every image that the file may have from before the record is appended until the
//! back end has flushed it.
//!
//! Memory: a bit for each MiB, four times: 512 KiB for a volume of 1 TiB. The image on its way to the file once more.
//!
//! Rejected: a count of records by region (what is in use is found by one pass over the records, once in 10 s); sorted runs
//! instead of a bit each (a random writer has as many runs as regions); looking ahead of whatever is written (a random writer
//! would have 32 regions listed as lost for one that is).

use super::super::Tail;
use super::failing::Health;
use super::lost::LostExtents;
use super::{Logged, Order, Role};
use crate::IoError;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Sectors of a region: 1 MiB. (Small volumes have many in tests.)
pub const REGION_SECTORS: u64 = if cfg!(test) { 8 } else { 2048 };
/// Regions that are added ahead of a run.
const AHEAD_REGIONS: u64 = 32;
/// A region that nobody needs leaves after this time, and before twice of it.
const CLEAR_NS: u64 = if cfg!(test) { 200 } else { 10_000_000_000 };
/// Waiting changes whose regions are added at once.
const WAITING_MAX: usize = 4096;

/// A set of a volume's regions, a bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSet {
    words: Vec<u64>,
    regions: u64,
}

impl RegionSet {
    /// None of the regions of a volume of so many sectors.
    #[must_use]
    pub fn new(sectors: u64) -> Self {
        let regions = sectors.div_ceil(REGION_SECTORS);
        Self { words: vec![0; regions.div_ceil(64) as usize], regions }
    }

    /// From its words; what is behind the volume's end is left out, and what is missing is not in it.
    #[must_use]
    pub fn from_words(sectors: u64, words: &[u64]) -> Self {
        let mut set = Self::new(sectors);
        let both = set.words.len().min(words.len());
        set.words[..both].copy_from_slice(&words[..both]);
        if let Some(last) = set.words.last_mut().filter(|_| !set.regions.is_multiple_of(64)) {
            *last &= (1 << (set.regions % 64)) - 1;
        }
        set
    }

    fn empty_like(other: &Self) -> Self {
        Self { words: vec![0; other.words.len()], regions: other.regions }
    }

    /// A bit each, the lowest first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Regions that the volume has.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.regions
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn contains(&self, region: u64) -> bool {
        region < self.regions && self.words[(region / 64) as usize] >> (region % 64) & 1 == 1
    }

    /// Whether all are.
    #[must_use]
    pub fn contains_all(&self, regions: Range<u64>) -> bool {
        regions.into_iter().all(|region| self.contains(region))
    }

    /// How many are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Adds one; whether it is new. One behind the volume's end is ignored.
    pub fn insert(&mut self, region: u64) -> bool {
        let is_new = region < self.regions && !self.contains(region);
        if is_new {
            self.words[(region / 64) as usize] |= 1 << (region % 64);
        }
        is_new
    }

    /// Adds all of them.
    pub fn insert_all(&mut self, regions: Range<u64>) {
        for region in regions.start..regions.end.min(self.regions) {
            self.insert(region);
        }
    }

    /// Takes all of another set of the same volume.
    pub fn unite(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "sets of one volume");
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours |= theirs);
    }

    /// Keeps what another set of the same volume has, too.
    pub fn intersect(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "sets of one volume");
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours &= theirs);
    }

    /// Those in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = (0u64..).zip(&self.words).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
    }
}

/// The regions that sectors lie in.
#[must_use]
pub fn regions_of(sectors: &Range<u64>) -> Range<u64> {
    sectors.start / REGION_SECTORS..sectors.end.div_ceil(REGION_SECTORS)
}

/// What is kept of a log beside the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionImage {
    /// A log whose disk knows only an earlier life is not this one, or was given up.
    pub life: u64,
    /// Where the log begins, if its disk may not know. The one with the later first record counts.
    pub tail: Option<Tail>,
    /// Regions that may have bytes that only the log has.
    pub dirty: RegionSet,
    /// What is lost and not accepted.
    pub lost: LostExtents,
}

impl RegionImage {
    /// Of a log that has nothing, in that life, for a volume of so many sectors.
    #[must_use]
    pub fn new(life: u64, sectors: u64) -> Self {
        Self { life, tail: None, dirty: RegionSet::new(sectors), lost: LostExtents::default() }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Regions {
    /// What the file has, whatever became of the last write.
    known: RegionImage,
    /// On its way there.
    writing: Option<Box<RegionImage>>,
    /// Used since the last clearing.
    used: RegionSet,
    /// Used in the time before.
    used_before: RegionSet,
    /// The last write failed.
    fails: bool,
    /// Wanted, though nobody waits: what follows a run, or what a change needed that passed the log instead.
    ahead: Option<Range<u64>>,
    clear_ns: u64,
    retry_ns: u64,
    /// The version of what is lost that the file has, and that is on its way there.
    lost: [u64; 2],
    /// Nothing more is expected: when all has followed, it is cleared at once.
    rests: bool,
}

impl Regions {
    /// The file has this image.
    pub(super) fn new(known: RegionImage) -> Self {
        let none = || RegionSet::empty_like(&known.dirty);
        let (used, used_before) = (none(), none());
        Self {
            known,
            writing: None,
            used,
            used_before,
            fails: false,
            ahead: None,
            clear_ns: 0,
            retry_ns: 0,
            lost: [0; 2],
            rests: false,
        }
    }

    /// Whether the file has these regions for sure.
    fn has(&self, regions: Range<u64>) -> bool {
        let is_coming = self.writing.as_ref().is_none_or(|image| image.dirty.contains_all(regions.clone()));
        is_coming && self.known.dirty.contains_all(regions)
    }

    /// Whether a change to these sectors may be appended now. If it may, it will be.
    pub(super) fn admit(&mut self, sectors: &Range<u64>) -> bool {
        let regions = regions_of(sectors);
        if !self.has(regions.clone()) {
            return false;
        }
        let last = regions.end - 1;
        let is_run = self.follows(regions.start) && !self.used.contains(last);
        self.used.insert_all(regions);
        if is_run && !self.has(last + 1..self.ahead_of(last, AHEAD_REGIONS / 2)) {
            self.ahead = Some(last..self.ahead_of(last, AHEAD_REGIONS));
        }
        true
    }

    fn follows(&self, region: u64) -> bool {
        let is_used = |before| self.used.contains(before) || self.used_before.contains(before);
        region.checked_sub(1).is_some_and(is_used)
    }

    /// A change to these passed the log for want of them. Of a run those that follow are wanted, too; what was before it
    /// may have passed as well, and is then in no set but the map's, or was wanted until now and is so no more.
    fn lacked(&mut self, regions: Range<u64>) {
        let is_asked = |before| {
            self.known.dirty.contains(before) || self.writing.as_ref().is_some_and(|it| it.dirty.contains(before))
        };
        let before = regions.start.checked_sub(1);
        let goes_on = |ahead: &Range<u64>| before.is_some_and(|it| ahead.contains(&it)) && regions.end > ahead.end;
        let goes_on = self.ahead.as_ref().is_some_and(goes_on);
        let is_run = goes_on || before.is_some_and(is_asked);
        let end = if is_run { self.ahead_of(regions.end - 1, AHEAD_REGIONS) } else { regions.end };
        if goes_on || self.ahead.is_none() {
            self.ahead = Some(regions.start..end);
        }
    }

    fn ahead_of(&self, region: u64, count: u64) -> u64 {
        (region + 1 + count).min(self.known.dirty.regions)
    }

    /// The regions to come, `in_use` those of records, if it is time to find out.
    fn next_dirty(&self, waiting: &[Range<u64>], in_use: Option<RegionSet>) -> RegionSet {
        let mut dirty = match in_use {
            None => self.known.dirty.clone(),
            Some(mut in_use) => {
                in_use.unite(&self.used);
                in_use.unite(&self.used_before);
                in_use
            }
        };
        for sectors in waiting {
            let regions = regions_of(sectors);
            let end =
                if self.follows(regions.start) { self.ahead_of(regions.end - 1, AHEAD_REGIONS) } else { regions.end };
            dirty.insert_all(regions.start..end);
        }
        if let Some(regions) = &self.ahead {
            dirty.insert_all(regions.clone());
        }
        dirty
    }
}

impl Logged {
    /// Keeps a region map from now on, whose file has this image. To be called before anything is asked.
    pub fn keep_regions(&mut self, known: RegionImage) {
        self.begin_lost(&known.lost);
        self.regions = Some(Regions { lost: [self.loss.version; 2], ..Regions::new(known) });
    }

    /// Whether the file says what is lost. The tail does not pass what it does not say.
    pub(super) fn knows_lost(&self) -> bool {
        self.regions.as_ref().is_none_or(|it| it.lost[0] == self.loss.version)
    }

    /// Whether time must be told ([`Logged::tick`]) though all has followed: the file has regions that nobody may need, or does not
    /// say what it should, or something is asked of the disk.
    #[must_use]
    pub fn needs_ticks(&self) -> bool {
        let is_right = self.knows_lost() && self.failing.health.is_settled();
        let has_regions = self.regions.as_ref().is_some_and(|it| !is_right || !it.known.dirty.is_empty());
        has_regions || self.failing.waits_for_disk()
    }

    /// Whether a change waits for a file that cannot be written.
    pub(super) fn lacks_map(&self, sectors: &Range<u64>) -> bool {
        self.regions.as_ref().is_some_and(|it| it.fails && !it.has(regions_of(sectors)))
    }

    /// Whether the file says what is lost, or cannot be written.
    pub(super) fn has_told_lost(&self) -> bool {
        self.knows_lost() || self.regions.as_ref().is_some_and(|it| it.fails)
    }

    /// Nothing more is expected: the region map need not be kept ready for more.
    pub fn rest(&mut self) {
        if let Some(it) = &mut self.regions {
            it.rests = true;
        }
    }

    /// Whether everything is on the back end, for good, and the region map says so.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_written = self.regions.as_ref().is_none_or(|it| it.writing.is_none() && it.known.dirty.is_empty());
        self.has_followed() && is_written
    }

    /// Whether a change to these sectors need not wait for the region map.
    pub(super) fn admits(&mut self, sectors: &Range<u64>) -> bool {
        self.regions.as_mut().is_none_or(|it| it.admit(sectors))
    }

    /// As [`Self::admits`]. If not, the map is to have them soon.
    pub(super) fn admits_at_once(&mut self, sectors: &Range<u64>) -> bool {
        let admits = self.admits(sectors);
        if !admits && let Some(it) = &mut self.regions {
            it.lacked(regions_of(sectors));
        }
        admits
    }

    /// The map is written when a change waits for it, a run comes near the end of what was added ahead, or it is time to clear it.
    pub(super) fn order_regions(&mut self, now_ns: u64) -> Option<Order> {
        let it = self.regions.as_ref()?;
        if it.writing.is_some() || now_ns < it.retry_ns {
            return None;
        }
        let gives_up = self.failing.health == Health::GivingUp;
        let tail = self.tail_for_regions();
        let waits = self.waiting.front().is_some_and(|first| !it.has(regions_of(&first.request.sectors)));
        let waits = waits && !self.broken;
        let rests = it.rests && self.waiting.is_empty() && self.has_followed();
        let clears = (rests || now_ns >= it.clear_ns) && !it.known.dirty.is_empty();
        let for_failed = gives_up || tail.is_some();
        if !waits && !clears && it.ahead.is_none() && self.knows_lost() && !for_failed {
            return None;
        }
        let waiting: Vec<Range<u64>> =
            self.waiting.iter().take(WAITING_MAX).map(|it| it.request.sectors.clone()).collect();
        let none = RegionSet::empty_like(&it.known.dirty);
        let dirty = match rests {
            true => none,
            false => it.next_dirty(&waiting, clears.then(|| self.regions_in_use(none))),
        };
        let (lost, version) = (self.loss.all(), self.loss.version);
        let it = self.regions.as_mut()?;
        it.ahead = None;
        if clears {
            it.clear_ns = now_ns + CLEAR_NS;
            it.used_before = core::mem::replace(&mut it.used, RegionSet::empty_like(&dirty));
            if rests {
                it.used_before = RegionSet::empty_like(&dirty);
            }
        }
        let image = match gives_up {
            true => RegionImage { life: it.known.life + 1, tail: None, dirty: RegionSet::empty_like(&dirty), lost },
            false => RegionImage { life: it.known.life, tail: tail.or(it.known.tail), dirty, lost },
        };
        if image == it.known {
            it.lost[0] = version;
            return None;
        }
        it.lost[1] = version;
        it.writing = Some(Box::new(image.clone()));
        let id = self.start(Role::Regions);
        Some(Order::WriteRegions { id, image: Box::new(image) })
    }

    /// Those of all records in the log.
    fn regions_in_use(&self, none: RegionSet) -> RegionSet {
        let mut in_use = none;
        for id in self.log.first..self.log.next() {
            in_use.insert_all(regions_of(&self.log.record(id).range()));
        }
        in_use
    }

    pub(super) fn regions_written(&mut self, now_ns: u64, result: Result<(), IoError>) {
        let it = self.regions.as_mut().expect("a region map is kept");
        let image = it.writing.take().expect("it is written once");
        it.fails = result.is_err();
        if result.is_err() {
            // The file has either.
            it.known.dirty.intersect(&image.dirty);
            it.retry_ns = now_ns + self.config.retry_ns;
        } else {
            let is_later = image.life > it.known.life;
            let tail = image.tail.filter(|tail| it.known.tail != Some(*tail));
            (it.known, it.lost[0]) = (*image, it.lost[1]);
            self.regions_know(is_later, tail);
        }
        self.settle_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_passes_for_want_of_regions_is_not_left_behind_by_the_map() {
        let mut regions = Regions::new(RegionImage::new(1, 1000 * REGION_SECTORS));
        (5..20).for_each(|region| regions.lacked(region..region + 1));
        let ahead = regions.ahead.clone().unwrap();
        assert!(ahead.start >= 6 && ahead.contains(&20), "{ahead:?}");
        // It goes on elsewhere meanwhile; what was wanted first is.
        regions.lacked(500..501);
        assert_eq!(regions.ahead, Some(ahead));
        regions.ahead = None;
        for alone in [500, 300, 700, 302] {
            regions.lacked(alone..alone + 1);
        }
        assert_eq!(regions.ahead, Some(500..501), "no run, nothing ahead");
    }
}
