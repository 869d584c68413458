//! AWS chunked: the object's bytes in an upload that is written in S3's own chunks, inside of the body as HTTP has it.
//!
//! Why: what passes to the store stays as it is, byte for byte, signatures included. What is kept are the object's bytes.
//!
//! How: `SIZE[;extension]\r\n`, so many bytes, `\r\n`, again and again; the last chunk's size is 0 (hexadecimal), behind it trailers, a line
//! each, and an empty line. [`AwsChunked::feed`] says which of a piece's bytes are the object's; it copies nothing.
//!
//! Limits: a line has [`LINE_BYTES_MAX`] bytes, trailers [`TRAILERS_MAX`] lines. What is not so written is [`Malformed`]: it is the store's to
//! judge, and nothing of it is kept. Signatures and checksums are the store's to judge too: without its yes nothing is believed.

use std::ops::Range;

/// Of a chunk's head or a trailer.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Lines behind the last chunk.
const TRAILERS_MAX: u32 = 32;

/// It is no such body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A chunk's head.
    Head,
    /// Its bytes: so many are left.
    Data(u64),
    /// The line's end behind them.
    DataEnd,
    /// Behind the last chunk.
    Trailers(u32),
    End,
}

/// See the module.
#[derive(Debug)]
pub struct AwsChunked {
    at: At,
    /// The line that is being read, as far as it came.
    line: Vec<u8>,
    /// Of the object, that are still to come.
    left: u64,
}

impl AwsChunked {
    /// An upload of an object of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { at: At::Head, line: Vec::new(), left: bytes }
    }

    /// Which of the next bytes of the body are the object's, in order, added to `ours`.
    ///
    /// # Errors
    /// When this is not what such a body looks like, or brings more than was said. Then the rest is not to be fed.
    pub fn feed(&mut self, piece: &[u8], ours: &mut Vec<Range<usize>>) -> Result<(), Malformed> {
        let mut from = 0;
        while from < piece.len() {
            if let At::Data(left) = self.at {
                let length = left.min((piece.len() - from) as u64);
                ours.push(from..from + length as usize);
                from += length as usize;
                self.at = if length == left { At::DataEnd } else { At::Data(left - length) };
                continue;
            }
            let rest = &piece[from..];
            let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            if self.line.len() + length > LINE_BYTES_MAX {
                return Err(Malformed);
            }
            self.line.extend_from_slice(&rest[..length]);
            from += length;
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.take(line.strip_suffix(b"\r\n").ok_or(Malformed)?)?;
            }
        }
        Ok(())
    }

    /// Whether all of it came.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.at == At::End && self.left == 0
    }

    /// A line, without its end.
    fn take(&mut self, line: &[u8]) -> Result<(), Malformed> {
        self.at = match self.at {
            At::Head => match size(line)? {
                0 => At::Trailers(0),
                bytes => {
                    self.left = self.left.checked_sub(bytes).ok_or(Malformed)?;
                    At::Data(bytes)
                }
            },
            At::DataEnd if line.is_empty() => At::Head,
            At::Trailers(_) if line.is_empty() => At::End,
            At::Trailers(lines) if lines < TRAILERS_MAX && line.contains(&b':') => At::Trailers(lines + 1),
            At::Data(_) | At::DataEnd | At::Trailers(_) | At::End => return Err(Malformed),
        };
        Ok(())
    }
}

