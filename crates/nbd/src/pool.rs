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
//! A read that its client may not take whole is taken in parts that fit into the client's own part, so borrowing is
//! never needed to be served at all. A write is not: one that is no longer than the core takes is received whole before
//! anything of it is written, so that a client that vanishes in the middle has written nothing. Whoever waits to borrow
//! goes first when something is given back, so long writes do not starve among short requests.
//!
//! Invariant: no more is held than there is, so a request that was let in waits in the core for nothing that a client
//! holds.
//! Limit: when there is less than [`Pool::new`]'s `least` for each client, nothing is kept for those who have not come,
//! and hoarding is met by the grace period alone ([`crate::ConnectionLimits::grace_ns`]).
//! Rejected: equal hard shares (with 64 clients allowed and 1,024 requests, a lone connection got a depth of 16), and
//! one longest request for whoever holds nothing (20 clients that stall in one each leave nothing to the others).

use crate::config::Share;

/// A number of equal things, shared by clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    max: u32,
    /// Each client's own part.
    own: u32,
    /// What a client is let have if there is any, even if its own part is less.
    least: u32,
    held: u32,
    /// What clients do not hold of their own parts, those included that have not come.
    kept_free: u32,
    /// Something was given back since [`Pool::forget_given`].
    given: bool,
}

impl Pool {
    /// A pool for at most `clients_max` clients, who need `least` to be served at all and may ask for `most` at once.
    ///
    /// Panics when their own parts are more than there is, or leave so little that nobody ever gets `most`.
    pub(crate) fn new(share: Share, clients_max: u32, least: u32, most: u32) -> Self {
        let Share { all_max: max, own } = share;
        assert!(own * clients_max <= max, "{clients_max} parts of {own} are more than {max}");
        assert!(most <= max - own * (clients_max - 1), "of {max}, {clients_max} parts of {own} leave less than {most}");
        Self { max, own, least, held: 0, kept_free: own * clients_max, given: false }
    }

    /// What a client is served with, whatever others hold: its own part, or what it needs at least.
    pub(crate) fn entitled(&self) -> u32 {
        self.own.max(self.least)
    }

    /// Whether `more` is there for a client that holds `holds`, whoever else waits.
    pub(crate) fn entitles(&self, holds: u32, more: u32) -> bool {
        self.held + more <= self.max && holds + more <= self.entitled()
    }

    /// Whether a client that holds `holds` may borrow for `more`.
    pub(crate) fn lends(&self, holds: u32, more: u32) -> bool {
        let of_others = self.kept_free - self.own.saturating_sub(holds);
        self.held + more + of_others <= self.max
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

    /// Those who wait are to look again.
    pub(crate) fn note_given(&mut self) {
        self.given = true;
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

    fn can_take(pool: &Pool, holds: u32, more: u32) -> bool {
        pool.entitles(holds, more) || pool.lends(holds, more)
    }

    #[test]
    fn a_lone_client_gets_its_own_part_and_the_common_half() {
        let mut pool = Pool::new(Share::halved(1024, 64, 17), 64, 2, 17);
        let mut holds = 0;
        while can_take(&pool, holds, 1) {
            pool.take(&mut holds, 1);
        }
        assert_eq!(holds, 512 + 8);
    }

    #[test]
    fn the_longest_request_finds_room_however_small_the_pool() {
        for max in 17..100 {
            for clients_max in 1..70 {
                let pool = Pool::new(Share::halved(max, clients_max, 17), clients_max, 2, 17);
                assert!(can_take(&pool, 0, 17), "{max} for {clients_max} clients");
            }
        }
    }

    #[test]
    fn hoarders_leave_everybodys_own_part() {
        let mut pool = Pool::new(Share::halved(128, 8, 17), 8, 2, 17);
        let mut clients = [0; 8];
        for holds in &mut clients[..7] {
            while can_take(&pool, *holds, 3) {
                pool.take(holds, 3);
            }
        }
        let late = &mut clients[7];
        for _ in 0..8 {
            assert!(can_take(&pool, *late, 1));
            pool.take(late, 1);
        }
        assert!(pool.held() <= 128);
        let (mut of_first, back) = (clients[0], clients[0]);
        pool.give(&mut of_first, back);
        assert!(pool.was_given());
        assert!(can_take(&pool, clients[7], 17), "what was given back can be borrowed again");
    }

    #[test]
    fn without_own_parts_whoever_comes_first_is_served_first() {
        let mut pool = Pool::new(Share::halved(34, 64, 17), 64, 2, 17);
        let (mut hoarder, mut late) = (0, 0);
        while can_take(&pool, hoarder, 8) {
            pool.take(&mut hoarder, 8);
        }
        assert_eq!(hoarder, 32);
        assert!(can_take(&pool, late, 2) && !can_take(&pool, late, 3));
        pool.take(&mut late, 2);
        assert!(!can_take(&pool, 0, 1), "nothing is left");
        pool.give(&mut hoarder, 32);
        pool.give(&mut late, 2);
        assert_eq!(pool.held(), 0);
    }
}
