//! Clients in a closed loop: each has so many requests in flight, and asks for the next when one is answered.
//!
//! Reads and writes come in an order left to chance, but of every [`DECK`] requests as many are reads as the load says:
//! where writes are the bottleneck, one second's chance would otherwise move its throughput by a twentieth.
//!
//! Answers and payloads take no time: what is measured is the cache and its paths. Payloads are zeroes, as frames are
//! already.

use crate::dice::Dice;
use forebay_core::{Histogram, Piece, ReplyError, RequestId, VolumeId};
use forebay_engine::front::{Front, FrontEvent};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// See the module.
const DECK: u32 = 20;

/// What the clients of a volume do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Clients.
    pub jobs: u32,
    /// Requests that each has in flight.
    pub depth: u32,
    /// Bytes of a request, at most [`forebay_core::CacheConfig::request_bytes_max`]; offsets are multiples of it.
    pub block_bytes: u32,
    /// Of a thousand requests, how many are reads; the others are writes.
    pub read_permil: u32,
    /// Whether each client goes through the volume in order, beginning at a place of its own.
    pub sequential: bool,
    /// How long each of these clients waits before it asks again.
    pub think_ns: u64,
    /// So many clients more that only write, at random, one request at a time.
    pub writers: u32,
    /// How long each of these waits before it writes again.
    pub writers_think_ns: u64,
    /// Each client flushes after so many writes of its own; 0: nobody does.
    pub flush_every: u32,
}

impl Load {
    /// Nobody asks for anything.
    pub const IDLE: Self = Self::reads(0, 0, 4096);

    /// Random reads.
    #[must_use]
    pub const fn reads(jobs: u32, depth: u32, block_bytes: u32) -> Self {
        Self {
            jobs,
            depth,
            block_bytes,
            read_permil: 1000,
            sequential: false,
            think_ns: 0,
            writers: 0,
            writers_think_ns: 0,
            flush_every: 0,
        }
    }

    /// Random writes.
    #[must_use]
    pub const fn writes(jobs: u32, depth: u32, block_bytes: u32) -> Self {
        Self { read_permil: 0, ..Self::reads(jobs, depth, block_bytes) }
    }

    /// Requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.jobs * self.depth + self.writers
    }

    /// Requests that the client of this number has in flight.
    const fn depth_of(&self, client: usize) -> u32 {
        match client {
            client if client < self.jobs as usize => self.depth,
            client if client < (self.jobs + self.writers) as usize => 1,
            _ => 0,
        }
    }
}

/// What the clients of a volume got.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientCounts {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) writes: u64,
    pub(super) write_bytes: u64,
    pub(super) flushes: u64,
    pub(super) read_latency: Histogram,
}

/// How long requests of one kind took.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Within a fifth.
    pub histogram: Histogram,
    /// The longest, exactly.
    pub longest_ns: u64,
}

/// How long the requests of a volume's clients took.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Of reads.
    pub reads: Latency,
    /// Of writes.
    pub writes: Latency,
    /// Of flushes.
    pub flushes: Latency,
}

impl Latency {
    fn record(&mut self, latency_ns: u64) {
        self.histogram.record(latency_ns);
        self.longest_ns = self.longest_ns.max(latency_ns);
    }

