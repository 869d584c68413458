//! Fair queueing against a naive oracle, and what its papers promise.

use super::{Charge, Share, StartTimeFair};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const DEPTH: u64 = 64 << 10;

fn charge(bytes: u64) -> Charge {
    Charge { cost_bytes: bytes, depth_bytes: bytes }
}

/// A flow for each weight, of a user of its own.
fn queue<T>(weights: &[u32], depth_bytes_max: u64) -> StartTimeFair<T> {
    let shares: Vec<_> = (0..).zip(weights).map(|(user, weight)| Share { weight: *weight, user }).collect();
    StartTimeFair::new(&shares, depth_bytes_max)
}

/// The text of the paper, without any index: every operation that ever came, with its tags as fractions of 1 / 1024.
struct Oracle {
    weights: Vec<u64>,
    virtual_time: u64,
    /// Flow, start, finish, bytes, number; and whether it waits, is in service or ended.
    all: Vec<(usize, u64, u64, u64, u32, State)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Runs,
    Ended,
}

impl Oracle {
    fn arrive(&mut self, flow: usize, bytes: u64, number: u32) {
        let before = self.all.iter().filter(|one| one.0 == flow).map(|one| one.2).max().unwrap_or(0);
        let start = self.virtual_time.max(before);
        self.all.push((flow, start, start + bytes * 1024 / self.weights[flow], bytes, number, State::Waits));
    }

    fn of(&self, state: State) -> impl Iterator<Item = &(usize, u64, u64, u64, u32, State)> {
        self.all.iter().filter(move |one| one.5 == state)
    }

    fn may_start(&self) -> bool {
        let mut flows: Vec<usize> = self.all.iter().filter(|one| one.5 != State::Ended).map(|one| one.0).collect();
        flows.sort_unstable();
        flows.dedup();
        self.of(State::Waits).count() > 0
            && (flows.len() == 1 || self.of(State::Runs).map(|one| one.3).sum::<u64>() < DEPTH)
    }

    /// Panics unless that one may go next.
    fn start(&mut self, number: u32) {
        let least = self.of(State::Waits).map(|one| one.1).min().expect("something waits");
        let at = self.all.iter().position(|one| one.4 == number).expect("it came");
        let (flow, start) = (self.all[at].0, self.all[at].1);
        assert_eq!((start, self.all[at].5), (least, State::Waits), "it has not the least start tag");
        assert!(!self.of(State::Waits).any(|one| one.0 == flow && one.4 < number), "it overtook one of its flow");
        self.all[at].5 = State::Runs;
        self.virtual_time = start;
    }

