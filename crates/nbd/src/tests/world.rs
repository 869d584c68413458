//! A shard in a thread, a listener before it, and what both must leave behind when they end: nothing.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::VolumeId;
use forebay_engine::front::Front;
use forebay_engine::reactor::Reactor;
use forebay_engine::ring_reactor::RingReactor;
use forebay_uring::{Arena, Limits, Wake};
use forebay_wire::nbd::Terms;

use super::client::Client;
use super::core::{Core, Faults};
use crate::*;

pub(super) const VOLUME_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u32 = 16 << 10;
/// Small, so that splitting is common.
pub(super) const REQUEST_BYTES_MAX: u32 = 64 << 10;

/// What a world is made of.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Frames of the core, should it be others than the front end knows of.
    pub(super) frames: Option<u32>,
    pub(super) clients_max: u32,
    pub(super) connection: ConnectionLimits,
    pub(super) faults: Faults,
    pub(super) read_only: bool,
    pub(super) handshakes_max: usize,
    pub(super) handshake_timeout: Duration,
    pub(super) tcp: bool,
    pub(super) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            frames: None,
            clients_max: 8,
            connection: ConnectionLimits {
                requests_max: 32,
                core_requests: Share::halved(64, 8, 1),
                frames: Share::halved(64, 8, 5),
                stall_timeout_ns: 5_000_000_000,
                grace_ns: 4_000_000_000,
            },
            faults: Faults::default(),
            read_only: false,
            handshakes_max: 8,
            handshake_timeout: Duration::from_secs(5),
            tcp: false,
            seed: 1,
        }
    }
}

/// What the shard's thread says at its end.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) counters: Counters,
    pub(super) listener: ListenerCounters,
    pub(super) flushes: u64,
    pub(super) longest: u32,
    pub(super) frames_peak: usize,
    pub(super) requests_peak: usize,
    /// The most requests and parts in flight at a time.
    pub(super) in_flight_peak: usize,
    /// The most connections that had requests in flight from one look to the next.
    pub(super) submitters_peak: u32,
    pub(super) memory: Vec<u8>,
}

