//! Chain: signatures that each sign the one before: a request's, then those of its chunks, then that of the headers at its end.

use crate::hex::{self, Digits};
use crate::secret::{self, SigningKey};
use crate::time::Stamp;

const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// See the module.
#[derive(Clone, Debug)]
pub struct Chain {
    key: SigningKey,
    time: Stamp,
    scope: String,
    last: Digits,
}

impl Chain {
    /// The signature of a request, with which a chain begins.
    pub(crate) fn begin(key: SigningKey, time: Stamp, region: &str, canonical_request: &[u8]) -> Self {
        let scope = format!("{}/{region}/s3/aws4_request", time.date());
        let hash = secret::hash(canonical_request);
        let last = key.sign(&format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", time.text(), hex::text(&hash)));
        Self { key, time, scope, last }
    }

    /// The last signature.
    #[must_use]
    pub fn last(&self) -> &[u8; 64] {
        &self.last
    }

    /// Of a request's credential: day, region, service.
    pub(crate) fn scope(&self) -> &str {
        &self.scope
    }

    /// The signature of the next chunk.
    pub(crate) fn chunk(&mut self, data: &[u8]) -> &Digits {
        let hash = secret::hash(data);
        let (time, scope, last) = (self.time.text(), &self.scope, hex::text(&self.last));
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{last}\n{NOTHING}\n{}", hex::text(&hash));
        self.last = self.key.sign(&text);
        &self.last
    }

    /// The signature of the headers at the end: lines `name:value`, each with its newline.
    pub(crate) fn trailer(&mut self, lines: &[u8]) -> &Digits {
        let hash = secret::hash(lines);
        let (time, scope, last) = (self.time.text(), &self.scope, hex::text(&self.last));
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{time}\n{scope}\n{last}\n{}", hex::text(&hash));
        self.last = self.key.sign(&text);
        &self.last
    }
}
