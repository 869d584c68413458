//! The oracle: for every sector of every volume, which values a reader may see.
//!
//! A sector is a register. Changes (writes, zeroings, trims) have a beginning and an end on a logical clock; a read has
//! too. The oracle keeps, for each sector, the changes that may be its value now, and for each of these the time from
//! which it certainly is not any more:
//!
//! - *Overwritten*: a change that was acknowledged began after this one had ended.
//! - *Passed over*: a read that began after this one had ended saw another value. So of two overlapping writes a read
//!   decides for ever which came last, and a failed write that was once not seen does not come up later.
//!
//! A read may return the value of any change that began before the read ended and was not gone before it began.
//!
//! What is promised, and so checked:
//! - An acknowledged change is there until it is overwritten, while Forebay runs and the back end is not told to lose
//!   anything that it may not lose.
//! - A change that failed is there or not, sector by sector.
//! - A trimmed sector holds zeroes or what it held.
//! - What was acknowledged before a flush began that succeeded is there for ever, and so is an acknowledged write with
//!   FUA. Unless a flush has failed since it was acknowledged: then its loss was told.
//! - After a crash that loses what was not flushed, a sector holds its last flushed value or one given to it since.
//! - A back end that restarts and forgets changes nothing of what is read: the process that lives has what it
//!   acknowledged and not flushed, and sends it again before anything else.
//! - A process that ends keeps what it acknowledged, as long as the back end does; and the next one's flush makes that
//!   durable too.
//!
//! What is permitted, since nobody could do better without a log of its own:
//! - *Shaken*: a back end fails a flush, or refuses what it is sent again, and has dropped what it acknowledged. The
//!   next flush of a client fails for it. While its answer is on the way, reads decide nothing. If the process ends
//!   before that flush, nobody remembers to tell.
//! - *Unsent*: the connection to a back end is lost, and the process ends before it has sent again, in order, what it
//!   held: the back end may have restarted, or have an older write over a newer one until all are sent.
//! - *Orphaned*: the process that acknowledged it is gone, and then the back end restarts before the next flush.
//!
//! Only what was acknowledged and not flushed is ever permitted to go, and only these changes: one that a living process
//! acknowledged over an orphan has to show.
//!
//! Limits: trims and zeroings share the value of all zeroes, so a sector of zeroes excludes less. What a failed change
//! left behind may be taken back by a back end that restarts; a read that saw it decides nothing then (*softly*).

use crate::back::epochs::Epochs;
use crate::content::describe;

/// The end of what has not ended.
const NEVER: u64 = u64::MAX;

/// Names a change while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId(u64);

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sector `s` gets the value of write `number`.
    Write {
        /// Unique among writes.
        number: u64,
    },
    /// Zeroes.
    Zero,
    /// Zeroes, or what was there.
    Trim,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Acknowledged.
    Well {
        /// It had the FUA flag.
        fua: bool,
    },
    /// It may have happened, wholly, partly or not at all.
    Unknown,
    /// It was refused: it has not happened.
    Refused,
}

/// How a read broke the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: u64,
    change: u64,
    begin: u64,
    end: u64,
    /// Certainly not the value for reads that begin then or later.
    gone: u64,
    /// It is gone only if the back end loses nothing.
    softly: bool,
    acknowledged: bool,
    durable: bool,
    /// It is gone whatever the back end loses.
    buried: bool,
    /// It was acknowledged and not flushed when the back end lost something for good.
    shaken: bool,
    /// It was not flushed when the back end restarted or a replay began, and that has not come to its end.
    unsent: bool,
    /// Its process is gone.
    orphaned: bool,
}

#[derive(Debug)]
struct Sector {
    entries: Vec<Entry>,
    /// It is in its volume's list of unsettled sectors.
    listed: bool,
}

#[derive(Debug)]
struct Volume {
    sectors: Vec<Sector>,
    /// Sectors with a change since the last flush, or more than one possible value.
    unsettled: Vec<u32>,
    /// Reads that began before decide nothing: the back end has lost something since.
    doubt: u64,
    /// Changes that began before decide nothing: of what was done of them, something may have been lost for good.
    lost: u64,
    /// The back end has dropped something, and its answer that tells so is on the way.
    unheard: bool,
}

#[derive(Debug)]
struct UnderWay {
    id: ChangeId,
    volume: usize,
    first: u64,
    count: u64,
    kind: Change,
}

/// See the module.
#[derive(Debug)]
pub struct Oracle {
    volumes: Vec<Volume>,
    under_way: Vec<UnderWay>,
    /// When the reads under way began, in order.
    reads: Vec<u64>,
    clock: u64,
    changes: u64,
    /// For volumes that write back: which epochs their back ends may be in.
    pub epochs: Option<Epochs>,
}

