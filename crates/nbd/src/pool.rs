//! What clients share: the frames of a shard, and the requests that its core takes.
//!
//! Half of a pool is divided into equal parts, one for each client that may come; a client's *own* part is always
//! there for it. The other half is common: whoever can use it borrows from it. So one busy connection gets the depth
//! that it asks for, and clients that hoard what they borrowed keep nobody from what is their own.
//!
//! ```text
//! | own | own | own | ... one for each of clients_max | common                          |
//! ```
//!
//! A client that holds nothing may take one request whole even if that is more than its own part: a share smaller
//! than the longest request must not mean that it is never served.
//!
//! Invariant: no more is held than there is, so a request that was let in never waits for frames in the core.
//! Limit: when there is less than two for each client, there are no own parts, and hoarding is met by the grace period
//! alone ([`crate::ConnectionLimits::grace_ns`]).
//! Rejected: equal hard shares. With 64 clients allowed and 1,024 requests, a lone connection got a depth of 16.

use crate::config::Share;

/// A number of equal things, shared by clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    max: u32,
    own: u32,
    held: u32,
    /// What clients do not hold of their own parts, those included that have not come.
    kept_free: u32,
    /// Something was given back since [`Pool::forget_given`].
    given: bool,
}

impl Pool {
    /// A pool for at most `clients_max` clients.
    ///
    /// Panics when their own parts are more than there is.
    pub(crate) fn new(share: Share, clients_max: u32) -> Self {
        let Share { all_max: max, own } = share;
        assert!(own * clients_max <= max, "{clients_max} parts of {own} are more than {max}");
        Self { max, own, held: 0, kept_free: own * clients_max, given: false }
    }

    /// Whether a client that holds `holds` may take `more`.
    pub(crate) fn can_take(&self, holds: u32, more: u32) -> bool {
        let held = self.held + more;
        let of_others = self.kept_free - self.own.saturating_sub(holds);
        held <= self.max && (holds == 0 || holds + more <= self.own || held + of_others <= self.max)
    }

    /// A client that holds `holds` takes `more`.
    pub(crate) fn take(&mut self, holds: &mut u32, more: u32) {
        self.kept_free -= self.own.saturating_sub(*holds);
        *holds += more;
        self.held += more;
        self.kept_free += self.own.saturating_sub(*holds);
    }

    /// A client that holds `holds` gives `back`.
    pub(crate) fn give(&mut self, holds: &mut u32, back: u32) {
        self.kept_free -= self.own.saturating_sub(*holds);
        *holds -= back;
        self.held -= back;
        self.kept_free += self.own.saturating_sub(*holds);
        self.given |= back > 0;
    }

    /// Whether a client that holds `holds` has borrowed.
    pub(crate) fn has_borrowed(&self, holds: u32) -> bool {
        holds > self.own
    }

    /// Whether anything was given back since [`Self::forget_given`].
    pub(crate) fn was_given(&self) -> bool {
        self.given
    }

    pub(crate) fn forget_given(&mut self) {
        self.given = false;
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u32 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_client_gets_its_own_part_and_the_common_half() {
        let mut pool = Pool::new(Share::halved(1024, 64), 64);
        let mut holds = 0;
        while pool.can_take(holds, 1) {
            pool.take(&mut holds, 1);
        }
        assert_eq!(holds, 512 + 8);
    }

    #[test]
    fn hoarders_leave_everybodys_own_part() {
        let mut pool = Pool::new(Share::halved(128, 8), 8);
        let mut clients = [0; 8];
        for holds in &mut clients[..7] {
            while pool.can_take(*holds, 3) {
                pool.take(holds, 3);
            }
        }
        let late = &mut clients[7];
        for _ in 0..8 {
            assert!(pool.can_take(*late, 1));
            pool.take(late, 1);
        }
        assert!(pool.held() <= 128);
        let (mut of_first, back) = (clients[0], clients[0]);
        pool.give(&mut of_first, back);
        assert!(pool.was_given());
        assert!(pool.can_take(clients[7], 17), "what was given back can be borrowed again");
    }

    #[test]
    fn a_client_that_holds_nothing_may_take_more_than_its_part() {
        let mut pool = Pool::new(Share::halved(34, 64), 64);
        let (mut one, mut other) = (0, 0);
        assert!(pool.can_take(one, 17));
        pool.take(&mut one, 17);
        assert!(pool.can_take(other, 17));
        pool.take(&mut other, 17);
        assert!(!pool.can_take(0, 1), "nothing is left");
        pool.give(&mut one, 17);
        pool.give(&mut other, 17);
        assert_eq!(pool.held(), 0);
    }
}
