//! What happened: the input of [`crate::Cache::step`].

use crate::page::{OpId, RequestId, VolumeId};
use forebay_policy::split::SplitConfig;
use forebay_policy::split::profile::Profile;

/// What happened. Lengths are in bytes; `tag` is the front end's own name for a request and comes back in the reply.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Debug)]
pub enum Event<'a> {
    /// A client asks for bytes. At most [`crate::CacheConfig::request_bytes_max`], 512-byte aligned, inside the volume.
    Read { volume: VolumeId, tag: u64, offset: u64, length: u32 },
    /// A client announces a write, same limits. Answered by [`crate::Action::Receive`] once frames are free, then the
    /// front end fills them and says [`Event::Received`]. `fua`: durable before the reply.
    Write { volume: VolumeId, tag: u64, offset: u64, length: u32, fua: bool },
    /// Somebody has bytes of the back end that the cache may lack: announced and received as a write, and then valid. Blocks
    /// are whole, or end with the volume. What is at that place must be what the back end has there now.
    Fill { volume: VolumeId, tag: u64, offset: u64, length: u32 },
    /// Where is this range? At most [`crate::PROBE_PAGES_MAX`] pages. Answered by [`crate::Action::Probed`].
    Probe { volume: VolumeId, tag: u64, offset: u64, length: u64 },
    /// The announced bytes are in the frames.
    Received { request: RequestId },
    /// The announced bytes will never come (the client is gone). Nothing was written; there is no reply.
    NotReceived { request: RequestId },
    /// The frames of a [`crate::Action::ReplyRead`] were sent, or never will be: they may be reused.
    Sent { request: RequestId },
    /// Every write answered before this is to be durable before the reply.
    Flush { volume: VolumeId, tag: u64 },
    /// The range's content no longer matters. Any length inside the volume, 512-byte aligned.
    Trim { volume: VolumeId, tag: u64, offset: u64, length: u64, fua: bool },
    /// The range is to read as zeroes. `no_hole`: space stays allocated.
    WriteZeroes { volume: VolumeId, tag: u64, offset: u64, length: u64, fua: bool, no_hole: bool },
    /// An order ended. `crcs`: for a slot read or write, the checksum of each block that it moved, in order (the
    /// engine computes them, seeded with space and block number, never 0); empty otherwise.
    Done { op: OpId, result: Result<(), IoError>, crcs: &'a [u32] },
    /// A [`crate::Action::ScanTable`] ended well: what the table says of the slots from `first_slot` on, in order;
    /// `crcs` holds `blocks_per_page` checksums a record (0: block absent). A damaged sector's records are void.
    TableScanned { op: OpId, first_slot: u32, records: &'a [SlotRecord], crcs: &'a [u32] },
    /// Drop clean pages of a volume's range from both tiers (`forebay evict`). Answered by [`crate::Action::Reply`].
    Evict { volume: VolumeId, tag: u64, offset: u64, length: u64 },
    /// What is cached of this range may not be what the back end holds: its clean pages are dropped. `is_lost`: the back
    /// end may have lost acknowledged writes.
    InDoubt { volume: VolumeId, offset: u64, length: u64, is_lost: bool },
    /// Bring the cache disk up to date now and mark it clean: no write comes after this (`SIGTERM`). Answered by a
    /// [`crate::Action::Reply`] when everything is durable; with an error if a back end does not flush, and then without
    /// the clean mark.
    Drain { tag: u64 },
    /// Somebody decided that the volume's hits are split so from now on.
    SetSplit { volume: VolumeId, tag: u64, split: SplitConfig },
    /// Another profile for the policies that need one. What the volume's own learnt of the last one is forgotten.
    SetProfile { volume: VolumeId, tag: u64, profile: &'a Profile },
    /// So many clients of the volume had requests in flight in the last control period.
    Submitters { volume: VolumeId, count: u32 },
    /// The control period (100 ms) went by.
    Tick,
    /// Work was left over for want of room in the action list ([`crate::Cache::has_more`]).
    Continue,
}

/// One slot as the table on disk has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The space; 0 for an empty slot.
    pub space: u32,
    /// The page's number in the space.
    pub page: u64,
}

/// How an order failed; says what may be assumed of its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The device said no; a write may have happened in part.
    Failed,
    /// No answer in time; a write may still have happened, but no longer will (its connection is closed).
    TimedOut,
    /// The device cannot do this kind of operation.
    Unsupported,
    /// The back end may have lost writes it acknowledged: what a flush promised does not hold.
    Lost,
    /// The device does not give these bytes (they changed there, or it has enough to do). It is well: others are not affected.
    Declined,
}
