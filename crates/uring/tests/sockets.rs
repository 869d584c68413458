//! Sockets through a ring and beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use forebay_uring::{Address, Errno, Fd, HEADER_BYTES_MAX, Op, PIECES_MAX, Piece, Ready, stream_socket};
use rig::{FRAME_BYTES, Rig, pattern, temp_dir};

/// A ring with one end of a connection, and the other end.
fn connected(frames: u32) -> (Rig, Fd, UnixStream) {
    let mut rig = Rig::new(frames, 64);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let fd = rig.ring.register(ours.into()).unwrap();
    (rig, fd, theirs)
}

/// Reads exactly `len` bytes on a thread, slowly, so that the sender has to wait.
fn read_slowly(mut from: UnixStream, len: usize) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = vec![0; len];
        for part in bytes.chunks_mut(30_000) {
            thread::sleep(Duration::from_micros(200));
            from.read_exact(part).unwrap();
        }
        bytes
    })
}

#[test]
fn a_vectored_send_larger_than_the_socket_buffer_arrives_whole() {
    let (mut rig, fd, theirs) = connected(16);
    let headers: Vec<Vec<u8>> = (0..16).map(|reply| vec![reply as u8 + 100; 28]).collect();
    let mut expected = Vec::new();
    for frame in 0..16 {
        rig.arena.copy_in(frame, 0, &pattern(frame));
        expected.extend_from_slice(&headers[frame as usize]);
        expected.extend_from_slice(&pattern(frame)[..FRAME_BYTES as usize - 512]);
    }
    let reader = read_slowly(theirs, expected.len());
    let bufs: Vec<_> = (0..16).map(|frame| rig.buf(frame, 0, FRAME_BYTES - 512)).collect();
    let pieces: Vec<_> =
        headers.iter().zip(&bufs).flat_map(|(header, &buf)| [Piece::Bytes(header), Piece::Frame(buf)]).collect();
    rig.submit(1, Op::SendVectored { fd, pieces: &pieces, skip_bytes: 0 });
    drop(pieces);
    drop(headers);
    assert!(rig.arena.is_held(15));
    rig.arena.copy_in(15, FRAME_BYTES - 512, &[1; 512]);
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(expected.len() as u32)));
    assert!((0..16).all(|frame| !rig.arena.is_held(frame)));
    assert_eq!(reader.join().unwrap(), expected);
}

#[test]
fn a_direct_send_that_stops_halfway_is_finished_by_the_ring() {
    let (mut rig, fd, theirs) = connected(20);
    let mut expected = b"header".to_vec();
    for frame in 0..20 {
        rig.arena.copy_in(frame, 0, &pattern(frame));
        expected.extend_from_slice(&pattern(frame));
    }
    let bufs: Vec<_> = (0..20).map(|frame| rig.frame(frame)).collect();
    let mut pieces = vec![Piece::Bytes(b"header")];
    pieces.extend(bufs.iter().map(|&buf| Piece::Frame(buf)));
    let sent = rig.ring.try_send(fd, &pieces, 0).unwrap();
    assert!(0 < sent && sent < expected.len() as u64, "{sent} bytes at once");
    assert_eq!(rig.ring.try_send(fd, &pieces, sent), Err(Errno::AGAIN));
    let reader = read_slowly(theirs, expected.len());
    rig.submit(1, Op::SendVectored { fd, pieces: &pieces, skip_bytes: sent });
    // What the direct call has sent is free; the rest is held.
    let first_unsent = (sent - 6) / u64::from(FRAME_BYTES);
    for frame in 0..20 {
        assert_eq!(rig.arena.is_held(frame), u64::from(frame) >= first_unsent, "frame {frame}");
    }
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok((expected.len() as u64 - sent) as u32)));
    assert_eq!(reader.join().unwrap(), expected);
}

