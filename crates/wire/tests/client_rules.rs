//! One test for each rule of the NBD client that its module doc states.

use std::collections::VecDeque;

use forebay_wire::nbd::client::{
    Action, Client, CloseWhy, ClosedBy, Config, Conn, Failure, Invalid, Kind, Op, Payload, Refused, Request, Token,
};
use forebay_wire::nbd::constants::{CommandFlags, Errno, TransmissionFlags as Flags};
use forebay_wire::nbd::request::{self, Command};
use forebay_wire::nbd::{BlockSizes, Terms};

const MS: u64 = 1_000_000;
const KIB: u64 = 1024;

fn config() -> Config {
    Config {
        connections_max: 2,
        in_flight_max: 4,
        outstanding_max: 128,
        held_bytes_max: 64 * KIB,
        held_count_max: 100,
        request_timeout_ns: 100 * MS,
        connect_timeout_ns: 10 * MS,
        backoff_min_ns: MS,
        backoff_max_ns: 8 * MS,
        settle_ns: 20 * MS,
        seed: 1,
    }
}

fn terms() -> Terms {
    let flags = [Flags::HAS_FLAGS, Flags::SEND_FLUSH, Flags::SEND_FUA, Flags::SEND_TRIM, Flags::SEND_WRITE_ZEROES];
    Terms {
        size_bytes: 1 << 20,
        flags: flags.into_iter().fold(Flags::NONE, Flags::with),
        blocks: BlockSizes::UNSTATED,
        structured: true,
    }
}

fn several() -> Terms {
    let terms = terms();
    Terms { flags: terms.flags.with(Flags::CAN_MULTI_CONN), ..terms }
}

fn write(offset: u64, length: u64) -> Op {
    Op { kind: Kind::Write, offset, length: length as u32, fua: false }
}

fn read(offset: u64, length: u64) -> Op {
    Op { kind: Kind::Read, ..write(offset, length) }
}

/// A client and a clock. Orders are sorted as they come.
struct Bench {
    client: Client,
    now_ns: u64,
    connects: VecDeque<Conn>,
    sends: VecDeque<(Conn, Request, Payload)>,
    closes: VecDeque<(Conn, CloseWhy)>,
    completions: VecDeque<(u64, Result<(), Failure>)>,
    in_doubt: Vec<(u64, u64)>,
    /// Of these, where writes may be gone.
    losses: usize,
    copies: usize,
}

impl Bench {
    fn new(config: Config) -> Self {
        let mut bench = Self {
            client: Client::new(config, 0),
            now_ns: 0,
            connects: VecDeque::new(),
            sends: VecDeque::new(),
            closes: VecDeque::new(),
            completions: VecDeque::new(),
            in_doubt: Vec::new(),
            losses: 0,
            copies: 0,
        };
        bench.drain();
        bench
    }

    /// With one connection ready, and nothing inherited.
    fn ready(config: Config, terms: Terms) -> (Self, Conn) {
        let mut bench = Self::new(config);
        let conn = bench.connect(terms);
        if terms.flags.has(Flags::SEND_FLUSH) {
            assert_eq!(bench.answer(Ok(())), Op::FLUSH);
        }
        (bench, conn)
    }

    fn drain(&mut self) {
        while let Some(action) = self.client.poll_action() {
            match action {
                Action::Connect { conn } => self.connects.push_back(conn),
                Action::Close { conn, why } => self.closes.push_back((conn, why)),
                Action::Send { conn, request, payload } => self.sends.push_back((conn, request, payload)),
                Action::Hold { .. } => self.copies += 1,
                Action::Release { .. } => self.copies -= 1,
                Action::Complete { token, result } => self.completions.push_back((token.0, result)),
                Action::InDoubt { offset, length, is_lost } => {
                    self.in_doubt.push((offset, length));
                    self.losses += usize::from(is_lost);
                }
                Action::Report(_) => {}
            }
        }
    }

