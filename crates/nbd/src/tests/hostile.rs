//! Clients that vanish, stall or send anything: they end alone, and nothing of theirs stays.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_wire::nbd::constants::CommandFlags;
use forebay_wire::nbd::request::{Command, Request};

use super::client::pattern;
use super::core::Faults;
use super::world::{Setup, VOLUME_BYTES, World};
use crate::{CloseReason, ConnectionLimits, Share};

fn write_of(offset: u64, length: u32) -> Vec<u8> {
    let request = Request { flags: CommandFlags::NONE, command: Command::Write, cookie: 1, offset, length };
    [&request.encode()[..], &pattern(1, length as usize)].concat()
}

#[test]
fn a_client_may_vanish_at_any_byte_of_a_write() {
    let world = World::new(Setup::default());
    // Every byte of a small write, then places in one that is split.
    let small = write_of(4096, 512);
    let long = write_of(2 << 20, 300_032);
    let cuts = (0..small.len()).map(|cut| &small[..cut]);
    let long_cuts = (0..long.len()).step_by(9_973).map(|cut| &long[..cut]);
    let mut vanished = 0;
    for bytes in cuts.chain(long_cuts) {
        let mut socket = world.transmission(true);
        socket.write_all(bytes).unwrap();
        drop(socket);
        vanished += 1;
    }
    // A whole write counts, even of a client that did not wait.
    let mut socket = world.transmission(true);
    socket.write_all(&write_of(1 << 20, 512)).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    socket.read_exact(&mut [0; 16]).unwrap();
    drop(socket);
    world.wait_for_clients(0);
    let mut client = world.client(true);
    assert_eq!(client.read(1 << 20, 512).unwrap(), pattern(1, 512));
    assert_eq!(client.read(4096, 512).unwrap(), [0; 512], "a write that was cut reached the volume");
    client.disconnect();
    let report = world.finish();
    let closed = |reason| report.counters.closed[reason as usize];
    assert_eq!(closed(CloseReason::Truncated) + closed(CloseReason::EndOfStream) + closed(CloseReason::Reset), {
        vanished + 1
    });
}

#[test]
fn a_client_may_vanish_before_its_answers() {
    let faults = Faults { slow: 0..VOLUME_BYTES, slow_ns: 20_000_000, ..Faults::default() };
    let world = World::new(Setup { faults, ..Setup::default() });
    for structured in [false, true] {
        for length in [512, 65_536, 1 << 20] {
            let mut client = world.client(structured);
            for _ in 0..10 {
                client.ask(Command::Read, 0, length);
            }
            drop(client);
        }
    }
    world.finish();
}

#[test]
fn garbage_after_the_handshake_closes_the_connection() {
    let world = World::new(Setup::default());
    let mut client = world.client(true);
    client.stream.write_all(&pattern(5, 4096)).unwrap();
    client.assert_closed();
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::Garbage as usize], 1);
}

#[test]
fn a_refused_write_too_long_to_drain_closes_the_connection() {
    let world = World::new(Setup::default());
    let mut client = world.client(true);
    client.ask(Command::Write, 0, u32::MAX - 511);
    client.assert_closed();
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::Oversized as usize], 1);
}

/// Fills a connection with reads of which nothing is taken.
pub(super) fn stall(world: &World) -> UnixStream {
    let mut client = world.client(true);
    for _ in 0..64 {
        client.ask(Command::Read, 0, 65_536);
    }
    client.stream
}

