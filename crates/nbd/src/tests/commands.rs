//! Every command does what the protocol says, with structured and with simple replies.

use std::collections::HashMap;
use std::io::Write;

use forebay_wire::nbd::constants::{CommandFlags, Errno, TransmissionFlags};
use forebay_wire::nbd::request::{Command, Request};

use super::client::pattern;
use super::core::Faults;
use super::world::{REQUEST_BYTES_MAX, Setup, VOLUME_BYTES, World};
use crate::{CloseReason, ERRNOS, RequestKind};

#[test]
fn every_command_is_served() {
    for structured in [false, true] {
        let world = World::new(Setup::default());
        let mut client = world.client(structured);
        assert_eq!(client.terms.structured, structured);
        assert_eq!(client.terms.size_bytes, VOLUME_BYTES);
        assert!(client.terms.flags.has(TransmissionFlags::CAN_MULTI_CONN));
        assert!(!client.terms.flags.has(TransmissionFlags::SEND_CACHE));
        let bytes = pattern(1, 40_960);
        assert!(client.write(5120, &bytes).is_ok());
        assert_eq!(client.read(5120, 40_960).unwrap(), bytes);
        assert_eq!(client.read(5632, 512).unwrap(), bytes[512..1024]);
        assert!(client.call(Command::Flush, CommandFlags::NONE, 0, 0).is_ok());
        assert!(client.call(Command::Trim, CommandFlags::FUA, 0, 1 << 20).is_ok());
        let no_hole = CommandFlags::FUA.with(CommandFlags::NO_HOLE);
        assert!(client.call(Command::WriteZeroes, no_hole, 5120, 512).is_ok());
        assert_eq!(client.read(5120, 1024).unwrap(), [&[0; 512], &bytes[512..1024]].concat());
        client.disconnect();
        let report = world.finish();
        assert_eq!(report.flushes, 1);
        let counters = report.counters;
        assert_eq!(counters.requests[RequestKind::Read as usize], 3);
        assert_eq!(counters.requests[RequestKind::Disconnect as usize], 1);
        assert_eq!(counters.closed[CloseReason::Disconnect as usize], 1);
        assert_eq!(counters.payload_bytes_in, 40_960);
        assert_eq!(counters.payload_bytes_out, 40_960 + 512 + 1024);
        assert_eq!(counters.errors, [0; ERRNOS.len()]);
    }
}

#[test]
fn each_breach_is_answered_with_its_error_and_the_connection_goes_on() {
    for structured in [false, true] {
        let world = World::new(Setup::default());
        let mut client = world.client(structured);
        let none = CommandFlags::NONE;
        for (command, flags, offset, length, errno) in [
            (Command::Read, none, 1, 512, Errno::Invalid),
            (Command::Read, none, VOLUME_BYTES, 512, Errno::Invalid),
            (Command::Cache, none, 0, 512, Errno::Invalid),
            (Command::BlockStatus, none, 0, 512, Errno::Invalid),
            (Command::Unknown(77), none, 0, 512, Errno::Invalid),
            (Command::WriteZeroes, CommandFlags::FAST_ZERO, 0, 512, Errno::Invalid),
            (Command::WriteZeroes, none, VOLUME_BYTES, 512, Errno::NoSpace),
        ] {
            assert_eq!(client.call(command, flags, offset, length), Err(errno), "{command:?}");
        }
        // A refused write's payload is drained, however long.
        assert_eq!(client.write(VOLUME_BYTES - 512, &pattern(1, 200_704)), Err(Errno::NoSpace));
        assert!(client.read(0, 512).is_ok());
        client.disconnect();
        let report = world.finish();
        assert_eq!(report.counters.errors.iter().sum::<u64>(), 8);
    }
}

#[test]
fn a_read_only_volume_refuses_writes() {
    let world = World::new(Setup { read_only: true, ..Setup::default() });
    let mut client = world.client(true);
    assert!(client.terms.flags.has(TransmissionFlags::READ_ONLY));
    assert_eq!(client.write(0, &[1; 512]), Err(Errno::Permission));
    assert!(client.read(0, 512).is_ok());
    drop(client);
    world.finish();
}

