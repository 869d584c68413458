//! Stretch: bytes of one version by their addresses, and how the store is asked for them.
//!
//! Why: the cache knows pages, and no objects. When the store is to serve what the cache disk has, somebody has to say which object's bytes
//! these are, and whether they are what came.
//!
//! How: the catalogue leads from addresses to a version. The store is asked for that part of it, with `If-Match` of its ETag and, where it has one, its
//! id ([`Stretch::request`]). What it answers is compared with all that is known before a byte is used ([`Stretch::judge`]).
//!
//! Invariant: what is judged to be the bytes is of that version and of that part, whatever the store thinks of conditions and ranges.
//!
//! Limits: addresses of no version, of more than one, or of one whose ETag is not known yet are no stretch.

use crate::catalogue::{Identity, VersionId};
use crate::objects::{Objects, extent, text};
use forebay_signature::canonical;
use http::header::{ETAG, HeaderMap, IF_MATCH, RANGE};
use http::request::Parts;
use http::{Request, StatusCode};
use std::ops::Range;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    id: VersionId,
    identity: Identity,
    part: Range<u64>,
}

/// What an answer to [`Stretch::request`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The bytes follow.
    Bytes,
    /// The store has another version by now, or none: that says nothing of other objects.
    Changed,
    /// The store does not do what it was asked to.
    Refused,
}

impl Objects {
    /// Which bytes lie at these addresses; those behind an object's end are zeroes.
    #[must_use]
    pub fn stretch(&self, addresses: Range<u64>) -> Option<Stretch> {
        let (id, identity, range) = self.catalogue().at(addresses.start)?;
        let end = (addresses.end - range.start).min(identity.bytes);
        let part = addresses.start - range.start..end;
        let is_one = addresses.end <= range.end && !part.is_empty() && !identity.is_provisional();
        is_one.then(|| Stretch { id, identity: identity.clone(), part })
    }
}

impl Stretch {
    /// Which of the version's bytes.
    #[must_use]
    pub fn part(&self) -> &Range<u64> {
        &self.part
    }

    /// Takes what follows it, if it does, and so many bytes at most are one stretch then.
    pub fn join(&mut self, next: &Self, bytes_max: u64) -> bool {
        let follows = self.id == next.id && self.part.end == next.part.start;
        let is_next = follows && next.part.end - self.part.start <= bytes_max;
        if is_next {
            self.part.end = next.part.end;
        }
        is_next
    }

    /// A request for them, in path style and not signed. `None` if they cannot be asked for: the version's ETag is no header.
    #[must_use]
    pub fn request(&self) -> Option<Parts> {
        let Identity { name, etag, version_id, .. } = &self.identity;
        let path = [b"/", name.bucket.as_bytes(), b"/", &name.key].concat();
        let path = canonical::encoded_path(&path);
        let id = version_id.as_ref().map(|id| format!("?versionId={}", canonical::word(id.as_bytes())));
        let range = format!("bytes={}-{}", self.part.start, self.part.end - 1);
        let request = Request::get(path + id.as_deref().unwrap_or("")).header(IF_MATCH, &**etag).header(RANGE, range);
        Some(request.body(()).ok()?.into_parts().0)
    }

