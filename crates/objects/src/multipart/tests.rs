//! Uploads in parts, and what is believed of them.

use super::*;
use crate::headers;
use crate::objects::ObjectsConfig;
use crate::write::Write;

const PAGE: u64 = 65_536;

fn objects() -> Objects {
    Objects::new(&ObjectsConfig {
        space_bytes: PAGE * 64 * 64,
        page_bytes: PAGE,
        block_bytes: 4096,
        versions_max: 100_000,
        metadata_ttl_ns: 0,
    })
}

fn target(method: &Method, query: &str) -> Target {
    Target::of(method, "/b/k", Some(query), None, &[])
}

fn part(number: u32, bytes: u64) -> Write {
    let query = format!("partNumber={number}&uploadId=a%2Bb");
    let length = bytes.to_string();
    let put = Method::PUT;
    Write::of(&put, &target(&put, &query), Some(&query), &headers(&[("content-length", &length)])).expect("a part")
}

/// The store takes a part.
fn upload(objects: &mut Objects, number: u32, bytes: u64, etag: &str) -> Result<(), &'static str> {
    let writing = objects.writing(0, &part(number, bytes)).expect("room");
    objects.wrote(&writing, StatusCode::OK, &headers(&[("etag", etag)]))
}

/// The upload is completed with these parts, and the store answers so.
fn complete(objects: &mut Objects, named: &[(u32, &str)], told: &str) -> Result<Assembly, &'static str> {
    let row = |(number, etag): &(u32, &str)| {
        format!("<Part><ETag>&quot;{etag}&quot;</ETag>\n<PartNumber>{number}</PartNumber></Part>")
    };
    let rows: String = named.iter().map(row).collect();
    let asked =
        format!("<?xml version=\"1.0\"?><CompleteMultipartUpload xmlns=\"http://s3\">{rows}</CompleteMultipartUpload>");
    let target = target(&Method::POST, "uploadId=a%2Bb");
    let change = objects.changing(&target).expect("a change");
    let completing = objects.completing(1, &Method::POST, &target, Some("uploadId=a%2Bb")).ok_or("unknown");
    let completed = completing.and_then(|completing| {
        objects.completed(&completing, asked.as_bytes(), (StatusCode::OK, &headers(&[]), told.as_bytes()))
    });
    objects.changed(change);
    completed
}

const YES: &str = "<?xml version=\"1.0\"?>\n <CompleteMultipartUploadResult><Key>k</Key><ETag>&#34;z-2&#34;</ETag></CompleteMultipartUploadResult>";
const NO: &str = "<Error><Code>InternalError</Code></Error>";

#[test]
fn the_parts_that_are_named_are_the_object_in_their_order() {
    let mut objects = objects();
    for (number, bytes) in [(7, 100), (2, 2 * PAGE), (3, 50)] {
        assert_eq!(upload(&mut objects, number, bytes, &format!("\"{number}\"")), Ok(()));
    }
    let assembly = complete(&mut objects, &[(2, "2"), (7, "7")], YES).expect("known");
    let placed: Vec<(Range<u64>, u64)> =
        assembly.parts.iter().map(|(range, part)| (range.clone(), part.bytes)).collect();
    assert_eq!(placed, [(0..2 * PAGE, 2 * PAGE), (2 * PAGE..2 * PAGE + 100, 100)]);
    let (identity, _) = objects.catalogue().get(assembly.kept.id).expect("kept");
    assert_eq!((&*identity.etag, identity.bytes), ("\"z-2\"", 2 * PAGE + 100));
    assert_eq!(complete(&mut objects, &[(2, "2")], YES).map(|_| ()), Err("unknown"), "it is completed once");
}

#[test]
fn what_is_not_clear_is_not_believed() {
    for (named, told, why) in [
        (&[(1, "1"), (2, "2")][..], NO, "status"),
        (&[(1, "1"), (2, "2")], "", "status"),
        (&[(1, "1"), (2, "3")], YES, "parts"),
        (&[(2, "2"), (1, "1")], YES, "parts"),
        (&[(1, "1"), (1, "1")], YES, "parts"),
        (&[(1, "1"), (3, "3")], YES, "parts"),
        (&[], YES, "parts"),
    ] {
        let mut objects = objects();
        for number in [1, 2] {
            upload(&mut objects, number, 10, &format!("\"{number}\"")).expect("kept");
        }
        assert_eq!(complete(&mut objects, named, told).map(|_| ()), Err(why), "{named:?} {told}");
    }
}

#[test]
fn a_completion_that_fails_may_be_tried_again() {
    let mut objects = objects();
    upload(&mut objects, 1, 10, "\"1\"").expect("kept");
    assert_eq!(complete(&mut objects, &[(1, "1")], NO).map(|_| ()), Err("status"));
    assert!(complete(&mut objects, &[(1, "1")], YES).is_ok());
}

#[test]
fn of_two_uploads_of_one_part_at_one_time_none_is_believed_and_of_two_after_each_other_the_second() {
    let mut objects = objects();
    let yes = |etag: &str| headers(&[("etag", etag)]);
    upload(&mut objects, 1, 10, "\"1\"").expect("kept");
    upload(&mut objects, 1, 11, "\"2\"").expect("kept");
    assert_eq!(complete(&mut objects, &[(1, "2")], YES).expect("known").kept.bytes, 11);
    let first = objects.writing(0, &part(1, 10)).expect("room");
    let second = objects.writing(0, &part(1, 10)).expect("room");
    for (writing, etag) in [(&second, "\"b\""), (&first, "\"a\"")] {
        assert_eq!(objects.wrote(writing, StatusCode::OK, &yes(etag)), Err("changed-meanwhile"));
    }
    for etag in ["a", "b"] {
        assert!(complete(&mut objects, &[(1, etag)], YES).is_err(), "{etag}");
    }
}

#[test]
fn an_upload_that_is_given_up_or_that_another_change_meets_is_not_known() {
    let mut objects = objects();
    upload(&mut objects, 1, 10, "\"1\"").expect("kept");
    let target = target(&Method::DELETE, "uploadId=a%2Bb");
    assert!(objects.completing(1, &Method::DELETE, &target, Some("uploadId=a%2Bb")).is_none());
    assert_eq!(complete(&mut objects, &[(1, "1")], YES).map(|_| ()), Err("unknown"));
    upload(&mut objects, 1, 10, "\"1\"").expect("kept");
    let other = objects.changing(&target).expect("a change");
    assert_eq!(complete(&mut objects, &[(1, "1")], YES).map(|_| ()), Err("unknown"), "the order is not known");
    objects.changed(other);
    assert!(complete(&mut objects, &[(1, "1")], YES).is_ok());
}

#[test]
fn so_many_parts_are_known_and_the_versions_of_others_are_dropped() {
    let mut objects = objects();
    let name = part(1, 1).name;
    for upload in 0..3 {
        for number in 1..=8_000 {
            let part = Part { upload: upload.to_string().into(), number };
            objects.part_begins(&name, &part);
            let id = objects.catalogue.reserve(&name, 1).expect("room");
            let kept = Kept { id, start: 0, part: 0..1, bytes: 1, is_known: false };
            assert_eq!(objects.part_wrote(&kept, &name, &part, "\"e\""), Ok(()));
        }
    }
    assert!(objects.uploads.parts <= PARTS_MAX);
    assert_eq!((objects.uploads.by_name.len(), objects.catalogue().len()), (2, 16_000));
}
