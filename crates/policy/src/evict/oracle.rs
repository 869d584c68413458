//! The owner that every policy is tested under: two instances over one slot pool, random use,
//! each step compared with a naive model.

use super::{BUSY_SKIPS_MAX, Evict, Links, Removal};
use crate::rng::mix64;
use alloc::vec::Vec;
use proptest::prelude::*;

/// What a naive model of a policy has to say; as obviously right as possible, as slow as it likes.
pub(crate) trait Model {
    fn inserted(&mut self, slot: u32, key_hash: u64, weight: u32);
    fn hit(&mut self, slot: u32);
    fn removed(&mut self, slot: u32, why: Removal);
    fn victim(&mut self, busy: &[bool]) -> Option<u32>;
    fn set_capacity(&mut self, _capacity: u64) {}

    /// Whether `named` is a right answer; policies that draw accept more than one.
    fn agrees(&mut self, named: Option<u32>, busy: &[bool]) -> bool {
        self.victim(busy) == named
    }
}

const SLOTS: u32 = 48;
const KEYS: u64 = 96;
const CAPACITY_MAX: u64 = 35;

#[derive(Clone, Debug)]
enum Op {
    /// A hit if the key is cached, else an insertion with what eviction it takes.
    Access {
        which: usize,
        key: u64,
        weight: u32,
    },
    Invalidate {
        which: usize,
        key: u64,
    },
    Resize {
        which: usize,
        capacity: u64,
    },
    SetBusy {
        slot: u32,
        busy: bool,
    },
    AllIdle,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // The product of two draws favours low keys, so that some are hot.
    let key = (0..KEYS, 0..KEYS).prop_map(|(a, b)| a * b / KEYS);
    let weight = prop_oneof![6 => Just(1_u32), 1 => 1..5_u32];
    let op = prop_oneof![
        60 => (0..2_usize, key.clone(), weight)
            .prop_map(|(which, key, weight)| Op::Access { which, key, weight }),
        4 => (0..2_usize, key).prop_map(|(which, key)| Op::Invalidate { which, key }),
        1 => (0..2_usize, 0..=CAPACITY_MAX)
            .prop_map(|(which, capacity)| Op::Resize { which, capacity }),
        4 => (0..SLOTS, any::<bool>()).prop_map(|(slot, busy)| Op::SetBusy { slot, busy }),
        1 => Just(Op::AllIdle),
    ];
    proptest::collection::vec(op, 1..400)
}

struct Instance<P, M> {
    policy: P,
    model: M,
    /// (key, slot, weight)
    cached: Vec<(u64, u32, u32)>,
    capacity: u64,
}

struct Owner<P, M> {
    links: Links,
    instances: [Instance<P, M>; 2],
    free: Vec<u32>,
    busy: Vec<bool>,
}

impl<P: Evict, M: Model> Owner<P, M> {
    fn new(build: &impl Fn(u64, u32) -> (P, M)) -> Self {
        let instance = |capacity| {
            let (policy, model) = build(capacity, SLOTS);
            Instance { policy, model, cached: Vec::new(), capacity }
        };
        Self {
            links: Links::new(SLOTS),
            instances: [instance(20), instance(11)],
            free: (0..SLOTS).rev().collect(),
            busy: alloc::vec![false; SLOTS as usize],
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Access { which, key, weight } => self.access(which, key, weight),
            Op::Invalidate { which, key } => {
                let cached = &self.instances[which].cached;
                if let Some(&(_, slot, _)) = cached.iter().find(|e| e.0 == key) {
                    self.remove(which, slot, Removal::Invalidated);
                }
            }
            Op::Resize { which, capacity } => {
                let instance = &mut self.instances[which];
                instance.capacity = capacity;
                instance.policy.set_capacity(capacity);
                instance.model.set_capacity(capacity);
            }
            Op::SetBusy { slot, busy } => self.busy[slot as usize] = busy,
            Op::AllIdle => self.busy.fill(false),
        }
    }

