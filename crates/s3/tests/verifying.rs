//! With keys of its own the gateway lets in who signed and was granted it, and the store sees its key and nothing of the client's.

mod rig;

use forebay_objects::http::{HeaderMap, HeaderName, Method, Uri};
use forebay_objects::{Access, Client, Grant};
use forebay_s3::VerifyConfig;
use forebay_signature::{Authorization, Chain, Secret, StoreKey};
use rig::client::{Answer, ask};
use rig::store::Seen;
use rig::{World, bytes};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OBJECT: u64 = 300_000;

fn secret(text: &str) -> Secret {
    Secret::new(text).expect("a secret")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// ANN may read all of bucket b and write b/in/, BOB read b/in/.
fn world(metadata_ttl: Duration) -> World {
    let grant = |prefix: &str, access| Grant { buckets: "b".into(), prefix: prefix.as_bytes().into(), access };
    let client = |grants: &[Grant]| Client { secret: secret("own"), grants: grants.into() };
    let clients = [
        ("ANN", client(&[grant("", Access::Read), grant("in/", Access::Write)])),
        ("BOB", client(&[grant("in/", Access::Read)])),
    ];
    World::verifying(
        metadata_ttl,
        VerifyConfig {
            clients: clients.map(|(key, client)| (key.to_owned(), client)).into(),
            store: StoreKey::new("STORE", secret("theirs"), "r").expect("a key"),
        },
    )
}

/// The headers of a signed request, and where its chunks go on from.
fn signed(key: &str, method: &str, path: &str, given: &[(&str, &str)]) -> (Vec<(String, String)>, Chain) {
    let mut headers = HeaderMap::new();
    for (name, value) in [("host", "test")].iter().chain(given) {
        headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    let uri: Uri = path.parse().expect("a path");
    let method: Method = method.parse().expect("a method");
    let key = StoreKey::new(key, secret("own"), "eu-1").expect("a key");
    let chain = key.sign(now(), &method, &uri, &mut headers);
    headers.remove("host");
    let text = |(name, value): (&HeaderName, &forebay_objects::http::HeaderValue)| {
        (name.to_string(), value.to_str().expect("text").to_owned())
    };
    (headers.iter().map(text).collect(), chain)
}

fn send(world: &World, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    ask(world.gateway.address(), method, path, &headers, body)
}

fn get(world: &World, key: &str, path: &str, given: &[(&str, &str)]) -> Answer {
    send(world, "GET", path, &signed(key, "GET", path, given).0, b"")
}

/// Whether the store can believe it: signed by the gateway's key, and by nobody else.
fn check(world: &World, seen: &Seen) {
    let mut headers = HeaderMap::new();
    for (name, value) in &seen.headers {
        headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    let uri: Uri = seen.path.parse().expect("a path");
    let authorization = Authorization::of(&uri, &headers).expect("it is signed");
    assert_eq!(authorization.access_key(), "STORE");
    let method: Method = seen.method.parse().expect("a method");
    authorization
        .verify(&secret("theirs"), now(), &method, &uri, &headers)
        .unwrap_or_else(|why| panic!("{why}: {seen:?}"));
    assert_eq!(seen.header("host"), Some(world.store.address().to_string().as_str()));
    let shown = format!("{seen:?}");
    assert!(!shown.contains("ANN") && !shown.contains("BOB"), "{shown}");
}

#[test]
fn what_the_store_sees_is_signed_with_its_key_and_is_nobody_elses() {
    let world = world(Duration::ZERO);
    let whole = bytes(1, OBJECT);
    world.store.put("/b/in/k", whole.clone());
    for (key, told) in [("ANN", "MISS"), ("BOB", "HIT"), ("ANN", "HIT")] {
        let answer = get(&world, key, "/b/in/k", &[("x-amz-meta-a", "1")]);
        assert_eq!((answer.status, answer.cache(), answer.body == whole), (200, told, true));
        world.settle();
    }
    let (pages, range) = (1..2, "bytes=0-262143");
    world.evict(pages);
    let answer = get(&world, "BOB", "/b/in/k", &[("range", range)]);
    assert_eq!((answer.status, answer.cache(), answer.body == whole[..262_144]), (206, "PARTIAL", true));
    let seen = world.store.seen();
    assert_eq!(seen.len(), 5, "a miss, three questions and what was missing");
    assert_eq!(seen[4].header("if-match").is_some(), seen[4].header("range") != Some(range), "fetched as a part");
    seen.iter().for_each(|seen| check(&world, seen));
}

#[test]
fn a_hit_is_for_who_was_granted_it() {
    for metadata_ttl in [Duration::ZERO, Duration::from_secs(3600)] {
        let world = world(metadata_ttl);
        for path in ["/b/in/k", "/b/k"] {
            world.store.put(path, bytes(2, OBJECT));
            get(&world, "ANN", path, &[]);
            world.settle();
            assert_ne!(get(&world, "ANN", path, &[]).cache(), "MISS");
        }
        world.store.seen();
        let mut forged = signed("ANN", "GET", "/b/k", &[]).0;
        let at = forged.iter().position(|(name, _)| name == "authorization").expect("signed");
        let last = forged[at].1.pop().expect("a digit");
        forged[at].1.push(if last == '0' { '1' } else { '0' });
        for (headers, code) in [
            (Vec::new(), "AccessDenied"),
            (signed("BOB", "GET", "/b/k", &[]).0, "AccessDenied"),
            (signed("EVE", "GET", "/b/k", &[]).0, "InvalidAccessKeyId"),
            (signed("ANN", "GET", "/b/in/k", &[]).0, "SignatureDoesNotMatch"),
            (forged, "SignatureDoesNotMatch"),
        ] {
            let answer = send(&world, "GET", "/b/k", &headers, b"");
            let told = String::from_utf8(answer.body).expect("text");
            assert_eq!(answer.status, 403);
            assert!(told.contains(&format!("<Code>{code}</Code>")), "{told}");
        }
        assert!(world.store.seen().is_empty(), "the store is not asked for who may not");
        let allowed = get(&world, "BOB", "/b/in/k", &[]);
        assert_eq!((allowed.status, allowed.cache()), (200, "HIT"));
        assert_eq!(world.store.seen().is_empty(), !metadata_ttl.is_zero());
    }
}

/// One chunk of these bytes and the last one, signed by nobody: their signatures are filled in by who has the secret.
fn chunked(data: &[u8], signatures: [&str; 2]) -> Vec<u8> {
    let [first, last] = signatures;
    let mut body = format!("{:x};chunk-signature={first}\r\n", data.len()).into_bytes();
    body.extend_from_slice(data);
    body.extend_from_slice(format!("\r\n0;chunk-signature={last}\r\n\r\n").as_bytes());
    body
}

#[test]
fn a_body_whose_chunks_are_not_signed_is_not_stored() {
    let world = world(Duration::ZERO);
    let given = [("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), ("x-amz-decoded-content-length", "5")];
    let none = "0".repeat(64);
    let whole = chunked(b"hello", [&none, &none]);
    for (body, status, code) in [
        (whole, 403, "SignatureDoesNotMatch"),
        (b"nonsense that is no chunk\r\n".to_vec(), 400, "InvalidRequest"),
        (format!("fffffff;chunk-signature={none}\r\n").into_bytes(), 403, "InvalidChunkSizeError"),
        (b"5;chunk-".to_vec(), 400, "IncompleteBody"),
    ] {
        let answer = send(&world, "PUT", "/b/in/k", &signed("ANN", "PUT", "/b/in/k", &given).0, &body);
        let told = String::from_utf8(answer.body).expect("text");
        assert_eq!(answer.status, status, "{told}");
        assert!(told.contains(&format!("<Code>{code}</Code>")), "{told}");
    }
    assert!(world.store.inner().objects.is_empty());
    let answer = send(&world, "PUT", "/b/in/k", &signed("ANN", "PUT", "/b/in/k", &[]).0, b"hello");
    assert_eq!(answer.status, 200);
    assert_eq!(*world.store.inner().objects["/b/in/k"].bytes, b"hello");
}
