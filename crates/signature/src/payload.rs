//! Payload: what a request says of its body, in `x-amz-content-sha256`.

use crate::hex;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Its SHA-256.
    Hash([u8; 64]),
    /// Nothing: the body is not signed.
    Unsigned,
    /// The body has chunks, each with a signature.
    Chunks,
    /// So it has, and headers at its end, with a signature too.
    ChunksAndTrailer,
    /// The body has chunks without a signature, and headers at its end.
    UnsignedAndTrailer,
}

/// How each is written, but for the hash.
const WRITTEN: [(&str, Payload); 4] = [
    ("UNSIGNED-PAYLOAD", Payload::Unsigned),
    ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", Payload::Chunks),
    ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", Payload::ChunksAndTrailer),
    ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", Payload::UnsignedAndTrailer),
];

impl Payload {
    /// Of what is written; `None` if that is none of them.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let found = WRITTEN.iter().find(|(written, _)| *written == text).map(|(_, payload)| *payload);
        found.or_else(|| hex::read(text.as_bytes()).map(Self::Hash))
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Hash(digits) => hex::text(digits),
            other => WRITTEN.iter().find(|(_, it)| it == other).map(|(written, _)| *written).expect("in the table"),
        }
    }

    /// Whether the body has signatures within.
    #[must_use]
    pub fn is_signed_by_chunk(&self) -> bool {
        matches!(self, Self::Chunks | Self::ChunksAndTrailer)
    }
}
