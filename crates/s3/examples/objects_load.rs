//! A load of GETs or PUTs over plain sockets, for `bench/objects`: `objects_load ADDRESS CLIENTS REQUESTS TARGETS BYTES [HEADER]`.
//!
//! Each of so many clients asks for so many of the targets (a file, one a line; `PUT /target` is sent zeroes), one after the other over one connection,
//! beginning at another place, and reads each answer to its end. Whatever is not a 200 or 206 of `BYTES` bytes ends the program. One line of JSON tells the rate.
//!
//! Why not a tool: one that counts what it costs itself, on the same two processors, has to be small.
#![allow(clippy::print_stdout, reason = "a program of a benchmark: its output is its result")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const BUFFER_BYTES: usize = 1 << 20;
static ZEROES: [u8; BUFFER_BYTES] = [0; BUFFER_BYTES];

struct Load {
    address: String,
    clients: usize,
    requests: usize,
    targets: Vec<String>,
    bytes: usize,
    /// One more line of each head.
    header: String,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some([address, clients, requests, targets, bytes]), rest) =
        (words.first_chunk(), words.get(5..).unwrap_or_default())
    else {
        panic!("ADDRESS CLIENTS REQUESTS TARGETS BYTES [HEADER]");
    };
    let number = |text: &String| text.parse::<usize>().unwrap_or_else(|_| panic!("{text} is no number"));
    let targets = std::fs::read_to_string(targets).unwrap_or_else(|error| panic!("{targets}: {error}"));
    let load = Load {
        address: address.clone(),
        clients: number(clients),
        requests: number(requests),
        targets: targets.lines().map(str::to_owned).collect(),
        bytes: number(bytes),
        header: rest.iter().map(|line| format!("{line}\r\n")).collect(),
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for at in 0..load.clients {
            let load = &load;
            scope.spawn(move || client(load, at));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let requests = (load.clients * load.requests) as f64;
    println!(
        "{{\"seconds\": {seconds:.4}, \"requests_per_s\": {:.1}, \"bytes_per_s\": {:.0}}}",
        requests / seconds,
        requests * load.bytes as f64 / seconds
    );
}

fn client(load: &Load, at: usize) {
    let mut stream = TcpStream::connect(&load.address).unwrap_or_else(|error| panic!("{}: {error}", load.address));
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = vec![0; BUFFER_BYTES];
    let first = at * load.targets.len() / load.clients;
    for request in 0..load.requests {
        let target = &load.targets[(first + request) % load.targets.len()];
        if let Some(target) = target.strip_prefix("PUT ") {
            put(load, &mut stream, &mut buffer, target);
            continue;
        }
        let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{}\r\n", load.address, load.header);
        stream.write_all(head.as_bytes()).expect("sent");
        let (mut have, body) = answer(&mut stream, &mut buffer, target);
        let mut left = load.bytes.checked_sub(have - body).unwrap_or_else(|| panic!("{target}: too long"));
        while left > 0 {
            have = stream.read(&mut buffer).expect("received");
            assert!(have > 0 && have <= left, "{target}: the body ends {left} bytes early, or late");
            left -= have;
        }
    }
}

fn put(load: &Load, stream: &mut TcpStream, buffer: &mut [u8], target: &str) {
    let (address, header, length) = (&load.address, &load.header, load.bytes);
    let head = format!("PUT {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{header}\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut left = length;
    while left > 0 {
        let bytes = left.min(BUFFER_BYTES);
        stream.write_all(&ZEROES[..bytes]).expect("sent");
        left -= bytes;
    }
    let (have, body) = answer(stream, buffer, target);
    assert_eq!(have, body, "{target}: the answer has a body");
}

/// How many bytes came, and where the body begins.
fn answer(stream: &mut TcpStream, buffer: &mut [u8], target: &str) -> (usize, usize) {
    let mut have = 0;
    loop {
        let came = stream.read(&mut buffer[have..]).expect("received");
        assert!(came > 0, "{target}: the connection ended");
        have += came;
        if let Some(end) = buffer[..have].windows(4).position(|it| it == b"\r\n\r\n") {
            let status = &buffer[9..12];
            assert!(status == b"200" || status == b"206", "{target}: {}", String::from_utf8_lossy(&buffer[..end]));
            return (have, end + 4);
        }
    }
}