#[test]
fn pipelined_requests_are_answered_in_any_order_with_the_right_bytes() {
    for structured in [false, true] {
        let world = World::new(Setup { seed: 42, ..Setup::default() });
        let mut client = world.client(structured);
        // Writes of many sizes in one go: staged whole, in part, and not at all.
        let mut stream = Vec::new();
        let mut expected = HashMap::new();
        let mut offset = 0;
        for round in 0..100u64 {
            let length = [512, 4096, 65_536, 20_480, 1024][round as usize % 5];
            let bytes = pattern(round, length);
            let request = client.request(Command::Write, CommandFlags::NONE, offset, length as u32);
            stream.extend_from_slice(&request.encode());
            stream.extend_from_slice(&bytes);
            expected.insert(offset, bytes);
            offset += length as u64;
        }
        let mut sender = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&stream).unwrap());
        for _ in 0..100 {
            assert!(client.answer().unwrap().1.is_ok());
        }
        sending.join().unwrap();
        let mut asked = HashMap::new();
        for (&offset, bytes) in &expected {
            asked.insert(client.ask(Command::Read, offset, bytes.len() as u32), bytes);
        }
        for _ in 0..100 {
            let (cookie, answer) = client.answer().unwrap();
            assert!(answer.unwrap() == *asked[&cookie], "foreign bytes");
        }
        client.disconnect();
        world.finish();
    }
}

#[test]
fn requests_beyond_the_cores_longest_are_split() {
    for structured in [false, true] {
        let world = World::new(Setup::default());
        let mut client = world.client(structured);
        let bytes = pattern(7, 5 << 20);
        assert!(client.write(1024, &bytes).is_ok());
        assert!(client.read(1024, 5 << 20).unwrap() == bytes);
        // Others before and behind it, answered in between.
        let before = client.ask(Command::Read, 512, 512);
        let long = client.ask(Command::Read, 1024, 5 << 20);
        let behind = client.ask(Command::Read, 1024, 512);
        for _ in 0..3 {
            let (cookie, answer) = client.answer().unwrap();
            let answer = answer.unwrap();
            let right = match cookie {
                cookie if cookie == before => answer == [0; 512],
                cookie if cookie == long => answer == bytes,
                cookie => cookie == behind && answer == bytes[..512],
            };
            assert!(right, "foreign bytes for request {cookie}");
        }
        if structured {
            assert!(client.chunks > 160, "chunk by chunk, not {}", client.chunks);
        }
        client.disconnect();
        let report = world.finish();
        assert_eq!(report.longest, REQUEST_BYTES_MAX);
        assert_eq!(report.memory[1024..1024 + (5 << 20)], bytes);
    }
}

#[test]
fn an_unfragmented_read_is_one_chunk_or_an_error() {
    let world = World::new(Setup::default());
    let mut client = world.client(true);
    assert!(client.call(Command::Read, CommandFlags::DF, 512, REQUEST_BYTES_MAX).is_ok());
    assert_eq!(client.chunks, 1);
    let too_long = client.call(Command::Read, CommandFlags::DF, 0, REQUEST_BYTES_MAX + 512);
    assert_eq!(too_long, Err(Errno::Overflow));
    drop(client);
    world.finish();
}

fn failing() -> Setup {
    let faults = Faults { failing: 1 << 20..(1 << 20) + 512, refusing: 2 << 20..(2 << 20) + 512, ..Faults::default() };
    Setup { faults, ..Setup::default() }
}

#[test]
fn a_failure_of_the_core_is_the_requests_alone() {
    for structured in [false, true] {
        let world = World::new(failing());
        let mut client = world.client(structured);
        assert_eq!(client.read(1 << 20, 4096), Err(Errno::Io));
        assert_eq!(client.write(1 << 20, &[1; 4096]), Err(Errno::Io));
        assert_eq!(client.write(2 << 20, &[1; 4096]), Err(Errno::NoMemory), "refused before its payload was taken");
        // In the middle of a split write: the rest of the payload is drained, the first error is the answer.
        assert_eq!(client.write((1 << 20) - 131_072, &[1; 400_384]), Err(Errno::Io));
        assert_eq!(client.write((2 << 20) - 131_072, &[1; 400_384]), Err(Errno::NoMemory));
        assert!(client.write(0, &[2; 4096]).is_ok());
        assert_eq!(client.read(0, 4096).unwrap(), [2; 4096]);
        client.disconnect();
        let report = world.finish();
        let io = ERRNOS.iter().position(|&errno| errno == Errno::Io).unwrap();
        assert_eq!(report.counters.errors[io], 3);
    }
}

