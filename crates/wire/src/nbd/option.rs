//! The frames of option haggling: option header, option reply header, and the data of INFO and GO.
//!
//! ```text
//! option  (client): IHAVEOPT u64 | option u32 | length u32 | data
//! reply   (server): magic u64    | option u32 | reply u32  | length u32 | data
//! ```
//!
//! Encoders append to a `Vec`: handshakes are rare, and the buffers are bounded by their owners.

use alloc::vec::Vec;
use core::str;

use super::BlockSizes;
use super::constants::{OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, TransmissionFlags, info, rep};
use crate::bytes::{be_u16, be_u32, be_u64};

/// Bytes before an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes before an option reply's data.
pub const REPLY_HEADER_BYTES: usize = 20;

/// The head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option ([`super::constants::opt`]).
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Decodes an option's head; `None` when the magic is wrong.
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        (be_u64(bytes, 0) == OPTION_MAGIC).then(|| Self { option: be_u32(bytes, 8), length: be_u32(bytes, 12) })
    }
}

/// The head of an option reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The option it answers.
    pub option: u32,
    /// What it says ([`rep`]).
    pub reply: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl ReplyHeader {
    /// Decodes an option reply's head; `None` when the magic is wrong.
    pub fn decode(bytes: &[u8; REPLY_HEADER_BYTES]) -> Option<Self> {
        (be_u64(bytes, 0) == OPTION_REPLY_MAGIC).then(|| Self {
            option: be_u32(bytes, 8),
            reply: be_u32(bytes, 12),
            length: be_u32(bytes, 16),
        })
    }

    /// True for every `NBD_REP_ERR_*`.
    pub fn is_error(&self) -> bool {
        self.reply & rep::ERROR_BIT != 0
    }
}

