//! What these worlds count, and where they may crash.

use crate::ledger::counts;

counts! {
    Read: "event", "read";
    Write: "event", "write";
    WriteFua: "event", "write with fua";
    WriteLong: "event", "write of more than one record";
    Trim: "event", "trim";
    Zero: "event", "write zeroes";
    ZeroNoHole: "event", "write zeroes, no hole";
    ZeroFua: "event", "trim or zeroes with fua";
    Flush: "event", "flush";
    ReadFailed: "event", "read failed";
    ChangeFailed: "event", "change failed";
    FlushFailed: "event", "flush failed";

    GroupBegun: "order", "group begun";
    GroupEnded: "order", "group ended";
    LogFlushBegun: "order", "log flush begun";
    LogFlushEnded: "order", "log flush ended";
    TailBegun: "order", "tail begun";
    TailEnded: "order", "tail ended";
    LogReadBegun: "order", "read of the log begun";
    LogReadEnded: "order", "read of the log ended";
    RunBegun: "order", "run begun";
    RunEnded: "order", "run ended";
    RunZeroBegun: "order", "run of zeroes begun";
    RunZeroEnded: "order", "run of zeroes ended";
    BypassBegun: "order", "bypass begun";
    BypassEnded: "order", "bypass ended";
    BackendFlushBegun: "order", "back end flush begun";
    BackendFlushEnded: "order", "back end flush ended";
    BackendReadBegun: "order", "read of the back end begun";
    BackendReadEnded: "order", "read of the back end ended";
    ScanBegun: "order", "read of the scan begun";
    ScanEnded: "order", "read of the scan ended";
    OpenFlushBegun: "order", "first log flush begun";
    OpenFlushEnded: "order", "first log flush ended";
    OpenTailBegun: "order", "first tail begun";
    OpenTailEnded: "order", "first tail ended";
    OpenBackendBegun: "order", "first back end flush begun";
    OpenBackendEnded: "order", "first back end flush ended";

    CrashAtIo: "crash", "after so many I/Os";
    CrashBetween: "crash", "between two turns";
    CrashGroupBegun: "crash", "group begun";
    CrashGroupEnded: "crash", "group ended";
    CrashLogFlushBegun: "crash", "log flush begun";
    CrashLogFlushEnded: "crash", "log flush ended";
    CrashTailBegun: "crash", "tail begun";
    CrashTailEnded: "crash", "tail ended";
    CrashLogReadBegun: "crash", "read of the log begun";
    CrashRunBegun: "crash", "run begun";
    CrashRunEnded: "crash", "run ended";
    CrashRunZeroBegun: "crash", "run of zeroes begun";
    CrashBypassBegun: "crash", "bypass begun";
    CrashBypassEnded: "crash", "bypass ended";
    CrashBackendFlushBegun: "crash", "back end flush begun";
    CrashBackendFlushEnded: "crash", "back end flush ended";
    CrashScan: "crash", "read of the scan ended";
    CrashOpenFlush: "crash", "first log flush begun";
    CrashOpenTailBegun: "crash", "first tail begun";
    CrashOpenTailEnded: "crash", "first tail ended";
    CrashOpenBackend: "crash", "first back end flush begun";
    CrashOpenEnded: "crash", "first back end flush ended";

    FaultProcessCrash: "fault", "process crash";
    FaultLogPower: "fault", "the log's disk loses power";
    FaultBackendPower: "fault", "the back end loses power with the process";
    FaultBothPower: "fault", "both lose power";
    FaultRestart: "fault", "the back end restarts while the process lives";
    FaultForgotten: "fault", "unflushed sector gone";
    FaultTorn: "fault", "operation torn";
    FaultLogSlow: "fault", "log slow";
    FaultBackendSlow: "fault", "back end slow";
    FaultLogRead: "fault", "read of the log fails";
    FaultLogWrite: "fault", "write of the log fails";
    FaultLogFlush: "fault", "flush of the log fails";
    FaultBackendRead: "fault", "read of the back end fails";
    FaultBackendWrite: "fault", "write of the back end fails";
    FaultBackendFlush: "fault", "flush of the back end fails";
    FaultDropped: "fault", "failed flush drops what it covers";
    FaultRot: "fault", "bit rot in what is read of the log";
    FaultStale: "fault", "stale bytes read of the log";
    FaultOpen: "fault", "the log could not be opened at first";

    PolicyLocal: "policy", "a flush is for the log";
    PolicyBackend: "policy", "a flush is for the back end";
    PolicyFuaBackend: "policy", "FUA alone is for the back end";
    PolicyNever: "policy", "nothing passes the log";
    PolicyLarge: "policy", "large writes pass the log";
    PolicyAll: "policy", "all changes pass the log";
    PolicyChanged: "policy", "changed in a life";

    StateQueued: "state", "request waited for one that it overlaps";
    StateDeep: "state", "eight requests in flight, or more";
    StateBoundary: "state", "boundary";
    StateNested: "state", "boundaries asked for one while the other was under way";
    StateFlownOver: "state", "change in flight at a boundary";
    StateOverwrite: "state", "sector overwritten within its epoch";
    StateImage: "state", "back end looked at without its log";
    StateImageOpen: "state", "back end held more than one value of a sector";
    StateImageFollows: "state", "back end was at the last boundary";
    StateImageLags: "state", "back end was eight boundaries behind, or more";
    StatePassed: "state", "change passed the log";
    StatePassedAndLost: "state", "what passed the log told as lost";
    StatePassFailed: "state", "bypass failed, and its change logged";
    StatePromisedFar: "state", "flush promised on the back end";
    StateLostAlone: "state", "block of the log given up";
    StateFull: "state", "log full";
    StateWrapped: "state", "log began anew at the ring's beginning";
    StateRecovered: "state", "records recovered";
    StateEmpty: "state", "empty log recovered";
    StateMore: "state", "unanswered record recovered";
    StateLess: "state", "record lost that nobody was promised";
    StateAgain: "state", "crash while a start was not over";
    StateSettled: "state", "volume read whole after a start";
    StateMoved: "state", "lost change found on the back end";
    StateRest: "state", "all at rest: back end and volume alike";
}

