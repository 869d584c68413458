//! Opens a back end from what a user named: a path, an NBD export, or memory.
//!
//! What it gives back is a device with 512-byte sectors, whatever is behind it, and what the cache disk remembers of
//! the back end: an identity, by which a cache disk of another back end is found out, and the time of the last
//! modification, where there is one.
//!
//! The identity is a hash (FNV-1a, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>) of what the user wrote, and
//! for a regular file of its inode, so that another file under the same name is another back end. Device numbers are
//! left out: they change from boot to boot.

use std::fmt;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forebay_uring::{Arena, ArenaId, FileKind, OpenOptions};

use super::file::FileDevice;
use super::memory::Memory;
use super::nbd::{NbdDevice, NbdOpenError, NbdOptions, NbdStatus, NbdTarget};
use super::sectors::Sectors;
use crate::device::Device;
use crate::ring_reactor::RingReactor;

/// Operations of a file that may be in the ring at a time.
const FILE_OPS_MAX: u32 = 256;

/// A back end, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendSpec {
    /// A file or block device.
    Path(PathBuf),
    /// An NBD export.
    Nbd(NbdTarget),
    /// Memory, of so many bytes.
    Memory {
        /// Its size.
        bytes: u64,
    },
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Nbd(target) => write!(f, "{target}"),
            Self::Memory { bytes } => write!(f, "memory:{bytes}"),
        }
    }
}

/// How to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendOptions {
    /// For writing, too.
    pub write: bool,
    /// Of an NBD export.
    pub nbd: NbdOptions,
    /// How long to wait for an NBD server at the start.
    pub open_timeout_ns: u64,
}

/// What a back end is opened into.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The shard's reactor.
    pub reactor: &'a mut RingReactor,
    /// The arena with the callers' frames.
    pub frames: ArenaId,
    /// Frames of it that belong to this back end alone: bounce buffers, used if its sectors are 4096 bytes.
    pub bounces: Range<u32>,
}

/// An open back end.
pub struct Backend {
    /// The device; its sectors are 512 bytes.
    pub device: Box<dyn Device>,
    /// What it is, for the cache disk.
    pub identity: u64,
    /// When it was last modified; 0: unknown.
    pub mtime_ns: i64,
    /// How the connections are, for metrics; of NBD only.
    pub nbd: Option<NbdStatus>,
}

/// Why a back end cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A file or block device.
    #[error("the back end {0}")]
    File(#[from] forebay_uring::Error),
    /// An NBD export.
    #[error(transparent)]
    Nbd(#[from] NbdOpenError),
    /// There is nothing to serve.
    #[error("the back end {spec} has no whole sector of 512 bytes: give it a size")]
    Empty {
        /// The back end.
        spec: BackendSpec,
    },
}

impl BackendSpec {
    /// How many operations of the ring an open back end takes.
    #[must_use]
    pub fn ops_max(&self, options: &BackendOptions) -> u32 {
        match self {
            Self::Path(_) => FILE_OPS_MAX,
            Self::Nbd(_) => NbdDevice::ops_max(&options.nbd),
            Self::Memory { .. } => 0,
        }
    }

    /// Memory that an open back end takes, its content included if that is memory.
    #[must_use]
    pub fn memory_bytes(&self, options: &BackendOptions) -> u64 {
        match self {
            Self::Path(_) => 0,
            Self::Nbd(_) => NbdDevice::memory_bytes(&options.nbd),
            Self::Memory { bytes } => *bytes,
        }
    }

    /// When the back end was last modified; 0: unknown. Blocks.
    #[must_use]
    pub fn mtime_ns(&self) -> i64 {
        match self {
            Self::Path(path) => file_facts(path).map_or(0, |(_, mtime_ns)| mtime_ns),
            Self::Nbd(_) | Self::Memory { .. } => 0,
        }
    }

    /// What the back end is, as the cache disk remembers it. Blocks.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let name = fnv1a(FNV_OFFSET, self.to_string().as_bytes());
        match self {
            Self::Path(path) => file_facts(path).map_or(name, |(inode, _)| fnv1a(name, &inode.to_le_bytes())),
            Self::Nbd(_) | Self::Memory { .. } => name,
        }
    }

    /// Opens it; blocks until it is there, or the time is up.
    ///
    /// # Errors
    /// See [`BackendError`].
    pub fn open(&self, options: &BackendOptions, around: Surroundings<'_>) -> Result<Backend, BackendError> {
        let Surroundings { reactor, frames, bounces } = around;
        let port = reactor.port(self.ops_max(options));
        let arena = port.arena(frames);
        let mut nbd = None;
        let device: Box<dyn Device> = match self {
            Self::Path(path) => {
                let open = OpenOptions { write: options.write, direct: true, exclusive: options.write, create: false };
                let device = FileDevice::open(port, frames, path, open)?;
                if device.facts().kind == FileKind::Regular && device.facts().size_bytes != device.geometry().bytes {
                    tracing::warn!(path = %path.display(), bytes = device.facts().size_bytes,
                        "the size is no multiple of 512: the bytes behind the last whole sector are not served");
                }
                Box::new(device)
            }
            Self::Nbd(target) => {
                let until_ns = forebay_uring::monotonic_ns().saturating_add(options.open_timeout_ns);
                let device = NbdDevice::open(port, frames, target.clone(), options.nbd, reactor, until_ns)?;
                nbd = Some(device.status());
                Box::new(device)
            }
            Self::Memory { bytes } => Box::new(Memory::new(Rc::clone(&arena), *bytes)),
        };
        if device.geometry().bytes == 0 {
            return Err(BackendError::Empty { spec: self.clone() });
        }
        Ok(Backend {
            device: with_small_sectors(device, arena, bounces),
            identity: self.identity(),
            mtime_ns: self.mtime_ns(),
            nbd,
        })
    }
}

