//! Worlds of whole machines that write back: the cache above its logs, on one modelled cache disk, and crashes all the time.
//!
//! Why beside [`crate::log_world`]: there a log's own order is crashed, and requests that overlap have to wait, as the log's
//! contract asks. Here clients do as they like, several at once in the same place, and what they were promised is asked of
//! all that is between them and the back end: front, cache, slots, intent map, sweep, log.
//!
//! How:
//! 1. [`world`] draws a machine, its lives and what ends them: a crash after so many I/Os or at a named one, of the process
//!    alone, with power lost by the cache disk, the back ends or all; the cache disk replaced by an empty one, or by one of
//!    before.
//! 2. [`logs`] opens the logs as `forebay serve` does; starts are cut short, too. Then the volumes are read whole: what was
//!    acknowledged behind a flush is there, and what is there stays. Slots that recovery would believe are compared with it.
//! 3. [`seam`] stands between the cache and each log: operations that overlap are never in flight together there.
//! 4. [`crate::oracle`] says what a read may see, as in other worlds; [`epochs`] looks at the back ends as if the cache disk
//!    were gone, every few I/Os and at each crash.
//! 5. What is lost with a cache disk fails to be read, until it is written or the loss is accepted; never is it old.
//! 6. [`bug`]s are planted around the cache, at the seam, and between a log and its disks.
//!
//! Limits: back ends are disks of the machine, with sectors of 512 bytes; they do not restart while the process lives, as those
//! of [`crate::log_world`] do. The log's part of the cache disk does not rot.

pub mod bug;
pub mod epochs;
pub mod logs;
pub mod seam;
pub mod world;

use crate::ledger::Count;
use crate::log_world::liar::Lies;
use crate::model_device::Disk;
use crate::setup::{LifeSetup, Setup};
use crate::sweep::Worlds;
use crate::world::Outcome;
use forebay_core::WriteMode;
use forebay_engine::devices::logged::{LogPlace, MemoryRegions};
use std::rc::Rc;

/// What only these worlds count.
pub const OWN: &[Count] = &[
    Count::WriteGroup,
    Count::WriteTail,
    Count::ReadLog,
    Count::WritePasses,
    Count::FaultDiskPower,
    Count::FaultBackendPower,
    Count::FaultDiskReplaced,
    Count::FaultDiskBack,
    Count::CrashAtIo,
    Count::CrashBetween,
    Count::CrashAtRest,
    Count::CrashStopping,
    Count::CrashGroup,
    Count::CrashTail,
    Count::CrashReadLog,
    Count::CrashRun,
    Count::CrashZero,
    Count::CrashPasses,
    Count::CrashBackendFlush,
    Count::CrashBackendDone,
    Count::CrashDiskFlush,
    Count::CrashDiskDone,
    Count::CrashSlot,
    Count::CrashTable,
    Count::CrashIntent,
    Count::CrashReply,
    Count::CrashOpening,
    Count::CrashSettling,
    Count::StateImage,
    Count::StateImageOpen,
    Count::StateImageFollows,
    Count::StateImageLags,
    Count::StateBack,
    Count::StateBackThrough,
    Count::StatePolicyLocal,
    Count::StatePolicyBackend,
    Count::StateLogRecovered,
    Count::StateLogEmpty,
    Count::StateLogAgain,
    Count::StateLogFull,
    Count::StateSettled,
    Count::StateLost,
    Count::StateLossAccepted,
    Count::StateLostRead,
    Count::StatePersisted,
    Count::StateBelowQueued,
];

/// What does not happen in these worlds.
const ELSEWHERE: &[Count] = &[
    Count::Continue,
    Count::BackendTimedOut,
    Count::TrimBackend,
    Count::WriteBackendFua,
    Count::FlushLost,
    Count::ReplyReadOnly,
    Count::FaultOutage,
    Count::FaultServerRestart,
    Count::FaultServerForgot,
    Count::FaultServerDropped,
    Count::FaultReplayRefused,
    Count::FaultConnectionLost,
    Count::FaultLateExecution,
    Count::StateMemoryOnly,
    Count::StateThrough,
    Count::StateAround,
    Count::StatePass,
    Count::StateReadOnly,
    Count::StateNbd,
    Count::StateCoarse,
    Count::StateReplay,
    Count::StateCutTurn,
    Count::InDoubt,
];

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct BackWorlds;

impl Worlds for BackWorlds {
    type Count = Count;
    type Bug = bug::Bug;
    const ABSENT: &'static [Count] = ELSEWHERE;

    fn run(seed: u64, bug: Option<bug::Bug>, verbose: bool) -> Outcome {
        world::run(seed, bug, verbose)
    }
}

/// Of a volume, what outlives the process besides its disks.
#[derive(Debug, Default)]
pub struct BackVolume {
    /// The region map.
    pub regions: MemoryRegions,
    /// The cache that the map is about.
    pub cache_id: Option<[u8; 16]>,
    /// The cache disk is another one since the last start.
    pub is_replaced: bool,
    lies: Option<Rc<Lies>>,
    /// By sector: its loss was accepted, and it was not read since.
    pub accepted: Vec<bool>,
    /// Something may have passed the log since the back end was flushed.
    pub may_pass: bool,
}

impl BackVolume {
    /// What liars remember of a log there.
    pub fn lies_at(&mut self, place: LogPlace) -> Rc<Lies> {
        let is_there = |lies: &&Rc<Lies>| lies.place.offset == place.offset && lies.place.seed == place.seed;
        let lies = self.lies.as_ref().filter(is_there).cloned().unwrap_or_else(|| Rc::new(Lies::new(place)));
        self.lies = Some(Rc::clone(&lies));
        lies
    }
}

/// What a machine that writes back has besides.
#[derive(Debug)]
pub struct Back {
    /// Planted.
    pub bug: Option<bug::Bug>,
    /// By volume.
    pub volumes: Vec<BackVolume>,
    /// Crashes so far.
    pub crashes: u64,
    /// How many there are to be.
    pub crashes_min: u64,
    /// I/Os between two looks at the back ends.
    pub look_ios: u64,
    /// When they were looked at last.
    pub looked_at: u64,
    /// The cache disk fails often.
    pub has_frail_disk: bool,
    /// A cache disk that was replaced, and may come back; and whether its superblocks may be damaged.
    pub disk_before: Option<(Rc<Disk>, bool)>,
}

impl Back {
    /// What a life may not choose: a log in use cannot be moved.
    pub fn change(&self, life: &mut LifeSetup, setup: &Setup) {
        life.page_bytes = setup.page_bytes;
        life.scan_sectors_max = life.scan_sectors_max.min(setup.page_bytes / 4096);
        life.modes.fill(WriteMode::Back);
    }
}
