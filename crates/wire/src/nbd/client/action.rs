//! The words between the client and its driver: operations in, actions out.

use crate::nbd::Terms;
use crate::nbd::constants::{CommandFlags, Errno};
use crate::nbd::request::{self, Command, REQUEST_BYTES};

/// The caller's name for an operation and its buffer. Any value; unique among the operations outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One of the places for a connection, `0..connections_max`. A place is used again after its connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub(super) u8);

impl Conn {
    /// The place's number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The name of a copy of written bytes that the driver keeps, `0..held_count_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldId(pub(super) u32);

impl HeldId {
    /// The copy's number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fills the token's buffer.
    Read,
    /// Writes the token's buffer.
    Write,
    /// Makes the range read as zeroes.
    WriteZeroes {
        /// Do not punch a hole.
        no_hole: bool,
    },
    /// Says that the range is not needed; what it reads as afterwards is undefined.
    Trim,
    /// Makes every write answered before this was submitted durable. Offset and length are 0.
    Flush,
}

impl Kind {
    /// True for what changes the export's contents.
    pub fn changes(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteZeroes { .. } | Kind::Trim)
    }
}

/// One operation on the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What to do.
    pub kind: Kind,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// Durable before it completes. Only for what changes contents.
    pub fua: bool,
}

impl Op {
    /// A flush.
    pub const FLUSH: Op = Op { kind: Kind::Flush, offset: 0, length: 0, fua: false };

    pub(super) fn range(&self) -> Range {
        Range { start: self.offset, end: self.offset.saturating_add(u64::from(self.length)) }
    }
}

/// Bytes `start..end` of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    pub(super) fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// An operation on its way: what to send, under which cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back in the reply. Never used twice in the life of a client.
    pub cookie: u64,
    /// What is asked. `fua` is set only when the server understands it.
    pub op: Op,
}

impl Request {
    /// The request on the wire; for a write, its payload follows.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let (command, no_hole) = match self.op.kind {
            Kind::Read => (Command::Read, false),
            Kind::Write => (Command::Write, false),
            Kind::WriteZeroes { no_hole } => (Command::WriteZeroes, no_hole),
            Kind::Trim => (Command::Trim, false),
            Kind::Flush => (Command::Flush, false),
        };
        let flag = |set, flag| if set { flag } else { CommandFlags::NONE };
        let flags = flag(self.op.fua, CommandFlags::FUA).with(flag(no_hole, CommandFlags::NO_HOLE));
        let (cookie, offset, length) = (self.cookie, self.op.offset, self.op.length);
        request::Request { flags, command, cookie, offset, length }.encode()
    }

    /// Which of its connection's `in_flight_max` places the request takes.
    pub fn place(&self) -> usize {
        cookie_place(self.cookie)
    }
}

pub(super) fn cookie_place(cookie: u64) -> usize {
    usize::from(cookie as u16)
}

/// Where the bytes of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// There are none.
    None,
    /// In the caller's buffer: written from it, or read into it.
    Caller(Token),
    /// In a copy kept since [`Action::Hold`].
    Held(HeldId),
}

/// An order to the driver. Orders are carried out in the order they are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect and shake hands. Answer with `handle_connected` or `handle_connect_failed`, once.
    Connect {
        /// For which place.
        conn: Conn,
    },
    /// Give the connection (or the attempt) up. Nothing may touch any buffer for it any more when the driver answers
    /// with `handle_closed` (or `handle_connect_failed`), once.
    Close {
        /// Which one.
        conn: Conn,
        /// Why.
        why: CloseWhy,
    },
    /// Send a request. A connection found dead meanwhile ignores it and is reported closed.
    Send {
        /// On which connection.
        conn: Conn,
        /// What to encode.
        request: Request,
        /// The bytes to send, or for a read the buffer to fill.
        payload: Payload,
    },
    /// Keep a copy of the first `length` bytes of the token's buffer, until released.
    Hold {
        /// Whose buffer.
        token: Token,
        /// The copy's name.
        held: HeldId,
        /// How many bytes.
        length: u32,
    },
    /// Forget a copy.
    Release {
        /// Which copy.
        held: HeldId,
    },
    /// The operation ended; its buffer is the caller's again.
    Complete {
        /// Which one.
        token: Token,
        /// How.
        result: Result<(), Failure>,
    },
    /// What the export holds here may not be what was written or read: whoever caches the range drops it.
    InDoubt {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Answered writes may be gone. Otherwise only what was read of the range may be older than what it holds.
        is_lost: bool,
    },
    /// Something worth a log line. Nothing to do.
    Report(Report),
}

/// Why an operation failed; each says what it means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server's final word. What a failed write left behind is undefined.
    Server(Errno),
    /// The deadline passed before it could be sent. It had no effect.
    Unsent,
    /// It was sent, and the deadline passed without an answer. A write may or may not have happened, wholly or partly.
    Unanswered,
    /// Flush (or FUA): writes acknowledged earlier may be lost. `InDoubt` named the ranges.
    InDoubt,
    /// The operation does not fit the export. A mistake of the caller.
    Invalid(Invalid),
    /// The export is read-only.
    ReadOnly,
    /// The export cannot do this. Do it another way, or not at all.
    Unsupported,
}

/// How an operation does not fit the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// No bytes.
    Empty,
    /// It ends after the export's end.
    OutOfRange,
    /// Not on the export's block boundaries.
    Misaligned,
    /// More payload than the export takes, or than may be held.
    TooLong,
}

/// Why `submit` did not take an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `outstanding_max` operations are outstanding. Submit again after a completion.
    Full,
    /// `stop` was called.
    Stopped,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The peer closed or reset it: end of file or an error was seen.
    Peer,
    /// We gave it up without seeing the peer's end. The server may still be working on what it received.
    Us,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWhy {
    /// No handshake within `connect_timeout_ns`.
    ConnectTimeout,
    /// A request was not answered by its deadline.
    RequestTimeout,
    /// A reply to nothing that was asked.
    UnknownCookie,
    /// The server answered ESHUTDOWN. Send a disconnect request first if that is easy.
    ServerStopping,
    /// The export is not what it was.
    ExportChanged,
    /// The client stops. Send a disconnect request first.
    Stopped,
}

/// What the log should tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A connection is ready.
    Connected {
        /// Which one.
        conn: Conn,
    },
    /// The next attempt to connect is made after the delay.
    Retrying {
        /// Which one.
        conn: Conn,
        /// Failed attempts and lost connections in a row.
        failures: u32,
        /// Until the next attempt.
        retry_in_ns: u64,
    },
    /// A connection ended.
    Lost {
        /// Which one.
        conn: Conn,
        /// Requests that it leaves unanswered.
        unanswered: u32,
    },
    /// Held writes are being sent again.
    ReplayStarted {
        /// How many.
        count: u32,
        /// Their payload.
        bytes: u64,
    },
    /// All held writes were answered again.
    ReplayFinished,
    /// The server refused a held write that it had acknowledged before.
    ReplayRefused {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// What it said.
        error: Errno,
    },
    /// The server failed a flush.
    FlushFailed {
        /// What it said.
        error: Errno,
        /// Acknowledged writes that are in doubt for it.
        in_doubt: u32,
    },
    /// The export that the server now offers is not the one we knew: refused until it is again.
    ExportChanged {
        /// What it was.
        known: Terms,
        /// What it is.
        offered: Terms,
    },
}
