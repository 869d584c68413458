//! The ledger of a run: what happened how often, a digest of all of it in order, and, if asked, a line each.
//!
//! It also counts I/Os, and so is where the power goes out at one of them: from then on nothing has any effect.
//!
//! Two runs of one seed must end with equal digests: otherwise something outside the seed (an address, a clock, an
//! order of iteration) has a say, and a failure could not be replayed.

use crate::bug::Bug;
use forebay_policy::rng::mix64;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

/// What a kind of world counts.
pub trait Counted: Copy + 'static {
    /// All, in order.
    const ALL: &'static [Self];

    /// Its place among them.
    fn place(self) -> usize;

    /// Its group and its text.
    fn name(self) -> (&'static str, &'static str);
}

/// What a kind of world counts, a line each.
macro_rules! counts {
    ($($name:ident: $group:literal, $text:literal;)*) => {
        /// Something that a sweep must have seen.
        #[expect(missing_docs, reason = "each has its text")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count { $($name),* }
        impl $crate::ledger::Counted for Count {
            const ALL: &'static [Count] = &[$(Count::$name),*];

            fn place(self) -> usize {
                self as usize
            }

            fn name(self) -> (&'static str, &'static str) {
                match self { $(Count::$name => ($group, $text)),* }
            }
        }
    };
}
pub(crate) use counts;

