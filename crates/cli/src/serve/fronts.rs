//! The front ends of a shard: the NBD server, and the S3 gateway's threads if there are any.
//!
//! How: a request's tag says whose it is. The gateway's have [`OF_GATEWAY`] set.

use forebay_core::{Piece, ReplyError, RequestId, Residency, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_nbd::NbdFront;
use forebay_s3::PoolFront;

/// The shard's own commands have the bit above.
const OF_GATEWAY: u64 = 1 << 62;

/// See the module.
pub(super) struct Fronts {
    pub(super) nbd: NbdFront,
    pub(super) gateway: Option<PoolFront>,
}

impl Fronts {
    /// Whose the tag is, and its own name for it.
    fn of(&mut self, tag: u64) -> (&mut dyn Front, u64) {
        match &mut self.gateway {
            Some(gateway) if tag & OF_GATEWAY != 0 => (gateway, tag & !OF_GATEWAY),
            _ => (&mut self.nbd, tag),
        }
    }
}

impl Front for Fronts {
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>) {
        self.nbd.poll(now_ns, events);
        let Some(gateway) = &mut self.gateway else { return };
        let first = events.len();
        gateway.poll(now_ns, events);
        for event in &mut events[first..] {
            match event {
                FrontEvent::Read { tag, .. }
                | FrontEvent::Write { tag, .. }
                | FrontEvent::Fill { tag, .. }
                | FrontEvent::Probe { tag, .. }
                | FrontEvent::Flush { tag, .. }
                | FrontEvent::Trim { tag, .. }
                | FrontEvent::WriteZeroes { tag, .. }
                | FrontEvent::Evict { tag, .. }
                | FrontEvent::Drain { tag } => *tag |= OF_GATEWAY,
                FrontEvent::Received { .. } | FrontEvent::NotReceived { .. } | FrontEvent::Sent { .. } => {}
            }
        }
    }

    fn receive(&mut self, now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let (front, tag) = self.of(tag);
        front.receive(now_ns, tag, request, pieces);
    }

    fn reply_read(&mut self, now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let (front, tag) = self.of(tag);
        front.reply_read(now_ns, tag, request, pieces);
    }

    fn probed(&mut self, now_ns: u64, tag: u64, found: Residency) {
        let (front, tag) = self.of(tag);
        front.probed(now_ns, tag, found);
    }

    fn reply(&mut self, now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        let (front, tag) = self.of(tag);
        front.reply(now_ns, tag, result);
    }

    fn turn_end(&mut self, now_ns: u64) {
        self.nbd.turn_end(now_ns);
        if let Some(gateway) = &mut self.gateway {
            gateway.turn_end(now_ns);
        }
    }

    fn take_submitters(&mut self, volume: VolumeId) -> u32 {
        self.nbd.take_submitters(volume)
    }

    fn next_ns(&self) -> Option<u64> {
        let gateway = self.gateway.as_ref().and_then(PoolFront::next_ns);
        self.nbd.next_ns().into_iter().chain(gateway).min()
    }
}
