//! Grant: what the holder of a key may do, where the gateway itself says so.
//!
//! How: a grant is for the buckets that a glob names, for names that begin with a prefix, to read or to write. A request has [`Need`]s, each of names
//! that begin somehow; it is let through if each need has a grant that has all of its names. There is nothing that
//! forbids: what is not granted is not allowed.

use crate::glob::is_like;

/// To do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To see bytes, names, or what is told of them.
    Read,
    /// To make, change or delete. It does not let anybody read.
    Write,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Of which buckets: `*` stands for any letters.
    pub buckets: Box<str>,
    /// Of which names; empty: of the whole bucket.
    pub prefix: Box<[u8]>,
    /// To do what.
    pub access: Access,
}

/// What has to be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// To do what.
    pub access: Access,
    /// Where; `None`: in all buckets.
    pub bucket: Option<Box<str>>,
    /// With all names that begin so.
    pub beginning: Box<[u8]>,
}

impl Grant {
    /// Whether it is enough.
    #[must_use]
    pub fn allows(&self, need: &Need) -> bool {
        let bucket = match &need.bucket {
            Some(bucket) => is_like(self.buckets.as_bytes(), bucket.as_bytes()),
            None => &*self.buckets == "*",
        };
        bucket && self.access == need.access && need.beginning.starts_with(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_has_all_that_is_needed_or_is_none() {
        let grant = |buckets: &str, prefix: &str, access| Grant {
            buckets: buckets.into(),
            prefix: prefix.as_bytes().into(),
            access,
        };
        let need = |bucket: Option<&str>, beginning: &str| Need {
            access: Access::Read,
            bucket: bucket.map(Into::into),
            beginning: beginning.as_bytes().into(),
        };
        let some = grant("data", "a/", Access::Read);
        for (given, needed, is_enough) in [
            (&some, need(Some("data"), "a/b"), true),
            (&some, need(Some("data"), "a/"), true),
            (&some, need(Some("data"), "a"), false),
            (&some, need(Some("data"), ""), false),
            (&some, need(Some("data2"), "a/b"), false),
            (&some, need(None, ""), false),
            (&grant("data", "", Access::Write), need(Some("data"), "a"), false),
            (&grant("*", "", Access::Read), need(None, ""), true),
            (&grant("*", "a", Access::Read), need(None, ""), false),
            (&grant("d*", "", Access::Read), need(None, ""), false),
        ] {
            assert_eq!(given.allows(&needed), is_enough, "{given:?} {needed:?}");
        }
    }
}
