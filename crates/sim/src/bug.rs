//! Planted bugs: what is known to break a promise, one a run, to see that the simulator notices.
//!
//! Why: a check that never fired may be a check that cannot. Each bug here is a way in which a device, a back end, a
//! host or a front end could lie; none is in the product. A bug that a few hundred seeds do not find is a check that is
//! missing.

/// Bugs that may be planted in a kind of world.
pub trait Planted: Copy + PartialEq + 'static {
    /// All, in order.
    const ALL: &'static [Self];

    /// Its name on the command line.
    fn name(self) -> &'static str;

    /// What it does.
    fn text(self) -> &'static str;

    /// The bug of that name.
    ///
    /// # Errors
    /// The names that there are.
    fn named(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|bug| bug.name()).collect::<Vec<_>>().join(", ");
        Self::ALL.iter().copied().find(|bug| bug.name() == name).ok_or_else(|| format!("there are {}", names()))
    }
}

/// Bugs, a line each.
macro_rules! bugs {
    ($($variant:ident: $name:literal, $text:literal;)*) => {
        /// See the module.
        #[expect(missing_docs, reason = "each has its text")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($variant),* }
        impl $crate::bug::Planted for Bug {
            const ALL: &'static [Bug] = &[$(Bug::$variant),*];

            fn name(self) -> &'static str {
                match self { $(Bug::$variant => $name),* }
            }

            fn text(self) -> &'static str {
                match self { $(Bug::$variant => $text),* }
            }
        }
    };
}
pub(crate) use bugs;

bugs! {
    DiskIgnoresFlush: "disk-ignores-flush", "the cache disk answers flushes and does nothing";
    IntentForgotten: "intent-forgotten", "writes of the intent map are answered and not done";
    TableStale: "table-stale", "the table is read as it was a life ago";
    RotAfterCheck: "rot-after-check", "a read of a slot goes on writing into its frame after it has ended";
    WriteMisdirected: "write-misdirected", "the back end does a write at another place";
    BackendIgnoresFlush: "backend-ignores-flush", "the back end answers flushes and does nothing";
    BackendIgnoresFua: "backend-ignores-fua", "the back end treats FUA writes as any other";
    WriteForgotten: "write-forgotten", "the back end answers a write and does not do it";
    WriteRepeated: "write-repeated", "the back end does a write a second time, later";
    ReadHalved: "read-halved", "the back end fills half of a read's frame";
    LossHidden: "loss-hidden", "a flush that failed and dropped writes is reported as done";
    DoubtHidden: "doubt-hidden", "the driver of the NBD client does not pass on what is in doubt";
    HeldWrong: "held-wrong", "the driver of the NBD client keeps wrong copies for the replay";
    SentEarly: "sent-early", "the front end gives a reply's frames back while the kernel still sends";
    PayloadTorn: "payload-torn", "the front end says received when half of a payload has come";
    GenerationLie: "generation-lie", "the host says that the generation is raised and has not done it";
    RegionsForgotten: "regions-forgotten", "attaching forgets the regions that were in flight";
}
