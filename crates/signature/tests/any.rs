//! Any request and any body: what we sign verifies, what is changed does not, and nothing panics.

use forebay_signature::{Authorization, Chain, Chunks, Fault, Refusal, Secret, StoreKey};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: u64 = 1_893_553_445;

fn secret() -> Secret {
    Secret::new("a secret").expect("a secret")
}

fn key() -> StoreKey {
    StoreKey::new("KEY", secret(), "eu-1").expect("a key")
}

#[derive(Clone, Debug)]
struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Request {
    fn verified(&self) -> Result<(), Refusal> {
        let authorization = Authorization::of(&self.uri, &self.headers)?;
        if authorization.access_key() != "KEY" {
            return Err(Refusal::UnknownKey);
        }
        authorization.verify(&secret(), NOW, &self.method, &self.uri, &self.headers).map(|_| ())
    }
}

/// Signed by us, of any path, query and headers.
fn request() -> impl Strategy<Value = Request> {
    let words = || vec((vec(any::<u8>(), 0..6), vec(any::<u8>(), 0..6)), 0..4);
    let method = prop_oneof![Just(Method::GET), Just(Method::PUT), Just(Method::DELETE)];
    (method, vec(any::<u8>(), 0..20), words(), vec("[!-~]( ?[!-~]){0,5}", 0..4)).prop_map(
        |(method, path, query, values)| {
            let encoded = |bytes: &[u8]| percent_encode(bytes, NON_ALPHANUMERIC).to_string();
            let query: Vec<_> =
                query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
            let uri: Uri = format!("/b/{}?{}", encoded(&path), query.join("&")).parse().expect("a URI");
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("store:9000"));
            for (at, value) in values.iter().enumerate() {
                let name: HeaderName = format!("x-amz-meta-{at}").parse().expect("a name");
                headers.insert(name, value.parse().expect("a value"));
            }
            key().sign(NOW, &method, &uri, &mut headers);
            Request { method, uri, headers }
        },
    )
}

/// The same with one byte of it another; what is not a request any more is `None`.
fn changed(request: &Request, at: usize, to: u8) -> Option<Request> {
    let mut other = request.clone();
    let mut names: Vec<HeaderName> = request.headers.keys().cloned().collect();
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let mut at = at;
    let target = request.uri.to_string();
    if at < target.len() {
        let mut target = target.into_bytes();
        target[at] = to;
        other.uri = String::from_utf8(target).ok()?.parse().ok()?;
        // Another spelling of the same is the same.
        let (path, query) = (other.uri.path(), other.uri.query());
        let canonical = |path: &str, query: Option<&str>| {
            use forebay_signature::canonical::{pairs, path as of_path};
            let mut pairs: Vec<_> = pairs(query).map(|it| (it.name, it.value.unwrap_or_default())).collect();
            pairs.sort_unstable();
            (of_path(path), pairs)
        };
        let is_same = canonical(path, query) == canonical(request.uri.path(), request.uri.query());
        return (!is_same).then_some(other);
    }
    at -= target.len();
    for name in names {
        let value = request.headers[&name].as_bytes();
        if at < value.len() {
            let mut value = value.to_vec();
            // Spaces at the ends and beside each other are not signed.
            if value[at] == to || value[at] == b' ' || to == b' ' {
                return None;
            }
            value[at] = to;
            other.headers.insert(name, HeaderValue::from_bytes(&value).ok()?);
            return Some(other);
        }
        at -= value.len();
    }
    None
}

fn chain(time: u64) -> Chain {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("h"));
    key().sign(time, &Method::PUT, &Uri::from_static("/b/k"), &mut headers)
}

