//! Orders that are unanswered: what each was for.
//!
//! Every order with an [`OpId`] has a record here until its `Done`. A record may outlive what it was for: when a read
//! has its answer from elsewhere, its record stays as an orphan that only holds the frame the device may still write.

use crate::activity::ActivityId;
use crate::page::{BlockMask, FrameId, OpId, SlotId, VolumeId};
use crate::request::PartId;
use alloc::vec::Vec;
use forebay_policy::split::{InFlight, Path, Use};

/// What an order was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Free,
    /// Blocks of a slot on their way into the part's frame.
    FetchSlot {
        part: PartId,
        slot: SlotId,
        first: u32,
        blocks: BlockMask,
    },
    /// Blocks of the back end on their way into the part's frame.
    FetchBackend {
        part: PartId,
        blocks: BlockMask,
    },
    /// Blocks that the slot has too, on their way from the back end into the part's frame.
    FetchSplit {
        part: PartId,
        slot: SlotId,
        first: u32,
        blocks: BlockMask,
    },
    /// Blocks of the back end on their way into the frame of the part's hedge.
    Hedge {
        part: PartId,
    },
    /// Blocks of the slot on their way into the frame of the part's hedge.
    HedgeSlot {
        part: PartId,
        slot: SlotId,
        first: u32,
        blocks: BlockMask,
    },
    /// A fetch that nobody waits for any more.
    Orphan {
        slot: bool,
    },
    /// A part's payload on its way to the back end.
    Write {
        part: PartId,
    },
    /// Blocks of a frame on their way into a slot.
    Store {
        activity: ActivityId,
        slot: SlotId,
        first: u32,
        blocks: BlockMask,
    },
    /// A flush that clients wait for; `covers` the volume's first so many writes.
    Flush {
        volume: VolumeId,
        covers: u64,
    },
    /// A chunk of a trim or zeroing.
    Range {
        range: u32,
    },
    /// The sweep's steps.
    SweepTable,
    SweepDisk,
    SweepBackend {
        volume: VolumeId,
        covers: u64,
    },
    Intent {
        volume: VolumeId,
    },
    Clean,
    Generation,
    Scan {
        first_sector: u32,
        sectors: u32,
    },
}

impl Role {
    /// Whether the cache disk is to answer.
    pub(crate) fn on_disk(self) -> bool {
        matches!(
            self,
            Self::FetchSlot { .. }
                | Self::HedgeSlot { .. }
                | Self::Orphan { slot: true }
                | Self::Store { .. }
                | Self::SweepTable
                | Self::SweepDisk
                | Self::Intent { .. }
                | Self::Clean
                | Self::Scan { .. }
        )
    }
}

/// What an order means for the path that it goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) volume: VolumeId,
    pub(crate) path: Path,
    pub(crate) kind: Use,
    pub(crate) bytes: u32,
    /// What was in flight on the path when it was ordered, itself included.
    pub(crate) in_flight: InFlight,
}

/// An unanswered order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) role: Role,
    /// The frame it moves bytes of, pinned by it.
    pub(crate) frame: Option<FrameId>,
    pub(crate) start_ns: u64,
    /// If it goes to a path of a volume whose hits are split.
    pub(crate) load: Option<Load>,
}

/// The table of unanswered orders.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    table: Vec<Op>,
    free: Vec<OpId>,
}

impl Ops {
    pub(crate) fn start(&mut self, now_ns: u64, role: Role, frame: Option<FrameId>) -> OpId {
        let op = Op { role, frame, start_ns: now_ns, load: None };
        if let Some(id) = self.free.pop() {
            self.table[id.index()] = op;
            return id;
        }
        self.table.push(op);
        OpId(self.table.len() as u32 - 1)
    }

    pub(crate) fn get(&self, id: OpId) -> &Op {
        &self.table[id.index()]
    }

    pub(crate) fn set_role(&mut self, id: OpId, role: Role) {
        self.table[id.index()].role = role;
    }

    pub(crate) fn set_load(&mut self, id: OpId, load: Load) {
        self.table[id.index()].load = Some(load);
    }

    /// The volume's orders under way count for nobody any more.
    pub(crate) fn forget_loads(&mut self, volume: VolumeId) {
        for op in self.table.iter_mut().filter(|op| op.load.is_some_and(|load| load.volume == volume)) {
            op.load = None;
        }
    }

    /// The record of an order that ended.
    pub(crate) fn end(&mut self, id: OpId) -> Op {
        let op = self.table[id.index()];
        assert!(op.role != Role::Free, "order {} ended twice", id.0);
        self.table[id.index()].role = Role::Free;
        self.free.push(id);
        op
    }

    /// Orders unanswered.
    pub(crate) fn len(&self) -> u32 {
        (self.table.len() - self.free.len()) as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (OpId, &Op)> {
        (0u32..).map(OpId).zip(&self.table).filter(|(_, op)| op.role != Role::Free)
    }
}
