//! Clients and stores that break the rules: what comes of it is an error or what is right, nothing wrong is kept, and nothing is left behind.

mod rig;

use forebay_s3::Gateway;
use rig::shard::Running;
use rig::store::{Seen, request};
use rig::{CONNECTIONS_MAX, World, bytes};
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const OBJECT: usize = 300_000;
const PATIENCE: Duration = Duration::from_secs(20);

type Script = Box<dyn FnMut(&Seen) -> Option<Vec<u8>> + Send>;

/// A store that answers what a test says, byte for byte; where that is `None`, rightly: it has one object.
struct Scripted {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    gateway: Gateway,
    shard: Running,
}

impl Scripted {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(|_| None)));
        let shared = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let script = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &script));
            }
        });
        let shard = Running::start(true);
        let gateway = rig::gateway(address, &shard, Duration::ZERO, None, Vec::new());
        Self { address, script, gateway, shard }
    }

    fn says(&self, script: impl FnMut(&Seen) -> Option<Vec<u8>> + Send + 'static) {
        *self.script.lock().expect("no thread died") = Box::new(script);
    }

    /// The first request that is asked so is answered so.
    fn says_once(&self, when: fn(&Seen) -> bool, answer: Vec<u8>) {
        let mut answer = Some(answer);
        self.says(move |seen| if when(seen) { answer.take() } else { None });
    }

    fn get(&self, headers: &[(&str, &str)]) -> rig::client::Answer {
        rig::client::ask(self.gateway.address(), "GET", "/b/k", headers, b"")
    }

    /// Twice all of it, and a part: right, and from the cache in the end.
    fn is_well(&self, after: &str) {
        self.says(|_| None);
        let whole = bytes(1, OBJECT as u64);
        for round in 0..3 {
            let answer = self.get(&[]);
            assert_eq!((answer.status, answer.is_torn, answer.body == whole), (200, false, true), "{after}: {round}");
            std::thread::sleep(Duration::from_millis(30));
        }
        let answer = self.get(&[("Range", "bytes=100000-200000")]);
        assert_eq!((answer.cache(), answer.body == whole[100_000..200_001]), ("HIT", true), "{after}");
    }

    /// Connections can be had as before, and the shard has its frames.
    fn end(self) {
        let open = || TcpStream::connect(self.gateway.address()).expect("it listens");
        std::thread::sleep(Duration::from_millis(100));
        let all: Vec<TcpStream> = (1..CONNECTIONS_MAX).map(|_| open()).collect();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(self.get(&[]).status, 200, "a place for one more beside {}", all.len());
        drop(all);
        drop(self.gateway);
        assert!(self.shard.stop(), "something is under way in the shard");
    }
}

fn serve(stream: TcpStream, script: &Mutex<Script>) {
    let mut back = stream.try_clone().expect("a socket");
    let mut stream = BufReader::new(stream);
    while let Some((seen, _)) = request(&mut stream) {
        let told = (script.lock().expect("no thread died"))(&seen);
        if back.write_all(&told.clone().unwrap_or_else(|| right(&seen))).is_err() || told.is_some() {
            return;
        }
    }
}

fn head(status: &str, headers: &[(&str, String)]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{lines}\r\n").into_bytes()
}

/// As a store answers that has `bytes(1, OBJECT)`, of ETag "e".
fn right(seen: &Seen) -> Vec<u8> {
    let whole = bytes(1, OBJECT as u64);
    let etag = ("ETag", "\"e\"".to_owned());
    if seen.header("if-none-match") == Some("\"e\"") {
        return head("304 Not Modified", &[etag]);
    }
    let range = seen.header("range").and_then(|it| it.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range else {
        return [head("200 OK", &[etag, ("Content-Length", OBJECT.to_string())]), whole].concat();
    };
    let (first, last): (usize, usize) = (first.parse().expect("a range"), last.parse().expect("a range"));
    let part = first..(last + 1).min(OBJECT);
    let told = format!("bytes {}-{}/{OBJECT}", part.start, part.end - 1);
    let length = ("Content-Length", part.len().to_string());
    [head("206 Partial Content", &[etag, ("Content-Range", told), length]), whole[part].to_vec()].concat()
}

fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let headers: Vec<(&str, String)> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    [head(status, &headers), body.to_vec()].concat()
}

