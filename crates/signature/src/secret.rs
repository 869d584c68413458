//! Secret: a key pair's second half, which is never shown; and what is derived of it.

use crate::hex::{self, Digits};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::fmt;

/// A part of a key pair cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The id stands in a list with slashes and commas.
    #[error("an access key is 1 to 128 letters, digits and .-_~+=@")]
    Id,
    /// So does the region.
    #[error("a region is 1 to 64 letters, digits and -_")]
    Region,
    /// Nothing, or more than anybody has.
    #[error("a secret key is 1 to 256 bytes")]
    Secret,
}

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Of a key pair.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(secret: &str) -> Result<Self, BadKey> {
        (1..=256).contains(&secret.len()).then(|| Self(secret.into())).ok_or(BadKey::Secret)
    }

    /// The key of one day in one region.
    pub(crate) fn of_day(&self, date: &str, region: &str) -> SigningKey {
        let mut key = hmac(format!("AWS4{}", self.0).as_bytes(), date.as_bytes());
        for part in [region, "s3", "aws4_request"] {
            key = hmac(&key, part.as_bytes());
        }
        SigningKey(key)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(not shown)")
    }
}

/// What signs on one day in one region.
#[derive(Clone)]
pub(crate) struct SigningKey([u8; 32]);

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SigningKey(not shown)")
    }
}

impl SigningKey {
    pub(crate) fn sign(&self, text: &str) -> Digits {
        hex::digits(hmac(&self.0, text.as_bytes()))
    }
}

fn hmac(key: &[u8], of: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    mac.update(of);
    mac.finalize().into_bytes().into()
}

/// The SHA-256 of some bytes.
pub(crate) fn hash(of: &[u8]) -> Digits {
    hex::digits(Sha256::digest(of).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("squeamish").expect("a secret");
        assert!(!format!("{secret:?} {:?}", secret.of_day("20130524", "us-east-1")).contains("squeamish"));
        assert_eq!(Secret::new(""), Err(BadKey::Secret));
    }
}
