//! How requests end: the last part's end, the answer, and what is given back.
//!
//! A request is answered once. Normally that is when its last part ends; one whose back end is silent is answered at its
//! deadline, and what it holds is given back only when its orders have ended.

use crate::action::{Action, Actions};
use crate::cache::Cache;
use crate::error::ReplyError;
use crate::page::RequestId;
use crate::request::{Kind, PartId, Stage};

impl Cache {
    /// A part ended. Its frame stays pinned only if it is to be sent.
    pub(crate) fn finish_part(
        &mut self,
        now_ns: u64,
        id: PartId,
        result: Result<(), ReplyError>,
        actions: &mut Actions,
    ) {
        if let Some(activity) = self.requests.part_mut(id).activity.take() {
            self.leave(activity);
        }
        let is_read = self.requests.get(id.request()).kind == Kind::Read;
        if result.is_err() || !is_read {
            let frame = self.requests.part_mut(id).frame.take();
            if let Some(frame) = frame {
                self.memory.unpin(frame);
            }
        }
        let request = self.requests.get_mut(id.request());
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        request.parts_left -= 1;
        if request.parts_left == 0 {
            self.finish_request(now_ns, id.request(), actions);
        }
    }

    fn finish_request(&mut self, now_ns: u64, id: RequestId, actions: &mut Actions) {
        if self.requests.get(id).answered {
            return self.release_request(id);
        }
        let request = self.requests.get(id);
        let (tag, error, is_read) = (request.tag, request.error, request.kind == Kind::Read);
        self.count_answer(now_ns, id, error.is_some());
        if is_read && error.is_none() {
            self.requests.get_mut(id).stage = Stage::Sending;
            actions.push(Action::ReplyRead { tag, request: id });
            return;
        }
        actions.push(Action::Reply { tag, result: error.map_or(Ok(()), Err) });
        self.release_request(id);
    }

    /// Answers a request before its orders have ended: nobody waits longer for a back end than the deadline. A write may
    /// still happen; its blocks stay locked until it is known.
    pub(crate) fn abandon(&mut self, now_ns: u64, id: RequestId, actions: &mut Actions) {
        let request = self.requests.get_mut(id);
        if request.answered {
            return;
        }
        request.answered = true;
        actions.push(Action::Reply { tag: request.tag, result: Err(ReplyError::Io) });
        self.count_answer(now_ns, id, true);
    }

    /// Fails the requests that have waited for frames until their deadline.
    pub(crate) fn fail_queued(&mut self, now_ns: u64, actions: &mut Actions) {
        while let Some(&id) = self.queue.front() {
            let request = self.requests.get(id);
            let waited_ns = now_ns.saturating_sub(request.start_ns);
            if waited_ns < self.config.limits.backend_timeout_ns || !actions.has_room_for_part() {
                return;
            }
            self.queue.pop_front();
            actions.push(Action::Reply { tag: request.tag, result: Err(ReplyError::Io) });
            self.count_answer(now_ns, id, true);
            self.requests.release(id);
        }
    }

    fn count_answer(&mut self, now_ns: u64, id: RequestId, failed: bool) {
        let request = self.requests.get(id);
        let latency_ns = now_ns.saturating_sub(request.start_ns);
        let length = u64::from(request.length);
        let stats = &mut self.stats.volumes[request.volume.index()];
        match request.kind {
            Kind::Read => {
                stats.reads += 1;
                stats.read_errors += u64::from(failed);
                stats.read_bytes += length;
                stats.read_latency.record(latency_ns);
            }
            Kind::Write { .. } => {
                stats.writes += 1;
                stats.write_errors += u64::from(failed);
                stats.write_bytes += length;
                stats.write_latency.record(latency_ns);
            }
            Kind::Fill => stats.fill_bytes += if failed { 0 } else { length },
        }
    }

    pub(crate) fn release_request(&mut self, id: RequestId) {
        let count = self.requests.get(id).parts_count;
        for place in 0..usize::from(count) {
            if let Some(frame) = self.requests.part_mut(PartId::new(id, place)).frame.take() {
                self.memory.unpin(frame);
            }
        }
        self.memory.unreserve(u32::from(count));
        self.requests.release(id);
    }
}