/// Appends an option with its data.
pub fn push_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends an option reply with its data.
pub fn push_reply(out: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&reply.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`: a name and the informations asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export; empty for the default one.
    pub name: &'a str,
    requests: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Decodes the data of INFO or GO; `None` when it is not well formed.
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let (name, rest) = take_string(data)?;
        let count = usize::from(be_u16(rest.get(..2)?, 0));
        let requests = &rest[2..];
        (requests.len() == 2 * count).then_some(Self { name, requests })
    }

    /// True when information `kind` ([`info`]) was asked for.
    pub fn asks(&self, kind: u16) -> bool {
        self.requests.chunks_exact(2).any(|pair| be_u16(pair, 0) == kind)
    }

    /// Appends the data of INFO or GO.
    pub fn encode(out: &mut Vec<u8>, name: &str, requests: &[u16]) {
        out.extend_from_slice(&(name.len() as u32).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(requests.len() as u16).to_be_bytes());
        for request in requests {
            out.extend_from_slice(&request.to_be_bytes());
        }
    }
}

/// A string with a 32-bit length before it, and what follows; `None` when it is cut, too long or not UTF-8.
pub(super) fn take_string(data: &[u8]) -> Option<(&str, &[u8])> {
    let length = be_u32(data.get(..4)?, 0) as usize;
    if length > STRING_BYTES_MAX {
        return None;
    }
    let text = data.get(4..4 + length)?;
    Some((str::from_utf8(text).ok()?, &data[4 + length..]))
}

/// The data of one `NBD_REP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size and abilities of the export.
    Export {
        /// Its size.
        size_bytes: u64,
        /// What it can do.
        flags: TransmissionFlags,
    },
    /// Its canonical name.
    Name(&'a str),
    /// Words for people.
    Description(&'a str),
    /// Its block sizes.
    Blocks(BlockSizes),
    /// One this code does not know; to be ignored.
    Other(u16),
}

impl<'a> Info<'a> {
    /// Decodes the data of an `NBD_REP_INFO`; `None` when it is not well formed.
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let kind = be_u16(data.get(..2)?, 0);
        let body = &data[2..];
        Some(match kind {
            info::EXPORT if body.len() == 10 => {
                Info::Export { size_bytes: be_u64(body, 0), flags: TransmissionFlags(be_u16(body, 8)) }
            }
            info::BLOCK_SIZE if body.len() == 12 => Info::Blocks(BlockSizes {
                min_bytes: be_u32(body, 0),
                preferred_bytes: be_u32(body, 4),
                max_bytes: be_u32(body, 8),
            }),
            info::NAME => Info::Name(str::from_utf8(body).ok()?),
            info::DESCRIPTION => Info::Description(str::from_utf8(body).ok()?),
            info::EXPORT | info::BLOCK_SIZE => return None,
            other => Info::Other(other),
        })
    }

    /// Appends the data of an `NBD_REP_INFO`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Info::Export { size_bytes, flags } => {
                out.extend_from_slice(&info::EXPORT.to_be_bytes());
                out.extend_from_slice(&size_bytes.to_be_bytes());
                out.extend_from_slice(&flags.0.to_be_bytes());
            }
            Info::Name(text) => {
                out.extend_from_slice(&info::NAME.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Info::Description(text) => {
                out.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Info::Blocks(blocks) => {
                out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
                for bytes in [blocks.min_bytes, blocks.preferred_bytes, blocks.max_bytes] {
                    out.extend_from_slice(&bytes.to_be_bytes());
                }
            }
            Info::Other(kind) => out.extend_from_slice(&kind.to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn headers_have_their_published_bytes() {
        let mut out = Vec::new();
        push_option(&mut out, 7, b"ab");
        assert_eq!(out, *b"IHAVEOPT\0\0\0\x07\0\0\0\x02ab");
        let header = OptionHeader::decode(out[..16].try_into().unwrap());
        assert_eq!(header, Some(OptionHeader { option: 7, length: 2 }));

        let mut out = Vec::new();
        push_reply(&mut out, 7, rep::ERR_UNKNOWN, b"");
        assert_eq!(out, *b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\x80\0\0\x06\0\0\0\0");
        let header = ReplyHeader::decode(out[..20].try_into().unwrap()).unwrap();
        assert!(header.is_error());
    }

    #[test]
    fn a_wrong_magic_is_no_header() {
        assert_eq!(OptionHeader::decode(&[0; 16]), None);
        assert_eq!(ReplyHeader::decode(&[0; 20]), None);
    }

    #[test]
    fn info_request_lengths_must_agree() {
        let mut data = Vec::new();
        InfoRequest::encode(&mut data, "vol", &[info::BLOCK_SIZE, info::NAME]);
        let request = InfoRequest::decode(&data).unwrap();
        assert_eq!(request.name, "vol");
        assert!(request.asks(info::NAME) && request.asks(info::BLOCK_SIZE) && !request.asks(info::DESCRIPTION));
        for cut in 0..data.len() {
            assert_eq!(InfoRequest::decode(&data[..cut]), None, "cut at {cut}");
        }
        data.push(0);
        assert_eq!(InfoRequest::decode(&data), None, "a byte too many");
    }

    #[test]
    fn names_beyond_4096_bytes_or_outside_utf8_are_refused() {
        let mut long = vec![0, 0, 0x10, 1];
        long.extend_from_slice(&[b'a'; 4097]);
        long.extend_from_slice(&[0, 0]);
        assert_eq!(InfoRequest::decode(&long), None);
        assert_eq!(InfoRequest::decode(b"\0\0\0\x01\xff\0\0"), None);
    }

    proptest! {
        #[test]
        fn infos_survive_the_wire(size_bytes: u64, flags: u16, min_bytes: u32, preferred_bytes: u32, max_bytes: u32, text: String) {
            for info in [
                Info::Export { size_bytes, flags: TransmissionFlags(flags) },
                Info::Blocks(BlockSizes { min_bytes, preferred_bytes, max_bytes }),
                Info::Name(&text),
                Info::Description(&text),
            ] {
                let mut data = Vec::new();
                info.encode(&mut data);
                prop_assert_eq!(Info::decode(&data), Some(info));
            }
        }
    }
}
