//! Conditions: `If-Match` and its kin, judged by what is known of a version (RFC 9110, 13.2.2).
//!
//! Only where the gateway may answer without asking; otherwise they are the store's to judge.

use http::header::{HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use httpdate::HttpDate;

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Box<str>>,
    if_none_match: Option<Box<str>>,
    if_modified_since: Option<HttpDate>,
    if_unmodified_since: Option<HttpDate>,
    if_range: Option<Box<str>>,
    /// One of them cannot be read.
    is_unclear: bool,
}

/// What they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were none.
    Go,
    /// Answer with all of it: a range was for another version.
    Whole,
    /// 304.
    NotModified,
    /// 412.
    Failed,
    /// The store's to judge.
    Unclear,
}

impl Conditions {
    /// Of a request's headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut is_unclear = false;
        let mut text = |name: HeaderName| {
            let mut all = headers.get_all(name).iter();
            let first = all.next()?;
            is_unclear |= all.next().is_some() || first.to_str().is_err();
            first.to_str().ok().map(Box::<str>::from)
        };
        let (if_match, if_none_match) = (text(IF_MATCH), text(IF_NONE_MATCH));
        let (modified, unmodified, if_range) = (text(IF_MODIFIED_SINCE), text(IF_UNMODIFIED_SINCE), text(IF_RANGE));
        let mut date = |text: Option<Box<str>>| {
            let date = text.as_ref().and_then(|text| text.parse().ok());
            is_unclear |= text.is_some() && date.is_none();
            date
        };
        let (if_modified_since, if_unmodified_since) = (date(modified), date(unmodified));
        Self { if_match, if_none_match, if_modified_since, if_unmodified_since, if_range, is_unclear }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they do no more than name the version, if that. Then `If-None-Match` may be added: where both name the same one, 304 says that it still
    /// is.
    #[must_use]
    pub fn only_name_a_version(&self) -> bool {
        *self == Self { if_match: self.if_match.clone(), ..Self::default() }
    }

    /// For the version of that ETag and time.
    #[must_use]
    pub fn judge(&self, etag: &str, last_modified: Option<HttpDate>) -> Verdict {
        let needs_time = self.if_modified_since.is_some() || self.if_unmodified_since.is_some();
        if self.is_unclear || (needs_time && last_modified.is_none()) {
            return Verdict::Unclear;
        }
        let is_later_than = |time: HttpDate| last_modified.is_some_and(|last| last > time);
        let failed = match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) => !names(tags, etag),
            (None, Some(time)) => is_later_than(time),
            (None, None) => false,
        };
        let unmodified = match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) => names(tags, etag),
            (None, Some(time)) => !is_later_than(time),
            (None, None) => false,
        };
        match () {
            () if failed => Verdict::Failed,
            () if unmodified => Verdict::NotModified,
            () => self.judge_range(etag, last_modified),
        }
    }

    fn judge_range(&self, etag: &str, last_modified: Option<HttpDate>) -> Verdict {
        let Some(tag) = &self.if_range else { return Verdict::Go };
        let is_this = if tag.ends_with('"') {
            **tag == *etag
        } else {
            match (tag.parse::<HttpDate>(), last_modified) {
                (Ok(time), Some(last)) => time == last,
                _ => return Verdict::Unclear,
            }
        };
        if is_this { Verdict::Go } else { Verdict::Whole }
    }
}

/// Whether a list of tags names that one. Some clients leave the quotes out.
fn names(tags: &str, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    tags.trim() == "*" || tags.split(',').any(|tag| bare(tag) == bare(etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: &str = "Tue, 01 Jan 2030 00:00:00 GMT";
    const THEN: &str = "Tue, 01 Jan 2030 00:00:01 GMT";

    fn judge(given: &[(&str, &str)]) -> Verdict {
        Conditions::of(&crate::headers(given)).judge("\"a\"", THEN.parse().ok())
    }

    #[test]
    fn each_condition_and_the_order_of_two() {
        use Verdict::{Failed, Go, NotModified, Unclear, Whole};
        for (given, verdict) in [
            (&[][..], Go),
            (&[("if-match", "\"a\"")], Go),
            (&[("if-match", "\"b\", \"a\"")], Go),
            (&[("if-match", "a")], Go),
            (&[("if-match", "*")], Go),
            (&[("if-match", "\"b\"")], Failed),
            (&[("if-none-match", "\"b\"")], Go),
            (&[("if-none-match", "W/\"a\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-modified-since", EARLIER)], Go),
            (&[("if-modified-since", THEN)], NotModified),
            (&[("if-unmodified-since", THEN)], Go),
            (&[("if-unmodified-since", EARLIER)], Failed),
            (&[("if-match", "\"a\""), ("if-unmodified-since", EARLIER)], Go),
            (&[("if-none-match", "\"b\""), ("if-modified-since", THEN)], Go),
            (&[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
            (&[("if-range", "\"a\"")], Go),
            (&[("if-range", "\"b\"")], Whole),
            (&[("if-range", THEN)], Go),
            (&[("if-range", EARLIER)], Whole),
            (&[("if-range", "a")], Unclear),
            (&[("if-modified-since", "yesterday")], Unclear),
            (&[("if-match", "\"a\""), ("if-match", "\"b\"")], Unclear),
        ] {
            assert_eq!(judge(given), verdict, "{given:?}");
        }
    }

    #[test]
    fn who_names_a_version_may_have_other_conditions() {
        for (given, only) in [
            (&[][..], true),
            (&[("if-match", "\"a\"")], true),
            (&[("if-match", "\"a\""), ("if-match", "\"a\"")], false),
            (&[("if-match", "\"a\""), ("if-none-match", "\"b\"")], false),
            (&[("if-match", "\"a\""), ("if-modified-since", THEN)], false),
            (&[("if-unmodified-since", THEN)], false),
            (&[("if-range", "\"a\"")], false),
        ] {
            assert_eq!(Conditions::of(&crate::headers(given)).only_name_a_version(), only, "{given:?}");
        }
    }

    #[test]
    fn without_a_time_what_needs_one_is_unclear() {
        let headers = HeaderMap::from_iter([(IF_MODIFIED_SINCE, THEN.parse().expect("a value"))]);
        assert_eq!(Conditions::of(&headers).judge("\"a\"", None), Verdict::Unclear);
    }
}
