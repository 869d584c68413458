//! How a write-back log is, for status and metrics.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::log::logged::{LogPolicy, Logged, LoggedCounts};

use super::SECTOR_BYTES;

/// How a log is, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSnapshot {
    /// The ring's size.
    pub log_bytes: u64,
    /// Of it, what is in use.
    pub used_bytes: u64,
    /// What reads find in the log and not on the back end.
    pub dirty_bytes: u64,
    /// Records in the log.
    pub records: u64,
    /// How many it may have.
    pub records_max: u64,
    /// The next record. Records are counted from the log's beginning.
    pub appended_record: u64,
    /// Records before this are written, and answered.
    pub written_record: u64,
    /// Records before this are durable on the log's disk.
    pub durable_record: u64,
    /// Records before this are on the back end, for good.
    pub followed_record: u64,
    /// Epochs that are closed, and not on the back end for good.
    pub epochs_open: u64,
    /// The age of the oldest record that is not there; 0 when all are.
    pub lag_ns: u64,
    /// That is more than its owner wants.
    pub is_lagging: bool,
    /// What it works by now.
    pub policy: LogPolicy,
    /// What happened so far.
    pub counts: LoggedCounts,
    /// Everything is on the back end, for good.
    pub has_followed: bool,
    /// And the region map says so.
    pub is_settled: bool,
}

impl LogSnapshot {
    pub(super) fn of(logged: &Logged, now_ns: u64) -> Self {
        let log = logged.log();
        let used = log.ring().in_use();
        Self {
            log_bytes: log.ring().size() * SECTOR_BYTES,
            used_bytes: (used.end - used.start) * SECTOR_BYTES,
            dirty_bytes: log.map().sectors() * SECTOR_BYTES,
            records: log.next() - log.first(),
            records_max: log.limits().records_max,
            appended_record: log.next(),
            written_record: log.written(),
            durable_record: log.durable(),
            followed_record: log.first(),
            epochs_open: log.epochs() as u64,
            lag_ns: logged.lag_ns(now_ns),
            is_lagging: logged.is_lagging(now_ns),
            policy: logged.policy(),
            counts: logged.counts(),
            has_followed: logged.has_followed(),
            is_settled: logged.is_settled(),
        }
    }
}

/// How a log is, shared: it may be read from any thread while the device runs.
#[derive(Clone, Debug, Default)]
pub struct LogStatus(Arc<Mutex<LogSnapshot>>);

impl LogStatus {
    /// How it is now: as it was at most a millisecond ago, or when something last happened.
    #[must_use]
    pub fn get(&self) -> LogSnapshot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, snapshot: LogSnapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}
