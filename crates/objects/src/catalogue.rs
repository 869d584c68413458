//! Catalogue: which addresses of the object space a version of an object has.
//!
//! Why: to the cache an object is a range of a volume that nobody can name ([`Ring`]). The catalogue is what leads from a name to
//! that range, and nothing else does: when it does not lead there, no old byte can be read.
//!
//! How: a version is known by its identity ([`Identity`]): name, ETag, id of the version. A *link* leads from a name, or a name and a
//! version's id, to it. Whoever changes an object unlinks its name; the version stays, and is linked again if the store says that it is
//! the one. A link knows when the store was asked for it, and an answer to an earlier question does not replace it.
//!
//! Limits: [`Catalogue::new`] says how many versions are kept; beyond that the one that was used longest ago is dropped, with all its links. Its
//! pages age out.
//!
//! Invariants: every link leads to a version that is kept; two versions' ranges do not overlap; a version's size and identity never change.
//!
//! Rejected: to compare sizes and times instead of ETags (two versions of one second); to drop a version when its name is unlinked (a
//! change that failed would cost its pages).

use crate::head::Heads;
use crate::ring::Ring;
use crate::selection::Selection;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// What a client names: bucket and key, and the version's id if it names one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The bucket.
    pub bucket: Box<str>,
    /// The key: any bytes.
    pub key: Box<[u8]>,
}

/// Which bytes they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Whose.
    pub name: Name,
    /// As the store gave it, quotes included.
    pub etag: Box<str>,
    /// The version's id, where the store has one.
    pub version_id: Option<Box<str>>,
    /// Their number: an ETag that lies about it is another version.
    pub bytes: u64,
}

impl Identity {
    /// What is uploaded has no ETag until the store has told it.
    pub(crate) fn is_provisional(&self) -> bool {
        self.etag.is_empty()
    }
}

/// Names a version while it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(u64);

#[derive(Clone, Debug)]
struct Version {
    identity: Identity,
    range: Range<u64>,
    heads: Heads,
    used: u64,
    links: Vec<Link>,
}

type Link = (Name, Option<Box<str>>);

/// A version, as an operator is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which.
    pub id: VersionId,
    /// What it is.
    pub identity: Identity,
    /// The address of its first byte.
    pub start: u64,
    /// When the store was asked which version the name is, if this one was the answer.
    pub current_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Catalogue {
    ring: Ring,
    versions_max: usize,
    versions: BTreeMap<VersionId, Version>,
    by_identity: BTreeMap<Identity, VersionId>,
    by_start: BTreeMap<u64, VersionId>,
    by_use: BTreeMap<u64, VersionId>,
    /// Of all versions.
    bytes: u64,
    /// With the time at which the store was asked.
    links: BTreeMap<Link, (VersionId, u64)>,
    next: u64,
}

impl Catalogue {
    /// An empty one.
    #[must_use]
    pub fn new(ring: Ring, versions_max: usize) -> Self {
        Self {
            ring,
            versions_max: versions_max.max(1),
            versions: BTreeMap::new(),
            by_identity: BTreeMap::new(),
            by_start: BTreeMap::new(),
            by_use: BTreeMap::new(),
            bytes: 0,
            links: BTreeMap::new(),
            next: 0,
        }
    }

    /// Versions kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Versions kept at most.
    #[must_use]
    pub fn versions_max(&self) -> usize {
        self.versions_max
    }

