//! Permits: whom the store said yes to, and for how long that is believed.
//!
//! Why not by the caller's name: without the caller's secret nobody but the store can tell a signature from a made-up one. What the
//! store has seen and allowed is a request; who sends the very same one again could have asked the store too.
//!
//! How: a request's method, path, query and headers make a hash ([`Who`]). A range counts only where it is signed: an anonymous
//! caller who may read an object may read any part of it. A permit ends after `ttl_ns`, or when the signature does, or
//! when a change of the name begins.
//!
//! Limit: clients that sign each request anew ask the store for each; links that are signed once, and public objects, do not.
//!
//! Rejected: the id of the access key (anybody can write it); the name alone (a policy may look at other headers).

use crate::change::Stamp;
use crate::target::pairs;
use forebay_signature::unix_s;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONNECTION, HeaderMap, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, Uri};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};

/// A signature in a header is good for so long.
const SIGNED_S: u64 = 900;

/// A request, as far as a permit is concerned. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who([u8; 32]);

/// Headers that no store's policy looks at.
const IRRELEVANT: [HeaderName; 6] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CACHE_CONTROL,
    CONNECTION,
    HeaderName::from_static("amz-sdk-invocation-id"),
    HeaderName::from_static("amz-sdk-request"),
];
/// Headers that choose what is answered to who may read it.
const CHOICE: [HeaderName; 6] = [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE];

impl Who {
    /// Of a request.
    #[must_use]
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(method.as_str().as_bytes());
        add(uri.path().as_bytes());
        add(uri.query().unwrap_or("").as_bytes());
        // What is signed in a header may be any of them.
        let is_signed = headers.contains_key(AUTHORIZATION);
        for (name, value) in headers {
            if is_signed || !(IRRELEVANT.contains(name) || CHOICE.contains(name)) {
                add(name.as_str().as_bytes());
                add(value.as_bytes());
            }
        }
        Self(hash.finalize().into())
    }
}

/// For how long a request is good, at most; 0 if that is not known.
#[must_use]
pub fn lifetime_s(uri: &Uri, headers: &HeaderMap, now_unix_s: u64) -> u64 {
    let query = |key: &str| pairs(uri.query()).find(|(it, _)| *it == key).map(|(_, value)| value);
    let text = |name: HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let until = |date: Option<&str>, seconds: Option<u64>| {
        let end = date.and_then(unix_s)?.checked_add(seconds?)?;
        Some(end.saturating_sub(now_unix_s))
    };
    match (text(AUTHORIZATION), query("X-Amz-Signature")) {
        (None, None) if !headers.contains_key(AUTHORIZATION) => u64::MAX,
        (None, Some(_)) => {
            until(query("X-Amz-Date"), query("X-Amz-Expires").and_then(|it| it.parse().ok())).unwrap_or(0)
        }
        (Some(signed), None) if signed.starts_with("AWS4-HMAC-SHA256") => {
            until(text(HeaderName::from_static("x-amz-date")), Some(SIGNED_S)).unwrap_or(0)
        }
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug)]
struct Permit {
    confirmed_ns: u64,
    until_ns: u64,
    stamp: Stamp,
}

/// See the module.
#[derive(Debug)]
pub struct Permits {
    permits_max: usize,
    permits: BTreeMap<Who, Permit>,
    /// In the order in which they were given.
    given: VecDeque<(Who, u64)>,
}

impl Permits {
    /// None yet.
    #[must_use]
    pub fn new(permits_max: usize) -> Self {
        Self { permits_max, permits: BTreeMap::new(), given: VecDeque::new() }
    }

    /// Permits that are remembered, some of which may have ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.permits.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }

    /// The store said yes to a request that left at `asked_ns` and is good for `lifetime_s`; it is believed for
    /// `ttl_ns`.
    pub(crate) fn grant(&mut self, asked_ns: u64, who: Who, stamp: Stamp, lifetime_s: u64, ttl_ns: u64) {
        let life_ns = ttl_ns.min(lifetime_s.saturating_mul(1_000_000_000));
        if life_ns == 0 {
            return;
        }
        while self.given.len() >= self.permits_max {
            let Some((oldest, confirmed_ns)) = self.given.pop_front() else { break };
            if self.permits.get(&oldest).is_some_and(|it| it.confirmed_ns == confirmed_ns) {
                self.permits.remove(&oldest);
            }
        }
        let permit = Permit { confirmed_ns: asked_ns, until_ns: asked_ns.saturating_add(life_ns), stamp };
        self.permits.insert(who, permit);
        self.given.push_back((who, asked_ns));
    }

