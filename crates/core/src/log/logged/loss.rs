//! What is lost: sectors whose newest bytes neither log nor back end has.
//!
//! How:
//! 1. A read that touches a lost sector fails, unless a record has the sector.
//! 2. A record over lost sectors makes them readable when it is in the log. When the back end has flushed it they are lost no
//!    more; the tail passes it only when the region map says so, too. So after a crash either the log has them or they are
//!    not lost.
//! 3. What is lost stays so, in the region map and over restarts, until it is overwritten or accepted
//!    ([`Logged::accept_loss`]).
//!
//! What goes to the back end past the log makes lost sectors readable at once, and is lost again if the back end does not flush
//! it. In the map they stay lost until then.
//!
//! Bound: [`LOST_MAX`] extents. Each record over lost sectors may add one, so a change waits for the log to be shorter
//! where that could be passed, and fails if that does not help.

use super::Logged;
use super::lost::LostExtents;
use alloc::vec::Vec;
use core::ops::Range;

/// Extents that may be lost.
pub const LOST_MAX: u64 = 1 << 17;
/// Of these, so many are for changes on their way past the log.
const PASSING_MAX: u64 = 1 << 12;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Loss {
    /// Reads of them fail.
    pub(super) lost: LostExtents,
    /// Lost, but for what the back end answered and has not flushed.
    passing: LostExtents,
    /// As above; a flush under way covers them.
    flushing: LostExtents,
    /// Raised when the region map is to learn of a change.
    pub(super) version: u64,
    /// Lost or accepted, and not told to the layer above.
    untold: Vec<Range<u64>>,
}

impl Loss {
    /// What the region map is to say.
    pub(super) fn all(&self) -> LostExtents {
        let mut all = self.lost.clone();
        for extent in self.passing.iter().chain(self.flushing.iter()) {
            all.insert(extent.sectors, extent.epoch);
        }
        all
    }

    fn len(&self) -> u64 {
        (self.lost.len() + self.passing.len() + self.flushing.len()) as u64
    }

    /// More is lost.
    pub(super) fn grew(&mut self) {
        self.lost.coarsen(LOST_MAX as usize / 2);
        self.version += 1;
        self.untold.extend(self.lost.iter().map(|extent| extent.sectors));
    }

    /// The back end answered a change past the log.
    pub(super) fn passed(&mut self, sectors: &Range<u64>) {
        for extent in self.lost.within(sectors) {
            self.passing.insert(extent.sectors, extent.epoch);
        }
        self.lost.remove(sectors.clone());
    }

    pub(super) fn flush_begins(&mut self) {
        assert!(self.flushing.is_empty(), "one flush at a time");
        core::mem::swap(&mut self.passing, &mut self.flushing);
    }

    pub(super) fn flushed(&mut self, is_well: bool) {
        let flushed = core::mem::take(&mut self.flushing);
        if is_well {
            self.version += u64::from(!flushed.is_empty());
            return;
        }
        // Also what was answered since it began.
        for extent in flushed.iter().chain(core::mem::take(&mut self.passing).iter()) {
            self.lost.insert(extent.sectors, extent.epoch);
        }
    }
}

/// Whether a change may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    Now,
    Later,
    Never,
}

impl Logged {
    /// What is lost.
    #[must_use]
    pub fn lost(&self) -> &LostExtents {
        &self.loss.lost
    }

    /// Lost sectors read as what the back end has. The region map says so when it is next written, which is at once.
    pub fn accept_loss(&mut self) {
        let loss = &mut self.loss;
        if loss.len() > 0 {
            loss.untold.extend(loss.lost.iter().map(|extent| extent.sectors));
            (loss.lost, loss.passing, loss.flushing) = Default::default();
            loss.version += 1;
        }
    }

    /// Sectors that were lost or accepted since this was last asked: what is cached of them is not what is read from now on.
    pub fn take_lost(&mut self) -> Vec<Range<u64>> {
        core::mem::take(&mut self.loss.untold)
    }

    /// Nothing that was found lost was told yet.
    pub(super) fn begin_lost(&mut self, lost: &LostExtents) {
        self.loss.lost = lost.clone();
        self.loss.untold = lost.iter().map(|extent| extent.sectors).collect();
    }

    /// Whether a change to these sectors may be appended without a risk of more lost extents than there may be.
    pub(super) fn may_rewrite(&self, sectors: &Range<u64>) -> Rewrite {
        let records = self.log.next() - self.log.first;
        if self.loss.len() + records < LOST_MAX - PASSING_MAX || !self.loss.lost.overlaps(sectors) {
            Rewrite::Now
        } else if records > 0 {
            Rewrite::Later
        } else {
            Rewrite::Never
        }
    }
}
