//! What one connection receives, taken apart: every split of the stream, and every way a server can break the rules.

use forebay_wire::Error;
use forebay_wire::nbd::client::{Action, Client, Config, Conn, Fed, Framer, Kind, Op, Payload, Request, Token};
use forebay_wire::nbd::constants::{Errno, TransmissionFlags};
use forebay_wire::nbd::{BlockSizes, Terms, reply};
use proptest::prelude::*;

const START: u64 = 4096;
const LENGTH: u32 = 2048;

/// Cookies as a client makes them: three reads and a write.
fn requests() -> Vec<(Request, Payload)> {
    let config = Config {
        connections_max: 1,
        in_flight_max: 4,
        outstanding_max: 4,
        held_bytes_max: 1 << 20,
        held_count_max: 16,
        request_timeout_ns: 1,
        connect_timeout_ns: 1,
        backoff_min_ns: 1,
        backoff_max_ns: 1,
        settle_ns: 0,
        seed: 0,
    };
    let terms = Terms {
        size_bytes: 1 << 20,
        flags: TransmissionFlags::HAS_FLAGS,
        blocks: BlockSizes::UNSTATED,
        structured: true,
    };
    let mut client = Client::new(config, 0);
    let connect = |action| match action {
        Some(Action::Connect { conn }) => conn,
        other => panic!("{other:?}"),
    };
    let conn: Conn = connect(client.poll_action());
    client.handle_connected(0, conn, terms);
    for (token, kind) in [Kind::Read, Kind::Read, Kind::Read, Kind::Write].into_iter().enumerate() {
        let op = Op { kind, offset: START, length: LENGTH, fua: false };
        assert_eq!(client.submit(0, Token(token as u64), op), Ok(()));
    }
    let mut requests = Vec::new();
    while let Some(action) = client.poll_action() {
        if let Action::Send { request, payload, .. } = action {
            requests.push((request, payload));
        }
    }
    assert_eq!(requests.len(), 4);
    requests.sort_by_key(|(_, payload)| match payload {
        Payload::Caller(token) => token.0,
        _ => panic!("{payload:?}"),
    });
    requests
}

fn framer(structured: bool) -> (Framer, Vec<u64>) {
    let mut framer = Framer::new(structured, 4);
    let requests = requests();
    for (request, payload) in &requests {
        framer.sent(request, *payload);
    }
    (framer, requests.iter().map(|(request, _)| request.cookie).collect())
}

/// What came of a stream: the buffers by token, and the replies.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    buffers: Vec<Vec<u8>>,
    replies: Vec<(u64, Result<(), Errno>)>,
}

/// Feeds the stream in portions of the given lengths, over and over, as a driver does.
fn receive(framer: &mut Framer, stream: &[u8], portions: &[usize]) -> Result<Outcome, Error> {
    let mut outcome = Outcome { buffers: vec![vec![0xee; LENGTH as usize]; 4], replies: Vec::new() };
    let mut portions = portions.iter().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let (mut portion, after) = rest.split_at(rest.len().min(*portions.next().unwrap_or(&1)));
        rest = after;
        loop {
            let (taken, fed) = framer.feed(portion)?;
            portion = &portion[taken..];
            match fed {
                Fed::More => {
                    assert!(portion.is_empty(), "bytes left behind");
                    break;
                }
                Fed::Payload { token, at, length } => {
                    let count = portion.len().min(length as usize);
                    let at = at as usize;
                    outcome.buffers[token.0 as usize][at..at + count].copy_from_slice(&portion[..count]);
                    portion = &portion[count..];
                    framer.delivered(count as u32);
                    if count < length as usize {
                        break;
                    }
                }
                Fed::Zeroes { token, at, length } => {
                    outcome.buffers[token.0 as usize][at as usize..(at + length) as usize].fill(0);
                }
                Fed::Reply { cookie, result } => outcome.replies.push((cookie, result)),
            }
        }
    }
    Ok(outcome)
}

fn data(cookie: u64, from: u32, to: u32, done: bool) -> Vec<u8> {
    let mut bytes = reply::data(cookie, START + u64::from(from), to - from, done).to_vec();
    bytes.extend((from..to).map(|at| at as u8));
    bytes
}

fn hole(cookie: u64, from: u32, to: u32, done: bool) -> Vec<u8> {
    reply::hole(cookie, START + u64::from(from), to - from, done).to_vec()
}