    fn connect(&mut self, terms: Terms) -> Conn {
        let conn = self.connects.pop_front().expect("an order to connect");
        self.client.handle_connected(self.now_ns, conn, terms);
        self.drain();
        conn
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.client.submit(self.now_ns, Token(token), op).expect("room");
        self.drain();
    }

    fn sent(&mut self) -> (Conn, Request, Payload) {
        self.sends.pop_front().expect("an order to send")
    }

    fn reply(&mut self, sent: (Conn, Request, Payload), result: Result<(), Errno>) {
        self.client.handle_reply(self.now_ns, sent.0, sent.1.cookie, result);
        self.drain();
    }

    /// The next request is answered.
    fn answer(&mut self, result: Result<(), Errno>) -> Op {
        let sent = self.sent();
        self.reply(sent, result);
        sent.1.op
    }

    /// Submits, is answered, completes.
    fn done(&mut self, token: u64, op: Op) -> Result<(), Failure> {
        self.submit(token, op);
        self.answer(Ok(()));
        self.completed(token)
    }

    fn completed(&mut self, token: u64) -> Result<(), Failure> {
        let (completed, result) = self.completions.pop_front().expect("a completion");
        assert_eq!(completed, token);
        result
    }

    fn closed(&mut self, conn: Conn, by: ClosedBy) {
        self.client.handle_closed(self.now_ns, conn, by);
        self.drain();
        self.sends.retain(|(of, ..)| *of != conn);
    }

    /// Lets time pass, stopping wherever the client wants to be called.
    fn pass(&mut self, by_ns: u64) {
        let end_ns = self.now_ns + by_ns;
        while let Some(next_ns) = self.client.next_timeout().filter(|next_ns| *next_ns <= end_ns) {
            self.now_ns = next_ns.max(self.now_ns);
            self.client.handle_timeout(self.now_ns);
            self.drain();
        }
        self.now_ns = end_ns;
    }
}

#[test]
fn requests_are_encoded_as_their_operation_says() {
    let (mut bench, _) = Bench::ready(config(), terms());
    let zeroes = Op { kind: Kind::WriteZeroes { no_hole: true }, fua: true, ..write(KIB, 2 * KIB) };
    for (op, command, flags) in [
        (read(KIB, KIB), Command::Read, CommandFlags::NONE),
        (write(4 * KIB, KIB), Command::Write, CommandFlags::NONE),
        (zeroes, Command::WriteZeroes, CommandFlags::FUA.with(CommandFlags::NO_HOLE)),
        (Op { kind: Kind::Trim, ..write(8 * KIB, KIB) }, Command::Trim, CommandFlags::NONE),
    ] {
        bench.submit(1, op);
        let sent = bench.sent();
        let wire = request::Request::decode(&sent.1.encode()).expect("a request");
        let expected = request::Request { flags, command, cookie: sent.1.cookie, offset: op.offset, length: op.length };
        assert_eq!(wire, expected);
        bench.reply(sent, Ok(()));
        assert_eq!(bench.completed(1), Ok(()));
    }
}

#[test]
fn a_write_is_held_until_a_flush_sent_after_its_answer_succeeds() {
    let (mut bench, _) = Bench::ready(config(), terms());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    assert_eq!((bench.client.held(), bench.copies), ((1, KIB), 1));
    bench.submit(2, write(KIB, KIB));
    let second = bench.sent();
    bench.submit(3, Op::FLUSH);
    let flush = bench.sent();
    bench.reply(second, Ok(()));
    assert_eq!(bench.completed(2), Ok(()));
    bench.reply(flush, Ok(()));
    assert_eq!(bench.completed(3), Ok(()));
    assert_eq!(bench.client.held(), (1, KIB), "the second was answered after the flush was sent");
    assert_eq!(bench.done(4, Op::FLUSH), Ok(()));
    assert_eq!((bench.client.held(), bench.copies), ((0, 0), 0));
}