#[test]
fn a_split_write_stops_at_its_first_failure() {
    let world = World::new(failing());
    let mut client = world.client(true);
    // It ends before the range that is refused.
    assert_eq!(client.write((1 << 20) - 65_536, &[1; 1 << 20]), Err(Errno::Io));
    client.disconnect();
    let report = world.finish();
    let end = (2 << 20) - 65_536;
    assert_eq!(report.memory[end - 4096..end], [0; 4096], "parts were written long after the failure");
}

#[test]
fn refused_writes_between_others_do_not_disturb_the_stream() {
    let world = World::new(failing());
    let mut client = world.client(true);
    let mut stream = Vec::new();
    for round in 0..60u64 {
        let (offset, length) = ([0, 2 << 20, 4096][round as usize % 3], [512, 4096, 65_536][round as usize / 20]);
        let request = client.request(Command::Write, CommandFlags::NONE, offset, length);
        stream.extend_from_slice(&request.encode());
        stream.extend_from_slice(&pattern(round, length as usize));
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&stream).unwrap());
    let mut refused = 0;
    for _ in 0..60 {
        refused += u32::from(client.answer().unwrap().1.is_err());
    }
    sending.join().unwrap();
    assert_eq!(refused, 20);
    client.disconnect();
    world.finish();
}

#[test]
fn a_split_read_that_fails_is_an_error_chunk_or_the_end_of_the_connection() {
    let world = World::new(failing());
    let mut client = world.client(true);
    assert_eq!(client.read(512 << 10, 2 << 20), Err(Errno::Io));
    assert!(client.read(0, 512).is_ok());
    client.disconnect();
    let mut client = world.client(false);
    assert_eq!(client.read(1 << 20, 2 << 20), Err(Errno::Io), "its first part failed: nothing was out");
    let request = client.request(Command::Read, CommandFlags::NONE, 512 << 10, 2 << 20);
    client.stream.write_all(&request.encode()).unwrap();
    assert!(client.answer().is_err(), "the stream ends");
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::ReadFailed as usize], 1);
}

#[test]
fn what_was_asked_before_goodbye_is_answered() {
    let faults = Faults { slow: 0..VOLUME_BYTES, slow_ns: 30_000_000, ..Faults::default() };
    let world = World::new(Setup { faults, ..Setup::default() });
    for goodbye in [true, false] {
        let mut client = world.client(true);
        for _ in 0..8 {
            client.ask(Command::Read, 0, 4096);
        }
        if goodbye {
            client.ask(Command::Disconnect, 0, 0);
        } else {
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        for _ in 0..8 {
            assert!(client.answer().unwrap().1.is_ok());
        }
        client.assert_closed();
    }
    let report = world.finish();
    assert_eq!(report.counters.closed[CloseReason::EndOfStream as usize], 1);
}

#[test]
fn a_request_cut_at_any_byte_is_put_together() {
    let world = World::new(Setup::default());
    let mut client = world.client(true);
    let payload = pattern(3, 1024);
    for cut in [1, 3, 4, 27, 28, 29, 540, 1051] {
        let request: Request = client.request(Command::Write, CommandFlags::NONE, 4096, 1024);
        let bytes = [&request.encode()[..], &payload].concat();
        client.stream.write_all(&bytes[..cut]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        client.stream.write_all(&bytes[cut..]).unwrap();
        assert!(client.answer().unwrap().1.is_ok(), "cut at {cut}");
        assert_eq!(client.read(4096, 1024).unwrap(), payload);
    }
    client.disconnect();
    world.finish();
}
