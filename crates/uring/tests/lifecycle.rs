//! Limits, cancellation, wakers, time, and the end of a ring.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use forebay_uring::{Errno, ErrorKind, Fd, Full, Limits, Op, Ready, Ring, monotonic_ns};
use rig::Rig;

const MS: u64 = 1_000_000;

/// Registers one end of a connection and returns the other.
fn connect(rig: &mut Rig) -> (Fd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (rig.ring.register(ours.into()).unwrap(), theirs)
}

#[test]
fn more_operations_than_the_queue_is_long_all_complete() {
    // The submission queue has 256 entries.
    let mut rig = Rig::new(16, 2000);
    let (fd, mut theirs) = connect(&mut rig);
    for token in 0..2000 {
        let buf = rig.buf(token as u32 % 16, token as u32 / 16 * 8, 8);
        rig.submit(token, Op::Recv { fd, buf, all: true });
    }
    assert_eq!(rig.ring.submit(2000, Op::Timeout { at_ns: 0 }), Err(Full));
    assert_eq!(rig.ring.in_flight(), 2000);
    let writer = thread::spawn(move || {
        for word in 0..2000_u64 {
            theirs.write_all(&word.to_le_bytes()).unwrap();
        }
        theirs
    });
    let mut tokens: Vec<_> = rig
        .wait_for(2000)
        .iter()
        .map(|completion| {
            assert_eq!(completion.result, Ok(8));
            completion.token
        })
        .collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..2000));
    assert_eq!(rig.ring.in_flight(), 0);
    let _theirs = writer.join().unwrap();
    let mut words: Vec<_> = (0..2000)
        .map(|index: u32| {
            let mut word = [0; 8];
            rig.arena.copy_out(index % 16, index / 16 * 8, &mut word);
            u64::from_le_bytes(word)
        })
        .collect();
    words.sort_unstable();
    assert!(words.into_iter().eq(0..2000), "each word was received once");
    rig.submit(2001, Op::Timeout { at_ns: 0 });
    rig.expect_all(1, |completion| assert_eq!((completion.token, completion.result), (2001, Ok(0))));
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let mut rig = Rig::new(1, 8);
    let (fd, _theirs) = connect(&mut rig);
    rig.submit(1, Op::Poll { fd, ready: Ready::Readable });
    let mut completions = Vec::new();
    let until_ns = monotonic_ns() + 30 * MS;
    rig.ring.wait(1, Some(until_ns), &mut completions).unwrap();
    assert!(monotonic_ns() >= until_ns && completions.is_empty());
    rig.ring.wait(1, Some(0), &mut completions).unwrap();
    rig.ring.wait(0, None, &mut completions).unwrap();
    assert!(completions.is_empty());
}

#[test]
fn a_wait_for_two_is_not_ended_by_one() {
    let mut rig = Rig::new(2, 8);
    let (fd, mut theirs) = connect(&mut rig);
    let (other_fd, mut others) = connect(&mut rig);
    rig.submit(1, Op::Recv { fd, buf: rig.frame(0), all: false });
    rig.submit(2, Op::Recv { fd: other_fd, buf: rig.frame(1), all: false });
    // The first is ready before the wait.
    theirs.write_all(b"x").unwrap();
    rig.ring.flush().unwrap();
    let until_ns = monotonic_ns() + 3000 * MS;
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        others.write_all(b"y").unwrap();
    });
    let mut completions = Vec::new();
    rig.ring.wait(2, Some(until_ns), &mut completions).unwrap();
    assert_eq!(completions.iter().map(|completion| completion.token).collect::<Vec<_>>(), [1, 2]);
    writer.join().unwrap();
}

#[test]
fn a_timeout_runs_out_at_its_time() {
    let mut rig = Rig::new(1, 8);
    let at_ns = monotonic_ns() + 20 * MS;
    rig.submit(1, Op::Timeout { at_ns });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(0)));
    assert!(monotonic_ns() >= at_ns);
}

#[test]
fn cancelled_operations_complete_and_free_their_frames() {
    let mut rig = Rig::new(4, 16);
    let (fd, _theirs) = connect(&mut rig);
    rig.submit(7, Op::Recv { fd, buf: rig.frame(0), all: false });
    rig.submit(8, Op::Recv { fd, buf: rig.frame(1), all: false });
    rig.submit(7, Op::Timeout { at_ns: u64::MAX / 2 });
    assert_eq!(rig.ring.cancel(7), 2);
    assert_eq!(rig.ring.cancel(6), 0);
    rig.expect_all(2, |completion| {
        assert_eq!((completion.token, completion.result), (7, Err(Errno::CANCELED)));
    });
    assert!(!rig.arena.is_held(0) && rig.arena.is_held(1));
    assert_eq!(rig.ring.in_flight(), 1);
}

