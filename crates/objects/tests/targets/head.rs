//! A request's head and an answer's, of any bytes: what is understood of them is what they say, and nothing panics.
//!
//! An input is lines: method and target, headers, an empty line, status, headers.

use forebay_objects::http::header::{CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue, RANGE};
use forebay_objects::http::{Method, StatusCode, Uri};
use forebay_objects::{
    Asked, Confirmed, Learned, Objects, ObjectsConfig, Plan, Read, Spec, Target, Verb, Who, content_range, lifetime_s,
    may_change,
};
use std::ops::Range;

/// Pairs of heads.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    [
        "GET /b/k\n\n200\netag: \"e\"\ncontent-length: 9\nlast-modified: Tue, 01 Jan 2030 00:00:00 GMT\n",
        "GET /b/k%20k?versionId=1\nrange: bytes=1-2\nif-range: \"e\"\n\n206\netag: \"e\"\ncontent-length: 2\ncontent-range: bytes 1-2/9\n",
        "HEAD /b/k?partNumber=1\nhost: b.s3.example:80\nif-none-match: \"e\", W/\"f\"\n\n200\netag: \"e\"\ncontent-length: 9\n",
        "GET /b/k?X-Amz-Date=20300102T030405Z&X-Amz-Expires=9&X-Amz-Signature=0&X-Amz-SignedHeaders=host\n\n304\netag: \"e\"\n",
        "GET /b/k?response-content-type=a%2Fb\nauthorization: AWS4-HMAC-SHA256 Credential=A, SignedHeaders=host;range, Signature=0\n\n404\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Lines, or parts of them.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let words = [
        "GET /b/k",
        "PUT /b/k?tagging",
        "\n",
        "\n\n",
        "200\n",
        "206\n",
        "etag: \"e\"\n",
        "content-length: 9\n",
        "range: bytes=",
        "0-",
        "-5",
        "18446744073709551615",
        "18446744073709551616",
        "content-range: bytes 0-8/9\n",
        "if-match: ",
        "if-modified-since: ",
        "vary: ",
        "%",
        "%2F",
        "%00",
        "?",
        "&",
        "=",
        "versionId",
        "response-expires",
        "x-amz-version-id: 1\n",
        "cache-control: no-cache\n",
        "+",
        "\u{fc}",
    ];
    words.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Reads them, plans with them, and learns of them.
pub(crate) fn check(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let space = first.iter().position(|byte| *byte == b' ').unwrap_or(first.len());
    let (method, target) = (&first[..space], first.get(space + 1..).unwrap_or_default());
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method), Uri::try_from(target)) else { return };
    let headers = headers(&mut lines);
    let names = ["s3.example".to_owned()];
    let host = headers.get("host").and_then(|it| it.to_str().ok());
    let target = Target::of(&method, uri.path(), uri.query(), host, &names);
    if let Some(name) = &target.name {
        assert!(target.bucket.as_deref() == Some(&*name.bucket) && !name.bucket.is_empty() && !name.key.is_empty());
        assert!(uri.path().len() > name.key.len(), "a key is not longer than its path");
    }
    assert!(matches!(target.verb, Verb::Change) || [Method::GET, Method::HEAD, Method::OPTIONS].contains(&method));
    let (now_s, is_signed) = (1_893_553_445, headers.contains_key("authorization"));
    assert!(lifetime_s(&uri, &headers, now_s) <= 8000 * 365 * 86_400 || !is_signed, "a signature in a header ends");
    let may = may_change(&uri, &headers, &RANGE);
    assert!(may || uri.query().is_some() || headers.contains_key("authorization"), "nothing is signed");
    for value in headers.get_all(RANGE).iter().filter_map(|it| it.to_str().ok()) {
        check_range(value);
    }
    let Some(read) = Read::of(&target, uri.query(), &headers) else { return };
    assert!(headers.contains_key(RANGE) || !matches!(read.asked, Asked::Part(_)));
    let status = lines.next().and_then(|it| StatusCode::from_bytes(it).ok()).unwrap_or(StatusCode::OK);
    let answer = self::headers(&mut lines);
    learn(&read, Who::of(&method, &uri, &headers), status, &answer);
}

fn headers<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()).take(100) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// A range is what a reader of the standard would pick out of ten bytes, one by one.
fn check_range(value: &str) {
    let Some(spec) = Spec::of(value) else { return };
    let (_, range) = value.split_once('=').expect("it was understood");
    let (first, last) = range.trim().split_once('-').expect("it was understood");
    let number = |text: &str| (!text.trim().is_empty()).then(|| text.trim().parse::<u128>().expect("digits"));
    let wanted = |at: u128| match (number(first), number(last)) {
        (None, Some(count)) => at + count >= 10,
        (Some(first), last) => first <= at && last.is_none_or(|last| at <= last),
        (None, None) => false,
    };
    let wanted: Vec<u64> = (0..10).filter(|at| wanted(u128::from(*at))).collect();
    let found: Vec<u64> = spec.within(10).map_or(Vec::new(), Iterator::collect);
    assert_eq!(found, wanted, "{value}");
}

fn is_within(part: &Range<u64>, bytes: u64) -> bool {
    part.start <= part.end && part.end <= bytes
}

/// What is learned is of the size that the answer says, and what is planned then is within it.
fn learn(read: &Read, who: Who, status: StatusCode, answer: &HeaderMap) {
    if let Some((part, bytes)) = answer.get(CONTENT_RANGE).and_then(|it| it.to_str().ok()).and_then(content_range) {
        assert!(is_within(&part, bytes) && !part.is_empty());
    }
    let mut objects = Objects::new(&ObjectsConfig {
        space_bytes: 65_536 * 64 * 16,
        page_bytes: 65_536,
        block_bytes: 4096,
        versions_max: 4,
        metadata_ttl_ns: 1000,
    });
    let Plan::Learn(learning) = objects.plan(0, read, Some((who, 100))) else {
        assert!(read.bypass.is_some(), "nothing is known");
        return;
    };
    let learned = objects.learned(read, &learning, status, answer);
    if let Learned::Keep(kept) = &learned {
        assert!(
            is_within(&kept.part, kept.bytes) && !kept.part.is_empty() && kept.start + kept.bytes <= 65_536 * 64 * 16
        );
        assert!([StatusCode::OK, StatusCode::PARTIAL_CONTENT].contains(&status) && !read.head);
    }
    for now_ns in [1, 2000] {
        match objects.plan(now_ns, read, Some((who, 100))) {
            Plan::Confirm(held) | Plan::Serve(held, _) => {
                assert!(is_within(&held.part, held.bytes) && learned != Learned::Not("status"));
                let told = held.told(read, Some(answer));
                assert!(!told.contains_key("transfer-encoding") && !told.contains_key("content-length"));
                if held.part_in(status, answer).is_some() {
                    assert!(matches!(objects.confirmed(read, &held, answer), Confirmed::Serve | Confirmed::Again));
                }
            }
            Plan::Learn(_) => {}
            Plan::Pass(why) => panic!("it was planned before: {why}"),
        }
    }
}
