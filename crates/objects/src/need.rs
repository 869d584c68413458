//! Need: what has to be granted for a request, by a table of what S3 has.
//!
//! Why a table here and none in [`crate::target`]: there what is not understood is passed on, since the store knows who asks. Here the
//! store knows the gateway only, so what is not in the table is refused.
//!
//! How: a request is of the service, a bucket or an object, and has at most one *sub-resource*, the query's name that says what it
//! is about; all others are parameters that are known not to. A row says which access it needs, and to which names.
//!
//! Invariants: a request with two meanings has none: names that come twice, two sub-resources, segments `.` and `..` that a store might resolve, a
//! bucket that is no name. What a copy reads is needed too.

use crate::grant::{Access, Need};
use forebay_signature::canonical::{self, Pair};
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// The header that names what a copy reads.
pub(crate) const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Service,
    Bucket,
    Object,
}

/// Which names are needed.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// The object's.
    Named,
    /// Those that the query's `prefix` begins.
    Listed,
    /// All of the bucket.
    Bucket,
    /// All.
    Everything,
}

struct Row {
    methods: &'static [Method],
    of: Of,
    /// Sub-resources; "" is none.
    about: &'static [&'static str],
    access: Access,
    reach: Reach,
}

const SETTINGS: &[&str] = &[
    "",
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "tagging",
    "versioning",
    "website",
];
const READS: &[Method] = &[Method::GET, Method::HEAD];

/// The first that fits counts.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { methods: &[Method::GET], of: Of::Service, about: &[""], access: Access::Read, reach: Reach::Everything },
    Row { methods: &[Method::GET], of: Of::Bucket, about: &["", "versions", "uploads"], access: Access::Read, reach: Reach::Listed },
    Row { methods: READS, of: Of::Bucket, about: SETTINGS, access: Access::Read, reach: Reach::Bucket },
    Row { methods: &[Method::PUT, Method::DELETE], of: Of::Bucket, about: SETTINGS, access: Access::Write, reach: Reach::Bucket },
    Row { methods: &[Method::POST], of: Of::Bucket, about: &["delete"], access: Access::Write, reach: Reach::Bucket },
    Row { methods: READS, of: Of::Object, about: &["", "acl", "attributes", "legal-hold", "retention", "tagging", "torrent", "uploadId"],
          access: Access::Read, reach: Reach::Named },
    Row { methods: &[Method::POST], of: Of::Object, about: &["select"], access: Access::Read, reach: Reach::Named },
    Row { methods: &[Method::PUT], of: Of::Object, about: &["", "acl", "legal-hold", "retention", "tagging", "uploadId"],
          access: Access::Write, reach: Reach::Named },
    Row { methods: &[Method::POST], of: Of::Object, about: &["uploads", "uploadId", "restore"], access: Access::Write, reach: Reach::Named },
    Row { methods: &[Method::DELETE], of: Of::Object, about: &["", "tagging", "uploadId"], access: Access::Write, reach: Reach::Named },
];

/// Names of a query that do not say what it is about.
const PARAMETERS: &[&str] = &[
    "x-id",
    "versionId",
    "partNumber",
    "part-number-marker",
    "max-parts",
    "select-type",
    "list-type",
    "prefix",
    "delimiter",
    "marker",
    "max-keys",
    "start-after",
    "continuation-token",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "version-id-marker",
    "upload-id-marker",
    "max-uploads",
    "max-buckets",
    "bucket-region",
    "id",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-checksum-mode",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-type",
];
/// And those that begin so: headers of the answer, and what a client puts into a link for its upload.
const PARAMETERS_BY_PREFIX: &[&str] = &["response-", "x-amz-checksum-", "x-amz-meta-"];