counts! {
    Read: "event", "read";
    Write: "event", "write";
    WriteFua: "event", "write with fua";
    Received: "event", "payload received";
    NotReceived: "event", "payload never came";
    Sent: "event", "reply sent";
    Flush: "event", "flush";
    Trim: "event", "trim";
    WriteZeroes: "event", "write zeroes";
    Evict: "event", "evict";
    Drain: "event", "drain";
    Tick: "event", "control period";
    Continue: "event", "step goes on for want of room";
    DiskDone: "event", "cache disk did it";
    DiskFailed: "event", "cache disk failed";
    BackendDone: "event", "back end did it";
    BackendFailed: "event", "back end failed";
    BackendTimedOut: "event", "back end did not answer in time";
    FlushLost: "event", "back end says that writes are lost";
    InDoubt: "event", "range in doubt";
    GenerationRaised: "event", "generation raised";
    GenerationFailed: "event", "generation could not be raised";

    Receive: "action", "receive";
    ReplyRead: "action", "reply with bytes";
    ReplyOk: "action", "reply";
    ReplyIo: "action", "reply: I/O error";
    ReplyBusy: "action", "reply: busy";
    ReplyInvalid: "action", "reply: invalid";
    ReplyReadOnly: "action", "reply: read-only";
    ReplyShuttingDown: "action", "reply: shutting down";
    ReadSlot: "action", "read slot";
    WriteSlot: "action", "write slot";
    ReadBackend: "action", "read back end";
    WriteBackend: "action", "write back end";
    WriteBackendFua: "action", "write back end with fua";
    FlushBackend: "action", "flush back end";
    TrimBackend: "action", "trim back end";
    ZeroBackend: "action", "zero back end";
    WriteTable: "action", "write table sector";
    WriteIntent: "action", "write intent map";
    FlushDisk: "action", "flush cache disk";
    ScanTable: "action", "scan table";
    MarkClean: "action", "mark clean";
    WriteGroup: "action", "write group of a log";
    WriteTail: "action", "write tail of a log";
    ReadLog: "action", "read log";
    WritePasses: "action", "write passes a log";
    RaiseGeneration: "action", "raise generation";
    NoticeDetached: "action", "notice: cache disk given up";
    NoticeBadBlock: "action", "notice: bad block";
    NoticeRecovered: "action", "notice: recovered";
    NoticeGenerationStuck: "action", "notice: generation stuck";
    NoticeBackendLost: "action", "notice: back end lost writes";

    FaultDiskError: "fault", "cache disk error";
    FaultDiskSlow: "fault", "cache disk slow";
    FaultDiskHang: "fault", "cache disk hangs";
    FaultDiskDead: "fault", "cache disk dead";
    FaultDiskRot: "fault", "bit rot in a slot";
    FaultTableRot: "fault", "bit rot in the table";
    FaultIntentRot: "fault", "bit rot in an intent map";
    FaultSuperblockRot: "fault", "bit rot in a superblock";
    FaultLostWrite: "fault", "lost slot write";
    FaultMisdirectedWrite: "fault", "misdirected slot write";
    FaultBackendError: "fault", "back end error";
    FaultBackendSlow: "fault", "back end slow";
    FaultBackendHang: "fault", "back end hangs";
    FaultOutage: "fault", "back end gone for a while";
    FaultServerRestart: "fault", "back end restarts";
    FaultServerForgot: "fault", "back end restarts without unflushed writes";
    FaultServerDropped: "fault", "back end fails a flush and drops what it covers";
    FaultReplayRefused: "fault", "back end refuses a write that it had acknowledged";
    FaultConnectionLost: "fault", "connection lost";
    FaultLateExecution: "fault", "request done after its connection was given up";
    FaultVanished: "fault", "client vanishes in the middle of a write";
    FaultSlowReceiver: "fault", "client receives slowly";
    FaultGeneration: "fault", "state directory fails";
    FaultProcessCrash: "fault", "process crash";
    FaultMachineCrash: "fault", "machine crash";
    FaultCrashWhileAttaching: "fault", "crash while attaching";
    FaultTornWrite: "fault", "write torn by a crash";
    FaultForgottenWrite: "fault", "unflushed write gone after a crash";

    FaultDiskPower: "fault", "cache disk loses power with the process";
    FaultBackendPower: "fault", "back end loses power with the process";
    FaultDiskReplaced: "fault", "an empty cache disk after a crash";
    FaultDiskBack: "fault", "a cache disk of before after a crash";

    CrashAtIo: "crash", "after so many I/Os";
    CrashBetween: "crash", "between two turns";
    CrashAtRest: "crash", "at rest";
    CrashStopping: "crash", "in the middle of an orderly stop";
    CrashGroup: "crash", "group of a log begun";
    CrashTail: "crash", "tail of a log begun";
    CrashReadLog: "crash", "read of a log begun";
    CrashRun: "crash", "run of the write-back begun";
    CrashZero: "crash", "zeroing of the back end begun";
    CrashPasses: "crash", "write that passes a log begun";
    CrashBackendFlush: "crash", "flush of the back end begun";
    CrashBackendDone: "crash", "back end did something";
    CrashDiskFlush: "crash", "flush of the cache disk begun";
    CrashDiskDone: "crash", "cache disk did something";
    CrashSlot: "crash", "write of a slot begun";
    CrashTable: "crash", "write of the table begun";
    CrashIntent: "crash", "write of an intent map begun";
    CrashReply: "crash", "reply given";
    CrashOpening: "crash", "while logs are opened";
    CrashSettling: "crash", "while what was recovered is read";

    StateImage: "state", "back end looked at without the cache disk";
    StateImageOpen: "state", "back end held more than one value of a sector";
    StateImageFollows: "state", "back end was at the last boundary";
    StateImageLags: "state", "back end was eight boundaries behind, or more";
    StateBack: "state", "write-back";
    StateBackThrough: "state", "write-through, over a log";
    StatePolicyLocal: "state", "a flush is for the log";
    StatePolicyBackend: "state", "a flush is for the back end";
    StateLogRecovered: "state", "records recovered";
    StateLogEmpty: "state", "empty log recovered";
    StateLogAgain: "state", "crash while a start was not over";
    StateLogFull: "state", "log full";
    StateSettled: "state", "volume read whole after a start";
    StateLost: "state", "start with sectors lost";
    StateLossAccepted: "state", "loss accepted";
    StateLostRead: "state", "read of what is lost refused";
    StatePersisted: "state", "flush that promises nothing";
    StateBelowQueued: "state", "eight requests in flight below the cache";
    StateMemoryHit: "state", "hit in memory";
    StateDiskHit: "state", "hit on disk";
    StateSplitHit: "state", "hit served by the back end";
    StateSplitFailover: "state", "hit served by the cache disk after all";
    StateMiss: "state", "miss";
    StateRecoveringMiss: "state", "miss while recovering";
    StateHedged: "state", "slow slot read hedged";
    StateStoreSkipped: "state", "page not kept";
    StateBadBlock: "state", "bad block found";
    StateDetached: "state", "cache disk given up";
    StateMemoryOnly: "state", "no cache disk";
    StateWarmStart: "state", "start with a warm table";
    StateColdStart: "state", "start cold";
    StateCleanStart: "state", "start after an orderly stop";
    StateUncleanStart: "state", "start with regions in flight";
    StateGenerationPassed: "state", "start with a cache disk that missed writes";
    StateOverlap: "state", "overlapping writes in flight";
    StateReadUnderWrite: "state", "read under an overlapping write";
    StateEvictedMemory: "state", "memory full";
    StateEvictedDisk: "state", "disk full";
    StateThrough: "state", "write-through";
    StateAround: "state", "write-around";
    StatePass: "state", "pass-through";
    StateReadOnly: "state", "read-only";
    StateIntentOff: "state", "intent map off";
    StateNbd: "state", "NBD back end";
    StateLocal: "state", "local back end";
    StateCoarse: "state", "back end with 4 KiB sectors";
    StateReplay: "state", "unflushed writes replayed";
    StateStream: "state", "sequential stream";
    StateWholeReadBack: "state", "whole volumes compared through the cache";
    StateTableChecked: "state", "valid block on the cache disk compared with the back end";
    StateCutTurn: "state", "crash in the middle of a turn";
    StateCutStop: "state", "crash in the middle of an orderly stop";
    StateOldSlot: "state", "stale block on the cache disk, unbelieved for its region";
}