#[test]
fn closing_a_descriptor_ends_its_operations_and_the_connection() {
    let mut rig = Rig::new(4, 16);
    let (fd, mut theirs) = connect(&mut rig);
    rig.submit(1, Op::Recv { fd, buf: rig.frame(0), all: true });
    rig.submit(2, Op::Poll { fd, ready: Ready::Readable });
    rig.ring.flush().unwrap();
    rig.ring.close(fd);
    rig.expect_all(2, |completion| assert_eq!(completion.result, Err(Errno::CANCELED)));
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the peer sees the end");
    // The place in the table is used again, under another name.
    let (again, _theirs) = connect(&mut rig);
    assert_ne!(fd, again);
}

#[test]
fn a_full_descriptor_table_refuses_and_recovers() {
    let mut ring = Ring::new(Limits { ops_max: 8, fds_max: 2 }).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let one = ring.register(one.into()).unwrap();
    ring.register(other.into()).unwrap();
    let error = ring.register(UnixStream::pair().unwrap().0.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    ring.close(one);
    ring.register(UnixStream::pair().unwrap().0.into()).unwrap();
}

#[test]
fn a_waker_ends_a_wait_from_another_thread_every_time() {
    let mut rig = Rig::new(1, 8);
    let wake = rig.ring.waker(42).unwrap();
    assert_eq!(rig.ring.in_flight(), 0);
    for round in 0..50 {
        let wake = wake.clone();
        let waking = thread::spawn(move || {
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(300));
            }
            wake.wake();
        });
        rig.expect_all(1, |completion| assert_eq!((completion.token, completion.result), (42, Ok(0))));
        waking.join().unwrap();
    }
}

#[test]
fn wakes_before_a_wait_are_folded_into_one_and_none_is_lost() {
    let mut rig = Rig::new(1, 8);
    let wake = rig.ring.waker(1).unwrap();
    for _ in 0..1000 {
        wake.wake();
    }
    rig.expect_all(1, |_| ());
    let mut completions = Vec::new();
    rig.ring.wait(1, Some(monotonic_ns() + 20 * MS), &mut completions).unwrap();
    assert!(completions.is_empty());
    // Counted from several threads: after each wake, the shard sees what was written before it.
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (wake, counter) = (wake.clone(), counter.clone());
            thread::spawn(move || {
                for _ in 0..2000 {
                    counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    wake.wake();
                }
            })
        })
        .collect();
    let until_ns = monotonic_ns() + 5000 * MS;
    while counter.load(std::sync::atomic::Ordering::Relaxed) < 6000 {
        assert!(monotonic_ns() < until_ns);
        rig.ring.wait(1, Some(until_ns), &mut completions).unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_ring_dropped_with_operations_in_flight_gives_everything_back() {
    let mut rig = Rig::new(4, 16);
    let (fd, mut theirs) = connect(&mut rig);
    let wake = rig.ring.waker(1).unwrap();
    rig.submit(2, Op::Recv { fd, buf: rig.frame(0), all: true });
    rig.submit(3, Op::RecvVectored { fd, bufs: &[rig.frame(1), rig.frame(2)], all: true });
    rig.submit(4, Op::Timeout { at_ns: u64::MAX / 2 });
    rig.ring.flush().unwrap();
    rig.submit(5, Op::Recv { fd, buf: rig.frame(3), all: true });
    wake.wake();
    let Rig { ring, arena, .. } = rig;
    let start_ns = monotonic_ns();
    drop(ring);
    assert!(monotonic_ns() < start_ns + 1000 * MS, "nothing hangs, so nothing is waited for");
    assert_eq!(Rc::strong_count(&arena), 1, "the ring's share was not leaked");
    assert!((0..4).all(|frame| !arena.is_held(frame)));
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    wake.wake();
}

#[test]
fn the_ring_keeps_an_arena_alive() {
    let mut rig = Rig::new(1, 8);
    let (fd, mut theirs) = connect(&mut rig);
    let buf = rig.frame(0);
    let Rig { mut ring, arena, id } = rig;
    drop(arena);
    ring.submit(1, Op::Recv { fd, buf, all: false }).unwrap();
    theirs.write_all(b"alive").unwrap();
    ring.wait(1, None, &mut Vec::new()).unwrap();
    ring.arena(id).with_bytes(0, 0, 5, |bytes| assert_eq!(bytes, b"alive"));
}

#[test]
fn rings_connections_and_wakers_leave_no_descriptors_behind() {
    // In a process of its own, since other tests open descriptors at the same time.
    if std::env::var_os("COUNT_DESCRIPTORS").is_none() {
        let mut this = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "rings_connections_and_wakers_leave_no_descriptors_behind";
        let status = this.args(["--exact", name]).env("COUNT_DESCRIPTORS", "1").status();
        return assert!(status.unwrap().success());
    }
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round = || {
        let mut rig = Rig::new(1, 16);
        let _wake = rig.ring.waker(0).unwrap();
        for token in 0..8 {
            let (fd, _theirs) = connect(&mut rig);
            rig.submit(token, Op::Poll { fd, ready: Ready::Readable });
            if token % 2 == 0 {
                rig.ring.close(fd);
            }
        }
    };
    round();
    let before = count();
    let start_ns = monotonic_ns();
    for _ in 0..20 {
        round();
    }
    assert!(monotonic_ns() < start_ns + 2000 * MS, "no drop waits for what it has cancelled");
    assert_eq!(count(), before);
}
