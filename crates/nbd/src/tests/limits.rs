//! What one connection may hold, and what happens when it wants more.

use std::io::Write;
use std::time::{Duration, Instant};

use forebay_wire::nbd::constants::CommandFlags;
use forebay_wire::nbd::request::Command;

use super::client::pattern;
use super::core::Faults;
use super::world::{Setup, VOLUME_BYTES, World};
use crate::{ConnectionLimits, Share};

#[test]
fn half_is_kept_for_clients_and_half_is_common() {
    let limits = ConnectionLimits::share(1024, 4096, 16);
    assert_eq!(limits.core_requests, Share { all_max: 1016, own: 31 });
    assert_eq!(limits.frames, Share { all_max: 3072, own: 96 });
    let limits = ConnectionLimits::share(64, 34, 64);
    assert_eq!((limits.core_requests.own, limits.frames.own), (0, 0));
}

#[test]
fn one_connection_keeps_to_its_frames_and_still_gets_every_answer() {
    let connection = ConnectionLimits { frames: Share { all_max: 34, own: 2 }, ..Setup::default().connection };
    let faults = Faults { slow: 0..VOLUME_BYTES, slow_ns: 1_000_000, ..Faults::default() };
    for structured in [false, true] {
        // The core has more; they are not to be used.
        let setup = Setup { connection, faults: faults.clone(), frames: Some(64), ..Setup::default() };
        let world = World::new(setup);
        let mut client = world.client(structured);
        // 4 frames each, and a split one of many parts.
        for _ in 0..30 {
            client.ask(Command::Read, 0, 65_536);
        }
        client.ask(Command::Read, 512, 1 << 20);
        for _ in 0..31 {
            assert!(client.answer().unwrap().1.is_ok());
        }
        client.disconnect();
        let report = world.finish();
        assert!(report.frames_peak <= 34 - 7 * 2, "{} frames", report.frames_peak);
        assert!(report.frames_peak > 8, "one at a time: {} frames", report.frames_peak);
    }
}

#[test]
fn the_core_is_never_asked_for_more_than_it_takes() {
    let connection = ConnectionLimits {
        requests_max: 128,
        core_requests: Share { all_max: 10, own: 1 },
        frames: Share { all_max: 512, own: 64 },
        ..Setup::default().connection
    };
    let faults = Faults { slow: 0..VOLUME_BYTES, slow_ns: 1_000_000, ..Faults::default() };
    let world = World::new(Setup { connection, faults, ..Setup::default() });
    let mut clients: Vec<_> = (0..5).map(|_| world.client(true)).collect();
    for client in &mut clients {
        for _ in 0..50 {
            client.ask(Command::Read, 0, 512);
        }
        client.ask(Command::Read, 0, 1 << 20);
    }
    for client in &mut clients {
        for _ in 0..51 {
            assert!(client.answer().unwrap().1.is_ok());
        }
    }
    drop(clients);
    let report = world.finish();
    assert_eq!(report.requests_peak, 7, "5 own ones and 2 common ones, 3 kept for who may come");
}

#[test]
fn more_requests_than_allowed_wait_their_turn() {
    let connection = ConnectionLimits { requests_max: 1, ..Setup::default().connection };
    let world = World::new(Setup { connection, ..Setup::default() });
    let mut client = world.client(true);
    let mut stream = Vec::new();
    for round in 0..200u64 {
        let write = round % 2 == 0;
        let command = if write { Command::Write } else { Command::Read };
        let request = client.request(command, CommandFlags::NONE, 4096, 4096);
        stream.extend_from_slice(&request.encode());
        if write {
            stream.extend_from_slice(&pattern(round, 4096));
        }
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&stream).unwrap());
    for round in 0..200u64 {
        let (cookie, answer) = client.answer().unwrap();
        assert_eq!(cookie, round + 1, "one at a time means in order");
        let answer = answer.unwrap();
        assert!(round % 2 == 0 || answer == pattern(round - 1, 4096), "not the last write");
    }
    sending.join().unwrap();
    client.disconnect();
    world.finish();
}

#[test]
fn writes_that_wait_for_frames_keep_their_payload_staged() {
    // Fewer frames than the front end knows of: the core names them late.
    let world = World::new(Setup { frames: Some(5), ..Setup::default() });
    let mut clients: Vec<_> = (0..4).map(|_| world.client(true)).collect();
    for (volume_part, client) in clients.iter_mut().enumerate() {
        for round in 0..16u64 {
            client.ask_write((volume_part as u64) << 20 | round << 14, &pattern(round, 4096));
        }
    }
    for (volume_part, client) in clients.iter_mut().enumerate() {
        for _ in 0..16 {
            assert!(client.answer().unwrap().1.is_ok());
        }
        for round in 0..16u64 {
            assert_eq!(client.read((volume_part as u64) << 20 | round << 14, 4096).unwrap(), pattern(round, 4096));
        }
    }
    drop(clients);
    world.finish();
}

#[test]
fn the_core_hears_of_free_frames_even_when_nothing_else_happens() {
    // Frames for one read: the other waits in the core until the first one's are told to be free.
    let world = World::new(Setup { frames: Some(4), ..Setup::default() });
    let (mut one, mut other) = (world.client(true), world.client(true));
    let begin = Instant::now();
    for _ in 0..30 {
        one.ask(Command::Read, 0, 65_536);
        other.ask(Command::Read, 0, 65_536);
        assert!(one.answer().unwrap().1.is_ok() && other.answer().unwrap().1.is_ok());
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    drop((one, other));
    world.finish();
}

#[test]
fn clients_share_a_volume() {
    let world = World::new(Setup::default());
    let (mut one, mut other) = (world.client(true), world.client(false));
    assert!(one.write(8192, &[7; 8192]).is_ok());
    assert!(other.call(Command::Flush, CommandFlags::NONE, 0, 0).is_ok());
    assert_eq!(other.read(8192, 8192).unwrap(), [7; 8192]);
    one.disconnect();
    other.disconnect();
    world.finish();
}
