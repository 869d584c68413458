//! Canonical: the one form of a request that is signed.
//!
//! How, as S3 does it: a path is decoded once and encoded once, its slashes stay, and nothing of it is normalised: `//`, `.` and `..` are parts
//! of a key. A query's names and values are decoded (`+` is a space) and encoded, and sorted. Header values lose spaces at both ends
//! and keep one where there are more; several of one name are joined by commas.
//!
//! Invariant: two spellings with one canonical form have the same meaning, so a signature of one is one of the other.

use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::borrow::Cow;

/// Of a name or a value.
const WORD: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Of a path.
const PATH: &AsciiSet = &WORD.remove(b'/');

/// A path, as it is signed and should be sent on.
#[must_use]
pub fn path(path: &str) -> String {
    let decoded: Cow<'_, [u8]> = percent_decode(path.as_bytes()).into();
    encoded_path(&decoded)
}

/// The path of these bytes.
#[must_use]
pub fn encoded_path(decoded: &[u8]) -> String {
    match decoded {
        b"" => "/".to_owned(),
        decoded => percent_encode(decoded, PATH).to_string(),
    }
}

/// A name or a value of these bytes.
#[must_use]
pub fn word(decoded: &[u8]) -> String {
    percent_encode(decoded, WORD).to_string()
}

/// A name of a query and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Encoded.
    pub name: String,
    /// Encoded; `None` without an equals sign, which is signed as an empty one.
    pub value: Option<String>,
}

impl Pair {
    /// The value's bytes.
    #[must_use]
    pub fn decoded(&self) -> Vec<u8> {
        percent_decode(self.value.as_deref().unwrap_or("").as_bytes()).collect()
    }
}

/// What a query says, in its own order.
pub fn pairs(query: Option<&str>) -> impl Iterator<Item = Pair> {
    let pairs = query.unwrap_or("").split('&').filter(|it| !it.is_empty());
    pairs.map(|pair| match pair.split_once('=') {
        Some((name, value)) => Pair { name: spelled(name), value: Some(spelled(value)) },
        None => Pair { name: spelled(pair), value: None },
    })
}

fn spelled(text: &str) -> String {
    let spaced: Vec<u8> = text.bytes().map(|it| if it == b'+' { b' ' } else { it }).collect();
    let decoded: Cow<'_, [u8]> = percent_decode(&spaced).into();
    word(&decoded)
}

/// A query as it is sent; `None` if nothing is left of it.
#[must_use]
pub fn sent(pairs: &[Pair]) -> Option<String> {
    let one = |pair: &Pair| match &pair.value {
        Some(value) => format!("{}={value}", pair.name),
        None => pair.name.clone(),
    };
    (!pairs.is_empty()).then(|| pairs.iter().map(one).collect::<Vec<_>>().join("&"))
}

/// A query as it is signed.
pub(crate) fn query(pairs: impl Iterator<Item = Pair>) -> String {
    let mut pairs: Vec<(String, String)> = pairs.map(|it| (it.name, it.value.unwrap_or_default())).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Values of a header as they are signed.
pub(crate) fn header(headers: &HeaderMap, name: &str, out: &mut Vec<u8>) {
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let words = value.as_bytes().split(|it| *it == b' ').filter(|it| !it.is_empty());
        for (at, word) in words.enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(word);
        }
    }
}

/// The canonical request: of headers `signed`, in their order.
pub(crate) fn request(
    method: &str,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    signed: &[&str],
    payload: &str,
) -> Vec<u8> {
    let mut out = format!("{method}\n{path}\n{query}\n").into_bytes();
    for name in signed {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        header(headers, name, &mut out);
        out.push(b'\n');
    }
    out.extend_from_slice(format!("\n{}\n{payload}", signed.join(";")).as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_encoded_once_and_not_normalised() {
        for (came, signed) in [
            ("/b/a b", "/b/a%20b"),
            ("/b/a+b", "/b/a%2Bb"),
            ("/b/a%2fb", "/b/a/b"),
            ("/b//./../%2e", "/b//./../."),
            ("/b/%2525", "/b/%2525"),
            ("/b/ä~!*'()", "/b/%C3%A4~%21%2A%27%28%29"),
            ("/b/%ff%00", "/b/%FF%00"),
            ("/b/%zz", "/b/%25zz"),
            ("", "/"),
        ] {
            assert_eq!(path(came), signed, "{came}");
            assert_eq!(path(signed), signed, "{came}");
        }
    }

    #[test]
    fn a_query_is_sorted_and_encoded() {
        for (came, signed) in [
            ("b=2&a=1", "a=1&b=2"),
            ("acl", "acl="),
            ("a=2&a=1&a=", "a=&a=1&a=2"),
            ("a=x+y%20z%2B", "a=x%20y%20z%2B"),
            ("a=b=c&", "a=b%3Dc"),
            ("a-=1&a=2", "a=2&a-=1"),
            ("B=1&a=1", "B=1&a=1"),
        ] {
            assert_eq!(query(pairs(Some(came))), signed, "{came}");
        }
        assert_eq!(sent(&pairs(Some("z=%41&acl&y=")).collect::<Vec<_>>()).as_deref(), Some("z=A&acl&y="));
        assert_eq!(sent(&[]), None);
    }

    #[test]
    fn values_are_trimmed_and_joined() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-a", "  one   two ".parse().expect("a value"));
        headers.append("x-amz-a", "three".parse().expect("a value"));
        let mut out = Vec::new();
        header(&headers, "x-amz-a", &mut out);
        assert_eq!(out, b"one two,three");
    }
}
