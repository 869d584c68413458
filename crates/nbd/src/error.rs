//! The crate's one error type: what kept the server from listening.

use std::io;

use thiserror::Error;

/// Why the server cannot listen; each kind says what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody answers at the endpoint: stop that server, or choose another endpoint.
    #[error("{endpoint}: another server answers there: stop it, or listen elsewhere")]
    InUse {
        /// The endpoint.
        endpoint: String,
    },
    /// A file that is not a socket has the socket's name: nothing was removed; move it, or choose another path.
    #[error("{endpoint}: this is a file and not a socket: move it away, or choose another path")]
    NotASocket {
        /// The endpoint.
        endpoint: String,
    },
    /// The endpoint cannot be used as asked: correct the address, the path or the permissions.
    #[error("{endpoint}: cannot listen there ({cause}): check the address and the permissions")]
    Unusable {
        /// The endpoint.
        endpoint: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The system has no thread or descriptor left for the listener: raise its limits.
    #[error("the NBD listener cannot start ({cause}): raise the limits on threads and open files")]
    Limit {
        /// What the system said.
        cause: io::Error,
    },
}