    fn access(&mut self, which: usize, key: u64, weight: u32) {
        let Self { links, instances, .. } = self;
        let instance = &mut instances[which];
        if let Some(&(_, slot, _)) = instance.cached.iter().find(|e| e.0 == key) {
            instance.policy.hit(links, slot);
            instance.model.hit(slot);
            return;
        }
        while !self.instances[which].policy.has_room(weight) || self.free.is_empty() {
            let Self { links, instances, busy, .. } = self;
            let instance = &mut instances[which];
            let named = instance.policy.victim(links, |slot| busy[slot as usize]);
            assert!(instance.model.agrees(named, busy), "{named:?} is not what the model names");
            let Some(slot) = named else { return };
            assert!(!busy[slot as usize], "slot {slot} is busy");
            let &(key, ..) = instance
                .cached
                .iter()
                .find(|e| e.1 == slot)
                .expect("a victim is an entry of the instance that names it");
            let key_hash = mix64(key);
            self.remove(which, slot, Removal::Evicted { key_hash });
        }
        let slot = self.free.pop().expect("a free slot was made");
        let Self { links, instances, .. } = self;
        let instance = &mut instances[which];
        instance.policy.inserted(links, slot, mix64(key), weight);
        instance.model.inserted(slot, mix64(key), weight);
        instance.cached.push((key, slot, weight));
    }

    fn remove(&mut self, which: usize, slot: u32, why: Removal) {
        let instance = &mut self.instances[which];
        instance.policy.removed(&mut self.links, slot, why);
        instance.model.removed(slot, why);
        instance.cached.retain(|e| e.1 != slot);
        self.free.push(slot);
    }

    fn check(&self, resized: bool) {
        for instance in &self.instances {
            let occupancy = instance.policy.occupancy();
            let weight: u64 = instance.cached.iter().map(|e| u64::from(e.2)).sum();
            assert_eq!(occupancy.weight, weight);
            assert_eq!(occupancy.len as usize, instance.cached.len());
            assert_eq!(occupancy.capacity, instance.capacity);
            assert!(weight <= instance.capacity || resized, "over capacity");
        }
        let held = (0..SLOTS).filter(|&slot| self.links.is_held(slot)).count();
        assert_eq!(held + self.free.len(), SLOTS as usize);
    }
}

/// Runs random use of two instances, `build(capacity, entries_max)` each, over one pool against the models.
pub(crate) fn check<P: Evict, M: Model>(build: impl Fn(u64, u32) -> (P, M)) {
    proptest!(ProptestConfig::with_cases(600), |(ops in ops())| {
        let mut owner = Owner::new(&build);
        let mut resized = false;
        for op in &ops {
            owner.apply(op);
            resized |= matches!(op, Op::Resize { .. });
            owner.check(resized);
        }
        owner.busy.fill(false);
        for instance in &mut owner.instances {
            let len = instance.cached.len();
            let drained = drain(&mut instance.policy, &mut owner.links);
            prop_assert_eq!(drained.len(), len, "every entry leaves in the end");
        }
    });
}

/// Checks that a policy asks about at most one entry more than it may skip, and then gives up, and
/// that it names the only idle one among as many as it may skip.
pub(crate) fn check_busy_bound<P: Evict>(build: impl Fn(u64) -> P) {
    let len = 10 * BUSY_SKIPS_MAX;
    let mut links = Links::new(len);
    let mut policy = build(u64::from(len));
    for slot in 0..len {
        policy.inserted(&mut links, slot, mix64(u64::from(slot)), 1);
    }
    let mut asked = 0;
    let named = policy.victim(&mut links, |_| {
        asked += 1;
        true
    });
    assert_eq!(named, None);
    assert!(asked <= BUSY_SKIPS_MAX + 1, "asked about {asked} entries");

    for only_idle in 0..BUSY_SKIPS_MAX {
        let mut links = Links::new(BUSY_SKIPS_MAX);
        let mut policy = build(u64::from(BUSY_SKIPS_MAX));
        for slot in 0..BUSY_SKIPS_MAX {
            policy.inserted(&mut links, slot, mix64(u64::from(slot)), 1);
        }
        let named = policy.victim(&mut links, |slot| slot != only_idle);
        assert_eq!(named, Some(only_idle));
    }
}

/// Evicts all entries; the slots in the order in which they left.
pub(crate) fn drain(policy: &mut impl Evict, links: &mut Links) -> Vec<u32> {
    let mut left = Vec::new();
    while let Some(slot) = policy.victim(links, |_| false) {
        let key_hash = mix64(u64::from(slot));
        policy.removed(links, slot, Removal::Evicted { key_hash });
        left.push(slot);
    }
    left
}