/// A body of these chunks, signed by us. Made of one that was signed by nobody, by putting in what is missing: [`Chunks`] says which signature is
/// wrong by stopping there.
fn body(chunks: &[Vec<u8>], trailer: bool) -> Vec<u8> {
    let ends = [&b"\r\n"[..], &b"x-amz-checksum-crc32:AAAA\r\nx-amz-trailer-signature:"[..]];
    let mut text = Vec::new();
    let mut places = Vec::new();
    for chunk in chunks.iter().map(Vec::as_slice).filter(|it| !it.is_empty()).chain([&b""[..]]) {
        text.extend_from_slice(format!("{:x};chunk-signature=", chunk.len()).as_bytes());
        places.push((text.len(), chunk.to_vec()));
        text.extend_from_slice(&[b'0'; 64]);
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(chunk);
        if !chunk.is_empty() {
            text.extend_from_slice(b"\r\n");
        }
    }
    let mut chain = model::Chain::new(NOW);
    for (at, chunk) in places {
        text[at..at + 64].copy_from_slice(chain.chunk(&chunk).as_bytes());
    }
    text.extend_from_slice(ends[usize::from(trailer)]);
    if trailer {
        text.extend_from_slice(chain.trailer(b"x-amz-checksum-crc32:AAAA\n").as_bytes());
        text.extend_from_slice(b"\r\n\r\n");
    }
    text
}

/// The signatures within a body, written a second time and straight from AWS's description.
mod model {
    use hmac::{Hmac, Mac};
    use sha2::{Digest, Sha256};

    pub(crate) struct Chain(Vec<u8>, String);

    fn hmac(key: &[u8], text: &str) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|it| format!("{it:02x}")).collect()
    }

    impl Chain {
        pub(crate) fn new(time: u64) -> Self {
            let mut key = b"AWS4a secret".to_vec();
            for part in ["20300102", "eu-1", "s3", "aws4_request"] {
                key = hmac(&key, part);
            }
            Self(key, String::from_utf8(super::chain(time).last().to_vec()).expect("digits"))
        }

        pub(crate) fn chunk(&mut self, data: &[u8]) -> String {
            let (nothing, data) = (hex(&Sha256::digest(b"")), hex(&Sha256::digest(data)));
            self.next(&format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n20300102T030405Z\n20300102/eu-1/s3/aws4_request\n{}\n{nothing}\n{data}",
                self.1
            ))
        }

        pub(crate) fn trailer(&mut self, lines: &[u8]) -> String {
            let lines = hex(&Sha256::digest(lines));
            self.next(&format!(
                "AWS4-HMAC-SHA256-TRAILER\n20300102T030405Z\n20300102/eu-1/s3/aws4_request\n{}\n{lines}",
                self.1
            ))
        }

        fn next(&mut self, text: &str) -> String {
            self.1 = hex(&hmac(&self.0, text));
            self.1.clone()
        }
    }
}

