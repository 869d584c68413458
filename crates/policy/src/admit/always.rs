//! Always: every page is admitted.
//!
//! What most caches do: the first use pays for the second. "AdmitOnMiss" in T.-W. Yang et al.,
//! "CacheSack: Admission Optimization for Google Datacenter Flash Caches", USENIX ATC 2022. Right while
//! the cache disk has writes to spare, and the yardstick for the others.

use super::{Access, Admit, Decision};

/// Admits every page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Always;

impl Admit for Always {
    fn decide(&mut self, _access: &Access) -> Decision {
        Decision::Admit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_a_page_never_seen_in_the_longest_stream() {
        let access = Access { key_hash: 1, bytes: 4_096, run_bytes: u64::MAX };
        assert!(Always.decide(&access).admits());
    }
}
