//! From an operation as data to a submission entry, with its holds taken.

use std::os::fd::AsRawFd;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{self, FsyncFlags, TimeoutFlags};
use io_uring::{IoUring, opcode};

use super::arenas::Arenas;
use super::fds::FdTable;
use super::flight::{Kind, Operation};
use super::message::{self, Filling, Pool};
use super::op::{Buf, Fd, Op, Piece, Ready, SpaceChange};
use crate::Address;
use crate::arena::{Access, Hold};

const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// What operations are prepared from.
pub(super) struct Parts {
    pub(super) fds: FdTable,
    /// Whether descriptors are in the kernel's table of registered files, too.
    pub(super) fixed_files: bool,
    pub(super) arenas: Arenas,
    pub(super) messages: Pool,
}

/// A submission entry without its user data, and what to remember until it completes.
pub(super) type Prepared = (Entry, Operation);

impl Parts {
    /// Takes the operation's holds and builds its entry. Panics on conflicts and stale descriptors.
    pub(super) fn prepare(&mut self, io: &IoUring, token: u64, op: Op<'_>) -> Prepared {
        match op {
            Op::Read { fd, at, buf } => self.read(io, token, fd, at, buf),
            Op::Write { fd, at, buf, dsync } => self.write(io, token, fd, at, buf, dsync),
            Op::Fsync { fd, datasync } => {
                let flags = if datasync { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                let entry = opcode::Fsync::new(self.target(fd)).flags(flags).build();
                self.on(fd, entry, plain(token, Kind::Plain))
            }
            Op::Fallocate { fd, change, at, len } => self.fallocate(token, fd, change, at, len),
            Op::Recv { fd, buf, all } => {
                let (to, hold) = hold(&self.arenas, buf, Access::Write);
                let entry = opcode::Recv::new(self.target(fd), to, buf.len).flags(receive_flags(all));
                self.on(fd, entry.build(), transfer(token, buf, hold))
            }
            Op::RecvVectored { fd, bufs, all } => self.receive_vectored(token, fd, bufs, all),
            Op::Send { fd, buf } => {
                let (from, hold) = hold(&self.arenas, buf, Access::Read);
                let entry = opcode::Send::new(self.target(fd), from, buf.len).flags(SEND_FLAGS);
                self.on(fd, entry.build(), transfer(token, buf, hold))
            }
            Op::SendVectored { fd, pieces, skip_bytes } => self.send_vectored(token, fd, pieces, skip_bytes),
            Op::Accept { fd } => {
                let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
                let entry = opcode::Accept::new(self.target(fd), address, len).flags(libc::SOCK_CLOEXEC);
                self.on(fd, entry.build(), plain(token, Kind::Accept))
            }
            Op::Connect { fd, to } => self.connect(token, fd, to),
            Op::Poll { fd, ready } => {
                let events = match ready {
                    Ready::Readable => libc::POLLIN,
                    Ready::Writable => libc::POLLOUT,
                };
                let entry = opcode::PollAdd::new(self.target(fd), events as u32).build();
                self.on(fd, entry, plain(token, Kind::Plain))
            }
            Op::Timeout { at_ns } => self.timeout(token, at_ns),
        }
    }

    fn read(&mut self, io: &IoUring, token: u64, fd: Fd, at: u64, buf: Buf) -> Prepared {
        let (to, hold) = hold(&self.arenas, buf, Access::Write);
        let target = self.target(fd);
        let entry = match self.arenas.fixed(io, buf) {
            Some(index) => opcode::ReadFixed::new(target, to, buf.len, index).offset(at).build(),
            None => opcode::Read::new(target, to, buf.len).offset(at).build(),
        };
        self.on(fd, entry, transfer(token, buf, hold))
    }

    fn write(&mut self, io: &IoUring, token: u64, fd: Fd, at: u64, buf: Buf, dsync: bool) -> Prepared {
        let (from, hold) = hold(&self.arenas, buf, Access::Read);
        let target = self.target(fd);
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let entry = match self.arenas.fixed(io, buf) {
            Some(index) => opcode::WriteFixed::new(target, from, buf.len, index).offset(at).rw_flags(flags).build(),
            None => opcode::Write::new(target, from, buf.len).offset(at).rw_flags(flags).build(),
        };
        self.on(fd, entry, transfer(token, buf, hold))
    }

    fn fallocate(&mut self, token: u64, fd: Fd, change: SpaceChange, at: u64, len: u64) -> Prepared {
        let change = match change {
            SpaceChange::Punch => libc::FALLOC_FL_PUNCH_HOLE,
            SpaceChange::Zero => libc::FALLOC_FL_ZERO_RANGE,
        };
        let mode = libc::FALLOC_FL_KEEP_SIZE | change;
        let entry = opcode::Fallocate::new(self.target(fd), len).offset(at).mode(mode).build();
        self.on(fd, entry, plain(token, Kind::Plain))
    }

    fn receive_vectored(&mut self, token: u64, fd: Fd, bufs: &[Buf], all: bool) -> Prepared {
        let message = self.messages.take();
        // SAFETY: the message just came out of the pool.
        let mut filling = unsafe { Filling::new(message) };
        for &buf in bufs {
            let (to, hold) = hold(&self.arenas, buf, Access::Write);
            filling.push_frame(buf.arena, hold, to, buf.len as usize);
        }
        let entry = opcode::RecvMsg::new(self.target(fd), filling.finish());
        let entry = entry.flags(receive_flags(all) as u32).build();
        let operation = Operation { message: Some(message), ..plain(token, Kind::Transfer) };
        self.on(fd, entry, operation)
    }

    fn send_vectored(&mut self, token: u64, fd: Fd, pieces: &[Piece<'_>], skip_bytes: u64) -> Prepared {
        let message = self.messages.take();
        // SAFETY: the message just came out of the pool.
        let mut filling = unsafe { Filling::new(message) };
        let arenas = &self.arenas;
        message::for_each_unsent(pieces, skip_bytes, arenas, |piece| match piece {
            Piece::Bytes(bytes) => filling.push_bytes(bytes),
            Piece::Frame(buf) => {
                let (from, hold) = hold(arenas, buf, Access::Read);
                filling.push_frame(buf.arena, hold, from, buf.len as usize);
            }
        });
        let entry = opcode::SendMsg::new(self.target(fd), filling.finish());
        let entry = entry.flags(SEND_FLAGS as u32).build();
        let operation = Operation { message: Some(message), ..plain(token, Kind::Transfer) };
        self.on(fd, entry, operation)
    }

    fn connect(&mut self, token: u64, fd: Fd, to: &Address) -> Prepared {
        let message = self.messages.take();
        // SAFETY: the message just came out of the pool.
        let (address, len) = unsafe { message::store_address(message, to.socket_address()) };
        let entry = opcode::Connect::new(self.target(fd), address, len).build();
        self.on(fd, entry, Operation { message: Some(message), ..plain(token, Kind::Plain) })
    }

    fn timeout(&mut self, token: u64, at_ns: u64) -> Prepared {
        let message = self.messages.take();
        // SAFETY: the message just came out of the pool.
        let time = unsafe { message::store_time(message, at_ns) };
        let entry = opcode::Timeout::new(time).flags(TimeoutFlags::ABS).build();
        (entry, Operation { message: Some(message), ..plain(token, Kind::Timeout) })
    }

    /// How entries name the descriptor: by its number, or by its place in the kernel's table.
    fn target(&self, fd: Fd) -> types::Fd {
        let raw = self.fds.get(fd).as_raw_fd();
        types::Fd(if self.fixed_files { fd.index as i32 } else { raw })
    }

    fn on(&mut self, fd: Fd, entry: Entry, operation: Operation) -> Prepared {
        self.fds.begin(fd);
        let flags = if self.fixed_files { Flags::FIXED_FILE } else { Flags::empty() };
        (entry.flags(flags), Operation { fd: Some(fd.index), ..operation })
    }
}

/// Holds the range and returns its address.
fn hold(arenas: &Arenas, buf: Buf, access: Access) -> (*mut u8, Hold) {
    assert!(buf.len > 0, "a transfer of no bytes");
    let arena = arenas.get(buf.arena);
    let hold = arena.hold(buf.frame, buf.at, buf.len, access);
    (arena.span(buf.frame, buf.at, buf.len).as_ptr(), hold)
}

fn transfer(token: u64, buf: Buf, hold: Hold) -> Operation {
    Operation { hold: Some((buf.arena, hold)), ..plain(token, Kind::Transfer) }
}

fn plain(token: u64, kind: Kind) -> Operation {
    Operation { token, kind, fd: None, hold: None, message: None }
}

fn receive_flags(all: bool) -> i32 {
    if all { libc::MSG_WAITALL } else { 0 }
}
