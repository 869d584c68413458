//! What a ring can be asked to do, as data.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::Address;

/// Most pieces (iovecs) in one vectored send or receive: 64 replies of a header and a payload each.
pub const PIECES_MAX: usize = 128;
/// Most bytes of [`Piece::Bytes`] in one vectored send; they are copied into the ring.
pub const HEADER_BYTES_MAX: usize = 4096;

/// A file descriptor that the ring owns. Stale after [`super::Ring::close`] or
/// [`super::Ring::take`]; using a stale one panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fd {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// An arena that the ring was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaId(pub(super) u8);

/// A range of bytes that starts in one frame of one arena; it may run on into the frames behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buf {
    /// Which arena.
    pub arena: ArenaId,
    /// Which frame of it.
    pub frame: u32,
    /// First byte of the range within the frame.
    pub at: u32,
    /// Bytes of the range, at least 1.
    pub len: u32,
}

impl Buf {
    /// What is left of a range after its first `bytes` were moved. `frame_bytes` is the size of a
    /// frame of its arena.
    #[must_use]
    pub fn rest(self, bytes: u32, frame_bytes: u32) -> Buf {
        assert!(bytes < self.len, "nothing is left of {} bytes after {bytes}", self.len);
        let at = u64::from(self.at) + u64::from(bytes);
        let frames = (at / u64::from(frame_bytes)) as u32;
        let at = (at % u64::from(frame_bytes)) as u32;
        Buf { frame: self.frame + frames, at, len: self.len - bytes, ..self }
    }
}

/// A piece of a vectored send.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A few bytes, such as a reply header; copied, so they need not outlive the call.
    Bytes(&'a [u8]),
    /// A range of a frame; not copied, held until the operation completes.
    Frame(Buf),
}

/// How [`Op::Fallocate`] changes the space behind a range; the file's size never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceChange {
    /// Give the space back; the range reads as zeroes afterwards. `OPNOTSUPP` where the file
    /// system or device cannot.
    Punch,
    /// Make the range read as zeroes, keeping or giving back the space as the device prefers.
    Zero,
}

/// What [`Op::Poll`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Something can be read, or the peer is gone.
    Readable,
    /// Something can be written, or the peer is gone.
    Writable,
}

/// One operation. Slices are copied while submitting; frames are held until completion.
///
/// The `result` of the [`Completion`] is the number of bytes moved where bytes are moved, else 0.
/// Reads, writes, sends and receives may be *short*: the caller submits the rest. A read or receive
/// of 0 bytes is the end of the file or of the connection.
#[derive(Debug)]
pub enum Op<'a> {
    /// Read `buf.len` bytes of the file from byte `at`.
    Read {
        /// File or block device.
        fd: Fd,
        /// First byte in the file.
        at: u64,
        /// Where to.
        buf: Buf,
    },
    /// Write `buf.len` bytes to the file from byte `at`.
    Write {
        /// File or block device.
        fd: Fd,
        /// First byte in the file.
        at: u64,
        /// Where from.
        buf: Buf,
        /// Complete only when the bytes are durable (`RWF_DSYNC`).
        dsync: bool,
    },
    /// Make completed writes durable. Writes still in flight are not covered.
    Fsync {
        /// File or block device.
        fd: Fd,
        /// Data and what is needed to read it back, but no time stamps.
        datasync: bool,
    },
    /// Punch or zero a range of a file or block device.
    Fallocate {
        /// File or block device.
        fd: Fd,
        /// Which of the two.
        change: SpaceChange,
        /// First byte in the file.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Receive up to `buf.len` bytes.
    Recv {
        /// A connected stream socket.
        fd: Fd,
        /// Where to.
        buf: Buf,
        /// Complete only when `buf` is full or the connection ends (a short count then).
        all: bool,
    },
    /// Receive into several ranges, in order.
    RecvVectored {
        /// A connected stream socket.
        fd: Fd,
        /// At most [`PIECES_MAX`] ranges.
        bufs: &'a [Buf],
        /// Complete only when all are full or the connection ends.
        all: bool,
    },
    /// Send all of `buf`; short only if the connection fails on the way.
    Send {
        /// A connected stream socket.
        fd: Fd,
        /// Where from.
        buf: Buf,
    },
    /// Send all pieces in order; short only if the connection fails on the way.
    SendVectored {
        /// A connected stream socket.
        fd: Fd,
        /// At most [`PIECES_MAX`] pieces with at most [`HEADER_BYTES_MAX`] bytes of headers.
        pieces: &'a [Piece<'a>],
        /// Bytes of `pieces` to leave out from the start: already sent by
        /// [`super::Ring::try_send`]. Less than their sum.
        skip_bytes: u64,
    },
    /// Accept one connection; it is in [`Completion::accepted`].
    Accept {
        /// A listening socket.
        fd: Fd,
    },
    /// Connect a socket made by [`crate::stream_socket`].
    Connect {
        /// The socket.
        fd: Fd,
        /// The peer.
        to: &'a Address,
    },
    /// Wait until a descriptor is ready.
    Poll {
        /// Any descriptor that can be polled.
        fd: Fd,
        /// For what.
        ready: Ready,
    },
    /// Complete with 0 when [`crate::monotonic_ns`] reaches `at_ns`.
    Timeout {
        /// The time.
        at_ns: u64,
    },
}

/// What became of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The token that the operation was submitted with.
    pub token: u64,
    /// Bytes moved (0 for operations that move none), or the kernel's error. `CANCELED` after
    /// [`super::Ring::cancel`] or [`super::Ring::close`].
    pub result: Result<u32, Errno>,
    /// The connection that an [`Op::Accept`] brought.
    pub accepted: Option<OwnedFd>,
}

/// No room for the operation now: [`super::Ring::wait`], then submit it again. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;
