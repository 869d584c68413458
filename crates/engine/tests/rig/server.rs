//! A small NBD server in the test's own process: threads, blocking I/O, bytes in memory, and the misdeeds that a test
//! asks for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_wire::nbd::constants::{CommandFlags, Errno, TransmissionFlags};
use forebay_wire::nbd::reply;
use forebay_wire::nbd::request::{Command, REQUEST_BYTES, Request};
use forebay_wire::nbd::server_handshake::{ExportInfo, Outcome, ServerHandshake};
use forebay_wire::nbd::{BlockSizes, Terms};

pub(crate) const EXPORT: &str = "vol";

#[derive(Default)]
struct Store {
    /// What reads see.
    bytes: Vec<u8>,
    /// What a crash leaves.
    durable: Vec<u8>,
    /// Off: the listener ends at the next connection.
    listening: bool,
    connections: Vec<UnixStream>,
    flushes: u64,
}

/// The server. Dropping it ends it.
pub(crate) struct Server {
    directory: tempfile::TempDir,
    store: Arc<Mutex<Store>>,
    info: ExportInfo,
    /// Requests left before the server goes silent; `u32::MAX`: it never does.
    silent_after: Arc<AtomicU32>,
}

impl Server {
    pub(crate) fn new(bytes: u64, flags: TransmissionFlags, blocks: BlockSizes) -> Self {
        let info = ExportInfo { name: EXPORT.to_owned(), description: String::new(), size_bytes: bytes, flags, blocks };
        let store = Store { bytes: vec![0; bytes as usize], durable: vec![0; bytes as usize], ..Store::default() };
        let server = Self {
            directory: tempfile::tempdir().expect("a directory"),
            store: Arc::new(Mutex::new(store)),
            info,
            silent_after: Arc::new(AtomicU32::new(u32::MAX)),
        };
        server.start();
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    pub(crate) fn start(&self) {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        let (store, info, silent_after) = (Arc::clone(&self.store), self.info.clone(), Arc::clone(&self.silent_after));
        lock(&store).listening = true;
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut inside = lock(&store);
                if !inside.listening {
                    return;
                }
                inside.connections.push(stream.try_clone().expect("a descriptor"));
                drop(inside);
                let (store, info, silent_after) = (Arc::clone(&store), info.clone(), Arc::clone(&silent_after));
                std::thread::spawn(move || serve(stream, &store, &info, &silent_after));
            }
        });
    }

    /// Also listens on a TCP port, by passing on what comes; returns the port.
    pub(crate) fn listen_on_tcp(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let socket = self.socket();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let Ok(inside) = UnixStream::connect(&socket) else { return };
                stream.set_nodelay(true).expect("an option");
                let (mut from, mut to) = (stream.try_clone().expect("a descriptor"), inside.try_clone().expect("one"));
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (mut from, mut to) = (inside, stream);
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        });
        port
    }

    /// Ends all connections, as a crash does: what was not flushed is lost. Nobody listens until `start`.
    pub(crate) fn crash(&self) {
        let mut store = lock(&self.store);
        store.listening = false;
        // The listener ends with whoever connects first; the path is free when it has.
        let last = UnixStream::connect(self.socket());
        std::fs::remove_file(self.socket()).expect("the socket is there");
        store.bytes = store.durable.clone();
        for connection in store.connections.drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        drop(store);
        // End of file: the listener is gone, and with it those who connected meanwhile.
        let _ = last.expect("somebody listens").read(&mut [0]);
    }

    pub(crate) fn go_silent_after(&self, requests: u32) {
        self.silent_after.store(requests, Ordering::SeqCst);
    }

    /// The export is smaller from the next start on.
    pub(crate) fn shrink(&mut self) {
        self.info.size_bytes /= 2;
    }

    pub(crate) fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        lock(&self.store).bytes[at..at + length].to_vec()
    }

    pub(crate) fn durable(&self, at: usize, length: usize) -> Vec<u8> {
        lock(&self.store).durable[at..at + length].to_vec()
    }

    pub(crate) fn flushes(&self) -> u64 {
        lock(&self.store).flushes
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.store).connections.len()
    }
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().expect("no server thread panicked")
}

