//! Uploads, one and two at a time.

use super::*;
use crate::headers;
use crate::objects::{Learned, ObjectsConfig, Plan};
use crate::read::Read;

const CHUNKED: (&str, &str) = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");

fn objects() -> Objects {
    let (page_bytes, block_bytes) = (65_536, 4096);
    let space_bytes = page_bytes * 64 * 16;
    Objects::new(&ObjectsConfig { space_bytes, page_bytes, block_bytes, versions_max: 100, metadata_ttl_ns: 0 })
}

fn target(method: &Method, query: Option<&str>) -> Target {
    Target::of(method, "/b/k", query, None, &[])
}

fn of(method: &Method, query: &str, given: &[(&str, &str)]) -> Result<(u64, Framing), &'static str> {
    let write = Write::of(method, &target(method, Some(query)), Some(query), &headers(given))?;
    Ok((write.bytes, write.framing))
}

fn put(bytes: u64) -> Write {
    let length = bytes.to_string();
    Write::of(&Method::PUT, &target(&Method::PUT, None), None, &headers(&[("content-length", &length)])).expect("one")
}

/// What a GET of it is answered with.
fn told(etag: &str) -> HeaderMap {
    headers(&[("etag", etag), ("content-length", "9"), ("content-type", "text/x")])
}

/// What the store is asked for, and what comes of its answer.
fn learn(objects: &mut Objects, now_ns: u64, etag: &str) -> (Read, Learned) {
    let read = Read::of(&target(&Method::GET, None), None, &HeaderMap::new()).expect("a read");
    let Plan::Learn(learning) = objects.plan(now_ns, &read, None) else { panic!("its headers are not known") };
    let learned = objects.learned(&read, &learning, StatusCode::OK, &told(etag));
    if let Learned::Keep(kept) = &learned
        && kept.is_known
    {
        let held = objects.here(&read, &learning, kept, StatusCode::OK).expect("it was learned");
        assert_eq!((held.part.clone(), held.start), (0..9, kept.start));
    }
    (read, learned)
}

#[test]
fn an_upload_of_a_whole_object_says_how_long_it_is() {
    let put = |query: &str, given: &[(&str, &str)]| of(&Method::PUT, query, given);
    let length = ("content-length", "9");
    assert_eq!(put("", &[length]), Ok((9, Framing::Plain)));
    assert_eq!(
        put("x-id=PutObject&X-Amz-Signature=1", &[length, ("content-encoding", "gzip")]),
        Ok((9, Framing::Plain))
    );
    assert_eq!(put("", &[length, CHUNKED, ("x-amz-decoded-content-length", "3")]), Ok((3, Framing::AwsChunked)));
    assert_eq!(put("", &[CHUNKED, ("x-amz-decoded-content-length", "3")]), Ok((3, Framing::AwsChunked)));
    assert_eq!(put("partNumber=1&uploadId=2", &[length]), Ok((9, Framing::Plain)));
    for (query, given, why) in [
        ("partNumber=1", &[length][..], "change"),
        ("partNumber=0&uploadId=2", &[length], "change"),
        ("partNumber=1&partNumber=2&uploadId=2", &[length], "change"),
        ("uploadId=2", &[length], "change"),
        ("tagging", &[length], "change"),
        ("", &[length, ("x-amz-copy-source", "/b/l")], "copy"),
        ("", &[length, ("x-amz-write-offset-bytes", "3")], "append"),
        ("", &[length, ("x-amz-server-side-encryption-customer-algorithm", "AES256")], "customer-key"),
        ("", &[], "no-length"),
        ("", &[("content-length", "-9")], "no-length"),
        ("", &[length, CHUNKED], "no-length"),
        ("", &[CHUNKED, CHUNKED, ("x-amz-decoded-content-length", "3")], "framing"),
        ("", &[length, ("content-encoding", "gzip, aws-chunked")], "framing"),
        ("", &[length, ("x-amz-decoded-content-length", "3")], "framing"),
    ] {
        assert_eq!(put(query, given), Err(why), "{query} {given:?}");
    }
    assert_eq!(of(&Method::POST, "", &[length]), Err("change"));
    assert_eq!(of(&Method::DELETE, "", &[length]), Err("change"));
}

