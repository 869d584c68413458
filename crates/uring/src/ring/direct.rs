//! Sending and receiving without the ring, by one non-blocking system call.
//!
//! Why: a small reply on a unix socket goes out in one `sendmsg`, without the entry, the completion
//! and the task work of a ring operation. Whether that pays is for the caller to measure and decide;
//! when the socket is full it submits the rest to the ring.

use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::message;
use super::op::{Buf, Fd, PIECES_MAX, Piece};
use super::prepare::Parts;
use crate::arena::Access;

impl Parts {
    /// Sends what the socket takes now. `iovecs` is room for the pieces.
    pub(super) fn try_send(
        &self,
        fd: Fd,
        pieces: &[Piece<'_>],
        skip_bytes: u64,
        iovecs: &mut Vec<libc::iovec>,
    ) -> Result<u64, Errno> {
        iovecs.clear();
        message::for_each_unsent(pieces, skip_bytes, &self.arenas, |piece| {
            let (at, len) = match piece {
                Piece::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                Piece::Frame(buf) => {
                    let arena = self.arenas.get(buf.arena);
                    (arena.checked_span(buf.frame, buf.at, buf.len, Access::Read).as_ptr(), buf.len as usize)
                }
            };
            assert!(iovecs.len() < PIECES_MAX, "more than {PIECES_MAX} pieces");
            iovecs.push(libc::iovec { iov_base: at.cast(), iov_len: len });
        });
        // SAFETY: msghdr is plain data for which all zeroes is a valid, empty value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = iovecs.as_mut_ptr();
        header.msg_iovlen = iovecs.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header and iovecs live until the call returns, and it does not keep them. It
        // only reads the bytes: those of the caller's slices, and ranges of frames that were just
        // checked to have no writer.
        let sent = unsafe { libc::sendmsg(self.fds.get(fd).as_raw_fd(), &raw const header, flags) };
        result(sent).map(|sent| sent as u64)
    }

    /// Receives what is there now.
    pub(super) fn try_recv(&self, fd: Fd, buf: Buf) -> Result<u32, Errno> {
        assert!(buf.len > 0, "a transfer of no bytes");
        let to = self.arenas.get(buf.arena).checked_span(buf.frame, buf.at, buf.len, Access::Write);
        let raw = self.fds.get(fd).as_raw_fd();
        // SAFETY: the range lies in the arena and nobody uses it, as just checked; the call has
        // written at most `buf.len` bytes of it when it returns.
        let received = unsafe { libc::recv(raw, to.as_ptr().cast(), buf.len as usize, libc::MSG_DONTWAIT) };
        result(received).map(|received| received as u32)
    }
}

/// The result of a system call; interrupted before it did anything is as good as not now.
fn result(returned: isize) -> Result<usize, Errno> {
    if returned >= 0 {
        return Ok(returned as usize);
    }
    match super::setup::errno_of(&std::io::Error::last_os_error()) {
        Errno::INTR => Err(Errno::AGAIN),
        errno => Err(errno),
    }
}
