//! Read: what a request wants of an object, as far as the cache must know.
//!
//! How: from the query: the version's id, a part's number, headers of the answer that are to be others. From the headers: a range, conditions, and
//! whether checksums are to be told. Whatever makes the answer another one than the object's own bytes and headers keeps it from
//! the cache ([`Read::bypass`]).

use crate::catalogue::Name;
use crate::condition::Conditions;
use crate::range::Spec;
use crate::target::{Target, Verb, pairs};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, EXPIRES,
    HeaderMap, HeaderName, HeaderValue, ORIGIN, RANGE, TRANSFER_ENCODING,
};
use percent_encoding::percent_decode_str;

/// Which bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// All.
    Whole,
    /// A range.
    Part(Spec),
    /// The part of a multipart upload that has this number.
    Numbered(u32),
    /// Something that only the store understands.
    Unclear,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Whose.
    pub name: Name,
    /// Of which version, if one is named.
    pub version_id: Option<Box<str>>,
    /// Headers only.
    pub head: bool,
    /// Which bytes.
    pub asked: Asked,
    /// If.
    pub conditions: Conditions,
    /// Checksums are to be told.
    pub checksums: bool,
    /// The answer's headers that are to be others.
    pub overrides: Vec<(HeaderName, HeaderValue)>,
    /// The store is to be asked in any case.
    pub fresh: bool,
    /// Why nothing of it may come from the cache, or go there.
    pub bypass: Option<&'static str>,
}

/// Queries that set a header of the answer.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-content-type", CONTENT_TYPE),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-expires", EXPIRES),
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
];
const SSE_C: &str = "x-amz-server-side-encryption-customer-";
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

impl Read {
    /// Of a request; `None` if it is not one of an object's bytes.
    #[must_use]
    pub fn of(target: &Target, query: Option<&str>, headers: &HeaderMap) -> Option<Self> {
        let (Verb::Read { head }, Some(name)) = (target.verb, &target.name) else { return None };
        let mut read = Self {
            name: name.clone(),
            version_id: None,
            head,
            asked: asked(headers),
            conditions: Conditions::of(headers),
            checksums: headers.get(CHECKSUM_MODE).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"enabled")),
            overrides: Vec::new(),
            fresh: says(headers, "no-cache"),
            bypass: bypass(headers),
        };
        for (key, value) in pairs(query) {
            read.take(key, value);
        }
        Some(read)
    }

    fn take(&mut self, key: &str, value: &str) {
        let value = percent_decode_str(value).decode_utf8();
        match (key, value) {
            ("versionId", Ok(value)) if self.version_id.is_none() => self.version_id = Some(value.as_ref().into()),
            ("versionId", _) => self.bypass = Some("version-id"),
            ("partNumber", Ok(value)) if self.asked == Asked::Whole => match value.parse() {
                Ok(number) => self.asked = Asked::Numbered(number),
                Err(_) => self.bypass = Some("part-number"),
            },
            // Twice, or with a range: which of them counts is the store's to say.
            ("partNumber", _) => self.bypass = Some("part-number"),
            (key, value) if key.starts_with("response-") => {
                let header = OVERRIDES.iter().find(|(query, _)| *query == key);
                let value = value.ok().and_then(|value| HeaderValue::from_str(&value).ok());
                match (header, value) {
                    (Some((_, header)), Some(value)) => self.overrides.push((header.clone(), value)),
                    _ => self.bypass = Some("response-headers"),
                }
            }
            _ => {}
        }
    }
}

fn asked(headers: &HeaderMap) -> Asked {
    let mut ranges = headers.get_all(RANGE).iter();
    match (ranges.next(), ranges.next()) {
        (None, _) => Asked::Whole,
        (Some(range), None) => range.to_str().ok().and_then(Spec::of).map_or(Asked::Unclear, Asked::Part),
        (Some(_), Some(_)) => Asked::Unclear,
    }
}

fn says(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(word))
}

/// Whether bytes are encrypted with a key that only the client has.
pub(crate) fn has_customer_key(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(SSE_C))
}

fn bypass(headers: &HeaderMap) -> Option<&'static str> {
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    match () {
        () if has_customer_key(headers) => Some("customer-key"),
        () if headers.contains_key(ORIGIN) => Some("cross-origin"),
        () if says(headers, "no-store") => Some("no-store"),
        () if has_body => Some("body"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn read(query: &str, given: &[(&str, &str)]) -> Read {
        let target = Target::of(&Method::GET, "/b/k", Some(query), None, &[]);
        Read::of(&target, Some(query), &crate::headers(given)).expect("a read")
    }

    #[test]
    fn query_and_headers_say_what_is_wanted() {
        let plain = read("", &[]);
        assert_eq!((plain.asked, plain.checksums, plain.fresh, plain.bypass), (Asked::Whole, false, false, None));
        assert!(plain.version_id.is_none() && plain.overrides.is_empty() && plain.conditions.is_empty());
        let much = read(
            "versionId=a%2Fb&response-content-type=text%2Fx&X-Amz-Date=1",
            &[("range", "bytes=1-2"), ("x-amz-checksum-mode", "ENABLED"), ("cache-control", "max-age=0, no-cache")],
        );
        assert_eq!(much.version_id.as_deref(), Some("a/b"));
        assert_eq!((much.asked, much.checksums, much.fresh), (Asked::Part(Spec::From(1, Some(2))), true, true));
        assert_eq!(much.overrides, [(CONTENT_TYPE, HeaderValue::from_static("text/x"))]);
        assert_eq!(read("partNumber=1", &[]).asked, Asked::Numbered(1));
        assert_eq!(read("", &[("range", "bytes=1-2,3-4")]).asked, Asked::Unclear);
        assert_eq!(read("", &[("range", "bytes=1-2"), ("range", "bytes=1-2")]).asked, Asked::Unclear);
    }

    #[test]
    fn what_is_not_the_objects_own_passes_by() {
        for (query, header, bypass) in [
            ("", Some(("x-amz-server-side-encryption-customer-algorithm", "AES256")), "customer-key"),
            ("", Some(("origin", "http://x")), "cross-origin"),
            ("", Some(("cache-control", "no-store")), "no-store"),
            ("", Some(("content-length", "3")), "body"),
            ("response-else=1", None, "response-headers"),
            ("response-content-type=%0a", None, "response-headers"),
            ("versionId=1&versionId=2", None, "version-id"),
            ("partNumber=x", None, "part-number"),
            ("partNumber=1&partNumber=2", None, "part-number"),
            ("partNumber=1", Some(("range", "bytes=1-2")), "part-number"),
        ] {
            assert_eq!(read(query, header.as_slice()).bypass, Some(bypass), "{query} {header:?}");
        }
        assert_eq!(read("", &[("content-length", "0")]).bypass, None);
    }
}
