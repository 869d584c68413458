//! Target: what a request is about, read from its method, its path and its `Host`.
//!
//! Why so little: whatever is not surely understood is passed on. So the question is only whether a request reads a whole
//! object or a part of it (it may be answered from the cache), changes objects, or is something else.
//!
//! How: a request with a sub-resource in its query (`?acl`, `?uploads`, `?versions`) is something else. Path style is
//! `/bucket/key`; virtual-host style is a `Host` that ends with one of the gateway's names and begins with the bucket's.
//! Keys are what the path's percent-encoding says, byte by byte; two spellings of one key are one key.
//!
//! Rejected: a table of all operations (each that is missing would be a wrong answer; here it is passed on).

use hyper::Method;
use percent_encoding::percent_decode_str;

/// An object's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Its bucket.
    pub bucket: String,
    /// Its key: any bytes.
    pub key: Vec<u8>,
}

/// What is asked, as far as the cache is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The bytes of one version of an object, or what is known of it.
    Read {
        /// Without the bytes.
        head: bool,
    },
    /// The object is another one afterwards, or gone, if the store agrees.
    Change,
    /// None of these.
    Other,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is asked.
    pub verb: Verb,
    /// Of which object, if it is one.
    pub object: Option<Object>,
}

/// Queries that a read may have and still be one: they choose a version or a part, sign it, or set headers of the answer.
const READS: [&str; 3] = ["versionId", "partNumber", "x-id"];
const READS_BY_PREFIX: [&str; 2] = ["X-Amz-", "response-"];
/// Queries of an upload of an object or a part of one, and of the end of several.
const CHANGES: [&str; 4] = ["partNumber", "uploadId", "versionId", "x-id"];

impl Target {
    /// Of a request. `names`: those that buckets may stand before in `Host`.
    #[must_use]
    pub fn of(method: &Method, path: &str, query: Option<&str>, host: Option<&str>, names: &[String]) -> Self {
        let Some(object) = object_of(path, host, names) else { return Self { verb: Verb::Other, object: None } };
        let keys =
            || query.unwrap_or("").split('&').filter(|it| !it.is_empty()).map(|it| it.split('=').next().unwrap_or(it));
        let only = |known: &[&str]| {
            keys().all(|key| known.contains(&key) || READS_BY_PREFIX.iter().any(|prefix| key.starts_with(prefix)))
        };
        let verb = match *method {
            Method::GET | Method::HEAD if only(&READS) => Verb::Read { head: *method == Method::HEAD },
            Method::PUT | Method::DELETE | Method::POST if only(&CHANGES) => Verb::Change,
            _ => Verb::Other,
        };
        Self { verb, object: Some(object) }
    }
}

fn object_of(path: &str, host: Option<&str>, names: &[String]) -> Option<Object> {
    let path = path.strip_prefix('/')?;
    let (bucket, key) = match bucket_of_host(host, names) {
        Some(bucket) => (bucket, path),
        None => path.split_once('/')?,
    };
    let key: Vec<u8> = percent_decode_str(key).collect();
    let bucket = percent_decode_str(bucket).decode_utf8().ok()?.into_owned();
    (!bucket.is_empty() && !key.is_empty()).then_some(Object { bucket, key })
}

fn bucket_of_host<'a>(host: Option<&'a str>, names: &[String]) -> Option<&'a str> {
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

    fn object(bucket: &str, key: &[u8]) -> Option<Object> {
        Some(Object { bucket: bucket.to_owned(), key: key.to_vec() })
    }

    #[test]
    fn an_object_is_found_in_path_and_host() {
        assert_eq!(target("GET", "/b/k", "x:9000").object, object("b", b"k"));
        assert_eq!(target("GET", "/b/k/", "x").object, object("b", b"k/"));
        assert_eq!(target("GET", "/b//k", "x").object, object("b", b"/k"));
        assert_eq!(target("GET", "/b/%00%ff%2F+", "x").object, object("b", b"\0\xff/+"));
        assert_eq!(target("GET", "/k/l", "b.s3.example:80").object, object("b", b"k/l"));
        assert_eq!(target("GET", "/k/l", "a.b.s3.example").object, object("a.b", b"k/l"));
        for none in ["/", "/b", "/b/", "//k", ""] {
            assert_eq!(target("GET", none, "x").object, None, "{none}");
        }
        assert_eq!(target("GET", "/", "b.s3.example").object, None);
        assert_eq!(target("GET", "/b/k", "s3.example").object, object("b", b"k"), "no bucket before the name");
    }

    #[test]
    fn what_is_not_surely_a_read_or_a_change_is_something_else() {
        let read = Verb::Read { head: false };
        for (method, uri, verb) in [
            ("GET", "/b/k", read),
            ("GET", "/b/k?", read),
            ("HEAD", "/b/k?versionId=3&partNumber=2", Verb::Read { head: true }),
            ("GET", "/b/k?X-Amz-Signature=1&X-Amz-Date=2&response-content-type=x&x-id=GetObject", read),
            ("GET", "/b/k?acl", Verb::Other),
            ("GET", "/b/k?uploadId=3", Verb::Other),
            ("GET", "/b/k?versionid=3", Verb::Other),
            ("PUT", "/b/k", Verb::Change),
            ("PUT", "/b/k?partNumber=1&uploadId=2&x-id=UploadPart", Verb::Change),
            ("PUT", "/b/k?tagging", Verb::Other),
            ("POST", "/b/k?uploadId=2", Verb::Change),
            ("POST", "/b/k?uploads", Verb::Other),
            ("DELETE", "/b/k", Verb::Change),
            ("OPTIONS", "/b/k", Verb::Other),
            ("GET", "/b?list-type=2", Verb::Other),
        ] {
            assert_eq!(target(method, uri, "x").verb, verb, "{method} {uri}");
        }
    }
}
