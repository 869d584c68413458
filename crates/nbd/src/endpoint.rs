//! Where clients connect: unix sockets and TCP addresses.
//!
//! A unix socket's file outlives its server when that is killed. Such a stale file is removed, but only after a
//! connect was refused: that is, when nobody answers. The file gets its permissions before the socket listens, so
//! that nobody slips in earlier. At stop it is removed if it is still the one made here.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::Error;

/// Connections that the kernel keeps for us while the listener is busy.
const BACKLOG: i32 = 128;
/// A TCP peer that is silent for this long is asked whether it still lives, up to [`KEEPALIVE_PROBES`] times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Its permissions: 0600 for the owner alone, 0660 for the group.
        mode: u32,
    },
    /// TCP; port 0 takes any free one.
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: OwnedFd,
    /// The endpoint, with the port that was taken.
    endpoint: Endpoint,
    /// The device and inode of the unix socket's file.
    file: Option<(u64, u64)>,
}

impl Listening {
    pub(crate) fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        match endpoint {
            Endpoint::Unix { path, mode } => open_unix(endpoint, path, *mode),
            Endpoint::Tcp(address) => open_tcp(endpoint, *address),
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next connection, ready for use; `Ok(None)` when there is none now.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let socket = match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            // These concern the one connection, which is gone.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if let Endpoint::Tcp(_) = self.endpoint {
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        }
        Ok(Some(socket))
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let (Endpoint::Unix { path, .. }, Some(file)) = (&self.endpoint, self.file) else { return };
        if file_identity(path).is_ok_and(|now| now == file) {
            // Somebody else may have removed it meanwhile: what was wanted has happened.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn unusable(endpoint: &Endpoint, cause: impl Into<io::Error>) -> Error {
    Error::Unusable { endpoint: endpoint.to_string(), cause: cause.into() }
}

fn open_tcp(endpoint: &Endpoint, address: SocketAddr) -> Result<Listening, Error> {
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::InUse { endpoint: endpoint.to_string() },
        _ => unusable(endpoint, error),
    })?;
    listener.set_nonblocking(true).map_err(|error| unusable(endpoint, error))?;
    let bound = listener.local_addr().map_err(|error| unusable(endpoint, error))?;
    Ok(Listening { socket: listener.into(), endpoint: Endpoint::Tcp(bound), file: None })
}

fn open_unix(endpoint: &Endpoint, path: &Path, mode: u32) -> Result<Listening, Error> {
    remove_stale(endpoint, path)?;
    let usable = |errno: Errno| unusable(endpoint, errno);
    let address = SocketAddrUnix::new(path).map_err(usable)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(usable)?;
    rustix::net::bind(&socket, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => Error::InUse { endpoint: endpoint.to_string() },
        _ => usable(errno),
    })?;
    let file = file_identity(path).map_err(|error| unusable(endpoint, error))?;
    // From here on, dropping it removes the file.
    let listening = Listening { socket, endpoint: endpoint.clone(), file: Some(file) };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|error| unusable(endpoint, error))?;
    rustix::net::listen(&listening.socket, BACKLOG).map_err(usable)?;
    Ok(listening)
}

/// Removes a socket's file that nobody answers at.
fn remove_stale(endpoint: &Endpoint, path: &Path) -> Result<(), Error> {
    let facts = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(endpoint, error)),
    };
    if !facts.file_type().is_socket() {
        return Err(Error::NotASocket { endpoint: endpoint.to_string() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| unusable(endpoint, error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(unusable(endpoint, error)),
        // Connected, or its backlog is full: somebody is there.
        _ => Err(Error::InUse { endpoint: endpoint.to_string() }),
    }
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let facts = std::fs::symlink_metadata(path)?;
    Ok((facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn unix(path: &Path) -> Endpoint {
        Endpoint::Unix { path: path.to_owned(), mode: 0o600 }
    }

    #[test]
    fn a_socket_has_its_mode_and_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listening = Listening::open(&unix(&path)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listening.accept().unwrap().is_none());
        let _client = UnixStream::connect(&path).unwrap();
        assert!(listening.accept().unwrap().is_some());
        drop(listening);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listening::open(&unix(&path)), Err(Error::InUse { .. })));
        drop(other);
        assert!(path.exists(), "std leaves the file behind");
        Listening::open(&unix(&path)).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Listening::open(&unix(&path)), Err(Error::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn anothers_socket_under_the_same_name_is_not_removed_at_stop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listening = Listening::open(&unix(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listening);
        assert!(path.exists());
    }

    #[test]
    fn a_tcp_port_is_taken_once() {
        let any = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
        let listening = Listening::open(&any).unwrap();
        let bound = listening.endpoint().clone();
        assert_ne!(bound, any);
        assert!(matches!(Listening::open(&bound), Err(Error::InUse { .. })));
    }
}