#[test]
fn clients_that_read_nothing_do_not_stall_another() {
    let world = World::new(Setup::default());
    let stalled: Vec<_> = (0..7).map(|_| stall(&world)).collect();
    let mut client = world.client(true);
    let begin = Instant::now();
    for round in 0..100 {
        let bytes = pattern(round, 65_536);
        assert!(client.write(1 << 20, &bytes).is_ok());
        assert!(client.read(1 << 20, 65_536).unwrap() == bytes);
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    client.disconnect();
    drop(stalled);
    let report = world.finish();
    assert!(report.counters.sends_blocked > 0, "nobody was stalled");
    assert_eq!(report.counters.closed[CloseReason::Stalled as usize], 0);
}

#[test]
fn a_client_that_shut_down_its_side_and_reads_nothing_costs_no_time() {
    let world = World::new(Setup::default());
    let stalled = stall(&world);
    stalled.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(stalled);
    let report = world.finish();
    assert!(report.counters.sends_blocked < 50, "tried {} times in vain", report.counters.sends_blocked);
}

#[test]
fn payloads_that_do_not_come_hold_no_more_than_their_share() {
    let world = World::new(Setup::default());
    let stalled: Vec<_> = (0..7)
        .map(|_| {
            let mut socket = world.transmission(true);
            socket.write_all(&write_of(0, 1 << 20)[..100]).unwrap();
            socket
        })
        .collect();
    let mut client = world.client(true);
    for round in 0..100 {
        let bytes = pattern(round, 65_536);
        assert!(client.write(1 << 20, &bytes).is_ok());
    }
    client.disconnect();
    drop(stalled);
    let report = world.finish();
    assert!(report.frames_peak <= 7 * 4 + 5, "{} frames", report.frames_peak);
}

#[test]
fn a_client_that_hoards_what_others_wait_for_has_a_grace_period_only() {
    // Nothing is anybody's own: everything can be hoarded.
    let connection = ConnectionLimits {
        frames: Share { all_max: 20, own: 0 },
        grace_ns: 100_000_000,
        ..Setup::default().connection
    };
    let world = World::new(Setup { connection, ..Setup::default() });
    let hoarder = stall(&world);
    std::thread::sleep(Duration::from_millis(20));
    let mut client = world.client(true);
    let begin = Instant::now();
    assert!(client.read(0, 65_536).is_ok());
    assert!((50..2000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    drop(hoarder);
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::Stalled as usize], 1);
}

#[test]
fn a_hoarder_that_keeps_nobody_waiting_stays() {
    let connection = ConnectionLimits { grace_ns: 50_000_000, ..Setup::default().connection };
    let world = World::new(Setup { connection, ..Setup::default() });
    let hoarder = stall(&world);
    let mut client = world.client(true);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(300) {
        assert!(client.read(0, 512).is_ok());
    }
    drop(hoarder);
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::Stalled as usize], 0);
}

#[test]
fn a_long_write_gets_what_hoarders_borrowed_though_others_are_served_meanwhile() {
    let connection = ConnectionLimits {
        frames: Share { all_max: 40, own: 2 },
        grace_ns: 100_000_000,
        ..Setup::default().connection
    };
    let world = World::new(Setup { connection, ..Setup::default() });
    let hoarder = stall(&world);
    std::thread::sleep(Duration::from_millis(20));
    let (mut busy, mut writer) = (world.client(true), world.client(true));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let traffic = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(busy.read(0, 512).is_ok());
        }
    });
    let begin = Instant::now();
    assert!(writer.write(0, &[1; 65_536]).is_ok());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    traffic.join().unwrap();
    drop((hoarder, writer));
    world.finish();
}

#[test]
fn a_client_that_stalls_too_long_is_disconnected() {
    let connection = ConnectionLimits { stall_timeout_ns: 600_000_000, ..Setup::default().connection };
    let world = World::new(Setup { connection, ..Setup::default() });
    let not_reading = stall(&world);
    let mut not_writing = world.transmission(true);
    not_writing.write_all(&write_of(0, 4096)[..100]).unwrap();
    let mut idle = world.client(true);
    // Slow, but always a bit: it stays.
    let mut slow = world.client(true);
    let cookies: Vec<_> = (0..64).map(|_| slow.ask(Command::Read, 0, 65_536)).collect();
    world.wait_for_clients(4);
    for _ in cookies {
        std::thread::sleep(Duration::from_millis(10));
        assert!(slow.answer().unwrap().1.is_ok());
    }
    world.wait_for_clients(2);
    assert!(idle.read(0, 512).is_ok(), "an idle client stays");
    drop((not_reading, not_writing));
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::Stalled as usize], 2);
}
