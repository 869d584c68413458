//! The NBD device against servers that are real processes, and against one that crashes and stalls when told to.

mod rig;

use forebay_engine::device::{Device, DeviceDone, DeviceOp, Doubt, FrameId, IoError, OpKind};
use forebay_engine::devices::nbd::{NbdAddress, NbdDevice, NbdOpenError, NbdOptions, NbdTarget};
use forebay_engine::reactor::Reactor;
use forebay_wire::nbd::BlockSizes;
use forebay_wire::nbd::constants::TransmissionFlags as Flags;
use rig::server::{EXPORT, Nbdkit, Server};
use rig::{FRAME_BYTES, Rig};
use std::path::PathBuf;

const MS: u64 = 1_000_000;
const BYTES: u64 = (2 << 20) + 512;
const ALL: Flags = Flags::SEND_FLUSH
    .with(Flags::SEND_FUA)
    .with(Flags::SEND_TRIM)
    .with(Flags::SEND_WRITE_ZEROES)
    .with(Flags::CAN_MULTI_CONN);

fn options() -> NbdOptions {
    NbdOptions { held_bytes_max: 4 << 20, held_count_max: 256, ..NbdOptions::default() }
}

fn try_open(rig: &mut Rig, socket: PathBuf, export: &str, options: NbdOptions) -> Result<NbdDevice, NbdOpenError> {
    let target = NbdTarget { address: NbdAddress::Unix(socket), export: export.to_owned() };
    let port = rig.reactor.port(NbdDevice::ops_max(&options));
    let until_ns = rig.reactor.now_ns() + 500 * MS;
    NbdDevice::open(port, rig.frames, target, options, &mut rig.reactor, until_ns)
}

fn open(rig: &mut Rig, socket: PathBuf, export: &str, options: NbdOptions) -> NbdDevice {
    try_open(rig, socket, export, options).expect("an export that opens")
}

/// A device with its reactor, used one operation at a time.
struct Bench {
    rig: Rig,
    device: NbdDevice,
    done: Vec<DeviceDone>,
    doubts: Vec<Doubt>,
}

impl Bench {
    fn new(server: &Server, options: NbdOptions) -> Self {
        let mut rig = Rig::new();
        let device = open(&mut rig, server.socket(), EXPORT, options);
        Self { rig, device, done: Vec::new(), doubts: Vec::new() }
    }

    fn submit(&mut self, token: u64, kind: OpKind, offset: u64, length: u64) {
        let at = (offset % u64::from(FRAME_BYTES)) as u32;
        let op = DeviceOp { token, kind, offset, length, frame: FrameId(2 * token as u32), at };
        self.device.submit(self.rig.reactor.now_ns(), op);
    }

    fn next(&mut self) -> DeviceDone {
        let begin_ns = self.rig.reactor.now_ns();
        loop {
            let now_ns = self.rig.reactor.now_ns();
            self.device.poll(now_ns, &mut self.done);
            self.device.in_doubt(&mut self.doubts);
            if let Some(done) = self.done.pop() {
                return done;
            }
            assert!(now_ns < begin_ns + 20_000 * MS, "no end in sight");
            let next_ns = self.device.next_ns().unwrap_or(u64::MAX);
            self.rig.reactor.wait(next_ns.min(now_ns + 1000 * MS));
        }
    }

    fn run(&mut self, kind: OpKind, offset: u64, length: u64) -> Result<(), IoError> {
        self.submit(0, kind, offset, length);
        self.next().result
    }

    /// Writes a block full of `fill`.
    fn write(&mut self, block: u64, fill: u8, fua: bool) -> Result<(), IoError> {
        let at = (block * 4096 % u64::from(FRAME_BYTES)) as u32;
        self.rig.arena.copy_in(0, at, &[fill; 4096]);
        self.run(OpKind::Write { fua }, block * 4096, 4096)
    }

