//! Heads: what is told with a version's bytes.
//!
//! Why more than one: a store may tell a checksum of the whole object that it does not tell with a part of it, and tells checksums at all
//! only to who asks. So what was answered to one kind of request is told to the same kind.
//!
//! Parts by their numbers have headers, and bounds, of their own: up to [`NUMBERED_MAX`] of a version.
//!
//! How: the headers of an answer are kept but for those that are of one answer only. A part whose headers are not known is told what the whole
//! was, if that is nothing that may depend on the kind. A range that happens to be all of the object is a kind of its own: some stores tell
//! its checksum, some do not.

use http::header::{
    ACCEPT_RANGES, AGE, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderName, LAST_MODIFIED,
    SET_COOKIE, TRANSFER_ENCODING, VARY,
};
use httpdate::HttpDate;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Parts by their numbers whose headers are kept: a download of more is passed on from there.
const NUMBERED_MAX: usize = 128;
/// Headers of one answer, not of the object.
const OF_ONE_ANSWER: [HeaderName; 9] = [
    CONTENT_LENGTH,
    CONTENT_RANGE,
    TRANSFER_ENCODING,
    CONNECTION,
    AGE,
    SET_COOKIE,
    HeaderName::from_static("x-amz-id-2"),
    HeaderName::from_static("x-amz-request-id"),
    HeaderName::from_static("x-cache"),
];
/// Which of those come with an answer that says that nothing has changed.
pub(crate) const OF_CONFIRMATION: [HeaderName; 3] =
    [DATE, HeaderName::from_static("x-amz-id-2"), HeaderName::from_static("x-amz-request-id")];
/// What may depend on the kind of request.
const OF_KIND: [&str; 3] = ["x-amz-checksum-", "x-amz-mp-parts-count", "x-goog-hash"];
/// An answer may vary with these: they are not among the requests that are cached.
const VARIES: [&str; 3] = ["origin", "access-control-request-headers", "access-control-request-method"];

/// What kind of request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Checksums are to be told.
    pub(crate) checksums: bool,
    /// What of the object is asked for.
    pub(crate) of: Of,
}

/// What of an object is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Whole,
    /// A range that is less than all.
    Part,
    /// A range that is all.
    WholeRange,
}

