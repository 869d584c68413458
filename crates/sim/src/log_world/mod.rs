//! Worlds of one logged device: a log on a modelled disk, a back end behind it, clients, and crashes all the time.
//!
//! Why beside whole machines: a log's order is broken by what happens between two of its own I/Os. Here nothing else is
//! in the way, a life is some fifty requests long, and a hundred thousand crashes take minutes.
//!
//! How:
//! 1. [`world`] draws disks, clients and crash points, opens the real `LoggedDevice`, and kills it: after so many I/Os, or
//!    at a named one ([`met`]): a group, a tail, a run of the write-back, a read of the scan. The process alone dies, or
//!    the log's disk, the back end or both lose power with it.
//! 2. [`disk`] is a disk with a volatile cache, latencies and faults. Unflushed sectors are lost in any subset.
//! 3. [`clients`] have many requests in flight. As the device's contract asks, those that overlap wait for each other.
//! 4. [`history`] knows the order of changes of each sector, and what was promised when. After each start the whole volume
//!    is read: what was acknowledged behind a flush is there, and what is there stays.
//! 5. [`promise`] looks at the back end as if the log's disk were gone, every few I/Os and at each crash: is there a
//!    boundary k such that each sector, whatever the back end has of it, holds its value at k or one of the epoch behind?
//! 6. The log's policy is drawn for each life, and changes in it: what passes the log, what a flush promises, whether
//!    writers wait. What a flush promised on the back end is looked for there; what passed the log and was lost must have
//!    been told; what the log lists as lost fails to be read, or is right.
//! 7. [`liar`] plants [`bug`]s between the device and its disks.
//!
//! Limits: one volume. Bit rot is of payloads and passes: where it hits a descriptor, a scan ends there.

pub mod bug;
pub mod clients;
pub mod disk;
pub mod history;
pub mod liar;
pub mod met;
pub mod promise;
pub mod world;

use crate::sweep::Worlds;
use crate::world::Outcome;
use std::rc::Rc;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct LogWorlds;

impl Worlds for LogWorlds {
    type Count = met::Count;
    type Bug = bug::Bug;

    fn run(seed: u64, bug: Option<bug::Bug>, verbose: bool) -> Outcome {
        world::run(seed, bug, verbose)
    }
}

/// The ledger of these worlds.
type Ledger = Rc<crate::ledger::Ledger<met::Count, bug::Bug>>;
