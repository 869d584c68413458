//! The back end, and what each of its sectors may read as.
//!
//! The back end is the truth: a read must see, sector by sector, what the back end held at some time between the read's
//! beginning and its answer. A read that nothing overlapped in time thus sees just what the back end has.

use forebay_policy::rng::Rng;

#[derive(Clone, Debug, Default)]
struct Sector {
    value: u32,
    /// Writes that may still reach the back end.
    under_way: u32,
    /// What it held before, and until when.
    history: Vec<(u32, u64)>,
    /// The number of the last change of the back end here.
    changed: u64,
}

#[derive(Clone, Debug)]
struct Change {
    number: u64,
    sector: usize,
    before: u32,
    before_changed: u64,
}

pub(crate) struct Oracle {
    sectors: Vec<Sector>,
    now: u64,
    applied: u64,
    /// The newest change that was answered.
    answered: u64,
    /// Changes that are not durable, oldest first.
    volatile: Vec<Change>,
    /// For each sector the change that a client's flush has promised.
    promised: Vec<u64>,
}

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        Self {
            sectors: vec![Sector::default(); sectors],
            now: 1,
            applied: 0,
            answered: 0,
            volatile: Vec::new(),
            promised: vec![0; sectors],
        }
    }

    pub(crate) fn sectors(&self) -> usize {
        self.sectors.len()
    }

    pub(crate) fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Changes of the back end so far.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Changes that were answered, as a bound on their numbers.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// A client's write or discard of these sectors begins.
    pub(crate) fn begin(&mut self, sector: usize, sectors: usize) {
        for s in &mut self.sectors[sector..sector + sectors] {
            s.under_way += 1;
        }
    }

    /// The back end was ordered to change here: somebody must have asked for it.
    pub(crate) fn order(&self, sector: usize, sectors: usize) {
        for s in &self.sectors[sector..sector + sectors] {
            assert!(s.under_way > 0, "the back end is written though nobody asked");
        }
    }

    /// The client was answered.
    pub(crate) fn end(&mut self, sector: usize, sectors: usize, ok: bool) {
        if !ok {
            // It may still happen.
            return;
        }
        for s in &mut self.sectors[sector..sector + sectors] {
            s.under_way = s.under_way.saturating_sub(1);
        }
        self.answered = self.applied;
    }

    pub(crate) fn read_backend(&self, sector: usize, sectors: usize) -> Vec<u32> {
        self.sectors[sector..sector + sectors].iter().map(|s| s.value).collect()
    }

    pub(crate) fn write_backend(&mut self, sector: usize, values: &[u32]) {
        for (sector, value) in (sector..).zip(values) {
            self.applied += 1;
            let now = self.now();
            let s = &mut self.sectors[sector];
            s.history.push((s.value, now));
            let change = Change { number: self.applied, sector, before: s.value, before_changed: s.changed };
            self.volatile.push(change);
            s.value = *value;
            s.changed = self.applied;
        }
    }

    pub(crate) fn backend_flushed(&mut self, covers: u64) {
        self.volatile.retain(|change| change.number > covers);
    }

    /// A client's flush was answered: every change up to `covers` is durable.
    pub(crate) fn flushed(&mut self, covers: u64) {
        for change in &self.volatile {
            assert!(change.number > covers, "a flush was answered before change {} was durable", change.number);
        }
        for (promised, s) in self.promised.iter_mut().zip(&self.sectors) {
            if s.changed <= covers {
                *promised = s.changed;
            }
        }
    }

    /// A read that began at `from` saw `value`.
    pub(crate) fn check_read(&self, sector: usize, value: u32, from: u64) {
        let s = &self.sectors[sector];
        let held = s.history.iter().rev().take_while(|(_, until)| *until >= from).any(|(held, _)| *held == value);
        assert!(
            held || value == s.value,
            "sector {sector} read as {value}, is {} with {:?} since {from}",
            s.value,
            s.history
        );
    }

    /// The machine ends: some of what was not flushed is gone.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        while let Some(change) = self.volatile.pop() {
            if rng.below(2) == 0 {
                self.sectors[change.sector].value = change.before;
                self.sectors[change.sector].changed = change.before_changed;
            }
        }
        for (sector, (s, promised)) in self.sectors.iter().zip(&self.promised).enumerate() {
            assert!(s.changed >= *promised, "sector {sector} lost what a flush had promised");
        }
    }

    /// Everything that was under way is over.
    pub(crate) fn restart(&mut self) {
        self.volatile.clear();
        for s in &mut self.sectors {
            s.under_way = 0;
            s.history.clear();
        }
    }
}
