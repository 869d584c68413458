//! A model NBD server: blocks hold a tag each, and a volatile cache loses any of the unflushed changes on a restart.

use std::collections::BTreeMap;

use forebay_wire::nbd::client::{Kind, Op};
use forebay_wire::nbd::constants::Errno;

use super::random::Random;

pub(crate) const BLOCK_BYTES: u32 = 512;

/// The blocks an operation touches.
pub(crate) fn blocks(op: &Op) -> std::ops::Range<usize> {
    let first = (op.offset / u64::from(BLOCK_BYTES)) as usize;
    first..first + (op.length / BLOCK_BYTES) as usize
}

pub(crate) struct Server {
    /// What a reader sees.
    pub(crate) current: Vec<u64>,
    /// What survives a restart for sure.
    pub(crate) durable: Vec<u64>,
    /// Changes of blocks since the last flush, oldest first.
    volatile: Vec<(usize, u64)>,
    pub(crate) trim_zeroes: bool,
    /// Counts restarts: a connection belongs to one of them.
    pub(crate) incarnation: u64,
}

impl Server {
    pub(crate) fn new(blocks: usize, trim_zeroes: bool) -> Self {
        Self { current: vec![0; blocks], durable: vec![0; blocks], volatile: Vec::new(), trim_zeroes, incarnation: 0 }
    }

    /// Does an operation; `data` is what a write carries. A read returns what it saw.
    pub(crate) fn execute(&mut self, op: &Op, data: &[u64]) -> Vec<u64> {
        match op.kind {
            Kind::Read => return self.current[blocks(op)].to_vec(),
            Kind::Flush => {
                for (block, tag) in std::mem::take(&mut self.volatile) {
                    self.durable[block] = tag;
                }
                assert_eq!(self.current, self.durable);
            }
            Kind::Trim if !self.trim_zeroes => {}
            Kind::Write => self.change(op, data, op.fua),
            Kind::Trim | Kind::WriteZeroes { .. } => {
                let zeroes = vec![0; blocks(op).len()];
                self.change(op, &zeroes, op.fua);
            }
        }
        Vec::new()
    }

    /// Fails an operation; of a change, any part is done.
    pub(crate) fn fail(&mut self, op: &Op, data: &[u64], random: &mut Random) -> Errno {
        if op.kind == Kind::Write {
            for (block, tag) in blocks(op).zip(data) {
                if random.chance(50) {
                    self.current[block] = *tag;
                    self.volatile.push((block, *tag));
                }
            }
        }
        if op.kind == Kind::Flush {
            self.lose(random);
        }
        Errno::Io
    }

    /// The process dies and another starts.
    pub(crate) fn restart(&mut self, random: &mut Random) {
        self.incarnation += 1;
        self.lose(random);
        self.durable.clone_from(&self.current);
    }

    /// Some of the unflushed changes are gone.
    fn lose(&mut self, random: &mut Random) {
        let percent = [0, 50, 100][random.below(3)];
        let mut kept: BTreeMap<usize, u64> = BTreeMap::new();
        self.volatile.retain(|(block, tag)| {
            let keeps = random.chance(percent);
            if keeps {
                kept.insert(*block, *tag);
            }
            keeps
        });
        self.current.clone_from(&self.durable);
        for (block, tag) in kept {
            self.current[block] = tag;
        }
    }

    fn change(&mut self, op: &Op, data: &[u64], durable: bool) {
        for (block, tag) in blocks(op).zip(data) {
            self.current[block] = *tag;
            if durable {
                self.durable[block] = *tag;
                self.volatile.retain(|(other, _)| other != &block);
            } else {
                self.volatile.push((block, *tag));
            }
        }
    }
}
