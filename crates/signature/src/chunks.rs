//! Chunks: a body that is signed piece by piece (`aws-chunked`), checked and signed anew as it passes.
//!
//! How: a chunk is `SIZE;chunk-signature=DIGITS`, its bytes, and a line's end. Its signature stands before its bytes, so a chunk is gathered
//! whole, checked, signed by the other key, and given out. Its framing stays byte for byte; only the 64 digits are others, so
//! lengths stay too. The last chunk is empty; after it there may be headers, with a signature of their own.
//!
//! Invariant: nothing is given out of a chunk whose signature is wrong, nor after it.
//!
//! Limits: a chunk of [`CHUNK_BYTES_MAX`], which is what a body holds at most. Clients send 64 to 128 KiB.

use crate::chain::Chain;
use crate::hex;
use std::mem;
use subtle::ConstantTimeEq;

/// Bytes of a chunk, without its framing.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A line before a chunk: the size's digits and the signature.
const LINE_BYTES_MAX: usize = 16 + 17 + 64 + 2;
/// The headers at the end.
const TRAILER_BYTES_MAX: usize = 16 << 10;
const SIGNATURE: &[u8] = b";chunk-signature=";
const TRAILER_SIGNATURE: &[u8] = b"x-amz-trailer-signature:";

/// Why a body is not passed on any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not what such a body looks like.
    #[error("the body's chunks cannot be read")]
    Malformed,
    /// A chunk is longer than any client's.
    #[error("a chunk is larger than {CHUNK_BYTES_MAX} bytes")]
    TooLarge,
    /// A signature is not that of its chunk.
    #[error("the signature of a chunk is not that of its bytes")]
    Wrong,
    /// It ended before its end.
    #[error("the body ends before its last chunk")]
    Short,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The line before a chunk.
    Line,
    /// A chunk whose line had so many bytes, and its bytes so many; and the line's end.
    Data {
        line: usize,
        bytes: usize,
    },
    /// The headers at the end, of which the last line begins there.
    Trailer {
        line: usize,
    },
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Chunks {
    came: Chain,
    leaves: Chain,
    has_trailer: bool,
    stage: Stage,
    /// What is gathered, since it was not checked yet.
    held: Vec<u8>,
}

impl Chunks {
    /// `came`: the chain of the client's request; `leaves`: of the one to the store.
    #[must_use]
    pub fn new(came: Chain, leaves: Chain, has_trailer: bool) -> Self {
        Self { came, leaves, has_trailer, stage: Stage::Line, held: Vec::new() }
    }