/// Where a crash can be ordered, and how it is counted then.
pub const CRASHES: &[(Count, Count)] = &[
    (Count::GroupBegun, Count::CrashGroupBegun),
    (Count::GroupEnded, Count::CrashGroupEnded),
    (Count::LogFlushBegun, Count::CrashLogFlushBegun),
    (Count::LogFlushEnded, Count::CrashLogFlushEnded),
    (Count::TailBegun, Count::CrashTailBegun),
    (Count::TailEnded, Count::CrashTailEnded),
    (Count::LogReadBegun, Count::CrashLogReadBegun),
    (Count::RunBegun, Count::CrashRunBegun),
    (Count::RunEnded, Count::CrashRunEnded),
    (Count::RunZeroBegun, Count::CrashRunZeroBegun),
    (Count::BypassBegun, Count::CrashBypassBegun),
    (Count::BypassEnded, Count::CrashBypassEnded),
    (Count::BackendFlushBegun, Count::CrashBackendFlushBegun),
    (Count::BackendFlushEnded, Count::CrashBackendFlushEnded),
];

/// The same while the log is opened.
pub const OPENING_CRASHES: &[(Count, Count)] = &[
    (Count::ScanEnded, Count::CrashScan),
    (Count::OpenFlushBegun, Count::CrashOpenFlush),
    (Count::OpenTailBegun, Count::CrashOpenTailBegun),
    (Count::OpenTailEnded, Count::CrashOpenTailEnded),
    (Count::OpenBackendBegun, Count::CrashOpenBackend),
    (Count::OpenBackendEnded, Count::CrashOpenEnded),
];