    fn end(&mut self, number: u32) -> (usize, u64) {
        let at = self.all.iter().position(|one| one.4 == number && one.5 == State::Runs).expect("it runs");
        self.all[at].5 = State::Ended;
        if self.all.iter().all(|one| one.5 == State::Ended) {
            self.virtual_time = self.all.iter().map(|one| one.2).max().unwrap_or(0);
        }
        (self.all[at].0, self.all[at].3)
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Come { flow: usize, bytes: u64 },
    End { which: usize },
}

/// In rushes, each with a likelihood of its own that something comes.
fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let rush = (0u32..100).prop_flat_map(|percent| {
        let come = (0usize..4, 1u64..64).prop_map(|(flow, blocks)| Deed::Come { flow, bytes: blocks * 1024 });
        let end = (0usize..1000).prop_map(|which| Deed::End { which });
        prop::collection::vec(prop_oneof![percent + 1 => come, 100 - percent => end], 1..30)
    });
    prop::collection::vec(rush, 1..20).prop_map(|rushes| rushes.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn it_does_what_the_paper_says(
        powers in prop::collection::vec(0u32..10, 4),
        deeds in deeds(),
    ) {
        let weights: Vec<u32> = powers.iter().map(|power| 1 << power).collect();
        let mut queue = queue(&weights, DEPTH);
        let weights = weights.iter().map(|weight| u64::from(*weight)).collect();
        let mut oracle = Oracle { weights, virtual_time: 0, all: Vec::new() };
        let mut running: Vec<u32> = Vec::new();
        for (number, deed) in (0..).zip(deeds) {
            match deed {
                Deed::Come { flow, bytes } => {
                    queue.arrive(flow, charge(bytes), number);
                    oracle.arrive(flow, bytes, number);
                }
                Deed::End { which } if !running.is_empty() => {
                    let (flow, bytes) = oracle.end(running.swap_remove(which % running.len()));
                    queue.end(flow, bytes);
                }
                Deed::End { .. } => {}
            }
            while oracle.may_start() {
                let next = queue.start();
                prop_assert!(next.is_some(), "it holds back what may start");
                oracle.start(next.unwrap());
                running.extend(next);
            }
            prop_assert_eq!(queue.start(), None);
            prop_assert!(!running.is_empty() || oracle.of(State::Waits).count() == 0, "nothing runs and something waits");
        }
    }

    /// Flows that always have something waiting, beside one that comes and goes: what went of them differs by one operation
    /// of each.
    #[test]
    fn flows_that_always_wait_get_their_shares_at_any_moment(
        weights in prop::collection::vec(1u32..=1000, 3),
        sizes in prop::collection::vec(1u64..64, 2),
        bursts in prop::collection::vec(0u32..40, 300),
    ) {
        let mut queue = queue(&weights, DEPTH);
        let mut running = alloc::collections::VecDeque::new();
        let mut went = [0u64; 3];
        for (flow, size) in sizes.iter().enumerate() {
            queue.arrive(flow, charge(size * 1024), (flow, size * 1024));
        }
        for burst in bursts {
            (0..burst.saturating_sub(30)).for_each(|_| queue.arrive(2, charge(4096), (2, 4096)));
            while let Some((flow, bytes)) = queue.start() {
                went[flow] += bytes;
                running.push_back((flow, bytes));
                if flow < 2 {
                    queue.arrive(flow, charge(bytes), (flow, bytes));
                }
                let share = |flow: usize| went[flow] as f64 / f64::from(weights[flow]);
                let each = |flow: usize| (sizes[flow] * 1024) as f64 / f64::from(weights[flow]);
                let apart = (share(0) - share(1)).abs();
                prop_assert!(apart <= (each(0) + each(1)) * 1.001, "{apart} apart, weights {weights:?}, sizes {sizes:?}");
            }
            let (flow, bytes) = running.pop_front().expect("something runs");
            queue.end(flow, bytes);
        }
    }
}

/// Runs one operation at a time for so many, each flow with so many always in hand; how many each got.
fn closed_loop(weights: &[u32], in_hand: &[u32], count: u32) -> Vec<u32> {
    let mut queue = queue(weights, 8 * 4096);
    let mut running = alloc::collections::VecDeque::new();
    let mut ended = vec![0; weights.len()];
    for (flow, in_hand) in in_hand.iter().enumerate() {
        (0..*in_hand).for_each(|_| queue.arrive(flow, charge(4096), flow));
    }
    for _ in 0..count {
        while let Some(flow) = queue.start() {
            running.push_back(flow);
        }
        let flow = running.pop_front().expect("something runs");
        queue.end(flow, 4096);
        ended[flow] += 1;
        queue.arrive(flow, charge(4096), flow);
    }
    ended
}

#[test]
fn whoever_has_more_in_hand_gets_no_more() {
    let ended = closed_loop(&[100; 4], &[128, 16, 16, 16], 4_000);
    assert!(ended.iter().all(|ended| ended.abs_diff(1_000) <= 32), "{ended:?}");
}

#[test]
fn shares_are_by_weight() {
    let ended = closed_loop(&[100, 100, 200, 400], &[128, 32, 32, 32], 8_000);
    let wanted = [1_000, 1_000, 2_000, 4_000];
    assert!(ended.iter().zip(wanted).all(|(ended, wanted)| ended.abs_diff(wanted) <= 32), "{ended:?}");
}

#[test]
fn a_flow_of_the_least_weight_is_not_starved() {
    let ended = closed_loop(&[1, 1000], &[8, 128], 20_020);
    assert!(ended[0].abs_diff(20) <= 8, "{ended:?}");
}

#[test]
fn one_flow_alone_is_not_held_back() {
    let mut queue = queue(&[1, 1], DEPTH);
    for nth in 0..1_000 {
        queue.arrive(0, charge(4096), nth);
        assert_eq!(queue.start(), Some(nth));
    }
    queue.arrive(1, charge(4096), 1_000);
    assert_eq!(queue.start(), None, "there is somebody to be fair to");
    (0..1_000 - 16).for_each(|_| queue.end(0, 4096));
    assert_eq!(queue.start(), None);
    queue.end(0, 4096);
    assert_eq!(queue.start(), Some(1_000));
}

#[test]
fn an_idle_flow_saves_nothing_up_and_owes_nothing() {
    let mut queue = queue(&[1, 1], 4096);
    for _ in 0..1_000 {
        queue.arrive(0, charge(4096), 0);
        assert_eq!(queue.start(), Some(0));
        queue.end(0, 4096);
    }
    // Both begin now, and take turns.
    for _ in 0..10 {
        queue.arrive(0, charge(4096), 0);
        queue.arrive(1, charge(4096), 1);
    }
    let mut ended = [0i32; 2];
    for _ in 0..20 {
        let flow = queue.start().expect("something waits");
        queue.end(flow, 4096);
        ended[flow] += 1;
        assert!((ended[0] - ended[1]).abs() <= 1, "{ended:?}");
    }
}

#[test]
fn what_does_not_wait_is_charged() {
    let mut queue = queue(&[1, 1], 4096);
    // While nobody wants anything it costs nobody anything.
    queue.charge(0, 1000 * 4096);
    queue.arrive(1, charge(4096), 1);
    queue.charge(0, 10 * 4096);
    for _ in 0..20 {
        queue.arrive(0, charge(4096), 0);
        queue.arrive(1, charge(4096), 1);
    }
    let mut first = Vec::new();
    for _ in 0..12 {
        let flow = queue.start().expect("something waits");
        queue.end(flow, 4096);
        first.push(flow);
    }
    assert_eq!(first.iter().filter(|flow| **flow == 1).count(), 11, "{first:?}");
}

#[test]
#[should_panic(expected = "not in service")]
fn what_ends_without_having_begun_is_a_bug() {
    let mut queue = queue::<()>(&[1], 4096);
    queue.end(0, 4096);
}

#[test]
fn one_user_alone_is_not_held_back_whatever_flows_it_has() {
    let shares = [Share { weight: 4, user: 0 }, Share { weight: 1, user: 0 }, Share { weight: 4, user: 1 }];
    let mut queue = StartTimeFair::new(&shares, DEPTH);
    for nth in 0..1_000 {
        queue.arrive(nth % 2, charge(4096), nth);
        assert_eq!(queue.start(), Some(nth));
    }
    queue.arrive(2, charge(4096), 1_000);
    assert_eq!(queue.start(), None, "there is somebody to be fair to");
}
