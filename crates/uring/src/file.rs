//! Opening a file or block device as a cache disk or back end, and finding out what it can do.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use crate::Error;

/// What was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
}

/// Whether the page cache of the kernel is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// `O_DIRECT` is on.
    On,
    /// The file system refused `O_DIRECT` with this error; I/O goes through the page cache.
    Refused(Errno),
    /// It was not asked for.
    Off,
}

/// How the space of a new or resized file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// All of it is allocated now: later writes cannot fail for want of space.
    Allocated,
    /// It is allocated as it is written.
    Sparse,
}

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// For writing, too.
    pub write: bool,
    /// Ask for `O_DIRECT`; a refusal is reported in [`FileFacts::direct`], not an error.
    pub direct: bool,
    /// Lock out others (and be locked out): `flock`, and `O_EXCL` on a block device.
    pub exclusive: bool,
    /// Make the file if it is missing.
    pub create: bool,
}

/// What was found out about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Regular file or block device.
    pub kind: FileKind,
    /// Size now.
    pub size_bytes: u64,
    /// Offsets and lengths of I/O must be multiples of it (1 without direct I/O on a file).
    pub sector_bytes: u32,
    /// Addresses of I/O must be multiples of it; frames always are.
    pub memory_align_bytes: u32,
    /// Whether direct I/O is on.
    pub direct: Direct,
    /// Whether [`crate::SpaceChange::Punch`] works.
    pub punch: bool,
    /// Time of last modification since 1970; 0 for a block device, which does not keep it.
    pub mtime_ns: i64,
    /// (file system, inode) of a file, (0, device number) of a block device: the same thing opened
    /// by two names is equal.
    pub identity: (u64, u64),
}

/// An open file or block device. Hand it to a ring with [`DiskFile::into_fd`]; until then it can be
/// read and written by blocking calls, for superblocks and tests.
#[derive(Debug)]
pub struct DiskFile {
    fd: OwnedFd,
    facts: FileFacts,
}

impl DiskFile {
    /// Opens `path`.
    ///
    /// Errors: `InUse` names the holder where it is known; `Unusable` (missing, a directory, no
    /// permission, a file system that does not exist); `Io`.
    pub fn open(path: &Path, options: OpenOptions) -> Result<DiskFile, Error> {
        let _ = (path, options);
        todo!()
    }

    /// What it can do.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.facts
    }

    /// Gives a regular file this size. Existing contents within the size stay; new space reads as
    /// zeroes. On a block device: `Unusable` if it is smaller, else nothing.
    pub fn resize(&mut self, size_bytes: u64, space: Space) -> Result<(), Error> {
        let _ = (size_bytes, space);
        todo!()
    }

    /// Reads exactly `bytes` from byte `at` on, blocking. With direct I/O everything must be
    /// aligned, as frames are.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let _ = (at, bytes);
        todo!()
    }

    /// Writes all `bytes` from byte `at` on, blocking.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let _ = (at, bytes);
        todo!()
    }

    /// Makes all writes durable, blocking.
    pub fn sync(&self) -> Result<(), Error> {
        todo!()
    }

    /// The descriptor, for [`crate::Ring::register`]. The lock lasts until it is closed.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}
