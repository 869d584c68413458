//! The modelled machine: the generation beside the configuration, and what the shard tells the operator.

use crate::bug::Bug;
use crate::dice::Dice;
use crate::front::Shared;
use crate::ledger::{Count, SharedLedger};
use forebay_core::{IoError, Notice, VolumeId};
use forebay_engine::shard::Host;
use std::cell::Cell;
use std::rc::Rc;

/// The file with the generation: it outlives crashes.
#[derive(Debug, Default)]
pub struct Generation {
    /// What it holds; `None`: nothing to be believed.
    pub value: Cell<Option<u64>>,
    /// Writing it fails.
    pub fails: Cell<bool>,
}

/// The host of one life.
pub struct SimHost {
    generation: Rc<Generation>,
    shared: Rc<Shared>,
    ledger: SharedLedger,
    dice: Dice,
    raising_until_ns: Option<u64>,
}

impl SimHost {
    /// A host.
    #[must_use]
    pub fn new(generation: Rc<Generation>, shared: Rc<Shared>, ledger: SharedLedger, dice: Dice) -> Self {
        Self { generation, shared, ledger, dice, raising_until_ns: None }
    }
}

impl Drop for SimHost {
    /// A crash while the number is written leaves the old or the new one.
    fn drop(&mut self) {
        if self.raising_until_ns.is_some() && self.dice.chance(500) {
            self.generation.value.set(self.generation.value.get().map(|value| value + 1));
        }
    }
}

impl Host for SimHost {
    fn raise_generation(&mut self) {
        if !self.ledger.io() {
            return;
        }
        self.ledger.count(Count::RaiseGeneration, 0, 0);
        let in_ns = self.dice.duration_ns(300_000_000);
        self.raising_until_ns = Some(self.ledger.now_ns() + in_ns);
    }

    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        let now_ns = self.ledger.now_ns();
        self.raising_until_ns.take_if(|until_ns| *until_ns <= now_ns && self.ledger.io())?;
        if self.generation.fails.get() {
            self.ledger.count(Count::FaultGeneration, 0, 0);
            self.ledger.count(Count::GenerationFailed, 0, 0);
            self.shared.generation_troubled.set(true);
            return Some(Err(IoError::Failed));
        }
        let value = self.generation.value.get().map_or(0, |value| value + 1);
        if !self.ledger.has(Bug::GenerationLie) {
            self.generation.value.set(Some(value));
        }
        self.ledger.count(Count::GenerationRaised, value, 0);
        Some(Ok(()))
    }

    fn backend_mtime_ns(&mut self, volume: VolumeId) -> i64 {
        1_000_000 + i64::from(volume.0)
    }

    fn notice(&mut self, notice: Notice) {
        self.ledger.say(|| format!("notice: {notice:?}"));
        let (what, a) = match notice {
            Notice::DiskDetached { .. } => (Count::NoticeDetached, 0),
            Notice::BadBlock { slot, .. } => (Count::NoticeBadBlock, u64::from(slot.0)),
            Notice::Recovered { pages, dropped } => {
                (Count::NoticeRecovered, u64::from(pages) << 32 | u64::from(dropped))
            }
            Notice::GenerationStuck => (Count::NoticeGenerationStuck, 0),
            Notice::BackendLost { volume } => (Count::NoticeBackendLost, u64::from(volume.0)),
        };
        self.ledger.count(what, a, 0);
    }
}
