//! Where a stream socket connects to.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::error::{Error, ErrorKind};

/// The address of a peer.
#[derive(Clone, Debug)]
pub struct Address {
    address: SocketAddrAny,
    family: AddressFamily,
}

impl Address {
    /// TCP over IPv4 or IPv6.
    #[must_use]
    pub fn tcp(to: SocketAddr) -> Address {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        Address { address: to.into(), family }
    }

    /// A unix socket. Errors: `Unusable` if the path is too long for one (108 bytes).
    pub fn unix(path: &Path) -> Result<Address, Error> {
        let address = SocketAddrUnix::new(path).map_err(|errno| {
            let path = path.display();
            let message = format!("{path} is no name for a unix socket ({errno}): use a path of less than 108 bytes");
            Error::new(ErrorKind::Unusable, Some(errno), message)
        })?;
        Ok(Address { address: address.into(), family: AddressFamily::UNIX })
    }

    pub(crate) fn socket_address(&self) -> SocketAddrAny {
        self.address.clone()
    }
}

/// A stream socket of the right family for `to`, not yet connected ([`crate::Op::Connect`]); for
/// TCP, without Nagle's delay.
pub fn stream_socket(to: &Address) -> Result<OwnedFd, Error> {
    let new = socket_with(to.family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = new.map_err(|errno| {
        let message = format!("no socket to be had ({errno}): raise the limit on open files (ulimit -n)");
        Error::new(ErrorKind::Limit, Some(errno), message)
    })?;
    if to.family != AddressFamily::UNIX {
        // A socket that keeps the delay works all the same, only slower.
        let _ = set_tcp_nodelay(&socket, true);
    }
    Ok(socket)
}