fn with_small_sectors(device: Box<dyn Device>, arena: Rc<Arena>, bounces: Range<u32>) -> Box<dyn Device> {
    match device.geometry().sector_bytes {
        512 => device,
        _ => Box::new(Sectors::new(device, arena, bounces)),
    }
}

/// Inode and time of the last modification of a regular file.
fn file_facts(path: &Path) -> Option<(u64, i64)> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((metadata.ino(), metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv1a(from: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_uring::Limits;

    fn open(spec: &BackendSpec) -> Result<Backend, BackendError> {
        let mut reactor = RingReactor::new(Limits { ops_max: 512, fds_max: 8 }).unwrap();
        let arena = Rc::new(Arena::new(4, 65536).unwrap());
        let frames = reactor.add_arena(arena);
        let options = BackendOptions { write: true, nbd: NbdOptions::default(), open_timeout_ns: 50_000_000 };
        spec.open(&options, Surroundings { reactor: &mut reactor, frames, bounces: 3..4 })
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn another_file_under_the_same_name_is_another_back_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        let spec = BackendSpec::Path(path.clone());
        std::fs::write(&path, [0; 8192]).unwrap();
        let first = open(&spec).unwrap();
        assert_eq!(first.device.geometry().bytes, 8192);
        assert!(first.mtime_ns > 0);
        assert_eq!(first.identity, spec.identity());
        // The old file stays, so that its inode is not used again.
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        assert_ne!(first.identity, spec.identity());
        assert_eq!(BackendSpec::Memory { bytes: 7 }.identity(), BackendSpec::Memory { bytes: 7 }.identity());
    }

    #[test]
    fn errors_name_the_back_end_the_cause_and_the_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let message = |spec: BackendSpec| open(&spec).map(|_| ()).unwrap_err().to_string();
        let missing = message(BackendSpec::Path(directory.path().join("missing")));
        assert!(missing.contains("missing cannot be opened") && missing.contains("check the path"), "{missing}");
        let empty = directory.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert!(message(BackendSpec::Path(empty)).contains("give it a size"));
        let address = super::super::nbd::NbdAddress::Unix(directory.path().join("nobody"));
        let nobody = message(BackendSpec::Nbd(NbdTarget { address, export: "vm".to_owned() }));
        assert!(nobody.contains("nbd+unix:///vm?socket=") && nobody.contains("start the server"), "{nobody}");
    }
}