    fn read(&mut self, block: u64) -> u8 {
        assert_eq!(self.run(OpKind::Read, block * 4096, 4096), Ok(()));
        let mut bytes = [0; 4096];
        self.rig.arena.copy_out(0, (block * 4096 % u64::from(FRAME_BYTES)) as u32, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a block of one write");
        bytes[0]
    }
}

#[test]
fn conforms_on_a_server_with_everything() {
    let server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let mut rig = Rig::new();
    let mut device = open(&mut rig, server.socket(), EXPORT, options());
    rig.conform(&mut device, 1500);
    assert!(server.connections() > 1, "several connections where the export allows it");
    assert!(device.status().get().counters.flushes_forced > 0 || server.flushes() > 0);
}

#[test]
fn conforms_on_a_server_with_next_to_nothing() {
    for flags in [Flags::NONE, Flags::SEND_FLUSH] {
        let server = Server::new(1 << 20, flags, BlockSizes::UNSTATED);
        let mut rig = Rig::new();
        let mut device = open(&mut rig, server.socket(), EXPORT, options());
        rig.conform(&mut device, 500);
        assert_eq!(server.connections(), 1);
    }
}

#[test]
fn conforms_where_sectors_are_4096_bytes() {
    let blocks = BlockSizes { min_bytes: 4096, preferred_bytes: 4096, max_bytes: 1 << 20 };
    let server = Server::new(1 << 20, ALL, blocks);
    let mut rig = Rig::new();
    let mut device = open(&mut rig, server.socket(), EXPORT, options());
    assert_eq!(device.geometry().sector_bytes, 4096);
    rig.conform(&mut device, 500);
}

#[test]
fn conforms_on_nbdkit() {
    let Some(nbdkit) = Nbdkit::run(&["memory", "3M"]) else { return };
    let mut rig = Rig::new();
    let mut device = open(&mut rig, nbdkit.socket(), "", options());
    rig.conform(&mut device, 1500);
}

#[test]
fn conforms_with_simple_replies() {
    let Some(nbdkit) = Nbdkit::run(&["--no-sr", "memory", "1M"]) else { return };
    let mut rig = Rig::new();
    let mut device = open(&mut rig, nbdkit.socket(), "", options());
    rig.conform(&mut device, 500);
}

#[test]
fn conforms_over_tcp() {
    let server = Server::new(1 << 20, ALL, BlockSizes::UNSTATED);
    let port = server.listen_on_tcp();
    let mut rig = Rig::new();
    let target =
        NbdTarget { address: NbdAddress::Tcp { host: "localhost".to_owned(), port }, export: EXPORT.to_owned() };
    let ring_port = rig.reactor.port(NbdDevice::ops_max(&options()));
    let until_ns = rig.reactor.now_ns() + 5000 * MS;
    let mut device = NbdDevice::open(ring_port, rig.frames, target, options(), &mut rig.reactor, until_ns)
        .expect("the name has an address that answers, perhaps not its first");
    rig.conform(&mut device, 500);
}

#[test]
fn an_export_that_is_not_there_is_told_at_once_and_a_server_that_is_not_there_in_time() {
    let server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let mut rig = Rig::new();
    let begin_ns = rig.reactor.now_ns();
    let error = try_open(&mut rig, server.socket(), "other", options()).unwrap_err().to_string();
    assert!(error.contains("nbd+unix:///other") && error.contains("the export's name"), "{error}");
    assert!(rig.reactor.now_ns() - begin_ns < 400 * MS);
    let error = try_open(&mut rig, server.socket().with_file_name("nobody"), EXPORT, options()).unwrap_err();
    assert!(error.to_string().contains("start the server"), "{error}");
    let tiny = Server::new(100, ALL, BlockSizes::UNSTATED);
    let error = try_open(&mut rig, tiny.socket(), EXPORT, options()).unwrap_err().to_string();
    assert!(error.contains("100 bytes"), "{error}");
}

#[test]
fn a_server_that_restarts_with_a_volatile_cache_gets_the_unflushed_writes_again() {
    let server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let mut bench = Bench::new(&server, options());
    assert_eq!(bench.write(1, 11, false), Ok(()));
    assert_eq!(bench.run(OpKind::Flush, 0, 0), Ok(()));
    assert_eq!(bench.write(2, 22, false), Ok(()));
    assert_eq!(bench.write(3, 33, true), Ok(()));
    assert_eq!(bench.write(2, 23, false), Ok(()));
    server.crash();
    assert_eq!(server.bytes(2 * 4096, 1), [0], "the crash lost it");
    server.start();
    assert_eq!([bench.read(1), bench.read(2), bench.read(3)], [11, 23, 33]);
    assert_eq!(bench.run(OpKind::Flush, 0, 0), Ok(()));
    assert_eq!(server.durable(2 * 4096, 1), [23]);
    assert!(bench.device.status().get().counters.replayed >= 2 && bench.doubts.is_empty());
}

#[test]
fn operations_in_flight_at_a_crash_end_well_once_the_server_is_back() {
    let server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let mut bench = Bench::new(&server, options());
    assert_eq!(bench.write(5, 55, true), Ok(()));
    server.go_silent_after(0);
    for token in 1..9 {
        bench.submit(token, OpKind::Read, 5 * 4096, 4096);
    }
    bench.rig.reactor.wait(bench.rig.reactor.now_ns() + 20 * MS);
    server.go_silent_after(u32::MAX);
    server.crash();
    server.start();
    for _ in 1..9 {
        assert_eq!(bench.next().result, Ok(()));
    }
    assert_eq!(bench.read(5), 55);
}

#[test]
fn a_silent_server_costs_the_deadline_and_no_more() {
    let server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let options = NbdOptions { request_timeout_ns: 200 * MS, connect_timeout_ns: 200 * MS, ..options() };
    let mut bench = Bench::new(&server, options);
    assert_eq!(bench.write(1, 1, false), Ok(()));
    server.go_silent_after(0);
    let begin_ns = bench.rig.reactor.now_ns();
    assert_eq!(bench.run(OpKind::Read, 0, 4096), Err(IoError::TimedOut));
    let waited_ns = bench.rig.reactor.now_ns() - begin_ns;
    assert!((190 * MS..2000 * MS).contains(&waited_ns), "{waited_ns} ns");
    server.go_silent_after(u32::MAX);
    for _ in 0..50 {
        if bench.run(OpKind::Read, 0, 4096).is_ok() {
            break;
        }
    }
    assert_eq!(bench.read(1), 1, "it heals by itself");
}

#[test]
fn a_server_that_comes_back_as_another_export_is_refused_and_what_is_lost_is_named() {
    let mut server = Server::new(BYTES, ALL, BlockSizes::UNSTATED);
    let options = NbdOptions { request_timeout_ns: 500 * MS, ..options() };
    let mut bench = Bench::new(&server, options);
    assert_eq!(bench.write(1, 1, false), Ok(()));
    server.crash();
    server.shrink();
    server.start();
    assert_eq!(bench.run(OpKind::Read, 0, 4096), Err(IoError::TimedOut));
    assert_eq!(bench.run(OpKind::Flush, 0, 0), Err(IoError::TimedOut));
    assert!(bench.doubts.iter().any(|doubt| doubt.is_lost && doubt.range.contains(&4096)), "{:?}", bench.doubts);
}