/// What has to be granted; `None` if the request is not understood. `path`: as it is sent, in path style; `query`: without a signature.
#[must_use]
pub fn needs(method: &Method, path: &str, query: &[Pair], headers: &HeaderMap) -> Option<Vec<Need>> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let (bucket, key) = bucket_and_key(decoded.strip_prefix(b"/")?)?;
    let of = match (&bucket, key.is_empty()) {
        (None, _) => Of::Service,
        (Some(_), true) => Of::Bucket,
        (Some(_), false) => Of::Object,
    };
    let about = about(query)?;
    let fits = |row: &&Row| row.of == of && row.methods.contains(method) && row.about.contains(&about);
    let row = ROWS.iter().find(fits)?;
    let (bucket, beginning) = match row.reach {
        Reach::Named => (bucket, key),
        Reach::Listed => (bucket, prefix(query)?),
        Reach::Bucket => (bucket, Vec::new()),
        Reach::Everything => (None, Vec::new()),
    };
    let mut needs = vec![Need { access: row.access, bucket, beginning: beginning.into() }];
    if headers.contains_key(COPY_SOURCE) {
        if *method != Method::PUT || of != Of::Object {
            return None;
        }
        needs.push(copied(headers)?.0);
    }
    // What would name something else in a way that is not known here.
    let names_more = |name: &HeaderName| {
        name.as_str().starts_with("x-amz-") && name.as_str().ends_with("-source") && *name != COPY_SOURCE
    };
    (!headers.keys().any(names_more)).then_some(needs)
}

