//! Modelled clients: several requests at a time, payloads that come late or never, replies that are taken slowly.
//!
//! Every answer is held against the oracle the moment the shard gives it. Bytes of a reply are looked at twice: when
//! they are handed over and when the client has taken them; in between nobody may touch them. When the power is out,
//! nothing comes from clients any more, and no answer reaches one.

use crate::back::epochs::Epochs;
use crate::bug::Bug;
use crate::content::{SECTOR_BYTES, fill, value_in};
use crate::dice::Dice;
use crate::ledger::{Count, SharedLedger};
use crate::medium::Medium;
use crate::oracle::{Change, ChangeId, Ended, Oracle};
use crate::traffic::{Ask, Traffic};
use crate::transfer::Transfer;
use forebay_core::{Piece, ReplyError, RequestId, VolumeId, WriteMode};
use forebay_engine::front::{Front, FrontEvent};
use forebay_uring::Arena;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Events that one poll gives at most.
const EVENTS_MAX: usize = 64;
/// A request that takes longer than this although its client does its part is stuck.
const STUCK_NS: u64 = 150_000_000_000;

/// What clients share with the rest of the world, and what outlives a crash.
#[derive(Debug)]
pub struct Shared {
    /// See there.
    pub oracle: RefCell<Oracle>,
    /// How clients behave now.
    pub traffic: RefCell<Traffic>,
    /// Client operations issued in all lives.
    pub operations: Cell<u64>,
    /// Writes numbered so far.
    pub writes: Cell<u64>,
    /// By volume: its back end had a reason to fail something.
    pub troubled: Vec<Cell<bool>>,
    /// The generation could not be raised at some time: writes may fail.
    pub generation_troubled: Cell<bool>,
}

/// What a front end knows of a volume.
#[derive(Clone, Debug)]
pub struct FrontVolume {
    /// Its size.
    pub sectors: u64,
    /// How it treats writes.
    pub mode: WriteMode,
}

#[derive(Debug)]
struct Request {
    chain: Option<usize>,
    ask: Ask,
    volume: usize,
    first: u64,
    count: u64,
    fua: bool,
    begin: u64,
    start_ns: u64,
    change: Option<ChangeId>,
    /// The shard waits for the client.
    clients_turn: bool,
    /// It makes no sense, and has to be refused.
    invalid: bool,
    /// Its bytes are to be those of the back end.
    compare: bool,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Issue { chain: usize },
    Payload { request: RequestId },
    Vanish { request: RequestId },
    Sent { request: RequestId },
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    volume: usize,
    /// Reads on from here.
    cursor: Option<u64>,
}

/// See the module.
pub struct SimFront {
    shared: Rc<Shared>,
    arena: Rc<Arena>,
    ledger: SharedLedger,
    dice: Dice,
    volumes: Vec<FrontVolume>,
    chains: Vec<Chain>,
    due: BTreeMap<(u64, u64), Due>,
    numbers: u64,
    requests: BTreeMap<u64, Request>,
    receiving: BTreeMap<RequestId, Transfer>,
    sending: BTreeMap<RequestId, Transfer>,
    /// For [`Bug::SentEarly`]: what the kernel still sends, and until when.
    early: Vec<(u64, Transfer)>,
    /// Pushed by the world, for the next poll.
    orders: Vec<FrontEvent>,
    /// The back ends' contents, for comparisons.
    truth: Vec<Rc<RefCell<Medium>>>,
    drained: Option<Result<(), ReplyError>>,
    flush_results: Vec<Result<(), ReplyError>>,
}

impl SimFront {
    /// Clients of which `chains` requests are in flight at a time. They begin at once.
    #[must_use]
    pub fn new(
        shared: Rc<Shared>,
        arena: Rc<Arena>,
        ledger: SharedLedger,
        mut dice: Dice,
        volumes: Vec<FrontVolume>,
        chains: usize,
        truth: Vec<Rc<RefCell<Medium>>>,
    ) -> Self {
        let chains: Vec<Chain> = (0..chains)
            .map(|_| Chain { volume: dice.below(volumes.len() as u64) as usize, cursor: dice.chance(150).then_some(0) })
            .collect();
        let mut front = Self {
            shared,
            arena,
            ledger,
            dice,
            volumes,
            chains,
            due: BTreeMap::new(),
            numbers: 0,
            requests: BTreeMap::new(),
            receiving: BTreeMap::new(),
            sending: BTreeMap::new(),
            early: Vec::new(),
            orders: Vec::new(),
            truth,
            drained: None,
            flush_results: Vec::new(),
        };
        front.wake();
        front
    }

