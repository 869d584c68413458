//! Objects: what to do with a read, and what to believe of the store's answer to it.
//!
//! How: a read has one of four plans.
//! 1. **Pass**: it goes to the store as it came, and nothing is kept ([`crate::policy`] may say so).
//! 2. **Learn**: the same, and what the answer says is kept: which version the name leads to, its headers, its bytes.
//! 3. **Confirm**: the version is known. The request goes to the store with `If-None-Match` of its ETag. The store says whether the caller
//!    may read it, and whether it is still the one ([`Objects::confirmed`]).
//! 4. **Serve**: the store said both to the same request a moment ago ([`crate::permit`]).
//!
//! A change of a name unlinks it when it begins, and what was asked before is not believed ([`crate::change`]).
//!
//! Invariants: nothing is served that the store did not confirm for this request, now or within `metadata_ttl_ns`. An answer is linked only if
//! no change began since it was asked for. Bytes are kept only of an answer that says which version, which range and how long.
//!
//! Limits: a version without a strong ETag, or of unknown length, is not kept.

use crate::catalogue::{Catalogue, Identity, Known, Name, VersionId};
use crate::change::{Change, Changes, Stamp};
use crate::condition::Verdict;
use crate::head::{self, Kind, Of};
use crate::multipart::Uploads;
use crate::permit::{Permits, Who};
use crate::policy::{Policies, Policy, PolicyRow};
use crate::range::content_range;
use crate::read::{Asked, Read};
use crate::ring::Ring;
use crate::selection::Selection;
use crate::target::Target;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName};
use http::{HeaderValue, StatusCode};
use std::ops::Range;
use std::sync::Arc;

/// Headers of an answer that may be kept, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
pub(crate) const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// How it is set up.
#[derive(Clone, Copy, Debug)]
pub struct ObjectsConfig {
    /// Addresses of the object space.
    pub space_bytes: u64,
    /// Of the cache.
    pub page_bytes: u64,
    /// Of the cache.
    pub block_bytes: u64,
    /// Versions that are known at one time.
    pub versions_max: usize,
    /// The store's yes is believed for so long, where no policy says another time; 0: not at all.
    pub metadata_ttl_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Objects {
    pub(crate) catalogue: Catalogue,
    pub(crate) changes: Changes,
    pub(crate) uploads: Uploads,
    permits: Permits,
    policies: Policies,
}

/// What to do with a read.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Pass it on. Why nothing is kept.
    Pass(&'static str),
    /// Pass it on, and say what the answer was ([`Objects::learned`]).
    Learn(Learning),
    /// Ask whether it is still this version ([`Objects::confirmed`]); if so, answer with it.
    Confirm(Held),
    /// Answer with it. The store was asked about it then.
    Serve(Held, u64),
}

/// A read that is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Learning {
    stamp: Option<Stamp>,
    asked_ns: u64,
    who: Option<(Who, u64)>,
    ttl_ns: u64,
}

/// A version that a read may be answered with.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which.
    pub id: VersionId,
    /// Its ETag, quotes included.
    pub etag: Box<str>,
    /// Its length.
    pub bytes: u64,
    /// The address of its first byte.
    pub start: u64,
    /// What of it is asked for.
    pub part: Range<u64>,
    /// By the number of a part of an upload: a range beside that would be refused.
    pub is_numbered: bool,
    /// 200, 206, 304 or 412.
    pub status: StatusCode,
    /// What is told with it.
    pub headers: Arc<HeaderMap>,
    /// What to learn of the answer if it is not that version.
    pub learning: Learning,
}

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// Answer with what is held.
    Serve,
    /// What is told with it may be another by now: pass the request on as it came.
    Again,
}

/// What was learned of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Its bytes are to be kept.
    Keep(Kept),
    /// What it told; it has no bytes.
    Known,
    /// Nothing. Why.
    Not(&'static str),
}

/// Bytes of an answer that belong to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub id: VersionId,
    /// The address of its first byte.
    pub start: u64,
    /// Which of its bytes come.
    pub part: Range<u64>,
    /// Its length.
    pub bytes: u64,
    /// The version was known before: some of its bytes may be here ([`Objects::here`]).
    pub is_known: bool,
}

impl Learning {
    /// Whether the store's yes may be believed later.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        self.ttl_ns > 0
    }
}

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Versions known.
    pub versions: u64,
    /// At most.
    pub versions_max: u64,
    /// The sum of their lengths, cached or not.
    pub version_bytes: u64,
    /// Permits remembered.
    pub permits: u64,
    /// Addresses.
    pub space_bytes: u64,
    /// Given out since the start; beyond `space_bytes` they are given out again.
    pub given_bytes: u64,
    /// Cleaned since the start, to be given out again.
    pub cleaned_bytes: u64,
}

