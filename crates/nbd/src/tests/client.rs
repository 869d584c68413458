//! A small blocking NBD client.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use forebay_wire::nbd::Terms;
use forebay_wire::nbd::client_handshake::{ClientHandshake, Progress};
use forebay_wire::nbd::constants::{CommandFlags, Errno};
use forebay_wire::nbd::reply::{self, Decoded, Head};
use forebay_wire::nbd::request::{Command, Request};

/// How a request ended: its bytes (of a read), or its first error.
pub(super) type Answer = Result<Vec<u8>, Errno>;

pub(super) struct Client<S> {
    pub(super) stream: S,
    pub(super) terms: Terms,
    next_cookie: u64,
    asked: HashMap<u64, Request>,
    partial: HashMap<u64, (Vec<u8>, u32, Option<Errno>)>,
    /// Chunks of data seen.
    pub(super) chunks: u32,
}

impl<S: Read + Write> Client<S> {
    pub(super) fn connect(mut stream: S, name: &str, structured: bool) -> Self {
        let mut handshake = ClientHandshake::new(name, structured).unwrap();
        let terms = loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the server goes on with the handshake");
            let (_, progress) = handshake.feed(&byte);
            stream.write_all(handshake.output()).unwrap();
            handshake.sent(handshake.output().len());
            match progress {
                Progress::Pending => {}
                Progress::Ready(terms) => break terms,
                Progress::Failed(error) => panic!("{error}"),
            }
        };
        Self::new(stream, terms)
    }

    pub(super) fn new(stream: S, terms: Terms) -> Self {
        Self { stream, terms, next_cookie: 1, asked: HashMap::new(), partial: HashMap::new(), chunks: 0 }
    }

    /// A request with the next cookie.
    pub(super) fn request(&mut self, command: Command, flags: CommandFlags, offset: u64, length: u32) -> Request {
        let request = Request { flags, command, cookie: self.next_cookie, offset, length };
        self.next_cookie += 1;
        self.asked.insert(request.cookie, request);
        request
    }

    pub(super) fn ask(&mut self, command: Command, offset: u64, length: u32) -> u64 {
        let request = self.request(command, CommandFlags::NONE, offset, length);
        self.stream.write_all(&request.encode()).unwrap();
        request.cookie
    }

    /// A write as it goes over the wire.
    pub(super) fn write_bytes(&mut self, offset: u64, payload: &[u8]) -> Vec<u8> {
        let request = self.request(Command::Write, CommandFlags::NONE, offset, payload.len() as u32);
        [&request.encode()[..], payload].concat()
    }

    pub(super) fn ask_write(&mut self, offset: u64, payload: &[u8]) -> u64 {
        let bytes = self.write_bytes(offset, payload);
        self.stream.write_all(&bytes).unwrap();
        self.next_cookie - 1
    }

    /// The next request to be answered whole.
    pub(super) fn answer(&mut self) -> io::Result<(u64, Answer)> {
        loop {
            let mut head = Vec::new();
            let (head, _) = loop {
                let need = match reply::decode(&head) {
                    Decoded::Need(need) => need,
                    Decoded::Head(head, bytes) => break (OwnedHead::of(head), bytes),
                    Decoded::Broken(error) => panic!("{error}: {head:x?}"),
                };
                let at = head.len();
                head.resize(need, 0);
                self.stream.read_exact(&mut head[at..])?;
            };
            if let Some(answer) = self.take(head)? {
                return Ok(answer);
            }
        }
    }

    fn take(&mut self, head: OwnedHead) -> io::Result<Option<(u64, Answer)>> {
        let OwnedHead { cookie, kind, done } = head;
        let asked = *self.asked.get(&cookie).expect("an answer to what was asked");
        let length = if asked.command == Command::Read { asked.length } else { 0 };
        let (bytes, filled, failed) =
            self.partial.entry(cookie).or_insert_with(|| (vec![0xEE; length as usize], 0, None));
        match kind {
            Kind::Simple(error) => {
                assert!(!self.terms.structured || asked.command != Command::Read, "a simple reply to a read");
                *failed = error;
                if error.is_none() {
                    self.stream.read_exact(bytes)?;
                    *filled = length;
                }
            }
            Kind::Data(offset, data_bytes) => {
                self.chunks += 1;
                let at = (offset - asked.offset) as usize;
                self.stream.read_exact(&mut bytes[at..at + data_bytes as usize])?;
                *filled += data_bytes;
            }
            Kind::Failed(errno) => *failed = failed.or(Some(errno)),
            Kind::Done => {}
        }
        if !done {
            return Ok(None);
        }
        let (bytes, filled, failed) = self.partial.remove(&cookie).expect("just there");
        self.asked.remove(&cookie);
        assert!(failed.is_some() || filled == length, "{filled} of {length} bytes came");
        Ok(Some((cookie, failed.map_or(Ok(bytes), Err))))
    }

    /// Asks one thing and waits for its answer.
    pub(super) fn call(&mut self, command: Command, flags: CommandFlags, offset: u64, length: u32) -> Answer {
        let request = self.request(command, flags, offset, length);
        self.stream.write_all(&request.encode()).unwrap();
        let (cookie, answer) = self.answer().expect("an answer");
        assert_eq!(cookie, request.cookie);
        answer
    }

    pub(super) fn read(&mut self, offset: u64, length: u32) -> Answer {
        self.call(Command::Read, CommandFlags::NONE, offset, length)
    }

    pub(super) fn write(&mut self, offset: u64, payload: &[u8]) -> Answer {
        let cookie = self.ask_write(offset, payload);
        let (answered, answer) = self.answer().expect("an answer");
        assert_eq!(cookie, answered);
        answer
    }

    pub(super) fn disconnect(mut self) {
        self.ask(Command::Disconnect, 0, 0);
        self.assert_closed();
    }

    /// The server closes without another word.
    pub(super) fn assert_closed(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(bytes) => assert_eq!(bytes, 0, "the server has more to say"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}

struct OwnedHead {
    cookie: u64,
    kind: Kind,
    done: bool,
}

enum Kind {
    Simple(Option<Errno>),
    Data(u64, u32),
    Failed(Errno),
    Done,
}

impl OwnedHead {
    fn of(head: Head<'_>) -> Self {
        let (cookie, kind, done) = match head {
            Head::Simple { cookie, error } => (cookie, Kind::Simple(error), true),
            Head::Data { cookie, done, offset, data_bytes } => (cookie, Kind::Data(offset, data_bytes), done),
            Head::Failed { cookie, done, errno, message, .. } => {
                assert!(!message.is_empty(), "an error without words");
                (cookie, Kind::Failed(errno), done)
            }
            Head::Done { cookie } => (cookie, Kind::Done, true),
            Head::Hole { .. } => panic!("this server tells of no holes"),
        };
        Self { cookie, kind, done }
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
