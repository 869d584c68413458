//! Frames: what may be copied where, and that conflicts panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay_uring::{Access, Arena, Hold};
use proptest::prelude::*;

const FRAME_BYTES: u32 = 8192;

fn arena() -> Arena {
    Arena::new(4, FRAME_BYTES).unwrap()
}

#[test]
fn frames_start_as_zeroes_and_do_not_overlap() {
    let arena = arena();
    for frame in 0..4 {
        arena.with_bytes(frame, 0, FRAME_BYTES, |bytes| assert!(bytes.iter().all(|&byte| byte == 0)));
        arena.with_bytes_mut(frame, 0, FRAME_BYTES, |bytes| bytes.fill(frame as u8 + 1));
    }
    for frame in 0..4 {
        arena.with_bytes(frame, 0, FRAME_BYTES, |bytes| {
            assert!(bytes.iter().all(|&byte| byte == frame as u8 + 1));
            assert!(bytes.as_ptr().addr().is_multiple_of(4096));
        });
    }
}

#[test]
fn bytes_go_where_they_are_sent() {
    let arena = arena();
    arena.copy_in(0, 100, b"hello");
    arena.copy_between(0, 100, 1, 7, 5);
    arena.copy_between(1, 7, 1, 9, 5);
    let mut bytes = [0; 9];
    arena.copy_out(1, 6, &mut bytes);
    assert_eq!(&bytes, b"\0hehello\0");
    arena.fill_zero(1, 9, 2);
    arena.copy_out(1, 6, &mut bytes);
    assert_eq!(&bytes, b"\0he\0\0llo\0");
}

#[test]
fn disjoint_ranges_of_a_frame_are_independent() {
    let arena = arena();
    let fill = arena.hold(2, 4096, 4096, Access::Write);
    let send = arena.hold(2, 0, 512, Access::Read);
    arena.copy_in(2, 512, &[1; 4096 - 512]);
    arena.with_bytes(2, 0, 4096, |_| ());
    assert!(arena.is_held(2));
    arena.release(fill);
    arena.release(send);
    assert!(!arena.is_held(2));
    arena.copy_in(2, 0, &[1; FRAME_BYTES as usize]);
}

#[test]
#[should_panic(expected = "Write of bytes 0..5 of frame 0, of which 4..8 are held for Read")]
fn a_copy_into_bytes_that_are_being_sent_panics() {
    let arena = arena();
    let _send = arena.hold(0, 4, 4, Access::Read);
    arena.copy_in(0, 0, b"hello");
}

#[test]
#[should_panic(expected = "Read of bytes 7..9 of frame 0, of which 4..8 are held for Write")]
fn a_look_at_bytes_that_are_being_received_panics() {
    let arena = arena();
    let _receive = arena.hold(0, 4, 4, Access::Write);
    arena.with_bytes(0, 7, 2, |_| ());
}

#[test]
#[should_panic(expected = "held for Write")]
fn two_receives_into_one_range_panic() {
    let arena = arena();
    let _first = arena.hold(0, 0, FRAME_BYTES, Access::Write);
    let _second = arena.hold(0, 4096, 1, Access::Write);
}

#[test]
#[should_panic(expected = "held for Write")]
fn a_closure_cannot_reach_the_bytes_it_changes_a_second_way() {
    let arena = arena();
    arena.with_bytes_mut(0, 0, 10, |bytes| arena.copy_out(0, 5, bytes));
}

#[test]
#[should_panic(expected = "held for Read")]
fn a_closure_cannot_change_the_bytes_it_looks_at() {
    let arena = arena();
    arena.with_bytes(0, 0, 10, |bytes| arena.copy_in(0, 5, bytes));
}

#[test]
fn a_closure_that_panics_gives_its_bytes_back() {
    let arena = arena();
    let closure = || arena.with_bytes_mut(0, 0, 10, |_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(closure)).is_err());
    arena.copy_in(0, 0, b"hello");
}

#[test]
#[should_panic(expected = "bytes 8190..8193 of a frame of 8192")]
fn a_copy_cannot_reach_the_next_frame() {
    arena().copy_in(0, 8190, b"abc");
}