    /// The store says no now.
    pub(crate) fn revoke(&mut self, who: &Who) {
        self.permits.remove(who);
    }

    /// Whether the store's yes is still believed.
    #[must_use]
    pub(crate) fn allows(&self, now_ns: u64, who: &Who, stamp: Stamp) -> bool {
        self.permits.get(who).is_some_and(|permit| now_ns < permit.until_ns && permit.stamp == stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Name;
    use crate::change::Changes;
    use crate::headers;

    const TTL_NS: u64 = 5_000_000_000;

    fn who(uri: &str, given: &[(&str, &str)]) -> Who {
        Who::of(&Method::GET, &uri.parse().expect("a URI"), &headers(given))
    }

    #[test]
    fn a_permit_is_for_the_same_request_only() {
        let anonymous = who("/b/k", &[("host", "h")]);
        assert_eq!(anonymous, who("/b/k", &[("host", "h"), ("range", "bytes=1-2"), ("accept", "x")]));
        for (uri, given) in [
            ("/b/k2", &[("host", "h")][..]),
            ("/b/k?", &[("host", "g")]),
            ("/b/k?X-Amz-Signature=1", &[("host", "h")]),
            ("/b/k", &[("host", "h"), ("authorization", "AWS4-HMAC-SHA256 x")]),
            ("/b/k", &[("host", "h"), ("referer", "x")]),
        ] {
            assert_ne!(anonymous, who(uri, given), "{uri} {given:?}");
        }
        let signed = [("authorization", "AWS4-HMAC-SHA256 x"), ("range", "bytes=1-2")];
        assert_ne!(who("/b/k", &signed), who("/b/k", &signed[..1]), "the range may be signed");
    }

    #[test]
    fn a_signature_ends() {
        let then = unix_s("20300102T030405Z").expect("a time");
        let left =
            |uri: &str, given: &[(&str, &str)]| lifetime_s(&uri.parse().expect("a URI"), &headers(given), then + 60);
        assert_eq!(left("/b/k", &[]), u64::MAX);
        assert_eq!(left("/b/k?X-Amz-Signature=1&X-Amz-Date=20300102T030405Z&X-Amz-Expires=100", &[]), 40);
        assert_eq!(left("/b/k?X-Amz-Signature=1&X-Amz-Date=20300102T030405Z&X-Amz-Expires=10", &[]), 0);
        assert_eq!(left("/b/k?X-Amz-Signature=1", &[]), 0);
        let date = ("x-amz-date", "20300102T030405Z");
        assert_eq!(left("/b/k", &[("authorization", "AWS4-HMAC-SHA256 x"), date]), 840);
        assert_eq!(left("/b/k", &[("authorization", "AWS x:y"), date]), 0);
        assert_eq!(left("/b/k?X-Amz-Signature=1", &[("authorization", "AWS4-HMAC-SHA256 x"), date]), 0);
    }

    #[test]
    fn a_permit_ends_with_its_time_its_signature_or_a_change() {
        let name = Name { bucket: "b".into(), key: b"k".as_slice().into() };
        let mut changes = Changes::default();
        let stamp = changes.stamp(&name).expect("at rest");
        let mut permits = Permits::new(2);
        let [one, two, three] = ["/b/1", "/b/2", "/b/3"].map(|uri| who(uri, &[]));
        permits.grant(10, one, stamp, u64::MAX, TTL_NS);
        permits.grant(10, two, stamp, 1, TTL_NS);
        assert!(permits.allows(5_000_000_009, &one, stamp));
        assert!(!permits.allows(5_000_000_010, &one, stamp));
        assert!(!permits.allows(1_000_000_010, &two, stamp));
        let change = changes.begin(&name);
        changes.end(change);
        assert!(!permits.allows(20, &one, changes.stamp(&name).expect("at rest")));
        permits.grant(20, three, stamp, u64::MAX, TTL_NS);
        assert!(!permits.allows(20, &one, stamp), "only so many are known");
        permits.revoke(&three);
        assert!(!permits.allows(20, &three, stamp));
        let mut none = Permits::new(2);
        none.grant(0, one, stamp, u64::MAX, 0);
        assert!(!none.allows(0, &one, stamp));
    }
}