#[test]
fn a_write_without_room_waits_for_a_forced_flush_and_reads_pass_it() {
    let (mut bench, _) = Bench::ready(Config { held_bytes_max: 8 * KIB, ..config() }, terms());
    assert_eq!(bench.done(1, write(0, 4 * KIB)), Ok(()));
    assert!(bench.sends.is_empty(), "half of the room is not more than half");
    bench.submit(2, write(8 * KIB, 6 * KIB));
    bench.submit(3, read(0, KIB));
    let flush = bench.sent();
    assert_eq!(flush.1.op, Op::FLUSH);
    assert_eq!(bench.answer(Ok(())).kind, Kind::Read);
    assert_eq!(bench.completed(3), Ok(()));
    assert!(bench.sends.is_empty());
    bench.reply(flush, Ok(()));
    assert_eq!(bench.answer(Ok(())), write(8 * KIB, 6 * KIB));
    assert_eq!(bench.completed(2), Ok(()));
    assert_eq!(bench.answer(Ok(())), Op::FLUSH, "more than half is held");
    assert_eq!(bench.client.counters().flushes_forced, 3, "with the first of all");
    assert_eq!(bench.client.held(), (0, 0));
}

#[test]
fn an_operation_in_flight_at_its_deadline_completes_when_its_connection_is_closed() {
    let (mut bench, conn) = Bench::ready(Config { in_flight_max: 1, ..config() }, terms());
    bench.submit(1, read(0, KIB));
    bench.submit(2, read(0, KIB));
    let late = bench.sent();
    bench.pass(100 * MS);
    assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::RequestTimeout)));
    assert_eq!(bench.completed(2), Err(Failure::Unsent), "no buffer in use");
    assert!(bench.completions.is_empty());
    bench.reply(late, Ok(()));
    assert!(bench.completions.is_empty(), "a reply during the close counts for nothing");
    bench.closed(conn, ClosedBy::Us);
    assert_eq!(bench.completed(1), Err(Failure::Unanswered));
    assert_eq!(bench.client.outstanding(), 0);
}

#[test]
fn after_giving_a_connection_up_with_a_write_in_flight_nothing_is_sent_until_it_settles() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    bench.submit(1, write(0, KIB));
    bench.sends.clear();
    bench.pass(100 * MS);
    bench.closed(conn, ClosedBy::Us);
    assert_eq!(bench.completed(1), Err(Failure::Unanswered));
    bench.submit(2, write(0, KIB));
    bench.pass(8 * MS);
    bench.connect(terms());
    bench.pass(11 * MS);
    assert!(bench.sends.is_empty());
    bench.pass(MS);
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert_eq!(bench.completed(2), Ok(()));
    assert_eq!(bench.in_doubt, [(0, KIB)], "what the lost write left behind");
}

#[test]
fn held_writes_go_first_and_in_order_then_what_was_unanswered() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    for (token, op) in [(1, write(0, 2 * KIB)), (2, write(KIB, KIB)), (3, write(8 * KIB, KIB))] {
        assert_eq!(bench.done(token, op), Ok(()));
    }
    bench.submit(4, write(0, KIB));
    bench.submit(5, read(0, KIB));
    bench.closed(conn, ClosedBy::Peer);
    bench.pass(8 * MS);
    bench.connect(terms());
    let first = bench.sent();
    assert!(matches!(first.2, Payload::Held(_)));
    assert_eq!(first.1.op, write(0, 2 * KIB));
    assert!(bench.sends.is_empty(), "the second overlaps the first");
    bench.reply(first, Ok(()));
    assert_eq!(bench.answer(Ok(())), write(KIB, KIB));
    assert!(bench.completions.is_empty());
    assert_eq!(bench.answer(Ok(())), write(8 * KIB, KIB));
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert_eq!(bench.completed(4), Ok(()));
    assert_eq!(bench.answer(Ok(())), read(0, KIB));
    assert_eq!(bench.completed(5), Ok(()));
}

