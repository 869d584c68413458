//! What a reader may see: for every block, the changes submitted, in order, and what became of each.

use forebay_wire::nbd::client::{Failure, Kind, Op};

use super::server::{BLOCK_BYTES, blocks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    /// Acknowledged: readers see it, or something later.
    Acknowledged,
    /// A flush succeeded since.
    Durable,
    /// Failed: it may be there or not, wholly or partly.
    Unknown,
    /// It was acknowledged, and then its range was named in doubt.
    InDoubt,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    number: u64,
    tag: u64,
    is_trim: bool,
    fate: Fate,
    answered: u64,
    /// The server dropped it when it failed a flush; the client may not know yet.
    dropped: bool,
}

#[derive(Default)]
struct Block {
    changes: Vec<Change>,
    /// What a cache above would hold.
    cached: Option<u64>,
    /// Counts changes submitted and answered.
    version: u64,
}

/// What a read found when it was submitted: per block, the oldest change it may see, and its version.
pub(crate) type Snapshot = Vec<(u64, Option<u64>)>;

pub(crate) struct Oracle {
    blocks: Vec<Block>,
    clock: u64,
    /// A flush must fail before one succeeds.
    owed: bool,
    pub(crate) told: u64,
}

impl Oracle {
    pub(crate) fn new(count: usize) -> Self {
        let first = Change { number: 0, tag: 0, is_trim: false, fate: Fate::Durable, answered: 0, dropped: false };
        let block = || Block { changes: vec![first], ..Block::default() };
        Self { blocks: (0..count).map(|_| block()).collect(), clock: 0, owed: false, told: 0 }
    }

    /// A process that is gone wrote it, and nobody has flushed it.
    pub(crate) fn inherited(&mut self, block: usize, tag: u64) {
        let first = self.blocks[block].changes[0];
        self.blocks[block].changes.push(Change { tag, fate: Fate::Unknown, ..first });
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    pub(crate) fn submitted(&mut self, number: u64, op: &Op, tags: &[u64]) {
        for (at, block) in blocks(op).enumerate() {
            self.touch(block).changes.push(Change {
                number,
                tag: if op.kind == Kind::Write { tags[at] } else { 0 },
                is_trim: op.kind == Kind::Trim,
                fate: Fate::Pending,
                answered: 0,
                dropped: false,
            });
        }
    }

    pub(crate) fn changed(&mut self, number: u64, op: &Op, result: Result<(), Failure>) {
        self.clock += 1;
        let answered = self.clock;
        for block in blocks(op) {
            let changes = &mut self.touch(block).changes;
            let at = changes.iter().position(|c| c.number == number).expect("a change submitted");
            changes[at].answered = answered;
            changes[at].fate = match result {
                Ok(()) if op.fua => Fate::Durable,
                Ok(()) => Fate::Acknowledged,
                Err(Failure::Server(_) | Failure::Unanswered | Failure::InDoubt) => Fate::Unknown,
                Err(_) => {
                    changes.remove(at);
                    continue;
                }
            };
        }
    }

    pub(crate) fn reading(&self, op: &Op) -> Snapshot {
        blocks(op)
            .map(|block| {
                let is_changing = (self.blocks[block].changes.iter()).any(|c| c.fate == Fate::Pending);
                let version = (!is_changing).then_some(self.blocks[block].version);
                (self.base(block), version)
            })
            .collect()
    }

    /// A read under way may see what has come back.
    pub(crate) fn loosen(&self, op: &Op, snapshot: &mut Snapshot) {
        for (block, (base, _)) in blocks(op).zip(snapshot) {
            *base = self.base(block).min(*base);
        }
    }

    pub(crate) fn read(&mut self, op: &Op, snapshot: &Snapshot, seen: &[u64]) {
        for ((block, (base, version)), seen) in blocks(op).zip(snapshot).zip(seen) {
            self.assert_allowed(block, *base, *seen, "a read");
            let block = &mut self.blocks[block];
            if *version == Some(block.version) && !block.changes.iter().any(|c| c.dropped) {
                block.cached = Some(*seen);
            }
        }
    }

    pub(crate) fn flushed(&mut self, submitted: u64, result: Result<(), Failure>) {
        if result.is_err() {
            self.owed = false;
            self.told += 1;
            return;
        }
        assert!(!self.owed, "a flush succeeded before one told of the doubt");
        for change in self.blocks.iter_mut().flat_map(|b| &mut b.changes) {
            if change.fate == Fate::Acknowledged && change.answered <= submitted {
                change.fate = Fate::Durable;
            }
        }
    }

    /// The server fails a flush, and drops what was not durable.
    pub(crate) fn dropped(&mut self) {
        for change in self.blocks.iter_mut().flat_map(|b| &mut b.changes) {
            change.dropped |= matches!(change.fate, Fate::Acknowledged | Fate::Pending);
        }
    }

    /// Held writes fell in doubt. `told`: a flush that failed just now may have told already.
    pub(crate) fn lost(&mut self, offset: u64, length: u64, told: bool) {
        for block in self.named(offset, length) {
            self.touch(block);
            for change in &mut self.blocks[block].changes {
                if change.fate == Fate::Acknowledged {
                    change.fate = Fate::InDoubt;
                    self.owed |= !told;
                }
            }
        }
    }

    pub(crate) fn drop_cached(&mut self, offset: u64, length: u64) {
        for block in self.named(offset, length) {
            self.blocks[block].cached = None;
        }
    }

    fn named(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        let bytes = u64::from(BLOCK_BYTES);
        let end = (offset + length).div_ceil(bytes) as usize;
        (offset / bytes) as usize..end.min(self.blocks.len())
    }

    /// After the last flush and a restart: what the server holds is allowed, and is what was cached.
    pub(crate) fn assert_final(&self, durable: &[u64]) {
        for (block, seen) in durable.iter().enumerate() {
            self.assert_allowed(block, self.base(block), *seen, "after the last flush");
            if let Some(cached) = self.blocks[block].cached {
                let changes = &self.blocks[block].changes;
                assert_eq!(cached, *seen, "block {block} is cached, {changes:?}");
            }
        }
    }

    /// What a flush or FUA made durable is not undone, not even until the next request: the process could end here.
    pub(crate) fn assert_durable(&self, current: &[u64]) {
        for (block, seen) in current.iter().enumerate() {
            let changes = &self.blocks[block].changes;
            let base = changes.iter().rev().find(|c| c.fate == Fate::Durable && !c.is_trim);
            self.assert_allowed(block, base.map_or(0, |c| c.number), *seen, "the server");
        }
    }

    fn touch(&mut self, block: usize) -> &mut Block {
        let block = &mut self.blocks[block];
        block.cached = None;
        block.version += 1;
        block
    }

    /// The oldest change of the block that a reader from now on may see.
    fn base(&self, block: usize) -> u64 {
        let settled = |c: &&Change| matches!(c.fate, Fate::Acknowledged if !c.dropped) || c.fate == Fate::Durable;
        let settled = |c: &&Change| settled(c) && !c.is_trim;
        let last = self.blocks[block].changes.iter().rev().find(settled);
        last.map_or(0, |change| change.number)
    }

    fn assert_allowed(&self, block: usize, base: u64, seen: u64, what: &str) {
        let changes = &self.blocks[block].changes;
        assert!(
            (changes.iter()).any(|c| c.number >= base && c.tag == seen),
            "{what}: block {block} holds {seen}, expected one since {base} of {changes:?}"
        );
    }
}
