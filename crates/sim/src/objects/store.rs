//! The store: objects, each with the history of its versions, and answers as S3 gives them. Each request takes effect at one instant.

use crate::dice::Dice;
use forebay_objects::http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use forebay_objects::http::{Method, StatusCode};
use forebay_policy::rng::mix64;
use std::ops::Range;

const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Bytes that an object had, or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its bytes follow from this; its ETag is this.
    pub number: u64,
    /// How many.
    pub bytes: u64,
    /// Where the store has ids.
    pub id: Option<u64>,
    /// When it was written.
    pub since_ns: u64,
}

impl Version {
    /// A range of its bytes.
    #[must_use]
    pub fn content(&self, part: Range<u64>) -> Vec<u8> {
        part.map(|at| (mix64((self.number << 32) ^ (at / 8)) >> (at % 8 * 8)) as u8).collect()
    }

    /// As the store tells it.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{:x}\"", self.number)
    }
}

/// What it is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// Of which object.
    pub key: usize,
    /// Headers only, or all.
    pub method: Method,
    /// Of which version, by its id.
    pub id: Option<u64>,
    /// These bytes: from, and to where if not to the end. Within the object, or it is refused.
    pub range: Option<(u64, Option<u64>)>,
    /// If it is this version.
    pub if_match: Option<String>,
    /// If it is another one.
    pub if_none_match: Option<String>,
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// 200, 206, 304, 404, 412, 416.
    pub status: StatusCode,
    /// Of it.
    pub headers: HeaderMap,
    /// What the body is, if there is one.
    pub body: Option<(Version, Range<u64>)>,
}

/// See the module.
#[derive(Debug)]
pub struct Store {
    /// By object: when it became what.
    history: Vec<Vec<(u64, Option<Version>)>>,
    has_ids: bool,
    next: u64,
    bytes_max: u64,
}

impl Store {
    /// So many objects, none of which exists, of so many bytes at most.
    #[must_use]
    pub fn new(objects: usize, has_ids: bool, bytes_max: u64) -> Self {
        Self { history: vec![vec![(0, None)]; objects], has_ids, next: 1, bytes_max }
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.history.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.history.is_empty()
    }

    fn current(&self, key: usize) -> Option<Version> {
        self.history[key].last().and_then(|it| it.1)
    }

    /// One that was ever written under that name, by lot.
    #[must_use]
    pub fn any(&self, key: usize, dice: &mut Dice) -> Option<Version> {
        self.history[key][dice.below(self.history[key].len() as u64) as usize].1
    }

    /// Another version from now on. True: its bytes are those of one before.
    pub fn put(&mut self, now_ns: u64, key: usize, dice: &mut Dice) -> bool {
        let before = self.any(key, dice).filter(|_| dice.chance(150));
        self.next += 1;
        let id = self.has_ids.then_some(self.next);
        let bytes = match dice.below(5) {
            0 => dice.between(1, 4097),
            1 => dice.below(3) * 4096,
            _ => dice.between(1, self.bytes_max),
        };
        let (number, bytes) = before.map_or((self.next, bytes), |it| (it.number, it.bytes));
        self.history[key].push((now_ns, Some(Version { number, bytes, id, since_ns: now_ns })));
        before.is_some()
    }

    /// Gone from now on.
    pub fn delete(&mut self, now_ns: u64, key: usize) {
        self.history[key].push((now_ns, None));
    }

    /// The version of that ETag, if it was current at an instant between these two.
    #[must_use]
    pub fn was_current(&self, key: usize, etag: &str, from_ns: u64, to_ns: u64) -> bool {
        let history = &self.history[key];
        let until = |at: usize| history.get(at + 1).map_or(u64::MAX, |it| it.0);
        history.iter().enumerate().any(|(at, (since_ns, version))| {
            version.is_some_and(|it| it.etag() == etag) && *since_ns <= to_ns && until(at) >= from_ns
        })
    }

    /// The version of that ETag.
    #[must_use]
    pub fn by_etag(&self, key: usize, etag: &str) -> Option<Version> {
        self.history[key].iter().filter_map(|it| it.1).find(|it| it.etag() == etag)
    }

    /// Whether that version has that id.
    #[must_use]
    pub fn is_id_of(&self, key: usize, id: u64, etag: &str) -> bool {
        self.by_id(key, id).is_some_and(|it| it.etag() == etag)
    }

    fn by_id(&self, key: usize, id: u64) -> Option<Version> {
        self.history[key].iter().filter_map(|it| it.1).find(|it| it.id == Some(id))
    }

    /// Now.
    #[must_use]
    pub fn answer(&self, question: &Question) -> Answer {
        let found = question.id.map_or_else(|| self.current(question.key), |id| self.by_id(question.key, id));
        let refused = |status| Answer { status, headers: HeaderMap::new(), body: None };
        let Some(version) = found else { return refused(StatusCode::NOT_FOUND) };
        let etag = version.etag();
        if question.if_match.as_ref().is_some_and(|it| *it != etag) {
            return refused(StatusCode::PRECONDITION_FAILED);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, value(&etag));
        headers.insert(LAST_MODIFIED, value(&date(version.since_ns)));
        if let Some(id) = version.id {
            headers.insert(VERSION_ID, value(&id.to_string()));
        }
        if question.if_none_match.as_ref() == Some(&etag) {
            return Answer { status: StatusCode::NOT_MODIFIED, headers, body: None };
        }
        let (status, part) = match question.range {
            None => (StatusCode::OK, 0..version.bytes),
            Some((from, _)) if from >= version.bytes => return refused(StatusCode::RANGE_NOT_SATISFIABLE),
            Some((from, to)) => {
                (StatusCode::PARTIAL_CONTENT, from..to.map_or(version.bytes, |to| (to + 1).min(version.bytes)))
            }
        };
        if status == StatusCode::PARTIAL_CONTENT {
            let text = format!("bytes {}-{}/{}", part.start, part.end - 1, version.bytes);
            headers.insert(CONTENT_RANGE, value(&text));
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
        let has_body = question.method == Method::GET && !part.is_empty();
        Answer { status, headers, body: has_body.then_some((version, part)) }
    }
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("plain text")
}

/// Of whole seconds: two versions of one second look alike in it.
fn date(at_ns: u64) -> String {
    let seconds = at_ns / 1_000_000_000;
    format!("Tue, 01 Jan 2030 {:02}:{:02}:{:02} GMT", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}
