//! The listener: one thread for all endpoints and all shards, from accept to GO.
//!
//! How a turn goes: poll(2) over the endpoints, the handshakes and the stop signal, until the earliest deadline;
//! advance the handshakes that can; accept; give up those that are late. Nothing here blocks but that poll.
//!
//! Against slow and hostile clients: a handshake has a deadline. When one client too many is in its handshake, the
//! oldest one goes: a client that idles cannot keep others out, and one that hurries needs a millisecond. Clients
//! beyond those allowed are turned away at accept.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_wire::nbd::server_handshake::ExportInfo;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::Error;
use crate::config::ListenerConfig;
use crate::counters::ListenerCounters;
use crate::endpoint::{Endpoint, Listening};
use crate::export::Export;
use crate::handshake::{Handshake, Progress};
use crate::inbox::{Clients, Handover, InboxSender};

/// Connections accepted at one endpoint in a turn.
const ACCEPTS_A_TURN: u32 = 16;
/// How long accepting rests after it failed: without descriptors it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest sleep; there is nothing to do then.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The listener's handle. Dropping it stops the thread and removes the unix sockets.
#[derive(Debug)]
pub struct Listener {
    endpoints: Vec<Endpoint>,
    counters: Arc<Mutex<ListenerCounters>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens, and starts the thread. `shards` are the inboxes that [`Export::shard`] indexes.
    ///
    /// # Errors
    /// What keeps it from listening; see [`Error`]. Nothing is left behind then.
    ///
    /// # Panics
    /// When an export names a shard that is not there.
    pub fn start(
        config: &ListenerConfig,
        exports: Vec<Export>,
        shards: Vec<InboxSender>,
        clients: Clients,
    ) -> Result<Self, Error> {
        assert!(exports.iter().all(|export| export.shard < shards.len()), "an export on a shard that is not there");
        let listening = config.endpoints.iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;
        let endpoints = listening.iter().map(|one| one.endpoint().clone()).collect();
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::Limit { cause: errno.into() })?;
        let stop = Arc::new(stop);
        let counters = Arc::new(Mutex::new(ListenerCounters::default()));
        let door = Door {
            infos: exports.iter().map(|export| export.info.clone()).collect(),
            exports,
            shards,
            clients,
            handshakes: Vec::new(),
            handshakes_max: config.handshakes_max.max(1),
            handshake_timeout: config.handshake_timeout,
            accept_after: None,
            seen: ListenerCounters::default(),
            counters: Arc::clone(&counters),
        };
        let signal = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("nbd-listener".to_owned())
            .spawn(move || door.run(&listening, &signal))
            .map_err(|cause| Error::Limit { cause })?;
        Ok(Self { endpoints, counters, stop, thread: Some(thread) })
    }

    /// Where it listens, with the TCP ports that were taken.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counters(&self) -> ListenerCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops listening and gives up the handshakes under way. Clients that were handed over are not touched.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // Fails only when the signal is already there 2^64 - 2 times.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!("the NBD listener had died of a bug before it was stopped");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread's state.
struct Door {
    exports: Vec<Export>,
    infos: Vec<ExportInfo>,
    shards: Vec<InboxSender>,
    clients: Clients,
    /// Oldest first.
    handshakes: Vec<Handshake>,
    handshakes_max: usize,
    handshake_timeout: Duration,
    accept_after: Option<Instant>,
    seen: ListenerCounters,
    counters: Arc<Mutex<ListenerCounters>>,
}

impl Door {
    fn run(mut self, listening: &[Listening], stop: &OwnedFd) {
        let mut ready = Vec::new();
        loop {
            self.wait(listening, stop, &mut ready);
            if ready[0] {
                return;
            }
            let (listeners, handshakes) = ready[1..].split_at(listening.len());
            self.advance(handshakes);
            self.accept(listening, listeners);
            self.give_up_late(Instant::now());
            *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.seen;
        }
    }

    /// Sleeps until something is ready: the stop signal, then the listeners, then the handshakes.
    fn wait(&mut self, listening: &[Listening], stop: &OwnedFd, ready: &mut Vec<bool>) {
        let now = Instant::now();
        if self.accept_after.is_some_and(|after| after <= now) {
            self.accept_after = None;
        }
        let accepting = if self.accept_after.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(listening.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), accepting)));
        fds.extend(self.handshakes.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), one.interest())));
        let deadlines = self.handshakes.iter().map(|one| one.deadline).chain(self.accept_after);
        let sleep = deadlines.map(|at| at.saturating_duration_since(now)).min().unwrap_or(SLEEP_MAX);
        let sleep = sleep.min(SLEEP_MAX);
        let timeout = Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
        // Interrupted, or out of memory for a moment: nothing is ready then, and the turn does no harm.
        let polled = poll(&mut fds, Some(&timeout)).is_ok();
        ready.clear();
        ready.extend(fds.iter().map(|fd| polled && !fd.revents().is_empty()));
    }

    fn advance(&mut self, ready: &[bool]) {
        let mut place = 0;
        for &ready in ready {
            if !ready {
                place += 1;
                continue;
            }
            match self.handshakes[place].advance(&self.infos) {
                Progress::Pending => place += 1,
                Progress::Ready { export, terms } => {
                    let handshake = self.handshakes.remove(place);
                    self.hand_over(handshake, export, terms);
                }
                Progress::Left => {
                    self.handshakes.remove(place);
                    self.seen.left += 1;
                }
                Progress::Garbage(what) => {
                    let handshake = self.handshakes.remove(place);
                    tracing::debug!(peer = %handshake.peer, what, "NBD handshake failed");
                    self.seen.garbage += 1;
                }
            }
        }
    }

    fn hand_over(&mut self, handshake: Handshake, export: usize, terms: forebay_wire::nbd::Terms) {
        let Some(admission) = self.clients.admit() else {
            self.seen.turned_away += 1;
            return;
        };
        let (socket, unread, peer) = handshake.into_parts();
        let Export { shard, volume, .. } = self.exports[export];
        let handover = Handover { socket, unread, terms, volume, peer, admission };
        match self.shards[shard].push(handover) {
            Ok(()) => self.seen.handed_over += 1,
            Err(_) => self.seen.turned_away += 1,
        }
    }

    fn accept(&mut self, listening: &[Listening], ready: &[bool]) {
        for (listening, _) in listening.iter().zip(ready).filter(|(_, ready)| **ready) {
            for _ in 0..ACCEPTS_A_TURN {
                match listening.accept() {
                    Ok(Some(socket)) => self.greet(socket, listening.endpoint()),
                    Ok(None) => break,
                    Err(error) => {
                        self.seen.accept_errors += 1;
                        self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                        tracing::debug!(endpoint = %listening.endpoint(), %error, "accepting NBD clients failed");
                        break;
                    }
                }
            }
        }
    }

    fn greet(&mut self, socket: OwnedFd, endpoint: &Endpoint) {
        self.seen.accepted += 1;
        if self.clients.is_full() {
            self.seen.turned_away += 1;
            return;
        }
        if self.handshakes.len() >= self.handshakes_max {
            self.handshakes.remove(0);
            self.seen.displaced += 1;
        }
        let peer = format!("{endpoint}#{}", self.seen.accepted);
        self.handshakes.push(Handshake::new(socket, peer, Instant::now() + self.handshake_timeout));
    }

    fn give_up_late(&mut self, now: Instant) {
        let before = self.handshakes.len();
        self.handshakes.retain(|handshake| handshake.deadline > now);
        self.seen.timed_out += (before - self.handshakes.len()) as u64;
    }
}
