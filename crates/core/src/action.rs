//! Orders: the output of [`crate::Cache::step`], in a list of fixed capacity.
//!
//! The engine performs them in their order. [`Action::Copy`] is performed at once; everything that carries an
//! [`OpId`] is answered later by exactly one [`crate::Event::Done`] (or `TableScanned`).

use crate::error::ReplyError;
use crate::fill::Residency;
use crate::page::{FrameId, OpId, PageKey, RequestId, SlotId, VolumeId};
use alloc::vec::Vec;

/// A stretch of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The frame.
    pub frame: FrameId,
    /// First byte in the frame.
    pub at: u32,
    /// Bytes.
    pub length: u32,
}

/// An order.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Receive a write's payload into the request's pieces ([`crate::Cache::pieces`]), then say `Received`.
    Receive { tag: u64, request: RequestId },
    /// Answer a read with the request's pieces ([`crate::Cache::pieces`]), then say `Sent`.
    ReplyRead { tag: u64, request: RequestId },
    /// Answer a probe.
    Probed { tag: u64, found: Residency },
    /// Answer anything else, or a failed read. Nothing is to be said afterwards.
    Reply { tag: u64, result: Result<(), ReplyError> },
    /// Copy bytes between frames, now, at the same place in both.
    Copy { from: FrameId, to: FrameId, at: u32, length: u32 },
    /// Read blocks of a slot into the frame at the same place; `Done` carries their checksums.
    ReadSlot { op: OpId, slot: SlotId, key: PageKey, frame: FrameId, first_block: u32, blocks: u32 },
    /// Write blocks of a slot from the frame at the same place; `Done` carries their checksums.
    WriteSlot { op: OpId, slot: SlotId, key: PageKey, frame: FrameId, first_block: u32, blocks: u32 },
    /// Read `piece.length` bytes at `offset` of the back end. With a page to check, `Done` brings the checksums of the
    /// blocks read, as of that page.
    ReadBackend { op: OpId, volume: VolumeId, offset: u64, piece: Piece, check: Option<PageKey> },
    /// The bytes of that read are wanted from elsewhere by now: end it if that can be done at once.
    GiveUpRead { op: OpId, volume: VolumeId },
    /// Write `piece.length` bytes at `offset` of the back end. `fua`: durable before `Done`.
    WriteBackend { op: OpId, volume: VolumeId, offset: u64, piece: Piece, fua: bool },
    /// Make everything the back end has answered durable. `promised`: a client waits for it; otherwise only the cache does,
    /// and where a log keeps the order of flushes it may leave this one out of it.
    FlushBackend { op: OpId, volume: VolumeId, promised: bool },
    /// Discard a range of the back end.
    TrimBackend { op: OpId, volume: VolumeId, offset: u64, length: u64, fua: bool },
    /// Zero a range of the back end.
    ZeroBackend { op: OpId, volume: VolumeId, offset: u64, length: u64, fua: bool, no_hole: bool },
    /// Write a sector of the slot table, as [`crate::Cache::table_sector`] has it now.
    WriteTable { op: OpId, sector: u32 },
    /// Write a volume's intent map, as [`crate::Cache::intent_words`] has it now, durable before `Done`.
    WriteIntent { op: OpId, volume: VolumeId },
    /// Make everything written to the cache disk durable.
    FlushDisk { op: OpId },
    /// Read `sectors` sectors of the slot table from `first_sector` on; answered by `TableScanned`, or `Done` on error.
    ScanTable { op: OpId, first_sector: u32, sectors: u32 },
    /// Write the superblock with its clean mark, durable before `Done`.
    MarkClean { op: OpId },
    /// Raise the generation number beside the configuration, durable before `Done`.
    RaiseGeneration { op: OpId },
    /// Tell the operator, once.
    Notice(Notice),
}

/// Something an operator should know. The engine logs it and counts it.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The cache disk is no longer used: the cache goes on with memory and back end.
    DiskDetached { reason: &'static str },
    /// A block on the cache disk did not have the bytes written there; it was fetched again.
    BadBlock { slot: SlotId, key: PageKey },
    /// The whole table was read; `pages` are warm.
    Recovered { pages: u32, dropped: u32 },
    /// The generation could not be raised: writes fail until it can.
    GenerationStuck,
    /// A back end may have lost acknowledged writes; the volume's clean pages in doubt were dropped.
    BackendLost { volume: VolumeId },
}

/// The list of orders: fixed capacity, so that one step does bounded work.
#[derive(Debug)]
pub struct Actions {
    list: Vec<Action>,
    capacity: usize,
}

impl Actions {
    /// Room that the cache keeps free before it starts on another part: one part's worst case (runs of a 64-block
    /// page from two sources, their copies, the stores of what was fetched, a reply).
    pub(crate) const PART_MAX: usize = 256;

    /// A list with the capacity that [`crate::Cache::step`] needs.
    #[must_use]
    pub fn new() -> Self {
        let capacity = 2048;
        Self { list: Vec::with_capacity(capacity), capacity }
    }

    /// The orders, oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Action] {
        &self.list
    }

    /// Forgets them; to be called once they are performed.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn push(&mut self, action: Action) {
        assert!(self.list.len() < self.capacity, "a step gave more than {} orders", self.capacity);
        self.list.push(action);
    }

    pub(crate) fn has_room_for_part(&self) -> bool {
        self.capacity - self.list.len() >= Self::PART_MAX
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self::new()
    }
}
