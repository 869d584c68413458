//! Uploads that are kept on their way to the store: what is read after them is what the store has.

mod rig;

use rig::client::{Answer, ask};
use rig::{World, bytes};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const OBJECT: u64 = 1_000_000;
const THROUGH: (&str, &str) = ("x-forebay-write", "through");

fn put(world: &World, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    ask(world.gateway.address(), "PUT", path, headers, body)
}

/// Bytes of bodies that the store has sent since this was called last.
fn whole_gets(world: &World) -> usize {
    let seen = world.store.seen();
    seen.iter().filter(|it| it.method == "GET" && it.header("if-none-match").is_none()).count()
}

/// As a client writes it, in chunks of 64 KiB, with a trailer.
fn chunked(object: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in object.chunks(64 << 10) {
        out.extend_from_slice(format!("{:x};chunk-signature={:064x}\r\n", chunk.len(), 7).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nx-amz-checksum-crc64nvme:AAAAAAAAAAA=\r\n\r\n");
    out
}

#[test]
fn what_was_written_through_is_read_from_the_cache_with_the_stores_headers() {
    let world = World::new(Duration::ZERO);
    let whole = bytes(1, OBJECT);
    let answer = put(&world, "/b/k", &[THROUGH], &whole);
    assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=method; stored"));
    let seen = world.store.seen();
    assert_eq!((seen.len(), seen[0].header(THROUGH.0)), (1, None), "the header is the gateway's");
    for nth in ["first", "second"] {
        let read = world.get("/b/k", &[]);
        assert_eq!((read.status, read.cache(), read.body == whole), (200, "HIT", true), "{nth}");
        assert_eq!((read.header("etag"), read.header("content-type")), (answer.header("etag"), "text/test"), "{nth}");
    }
    assert_eq!(whole_gets(&world), 1, "what the store tells with it is asked for once");
    let part = world.get("/b/k", &[("Range", "bytes=500000-500009")]);
    assert_eq!((part.cache(), &part.body[..]), ("HIT", &whole[500_000..500_010]));
}

#[test]
fn a_large_upload_is_kept_whole_however_its_pieces_come() {
    let world = World::new(Duration::ZERO);
    // Ends of pages and of what is kept at once, and their neighbours.
    for (at, length) in [512 << 10, (512 << 10) + 1, (1 << 20) - 1, 1 << 20].into_iter().enumerate() {
        let (object, path) = (bytes(at as u64, length), format!("/b/{at}"));
        let answer = put(&world, &path, &[THROUGH], &object);
        assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=method; stored"), "{length}");
        let read = world.get(&path, &[]);
        assert_eq!((read.status, read.cache(), read.body == object), (200, "HIT", true), "{length}");
        assert!(world.store.inner().objects[&path].bytes[..] == object[..], "the store has it too");
    }
}

#[test]
fn an_upload_around_leaves_nothing_here() {
    let world = World::new(Duration::ZERO);
    for headers in [&[][..], &[("x-forebay-write", "around")]] {
        let answer = put(&world, "/b/k", headers, &bytes(1, OBJECT));
        assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=bypass; detail=change"));
        assert_eq!(world.get("/b/k", &[]).cache(), "MISS");
    }
    let answer = put(&world, "/b/k", &[("x-forebay-write", "sideways")], &bytes(1, 9));
    assert_eq!(answer.status, 400);
}

/// Uploads parts, and completes the upload with them.
fn multipart(world: &World, path: &str, parts: &[Vec<u8>]) {
    let mut rows = String::new();
    for (number, part) in (1..).zip(parts) {
        let answer = put(world, &format!("{path}?partNumber={number}&uploadId=x"), &[THROUGH], part);
        assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=method; stored"));
        rows += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", answer.header("etag"));
    }
    let asked = format!("<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>");
    let answer = ask(world.gateway.address(), "POST", &format!("{path}?uploadId=x"), &[], asked.as_bytes());
    assert_eq!(answer.status, 200);
}

#[test]
fn what_was_uploaded_in_parts_is_read_from_the_cache_as_one_object() {
    let world = World::new(Duration::ZERO);
    for (at, lengths) in [&[300_000, 300_000, 12_345][..], &[65_536, 1], &[700_001], &[5, 70_000, 1]].iter().enumerate()
    {
        let parts: Vec<Vec<u8>> = lengths.iter().zip(1..).map(|(length, seed)| bytes(seed, *length)).collect();
        let (path, whole) = (format!("/b/{at}"), parts.concat());
        multipart(&world, &path, &parts);
        world.settle();
        let read = world.get(&path, &[]);
        let told = if whole.len() > 128 << 10 { "HIT" } else { "MISS" };
        assert_eq!((read.status, read.cache(), read.body == whole), (200, told, true), "{lengths:?}");
        assert!(world.get(&path, &[]).body == whole);
        assert!(world.store.inner().objects[&path].bytes[..] == whole[..], "the store has it too");
    }
}

#[test]
fn of_a_part_that_was_evicted_the_rest_of_the_object_is_kept() {
    let world = World::new(Duration::ZERO);
    let part =
        |number: u64| put(&world, &format!("/b/k?partNumber={number}&uploadId=x"), &[THROUGH], &bytes(number, 327_680));
    let etags: Vec<String> = (1..=3).map(|number| part(number).header("etag").to_owned()).collect();
    // The second one's pages.
    world.evict(5..10);
    let rows: String = (1..)
        .zip(etags)
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let asked = format!("<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>");
    let whole = [bytes(1, 327_680), bytes(2, 327_680), bytes(3, 327_680)].concat();
    assert_eq!(ask(world.gateway.address(), "POST", "/b/k?uploadId=x", &[], asked.as_bytes()).status, 200);
    world.settle();
    let read = world.get("/b/k", &[]);
    assert_eq!((read.status, read.cache(), read.body == whole), (200, "PARTIAL", true));
}

#[test]
fn of_an_upload_in_chunks_the_objects_bytes_are_kept_and_all_is_passed_on() {
    let world = World::new(Duration::ZERO);
    for (at, length) in [OBJECT, 200_000, 0, 1, 1 << 20].into_iter().enumerate() {
        let (object, path) = (bytes(at as u64, length), format!("/b/{at}"));
        let length = length.to_string();
        let headers = [
            THROUGH,
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", &*length),
            ("content-encoding", "aws-chunked"),
        ];
        let answer = put(&world, &path, &headers, &chunked(&object));
        assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=method; stored"), "{at}");
        let read = world.get(&path, &[]);
        let told = if object.len() > 128 << 10 { "HIT" } else { "MISS" };
        assert_eq!((read.status, read.cache(), read.body == object), (200, told, true), "{at}");
        assert!(world.store.inner().objects[&path].bytes[..] == object[..], "the store has it too");
    }
}

#[test]
fn what_is_malformed_is_the_stores_to_judge_and_not_kept() {
    let world = World::new(Duration::ZERO);
    let object = bytes(1, OBJECT);
    let length = (OBJECT + 1).to_string();
    let headers = [
        THROUGH,
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", &*length),
    ];
    let answer = put(&world, "/b/k", &headers, &chunked(&object));
    assert_eq!((answer.status, answer.header("cache-status")), (200, "forebay; fwd=bypass; detail=torn"));
    let read = world.get("/b/k", &[]);
    assert_eq!((read.cache(), read.body == object), ("MISS", true));
}

#[test]
fn an_upload_that_fails_leaves_what_was_there() {
    let world = World::new(Duration::ZERO);
    let old = bytes(1, OBJECT);
    world.store.put("/b/k", old.clone());
    world.get("/b/k", &[]);
    world.settle();
    world.store.inner().refuses_uploads = true;
    let answer = put(&world, "/b/k", &[THROUGH], &bytes(2, OBJECT));
    assert_eq!((answer.status, answer.header("cache-status")), (500, "forebay; fwd=bypass; detail=status"));
    let read = world.get("/b/k", &[]);
    assert!(read.status == 200 && read.body == old);
}

#[test]
fn an_upload_that_breaks_off_leaves_what_was_there() {
    let world = World::new(Duration::ZERO);
    let (old, new) = (bytes(1, OBJECT), bytes(2, OBJECT));
    world.store.put("/b/k", old.clone());
    let mut client = TcpStream::connect(world.gateway.address()).expect("it listens");
    let head =
        format!("PUT /b/k HTTP/1.1\r\nHost: test\r\n{}: {}\r\nContent-Length: {OBJECT}\r\n\r\n", THROUGH.0, THROUGH.1);
    client.write_all(head.as_bytes()).expect("sent");
    client.write_all(&new[..OBJECT as usize / 2]).expect("sent");
    world.settle();
    let during = world.get("/b/k", &[]);
    assert!(during.body == old, "nothing of it is read meanwhile");
    drop(client);
    for _ in 0..2 {
        world.settle();
        assert!(world.get("/b/k", &[]).body == old);
    }
    assert_eq!(put(&world, "/b/k", &[THROUGH], &new).header("cache-status"), "forebay; fwd=method; stored");
    let read = world.get("/b/k", &[]);
    assert_eq!((read.cache(), read.body == new), ("HIT", true), "the one that broke off has ended");
}

#[test]
fn of_two_uploads_at_one_time_none_is_believed_without_the_store() {
    let world = World::new(Duration::from_secs(60));
    let (one, two) = (bytes(1, OBJECT), bytes(2, OBJECT));
    let mut client = TcpStream::connect(world.gateway.address()).expect("it listens");
    let head = format!(
        "PUT /b/k HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{}: {}\r\nContent-Length: {OBJECT}\r\n\r\n",
        THROUGH.0, THROUGH.1
    );
    client.write_all(head.as_bytes()).expect("sent");
    client.write_all(&one[..9]).expect("sent");
    world.settle();
    let answer = put(&world, "/b/k", &[THROUGH], &two);
    assert_eq!(answer.header("cache-status"), "forebay; fwd=bypass; detail=changed-meanwhile");
    client.write_all(&one[9..]).expect("sent");
    let mut told = String::new();
    client.read_to_string(&mut told).expect("an answer");
    assert!(told.contains("detail=changed-meanwhile"), "{told}");
    let read = world.get("/b/k", &[]);
    assert_eq!((read.cache(), read.body == one), ("MISS", true));
}

#[test]
fn what_does_not_find_room_is_left_out_and_the_upload_succeeds() {
    let world = World::new(Duration::ZERO);
    let whole = bytes(1, OBJECT);
    assert_eq!(put(&world, "/b/k", &[THROUGH], &whole).status, 200);
    // Its pages go before they are read.
    world.evict(0..8);
    let read = world.get("/b/k", &[]);
    assert!(read.status == 200 && read.body == whole, "{}", read.cache());
}
