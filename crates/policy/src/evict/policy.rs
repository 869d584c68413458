//! Any eviction policy, chosen by name.
//!
//! A name in a configuration file becomes a [`PolicyKind`], and that a [`Policy`]: one enum, so that every
//! call is a branch and not a call through a table. The names are those of configuration and trace replay:
//! `lru lfu random fifo s3fifo`.

use super::{Evict, Fifo, Lfu, Links, Lru, Occupancy, Random, Removal, S3Fifo};
use alloc::string::String;
use core::{fmt, str::FromStr};

/// The policies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Least recently used.
    Lru,
    /// Least frequently used.
    Lfu,
    /// Uniformly random.
    Random,
    /// First in, first out.
    Fifo,
    /// Three static FIFO queues.
    S3Fifo,
}

impl PolicyKind {
    /// Every kind with its name.
    pub const NAMES: [(Self, &'static str); 5] = [
        (Self::Lru, "lru"),
        (Self::Lfu, "lfu"),
        (Self::Random, "random"),
        (Self::Fifo, "fifo"),
        (Self::S3Fifo, "s3fifo"),
    ];

    /// The name in configuration, metrics and tables.
    pub fn name(self) -> &'static str {
        let (_, name) = Self::NAMES[self as usize];
        name
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|&(kind, _)| kind).ok_or_else(|| UnknownPolicy { name: String::from(name) })
    }
}

/// A name that is no eviction policy; its message lists those that are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The name as it was given.
    pub name: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an eviction policy; choose one of", self.name)?;
        PolicyKind::NAMES.iter().try_for_each(|(_, name)| write!(f, " {name}"))
    }
}

impl core::error::Error for UnknownPolicy {}

/// An instance of any kind.
#[derive(Debug)]
pub enum Policy {
    /// Least recently used.
    Lru(Lru),
    /// Least frequently used.
    Lfu(Lfu),
    /// Uniformly random.
    Random(Random),
    /// First in, first out.
    Fifo(Fifo),
    /// Three static FIFO queues.
    S3Fifo(S3Fifo),
}

impl Policy {
    /// An empty instance: `capacity` in the owner's unit of weight, never more than `entries_max`
    /// entries, `seed` for the kinds that draw.
    pub fn new(kind: PolicyKind, capacity: u64, entries_max: u32, seed: u64) -> Self {
        match kind {
            PolicyKind::Lru => Self::Lru(Lru::new(capacity)),
            PolicyKind::Lfu => Self::Lfu(Lfu::new(capacity)),
            PolicyKind::Random => Self::Random(Random::new(capacity, entries_max, seed)),
            PolicyKind::Fifo => Self::Fifo(Fifo::new(capacity)),
            PolicyKind::S3Fifo => Self::S3Fifo(S3Fifo::new(capacity, entries_max)),
        }
    }
}

macro_rules! each {
    ($policy:expr, $one:ident => $call:expr) => {
        match $policy {
            Policy::Lru($one) => $call,
            Policy::Lfu($one) => $call,
            Policy::Random($one) => $call,
            Policy::Fifo($one) => $call,
            Policy::S3Fifo($one) => $call,
        }
    };
}

impl Evict for Policy {
    #[inline]
    fn inserted(&mut self, links: &mut Links, slot: u32, key_hash: u64, weight: u32) {
        each!(self, one => one.inserted(links, slot, key_hash, weight));
    }

    #[inline]
    fn hit(&mut self, links: &mut Links, slot: u32) {
        each!(self, one => one.hit(links, slot));
    }

    #[inline]
    fn victim(&mut self, links: &mut Links, busy: impl FnMut(u32) -> bool) -> Option<u32> {
        each!(self, one => one.victim(links, busy))
    }

    #[inline]
    fn removed(&mut self, links: &mut Links, slot: u32, why: Removal) {
        each!(self, one => one.removed(links, slot, why));
    }

    fn set_capacity(&mut self, capacity: u64) {
        each!(self, one => one.set_capacity(capacity));
    }

    #[inline]
    fn occupancy(&self) -> Occupancy {
        each!(self, one => one.occupancy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::oracle;
    use alloc::string::ToString;

    #[test]
    fn every_name_parses_to_its_kind_and_back() {
        for (kind, name) in PolicyKind::NAMES {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "LRU".parse::<PolicyKind>().unwrap_err();
        assert_eq!(error.to_string(), "`LRU` is not an eviction policy; choose one of lru lfu random fifo s3fifo");
    }

    #[test]
    fn every_kind_builds_an_instance_of_its_own() {
        for (kind, name) in PolicyKind::NAMES {
            let mut links = Links::new(4);
            let mut policy = Policy::new(kind, 4, 4, 1);
            let built = alloc::format!("{policy:?}").to_lowercase();
            assert!(built.starts_with(name), "{name}: {built}");
            for slot in 0..4 {
                policy.inserted(&mut links, slot, 0, 1);
                policy.hit(&mut links, slot);
            }
            assert!(!policy.has_room(1));
            assert_eq!(oracle::drain(&mut policy, &mut links).len(), 4);
            assert_eq!(policy.occupancy(), Occupancy::new(4));
        }
    }
}