#[test]
fn a_refused_replay_names_its_range_and_fails_the_next_flush_once() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    assert_eq!(bench.done(1, write(4 * KIB, KIB)), Ok(()));
    assert_eq!(bench.done(2, write(32 * KIB, KIB)), Ok(()));
    bench.closed(conn, ClosedBy::Peer);
    bench.pass(8 * MS);
    bench.connect(terms());
    bench.answer(Err(Errno::NoSpace));
    bench.answer(Ok(()));
    assert_eq!((&bench.in_doubt[..], bench.losses), (&[(4 * KIB, KIB)][..], 1));
    assert_eq!(bench.client.held().0, 1);
    bench.submit(3, Op::FLUSH);
    assert_eq!(bench.completed(3), Err(Failure::InDoubt));
    assert_eq!(bench.done(4, Op::FLUSH), Ok(()));
    assert_eq!(bench.client.held().0, 0);
}

#[test]
fn a_failed_flush_tells_for_itself_and_a_forced_one_through_the_next() {
    let (mut bench, _) = Bench::ready(Config { held_count_max: 3, ..config() }, terms());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    bench.submit(2, Op::FLUSH);
    bench.answer(Err(Errno::Io));
    assert_eq!(bench.completed(2), Err(Failure::Server(Errno::Io)));
    assert_eq!(bench.in_doubt, [(0, KIB)]);
    assert_eq!(bench.done(3, Op::FLUSH), Ok(()));

    assert_eq!(bench.done(4, write(0, KIB)), Ok(()));
    assert_eq!(bench.done(5, write(KIB, KIB)), Ok(()));
    assert_eq!(bench.answer(Err(Errno::Io)), Op::FLUSH);
    assert_eq!(bench.in_doubt, [(0, KIB), (0, 2 * KIB)]);
    bench.submit(6, Op::FLUSH);
    assert_eq!(bench.completed(6), Err(Failure::InDoubt));
    assert_eq!(bench.done(7, Op::FLUSH), Ok(()));
}

/// The flush fails, and the server drops what it covers; a read sees that, and the replay brings the write back.
#[test]
fn what_was_read_of_held_writes_while_a_flush_was_under_way_is_in_doubt_when_its_answer_is_lost() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    bench.submit(2, Op::FLUSH);
    let flush = bench.sent();
    assert_eq!(bench.done(3, read(0, 4 * KIB)), Ok(()));
    assert_eq!(bench.done(4, read(8 * KIB, KIB)), Ok(()));
    bench.closed(conn, ClosedBy::Peer);
    bench.pass(8 * MS);
    bench.connect(terms());
    assert_eq!((&bench.in_doubt[..], bench.losses), (&[(0, 4 * KIB)][..], 0), "where a write is held");
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert_eq!(bench.answer(Ok(())), flush.1.op);
    assert_eq!(bench.completed(2), Ok(()), "nothing is lost");
    assert_eq!(bench.in_doubt.len(), 1);
}

#[test]
fn what_was_read_under_a_flush_that_is_answered_is_not_in_doubt_later() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    bench.submit(2, Op::FLUSH);
    let flush = bench.sent();
    assert_eq!(bench.done(3, read(0, KIB)), Ok(()));
    bench.reply(flush, Ok(()));
    assert_eq!(bench.completed(2), Ok(()));
    assert_eq!(bench.done(4, write(0, KIB)), Ok(()));
    bench.closed(conn, ClosedBy::Peer);
    bench.pass(8 * MS);
    bench.connect(terms());
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert!(bench.in_doubt.is_empty());
}

#[test]
fn many_ranges_in_doubt_are_told_as_the_whole_export() {
    let (mut bench, _) = Bench::ready(Config { held_bytes_max: 256 * KIB, held_count_max: 200, ..config() }, terms());
    for token in 0..65 {
        assert_eq!(bench.done(token, write(token * 2 * KIB, KIB)), Ok(()));
    }
    bench.submit(99, Op::FLUSH);
    bench.answer(Err(Errno::Io));
    assert_eq!(bench.in_doubt, [(0, 1 << 20)]);
}

