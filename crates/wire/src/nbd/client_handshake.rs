//! The client's half of the fixed newstyle handshake, without I/O: bytes in, bytes out, [`Terms`] at the end.
//!
//! How to drive it:
//! 1. `ClientHandshake::new(name, structured)`; connect.
//! 2. Whenever bytes arrive: `let (consumed, progress) = handshake.feed(bytes)`.
//! 3. Send all of [`ClientHandshake::output`], telling [`ClientHandshake::sent`] how much went out.
//! 4. [`Progress::Ready`] carries the terms. Input after `consumed` belongs to the transmission phase (a server
//!    sends none before the first request). [`Progress::Failed`] ends it: send what `output` holds if that is easy
//!    (a polite `NBD_OPT_ABORT`), then close.
//! 5. If the peer closes first, [`ClientHandshake::closed`] says what that means.
//!
//! What it says on the wire: client flags, `STRUCTURED_REPLY` if wanted (a refusal is no failure), then `GO` asking
//! for block sizes. A server without `GO` gets `EXPORT_NAME`, as does one that is not *fixed* newstyle.
//!
//! Limits: an option reply of at most 8 KiB, at most 64 replies. Beyond these the server breaks the protocol.
//! Time limits are the caller's: nothing here waits.
//!
//! Rejected: pipelining the two options. The specification forbids an option before the last one's final reply.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::constants::{
    FLAG_C_FIXED_NEWSTYLE, FLAG_C_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, INIT_MAGIC, OPTION_MAGIC,
    STRING_BYTES_MAX, TransmissionFlags, info, opt, rep,
};
use super::gather::Gather;
use super::option::{Info, InfoRequest, REPLY_HEADER_BYTES, ReplyHeader, push_option};
use super::{BlockSizes, Terms};
use crate::Error;
use crate::bytes::{be_u16, be_u64};

/// The longest option reply a server may send.
pub const REPLY_BYTES_MAX: usize = 8192;
/// How many option replies a server may send in all.
pub const REPLIES_MAX: u32 = 64;

const GREETING_BYTES: usize = 18;
const EXPORT_NAME_REPLY_BYTES: usize = 10;
const ZEROES_BYTES: usize = 124;
const MESSAGE_CHARS_MAX: usize = 256;

/// Where the handshake stands after some input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed, after [`ClientHandshake::output`] was sent.
    Pending,
    /// Agreed: requests may be sent.
    Ready(Terms),
    /// No agreement; the error says whether to try again.
    Failed(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    ReplyHeader,
    ReplyData(ReplyHeader),
    ExportNameReply,
}

/// The client's side of one handshake.
#[derive(Debug)]
pub struct ClientHandshake {
    name: String,
    want_structured: bool,
    state: State,
    gather: Gather,
    outbox: Vec<u8>,
    sent: usize,
    option: u32,
    replies: u32,
    no_zeroes: bool,
    structured: bool,
    export: Option<(u64, TransmissionFlags)>,
    blocks: BlockSizes,
    progress: Progress,
}

impl ClientHandshake {
    /// Starts a handshake for the export `name` (empty: the server's default one).
    ///
    /// With `want_structured`, structured replies are asked for; [`Terms::structured`] says whether they were granted.
    ///
    /// # Errors
    /// [`Error::Limit`] when the name is longer than the protocol's 4,096 bytes.
    pub fn new(name: &str, want_structured: bool) -> Result<Self, Error> {
        if name.len() > STRING_BYTES_MAX {
            let (actual, limit) = (name.len() as u64, STRING_BYTES_MAX as u64);
            return Err(Error::Limit { what: "bytes of the export's name", actual, limit });
        }
        Ok(Self {
            name: name.to_string(),
            want_structured,
            state: State::Greeting,
            gather: Gather::expecting(GREETING_BYTES),
            outbox: Vec::new(),
            sent: 0,
            option: 0,
            replies: 0,
            no_zeroes: false,
            structured: false,
            export: None,
            blocks: BlockSizes::UNSTATED,
            progress: Progress::Pending,
        })
    }

    /// Takes bytes from the server; returns how many were consumed and where that leads.
    ///
    /// All of `input` is consumed unless the handshake ends inside it.
    pub fn feed(&mut self, input: &[u8]) -> (usize, Progress) {
        let mut consumed = 0;
        while self.progress == Progress::Pending {
            consumed += self.gather.fill(&input[consumed..]);
            if !self.gather.is_full() {
                break;
            }
            if let Err(error) = self.advance() {
                self.progress = Progress::Failed(error);
            }
        }
        (consumed, self.progress.clone())
    }

