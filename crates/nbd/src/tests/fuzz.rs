//! Mutated streams against the handshake and the transmission: no panic, no leak, no stall, bounded memory.
//!
//! Runs on stable: streams that begin valid are damaged at random places, cut, and sent in random pieces by clients
//! that read when they feel like it. The seed and the seconds (`FOREBAY_FUZZ_SEED`, `FOREBAY_FUZZ_SECONDS`) come from
//! the environment; the seed is printed.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_wire::nbd::constants::{CommandFlags, opt};
use forebay_wire::nbd::option::{InfoRequest, push_option};
use forebay_wire::nbd::request::{Command, Request};

use super::core::Faults;
use super::world::{Setup, VOLUME_BYTES, World};
use crate::{ConnectionLimits, Share};

const SECONDS: u64 = 2;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A stream of requests, most of them valid.
fn requests(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    for cookie in 0..1 + random.below(40) {
        let command = Command::from_wire([0, 0, 0, 1, 1, 1, 1, 3, 4, 6, 2, 5, 7, 99][random.below(14) as usize]);
        if command == Command::Disconnect && !random.one_in(4) {
            continue;
        }
        let sectors = match random.below(8) {
            0 => 1 + random.below(2000),
            1..4 => 1 + random.below(200),
            _ => 1 + random.below(16),
        };
        let length = if command == Command::Flush { 0 } else { sectors as u32 * 512 };
        let offset = if command == Command::Flush { 0 } else { random.below(VOLUME_BYTES / 512) * 512 };
        let flags = CommandFlags(if random.one_in(4) { random.below(32) as u16 } else { 0 });
        let request = Request { flags, command, cookie, offset, length };
        stream.extend_from_slice(&request.encode());
        stream.resize(stream.len() + request.payload_bytes() as usize, 0x5a);
    }
    stream
}

/// A handshake that would succeed.
fn handshake(random: &mut Random) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, random.below(4) as u8];
    let mut go = Vec::new();
    InfoRequest::encode(&mut go, "vol", &[3, 1]);
    for _ in 0..random.below(4) {
        let option = [opt::LIST, opt::STRUCTURED_REPLY, opt::SET_META_CONTEXT, 77][random.below(4) as usize];
        push_option(&mut stream, option, b"");
        push_option(&mut stream, opt::INFO, &go);
    }
    push_option(&mut stream, opt::GO, &go);
    stream.extend_from_slice(&requests(random));
    stream
}

fn damage(stream: &mut Vec<u8>, random: &mut Random) {
    if random.one_in(3) {
        return;
    }
    for _ in 0..1 + random.below(4) {
        if stream.is_empty() {
            return;
        }
        let at = random.below(stream.len() as u64) as usize;
        // Heads are few among payloads: aim at the front.
        let at = if random.one_in(2) { at.min(random.below(300) as usize) } else { at };
        match random.below(5) {
            0 => stream[at] = random.next() as u8,
            1 => stream[at] ^= 1 << random.below(8),
            2 => stream.truncate(at),
            3 => drop(stream.drain(at..(at + 1 + random.below(64) as usize).min(stream.len()))),
            _ => stream.insert(at, random.next() as u8),
        }
    }
}

/// Sends the stream in pieces, reading or not, and leaves in one of several ways.
fn talk(mut socket: UnixStream, stream: &[u8], random: &mut Random) {
    socket.set_nonblocking(true).unwrap();
    let reads = !random.one_in(4);
    let patience = Instant::now() + Duration::from_millis(if random.one_in(8) { 30 } else { 5 });
    let mut sent = 0;
    let mut replies = vec![0; 1 << 16];
    while sent < stream.len() && Instant::now() < patience {
        let scale = 1 + random.below(17);
        let piece = (1 + random.below(1 << scale)) as usize;
        match socket.write(&stream[sent..(sent + piece).min(stream.len())]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return,
        }
        while reads && matches!(socket.read(&mut replies), Ok(1..)) {}
    }
    match random.below(3) {
        0 => {}
        1 => drop(socket.shutdown(std::net::Shutdown::Write)),
        _ => {
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until && !matches!(socket.read(&mut replies), Ok(0)) {}
        }
    }
}

#[test]
fn damaged_streams_end_their_own_connection_only() {
    let seed = from_environment("FOREBAY_FUZZ_SEED").unwrap_or(0x666f_7265_6261_7900);
    let seconds = from_environment("FOREBAY_FUZZ_SECONDS").unwrap_or(SECONDS);
    let mut random = Random(seed);
    let faults = Faults {
        failing: 1 << 20..(1 << 20) + 65_536,
        refusing: 2 << 20..(2 << 20) + 65_536,
        slow: 3 << 20..4 << 20,
        slow_ns: 1_000_000,
    };
    let connection = ConnectionLimits {
        requests_max: 8,
        core_requests: Share::halved(40, 4, 1),
        frames: Share::halved(24, 4, 5),
        stall_timeout_ns: 300_000_000,
        grace_ns: 50_000_000,
    };
    let setup = Setup { faults, connection, seed, clients_max: 4, ..Setup::default() };
    let world = World::new(setup);
    let (mut streams, begin) = (0, Instant::now());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let (socket, mut stream) = if random.one_in(4) {
            (world.socket(), handshake(&mut random))
        } else {
            (world.transmission(random.one_in(2)), requests(&mut random))
        };
        damage(&mut stream, &mut random);
        talk(socket, &stream, &mut random);
        streams += 1;
    }
    let report = world.finish();
    println!("fuzzed {streams} streams, seed {seed}: {:?}", report.counters);
    // 4 clients, each with 8 requests; and what the core takes.
    assert!(report.in_flight_peak <= 4 * 8 + 40, "{} in flight", report.in_flight_peak);
    assert!(report.requests_peak <= 40, "{} requests to the core", report.requests_peak);
    assert!(report.counters.closed.iter().filter(|&&closed| closed > 0).count() >= 5, "{:?}", report.counters.closed);
    assert!(report.counters.errors.iter().filter(|&&errors| errors > 0).count() >= 3, "{:?}", report.counters.errors);
}