#[test]
fn a_changed_export_is_refused_until_it_is_again_what_it_was() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    bench.closed(conn, ClosedBy::Peer);
    bench.submit(2, read(0, KIB));
    for changed in [
        Terms { size_bytes: 2 << 20, ..terms() },
        several(),
        Terms { blocks: BlockSizes { min_bytes: 4096, ..BlockSizes::UNSTATED }, ..terms() },
    ] {
        bench.pass(8 * MS);
        bench.connect(changed);
        assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::ExportChanged)));
        assert!(bench.client.is_export_changed());
        bench.closed(conn, ClosedBy::Us);
    }
    assert_eq!(bench.in_doubt, [(0, KIB), (0, 1 << 20)], "told once");
    assert_eq!(bench.copies, 0);
    bench.pass(8 * MS);
    bench.connect(terms());
    assert!(!bench.client.is_export_changed());
    assert_eq!(bench.answer(Ok(())), read(0, KIB));
    assert_eq!(bench.completed(2), Ok(()));
    bench.submit(3, Op::FLUSH);
    assert_eq!(bench.completed(3), Err(Failure::InDoubt));
    assert_eq!(bench.done(4, Op::FLUSH), Ok(()));
}

#[test]
fn without_flush_nothing_is_held_and_every_write_is_fua() {
    let (mut bench, _) = Bench::ready(config(), Terms { flags: terms().flags.without(Flags::SEND_FLUSH), ..terms() });
    bench.submit(1, write(0, KIB));
    assert!(bench.answer(Ok(())).fua);
    assert_eq!(bench.completed(1), Ok(()));
    assert_eq!(bench.client.held(), (0, 0));
    bench.submit(2, Op::FLUSH);
    assert_eq!(bench.completed(2), Ok(()));
    assert!(bench.sends.is_empty());
}

#[test]
fn without_fua_a_fua_write_completes_after_a_flush() {
    let (mut bench, _) = Bench::ready(config(), Terms { flags: terms().flags.without(Flags::SEND_FUA), ..terms() });
    bench.submit(1, Op { fua: true, ..write(0, KIB) });
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert!(bench.completions.is_empty());
    assert_eq!(bench.answer(Ok(())), Op::FLUSH);
    assert_eq!(bench.completed(1), Ok(()));
}

#[test]
fn a_fua_write_over_a_held_one_completes_after_a_flush_so_that_no_replay_can_undo_it() {
    let (mut bench, _) = Bench::ready(config(), terms());
    let fua = |offset| Op { fua: true, ..write(offset, KIB) };
    assert_eq!(bench.done(1, fua(0)), Ok(()));
    assert_eq!(bench.client.held().0, 0);
    assert_eq!(bench.done(2, write(0, 2 * KIB)), Ok(()));
    assert_eq!(bench.done(3, fua(4 * KIB)), Ok(()));
    assert_eq!(bench.client.held().0, 1);
    bench.submit(4, fua(KIB));
    assert_eq!(bench.answer(Ok(())), write(KIB, KIB));
    assert!(bench.completions.is_empty());
    assert_eq!(bench.answer(Ok(())), Op::FLUSH);
    assert_eq!(bench.completed(4), Ok(()));
    assert_eq!(bench.client.held().0, 0, "nothing is left that could be sent again over it");
}

#[test]
fn nothing_is_read_before_what_another_process_left_is_flushed() {
    let mut bench = Bench::new(config());
    bench.submit(1, read(0, KIB));
    bench.submit(2, write(0, KIB));
    let first = bench.connect(several());
    let flush = bench.sent();
    assert_eq!(flush.1.op, Op::FLUSH);
    bench.connect(several());
    bench.reply(flush, Ok(()));
    let flush = bench.sent();
    assert_eq!(flush.1.op, Op::FLUSH, "the first was sent before another connection joined");
    bench.closed(flush.0, ClosedBy::Peer);
    let again = bench.sent();
    assert_eq!((again.1.op, again.0 != flush.0), (Op::FLUSH, true));
    assert!(bench.sends.is_empty());
    bench.reply(again, Ok(()));
    let mut sent = [bench.answer(Ok(())), bench.answer(Ok(()))];
    sent.sort_by_key(|op| op.kind.changes());
    assert_eq!(sent, [read(0, KIB), write(0, KIB)]);
    assert!(bench.in_doubt.is_empty());
    assert!(first == flush.0 || first == again.0);
}

