//! Where a stream socket connects to.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::Error;

/// The address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// A stream socket of the right family for `to`, not yet connected ([`crate::Op::Connect`]); for
/// TCP, without Nagle's delay.
pub fn stream_socket(to: &Address) -> Result<OwnedFd, Error> {
    let _ = to;
    todo!()
}
