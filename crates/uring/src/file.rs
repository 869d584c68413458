//! Opening a file or block device as a cache disk or back end, and finding out what it can do.
//!
//! What is found is data ([`FileFacts`]), so that the caller decides: whether a refused `O_DIRECT` is
//! a warning, whether a sector of 4 KiB fits its format, whether to trim. Contents are not looked at.
//!
//! Limits: locks are advisory (`flock`): they keep out programs that ask, and not network file
//! systems' other clients.

mod lock;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags, fallocate, fstatfs, fsync, ftruncate,
    ioctl_blksszget, makedev, open, seek, statx,
};
use rustix::io::{Errno, pread, pwrite};

use crate::error::{Error, ErrorKind};

/// What alignment to assume where the kernel (before Linux 6.1) does not say.
const ALIGN_BYTES_UNKNOWN: u32 = 4096;
/// The magic numbers (linux/magic.h) of ext2 to ext4, XFS, Btrfs, F2FS and tmpfs.
const PUNCHING_FILE_SYSTEMS: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];
/// How often a reservation of space is taken up again after a signal.
const INTERRUPTIONS_MAX: u32 = 100;

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
    /// Whether [`crate::SpaceChange::Punch`] is known to work.
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
    path: PathBuf,
}

impl DiskFile {
    /// Opens `path`.
    ///
    /// Errors: `InUse` names the holder where it is known; `Unusable` (missing, a directory, no
    /// permission, read-only); `Io`.
    pub fn open(path: &Path, options: OpenOptions) -> Result<DiskFile, Error> {
        let before = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
        let device = match before {
            Ok(stat) => match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::RegularFile => None,
                FileType::BlockDevice => Some((stat.stx_rdev_major, stat.stx_rdev_minor)),
                // Opening anything else might block, or do something.
                other => return Err(wrong_kind(path, other)),
            },
            Err(Errno::NOENT) if options.create => None,
            Err(errno) => return Err(cannot_open(path, errno)),
        };
        let (fd, direct) = open_direct_or_not(path, options, device)?;
        let facts = find_facts(&fd, options, direct).map_err(|errno| io_error(path, "examined", errno))?;
        if options.exclusive {
            let stat = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
            let stat = stat.map_err(|errno| io_error(path, "examined", errno))?;
            lock::lock_file(&fd, path, (stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)?;
        }
        Ok(DiskFile { fd, facts, path: path.to_owned() })
    }

    /// What it can do.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.facts
    }

    /// Gives a regular file this size. Existing contents within the size stay; new space reads as
    /// zeroes. On a block device: `Unusable` if it is smaller, else nothing.
    pub fn resize(&mut self, size_bytes: u64, space: Space) -> Result<(), Error> {
        let path = self.path.display();
        if self.facts.kind == FileKind::Block {
            if size_bytes <= self.facts.size_bytes {
                return Ok(());
            }
            let message = format!(
                "{path} has {} bytes, {size_bytes} are needed: ask for less, or name a larger device",
                self.facts.size_bytes
            );
            return Err(Error::new(ErrorKind::Unusable, None, message));
        }
        // Some file systems have files of one size only (nbdfuse): there is nothing to ask of them then.
        let has_size = size_bytes == self.facts.size_bytes;
        let sized = if has_size { Ok(()) } else { ftruncate(&self.fd, size_bytes) };
        let changed = sized.and_then(|()| match space {
            Space::Sparse => Ok(()),
            Space::Allocated => allocate(&self.fd, size_bytes),
        });
        changed.map_err(|errno| {
            let next = match errno {
                Errno::NOSPC | Errno::FBIG | Errno::DQUOT => "ask for less, or free some space",
                Errno::OPNOTSUPP => "this file system cannot reserve space: use a sparse file, or another file system",
                _ => "see the system log",
            };
            let message = format!("{path} cannot be given {size_bytes} bytes ({errno}): {next}");
            Error::new(ErrorKind::Unusable, Some(errno), message)
        })?;
        self.facts.size_bytes = size_bytes;
        Ok(())
    }

    /// Reads exactly `bytes` from byte `at` on, blocking. With direct I/O everything must be
    /// aligned, as frames are.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            match pread(&self.fd, &mut bytes[done..], at + done as u64) {
                Ok(0) => {
                    let message = format!("{} ends before byte {}", self.path.display(), at + bytes.len() as u64);
                    return Err(Error::new(ErrorKind::Io, None, message));
                }
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io_error(&self.path, "read", errno)),
            }
        }
        Ok(())
    }

    /// Writes all `bytes` from byte `at` on, blocking.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(&self.fd, &bytes[done..], at + done as u64) {
                Ok(0) => return Err(io_error(&self.path, "written", Errno::NOSPC)),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io_error(&self.path, "written", errno)),
            }
        }
        Ok(())
    }

    /// Makes all writes durable, blocking.
    pub fn sync(&self) -> Result<(), Error> {
        fsync(&self.fd).map_err(|errno| io_error(&self.path, "flushed", errno))
    }

    /// The descriptor, for [`crate::Ring::register`]. The lock lasts until it is closed.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Opens with `O_DIRECT` if asked and possible. `device` is the number of a block device.
