//! Replies: small fixed arrays out (server), one head at a time in (client).
//!
//! ```text
//! simple:     magic u32 | error u32 | cookie u64                                  (then the bytes read)
//! structured: magic u32 | flags u16 | type u16 | cookie u64 | length u32 | payload of `length` bytes
//! ```
//!
//! A *head* is everything before the bytes read: the header and, for a chunk, the fields that open its payload.
//! [`decode`] looks at the front of a stream and gives the next head, or says how many bytes it wants to see. Bytes
//! read (the `data_bytes` after [`Head::Data`], and what a successful simple reply to a read carries) stay outside,
//! so that a driver can receive them straight into a frame.
//!
//! Limits: a head is at most [`HEAD_BYTES_MAX`] long; a longer one breaks the protocol.

use core::str;

use super::constants::{Errno, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, chunk};
use crate::Error;
use crate::bytes::{be_u16, be_u32, be_u64, put_be_u16, put_be_u32, put_be_u64};

/// A simple reply without data.
pub const SIMPLE_BYTES: usize = 16;
/// The header of a chunk.
pub const CHUNK_BYTES: usize = 20;
/// The head of a chunk of data: header and offset.
pub const DATA_HEAD_BYTES: usize = CHUNK_BYTES + 8;
/// The head of a chunk that tells of a hole: all of it.
pub const HOLE_HEAD_BYTES: usize = CHUNK_BYTES + 12;
/// The longest message [`ErrorChunk`] sends; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 128;
/// The longest head [`decode`] accepts: an error with an offset and a message of the protocol's longest.
pub const HEAD_BYTES_MAX: usize = CHUNK_BYTES + 6 + STRING_BYTES_MAX + 8;

/// A simple reply; data, if any, follows it.
pub fn simple(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_BYTES] {
    let mut bytes = [0; SIMPLE_BYTES];
    put_be_u32(&mut bytes, 0, SIMPLE_REPLY_MAGIC);
    put_be_u32(&mut bytes, 4, error.map_or(0, Errno::to_wire));
    put_be_u64(&mut bytes, 8, cookie);
    bytes
}

fn put_chunk(bytes: &mut [u8], done: bool, kind: u16, cookie: u64, payload_bytes: u32) {
    put_be_u32(bytes, 0, STRUCTURED_REPLY_MAGIC);
    put_be_u16(bytes, 4, if done { chunk::FLAG_DONE } else { 0 });
    put_be_u16(bytes, 6, kind);
    put_be_u64(bytes, 8, cookie);
    put_be_u32(bytes, 16, payload_bytes);
}

/// The chunk that ends a reply and carries nothing.
pub fn done(cookie: u64) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    put_chunk(&mut bytes, true, chunk::NONE, cookie, 0);
    bytes
}

/// The head of a chunk of data; `data_bytes` bytes of the export from `offset` follow it.
///
/// # Panics
/// When `data_bytes` is 0 or does not fit the length field: requests are far shorter.
pub fn data(cookie: u64, offset: u64, data_bytes: u32, done: bool) -> [u8; DATA_HEAD_BYTES] {
    assert!(data_bytes > 0 && data_bytes <= u32::MAX - 8, "a chunk of {data_bytes} bytes");
    let mut bytes = [0; DATA_HEAD_BYTES];
    put_chunk(&mut bytes, done, chunk::OFFSET_DATA, cookie, data_bytes + 8);
    put_be_u64(&mut bytes, CHUNK_BYTES, offset);
    bytes
}

/// A chunk that says: `hole_bytes` bytes from `offset` are zero.
///
/// # Panics
/// When `hole_bytes` is 0.
pub fn hole(cookie: u64, offset: u64, hole_bytes: u32, done: bool) -> [u8; HOLE_HEAD_BYTES] {
    assert!(hole_bytes > 0, "an empty hole");
    let mut bytes = [0; HOLE_HEAD_BYTES];
    put_chunk(&mut bytes, done, chunk::OFFSET_HOLE, cookie, 12);
    put_be_u64(&mut bytes, CHUNK_BYTES, offset);
    put_be_u32(&mut bytes, CHUNK_BYTES + 8, hole_bytes);
    bytes
}