    /// Takes bytes of the body, and gives what may leave: nothing, or some chunks.
    ///
    /// # Errors
    /// When it must not go on.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let used = match self.stage {
                Stage::Line => self.line(bytes)?,
                Stage::Data { line, bytes: length } => self.data(bytes, line, length, &mut out)?,
                Stage::Trailer { line } => self.trailer(bytes, line, &mut out)?,
                Stage::Done => return Err(Fault::Malformed),
            };
            bytes = &bytes[used..];
        }
        Ok(out)
    }

    /// The body has ended.
    ///
    /// # Errors
    /// When it was not whole.
    pub fn end(&self) -> Result<(), Fault> {
        if matches!(self.stage, Stage::Done) { Ok(()) } else { Err(Fault::Short) }
    }

    /// Gathers up to a line's end; `None`: it is still to come.
    fn gather_line(&mut self, bytes: &[u8], from: usize, bytes_max: usize) -> Result<(usize, bool), Fault> {
        let end = bytes.iter().position(|it| *it == b'\n');
        let used = end.map_or(bytes.len(), |it| it + 1);
        if self.held.len() + used > bytes_max {
            return Err(Fault::Malformed);
        }
        self.held.extend_from_slice(&bytes[..used]);
        if end.is_some() && !self.held[from..].ends_with(b"\r\n") {
            return Err(Fault::Malformed);
        }
        Ok((used, end.is_some()))
    }

    fn line(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let (used, is_whole) = self.gather_line(bytes, 0, LINE_BYTES_MAX)?;
        if is_whole {
            let length = size_of(&self.held)?;
            let line = self.held.len();
            match (length, self.has_trailer) {
                (0, true) => {
                    self.check_chunk(line, 0)?;
                    self.stage = Stage::Trailer { line };
                }
                (length, _) => self.stage = Stage::Data { line, bytes: length },
            }
        }
        Ok(used)
    }

    fn data(&mut self, bytes: &[u8], line: usize, length: usize, out: &mut Vec<u8>) -> Result<usize, Fault> {
        let missing = line + length + 2 - self.held.len();
        let used = missing.min(bytes.len());
        self.held.extend_from_slice(&bytes[..used]);
        if used == missing {
            if !self.held.ends_with(b"\r\n") {
                return Err(Fault::Malformed);
            }
            self.check_chunk(line, length)?;
            self.give(out);
            self.stage = if length == 0 { Stage::Done } else { Stage::Line };
        }
        Ok(used)
    }

    fn trailer(&mut self, bytes: &[u8], line: usize, out: &mut Vec<u8>) -> Result<usize, Fault> {
        let (used, is_whole) = self.gather_line(bytes, line, TRAILER_BYTES_MAX)?;
        if !is_whole {
            return Ok(used);
        }
        self.stage = Stage::Trailer { line: self.held.len() };
        if self.held[line..] == *b"\r\n" {
            self.check_trailer()?;
            self.give(out);
            self.stage = Stage::Done;
        }
        Ok(used)
    }

    /// Whether the chunk that is held is the one that was signed; then it is signed anew.
    fn check_chunk(&mut self, line: usize, length: usize) -> Result<(), Fault> {
        let digits = line - 2 - hex::DIGITS..line - 2;
        let data = line..line + length;
        let expected = *self.came.chunk(&self.held[data.clone()]);
        if !bool::from(expected.as_slice().ct_eq(&self.held[digits.clone()])) {
            return Err(Fault::Wrong);
        }
        let fresh = *self.leaves.chunk(&self.held[data]);
        self.held[digits].copy_from_slice(&fresh);
        Ok(())
    }

    /// The same of the headers at the end: what is held is the last chunk's line, theirs, that of the signature, and an empty one.
    fn check_trailer(&mut self) -> Result<(), Fault> {
        let text = self.held.strip_suffix(b"\r\n\r\n").ok_or(Fault::Malformed)?;
        let lines: Vec<&[u8]> =
            text.split(|it| *it == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        let [_, lines @ .., last] = &*lines else { return Err(Fault::Malformed) };
        let came = last.strip_prefix(TRAILER_SIGNATURE).and_then(hex::read).ok_or(Fault::Malformed)?;
        let mut signed = Vec::new();
        for line in lines {
            let colon = line.iter().position(|it| *it == b':').ok_or(Fault::Malformed)?;
            signed.extend_from_slice(&line[..colon].to_ascii_lowercase());
            signed.push(b':');
            signed.extend_from_slice(line[colon + 1..].trim_ascii());
            signed.push(b'\n');
        }
        let expected = *self.came.trailer(&signed);
        if !bool::from(expected.as_slice().ct_eq(came.as_slice())) {
            return Err(Fault::Wrong);
        }
        let fresh = *self.leaves.trailer(&signed);
        let end = self.held.len() - 4;
        self.held[end - hex::DIGITS..end].copy_from_slice(&fresh);
        Ok(())
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        let held = mem::take(&mut self.held);
        if out.is_empty() { *out = held } else { out.extend_from_slice(&held) }
    }
}

/// The size that a whole line tells; the line has a signature then.
fn size_of(line: &[u8]) -> Result<usize, Fault> {
    let digits_start = line.len().checked_sub(2 + hex::DIGITS).ok_or(Fault::Malformed)?;
    let size = line[..digits_start].strip_suffix(SIGNATURE).ok_or(Fault::Malformed)?;
    hex::read(&line[digits_start..line.len() - 2]).ok_or(Fault::Malformed)?;
    if !(1..=16).contains(&size.len()) || !size.iter().all(u8::is_ascii_hexdigit) {
        return Err(Fault::Malformed);
    }
    let size =
        std::str::from_utf8(size).ok().and_then(|it| u64::from_str_radix(it, 16).ok()).ok_or(Fault::Malformed)?;
    usize::try_from(size).ok().filter(|size| *size <= CHUNK_BYTES_MAX).ok_or(Fault::TooLarge)
}
