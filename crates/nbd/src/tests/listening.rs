//! From connect to GO: who gets in, who is turned away, and who is waited for how long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use forebay_wire::nbd::client_handshake::{ClientHandshake, Progress};
use forebay_wire::nbd::constants::{opt, rep};
use forebay_wire::nbd::option::{REPLY_HEADER_BYTES, ReplyHeader, push_option};

use super::client::{Client, pattern};
use super::world::{Setup, VOLUME_BYTES, World};
use crate::Endpoint;

/// The option replies that a hand-made client gets after its options.
fn haggle(world: &World, options: &[(u32, &[u8])]) -> Vec<ReplyHeader> {
    let mut socket = world.socket();
    socket.read_exact(&mut [0; 18]).unwrap();
    let mut bytes = vec![0, 0, 0, 3];
    for (option, data) in options {
        push_option(&mut bytes, *option, data);
    }
    socket.write_all(&bytes).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    let mut head = [0; REPLY_HEADER_BYTES];
    while socket.read_exact(&mut head).is_ok() {
        let header = ReplyHeader::decode(&head).unwrap();
        socket.read_exact(&mut vec![0; header.length as usize]).unwrap();
        replies.push(header);
    }
    replies
}

#[test]
fn options_are_answered_in_order_even_when_pipelined() {
    let world = World::new(Setup::default());
    let info = [&[0, 0, 0, 3][..], b"vol", &[0, 0]].concat();
    let options: [(u32, &[u8]); 4] =
        [(opt::LIST, b""), (opt::INFO, &info), (opt::EXTENDED_HEADERS, b""), (opt::ABORT, b"")];
    let replies: Vec<_> = haggle(&world, &options).iter().map(|header| (header.option, header.reply)).collect();
    assert_eq!(replies[..3], [(opt::LIST, rep::SERVER), (opt::LIST, rep::SERVER), (opt::LIST, rep::ACK)]);
    assert_eq!(replies[3], (opt::INFO, rep::INFO));
    let end = [(opt::INFO, rep::ACK), (opt::EXTENDED_HEADERS, rep::ERR_UNSUP), (opt::ABORT, rep::ACK)];
    assert_eq!(replies[replies.len() - 3..], end);
    let report = world.finish();
    assert_eq!((report.listener.left, report.listener.handed_over), (1, 0));
}

#[test]
fn requests_sent_right_behind_go_are_served() {
    let world = World::new(Setup::default());
    let mut socket = world.socket();
    socket.read_exact(&mut [0; 18]).unwrap();
    let mut bytes = vec![0, 0, 0, 3];
    push_option(&mut bytes, opt::EXPORT_NAME, b"vol");
    let mut client = Client::new(socket, world.terms(false));
    bytes.extend_from_slice(&client.write_bytes(4096, &pattern(1, 1024)));
    client.stream.write_all(&bytes).unwrap();
    let mut export = [0; 10];
    client.stream.read_exact(&mut export).unwrap();
    assert_eq!(export[..8], VOLUME_BYTES.to_be_bytes());
    assert!(client.answer().unwrap().1.is_ok());
    assert_eq!(client.read(4096, 1024).unwrap(), pattern(1, 1024));
    drop(client);
    world.finish();
}