impl Held {
    /// Whether bytes of it are told.
    #[must_use]
    pub fn has_body(&self) -> bool {
        matches!(self.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT)
    }

    /// Which bytes of the version an answer brings; `None` if it is of another one, or does not say.
    #[must_use]
    pub fn part_in(&self, status: StatusCode, headers: &HeaderMap) -> Option<Range<u64>> {
        let (part, bytes) = extent(status, headers).ok()?;
        let is_this = text(headers, ETAG) == Some(&self.etag) && bytes == self.bytes;
        is_this.then_some(part)
    }

    /// The headers of the answer, without those of its body's length. `confirmation`: the store's, if it was asked.
    #[must_use]
    pub fn told(&self, read: &Read, confirmation: Option<&HeaderMap>) -> HeaderMap {
        let mut headers = head::told(&self.headers, confirmation);
        for (name, value) in &read.overrides {
            headers.insert(name.clone(), value.clone());
        }
        if self.status == StatusCode::PARTIAL_CONTENT {
            let text = format!("bytes {}-{}/{}", self.part.start, self.part.end - 1, self.bytes);
            headers.insert(CONTENT_RANGE, HeaderValue::try_from(text).expect("digits"));
        }
        headers
    }
}

impl Objects {
    /// None yet.
    ///
    /// # Panics
    /// When the sizes do not fit each other, see [`Ring::new`].
    #[must_use]
    pub fn new(config: &ObjectsConfig) -> Self {
        let ring = Ring::new(config.space_bytes, config.page_bytes, config.block_bytes);
        Self {
            catalogue: Catalogue::new(ring, config.versions_max),
            changes: Changes::default(),
            uploads: Uploads::default(),
            permits: Permits::new(config.versions_max),
            policies: Policies::new(Vec::new(), config.metadata_ttl_ns),
        }
    }

    /// With rows of policies, see [`Policies::new`].
    ///
    /// # Panics
    /// When there are too many.
    #[must_use]
    pub fn with_policies(config: &ObjectsConfig, rows: Vec<PolicyRow>) -> Self {
        Self { policies: Policies::new(rows, config.metadata_ttl_ns), ..Self::new(config) }
    }

    /// How an object is treated.
    #[must_use]
    pub fn policy(&self, name: &Name) -> Policy {
        self.policies.of(name)
    }

    /// What is known of versions.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What to do. `who`: the request and for how long it is good, in seconds. It is not needed where the object's policy has no
    /// `metadata_ttl_ns`.
    pub fn plan(&mut self, now_ns: u64, read: &Read, who: Option<(Who, u64)>) -> Plan {
        if let Some(why) = read.bypass {
            return Plan::Pass(why);
        }
        let policy = self.policy(&read.name);
        if !policy.is_cached {
            return Plan::Pass("policy");
        }
        let ttl_ns = policy.metadata_ttl_ns;
        let learning = Learning { stamp: self.changes.stamp(&read.name), asked_ns: now_ns, who, ttl_ns };
        let Some((held, linked_ns)) = self.held(read, learning) else { return Plan::Learn(learning) };
        let is_allowed = match (learning.stamp, who) {
            (Some(stamp), Some((who, _))) if !read.fresh => self.permits.allows(now_ns, &who, stamp),
            _ => false,
        };
        match is_allowed && now_ns < linked_ns.saturating_add(ttl_ns) {
            true => Plan::Serve(held, linked_ns),
            // An own condition is the store's to judge, unless it names this version; what has no bytes costs the store no more than being asked.
            false if read.head || !held.has_body() || !read.conditions.only_name_a_version() => Plan::Learn(learning),
            false => Plan::Confirm(held),
        }
    }

    /// The version that the name leads to, if it can answer the read; since when it leads there.
    fn held(&mut self, read: &Read, learning: Learning) -> Option<(Held, u64)> {
        let (id, linked_ns) = self.catalogue.find(&read.name, read.version_id.as_deref())?;
        let (identity, addresses) = self.catalogue.get(id)?;
        let (etag, bytes) = (identity.etag.clone(), identity.bytes);
        let last_modified = self.catalogue.heads(id)?.last_modified();
        let is_numbered = matches!(read.asked, Asked::Numbered(_));
        let (asked, verdict) = match read.conditions.judge(&etag, last_modified) {
            Verdict::Unclear => return None,
            Verdict::Whole if is_numbered => return None,
            Verdict::Whole => (Asked::Whole, Verdict::Go),
            verdict => (read.asked, verdict),
        };
        let ranged = asked != Asked::Whole;
        let heads = self.catalogue.heads(id)?;
        let found = |part: Range<u64>| {
            let kind = Kind { checksums: read.checksums, of: Of::range(ranged, &part, bytes) };
            Some((part, heads.find(kind)?))
        };
        let (part, headers) = match asked {
            Asked::Whole => found(0..bytes),
            Asked::Part(spec) => found(spec.within(bytes)?),
            Asked::Numbered(number) => heads.find_numbered(number, read.checksums),
            Asked::Unclear => None,
        }?;
        let status = match verdict {
            Verdict::NotModified => StatusCode::NOT_MODIFIED,
            Verdict::Failed => StatusCode::PRECONDITION_FAILED,
            _ if ranged => StatusCode::PARTIAL_CONTENT,
            _ => StatusCode::OK,
        };
        Some((
            Held { id, etag, bytes, start: addresses.start, part, is_numbered, status, headers, learning },
            linked_ns,
        ))
    }