    /// What is to be sent, oldest first; at most about 4.2 KiB.
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

    /// What it means that the server closed the connection now.
    pub fn closed(&self) -> Error {
        match &self.progress {
            Progress::Failed(error) => error.clone(),
            // EXPORT_NAME has no error reply: hanging up is how a server says no.
            Progress::Pending if self.state == State::ExportNameReply => {
                Error::Refused { reply: 0, message: String::new() }
            }
            _ => Error::Unavailable { what: "it closed the connection during the handshake" },
        }
    }

    fn advance(&mut self) -> Result<(), Error> {
        match self.state {
            State::Greeting => self.greeted(),
            State::ReplyHeader => self.reply_announced(),
            State::ReplyData(header) => self.replied(header),
            State::ExportNameReply => self.exported(),
        }
    }

    fn greeted(&mut self) -> Result<(), Error> {
        let bytes = self.gather.bytes();
        if be_u64(bytes, 0) != INIT_MAGIC {
            return Err(protocol("the first bytes are not NBDMAGIC: this is no NBD server"));
        }
        if be_u64(bytes, 8) != OPTION_MAGIC {
            return Err(protocol("it speaks the old style, which knows no export names"));
        }
        let offered = be_u16(bytes, 16);
        self.no_zeroes = offered & FLAG_NO_ZEROES != 0;
        let fixed = offered & FLAG_FIXED_NEWSTYLE != 0;
        let flags =
            (if fixed { FLAG_C_FIXED_NEWSTYLE } else { 0 }) | (if self.no_zeroes { FLAG_C_NO_ZEROES } else { 0 });
        self.outbox.extend_from_slice(&flags.to_be_bytes());
        match (fixed, self.want_structured) {
            (false, _) => self.ask_export_name(),
            (true, true) => self.ask(opt::STRUCTURED_REPLY, &[]),
            (true, false) => self.ask_go(),
        }
        Ok(())
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        push_option(&mut self.outbox, option, data);
        self.option = option;
        self.state = State::ReplyHeader;
        self.gather.expect(REPLY_HEADER_BYTES);
    }

    fn ask_go(&mut self) {
        let mut data = Vec::new();
        InfoRequest::encode(&mut data, &self.name, &[info::BLOCK_SIZE]);
        self.ask(opt::GO, &data);
    }

    fn ask_export_name(&mut self) {
        push_option(&mut self.outbox, opt::EXPORT_NAME, self.name.as_bytes());
        self.option = opt::EXPORT_NAME;
        self.state = State::ExportNameReply;
        self.gather.expect(EXPORT_NAME_REPLY_BYTES + if self.no_zeroes { 0 } else { ZEROES_BYTES });
    }

    fn reply_announced(&mut self) -> Result<(), Error> {
        let mut raw = [0; REPLY_HEADER_BYTES];
        raw.copy_from_slice(self.gather.bytes());
        let header = ReplyHeader::decode(&raw).ok_or(protocol("an option reply has a wrong magic"))?;
        if header.option != self.option {
            return Err(protocol("an option reply answers another option"));
        }
        if header.length as usize > REPLY_BYTES_MAX {
            return Err(protocol("an option reply is longer than 8 KiB"));
        }
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(protocol("it sent more than 64 option replies"));
        }
        self.state = State::ReplyData(header);
        self.gather.expect(header.length as usize);
        Ok(())
    }

    fn replied(&mut self, header: ReplyHeader) -> Result<(), Error> {
        match (header.option, header.reply) {
            (opt::STRUCTURED_REPLY, reply) if reply == rep::ACK || header.is_error() => {
                if reply == rep::ERR_SHUTDOWN {
                    return Err(self.refused(reply));
                }
                self.structured = reply == rep::ACK;
                self.ask_go();
                Ok(())
            }
            (opt::GO, rep::INFO) => self.informed(),
            (opt::GO, rep::ACK) => {
                let (size_bytes, flags) =
                    self.export.ok_or(protocol("it acknowledged GO without telling the export's size"))?;
                self.agree(size_bytes, flags)
            }
            (opt::GO, rep::ERR_UNSUP) => {
                self.ask_export_name();
                Ok(())
            }
            (opt::GO, reply) if header.is_error() => Err(self.refused(reply)),
            _ => Err(protocol("an option reply of a type that does not belong to the option")),
        }
    }

    fn informed(&mut self) -> Result<(), Error> {
        match Info::decode(self.gather.bytes()).ok_or(protocol("an information reply is malformed"))? {
            Info::Export { size_bytes, flags } => self.export = Some((size_bytes, flags)),
            Info::Blocks(blocks) if blocks.is_sound() => self.blocks = blocks,
            Info::Blocks(_) => return Err(protocol("its block sizes contradict each other")),
            Info::Name(_) | Info::Description(_) | Info::Other(_) => {}
        }
        self.state = State::ReplyHeader;
        self.gather.expect(REPLY_HEADER_BYTES);
        Ok(())
    }

    fn exported(&mut self) -> Result<(), Error> {
        let bytes = self.gather.bytes();
        let (size_bytes, flags) = (be_u64(bytes, 0), TransmissionFlags(be_u16(bytes, 8)));
        self.agree(size_bytes, flags)
    }

    fn agree(&mut self, size_bytes: u64, flags: TransmissionFlags) -> Result<(), Error> {
        if !flags.has(TransmissionFlags::HAS_FLAGS) {
            return Err(protocol("the export's flags lack HAS_FLAGS"));
        }
        let terms = Terms { size_bytes, flags, blocks: self.blocks, structured: self.structured };
        self.progress = Progress::Ready(terms);
        Ok(())
    }

    fn refused(&mut self, reply: u32) -> Error {
        push_option(&mut self.outbox, opt::ABORT, &[]);
        if reply == rep::ERR_SHUTDOWN {
            return Error::Unavailable { what: "it is shutting down" };
        }
        let text = String::from_utf8_lossy(self.gather.bytes());
        let message = text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
        Error::Refused { reply, message }
    }
}

