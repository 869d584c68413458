//! Where a volume's truth is, as people write it.
//!
//! - `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///[EXPORT]?socket=PATH`, as in the NBD project's URI specification
//!   (percent-encoding included; no TLS yet);
//! - `memory:SIZE`: a memory device, for tests and the demo; its content ends with the process;
//! - anything else is the path of a file or block device.

use super::unit::{Complaint, parse_size, size};
use std::fmt;
use std::path::PathBuf;

/// The port of NBD (IANA).
pub const NBD_PORT: u16 = 10809;
/// The longest path that fits a unix socket's address.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A back end's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// An NBD export over TCP.
    NbdTcp {
        /// Name or address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
        /// The export's name; may be empty.
        export: String,
    },
    /// An NBD export over a unix socket.
    NbdUnix {
        /// The socket.
        socket: PathBuf,
        /// The export's name; may be empty.
        export: String,
    },
    /// A file or block device.
    Path(PathBuf),
    /// A memory device of so many bytes.
    Memory {
        /// Its size.
        bytes: u64,
    },
}

impl Backend {
    /// The back end that `text` names.
    ///
    /// # Errors
    /// When it names none.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let refused = |why: &str| {
            Complaint::new(
                format!("\"{text}\" is not a back end: {why}"),
                "write nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, or the path of a file or block device",
            )
        };
        if let Some(rest) = text.strip_prefix("nbd://") {
            return tcp(rest).map_err(|why| refused(&why));
        }
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            return unix(rest).map_err(|why| refused(&why));
        }
        if let Some(bytes) = text.strip_prefix("memory:") {
            return match parse_size(bytes)? {
                bytes if bytes > 0 && bytes.is_multiple_of(512) => Ok(Self::Memory { bytes }),
                _ => Err(refused("its size is not a positive multiple of 512 bytes")),
            };
        }
        if text.starts_with("nbds") {
            return Err(refused("TLS is not in this version"));
        }
        match text.split_once("://") {
            Some((scheme, _)) => Err(refused(&format!("the scheme \"{scheme}\" is not known"))),
            None if text.is_empty() => Err(refused("it is empty")),
            None => Ok(Self::Path(PathBuf::from(text))),
        }
    }

    /// Whether it is reached through NBD connections.
    #[must_use]
    pub fn is_nbd(&self) -> bool {
        matches!(self, Self::NbdTcp { .. } | Self::NbdUnix { .. })
    }
}

fn tcp(rest: &str) -> Result<Backend, String> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    if export.contains('?') {
        return Err("nbd:// takes no parameters".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or("\"[\" without \"]\"")?;
            (host, after.strip_prefix(':').or_else(|| after.is_empty().then_some("")).ok_or("text follows \"]\"")?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    let port = match port {
        "" => NBD_PORT,
        port => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("\"{port}\" is not a port"))?,
    };
    Ok(Backend::NbdTcp { host: host.to_ascii_lowercase(), port, export: export_name(export)? })
}

fn unix(rest: &str) -> Result<Backend, String> {
    let (path, query) = rest.split_once('?').ok_or("the parameter socket=PATH is missing")?;
    let export = path.strip_prefix('/').ok_or("three slashes are needed before the export's name")?;
    let mut socket = None;
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("socket", value)) => socket = Some(percent_decoded(value)?),
            _ => return Err(format!("the parameter \"{parameter}\" is not known")),
        }
    }
    let socket = socket.filter(|path| !path.is_empty()).ok_or("the parameter socket=PATH is missing")?;
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!("the socket's path is longer than {SOCKET_PATH_BYTES_MAX} bytes"));
    }
    Ok(Backend::NbdUnix { socket: PathBuf::from(socket), export: export_name(export)? })
}

fn export_name(text: &str) -> Result<String, String> {
    let name = percent_decoded(text)?;
    // The NBD protocol's limit on strings.
    if name.len() > 4096 { Err("the export's name is longer than 4096 bytes".into()) } else { Ok(name) }
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let malformed = || format!("\"{text}\" has a \"%\" without two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(malformed)?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("\"{text}\" is not UTF-8 once decoded"))
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NbdTcp { host, port, export } if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{export}"),
            Self::NbdTcp { host, port, export } => write!(f, "nbd://{host}:{port}/{export}"),
            Self::NbdUnix { socket, export } => write!(f, "nbd+unix:///{export}?socket={}", socket.display()),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Memory { bytes } => write!(f, "memory:{}", size(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nbd(host: &str, port: u16, export: &str) -> Backend {
        Backend::NbdTcp { host: host.into(), port, export: export.into() }
    }

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("nbd://10.0.0.5/vm1", nbd("10.0.0.5", NBD_PORT, "vm1")),
            ("nbd://Store:999", nbd("store", 999, "")),
            ("nbd://[::1]:7/a/b", nbd("::1", 7, "a/b")),
            ("nbd://h/a%20b", nbd("h", NBD_PORT, "a b")),
            ("nbd+unix:///vm1?socket=/run/s", Backend::NbdUnix { socket: "/run/s".into(), export: "vm1".into() }),
            ("nbd+unix:///?socket=%2Frun%2Fs", Backend::NbdUnix { socket: "/run/s".into(), export: String::new() }),
            ("/dev/sdb", Backend::Path("/dev/sdb".into())),
            ("disk.img", Backend::Path("disk.img".into())),
            ("memory:256MiB", Backend::Memory { bytes: 256 << 20 }),
        ] {
            assert_eq!(Backend::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_names_no_back_end_says_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("nbd:///vm1", "the host is missing"),
            ("nbd://h:0/x", "\"0\" is not a port"),
            ("nbd://h:x/x", "\"x\" is not a port"),
            ("nbd://[::1/x", "\"[\" without \"]\""),
            ("nbd://[::1]7/x", "text follows"),
            ("nbd://h/x?socket=/s", "takes no parameters"),
            ("nbd+unix:///vm1", "socket=PATH is missing"),
            ("nbd+unix:///vm1?socket=", "socket=PATH is missing"),
            ("nbd+unix://vm1?socket=/s", "three slashes"),
            ("nbd+unix:///vm1?sock=/s", "\"sock=/s\" is not known"),
            ("nbd://h/%4", "without two hexadecimal digits"),
            ("nbd://h/%+1", "without two hexadecimal digits"),
            ("nbd://h/%ff", "not UTF-8"),
            ("nbds://h/x", "TLS is not in this version"),
            ("http://h/x", "the scheme \"http\" is not known"),
            ("memory:1000", "multiple of 512"),
            ("memory:0", "multiple of 512"),
            ("memory:1G", "is not a size"),
        ] {
            let complaint = Backend::parse(text).expect_err(text);
            assert!(complaint.problem.contains(why), "{text}: {complaint:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "(nbd://|nbd\\+unix:///|memory:|)[%\\[\\]:/?=&a-f0-9é]{0,20}") {
            let _ = Backend::parse(&text);
        }

        #[test]
        fn what_is_shown_reads_back(host in "[a-z0-9.]{1,8}", port in 1u16.., export in "[a-z0-9/]{0,8}") {
            let backend = nbd(&host, port, &export);
            prop_assert_eq!(Backend::parse(&backend.to_string()), Ok(backend));
        }
    }
}
