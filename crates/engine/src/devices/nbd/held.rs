//! Copies of writes that the server acknowledged and has not flushed, kept so that they can be sent again.
//!
//! An arena of 4 KiB frames, and a bit for each that is taken. A copy takes the first run of frames that is long
//! enough: what was used before is used again, so the memory touched is what was needed at one time.
//!
//! Limits: runs can become too short for a long write although there is room in all ([`SLACK_BYTES`] makes that
//! unlikely: copies are forgotten in the order they were made). Such a write is not kept, and counts as refused by the
//! server should it have to be sent again: a flush then fails, and nothing is claimed that does not hold.

use std::rc::Rc;

use forebay_uring::{Arena, ArenaId, Buf, Error};

use crate::devices::pending::Pending;
use crate::ring_reactor::Port;

const FRAME_BYTES: u32 = 4096;
/// Room beside what the client holds at most: two of the longest requests.
const SLACK_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    frames: u32,
    bytes: u32,
    /// Sends under way from it.
    pins: u32,
    /// It is to be forgotten when they end.
    released: bool,
}

pub(super) struct HeldCopies {
    arena: Rc<Arena>,
    id: ArenaId,
    taken: Vec<u64>,
    runs: Pending<Run>,
    /// The run of each copy, by the copy's number.
    of: Vec<Option<u32>>,
}

/// The bytes of memory for `bytes_max` bytes in `count_max` copies, each of which ends within a frame.
pub(super) fn memory_bytes(bytes_max: u64, count_max: u32) -> u64 {
    let frame = u64::from(FRAME_BYTES);
    (bytes_max + SLACK_BYTES).next_multiple_of(frame) + u64::from(count_max) * frame
}

impl HeldCopies {
    pub(super) fn new(port: &Port, bytes_max: u64, count_max: u32) -> Result<Self, Error> {
        let frames = (memory_bytes(bytes_max, count_max) / u64::from(FRAME_BYTES)) as u32;
        let arena = Rc::new(Arena::new(frames, FRAME_BYTES)?);
        Ok(Self {
            id: port.add_arena(Rc::clone(&arena)),
            arena,
            taken: vec![0; frames.div_ceil(64) as usize],
            // A copy's number may be used again while its last bytes are still being sent.
            runs: Pending::new(2 * count_max),
            of: vec![None; count_max as usize],
        })
    }

    /// Keeps a copy of `bytes` bytes that start at byte `at` of frame `frame` of `from`.
    pub(super) fn hold(&mut self, held: usize, from: &Arena, frame: u32, at: u32, bytes: u32) {
        assert!(self.of[held].is_none(), "copy {held} is in use");
        let frames = bytes.div_ceil(FRAME_BYTES);
        let Some(first) = self.find(frames) else { return };
        let run = Run { first, frames, bytes, pins: 0, released: false };
        let Ok(run) = self.runs.insert(run) else { return };
        self.of[held] = Some(run);
        self.mark(first, frames, true);
        let (mut frame, mut at, mut copied) = (frame + at / from.frame_bytes(), at % from.frame_bytes(), 0);
        while copied < bytes {
            let to_at = copied % FRAME_BYTES;
            let portion = (bytes - copied).min(FRAME_BYTES - to_at).min(from.frame_bytes() - at);
            from.with_bytes(frame, at, portion, |bytes| self.arena.copy_in(first + copied / FRAME_BYTES, to_at, bytes));
            copied += portion;
            at += portion;
            if at == from.frame_bytes() {
                (frame, at) = (frame + 1, 0);
            }
        }
    }

    /// A send from a copy is due: its run, to be given to [`Self::unpin`], and where it is. `None` if there was no room
    /// for it.
    pub(super) fn pin(&mut self, held: usize) -> Option<(u32, Buf)> {
        let index = self.of[held]?;
        let run = self.runs.get_mut(index);
        run.pins += 1;
        Some((index, Buf { arena: self.id, frame: run.first, at: 0, len: run.bytes }))
    }

    /// A send from a run ended, or will never be.
    pub(super) fn unpin(&mut self, index: u32) {
        self.runs.get_mut(index).pins -= 1;
        self.forget_if_done(index);
    }

