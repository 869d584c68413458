//! A medium: the bytes of a disk or of a server's export, with a volatile cache in front of them.
//!
//! Writes change what readers see at once, and are logged by sector until a flush makes them durable. A power loss
//! keeps any subset of the logged sectors: each is there or not, whatever the order in which they were written, and a
//! write of several sectors is torn between them. A write with FUA is durable, and outlives older unflushed ones of
//! the same sectors.

use crate::content::SECTOR_BYTES;
use crate::dice::Dice;

/// Which unflushed sector writes a power loss keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So many of a thousand, each by itself.
    Some(u32),
    /// The oldest so many of a thousand: a cache that writes in order.
    Oldest(u32),
}

impl Keep {
    /// By lot: nothing, all, half, or so many, in any order or in that of the writes.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        match dice.below(5) {
            0 => Self::Some(0),
            1 => Self::Some(1000),
            2 => Self::Oldest(dice.below(1001) as u32),
            3 => Self::Some(500),
            _ => Self::Some(dice.below(1001) as u32),
        }
    }
}

#[derive(Debug)]
struct Logged {
    sector: u32,
    /// Where its bytes are in the pool.
    at: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Medium {
    current: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<Logged>,
    pool: Vec<u8>,
    /// The log before this is durable.
    first: usize,
    /// Entries that were ever taken out of the log.
    base: u64,
    /// By sector: entries of the log before this are superseded by a durable write.
    settled: Vec<u64>,
}

impl Medium {
    /// Zeroes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes as usize;
        assert!(bytes.is_multiple_of(SECTOR_BYTES), "whole sectors");
        Self {
            current: vec![0; bytes],
            durable: vec![0; bytes],
            log: Vec::new(),
            pool: Vec::new(),
            first: 0,
            base: 0,
            settled: vec![0; bytes / SECTOR_BYTES],
        }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.current.len() as u64
    }

    /// What a reader sees.
    #[must_use]
    pub fn current(&self) -> &[u8] {
        &self.current
    }

    /// What a power loss leaves if nothing else is kept.
    #[must_use]
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Each sector write that a power loss may keep, oldest first.
    pub fn each_unflushed(&self, mut found: impl FnMut(u64, &[u8])) {
        for (nth, logged) in self.log.iter().enumerate().skip(self.first) {
            if self.base + nth as u64 >= self.settled[logged.sector as usize] {
                found(u64::from(logged.sector), &self.pool[logged.at..logged.at + SECTOR_BYTES]);
            }
        }
    }

    /// Writes whole sectors into the volatile cache.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES), "whole sectors");
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        let (first, at) = (offset / SECTOR_BYTES, self.pool.len());
        self.pool.extend_from_slice(bytes);
        let sectors = (0..bytes.len() / SECTOR_BYTES)
            .map(|nth| Logged { sector: (first + nth) as u32, at: at + nth * SECTOR_BYTES });
        self.log.extend(sectors);
    }

    /// Zeroes whole sectors, in the volatile cache.
    pub fn zero(&mut self, offset: u64, length: u64) {
        const ZEROES: [u8; 4096] = [0; 4096];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let portion = (end - at).min(ZEROES.len() as u64);
            self.write(at, &ZEROES[..portion as usize]);
            at += portion;
        }
    }

    /// What is in a range now is durable.
    pub fn settle(&mut self, offset: u64, length: u64) {
        let range = offset as usize..(offset + length) as usize;
        self.durable[range.clone()].copy_from_slice(&self.current[range.clone()]);
        let next = self.base + self.log.len() as u64;
        self.settled[range.start / SECTOR_BYTES..range.end / SECTOR_BYTES].fill(next);
    }

    /// A place in the order of writes: [`Self::flush`] to here covers what was written before.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Makes durable what was written before `mark`.
    pub fn flush(&mut self, mark: u64) {
        let end = (mark.saturating_sub(self.base) as usize).min(self.log.len());
        for at in self.first..end {
            self.keep(at);
        }
        self.first = self.first.max(end);
        if self.first == self.log.len() {
            self.forget();
        }
    }

    /// Power is lost: of what was not flushed only some is left. Returns how many sector writes are gone.
    pub fn lose(&mut self, keep: Keep, dice: &mut Dice) -> u64 {
        let count = self.log.len() - self.first;
        let mut gone = 0;
        for at in self.first..self.log.len() {
            let stays = match keep {
                Keep::Some(permille) => dice.chance(permille),
                Keep::Oldest(permille) => (at - self.first) * 1000 < count * permille as usize,
            };
            if stays {
                self.keep(at);
            } else {
                gone += 1;
            }
        }
        for at in self.first..self.log.len() {
            let sector = self.log[at].sector as usize * SECTOR_BYTES;
            self.current[sector..sector + SECTOR_BYTES].copy_from_slice(&self.durable[sector..sector + SECTOR_BYTES]);
        }
        self.forget();
        gone
    }

    /// Flips a bit for good.
    pub fn rot(&mut self, byte: u64, bit: u32) {
        self.current[byte as usize] ^= 1 << bit;
        let sector = byte / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        self.settle(sector, SECTOR_BYTES as u64);
    }

    /// Whether anything is not durable.
    #[must_use]
    pub fn has_unflushed(&self) -> bool {
        self.first < self.log.len()
    }

    fn keep(&mut self, at: usize) {
        let Logged { sector, at: from } = self.log[at];
        if self.base + (at as u64) < self.settled[sector as usize] {
            return;
        }
        let to = sector as usize * SECTOR_BYTES;
        self.durable[to..to + SECTOR_BYTES].copy_from_slice(&self.pool[from..from + SECTOR_BYTES]);
    }

    fn forget(&mut self) {
        self.base += self.log.len() as u64;
        self.log.clear();
        self.pool.clear();
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(fill: u8) -> [u8; SECTOR_BYTES] {
        [fill; SECTOR_BYTES]
    }

    #[test]
    fn a_flush_covers_what_was_written_before_its_mark() {
        let mut medium = Medium::new(2048);
        medium.write(0, &sector(1));
        let mark = medium.mark();
        medium.write(512, &sector(2));
        medium.flush(mark);
        assert_eq!(medium.lose(Keep::Some(0), &mut Dice::new(1)), 1);
        assert_eq!((medium.current()[0], medium.current()[512]), (1, 0));
    }

    #[test]
    fn a_durable_write_is_not_undone_by_an_older_one() {
        for seed in 0..20 {
            let mut medium = Medium::new(1024);
            medium.write(0, &sector(1));
            medium.write(0, &sector(2));
            medium.settle(0, 512);
            medium.lose(Keep::Some(500), &mut Dice::new(seed));
            assert_eq!(medium.current()[0], 2);
        }
    }

    #[test]
    fn a_loss_tears_writes_between_their_sectors() {
        let torn = (0..50).any(|seed| {
            let mut medium = Medium::new(1024);
            medium.write(0, &[7; 1024]);
            medium.lose(Keep::Some(500), &mut Dice::new(seed));
            medium.current()[0] != medium.current()[512]
        });
        assert!(torn);
    }
}
