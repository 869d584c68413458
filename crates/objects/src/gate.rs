//! Gate: lets a request in if its signature is right and its key is granted what it needs, and strips it of both.
//!
//! How: [`forebay_signature`] says who asks, [`needs`] what for, and [`Grant`]s whether they may. What is let in has the one spelling that was
//! signed, in path style, and nothing of the client's signature. So what is acted on, kept, and asked of the store is what was
//! checked, and is the same for all who may ask it.
//!
//! Invariants: without an answer of the gate nothing is done; a key without a grant may do nothing.

use crate::grant::Grant;
use crate::need::{COPY_SOURCE, copied, needs};
use crate::target::bucket_of_host;
use forebay_signature::{Authorization, Chain, Payload, Refusal, Secret, canonical};
use http::header::{AUTHORIZATION, HOST, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Uri};
use std::collections::BTreeMap;

const PAYLOAD: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// A client of the gateway.
#[derive(Clone, Debug)]
pub struct Client {
    /// Of its key pair.
    pub secret: Secret,
    /// What it may do.
    pub grants: Vec<Grant>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Gate {
    clients: BTreeMap<String, Client>,
    names: Vec<String>,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not known who asks.
    Unknown(Refusal),
    /// It is not known what is asked, so nobody may.
    NotUnderstood,
    /// Whoever asks may not.
    NotGranted,
}

/// Signatures within the body of a request that was let in.
#[derive(Clone, Debug)]
pub struct Streamed {
    /// The request's own, with which they begin.
    pub chain: Chain,
    /// Headers come at the end.
    pub has_trailer: bool,
}

impl Gate {
    /// For these clients, by access key. `names`: those that buckets may stand before in `Host`.
    #[must_use]
    pub fn new(clients: BTreeMap<String, Client>, names: Vec<String>) -> Self {
        Self { clients, names }
    }

    /// Lets a request in; its head is then one that is not signed. `now_unix_s`: the time.
    ///
    /// # Errors
    /// When it is not let in.
    pub fn let_in(&self, now_unix_s: u64, head: &mut Parts) -> Result<Option<Streamed>, Refused> {
        let authorization = Authorization::of(&head.uri, &head.headers).map_err(Refused::Unknown)?;
        let client = self.clients.get(authorization.access_key()).ok_or(Refused::Unknown(Refusal::UnknownKey))?;
        let verified = authorization.verify(&client.secret, now_unix_s, &head.method, &head.uri, &head.headers);
        let verified = verified.map_err(Refused::Unknown)?;
        let query: Vec<_> = Authorization::rest(head.uri.query()).collect();
        let path = self.path(head).ok_or(Refused::NotUnderstood)?;
        let needs = needs(&head.method, &path, &query, &head.headers).ok_or(Refused::NotUnderstood)?;
        if !needs.iter().all(|need| client.grants.iter().any(|grant| grant.allows(need))) {
            return Err(Refused::NotGranted);
        }
        if let Some((_, source)) = copied(&head.headers) {
            head.headers.insert(COPY_SOURCE, source);
        }
        let target = canonical::sent(&query).map_or(path.clone(), |query| format!("{path}?{query}"));
        head.uri = Uri::try_from(target).map_err(|_| Refused::NotUnderstood)?;
        for name in [AUTHORIZATION, DATE, TOKEN] {
            head.headers.remove(name);
        }
        head.headers.insert(PAYLOAD, HeaderValue::from_str(verified.payload.text()).expect("ASCII"));
        let has_trailer = verified.payload == Payload::ChunksAndTrailer;
        Ok(verified.payload.is_signed_by_chunk().then_some(Streamed { chain: verified.chain, has_trailer }))
    }

    /// The path in path style.
    fn path(&self, head: &Parts) -> Option<String> {
        let host = head.headers.get(HOST)?.to_str().ok()?;
        let path = canonical::path(head.uri.path());
        match bucket_of_host(Some(host), &self.names) {
            Some(bucket) => Some(format!("/{}{path}", canonical::path(bucket))),
            None => Some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Access;
    use forebay_signature::StoreKey;
    use http::{Method, Request};

    const NOW: u64 = 1_893_553_445;

    fn gate() -> Gate {
        let grant = |buckets: &str, prefix: &str, access| Grant {
            buckets: buckets.into(),
            prefix: prefix.as_bytes().into(),
            access,
        };
        let client = |grants: &[Grant]| Client { secret: Secret::new("s").expect("a secret"), grants: grants.into() };
        let some = [grant("b", "a/", Access::Read), grant("b", "a/", Access::Write), grant("c", "", Access::Read)];
        let clients = [("SOME", client(&some)), ("NONE", client(&[]))].map(|(key, client)| (key.to_owned(), client));
        Gate::new(clients.into(), vec!["s3.example".into()])
    }

    /// Signed by a client.
    fn request(key: &str, secret: &str, method: &str, target: &str, given: &[(&str, &str)]) -> Parts {
        let mut head = Request::builder().method(method).uri(target).body(()).expect("a request").into_parts().0;
        head.headers = crate::headers(given);
        head.headers.entry(HOST).or_insert(HeaderValue::from_static("gateway"));
        let key = StoreKey::new(key, Secret::new(secret).expect("a secret"), "r").expect("a key");
        key.sign(NOW, &head.method, &head.uri, &mut head.headers);
        head
    }

    #[test]
    fn who_may_is_let_in_without_a_signature() {
        let given = [("x-amz-meta-a", "1"), ("range", "bytes=0-1")];
        let mut head = request("SOME", "s", "GET", "/b/a%2f%6b?x-id=Get+Object", &given);
        assert!(gate().let_in(NOW, &mut head).expect("let in").is_none());
        assert_eq!(head.uri, "/b/a/k?x-id=Get%20Object");
        let mut names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "range", "x-amz-content-sha256", "x-amz-meta-a"]);
    }

