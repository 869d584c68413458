//! What is promised of the back end: it is at a boundary, and has nothing later than the epoch behind it.

use super::Value;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// What wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Record(u64),
    /// A change that passed the log, by its token.
    Bypass(u64, Flushed),
    /// Found there.
    Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    No,
    /// A flush that covers it is under way.
    Soon,
    Yes,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    value: Value,
    /// It is part of what the boundary of that number closes.
    epoch: usize,
    by: By,
    /// It need not be there: under way, failed, or lost.
    may_miss: bool,
}

/// Of each sector, what was written, in order.
#[derive(Debug)]
pub(super) struct Boundaries {
    epoch: usize,
    /// The back end was at this boundary or a later one.
    at: usize,
    sectors: Vec<Vec<Written>>,
}

impl Boundaries {
    pub(super) fn new(sectors: u64) -> Self {
        let first = Written { value: 0, epoch: 0, by: By::Found, may_miss: false };
        Self { epoch: 1, at: 0, sectors: vec![vec![first]; sectors as usize] }
    }

    pub(super) fn close(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn wrote(&mut self, sectors: Range<u64>, by: By, value: impl Fn(u64) -> Value) {
        for sector in sectors {
            let may_miss = matches!(by, By::Bypass(..));
            self.sectors[sector as usize].push(Written { value: value(sector), epoch: self.epoch, by, may_miss });
        }
    }

    pub(super) fn knows(&self, token: u64, sector: u64) -> bool {
        self.sectors[sector as usize].iter().any(|it| matches!(it.by, By::Bypass(of, _) if of == token))
    }

    fn each(&mut self, change: impl Fn(&mut Written)) {
        self.sectors.iter_mut().flatten().for_each(change);
    }

    /// The back end answered it.
    pub(super) fn answered(&mut self, token: u64) {
        self.each(|it| it.may_miss &= it.by != By::Bypass(token, Flushed::No));
    }

    /// The back end flushes what it has answered.
    pub(super) fn flush_begins(&mut self) {
        self.each(|it| match &mut it.by {
            By::Bypass(_, flushed) if !it.may_miss && *flushed == Flushed::No => *flushed = Flushed::Soon,
            _ => {}
        });
    }

    /// It did.
    pub(super) fn flushed(&mut self) {
        self.each(|it| match &mut it.by {
            By::Bypass(_, flushed) if *flushed == Flushed::Soon => *flushed = Flushed::Yes,
            _ => {}
        });
    }

    /// Told as lost.
    pub(super) fn lost(&mut self, sectors: Range<u64>) {
        for sector in sectors {
            for it in &mut self.sectors[sector as usize] {
                it.may_miss |= matches!(it.by, By::Bypass(_, Flushed::No | Flushed::Soon));
            }
        }
    }

    /// A crash left the log with records before that one, and these values on the back end, where the log has nothing.
    pub(super) fn crashed(&mut self, next: u64, found: impl Fn(u64) -> Option<Value>) {
        self.each(|it| {
            it.may_miss |= matches!(it.by, By::Bypass(_, Flushed::No | Flushed::Soon))
                || matches!(it.by, By::Record(id) if id >= next);
            if it.may_miss {
                it.by = By::Found;
            }
        });
        for sector in 0..self.sectors.len() {
            if let Some(value) = found(sector as u64) {
                let found = Written { value, epoch: self.epoch, by: By::Found, may_miss: false };
                self.sectors[sector].push(found);
            }
        }
        self.close();
    }

    /// Whether a sector may have that when the back end is at boundary k.
    fn allows(&self, k: usize, sector: usize, value: Value) -> bool {
        let all = &self.sectors[sector];
        let before = all.iter().rev().filter(|it| it.epoch <= k);
        let mut is_over = false;
        let mut reaches = before.take_while(|it| !core::mem::replace(&mut is_over, !it.may_miss));
        reaches.any(|it| it.value == value) || all.iter().any(|it| it.epoch == k + 1 && it.value == value)
    }

    /// Of each sector, what is durable and what was written since.
    pub(super) fn check(&mut self, backend: &[(Value, Vec<Value>)]) {
        let is_at = |k: &usize| {
            (0..backend.len()).all(|sector| {
                let (durable, since) = &backend[sector];
                since.iter().chain([durable]).all(|value| self.allows(*k, sector, *value))
            })
        };
        let at = (self.at..=self.epoch).find(is_at);
        self.at = at.unwrap_or_else(|| panic!("the back end is at no boundary from {} on", self.at));
        for all in &mut self.sectors {
            let last = all.iter().rposition(|it| it.epoch <= self.at && !it.may_miss).unwrap_or(0);
            all.drain(..last);
        }
    }
}