#[test]
fn what_a_store_says_wrongly_is_not_kept() {
    let world = Scripted::new();
    let other = bytes(2, OBJECT as u64);
    let etag = ("ETag", "\"e\"");
    let flood = answer("200 OK", &[etag, ("x-much", &"a".repeat(2 << 20)), ("Content-Length", "0")], b"");
    let many: String = (0..500).map(|at| format!("x-{at}: 1\r\n")).collect();
    for (name, told) in [
        ("cut short", answer("200 OK", &[etag, ("Content-Length", "300000")], &other[..1000])),
        ("nothing of the body", answer("200 OK", &[etag, ("Content-Length", "300000")], b"")),
        ("not HTTP", b"hello\r\n\r\n".to_vec()),
        ("nothing", Vec::new()),
        ("half a head", b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\n".to_vec()),
        ("two lengths", answer("200 OK", &[etag, ("Content-Length", "5"), ("Content-Length", "6")], b"hello")),
        ("a length that is none", answer("200 OK", &[etag, ("Content-Length", "-5")], b"hello")),
        ("a length beyond 2^64", answer("200 OK", &[etag, ("Content-Length", "99999999999999999999")], b"hello")),
        (
            "length and chunks",
            answer(
                "200 OK",
                &[etag, ("Content-Length", "300000"), ("Transfer-Encoding", "chunked")],
                b"5\r\nhello\r\n0\r\n\r\n",
            ),
        ),
        ("chunks cut short", answer("200 OK", &[etag, ("Transfer-Encoding", "chunked")], b"ffff\r\nhello")),
        ("chunks of no size", answer("200 OK", &[etag, ("Transfer-Encoding", "chunked")], b"zz\r\nhello\r\n0\r\n\r\n")),
        (
            "a part that was not asked for",
            answer("206 Partial Content", &[etag, ("Content-Range", "bytes 0-4/5"), ("Content-Length", "4")], b"hell"),
        ),
        (
            "a part beyond the end",
            answer(
                "206 Partial Content",
                &[etag, ("Content-Range", "bytes 9-20/10"), ("Content-Length", "12")],
                b"hello hello.",
            ),
        ),
        (
            "a part that overflows",
            answer(
                "206 Partial Content",
                &[
                    etag,
                    ("Content-Range", "bytes 0-18446744073709551615/18446744073709551615"),
                    ("Content-Length", "0"),
                ],
                b"",
            ),
        ),
        ("unchanged, unasked", answer("304 Not Modified", &[etag], b"")),
        (
            "an ETag that is no text",
            [b"HTTP/1.1 200 OK\r\nETag: \"\xff\xfe\"\r\nContent-Length: 5\r\n\r\n".to_vec(), b"hello".to_vec()]
                .concat(),
        ),
        ("a weak ETag", answer("200 OK", &[("ETag", "W/\"e\""), ("Content-Length", "5")], b"hello")),
        ("two ETags", answer("200 OK", &[("ETag", "\"f\""), ("ETag", "\"e\""), ("Content-Length", "5")], b"hello")),
        ("nobody's ETag", answer("200 OK", &[("ETag", "\"f\""), ("Content-Length", "5")], b"hello")),
        ("a huge header", flood),
        (
            "many headers",
            [b"HTTP/1.1 200 OK\r\n".to_vec(), many.into_bytes(), b"Content-Length: 0\r\n\r\n".to_vec()].concat(),
        ),
        (
            "a protocol that nobody asked for",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello".to_vec(),
        ),
        ("a status that is none", b"HTTP/1.1 999999 OK\r\n\r\n".to_vec()),
        ("more than it said", answer("200 OK", &[("ETag", "\"f\""), ("Content-Length", "5")], &other)),
    ] {
        world.says_once(|_| true, told);
        let found = world.get(&[]);
        let is_whole = found.status == 200 && !found.is_torn && found.body.len() == OBJECT;
        assert!(!is_whole || found.body == bytes(1, OBJECT as u64), "{name}");
        world.is_well(name);
    }
    world.end();
}

#[test]
fn what_is_fetched_for_a_hit_is_of_its_version_or_the_body_is_torn() {
    let world = Scripted::new();
    world.is_well("the beginning");
    let (whole, other) = (bytes(1, OBJECT as u64), bytes(2, OBJECT as u64));
    let length = OBJECT.to_string();
    let part = |range: &str, etag: &str, length: usize| {
        let range = format!("bytes {range}");
        answer(
            "206 Partial Content",
            &[("ETag", etag), ("Content-Range", &range), ("Content-Length", &length.to_string())],
            &other[..length],
        )
    };
    for (name, told) in [
        ("another version, whole", answer("200 OK", &[("ETag", "\"f\""), ("Content-Length", &length)], &other)),
        ("another version, a part", part("65536-131071/300000", "\"f\"", 65_536)),
        ("another part", part("0-65535/300000", "\"e\"", 65_536)),
        ("another size", part("65536-131071/300001", "\"e\"", 65_536)),
        ("more of it than comes", part("65536-262143/300000", "\"e\"", 65_536)),
        (
            "no range",
            answer("206 Partial Content", &[("ETag", "\"e\""), ("Content-Length", "65536")], &other[..65_536]),
        ),
        (
            "no ETag",
            answer(
                "206 Partial Content",
                &[("Content-Range", "bytes 65536-131071/300000"), ("Content-Length", "65536")],
                &other[..65_536],
            ),
        ),
        ("unchanged", answer("304 Not Modified", &[("ETag", "\"e\"")], b"")),
        (
            "an error with the ETag",
            answer("500 Internal Server Error", &[("ETag", "\"e\""), ("Content-Length", &length)], &other),
        ),
        ("nothing", Vec::new()),
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(world.shard.pool.evict(65_536..131_072)).expect("an answer");
        world.says_once(|seen| seen.header("if-match").is_some(), told);
        let found = world.get(&[]);
        assert_eq!((found.status, found.cache()), (200, "PARTIAL"), "{name}");
        assert!(found.is_torn || found.body == whole, "{name}: whole and wrong");
        assert!(
            found.body[..found.body.len().min(65_536)] == whole[..found.body.len().min(65_536)],
            "{name}: foreign bytes"
        );
        world.is_well(name);
    }
    world.end();
}

#[test]
fn a_confirmation_that_is_none_serves_nothing() {
    let world = Scripted::new();
    for (name, told) in [
        ("unchanged, of another ETag", answer("304 Not Modified", &[("ETag", "\"f\"")], b"")),
        ("denied", answer("403 Forbidden", &[("ETag", "\"e\""), ("Content-Length", "5")], b"never")),
        ("an error", answer("500 Internal Server Error", &[("Content-Length", "5")], b"never")),
        ("cut short", answer("200 OK", &[("ETag", "\"f\""), ("Content-Length", "300000")], b"never")),
    ] {
        world.is_well("the beginning");
        let (asked, mut told) = (Arc::new(AtomicUsize::new(0)), Some(told));
        let count = Arc::clone(&asked);
        world.says(move |seen| {
            count.fetch_add(1, Ordering::Relaxed);
            told.take_if(|_| seen.header("if-none-match").is_some())
        });
        let found = world.get(&[]);
        let is_cached = ["HIT", "PARTIAL", "REVALIDATED"].contains(&found.cache());
        // Unless it asked once more, and was told that it is this version.
        assert!(!is_cached || asked.load(Ordering::Relaxed) == 2, "{name}: {}", found.cache());
        world.is_well(name);
    }
    world.end();
}

#[test]
fn a_store_that_accepts_and_says_nothing_is_given_up_and_heals() {
    let world = Scripted::new();
    world.says(|_| {
        std::thread::sleep(rig::ANSWERS_WITHIN + Duration::from_secs(1));
        Some(Vec::new())
    });
    let begun = Instant::now();
    let found = world.get(&[]);
    let text = String::from_utf8_lossy(&found.body).into_owned();
    assert_eq!((found.status, text.contains("<Code>ServiceUnavailable</Code>")), (503, true), "{text}");
    assert!(text.contains(&world.address.to_string()), "{text}");
    assert!(begun.elapsed() < rig::ANSWERS_WITHIN * 2, "{:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    world.is_well("silence");
    world.end();
}

#[test]
fn absurd_ranges_are_refused_or_answered_with_what_is_there() {
    let world = World::new(Duration::ZERO);
    let whole = bytes(1, 10_000);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    for range in [
        "bytes=0-18446744073709551615",
        "bytes=18446744073709551615-",
        "bytes=18446744073709551616-",
        "bytes=-18446744073709551616",
        "bytes=0-99999999999999999999999999",
        "bytes=-0",
        "bytes=5-4",
        "bytes=0-0,2-2",
        "bytes=-",
        "bytes=",
        "bytes",
        "=",
        "",
        "bytes=--5",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes=1-2-3",
        "bytes= 1 - 2 ",
        "BYTES=1-2",
        "items=1-2",
        "bytes=9999-10000",
        "bytes=10000-",
        "bytes=-10001",
        "bytes=\u{663}-\u{664}",
    ] {
        let (through, direct) = (world.get("/b/k", &[("Range", range)]), ask(world.store.address(), range));
        // What the store does not understand and the gateway does is a part of the object all the same.
        let told = through.header("content-range").strip_prefix("bytes ").and_then(|it| it.split_once(['-', '/']));
        match (through.status, told) {
            (206, Some((first, _))) => {
                let first: usize = first.parse().expect("a number");
                assert!(through.body == whole[first..first + through.body.len()], "{range}");
            }
            (status, _) => assert_eq!((status, through.body == direct.body), (direct.status, true), "{range}"),
        }
    }
}

fn ask(to: SocketAddr, range: &str) -> rig::client::Answer {
    rig::client::ask(to, "GET", "/b/k", &[("Range", range)], b"")
}

#[test]
fn a_key_may_be_of_any_bytes() {
    let world = World::new(Duration::from_secs(60));
    // As two spellings of one key are one object to a store, the gateway's may not be another's.
    for byte in 1..=255u8 {
        let path = format!("/b/k%{byte:02X}k");
        world.store.put(&path, bytes(u64::from(byte), 5000));
    }
    for round in 0..2 {
        for byte in 1..=255u8 {
            let found = world.get(&format!("/b/k%{byte:02X}k"), &[]);
            assert_eq!((found.status, found.body == bytes(u64::from(byte), 5000)), (200, true), "{byte:02x}");
            assert!(round == 0 || found.cache() == "HIT", "{byte:02x}: {}", found.cache());
            if byte % 16 == 0 {
                // More at once than the pool takes fills are left out.
                world.settle();
            }
        }
        world.settle();
    }
    // As it is: what cannot be in a path is refused, the others are passed on as they are.
    for byte in 1..=255u8 {
        let told = raw(
            world.gateway.address(),
            &[b"GET /b/raw", &[byte][..], b"k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"].concat(),
        );
        let status = String::from_utf8_lossy(&told).split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(["400", "404"].contains(&status.as_str()) || told.is_empty(), "{byte:02x}: {status}");
    }
}

/// What is answered to exactly these bytes, until the end of the connection.
fn raw(to: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // It may be refused before its last byte.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    told
}

#[test]
fn a_client_that_breaks_off_or_lies_changes_nothing() {
    let world = World::new(Duration::from_secs(60));
    let whole = bytes(1, 100_000);
    world.store.put("/b/k", whole.clone());
    for (name, request) in [
        ("less than it said", &b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhello"[..]),
        ("two lengths", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\nhello"),
        ("a length that is none", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello"),
        ("a length beyond 2^64", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\nhello"),
        (
            "chunks of no size",
            b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        ),
        ("no last chunk", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        (
            "a chunk that is too large",
            b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
        ),
        ("another coding", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nhello"),
        ("no version", b"PUT /b/k\r\n\r\n"),
        ("a header without a colon", b"PUT /b/k HTTP/1.1\r\nHost x\r\nContent-Length: 5\r\n\r\nhello"),
        ("a header on two lines", b"PUT /b/k HTTP/1.1\r\nHost: x\r\nx-a: b\r\n c\r\nContent-Length: 5\r\n\r\nhell"),
        ("no method", b" /b/k HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("nothing", b""),
    ] {
        let told = raw(world.gateway.address(), request);
        assert!(!told.starts_with(b"HTTP/1.1 2"), "{name}: {}", String::from_utf8_lossy(&told));
        for _ in 0..2 {
            assert!(world.get("/b/k", &[]).body == whole, "{name}");
            world.settle();
        }
        assert_eq!(world.get("/b/k", &[]).cache(), "HIT", "{name}: the change has ended");
    }
}

#[test]
fn who_drips_or_never_reads_holds_up_nobody_and_leaves_nothing() {
    let world = Scripted::new();
    world.is_well("the beginning");
    let open = || TcpStream::connect(world.gateway.address()).expect("it listens");
    let request = b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n";
    let never_read: Vec<TcpStream> = (0..CONNECTIONS_MAX / 3)
        .map(|_| {
            let mut stream = open();
            // As often as it likes, on one connection.
            (0..50).for_each(|_| stream.write_all(request).expect("sent"));
            stream
        })
        .collect();
    let mut drip: Vec<TcpStream> = (0..CONNECTIONS_MAX / 3).map(|_| open()).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let at = (begun.elapsed().as_millis() / 500) as usize;
        // Those that were refused meanwhile say so.
        drip.iter_mut().for_each(|stream| drop(stream.write_all(&request[at.min(20)..=at.min(20)])));
        let asked = Instant::now();
        assert!(world.get(&[]).body == bytes(1, OBJECT as u64));
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(500));
    }
    for mut stream in drip {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        assert!(told.is_empty() || told.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&told));
    }
    drop(never_read);
    std::thread::sleep(Duration::from_millis(300));
    world.end();
}
