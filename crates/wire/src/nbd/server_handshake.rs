//! The server's half of the fixed newstyle handshake, without I/O: bytes in, bytes out, an export at the end.
//!
//! How to drive it:
//! 1. `ServerHandshake::new()` at accept; its greeting is in [`ServerHandshake::output`].
//! 2. Send the output, telling [`ServerHandshake::sent`]. Nothing more is read from a client that does not take its
//!    answers: [`ServerHandshake::feed`] consumes nothing while output waits, so a pipelining client's bytes stay
//!    with the caller and the outbox holds one answer at most.
//! 3. When the output is empty and bytes are there: `feed(bytes, exports)`. Repeat with the bytes not consumed.
//! 4. [`Outcome::Transmission`]: send the output that is left, then serve requests under these terms. Bytes after
//!    those consumed are the first request's. [`Outcome::Closed`]: send the output if that is easy, then close.
//!
//! Exports are data given at each call, so a list that changes between two options is seen at once.
//! The empty name means the only export, when there is just one.
//!
//! | option | answer |
//! |---|---|
//! | `EXPORT_NAME` | size and flags, or close (it has no error reply) |
//! | `ABORT` | ACK, then close |
//! | `LIST` | a `SERVER` for each export, ACK |
//! | `INFO`, `GO` | `EXPORT`, `BLOCK_SIZE`, and `NAME` and `DESCRIPTION` if asked for; ACK |
//! | `STRUCTURED_REPLY` | ACK |
//! | `STARTTLS` | `ERR_POLICY`: TLS is not configured |
//! | `LIST_META_CONTEXT`, `SET_META_CONTEXT` | ACK alone: no context matched (`base:allocation` would be added here) |
//! | others | `ERR_UNSUP` |
//!
//! Limits: 128 options; an option's data beyond 8 KiB is skipped and answered `ERR_TOO_BIG`, beyond 64 KiB the
//! connection closes; an answer is at most 64 KiB plus one export. 128, because a client that looks at each of
//! 30 exports sends two options for each.
//! Time limits are the caller's: nothing here waits.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use super::constants::{
    FLAG_C_FIXED_NEWSTYLE, FLAG_C_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, INIT_MAGIC, OPTION_MAGIC,
    STRING_BYTES_MAX, TransmissionFlags, info, opt, rep,
};
use super::gather::Gather;
use super::option::{Info, InfoRequest, OPTION_HEADER_BYTES, OptionHeader, push_reply, take_string};
use super::{BlockSizes, Terms};
use crate::bytes::be_u32;

/// How many options a client may send.
pub const OPTIONS_MAX: u32 = 128;
/// The longest option data that is looked at.
pub const OPTION_DATA_BYTES_MAX: usize = 8192;
/// The longest option data that is skipped rather than answered by closing.
pub const OPTION_SKIP_BYTES_MAX: usize = 65_536;
/// A list of exports ends with an error when it grows beyond this.
pub const LIST_BYTES_MAX: usize = 65_536;
/// The most that [`ServerHandshake::output`] ever holds.
pub const OUTBOX_BYTES_MAX: usize = LIST_BYTES_MAX + 2 * (STRING_BYTES_MAX + 64);

const CLIENT_FLAGS_BYTES: usize = 4;
const ZEROES_BYTES: usize = 124;
const NO_EXPORT: &[u8] = b"no such export";
const MALFORMED: &[u8] = b"malformed option data";

/// An export, as the handshake tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name: UTF-8, at most 4,096 bytes.
    pub name: String,
    /// Words for people: at most 4,096 bytes; may be empty.
    pub description: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it can do. `HAS_FLAGS` is added, and `SEND_DF` left out without structured replies.
    pub flags: TransmissionFlags,
    /// Its alignment and length limits.
    pub blocks: BlockSizes,
}

/// Why a handshake ended without an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client said so.
    Aborted,
    /// The client named, by an option without error replies, an export that is not there.
    UnknownExport,
    /// The client sent more options than [`OPTIONS_MAX`].
    TooManyOptions,
    /// The client broke the protocol.
    Protocol(&'static str),
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An export was chosen.
    Transmission {
        /// Its place in the list given to [`ServerHandshake::feed`].
        export: usize,
        /// What requests are to be checked against.
        terms: Terms,
    },
    /// The connection is to be closed.
    Closed(Closed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ClientFlags,
    OptionHeader,
    OptionData(OptionHeader),
    /// Data too long to keep: bytes left to skip.
    Skip(OptionHeader, usize),
    Ended(Outcome),
}

/// The server's side of one handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    state: State,
    gather: Gather,
    outbox: Vec<u8>,
    sent: usize,
    options: u32,
    no_zeroes: bool,
    structured: bool,
}

