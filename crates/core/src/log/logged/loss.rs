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
//! Bound: [`LOST_MAX`] extents. Each record over lost sectors may add one, so a change waits for the log to be shorter
//! where that could be passed, and fails if that does not help.

use super::lost::LostExtents;
use super::{Logged, RecordId};
use core::ops::Range;

/// Extents that may be lost.
pub const LOST_MAX: u64 = 1 << 17;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Loss {
    pub(super) lost: LostExtents,
    /// Raised when that changes.
    pub(super) version: u64,
}

impl Loss {
    fn remove(&mut self, sectors: Range<u64>) {
        if self.lost.overlaps(&sectors) {
            self.lost.remove(sectors);
            self.version += 1;
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
        if !self.loss.lost.is_empty() {
            self.loss.lost = LostExtents::default();
            self.loss.version += 1;
        }
    }

    /// Whether a change to these sectors may be appended without a risk of more lost extents than there may be.
    pub(super) fn may_rewrite(&self, sectors: &Range<u64>) -> Rewrite {
        let records = self.log.next() - self.log.first;
        let extents = self.loss.lost.len() as u64;
        if extents + records < LOST_MAX || !self.loss.lost.overlaps(sectors) {
            Rewrite::Now
        } else if records > 0 {
            Rewrite::Later
        } else {
            Rewrite::Never
        }
    }

    /// The back end has flushed the records before `end`.
    pub(super) fn rewritten(&mut self, end: RecordId) {
        if self.loss.lost.is_empty() {
            return;
        }
        for id in self.log.first..end {
            self.loss.remove(self.log.record(id).range());
        }
    }
}
