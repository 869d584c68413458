//! Admission: whether a missed page is worth a write to the cache disk.
//!
//! A page that is never used again costs a write to the cache disk and the place of one that is. Of the
//! objects in a window a tenth of a trace long, 72 % (median) are used once (Yang et al., SOSP 2023), so
//! the question is worth asking. A policy is given an [`Access`] and answers with a [`Decision`]; the
//! owner asks once for each page that missed and is not cached.
//!
//! | policy | admits |
//! |---|---|
//! | [`Always`] | every page |
//! | [`SecondAccess`] | a page that was missed before, not long ago |
//! | [`SequentialCutoff`] | a page that is not part of a long sequential stream |
//!
//! # Composition
//! A pair admits what both admit; the second is asked only about what the first admits. `None` admits
//! all. So `(Option<SequentialCutoff>, Option<SecondAccess>)` is every combination, and with the cut-off
//! first a long stream does not flush the ghost of the second.
//!
//! # Invariants
//! A decision takes constant time and allocates nothing.
//!
//! # Rejected
//! Admission by chance: two runs over one trace would differ for no gain over a ghost. Bloom filters: see
//! [`Ghost`](crate::evict::Ghost).

pub mod always;
pub mod second_access;
pub mod sequential_cutoff;

pub use always::Always;
pub use second_access::SecondAccess;
pub use sequential_cutoff::SequentialCutoff;

/// The use of a page that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page's well-mixed key hash.
    pub key_hash: u64,
    /// Bytes asked of the page.
    pub bytes: u64,
    /// Bytes of the sequential run that the request continues, itself included
    /// ([`Stream::run_bytes`](crate::prefetch::Stream::run_bytes)).
    pub run_bytes: u64,
}

/// What is to become of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is worth its write.
    Admit,
    /// It is not, and why.
    Refuse(Refusal),
}

impl Decision {
    /// Whether the page is admitted.
    pub fn admits(self) -> bool {
        self == Self::Admit
    }
}

/// Why a page is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has not been missed before, as far as is remembered.
    FirstAccess,
    /// It belongs to a sequential run longer than the cut-off.
    SequentialRun,
}

/// An admission policy.
pub trait Admit {
    /// Decides about one access, and remembers it if the policy does.
    fn decide(&mut self, access: &Access) -> Decision;
}

/// `None` admits all.
impl<A: Admit> Admit for Option<A> {
    fn decide(&mut self, access: &Access) -> Decision {
        self.as_mut().map_or(Decision::Admit, |policy| policy.decide(access))
    }
}

/// Admits what both admit; the second does not see what the first refuses.
impl<A: Admit, B: Admit> Admit for (A, B) {
    fn decide(&mut self, access: &Access) -> Decision {
        match self.0.decide(access) {
            Decision::Admit => self.1.decide(access),
            refused => refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix64;

    fn access(key: u64, run_bytes: u64) -> Access {
        Access { key_hash: mix64(key), bytes: 4_096, run_bytes }
    }

    #[test]
    fn a_pair_admits_what_both_admit_and_says_who_refused() {
        let mut both = (SequentialCutoff::new(1_000), SecondAccess::new(8));
        let first = Decision::Refuse(Refusal::FirstAccess);
        let sequential = Decision::Refuse(Refusal::SequentialRun);
        assert_eq!(both.decide(&access(1, 10)), first);
        assert_eq!(both.decide(&access(1, 2_000)), sequential);
        assert_eq!(both.decide(&access(1, 10)), Decision::Admit);
    }

    #[test]
    fn a_long_stream_does_not_flush_the_ghost_behind_the_cutoff() {
        let mut both = (SequentialCutoff::new(1_000), SecondAccess::new(8));
        assert!(!both.decide(&access(1, 10)).admits());
        for key in 100..200 {
            assert!(!both.decide(&access(key, 2_000)).admits());
        }
        assert!(both.decide(&access(1, 10)).admits());
    }

    #[test]
    fn none_admits_all() {
        let mut none: (Option<SequentialCutoff>, Option<SecondAccess>) = (None, None);
        assert!(none.decide(&access(1, u64::MAX)).admits());
    }
}
