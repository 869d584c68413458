//! The log's disk dies, has bad blocks, is lost or comes back; the region map cannot be written. Whatever happens, a read is
//! answered with the last answered write or an error, what cannot be read is listed, and it does not come back by itself.

use super::*;

const IMPATIENT: LoggedConfig = LoggedConfig { read_patience_ns: 60, ..CONFIG };

/// What a client may read of a sector.
#[derive(Clone, Debug)]
struct Sector {
    /// Asked for, in order.
    values: Vec<Value>,
    /// The last of them that was answered, and the last that was promised.
    answered: usize,
    promised: usize,
    /// Nothing is read of it until it is written or accepted.
    lost: bool,
    /// Values before this are, and since when.
    lost_before: usize,
    lost_ns: u64,
}

impl Sector {
    fn of(value: Value) -> Self {
        Self { values: vec![value], answered: 0, promised: 0, lost: false, lost_before: 0, lost_ns: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Work,
    Fail,
}

#[derive(Debug)]
struct Asker {
    wish: Wish,
    sectors: Range<u64>,
    bytes: Vec<Value>,
    /// A flush: what was answered when it was asked.
    answered: Vec<usize>,
    asked_ns: u64,
    /// Records in the log, then.
    records: RecordId,
}

struct Doomed {
    logged: Logged,
    rng: Rng,
    now_ns: u64,
    /// The disk: by place, groups, the tail and its life.
    cells: Vec<Value>,
    groups: Vec<OnDisk>,
    tail: Option<KnownToDisk>,
    ios: u64,
    /// From this I/O on its disk fails, and how it does.
    dies_at: u64,
    reads: Reads,
    /// Places that read wrong.
    wrong: Vec<usize>,
    regions: KnownRegions,
    /// Parts in a hundred that fail, of the region map's writes and of the back end's operations.
    regions_fail: u64,
    backend_fails: u64,
    /// Where clients are at work.
    around: u64,
    /// When anything but the log's writes last could fail.
    excused_ns: u64,
    backend: Vec<(Value, Vec<Value>)>,
    memory: BTreeMap<Buffer, Vec<Value>>,
    clients: BTreeMap<u64, Asker>,
    sectors: Vec<Sector>,
    flush_before: RecordId,
    under_way: Vec<Order>,
    next_token: u64,
    life: u64,
    /// Reads that were right, reads that failed, changes answered, changes that failed, flushes, flushes that failed, restarts.
    counts: [u64; 7],
}

/// What the disk knows of itself.
type KnownToDisk = super::super::OnDisk;

const BEGIN: Tail = Tail { position: 0, first: 0, life: 1 };

impl Doomed {
    fn new(seed: u64) -> Self {
        let mut doomed = Self {
            logged: Logged::new(IMPATIENT, Log::new(LIMITS, Ring::new(RING, 0), 1), &[]),
            rng: Rng::new(seed),
            now_ns: 1,
            cells: vec![0; RING as usize],
            groups: Vec::new(),
            tail: Some(KnownToDisk { life: 1, tail: BEGIN }),
            ios: 0,
            dies_at: u64::MAX,
            reads: Reads::Work,
            wrong: Vec::new(),
            regions: KnownRegions::None,
            regions_fail: 0,
            backend_fails: 0,
            excused_ns: 0,
            around: 0,
            backend: vec![(0, Vec::new()); SECTORS as usize],
            memory: BTreeMap::new(),
            clients: BTreeMap::new(),
            sectors: vec![Sector::of(0); SECTORS as usize],
            flush_before: 0,
            under_way: Vec::new(),
            next_token: 1,
            life: 1,
            counts: [0; 7],
        };
        let image = RegionImage::new(1, SECTORS);
        doomed.regions = KnownRegions::Same(image.clone());
        doomed.logged.keep_regions(image);
        doomed
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn is_dead(&self) -> bool {
        self.ios > self.dies_at
    }

    fn place(&self, position: u64) -> usize {
        (position % RING) as usize
    }

    /// Asks, unless something that overlaps is under way.
    fn ask(&mut self, wish: Wish, sectors: Range<u64>) -> Option<u64> {
        let overlaps = |it: &Asker| it.sectors.start < sectors.end && sectors.start < it.sectors.end;
        if !is_flush(wish) && self.clients.values().any(|it| !is_flush(it.wish) && overlaps(it)) {
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        let zero = matches!(wish, Wish::Zero { .. });
        let value = |sector| if zero { 0 } else { value_of(token, sector) };
        let bytes: Vec<Value> = sectors.clone().map(value).collect();
        if zero || matches!(wish, Wish::Write { .. }) {
            for (sector, value) in sectors.clone().zip(&bytes) {
                self.sectors[sector as usize].values.push(*value);
            }
        }
        let answered = self.sectors.iter().map(|it| it.answered).collect();
        let records = self.logged.log().next();
        // What was lost before is told with the next flush, whenever that is.
        if is_flush(wish) && self.logged.bypass.owes_failure {
            self.excused_ns = self.now_ns;
        }
        self.clients
            .insert(token, Asker { records, wish, sectors: sectors.clone(), bytes, answered, asked_ns: self.now_ns });
        self.logged.submit(self.now_ns, request(token, wish, sectors));
        Some(token)
    }

    /// Within some regions, which are others now and then.
    fn ask_any(&mut self) {
        if self.below(60) == 0 {
            self.around = self.below(SECTORS);
        }
        let first = (self.around + self.below(16)) % SECTORS;
        let sectors = first..first + 1 + self.below(12.min(SECTORS - first));
        let fua = self.below(6) == 0;
        let wish = match self.below(20) {
            0..9 => Wish::Write { fua },
            9..11 => Wish::Zero { fua, no_hole: false },
            11..18 => Wish::Read,
            18 if self.below(2) == 0 => Wish::Persist,
            _ => Wish::Flush,
        };
        if self.clients.len() < 5 {
            self.ask(wish, if is_flush(wish) { 0..0 } else { sectors });
        }
    }

    fn answered(&mut self, token: u64, result: Result<(), IoError>) {
        let client = self.clients.remove(&token).expect("answered once");
        let is_well = result.is_ok();
        match client.wish {
            Wish::Read if is_well => {
                for (sector, value) in client.sectors.zip(client.bytes) {
                    self.has_read(sector, value);
                }
            }
            Wish::Read => {
                let is_listed = self.logged.lost().overlaps(&client.sectors);
                assert!(is_listed || self.excused_ns >= client.asked_ns, "{:?}", client.sectors);
            }
            Wish::Flush | Wish::Persist if is_well => {
                let is_policy = client.wish == Wish::Flush && self.logged.policy().durability == Durability::Backend;
                let by_backend = is_policy || self.logged.is_broken();
                // What was lost may be newer than what is promised here.
                let has = |it: &Sector, durable: Value, at| it.values.iter().rposition(|it| *it == durable) >= Some(at);
                let is_kept = |((it, (durable, _)), at): ((&Sector, &(Value, _)), &usize)| {
                    !it.lost || it.lost_ns <= client.asked_ns || has(it, *durable, *at)
                };
                let needs = client.records.min(self.logged.log().written());
                let KnownRegions::Same(image) = &self.regions else { unreachable!() };
                let mut tails = image.tail.into_iter().chain(self.tail.map(|disk| disk.tail));
                let is_durable = self.logged.log().durable() >= needs;
                let is_safe = is_durable || image.life > self.life || tails.any(|tail| tail.first >= needs);
                assert!(!self.logged.is_broken() || is_safe, "its disk may come back with less");
                assert!(
                    !by_backend || self.sectors.iter().zip(&self.backend).zip(&client.answered).all(is_kept),
                    "what it promises is lost"
                );
                for (sector, answered) in self.sectors.iter_mut().zip(client.answered) {
                    sector.promised = sector.promised.max(answered);
                }
            }
            Wish::Flush | Wish::Persist => {}
            Wish::Write { fua } | Wish::Zero { fua, .. } => {
                for (sector, value) in client.sectors.zip(client.bytes) {
                    let zero = matches!(client.wish, Wish::Zero { .. });
                    let it = &mut self.sectors[sector as usize];
                    let value = if zero { 0 } else { value };
                    let at = it.values.iter().rposition(|other| *other == value).expect("it was asked");
                    if is_well {
                        it.answered = it.answered.max(at);
                        it.promised = if fua { it.promised.max(at) } else { it.promised };
                        it.lost = false;
                    }
                    it.lost &= self.logged.lost().overlaps(&(sector..sector + 1));
                }
            }
        }
        let fails = self.excused_ns >= client.asked_ns || client.wish == Wish::Read;
        assert!(is_well || fails, "the log could be read, and {:?} failed", client.wish);
        let kind = match client.wish {
            Wish::Read => 0,
            Wish::Flush | Wish::Persist => 4,
            _ => 2,
        };
        self.counts[kind + usize::from(!is_well)] += 1;
    }

    fn has_read(&mut self, sector: u64, value: Value) {
        let it = &self.sectors[sector as usize];
        let at = it.values.iter().rposition(|other| *other == value);
        assert!(at.is_some_and(|at| at >= it.answered), "sector {sector}: {value} is older than {it:?}");
        assert!(!it.lost || at >= Some(it.lost_before), "sector {sector} came back as {value}: {it:?}");
    }

    fn perform(&mut self) {
        while let Some(order) = self.logged.next_order(self.now_ns) {
            self.look_at_lost();
            match order {
                Order::Copy { from, to, sectors } => {
                    let values = self.memory(from.memory)[from.skip as usize..][..sectors as usize].to_vec();
                    self.put(to, &values);
                }
                Order::Clear { at, sectors } => self.put(at, &vec![0; sectors as usize]),
                Order::Answer { token, result } => self.answered(token, result),
                Order::WriteGroup { ref group, .. } => {
                    self.begin_group(&group.clone());
                    self.under_way.push(order);
                }
                Order::FlushLog { .. } => {
                    self.flush_before = self.logged.log().written();
                    self.under_way.push(order);
                }
                _ => self.under_way.push(order),
            }
        }
        self.logged.take_lost();
        // What passed the log and was not flushed is told as lost: only what was promised before is there for good.
        let doubts: Vec<u64> = self.logged.in_doubt().flatten().collect();
        assert!(doubts.is_empty() || self.excused_ns > 0);
        for sector in doubts {
            let it = &mut self.sectors[sector as usize];
            it.answered = it.promised;
            for client in self.clients.values_mut() {
                client.answered[sector as usize] = it.promised;
            }
        }
        self.look_at_lost();
    }

    fn look_at_lost(&mut self) {
        for extent in self.logged.lost().iter() {
            for sector in extent.sectors {
                let has_record = self.logged.log().map().overlaps(&(sector..sector + 1));
                let it = &mut self.sectors[sector as usize];
                if !has_record && !it.lost {
                    (it.lost, it.lost_before, it.lost_ns) = (true, it.answered + 1, self.now_ns);
                }
            }
        }
    }

    fn memory(&mut self, memory: Memory) -> &mut Vec<Value> {
        match memory {
            Memory::Client(token) => &mut self.clients.get_mut(&token).expect("a client that waits").bytes,
            Memory::Driver(buffer) => self.memory.entry(buffer).or_insert_with(|| vec![0; 48]),
        }
    }

    fn put(&mut self, to: Place, values: &[Value]) {
        self.memory(to.memory)[to.skip as usize..][..values.len()].copy_from_slice(values);
    }

    fn begin_group(&mut self, group: &Group) {
        let (mut values, mut records, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        for (record, token) in self.logged.group(group) {
            let KnownRegions::Same(kept) = &self.regions else { unreachable!() };
            assert!(kept.dirty.contains_all(regions_of(&record.range())), "the map knows a record's regions first");
            let bytes = &self.clients[&token].bytes;
            let data = record.kind == Kind::Data;
            checks.push(if data { checks_of(&record.range(), bytes) } else { Vec::new() });
            values.extend_from_slice(if data { bytes } else { &[] });
            records.push(*record);
        }
        let places = |it: &Group| (it.position % RING)..(it.position % RING) + it.sectors;
        let ours = places(group);
        self.groups.retain(|it| places(&it.group).end <= ours.start || ours.end <= places(&it.group).start);
        let at = self.place(group.position + group.descriptor_sectors);
        self.wrong.retain(|place| !(at..at + values.len()).contains(place));
        self.cells[at..at + values.len()].copy_from_slice(&values);
        let durable = self.logged.durable(group);
        self.groups.push(OnDisk { group: group.clone(), records, checks, durable, state: 0 });
    }

    fn on_backend(&self, sector: u64) -> Value {
        let (durable, since) = &self.backend[sector as usize];
        since.last().copied().unwrap_or(*durable)
    }

    fn end_one(&mut self) {
        if !self.under_way.is_empty() {
            let nth = self.below(self.under_way.len() as u64) as usize;
            let order = self.under_way.swap_remove(nth);
            self.end(order);
        }
    }

    fn end(&mut self, order: Order) {
        if matches!(order, Order::WriteGroup { .. } | Order::FlushLog { .. } | Order::WriteTail { .. }) {
            self.ios += 1;
        }
        let of_disk = if self.is_dead() { Err(IoError::Failed) } else { Ok(()) };
        let fails = self.below(100) < self.backend_fails;
        let of_backend = if fails { Err(IoError::Failed) } else { Ok(()) };
        let mut checks = Vec::new();
        let (id, result) = match order {
            Order::WriteGroup { id, group, .. } => {
                let it = self.groups.iter_mut().find(|it| it.group == group).expect("a group under way stays");
                it.state = u8::from(of_disk.is_ok());
                checks = it.checks.concat();
                (id, of_disk)
            }
            Order::FlushLog { id } => {
                let before = self.flush_before;
                if of_disk.is_ok() {
                    self.groups.iter_mut().filter(|it| it.group.records.end <= before).for_each(|it| it.state = 2);
                }
                (id, of_disk)
            }
            Order::WriteTail { id, tail } => {
                if of_disk.is_ok() {
                    self.tail = Some(KnownToDisk { life: self.life, tail });
                }
                (id, of_disk)
            }
            Order::ReadLog { id, buffer, position, sectors, .. } => {
                let dead = self.is_dead() && self.reads == Reads::Fail;
                let places = (0..sectors.end - sectors.start).map(|nth| self.place(position + nth));
                let value = |place: usize| self.cells[place] ^ u64::from(self.wrong.contains(&place));
                let values: Vec<Value> = places.map(value).collect();
                checks = if dead { Vec::new() } else { checks_of(&sectors, &values) };
                self.put(Place { memory: Memory::Driver(buffer), skip: position % 8 }, &values);
                (id, if dead { Err(IoError::Failed) } else { Ok(()) })
            }
            Order::ReadBackend { id, to, sectors } => {
                let values: Vec<Value> = sectors.map(|sector| self.on_backend(sector)).collect();
                self.put(to, &values);
                (id, of_backend)
            }
            Order::WriteBackend { id, from, sectors } => {
                let values = self.memory(from.memory)[from.skip as usize..].to_vec();
                for (sector, value) in sectors.zip(values) {
                    if !fails || self.below(2) == 0 {
                        self.backend[sector as usize].1.push(value);
                    }
                }
                (id, of_backend)
            }
            Order::ZeroBackend { id, sectors, .. } => {
                for sector in sectors {
                    if !fails || self.below(2) == 0 {
                        self.backend[sector as usize].1.push(0);
                    }
                }
                (id, of_backend)
            }
            Order::FlushBackend { id } => {
                // One that fails may have dropped what it covers.
                for sector in 0..self.backend.len() {
                    let drops = fails && self.below(2) == 0;
                    let (durable, since) = &mut self.backend[sector];
                    *durable = since.drain(..).next_back().filter(|_| !drops).unwrap_or(*durable);
                }
                (id, of_backend)
            }
            Order::WriteRegions { id, image } => {
                let fails = self.below(100) < self.regions_fail;
                if !fails || self.below(2) == 0 {
                    self.regions = KnownRegions::Same(*image);
                }
                (id, if fails { Err(IoError::Failed) } else { Ok(()) })
            }
            Order::Copy { .. } | Order::Clear { .. } | Order::Answer { .. } => unreachable!("these are done at once"),
        };
        self.logged.done(self.now_ns, id, result, &checks);
    }

    fn step(&mut self, asks: u64) {
        self.now_ns += 1;
        let cannot_be_read = self.is_dead() && self.reads == Reads::Fail;
        if cannot_be_read || !self.wrong.is_empty() || self.backend_fails + self.regions_fail > 0 {
            self.excused_ns = self.now_ns;
        }
        match self.below(100) {
            at if at < asks => self.ask_any(),
            99 => self.logged.tick(self.now_ns),
            _ => self.end_one(),
        }
        self.perform();
    }

    /// Until nobody waits.
    fn rest(&mut self) {
        for _ in 0..20_000 {
            if self.clients.is_empty() {
                return;
            }
            self.step(0);
        }
        panic!("they wait for ever: {:?} {:?}", self.clients, self.logged);
    }

    /// The process dies, and starts again; with the disk as it is, or a new one. `power`: the machine does, with what was not flushed.
    fn restart(&mut self, is_there: bool, power: bool) {
        for order in core::mem::take(&mut self.under_way) {
            let lands = self.below(2) == 0;
            match order {
                Order::WriteBackend { .. } | Order::ZeroBackend { .. } if lands => self.end(order),
                Order::WriteRegions { image, .. } if lands => self.regions = KnownRegions::Same(*image),
                _ => {}
            }
        }
        // What the map does not know to be lost may come back with the process.
        let (KnownRegions::Same(image) | KnownRegions::OfAnother(image)) = &self.regions else { unreachable!() };
        for (first, sector) in (0..).zip(&mut self.sectors) {
            sector.lost &= image.lost.overlaps(&(first..first + 1));
            if !sector.lost {
                sector.lost_before = sector.answered + 1;
            }
        }
        // What did not end may have been done.
        let landed = self.below(2) == 0;
        self.groups.retain(|it| it.state > 0 || landed);
        if power {
            let keeps = self.below(u64::MAX);
            self.groups.retain(|it| it.state == 2 || (keeps >> (it.group.position % 64)) & 1 == 0);
            for sector in 0..self.backend.len() {
                let kept = self.below(self.backend[sector].1.len() as u64 + 1) as usize;
                self.backend[sector].1.truncate(kept);
            }
            self.sectors.iter_mut().for_each(|it| it.answered = it.promised);
        }
        self.backend.iter_mut().for_each(|(durable, since)| *durable = since.drain(..).next_back().unwrap_or(*durable));
        self.clients.clear();
        self.memory.clear();
        if !is_there {
            self.tail = None;
            self.groups.clear();
            self.wrong.clear();
        }
        (self.dies_at, self.ios) = (u64::MAX, 0);
        self.groups.iter_mut().for_each(|it| it.state = 2);
        let opening = Opening::decide(&self.regions, self.tail, SECTORS);
        self.life = opening.life;
        let mut checks = Vec::new();
        let log = match opening.tail {
            None => Log::new(LIMITS, Ring::new(RING, 0), self.life),
            Some(tail) => {
                let mut scan = Scan::new(LIMITS, Ring::new(RING, tail.position), tail);
                loop {
                    let next = scan.next();
                    let here: Vec<&OnDisk> =
                        self.groups.iter().filter(|it| next.contains(&it.group.position)).collect();
                    let found: Vec<FoundGroup<'_>> =
                        here.iter().map(|it| it.group.found(&it.records, it.durable)).collect();
                    let Some(at) = scan.found_one_of(&found) else { break };
                    let of_records = here[at].group.records.clone().zip(&here[at].checks);
                    checks.extend(of_records.filter(|(id, _)| *id >= tail.first).map(|(_, sums)| sums.clone()));
                }
                scan.into_log(self.life)
            }
        };
        let mut image = opening.image;
        for id in log.first()..log.next() {
            image.dirty.insert_all(regions_of(&log.record(id).range()));
        }
        self.regions = KnownRegions::Same(image.clone());
        self.tail = Some(KnownToDisk { life: self.life, tail: Tail { life: log.tail().life, ..log.tail() } });
        self.logged = Logged::new(IMPATIENT, log, &checks);
        self.logged.keep_regions(image);
        self.counts[6] += 1;
        self.settle();
    }

    /// Reads every sector: it has what was promised or came later, or it is lost. That stays so.
    fn settle(&mut self) {
        for sector in 0..SECTORS {
            let token = self.ask(Wish::Read, sector..sector + 1).expect("nobody else asks");
            let read = loop {
                self.now_ns += 1;
                let Some(order) = self.logged.next_order(self.now_ns) else {
                    self.end_one();
                    continue;
                };
                match order {
                    Order::Answer { token: of, result } if of == token => {
                        let client = self.clients.remove(&token).expect("it asked");
                        break result.map(|()| client.bytes[0]);
                    }
                    Order::Copy { from, to, sectors } => {
                        let values = self.memory(from.memory)[from.skip as usize..][..sectors as usize].to_vec();
                        self.put(to, &values);
                    }
                    Order::Clear { at, sectors } => self.put(at, &vec![0; sectors as usize]),
                    order => self.under_way.push(order),
                }
            };
            let range = sector..sector + 1;
            let is_listed = self.logged.lost().overlaps(&range) && !self.logged.log().map().overlaps(&range);
            match read {
                Ok(value) => {
                    self.has_read(sector, value);
                    assert!(!is_listed, "sector {sector} is listed, and can be read");
                    self.sectors[sector as usize] = Sector::of(value);
                }
                Err(_) => {
                    assert!(is_listed || !self.wrong.is_empty() || self.is_dead(), "sector {sector} cannot be read");
                    self.sectors[sector as usize].lost = is_listed;
                }
            }
        }
    }
}

fn policies(at: u64) -> LogPolicy {
    let both = |level| LogPolicy { durability: level, fua: level, ..LogPolicy::LOCAL };
    match at % 4 {
        0 | 1 => both(Durability::Local),
        2 => both(Durability::Backend),
        _ => LogPolicy { bypass: Bypass::Large { bytes_min: 4096 }, ..both(Durability::Local) },
    }
}

/// One request after the other, and what the back end may be then.
struct Script {
    doomed: Doomed,
    /// By epoch: what each change left, by sector.
    epochs: Vec<Vec<(u64, Value)>>,
}

impl Script {
    /// Waits for the answer, and looks at the back end after every step.
    fn one(&mut self, wish: Wish, sectors: Range<u64>) {
        let token = self.doomed.ask(wish, sectors.clone()).expect("one at a time");
        let zero = matches!(wish, Wish::Zero { .. });
        if zero || matches!(wish, Wish::Write { .. }) {
            let value = |sector| if zero { 0 } else { value_of(token, sector) };
            let written = sectors.map(|sector| (sector, value(sector)));
            self.epochs.last_mut().expect("one is open").extend(written);
        }
        for _ in 0..20_000 {
            if self.doomed.clients.is_empty() {
                if matches!(wish, Wish::Flush | Wish::Write { fua: true } | Wish::Zero { fua: true, .. }) {
                    self.epochs.push(Vec::new());
                }
                return;
            }
            self.doomed.step(0);
            self.look();
        }
        panic!("it waits for ever: {:?}", self.doomed.logged);
    }

    /// There is a boundary such that each sector has its value there, or one written to it in the epoch behind. Once what is lost is
    /// given up, it has what it had then.
    fn look(&self) {
        let mut at = vec![0; SECTORS as usize];
        let is_over = self.doomed.logged.health() == Health::Through;
        let lost = if is_over { self.doomed.logged.loss.all() } else { LostExtents::default() };
        let is_there = |at: &[Value], next: Option<&Vec<(u64, Value)>>| {
            let is_kept = |(sector, _): &(usize, _)| !lost.overlaps(&(*sector as u64..*sector as u64 + 1));
            self.doomed.backend.iter().enumerate().filter(is_kept).all(|(sector, (durable, since))| {
                let in_next = |value| next.is_some_and(|next| next.contains(&(sector as u64, value)));
                since.iter().chain([durable]).all(|value| *value == at[sector] || in_next(*value))
            })
        };
        for k in 0..=self.epochs.len() {
            if is_there(&at, self.epochs.get(k)) {
                return;
            }
            for (sector, value) in self.epochs.get(k).into_iter().flatten() {
                at[*sector as usize] = *value;
            }
        }
        panic!(
            "the back end is at no boundary: {:?} {:?} {:?}",
            self.doomed.backend,
            self.epochs,
            self.doomed.logged.policy()
        );
    }
}

/// Returns how many I/Os the disk saw.
fn script(seed: u64, dies_at: u64, reads: Reads, power: bool) -> (u64, [u64; 7]) {
    let mut doomed = Doomed::new(seed);
    (doomed.dies_at, doomed.reads) = (dies_at, reads);
    doomed.logged.set_policy(1, policies(seed));
    let mut script = Script { doomed, epochs: vec![Vec::new()] };
    for nth in 0..60 {
        let first = script.doomed.below(SECTORS - 12);
        let sectors = first..first + 1 + script.doomed.below(12);
        let fua = nth % 11 == 0;
        match nth % 7 {
            3 => script.one(Wish::Flush, 0..0),
            5 => script.one(Wish::Zero { fua, no_hole: true }, sectors),
            6 => script.one(Wish::Read, sectors),
            _ => script.one(Wish::Write { fua }, sectors),
        }
    }
    let ios = script.doomed.ios;
    let mut doomed = script.doomed;
    for _ in 0..2_000 {
        doomed.step(0);
    }
    let has_died = ios > dies_at;
    assert_eq!(doomed.logged.health(), if has_died { Health::Through } else { Health::Whole });
    if reads == Reads::Work {
        assert!(doomed.logged.lost().is_empty());
    }
    // It may come back: what it has is old by then. Or not; then what is lost is listed.
    let comes_back = doomed.below(2) == 0;
    doomed.restart(comes_back, power);
    if has_died {
        assert!(doomed.logged.has_followed());
    }
    if has_died && reads == Reads::Work {
        assert!(doomed.sectors.iter().all(|it| !it.lost));
    }
    // Whatever was lost can be written, and read again.
    for first in (0..SECTORS).step_by(8) {
        doomed.ask(Wish::Write { fua: true }, first..first + 8).expect("nobody else");
        doomed.rest();
    }
    let failed = doomed.counts[1];
    doomed.ask(Wish::Read, 0..SECTORS).expect("nobody else");
    doomed.rest();
    assert_eq!(doomed.counts[1], failed, "after that nothing is lost any more");
    (ios, doomed.counts)
}

#[test]
fn any_operation_of_the_logs_disk_may_be_its_last() {
    let (mut lost_flushes, mut ends) = (0, 0);
    for (seed, reads) in (0..8).flat_map(|seed| [(seed, Reads::Work), (seed, Reads::Fail)]) {
        let (all, _) = script(seed, u64::MAX, reads, false);
        for dies_at in 0..all {
            let (_, counts) = script(seed, dies_at, reads, dies_at % 2 == 0);
            assert!(reads == Reads::Fail || counts[5] == 0);
            lost_flushes += counts[5];
            ends += 1;
        }
    }
    assert!(ends > 300 && lost_flushes > 50, "{ends} ends, {lost_flushes} flushes were lost");
}

#[test]
fn what_is_lost_is_listed_and_stays_lost_whatever_else_happens() {
    let mut counts = [0; 7];
    let (mut through, mut bad, mut accepted) = (0, 0, 0);
    for seed in 0..500 {
        let mut doomed = Doomed::new(seed);
        let policy = policies(doomed.below(4));
        doomed.logged.set_policy(1, policy);
        (doomed.regions_fail, doomed.backend_fails) = (doomed.below(2) * 20, doomed.below(3) * 5);
        doomed.reads = [Reads::Work, Reads::Fail][doomed.below(2) as usize];
        for _ in 0..1_200 {
            doomed.step(35);
            // In half of the worlds crashes come while there is much to get wrong.
            let is_near = seed % 2 == 0 && doomed.logged.health() != Health::Whole && doomed.below(60) == 0;
            match if is_near { 6 } else { doomed.below(1_500) } {
                0..2 => doomed.dies_at = doomed.ios + doomed.below(4),
                2..6 => {
                    let place = doomed.below(RING) as usize;
                    doomed.wrong.push(place);
                }
                6..9 => {
                    let (is_there, power) = (doomed.below(3) > 0, doomed.below(2) == 0);
                    bad += doomed.logged.bad_blocks();
                    through += u64::from(doomed.logged.health() == Health::Through);
                    (doomed.backend_fails, doomed.regions_fail) = (0, 0);
                    doomed.restart(is_there, power);
                    doomed.logged.set_policy(doomed.now_ns, policy);
                    (doomed.regions_fail, doomed.backend_fails) = (doomed.below(2) * 20, doomed.below(3) * 5);
                }
                9 => {
                    doomed.backend_fails = 0;
                    doomed.rest();
                    accepted += doomed.logged.lost().sectors();
                    doomed.logged.accept_loss();
                    for sector in 0..SECTORS {
                        if doomed.sectors[sector as usize].lost {
                            doomed.sectors[sector as usize] = Sector::of(doomed.on_backend(sector));
                        }
                    }
                }
                _ => {}
            }
        }
        (doomed.backend_fails, doomed.regions_fail) = (0, 0);
        doomed.rest();
        bad += doomed.logged.bad_blocks();
        through += u64::from(doomed.logged.health() == Health::Through);
        counts.iter_mut().zip(doomed.counts).for_each(|(sum, one)| *sum += one);
    }
    let least = [10_000, 300, 10_000, 10, 500, 20, 300];
    let all = counts.iter().zip(least).all(|(count, least)| *count >= least);
    assert!(all && through > 50 && bad > 50 && accepted > 500, "{counts:?} {through} {bad} {accepted}");
}

#[test]
fn a_change_waits_for_a_region_that_is_being_cleared() {
    let mut doomed = Doomed::new(3);
    let has =
        |order: &Order, region| matches!(order, Order::WriteRegions { image, .. } if image.dirty.contains(region));
    let is_map = |order: &&Order| matches!(order, Order::WriteRegions { .. });
    doomed.ask(Wish::Write { fua: true }, 0..4);
    doomed.rest();
    let clearing = loop {
        doomed.now_ns += 50;
        doomed.logged.tick(doomed.now_ns);
        doomed.perform();
        let at = doomed.under_way.iter().position(|it| matches!(it, Order::WriteRegions { .. }) && !has(it, 0));
        match at {
            Some(at) => break doomed.under_way.swap_remove(at),
            None => doomed.end_one(),
        }
    };
    doomed.ask(Wish::Write { fua: false }, 0..4);
    doomed.perform();
    assert!(doomed.under_way.is_empty(), "{:?}", doomed.under_way);
    doomed.end(clearing);
    doomed.perform();
    assert!(doomed.under_way.iter().find(is_map).is_some_and(|it| has(it, 0)), "{:?}", doomed.under_way);
    doomed.rest();
    assert_eq!(doomed.counts[2], 2);
}
