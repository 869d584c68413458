//! Decides: whether a request was signed by who it says (AWS Signature Version 4, as S3 has it), and signs others.
//!
//! Why here and not a library: the published crates sign, and none checks a request, or the signatures within a body. What is taken from
//! libraries is the cryptography: HMAC, SHA-256, comparison in constant time.
//!
//! How: [`Authorization::of`] reads what a request says of its signature, in `Authorization` or in its query. [`Authorization::verify`] makes the
//! canonical request ([`canonical`]) and compares. [`StoreKey::sign`] signs a request anew, in the header. [`Chunks`] does both for a
//! body that is signed chunk by chunk.
//!
//! Invariants: one request has one canonical form, and [`canonical`] is what makes it: what was checked is what should be acted on, so a
//! gateway goes on with [`canonical::path`] and [`canonical::pairs`], not with what came. A secret is never shown ([`Secret`]).
//!
//! Limits: version 2 and 4A are refused; so are temporary keys (with a security token), since nobody here gives them out. A body's hash in
//! `x-amz-content-sha256` is part of what is signed; whether the body has it is the store's to say, which compares it as it comes.
#![forbid(unsafe_code)]

mod authorization;
pub mod canonical;
mod chain;
mod chunks;
mod hex;
mod payload;
mod refusal;
mod secret;
mod sign;
mod time;
mod verify;

pub use authorization::{Authorization, Form};
pub use chain::Chain;
pub use chunks::{CHUNK_BYTES_MAX, Chunks, Fault};
pub use payload::Payload;
pub use refusal::Refusal;
pub use secret::{BadKey, Secret};
pub use sign::StoreKey;
pub use time::{Stamp, unix_s};
pub use verify::Verified;
