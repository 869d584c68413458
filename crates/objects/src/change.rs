//! Changes: which names are being changed, so that an answer from before a change is not taken for one from after it.
//!
//! How: names are spread over a table of counts. A change counts where it begins and where it ends. Whoever asks the store takes a
//! [`Stamp`] first; what the answer says is believed if the stamp is still good: no change was under way, and none began.
//!
//! Limit: two names may share a count. Then a change of one makes the other be asked for again.

use crate::catalogue::Name;
use std::hash::{DefaultHasher, Hash, Hasher};

const COUNTS: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    under_way: u32,
    begun: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Changes {
    /// Of objects.
    names: Vec<Count>,
    /// Of whole buckets.
    buckets: Vec<Count>,
}

/// How often a name had been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    name: u32,
    bucket: u32,
}

/// A change under way: say [`Changes::end`] when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a change that does not end keeps its name from being cached"]
pub enum Change {
    /// Of one object.
    Name(usize),
    /// Of any in a bucket.
    Bucket(usize),
}

impl Default for Changes {
    fn default() -> Self {
        Self { names: vec![Count::default(); COUNTS], buckets: vec![Count::default(); COUNTS] }
    }
}

fn place(of: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() as usize % COUNTS
}

impl Changes {
    /// A request that may change the object leaves for the store.
    pub fn begin(&mut self, name: &Name) -> Change {
        let at = place(name);
        begin(&mut self.names[at]);
        Change::Name(at)
    }

    /// A request that may change any object of the bucket leaves for the store.
    pub fn begin_bucket(&mut self, bucket: &str) -> Change {
        let at = place(bucket);
        begin(&mut self.buckets[at]);
        Change::Bucket(at)
    }

    /// It was answered, or never will be.
    pub fn end(&mut self, change: Change) {
        let count = match change {
            Change::Name(at) => &mut self.names[at],
            Change::Bucket(at) => &mut self.buckets[at],
        };
        count.under_way = count.under_way.checked_sub(1).expect("it began");
        // What was asked meanwhile may have been answered from before.
        count.begun = count.begun.wrapping_add(1);
    }

    /// `None` while a change is under way.
    #[must_use]
    pub fn stamp(&self, name: &Name) -> Option<Stamp> {
        let (of_name, of_bucket) = (self.names[place(name)], self.buckets[place(&*name.bucket)]);
        (of_name.under_way == 0 && of_bucket.under_way == 0)
            .then_some(Stamp { name: of_name.begun, bucket: of_bucket.begun })
    }

    /// For whoever is changing the name: `None` if others are too. While it stays the same, the order at the store is known.
    pub(crate) fn alone(&self, name: &Name) -> Option<Stamp> {
        let (of_name, of_bucket) = (self.names[place(name)], self.buckets[place(&*name.bucket)]);
        (of_name.under_way == 1 && of_bucket.under_way == 0)
            .then_some(Stamp { name: of_name.begun, bucket: of_bucket.begun })
    }
}

fn begin(count: &mut Count) {
    count.under_way += 1;
    count.begun = count.begun.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> Name {
        Name { bucket: "b".into(), key: key.as_bytes().into() }
    }

    #[test]
    fn a_stamp_is_good_until_a_change_begins() {
        let mut changes = Changes::default();
        let before = changes.stamp(&name("k"));
        assert_eq!(changes.stamp(&name("k")), before);
        let (one, two) = (changes.begin(&name("k")), changes.begin(&name("k")));
        assert_eq!(changes.stamp(&name("k")), None);
        changes.end(one);
        assert_eq!(changes.stamp(&name("k")), None, "another one is under way");
        changes.end(two);
        assert_ne!(changes.stamp(&name("k")), before);
        assert!(before.is_some() && changes.stamp(&name("k")).is_some());
        assert_eq!(changes.stamp(&name("other")), before);
    }

    #[test]
    fn who_changes_a_name_alone_is_told_so_until_another_begins() {
        let mut changes = Changes::default();
        let one = changes.begin(&name("k"));
        let alone = changes.alone(&name("k"));
        assert!(alone.is_some());
        let two = changes.begin(&name("k"));
        assert_eq!(changes.alone(&name("k")), None);
        changes.end(two);
        assert!(changes.alone(&name("k")).is_some_and(|it| Some(it) != alone), "another one came and went");
        changes.end(one);
        let one = changes.begin(&name("k"));
        let bucket = changes.begin_bucket("b");
        assert_eq!(changes.alone(&name("k")), None);
        changes.end(bucket);
        changes.end(one);
    }

    #[test]
    fn a_change_of_a_bucket_is_one_of_all_its_objects() {
        let mut changes = Changes::default();
        let before = changes.stamp(&name("k"));
        let change = changes.begin_bucket("b");
        assert_eq!(changes.stamp(&name("k")), None);
        changes.end(change);
        assert_ne!(changes.stamp(&name("k")), before);
    }
}
