//! A modelled NBD server: an export with a volatile cache, requests that arrive over connections, and answers.
//!
//! It outlives the client's process. What it received it does after a latency, in any order; what it did it answers
//! after another. It fails requests, fails flushes and forgets what they were to make durable, is restarted and loses
//! what was not flushed, and may go on for a while with what came over a connection that the client gave up.

use crate::bug::Bug;
use crate::content::SECTOR_BYTES;
use crate::dice::Dice;
use crate::front::Shared;
use crate::ledger::{Count, SharedLedger};
use crate::medium::{Keep, Medium};
use forebay_wire::nbd::client::{Kind, Op};
use forebay_wire::nbd::constants::Errno;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a server behaves. Chances are of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// Latencies are up to this.
    pub latency_ns: u64,
    /// Requests other than flushes that fail.
    pub errors: u32,
    /// Flushes that fail, and drop what they cover.
    pub flush_errors: u32,
    /// Requests that take up to `slow_ns`.
    pub slow: u32,
    /// See `slow`.
    pub slow_ns: u64,
    /// Requests that cut their connection.
    pub cuts: u32,
}

impl Conduct {
    /// No faults.
    #[must_use]
    pub fn sound(latency_ns: u64) -> Self {
        Self { latency_ns, errors: 0, flush_errors: 0, slow: 0, slow_ns: 0, cuts: 0 }
    }
}

/// A request on its way to being done.
#[derive(Debug)]
pub struct Arrived {
    /// The connection that it came over; unique for ever.
    pub link: u64,
    /// The client's name for it.
    pub cookie: u64,
    /// What to do.
    pub op: Op,
    /// What to write.
    pub data: Vec<u8>,
}

/// An answer on its way to the client.
#[derive(Debug)]
pub struct Answer {
    /// Over which connection.
    pub link: u64,
    /// See [`Arrived`].
    pub cookie: u64,
    /// How it ended.
    pub result: Result<(), Errno>,
    /// What was read.
    pub data: Vec<u8>,
}

/// See the module.
pub struct Server {
    /// The export.
    pub medium: Rc<RefCell<Medium>>,
    /// How it behaves from now on.
    pub conduct: Cell<Conduct>,
    /// Counts restarts: a connection belongs to one of them.
    pub incarnation: Cell<u64>,
    /// It takes no connections before.
    pub up_at_ns: Cell<u64>,
    /// It has dropped something acknowledged that is not sent again, and the client has not yet told what is in doubt.
    pub dropped: Cell<bool>,
    /// What it can do.
    pub fua: bool,
    /// A trim zeroes; else it does nothing.
    pub trim_zeroes: bool,
    volume: usize,
    shared: Rc<Shared>,
    ledger: SharedLedger,
    dice: RefCell<Dice>,
    requests: RefCell<BTreeMap<(u64, u64), Arrived>>,
    answers: RefCell<BTreeMap<(u64, u64), Answer>>,
    /// Connections that a request has cut.
    cut: RefCell<Vec<u64>>,
    numbers: Cell<u64>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("volume", &self.volume).finish_non_exhaustive()
    }
}

impl Server {
    /// A sound server of zeroes.
    #[must_use]
    pub fn new(
        volume: usize,
        bytes: u64,
        latency_ns: u64,
        shared: Rc<Shared>,
        ledger: SharedLedger,
        mut dice: Dice,
    ) -> Rc<Self> {
        Rc::new(Self {
            medium: Rc::new(RefCell::new(Medium::new(bytes))),
            conduct: Cell::new(Conduct::sound(latency_ns)),
            incarnation: Cell::new(0),
            up_at_ns: Cell::new(0),
            dropped: Cell::new(false),
            fua: dice.chance(700),
            trim_zeroes: dice.chance(500),
            volume,
            shared,
            ledger,
            dice: RefCell::new(dice),
            requests: RefCell::default(),
            answers: RefCell::default(),
            cut: RefCell::default(),
            numbers: Cell::new(0),
        })
    }

    /// A number never given before.
    pub fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// The volume can no longer be expected to work.
    pub fn trouble(&self) {
        self.shared.troubled[self.volume].set(true);
    }

    /// A request is sent.
    pub fn send(&self, request: Arrived) {
        if !self.ledger.io() {
            return;
        }
        let conduct = self.conduct.get();
        let mut dice = self.dice.borrow_mut();
        let mut in_ns = 1 + dice.duration_ns(conduct.latency_ns);
        if dice.chance(conduct.slow) {
            let late_ns = dice.duration_ns(conduct.slow_ns);
            let hangs = late_ns > 5_000_000_000;
            let what = if hangs { Count::FaultBackendHang } else { Count::FaultBackendSlow };
            self.ledger.count(what, request.cookie, late_ns);
            if hangs {
                self.trouble();
            }
            in_ns += late_ns;
        }
        if dice.chance(conduct.cuts) {
            self.ledger.count(Count::FaultConnectionLost, request.link, 0);
            // Cut again and again, an operation may never get through in time.
            self.trouble();
            self.cut.borrow_mut().push(request.link);
        }
        self.requests.borrow_mut().insert((self.ledger.now_ns() + in_ns, self.number()), request);
    }