/// An error chunk in a fixed array.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChunk {
    bytes: [u8; CHUNK_BYTES + 6 + MESSAGE_BYTES_MAX + 8],
    length: usize,
}

impl ErrorChunk {
    /// The chunk's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// An error with words for a person, cut at [`MESSAGE_BYTES_MAX`] bytes; with `offset`, where it happened.
pub fn error(cookie: u64, errno: Errno, message: &str, offset: Option<u64>, done: bool) -> ErrorChunk {
    let mut cut = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    let message = &message.as_bytes()[..cut];
    let payload_bytes = 6 + message.len() + if offset.is_some() { 8 } else { 0 };
    let kind = if offset.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
    let mut bytes = [0; CHUNK_BYTES + 6 + MESSAGE_BYTES_MAX + 8];
    put_chunk(&mut bytes, done, kind, cookie, payload_bytes as u32);
    put_be_u32(&mut bytes, CHUNK_BYTES, errno.to_wire());
    put_be_u16(&mut bytes, CHUNK_BYTES + 4, message.len() as u16);
    let end = CHUNK_BYTES + 6 + message.len();
    bytes[CHUNK_BYTES + 6..end].copy_from_slice(message);
    if let Some(offset) = offset {
        put_be_u64(&mut bytes, end, offset);
    }
    ErrorChunk { bytes, length: CHUNK_BYTES + payload_bytes }
}

/// One head received by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// A simple reply. Without an error, the data of a read follows: its length is known from the request only.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// The error, if it failed.
        error: Option<Errno>,
    },
    /// Data of a read; `data_bytes` bytes follow.
    Data {
        /// The request's cookie.
        cookie: u64,
        /// Whether this ends the reply.
        done: bool,
        /// First byte of the export; to be checked against the request.
        offset: u64,
        /// How many bytes follow, at least 1.
        data_bytes: u32,
    },
    /// Zeroes of a read; nothing follows.
    Hole {
        /// The request's cookie.
        cookie: u64,
        /// Whether this ends the reply.
        done: bool,
        /// First byte of the export; to be checked against the request.
        offset: u64,
        /// How many bytes are zero, at least 1.
        hole_bytes: u32,
    },
    /// The reply ends.
    Done {
        /// The request's cookie.
        cookie: u64,
    },
    /// The request failed, in whole or from `offset` on.
    Failed {
        /// The request's cookie.
        cookie: u64,
        /// Whether this ends the reply.
        done: bool,
        /// Why.
        errno: Errno,
        /// Where, if told.
        offset: Option<u64>,
        /// Words for a person; may be empty.
        message: &'a str,
    },
}

/// What the front of a reply stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not all of a head: look again when this many bytes are there. More than were given, at most [`HEAD_BYTES_MAX`].
    Need(usize),
    /// A head, and how many bytes it takes.
    Head(Head<'a>, usize),
    /// [`Error::Protocol`]: close the connection.
    Broken(Error),
}

/// Decodes the head at the front of `bytes`.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    if bytes.len() < 4 {
        return Decoded::Need(SIMPLE_BYTES);
    }
    match be_u32(bytes, 0) {
        SIMPLE_REPLY_MAGIC if bytes.len() < SIMPLE_BYTES => Decoded::Need(SIMPLE_BYTES),
        SIMPLE_REPLY_MAGIC => {
            let head = Head::Simple { cookie: be_u64(bytes, 8), error: Errno::from_wire(be_u32(bytes, 4)) };
            Decoded::Head(head, SIMPLE_BYTES)
        }
        STRUCTURED_REPLY_MAGIC if bytes.len() < CHUNK_BYTES => Decoded::Need(CHUNK_BYTES),
        STRUCTURED_REPLY_MAGIC => decode_chunk(bytes),
        _ => broken("a reply has a wrong magic"),
    }
}

