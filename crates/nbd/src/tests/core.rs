//! A core that only remembers: volume 0 is an array. It takes frames from a free list as the real one does, answers
//! in any order, and can be told to fail, to refuse and to be slow.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use forebay_core::{FrameId, Piece, ReplyError, RequestId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_uring::Arena;

/// What goes wrong, and where.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Reads and writes that touch this range fail with `Io`.
    pub(super) failing: Range<u64>,
    /// Writes that touch this range are refused before their payload is taken.
    pub(super) refusing: Range<u64>,
    /// Reads that touch this range are answered this much later.
    pub(super) slow: Range<u64>,
    pub(super) slow_ns: u64,
}

#[derive(Debug)]
enum Waiting {
    Read { tag: u64, offset: u64, length: u32, not_before_ns: u64 },
    Write { tag: u64, offset: u64, length: u32 },
    Reply { tag: u64, result: Result<(), ReplyError> },
}

#[derive(Debug)]
struct Held {
    pieces: Vec<Piece>,
    /// For a write: what to do with the payload.
    write: Option<(u64, u64)>,
}

pub(super) struct Core {
    pub(super) memory: Vec<u8>,
    arena: Rc<Arena>,
    free: Vec<u32>,
    frames: usize,
    held: HashMap<RequestId, Held>,
    next_request: u32,
    waiting: Vec<Waiting>,
    faults: Faults,
    random: u64,
    request_bytes_max: u32,
    pub(super) flushes: u64,
    /// The longest part seen.
    pub(super) longest: u32,
    /// The most frames in use, and requests in hand, at a time.
    pub(super) frames_peak: usize,
    pub(super) requests_peak: usize,
}

fn touches(range: &Range<u64>, offset: u64, length: u32) -> bool {
    offset < range.end && offset + u64::from(length) > range.start
}

