//! One client's handshake on a non-blocking socket: drives the sans-I/O machine of `forebay-wire`.
//!
//! Limits: 4 KiB of input are held, and the machine's output of one option. A client is read only when it took the
//! answer before, so one that only sends costs nothing but its place until its deadline.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use forebay_wire::nbd::Terms;
use forebay_wire::nbd::server_handshake::{Closed, ExportInfo, Outcome, ServerHandshake};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// The most that is read ahead.
const INPUT_BYTES_MAX: usize = 4096;

/// Where a handshake stands.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Waits for the socket.
    Pending,
    /// Agreed: the export's place in the list, and the terms.
    Ready { export: usize, terms: Terms },
    /// The client asked what it wanted, or hung up.
    Left,
    /// The client broke the protocol.
    Garbage(&'static str),
}

/// A client in its handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    socket: OwnedFd,
    machine: ServerHandshake,
    unread: Vec<u8>,
    outcome: Option<Outcome>,
    pub(crate) deadline: Instant,
    pub(crate) peer: String,
}

impl Handshake {
    pub(crate) fn new(socket: OwnedFd, peer: String, deadline: Instant) -> Self {
        Self { socket, machine: ServerHandshake::new(), unread: Vec::new(), outcome: None, deadline, peer }
    }

    /// What the socket is to be polled for.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.machine.output().is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// The socket, and what was read behind the last option.
    pub(crate) fn into_parts(self) -> (OwnedFd, Vec<u8>, String) {
        (self.socket, self.unread, self.peer)
    }

    /// Goes on as far as the socket allows.
    pub(crate) fn advance(&mut self, exports: &[ExportInfo]) -> Progress {
        loop {
            match self.send() {
                Ok(true) => {}
                Ok(false) => return Progress::Pending,
                Err(_) => return Progress::Left,
            }
            match self.outcome {
                None => {}
                Some(Outcome::Transmission { export, terms }) => return Progress::Ready { export, terms },
                Some(Outcome::Closed(Closed::Protocol(what))) => return Progress::Garbage(what),
                Some(Outcome::Closed(Closed::TooManyOptions)) => return Progress::Garbage("too many options"),
                Some(Outcome::Closed(Closed::Aborted | Closed::UnknownExport)) => return Progress::Left,
            }
            let (consumed, outcome) = self.machine.feed(&self.unread, exports);
            self.unread.drain(..consumed);
            self.outcome = outcome;
            if !self.machine.output().is_empty() || self.outcome.is_some() {
                continue;
            }
            match self.receive() {
                Ok(0) => return Progress::Left,
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Progress::Pending,
                Err(_) => return Progress::Left,
            }
        }
    }

    /// Sends the output; `false` when the socket takes no more now.
    fn send(&mut self) -> Result<bool, Errno> {
        while !self.machine.output().is_empty() {
            match rustix::net::send(&self.socket, self.machine.output(), SendFlags::NOSIGNAL) {
                Ok(bytes) => self.machine.sent(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        let mut bytes = [0; INPUT_BYTES_MAX];
        let room = INPUT_BYTES_MAX - self.unread.len();
        assert!(room > 0, "a handshake that waits for more has taken what there was");
        let (_, received) = rustix::net::recv(&self.socket, &mut bytes[..room], RecvFlags::empty())?;
        self.unread.extend_from_slice(&bytes[..received]);
        Ok(received)
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