fn broken(what: &'static str) -> Decoded<'static> {
    Decoded::Broken(Error::Protocol { what })
}

fn decode_chunk(bytes: &[u8]) -> Decoded<'_> {
    let done = be_u16(bytes, 4) & chunk::FLAG_DONE != 0;
    let kind = be_u16(bytes, 6);
    let cookie = be_u64(bytes, 8);
    let payload_bytes = be_u32(bytes, 16) as usize;
    let fields_bytes = match kind {
        chunk::NONE if payload_bytes == 0 && done => 0,
        chunk::NONE => return broken("an empty chunk that is not empty or not the last"),
        chunk::OFFSET_DATA if payload_bytes > 8 => 8,
        chunk::OFFSET_DATA => return broken("a chunk of data without data"),
        chunk::OFFSET_HOLE if payload_bytes == 12 => 12,
        chunk::OFFSET_HOLE => return broken("a hole's chunk of a wrong length"),
        _ if kind & chunk::ERROR_BIT == 0 => {
            return broken("a chunk of a type that was not negotiated");
        }
        _ if payload_bytes < 6 => return broken("an error chunk that is too short"),
        _ if CHUNK_BYTES + payload_bytes > HEAD_BYTES_MAX => {
            return broken("an error chunk that is too long");
        }
        _ => payload_bytes,
    };
    let end = CHUNK_BYTES + fields_bytes;
    let Some(fields) = bytes.get(CHUNK_BYTES..end) else {
        return Decoded::Need(end);
    };
    let head = match kind {
        chunk::NONE => Head::Done { cookie },
        chunk::OFFSET_DATA => {
            Head::Data { cookie, done, offset: be_u64(fields, 0), data_bytes: (payload_bytes - 8) as u32 }
        }
        chunk::OFFSET_HOLE => match be_u32(fields, 8) {
            0 => return broken("an empty hole"),
            hole_bytes => Head::Hole { cookie, done, offset: be_u64(fields, 0), hole_bytes },
        },
        _ => match decode_failure(kind, cookie, done, fields) {
            Ok(head) => head,
            Err(what) => return broken(what),
        },
    };
    Decoded::Head(head, end)
}