    /// Clients that had stopped ask again.
    pub fn wake(&mut self) {
        let busy: Vec<usize> = self
            .due
            .values()
            .filter_map(|due| if let Due::Issue { chain } = due { Some(*chain) } else { None })
            .chain(self.requests.values().filter_map(|r| r.chain))
            .collect();
        for chain in (0..self.chains.len()).filter(|chain| !busy.contains(chain)) {
            self.later(0, Due::Issue { chain });
        }
    }

    /// Whether nothing is asked and nothing is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.sending.is_empty() && self.receiving.is_empty() && self.orders.is_empty()
    }

    /// Asks for an orderly stop.
    pub fn drain(&mut self) {
        self.ledger.count(Count::Drain, 0, 0);
        self.orders.push(FrontEvent::Drain { tag: 0 });
    }

    /// How the stop ended, once it has.
    #[must_use]
    pub fn drained(&self) -> Option<Result<(), ReplyError>> {
        self.drained
    }

    /// Flushes every volume; see [`Self::flush_results`].
    pub fn flush_all(&mut self) {
        self.flush_results.clear();
        for volume in 0..self.volumes.len() {
            let request = self.request(None, Ask::Flush, volume, (0, 0));
            self.order(request);
        }
    }

    /// How the flushes of [`Self::flush_all`] ended.
    pub fn flush_results(&self) -> &[Result<(), ReplyError>] {
        &self.flush_results
    }

    /// Reads a stretch of a volume and compares it with the back end, which must be at rest.
    pub fn compare(&mut self, volume: usize, first: u64, count: u64) {
        let request = Request { compare: true, ..self.request(None, Ask::Read, volume, (first, count)) };
        self.order(request);
    }

    /// Nobody waits for longer than anything may take.
    pub fn assert_nothing_is_stuck(&self) {
        let now_ns = self.ledger.now_ns();
        for (tag, request) in &self.requests {
            let waited_ns = now_ns - request.start_ns;
            assert!(request.clients_turn || waited_ns < STUCK_NS, "request {tag} is not answered: {request:?}");
        }
    }

    fn later(&mut self, in_ns: u64, due: Due) {
        self.numbers += 1;
        self.due.insert((self.ledger.now_ns() + in_ns, self.numbers), due);
    }

    fn request(&mut self, chain: Option<usize>, ask: Ask, volume: usize, (first, count): (u64, u64)) -> Request {
        Request {
            chain,
            ask,
            volume,
            first,
            count,
            fua: false,
            begin: 0,
            start_ns: self.ledger.now_ns(),
            change: None,
            clients_turn: false,
            invalid: false,
            compare: false,
        }
    }

    fn issue(&mut self, chain: usize, events: &mut Vec<FrontEvent>) {
        let shared = Rc::clone(&self.shared);
        let traffic = shared.traffic.borrow();
        if !traffic.on {
            return;
        }
        shared.operations.set(shared.operations.get() + 1);
        let dice = &mut self.dice;
        let Chain { mut volume, cursor } = self.chains[chain];
        if dice.chance(100) {
            volume = dice.below(self.volumes.len() as u64) as usize;
        }
        let sectors = self.volumes[volume].sectors;
        let mut ask = traffic.ask(dice);
        let mut range = traffic.range(dice, volume, sectors, ask);
        if let Some(at) = cursor
            && volume == self.chains[chain].volume
        {
            let count = dice.pick(&[8, 64, 128]).min(traffic.sectors_max).min(sectors - at);
            (ask, range) = (Ask::Read, (at, count));
            let next = if at + count >= sectors { 0 } else { at + count };
            self.chains[chain].cursor = Some(next);
            self.ledger.count(Count::StateStream, at, count);
        }
        let fua = dice.chance(traffic.fua) && matches!(ask, Ask::Write | Ask::Trim | Ask::WriteZeroes);
        let invalid = dice.chance(traffic.invalid) && ask != Ask::Flush;
        if invalid {
            range = (sectors - range.1.min(sectors) + 1, range.1);
        }
        drop(traffic);
        let mut request = Request { fua, invalid, ..self.request(Some(chain), ask, volume, range) };
        let read_only = self.volumes[volume].mode == WriteMode::ReadOnly;
        if matches!(ask, Ask::Trim | Ask::WriteZeroes) && !invalid && !read_only {
            let change = if ask == Ask::Trim { Change::Trim } else { Change::Zero };
            request.change = Some(self.begin_change(&request, change));
        }
        if ask == Ask::Read && self.shared.oracle.borrow().overlaps(volume, range.0, range.1) {
            self.ledger.count(Count::StateReadUnderWrite, range.0, range.1);
        }
        let event = self.enter(request);
        events.push(event);
    }

    fn begin_change(&self, request: &Request, change: Change) -> ChangeId {
        let mut oracle = self.shared.oracle.borrow_mut();
        if oracle.overlaps(request.volume, request.first, request.count) {
            self.ledger.count(Count::StateOverlap, request.first, request.count);
        }
        oracle.change_begins(request.volume, request.first, request.count, change)
    }

    fn order(&mut self, request: Request) {
        let event = self.enter(request);
        self.orders.push(event);
    }

    /// Takes a request into the books, and gives it as the shard gets it.
    fn enter(&mut self, mut request: Request) -> FrontEvent {
        let mut oracle = self.shared.oracle.borrow_mut();
        request.begin = match request.ask {
            Ask::Read => oracle.read_begins(),
            Ask::Flush => oracle.flush_begins(),
            _ => 0,
        };
        drop(oracle);
        self.numbers += 1;
        let tag = self.numbers;
        let volume = VolumeId(request.volume as u16);
        let sector = SECTOR_BYTES as u64;
        let (offset, length, fua) = (request.first * sector, request.count * sector, request.fua);
        let (what, event) = match request.ask {
            Ask::Read => (Count::Read, FrontEvent::Read { volume, tag, offset, length: length as u32 }),
            Ask::Write => (
                if fua { Count::WriteFua } else { Count::Write },
                FrontEvent::Write { volume, tag, offset, length: length as u32, fua },
            ),
            Ask::Flush => (Count::Flush, FrontEvent::Flush { volume, tag }),
            Ask::Trim => (Count::Trim, FrontEvent::Trim { volume, tag, offset, length, fua }),
            Ask::WriteZeroes => {
                let no_hole = tag.is_multiple_of(2);
                (Count::WriteZeroes, FrontEvent::WriteZeroes { volume, tag, offset, length, fua, no_hole })
            }
            Ask::Evict => (Count::Evict, FrontEvent::Evict { volume, tag, offset, length }),
        };
        self.ledger.count(what, tag << 4 | u64::from(volume.0), request.first << 20 | request.count);
        self.requests.insert(tag, request);
        event
    }

    /// The payload of a write arrives.
    fn deliver(&mut self, id: RequestId) -> FrontEvent {
        let mut transfer = self.receiving.remove(&id).expect("a payload is delivered once");
        transfer.release(&self.arena);
        let request = self.requests.get(&transfer.tag).expect("its request is under way");
        let number = self.shared.writes.get() + 1;
        self.shared.writes.set(number);
        let change = self.begin_change(request, Change::Write { number });
        let (volume, mut sector) = (request.volume, request.first);
        let torn = self.ledger.has(Bug::PayloadTorn) && self.dice.chance(20);
        for (nth, piece) in transfer.pieces.iter().enumerate() {
            let halved = torn && nth + 1 == transfer.pieces.len();
            let length = if halved { piece.length / 2 } else { piece.length };
            self.arena.with_bytes_mut(piece.frame.0, piece.at, length, |bytes| {
                for bytes in bytes.chunks_exact_mut(SECTOR_BYTES) {
                    fill(bytes, crate::content::value_of(number, volume, sector));
                    sector += 1;
                }
            });
        }
        self.ledger.say(|| format!("write {number} is request {}", transfer.tag));
        self.ledger.count(Count::Received, transfer.tag, number);
        let request = self.requests.get_mut(&transfer.tag).expect("its request is under way");
        (request.change, request.clients_turn) = (Some(change), false);
        request.start_ns = self.ledger.now_ns();
        FrontEvent::Received { request: id }
    }

    /// The client goes away in the middle of a write.
    fn vanish(&mut self, id: RequestId) -> FrontEvent {
        let mut transfer = self.receiving.remove(&id).expect("a payload is delivered once");
        transfer.release(&self.arena);
        for piece in &transfer.pieces {
            let some = self.dice.below(u64::from(piece.length) + 1) as u32;
            self.arena.with_bytes_mut(piece.frame.0, piece.at, some, |bytes| bytes.fill(0xdd));
        }
        self.ledger.count(Count::FaultVanished, transfer.tag, 0);
        self.ledger.count(Count::NotReceived, transfer.tag, 0);
        self.forget(transfer.tag);
        FrontEvent::NotReceived { request: id }
    }

    fn sent(&mut self, id: RequestId) -> FrontEvent {
        let transfer = self.sending.remove(&id).expect("a reply is sent once");
        self.ledger.count(Count::Sent, transfer.tag, 0);
        transfer.sent(&self.arena);
        FrontEvent::Sent { request: id }
    }

    /// A request is over; its chain goes on after a pause.
    fn forget(&mut self, tag: u64) -> Request {
        let request = self.requests.remove(&tag).expect("a request is answered once");
        if let Some(chain) = request.chain {
            let think_ns = self.shared.traffic.borrow().think_ns;
            let pause_ns = self.dice.duration_ns(think_ns);
            self.later(pause_ns, Due::Issue { chain });
        }
        request
    }

    fn transfer_ns(&mut self) -> u64 {
        let (slow, slow_ns) = {
            let traffic = self.shared.traffic.borrow();
            (traffic.slow, traffic.slow_ns)
        };
        if self.dice.chance(slow) {
            self.ledger.count(Count::FaultSlowReceiver, 0, 0);
            self.dice.duration_ns(slow_ns)
        } else {
            self.dice.duration_ns(50_000)
        }
    }

    fn count_reply(&self, tag: u64, result: Result<(), ReplyError>) {
        let what = match result {
            Ok(()) => Count::ReplyOk,
            Err(ReplyError::Io) => Count::ReplyIo,
            Err(ReplyError::Busy) => Count::ReplyBusy,
            Err(ReplyError::Invalid) => Count::ReplyInvalid,
            Err(ReplyError::ReadOnly) => Count::ReplyReadOnly,
            Err(ReplyError::ShuttingDown) => Count::ReplyShuttingDown,
            Err(ReplyError::Unsupported) => panic!("request {tag}: every back end can do this"),
        };
        self.ledger.count(what, tag, 0);
    }

    /// An error needs a reason.
    fn assert_excused(&self, tag: u64, request: &Request, error: ReplyError) {
        let writes = !matches!(request.ask, Ask::Read | Ask::Flush | Ask::Evict);
        let read_only = self.volumes[request.volume].mode == WriteMode::ReadOnly;
        let excused = match error {
            ReplyError::Io => {
                // One back end's silence may use up the frames that another volume's requests wait for.
                let troubled = self.shared.troubled.iter().any(Cell::get);
                troubled || (writes && self.shared.generation_troubled.get())
            }
            ReplyError::Invalid => request.invalid,
            ReplyError::ReadOnly => read_only && writes,
            _ => true,
        };
        assert!(excused, "request {tag} failed with {error:?} for no reason: {request:?}");
    }

    /// A read failed: perhaps since nobody has what it asked for.
    fn count_lost(&self, request: &Request) {
        let oracle = self.shared.oracle.borrow();
        let is_gone = |epochs: &Epochs| {
            (request.first..request.first + request.count).any(|sector| epochs.is_gone(request.volume, sector))
        };
        self.ledger.add(Count::StateLostRead, u64::from(oracle.epochs.as_ref().is_some_and(is_gone)));
    }

    fn change_ended(&self, request: &Request, result: Result<(), ReplyError>) {
        let Some(change) = request.change else { return };
        let ended = match result {
            Ok(()) => Ended::Well { fua: request.fua },
            Err(ReplyError::Io) => Ended::Unknown,
            Err(_) => Ended::Refused,
        };
        self.shared.oracle.borrow_mut().change_ends(change, ended);
    }

    fn flush_ended(&mut self, request: &Request, result: Result<(), ReplyError>) {
        let mut oracle = self.shared.oracle.borrow_mut();
        match result {
            Ok(()) => oracle.flushed(request.volume, request.begin),
            Err(ReplyError::Io) => oracle.flush_failed(request.volume),
            Err(_) => {}
        }
        if request.chain.is_none() {
            self.flush_results.push(result);
        }
    }

    fn compare_with_truth(&self, request: &Request, pieces: &[Piece]) {
        let truth = self.truth[request.volume].borrow();
        let mut at = request.first as usize * SECTOR_BYTES;
        for piece in pieces {
            let length = piece.length as usize;
            self.arena.with_bytes(piece.frame.0, piece.at, piece.length, |bytes| {
                let there = &truth.current()[at..at + length];
                for (nth, (is, there)) in bytes.chunks(SECTOR_BYTES).zip(there.chunks(SECTOR_BYTES)).enumerate() {
                    let describe = |bytes| value_in(bytes).map_or("torn".to_owned(), crate::content::describe);
                    assert!(
                        is == there,
                        "volume {}, sector {}: the cache has {}, the back end {}",
                        request.volume,
                        at / SECTOR_BYTES + nth,
                        describe(is),
                        describe(there)
                    );
                }
            });
            at += length;
        }
    }
}

