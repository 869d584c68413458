//! Planted bugs: those of machines and of logs that apply, and a few that only a cache above a log can have.

use crate::bug::{self, Planted, bugs};
use crate::log_world;

/// A bug that may be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// In what is around the cache.
    Machine(bug::Bug),
    /// Between a log and its disks.
    Log(log_world::bug::Bug),
    /// Between the cache and its logs.
    Seam(SeamBug),
}

/// The third kind.
pub mod seam {
    use super::bugs;

    bugs! {
        FlushEarly: "flush-early", "a client's flush is answered at once, and not done";
        PersistEarly: "persist-early", "a flush of the cache's own sweep is answered at once, and not done";
        FuaDropped: "fua-dropped", "writes lose their FUA flag on the way to the log";
        OrderSwapped: "order-swapped", "of two writes that overlap the first is done again after the second";
        RegionsUnkept: "regions-unkept", "writes of the region map are answered and not done";
        AnotherBelieved: "another-believed", "a cache disk of before is taken for the one in use";
        LossForgotten: "loss-forgotten", "what is lost is taken for accepted at the next start";
    }
}
pub use seam::Bug as SeamBug;

impl Planted for Bug {
    const ALL: &'static [Self] = &[
        Self::Seam(SeamBug::FlushEarly),
        Self::Seam(SeamBug::PersistEarly),
        Self::Seam(SeamBug::FuaDropped),
        Self::Seam(SeamBug::OrderSwapped),
        Self::Seam(SeamBug::RegionsUnkept),
        Self::Seam(SeamBug::AnotherBelieved),
        Self::Seam(SeamBug::LossForgotten),
        Self::Log(log_world::bug::Bug::LogFlushIgnored),
        Self::Log(log_world::bug::Bug::GroupEarly),
        Self::Log(log_world::bug::Bug::GroupHollow),
        Self::Log(log_world::bug::Bug::ScanShort),
        Self::Log(log_world::bug::Bug::TailEarly),
        Self::Log(log_world::bug::Bug::TailForgotten),
        Self::Log(log_world::bug::Bug::BackendFlushIgnored),
        Self::Log(log_world::bug::Bug::RunForgotten),
        Self::Log(log_world::bug::Bug::RunTorn),
        Self::Log(log_world::bug::Bug::RunEarly),
        Self::Log(log_world::bug::Bug::RunRepeated),
        Self::Log(log_world::bug::Bug::RunMisplaced),
        Self::Log(log_world::bug::Bug::BypassUnflushed),
        Self::Log(log_world::bug::Bug::BypassReplayed),
        Self::Log(log_world::bug::Bug::ZeroForgotten),
        Self::Log(log_world::bug::Bug::FlushLocal),
        Self::Machine(bug::Bug::DiskIgnoresFlush),
        Self::Machine(bug::Bug::IntentForgotten),
        Self::Machine(bug::Bug::TableStale),
        Self::Machine(bug::Bug::RegionsForgotten),
        Self::Machine(bug::Bug::WriteRepeated),
        Self::Machine(bug::Bug::SentEarly),
        Self::Machine(bug::Bug::PayloadTorn),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Machine(bug) => bug.name(),
            Self::Log(bug) => bug.name(),
            Self::Seam(bug) => bug.name(),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Machine(bug) => bug.text(),
            Self::Log(bug) => bug.text(),
            Self::Seam(bug) => bug.text(),
        }
    }
}
