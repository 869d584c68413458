//! What a log's owner chooses, and may change while it runs.

use super::super::SECTOR_BYTES;

/// Where what a client was promised is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the log, on its disk.
    #[default]
    Local,
    /// On the back end, and all that was before it, in order.
    Backend,
}

/// Which writes go to the back end without a record, where the order allows it ([`super::bypass`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// None.
    #[default]
    Never,
    /// Those of so many bytes or more. A change with FUA is logged, and a zeroing: its record is short.
    Large {
        /// The least.
        bytes_min: u64,
    },
    /// All changes. What the order does not allow yet waits for it while little is left to do, else it is logged.
    All,
}

/// What becomes of new changes when the back end does not answer, and the oldest waits for longer than it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLag {
    /// They wait.
    #[default]
    Stall,
    /// They are taken as long as the log has room.
    Continue,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// When a flush is answered.
    pub durability: Durability,
    /// When a change with FUA is.
    pub fua: Durability,
    /// What is not logged.
    pub bypass: Bypass,
    /// How far the back end may lag behind. While it answers, writers are slowed to keep that.
    pub lag_max_ns: u64,
    /// When it does not answer.
    pub on_lag: OnLag,
    /// Runs under way to the back end; no more than there are buffers for, and at least one.
    pub runs_max: u32,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self::LOCAL
    }
}

impl LogPolicy {
    /// The log is enough for everybody.
    pub const LOCAL: Self = Self {
        durability: Durability::Local,
        fua: Durability::Local,
        bypass: Bypass::Never,
        lag_max_ns: 60_000_000_000,
        on_lag: OnLag::Stall,
        runs_max: u32::MAX,
    };

    /// As if there were no log: it drains, and stays empty.
    pub const THROUGH: Self =
        Self { durability: Durability::Backend, fua: Durability::Backend, bypass: Bypass::All, ..Self::LOCAL };
}

impl Bypass {
    /// Whether it takes a write of so many sectors.
    pub(super) fn is_large(self, sectors: u64) -> bool {
        matches!(self, Self::Large { bytes_min } if sectors * SECTOR_BYTES >= bytes_min)
    }
}
