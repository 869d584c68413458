//! Target: what a request is about, read from its method, its path and its `Host`.
//!
//! Why so little: whatever is not surely understood is passed on. So the question is only whether a request reads a whole
//! object or a part of it (it may be answered from the cache), may change something, or only looks.
//!
//! How: a request with a sub-resource in its query (`?acl`, `?uploads`, `?versions`) is no read of an object. Path style is
//! `/bucket/key`; virtual-host style is a `Host` that ends with one of the gateway's names and begins with the bucket's.
//! Keys are what the path's percent-encoding says, byte by byte; two spellings of one key are one key.
//!
//! Rejected: a table of all operations (each that is missing would be a wrong answer; here it is passed on, and counts as a change
//! unless its method only looks).

use crate::catalogue::Name;
use http::Method;
use percent_encoding::percent_decode_str;

/// What is asked, as far as the cache is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The bytes of one version of an object, or what is known of it.
    Read {
        /// Without the bytes.
        head: bool,
    },
    /// What it names may be another one afterwards, or gone, if the store agrees.
    Change,
    /// None of these: nothing changes.
    Look,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is asked.
    pub verb: Verb,
    /// In which bucket.
    pub bucket: Option<Box<str>>,
    /// Of which object, if it is one.
    pub name: Option<Name>,
}

/// Queries that a read may have and still be one: they choose a version or a part, sign it, or set headers of the answer.
const READS: [&str; 3] = ["versionId", "partNumber", "x-id"];
const READS_BY_PREFIX: [&str; 2] = ["X-Amz-", "response-"];

/// The keys and values of a query, as they are written.
pub(crate) fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.unwrap_or("").split('&').filter(|it| !it.is_empty());
    pairs.map(|it| it.split_once('=').unwrap_or((it, "")))
}

impl Target {
    /// Of a request. `names`: those that buckets may stand before in `Host`.
    #[must_use]
    pub fn of(method: &Method, path: &str, query: Option<&str>, host: Option<&str>, names: &[String]) -> Self {
        let (bucket, key) = bucket_and_key(path, host, names);
        let bucket: Option<Box<str>> =
            bucket.and_then(|it| percent_decode_str(it).decode_utf8().ok().map(|it| it.as_ref().into()));
        let key: Vec<u8> = percent_decode_str(key).collect();
        let name = bucket.clone().filter(|_| !key.is_empty()).map(|bucket| Name { bucket, key: key.into() });
        let is_read = name.is_some()
            && pairs(query)
                .all(|(key, _)| READS.contains(&key) || READS_BY_PREFIX.iter().any(|prefix| key.starts_with(prefix)));
        let verb = match *method {
            Method::GET | Method::HEAD if is_read => Verb::Read { head: *method == Method::HEAD },
            Method::GET | Method::HEAD | Method::OPTIONS => Verb::Look,
            _ => Verb::Change,
        };
        Self { verb, bucket, name }
    }
}

/// As they are written; a key may be empty.
fn bucket_and_key<'a>(path: &'a str, host: Option<&'a str>, names: &[String]) -> (Option<&'a str>, &'a str) {
    let Some(path) = path.strip_prefix('/') else { return (None, "") };
    let (bucket, key) = match bucket_of_host(host, names) {
        Some(bucket) => (bucket, path),
        None => path.split_once('/').unwrap_or((path, "")),
    };
    (Some(bucket).filter(|bucket| !bucket.is_empty()), key)
}

/// The bucket that stands before one of the gateway's names.
pub(crate) fn bucket_of_host<'a>(host: Option<&'a str>, names: &[String]) -> Option<&'a str> {
    let host = host?;
    let host =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit())).map_or(host, |it| it.0);
    names.iter().find_map(|name| host.strip_suffix(name.as_str())?.strip_suffix('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, uri: &str, host: &str) -> Target {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        Target::of(&method, path, query, Some(host), &["s3.example".to_owned()])
    }

    fn name(bucket: &str, key: &[u8]) -> Option<Name> {
        Some(Name { bucket: bucket.into(), key: key.into() })
    }

    #[test]
    fn an_object_is_found_in_path_and_host() {
        assert_eq!(target("GET", "/b/k", "x:9000").name, name("b", b"k"));
        assert_eq!(target("GET", "/b/k/", "x").name, name("b", b"k/"));
        assert_eq!(target("GET", "/b//k", "x").name, name("b", b"/k"));
        assert_eq!(target("GET", "/b/%00%ff%2F+", "x").name, name("b", b"\0\xff/+"));
        assert_eq!(target("GET", "/k/l", "b.s3.example:80").name, name("b", b"k/l"));
        assert_eq!(target("GET", "/k/l", "a.b.s3.example").name, name("a.b", b"k/l"));
        for none in ["/", "/b", "/b/", "//k", ""] {
            assert_eq!(target("GET", none, "x").name, None, "{none}");
        }
        assert_eq!(target("GET", "/", "b.s3.example").name, None);
        assert_eq!(target("GET", "/b/k", "s3.example").name, name("b", b"k"), "no bucket before the name");
    }

    #[test]
    fn a_bucket_is_found_where_there_is_no_object() {
        for (uri, host, bucket) in
            [("/b", "x", Some("b")), ("/b/", "x", Some("b")), ("/", "b.s3.example", Some("b")), ("/", "x", None)]
        {
            assert_eq!(target("POST", uri, host).bucket.as_deref(), bucket, "{host}{uri}");
        }
    }

    #[test]
    fn what_is_not_surely_a_read_is_none_and_only_looking_changes_nothing() {
        let read = Verb::Read { head: false };
        for (method, uri, verb) in [
            ("GET", "/b/k", read),
            ("GET", "/b/k?", read),
            ("HEAD", "/b/k?versionId=3&partNumber=2", Verb::Read { head: true }),
            ("GET", "/b/k?X-Amz-Signature=1&X-Amz-Date=2&response-content-type=x&x-id=GetObject", read),
            ("GET", "/b/k?acl", Verb::Look),
            ("GET", "/b/k?uploadId=3", Verb::Look),
            ("GET", "/b/k?versionid=3", Verb::Look),
            ("OPTIONS", "/b/k", Verb::Look),
            ("GET", "/b?list-type=2", Verb::Look),
            ("GET", "/", Verb::Look),
            ("PUT", "/b/k", Verb::Change),
            ("PUT", "/b/k?tagging", Verb::Change),
            ("POST", "/b/k?uploads", Verb::Change),
            ("POST", "/b?delete", Verb::Change),
            ("DELETE", "/b/k", Verb::Change),
            ("PROPFIND", "/b/k", Verb::Change),
        ] {
            assert_eq!(target(method, uri, "x").verb, verb, "{method} {uri}");
        }
    }
}
