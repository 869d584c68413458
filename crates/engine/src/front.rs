//! What brings requests to a shard and carries its answers away: the NBD server's connections, or the simulator's
//! clients.
//!
//! A front end is polled by the shard's loop, like a device. It names each request by a `tag` of its own and gets the
//! tag back with the answer. It keeps the limits it was told ([`forebay_core::Limits`], the longest request), splits
//! longer requests, and never makes the shard wait: a client that does not read holds only its own share of frames.

use forebay_core::{Piece, ReplyError, RequestId, Residency, VolumeId};

/// What a client wants, or what became of a payload.
#[expect(missing_docs, reason = "fields as in `forebay_core::Event`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEvent {
    /// See [`forebay_core::Event::Read`].
    Read { volume: VolumeId, tag: u64, offset: u64, length: u32 },
    /// See [`forebay_core::Event::Write`].
    Write { volume: VolumeId, tag: u64, offset: u64, length: u32, fua: bool },
    /// See [`forebay_core::Event::Fill`].
    Fill { volume: VolumeId, tag: u64, offset: u64, length: u32 },
    /// See [`forebay_core::Event::Probe`].
    Probe { volume: VolumeId, tag: u64, offset: u64, length: u64 },
    /// See [`forebay_core::Event::Received`].
    Received { request: RequestId },
    /// See [`forebay_core::Event::NotReceived`].
    NotReceived { request: RequestId },
    /// See [`forebay_core::Event::Sent`].
    Sent { request: RequestId },
    /// See [`forebay_core::Event::Flush`].
    Flush { volume: VolumeId, tag: u64 },
    /// See [`forebay_core::Event::Trim`].
    Trim { volume: VolumeId, tag: u64, offset: u64, length: u64, fua: bool },
    /// See [`forebay_core::Event::WriteZeroes`].
    WriteZeroes { volume: VolumeId, tag: u64, offset: u64, length: u64, fua: bool, no_hole: bool },
    /// See [`forebay_core::Event::Evict`].
    Evict { volume: VolumeId, tag: u64, offset: u64, length: u64 },
    /// See [`forebay_core::Event::Drain`].
    Drain { tag: u64 },
}

/// A front end of one shard.
pub trait Front {
    /// Appends what clients did since the last call, at most a bounded number of events a call.
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>);

    /// A write's or a fill's payload is to be received into these pieces (in order); answer with `Received` or `NotReceived`.
    fn receive(&mut self, now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]);

    /// A read's answer is in these pieces (in order); answer with `Sent` when they may be reused.
    fn reply_read(&mut self, now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]);

    /// A probe's answer. Who never asks need not listen.
    fn probed(&mut self, _now_ns: u64, _tag: u64, _found: Residency) {}

    /// Any other answer.
    fn reply(&mut self, now_ns: u64, tag: u64, result: Result<(), ReplyError>);

    /// The shard has performed everything for now: a moment to send what was gathered.
    fn turn_end(&mut self, now_ns: u64);

    /// Clients of a volume that had requests in flight since this was last asked, as far as it knows.
    fn take_submitters(&mut self, _volume: VolumeId) -> u32 {
        1
    }

    /// When `poll` should next be called even if nothing outside happens.
    fn next_ns(&self) -> Option<u64> {
        None
    }
}
