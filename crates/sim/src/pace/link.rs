//! A link: bytes a second, divided fairly among those who want some now.
//!
//! Why: several volumes, and strangers, share the way to a storage server. What one of them gets depends on who else is
//! busy at this moment, so their queues cannot be modelled apart.
//!
//! How: max-min fairness by progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2), as a
//! fluid. Every flow whose line is not empty is served at `weight` times one common level, or at its own highest rate if
//! that is less; the level is the highest that the link can carry. A flow serves its line in order. Rates are worked out
//! anew when a flow becomes busy or idle, and when somebody changes a rate; in between all flows advance evenly.
//!
//! Competitors are flows that are always busy: each asks for so much, and gets less if the fair level is lower.
//!
//! Invariants: the rates of busy flows and competitors never sum to more than the link's; an idle flow saves nothing up.
//! Limits: nothing is lost and nothing is slow to adapt, unlike TCP, which takes round trips to find its share.

use forebay_engine::device::OpKind;
use std::collections::VecDeque;

const SECOND_NS: f64 = 1e9;
/// What is left of an operation that is through, at most: times are whole nanoseconds.
const REST_BYTES: f64 = 0.5;

/// Strangers on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Competitors {
    /// How many flows; each weighs as much as one of a volume's.
    pub flows: u32,
    /// What each asks for.
    pub flow_bytes_per_second: u64,
}

impl Competitors {
    /// Flows of 2.5 Gbit/s each on a link of 40, scaled to one of this rate (NetCAS, Hwang et al., section IV-A).
    #[must_use]
    pub fn of_netcas(flows: u32, link_bytes_per_second: u64) -> Self {
        Self { flows, flow_bytes_per_second: link_bytes_per_second / 16 }
    }
}

/// An operation on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcel {
    pub(super) token: u64,
    pub(super) kind: OpKind,
    pub(super) length: u64,
    pub(super) start_ns: u64,
}

#[derive(Debug)]
struct Flow {
    weight: f64,
    bytes_per_ns_max: f64,
    bytes_per_ns: f64,
    /// Parcels in line, and what each costs; the first is being carried.
    line: VecDeque<(f64, Parcel)>,
    /// What is left of the first.
    left_bytes: f64,
    /// Those that are through, and since when.
    through: VecDeque<(u64, Parcel)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    bytes_per_ns: f64,
    competitors: Competitors,
    flows: Vec<Flow>,
    now_ns: u64,
}