#[test]
fn a_first_flush_that_fails_is_told_by_the_next() {
    let mut bench = Bench::new(config());
    bench.connect(terms());
    assert_eq!(bench.answer(Err(Errno::Io)), Op::FLUSH);
    assert!(bench.in_doubt.is_empty(), "nothing was read yet");
    assert_eq!(bench.done(9, read(0, KIB)), Ok(()));
    bench.submit(1, Op::FLUSH);
    assert_eq!(bench.completed(1), Err(Failure::InDoubt));
    assert_eq!(bench.done(2, Op::FLUSH), Ok(()));
}

#[test]
fn a_stopping_server_is_left_and_its_requests_are_sent_again() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    bench.submit(1, write(0, KIB));
    bench.answer(Err(Errno::Shutdown));
    assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::ServerStopping)));
    bench.closed(conn, ClosedBy::Peer);
    assert!(bench.completions.is_empty());
    bench.pass(8 * MS);
    bench.connect(terms());
    assert_eq!(bench.answer(Ok(())), write(0, KIB));
    assert_eq!(bench.completed(1), Ok(()));
}

#[test]
fn a_reply_to_nothing_that_was_asked_ends_the_connection() {
    for change in [|cookie: u64| cookie ^ 1, |cookie: u64| cookie + (1 << 16), |_| u64::MAX] {
        let (mut bench, conn) = Bench::ready(config(), terms());
        bench.submit(1, read(0, KIB));
        let (_, request, _) = bench.sent();
        bench.client.handle_reply(0, conn, change(request.cookie), Ok(()));
        bench.drain();
        assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::UnknownCookie)));
        assert!(bench.completions.is_empty());
    }
}

#[test]
fn several_connections_only_where_the_export_allows_it() {
    let (mut bench, first) = Bench::ready(config(), terms());
    assert!(bench.connects.is_empty());
    bench.closed(first, ClosedBy::Peer);
    assert!(bench.connects.is_empty(), "not at once");

    let (mut bench, first) = Bench::ready(config(), several());
    let second = bench.connect(several());
    assert_ne!(first, second);
    bench.submit(1, read(0, KIB));
    bench.submit(2, read(0, KIB));
    let used = (bench.sent().0, bench.sent().0);
    assert!(used == (first, second) || used == (second, first), "the load is spread");
}

#[test]
fn a_flush_sent_before_a_connection_was_lost_does_not_count() {
    let (mut bench, first) = Bench::ready(config(), several());
    let second = bench.connect(several());
    assert_eq!(bench.done(1, write(0, KIB)), Ok(()));
    bench.submit(2, Op::FLUSH);
    let flush = bench.sent();
    let other = if flush.0 == first { second } else { first };
    bench.closed(other, ClosedBy::Peer);
    bench.reply(flush, Ok(()));
    assert!(bench.completions.is_empty());
    assert_eq!(bench.answer(Ok(())), write(0, KIB), "replayed over the one that is left");
    assert_eq!(bench.answer(Ok(())), Op::FLUSH);
    assert_eq!(bench.completed(2), Ok(()));
}

