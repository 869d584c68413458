//! The one error type of this crate: what failed, why, and what to do next.
//!
//! The result of a single operation is not an [`Error`] but an [`Errno`] in its completion.

use std::fmt;

use rustix::io::Errno;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The kernel or its settings refuse io_uring: no retry will help; tell the user.
    Unavailable,
    /// Somebody else holds the file or device: tell the user who; nothing was changed.
    InUse,
    /// A limit of the machine or of this ring was reached: ask for less, or raise the limit.
    Limit,
    /// The file or device cannot be used as asked (missing, wrong kind, not allowed, too small).
    Unusable,
    /// An I/O error: the device or file system answered with it.
    Io,
}

/// An error of setting something up. It displays as one line: the thing, the cause, the next step.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    errno: Option<Errno>,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, errno: Option<Errno>, message: impl Into<String>) -> Self {
        Error { kind, errno, message: message.into() }
    }

    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The kernel's error number, where one is behind it.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