impl Oracle {
    /// Volumes of so many sectors, all zeroes.
    #[must_use]
    pub fn new(sectors: &[u64]) -> Self {
        let first = Entry {
            value: 0,
            change: 0,
            begin: 0,
            end: 0,
            gone: NEVER,
            softly: false,
            acknowledged: true,
            durable: true,
            buried: false,
            shaken: false,
            unsent: false,
            orphaned: false,
        };
        let volume = |count: &u64| Volume {
            sectors: (0..*count).map(|_| Sector { entries: vec![first], listed: false }).collect(),
            unsettled: Vec::new(),
            doubt: 0,
            lost: 0,
            unheard: false,
        };
        Self {
            volumes: sectors.iter().map(volume).collect(),
            under_way: Vec::new(),
            reads: Vec::new(),
            clock: 1,
            changes: 0,
            epochs: None,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A flush begins now.
    pub fn flush_begins(&mut self) -> u64 {
        self.tick()
    }

    /// A read begins now.
    pub fn read_begins(&mut self) -> u64 {
        let begin = self.tick();
        self.reads.push(begin);
        begin
    }

    /// A read that began at `begin` ends without bytes.
    pub fn read_fails(&mut self, begin: u64) {
        let at = self.reads.binary_search(&begin).expect("a read ends once");
        self.reads.remove(at);
    }

    /// Whether a change under way overlaps the sectors.
    #[must_use]
    pub fn overlaps(&self, volume: usize, first: u64, count: u64) -> bool {
        self.under_way.iter().any(|c| c.volume == volume && c.first < first + count && first < c.first + c.count)
    }

    /// A change begins: from now on it may be seen.
    pub fn change_begins(&mut self, volume: usize, first: u64, count: u64, kind: Change) -> ChangeId {
        let begin = self.tick();
        self.changes += 1;
        let id = ChangeId(self.changes);
        let v = &mut self.volumes[volume];
        for nth in first..first + count {
            let value = match kind {
                Change::Write { number } => crate::content::value_of(number, volume, nth),
                Change::Zero | Change::Trim => 0,
            };
            let sector = &mut v.sectors[nth as usize];
            sector.entries.push(Entry {
                value,
                change: id.0,
                begin,
                end: NEVER,
                gone: NEVER,
                softly: false,
                acknowledged: false,
                durable: false,
                buried: false,
                shaken: false,
                unsent: false,
                orphaned: false,
            });
            if !std::mem::replace(&mut sector.listed, true) {
                v.unsettled.push(nth as u32);
            }
        }
        self.under_way.push(UnderWay { id, volume, first, count, kind });
        if let Some(epochs) = &mut self.epochs {
            epochs.begins(volume, first..first + count, kind, (id.0, begin));
        }
        id
    }

    /// A change ends.
    pub fn change_ends(&mut self, id: ChangeId, ended: Ended) {
        let now = self.tick();
        let at = self.under_way.iter().position(|c| c.id == id).expect("a change ends once");
        let change = self.under_way.swap_remove(at);
        let ended =
            if change.kind == Change::Trim && matches!(ended, Ended::Well { .. }) { Ended::Unknown } else { ended };
        if let Some(epochs) = &mut self.epochs {
            epochs.ends(change.volume, change.first..change.first + change.count, id.0, ended, now);
        }
        let lost = self.volumes[change.volume].lost;
        for nth in change.first..change.first + change.count {
            let entries = &mut self.volumes[change.volume].sectors[nth as usize].entries;
            let at = entries.iter().position(|e| e.change == id.0).expect("a change under way is listed");
            match ended {
                Ended::Refused => {
                    entries.remove(at);
                }
                Ended::Unknown => entries[at].end = now,
                Ended::Well { fua } => {
                    entries[at].end = now;
                    entries[at].acknowledged = true;
                    let begin = entries[at].begin;
                    // An older change that is not durable may be sent again after this one, and then fail.
                    let alone = entries.iter().all(|e| e.durable || e.change == id.0);
                    entries[at].durable = fua;
                    if begin <= lost {
                        continue;
                    }
                    for other in entries.iter_mut().filter(|e| e.end < begin && (e.gone == NEVER || e.softly)) {
                        (other.gone, other.softly) = (now, false);
                    }
                    if fua && alone {
                        entries.iter_mut().filter(|e| e.end < begin).for_each(|e| e.buried = true);
                    }
                }
            }
        }
    }

    /// A read that began at `begin` ends with these values.
    ///
    /// # Errors
    /// What it may not have seen.
    pub fn read_ends(
        &mut self,
        volume: usize,
        first: u64,
        begin: u64,
        values: impl Iterator<Item = Option<u64>>,
    ) -> Result<(), Violation> {
        let now = self.tick();
        self.read_fails(begin);
        let v = &mut self.volumes[volume];
        for (nth, value) in (first..).zip(values) {
            let Some(value) = value else {
                return Err(Violation(format!("volume {volume}, sector {nth}: torn or foreign bytes")));
            };
            let entries = &mut v.sectors[nth as usize].entries;
            let mut seen = entries.iter().filter(|e| e.value == value && e.gone > begin).peekable();
            if seen.peek().is_none() {
                let seen = describe(value);
                let known: Vec<String> = entries.iter().map(Entry::describe).collect();
                return Err(Violation(format!(
                    "volume {volume}, sector {nth}: a read of {begin}..{now} saw {seen}; known: {}",
                    known.join("; ")
                )));
            }
            if entries.len() == 1 || begin <= v.doubt || v.unheard {
                continue;
            }
            let firmly = seen.any(|e| e.acknowledged && !e.shaken);
            for other in entries.iter_mut().filter(|e| e.value != value && e.end < begin) {
                if other.gone == NEVER || (other.softly && firmly) {
                    (other.gone, other.softly) = (now, !firmly);
                }
            }
        }
        Ok(())
    }

    /// A flush that began at `begin` succeeded: what had been acknowledged before is there for ever.
    pub fn flushed(&mut self, volume: usize, begin: u64) {
        self.heard(volume);
        let now = self.tick();
        if let Some(epochs) = &mut self.epochs {
            epochs.boundary(volume, begin);
        }
        let oldest_read = self.reads.first().copied().unwrap_or(now);
        let v = &mut self.volumes[volume];
        let mut unsettled = std::mem::take(&mut v.unsettled);
        unsettled.retain(|nth| {
            let sector = &mut v.sectors[*nth as usize];
            let mut since = 0;
            for entry in sector.entries.iter_mut().filter(|e| e.acknowledged && e.end < begin) {
                (entry.durable, entry.shaken) = (true, false);
                since = since.max(entry.begin);
            }
            for entry in &mut sector.entries {
                if entry.end < since && (entry.gone == NEVER || entry.softly) {
                    (entry.gone, entry.softly, entry.buried) = (now, false, true);
                }
                entry.buried |= !entry.softly && entry.gone <= begin;
            }
            assert!(
                sector.entries.iter().any(|e| !e.buried),
                "volume {volume}, sector {nth}: a flush of {begin}..{now} succeeded, and nothing explains what was read: {}",
                sector.entries.iter().map(Entry::describe).collect::<Vec<_>>().join("; ")
            );
            // A read under way may still return what is buried.
            sector.entries.retain(|e| !e.buried || e.gone > oldest_read);
            sector.listed = sector.entries.len() > 1 || !sector.entries[0].durable;
            sector.listed
        });
        v.unsettled = unsettled;
    }

    /// A flush failed: what was acknowledged and not yet flushed may be gone, and that was told.
    pub fn flush_failed(&mut self, volume: usize) {
        self.lost(volume);
        self.excuse(volume);
    }

    /// What was acknowledged and not yet flushed is nobody's duty any more.
    pub fn excuse(&mut self, volume: usize) {
        let v = &mut self.volumes[volume];
        for nth in &v.unsettled {
            let entries = v.sectors[*nth as usize].entries.iter_mut();
            entries.filter(|e| !e.durable).for_each(|e| e.acknowledged = false);
        }
    }

    /// The back end lost what nobody will send again. What was not flushed may be there or not.
    pub fn lost(&mut self, volume: usize) {
        self.revive(volume, |_| true);
        if let Some(epochs) = &mut self.epochs {
            epochs.lost(volume);
        }
        let v = &mut self.volumes[volume];
        v.lost = self.clock;
        for nth in &v.unsettled {
            let entries = v.sectors[*nth as usize].entries.iter_mut();
            entries.filter(|e| e.acknowledged && !e.durable).for_each(|e| e.shaken = true);
        }
    }

    /// The back end lost what nobody will send again, and its answer says so. Until that is heard, one read may find in
    /// the cache what another does not find in the back end.
    pub fn dropped(&mut self, volume: usize) {
        self.lost(volume);
        self.volumes[volume].unheard = true;
    }

    /// The answer of a back end that dropped something was heard, or what it dropped was sent again.
    pub fn heard(&mut self, volume: usize) {
        let now = self.tick();
        let v = &mut self.volumes[volume];
        if std::mem::take(&mut v.unheard) {
            v.doubt = now;
        }
    }

    /// The back end restarted without what it had not flushed. What the living process acknowledged will be sent again;
    /// what another did is gone, or not.
    pub fn restarted(&mut self, volume: usize) {
        self.revive(volume, |entry| entry.softly);
        self.forsake(volume, |entry| entry.orphaned);
        self.each_unflushed(volume, |entry| entry.unsent = true);
    }

    /// The living process begins to send again what it holds: until it is done, an older change may be over a newer one.
    pub fn sends_again(&mut self, volume: usize) {
        self.each_unflushed(volume, |entry| entry.unsent = true);
    }

    /// All that a back end may have forgotten was sent again.
    pub fn sent_again(&mut self, volume: usize) {
        self.heard(volume);
        self.each_unflushed(volume, |entry| entry.unsent = false);
    }

    /// The living process tells that something is in doubt: what was read until now decides nothing.
    pub fn doubted(&mut self, volume: usize) {
        self.revive(volume, |entry| entry.softly);
    }

    /// The process that spoke to the back end is gone. `dropped`: the back end had dropped something that the process
    /// had not yet heard of.
    pub fn client_gone(&mut self, volume: usize, dropped: bool) {
        self.heard(volume);
        self.forsake(volume, |entry| entry.unsent || entry.shaken || dropped);
        self.each_unflushed(volume, |entry| entry.orphaned = true);
    }

    fn each_unflushed(&mut self, volume: usize, change: impl Fn(&mut Entry)) {
        let v = &mut self.volumes[volume];
        for nth in &v.unsettled {
            v.sectors[*nth as usize].entries.iter_mut().filter(|e| !e.durable).for_each(&change);
        }
    }

    /// Changes that are not flushed may be gone for good, and with that older ones back. Later ones are not touched.
    fn forsake(&mut self, volume: usize, which: impl Fn(&Entry) -> bool) {
        let now = self.tick();
        let v = &mut self.volumes[volume];
        for nth in &v.unsettled {
            let entries = &mut v.sectors[*nth as usize].entries;
            let forsaken = |e: &Entry| !e.durable && which(e);
            if !entries.iter().any(forsaken) {
                continue;
            }
            v.doubt = now;
            let kept = entries.iter().filter(|e| e.acknowledged && !forsaken(e));
            let since = kept.map(|e| e.begin).max().unwrap_or(0);
            for entry in entries.iter_mut() {
                entry.acknowledged &= entry.durable || !which(entry);
                if entry.end >= since && !entry.buried {
                    (entry.gone, entry.softly) = (NEVER, false);
                }
            }
        }
    }

    fn revive(&mut self, volume: usize, which: impl Fn(&Entry) -> bool) {
        let now = self.tick();
        let v = &mut self.volumes[volume];
        v.doubt = now;
        for nth in &v.unsettled {
            for entry in v.sectors[*nth as usize].entries.iter_mut().filter(|e| which(e) && !e.buried) {
                (entry.gone, entry.softly) = (NEVER, false);
            }
        }
    }

    /// Nothing is under way, and what a sector has now it has for good: this value, which it may have.
    pub fn settle(&mut self, volume: usize, sector: u64, value: u64) {
        let now = self.tick();
        let entries = &mut self.volumes[volume].sectors[sector as usize].entries;
        let at = entries.iter().rposition(|entry| entry.value == value).expect("it was read");
        let entry = Entry { acknowledged: true, durable: true, shaken: false, unsent: false, ..entries[at] };
        *entries = vec![Entry { end: entry.end.min(now), gone: NEVER, softly: false, buried: false, ..entry }];
    }

    /// The newest bytes of a sector are lost, and that was told: once it is accepted it has this value.
    pub fn accepted(&mut self, volume: usize, sector: u64, value: u64) {
        let now = self.tick();
        let entries = &mut self.volumes[volume].sectors[sector as usize].entries;
        let last = entries.last().expect("a sector has a value");
        let flags = Entry { acknowledged: true, durable: true, buried: false, shaken: false, unsent: false, ..*last };
        *entries = vec![Entry { value, begin: now, end: now, gone: NEVER, softly: false, orphaned: false, ..flags }];
    }

    /// Forebay is gone: what was under way happened or not, and will not happen any more.
    pub fn crashed(&mut self) {
        self.reads.clear();
        for change in std::mem::take(&mut self.under_way) {
            let id = change.id;
            self.under_way.push(change);
            self.change_ends(id, Ended::Unknown);
        }
    }
}

impl Entry {
    fn describe(&self) -> String {
        let end = |at: u64| if at == NEVER { "..".to_owned() } else { at.to_string() };
        let flags = [(self.acknowledged, " acknowledged"), (self.durable, " durable"), (self.softly, " softly")];
        let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        format!("{} from {} to {}{}, gone {}", describe(self.value), self.begin, end(self.end), flags, end(self.gone))
    }
}

#[cfg(test)]
mod tests;
