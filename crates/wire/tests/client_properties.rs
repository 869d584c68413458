//! Random operations, cuts, restarts, errors and timeouts against a model server with a volatile write cache.
//!
//! What is checked in every world: reads see the last acknowledged write (or an unfinished one); after a flush that
//! succeeded, everything acknowledged before it survives a restart; overlapping writes end in order; each operation
//! completes once; no buffer is touched after its completion; what a cache above would still hold is what the server
//! holds; bounds are kept and nothing is left over.

mod client_model;

use client_model::server::BLOCK_BYTES;
use client_model::world::{BLOCKS, Setup, World};
use forebay_wire::nbd::client::{Config, Kind, Op};
use forebay_wire::nbd::constants::TransmissionFlags;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(Op),
    Execute(usize),
    Answer(usize),
    Connect(usize, bool),
    CloseDue(usize),
    Cut(usize),
    Haunt(usize),
    Restart,
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        7 => Just(Kind::Read),
        8 => Just(Kind::Write),
        1 => Just(Kind::WriteZeroes { no_hole: false }),
        1 => Just(Kind::Trim),
        2 => Just(Kind::Flush),
    ];
    (kind, 0..BLOCKS as u64, 1..4u32, prop::bool::weighted(0.15)).prop_map(|(kind, first, count, fua)| {
        if kind == Kind::Flush {
            return Op::FLUSH;
        }
        let count = count.min((BLOCKS as u64 - first) as u32);
        Op { kind, offset: first * u64::from(BLOCK_BYTES), length: count * BLOCK_BYTES, fua: fua && kind != Kind::Read }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => op().prop_map(Step::Submit),
        30 => (0..64usize).prop_map(Step::Execute),
        30 => (0..64usize).prop_map(Step::Answer),
        12 => (0..8usize, prop::bool::weighted(0.85)).prop_map(|(n, ok)| Step::Connect(n, ok)),
        8 => (0..8usize).prop_map(Step::CloseDue),
        4 => (0..8usize).prop_map(Step::Cut),
        3 => (0..8usize).prop_map(Step::Haunt),
        2 => Just(Step::Restart),
        6 => prop_oneof![0..3 * MS, 0..15 * MS, 0..60 * MS].prop_map(Step::Advance),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![prop::collection::vec(step(), 0..50), prop::collection::vec(step(), 0..250)]
}

fn setup(errors: bool) -> impl Strategy<Value = Setup> {
    let config = (1..4u8, 1..5u16, 4..13u64, 2..10u32, any::<u64>()).prop_map(
        |(connections_max, in_flight_max, held_blocks, held_count_max, seed)| Config {
            connections_max,
            in_flight_max,
            outstanding_max: 16,
            held_bytes_max: 4096.max(held_blocks * u64::from(BLOCK_BYTES)),
            held_count_max,
            request_timeout_ns: 40 * MS,
            connect_timeout_ns: 20 * MS,
            backoff_min_ns: MS,
            backoff_max_ns: 20 * MS,
            settle_ns: 15 * MS,
            seed,
        },
    );
    let flags = (any::<bool>(), any::<bool>()).prop_map(|(multi, fua)| {
        let mut flags =
            TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::SEND_TRIM).with(TransmissionFlags::SEND_WRITE_ZEROES);
        if multi {
            flags = flags.with(TransmissionFlags::CAN_MULTI_CONN);
        }
        if fua {
            flags = flags.with(TransmissionFlags::SEND_FUA);
        }
        flags
    });
    (any::<u64>(), config, flags, any::<bool>()).prop_map(move |(seed, config, flags, trim_zeroes)| Setup {
        seed,
        config,
        flags,
        trim_zeroes,
        errors,
    })
}

fn run(setup: Setup, steps: &[Step]) -> World {
    let mut world = World::new(setup);
    for step in steps {
        match *step {
            Step::Submit(op) => world.submit(op),
            Step::Execute(nth) => drop(world.execute(nth)),
            Step::Answer(nth) => drop(world.answer(nth)),
            Step::Connect(nth, succeeds) => drop(world.connect(nth, succeeds)),
            Step::CloseDue(nth) => drop(world.close_due(nth)),
            Step::Cut(at) => drop(world.cut(at)),
            Step::Haunt(nth) => drop(world.haunt(nth)),
            Step::Restart => world.restart(),
            Step::Advance(by_ns) => world.advance(by_ns),
        }
    }
    world.settle_and_check();
    world
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { cases: count, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn without_errors_nothing_acknowledged_is_lost_and_no_flush_tells_of_doubt(
        setup in setup(false),
        steps in steps(),
    ) {
        let world = run(setup, &steps);
        prop_assert_eq!(world.client.counters().writes_in_doubt, 0);
    }

    #[test]
    fn with_errors_what_is_lost_is_named_and_a_flush_fails(
        setup in setup(true),
        steps in steps(),
    ) {
        run(setup, &steps);
    }
}

#[test]
fn an_answer_that_was_on_the_way_when_the_server_died_is_replayed_to_the_next() {
    let config = Config {
        connections_max: 2,
        in_flight_max: 4,
        outstanding_max: 16,
        held_bytes_max: 4096,
        held_count_max: 8,
        request_timeout_ns: 40 * MS,
        connect_timeout_ns: 20 * MS,
        backoff_min_ns: MS,
        backoff_max_ns: 20 * MS,
        settle_ns: 15 * MS,
        seed: 1,
    };
    let flags = TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::CAN_MULTI_CONN);
    let setup = Setup { seed: 3, config, flags, trim_zeroes: true, errors: false };
    let mut world = World::new(setup);
    assert!(world.connect(0, true));
    world.submit(Op { kind: Kind::Write, offset: 0, length: 2 * BLOCK_BYTES, fua: false });
    assert!(world.execute(0));
    for _ in 0..8 {
        // Until the dead server has lost the write.
        world.restart();
    }
    assert!(world.connect(0, true), "a second connection, to the new server");
    assert!(world.answer(0), "the old one's reply was still in a buffer");
    world.submit(Op::FLUSH);
    while world.execute(0) || world.answer(0) {}
    world.settle_and_check();
}