impl Front for SimFront {
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>) {
        if self.ledger.is_cut() {
            return;
        }
        events.append(&mut self.orders);
        while let Some(at) = self.early.iter().position(|(until_ns, _)| *until_ns <= now_ns) {
            self.early.swap_remove(at).1.sent(&self.arena);
        }
        for _ in 0..EVENTS_MAX {
            let Some(entry) = self.due.first_entry() else { break };
            if entry.key().0 > now_ns {
                break;
            }
            match entry.remove() {
                Due::Issue { chain } => self.issue(chain, events),
                Due::Payload { request } => {
                    let event = self.deliver(request);
                    events.push(event);
                }
                Due::Vanish { request } => {
                    let event = self.vanish(request);
                    events.push(event);
                }
                Due::Sent { request } => {
                    let event = self.sent(request);
                    events.push(event);
                }
            }
        }
    }

    fn receive(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        if self.ledger.is_cut() {
            return;
        }
        self.ledger.count(Count::Receive, tag, u64::from(request.0));
        self.requests.get_mut(&tag).expect("a request under way").clients_turn = true;
        self.receiving.insert(request, Transfer::receiving(&self.arena, tag, pieces));
        let vanish = self.shared.traffic.borrow().vanish;
        let due = if self.dice.chance(vanish) { Due::Vanish { request } } else { Due::Payload { request } };
        let in_ns = self.transfer_ns();
        self.later(in_ns, due);
    }

    fn reply_read(&mut self, _now_ns: u64, tag: u64, id: RequestId, pieces: &[Piece]) {
        if self.ledger.is_cut() {
            return;
        }
        let request = self.forget(tag);
        assert!(!request.invalid, "request {tag} makes no sense and is answered: {request:?}");
        let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        assert_eq!(length, request.count * SECTOR_BYTES as u64, "request {tag} is answered in full");
        let mut values = Vec::with_capacity(request.count as usize);
        for piece in pieces {
            self.arena.with_bytes(piece.frame.0, piece.at, piece.length, |bytes| {
                values.extend(bytes.chunks_exact(SECTOR_BYTES).map(value_in));
            });
        }
        values.iter().for_each(|value| self.ledger.mix(value.unwrap_or(u64::MAX)));
        self.ledger.count(Count::ReplyRead, tag, u64::from(id.0));
        let mut oracle = self.shared.oracle.borrow_mut();
        if let Err(violation) = oracle.read_ends(request.volume, request.first, request.begin, values.into_iter()) {
            panic!("request {tag}: {}", violation.0);
        }
        drop(oracle);
        if request.compare {
            self.compare_with_truth(&request, pieces);
        }
        let transfer = Transfer::sending(&self.arena, tag, pieces);
        let in_ns = self.transfer_ns();
        if self.ledger.has(Bug::SentEarly) {
            self.early.push((self.ledger.now_ns() + in_ns, transfer));
            return self.orders.push(FrontEvent::Sent { request: id });
        }
        self.sending.insert(id, transfer);
        self.later(in_ns, Due::Sent { request: id });
    }

    fn reply(&mut self, _now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        if self.ledger.is_cut() {
            return;
        }
        self.count_reply(tag, result);
        if tag == 0 {
            assert!(self.drained.is_none(), "an orderly stop is answered once");
            self.drained = Some(result);
            return;
        }
        let request = self.forget(tag);
        match result {
            Ok(()) => assert!(!request.invalid, "request {tag} makes no sense and is done: {request:?}"),
            Err(error) => self.assert_excused(tag, &request, error),
        }
        match request.ask {
            Ask::Read => {
                assert!(result.is_err(), "a read is answered with bytes");
                self.count_lost(&request);
                self.shared.oracle.borrow_mut().read_fails(request.begin);
            }
            Ask::Flush => self.flush_ended(&request, result),
            Ask::Evict => {}
            Ask::Write | Ask::Trim | Ask::WriteZeroes => self.change_ended(&request, result),
        }
    }

    fn turn_end(&mut self, _now_ns: u64) {}

    fn next_ns(&self) -> Option<u64> {
        if self.orders.is_empty() { self.due.first_key_value().map(|((at_ns, _), _)| *at_ns) } else { Some(0) }
    }
}