    /// The store answered 304 to the question whether it is still that version.
    pub fn confirmed(&mut self, read: &Read, held: &Held, headers: &HeaderMap) -> Confirmed {
        let is_other = text(headers, ETAG).is_some_and(|etag| etag.trim_matches('"') != held.etag.trim_matches('"'));
        let Some(heads) = self.catalogue.heads(held.id) else { return Confirmed::Again };
        let changed = head::last_modified(headers);
        if is_other || (changed.is_some() && changed != heads.last_modified()) {
            return Confirmed::Again;
        }
        let identity = self.catalogue.get(held.id).map(|(identity, _)| identity.clone());
        if let Some(identity) = identity.filter(|_| self.is_current(read, &held.learning)) {
            self.catalogue.link(read.version_id.as_deref(), &identity, held.learning.asked_ns);
            self.allow(&held.learning);
        }
        Confirmed::Serve
    }

    /// The store answered a read that was passed on, or said that the version is another one.
    pub fn learned(&mut self, read: &Read, learning: &Learning, status: StatusCode, headers: &HeaderMap) -> Learned {
        let answer = match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Answer::of(read, status, headers),
            StatusCode::NOT_MODIFIED => return Learned::Known,
            StatusCode::NOT_FOUND => {
                self.catalogue.unlink(&read.name, read.version_id.as_deref());
                Err("status")
            }
            _ => Err("status"),
        };
        let learned = match answer {
            Ok(answer) if self.is_current(read, learning) => self.learn(read, learning, &answer, headers),
            Ok(_) => Err("changed-meanwhile"),
            Err(why) => Err(why),
        };
        learned.unwrap_or_else(|why| {
            if let Some((who, _)) = &learning.who {
                self.permits.revoke(who);
            }
            Learned::Not(why)
        })
    }

    fn learn(
        &mut self,
        read: &Read,
        learning: &Learning,
        answer: &Answer,
        headers: &HeaderMap,
    ) -> Result<Learned, &'static str> {
        let Answer { identity, part, kind, bytes_follow } = answer;
        let asked_ns = learning.asked_ns;
        let is_known = self.catalogue.knows(identity);
        let id = self.link(read.version_id.as_deref(), identity, asked_ns).ok_or("superseded")?;
        if read.overrides.is_empty()
            && head_bytes(headers) <= HEAD_BYTES_MAX
            && let Some(heads) = self.catalogue.heads(id)
        {
            match read.asked {
                Asked::Whole | Asked::Part(_) => heads.learn(*kind, headers),
                Asked::Numbered(number) => heads.learn_numbered(number, read.checksums, part, headers),
                Asked::Unclear => {}
            }
        }
        self.allow(learning);
        let (_, addresses) = self.catalogue.get(id).ok_or("superseded")?;
        Ok(match *bytes_follow && !part.is_empty() {
            true => {
                Learned::Keep(Kept { id, start: addresses.start, part: part.clone(), bytes: identity.bytes, is_known })
            }
            false => Learned::Known,
        })
    }

    /// The name leads to that version, if that is what is known last; so does the version's own id.
    pub(crate) fn link(&mut self, version_id: Option<&str>, identity: &Identity, asked_ns: u64) -> Option<VersionId> {
        let id = self.catalogue.link(version_id, identity, asked_ns)?;
        if let (None, Some(own)) = (version_id, &identity.version_id) {
            self.catalogue.link(Some(own), identity, asked_ns);
        }
        Some(id)
    }

    /// What an answer brings, from the cache: it was learned just now that this read may have it. `None` if it would be another answer than the
    /// store's.
    pub fn here(&mut self, read: &Read, learning: &Learning, kept: &Kept, status: StatusCode) -> Option<Held> {
        let (held, _) = self.held(read, *learning)?;
        (held.id == kept.id && held.part == kept.part && held.status == status).then_some(held)
    }

    /// Whether no change began since the store was asked.
    fn is_current(&self, read: &Read, learning: &Learning) -> bool {
        learning.stamp.is_some() && self.changes.stamp(&read.name) == learning.stamp
    }

    fn allow(&mut self, learning: &Learning) {
        if let (Some(stamp), Some((who, lifetime_s))) = (learning.stamp, learning.who) {
            self.permits.grant(learning.asked_ns, who, stamp, lifetime_s, learning.ttl_ns);
        }
    }

    /// A request that may change something leaves for the store. Say [`Self::changed`] when it is answered, or never will be.
    pub fn changing(&mut self, target: &Target) -> Option<Change> {
        match (&target.name, &target.bucket) {
            (Some(name), _) => {
                self.catalogue.unlink(name, None);
                Some(self.changes.begin(name))
            }
            (None, Some(bucket)) => Some(self.changes.begin_bucket(bucket)),
            (None, None) => None,
        }
    }

    /// It was answered, or never will be.
    pub fn changed(&mut self, change: Change) {
        self.changes.end(change);
    }

    /// The name was changed past the gateway: what is known of it is not believed any more.
    pub fn changed_elsewhere(&mut self, name: &Name) {
        self.catalogue.unlink(name, None);
        let change = self.changes.begin(name);
        self.changes.end(change);
    }

    /// The bytes of a version turned out not to be what they should: forget it.
    pub fn distrust(&mut self, id: VersionId) {
        self.catalogue.drop_version(id);
    }

    /// Forgets versions that are selected, behind `after`, so many at most; those that it forgot. What reads of them are under way may
    /// still bring is to be evicted when they have ended.
    pub fn forget(&mut self, selection: &Selection, after: Option<&Identity>, versions_max: usize) -> Vec<Known> {
        let forgotten: Vec<Known> = self.catalogue.selected(selection, after).take(versions_max).collect();
        forgotten.iter().for_each(|known| self.catalogue.drop_version(known.id));
        forgotten
    }

    /// How much is known.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let (catalogue, ring) = (&self.catalogue, self.catalogue.ring());
        Gauges {
            versions: catalogue.len() as u64,
            versions_max: catalogue.versions_max() as u64,
            version_bytes: catalogue.bytes(),
            permits: self.permits.len() as u64,
            space_bytes: ring.bytes(),
            given_bytes: ring.given_bytes(),
            cleaned_bytes: ring.cleaned_bytes(),
        }
    }

    /// See [`Catalogue::to_clean`].
    pub fn to_clean(&mut self) -> Option<Range<u64>> {
        self.catalogue.to_clean()
    }

    /// See [`Catalogue::cleaned`].
    pub fn cleaned(&mut self) {
        self.catalogue.cleaned();
    }
}

pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Which bytes an answer has, of how many; or why it does not say.
pub(crate) fn extent(status: StatusCode, headers: &HeaderMap) -> Result<(Range<u64>, u64), &'static str> {
    let length: u64 = text(headers, CONTENT_LENGTH).and_then(|it| it.parse().ok()).ok_or("no-length")?;
    let (part, bytes) = match status {
        StatusCode::OK => (0..length, length),
        StatusCode::PARTIAL_CONTENT => text(headers, CONTENT_RANGE).and_then(content_range).ok_or("no-range")?,
        _ => return Err("status"),
    };
    if part.end - part.start == length { Ok((part, bytes)) } else { Err("length") }
}

fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// An answer that says what it is.
struct Answer {
    identity: Identity,
    part: Range<u64>,
    kind: Kind,
    bytes_follow: bool,
}

impl Answer {
    /// Or why it does not.
    fn of(read: &Read, status: StatusCode, headers: &HeaderMap) -> Result<Self, &'static str> {
        let etag = text(headers, ETAG).filter(|etag| !etag.is_empty() && !etag.starts_with("W/")).ok_or("no-etag")?;
        let (part, bytes) = extent(status, headers)?;
        let ranged = status == StatusCode::PARTIAL_CONTENT;
        if !ranged && matches!(read.asked, Asked::Numbered(_)) {
            // It may be a part, whose length is not the object's.
            return Err("part-number");
        }
        if !head::is_of_object(headers) {
            return Err("varies");
        }
        let version_id: Option<Box<str>> = text(headers, VERSION_ID).map(Into::into);
        if let (Some(named), Some(told)) = (&read.version_id, &version_id)
            && named != told
        {
            return Err("version-id");
        }
        let identity = Identity { name: read.name.clone(), etag: etag.into(), version_id, bytes };
        let kind = Kind { checksums: read.checksums, of: Of::range(ranged, &part, bytes) };
        Ok(Self { identity, part, kind, bytes_follow: !read.head })
    }
}

#[cfg(test)]
mod tests;
