//! What a log's owner chooses, from any thread, while the device runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::log::logged::LogPolicy;

/// A log's policy, shared. The device takes it up when it is next asked or polled: [`super::LogSnapshot::policy`] tells.
#[derive(Clone, Debug, Default)]
pub struct LogControl(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    policy: Mutex<LogPolicy>,
    /// Raised with each change, so that a look costs no lock.
    version: AtomicU64,
    rests: AtomicBool,
}

impl LogControl {
    /// What was chosen last.
    #[must_use]
    pub fn get(&self) -> LogPolicy {
        *self.0.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses.
    pub fn set(&self, policy: LogPolicy) {
        *self.0.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// Nothing more is expected: the log may come to rest ([`super::LogSnapshot::is_settled`]).
    pub fn rest(&self) {
        self.0.rests.store(true, Ordering::Release);
        self.0.version.fetch_add(1, Ordering::Release);
    }

    pub(super) fn rests(&self) -> bool {
        self.0.rests.load(Ordering::Acquire)
    }

    /// What was chosen since that version.
    pub(super) fn since(&self, version: &mut u64) -> Option<LogPolicy> {
        let now = self.0.version.load(Ordering::Acquire);
        if now == *version {
            return None;
        }
        *version = now;
        Some(self.get())
    }
}
