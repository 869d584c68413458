//! Who gets what when several clients want more than there is.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_wire::nbd::constants::CommandFlags;
use forebay_wire::nbd::request::Command;

use super::client::{Client, pattern};
use super::core::Faults;
use super::hostile::stall;
use super::world::{Setup, VOLUME_BYTES, World};
use crate::{ConnectionLimits, Share};

/// Reads in the upper half of the volume take `slow_ns`. A grace period that would show.
fn setup(all_max: u32, own: u32, slow_ns: u64) -> Setup {
    let connection = ConnectionLimits {
        requests_max: 128,
        core_requests: Share { all_max: 512, own: 8 },
        frames: Share { all_max, own },
        grace_ns: 4_000_000_000,
        ..Setup::default().connection
    };
    let faults = Faults { slow: VOLUME_BYTES / 2..VOLUME_BYTES, slow_ns, ..Faults::default() };
    Setup { connection, faults, ..Setup::default() }
}

const SLOW: u64 = VOLUME_BYTES / 2;

#[test]
fn a_long_read_is_served_in_parts_of_its_own_while_everything_is_hoarded() {
    let world = World::new(setup(40, 2, 0));
    let mut writer = world.client(true);
    let bytes = pattern(1, 65_536);
    assert!(writer.write(512, &bytes).is_ok());
    let hoarder = stall(&world);
    std::thread::sleep(Duration::from_millis(50));
    for structured in [false, true] {
        let mut client = world.client(structured);
        let begin = Instant::now();
        assert_eq!(client.read(512, 65_536).unwrap(), bytes);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        assert!(!structured || client.chunks > 1, "nothing was hoarded");
        client.disconnect();
    }
    drop((hoarder, writer));
    world.finish();
}

#[test]
fn a_write_that_waits_for_frames_goes_before_short_requests_that_came_later() {
    let world = World::new(setup(20, 0, 500_000_000));
    let (mut first, mut writer, mut later) = (world.client(true), world.client(true), world.client(true));
    // Frames that come back one by one.
    for _ in 0..18 {
        first.ask(Command::Read, SLOW, 512);
        std::thread::sleep(Duration::from_millis(20));
    }
    let begin = Instant::now();
    let write = writer.write_bytes(0, &[1; 65_536]);
    writer.stream.write_all(&write).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..100 {
        later.ask(Command::Read, SLOW, 512);
    }
    assert!(writer.answer().unwrap().1.is_ok());
    assert!(begin.elapsed() < Duration::from_millis(600), "{:?}", begin.elapsed());
    drop((first, writer, later));
    world.finish();
}

/// How long 3 slow reads of one client take that are asked for at once.
fn three_reads(client: &mut Client<UnixStream>) -> Duration {
    let begin = Instant::now();
    for _ in 0..3 {
        client.ask(Command::Read, SLOW, 512);
    }
    for _ in 0..3 {
        assert!(client.answer().unwrap().1.is_ok());
    }
    begin.elapsed()
}

#[test]
fn nobody_waits_for_a_client_that_takes_no_replies() {
    // Reads of 4 frames leave 3, of which a client is entitled to 2 and borrows the third.
    let world = World::new(setup(39, 0, 200_000_000));
    let hoarder = stall(&world);
    std::thread::sleep(Duration::from_millis(50));
    let took = three_reads(&mut world.client(true));
    assert!(took < Duration::from_millis(390), "one after the other: {took:?}");
    drop(hoarder);
    world.finish();
}

#[test]
fn nobody_waits_for_a_client_that_left() {
    let world = World::new(setup(39, 0, 200_000_000));
    let hoarder = stall(&world);
    std::thread::sleep(Duration::from_millis(50));
    // It waits to borrow for its write, and leaves; its read finds that out.
    let (mut writer, mut client) = (world.client(true), world.client(true));
    writer.ask(Command::Read, SLOW, 512);
    let write = writer.request(Command::Write, CommandFlags::NONE, 0, 65_536);
    writer.stream.write_all(&write.encode()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(writer);
    world.wait_for_clients(2);
    let took = three_reads(&mut client);
    assert!(took < Duration::from_millis(390), "one after the other: {took:?}");
    drop((hoarder, client));
    world.finish();
}

#[test]
fn who_has_requests_in_flight_is_counted_and_who_is_idle_is_not() {
    let world = World::new(setup(40, 2, 300_000_000));
    let mut clients: Vec<_> = (0..4).map(|_| world.client(true)).collect();
    // Each alone, and then three of them together.
    clients.iter_mut().for_each(|client| assert!(client.read(512, 512).is_ok()));
    for client in &mut clients[1..] {
        client.ask(Command::Read, SLOW, 512);
        client.ask(Command::Read, SLOW, 512);
    }
    for client in &mut clients[1..] {
        assert!((0..2).all(|_| client.answer().unwrap().1.is_ok()));
    }
    drop(clients);
    assert_eq!(world.finish().submitters_peak, 3);
}
