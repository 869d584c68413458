//! Verify: whether the signature is that of the request, by the key that it names.

use crate::authorization::{AMZ_PAYLOAD, Authorization, Form};
use crate::canonical;
use crate::chain::Chain;
use crate::payload::Payload;
use crate::refusal::Refusal;
use crate::secret::Secret;
use http::header::{CONNECTION, HOST, HeaderMap};
use http::{Method, Uri};
use subtle::ConstantTimeEq;

/// How far a request's time may be from now.
const SKEW_S: u64 = 900;

/// A request whose signature is right.
#[derive(Clone, Debug)]
pub struct Verified {
    /// What it says of its body.
    pub payload: Payload,
    /// Its signature, which those in its body go on from.
    pub chain: Chain,
}

impl Authorization {
    /// Whether the request is signed by who has the secret, and in time.
    ///
    /// # Errors
    /// When it is not.
    pub fn verify(
        &self,
        secret: &Secret,
        now_unix_s: u64,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Verified, Refusal> {
        self.covers(headers)?;
        self.is_in_time(now_unix_s)?;
        let pairs = canonical::pairs(uri.query()).filter(|pair| pair.name != "X-Amz-Signature");
        let signed: Vec<&str> = self.signed.iter().map(String::as_str).collect();
        let request = canonical::request(
            method.as_str(),
            &canonical::path(uri.path()),
            &canonical::query(pairs),
            headers,
            &signed,
            self.payload.text(),
        );
        let chain = Chain::begin(secret.of_day(&self.date, &self.region), self.time, &self.region, &request);
        match bool::from(chain.last().as_slice().ct_eq(self.signature.as_slice())) {
            true => Ok(Verified { payload: self.payload, chain }),
            false => Err(Refusal::Wrong),
        }
    }

    /// `Host` and all that S3 acts on is signed, is there, and stays there.
    fn covers(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let is_signed = |name: &str| self.signed.iter().any(|it| it == name);
        // The payload is a line of its own in what is signed.
        let has_to_be = |name: &str| name == HOST || (name.starts_with("x-amz-") && AMZ_PAYLOAD != name);
        let is_there = self.signed.iter().all(|name| headers.contains_key(name));
        let covered = headers.keys().all(|name| !has_to_be(name.as_str()) || is_signed(name.as_str()));
        let connection = headers.get_all(CONNECTION).iter().flat_map(|it| it.as_bytes().split(|it| *it == b','));
        let mut dropped = connection.map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase());
        let is_kept = dropped.all(|name| !is_signed(&name) && !name.starts_with("x-amz-"));
        let one_host = headers.get_all(HOST).iter().count() == 1;
        match is_signed(HOST.as_str()) && one_host && is_there && covered && is_kept {
            true => Ok(()),
            false => Err(Refusal::NotCovered),
        }
    }

    fn is_in_time(&self, now_unix_s: u64) -> Result<(), Refusal> {
        let time = self.time.unix_s();
        match self.form {
            Form::Header if time.abs_diff(now_unix_s) > SKEW_S => Err(Refusal::Skewed),
            Form::Query { .. } if time > now_unix_s + SKEW_S => Err(Refusal::NotYet),
            Form::Query { expires_s } if now_unix_s > time + expires_s => Err(Refusal::Expired),
            Form::Header | Form::Query { .. } => Ok(()),
        }
    }
}
