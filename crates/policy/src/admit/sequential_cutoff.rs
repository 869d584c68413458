//! Sequential cut-off: a stream that has run longer than so many bytes is not admitted any more.
//!
//! Backups, scans and copies read much, once, and at a rate that the back end delivers well; in the
//! cache they displace what is used at random. Open CAS calls this the sequential cut-off (threshold
//! 1 MiB by default), bcache `sequential_cutoff` (4 MiB by default; Linux,
//! Documentation/admin-guide/bcache.rst). The length of a run comes from
//! [`StreamTable`](crate::prefetch::StreamTable).
//!
//! The start of a stream is admitted up to the cut-off, for nobody knows yet that it is one.
//!
//! Limits: a loop over more than the cut-off is never cached, even where it would fit. Rejected: bcache's
//! second rule (cut off a task whose average request is large): a block server does not see tasks.

use super::{Access, Admit, Decision, Refusal};

/// Refuses sequential runs longer than the cut-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequentialCutoff {
    run_bytes_max: u64,
}

impl SequentialCutoff {
    /// Admits runs of up to `run_bytes_max` bytes.
    pub const fn new(run_bytes_max: u64) -> Self {
        Self { run_bytes_max }
    }

    /// Whether a run of `run_bytes` is short enough.
    #[inline]
    pub const fn passes(&self, run_bytes: u64) -> bool {
        run_bytes <= self.run_bytes_max
    }
}

impl Admit for SequentialCutoff {
    fn decide(&mut self, access: &Access) -> Decision {
        if self.passes(access.run_bytes) { Decision::Admit } else { Decision::Refuse(Refusal::SequentialRun) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::StreamTable;

    #[test]
    fn a_stream_is_admitted_up_to_the_cutoff_and_a_jump_is_admitted_again() {
        let mut streams = StreamTable::new();
        let mut policy = SequentialCutoff::new(64 << 10);
        let mut read = |offset: u64| {
            let stream = streams.observe(offset, 16 << 10);
            let access = Access { key_hash: 0, bytes: 16 << 10, run_bytes: stream.run_bytes };
            policy.decide(&access)
        };
        for nth in 0..4 {
            assert_eq!(read(nth << 14), Decision::Admit);
        }
        assert_eq!(read(4 << 14), Decision::Refuse(Refusal::SequentialRun));
        assert_eq!(read(100 << 14), Decision::Admit);
    }
}