#[test]
#[should_panic(expected = "8193 bytes from frame 3 of 4")]
fn a_hold_cannot_leave_the_arena() {
    let _hold = arena().hold(3, 0, 8193, Access::Read);
}

#[test]
#[should_panic(expected = "a hold of another arena")]
fn a_hold_is_released_where_it_was_taken() {
    let (one, other) = (arena(), arena());
    let _same_place = other.hold(0, 0, 1, Access::Write);
    other.release(one.hold(0, 0, 1, Access::Write));
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Hold { at: u32, len: u32, access: Access },
    Release { which: usize },
    Touch { frame: u32, at: u32, len: u32, access: Access },
}

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let bytes = 4 * FRAME_BYTES;
    prop_oneof![
        (0..bytes, 1..2 * FRAME_BYTES, access.clone()).prop_map(move |(at, len, access)| Step::Hold {
            at,
            len: len.min(bytes - at),
            access
        }),
        any::<prop::sample::Index>().prop_map(|index| Step::Release { which: index.index(1 << 16) }),
        (0..4_u32, 0..FRAME_BYTES, 1..FRAME_BYTES, access)
            .prop_map(|(frame, at, len, access)| { Step::Touch { frame, at, len: len.min(FRAME_BYTES - at), access } }),
    ]
}

proptest! {
    /// The lists of holds agree with the plainest oracle: a list of ranges in bytes of the arena.
    #[test]
    fn an_access_panics_exactly_when_a_held_range_conflicts(steps in prop::collection::vec(step(), 1..60)) {
        let arena = arena();
        let mut held: Vec<(u32, u32, Access, Hold)> = Vec::new();
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let mut agreed = true;
        for step in steps {
            let conflict = |at: u32, len: u32, access: Access| held.iter().any(|&(from, to, by, _)| {
                at < to && from < at + len && (access == Access::Write || by == Access::Write)
            });
            match step {
                Step::Hold { at, len, access } => {
                    let expected = conflict(at, len, access);
                    let (frame, offset) = (at / FRAME_BYTES, at % FRAME_BYTES);
                    let hold = catch_unwind(AssertUnwindSafe(|| arena.hold(frame, offset, len, access)));
                    agreed &= hold.is_err() == expected;
                    if let Ok(hold) = hold {
                        held.push((at, at + len, access, hold));
                    }
                }
                Step::Release { which } => {
                    if !held.is_empty() {
                        arena.release(held.swap_remove(which % held.len()).3);
                    }
                }
                Step::Touch { frame, at, len, access } => {
                    let expected = conflict(frame * FRAME_BYTES + at, len, access);
                    let touched = catch_unwind(AssertUnwindSafe(|| match access {
                        Access::Read => arena.with_bytes(frame, at, len, |_| ()),
                        Access::Write => arena.fill_zero(frame, at, len),
                    }));
                    agreed &= touched.is_err() == expected;
                }
            }
        }
        std::panic::set_hook(quiet);
        prop_assert!(agreed);
        for (.., hold) in held.drain(..) {
            arena.release(hold);
        }
        prop_assert!((0..4).all(|frame| !arena.is_held(frame)));
    }
}

#[test]
fn populating_commits_memory_and_changes_no_byte() {
    let frames = 4096;
    let arena = Arena::new(frames, 4096).expect("16 MiB");
    let last = frames - 1;
    arena.copy_in(last, 7, b"before");
    arena.populate();
    for frame in 0..frames - 1 {
        arena.copy_in(frame, 0, &frame.to_le_bytes());
    }
    for frame in 0..frames - 1 {
        let mut bytes = [0; 4];
        arena.copy_out(frame, 0, &mut bytes);
        assert_eq!(bytes, frame.to_le_bytes());
    }
    let mut bytes = [0; 6];
    arena.copy_out(last, 7, &mut bytes);
    assert_eq!(&bytes, b"before");
}

#[test]
fn an_arena_may_go_while_it_is_being_populated() {
    let before = resident_bytes();
    let arena = Arena::new(16384, 65536).expect("1 GiB of addresses");
    arena.populate();
    arena.copy_in(0, 0, b"in use");
    drop(arena);
    assert!(resident_bytes() < before + (512 << 20), "the memory is given back");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("of this process");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages");
    pages * 4096
}