    /// The mean; 0 if there were none.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.histogram.sum_ns().checked_div(self.histogram.count()).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
struct Client {
    /// Requests in flight, and those it thinks about.
    in_flight: u32,
    /// Where it goes on in order.
    cursor: u64,
    /// Writes since its last flush.
    writes: u32,
}

/// Requests to come: how many, and how many of them are reads, in thousandths; what is over goes to the next deck.
#[derive(Clone, Copy, Debug, Default)]
struct Deck {
    left: u32,
    reads_permil: u32,
}

impl Deck {
    /// Whether the next request is a read.
    fn draw(&mut self, read_permil: u32, dice: &mut Dice) -> bool {
        if self.left == 0 {
            self.left = DECK;
            self.reads_permil += DECK * read_permil;
        }
        let is_read = dice.below(u64::from(self.left)) < u64::from(self.reads_permil / 1000);
        self.left -= 1;
        self.reads_permil -= if is_read { 1000 } else { 0 };
        is_read
    }
}

#[derive(Debug)]
struct Volume {
    bytes: u64,
    load: Load,
    clients: Vec<Client>,
    dice: Dice,
    deck: Deck,
    counts: ClientCounts,
    latencies: Latencies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    volume: usize,
    client: usize,
    length: u32,
    kind: Kind,
    start_ns: u64,
}

/// See the module.
pub(super) struct Clients {
    volumes: Vec<Volume>,
    /// By tag.
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    /// For the next poll.
    events: Vec<FrontEvent>,
    /// Clients that think: until when, a number that keeps equal times in order, whose, which.
    thinking: BinaryHeap<Reverse<(u64, u64, usize, usize)>>,
    thoughts: u64,
}

impl Clients {
    /// Clients of volumes of these sizes, who do nothing yet.
    pub(super) fn new(volume_bytes: &[u64], dice: &mut Dice) -> Self {
        let volume = |bytes: &u64| Volume {
            bytes: *bytes,
            load: Load::IDLE,
            clients: Vec::new(),
            dice: dice.fork(),
            deck: Deck::default(),
            counts: ClientCounts::default(),
            latencies: Latencies::default(),
        };
        Self {
            volumes: volume_bytes.iter().map(volume).collect(),
            requests: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            thinking: BinaryHeap::new(),
            thoughts: 0,
        }
    }

    /// From now on the clients of a volume do this. What is in flight is answered first.
    pub(super) fn set_load(&mut self, now_ns: u64, volume: usize, load: Load) {
        let state = &mut self.volumes[volume];
        let blocks = state.bytes / u64::from(load.block_bytes);
        assert!(blocks > 0 && load.read_permil <= 1000, "a load for another volume: {load:?}");
        (state.load, state.deck) = (load, Deck::default());
        let (jobs, clients) = (load.jobs as usize, (load.jobs + load.writers) as usize);
        state.clients.resize_with(clients.max(state.clients.len()), Client::default);
        for (nth, client) in state.clients[..jobs].iter_mut().enumerate() {
            client.cursor = blocks * nth as u64 / u64::from(load.jobs);
        }
        for client in 0..clients {
            while self.volumes[volume].clients[client].in_flight < load.depth_of(client) {
                self.volumes[volume].clients[client].in_flight += 1;
                self.ask(now_ns, volume, client);
            }
        }
    }

    pub(super) fn load(&self, volume: usize) -> Load {
        self.volumes[volume].load
    }

    /// What the clients of a volume got since this was last asked.
    pub(super) fn take_counts(&mut self, volume: usize) -> ClientCounts {
        std::mem::take(&mut self.volumes[volume].counts)
    }

    /// How long requests of a volume took that were answered since this was last asked.
    pub(super) fn take_latencies(&mut self, volume: usize) -> Latencies {
        std::mem::take(&mut self.volumes[volume].latencies)
    }

    fn ask(&mut self, now_ns: u64, volume: usize, client: usize) {
        let state = &mut self.volumes[volume];
        let load = state.load;
        if load.flush_every > 0 && state.clients[client].writes >= load.flush_every {
            state.clients[client].writes = 0;
            let tag = self.place(Request { volume, client, length: 0, kind: Kind::Flush, start_ns: now_ns });
            return self.events.push(FrontEvent::Flush { volume: VolumeId(volume as u16), tag });
        }
        let blocks = state.bytes / u64::from(load.block_bytes);
        let only_writes = client >= load.jobs as usize;
        let block = if load.sequential && !only_writes {
            let cursor = &mut state.clients[client].cursor;
            let block = *cursor % blocks;
            *cursor += 1;
            block
        } else {
            state.dice.below(blocks)
        };
        let (offset, length) = (block * u64::from(load.block_bytes), load.block_bytes);
        let (dice, deck) = (&mut state.dice, &mut state.deck);
        let is_read = !only_writes && (load.read_permil == 1000 || deck.draw(load.read_permil, dice));
        state.clients[client].writes += u32::from(!is_read);
        let kind = if is_read { Kind::Read } else { Kind::Write };
        let tag = self.place(Request { volume, client, length, kind, start_ns: now_ns });
        let volume = VolumeId(volume as u16);
        self.events.push(if is_read {
            FrontEvent::Read { volume, tag, offset, length }
        } else {
            FrontEvent::Write { volume, tag, offset, length, fua: false }
        });
    }

