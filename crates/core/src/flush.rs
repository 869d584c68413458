//! Flush: everything answered before it becomes durable on the back end.
//!
//! At most one flush of a volume is at the back end. Those that arrive meanwhile share the next one: the one under way
//! may have begun before the writes they cover were answered.

use crate::action::{Action, Actions};
use crate::cache::Cache;
use crate::error::ReplyError;
use crate::event::IoError;
use crate::op::Role;
use crate::page::VolumeId;
use alloc::vec::Vec;

/// Flushes that may wait; each costs an order in the step that answers it.
const WAITING_MAX: usize = 1024;

/// A volume's flushes, as (tag, start).
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    under_way: Vec<(u64, u64)>,
    waiting: Vec<(u64, u64)>,
    /// A flush is at the back end; those it was for may have been answered already, because it took too long.
    at_backend: bool,
    /// A flush of the cache's own failed: the back end may have dropped what it had answered, and says so only once.
    /// The next flush that a client waits for has to fail for it.
    owes_failure: bool,
}

impl Flushes {
    /// A flush that no client waited for ended so.
    pub(crate) fn own_ended(&mut self, result: Result<(), IoError>) {
        // Without an answer nothing is dropped: the writes are held, and replayed before the next flush.
        self.owes_failure |= matches!(result, Err(IoError::Failed | IoError::Lost));
    }
}

impl Cache {
    pub(crate) fn flush(&mut self, now_ns: u64, volume: VolumeId, tag: u64, actions: &mut Actions) {
        let flushes = &mut self.volumes[volume.index()].flushes;
        let refusal = if self.drain.asked.is_some() {
            Some(ReplyError::ShuttingDown)
        } else if flushes.waiting.len() >= WAITING_MAX {
            Some(ReplyError::Busy)
        } else {
            None
        };
        if let Some(error) = refusal {
            return actions.push(Action::Reply { tag, result: Err(error) });
        }
        flushes.waiting.push((tag, now_ns));
        if !flushes.at_backend {
            self.flush_next(now_ns, volume, actions);
        }
    }

    fn flush_next(&mut self, now_ns: u64, volume: VolumeId, actions: &mut Actions) {
        let v = &mut self.volumes[volume.index()];
        if v.flushes.waiting.is_empty() {
            return;
        }
        core::mem::swap(&mut v.flushes.under_way, &mut v.flushes.waiting);
        v.flushes.at_backend = true;
        let op = self.ops.start(now_ns, Role::Flush { volume, covers: v.write_seq }, None);
        actions.push(Action::FlushBackend { op, volume, promised: true });
    }

    pub(crate) fn flushed(
        &mut self,
        now_ns: u64,
        volume: VolumeId,
        covers: u64,
        result: Result<(), IoError>,
        actions: &mut Actions,
    ) {
        let v = &mut self.volumes[volume.index()];
        v.flushes.at_backend = false;
        let owed = core::mem::take(&mut v.flushes.owes_failure);
        let result = if owed { Err(IoError::Lost) } else { result };
        let stats = &mut self.stats.volumes[volume.index()];
        let lost = matches!(result, Err(IoError::Failed | IoError::Lost)) && !owed;
        // The back end says so only once; those who asked meanwhile, or were told of the deadline only, have to hear it too.
        let unheard = v.flushes.under_way.is_empty() || !v.flushes.waiting.is_empty();
        v.flushes.owes_failure = unheard && (lost || (owed && v.flushes.under_way.is_empty()));
        if result.is_ok() {
            v.flushed_seq = v.flushed_seq.max(covers);
        }
        for (tag, start_ns) in v.flushes.under_way.drain(..) {
            stats.flushes += 1;
            stats.flush_errors += u64::from(result.is_err());
            stats.flush_latency.record(now_ns - start_ns);
            actions.push(Action::Reply { tag, result: result.map_err(|_| ReplyError::Io) });
        }
        if lost {
            self.doubt_unflushed(volume, actions);
        }
        self.flush_next(now_ns, volume, actions);
    }

    /// Fails the flushes that a back end has left unanswered until their deadline.
    pub(crate) fn fail_late_flushes(&mut self, now_ns: u64, actions: &mut Actions) {
        let timeout_ns = self.config.limits.backend_timeout_ns;
        for (volume, stats) in self.volumes.iter_mut().zip(&mut self.stats.volumes) {
            let Flushes { under_way, waiting, .. } = &mut volume.flushes;
            for list in [under_way, waiting] {
                list.retain(|(tag, start_ns)| {
                    let late = now_ns.saturating_sub(*start_ns) >= timeout_ns && actions.has_room_for_part();
                    if late {
                        stats.flushes += 1;
                        stats.flush_errors += 1;
                        actions.push(Action::Reply { tag: *tag, result: Err(ReplyError::Io) });
                    }
                    !late
                });
            }
        }
    }

    /// No flush is under way or waiting in any volume.
    pub(crate) fn flushes_at_rest(&self) -> bool {
        self.volumes.iter().all(|v| v.flushes.under_way.is_empty() && v.flushes.waiting.is_empty())
    }
}
