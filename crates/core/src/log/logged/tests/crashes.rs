//! A world's machine loses power, and what is found again is held against what was promised.

use super::*;

impl World {
    /// The machine loses power, and with it every request; the back end loses what it likes of what was not flushed.
    pub(super) fn crash(&mut self) {
        for order in core::mem::take(&mut self.under_way) {
            match order {
                Order::WriteBackend { .. } | Order::ZeroBackend { .. } | Order::WriteRegions { .. } => {
                    self.end(order, true)
                }
                _ => {}
            }
        }
        for at in 0..self.groups.len() {
            if self.groups[at].state < 2 && self.below(2) == 0 {
                self.groups[at].state = 3;
            }
        }
        self.groups.retain(|it| it.state < 3);
        // Whoever recovers flushes.
        self.groups.iter_mut().for_each(|it| it.state = 2);
        for sector in 0..self.backend.len() {
            let kept = self.below(self.backend[sector].1.len() as u64 + 1) as usize;
            self.backend[sector].1.truncate(kept);
        }
        self.flush_covers = self.backend.iter().map(|(_, since)| since.len()).collect();
        self.flush_backend(false);
        self.clients.clear();
        self.owes = false;
        self.memory.clear();
        let mut scan = Scan::new(LIMITS, Ring::new(RING, self.tail.position), self.tail);
        let mut checks = Vec::new();
        loop {
            let next = scan.next();
            let here: Vec<&OnDisk> = self.groups.iter().filter(|it| next.contains(&it.group.position)).collect();
            let found: Vec<FoundGroup<'_>> = here.iter().map(|it| it.group.found(&it.records, it.durable)).collect();
            let Some(at) = scan.found_one_of(&found) else { break };
            let found = here[at];
            for (id, of_record) in found.group.records.clone().zip(&found.checks) {
                if id >= self.tail.first {
                    checks.push(of_record.clone());
                }
            }
        }
        self.life += 1;
        let policy = self.logged.policy();
        self.logged = Logged::new(CONFIG, scan.into_log(self.life), &checks);
        self.logged.keep_regions(self.regions.clone());
        self.logged.set_policy(self.now_ns, policy);
        self.seen = self.logged.log().next();
        let map = self.logged.log().map();
        let is_seen = |sector| map.first(&(sector..sector + 1)).is_some_and(|it| it.record.is_none());
        let found = |sector| is_seen(sector).then(|| self.on_backend(sector));
        let found: Vec<Option<Value>> = (0..SECTORS).map(found).collect();
        self.boundaries.crashed(self.seen, |sector| found[sector as usize]);
        self.counts[2] += 1;
        self.settle_history();
    }

    /// Each sector has what was promised, or something asked for later; that is its history from now on.
    fn settle_history(&mut self) {
        self.fails = 0;
        let settled = self.history.len();
        for sector in 0..SECTORS {
            let token = self.next_token;
            self.next_token += 1;
            let bytes = vec![u64::MAX];
            let (wish, sectors) = (Wish::Read, sector..sector + 1);
            let policy = LogPolicy::default();
            self.clients.insert(
                token,
                Client {
                    wish,
                    sectors: sectors.clone(),
                    bytes,
                    asked_ns: 0,
                    policy,
                    lost: Vec::new(),
                    must_fail: false,
                    answers: 0,
                },
            );
            self.logged.submit(self.now_ns, request(token, wish, sectors));
            let found = loop {
                // As `perform`, but for the answer of that read.
                let Some(order) = self.logged.next_order(self.now_ns) else {
                    self.end_one();
                    continue;
                };
                match order {
                    Order::Answer { token: of, result } if of == token => {
                        assert_eq!(result, Ok(()));
                        break self.clients.remove(&token).unwrap().bytes[0];
                    }
                    Order::Copy { from, to, sectors } => {
                        let values = self.memory(from.memory)[from.skip as usize..][..sectors as usize].to_vec();
                        self.put(to, &values);
                    }
                    Order::Clear { at, sectors } => self.put(at, &vec![0; sectors as usize]),
                    order => self.begin(order),
                }
            };
            let here = |it: &&Asked| it.sectors.contains(&sector);
            let value = |it: &Asked| if it.zero { 0 } else { value_of(it.token, sector) };
            let promised = self.history[..settled].iter().rposition(|it| it.promised && here(&it));
            let before = promised.map_or(0, |at| value(&self.history[at]));
            let mut later = self.history[promised.map_or(0, |at| at + 1)..settled].iter().filter(here).map(value);
            assert!(found == before || later.any(|value| value == found), "sector {sector}: {found}, not {before}");
            let zero = found == 0;
            self.settled(self.history.len(), sector, found, zero);
        }
        self.history.drain(..settled);
        self.fails = 20;
    }

    /// Written down as an answered change; values keep their old token.
    pub(super) fn settled(&mut self, at: usize, sector: u64, found: Value, zero: bool) {
        let token = if zero { 0 } else { (found - sector) / 1000 };
        self.history.insert(
            at,
            Asked { token, sectors: sector..sector + 1, zero, answered_ns: Some(0), promised: true, settled: true },
        );
    }
}
