//! The gateway: the front end of a shard, with clients that read objects and change them, through it and past it.
//!
//! How: what it does at a time is in [`Gateway::due`]. A read is planned, asks the [`Store`], and is served from the cache part by part, or its body is
//! kept on its way, as in `forebay-s3`; but all here is one thread, and each wait is as long as the dice say.
//!
//! What is checked: [`Gateway::serve`], that the version was current when it had to be; [`Gateway::reply_read`], that each byte is its own.

mod body;
mod by_address;
mod change;

use self::body::Body;
use self::by_address::Addressed;
use self::change::Changing;
use super::bug::Bug;
use super::device::SharedDesk;
use super::met::{Count, SharedMet};
use super::store::{Answer, Question, Store};
use crate::dice::Dice;
use crate::ledger::SharedLedger;
use crate::transfer::Transfer;
use forebay_core::{Piece, ReplyError, RequestId, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use forebay_objects::http::header::{HeaderMap, HeaderName, HeaderValue, RANGE};
use forebay_objects::http::{Method, StatusCode, Uri};
use forebay_objects::{
    Confirmed, Held, Kept, Learned, Learning, Objects, ObjectsConfig, Plan, Read, Target, VersionId, Who,
};
use forebay_uring::Arena;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

const VOLUME: VolumeId = VolumeId(0);
const FILLS_MAX: usize = 16;
/// Whatever is begun ends within this time.
const PATIENCE_NS: u64 = 600_000_000_000;
/// What a client that takes its time waits for at most.
const SLOW_NS: u64 = 8_000_000_000;

/// What outlives the process, and the world's hand on it.
pub struct Shared {
    /// The store.
    pub store: RefCell<Store>,
    /// Time, and what devices do.
    pub ledger: SharedLedger,
    /// What is met.
    pub met: SharedMet,
    /// Reads and changes so far.
    pub operations: Cell<u64>,
    /// Clients begin something new.
    pub is_on: Cell<bool>,
}

/// How a life's gateway is set up.
#[derive(Clone, Copy, Debug)]
pub struct GatewaySetup {
    /// As in the product.
    pub objects: ObjectsConfig,
    /// The store's word is to be believed for so long.
    pub ttl_ns: u64,
    /// What clients do at one time.
    pub chains: usize,
    /// Each wait is up to this.
    pub wait_ns: u64,
    /// Reads of a thousand that are; the others are changes.
    pub reads: u32,
    /// Evictions of a thousand operations.
    pub evictions: u32,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Issue,
    /// At the store.
    Arrive(u64),
    /// The answer is back.
    Back(u64),
    /// A piece of the body.
    Piece(u64),
    /// The client wants more.
    Next(u64),
    ChangeArrive(u64),
    ChangeBack(u64),
    Sent(RequestId),
    /// A read by addresses: it is looked up, is at the store, is back.
    LookUp(u64),
    AddressArrive(u64),
    AddressBack(u64),
    Clean,
}

/// A read under way.
struct Reading {
    begin_ns: u64,
    key: usize,
    read: Read,
    question: Question,
    /// The client takes its time.
    is_slow: bool,
    stage: Stage,
}

enum Stage {
    /// In nobody's hands but this call's.
    Between,
    Asked(Why, Option<Answer>),
    Body(Body),
    Hit(Hit),
}

/// What is asked for.
enum Why {
    Learn(Learning),
    Confirm(Held),
    Fetch(Hit),
}

/// An answer from the cache.
struct Hit {
    held: Held,
    left: Range<u64>,
}

/// What the shard was asked.
enum Ask {
    Read { reading: u64, part: Range<u64> },
    Fill { bytes: Vec<u8> },
    Clean,
    Evict,
    Drain,
}

/// See the module.
pub struct Gateway {
    shared: Rc<Shared>,
    arena: Rc<Arena>,
    dice: Dice,
    setup: GatewaySetup,
    objects: Objects,
    due: BTreeMap<(u64, u64), Due>,
    next: u64,
    readings: BTreeMap<u64, Reading>,
    changes: BTreeMap<u64, Changing>,
    asks: BTreeMap<u64, Ask>,
    sending: BTreeMap<RequestId, Transfer>,
    desk: SharedDesk,
    addressed: BTreeMap<u64, Addressed>,
    events: Vec<FrontEvent>,
    idle_chains: usize,
    /// By object: the instant of the last change whose answer came back through the gateway.
    changed_ns: Vec<u64>,
    is_drained: bool,
}

impl Gateway {
    /// A new process: nothing is known.
    #[must_use]
    pub fn new(shared: Rc<Shared>, arena: Rc<Arena>, desk: SharedDesk, dice: Dice, setup: GatewaySetup) -> Self {
        let keys = shared.store.borrow().len();
        let mut gateway = Self {
            arena,
            dice,
            objects: Objects::new(&setup.objects),
            due: BTreeMap::new(),
            next: 0,
            readings: BTreeMap::new(),
            changes: BTreeMap::new(),
            asks: BTreeMap::new(),
            sending: BTreeMap::new(),
            desk,
            addressed: BTreeMap::new(),
            events: Vec::new(),
            idle_chains: setup.chains,
            changed_ns: vec![0; keys],
            is_drained: false,
            shared,
            setup,
        };
        gateway.later(Due::Clean);
        gateway
    }

    fn now_ns(&self) -> u64 {
        self.shared.ledger.now_ns()
    }

    fn has(&self, bug: Bug) -> bool {
        self.shared.met.has(bug)
    }

    fn count(&self, what: Count, a: u64, b: u64) {
        self.shared.met.set_now_ns(self.now_ns());
        self.shared.met.count(what, a, b);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn later(&mut self, due: Due) {
        let at_ns = self.now_ns() + 1 + self.dice.duration_ns(self.setup.wait_ns);
        let number = self.number();
        self.due.insert((at_ns, number), due);
    }

    /// The client goes on.
    fn go_on(&mut self, number: u64, reading: Reading, due: Due) {
        if reading.is_slow {
            let at_ns = self.now_ns() + self.dice.duration_ns(SLOW_NS);
            let at = (at_ns, self.number());
            self.due.insert(at, due);
        } else {
            self.later(due);
        }
        self.readings.insert(number, reading);
    }

    fn ask(&mut self, ask: Ask) -> u64 {
        let tag = self.number();
        self.asks.insert(tag, ask);
        tag
    }

    /// Clients that have nothing to do begin.
    pub fn wake(&mut self) {
        for _ in 0..std::mem::take(&mut self.idle_chains) {
            self.later(Due::Issue);
        }
    }

    /// The shard is to stop.
    pub fn drain(&mut self) {
        let tag = self.ask(Ask::Drain);
        self.events.push(FrontEvent::Drain { tag });
    }

    /// It said that it has.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Nothing is under way but cleaning.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let of_clients = |ask: &Ask| !matches!(ask, Ask::Clean);
        self.readings.is_empty()
            && self.changes.is_empty()
            && self.sending.is_empty()
            && !self.asks.values().any(of_clients)
    }

    /// What was begun a long time ago has ended.
    pub fn assert_nothing_is_stuck(&self) {
        let now_ns = self.now_ns();
        for (number, reading) in &self.readings {
            assert!(now_ns - reading.begin_ns < PATIENCE_NS, "read {number} of {} has not ended", reading.key);
        }
    }

    fn due(&mut self, due: Due) {
        match due {
            Due::Issue => self.issue(),
            Due::Arrive(number) => self.arrive(number),
            Due::Back(number) => self.back(number),
            Due::Piece(number) => self.piece(number),
            Due::Next(number) => self.next_part(number),
            Due::ChangeArrive(number) => self.change_arrives(number),
            Due::ChangeBack(number) => self.change_is_back(number),
            Due::Sent(request) => {
                self.sending.remove(&request).expect("it is sent once").sent(&self.arena);
                self.events.push(FrontEvent::Sent { request });
            }
            Due::LookUp(number) => self.look_up(number),
            Due::AddressArrive(number) => self.address_arrives(number),
            Due::AddressBack(number) => self.address_is_back(number),
            Due::Clean => self.clean(),
        }
    }

    fn issue(&mut self) {
        if !self.shared.is_on.get() {
            self.idle_chains += 1;
            return;
        }
        self.shared.operations.set(self.shared.operations.get() + 1);
        let key = self.dice.below(self.changed_ns.len() as u64) as usize;
        if self.dice.chance(self.setup.evictions) {
            self.evict();
        }
        match self.dice.chance(self.setup.reads) {
            true => self.begin_read(key),
            false if self.dice.chance(300) => {
                let again = self.shared.store.borrow_mut().put(self.now_ns(), key, &mut self.dice);
                self.count(if again { Count::PutAgain } else { Count::Past }, key as u64, 0);
                self.later(Due::Issue);
            }
            false => self.begin_change(key),
        }
    }

    /// As the verb does: a part of the object space, whatever it is.
    fn evict(&mut self) {
        let (page, all) = (self.setup.objects.page_bytes, self.setup.objects.space_bytes);
        let first = self.dice.below(all / page);
        let pages = self.dice.between(1, 8).min(all / page - first);
        let tag = self.ask(Ask::Evict);
        self.events.push(FrontEvent::Evict { volume: VOLUME, tag, offset: first * page, length: pages * page });
        self.count(Count::Evict, first, pages);
    }

    fn clean(&mut self) {
        let Some(range) = self.objects.to_clean() else { return self.later(Due::Clean) };
        if self.has(Bug::CleanForgotten) {
            self.objects.cleaned();
            return self.later(Due::Clean);
        }
        let tag = self.ask(Ask::Clean);
        let (offset, length) = (range.start, range.end - range.start);
        self.events.push(FrontEvent::Evict { volume: VOLUME, tag, offset, length });
    }

    fn begin_read(&mut self, key: usize) {
        let version = self.shared.store.borrow().any(key, &mut self.dice);
        let id = version.and_then(|it| it.id).filter(|_| self.dice.chance(250));
        let method = if self.dice.chance(100) { Method::HEAD } else { Method::GET };
        let bytes = version.map_or(0, |it| it.bytes);
        let range = (bytes > 0 && self.dice.chance(500)).then(|| {
            let from = self.dice.below(bytes);
            (from, self.dice.chance(800).then(|| from + self.dice.below(bytes - from + 5000)))
        });
        let mut headers = HeaderMap::new();
        if let Some((from, to)) = range {
            let text = format!("bytes={from}-{}", to.map_or(String::new(), |to| to.to_string()));
            headers.insert(RANGE, HeaderValue::from_str(&text).expect("digits"));
        }
        let caller = HeaderValue::from(self.dice.below(2));
        headers.insert(HeaderName::from_static("x-caller"), caller);
        let query = id.map_or(String::new(), |id| format!("?versionId={id}"));
        let uri: Uri = format!("/b/{key}{query}").parse().expect("a URI");
        let target = Target::of(&method, uri.path(), uri.query(), None, &[]);
        let read = Read::of(&target, uri.query(), &headers).expect("it is a read");
        let is_believed = self.objects.policy(&read.name).metadata_ttl_ns > 0;
        let who = is_believed.then(|| (Who::of(&method, &uri, &headers), u64::MAX));
        let number = self.number();
        if id.is_some() {
            self.count(Count::ByVersionId, number, key as u64);
        }
        if method == Method::HEAD {
            self.count(Count::Head, number, key as u64);
        }
        let begin_ns = self.now_ns();
        let question = Question { key, method, id, range, if_match: None, if_none_match: None };
        let is_slow = self.dice.chance(50);
        let mut reading = Reading { begin_ns, key, read, question, is_slow, stage: Stage::Between };
        match self.objects.plan(begin_ns, &reading.read, who) {
            Plan::Pass(why) => panic!("a plain read is passed on: {why}"),
            Plan::Learn(learning) => self.send(number, reading, Why::Learn(learning)),
            Plan::Confirm(held) if self.has(Bug::ConditionSkipped) => self.serve(number, reading, held, begin_ns),
            Plan::Confirm(held) => {
                reading.question.if_none_match = Some(held.etag.to_string());
                self.send(number, reading, Why::Confirm(held));
            }
            Plan::Serve(held, _) => {
                self.count(Count::Served, number, key as u64);
                let from_ns = begin_ns.saturating_sub(self.setup.ttl_ns).max(self.changed_ns[key]);
                self.serve(number, reading, held, from_ns);
            }
        }
    }

    fn send(&mut self, number: u64, mut reading: Reading, why: Why) {
        reading.stage = Stage::Asked(why, None);
        self.readings.insert(number, reading);
        self.later(Due::Arrive(number));
    }

    /// The instant at which the store looks.
    fn arrive(&mut self, number: u64) {
        let reading = self.readings.get_mut(&number).expect("it waits");
        let Stage::Asked(_, answer) = &mut reading.stage else { panic!("it asked") };
        *answer = Some(self.shared.store.borrow().answer(&reading.question));
        self.later(Due::Back(number));
    }

    fn back(&mut self, number: u64) {
        let mut reading = self.readings.remove(&number).expect("it waits");
        let stage = std::mem::replace(&mut reading.stage, Stage::Between);
        let Stage::Asked(why, Some(answer)) = stage else { panic!("it was answered") };
        let key = reading.key as u64;
        match why {
            Why::Learn(learning) => self.learned(number, reading, learning, answer),
            Why::Confirm(held) if answer.status == StatusCode::NOT_MODIFIED => {
                reading.question.if_none_match = None;
                match self.objects.confirmed(&reading.read, &held, &answer.headers) {
                    Confirmed::Serve => {
                        self.count(Count::Confirmed, number, key);
                        let begin_ns = reading.begin_ns;
                        self.serve(number, reading, held, begin_ns);
                    }
                    Confirmed::Again => {
                        self.count(Count::Again, number, key);
                        self.send(number, reading, Why::Learn(held.learning));
                    }
                }
            }
            Why::Confirm(held) => {
                self.count(Count::Replaced, number, key);
                self.learned(number, reading, held.learning, answer);
            }
            Why::Fetch(hit) => self.fetched(number, reading, hit, answer),
        }
    }

    fn learned(&mut self, number: u64, reading: Reading, learning: Learning, answer: Answer) {
        let what = if answer.status == StatusCode::NOT_FOUND { Count::Gone } else { Count::Learn };
        self.count(what, number, reading.key as u64);
        let learned = self.objects.learned(&reading.read, &learning, answer.status, &answer.headers);
        let kept = match learned {
            Learned::Keep(kept) => Some(kept),
            Learned::Known | Learned::Not(_) => None,
        };
        match answer.body {
            Some((version, part)) => self.begin_body(number, reading, version, part, kept, None),
            None => self.end(),
        }
    }

    /// Answers with a version that must have been current at some instant from then on.
    fn serve(&mut self, number: u64, mut reading: Reading, held: Held, from_ns: u64) {
        let store = self.shared.store.borrow();
        let is_right = match reading.question.id {
            Some(id) => store.is_id_of(reading.key, id, &held.etag),
            None => store.was_current(reading.key, &held.etag, from_ns, self.now_ns()),
        };
        assert!(is_right, "read {number} of {}: {} was not current since {from_ns}", reading.key, held.etag);
        drop(store);
        if reading.question.method == Method::HEAD || held.part.is_empty() {
            return self.end();
        }
        let left = held.part.clone();
        reading.stage = Stage::Hit(Hit { held, left });
        self.go_on(number, reading, Due::Next(number));
    }

    /// The next of a hit's bytes.
    fn next_part(&mut self, number: u64) {
        let pages = self.dice.between(1, 3);
        let Stage::Hit(hit) = &self.readings[&number].stage else { panic!("it is a hit") };
        let page_bytes = self.setup.objects.page_bytes;
        let end = (hit.held.start + hit.left.start) / page_bytes * page_bytes + pages * page_bytes - hit.held.start;
        let part = hit.left.start..hit.left.end.min(end);
        let offset = (hit.held.start + part.start) & !511;
        let length = ((hit.held.start + part.end).next_multiple_of(512) - offset) as u32;
        let tag = self.ask(Ask::Read { reading: number, part });
        self.events.push(FrontEvent::Read { volume: VOLUME, tag, offset, length });
    }

    /// The version was dropped while it was served: what has its addresses now is another's.
    fn is_dropped(&mut self, id: VersionId, number: u64) -> bool {
        let is_dropped = self.objects.catalogue().get(id).is_none();
        if is_dropped {
            self.count(Count::HitDropped, number, 0);
        }
        is_dropped && !self.has(Bug::DroppedServed)
    }

    fn came(&mut self, number: u64, part: &Range<u64>, bytes: &[u8]) {
        let mut reading = self.readings.remove(&number).expect("it waits");
        let Stage::Hit(mut hit) = reading.stage else { panic!("it is a hit") };
        if self.is_dropped(hit.held.id, number) {
            return self.end();
        }
        let version = self.shared.store.borrow().by_etag(reading.key, &hit.held.etag).expect("it was written");
        let skip = ((hit.held.start + part.start) % 512) as usize;
        let (found, right) = (&bytes[skip..skip + (part.end - part.start) as usize], version.content(part.clone()));
        if let Some(at) = found.iter().zip(&right).position(|(found, right)| found != right) {
            let at = part.start + at as u64;
            panic!("read {number} of {}: byte {at} is not that of {}", reading.key, hit.held.etag);
        }
        self.count(Count::HitPart, number, part.start);
        hit.left.start = part.end;
        if hit.left.is_empty() {
            self.count(Count::HitWhole, number, part.end);
            return self.end();
        }
        reading.stage = Stage::Hit(hit);
        self.go_on(number, reading, Due::Next(number));
    }

    /// What a hit lacks comes from the store, if it has not changed.
    fn fetch(&mut self, number: u64) {
        let mut reading = self.readings.remove(&number).expect("it waits");
        let Stage::Hit(hit) = reading.stage else { panic!("it is a hit") };
        reading.stage = Stage::Between;
        self.count(Count::HitMissing, number, hit.left.start);
        let length = if self.dice.chance(500) { hit.left.end - hit.left.start } else { self.dice.between(1, 20_000) };
        let last = (hit.left.start + length).min(hit.left.end) - 1;
        reading.question.range = Some((hit.left.start, Some(last)));
        reading.question.if_match = (!self.has(Bug::PartUnchecked)).then(|| hit.held.etag.to_string());
        self.send(number, reading, Why::Fetch(hit));
    }

    fn fetched(&mut self, number: u64, reading: Reading, hit: Hit, answer: Answer) {
        let checked = hit.held.part_in(answer.status, &answer.headers).filter(|came| came.contains(&hit.left.start));
        let unchecked = || answer.body.as_ref().map(|it| it.1.clone()).filter(|_| self.has(Bug::PartUnchecked));
        let (Some(came), Some((version, _))) = (checked.or_else(unchecked), &answer.body) else {
            self.count(Count::HitTorn, number, hit.left.start);
            return self.end();
        };
        self.count(Count::HitFetched, number, came.start);
        let (id, start, bytes) = (hit.held.id, hit.held.start, hit.held.bytes);
        let kept = Kept { id, start, part: came.clone(), bytes, is_known: true };
        self.begin_body(number, reading, *version, came, Some(kept), Some(hit));
    }

    fn end(&mut self) {
        self.later(Due::Issue);
    }
}

impl Front for Gateway {
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>) {
        self.take_addresses();
        while let Some(first) = self.due.first_entry().filter(|it| it.key().0 <= now_ns) {
            let due = first.remove();
            self.due(due);
        }
        events.append(&mut self.events);
    }

    fn receive(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let Some(Ask::Fill { bytes }) = self.asks.get(&tag) else { panic!("only a fill is received") };
        let mut at = 0;
        for piece in pieces {
            let end = at + piece.length as usize;
            self.arena.copy_in(piece.frame.0, piece.at, &bytes[at..end]);
            at = end;
        }
        assert_eq!(at, bytes.len(), "a fill is received whole");
        self.events.push(FrontEvent::Received { request });
    }

    fn reply_read(&mut self, _now_ns: u64, tag: u64, request: RequestId, pieces: &[Piece]) {
        let Some(Ask::Read { reading, part }) = self.asks.remove(&tag) else { panic!("only a read is replied to so") };
        self.sending.insert(request, Transfer::sending(&self.arena, tag, pieces));
        let mut bytes = Vec::new();
        for piece in pieces {
            self.arena.with_bytes(piece.frame.0, piece.at, piece.length, |it| bytes.extend_from_slice(it));
        }
        self.later(Due::Sent(request));
        self.came(reading, &part, &bytes);
    }

    fn reply(&mut self, _now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        match self.asks.remove(&tag).expect("an ask is answered once") {
            Ask::Read { reading, .. } => self.fetch(reading),
            Ask::Fill { .. } | Ask::Evict => {}
            Ask::Drain => self.is_drained = true,
            Ask::Clean => {
                if result.is_ok() {
                    self.count(Count::Clean, tag, 0);
                    self.objects.cleaned();
                }
                self.later(Due::Clean);
            }
        }
    }

    fn turn_end(&mut self, _now_ns: u64) {}

    fn next_ns(&self) -> Option<u64> {
        let is_waiting = !self.events.is_empty() || self.desk.borrow().is_waiting();
        if is_waiting { Some(0) } else { self.due.first_key_value().map(|(key, _)| key.0) }
    }
}
