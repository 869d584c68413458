//! Planted bugs: ways in which a log's disk, a back end or who stands before the log could lie.

use crate::bug::bugs;

bugs! {
    LogFlushIgnored: "log-flush-ignored", "the log's disk answers flushes and does nothing";
    GroupEarly: "group-early", "a group is answered before it is on the disk";
    GroupHollow: "group-hollow", "of a group only its descriptor is written";
    GroupMended: "group-mended", "a group torn by a power loss is made to look whole";
    ScanShort: "scan-short", "a scan does not see the newest group";
    TailEarly: "tail-early", "the tail is written one group ahead";
    TailForgotten: "tail-forgotten", "writes of the tail are answered and not done";
    TailVolatile: "tail-volatile", "the tail is written without FUA";
    BackendFlushIgnored: "backend-flush-ignored", "the back end answers flushes and does nothing: epochs merge";
    LossHidden: "loss-hidden", "the back end fails a flush, drops what it covers, and says that it is done";
    RunForgotten: "run-forgotten", "the back end answers a run and does not do it";
    RunTorn: "run-torn", "the back end answers a run and does half of it";
    RunEarly: "run-early", "the back end answers a run before it is done";
    RunRepeated: "run-repeated", "a run is done a second time, later: an old epoch over a new one";
    RunMisplaced: "run-misplaced", "a run is done at another place";
    BypassUnflushed: "bypass-unflushed", "what passed the log is done after the flush behind it";
    BypassReplayed: "bypass-replayed", "an old run is done again over what passed the log";
    ZeroForgotten: "zero-forgotten", "the back end answers a zeroing and does not do it";
    FlushLocal: "flush-local", "a flush that is for the back end is answered when the log has it";
    FlushEarly: "flush-early", "a client's flush is answered at once";
    FuaDropped: "fua-dropped", "writes lose their FUA flag on the way to the log";
}