#[test]
fn what_is_skipped_may_end_anywhere() {
    let (mut rig, fd, mut theirs) = connected(2);
    rig.arena.copy_in(0, 10, b"frame");
    let pieces = [Piece::Bytes(b"one"), Piece::Frame(rig.buf(0, 10, 5)), Piece::Bytes(b"two")];
    let whole = b"oneframetwo";
    for skip in 0..whole.len() {
        let left = (whole.len() - skip) as u64;
        assert_eq!(rig.ring.try_send(fd, &pieces, skip as u64), Ok(left));
        rig.submit(1, Op::SendVectored { fd, pieces: &pieces, skip_bytes: skip as u64 });
        rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(left as u32)));
        let mut twice = vec![0; 2 * left as usize];
        theirs.read_exact(&mut twice).unwrap();
        assert_eq!(twice, [&whole[skip..], &whole[skip..]].concat());
    }
}

#[test]
fn a_receive_takes_what_is_there_or_all_that_was_asked() {
    let (mut rig, fd, mut theirs) = connected(2);
    assert_eq!(rig.ring.try_recv(fd, rig.buf(0, 0, 100)), Err(Errno::AGAIN));
    theirs.write_all(b"abc").unwrap();
    assert_eq!(rig.ring.try_recv(fd, rig.buf(0, 0, 2)), Ok(2));
    rig.submit(1, Op::Recv { fd, buf: rig.buf(0, 2, 100), all: false });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(1)));
    assert_eq!(rig.bytes(0)[..3], *b"abc");
    rig.submit(2, Op::Recv { fd, buf: rig.frame(1), all: true });
    let bytes = pattern(9);
    let writer = thread::spawn(move || {
        for part in bytes.chunks(10_000) {
            theirs.write_all(part).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    assert_eq!(rig.bytes(1), pattern(9));
    writer.join().unwrap();
    // Their end is closed now.
    rig.submit(3, Op::Recv { fd, buf: rig.frame(1), all: true });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(0)));
    assert_eq!(rig.ring.try_recv(fd, rig.frame(1)), Ok(0));
}

#[test]
fn a_vectored_receive_scatters_in_order() {
    let (mut rig, fd, mut theirs) = connected(3);
    let bufs = [rig.buf(2, 512, 1024), rig.buf(0, 0, 512), rig.buf(1, 60_000, 512)];
    rig.submit(1, Op::RecvVectored { fd, bufs: &bufs, all: true });
    let bytes = &pattern(3)[..2048];
    theirs.write_all(bytes).unwrap();
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(2048)));
    assert_eq!(rig.bytes(2)[512..1536], bytes[..1024]);
    assert_eq!(rig.bytes(0)[..512], bytes[1024..1536]);
    assert_eq!(rig.bytes(1)[60_000..60_512], bytes[1536..]);
}

#[test]
fn a_plain_send_arrives() {
    let (mut rig, fd, mut theirs) = connected(1);
    rig.arena.copy_in(0, 0, &pattern(4));
    rig.submit(1, Op::Send { fd, buf: rig.buf(0, 4096, 4096) });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(4096)));
    let mut bytes = [0; 4096];
    theirs.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..], pattern(4)[4096..8192]);
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    let (mut rig, fd, theirs) = connected(1);
    drop(theirs);
    assert_eq!(rig.ring.try_send(fd, &[Piece::Bytes(b"x")], 0), Err(Errno::PIPE));
    rig.submit(1, Op::Send { fd, buf: rig.frame(0) });
    rig.submit(2, Op::SendVectored { fd, pieces: &[Piece::Bytes(b"x")], skip_bytes: 0 });
    rig.expect_all(2, |completion| assert_eq!(completion.result, Err(Errno::PIPE)));
}