fn serve(mut stream: UnixStream, store: &Mutex<Store>, info: &ExportInfo, silent_after: &AtomicU32) {
    let Some(terms) = shake_hands(&mut stream, info) else { return };
    let mut header = [0; REQUEST_BYTES];
    while stream.read_exact(&mut header).is_ok() {
        let request = Request::decode(&header).expect("the client keeps the protocol");
        if request.command == Command::Disconnect {
            return;
        }
        let mut payload = vec![0; request.payload_bytes() as usize];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        match silent_after.load(Ordering::SeqCst) {
            u32::MAX => {}
            0 => {
                // Silent, but there: the socket stays open.
                std::thread::sleep(Duration::from_secs(3600));
            }
            left => silent_after.store(left - 1, Ordering::SeqCst),
        }
        let answer = answer(store, &terms, &request, &payload);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn shake_hands(stream: &mut UnixStream, info: &ExportInfo) -> Option<Terms> {
    let mut handshake = ServerHandshake::new();
    let mut byte = [0; 1];
    loop {
        while !handshake.output().is_empty() {
            let sent = stream.write(handshake.output()).ok()?;
            handshake.sent(sent);
        }
        stream.read_exact(&mut byte).ok()?;
        let (_, outcome) = handshake.feed(&byte, std::slice::from_ref(info));
        stream.write_all(handshake.output()).ok()?;
        let all = handshake.output().len();
        handshake.sent(all);
        match outcome {
            Some(Outcome::Transmission { terms, .. }) => return Some(terms),
            Some(Outcome::Closed(_)) => return None,
            None => {}
        }
    }
}

fn answer(store: &Mutex<Store>, terms: &Terms, request: &Request, payload: &[u8]) -> Vec<u8> {
    let (cookie, offset) = (request.cookie, request.offset as usize);
    if let Err(errno) = request.check(terms) {
        return finish(terms, cookie, Some(errno));
    }
    let range = offset..offset + request.length as usize;
    let mut store = lock(store);
    let store = &mut *store;
    match request.command {
        Command::Read => return data(terms, cookie, request.offset, &store.bytes[range]),
        Command::Write => store.bytes[range.clone()].copy_from_slice(payload),
        Command::WriteZeroes | Command::Trim => store.bytes[range.clone()].fill(0),
        Command::Flush => {
            store.durable.copy_from_slice(&store.bytes);
            store.flushes += 1;
        }
        _ => return finish(terms, cookie, Some(Errno::Invalid)),
    }
    if request.flags.has(CommandFlags::FUA) {
        store.durable[range.clone()].copy_from_slice(&store.bytes[range]);
    }
    finish(terms, cookie, None)
}

fn finish(terms: &Terms, cookie: u64, error: Option<Errno>) -> Vec<u8> {
    match error {
        _ if !terms.structured => reply::simple(cookie, error).to_vec(),
        Some(errno) => reply::error(cookie, errno, "as asked", None, true).as_bytes().to_vec(),
        None => reply::done(cookie).to_vec(),
    }
}

/// A read's answer: with structured replies in several chunks, back to front, zeroes as holes.
fn data(terms: &Terms, cookie: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    if !terms.structured {
        return [&reply::simple(cookie, None)[..], bytes].concat();
    }
    let mut answer = Vec::new();
    for (nth, chunk) in bytes.chunks(12_800).enumerate().rev() {
        let at = offset + nth as u64 * 12_800;
        if chunk.iter().all(|byte| *byte == 0) {
            answer.extend_from_slice(&reply::hole(cookie, at, chunk.len() as u32, false));
        } else {
            answer.extend_from_slice(&reply::data(cookie, at, chunk.len() as u32, false));
            answer.extend_from_slice(chunk);
        }
    }
    answer.extend_from_slice(&reply::done(cookie));
    answer
}

/// A running nbdkit, or `None` (said aloud) when it is not installed.
pub(crate) struct Nbdkit {
    child: std::process::Child,
    directory: tempfile::TempDir,
}

impl Nbdkit {
    pub(crate) fn run(arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbd");
        let spawned = std::process::Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(arguments)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                super::skipped(&format!("nbdkit cannot be run ({error}); install the package nbdkit"));
                return None;
            }
        };
        let nbdkit = Self { child, directory };
        for _ in 0..500 {
            if nbdkit.socket().exists() {
                return Some(nbdkit);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nbdkit does not listen on {}", Path::new(&nbdkit.socket()).display());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