    /// Remembers a request, under this tag.
    fn place(&mut self, request: Request) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[place] = Some(request);
        place as u64
    }

    /// A request is answered; its client goes on.
    fn answered(&mut self, now_ns: u64, tag: u64) {
        let place = tag as usize;
        let request = self.requests[place].take().expect("a request is answered once");
        self.free.push(place);
        let volume = &mut self.volumes[request.volume];
        let (counts, latencies, bytes) = (&mut volume.counts, &mut volume.latencies, u64::from(request.length));
        let latency_ns = now_ns - request.start_ns;
        match request.kind {
            Kind::Read => {
                counts.reads += 1;
                counts.read_bytes += bytes;
                counts.read_latency.record(latency_ns);
                latencies.reads.record(latency_ns);
            }
            Kind::Write => {
                counts.writes += 1;
                counts.write_bytes += bytes;
                latencies.writes.record(latency_ns);
            }
            Kind::Flush => {
                counts.flushes += 1;
                latencies.flushes.record(latency_ns);
            }
        }
        let Load { jobs, think_ns, writers_think_ns, .. } = volume.load;
        let think_ns = if request.client < jobs as usize { think_ns } else { writers_think_ns };
        if think_ns == 0 {
            return self.go_on(now_ns, request.volume, request.client);
        }
        self.thoughts += 1;
        let until_ns = now_ns + think_ns;
        self.thinking.push(Reverse((until_ns, self.thoughts, request.volume, request.client)));
    }

    /// Asks for more, unless the load has become less.
    fn go_on(&mut self, now_ns: u64, volume: usize, client: usize) {
        let Volume { load, clients, .. } = &mut self.volumes[volume];
        if clients[client].in_flight > load.depth_of(client) {
            clients[client].in_flight -= 1;
        } else {
            self.ask(now_ns, volume, client);
        }
    }
}

impl Front for Clients {
    fn poll(&mut self, now_ns: u64, events: &mut Vec<FrontEvent>) {
        while let Some(&Reverse((until_ns, _, volume, client))) = self.thinking.peek()
            && until_ns <= now_ns
        {
            self.thinking.pop();
            self.go_on(now_ns, volume, client);
        }
        events.append(&mut self.events);
    }

    fn receive(&mut self, _now_ns: u64, _tag: u64, request: RequestId, _pieces: &[Piece]) {
        self.events.push(FrontEvent::Received { request });
    }

    fn reply_read(&mut self, now_ns: u64, tag: u64, request: RequestId, _pieces: &[Piece]) {
        self.events.push(FrontEvent::Sent { request });
        self.answered(now_ns, tag);
    }

    fn reply(&mut self, now_ns: u64, tag: u64, result: Result<(), ReplyError>) {
        assert!(result.is_ok(), "request {tag} failed in a world without faults: {result:?}");
        self.answered(now_ns, tag);
    }

    fn turn_end(&mut self, _now_ns: u64) {}

    fn take_submitters(&mut self, volume: VolumeId) -> u32 {
        let clients = &self.volumes[volume.index()].clients;
        clients.iter().filter(|client| client.in_flight > 0).count() as u32
    }

    fn next_ns(&self) -> Option<u64> {
        if !self.events.is_empty() {
            return Some(0);
        }
        self.thinking.peek().map(|Reverse((until_ns, ..))| *until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_deck_as_many_are_reads_as_the_load_says() {
        let mut dice = Dice::new(1);
        for read_permil in [0, 250, 333, 700, 1000] {
            let mut deck = Deck::default();
            let mut orders = std::collections::BTreeSet::new();
            let mut reads = 0;
            for nth in 1..=100 {
                let order: Vec<_> = (0..DECK).map(|_| deck.draw(read_permil, &mut dice)).collect();
                reads += order.iter().filter(|is_read| **is_read).count() as u32;
                assert_eq!(reads, nth * DECK * read_permil / 1000, "{read_permil}");
                orders.insert(order);
            }
            assert!(orders.len() > 50 || read_permil % 1000 == 0, "chance orders them: {}", orders.len());
        }
    }
}
