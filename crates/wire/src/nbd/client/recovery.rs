//! Draining, replay of held writes, and what happens when they cannot be replayed.

use alloc::vec::Vec;

use super::action::{Action, HeldId, Kind, Op, Payload, Range, Report};
use super::connection::Work;
use super::doubt::{EVERYTHING, Uncertain, join};
use super::{Client, Phase};
use crate::nbd::constants::TransmissionFlags;

impl Client {
    /// A member was lost or joined: those that answer may be another server than before.
    pub(super) fn membership_changed(&mut self, now_ns: u64) {
        self.epoch += 1;
        // A write in flight may have been answered by a server that has died since: its answer can still be on the way.
        let at_stake = !self.held.is_empty() || !self.uncertain.is_empty() || !self.changing.is_empty();
        if at_stake || self.phase != Phase::Serving || now_ns < self.settled_at_ns {
            self.phase = Phase::Draining;
        }
    }

    pub(super) fn recover(&mut self, now_ns: u64) {
        if self.phase == Phase::Draining {
            if !self.is_drained(now_ns) {
                return;
            }
            self.start_replay();
        }
        while let Some(write) = self.held.to_replay() {
            let Some(conn) = self.roomiest() else { return };
            if self.is_changing(&write.op) {
                return;
            }
            self.held.replay_sent();
            self.counters.replayed += 1;
            let payload = match write.op.kind {
                Kind::Write => Payload::Held(write.held),
                _ => Payload::None,
            };
            let deadline_ns = now_ns.saturating_add(self.config.request_timeout_ns);
            self.send(conn, write.op, Work::Replay(write.answered), deadline_ns, payload);
        }
        if self.connections.iter().all(|c| c.in_flight() == 0) {
            self.finish_replay();
        }
    }

    /// True when nothing sent before can take effect any more, and there is somebody to send to.
    fn is_drained(&self, now_ns: u64) -> bool {
        self.is_quiet() && now_ns >= self.settled_at_ns && self.connected() > 0
    }

    pub(super) fn is_quiet(&self) -> bool {
        (self.connections.iter()).all(|c| c.in_flight() == 0 && !c.is_closing_member())
    }

    fn start_replay(&mut self) {
        self.phase = Phase::Replaying;
        let ranges = self.uncertain.ranges();
        self.name_in_doubt(ranges, true);
        // Nothing, if the last flush was answered.
        let read = core::mem::take(&mut self.read_under_flush);
        self.name_in_doubt(read.ranges(), false);
        self.flush_unheard = false;
        if !self.can(TransmissionFlags::SEND_FLUSH) {
            // Nothing will settle them, and nothing needs to: such a server is trusted to write through.
            self.uncertain = Uncertain::default();
        }
        self.held.rewind();
        if !self.held.is_empty() {
            self.act(Action::Report(Report::ReplayStarted { count: self.held.len() as u32, bytes: self.held.bytes() }));
        }
    }

    fn finish_replay(&mut self) {
        let mut ranges = Vec::new();
        while let Some(write) = self.held.take_refused() {
            ranges.push(write.op.range());
            self.release(write.op, write.held);
        }
        self.phase = Phase::Serving;
        if ranges.is_empty() {
            if !self.held.is_empty() {
                self.act(Action::Report(Report::ReplayFinished));
            }
            return;
        }
        self.untold = true;
        self.fall_in_doubt(ranges);
    }

    /// Gives up all held writes; true when there were any. Their ranges are in doubt.
    pub(super) fn drop_held(&mut self) -> bool {
        let mut ranges = Vec::new();
        while let Some(write) = self.held.pop_before(u64::MAX) {
            ranges.push(write.op.range());
            self.release(write.op, write.held);
        }
        let dropped = !ranges.is_empty();
        if dropped {
            self.fall_in_doubt(ranges);
        }
        dropped
    }

    /// Acknowledged writes are no longer held: their ranges hold anything, and may change again with the next restart.
    fn fall_in_doubt(&mut self, ranges: Vec<Range>) {
        self.counters.writes_in_doubt += ranges.len() as u64;
        let stamp = self.tick();
        let joined = self.name_in_doubt(ranges, true);
        for range in joined {
            self.uncertain.add(range, stamp);
        }
        self.fail_durable_waiters();
    }

    pub(super) fn name_in_doubt(&mut self, ranges: Vec<Range>, is_lost: bool) -> Vec<Range> {
        let size_bytes = self.terms.map_or(u64::MAX, |terms| terms.size_bytes);
        let joined = join(ranges, size_bytes);
        for range in &joined {
            self.act(Action::InDoubt { offset: range.start, length: range.end - range.start, is_lost });
        }
        joined
    }

    /// Everything is in doubt, and nothing is held any more.
    pub(super) fn doubt_everything(&mut self) {
        self.untold |= self.drop_held();
        let stamp = self.tick();
        self.uncertain.add(EVERYTHING, stamp);
        self.name_in_doubt(alloc::vec![EVERYTHING], true);
    }

    pub(super) fn release(&mut self, op: Op, held: HeldId) {
        if op.kind == Kind::Write {
            self.act(Action::Release { held });
        }
    }
}