    #[test]
    fn a_bucket_in_the_hosts_name_comes_into_the_path() {
        let mut head = request("SOME", "s", "GET", "/a//k", &[("host", "b.s3.example:80")]);
        assert!(gate().let_in(NOW, &mut head).is_ok());
        assert_eq!(head.uri, "/b/a//k");
        let mut other = request("SOME", "s", "GET", "/a/k", &[("host", "d.s3.example")]);
        assert_eq!(gate().let_in(NOW, &mut other).err(), Some(Refused::NotGranted));
    }

    #[test]
    fn who_may_not_is_refused() {
        let refused = |key, secret, method, target, given: &[(&str, &str)]| {
            gate().let_in(NOW, &mut request(key, secret, method, target, given)).err()
        };
        let (unknown, source) = (Refused::Unknown, "x-amz-copy-source");
        for (key, secret, method, target, given, why) in [
            ("SOME", "s", "GET", "/b/a/k", vec![], None),
            ("SOME", "s", "PUT", "/b/a/k", vec![(source, "c/x")], None),
            ("SOME", "s", "PUT", "/b/a/k", vec![(source, "d/x")], Some(Refused::NotGranted)),
            ("SOME", "s", "PUT", "/b/a/k", vec![(source, "b/x")], Some(Refused::NotGranted)),
            ("SOME", "s", "GET", "/b/k", vec![], Some(Refused::NotGranted)),
            ("SOME", "s", "GET", "/b/a/../k", vec![], Some(Refused::NotUnderstood)),
            ("SOME", "s", "GET", "/b?prefix=a/", vec![], None),
            ("SOME", "s", "GET", "/b?prefix=a", vec![], Some(Refused::NotGranted)),
            ("SOME", "s", "POST", "/b?delete", vec![], Some(Refused::NotGranted)),
            ("SOME", "s", "PUT", "/c/k", vec![], Some(Refused::NotGranted)),
            ("SOME", "s", "GET", "/", vec![], Some(Refused::NotGranted)),
            ("NONE", "s", "GET", "/b/a/k", vec![], Some(Refused::NotGranted)),
            ("ELSE", "s", "GET", "/b/a/k", vec![], Some(unknown(Refusal::UnknownKey))),
            ("SOME", "t", "GET", "/b/a/k", vec![], Some(unknown(Refusal::Wrong))),
        ] {
            assert_eq!(refused(key, secret, method, target, &given), why, "{key} {method} {target} {given:?}");
        }
        let mut anonymous = request("SOME", "s", "GET", "/b/a/k", &[]);
        anonymous.headers.remove(AUTHORIZATION);
        assert_eq!(gate().let_in(NOW, &mut anonymous).err(), Some(unknown(Refusal::Anonymous)));
        assert_eq!(
            gate().let_in(NOW + 901, &mut request("SOME", "s", "GET", "/b/a/k", &[])).err(),
            Some(unknown(Refusal::Skewed))
        );
    }

    #[test]
    fn a_body_that_is_signed_by_chunks_says_so() {
        let payload = |text| [("x-amz-content-sha256", text)];
        for (text, expected) in [
            ("UNSIGNED-PAYLOAD", None),
            ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", None),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", Some(false)),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", Some(true)),
        ] {
            let mut head = request("SOME", "s", Method::PUT.as_str(), "/b/a/k", &payload(text));
            let streamed = gate().let_in(NOW, &mut head).expect("let in");
            assert_eq!(streamed.map(|it| it.has_trailer), expected, "{text}");
            assert_eq!(head.headers[PAYLOAD], text);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_let_in_is_one_spelling(
            path in "(/|%2f|%2e|[.a-c+%&?=]|%[0-9a-f]{2}){1,12}",
            query in "([a-c+=&]|prefix=|acl|%[0-9a-f]{2}){0,6}",
        ) {
            let all = |access| Grant { buckets: "*".into(), prefix: Box::default(), access };
            let grants = [Access::Read, Access::Write].map(all);
            let client = Client { secret: Secret::new("s").expect("a secret"), grants: grants.into() };
            let gate = Gate::new([("ALL".to_owned(), client)].into(), Vec::new());
            let target = format!("/b/{path}?{query}");
            proptest::prop_assume!(target.parse::<Uri>().is_ok());
            for method in ["GET", "PUT", "DELETE"] {
                let mut head = request("ALL", "s", method, &target, &[]);
                match gate.let_in(NOW, &mut head) {
                    Ok(_) => {
                        let let_in = head.uri.to_string();
                        let mut again = request("ALL", "s", method, &let_in, &[]);
                        proptest::prop_assert!(gate.let_in(NOW, &mut again).is_ok());
                        proptest::prop_assert_eq!(again.uri.to_string(), let_in);
                        proptest::prop_assert!(!head.uri.path().split('/').any(|it| it == "." || it == ".."));
                    }
                    Err(why) => proptest::prop_assert_eq!(why, Refused::NotUnderstood),
                }
            }
        }
    }
}