/// See the module. `C`: what is counted; `B`: bugs that may be planted.
#[derive(Debug)]
pub struct Ledger<C = Count, B = Bug> {
    now_ns: Cell<u64>,
    counts: RefCell<Vec<u64>>,
    digest: Cell<u64>,
    ios: Cell<u64>,
    /// The first I/O that has no effect.
    cut_at: Cell<u64>,
    /// The power goes out at the n-th of a kind.
    fuse: Cell<Option<(usize, u64)>>,
    /// Somebody blocks until an operation ends, and has to be told when it cannot.
    pub is_awaited: Cell<bool>,
    bug: Option<B>,
    verbose: bool,
    counted: PhantomData<C>,
}

/// The ledger, shared by all parts of a world.
pub type SharedLedger = Rc<Ledger>;

impl<C: Counted, B: Copy + PartialEq> Ledger<C, B> {
    /// An empty one of a run with that bug; `verbose`: print each line.
    #[must_use]
    pub fn new(bug: Option<B>, verbose: bool) -> Rc<Self> {
        Rc::new(Self {
            now_ns: Cell::new(0),
            counts: RefCell::new(vec![0; C::ALL.len()]),
            digest: Cell::new(0),
            ios: Cell::new(0),
            cut_at: Cell::new(u64::MAX),
            fuse: Cell::new(None),
            is_awaited: Cell::new(false),
            bug,
            verbose,
            counted: PhantomData,
        })
    }

    /// Virtual time, which the reactor moves.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Time has come to `now_ns`.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    /// Counts one, with what identifies it.
    pub fn count(&self, what: C, a: u64, b: u64) {
        self.counts.borrow_mut()[what.place()] += 1;
        let digest = mix64(self.digest.get() ^ (what.place() as u64) << 56 ^ self.now_ns.get());
        self.digest.set(mix64(mix64(digest ^ a) ^ b));
        if self.verbose {
            let (group, text) = what.name();
            self.say(|| format!("{group}: {text} ({a}, {b})"));
        }
        match self.fuse.get() {
            Some((armed, 0)) if armed == what.place() && !self.is_cut() => self.cut_after(0),
            Some((armed, nth)) if armed == what.place() && nth > 0 => self.fuse.set(Some((armed, nth - 1))),
            _ => {}
        }
    }

    /// The power goes out when this is counted for the n-th time from now, beginning at 0.
    pub fn cut_at(&self, what: C, nth: u64) {
        self.fuse.set(Some((what.place(), nth)));
    }

    /// A device is given an operation, or ends one. False: the power is out, and it has no effect.
    pub fn io(&self) -> bool {
        let on = !self.is_cut();
        self.ios.set(self.ios.get() + 1);
        on
    }

    /// How often [`Self::io`] was called.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.ios.get()
    }

    /// The power goes out after so many I/Os from now.
    pub fn cut_after(&self, ios: u64) {
        self.fuse.set(None);
        self.cut_at.set(self.ios.get() + ios);
    }

    /// The power is on, and stays on.
    pub fn restore(&self) {
        self.fuse.set(None);
        self.cut_at.set(u64::MAX);
    }

    /// The power is out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.ios.get() >= self.cut_at.get()
    }

    /// Whether the run has that bug.
    #[must_use]
    pub fn has(&self, bug: B) -> bool {
        self.bug == Some(bug)
    }

    /// The bug that the run has.
    #[must_use]
    pub fn bug(&self) -> Option<B> {
        self.bug
    }

    /// Counts `n` at once.
    pub fn add(&self, what: C, n: u64) {
        self.counts.borrow_mut()[what.place()] += n;
    }

    /// Mixes bytes' meaning into the digest.
    pub fn mix(&self, word: u64) {
        self.digest.set(mix64(self.digest.get() ^ word));
    }

    /// Prints a line, if lines are printed.
    #[expect(clippy::print_stdout, reason = "a replay is read")]
    pub fn say(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            let now_ns = self.now_ns.get();
            println!("{:>6}.{:09} {}", now_ns / 1_000_000_000, now_ns % 1_000_000_000, line());
        }
    }

    /// How often each was counted.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        self.counts.borrow().clone()
    }

    /// How often one was counted.
    #[must_use]
    pub fn count_of(&self, what: C) -> u64 {
        self.counts.borrow()[what.place()]
    }

    /// The digest of everything so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.get()
    }
}