fn read_bytes() -> Vec<u8> {
    (0..LENGTH).map(|at| at as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn interleaved_replies_come_out_whole_however_the_stream_is_cut(
        portions in prop::collection::vec(1..700usize, 1..20),
        order in Just([0usize, 1, 2, 3, 4, 5, 6]).prop_shuffle(),
    ) {
        let (mut framer, cookies) = framer(true);
        // The pieces of the first two reads in any order; each one's end, and the rest, last.
        let pieces = [
            data(cookies[0], 0, 512, false),
            hole(cookies[0], 512, 1024, false),
            data(cookies[0], 1024, LENGTH, false),
            data(cookies[1], 1, 700, false),
            data(cookies[1], 700, LENGTH, false),
            data(cookies[1], 0, 1, false),
            reply::error(cookies[2], Errno::NoMemory, "no room", None, false).as_bytes().to_vec(),
        ];
        let mut stream: Vec<u8> = order.iter().flat_map(|at| pieces[*at].clone()).collect();
        stream.extend(reply::simple(cookies[3], Some(Errno::NoSpace)));
        stream.extend(reply::done(cookies[1]));
        stream.extend(reply::error(cookies[2], Errno::Io, "", Some(START), true).as_bytes());
        stream.extend(reply::done(cookies[0]));
        let outcome = receive(&mut framer, &stream, &portions).expect("nothing is wrong with it");
        let mut first = read_bytes();
        first[512..1024].fill(0);
        prop_assert_eq!(&outcome.buffers[0], &first);
        prop_assert_eq!(&outcome.buffers[1], &read_bytes());
        let replies = [
            (cookies[3], Err(Errno::NoSpace)),
            (cookies[1], Ok(())),
            (cookies[2], Err(Errno::NoMemory)),
            (cookies[0], Ok(())),
        ];
        prop_assert_eq!(outcome.replies, replies);
    }

    #[test]
    fn simple_replies_come_out_whole_however_the_stream_is_cut(
        portions in prop::collection::vec(1..700usize, 1..20),
    ) {
        let (mut framer, cookies) = framer(false);
        let mut stream = reply::simple(cookies[1], None).to_vec();
        stream.extend(read_bytes());
        stream.extend(reply::simple(cookies[3], None));
        stream.extend(reply::simple(cookies[0], Some(Errno::Io)));
        let outcome = receive(&mut framer, &stream, &portions).expect("nothing is wrong with it");
        prop_assert_eq!(&outcome.buffers[1], &read_bytes());
        let replies = [(cookies[1], Ok(())), (cookies[3], Ok(())), (cookies[0], Err(Errno::Io))];
        prop_assert_eq!(outcome.replies, replies);
    }

    #[test]
    fn no_stream_makes_it_panic_or_succeed_with_a_gap(
        pieces in prop::collection::vec((0..5u8, 0..4usize, 0..9u32, 1..9u32, any::<bool>()), 0..12),
        structured in any::<bool>(),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (mut framer, cookies) = framer(structured);
        let mut stream = Vec::new();
        for (kind, request, from, length, done) in pieces {
            let (cookie, from, to) = (cookies[request], from * 256, (from + length) * 256);
            match kind {
                0 => stream.extend(data(cookie, from, to, done)),
                1 => stream.extend(hole(cookie, from, to, done)),
                2 => stream.extend(reply::done(cookie)),
                3 => stream.extend(reply::simple(cookie, done.then_some(Errno::Io))),
                _ => stream.extend(reply::error(cookie, Errno::Io, "x", None, done).as_bytes()),
            }
        }
        stream.extend(noise);
        let mut outcome = Outcome { buffers: Vec::new(), replies: Vec::new() };
        if let Ok(received) = receive(&mut framer, &stream, &[64]) {
            outcome = received;
        }
        for (cookie, result) in outcome.replies {
            let request = cookies.iter().position(|c| *c == cookie).expect("an answer to what was asked");
            if request < 3 && result.is_ok() && structured {
                let named = |(at, byte): (usize, &u8)| *byte == 0 || *byte == at as u8;
                prop_assert!(outcome.buffers[request].iter().enumerate().all(named));
            }
        }
    }
}

#[test]
fn a_server_that_breaks_the_rules_is_found_out() {
    let (_, cookies) = framer(true);
    let [read, other, _, write] = cookies[..] else { panic!("four cookies") };
    let then = |first: Vec<u8>, second: Vec<u8>| [first, second].concat();
    let table = [
        ("an unknown cookie", reply::simple(read + (1 << 16), None).to_vec()),
        ("a place beyond the last", reply::simple(read | 0xffff, None).to_vec()),
        ("an answer given twice", then(data(read, 0, LENGTH, true), reply::done(read).to_vec())),
        ("data before the range", reply::data(read, START - 1, 8, false).to_vec()),
        ("data beyond the range", data(read, 1024, LENGTH + 1, false)),
        ("data at the end of everything", reply::data(read, u64::MAX - 3, 8, false).to_vec()),
        ("a hole beyond the range", hole(read, 0, LENGTH + 1, false)),
        ("data sent twice", then(data(read, 0, 512, false), data(read, 511, 600, false))),
        ("data over a hole", then(hole(read, 0, 512, false), data(read, 0, 512, false))),
        ("data around data", then(data(read, 512, 600, false), data(read, 0, LENGTH, false))),
        ("a gap at the end", then(data(read, 0, LENGTH - 1, false), reply::done(read).to_vec())),
        ("a gap in the middle", then(data(other, 0, 512, false), hole(other, 513, LENGTH, true))),
        ("nothing at all", reply::done(read).to_vec()),
        ("data for a write", data(write, 0, 512, true)),
        ("a simple reply to a read", reply::simple(read, None).to_vec()),
        ("no magic", vec![0; 20]),
    ];
    for (what, stream) in table {
        let (mut framer, again) = framer(true);
        assert_eq!(again, cookies, "cookies depend on nothing else");
        // An end that is due is noticed when the next bytes come.
        let stream = then(stream, reply::done(write).to_vec());
        let result = receive(&mut framer, &stream, &[4096]);
        assert!(matches!(result, Err(Error::Protocol { .. })), "{what}: {result:?}");
    }
    let (mut plain, _) = framer(false);
    assert!(receive(&mut plain, &data(read, 0, LENGTH, true), &[4096]).is_err(), "not negotiated");
}

#[test]
fn too_many_scattered_pieces_are_refused() {
    let (mut framer, cookies) = framer(true);
    let stream: Vec<u8> = (0..65).flat_map(|n| data(cookies[0], n * 16, n * 16 + 8, false)).collect();
    assert!(receive(&mut framer, &stream, &[100]).is_err());
}

#[test]
fn a_simple_error_to_a_read_is_accepted_with_structured_replies() {
    let (mut framer, cookies) = framer(true);
    let outcome = receive(&mut framer, &reply::simple(cookies[0], Some(Errno::Io)), &[7]).expect("an error reply");
    assert_eq!(outcome.replies, [(cookies[0], Err(Errno::Io))]);
}
