//! What a front end and a listener have seen, as plain numbers for metrics.

use forebay_wire::nbd::constants::Errno;
use forebay_wire::nbd::request::Command;

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$label_doc:meta])* $label:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$label_doc])* $label,)* }

        impl $name {
            /// Every one, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$label,)*];

            /// The name in metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$label => $text,)* }
            }
        }
    };
}

labels! {
    /// The kinds of requests that are told apart.
    RequestKind {
        /// Read.
        Read = "read",
        /// Write.
        Write = "write",
        /// Flush.
        Flush = "flush",
        /// Trim.
        Trim = "trim",
        /// Write zeroes.
        WriteZeroes = "write_zeroes",
        /// Disconnect.
        Disconnect = "disconnect",
        /// Anything else: refused.
        Other = "other",
    }
}

impl RequestKind {
    pub(crate) fn of(command: Command) -> Self {
        match command {
            Command::Read => Self::Read,
            Command::Write => Self::Write,
            Command::Flush => Self::Flush,
            Command::Trim => Self::Trim,
            Command::WriteZeroes => Self::WriteZeroes,
            Command::Disconnect => Self::Disconnect,
            Command::Cache | Command::BlockStatus | Command::Unknown(_) => Self::Other,
        }
    }
}

labels! {
    /// Why a connection was closed.
    CloseReason {
        /// The client said goodbye.
        Disconnect = "disconnect",
        /// The client closed between two requests.
        EndOfStream = "end_of_stream",
        /// The client closed inside a request.
        Truncated = "truncated",
        /// The connection failed.
        Reset = "reset",
        /// What came is not NBD.
        Garbage = "garbage",
        /// A refused write announced more payload than is worth draining.
        Oversized = "oversized",
        /// The client did not take its replies, or did not deliver a payload, in time.
        Stalled = "stalled",
        /// A read failed after the head of its simple reply was out; the protocol knows no other way to say so.
        ReadFailed = "read_failed",
        /// The server stops.
        Stopped = "stopped",
    }
}

/// The error numbers that replies carry, in the order of [`Counters::errors`].
pub const ERRNOS: [Errno; 8] = [
    Errno::Permission,
    Errno::Io,
    Errno::NoMemory,
    Errno::Invalid,
    Errno::NoSpace,
    Errno::Overflow,
    Errno::NotSupported,
    Errno::Shutdown,
];

/// What a shard's front end has seen since it began. A copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections taken over from the listener.
    pub connections: u64,
    /// Of these, how many are open now.
    pub connections_open: u64,
    /// Connections that could not be taken over (no descriptor or no room).
    pub connections_refused: u64,
    /// Connections closed, by [`CloseReason`].
    pub closed: [u64; CloseReason::ALL.len()],
    /// Requests, by [`RequestKind`].
    pub requests: [u64; RequestKind::ALL.len()],
    /// Requests that failed, by [`ERRNOS`].
    pub errors: [u64; ERRNOS.len()],
    /// Payload bytes of writes received.
    pub payload_bytes_in: u64,
    /// Payload bytes of reads sent.
    pub payload_bytes_out: u64,
    /// Batches of replies given to sockets.
    pub sends: u64,
    /// Times that a client's socket was full.
    pub sends_blocked: u64,
}

impl Counters {
    pub(crate) fn count_error(&mut self, errno: Errno) {
        let place = ERRNOS.iter().position(|&listed| listed == errno);
        self.errors[place.expect("every error number is listed")] += 1;
    }
}

/// What the listener has seen since it began. A copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Accepting failed (out of descriptors, mostly).
    pub accept_errors: u64,
    /// Handed to a shard.
    pub handed_over: u64,
    /// Turned away: as many clients as are allowed are being served.
    pub turned_away: u64,
    /// Ended by the client in the handshake: it only asked, or hung up.
    pub left: u64,
    /// Given up: broke the protocol in the handshake.
    pub garbage: u64,
    /// Given up: the handshake took too long.
    pub timed_out: u64,
    /// Given up: more handshakes than allowed, and this was the oldest.
    pub displaced: u64,
}