    /// What an answer is.
    #[must_use]
    pub fn judge(&self, status: StatusCode, headers: &HeaderMap) -> Judged {
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
            StatusCode::NOT_FOUND | StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Judged::Changed;
            }
            _ => return Judged::Refused,
        }
        let Ok((part, bytes)) = extent(status, headers) else { return Judged::Refused };
        match text(headers, ETAG) == Some(&self.identity.etag) && bytes == self.identity.bytes {
            false => Judged::Changed,
            true if part == self.part => Judged::Bytes,
            true => Judged::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Name;
    use crate::objects::ObjectsConfig;

    fn objects() -> Objects {
        let (space_bytes, page_bytes, block_bytes) = (256 * 65_536, 65_536, 4096);
        Objects::new(&ObjectsConfig { space_bytes, page_bytes, block_bytes, versions_max: 9, metadata_ttl_ns: 0 })
    }

    fn known(objects: &mut Objects, key: &[u8], bytes: u64, version_id: Option<&str>) -> Range<u64> {
        let name = Name { bucket: "b".into(), key: key.into() };
        let version_id = version_id.map(Into::into);
        let identity = Identity { name, etag: "\"e\"".into(), version_id, bytes };
        let id = objects.link(None, &identity, 0).expect("room");
        objects.catalogue().get(id).expect("kept").1
    }

    #[test]
    fn addresses_lead_to_the_bytes_of_one_version() {
        let mut objects = objects();
        let (a, b) = (known(&mut objects, b"a", 5000, None), known(&mut objects, b"b", 4096, None));
        assert_eq!((a.clone(), b.clone()), (0..5000, 8192..12_288), "they share a page");
        let part = |addresses| objects.stretch(addresses).map(|it| it.part().clone());
        assert_eq!(part(4096..8192), Some(4096..5000), "the rest of the block is zeroes");
        assert_eq!(part(512..1024), Some(512..1024));
        assert_eq!(part(8192..12_288), Some(0..4096));
        for none in [0..12_288, 5120..8192, 12_288..16_384, 8192..16_384] {
            assert_eq!(part(none.clone()), None, "{none:?}");
        }
        let name = Name { bucket: "b".into(), key: (*b"c").into() };
        objects.catalogue.reserve(&name, 4096).expect("room");
        assert_eq!(objects.stretch(12_288..16_384), None, "its ETag is not known");
        let id = objects.catalogue.find(&Name { key: (*b"a").into(), ..name }, None).expect("linked").0;
        objects.distrust(id);
        assert_eq!(objects.stretch(0..4096), None, "it was dropped");
        assert!(objects.stretch(8192..12_288).is_some());
    }

    #[test]
    fn what_follows_in_one_version_is_joined() {
        let mut objects = objects();
        known(&mut objects, b"a", 100_000, None);
        known(&mut objects, b"b", 100_000, None);
        let of = |addresses| objects.stretch(addresses).expect("known");
        let mut first = of(0..4096);
        assert!(!first.join(&of(8192..12_288), 1 << 20), "there is a gap");
        assert!(first.join(&of(4096..8192), 8192) && !first.join(&of(8192..12_288), 8192), "it would be too long");
        assert_eq!(*first.part(), 0..8192);
        let mut last = of(98_304..102_400);
        assert_eq!(*last.part(), 98_304..100_000);
        assert!(!last.join(&of(131_072..135_168), 1 << 20), "that is another version");
    }

    #[test]
    fn the_store_is_asked_for_that_version() {
        let mut objects = objects();
        known(&mut objects, b"d/\xff k+%", 9000, Some("v+1"));
        let request = objects.stretch(4096..8192).and_then(|it| it.request()).expect("a request");
        assert_eq!(request.uri, "/b/d/%FF%20k%2B%25?versionId=v%2B1");
        assert_eq!(
            (&request.headers[IF_MATCH], &request.headers[RANGE]),
            (&"\"e\"".parse().unwrap(), &"bytes=4096-8191".parse().unwrap())
        );
    }

    #[test]
    fn only_its_own_bytes_are_taken() {
        let mut objects = objects();
        known(&mut objects, b"a", 9000, None);
        let (part, whole) = (objects.stretch(4096..8192).expect("known"), objects.stretch(0..12_288).expect("known"));
        let of = |etag, length, range| {
            crate::headers(&[("etag", etag), ("content-length", length), ("content-range", range)])
        };
        let right = of("\"e\"", "4096", "bytes 4096-8191/9000");
        assert_eq!(part.judge(StatusCode::PARTIAL_CONTENT, &right), Judged::Bytes);
        assert_eq!(whole.judge(StatusCode::OK, &of("\"e\"", "9000", "")), Judged::Bytes);
        for (status, headers, judged) in [
            (206, of("\"f\"", "4096", "bytes 4096-8191/9000"), Judged::Changed),
            (206, of("\"e\"", "4096", "bytes 4096-8191/9001"), Judged::Changed),
            (206, of("W/\"e\"", "4096", "bytes 4096-8191/9000"), Judged::Changed),
            (412, HeaderMap::new(), Judged::Changed),
            (404, HeaderMap::new(), Judged::Changed),
            (416, HeaderMap::new(), Judged::Changed),
            (206, of("\"e\"", "4095", "bytes 4096-8191/9000"), Judged::Refused),
            (206, of("\"e\"", "4096", "bytes 0-4095/9000"), Judged::Refused),
            (206, of("\"e\"", "4096", ""), Judged::Refused),
            (200, of("\"e\"", "9000", ""), Judged::Refused),
            (304, right.clone(), Judged::Refused),
            (403, right.clone(), Judged::Refused),
            (503, right.clone(), Judged::Refused),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(part.judge(status, &headers), judged, "{status} {headers:?}");
        }
    }
}
