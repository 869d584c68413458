//! Sign: a request of our own, in the header.

use crate::authorization::AMZ_PAYLOAD;
use crate::canonical;
use crate::chain::Chain;
use crate::hex;
use crate::payload::Payload;
use crate::secret::{BadKey, Secret};
use crate::time::Stamp;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Uri};

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The key pair that a store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreKey {
    access_key: String,
    secret: Secret,
    region: String,
}

impl StoreKey {
    /// `region`: as the store wants it; most take any.
    ///
    /// # Errors
    /// When the id or the region cannot stand in a signature.
    pub fn new(access_key: &str, secret: Secret, region: &str) -> Result<Self, BadKey> {
        let is_of = |text: &str, max: usize, more: &[u8]| {
            (1..=max).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_alphanumeric() || more.contains(&it))
        };
        match () {
            () if !is_of(access_key, 128, b".-_~+=@") => Err(BadKey::Id),
            () if !is_of(region, 64, b"-_") => Err(BadKey::Region),
            () => Ok(Self { access_key: access_key.into(), secret, region: region.into() }),
        }
    }

    /// Signs a request: its `Host`, and all of it that S3 acts on. What it says of its body in `x-amz-content-sha256` is taken, or set to
    /// "not signed". Whatever signed it before is gone. The chain is for the signatures within its body.
    pub fn sign(&self, now_unix_s: u64, method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Chain {
        let time = Stamp::of(now_unix_s);
        headers.remove(AUTHORIZATION);
        headers.insert(AMZ_DATE, HeaderValue::from_str(time.text()).expect("ASCII"));
        let payload = headers.get(AMZ_PAYLOAD).and_then(|it| it.to_str().ok()).and_then(Payload::of);
        let payload = payload.unwrap_or(Payload::Unsigned);
        headers.insert(AMZ_PAYLOAD, HeaderValue::from_str(payload.text()).expect("ASCII"));
        let covered = [HOST, CONTENT_MD5, CONTENT_TYPE];
        let mut signed: Vec<String> = headers
            .keys()
            .filter(|name| covered.contains(name) || name.as_str().starts_with("x-amz-"))
            .map(|name| name.as_str().to_owned())
            .collect();
        signed.sort_unstable();
        let signed: Vec<&str> = signed.iter().map(String::as_str).collect();
        let query = canonical::query(canonical::pairs(uri.query()));
        let path = canonical::path(uri.path());
        let request = canonical::request(method.as_str(), &path, &query, headers, &signed, payload.text());
        let chain = Chain::begin(self.secret.of_day(time.date(), &self.region), time, &self.region, &request);
        let text = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
            self.access_key,
            chain.scope(),
            signed.join(";"),
            hex::text(chain.last())
        );
        headers.insert(AUTHORIZATION, HeaderValue::try_from(text).expect("checked when the key was made"));
        chain
    }
}
