//! Multipart: an upload in parts whose bytes are kept on their way, until the store says that they are an object.
//!
//! Why: clients upload what is larger than some 8 MiB in parts; an upload through the cache would not be for large objects otherwise.
//!
//! How: a part's bytes belong to a version of their own, that nothing leads to ([`crate::Write`]). When the upload is completed, the request says which parts
//! the object has, and the store's answer says that it took them, and as which version ([`Objects::completed`]). That version gets addresses, and whoever
//! drives this moves the bytes there ([`Assembly`]).
//!
//! Invariants: a version is linked only if each part that the request names was kept whole, was answered with the ETag that the request names,
//! and was the only upload of its number at its time: of two at one time the store's order is not known. And only if nobody else changed the
//! name meanwhile.
//!
//! Limits: [`PARTS_MAX`] parts of all uploads; beyond that the upload that was used longest ago is forgotten, as one that was never completed is. A part that
//! was tried twice spoils its upload: the first try may have arrived late.
//!
//! Rejected: a version of several ranges of addresses (each look-up of each byte would go through a table, for one copy less of each byte that is uploaded);
//! to guess where a part belongs from its number and its length (the last one may come first).

use crate::catalogue::{Identity, Name, VersionId};
use crate::change::Stamp;
use crate::objects::{Kept, Objects, VERSION_ID, text};
use crate::target::{Target, pairs};
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;
use quick_xml::de::from_str;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Parts that are known at one time.
const PARTS_MAX: usize = 16_384;
/// Of one upload, as S3 has it.
const NUMBER_MAX: u32 = 10_000;
/// A request that completes an upload, and the store's answer, are read as far as this.
pub const COMPLETION_BYTES_MAX: usize = 2 << 20;

/// Which part of which upload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// As the store named it.
    pub upload: Box<str>,
    /// From 1 on.
    pub number: u32,
}

/// Bytes of a part, under a version of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPart {
    /// That version.
    pub id: VersionId,
    /// The address of its first byte.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    etag: Box<str>,
}

/// What is known of a part's number.
#[derive(Clone, Debug)]
enum Known {
    Begun,
    Kept(KeptPart),
    /// Which of several the store has is not known.
    Doubtful,
}

#[derive(Debug, Default)]
struct Upload {
    parts: BTreeMap<u32, Known>,
    used: u64,
}

/// Uploads under way. See the module.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    by_name: BTreeMap<(Name, Box<str>), Upload>,
    /// Of all of them.
    parts: usize,
    clock: u64,
}

/// A request that completes an upload, on its way. Say [`Objects::completed`] when it is answered.
#[derive(Clone, Debug)]
pub struct Completing {
    name: Name,
    upload: Box<str>,
    alone: Stamp,
    asked_ns: u64,
}

/// Bytes that belong together, and where they are until they are moved. Drop the parts' versions ([`Objects::distrust`]) when they are, or never will be.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// All of the object.
    pub kept: Kept,
    /// Which bytes of it, and where they are.
    pub parts: Vec<(Range<u64>, KeptPart)>,
}

impl Part {
    /// What a request's query names; `None` if it names no part, or is not clear.
    pub(crate) fn of(query: Option<&str>) -> Option<Self> {
        let number = once(query, "partNumber")?.parse().ok()?;
        let upload = upload_of(query)?;
        (1..=NUMBER_MAX).contains(&number).then_some(Self { upload, number })
    }
}

fn upload_of(query: Option<&str>) -> Option<Box<str>> {
    let id = percent_decode_str(once(query, "uploadId")?).decode_utf8().ok()?;
    (!id.is_empty()).then(|| id.into())
}

fn once<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut found = pairs(query).filter(|(key, _)| *key == name);
    found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
}

impl Uploads {
    /// The part is on its way to the store. The versions that are of no use any more.
    fn begin(&mut self, name: &Name, part: &Part) -> Vec<VersionId> {
        let upload = self.touch(name, &part.upload);
        let known = match upload.parts.get(&part.number) {
            None | Some(Known::Kept(_)) => Known::Begun,
            Some(Known::Begun | Known::Doubtful) => Known::Doubtful,
        };
        let before = upload.parts.insert(part.number, known);
        self.parts += usize::from(before.is_none());
        let mut useless: Vec<VersionId> = before.and_then(version).into_iter().collect();
        while self.parts > PARTS_MAX {
            let oldest = self.by_name.iter().min_by_key(|(_, upload)| upload.used).map(|(key, _)| key.clone());
            useless.extend(oldest.map(|(name, upload)| self.forget(&name, &upload)).unwrap_or_default());
        }
        useless
    }

    /// The store has it. Whether it is known as that now.
    fn keep(&mut self, name: &Name, part: &Part, kept: KeptPart) -> bool {
        let upload = self.by_name.get_mut(&(name.clone(), part.upload.clone()));
        let known = upload.and_then(|upload| upload.parts.get_mut(&part.number));
        let Some(begun @ Known::Begun) = known else { return false };
        *begun = Known::Kept(kept);
        true
    }

    fn touch(&mut self, name: &Name, upload: &str) -> &mut Upload {
        self.clock += 1;
        let of = self.by_name.entry((name.clone(), upload.into())).or_default();
        of.used = self.clock;
        of
    }

    /// Its versions.
    fn forget(&mut self, name: &Name, upload: &str) -> Vec<VersionId> {
        let Some(of) = self.by_name.remove(&(name.clone(), upload.into())) else { return Vec::new() };
        self.parts -= of.parts.len();
        of.parts.into_values().filter_map(version).collect()
    }

