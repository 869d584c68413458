//! Ranges: which bytes of an object are asked for (RFC 9110, 14.2), and which ones came (14.4).
//!
//! Limit: one range of bytes, without a blank in it: stores do not agree on what that is. Several, or anything else, are the store's to answer.

use std::ops::Range;

/// What a `Range` header says, before the object's size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spec {
    /// From a byte to a byte, both included, or to the end.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

impl Spec {
    /// Of a header's value; `None` when it is not one range of bytes.
    #[must_use]
    pub fn of(value: &str) -> Option<Self> {
        let (unit, range) = value.split_once('=')?;
        let (first, last) = range.split_once('-')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Which bytes of so many; `None` when there are none of them.
    #[must_use]
    pub fn within(self, bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(first, last) => first..last.map_or(bytes, |last| last.saturating_add(1).min(bytes)),
            Self::Last(count) => bytes.saturating_sub(count)..bytes,
        };
        (range.start < range.end).then_some(range)
    }
}

/// What a `Content-Range` header says: which bytes of how many.
#[must_use]
pub fn content_range(value: &str) -> Option<(Range<u64>, u64)> {
    let (range, bytes) = value.strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, bytes) = (number(first)?, number(last)?, number(bytes)?);
    (first <= last && last < bytes).then(|| (first..last + 1, bytes))
}

/// Digits only: `parse` alone takes a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood_and_nothing_else() {
        for (text, within) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=5-", Some(5..10)),
            ("bytes=5-99", Some(5..10)),
            ("Bytes=5-6", Some(5..7)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-99", Some(0..10)),
            ("bytes=9-18446744073709551615", Some(9..10)),
            ("bytes=10-", None),
            ("bytes=-0", None),
        ] {
            assert_eq!(Spec::of(text).expect(text).within(10), within, "{text}");
        }
        let blanks = ["bytes =1-2", "bytes= 1-2", "bytes=1 -2", "bytes=1- 2", "bytes=1-2 ", "bytes= -1"];
        let others =
            ["", "bytes", "bytes=", "bytes=-", "bytes=1", "bytes=1-2,4-5", "bytes=2-1", "items=1-2", "bytes=+1-2"];
        for text in blanks.into_iter().chain(others) {
            assert_eq!(Spec::of(text), None, "{text}");
        }
        assert_eq!(Spec::of("bytes=0-99999999999999999999"), None);
        assert_eq!(Spec::of("bytes=0-").expect("a range").within(0), None);
    }

    #[test]
    fn what_came_is_inside_of_what_there_is() {
        assert_eq!(content_range("bytes 0-9/10"), Some((0..10, 10)));
        for text in ["bytes 0-10/10", "bytes 5-4/10", "bytes */10", "bytes 0-9/*", "bytes=0-9/10", "bytes 0-9", ""] {
            assert_eq!(content_range(text), None, "{text}");
        }
        assert_eq!(content_range("bytes 0-18446744073709551615/18446744073709551615"), None);
    }
}
