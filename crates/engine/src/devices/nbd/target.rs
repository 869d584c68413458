//! Where an export is, and the addresses behind its name.
//!
//! A host name is resolved before serving begins (that may block), and again whenever connecting failed, on a thread
//! of its own: the shard never waits for a name server, and a back end that moved is found.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use forebay_uring::Address;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// TCP.
    Tcp {
        /// Name or address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTarget {
    /// Its server.
    pub address: NbdAddress,
    /// Its name; may be empty.
    pub export: String,
}

impl fmt::Display for NbdTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = &self.export;
        match &self.address {
            NbdAddress::Tcp { host, port } if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{export}"),
            NbdAddress::Tcp { host, port } => write!(f, "nbd://{host}:{port}/{export}"),
            NbdAddress::Unix(socket) => write!(f, "nbd+unix:///{export}?socket={}", socket.display()),
        }
    }
}

type Resolved = Result<Vec<Address>, String>;

fn resolve(address: &NbdAddress) -> Resolved {
    match address {
        NbdAddress::Unix(path) => Address::unix(path).map(|address| vec![address]).map_err(|error| error.to_string()),
        NbdAddress::Tcp { host, port } => {
            let found = (host.as_str(), *port).to_socket_addrs().map_err(|error| error.to_string())?;
            let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
            if found.is_empty() {
                return Err("the name has no address".to_owned());
            }
            Ok(found.into_iter().map(Address::tcp).collect())
        }
    }
}

const ADDRESSES_MAX: usize = 16;

/// The addresses of a target, tried in turn.
#[derive(Debug)]
pub(super) struct Addresses {
    address: NbdAddress,
    found: Vec<Address>,
    next: usize,
    resolving: Option<Receiver<Resolved>>,
}

impl Addresses {
    /// Resolves the name; blocks.
    pub(super) fn find(address: &NbdAddress) -> Result<Self, String> {
        Ok(Self { found: resolve(address)?, address: address.clone(), next: 0, resolving: None })
    }

    /// The address to try now.
    pub(super) fn current(&mut self) -> &Address {
        match self.resolving.as_ref().map(Receiver::try_recv) {
            Some(Ok(Ok(found))) => (self.found, self.next, self.resolving) = (found, 0, None),
            // The addresses known so far are as good as any.
            Some(Ok(Err(_)) | Err(TryRecvError::Disconnected)) => self.resolving = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        &self.found[self.next % self.found.len()]
    }

    /// Connecting to the current address failed: try the next, and look the name up again meanwhile.
    pub(super) fn failed(&mut self) {
        self.next = (self.next + 1) % self.found.len();
        if self.resolving.is_some() || matches!(self.address, NbdAddress::Unix(_)) {
            return;
        }
        let (sender, receiver) = channel();
        let address = self.address.clone();
        // Nobody may be left to hear it, and without a thread the known addresses stay.
        let lookup = move || drop(sender.send(resolve(&address)));
        if std::thread::Builder::new().name("resolve".to_owned()).spawn(lookup).is_ok() {
            self.resolving = Some(receiver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_as_uris() {
        let target = |address| NbdTarget { address, export: "vm".to_owned() }.to_string();
        let tcp = |host: &str| NbdAddress::Tcp { host: host.to_owned(), port: 10809 };
        assert_eq!(target(tcp("store")), "nbd://store:10809/vm");
        assert_eq!(target(tcp("::1")), "nbd://[::1]:10809/vm");
        assert_eq!(target(NbdAddress::Unix("/run/s".into())), "nbd+unix:///vm?socket=/run/s");
    }

    #[test]
    fn a_failure_moves_on_to_the_next_address_and_looks_again() {
        let address = NbdAddress::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let mut addresses = Addresses::find(&address).unwrap();
        addresses.current();
        addresses.failed();
        assert!(addresses.resolving.is_some());
        let begin = std::time::Instant::now();
        while addresses.resolving.is_some() {
            addresses.current();
            assert!(begin.elapsed() < std::time::Duration::from_secs(10));
        }
        assert_eq!(addresses.found.len(), 1);
    }
}
