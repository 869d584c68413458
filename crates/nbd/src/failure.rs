//! Which NBD error a failed request gets: one table.
//!
//! NBD has no "busy": a client that goes over the shard's limits is told ENOMEM, which clients treat as passing.

use forebay_core::ReplyError;
use forebay_wire::nbd::constants::Errno;

/// The error number and the words (ASCII, at most 38 bytes, so that a reply's head stays small).
pub(crate) fn of_reply(error: ReplyError) -> (Errno, &'static str) {
    match error {
        ReplyError::Invalid => (Errno::Invalid, "range or length not possible here"),
        ReplyError::ReadOnly => (Errno::Permission, "the volume is read-only"),
        ReplyError::Io => (Errno::Io, "the back end failed or timed out"),
        ReplyError::Busy => (Errno::NoMemory, "too many requests in flight"),
        ReplyError::Unsupported => (Errno::NotSupported, "the back end cannot do this"),
        ReplyError::ShuttingDown => (Errno::Shutdown, "the server is shutting down"),
    }
}

/// The words for an error found before the core was asked.
pub(crate) fn words(errno: Errno) -> &'static str {
    match errno {
        Errno::Permission => "the volume is read-only",
        Errno::Invalid => "command, flag, length or range invalid",
        Errno::NoSpace => "past the end of the volume",
        Errno::Overflow => "too long for an unfragmented read",
        Errno::Io | Errno::NoMemory | Errno::NotSupported | Errno::Shutdown => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::HEAD_BYTES_MAX;
    use forebay_wire::nbd::reply;

    #[test]
    fn every_error_fits_the_head_of_a_reply() {
        use ReplyError::*;
        let replies = [Invalid, ReadOnly, Io, Busy, Unsupported, ShuttingDown].map(of_reply);
        let refusals = crate::ERRNOS.map(|errno| (errno, words(errno)));
        for (errno, words) in replies.into_iter().chain(refusals) {
            let chunk = reply::error(1, errno, words, Some(0), true);
            assert!(chunk.as_bytes().len() <= HEAD_BYTES_MAX, "{words}");
        }
    }
}