impl Core {
    pub(super) fn new(bytes: usize, arena: Rc<Arena>, faults: Faults, request_bytes_max: u32, seed: u64) -> Self {
        let frames = arena.frames();
        Self {
            memory: vec![0; bytes],
            arena,
            free: (0..frames).collect(),
            frames: frames as usize,
            held: HashMap::new(),
            next_request: 0,
            waiting: Vec::new(),
            faults,
            random: seed | 1,
            request_bytes_max,
            flushes: 0,
            longest: 0,
            frames_peak: 0,
            requests_peak: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }

    pub(super) fn assert_nothing_leaked(&self) {
        assert!(self.is_idle(), "left behind: {:?} {:?}", self.waiting, self.held);
        assert_eq!(self.free.len(), self.frames, "frames leaked");
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let due = self.waiting.iter().map(|waiting| match waiting {
            Waiting::Read { not_before_ns, .. } => *not_before_ns,
            _ => 0,
        });
        // Without frames there is nothing to do before one is given back.
        if self.free.len() < self.frames / 2 { None } else { due.min() }
    }

    pub(super) fn event(&mut self, now_ns: u64, event: FrontEvent) {
        match event {
            FrontEvent::Read { tag, offset, length, .. } => {
                self.check_range(offset, u64::from(length), true);
                if touches(&self.faults.failing, offset, length) {
                    self.reply(tag, Err(ReplyError::Io));
                } else {
                    let slow = touches(&self.faults.slow, offset, length);
                    let not_before_ns = now_ns + if slow { self.faults.slow_ns } else { 0 };
                    self.waiting.push(Waiting::Read { tag, offset, length, not_before_ns });
                }
            }
            FrontEvent::Write { tag, offset, length, .. } => {
                self.check_range(offset, u64::from(length), true);
                if touches(&self.faults.refusing, offset, length) {
                    self.reply(tag, Err(ReplyError::Busy));
                } else {
                    self.waiting.push(Waiting::Write { tag, offset, length });
                }
            }
            FrontEvent::Received { request } => {
                let held = self.held.remove(&request).expect("a request in flight");
                let (tag, offset) = held.write.expect("a write");
                let length: u32 = held.pieces.iter().map(|piece| piece.length).sum();
                let result = if touches(&self.faults.failing, offset, length) {
                    Err(ReplyError::Io)
                } else {
                    self.store(offset, &held.pieces);
                    Ok(())
                };
                self.give_back(&held.pieces);
                self.reply(tag, result);
            }
            FrontEvent::NotReceived { request } => {
                let held = self.held.remove(&request).expect("a request in flight");
                assert!(held.write.is_some(), "a read was not received");
                self.give_back(&held.pieces);
            }
            FrontEvent::Sent { request } => {
                let held = self.held.remove(&request).expect("a request in flight");
                assert!(held.write.is_none(), "a write was sent");
                self.give_back(&held.pieces);
            }
            FrontEvent::Flush { tag, .. } => {
                self.flushes += 1;
                self.reply(tag, Ok(()));
            }
            FrontEvent::Trim { tag, offset, length, .. } => {
                self.check_range(offset, length, false);
                self.reply(tag, Ok(()));
            }
            FrontEvent::WriteZeroes { tag, offset, length, .. } => {
                self.check_range(offset, length, false);
                self.memory[offset as usize..(offset + length) as usize].fill(0);
                self.reply(tag, Ok(()));
            }
            FrontEvent::Evict { .. }
            | FrontEvent::Drain { .. }
            | FrontEvent::Fill { .. }
            | FrontEvent::Probe { .. } => panic!("no client can ask for this"),
        }
    }

    /// Answers what can be answered, in a random order.
    pub(super) fn answer(&mut self, now_ns: u64, front: &mut impl Front) {
        self.requests_peak = self.requests_peak.max(self.waiting.len() + self.held.len());
        let mut waiting = std::mem::take(&mut self.waiting);
        while !waiting.is_empty() {
            let pick = self.random_below(waiting.len());
            let one = waiting.swap_remove(pick);
            self.answer_one(now_ns, one, front);
        }
    }

    fn answer_one(&mut self, now_ns: u64, one: Waiting, front: &mut impl Front) {
        match one {
            Waiting::Reply { tag, result } => front.reply(now_ns, tag, result),
            Waiting::Read { not_before_ns, .. } if not_before_ns > now_ns => self.waiting.push(one),
            Waiting::Read { tag, offset, length, .. } => match self.take_frames(offset, length) {
                None => self.waiting.push(one),
                Some(pieces) => {
                    self.load(offset, &pieces);
                    let request = self.hold(Held { pieces: pieces.clone(), write: None });
                    front.reply_read(now_ns, tag, request, &pieces);
                }
            },
            Waiting::Write { tag, offset, length } => match self.take_frames(offset, length) {
                None => self.waiting.push(one),
                Some(pieces) => {
                    let request = self.hold(Held { pieces: pieces.clone(), write: Some((tag, offset)) });
                    front.receive(now_ns, tag, request, &pieces);
                }
            },
        }
    }

    fn reply(&mut self, tag: u64, result: Result<(), ReplyError>) {
        self.waiting.push(Waiting::Reply { tag, result });
    }

    fn check_range(&mut self, offset: u64, length: u64, split: bool) {
        assert!(length > 0 && offset.is_multiple_of(512) && length.is_multiple_of(512), "{length} bytes at {offset}");
        assert!(offset + length <= self.memory.len() as u64, "{length} bytes at {offset}");
        if split {
            assert!(length <= u64::from(self.request_bytes_max), "a part of {length} bytes");
            self.longest = self.longest.max(length as u32);
        }
    }

    fn hold(&mut self, held: Held) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.held.insert(id, held);
        id
    }

    /// Frames for a range, at its natural offsets.
    fn take_frames(&mut self, offset: u64, length: u32) -> Option<Vec<Piece>> {
        let page_bytes = u64::from(self.arena.frame_bytes());
        let end = offset + u64::from(length);
        let first = offset / page_bytes;
        let pages = (end - 1) / page_bytes - first + 1;
        if (self.free.len() as u64) < pages {
            return None;
        }
        let pieces = (first..first + pages).map(|page| {
            let start = offset.max(page * page_bytes);
            let stop = end.min((page + 1) * page_bytes);
            let frame = FrameId(self.free.pop().expect("counted before"));
            Piece { frame, at: (start % page_bytes) as u32, length: (stop - start) as u32 }
        });
        let pieces = pieces.collect();
        self.frames_peak = self.frames_peak.max(self.frames - self.free.len());
        Some(pieces)
    }

    fn give_back(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            assert!(!self.arena.is_held(piece.frame.0), "a frame came back while the kernel uses it");
            self.free.push(piece.frame.0);
        }
    }

    fn load(&self, offset: u64, pieces: &[Piece]) {
        let mut at = offset as usize;
        for piece in pieces {
            let length = piece.length as usize;
            self.arena.copy_in(piece.frame.0, piece.at, &self.memory[at..at + length]);
            at += length;
        }
    }

    fn store(&mut self, offset: u64, pieces: &[Piece]) {
        let mut at = offset as usize;
        for piece in pieces {
            let length = piece.length as usize;
            self.arena.copy_out(piece.frame.0, piece.at, &mut self.memory[at..at + length]);
            at += length;
        }
    }

    fn random_below(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }
}
