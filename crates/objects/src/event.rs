//! Events: what a store tells of objects that were changed past the gateway.
//!
//! How: a body of JSON as Amazon S3, MinIO, Ceph RGW and versitygw send it: `Records`, each with a bucket's name and an object's key; also a list of such
//! records, or one alone. A test event has none. Some stores write keys percent-encoded, with `+` for a space, and some as they are: a
//! key that reads both ways names two objects, and both are asked for anew, which costs a question at most.
//!
//! Limit: [`EVENTS_BYTES_MAX`].

use crate::catalogue::Name;
use percent_encoding::percent_decode;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt;

/// Of a body.
pub const EVENTS_BYTES_MAX: usize = 1 << 20;

/// Why a body tells of no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEvents(String);

impl fmt::Display for NotEvents {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "these are no bucket events: {}", self.0)
    }
}

impl std::error::Error for NotEvents {}

/// What whoever tells of events has to know. Only a hash of it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Nothing of it is told.
impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Token")
    }
}

impl Token {
    /// Of a text.
    #[must_use]
    pub fn of(text: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Whether a request knows it: in `Authorization: Bearer TOKEN`, or where a store can only be given an address, in `token` of its query.
    #[must_use]
    pub fn is_known(&self, authorization: Option<&str>, query: Option<&str>) -> bool {
        let bearer = authorization.and_then(|it| it.strip_prefix("Bearer "));
        let in_query = crate::target::pairs(query).find(|(key, _)| *key == "token").map(|(_, value)| value);
        // Hashes are compared: how long that takes tells nothing of the text.
        let text =
            bearer.map(str::as_bytes).map(Vec::from).or_else(|| Some(percent_decode(in_query?.as_bytes()).collect()));
        text.is_some_and(|text| Self::of(text) == *self)
    }
}

/// The names that a body tells of.
///
/// # Errors
/// When it is none of what stores send.
pub fn names_told(body: &[u8]) -> Result<Vec<Name>, NotEvents> {
    let value: Value = serde_json::from_slice(body).map_err(|error| NotEvents(error.to_string()))?;
    let records = match &value {
        Value::Array(records) => records.as_slice(),
        Value::Object(object) => match object.get("Records") {
            Some(Value::Array(records)) => records.as_slice(),
            Some(_) => return Err(NotEvents("Records is no list".into())),
            None if object.contains_key("s3") => std::slice::from_ref(&value),
            None if object.get("Event").is_some_and(|it| it == "s3:TestEvent") => &[],
            None => return Err(NotEvents("there is no Records".into())),
        },
        _ => return Err(NotEvents("there is no Records".into())),
    };
    let mut names = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let text = |pointer: &str| {
            let text = record.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| NotEvents(format!("record {at} has no {}", pointer[1..].replace('/', "."))))
        };
        let (bucket, key) = (text("/s3/bucket/name")?, text("/s3/object/key")?);
        let with_spaces = key.replace('+', " ");
        let decoded: Vec<u8> = percent_decode(with_spaces.as_bytes()).collect();
        if decoded != key.as_bytes() {
            names.push(Name { bucket: bucket.into(), key: decoded.into() });
        }
        names.push(Name { bucket: bucket.into(), key: key.as_bytes().into() });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(body: &str) -> Result<Vec<String>, String> {
        let names = names_told(body.as_bytes()).map_err(|error| error.to_string())?;
        Ok(names.iter().map(|it| format!("{}/{}", it.bucket, String::from_utf8_lossy(&it.key))).collect())
    }

    #[test]
    fn names_are_found_as_stores_write_them() {
        let record =
            |key: &str| format!(r#"{{"eventName":"x","s3":{{"bucket":{{"name":"b"}},"object":{{"key":"{key}"}}}}}}"#);
        for body in [
            format!(r#"{{"Records":[{}]}}"#, record("k")),
            format!(r#"{{"EventName":"s3:ObjectCreated:Put","Key":"b/k","Records":[{}]}}"#, record("k")),
            format!("[{}]", record("k")),
            record("k"),
        ] {
            assert_eq!(told(&body), Ok(vec!["b/k".to_owned()]), "{body}");
        }
        let both = format!("[{},{}]", record("a+b%2Fc"), record("x"));
        assert_eq!(told(&both), Ok(["b/a b/c", "b/a+b%2Fc", "b/x"].map(str::to_owned).to_vec()));
        assert_eq!(told(r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}"#), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_told_so_is_refused_with_its_cause() {
        for (body, cause) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("7", "there is no Records"),
            ("{}", "there is no Records"),
            (r#"{"Records":7}"#, "Records is no list"),
            (r#"[{"s3":{"object":{"key":"k"}}}]"#, "record 0 has no s3.bucket.name"),
            (r#"{"s3":{"bucket":{"name":"b"},"object":{"key":7}}}"#, "record 0 has no s3.object.key"),
        ] {
            assert_eq!(told(body), Err(format!("these are no bucket events: {cause}")), "{body}");
        }
        assert!(told(&"[".repeat(EVENTS_BYTES_MAX)).is_err(), "however deep");
    }

    #[test]
    fn a_token_is_known_or_not() {
        let token = Token::of("0123456789abcdef");
        assert!(token.is_known(Some("Bearer 0123456789abcdef"), None));
        assert!(token.is_known(None, Some("a=b&token=0123456789abcdef")));
        assert!(Token::of("a b").is_known(None, Some("token=a%20b")));
        for (authorization, query) in [
            (None, None),
            (Some("0123456789abcdef"), None),
            (Some("Bearer 0123456789abcde"), Some("token=0123456789abcdef")),
            (None, Some("token=")),
            (None, Some("Token=0123456789abcdef")),
        ] {
            assert!(!token.is_known(authorization, query), "{authorization:?} {query:?}");
        }
        assert!(!format!("{token:?}").contains("01"));
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in "[\\[\\]{}\":,a-z0-9]{0,60}") {
            let _ = told(&body);
        }
    }
}