    /// Forgets a copy; its room is free once nothing is sent from it.
    pub(super) fn release(&mut self, held: usize) {
        if let Some(index) = self.of[held].take() {
            self.runs.get_mut(index).released = true;
            self.forget_if_done(index);
        }
    }

    fn forget_if_done(&mut self, index: u32) {
        let Run { first, frames, pins, released, .. } = *self.runs.get_mut(index);
        if released && pins == 0 {
            self.runs.remove(index);
            self.mark(first, frames, false);
        }
    }

    /// The first of `frames` free frames in a row.
    fn find(&self, frames: u32) -> Option<u32> {
        let end = self.arena.frames();
        let mut first = 0;
        let mut at = 0;
        while at < end {
            let word = self.taken[at as usize / 64] >> (at % 64);
            if word & 1 == 1 {
                at += word.trailing_ones().min(64 - at % 64);
                first = at;
            } else {
                at += word.trailing_zeros().min(64 - at % 64);
                if at.min(end) - first >= frames {
                    return Some(first);
                }
            }
        }
        None
    }

    fn mark(&mut self, first: u32, frames: u32, taken: bool) {
        for frame in first..first + frames {
            let (word, bit) = (&mut self.taken[frame as usize / 64], 1 << (frame % 64));
            assert!((*word & bit == 0) == taken, "frame {frame} of the held copies");
            *word ^= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_reactor::RingReactor;
    use forebay_policy::rng::Rng;
    use forebay_uring::Limits;

    #[test]
    fn copies_are_what_was_written_whatever_was_held_and_released_before() {
        let reactor = RingReactor::new(Limits { ops_max: 8, fds_max: 8 }).unwrap();
        let mut held = HeldCopies::new(&reactor.port(4), 256 << 10, 64).unwrap();
        let from = Arena::new(4, 65536).unwrap();
        let mut rng = Rng::new(5);
        let mut model: Vec<Option<Vec<u8>>> = vec![None; 64];
        for _ in 0..5000 {
            let index = rng.below(64) as usize;
            if let Some(expected) = model[index].take() {
                let (run, buf) = held.pin(index).expect("there was room");
                assert_eq!(buf.len as usize, expected.len());
                for (nth, chunk) in (0..).zip(expected.chunks(4096)) {
                    held.arena.with_bytes(buf.frame + nth, 0, chunk.len() as u32, |bytes| assert_eq!(bytes, chunk));
                }
                // Sometimes a send still goes on when the copy is released.
                if rng.below(2) == 0 {
                    held.release(index);
                    held.unpin(run);
                } else {
                    held.unpin(run);
                    held.release(index);
                }
                continue;
            }
            let (at, bytes) = (rng.below(120_000), 512 * (1 + rng.below(60)));
            let fill = rng.next_u64() as u8;
            let mut expected: Vec<u8> = (0..bytes).map(|n| (n >> 8) as u8 ^ fill).collect();
            for (nth, byte) in (at..).zip(&expected) {
                from.copy_in(nth / 65536, nth % 65536, &[*byte]);
            }
            held.hold(index, &from, 0, at, bytes);
            model[index] = Some(std::mem::take(&mut expected));
        }
    }

    #[test]
    fn a_copy_without_room_is_not_kept() {
        let reactor = RingReactor::new(Limits { ops_max: 8, fds_max: 8 }).unwrap();
        let mut held = HeldCopies::new(&reactor.port(4), 4096, 4).unwrap();
        let from = Arena::new(1, 4 << 20).unwrap();
        held.hold(0, &from, 0, 0, 2 << 20);
        held.hold(1, &from, 0, 0, 1 << 20);
        let (run, _) = held.pin(0).expect("there was room");
        assert!(held.pin(1).is_none());
        held.release(1);
        held.release(0);
        held.hold(1, &from, 0, 0, 1 << 20);
        assert!(held.pin(1).is_none(), "the first one is still being sent");
        held.unpin(run);
        held.hold(1, &from, 0, 0, 1 << 20);
        assert!(held.pin(1).is_some());
    }
}
