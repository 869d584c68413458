//! What is counted in worlds of objects.

use super::bug::Bug;
use crate::ledger::{Ledger, counts};
use std::rc::Rc;

counts! {
    Learn: "read", "passed on";
    Keep: "read", "kept on its way";
    Confirmed: "read", "confirmed by the store";
    Again: "read", "told otherwise, asked again";
    Served: "read", "served without asking";
    Replaced: "read", "found to be another version";
    ByVersionId: "read", "of a version by its id";
    Head: "read", "headers only";
    Gone: "read", "of what is gone";

    HitPart: "hit", "part read from the cache";
    HitMissing: "hit", "part missing";
    HitFetched: "hit", "missing part fetched";
    HitTorn: "hit", "torn: changed before the rest was fetched";
    HitDropped: "hit", "torn: its version was dropped under it";
    HitWhole: "hit", "came to its end";

    Put: "change", "through the gateway";
    PutAgain: "change", "with bytes that it had before";
    Delete: "change", "deletion";
    DeleteMany: "change", "deletion of several";
    Past: "change", "past the gateway";
    ChangeLost: "change", "never answered";

    Fill: "cache", "fill";
    FillDropped: "cache", "fill left out: its version was dropped";
    Broken: "cache", "body broke off";
    Clean: "cache", "addresses cleaned";
    Evict: "cache", "pages evicted";
    DiskHit: "cache", "hit on disk";
    MemoryHit: "cache", "hit in memory";
    StoreHit: "cache", "hit on disk, for the store to serve";
    BadBlock: "cache", "bad block found";

    AddressServed: "address", "read from the store";
    AddressUnknown: "address", "of no version";
    AddressChanged: "address", "declined: another version by now";
    AddressBroken: "address", "broke off";
    AddressGivenUp: "address", "given up";

    FaultDisk: "fault", "cache disk failed or was slow";
    FaultWrite: "fault", "write of a slot lost or misdirected";
    FaultRot: "fault", "bit rot";
    CrashProcess: "crash", "of the process";
    CrashMachine: "crash", "of the machine";
    Stop: "state", "stopped at rest";
    WarmDisk: "state", "start with pages of an earlier life";
}

/// What is met in a run of these worlds.
pub type SharedMet = Rc<Ledger<Count, Bug>>;
