//! What a world's clients are answered is held against what they asked for, and what they were promised before.

use super::*;

impl World {
    pub(super) fn answered(&mut self, token: u64, result: Result<(), IoError>) {
        let client = self.clients.remove(&token).expect("answered once");
        let fua = matches!(client.wish, Wish::Write { fua: true } | Wish::Zero { fua: true, .. });
        if result.is_err() {
            let waits = is_flush(client.wish) || fua;
            assert!(client.wish == Wish::Read || waits, "only the back end fails");
            if fua && let Some(change) = self.history.iter_mut().find(|it| it.token == token && !it.settled) {
                change.answered_ns = Some(self.now_ns);
                let lost = client.lost.iter().filter(|sector| client.sectors.contains(sector));
                lost.for_each(|sector| self.settle_lost(*sector));
            }
            self.counts[3] += 1;
            return;
        }
        match client.wish {
            Wish::Read => {
                let there = client.sectors.zip(client.bytes).filter(|(sector, _)| !client.lost.contains(sector));
                for (sector, value) in there {
                    assert_eq!(value, self.newest(sector), "sector {sector} at {}", self.now_ns);
                }
                self.counts[0] += 1;
            }
            Wish::Flush | Wish::Persist => {
                let covered = |it: &&mut Asked| it.answered_ns.is_some_and(|at| at < client.asked_ns);
                self.history.iter_mut().filter(covered).for_each(|it| it.promised = true);
                self.counts[1] += 1;
                assert!(!client.must_fail, "a loss is told");
                let covers = |it: &Asked| it.answered_ns.is_some_and(|at| at < client.asked_ns);
                self.check_durable(0..SECTORS, |it| covers(it) && self.passed.contains(&it.token));
                if client.wish == Wish::Flush && client.policy.durability == Durability::Backend {
                    self.check_durable(0..SECTORS, |it| it.answered_ns.is_some_and(|at| at < client.asked_ns));
                    self.counts[6] += 1;
                }
            }
            Wish::Write { .. } | Wish::Zero { .. } => {
                let change = self.history.iter_mut().find(|it| it.token == token && !it.settled).expect("it was asked");
                change.answered_ns = Some(self.now_ns);
                change.promised = fua;
                if fua && client.policy.fua == Durability::Backend && self.policy_ns < client.asked_ns {
                    self.check_durable(client.sectors, |it| it.token == token);
                }
            }
        }
    }

    /// The back end has these changes for good, or what was asked for later.
    fn check_durable(&self, sectors: Range<u64>, is: impl Fn(&Asked) -> bool) {
        for sector in sectors {
            let here = |it: &&Asked| it.sectors.contains(&sector);
            let value = |it: &Asked| if it.zero { 0 } else { value_of(it.token, sector) };
            let Some(last) = self.history.iter().rposition(|it| here(&it) && it.answered_ns.is_some() && is(it)) else {
                continue;
            };
            let (durable, _) = self.backend[sector as usize];
            let later = || self.history[last..].iter().filter(here).map(value);
            assert!(later().any(|value| value == durable), "sector {sector} has {durable} on the back end");
        }
    }

    /// What was told as lost is what is there from now on, where nothing came over it.
    pub(super) fn take_losses(&mut self, settled: u64) {
        let lost: Vec<u64> = self.logged.in_doubt().flatten().collect();
        if !lost.is_empty() {
            self.owes = true;
            for it in self.clients.values_mut().filter(|it| is_flush(it.wish) && it.answers > settled) {
                (it.must_fail, self.owes) = (true, false);
            }
        }
        for sector in lost {
            self.boundaries.lost(sector..sector + 1);
            self.counts[5] += 1;
            self.clients.values_mut().for_each(|it| it.lost.push(sector));
            self.settle_lost(sector);
        }
    }

    fn settle_lost(&mut self, sector: u64) {
        let passed = |it: &Asked| self.passed.contains(&it.token) && !it.settled && it.sectors.contains(&sector);
        if let Some(last) = self.history.iter().rposition(passed) {
            let found = self.on_backend(sector);
            self.settled(last + 1, sector, found, found == 0);
        }
    }

    pub(super) fn newest(&self, sector: u64) -> Value {
        let last = self.history.iter().rfind(|it| it.answered_ns.is_some() && it.sectors.contains(&sector));
        last.map_or(0, |it| if it.zero { 0 } else { value_of(it.token, sector) })
    }
}
