//! Fuzzes a live gateway with requests; see `fuzz_driver`. It goes on answering what the store has, and its shard has all frames in the end.

#[path = "../../wire/tests/fuzz_driver/mod.rs"]
mod fuzz_driver;
mod rig;

use rig::{World, bytes, client};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const KEYS: [&str; 3] = ["/b/k", "/b/l%20", "/c/m"];
/// Inputs between two looks.
const LOOK: u64 = 50;

thread_local! {
    static WORLD: RefCell<Option<(World, u64)>> = const { RefCell::new(None) };
}

fn words() -> Vec<Vec<u8>> {
    let words = [
        "GET /b/k HTTP/1.1\r\n",
        "GET /b/l%20 HTTP/1.1\r\n",
        "HEAD /c/m HTTP/1.1\r\n",
        "PUT /b/k HTTP/1.1\r\n",
        "DELETE /b/k HTTP/1.1\r\n",
        "POST /b?delete HTTP/1.1\r\n",
        "Host: x\r\n",
        "Range: bytes=5-70000\r\n",
        "Range: bytes=-3\r\n",
        "If-None-Match: \"e1\"\r\n",
        "If-Range: \"e2\"\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "\r\n",
        "hello",
        "5\r\nhello\r\n0\r\n\r\n",
        "x-caller: 1\r\n",
        "cache-control: no-cache\r\n",
        "Upgrade: h2c\r\n",
    ];
    words.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn examples() -> Vec<Vec<u8>> {
    let words = words();
    let joined = |of: &[usize]| of.iter().flat_map(|at| words[*at].clone()).collect::<Vec<u8>>();
    // Whole requests; several on one connection.
    vec![
        joined(&[0, 6, 15, 0, 6, 7, 15, 1, 6, 8, 13, 15]),
        joined(&[3, 6, 11, 15, 16, 0, 6, 15]),
        joined(&[3, 6, 12, 15, 17, 2, 6, 15]),
        joined(&[0, 6, 9, 15, 0, 6, 7, 10, 15]),
        joined(&[4, 6, 15, 0, 6, 15]),
    ]
}

fn check(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let (world, inputs) = world.as_mut().expect("it runs");
        send(world, data);
        *inputs += 1;
        if inputs.is_multiple_of(LOOK) {
            look(world);
        }
    });
}

fn send(world: &World, data: &[u8]) {
    let mut stream = TcpStream::connect(world.gateway.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    // It may end the connection before the last byte.
    let _ = stream.write_all(data);
    let _ = stream.shutdown(Shutdown::Write);
    let mut told = Vec::new();
    if let Err(error) = stream.read_to_end(&mut told) {
        let is_late = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
        assert!(!is_late, "the connection neither answers nor ends");
    }
    assert!(told.is_empty() || told.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&told));
}

/// Each object is what the store has, whatever was done to it.
fn look(world: &World) {
    for key in KEYS {
        for headers in [&[][..], &[("Range", "bytes=1-66000")]] {
            let through = world.get(key, headers);
            let direct = client::ask(world.store.address(), "GET", key, headers, b"");
            assert_eq!((through.status, through.body == direct.body), (direct.status, true), "{key} {headers:?}");
        }
        if world.get(key, &[]).status == 404 {
            world.store.put(key, bytes(1, 100_000));
        }
    }
}

#[test]
fn gateway() {
    let world = World::new(Duration::ZERO);
    for (at, key) in KEYS.iter().enumerate() {
        world.store.put(key, bytes(at as u64, 3000 + at as u64 * 70_000));
    }
    WORLD.set(Some((world, 0)));
    fuzz_driver::run("gateway", &fuzz_driver::Corpus { examples: examples(), words: words() }, check);
    let (world, _) = WORLD.take().expect("it runs");
    look(&world);
    drop(world.gateway);
    assert!(world.shard.stop(), "something is under way in the shard");
}