#[test]
fn a_request_chooses_its_mode_and_the_store_sees_it_only_where_it_is_signed() {
    let take = |given: &[(&str, &str)]| {
        let mut headers = headers(given);
        let mode = WriteMode::take(&Uri::from_static("/b/k"), &mut headers);
        (mode, headers.contains_key(&MODE))
    };
    let signed = "AWS4-HMAC-SHA256 Credential=A, SignedHeaders=host;x-forebay-write, Signature=0";
    assert_eq!(take(&[]), (Ok(None), false));
    assert_eq!(take(&[("x-forebay-write", "through")]), (Ok(Some(WriteMode::Through)), false));
    assert_eq!(take(&[("x-forebay-write", "around")]), (Ok(Some(WriteMode::Around)), false));
    assert_eq!(take(&[("x-forebay-write", "around"), ("authorization", signed)]), (Ok(Some(WriteMode::Around)), true));
    assert_eq!(take(&[("x-forebay-write", "back")]), (Err(UnknownMode), true));
}

#[test]
fn what_was_written_is_the_version_that_the_store_told() {
    let mut objects = objects();
    let change = objects.changing(&target(&Method::PUT, None)).expect("a change");
    let writing = objects.writing(5, &put(9)).expect("room");
    assert_eq!(objects.wrote(&writing, StatusCode::OK, &headers(&[("etag", "\"1\"")])), Ok(()));
    objects.changed(change);
    let (read, learned) = learn(&mut objects, 6, "\"1\"");
    assert_eq!(learned, Learned::Keep(Kept { is_known: true, ..writing.kept }));
    assert!(matches!(objects.plan(7, &read, None), Plan::Confirm(held) if held.id == writing.kept.id));
}

#[test]
fn what_the_store_did_not_take_or_takes_for_another_is_never_found() {
    for (status, etag) in [(500, "\"1\""), (200, ""), (200, "W/\"1\""), (204, "\"1\""), (200, "\"2\"")] {
        let mut objects = objects();
        let change = objects.changing(&target(&Method::PUT, None)).expect("a change");
        let writing = objects.writing(5, &put(9)).expect("room");
        let status = StatusCode::from_u16(status).expect("a status");
        let wrote = objects.wrote(&writing, status, &headers(&[("etag", etag)]));
        objects.changed(change);
        assert_eq!(wrote.is_ok(), etag == "\"2\"", "{status} {etag}");
        let Learned::Keep(kept) = learn(&mut objects, 6, "\"1\"").1 else { panic!("a new version") };
        assert!(!kept.is_known && kept.id != writing.kept.id, "{status} {etag}");
    }
}

#[test]
fn of_two_uploads_at_one_time_none_is_believed() {
    let mut objects = objects();
    let target = target(&Method::PUT, None);
    let yes = |etag: &str| headers(&[("etag", etag)]);
    let one = objects.changing(&target).expect("a change");
    let writing = objects.writing(5, &put(9)).expect("room");
    let two = objects.changing(&target).expect("a change");
    assert_eq!(objects.writing(6, &put(9)).map(|_| ()), Err("changed-meanwhile"));
    objects.changed(two);
    assert_eq!(objects.wrote(&writing, StatusCode::OK, &yes("\"1\"")), Err("changed-meanwhile"));
    objects.changed(one);
    assert!(!matches!(learn(&mut objects, 7, "\"1\"").1, Learned::Keep(kept) if kept.is_known));
    let three = objects.changing(&target).expect("a change");
    let writing = objects.writing(8, &put(9)).expect("it is alone again");
    objects.distrust(writing.kept.id);
    assert_eq!(objects.wrote(&writing, StatusCode::OK, &yes("\"3\"")), Err("no-room"), "it was forgotten meanwhile");
    objects.changed(three);
}