/// What came out, or the fault.
fn pass(body: &[u8], trailer: bool, step: usize) -> Result<Vec<u8>, (Vec<u8>, Fault)> {
    let mut chunks = Chunks::new(chain(NOW), chain(NOW + 1), trailer);
    let mut out = Vec::new();
    for piece in body.chunks(step.max(1)) {
        match chunks.take(piece) {
            Ok(more) => out.extend(more),
            Err(fault) => return Err((out, fault)),
        }
    }
    chunks.end().map(|()| out.clone()).map_err(|fault| (out, fault))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_we_sign_verifies_and_what_is_changed_does_not(request in request(), at in 0..700_usize, to in 0x20..0x7f_u8) {
        prop_assert_eq!(request.verified(), Ok(()));
        if let Some(other) = changed(&request, at, to) {
            prop_assert!(other.verified().is_err(), "{:?}", other);
        }
        let mut other = request.clone();
        other.method = Method::POST;
        prop_assert_eq!(other.verified(), Err(Refusal::Wrong));
    }

    #[test]
    fn a_body_passes_whole_however_it_is_cut(
        chunks in vec(vec(any::<u8>(), 0..300), 0..6), trailer: bool, step in 1..400_usize,
    ) {
        let body = body(&chunks, trailer);
        let out = pass(&body, trailer, step).map_err(|(_, fault)| TestCaseError::fail(fault.to_string()))?;
        prop_assert_eq!(out.len(), body.len());
        let differ = out.iter().zip(&body).filter(|(a, b)| a != b).count();
        let signatures = chunks.iter().filter(|it| !it.is_empty()).count() + 1 + usize::from(trailer);
        prop_assert!(differ > signatures * 32 && differ <= signatures * 64);
        for short in [body.len() - 1, body.len() / 2, 0] {
            prop_assert_eq!(pass(&body[..short], trailer, step).expect_err("short").1, Fault::Short);
        }
    }

    #[test]
    fn no_changed_byte_of_a_body_passes(
        chunks in vec(vec(any::<u8>(), 1..50), 0..4), trailer: bool, at: prop::sample::Index, to: u8,
    ) {
        let body = body(&chunks, trailer);
        let at = at.index(body.len());
        let mut other = body.clone();
        other[at] = to;
        // A size and a header's name may be written in capitals.
        prop_assume!(!to.eq_ignore_ascii_case(&body[at]));
        let (out, _) = pass(&other, trailer, 7).expect_err("it was changed");
        let whole = pass(&body, trailer, 7).map_err(|(_, fault)| TestCaseError::fail(fault.to_string()))?;
        prop_assert!(whole.starts_with(&out) && out.len() <= at, "what is given out was signed");
    }

    #[test]
    fn nothing_panics(query in "[ -~]{0,60}", values in vec(vec(any::<u8>(), 0..60), 0..3), body in vec(any::<u8>(), 0..300), trailer: bool) {
        let mut headers = HeaderMap::new();
        let names = ["authorization", "x-amz-date", "x-amz-content-sha256"];
        for (name, value) in names.into_iter().zip(&values) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(name, value);
            }
        }
        for query in [query.clone(), format!("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=5&X-Amz-Date=20300102T030405Z&{query}")] {
            if let Ok(uri) = format!("/?{query}").parse::<Uri>() {
                let _ = Authorization::of(&uri, &headers);
            }
        }
        prop_assert!(pass(&body, trailer, 5).is_err());
    }

    #[test]
    fn a_header_that_is_nearly_right_is_refused(text in "(AWS4-HMAC-SHA256)?[ ,]?((Credential|SignedHeaders|Signature)=[a-z0-9/;]{0,9},? ?){0,4}") {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", text.parse().expect("a value"));
        headers.insert("x-amz-date", HeaderValue::from_static("20300102T030405Z"));
        headers.insert("x-amz-content-sha256", HeaderValue::from_static("UNSIGNED-PAYLOAD"));
        prop_assert!(Authorization::of(&Uri::from_static("/b/k"), &headers).is_err());
    }
}

#[test]
fn what_has_to_be_signed_is() {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("h"));
    key().sign(NOW, &Method::GET, &Uri::from_static("/b/k"), &mut headers);
    let request = Request { method: Method::GET, uri: Uri::from_static("/b/k"), headers };
    assert_eq!(request.verified(), Ok(()));
    for (name, value) in [("x-amz-acl", "public-read"), ("connection", "close, X-Amz-Date"), ("host", "g")] {
        let mut other = request.clone();
        other.headers.append(name, HeaderValue::from_static(value));
        assert_eq!(other.verified(), Err(Refusal::NotCovered), "{name}");
    }
    let mut other = request.clone();
    other.headers.insert("range", HeaderValue::from_static("bytes=1-2"));
    assert_eq!(other.verified(), Ok(()), "anybody may add what is not acted on by who is asked");
    let authorization = Authorization::of(&request.uri, &request.headers).expect("a authorization");
    for (now, refusal) in [(NOW + 900, None), (NOW + 901, Some(Refusal::Skewed)), (NOW - 901, Some(Refusal::Skewed))] {
        let found = authorization.verify(&secret(), now, &request.method, &request.uri, &request.headers);
        assert_eq!(found.err(), refusal);
    }
}

#[test]
fn a_chunk_has_a_bound() {
    let line = |size: &str| format!("{size};chunk-signature={}\r\n", "0".repeat(64)).into_bytes();
    for (size, fault) in [
        ("100001", Fault::TooLarge),
        ("ffffffffffffffff", Fault::TooLarge),
        ("", Fault::Malformed),
        ("-1", Fault::Malformed),
    ] {
        assert_eq!(pass(&line(size), false, 9).expect_err("refused").1, fault, "{size}");
    }
    assert_eq!(pass(&vec![b'0'; 1 << 20], false, 1 << 16).expect_err("refused").1, Fault::Malformed);
    let endless = [body(&[], false), vec![b'a'; 9]].concat();
    assert_eq!(pass(&endless, false, 9).expect_err("refused").1, Fault::Malformed, "nothing comes after the end");
}