pub(super) struct World {
    pub(super) path: PathBuf,
    pub(super) listener: Listener,
    pub(super) clients: Clients,
    sender: InboxSender,
    stop: Arc<AtomicBool>,
    wake: Wake,
    shard: JoinHandle<Report>,
    terms: Terms,
    _dir: tempfile::TempDir,
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let clients = Clients::new(setup.clients_max);
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let (stopping, of_shard) = (Arc::clone(&stop), setup.clone());
        let shard = std::thread::spawn(move || run_shard(&of_shard, &stopping, &tell));
        let (sender, wake) = told.recv().unwrap();
        let mut endpoints = vec![Endpoint::Unix { path: path.clone(), mode: 0o600 }];
        if setup.tcp {
            endpoints.push(Endpoint::Tcp("127.0.0.1:0".parse().unwrap()));
        }
        let mut config = ListenerConfig::new(endpoints);
        config.handshakes_max = setup.handshakes_max;
        config.handshake_timeout = setup.handshake_timeout;
        let exports = vec![
            Export::new("vol", "a test volume", VOLUME_BYTES, setup.read_only, 0, VolumeId(0)),
            Export::new("other", "", 1 << 20, true, 0, VolumeId(0)),
        ];
        let info = exports[0].info.clone();
        let terms = Terms { size_bytes: info.size_bytes, flags: info.flags, blocks: info.blocks, structured: true };
        let listener = Listener::start(&config, exports, vec![sender.clone()], clients.clone()).unwrap();
        Self { path, listener, clients, sender, stop, wake, shard, terms, _dir: dir }
    }

    pub(super) fn socket(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    pub(super) fn client(&self, structured: bool) -> Client<UnixStream> {
        Client::connect(self.socket(), "vol", structured)
    }

    /// What a client of the first volume agrees to.
    pub(super) fn terms(&self, structured: bool) -> Terms {
        Terms { structured, ..self.terms }
    }

    /// A connection that is in transmission without a handshake.
    pub(super) fn transmission(&self, structured: bool) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let handover = Handover {
            socket: OwnedFd::from(theirs),
            unread: Vec::new(),
            terms: self.terms(structured),
            volume: VolumeId(0),
            peer: "pair".to_owned(),
            admission: loop {
                // The one before may still be leaving.
                match self.clients.admit() {
                    Some(admission) => break admission,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            },
        };
        self.sender.push(handover).unwrap();
        ours
    }

    /// Waits until `open` clients are left.
    pub(super) fn wait_for_clients(&self, open: u32) {
        let begin = Instant::now();
        while self.clients.open() != open {
            assert!(begin.elapsed() < Duration::from_secs(10), "{} clients", self.clients.open());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops everything; panics if anything leaked.
    pub(super) fn finish(mut self) -> Report {
        self.listener.stop();
        let listener = self.listener.counters();
        self.stop.store(true, Ordering::SeqCst);
        self.wake.wake();
        let report = self.shard.join().expect("the shard ended well");
        assert_eq!(self.clients.open(), 0, "places that were not given back");
        assert_eq!(report.counters.connections_open, 0);
        Report { listener, ..report }
    }
}

fn run_shard(setup: &Setup, stop: &AtomicBool, tell: &mpsc::Sender<(InboxSender, Wake)>) -> Report {
    let config = FrontConfig {
        page_bytes: PAGE_BYTES,
        request_bytes_max: REQUEST_BYTES_MAX,
        clients_max: setup.clients_max,
        connection: setup.connection,
    };
    let limits = Limits { ops_max: config.ops_max() + 8, fds_max: 2 * setup.clients_max + 8 };
    let mut reactor = RingReactor::new(limits).unwrap();
    let arena = Rc::new(Arena::new(setup.frames.unwrap_or(setup.connection.frames.all_max), PAGE_BYTES).unwrap());
    let frames = reactor.add_arena(Rc::clone(&arena));
    let wake = reactor.waker().unwrap();
    let (sender, inbox) = inbox(setup.clients_max, wake.clone());
    let mut front = NbdFront::new(reactor.port(config.ops_max()), frames, inbox, config).unwrap();
    let mut core = Core::new(VOLUME_BYTES as usize, arena, setup.faults.clone(), REQUEST_BYTES_MAX, setup.seed);
    tell.send((sender, wake)).unwrap();
    let mut events = Vec::new();
    let mut stopped_ns = None;
    let (mut in_flight_peak, mut submitters_peak) = (0, 0);
    loop {
        let now_ns = reactor.now_ns();
        if stop.load(Ordering::SeqCst) && stopped_ns.is_none() {
            stopped_ns = Some(now_ns);
            front.stop();
        }
        front.poll(now_ns, &mut events);
        for event in events.drain(..) {
            core.event(now_ns, event);
        }
        in_flight_peak = in_flight_peak.max(front.in_flight());
        submitters_peak = submitters_peak.max(front.take_submitters(VolumeId(0)));
        assert_eq!(front.take_submitters(VolumeId(1)), 0, "of another volume");
        core.answer(now_ns, &mut front);
        front.turn_end(now_ns);
        if let Some(stopped_ns) = stopped_ns {
            if front.is_empty() && core.is_idle() {
                break;
            }
            assert!(now_ns < stopped_ns + 10_000_000_000, "the front end does not end: {:?}", front.counters());
        }
        let until_ns = [front.next_ns(), core.next_ns()].into_iter().flatten().min();
        reactor.wait(until_ns.unwrap_or(u64::MAX).min(now_ns + 100_000_000));
    }
    core.assert_nothing_leaked();
    assert_eq!(front.in_flight(), 0, "requests or parts leaked");
    Report {
        counters: *front.counters(),
        listener: ListenerCounters::default(),
        flushes: core.flushes,
        longest: core.longest,
        frames_peak: core.frames_peak,
        requests_peak: core.requests_peak,
        in_flight_peak,
        submitters_peak,
        memory: core.memory,
    }
}