impl Link {
    /// A link of `bytes_per_second`; `None`: only the flows' own rates count.
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        let bytes_per_ns = bytes_per_second.map_or(f64::INFINITY, bytes_per_ns);
        Self { bytes_per_ns, competitors: Competitors::default(), flows: Vec::new(), now_ns: 0 }
    }

    /// One flow more; its number.
    pub(super) fn join(&mut self, weight: u32, bytes_per_second_max: u64) -> usize {
        assert!(weight > 0, "a flow has a weight");
        self.flows.push(Flow {
            weight: f64::from(weight),
            bytes_per_ns_max: bytes_per_ns(bytes_per_second_max),
            bytes_per_ns: 0.0,
            line: VecDeque::new(),
            left_bytes: 0.0,
            through: VecDeque::new(),
        });
        self.flows.len() - 1
    }

    /// Changes what the link carries.
    pub(super) fn set_rate(&mut self, now_ns: u64, bytes_per_second: u64) {
        self.advance(now_ns);
        self.bytes_per_ns = bytes_per_ns(bytes_per_second);
        self.share();
    }

    /// Changes what a flow can carry at most.
    pub(super) fn set_flow_rate(&mut self, now_ns: u64, flow: usize, bytes_per_second_max: u64) {
        self.advance(now_ns);
        self.flows[flow].bytes_per_ns_max = bytes_per_ns(bytes_per_second_max);
        self.share();
    }

    /// Changes who else is there.
    pub(super) fn set_competitors(&mut self, now_ns: u64, competitors: Competitors) {
        self.advance(now_ns);
        self.competitors = competitors;
        self.share();
    }

    /// Puts a parcel into a flow's line.
    pub(super) fn push(&mut self, now_ns: u64, flow: usize, cost_bytes: u64, parcel: Parcel) {
        self.advance(now_ns);
        let flow = &mut self.flows[flow];
        let was_idle = flow.line.is_empty();
        flow.line.push_back((cost_bytes as f64, parcel));
        if was_idle {
            flow.left_bytes = cost_bytes as f64;
            self.share();
        }
    }

    /// The next of a flow's parcels that is through, and since when.
    pub(super) fn pop(&mut self, now_ns: u64, flow: usize) -> Option<(u64, Parcel)> {
        self.advance(now_ns);
        self.flows[flow].through.pop_front()
    }

    /// When the next of a flow's parcels is through, if nothing changes.
    pub(super) fn next_ns(&self, flow: usize) -> Option<u64> {
        let flow = &self.flows[flow];
        flow.through.front().map(|(at_ns, _)| *at_ns).or_else(|| flow.end_ns(self.now_ns))
    }

    fn advance(&mut self, now_ns: u64) {
        while let Some(end_ns) = self.flows.iter().filter_map(|flow| flow.end_ns(self.now_ns)).min()
            && end_ns <= now_ns
        {
            self.pass(end_ns);
            let mut fell_idle = false;
            for flow in &mut self.flows {
                fell_idle |= flow.end(end_ns);
            }
            if fell_idle {
                self.share();
            }
        }
        self.pass(now_ns.max(self.now_ns));
    }

    fn pass(&mut self, to_ns: u64) {
        let elapsed_ns = (to_ns - self.now_ns) as f64;
        for flow in self.flows.iter_mut().filter(|flow| !flow.line.is_empty()) {
            flow.left_bytes -= flow.bytes_per_ns * elapsed_ns;
        }
        self.now_ns = to_ns;
    }

    /// Progressive filling: those who want less than the level get what they want, which raises it for the others.
    fn share(&mut self) {
        for flow in &mut self.flows {
            flow.bytes_per_ns = if flow.line.is_empty() { 0.0 } else { f64::NAN };
        }
        let undecided = |flow: &Flow| flow.bytes_per_ns.is_nan();
        let mut rest = self.bytes_per_ns;
        let mut competitors = f64::from(self.competitors.flows);
        let competitor_max = bytes_per_ns(self.competitors.flow_bytes_per_second);
        loop {
            let weights = self.flows.iter().filter(|flow| undecided(flow)).map(|flow| flow.weight).sum::<f64>();
            let level = rest / (weights + competitors);
            let mut any = false;
            if competitors > 0.0 && competitor_max <= level {
                rest -= competitors * competitor_max;
                competitors = 0.0;
                any = true;
            }
            for flow in self.flows.iter_mut().filter(|flow| undecided(flow)) {
                if flow.bytes_per_ns_max <= level * flow.weight {
                    flow.bytes_per_ns = flow.bytes_per_ns_max;
                    rest -= flow.bytes_per_ns_max;
                    any = true;
                }
            }
            if !any {
                let undecided = self.flows.iter_mut().filter(|flow| undecided(flow));
                return undecided.for_each(|flow| flow.bytes_per_ns = level * flow.weight);
            }
        }
    }
}

impl Flow {
    fn end_ns(&self, now_ns: u64) -> Option<u64> {
        self.line.front()?;
        let carry_ns = (self.left_bytes.max(0.0) / self.bytes_per_ns).ceil();
        Some(now_ns.saturating_add(carry_ns as u64))
    }

    /// Lets go of what is through. Whether nothing is left.
    fn end(&mut self, now_ns: u64) -> bool {
        while self.left_bytes < REST_BYTES
            && let Some((_, parcel)) = self.line.pop_front()
        {
            self.through.push_back((now_ns, parcel));
            let Some((cost_bytes, _)) = self.line.front() else { return true };
            self.left_bytes += cost_bytes;
        }
        false
    }
}

