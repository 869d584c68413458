//! What a world's disk, back end and region map do when they are told to, well or not.

use super::*;

impl World {
    pub(super) fn end_one(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let nth = self.below(self.under_way.len() as u64) as usize;
        let is_slow = match self.under_way[nth] {
            Order::WriteTail { .. } => matches!(self.slow, Slow::Tails | Slow::LogsDisk),
            Order::FlushLog { .. } => self.slow == Slow::LogsDisk,
            Order::FlushBackend { .. } => self.slow == Slow::Flushes,
            _ => false,
        };
        if is_slow && self.below(20) > 0 {
            return;
        }
        let order = self.under_way.swap_remove(nth);
        let fails = self.below(100) < self.fails;
        self.end(order, fails);
    }

    pub(super) fn end(&mut self, order: Order, fails: bool) {
        let failed = if fails { Err(IoError::Failed) } else { Ok(()) };
        let changes_backend =
            matches!(order, Order::WriteBackend { .. } | Order::ZeroBackend { .. } | Order::FlushBackend { .. });
        let mut checks = Vec::new();
        let (id, result) = match order {
            Order::WriteGroup { id, group, .. } => {
                let it = self.groups.iter_mut().find(|it| it.group == group).expect("a group under way stays");
                it.state = 1;
                checks = it.checks.concat();
                (id, Ok(()))
            }
            Order::FlushLog { id } => {
                let before = self.flush_before;
                self.groups.iter_mut().filter(|it| it.group.records.end <= before).for_each(|it| it.state = 2);
                (id, Ok(()))
            }
            Order::WriteTail { id, tail } => {
                self.tail = tail;
                (id, Ok(()))
            }
            Order::ReadLog { id, buffer, position, sectors, .. } => {
                let values: Vec<Value> =
                    (0..sectors.end - sectors.start).map(|nth| self.cells[self.place(position + nth)]).collect();
                checks = checks_of(&sectors, &values);
                self.put(Place { memory: Memory::Driver(buffer), skip: position % 8 }, &values);
                (id, failed)
            }
            Order::ReadBackend { id, to, sectors } => {
                let values: Vec<Value> = sectors.map(|sector| self.on_backend(sector)).collect();
                self.put(to, &values);
                (id, failed)
            }
            Order::WriteBackend { id, from, sectors } => {
                let values = self.memory(from.memory)[from.skip as usize..].to_vec();
                for (sector, value) in sectors.zip(values) {
                    if !fails || self.below(2) == 0 {
                        self.backend[sector as usize].1.push(value);
                    }
                }
                (id, failed)
            }
            Order::ZeroBackend { id, sectors, .. } => {
                for sector in sectors {
                    if !fails || self.below(2) == 0 {
                        self.backend[sector as usize].1.push(0);
                    }
                }
                (id, failed)
            }
            Order::FlushBackend { id } => {
                self.flush_backend(fails);
                (id, failed)
            }
            Order::WriteRegions { id, image } => {
                if !fails || self.below(2) == 0 {
                    self.regions = *image;
                }
                (id, failed)
            }
            Order::Copy { .. } | Order::Clear { .. } | Order::Answer { .. } => unreachable!("these are done at once"),
        };
        let passed = match self.logged.roles.get_mut(id.0 as usize) {
            Role::Bypass { request } => Some(request.clone()),
            _ => None,
        };
        let is_flush = matches!(self.logged.roles.get_mut(id.0 as usize), Role::FlushBackend);
        self.observe();
        if changes_backend {
            self.boundaries.check(&self.backend);
        }
        if is_flush && result.is_ok() {
            self.boundaries.flushed();
        }
        let settled = self.logged.bypass.settled();
        self.logged.done(self.now_ns, id, result, &checks);
        if let Some(Request { token, wish, .. }) = passed.filter(|_| result.is_ok()) {
            self.boundaries.answered(token);
            self.boundaries.check(&self.backend);
            self.passed.push(token);
            if matches!(wish, Wish::Write { fua: true } | Wish::Zero { fua: true, .. }) {
                self.boundaries.close();
            }
        }
        self.take_losses(settled);
    }

    pub(super) fn on_backend(&self, sector: u64) -> Value {
        let (durable, since) = &self.backend[sector as usize];
        since.last().copied().unwrap_or(*durable)
    }

    pub(super) fn flush_backend(&mut self, fails: bool) {
        for nth in 0..self.backend.len() {
            let drops = fails && self.below(2) == 0;
            let (durable, since) = &mut self.backend[nth];
            // One that fails may have made all durable, or drop it.
            let covers = if fails { since.len() } else { self.flush_covers[nth] };
            let last = since.drain(..covers).next_back();
            *durable = last.filter(|_| !drops).unwrap_or(*durable);
        }
    }
}
