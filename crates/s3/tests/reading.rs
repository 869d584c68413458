//! Objects are read on connections of the gateway's own, whatever a store does with them.

mod rig;

use forebay_s3::{CacheConfig, Gateway, GatewayConfig};
use rig::client::{Answer, ask};
use rig::shard::{PAGE_BYTES, Running, VOLUME_BYTES};
use rig::{World, bytes};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// As large as an object may be in so small a space.
const LARGE: u64 = VOLUME_BYTES / 64;

/// One connection: for each request what is answered; then it is closed.
type Script = Vec<Vec<u8>>;

/// A store whose connections go as they are told, one after the other.
struct Scripted {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Scripted {
    fn start(connections: Vec<Script>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for (script, stream) in connections.into_iter().zip(listener.incoming()) {
                serve(&script, stream.expect("a connection"), &count);
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// An empty answer: the connection is held, and nothing said.
fn serve(script: &Script, stream: TcpStream, count: &AtomicUsize) {
    let mut back = stream.try_clone().expect("a socket");
    let mut stream = BufReader::new(stream);
    for answer in script {
        let mut line = String::from("-");
        while !line.trim_end().is_empty() {
            line.clear();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        if back.write_all(answer).is_err() {
            return;
        }
        if answer.is_empty() {
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

/// A gateway with a cache before it.
struct Before {
    store: Scripted,
    gateway: Gateway,
    _shard: Running,
}

impl Before {
    fn new(connections: Vec<Script>) -> Self {
        let (store, shard) = (Scripted::start(connections), Running::start(true));
        let cache = CacheConfig {
            policies: Vec::new(),
            pool: shard.pool.clone(),
            reads: None,
            space_bytes: VOLUME_BYTES,
            page_bytes: PAGE_BYTES,
            versions_max: 1000,
            small_bytes: 1 << 20,
            metadata_ttl: Duration::ZERO,
        };
        let gateway = Gateway::start(GatewayConfig {
            events_token: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            backend: format!("http://{}", store.address),
            authorities: None,
            names: Vec::new(),
            connections_max: 16,
            answers_within: Duration::from_millis(500),
            head_within: Duration::from_secs(10),
            threads: 2,
            verify: None,
            split_key: None,
            cache: Some(cache),
        })
        .expect("it starts");
        Self { store, gateway, _shard: shard }
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.gateway.address(), "GET", path, &[], b"")
    }
}

fn counted(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nETag: \"{body}\"\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn a_connection_is_used_again_and_one_that_closed_is_no_error() {
    // The second one takes a request and goes without an answer.
    let before = Before::new(vec![vec![counted("one"), counted("two")], vec![counted("three")]]);
    for (path, body) in [("/b/1", "one"), ("/b/2", "two"), ("/b/3", "three")] {
        assert_eq!((before.get(path).body, before.store.requests()), (body.into(), body_number(body)), "{path}");
        // Until the close has arrived.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn body_number(body: &str) -> usize {
    ["one", "two", "three"].iter().position(|it| *it == body).expect("one of them") + 1
}

#[test]
fn a_request_that_a_kept_connection_swallowed_is_sent_once_more() {
    let before = Before::new(vec![vec![counted("one")], vec![counted("two")]]);
    assert_eq!(before.get("/b/1").body, b"one");
    // At once: the close may be on its way, and is found out before the request leaves or after it.
    assert_eq!(before.get("/b/2").body, b"two");
}

#[test]
fn what_comes_after_an_answer_is_not_taken_for_the_next_one() {
    let mut stray = counted("one");
    stray.extend_from_slice(&counted("wrong"));
    let before = Before::new(vec![vec![stray, counted("wrong")], vec![counted("two")]]);
    assert_eq!(before.get("/b/1").body, b"one");
    assert_eq!(before.get("/b/2").body, b"two");
}

#[test]
fn answers_that_are_not_counted_are_read_too() {
    let chunked =
        b"HTTP/1.1 200 OK\r\nETag: \"c\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let informed = [&b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"[..], &counted("late")].concat();
    let closed = b"HTTP/1.0 200 OK\r\nETag: \"o\"\r\n\r\nuntil the end".to_vec();
    let before = Before::new(vec![vec![chunked.to_vec()], vec![informed], vec![closed]]);
    let raw = |path: &str| {
        let mut stream = TcpStream::connect(before.gateway.address()).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
        std::io::read_to_string(stream).expect("text")
    };
    for (path, end) in [("/b/chunked", "\r\n\r\nabcde"), ("/b/hint", "\r\n\r\nlate"), ("/b/old", "until the end")] {
        let answer = raw(path);
        assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with(end), "{path}: {answer}");
    }
}

#[test]
fn a_store_that_falls_silent_is_not_waited_for_longer_than_its_time() {
    let torn = b"HTTP/1.1 200 OK\r\nETag: \"t\"\r\nContent-Length: 10\r\n\r\nabc".to_vec();
    let before = Before::new(vec![vec![torn, Vec::new()], vec![Vec::new()]]);
    let begun = Instant::now();
    let answer = before.get("/b/torn");
    assert!(answer.is_torn && answer.body == b"abc", "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let answer = before.get("/b/silent");
    assert_eq!((answer.status, answer.header("x-cache")), (503, ""));
}

#[test]
fn what_is_no_http_is_an_error_with_the_stores_name() {
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(200));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(100 << 10));
    let before = Before::new(vec![vec![b"SSH-2.0-x\r\n".to_vec()], vec![flood.into()], vec![long.into()]]);
    for path in ["/b/ssh", "/b/flood", "/b/long"] {
        let answer = before.get(path);
        let body = String::from_utf8(answer.body).expect("text");
        assert!(answer.status == 503 && body.contains(&before.store.address.to_string()), "{path}: {body}");
    }
}

#[test]
fn many_large_misses_go_through_frames_and_are_kept_whole() {
    let world = World::new(Duration::ZERO);
    for at in 0..4u64 {
        world.store.put(&format!("/b/{at}"), bytes(at, LARGE - 12345 * at));
    }
    for told in ["MISS", "HIT"] {
        std::thread::scope(|scope| {
            for at in 0..4u64 {
                let world = &world;
                scope.spawn(move || {
                    let answer = world.get(&format!("/b/{at}"), &[]);
                    assert!(answer.body == bytes(at, LARGE - 12345 * at), "{at}");
                    assert_eq!(answer.cache(), told, "{at}");
                });
            }
        });
        world.settle();
    }
    let World { gateway, shard, .. } = world;
    drop(gateway);
    assert!(shard.stop(), "something is held");
}

#[test]
fn a_client_that_goes_away_in_the_middle_leaves_nothing_held() {
    let world = World::new(Duration::ZERO);
    world.store.put("/b/k", bytes(1, LARGE));
    for _ in 0..8 {
        let mut stream = TcpStream::connect(world.gateway.address()).expect("it listens");
        stream.write_all(b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(world.get("/b/k", &[]).body == bytes(1, LARGE));
    world.settle();
    let World { gateway, shard, .. } = world;
    drop(gateway);
    assert!(shard.stop(), "something is held");
}