impl Default for ServerHandshake {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerHandshake {
    /// Starts a handshake; the greeting waits in [`Self::output`].
    pub fn new() -> Self {
        let mut outbox = Vec::new();
        outbox.extend_from_slice(&INIT_MAGIC.to_be_bytes());
        outbox.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        outbox.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            state: State::ClientFlags,
            gather: Gather::expecting(CLIENT_FLAGS_BYTES),
            outbox,
            sent: 0,
            options: 0,
            no_zeroes: false,
            structured: false,
        }
    }

    /// Takes bytes from the client; returns how many were consumed, and how the handshake ended if it did.
    ///
    /// Consumes nothing while [`Self::output`] waits to be sent, and at most one option.
    ///
    /// # Panics
    /// When an export's name or description is longer than the protocol's 4,096 bytes.
    pub fn feed(&mut self, input: &[u8], exports: &[ExportInfo]) -> (usize, Option<Outcome>) {
        let mut consumed = 0;
        while self.output().is_empty() {
            match &mut self.state {
                State::Ended(_) => break,
                State::Skip(header, left) => {
                    let header = *header;
                    let taken = (*left).min(input.len() - consumed);
                    *left -= taken;
                    consumed += taken;
                    if *left > 0 {
                        break;
                    }
                    self.answer(header.option, rep::ERR_TOO_BIG, b"the option's data are too long");
                    self.next_option();
                }
                _ => {
                    consumed += self.gather.fill(&input[consumed..]);
                    if !self.gather.is_full() {
                        break;
                    }
                    self.advance(exports);
                }
            }
        }
        let outcome = if let State::Ended(outcome) = self.state { Some(outcome) } else { None };
        (consumed, outcome)
    }

    /// What is to be sent, oldest first; at most [`OUTBOX_BYTES_MAX`].
    pub fn output(&self) -> &[u8] {
        &self.outbox[self.sent..]
    }