/// What a copy reads, and the header in the one spelling that no store reads otherwise.
pub(crate) fn copied(headers: &HeaderMap) -> Option<(Need, HeaderValue)> {
    let mut values = headers.get_all(COPY_SOURCE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = value.to_str().ok()?;
    let (name, version) = text.split_once('?').map_or((text, None), |(name, version)| (name, Some(version)));
    let is_id = |it: &str| it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.~".contains(&it));
    if !version.is_none_or(|it| it.strip_prefix("versionId=").is_some_and(is_id)) {
        return None;
    }
    let name: Vec<u8> = percent_decode_str(name.strip_prefix('/').unwrap_or(name)).collect();
    let (bucket, key) = bucket_and_key(&name)?;
    if bucket.is_none() || key.is_empty() {
        return None;
    }
    let version = version.map(|it| format!("?{it}")).unwrap_or_default();
    let spelled = format!("{}{version}", canonical::encoded_path(&name));
    let need = Need { access: Access::Read, bucket, beginning: key.into() };
    Some((need, HeaderValue::try_from(spelled).ok()?))
}

/// Of `bucket/key`, decoded; `None` if either has a second meaning.
fn bucket_and_key(name: &[u8]) -> Option<(Option<Box<str>>, Vec<u8>)> {
    if name.is_empty() {
        return Some((None, Vec::new()));
    }
    let mut parts = name.splitn(2, |it| *it == b'/');
    let (bucket, key) = (parts.next()?, parts.next().unwrap_or(b""));
    let is_letter = |it: &u8| it.is_ascii_alphanumeric() || b"-_.".contains(it);
    let is_name = !bucket.is_empty() && bucket.iter().all(is_letter) && is_plain(bucket) && is_plain(key);
    is_name.then(|| (std::str::from_utf8(bucket).ok().map(Into::into), key.to_vec()))
}

/// Whether no store could take it for another name.
fn is_plain(name: &[u8]) -> bool {
    name.split(|it| *it == b'/').all(|segment| !matches!(segment, b"." | b".."))
}

/// The query's sub-resource, "" if there is none.
fn about(query: &[Pair]) -> Option<&str> {
    let is_twice = |(at, pair): (usize, &Pair)| query[..at].iter().any(|other| other.name == pair.name);
    if query.iter().enumerate().any(is_twice) {
        return None;
    }
    let is_parameter =
        |name: &str| PARAMETERS.contains(&name) || PARAMETERS_BY_PREFIX.iter().any(|prefix| name.starts_with(prefix));
    let mut about = query.iter().map(|pair| pair.name.as_str()).filter(|name| !is_parameter(name));
    match (about.next(), about.next()) {
        (None, _) => Some(""),
        (Some(one), None) => Some(one),
        (Some(_), Some(_)) => None,
    }
}

fn prefix(query: &[Pair]) -> Option<Vec<u8>> {
    let prefix = query.iter().find(|pair| pair.name == "prefix").map(Pair::decoded).unwrap_or_default();
    is_plain(&prefix).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, target: &str, given: &[(&str, &str)]) -> Option<Vec<String>> {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let query: Vec<Pair> = canonical::pairs(query).collect();
        let needs = needs(&method.parse().expect("a method"), path, &query, &crate::headers(given))?;
        let shown = |need: &Need| {
            let bucket = need.bucket.as_deref().unwrap_or("*");
            format!("{:?} {bucket}/{}", need.access, String::from_utf8_lossy(&need.beginning))
        };
        Some(needs.iter().map(shown).collect())
    }

    #[test]
    fn each_request_needs_what_it_reads_and_what_it_changes() {
        for (method, target, need) in [
            ("GET", "/", "Read */"),
            ("GET", "/b", "Read b/"),
            ("GET", "/b/?list-type=2&prefix=a%2Fb&delimiter=%2F", "Read b/a/b"),
            ("GET", "/b?versions&prefix=x", "Read b/x"),
            ("GET", "/b?uploads", "Read b/"),
            ("HEAD", "/b", "Read b/"),
            ("GET", "/b?location&prefix=x", "Read b/"),
            ("PUT", "/b", "Write b/"),
            ("DELETE", "/b?policy", "Write b/"),
            ("POST", "/b?delete", "Write b/"),
            ("GET", "/b/k%20%2B?versionId=1&response-content-type=x", "Read b/k +"),
            ("HEAD", "/b/k?partNumber=1", "Read b/k"),
            ("GET", "/b/k?tagging", "Read b/k"),
            ("PUT", "/b/a//k", "Write b/a//k"),
            ("PUT", "/b/k?partNumber=1&uploadId=x", "Write b/k"),
            ("POST", "/b/k?uploads=", "Write b/k"),
            ("POST", "/b/k?select&select-type=2", "Read b/k"),
            ("DELETE", "/b/k?versionId=1", "Write b/k"),
        ] {
            assert_eq!(asked(method, target, &[]), Some(vec![need.to_owned()]), "{method} {target}");
        }
    }

    #[test]
    fn a_copy_reads_its_source() {
        for (source, need, spelled) in [
            ("/c/a%2Bb", "Read c/a+b", "c/a%2Bb"),
            ("c/a+b?versionId=3", "Read c/a+b", "c/a%2Bb?versionId=3"),
            ("c%2Fk", "Read c/k", "c/k"),
            ("c//k", "Read c//k", "c//k"),
        ] {
            let given = [("x-amz-copy-source", source)];
            for target in ["/b/k", "/b/k?partNumber=1&uploadId=2"] {
                assert_eq!(
                    asked("PUT", target, &given),
                    Some(vec!["Write b/k".to_owned(), need.to_owned()]),
                    "{source}"
                );
            }
            assert_eq!(copied(&crate::headers(&given)).expect("a source").1, spelled);
        }
        for source in [
            "",
            "c",
            "c/",
            "/",
            "/c/../k",
            "c/k?versionId=1&x=2",
            "c/k?x=1",
            "c/k?versionId=%2F",
            "arn:aws:s3:::c/k",
            "..%2Fk",
        ] {
            assert_eq!(asked("PUT", "/b/k", &[("x-amz-copy-source", source)]), None, "{source}");
        }
        let source = ("x-amz-copy-source", "c/k");
        assert_eq!(asked("PUT", "/b/k", &[source, source]), None);
        assert_eq!(asked("DELETE", "/b/k", &[source]), None);
        assert_eq!(asked("PUT", "/b", &[source]), None);
        assert_eq!(asked("PUT", "/b/k", &[("x-amz-rename-source", "c/k")]), None);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (method, target) in [
            ("HEAD", "/"),
            ("PUT", "/"),
            ("POST", "/b"),
            ("POST", "/b/k"),
            ("PATCH", "/b/k"),
            ("OPTIONS", "/b/k"),
            ("GET", "/b/k?unknown"),
            ("GET", "/b/k?ACL"),
            ("GET", "/b/k?acl&tagging"),
            ("GET", "/b?prefix=a&prefix=b"),
            ("GET", "/b?list-type=2&prefix=a%2F..%2Fb"),
            ("GET", "/b/k?versionId=1&versionId=2"),
            ("PUT", "/b/k?x-amz-copy-source=c%2Fk"),
            ("GET", "/b/k?X-Amz-Signature=1"),
            ("GET", "/b/../c/k"),
            ("GET", "/b/a/%2E%2E/k"),
            ("GET", "/b/."),
            ("GET", "/../k"),
            ("GET", "//b/k"),
            ("GET", "/b%00/k"),
            ("GET", "/b%3Ac/k"),
            ("DELETE", "/b/k?acl"),
            ("GET", ""),
        ] {
            assert_eq!(asked(method, target, &[]), None, "{method} {target}");
        }
    }
}
