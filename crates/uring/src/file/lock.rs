//! One owner per file: taking the lock, and naming who has it.
//!
//! A lock lives as long as the open file, and an io_uring that is being taken apart keeps files open
//! for some milliseconds after its process has died. So a lock whose holder is not known to be alive
//! is tried again for a bounded time; a program killed and started again finds its file free.

use std::fs::read_to_string;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A process that holds a lock.
struct Holder {
    pid: u32,
    name: String,
}

/// Calls `attempt` until it is not refused with `busy`, or a living holder is known, or for about
/// two seconds.
fn persist<T>(
    busy: Errno,
    holder: impl Fn() -> Option<Holder>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Option<Holder>> {
    for _ in 0..TRIES {
        match attempt() {
            Err(errno) if errno == busy => {}
            result => return Ok(result),
        }
        if let Some(holder) = holder() {
            return Err(Some(holder));
        }
        sleep(BETWEEN_TRIES);
    }
    Err(None)
}

/// Locks a regular file. `device` and `inode` identify it.
pub(super) fn lock_file(file: &OwnedFd, path: &Path, device: (u32, u32), inode: u64) -> Result<(), Error> {
    let attempt = || flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive);
    let holder = || {
        let locks = read_to_string("/proc/locks").ok()?;
        living(pid_of_lock(&locks, device, inode)?)
    };
    match persist(Errno::WOULDBLOCK, holder, attempt) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => {
            let message = format!("{} cannot be locked: {errno}", path.display());
            Err(Error::new(ErrorKind::Io, Some(errno), message))
        }
        Err(Some(Holder { pid, name })) => {
            Err(in_use(path, &format!("by process {pid} ({name}): stop it, or name another file")))
        }
        Err(None) => Err(in_use(path, "by another program: stop it, or name another file")),
    }
}

/// Opens a block device that nobody else may have open exclusively (a mounted file system, swap,
/// another program that asks for it).
pub(super) fn open_device(path: &Path, flags: OFlags, device: (u32, u32)) -> Result<Result<OwnedFd, Errno>, Error> {
    // A mounted device is not given up soon; another program's might be.
    if let Some(place) = mounted_at(device) {
        return Err(in_use(path, &format!("as a file system mounted at {place}: unmount it, or name another device")));
    }
    let attempt = || open(path, flags | OFlags::EXCL, Mode::empty());
    persist(Errno::BUSY, || None, attempt).map_err(|_| {
        in_use(
            path,
            "(swap, RAID, LVM or another program): free it (lsblk and fuser name the user), or name another device",
        )
    })
}

fn in_use(path: &Path, by: &str) -> Error {
    Error::new(ErrorKind::InUse, Some(Errno::BUSY), format!("{} is in use {by}", path.display()))
}

/// The holder of the lock in the text of /proc/locks, whose lines are
/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`: device in hexadecimal, inode in decimal.
fn pid_of_lock(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let line = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut line = line.filter(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str()));
    line.next()?[4].parse().ok()
}

/// The process, if it is alive.
fn living(pid: u32) -> Option<Holder> {
    let name = name_of_living(&read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(Holder { pid, name })
}

/// The name of a process that has not ended, from the text of its stat file, `1234 (name) S 1 ...`:
/// one that has ended but is not reaped is in state Z or X.
fn name_of_living(stat: &str) -> Option<String> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    (!after.starts_with(['Z', 'X'])).then(|| name.to_owned())
}

/// Where a block device is mounted, from /proc/self/mountinfo:
/// `36 35 98:0 /root /mnt ...`.
fn mounted_at((major, minor): (u32, u32)) -> Option<String> {
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    let device = format!("{major}:{minor}");
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|words| words.len() > 4 && words[2] == device)?;
    Some(line[4].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:02:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF\n\
                     4: FLOCK\n";
        assert_eq!(pid_of_lock(locks, (8, 1), 77), Some(14));
        assert_eq!(pid_of_lock(locks, (8, 1), 78), None);
        assert_eq!(pid_of_lock("", (8, 1), 77), None);
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        assert_eq!(name_of_living("12 (fore) bay) S 1 12"), Some("fore) bay".to_owned()));
        assert_eq!(name_of_living("12 (forebay) Z 1 12"), None);
        assert_eq!(name_of_living("12"), None);
    }

    #[test]
    fn a_lock_without_a_living_holder_is_tried_again() {
        let mut tries = 0;
        let result = persist(
            Errno::BUSY,
            || None,
            || {
                tries += 1;
                if tries < 3 { Err(Errno::BUSY) } else { Ok(tries) }
            },
        );
        assert!(matches!(result, Ok(Ok(3))));
    }

    #[test]
    fn a_living_holder_ends_the_tries_at_once() {
        let mut tries = 0;
        let result: Result<Result<(), _>, _> = persist(
            Errno::BUSY,
            || living(std::process::id()),
            || {
                tries += 1;
                Err(Errno::BUSY)
            },
        );
        assert!(matches!(result, Err(Some(holder)) if holder.pid == std::process::id()));
        assert_eq!(tries, 1);
    }
}