fn decode_failure(kind: u16, cookie: u64, done: bool, fields: &[u8]) -> Result<Head<'_>, &'static str> {
    let message_end = 6 + usize::from(be_u16(fields, 4));
    let message = fields.get(6..message_end).ok_or("an error chunk whose message does not fit")?;
    let errno = Errno::from_wire(be_u32(fields, 0)).ok_or("an error chunk that says success")?;
    let offset = match (kind, fields.get(message_end..message_end + 8)) {
        (chunk::ERROR_OFFSET, None) => return Err("an error chunk without its offset"),
        (chunk::ERROR_OFFSET, Some(offset)) => Some(be_u64(offset, 0)),
        // A type that is not known is an error all the same.
        _ => None,
    };
    let message = str::from_utf8(message).unwrap_or("");
    Ok(Head::Failed { cookie, done, errno, offset, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const COOKIE: u64 = 0x0102_0304_0506_0708;

    #[test]
    fn replies_have_their_published_bytes() {
        let tail = b"\x01\x02\x03\x04\x05\x06\x07\x08";
        let join = |parts: &[&[u8]]| parts.concat();
        assert_eq!(simple(COOKIE, None).to_vec(), join(&[b"\x67\x44\x66\x98\0\0\0\0", tail]));
        assert_eq!(simple(COOKIE, Some(Errno::Io)).to_vec(), join(&[b"\x67\x44\x66\x98\0\0\0\x05", tail]));
        assert_eq!(done(COOKIE).to_vec(), join(&[b"\x66\x8e\x33\xef\0\x01\0\0", tail, b"\0\0\0\0"]));
        assert_eq!(
            data(COOKIE, 0x1000, 512, true).to_vec(),
            join(&[b"\x66\x8e\x33\xef\0\x01\0\x01", tail, b"\0\0\x02\x08\0\0\0\0\0\0\x10\0"])
        );
        assert_eq!(
            hole(COOKIE, 0x1000, 512, false).to_vec(),
            join(&[b"\x66\x8e\x33\xef\0\0\0\x02", tail, b"\0\0\0\x0c\0\0\0\0\0\0\x10\0\0\0\x02\0"])
        );
        assert_eq!(
            error(COOKIE, Errno::Io, "no", None, true).as_bytes(),
            join(&[b"\x66\x8e\x33\xef\0\x01\x80\x01", tail, b"\0\0\0\x08\0\0\0\x05\0\x02no"])
        );
        assert_eq!(
            error(COOKIE, Errno::Io, "no", Some(0x1000), false).as_bytes(),
            join(&[b"\x66\x8e\x33\xef\0\0\x80\x02", tail, b"\0\0\0\x10\0\0\0\x05\0\x02no\0\0\0\0\0\0\x10\0"])
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long: String = core::iter::repeat_n('\u{20ac}', 100).collect();
        let chunk = error(1, Errno::Io, &long, None, true);
        let Decoded::Head(Head::Failed { message, .. }, _) = decode(chunk.as_bytes()) else {
            panic!("not an error chunk");
        };
        assert_eq!(message.len(), 126, "42 characters of 3 bytes");
    }

    #[test]
    fn breaches_are_seen_from_the_header_alone() {
        let mut chunk = data(1, 0, 1, false);
        for (kind, payload_bytes) in [
            (chunk::NONE, 0),
            (chunk::NONE, 1),
            (chunk::OFFSET_DATA, 8),
            (chunk::OFFSET_HOLE, 13),
            (chunk::BLOCK_STATUS, 12),
            (77, 0),
            (chunk::ERROR, 5),
            (chunk::ERROR, u32::MAX),
        ] {
            put_chunk(&mut chunk, false, kind, 1, payload_bytes);
            assert!(matches!(decode(&chunk[..CHUNK_BYTES]), Decoded::Broken(_)), "type {kind}, {payload_bytes} bytes");
        }
        assert!(matches!(decode(&[0; 4]), Decoded::Broken(_)));
    }

    #[test]
    fn an_error_chunk_must_hold_what_it_says() {
        let good = error(1, Errno::Io, "no", Some(7), true);
        let mut bytes = good.as_bytes().to_vec();
        put_be_u16(&mut bytes, CHUNK_BYTES + 4, 3);
        assert!(matches!(decode(&bytes), Decoded::Broken(_)), "the message eats a byte of the offset");
        let mut bytes = good.as_bytes().to_vec();
        put_be_u32(&mut bytes, CHUNK_BYTES, 0);
        assert!(matches!(decode(&bytes), Decoded::Broken(_)), "an error that says success");
    }

    #[test]
    fn an_unknown_error_chunk_is_an_error_nevertheless() {
        let mut bytes = error(1, Errno::NoSpace, "no", None, true).as_bytes().to_vec();
        put_be_u16(&mut bytes, 6, chunk::ERROR_BIT | 99);
        let head = Head::Failed { cookie: 1, done: true, errno: Errno::NoSpace, offset: None, message: "no" };
        assert_eq!(decode(&bytes), Decoded::Head(head, bytes.len()));
    }

    fn any_errno() -> impl Strategy<Value = Errno> {
        prop_oneof![Just(Errno::Io), Just(Errno::NoSpace), Just(Errno::Shutdown), Just(Errno::Invalid)]
    }

    proptest! {
        #[test]
        fn heads_survive_the_wire_in_pieces(
            cookie: u64, last: bool, at: u64, length in 1u32..u32::MAX - 8, errno in any_errno(), message in ".{0,20}", place: Option<u64>,
        ) {
            let error = error(cookie, errno, &message, place, last);
            let all: [(Vec<u8>, Head<'_>); 5] = [
                (simple(cookie, Some(errno)).to_vec(), Head::Simple { cookie, error: Some(errno) }),
                (done(cookie).to_vec(), Head::Done { cookie }),
                (data(cookie, at, length, last).to_vec(), Head::Data { cookie, done: last, offset: at, data_bytes: length }),
                (hole(cookie, at, length, last).to_vec(), Head::Hole { cookie, done: last, offset: at, hole_bytes: length }),
                (error.as_bytes().to_vec(), Head::Failed { cookie, done: last, errno, offset: place, message: &message }),
            ];
            for (bytes, head) in &all {
                prop_assert_eq!(decode(bytes), Decoded::Head(*head, bytes.len()));
                for cut in 0..bytes.len() {
                    let Decoded::Need(need) = decode(&bytes[..cut]) else { panic!("decoded a part of a head") };
                    prop_assert!(need > cut && need <= bytes.len());
                }
            }
        }
    }
}
