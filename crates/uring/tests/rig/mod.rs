//! A ring with one arena, and what the tests do with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the rig")]

use std::rc::Rc;

use forebay_uring::{Arena, ArenaId, Buf, Completion, Limits, Op, Ring, monotonic_ns};

pub const FRAME_BYTES: u32 = 65536;
/// How long a test waits for what must come.
const PATIENCE_NS: u64 = 5_000_000_000;

pub struct Rig {
    pub ring: Ring,
    pub arena: Rc<Arena>,
    pub id: ArenaId,
}

impl Rig {
    pub fn new(frames: u32, ops_max: u32) -> Rig {
        let mut ring = Ring::new(Limits { ops_max, fds_max: 64 }).unwrap();
        let arena = Rc::new(Arena::new(frames, FRAME_BYTES).unwrap());
        let id = ring.add_arena(Rc::clone(&arena));
        Rig { ring, arena, id }
    }

    pub fn buf(&self, frame: u32, at: u32, len: u32) -> Buf {
        Buf { arena: self.id, frame, at, len }
    }

    pub fn frame(&self, frame: u32) -> Buf {
        self.buf(frame, 0, FRAME_BYTES)
    }

    pub fn bytes(&self, frame: u32) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_BYTES as usize];
        self.arena.copy_out(frame, 0, &mut bytes);
        bytes
    }

    pub fn submit(&mut self, token: u64, op: Op<'_>) {
        self.ring.submit(token, op).expect("the ring has room");
    }

    /// Waits for `count` completions and calls `check` with each.
    pub fn expect_all(&mut self, count: usize, mut check: impl FnMut(&Completion)) {
        for completion in self.wait_for(count) {
            check(&completion);
        }
    }

    pub fn wait_for(&mut self, count: usize) -> Vec<Completion> {
        let until_ns = monotonic_ns() + PATIENCE_NS;
        let mut completions = Vec::new();
        while completions.len() < count {
            assert!(monotonic_ns() < until_ns, "{} of {count} completions came", completions.len());
            let missing = (count - completions.len()) as u32;
            self.ring.wait(missing, Some(until_ns), &mut completions).unwrap();
        }
        assert_eq!(completions.len(), count);
        completions
    }
}

/// Bytes of a frame that tell the frame and the offset.
pub fn pattern(seed: u32) -> Vec<u8> {
    let words = (0..FRAME_BYTES / 4).map(|index| (index ^ seed.wrapping_mul(0x9e37_79b9)).to_le_bytes());
    words.flatten().collect()
}

pub fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