fn bytes_per_ns(bytes_per_second: u64) -> f64 {
    bytes_per_second as f64 / SECOND_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn parcel(token: u64) -> Parcel {
        Parcel { token, kind: OpKind::Read, length: MB, start_ns: 0 }
    }

    /// Keeps the flows in `busy` busy from `from_ns` for a second, and says how many MB each carried.
    fn carried(link: &mut Link, from_ns: u64, busy: &[usize]) -> Vec<u64> {
        let mut ended = vec![0; link.flows.len()];
        for &flow in busy {
            (0..2000).for_each(|token| link.push(from_ns, flow, MB, parcel(token)));
        }
        for (flow, ended) in ended.iter_mut().enumerate() {
            while link.pop(from_ns + SECOND, flow).is_some() {
                *ended += 1;
            }
        }
        link.flows.iter_mut().for_each(|flow| flow.line.clear());
        link.share();
        ended
    }

    fn link_of_1000(weights: &[u32]) -> Link {
        let mut link = Link::new(Some(1000 * MB));
        for weight in weights {
            link.join(*weight, 900 * MB);
        }
        link
    }

    #[test]
    fn busy_flows_share_by_weight_and_one_alone_has_its_own_rate() {
        let mut link = link_of_1000(&[1, 1, 2]);
        assert_eq!(carried(&mut link, 0, &[0, 1, 2]), [250, 250, 500]);
        assert_eq!(carried(&mut link, SECOND, &[0, 2]), [333, 0, 666]);
        assert_eq!(carried(&mut link, 2 * SECOND, &[1]), [0, 900, 0]);
    }

    #[test]
    fn competitors_who_ask_for_little_leave_the_rest_and_many_leave_a_fair_share() {
        let mut link = link_of_1000(&[1]);
        let each = |flows| Competitors::of_netcas(flows, 1000 * MB);
        link.set_competitors(0, each(10));
        assert_eq!(carried(&mut link, 0, &[0]), [375]);
        link.set_competitors(SECOND, each(40));
        assert_eq!(carried(&mut link, SECOND, &[0]), [1000 / 41]);
        link.set_competitors(2 * SECOND, Competitors::default());
        assert_eq!(carried(&mut link, 2 * SECOND, &[0]), [900]);
    }

    #[test]
    fn what_a_slow_flow_leaves_goes_to_the_others() {
        let mut link = link_of_1000(&[1, 1, 1]);
        link.set_flow_rate(0, 0, 100 * MB);
        assert_eq!(carried(&mut link, 0, &[0, 1, 2]), [100, 450, 450]);
        link.set_rate(SECOND, 500 * MB);
        assert_eq!(carried(&mut link, SECOND, &[0, 1, 2]), [100, 200, 200]);
    }

    #[test]
    fn a_change_counts_from_its_moment_for_what_is_being_carried_too() {
        let mut link = Link::new(None);
        link.join(1, MB);
        link.push(0, 0, MB, parcel(1));
        assert_eq!(link.next_ns(0), Some(SECOND));
        link.set_flow_rate(SECOND / 2, 0, MB / 2);
        assert_eq!(link.next_ns(0), Some(SECOND / 2 + SECOND));
        // Idle for a while: nothing is saved up.
        assert_eq!(link.pop(5 * SECOND, 0).map(|(at_ns, parcel)| (at_ns, parcel.token)), Some((SECOND / 2 * 3, 1)));
        link.push(5 * SECOND, 0, MB, parcel(2));
        assert_eq!(link.next_ns(0), Some(7 * SECOND));
    }

    #[test]
    fn one_who_comes_slows_the_other_and_one_who_is_done_speeds_it_up() {
        let mut link = link_of_1000(&[1, 1]);
        link.push(0, 0, 900 * MB, parcel(1));
        // At 450 of 900 MB the other comes; both have 500 MB/s until its 100 MB are through at .7 s.
        link.push(SECOND / 2, 1, 100 * MB, parcel(2));
        assert_eq!(link.next_ns(1), Some(SECOND / 10 * 7));
        assert_eq!(link.pop(2 * SECOND, 1).map(|(at_ns, _)| at_ns), Some(SECOND / 10 * 7));
        // 350 MB are left then, at 900 MB/s.
        let end_ns = SECOND / 10 * 7 + 350 * SECOND / 900 + 1;
        assert_eq!(link.pop(2 * SECOND, 0).map(|(at_ns, _)| at_ns), Some(end_ns));
    }
}
