//! What a logged back end is asked, and what it orders.

use super::super::{Group, Tail};
use super::regions::RegionImage;
use alloc::boxed::Box;
use core::ops::Range;

/// Names an order until it is answered; used again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderId(pub u32);

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Bytes.
    Read,
    /// To give them bytes. `fua`: durable before the answer.
    Write {
        /// Durable before it is answered.
        fua: bool,
    },
    /// To zero them; a trim is one that may leave a hole.
    Zero {
        /// Durable before it is answered.
        fua: bool,
        /// Keep the space allocated.
        no_hole: bool,
    },
    /// All that was answered before is to be durable, and the back end to follow in the order of flushes.
    Flush,
    /// All that was answered before is to be durable. For whoever asks the log is enough, and no client is promised anything.
    Persist,
}

/// A client's request. Those that overlap are not under way at the same time: whoever asks sees to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it; comes back in [`Order::Answer`].
    pub token: u64,
    /// What.
    pub wish: Wish,
    /// Where; ignored by flushes.
    pub sectors: Range<u64>,
    /// Sectors of the whole change, if this is a part of it.
    pub whole_sectors: u64,
}

/// Memory of the driver's. Each holds [`super::LoggedConfig::buffer_sectors`]. What goes between it and a disk lies in it as it does
/// there within its block: from the buffer's sector `position % 8` on, or `sector % 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// For a group on its way into the log: one of [`super::super::LogLimits::groups_max`].
    Group(u32),
    /// For what is read of the log: one of [`super::LoggedConfig::log_reads_max`].
    LogRead(u32),
    /// For a run on its way to the back end: one of [`super::LoggedConfig::runs_max`], of [`super::LoggedConfig::run_sectors`].
    Run(u32),
}

/// Sectors in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub memory: Memory,
    /// From which of its sectors on.
    pub skip: u64,
}

/// Memory of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Of the request with that token.
    Client(u64),
    /// Of the driver's.
    Driver(Buffer),
}

/// What is to be done, in this order. What has an id is answered by [`super::Logged::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Encode the group into the buffer, bytes from its records' clients ([`super::Logged::group`]), and write it at its place in
    /// the ring. Answered with the checksums of its blocks, in order.
    WriteGroup {
        /// Its name.
        id: OrderId,
        /// The group.
        group: Group,
        /// Where its bytes are gathered.
        buffer: Buffer,
    },
    /// Make what the log's disk has answered durable.
    FlushLog {
        /// Its name.
        id: OrderId,
    },
    /// Write down where the log begins, durably.
    WriteTail {
        /// Its name.
        id: OrderId,
        /// Where.
        tail: Tail,
    },
    /// Read the log. Answered with the checksum of each block of the volume that the sectors lie in.
    ReadLog {
        /// Its name.
        id: OrderId,
        /// Where to.
        buffer: Buffer,
        /// The first position.
        position: u64,
        /// The volume's sectors that lie there.
        sectors: Range<u64>,
        /// A client waits for it; else it is for the back end.
        is_demand: bool,
    },
    /// Copy, now.
    Copy {
        /// From.
        from: Place,
        /// To.
        to: Place,
        /// Sectors.
        sectors: u64,
    },
    /// Zero, now.
    Clear {
        /// Where.
        at: Place,
        /// Sectors.
        sectors: u64,
    },
    /// Read the back end.
    ReadBackend {
        /// Its name.
        id: OrderId,
        /// Where to.
        to: Place,
        /// What.
        sectors: Range<u64>,
    },
    /// Write the back end.
    WriteBackend {
        /// Its name.
        id: OrderId,
        /// From.
        from: Place,
        /// Where.
        sectors: Range<u64>,
    },
    /// Zero sectors of the back end.
    ZeroBackend {
        /// Its name.
        id: OrderId,
        /// Which.
        sectors: Range<u64>,
        /// Keep the space allocated.
        no_hole: bool,
    },
    /// Make what the back end has answered durable.
    FlushBackend {
        /// Its name.
        id: OrderId,
    },
    /// Write the region map, durably.
    WriteRegions {
        /// Its name.
        id: OrderId,
        /// What it says.
        image: Box<RegionImage>,
    },
    /// Answer a client.
    Answer {
        /// Whom.
        token: u64,
        /// How.
        result: Result<(), crate::IoError>,
    },
}