    /// When something is to be done, or an answer arrives.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let at = |(at_ns, _): (u64, u64)| at_ns;
        let request = self.requests.borrow().first_key_value().map(|(key, _)| at(*key));
        let answer = self.answers.borrow().first_key_value().map(|(key, _)| at(*key));
        request.into_iter().chain(answer).min()
    }

    /// Does what is due by `until_ns`.
    pub fn work(&self, until_ns: u64) {
        loop {
            let mut requests = self.requests.borrow_mut();
            let Some(entry) = requests.first_entry().filter(|entry| entry.key().0 <= until_ns) else { return };
            let request = entry.remove();
            drop(requests);
            let (result, data) = self.execute(&request.op, &request.data);
            let in_ns = 1 + self.dice.borrow_mut().duration_ns(self.conduct.get().latency_ns);
            let answer = Answer { link: request.link, cookie: request.cookie, result, data };
            self.answers.borrow_mut().insert((until_ns + in_ns, self.number()), answer);
        }
    }

    /// The next answer that has arrived by `now_ns`.
    pub fn answer(&self, now_ns: u64) -> Option<Answer> {
        let mut answers = self.answers.borrow_mut();
        let entry = answers.first_entry().filter(|entry| entry.key().0 <= now_ns)?;
        Some(entry.remove())
    }

    /// Connections that have been cut since asked last.
    pub fn take_cut(&self) -> Vec<u64> {
        std::mem::take(&mut self.cut.borrow_mut())
    }

    /// Whether some have.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        !self.cut.borrow().is_empty()
    }

    fn execute(&self, op: &Op, data: &[u8]) -> (Result<(), Errno>, Vec<u8>) {
        let conduct = self.conduct.get();
        let mut dice = self.dice.borrow_mut();
        let mut medium = self.medium.borrow_mut();
        let (offset, length) = (op.offset, u64::from(op.length));
        let fails = dice.chance(if op.kind == Kind::Flush { conduct.flush_errors } else { conduct.errors });
        if fails {
            self.trouble();
            if op.kind == Kind::Flush {
                let gone = medium.lose(Keep::Some(dice.pick(&[0, 500])), &mut dice);
                self.ledger.count(Count::FaultServerDropped, self.volume as u64, gone);
                self.dropped.set(true);
                self.shared.oracle.borrow_mut().dropped(self.volume);
            } else {
                self.ledger.count(Count::FaultBackendError, self.volume as u64, offset);
            }
            if op.kind == Kind::Flush && self.ledger.has(Bug::LossHidden) {
                return (Ok(()), Vec::new());
            }
            if op.kind == Kind::Write {
                for (nth, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                    if dice.chance(500) {
                        medium.write(offset + (nth * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
            return (Err(Errno::Io), Vec::new());
        }
        match op.kind {
            Kind::Read => {
                let mut bytes = medium.current()[offset as usize..(offset + length) as usize].to_vec();
                if self.ledger.has(Bug::ReadHalved) && dice.chance(20) {
                    bytes[length as usize / 2..].fill(0xee);
                }
                return (Ok(()), bytes);
            }
            Kind::Flush if self.ledger.has(Bug::BackendIgnoresFlush) => {}
            Kind::Flush => {
                let mark = medium.mark();
                medium.flush(mark);
            }
            Kind::Write if self.ledger.has(Bug::WriteForgotten) && dice.chance(20) => {}
            Kind::Write if self.ledger.has(Bug::WriteMisdirected) && dice.chance(20) => {
                let sectors = (medium.bytes() - length) / SECTOR_BYTES as u64;
                medium.write(dice.below(sectors + 1) * SECTOR_BYTES as u64, data);
            }
            Kind::Write => medium.write(offset, data),
            Kind::Trim if !self.trim_zeroes => {}
            Kind::Trim | Kind::WriteZeroes { .. } => medium.zero(offset, length),
        }
        if op.fua && op.kind.changes() && !self.ledger.has(Bug::BackendIgnoresFua) {
            medium.settle(offset, length);
        }
        (Ok(()), Vec::new())
    }

    /// The peer's end of a connection was seen: what came over it was done or never will be.
    pub fn forget_link(&self, link: u64) {
        for request in self.take_requests(link) {
            if self.dice.borrow_mut().chance(500) {
                // Nobody is left to hear how it ended.
                let _ = self.execute(&request.op, &request.data);
            }
        }
        self.answers.borrow_mut().retain(|_, answer| answer.link != link);
    }

    /// The client gave a connection up: what came over it may still be done, within `settle_ns`.
    pub fn abandon_link(&self, link: u64, settle_ns: u64) {
        for request in self.take_requests(link) {
            let mut dice = self.dice.borrow_mut();
            if dice.chance(500) {
                let in_ns = dice.below(settle_ns);
                self.ledger.count(Count::FaultLateExecution, link, in_ns);
                self.requests.borrow_mut().insert((self.ledger.now_ns() + in_ns, self.number()), request);
            }
        }
        self.answers.borrow_mut().retain(|_, answer| answer.link != link);
    }

    fn take_requests(&self, link: u64) -> Vec<Arrived> {
        let mut requests = self.requests.borrow_mut();
        let of_link: Vec<(u64, u64)> = requests.iter().filter(|(_, r)| r.link == link).map(|(key, _)| *key).collect();
        of_link.into_iter().map(|key| requests.remove(&key).expect("it was seen")).collect()
    }

    /// The client's process is gone.
    pub fn client_gone(&self) {
        let requests = std::mem::take(&mut *self.requests.borrow_mut());
        for request in requests.into_values() {
            if self.dice.borrow_mut().chance(500) {
                // Nobody is left to hear how it ended.
                let _ = self.execute(&request.op, &request.data);
            }
        }
        self.answers.borrow_mut().clear();
        self.shared.oracle.borrow_mut().client_gone(self.volume, self.dropped.replace(false));
    }

    /// The server dies and starts again. What it had not flushed is gone, or some of it.
    pub fn restart(&self, down_ns: u64) {
        let requests = std::mem::take(&mut *self.requests.borrow_mut());
        for request in requests.into_values() {
            if self.dice.borrow_mut().chance(300) {
                // Nobody is left to hear how it ended.
                let _ = self.execute(&request.op, &request.data);
            }
        }
        self.delay_answers();
        self.incarnation.set(self.incarnation.get() + 1);
        self.up_at_ns.set(self.ledger.now_ns() + down_ns);
        let had = self.medium.borrow().has_unflushed();
        let keep = Keep::Some(self.dice.borrow_mut().pick(&[0, 0, 500, 1000]));
        let gone = self.medium.borrow_mut().lose(keep, &mut self.dice.borrow_mut());
        self.ledger.count(Count::FaultServerRestart, self.volume as u64, down_ns);
        if had {
            self.ledger.count(Count::FaultServerForgot, self.volume as u64, gone);
            self.shared.oracle.borrow_mut().restarted(self.volume);
        }
    }

    /// What was answered is still in a buffer on the way, and arrives after the server is gone.
    fn delay_answers(&self) {
        let mut dice = self.dice.borrow_mut();
        let delayed = std::mem::take(&mut *self.answers.borrow_mut()).into_iter().map(|((at_ns, number), answer)| {
            let late_ns = if dice.chance(500) { dice.duration_ns(300_000_000) } else { 0 };
            ((at_ns + late_ns, number), answer)
        });
        let delayed = delayed.collect();
        *self.answers.borrow_mut() = delayed;
    }

    /// The client has heard that a flush failed.
    pub fn flush_failed(&self) {
        self.shared.oracle.borrow_mut().heard(self.volume);
    }

    /// A replayed write was refused: what it had been acknowledged for is lost.
    pub fn replay_refused(&self) {
        self.ledger.count(Count::FaultReplayRefused, self.volume as u64, 0);
        self.dropped.set(true);
        self.shared.oracle.borrow_mut().lost(self.volume);
    }

    /// The client begins to send again what it holds, old over new at first.
    pub fn replay_starts(&self) {
        self.shared.oracle.borrow_mut().sends_again(self.volume);
    }

    /// The client has sent again what it held.
    pub fn replayed(&self) {
        self.shared.oracle.borrow_mut().sent_again(self.volume);
    }

    /// The client tells what is in doubt: what was read until now decides nothing.
    pub fn doubted(&self, is_lost: bool) {
        let mut oracle = self.shared.oracle.borrow_mut();
        if is_lost && self.dropped.replace(false) { oracle.lost(self.volume) } else { oracle.doubted(self.volume) }
    }

    /// The machine that it runs on loses power, with the client's.
    pub fn lose_power(&self) {
        self.incarnation.set(self.incarnation.get() + 1);
        let gone = {
            let mut dice = self.dice.borrow_mut();
            let keep = Keep::Some(dice.pick(&[0, 500, 1000]));
            self.medium.borrow_mut().lose(keep, &mut dice)
        };
        self.ledger.add(Count::FaultForgottenWrite, gone);
    }
}
