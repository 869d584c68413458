//! The examples that AWS publishes in "Authenticating Requests" of the S3 API reference, and requests that botocore signed.

use forebay_signature::{Authorization, Chain, Chunks, Payload, Refusal, Secret, StoreKey, Verified, unix_s};
use http::{HeaderMap, HeaderName, Method, Uri};
use serde_json::Value;

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn headers(given: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    headers
}

fn verify(method: &str, target: &str, headers: &HeaderMap, secret: &str, now: u64) -> Result<Verified, Refusal> {
    let uri: Uri = target.parse().expect("a target");
    let secret = Secret::new(secret).expect("a secret");
    Authorization::of(&uri, headers)?.verify(&secret, now, &method.parse().expect("a method"), &uri, headers)
}

/// A request of the examples, all of which are of one second.
fn example(method: &str, target: &str, given: &[(&str, &str)], signature: &str) -> Verified {
    let mut headers = headers(given);
    headers.entry("host").or_insert("examplebucket.s3.amazonaws.com".parse().expect("a value"));
    headers.entry("x-amz-date").or_insert("20130524T000000Z".parse().expect("a value"));
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let text = format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders={},Signature={signature}",
        names.join(";")
    );
    headers.insert("authorization", text.parse().expect("a value"));
    let now = unix_s("20130524T000500Z").expect("a time");
    verify(method, target, &headers, SECRET, now).unwrap_or_else(|refusal| panic!("{target}: {refusal}"))
}

#[test]
fn examples_in_the_header_verify() {
    let nothing = ("x-amz-content-sha256", NOTHING);
    let object = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    for (method, target, given, signature) in [
        (
            "GET",
            "/test.txt",
            vec![("range", "bytes=0-9"), nothing],
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test$file.text",
            vec![
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ("x-amz-content-sha256", object),
            ],
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/?lifecycle", vec![nothing], "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/?max-keys=2&prefix=J",
            vec![nothing],
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        example(method, target, &given, signature);
    }
}

#[test]
fn the_example_in_the_query_verifies_until_it_expires() {
    let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z\
        &X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let headers = headers(&[("host", "examplebucket.s3.amazonaws.com")]);
    for (now, refusal) in [
        ("20130523T234500Z", None),
        ("20130523T234459Z", Some(Refusal::NotYet)),
        ("20130525T000000Z", None),
        ("20130525T000001Z", Some(Refusal::Expired)),
    ] {
        assert_eq!(verify("GET", target, &headers, SECRET, unix_s(now).expect("a time")).err(), refusal, "{now}");
    }
}

/// 65,536 bytes and 1,024 more, as the examples have it.
fn body(signatures: [&str; 3], trailer: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (length, signature) in [65_536, 1024, 0].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{length:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend(std::iter::repeat_n(b'a', length));
        if length > 0 || trailer.is_empty() {
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(trailer.as_bytes());
    body
}

/// Checks it and signs it with another key; then checks that.
fn passes(came: Chain, body: &[u8], has_trailer: bool) {
    let key = StoreKey::new("store", Secret::new("other").expect("a secret"), "r").expect("a key");
    let leaves = key.sign(1_400_000_000, &Method::PUT, &Uri::from_static("/b/k"), &mut headers(&[("host", "store")]));
    let mut chunks = Chunks::new(came, leaves.clone(), has_trailer);
    let mut out = Vec::new();
    for piece in body.chunks(1000) {
        out.extend(chunks.take(piece).expect("its signatures are right"));
    }
    chunks.end().expect("it is whole");
    assert_eq!(out.len(), body.len());
    assert_ne!(out, body);
    let mut again = Chunks::new(leaves.clone(), leaves, has_trailer);
    assert_eq!(again.take(&out).expect("they are right anew"), out);
}

const STREAMED: [(&str, &str); 4] = [
    ("host", "s3.amazonaws.com"),
    ("content-encoding", "aws-chunked"),
    ("x-amz-decoded-content-length", "66560"),
    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
];

#[test]
fn the_example_by_chunks_verifies() {
    let verified = example(
        "PUT",
        "/examplebucket/chunkObject.txt",
        &[
            &STREAMED[..],
            &[("content-length", "66824"), ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")],
        ]
        .concat(),
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    );
    assert_eq!(verified.payload, Payload::Chunks);
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    passes(verified.chain, &body(signatures, ""), false);
}

#[test]
fn the_example_with_a_trailer_verifies() {
    let verified = example(
        "PUT",
        "/examplebucket/chunkObject.txt",
        &[
            &STREAMED[..],
            &[
                ("x-amz-trailer", "x-amz-checksum-crc32c"),
                ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
            ],
        ]
        .concat(),
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
    );
    let signatures = [
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ];
    let trailer = "x-amz-checksum-crc32c:sOO8/Q==\r\n\
        x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
    passes(verified.chain, &body(signatures, trailer), true);
}

#[test]
fn what_botocore_signed_verifies() {
    let vectors: Value = serde_json::from_str(include_str!("botocore.json")).expect("vectors.py wrote it");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let (secret, now) = (text(&vectors["secret"]), vectors["unix_s"].as_u64().expect("a time"));
    let requests = vectors["requests"].as_array().expect("a list");
    assert!(requests.len() >= 100);
    for request in requests {
        let mut headers = HeaderMap::new();
        for header in request["headers"].as_array().expect("a list") {
            let name: HeaderName = text(&header[0]).parse().expect("a name");
            headers.append(name, text(&header[1]).parse().expect("a value"));
        }
        let (method, target) = (text(&request["method"]), text(&request["target"]));
        let verified = verify(&method, &target, &headers, &secret, now);
        assert!(verified.is_ok(), "{:?}: {method} {target} {headers:?}", verified.err());
        assert_eq!(verify(&method, &target, &headers, "another", now).err(), Some(Refusal::Wrong));
    }
}