#[test]
fn garbage_in_the_handshake_ends_it() {
    let world = World::new(Setup::default());
    for seed in 0..50 {
        let mut socket = world.socket();
        let mut bytes = vec![0, 0, 0, 3];
        bytes.extend_from_slice(&pattern(seed, 2000));
        // It may be closed before everything was written.
        let _ = socket.write_all(&bytes);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let mut client = world.client(true);
    assert!(client.read(0, 512).is_ok());
    drop(client);
    let report = world.finish();
    assert_eq!(report.listener.garbage, 50);
}

#[test]
fn an_export_that_is_not_there_is_refused_and_another_may_be_chosen() {
    let world = World::new(Setup::default());
    let mut handshake = ClientHandshake::new("nothing", true).unwrap();
    let mut socket = world.socket();
    let refused = loop {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        let (_, progress) = handshake.feed(&byte);
        socket.write_all(handshake.output()).unwrap();
        handshake.sent(handshake.output().len());
        match progress {
            Progress::Pending => {}
            Progress::Ready(_) => break false,
            Progress::Failed(_) => break true,
        }
    };
    assert!(refused);
    let other = Client::connect(world.socket(), "other", true);
    assert_eq!(other.terms.size_bytes, 1 << 20);
    drop(other);
    world.finish();
}

#[test]
fn a_handshake_has_its_time() {
    let world = World::new(Setup { handshake_timeout: Duration::from_millis(500), ..Setup::default() });
    let begin = Instant::now();
    let mut silent = world.socket();
    let mut slow = world.socket();
    let trickle = std::thread::spawn(move || {
        while slow.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    // Meanwhile others are served at once.
    let mut client = world.client(true);
    assert!(client.read(0, 512).is_ok());
    assert!(begin.elapsed() < Duration::from_millis(450), "{:?}", begin.elapsed());
    silent.read_to_end(&mut Vec::new()).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(500));
    trickle.join().unwrap();
    drop(client);
    let report = world.finish();
    assert_eq!(report.listener.timed_out + report.listener.garbage, 2);
    assert!(report.listener.timed_out >= 1);
}

#[test]
fn idle_handshakes_give_way_to_new_clients() {
    let world = World::new(Setup { handshakes_max: 4, ..Setup::default() });
    let idle: Vec<_> = (0..20).map(|_| world.socket()).collect();
    let begin = Instant::now();
    let mut client = world.client(true);
    assert!(client.read(0, 512).is_ok());
    assert!(begin.elapsed() < Duration::from_secs(1));
    drop((idle, client));
    let report = world.finish();
    assert!(report.listener.displaced >= 16, "{:?}", report.listener);
}

#[test]
fn the_oldest_handshake_gives_way_not_the_newest() {
    let world = World::new(Setup { handshakes_max: 2, ..Setup::default() });
    let _oldest = world.socket();
    let mut newest = world.socket();
    newest.read_exact(&mut [0; 18]).unwrap();
    let _one_more = world.socket();
    std::thread::sleep(Duration::from_millis(20));
    let mut bytes = vec![0, 0, 0, 3];
    push_option(&mut bytes, opt::ABORT, b"");
    newest.write_all(&bytes).unwrap();
    newest.read_exact(&mut [0; REPLY_HEADER_BYTES]).expect("its handshake goes on");
    let report = world.finish();
    assert_eq!((report.listener.displaced, report.listener.left), (1, 1));
}

#[test]
fn clients_beyond_the_limit_are_turned_away_until_one_leaves() {
    let world = World::new(Setup { clients_max: 3, ..Setup::default() });
    let mut clients: Vec<_> = (0..3).map(|_| world.client(true)).collect();
    let mut extra = world.socket();
    assert_eq!(extra.read(&mut [0; 64]).unwrap(), 0, "closed without a greeting");
    clients.pop().unwrap().disconnect();
    world.wait_for_clients(2);
    let mut client = world.client(true);
    assert!(client.read(0, 512).is_ok());
    for client in &mut clients {
        assert!(client.read(0, 512).is_ok());
    }
    drop((client, clients));
    let report = world.finish();
    assert_eq!(report.listener.turned_away, 1);
}

#[test]
fn tcp_clients_are_served_too() {
    let world = World::new(Setup { tcp: true, ..Setup::default() });
    let Endpoint::Tcp(address) = world.listener.endpoints()[1].clone() else { panic!("the second is TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Client::connect(stream, "vol", true);
    let bytes = pattern(1, 1 << 20);
    assert!(client.write(0, &bytes).is_ok());
    assert!(client.read(0, 1 << 20).unwrap() == bytes);
    client.disconnect();
    world.finish();
}

#[test]
fn a_stop_ends_connections_after_their_answers() {
    let world = World::new(Setup::default());
    let mut client = world.client(true);
    let half = client.write_bytes(0, &[1; 4096]);
    client.stream.write_all(&half[..1000]).unwrap();
    let mut rest = client.stream.try_clone().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let finishing = std::thread::spawn(move || world.finish());
    std::thread::sleep(Duration::from_millis(50));
    rest.write_all(&half[1000..]).unwrap();
    assert!(client.answer().unwrap().1.is_ok(), "a write that had begun is finished");
    client.assert_closed();
    let report = finishing.join().unwrap();
    assert_eq!(report.memory[..4096], [1; 4096]);
}