    /// Tells that the first `bytes` of [`Self::output`] were sent.
    ///
    /// # Panics
    /// When more was sent than there was.
    pub fn sent(&mut self, bytes: usize) {
        assert!(bytes <= self.output().len(), "more bytes sent than there were");
        self.sent += bytes;
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.sent = 0;
        }
    }

    fn advance(&mut self, exports: &[ExportInfo]) {
        match self.state {
            State::ClientFlags => self.greeted(),
            State::OptionHeader => self.option_announced(),
            State::OptionData(header) => {
                // The data leave the gatherer while they are looked at, so that answering may borrow all of self.
                let gathered = core::mem::take(&mut self.gather);
                self.next_option();
                self.option(header.option, gathered.bytes(), exports);
            }
            State::Skip(..) | State::Ended(_) => unreachable!("feed handles these states"),
        }
    }

    fn close(&mut self, why: Closed) {
        self.state = State::Ended(Outcome::Closed(why));
    }

    fn next_option(&mut self) {
        self.state = State::OptionHeader;
        self.gather.expect(OPTION_HEADER_BYTES);
    }

    fn greeted(&mut self) {
        let flags = be_u32(self.gather.bytes(), 0);
        if flags & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
            return self.close(Closed::Protocol("it set client flags that were not offered"));
        }
        self.no_zeroes = flags & FLAG_C_NO_ZEROES != 0;
        self.next_option();
    }

    fn option_announced(&mut self) {
        let mut raw = [0; OPTION_HEADER_BYTES];
        raw.copy_from_slice(self.gather.bytes());
        let Some(header) = OptionHeader::decode(&raw) else {
            return self.close(Closed::Protocol("an option has a wrong magic"));
        };
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return self.close(Closed::TooManyOptions);
        }
        let length = header.length as usize;
        if length <= OPTION_DATA_BYTES_MAX {
            self.state = State::OptionData(header);
            self.gather.expect(length);
        } else if length <= OPTION_SKIP_BYTES_MAX && header.option != opt::EXPORT_NAME {
            self.state = State::Skip(header, length);
        } else {
            self.close(Closed::Protocol("an option's data are longer than any option needs"));
        }
    }

    fn answer(&mut self, option: u32, reply: u32, data: &[u8]) {
        push_reply(&mut self.outbox, option, reply, data);
    }

    fn option(&mut self, option: u32, data: &[u8], exports: &[ExportInfo]) {
        match option {
            opt::EXPORT_NAME => self.export_name(data, exports),
            opt::ABORT => {
                self.answer(option, rep::ACK, &[]);
                self.close(Closed::Aborted);
            }
            opt::LIST | opt::STARTTLS | opt::STRUCTURED_REPLY if !data.is_empty() => {
                self.answer(option, rep::ERR_INVALID, b"this option takes no data");
            }
            opt::LIST => self.list(exports),
            opt::STARTTLS => self.answer(option, rep::ERR_POLICY, b"TLS is not configured"),
            opt::STRUCTURED_REPLY => {
                self.structured = true;
                self.answer(option, rep::ACK, &[]);
            }
            opt::INFO | opt::GO => self.info(option, data, exports),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.meta_context(option, data, exports),
            _ => self.answer(option, rep::ERR_UNSUP, b"unknown option"),
        }
    }

    fn terms(&self, export: &ExportInfo) -> Terms {
        let mut flags = export.flags.with(TransmissionFlags::HAS_FLAGS);
        if !self.structured {
            flags = flags.without(TransmissionFlags::SEND_DF);
        }
        Terms { size_bytes: export.size_bytes, flags, blocks: export.blocks, structured: self.structured }
    }

    fn export_name(&mut self, data: &[u8], exports: &[ExportInfo]) {
        let found = str::from_utf8(data).ok().and_then(|name| find(exports, name));
        let Some(export) = found else {
            return self.close(Closed::UnknownExport);
        };
        let terms = self.terms(&exports[export]);
        self.outbox.extend_from_slice(&terms.size_bytes.to_be_bytes());
        self.outbox.extend_from_slice(&terms.flags.0.to_be_bytes());
        if !self.no_zeroes {
            self.outbox.extend_from_slice(&[0; ZEROES_BYTES]);
        }
        self.state = State::Ended(Outcome::Transmission { export, terms });
    }

    fn list(&mut self, exports: &[ExportInfo]) {
        let mut data = Vec::new();
        for export in exports {
            if self.outbox.len() > LIST_BYTES_MAX {
                return self.answer(opt::LIST, rep::ERR_TOO_BIG, b"the list of exports is too long");
            }
            assert_strings_fit(export);
            data.clear();
            data.extend_from_slice(&(export.name.len() as u32).to_be_bytes());
            data.extend_from_slice(export.name.as_bytes());
            self.answer(opt::LIST, rep::SERVER, &data);
        }
        self.answer(opt::LIST, rep::ACK, &[]);
    }

    fn info(&mut self, option: u32, data: &[u8], exports: &[ExportInfo]) {
        let Some(request) = InfoRequest::decode(data) else {
            return self.answer(option, rep::ERR_INVALID, MALFORMED);
        };
        let Some(place) = find(exports, request.name) else {
            return self.answer(option, rep::ERR_UNKNOWN, NO_EXPORT);
        };
        let export = &exports[place];
        assert_strings_fit(export);
        let terms = self.terms(export);
        let mut tell = |info: Info<'_>| {
            let mut data = Vec::new();
            info.encode(&mut data);
            push_reply(&mut self.outbox, option, rep::INFO, &data);
        };
        tell(Info::Export { size_bytes: terms.size_bytes, flags: terms.flags });
        // Told even to a client that did not ask: requests off these limits fail, so it had better know.
        tell(Info::Blocks(terms.blocks));
        if request.asks(info::NAME) {
            tell(Info::Name(&export.name));
        }
        if request.asks(info::DESCRIPTION) && !export.description.is_empty() {
            tell(Info::Description(&export.description));
        }
        self.answer(option, rep::ACK, &[]);
        if option == opt::GO {
            self.state = State::Ended(Outcome::Transmission { export: place, terms });
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8], exports: &[ExportInfo]) {
        let (reply, words): (u32, &[u8]) = match meta_context_export(data) {
            None => (rep::ERR_INVALID, MALFORMED),
            Some(_) if !self.structured => (rep::ERR_INVALID, b"structured replies come first"),
            Some(name) if find(exports, name).is_none() => (rep::ERR_UNKNOWN, NO_EXPORT),
            Some(_) => (rep::ACK, &[]),
        };
        self.answer(option, reply, words);
    }
}

fn assert_strings_fit(export: &ExportInfo) {
    assert!(export.name.len() <= STRING_BYTES_MAX, "an export's name is too long for the protocol");
    assert!(export.description.len() <= STRING_BYTES_MAX, "an export's description is too long for the protocol");
}

fn find(exports: &[ExportInfo], name: &str) -> Option<usize> {
    let named = exports.iter().position(|export| export.name == name);
    named.or((name.is_empty() && exports.len() == 1).then_some(0))
}

/// The export named in the data of LIST or SET_META_CONTEXT; `None` when name or queries are malformed.
fn meta_context_export(data: &[u8]) -> Option<&str> {
    let (name, rest) = take_string(data)?;
    let count = be_u32(rest.get(..4)?, 0);
    let mut rest = &rest[4..];
    for _ in 0..count {
        (_, rest) = take_string(rest)?;
    }
    rest.is_empty().then_some(name)
}

#[cfg(test)]
#[path = "server_handshake_tests.rs"]
mod tests;