/// A chunk's, from its head.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if !(1..=16).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Malformed);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The object's bytes, if all of it came; fed in pieces of at most so many bytes.
    fn decoded(body: &[u8], bytes: u64, piece_bytes: usize) -> Result<Option<Vec<u8>>, Malformed> {
        let mut decoder = AwsChunked::new(bytes);
        let mut out = Vec::new();
        for piece in body.chunks(piece_bytes) {
            let mut ours = Vec::new();
            decoder.feed(piece, &mut ours)?;
            ours.into_iter().for_each(|range| out.extend_from_slice(&piece[range]));
            assert!(decoder.line.len() <= LINE_BYTES_MAX && out.len() as u64 <= bytes);
        }
        Ok(decoder.is_whole().then_some(out))
    }

    /// As a client would write it, in chunks of these sizes.
    fn encoded(object: &[u8], sizes: &[usize], signed: bool, trailer: &str) -> Vec<u8> {
        let (mut out, mut left, mut sizes) = (Vec::new(), object, sizes.iter().cycle());
        loop {
            let (chunk, rest) = left.split_at(left.len().min(*sizes.next().expect("a size")));
            left = rest;
            let signature = if signed { format!(";chunk-signature={:064x}", chunk.len()) } else { String::new() };
            out.extend_from_slice(format!("{:x}{signature}\r\n", chunk.len()).as_bytes());
            if chunk.is_empty() {
                out.extend_from_slice(format!("{trailer}\r\n").as_bytes());
                return out;
            }
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
    }

    #[test]
    fn bodies_as_clients_write_them() {
        let signed =
            "4;chunk-signature=0123\r\nabcd\r\n3;chunk-signature=4567\r\ne\r\n\r\n0;chunk-signature=89\r\n\r\n";
        assert_eq!(decoded(signed.as_bytes(), 7, 3), Ok(Some(b"abcde\r\n".to_vec())));
        let trailed =
            "B\r\nhello world\r\n0\r\nx-amz-checksum-crc64nvme:jSnVw/bqjr4=\r\nx-amz-trailer-signature:0\r\n\r\n";
        assert_eq!(decoded(trailed.as_bytes(), 11, 100), Ok(Some(b"hello world".to_vec())));
        assert_eq!(decoded(b"0\r\n\r\n", 0, 1), Ok(Some(Vec::new())), "an empty object");
    }

    #[test]
    fn what_is_not_so_written_is_malformed_and_what_breaks_off_is_not_whole() {
        for body in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\na\r\n",
            "0x1\r\na\r\n",
            " 1\r\na\r\n",
            "1\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "4\r\nabcd\r\n",
            "fffffffffffffffff\r\n",
            "ffffffffffffffff\r\n",
            "3\r\nabc\r\n0\r\nno trailer\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n0\r\n\r\n",
        ] {
            for piece_bytes in [1, 2, 100] {
                assert_eq!(decoded(body.as_bytes(), 3, piece_bytes), Err(Malformed), "{body:?} by {piece_bytes}");
            }
        }
        for body in ["", "3", "3\r\nab", "3\r\nabc", "3\r\nabc\r\n0\r\n", "2\r\nab\r\n0\r\n\r\n"] {
            assert_eq!(decoded(body.as_bytes(), 3, 2), Ok(None), "{body:?}");
        }
        assert_eq!(decoded("1".repeat(LINE_BYTES_MAX + 1).as_bytes(), 3, 64), Err(Malformed));
        let trailers = "a:b\r\n".repeat(TRAILERS_MAX as usize + 1);
        assert_eq!(decoded(format!("0\r\n{trailers}\r\n").as_bytes(), 0, 64), Err(Malformed));
    }

    proptest! {
        #[test]
        fn what_a_client_wrote_comes_out_however_it_is_cut(
            object in proptest::collection::vec(any::<u8>(), 0..600),
            sizes in proptest::collection::vec(1..300usize, 1..4),
            signed in any::<bool>(),
            trailed in any::<bool>(),
            piece_bytes in 1..200usize,
        ) {
            let body = encoded(&object, &sizes, signed, if trailed { "x-amz-checksum-crc32:AAAAAA==\r\n" } else { "" });
            let bytes = object.len() as u64;
            prop_assert_eq!(decoded(&body, bytes, piece_bytes), Ok(Some(object)));
            prop_assert_eq!(decoded(&body[..body.len() - 1], bytes, piece_bytes), Ok(None));
        }

        /// Whole or not does not depend on how it is cut, and one wrong byte in a head is seen or changes no byte of the object.
        #[test]
        fn random_bodies_are_judged_the_same_however_they_are_cut(
            body in "([0-3][;a]{0,2}(\r\n|\n|\r)[a-c]{0,3}(\r\n)?){0,6}(0\r\n(a:b\r\n)?\r\n)?",
            bytes in 0..6u64,
            piece_bytes in 1..20usize,
        ) {
            prop_assert_eq!(decoded(body.as_bytes(), bytes, piece_bytes), decoded(body.as_bytes(), bytes, usize::MAX));
        }
    }
}
