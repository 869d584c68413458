//! How an export's connections are, for metrics.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_wire::nbd::client::Counters;

/// How an export's connections are, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdSnapshot {
    /// Connections that are ready.
    pub connected: u64,
    /// What happened so far.
    pub counters: Counters,
}

/// How an export's connections are, shared: it may be read from any thread while the device runs.
#[derive(Clone, Debug, Default)]
pub struct NbdStatus(Arc<Mutex<NbdSnapshot>>);

impl NbdStatus {
    /// How they are now.
    #[must_use]
    pub fn get(&self) -> NbdSnapshot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, snapshot: NbdSnapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}