fn open_direct_or_not(
    path: &Path,
    options: OpenOptions,
    device: Option<(u32, u32)>,
) -> Result<(OwnedFd, Direct), Error> {
    let mut flags = OFlags::CLOEXEC | if options.write { OFlags::RDWR } else { OFlags::RDONLY };
    // With O_EXCL on a block device it would mean that there must be none.
    if options.create && device.is_none() {
        flags |= OFlags::CREATE;
    }
    let open_with = |flags: OFlags| match device {
        Some(device) if options.exclusive => lock::open_device(path, flags, device),
        _ => Ok(open(path, flags, Mode::RUSR | Mode::WUSR)),
    };
    let mut direct = Direct::Off;
    if options.direct {
        match open_with(flags | OFlags::DIRECT)? {
            Ok(fd) => return Ok((fd, Direct::On)),
            Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => direct = Direct::Refused(errno),
            Err(errno) => return Err(cannot_open(path, errno)),
        }
    }
    match open_with(flags)? {
        Ok(fd) => Ok((fd, direct)),
        Err(errno) => Err(cannot_open(path, errno)),
    }
}

fn find_facts(fd: &OwnedFd, options: OpenOptions, direct: Direct) -> Result<FileFacts, Errno> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN)?;
    let size_bytes = seek(fd, SeekFrom::End(0))?;
    let aligned = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align > 0;
    let memory_align_bytes = if aligned { stat.stx_dio_mem_align.max(1) } else { ALIGN_BYTES_UNKNOWN };
    if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice {
        let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
        return Ok(FileFacts {
            kind: FileKind::Block,
            size_bytes,
            sector_bytes: ioctl_blksszget(fd)?,
            memory_align_bytes,
            direct,
            punch: device_zeroes_quickly(device),
            mtime_ns: 0,
            identity: (0, makedev(device.0, device.1)),
        });
    }
    let (sector_bytes, memory_align_bytes) = match direct {
        Direct::On if aligned => (stat.stx_dio_offset_align, memory_align_bytes),
        Direct::On => (ALIGN_BYTES_UNKNOWN, memory_align_bytes),
        Direct::Refused(_) | Direct::Off => (1, 1),
    };
    Ok(FileFacts {
        kind: FileKind::Regular,
        size_bytes,
        sector_bytes,
        memory_align_bytes,
        direct,
        punch: options.write && can_punch(fd),
        mtime_ns: stat.stx_mtime.tv_sec * 1_000_000_000 + i64::from(stat.stx_mtime.tv_nsec),
        identity: (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
    })
}

/// Whether the file system can punch holes. Looked up, not tried: a try would change the file's time
/// of modification, by which a back end changed behind one's back is recognised.
fn can_punch(fd: &OwnedFd) -> bool {
    fstatfs(fd).is_ok_and(|stat| PUNCHING_FILE_SYSTEMS.contains(&(stat.f_type as u32)))
}

/// Whether a block device has a command for zeroing; partitions have it from their disk.
fn device_zeroes_quickly((major, minor): (u32, u32)) -> bool {
    let places = ["queue", "../queue"].into_iter();
    let mut settings = places.filter_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/write_zeroes_max_bytes");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    settings.next().is_some_and(|bytes_max| bytes_max > 0)
}

/// Reserves the space of the first `size_bytes`.
fn allocate(fd: &OwnedFd, size_bytes: u64) -> Result<(), Errno> {
    for _ in 0..INTERRUPTIONS_MAX {
        match fallocate(fd, FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::INTR)
}

fn wrong_kind(path: &Path, kind: FileType) -> Error {
    let what = if kind == FileType::Directory { "a directory" } else { "a special file" };
    let message = format!("{} is {what}: name a regular file or a block device", path.display());
    Error::new(ErrorKind::Unusable, None, message)
}

fn cannot_open(path: &Path, errno: Errno) -> Error {
    let next = match errno {
        Errno::NOENT => "check the path",
        Errno::ACCESS | Errno::PERM => "run as a user who may, or change its mode",
        Errno::ROFS => "open it read-only, or remount the file system",
        Errno::NXIO | Errno::NODEV => "attach the device",
        _ => "see the system log",
    };
    let message = format!("{} cannot be opened ({errno}): {next}", path.display());
    Error::new(ErrorKind::Unusable, Some(errno), message)
}

fn io_error(path: &Path, done: &str, errno: Errno) -> Error {
    let message = format!("{} cannot be {done} ({errno}): see the system log", path.display());
    Error::new(ErrorKind::Io, Some(errno), message)
}
