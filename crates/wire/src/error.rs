//! The crate's one error type; its kinds say what the caller should do.

use alloc::string::String;
use core::fmt;

/// Why something could not be agreed, decoded or laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The peer broke the protocol. Close the connection; a new one may fare better.
    Protocol {
        /// What the peer did.
        what: &'static str,
    },
    /// The peer understood and said no. Repeating the same question gets the same answer.
    Refused {
        /// The NBD option reply type (`NBD_REP_ERR_*`), or 0 when the peer only hung up.
        reply: u32,
        /// The peer's own words, at most 256 characters; may be empty.
        message: String,
    },
    /// The peer is going away or went away. Connect again later.
    Unavailable {
        /// What was seen.
        what: &'static str,
    },
    /// A value given by the caller does not fit the format. Change the configuration.
    Limit {
        /// Which value.
        what: &'static str,
        /// What it was.
        actual: u64,
        /// The limit it broke: see `what` for which side of it is allowed.
        limit: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Protocol { what } => write!(f, "the NBD peer broke the protocol: {what}"),
            Error::Refused { reply, message } => {
                f.write_str(crate::nbd::constants::option_error_text(*reply))?;
                if message.is_empty() { Ok(()) } else { write!(f, " (it says: {message})") }
            }
            Error::Unavailable { what } => write!(f, "the NBD peer is not available: {what}"),
            Error::Limit { what, actual, limit } => write!(f, "{what}: {actual}, but the limit is {limit}"),
        }
    }
}

impl core::error::Error for Error {}