    /// The parts that are named, in their order, if all of them are known to be what the store has.
    fn known(&self, completing: &Completing, named: &[Named]) -> Option<Vec<KeptPart>> {
        let of = self.by_name.get(&(completing.name.clone(), completing.upload.clone()))?;
        let is_rising = named.windows(2).all(|pair| pair[0].number < pair[1].number);
        let part = |named: &Named| match of.parts.get(&named.number) {
            Some(Known::Kept(kept)) if unquoted(&kept.etag) == unquoted(named.etag.trim()) => Some(kept.clone()),
            _ => None,
        };
        (is_rising && !named.is_empty()).then(|| named.iter().map(part).collect())?
    }
}

fn version(known: Known) -> Option<VersionId> {
    match known {
        Known::Kept(kept) => Some(kept.id),
        Known::Begun | Known::Doubtful => None,
    }
}

fn unquoted(etag: &str) -> &str {
    etag.trim_matches('"')
}

impl Objects {
    /// A part is on its way.
    pub(crate) fn part_begins(&mut self, name: &Name, part: &Part) {
        let useless = self.uploads.begin(name, part);
        useless.into_iter().for_each(|id| self.catalogue.drop_version(id));
    }

    /// The store has a part.
    pub(crate) fn part_wrote(&mut self, kept: &Kept, name: &Name, part: &Part, etag: &str) -> Result<(), &'static str> {
        let kept = KeptPart { id: kept.id, start: kept.start, bytes: kept.bytes, etag: etag.into() };
        if self.uploads.keep(name, part, kept) { Ok(()) } else { Err("changed-meanwhile") }
    }

    /// A request that completes an upload of which parts were kept, once [`Self::changing`] was said of it. `None` if it is none. One that gives an upload up
    /// forgets its parts.
    pub fn completing(
        &mut self,
        now_ns: u64,
        method: &Method,
        target: &Target,
        query: Option<&str>,
    ) -> Option<Completing> {
        let (name, upload) = (target.name.clone()?, upload_of(query)?);
        if !self.uploads.by_name.contains_key(&(name.clone(), upload.clone())) {
            return None;
        }
        match *method {
            Method::DELETE => self.forget_upload(&name, &upload),
            Method::POST => {
                let alone = self.changes.alone(&name)?;
                return Some(Completing { name, upload, alone, asked_ns: now_ns });
            }
            _ => {}
        }
        None
    }

    fn forget_upload(&mut self, name: &Name, upload: &str) {
        let useless = self.uploads.forget(name, upload);
        useless.into_iter().for_each(|id| self.catalogue.drop_version(id));
    }

    /// The store answered it: what was asked, and what was answered. To be said before [`Self::changed`].
    ///
    /// # Errors
    /// Why the object is not known.
    pub fn completed(
        &mut self,
        completing: &Completing,
        asked: &[u8],
        (status, headers, told): (StatusCode, &HeaderMap, &[u8]),
    ) -> Result<Assembly, &'static str> {
        // A store may answer 200 before it is done, and say in the body that it failed.
        let etag = (status == StatusCode::OK).then(|| etag_told(told)).flatten().ok_or("status")?;
        let parts = parts_named(asked).and_then(|named| self.uploads.known(completing, &named)).ok_or("parts");
        let linked = parts.and_then(|parts| self.link_assembled(completing, &etag, headers, parts));
        if linked.is_err() {
            self.forget_upload(&completing.name, &completing.upload);
        } else {
            // Its versions are the assembly's now.
            let _ = self.uploads.forget(&completing.name, &completing.upload);
        }
        linked
    }

    fn link_assembled(
        &mut self,
        completing: &Completing,
        etag: &str,
        headers: &HeaderMap,
        parts: Vec<KeptPart>,
    ) -> Result<Assembly, &'static str> {
        let Completing { name, alone, asked_ns, .. } = completing;
        if self.changes.alone(name) != Some(*alone) {
            return Err("changed-meanwhile");
        }
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let version_id = text(headers, VERSION_ID).map(Into::into);
        let identity = Identity { name: name.clone(), etag: etag.into(), version_id, bytes };
        let id = self.link(None, &identity, *asked_ns).ok_or("superseded")?;
        let (_, addresses) = self.catalogue.get(id).ok_or("no-room")?;
        let kept = Kept { id, start: addresses.start, part: 0..bytes, bytes, is_known: false };
        let mut at = 0;
        let placed = parts.into_iter().map(|part| {
            at += part.bytes;
            (at - part.bytes..at, part)
        });
        Ok(Assembly { kept, parts: placed.collect() })
    }
}

/// What a request completes an upload with.
#[derive(Deserialize)]
struct Completion {
    #[serde(rename = "Part", default)]
    parts: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "PartNumber")]
    number: u32,
    #[serde(rename = "ETag")]
    etag: Box<str>,
}

/// What the store answers: one that says that it failed has no ETag.
#[derive(Deserialize)]
struct Completed {
    #[serde(rename = "ETag")]
    etag: Box<str>,
}

fn parts_named(asked: &[u8]) -> Option<Vec<Named>> {
    let completion: Completion = from_str(std::str::from_utf8(asked).ok()?).ok()?;
    Some(completion.parts)
}

/// With quotes, as an answer's head has it.
fn etag_told(told: &[u8]) -> Option<Box<str>> {
    let completed: Completed = from_str(std::str::from_utf8(told).ok()?).ok()?;
    let etag = unquoted(completed.etag.trim());
    (!etag.is_empty()).then(|| format!("\"{etag}\"").into())
}

#[cfg(test)]
mod tests;
