//! Authorization: what a request says of its signature, before anything of it is believed.
//!
//! How: either `Authorization: AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…` with the time in `x-amz-date`, or the same in the
//! query. Each part has one form; what has another, or is there twice, is refused.

use crate::canonical::{self, Pair};
use crate::payload::Payload;
use crate::refusal::Refusal;
use crate::time::Stamp;
use http::header::{AUTHORIZATION, DATE, HeaderMap, HeaderName};
use http::{HeaderValue, Uri};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const AMZ_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub(crate) const AMZ_PAYLOAD: HeaderName = HeaderName::from_static("x-amz-content-sha256");
/// The longest that a query's signature may be good for.
const EXPIRES_S_MAX: u64 = 7 * 86_400;
/// What a signature in the query is made of.
const IN_QUERY: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
];

/// Where a signature stands, and how long it is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In `Authorization`: 15 minutes to either side.
    Header,
    /// In the query, for so many seconds.
    Query {
        /// From its time on.
        expires_s: u64,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Authorization {
    pub(crate) access_key: String,
    pub(crate) date: String,
    pub(crate) region: String,
    pub(crate) signed: Vec<String>,
    pub(crate) signature: Vec<u8>,
    pub(crate) time: Stamp,
    pub(crate) form: Form,
    pub(crate) payload: Payload,
}

impl Authorization {
    /// What a request says.
    ///
    /// # Errors
    /// When it says nothing, or nothing that is understood.
    pub fn of(uri: &Uri, headers: &HeaderMap) -> Result<Self, Refusal> {
        let in_query = || canonical::pairs(uri.query()).filter(|pair| IN_QUERY.contains(&pair.name.as_str()));
        let is_in_query = canonical::pairs(uri.query()).any(|pair| {
            // A link of version 2 has these.
            IN_QUERY[..6].contains(&pair.name.as_str()) || ["AWSAccessKeyId", "Signature"].contains(&pair.name.as_str())
        });
        match (headers.contains_key(AUTHORIZATION), is_in_query) {
            (false, false) => Err(Refusal::Anonymous),
            (true, true) => Err(Refusal::Unsupported),
            (true, false) => Self::of_header(headers),
            (false, true) => Self::of_query(&in_query().collect::<Vec<_>>(), headers),
        }
    }

    /// Who signed it, as it says.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// What of a query is not of its signature.
    pub fn rest(query: Option<&str>) -> impl Iterator<Item = Pair> {
        canonical::pairs(query).filter(|pair| !IN_QUERY.contains(&pair.name.as_str()))
    }

    fn of_header(headers: &HeaderMap) -> Result<Self, Refusal> {
        let authorization = one(headers, &AUTHORIZATION).ok_or(Refusal::Malformed("Authorization"))?;
        let fields = authorization.strip_prefix(ALGORITHM).filter(|it| it.starts_with([' ', ',']));
        let fields = fields.ok_or(Refusal::Unsupported)?;
        let [mut credential, mut signed, mut signature] = [None; 3];
        for field in fields.split(',').map(str::trim) {
            let (name, value) = field.split_once('=').ok_or(Refusal::Malformed("Authorization"))?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed,
                "Signature" => &mut signature,
                _ => return Err(Refusal::Malformed("Authorization")),
            };
            if place.replace(value).is_some() {
                return Err(Refusal::Malformed("Authorization"));
            }
        }
        let (Some(credential), Some(signed), Some(signature)) = (credential, signed, signature) else {
            return Err(Refusal::Malformed("Authorization"));
        };
        if headers.contains_key(AMZ_TOKEN) {
            return Err(Refusal::Token);
        }
        let payload = one(headers, &AMZ_PAYLOAD).and_then(Payload::of).ok_or(Refusal::NoPayload)?;
        let time = time_of(headers).ok_or(Refusal::Malformed("x-amz-date"))?;
        Self::new(credential, signed, signature, time, Form::Header, payload).map_err(Refusal::Malformed)
    }

    fn of_query(pairs: &[Pair], headers: &HeaderMap) -> Result<Self, Refusal> {
        let find = |name: &'static str| -> Result<Option<String>, Refusal> {
            let mut found = pairs.iter().filter(|pair| pair.name == name);
            match (found.next(), found.next()) {
                (None, _) => Ok(None),
                (Some(pair), None) => {
                    String::from_utf8(pair.decoded()).map(Some).map_err(|_| Refusal::MalformedQuery(name))
                }
                (Some(_), Some(_)) => Err(Refusal::MalformedQuery(name)),
            }
        };
        let need = |name| find(name)?.ok_or(Refusal::MalformedQuery(name));
        if find("X-Amz-Algorithm")?.as_deref() != Some(ALGORITHM) {
            return Err(Refusal::Unsupported);
        }
        if find("X-Amz-Security-Token")?.is_some() || headers.contains_key(AMZ_TOKEN) {
            return Err(Refusal::Token);
        }
        let expires_s = need("X-Amz-Expires")?.parse().ok().filter(|it| (1..=EXPIRES_S_MAX).contains(it));
        let form = Form::Query { expires_s: expires_s.ok_or(Refusal::MalformedQuery("X-Amz-Expires"))? };
        let time = Stamp::read(&need("X-Amz-Date")?).ok_or(Refusal::MalformedQuery("X-Amz-Date"))?;
        let payload = match (find("X-Amz-Content-Sha256")?, headers.contains_key(AMZ_PAYLOAD)) {
            (None, false) => Payload::Unsigned,
            (Some(text), _) => Payload::of(&text).ok_or(Refusal::NoPayload)?,
            (None, true) => one(headers, &AMZ_PAYLOAD).and_then(Payload::of).ok_or(Refusal::NoPayload)?,
        };
        if payload.is_signed_by_chunk() {
            return Err(Refusal::NoPayload);
        }
        let (credential, signed) = (need("X-Amz-Credential")?, need("X-Amz-SignedHeaders")?);
        Self::new(&credential, &signed, &need("X-Amz-Signature")?, time, form, payload).map_err(Refusal::MalformedQuery)
    }

    fn new(
        credential: &str,
        signed: &str,
        signature: &str,
        time: Stamp,
        form: Form,
        payload: Payload,
    ) -> Result<Self, &'static str> {
        let [access_key, date, region, "s3", "aws4_request"] = *credential.split('/').collect::<Vec<_>>() else {
            return Err("Credential");
        };
        if access_key.is_empty() || date != time.date() {
            return Err("Credential");
        }
        let signed: Vec<String> = signed.split(';').map(Into::into).collect();
        // A name twice would be the same value twice: there is one form.
        let is_sorted = signed.windows(2).all(|two| two[0] < two[1]);
        let is_name = |it: &String| HeaderName::try_from(it.as_str()).is_ok_and(|name| name.as_str() == it);
        if !is_sorted || !signed.iter().all(is_name) {
            return Err("SignedHeaders");
        }
        Ok(Self {
            access_key: access_key.into(),
            date: date.into(),
            region: region.into(),
            signed,
            // What is no signature is a wrong one.
            signature: signature.into(),
            time,
            form,
            payload,
        })
    }
}

/// The only value of a header, if it is text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    text(value)
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim)
}

/// In `x-amz-date`, or in `Date` if there is no other.
fn time_of(headers: &HeaderMap) -> Option<Stamp> {
    let name = if headers.contains_key(AMZ_DATE) { AMZ_DATE } else { DATE };
    Stamp::read(one(headers, &name)?)
}