impl Of {
    /// What a range is, if it is asked for by one, of an object of so many bytes.
    pub(crate) fn range(is_asked: bool, part: &Range<u64>, bytes: u64) -> Self {
        match (is_asked, part.end - part.start == bytes) {
            (false, _) => Self::Whole,
            (true, true) => Self::WholeRange,
            (true, false) => Self::Part,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    of: [Option<Arc<HeaderMap>>; 6],
    /// By number, and whether checksums were to be told.
    numbered: BTreeMap<(u32, bool), (Range<u64>, Arc<HeaderMap>)>,
    last_modified: Option<HttpDate>,
}

fn place(kind: Kind) -> usize {
    usize::from(kind.checksums) * 3 + kind.of as usize
}

/// When the object was changed last, as an answer says.
pub(crate) fn last_modified(headers: &HeaderMap) -> Option<HttpDate> {
    headers.get(LAST_MODIFIED)?.to_str().ok()?.parse().ok()
}

impl Heads {
    /// The store answered a request of that kind so.
    pub(crate) fn learn(&mut self, kind: Kind, headers: &HeaderMap) {
        self.of[place(kind)] = Some(Arc::new(self.kept_of(headers)));
    }

    /// The store answered a request of the part with that number so: it is these bytes.
    pub(crate) fn learn_numbered(&mut self, number: u32, checksums: bool, part: &Range<u64>, headers: &HeaderMap) {
        let kept = self.kept_of(headers);
        if self.numbered.len() == NUMBERED_MAX && !self.numbered.contains_key(&(number, checksums)) {
            return;
        }
        // Parts without checksums are told the same.
        let alike = self.numbered.values().next_back().filter(|(_, other)| **other == kept);
        let kept = alike.map_or_else(|| Arc::new(kept), |(_, other)| Arc::clone(other));
        self.numbered.insert((number, checksums), (part.clone(), kept));
    }

    /// What of an answer's headers is kept.
    fn kept_of(&mut self, headers: &HeaderMap) -> HeaderMap {
        let mut kept = headers.clone();
        for name in &OF_ONE_ANSWER {
            kept.remove(name);
        }
        let last_modified = last_modified(headers);
        if self.last_modified != last_modified {
            // What was told before is of a time before.
            *self = Self { last_modified, ..Self::default() };
        }
        kept
    }

    /// Which bytes the part with that number is, and what to tell with it.
    pub(crate) fn find_numbered(&self, number: u32, checksums: bool) -> Option<(Range<u64>, Arc<HeaderMap>)> {
        self.numbered.get(&(number, checksums)).cloned()
    }

    /// What to tell a request of that kind.
    pub(crate) fn find(&self, kind: Kind) -> Option<Arc<HeaderMap>> {
        let may_differ = |headers: &HeaderMap| {
            headers.keys().any(|name| OF_KIND.iter().any(|prefix| name.as_str().starts_with(prefix)))
        };
        let own = self.of[place(kind)].clone();
        // A part's headers may lack what the whole would have been told; the whole's have it.
        let whole = Kind { of: Of::Whole, ..kind };
        own.or_else(|| self.of[place(whole)].clone().filter(|it| !may_differ(it)))
    }

    /// When the object was changed last.
    pub(crate) fn last_modified(&self) -> Option<HttpDate> {
        self.last_modified
    }
}

/// Whether an answer is the same for everybody who asks for the object.
pub(crate) fn is_of_object(headers: &HeaderMap) -> bool {
    let varies = headers.get_all(VARY).iter().map(|it| it.to_str().unwrap_or("*"));
    let known = |word: &str| VARIES.iter().any(|known| word.trim().eq_ignore_ascii_case(known));
    varies.flat_map(|it| it.split(',')).all(|word| word.trim().is_empty() || known(word))
}

/// The headers of an answer from the cache, which `confirmation` allowed, if the store was asked.
pub(crate) fn told(kept: &HeaderMap, confirmation: Option<&HeaderMap>) -> HeaderMap {
    let mut headers = kept.clone();
    headers.remove(DATE);
    for name in &OF_CONFIRMATION {
        if let Some(value) = confirmation.and_then(|it| it.get(name)) {
            headers.insert(name.clone(), value.clone());
        }
    }
    if !headers.contains_key(ACCEPT_RANGES) {
        headers.insert(ACCEPT_RANGES, http::HeaderValue::from_static("bytes"));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers;

    const WHOLE: Kind = Kind { checksums: false, of: Of::Whole };
    const PART: Kind = Kind { checksums: false, of: Of::Part };

    #[test]
    fn a_part_is_told_what_the_whole_was_unless_that_may_differ() {
        let mut heads = Heads::default();
        heads.learn(WHOLE, &headers(&[("content-type", "a"), ("content-length", "3"), ("x-amz-request-id", "1")]));
        let found = heads.find(PART).expect("known");
        assert_eq!(*found, headers(&[("content-type", "a")]));
        let asked = Kind { checksums: true, of: Of::Whole };
        assert!(heads.find(asked).is_none());
        heads.learn(asked, &headers(&[("x-amz-checksum-crc32", "x")]));
        for of in [Of::Part, Of::WholeRange] {
            assert!(heads.find(Kind { of, ..asked }).is_none(), "{of:?}");
        }
        assert!(heads.find(asked).is_some());
        let mut heads = Heads::default();
        heads.learn(PART, &headers(&[("content-type", "a")]));
        assert!(heads.find(WHOLE).is_none(), "the whole may have more");
    }

    #[test]
    fn what_was_told_at_another_time_is_forgotten() {
        let mut heads = Heads::default();
        heads.learn(WHOLE, &headers(&[("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT")]));
        heads.learn(PART, &headers(&[("last-modified", "Tue, 01 Jan 2030 00:00:01 GMT")]));
        assert!(heads.find(WHOLE).is_none() && heads.find(PART).is_some());
    }

    #[test]
    fn of_parts_by_their_numbers_so_many_are_known() {
        let mut heads = Heads::default();
        for number in 1..=NUMBERED_MAX as u32 + 1 {
            let at = u64::from(number);
            heads.learn_numbered(
                number,
                false,
                &(at..at + 1),
                &headers(&[("content-type", "a"), ("content-length", "1")]),
            );
        }
        let (part, told) = heads.find_numbered(2, false).expect("known");
        assert_eq!((part, &*told), (2..3, &headers(&[("content-type", "a")])));
        assert!(heads.find_numbered(2, true).is_none(), "with checksums it is told something else");
        assert!(heads.find_numbered(NUMBERED_MAX as u32 + 1, false).is_none());
        heads.learn(PART, &headers(&[("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT")]));
        assert!(heads.find_numbered(2, false).is_none(), "another time");
    }

    #[test]
    fn an_answer_that_varies_is_nobody_elses() {
        assert!(is_of_object(&headers(&[])));
        assert!(is_of_object(&headers(&[("vary", "Origin, Access-Control-Request-Method")])));
        assert!(!is_of_object(&headers(&[("vary", "Origin, Accept-Encoding")])));
        assert!(!is_of_object(&headers(&[("vary", "*")])));
    }
}
