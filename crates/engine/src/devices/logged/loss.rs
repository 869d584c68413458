//! What is lost of a volume, for status and for whoever accepts it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::log::logged::{Health, Logged, LostExtent};

use super::SECTOR_BYTES;

/// Extents that are listed; of more, how many there are is told.
pub const LISTED_MAX: usize = 1024;

/// What is lost, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSnapshot {
    /// How the log is.
    pub health: Health,
    /// Reads of so many bytes fail.
    pub lost_bytes: u64,
    /// The first of them, by sector.
    pub extents: Vec<LostExtent>,
    /// Extents that are not listed.
    pub unlisted: u64,
    /// Blocks of the log that could not be read on a disk that works, since the start.
    pub bad_blocks: u64,
}

impl LossSnapshot {
    pub(super) fn of(logged: &Logged) -> Self {
        let lost = logged.lost();
        Self {
            health: logged.health(),
            lost_bytes: lost.sectors() * SECTOR_BYTES,
            extents: lost.iter().take(LISTED_MAX).collect(),
            unlisted: lost.len().saturating_sub(LISTED_MAX) as u64,
            bad_blocks: logged.bad_blocks(),
        }
    }
}

/// What the log of messages has been told.
#[derive(Debug, Default)]
pub(super) struct Told {
    health: Health,
    bad_blocks: u64,
}

impl Told {
    /// Tells what has become of the log's disk since.
    pub(super) fn tell(&mut self, volume: &str, logged: &Logged) {
        let (health, lost_bytes) = (logged.health(), logged.lost().sectors() * SECTOR_BYTES);
        if health != self.health {
            match health {
                Health::Draining => tracing::error!(
                    volume,
                    "the disk of the write-back log fails: what the log has goes to the back end, and writes wait for that"
                ),
                Health::Losing => {
                    tracing::error!(volume, "the write-back log cannot be read: what only it had is lost")
                }
                Health::Through => tracing::error!(
                    volume,
                    lost_bytes,
                    "the volume goes on without its write-back log: replace the cache disk and restart; reading what is lost \
                     fails until it is written, or the loss accepted (`forebay fsck --accept-loss`)"
                ),
                Health::Whole | Health::GivingUp => {}
            }
            self.health = health;
        }
        if logged.bad_blocks() > self.bad_blocks {
            self.bad_blocks = logged.bad_blocks();
            let bad_blocks = self.bad_blocks;
            tracing::error!(
                volume,
                bad_blocks,
                lost_bytes,
                "blocks of the write-back log are damaged: reading them fails until they are written"
            );
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    snapshot: Mutex<LossSnapshot>,
    accepts: AtomicBool,
}

/// What is lost, shared: it may be read, and accepted, from any thread while the device runs.
#[derive(Clone, Debug, Default)]
pub struct LossStatus(Arc<Shared>);

impl LossStatus {
    /// What is lost now.
    #[must_use]
    pub fn get(&self) -> LossSnapshot {
        self.0.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is lost so far is accepted: its sectors read as what the back end has. Done when the device is next polled, and
    /// durable soon after.
    pub fn accept(&self) {
        self.0.accepts.store(true, Ordering::Release);
    }

    pub(super) fn set(&self, snapshot: LossSnapshot) {
        *self.0.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// Whether somebody accepted it since this was last asked.
    pub(super) fn is_accepted(&self) -> bool {
        self.0.accepts.swap(false, Ordering::AcqRel)
    }
}
