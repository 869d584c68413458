//! Bypass: why an answer was not cached, by a word that the client is told (`Cache-Status`) and what the word means; and the latest such
//! answers, for who asks why.
//!
//! Limit: the latest [`NOTES_MAX`] answers are remembered, of keys of [`KEY_BYTES_MAX`] and less (S3's own limit).

use crate::catalogue::Name;
use std::collections::VecDeque;

/// Answers that are remembered.
const NOTES_MAX: usize = 512;
/// Of a name that is remembered.
const KEY_BYTES_MAX: usize = 1024;

/// Each word with its meaning. The last is for words that are not here.
pub const REASONS: [(&str, &str); 25] = [
    ("change", "it may have changed something"),
    ("not-an-object", "it asked for something else than an object's bytes"),
    ("status", "the store answered with something else than the object"),
    ("no-etag", "the store told no strong ETag, so versions cannot be told apart"),
    ("no-length", "the store told no length"),
    ("no-range", "the store did not tell which range it answered with"),
    ("length", "the length that the store told is not that of the range"),
    ("varies", "the store's answer depends on more than the object, by its headers"),
    ("part-number", "it asked for a part by its number, and which bytes that is is not clear"),
    ("version-id", "the version that the store answered with is not the one that was named, or more than one was"),
    ("changed-meanwhile", "the object was changed while the store was asked"),
    ("superseded", "a later answer said something else, or there was no room for another version"),
    ("customer-key", "the object is encrypted with a key of the customer's"),
    ("cross-origin", "it came from a web page (CORS), and the answer may depend on which"),
    ("no-store", "the client said Cache-Control: no-store"),
    ("body", "it had a body"),
    ("response-headers", "it asked for headers of the answer that cannot be set"),
    ("policy", "a policy says that it is not to be cached"),
    ("copy", "it was a copy of another object, made by the store"),
    ("append", "it was appended to"),
    ("framing", "what its upload's headers say of its chunks contradicts"),
    ("no-room", "there was no room for another version"),
    ("torn", "its upload broke off, or was not as its headers say"),
    ("off", "nothing is cached: there is no pool"),
    ("other", "for another reason"),
];

/// Where a word is in [`REASONS`].
#[must_use]
pub fn reason_of(word: &str) -> usize {
    REASONS.iter().position(|(known, _)| *known == word).unwrap_or(REASONS.len() - 1)
}

/// An answer that was not cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Of which object.
    pub name: Name,
    /// When, as all times here.
    pub at_ns: u64,
    /// Why, in [`REASONS`].
    pub reason: usize,
    /// What the store said: an HTTP status.
    pub status: u16,
}

/// The latest answers that were not cached.
#[derive(Debug, Default)]
pub struct Notes(VecDeque<Note>);

impl Notes {
    /// One more.
    pub fn add(&mut self, note: Note) {
        if note.name.key.len() > KEY_BYTES_MAX {
            return;
        }
        if self.0.len() == NOTES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(note);
    }

    /// Those of an object, the latest first.
    pub fn of<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Note> {
        self.0.iter().rev().filter(move |note| note.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(key: &[u8], at_ns: u64) -> Note {
        Note { name: Name { bucket: "b".into(), key: key.into() }, at_ns, reason: 2, status: 403 }
    }

    #[test]
    fn a_word_is_found_and_an_unknown_one_is_another() {
        assert_eq!(REASONS[reason_of("no-store")].0, "no-store");
        assert_eq!(REASONS[reason_of("made up")].0, "other");
        for (at, (word, _)) in REASONS.iter().enumerate() {
            assert_eq!(reason_of(word), at, "{word} comes once");
        }
    }

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let mut notes = Notes::default();
        notes.add(note(b"first", 0));
        for at in 1..=NOTES_MAX as u64 {
            notes.add(note(if at % 2 == 0 { b"even" } else { b"odd" }, at));
        }
        notes.add(note(&[b'x'; KEY_BYTES_MAX + 1], 9));
        assert_eq!(notes.0.len(), NOTES_MAX);
        assert_eq!(notes.of(&note(b"first", 0).name).count(), 0);
        let odd: Vec<u64> = notes.of(&note(b"odd", 0).name).map(|it| it.at_ns).take(2).collect();
        assert_eq!(odd, [NOTES_MAX as u64 - 1, NOTES_MAX as u64 - 3]);
    }
}