    /// The sum of the versions' lengths, whether their bytes are cached or not.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The addresses.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Versions that are selected, in the order of their identities, behind `after`. Nothing counts as used.
    pub fn selected<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&Identity>,
    ) -> impl Iterator<Item = Known> + 'a {
        let first = || Identity { name: selection.first(), etag: "".into(), version_id: None, bytes: 0 };
        let from = after.map_or_else(|| Bound::Included(first()), |after| Bound::Excluded(after.clone()));
        let of_names = self.by_identity.range((from, Bound::Unbounded));
        let of_names = of_names.take_while(|(identity, _)| selection.has(&identity.name));
        of_names.filter(|(identity, _)| selection.has_version(identity)).map(|(identity, id)| Known {
            id: *id,
            identity: identity.clone(),
            start: self.versions[id].range.start,
            current_ns: self.links.get(&(identity.name.clone(), None)).filter(|link| link.0 == *id).map(|link| link.1),
        })
    }

    /// Where the name leads, and when the store was asked; the version counts as used.
    pub fn find(&mut self, name: &Name, version_id: Option<&str>) -> Option<(VersionId, u64)> {
        let found = *self.links.get(&(name.clone(), version_id.map(Into::into)))?;
        self.touch(found.0);
        Some(found)
    }

    /// The version's identity, and the addresses of its bytes; `None` if it was dropped.
    #[must_use]
    pub fn get(&self, id: VersionId) -> Option<(&Identity, Range<u64>)> {
        let version = self.versions.get(&id)?;
        let start = version.range.start;
        Some((&version.identity, start..start + version.identity.bytes))
    }

    /// The version that was given an address, and all addresses that it was given: whole blocks.
    pub(crate) fn at(&self, address: u64) -> Option<(VersionId, &Identity, Range<u64>)> {
        let (_, id) = self.by_start.range(..=address).next_back()?;
        let version = &self.versions[id];
        version.range.contains(&address).then(|| (*id, &version.identity, version.range.clone()))
    }

    /// What is told with the version's bytes; `None` if it was dropped.
    pub fn heads(&mut self, id: VersionId) -> Option<&mut Heads> {
        self.versions.get_mut(&id).map(|version| &mut version.heads)
    }

    /// The store was asked at `asked_ns` and said that the name, or the name and that version's id, are this. `None` if there is no
    /// room for it now, or if it was asked later and said something else.
    pub fn link(&mut self, version_id: Option<&str>, identity: &Identity, asked_ns: u64) -> Option<VersionId> {
        let link = (identity.name.clone(), version_id.map(Into::into));
        let linked = self.links.get(&link).copied();
        if let Some((id, _)) = linked.filter(|(_, at_ns)| *at_ns > asked_ns) {
            return (self.versions[&id].identity == *identity).then_some(id);
        }
        let id = match self.by_identity.get(identity) {
            Some(id) => *id,
            None => match self.insert(identity) {
                Some(id) => id,
                None => {
                    self.unlink(&identity.name, version_id);
                    return None;
                }
            },
        };
        if let Some((old, _)) = self.links.insert(link.clone(), (id, asked_ns)).filter(|(old, _)| *old != id) {
            self.version(old).links.retain(|it| *it != link);
        }
        let links = &mut self.version(id).links;
        if !links.contains(&link) {
            links.push(link);
        }
        self.touch(id);
        Some(id)
    }

    /// Addresses for a version whose ETag is not known yet; nothing leads to it. `None` if there is no room for it now.
    pub(crate) fn reserve(&mut self, name: &Name, bytes: u64) -> Option<VersionId> {
        self.insert(&Identity { name: name.clone(), etag: "".into(), version_id: None, bytes })
    }

    /// A version that was reserved is that one: whatever was kept as that one before is dropped. Whether it still was there.
    pub(crate) fn adopt(&mut self, id: VersionId, etag: &str, version_id: Option<&str>) -> bool {
        let Some(version) = self.versions.get(&id) else { return false };
        assert!(version.identity.is_provisional(), "a version has one identity");
        let (etag, version_id) = (etag.into(), version_id.map(Into::into));
        let identity = Identity { etag, version_id, ..version.identity.clone() };
        if let Some(before) = self.by_identity.get(&identity) {
            self.drop_version(*before);
        }
        self.by_identity.insert(identity.clone(), id);
        self.version(id).identity = identity;
        true
    }

    /// Whether the version is kept.
    pub(crate) fn knows(&self, identity: &Identity) -> bool {
        self.by_identity.contains_key(identity)
    }

    /// The name may lead elsewhere from now on.
    pub fn unlink(&mut self, name: &Name, version_id: Option<&str>) {
        let link = (name.clone(), version_id.map(Into::into));
        if let Some((id, _)) = self.links.remove(&link) {
            self.version(id).links.retain(|it| *it != link);
        }
    }

    /// Drops a version, with all that leads to it.
    pub fn drop_version(&mut self, id: VersionId) {
        let Some(version) = self.versions.remove(&id) else { return };
        self.by_identity.remove(&version.identity);
        self.by_start.remove(&version.range.start);
        self.by_use.remove(&version.used);
        self.bytes -= version.identity.bytes;
        version.links.iter().for_each(|link| {
            self.links.remove(link);
        });
    }

    /// Addresses whose pages are to be evicted before they are used again; say [`Self::cleaned`] when they are. What they were
    /// is dropped.
    pub fn to_clean(&mut self) -> Option<Range<u64>> {
        let range = self.ring.to_clean()?;
        let before = self.by_start.range(..range.start).next_back().map(|(_, id)| *id);
        let inside: Vec<VersionId> = self.by_start.range(range.clone()).map(|(_, id)| *id).collect();
        for id in before.into_iter().chain(inside) {
            if self.versions[&id].range.end > range.start {
                self.drop_version(id);
            }
        }
        Some(range)
    }

    /// What [`Self::to_clean`] said was evicted.
    pub fn cleaned(&mut self) {
        self.ring.cleaned();
    }

    fn insert(&mut self, identity: &Identity) -> Option<VersionId> {
        let range = self.ring.take(identity.bytes)?;
        while self.versions.len() >= self.versions_max {
            let (_, oldest) = self.by_use.first_key_value().expect("each version was used once");
            self.drop_version(*oldest);
        }
        self.next += 1;
        let id = VersionId(self.next);
        let used = self.next;
        if !identity.is_provisional() {
            self.by_identity.insert(identity.clone(), id);
        }
        self.by_start.insert(range.start, id);
        self.by_use.insert(used, id);
        self.bytes += identity.bytes;
        self.versions.insert(
            id,
            Version { identity: identity.clone(), range, heads: Heads::default(), used, links: Vec::new() },
        );
        Some(id)
    }

    fn version(&mut self, id: VersionId) -> &mut Version {
        self.versions.get_mut(&id).expect("a link leads to a version that is kept")
    }

    fn touch(&mut self, id: VersionId) {
        self.next += 1;
        let used = self.next;
        let before = std::mem::replace(&mut self.version(id).used, used);
        self.by_use.remove(&before);
        self.by_use.insert(used, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(at: u8) -> Name {
        Name { bucket: "b".into(), key: [at].into() }
    }

    fn identity(at: u8, etag: u8, bytes: u64) -> Identity {
        Identity { name: name(at), etag: format!("\"{etag}\"").into(), version_id: None, bytes }
    }

    fn catalogue(versions_max: usize) -> Catalogue {
        Catalogue::new(Ring::new(64 * 640, 64, 4), versions_max)
    }

    #[test]
    fn a_version_comes_back_under_its_own_addresses() {
        let mut catalogue = catalogue(10);
        let first = catalogue.link(None, &identity(1, 1, 100), 0).expect("room");
        let second = catalogue.link(None, &identity(1, 2, 100), 0).expect("room");
        assert_eq!(catalogue.find(&name(1), None), Some((second, 0)));
        assert_eq!(catalogue.link(None, &identity(1, 1, 100), 0), Some(first), "the store has the old one again");
        let ranges = [first, second].map(|id| catalogue.get(id).expect("kept").1);
        assert!(ranges[0].end <= ranges[1].start || ranges[1].end <= ranges[0].start, "{ranges:?}");
        assert_ne!(catalogue.link(None, &identity(1, 1, 99), 0), Some(first), "another size is another version");
        catalogue.unlink(&name(1), None);
        assert_eq!(catalogue.find(&name(1), None), None);
        assert_eq!(catalogue.get(first).expect("kept").0, &identity(1, 1, 100));
    }

    #[test]
    fn a_version_named_by_its_id_stays_when_the_name_leads_elsewhere() {
        let mut catalogue = catalogue(10);
        let old = Identity { version_id: Some("v1".into()), ..identity(1, 1, 9) };
        let id = catalogue.link(None, &old, 0).expect("room");
        assert_eq!(catalogue.link(Some("v1"), &old, 0), Some(id));
        catalogue.unlink(&name(1), None);
        assert_eq!(catalogue.find(&name(1), Some("v1")), Some((id, 0)));
        catalogue.drop_version(id);
        assert_eq!((catalogue.find(&name(1), Some("v1")), catalogue.get(id)), (None, None));
    }

    #[test]
    fn nothing_leads_to_what_is_reserved_until_it_is_adopted() {
        let mut catalogue = catalogue(10);
        let old = catalogue.link(None, &identity(1, 1, 100), 0).expect("room");
        let [new, failed, late] = [(); 3].map(|()| catalogue.reserve(&name(1), 100).expect("room"));
        assert_eq!(catalogue.find(&name(1), None), Some((old, 0)));
        assert!(!catalogue.knows(&catalogue.get(new).expect("kept").0.clone()));
        catalogue.drop_version(failed);
        assert!(catalogue.adopt(new, "\"1\"", None) && !catalogue.adopt(failed, "\"1\"", None));
        assert!(catalogue.get(old).is_none() && catalogue.find(&name(1), None).is_none(), "two are not one version");
        assert_eq!(catalogue.link(None, &identity(1, 1, 100), 1), Some(new));
        assert!(catalogue.adopt(late, "\"1\"", Some("v")), "another version's id is another version");
        assert!(catalogue.get(new).is_some() && catalogue.len() == 2);
    }

    #[test]
    fn an_answer_to_an_earlier_question_does_not_replace_a_later_one() {
        let mut catalogue = catalogue(10);
        let id = catalogue.link(None, &identity(1, 2, 9), 5).expect("room");
        assert_eq!(catalogue.link(None, &identity(1, 1, 9), 4), None);
        assert_eq!(catalogue.link(None, &identity(1, 2, 9), 4), Some(id));
        assert_eq!(catalogue.find(&name(1), None), Some((id, 5)));
    }

    #[test]
    fn beyond_its_number_the_one_used_longest_ago_goes() {
        let mut catalogue = catalogue(2);
        let ids = [1, 2].map(|at| catalogue.link(None, &identity(at, 0, 9), 0).expect("room"));
        catalogue.find(&name(1), None);
        catalogue.link(None, &identity(3, 0, 9), 0);
        assert!(catalogue.get(ids[0]).is_some() && catalogue.get(ids[1]).is_none());
        assert_eq!((catalogue.len(), catalogue.find(&name(2), None)), (2, None));
    }

    #[test]
    fn versions_are_selected_in_order_and_nothing_is_touched() {
        let mut catalogue = catalogue(10);
        let named = |bucket: &str, key: &str, etag: &str| Identity {
            name: Name { bucket: bucket.into(), key: key.as_bytes().into() },
            etag: etag.into(),
            version_id: Some(etag.into()),
            bytes: 9,
        };
        let all = [named("a", "k", "1"), named("b", "k", "1"), named("b", "k", "2"), named("b", "k/l", "1")];
        let ids: Vec<VersionId> = all.iter().map(|it| catalogue.link(None, it, 7).expect("room")).collect();
        let found = |text: &str, after: Option<&Identity>| -> Vec<VersionId> {
            catalogue.selected(&Selection::of(text).expect("well-formed"), after).map(|it| it.id).collect()
        };
        assert_eq!(found("s3://", None), ids);
        assert_eq!(found("s3://b", None), ids[1..]);
        assert_eq!(found("s3://b/k*", Some(&all[1])), ids[2..]);
        assert_eq!(found("s3://b/k", None), ids[1..3]);
        assert_eq!(found("s3://b/k?versionId=2", None), ids[2..3]);
        assert_eq!((found("s3://b/l*", None), found("s3://c", None)), (vec![], vec![]));
        let current: Vec<_> = catalogue.selected(&Selection::All, None).map(|it| it.current_ns).collect();
        assert_eq!(current, [Some(7), None, Some(7), Some(7)], "the name leads to the second version");
        assert_eq!((catalogue.bytes(), catalogue.by_use.first_key_value().expect("one").1), (36, &ids[0]));
        catalogue.drop_version(ids[2]);
        assert_eq!(catalogue.bytes(), 27);
    }

    proptest! {
        /// Beside a map of what the store said last. A name leads there or nowhere; addresses belong to one version at a time.
        #[test]
        fn a_name_leads_to_what_the_store_said_last_or_nowhere(
            steps in proptest::collection::vec((0..6u8, 0..6u8, 0..4u8), 1..800),
        ) {
            let mut catalogue = catalogue(12);
            let mut said: BTreeMap<u8, Identity> = BTreeMap::new();
            // Who an address was given to since it was cleaned.
            let mut owners: BTreeMap<u64, (VersionId, Range<u64>)> = BTreeMap::new();
            for (what, at, etag) in steps {
                if let Some(range) = catalogue.to_clean() {
                    owners.retain(|_, (_, it)| it.end <= range.start || range.end <= it.start);
                    catalogue.cleaned();
                }
                match what {
                    0..3 => {
                        let it = identity(at, etag, 50 + u64::from(etag) * 90);
                        said.insert(at, it.clone());
                        let id = catalogue.link(None, &it, 0).expect("it was cleaned in time");
                        let (found, range) = catalogue.get(id).expect("kept");
                        prop_assert_eq!(found, &it);
                        for (other, taken) in owners.values() {
                            prop_assert!(*other == id || taken.end <= range.start || range.end <= taken.start);
                        }
                        owners.insert(range.start, (id, range));
                    }
                    3 => {
                        catalogue.unlink(&name(at), None);
                        said.remove(&at);
                    }
                    4 => {
                        let it = identity(at, etag, 50 + u64::from(etag) * 90);
                        let id = catalogue.reserve(&it.name, it.bytes).expect("it was cleaned in time");
                        let range = catalogue.get(id).expect("kept").1;
                        for (_, taken) in owners.values() {
                            prop_assert!(taken.end <= range.start || range.end <= taken.start);
                        }
                        owners.insert(range.start, (id, range));
                        // Every other one failed.
                        if etag % 2 == 0 {
                            prop_assert!(catalogue.adopt(id, &it.etag, None));
                            prop_assert_eq!(catalogue.link(None, &it, 0), Some(id));
                            said.insert(at, it);
                        } else {
                            catalogue.drop_version(id);
                        }
                    }
                    _ => {
                        let id = catalogue.find(&name(at), None);
                        let found = id.and_then(|(id, _)| catalogue.get(id)).map(|it| it.0.clone());
                        prop_assert!(found.is_none() || found.as_ref() == said.get(&at), "{found:?}");
                    }
                }
                prop_assert!(catalogue.len() <= 12);
                prop_assert_eq!(catalogue.by_use.len(), catalogue.len());
                prop_assert_eq!(catalogue.by_start.len(), catalogue.len());
                prop_assert_eq!(catalogue.by_identity.len(), catalogue.len());
            }
        }
    }
}