#[test]
fn connections_are_made_and_accepted_over_unix_and_tcp() {
    let dir = temp_dir();
    let path = dir.path().join("socket");
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peers = [
        (Address::tcp(tcp.local_addr().unwrap()), tcp.into()),
        (Address::unix(&path).unwrap(), UnixListener::bind(&path).unwrap().into()),
    ];
    for (address, listener) in peers {
        let mut rig = Rig::new(2, 8);
        let listener = rig.ring.register(listener).unwrap();
        let client = rig.ring.register(stream_socket(&address).unwrap()).unwrap();
        rig.submit(1, Op::Accept { fd: listener });
        rig.submit(2, Op::Connect { fd: client, to: &address });
        let mut accepted = None;
        for completion in rig.wait_for(2) {
            assert_eq!(completion.result, Ok(0));
            assert_eq!(completion.accepted.is_some(), completion.token == 1);
            accepted = accepted.or(completion.accepted);
        }
        let server = rig.ring.register(accepted.unwrap()).unwrap();
        rig.arena.copy_in(0, 0, b"over the wire");
        rig.submit(3, Op::Send { fd: client, buf: rig.buf(0, 0, 13) });
        rig.submit(4, Op::Recv { fd: server, buf: rig.buf(1, 0, 13), all: true });
        rig.expect_all(2, |completion| assert_eq!(completion.result, Ok(13)));
        assert_eq!(rig.bytes(1)[..13], *b"over the wire");
    }
    let mut rig = Rig::new(1, 8);
    let nobody = Address::unix(&dir.path().join("nobody")).unwrap();
    let client = rig.ring.register(stream_socket(&nobody).unwrap()).unwrap();
    rig.submit(1, Op::Connect { fd: client, to: &nobody });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Err(Errno::NOENT)));
    assert!(Address::unix(&dir.path().join("x".repeat(200))).is_err());
}

#[test]
fn readiness_is_reported() {
    let (mut rig, fd, mut theirs) = connected(1);
    rig.submit(1, Op::Poll { fd, ready: Ready::Readable });
    rig.submit(2, Op::Poll { fd, ready: Ready::Writable });
    rig.expect_all(1, |completion| assert_eq!((completion.token, completion.result), (2, Ok(0))));
    theirs.write_all(b"x").unwrap();
    rig.expect_all(1, |completion| assert_eq!((completion.token, completion.result), (1, Ok(0))));
}

#[test]
fn a_taken_descriptor_works_in_another_ring() {
    let (mut rig, fd, mut theirs) = connected(1);
    rig.submit(1, Op::Recv { fd, buf: rig.frame(0), all: false });
    assert!(rig.ring.take(fd).is_none(), "an operation is in flight");
    theirs.write_all(b"one").unwrap();
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(3)));
    let taken = rig.ring.take(fd).unwrap();
    drop(rig);
    let mut other = Rig::new(1, 8);
    let fd = other.ring.register(taken).unwrap();
    theirs.write_all(b"four").unwrap();
    other.submit(1, Op::Recv { fd, buf: other.frame(0), all: false });
    other.expect_all(1, |completion| assert_eq!(completion.result, Ok(4)));
}

#[test]
#[should_panic(expected = "was closed or taken")]
fn a_stale_descriptor_panics() {
    let (mut rig, fd, _theirs) = connected(1);
    rig.ring.close(fd);
    rig.submit(1, Op::Recv { fd, buf: rig.frame(0), all: false });
}

#[test]
#[should_panic(expected = "held for Write")]
fn a_send_of_bytes_that_are_being_received_panics() {
    let (mut rig, fd, _theirs) = connected(1);
    rig.submit(1, Op::Recv { fd, buf: rig.frame(0), all: false });
    rig.submit(2, Op::Send { fd, buf: rig.buf(0, 100, 1) });
}

#[test]
#[should_panic(expected = "header bytes")]
fn too_many_header_bytes_panic() {
    let (mut rig, fd, _theirs) = connected(1);
    let bytes = [0; HEADER_BYTES_MAX + 1];
    rig.submit(1, Op::SendVectored { fd, pieces: &[Piece::Bytes(&bytes)], skip_bytes: 0 });
}

#[test]
#[should_panic(expected = "pieces")]
fn too_many_pieces_panic() {
    let (mut rig, fd, _theirs) = connected(1);
    let pieces = [Piece::Bytes(b"x"); PIECES_MAX + 1];
    let _ = rig.ring.try_send(fd, &pieces, 0);
}