fn protocol(what: &'static str) -> Error {
    Error::Protocol { what }
}

#[cfg(test)]
mod tests {
    use super::super::option::push_reply;
    use super::*;
    use alloc::vec;

    const FIXED: u16 = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
    const FLAGS: TransmissionFlags = TransmissionFlags::HAS_FLAGS.with(TransmissionFlags::SEND_FLUSH);

    fn greeting(flags: u16) -> Vec<u8> {
        [&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat()
    }

    fn reply(option: u32, reply: u32, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_reply(&mut out, option, reply, data);
        out
    }

    fn info_reply(info: Info<'_>) -> Vec<u8> {
        let mut data = Vec::new();
        info.encode(&mut data);
        reply(opt::GO, rep::INFO, &data)
    }

    fn export_info() -> Vec<u8> {
        info_reply(Info::Export { size_bytes: 1 << 30, flags: FLAGS })
    }

    /// Feeds everything, a byte at a time, and takes all output.
    fn run(handshake: &mut ClientHandshake, input: &[u8]) -> (Progress, Vec<u8>) {
        let mut output = Vec::new();
        let mut progress = Progress::Pending;
        for byte in input {
            let (consumed, now) = handshake.feed(&[*byte]);
            assert_eq!(consumed, 1);
            output.extend_from_slice(handshake.output());
            handshake.sent(handshake.output().len());
            progress = now;
        }
        (progress, output)
    }

    #[test]
    fn the_usual_way_ends_in_terms() {
        let mut handshake = ClientHandshake::new("vol", true).unwrap();
        let (_, output) = run(&mut handshake, &greeting(FIXED));
        assert_eq!(output, b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0");
        let (_, output) = run(&mut handshake, &reply(opt::STRUCTURED_REPLY, rep::ACK, b""));
        assert_eq!(output, b"IHAVEOPT\0\0\0\x07\0\0\0\x0b\0\0\0\x03vol\0\x01\0\x03");
        let blocks = BlockSizes { min_bytes: 1, preferred_bytes: 4096, max_bytes: 32 << 20 };
        let input = [
            export_info(),
            info_reply(Info::Blocks(blocks)),
            info_reply(Info::Other(99)),
            reply(opt::GO, rep::ACK, b""),
        ];
        let (progress, output) = run(&mut handshake, &input.concat());
        let terms = Terms { size_bytes: 1 << 30, flags: FLAGS, blocks, structured: true };
        assert_eq!(progress, Progress::Ready(terms));
        assert!(output.is_empty());
    }

    #[test]
    fn bytes_after_the_end_are_left_to_the_caller() {
        let mut handshake = ClientHandshake::new("", false).unwrap();
        let input = [greeting(FIXED), export_info(), reply(opt::GO, rep::ACK, b""), vec![1, 2, 3]].concat();
        let (consumed, progress) = handshake.feed(&input);
        assert_eq!(consumed, input.len() - 3);
        assert!(matches!(progress, Progress::Ready(Terms { structured: false, .. })));
        assert_eq!(handshake.feed(&input[consumed..]).0, 0);
    }

    #[test]
    fn a_server_without_go_is_asked_by_export_name() {
        for (flags, zeroes) in [(FIXED, 0), (FLAG_FIXED_NEWSTYLE, ZEROES_BYTES)] {
            let mut handshake = ClientHandshake::new("vol", true).unwrap();
            let refusals =
                [reply(opt::STRUCTURED_REPLY, rep::ERR_UNSUP, b""), reply(opt::GO, rep::ERR_UNSUP, b"what?")];
            let (_, output) = run(&mut handshake, &[greeting(flags), refusals.concat()].concat());
            assert!(output.ends_with(b"IHAVEOPT\0\0\0\x01\0\0\0\x03vol"));
            assert!(matches!(handshake.closed(), Error::Refused { reply: 0, .. }));
            let mut answer = [&4096u64.to_be_bytes()[..], &FLAGS.0.to_be_bytes()].concat();
            answer.resize(10 + zeroes, 0);
            let (progress, _) = run(&mut handshake, &answer);
            let terms = Terms { size_bytes: 4096, flags: FLAGS, blocks: BlockSizes::UNSTATED, structured: false };
            assert_eq!(progress, Progress::Ready(terms));
        }
    }

    #[test]
    fn a_server_that_is_not_fixed_gets_export_name_at_once() {
        let mut handshake = ClientHandshake::new("vol", true).unwrap();
        let (_, output) = run(&mut handshake, &greeting(0));
        assert_eq!(output, b"\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    }

    #[test]
    fn a_refusal_carries_the_servers_words_and_is_followed_by_abort() {
        let mut handshake = ClientHandshake::new("vol", false).unwrap();
        let input = [greeting(FIXED), reply(opt::GO, rep::ERR_UNKNOWN, b"no\n 'vol'")].concat();
        let (progress, output) = run(&mut handshake, &input);
        let error = Error::Refused { reply: rep::ERR_UNKNOWN, message: "no 'vol'".to_string() };
        assert_eq!(progress, Progress::Failed(error));
        assert!(output.ends_with(b"IHAVEOPT\0\0\0\x02\0\0\0\0"));
    }

    #[test]
    fn a_server_that_shuts_down_is_worth_another_try() {
        for want_structured in [true, false] {
            let mut handshake = ClientHandshake::new("vol", want_structured).unwrap();
            let option = if want_structured { opt::STRUCTURED_REPLY } else { opt::GO };
            let input = [greeting(FIXED), reply(option, rep::ERR_SHUTDOWN, b"")].concat();
            let (progress, _) = run(&mut handshake, &input);
            assert!(matches!(progress, Progress::Failed(Error::Unavailable { .. })));
        }
    }

    #[test]
    fn breaches_end_it() {
        let go = |data: Vec<u8>| [greeting(FIXED), data].concat();
        let mut long = reply(opt::GO, rep::INFO, b"");
        long[16..20].copy_from_slice(&8193u32.to_be_bytes());
        let unsound = BlockSizes { min_bytes: 3, preferred_bytes: 4096, max_bytes: 9 };
        let endless: Vec<u8> = (0..=REPLIES_MAX).flat_map(|_| info_reply(Info::Other(9))).collect();
        for input in [
            b"HTTP/1.1 400 Bad Request".to_vec(),
            [&INIT_MAGIC.to_be_bytes()[..], &0x0000_4202_8186_1253u64.to_be_bytes(), &[0, 0]].concat(),
            go(reply(opt::LIST, rep::ACK, b"")),
            go(reply(opt::GO, rep::ACK, b"")),
            go(reply(opt::GO, rep::SERVER, b"")),
            go(reply(opt::GO, rep::INFO, b"\0\0\0")),
            go(info_reply(Info::Blocks(unsound))),
            go(long),
            go(endless),
            go([
                info_reply(Info::Export { size_bytes: 1, flags: TransmissionFlags::NONE }),
                reply(opt::GO, rep::ACK, b""),
            ]
            .concat()),
        ] {
            let mut handshake = ClientHandshake::new("vol", false).unwrap();
            let (_, progress) = handshake.feed(&input);
            assert!(matches!(progress, Progress::Failed(Error::Protocol { .. })), "{progress:?}");
        }
    }

    #[test]
    fn a_name_beyond_the_protocols_limit_is_refused_before_connecting() {
        let long = core::iter::repeat_n('a', 4097).collect::<String>();
        assert!(matches!(ClientHandshake::new(&long, true), Err(Error::Limit { actual: 4097, limit: 4096, .. })));
    }
}