#[test]
fn what_does_not_fit_the_export_fails() {
    let (mut bench, _) = Bench::ready(Config { held_bytes_max: 16 * KIB, ..config() }, terms());
    let invalid = |why| Err(Failure::Invalid(why));
    let table = [
        (read(0, 0), invalid(Invalid::Empty)),
        (read((1 << 20) - 512, KIB), invalid(Invalid::OutOfRange)),
        (read(u64::MAX - 511, 512), invalid(Invalid::OutOfRange)),
        (read(0, 100), invalid(Invalid::Misaligned)),
        (write(0, 17 * KIB), invalid(Invalid::TooLong)),
    ];
    for (op, result) in table {
        bench.submit(1, op);
        assert_eq!(bench.completed(1), result, "{op:?}");
    }
    let read_only = Terms { flags: Flags::HAS_FLAGS.with(Flags::READ_ONLY), ..terms() };
    let (mut bench, _) = Bench::ready(config(), read_only);
    bench.submit(1, write(0, KIB));
    assert_eq!(bench.completed(1), Err(Failure::ReadOnly));
    let (mut bench, _) = Bench::ready(config(), Terms { flags: Flags::HAS_FLAGS, ..terms() });
    for kind in [Kind::Trim, Kind::WriteZeroes { no_hole: true }] {
        bench.submit(1, Op { kind, ..write(0, KIB) });
        assert_eq!(bench.completed(1), Err(Failure::Unsupported));
    }
}

#[test]
fn attempts_to_connect_are_given_up_and_repeated_with_growing_delays() {
    let mut bench = Bench::new(config());
    let conn = bench.connects.pop_front().unwrap();
    bench.pass(10 * MS);
    assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::ConnectTimeout)));
    let mut delays = Vec::new();
    for _ in 0..8 {
        bench.client.handle_connect_failed(bench.now_ns, conn);
        bench.drain();
        let next_ns = bench.client.next_timeout().unwrap();
        delays.push(next_ns - bench.now_ns);
        bench.pass(next_ns - bench.now_ns);
        assert_eq!(bench.connects.pop_front(), Some(conn));
    }
    assert!(delays[0] < MS && delays[7] >= 4 * MS && delays[7] < 8 * MS, "{delays:?}");
}

#[test]
fn the_number_of_operations_is_bounded_and_stop_ends_them() {
    let (mut bench, conn) = Bench::ready(Config { outstanding_max: 2, ..config() }, terms());
    bench.submit(1, read(0, KIB));
    bench.submit(2, read(0, KIB));
    assert_eq!(bench.client.submit(0, Token(3), read(0, KIB)), Err(Refused::Full));
    bench.client.stop(0);
    assert_eq!(bench.client.submit(0, Token(3), read(0, KIB)), Err(Refused::Stopped));
    bench.answer(Ok(()));
    bench.answer(Ok(()));
    assert_eq!(bench.closes.pop_front(), Some((conn, CloseWhy::Stopped)));
    assert!(!bench.client.is_stopped());
    bench.closed(conn, ClosedBy::Us);
    assert!(bench.client.is_stopped());
    assert_eq!(bench.client.next_timeout(), None);
}

#[test]
fn a_connection_that_answered_is_soon_made_again_however_often_it_was_lost() {
    let slow = Config { backoff_max_ns: 1000 * MS, ..config() };
    let (mut bench, mut conn) = Bench::ready(slow, terms());
    for round in 0..20 {
        assert_eq!(bench.done(round, read(0, KIB)), Ok(()));
        bench.closed(conn, ClosedBy::Peer);
        bench.pass(4 * MS);
        conn = bench.connect(terms());
    }
}

#[test]
fn a_read_is_given_up_while_no_connection_has_it_in_hand() {
    let (mut bench, conn) = Bench::ready(config(), terms());
    bench.submit(1, read(0, KIB));
    bench.client.give_up(Token(1));
    bench.drain();
    assert!(bench.completions.is_empty(), "its answer may be on the way");
    bench.closed(conn, ClosedBy::Peer);
    bench.submit(2, read(KIB, KIB));
    bench.client.give_up(Token(1));
    bench.drain();
    assert_eq!(bench.completed(1), Err(Failure::Unsent));
    bench.pass(4 * MS);
    bench.connect(terms());
    assert_eq!(bench.answer(Ok(())).offset, KIB, "only the other is sent");
    assert_eq!(bench.completed(2), Ok(()));
    assert!(bench.sends.is_empty());
}
