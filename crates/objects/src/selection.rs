//! Selection: which objects an operator means: `s3://`, `s3://bucket`, `s3://bucket/prefix*`, `s3://bucket/key?versionId=id`.
//!
//! How: the key is taken as it is written, nothing in it is decoded: tables of Hive have `%3A` in their keys. A `*` at the end makes it a prefix,
//! `?versionId=` names one version of one object.
//!
//! Limit: a key that is not UTF-8, or ends with `*`, is reached by a prefix only.

use crate::catalogue::{Identity, Name};
use std::fmt;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every object.
    All,
    /// Objects of a bucket, whose keys begin so.
    Prefix(Name),
    /// One object: all its versions, or the one with this id.
    One(Name, Option<Box<str>>),
}

/// Why a text selects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// It is of something else.
    #[error("it does not begin with s3://")]
    Scheme,
    /// Nobody's.
    #[error("it has a key and no bucket")]
    NoBucket,
    /// In the bucket's place.
    #[error("its bucket has a letter that no bucket has")]
    Bucket,
    /// `?versionId=`.
    #[error("it has a version's id and does not name one object")]
    Version,
}

const SCHEME: &str = "s3://";
const VERSION: &str = "?versionId=";

impl Selection {
    /// What a text selects.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn of(text: &str) -> Result<Self, SelectionError> {
        let rest = text.strip_prefix(SCHEME).ok_or(SelectionError::Scheme)?;
        let (rest, version_id) = match rest.rsplit_once(VERSION) {
            Some((rest, id)) => (rest, Some(id)),
            None => (rest, None),
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let name = |key: &str| Name { bucket: bucket.into(), key: key.as_bytes().into() };
        if bucket.bytes().any(|it| !it.is_ascii_alphanumeric() && !b".-_:".contains(&it)) {
            return Err(SelectionError::Bucket);
        }
        if bucket.is_empty() && !key.is_empty() {
            return Err(SelectionError::NoBucket);
        }
        let prefix = if key.is_empty() { Some("") } else { key.strip_suffix('*') };
        match (prefix, version_id) {
            (Some(_), Some(_)) | (None, Some("")) => Err(SelectionError::Version),
            (Some(_), None) if bucket.is_empty() => Ok(Self::All),
            (Some(prefix), None) => Ok(Self::Prefix(name(prefix))),
            (None, version_id) => Ok(Self::One(name(key), version_id.map(Into::into))),
        }
    }

    /// The first name that it may have.
    pub(crate) fn first(&self) -> Name {
        match self {
            Self::All => Name { bucket: "".into(), key: [].into() },
            Self::Prefix(name) | Self::One(name, _) => name.clone(),
        }
    }

    /// Whether it has the name. Names that it has follow each other.
    pub(crate) fn has(&self, name: &Name) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => name.bucket == prefix.bucket && name.key.starts_with(&prefix.key),
            Self::One(one, _) => name == one,
        }
    }

    /// Whether it has the version, of a name that it has.
    pub(crate) fn has_version(&self, identity: &Identity) -> bool {
        match self {
            Self::One(_, Some(id)) => identity.version_id.as_ref() == Some(id),
            _ => true,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, String::from_utf8_lossy(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bucket: &str, key: &str) -> Name {
        Name { bucket: bucket.into(), key: key.as_bytes().into() }
    }

    #[test]
    fn a_text_selects_all_a_prefix_or_one() {
        let one = |key: &str, id: Option<&str>| Ok(Selection::One(name("b", key), id.map(Into::into)));
        assert_eq!(Selection::of("s3://"), Ok(Selection::All));
        assert_eq!(Selection::of("s3://*"), Err(SelectionError::Bucket));
        for bucket in ["s3://b", "s3://b/", "s3://b/*"] {
            assert_eq!(Selection::of(bucket), Ok(Selection::Prefix(name("b", ""))), "{bucket}");
        }
        assert_eq!(Selection::of("s3://b/a/c*"), Ok(Selection::Prefix(name("b", "a/c"))));
        assert_eq!(Selection::of("s3://b/a c%3A?x=1"), one("a c%3A?x=1", None));
        assert_eq!(Selection::of("s3://b//k/"), one("/k/", None));
        assert_eq!(Selection::of("s3://b/k?versionId=3"), one("k", Some("3")));
    }

    #[test]
    fn what_is_malformed_says_why() {
        for (text, error) in [
            ("", SelectionError::Scheme),
            ("b/k", SelectionError::Scheme),
            ("s3:/b/k", SelectionError::Scheme),
            ("s3:///k", SelectionError::NoBucket),
            ("s3://b c/k", SelectionError::Bucket),
            ("s3://b/k?versionId=", SelectionError::Version),
            ("s3://b/k*?versionId=3", SelectionError::Version),
            ("s3://b?versionId=3", SelectionError::Version),
        ] {
            assert_eq!(Selection::of(text), Err(error), "{text}");
        }
    }
}
