//! Policy: how objects are treated, by bucket and key.
//!
//! How: rows, each with a pattern: `BUCKET/KEY`, where `*` is any bytes, `/` among them, and `?` one; without a slash it is all of a bucket. Of each
//! setting the first row that matches and says it is taken. So a row of a whole bucket need not be repeated where a prefix in it differs in one
//! thing, if it stands behind.
//!
//! Limits: [`ROWS_MAX`] rows, patterns of [`PATTERN_BYTES_MAX`] bytes. A key of more than [`KEY_BYTES_MAX`] bytes is none that S3 has, and matches
//! nothing.
//!
//! Rejected: the most specific row (whether `a*z` or `*b` is that nobody can tell); regular expressions (one takes as long as it likes).

use crate::catalogue::Name;
use crate::glob::is_like;
use crate::write::WriteMode;

/// Rows at most.
pub const ROWS_MAX: usize = 64;
/// Of a pattern.
pub const PATTERN_BYTES_MAX: usize = 256;
/// Of a key, as S3 has it.
const KEY_BYTES_MAX: usize = 1024;

/// Names that a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    bucket: Box<[u8]>,
    key: Box<[u8]>,
}

/// A row: what it does not say is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRow {
    /// Which objects.
    pub pattern: Pattern,
    /// Whether they are kept in the cache.
    pub cache: Option<bool>,
    /// How long the store's yes is believed.
    pub metadata_ttl_ns: Option<u64>,
    /// How uploads are cached.
    pub write: Option<WriteMode>,
}

/// What the rows come to for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether it is kept in the cache.
    pub is_cached: bool,
    /// How long the store's yes is believed; 0: not at all.
    pub metadata_ttl_ns: u64,
    /// How uploads are cached.
    pub write: WriteMode,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Policies {
    rows: Vec<PolicyRow>,
    default: Policy,
}

impl Pattern {
    /// As it is written; `None` if it names no bucket or is too long.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let (bucket, key) = text.split_once('/').unwrap_or((text, "*"));
        let is_sound = !bucket.is_empty() && !key.is_empty() && text.len() <= PATTERN_BYTES_MAX;
        is_sound.then(|| Self { bucket: bucket.as_bytes().into(), key: key.as_bytes().into() })
    }

    /// Whether it is about that object.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        name.key.len() <= KEY_BYTES_MAX
            && is_like(&self.bucket, name.bucket.as_bytes())
            && is_like(&self.key, &name.key)
    }
}

impl Policies {
    /// Rows, the first one first. `metadata_ttl_ns` where none says another.
    ///
    /// # Panics
    /// When there are more than [`ROWS_MAX`].
    #[must_use]
    pub fn new(rows: Vec<PolicyRow>, metadata_ttl_ns: u64) -> Self {
        assert!(rows.len() <= ROWS_MAX, "{} rows are looked at for each request", rows.len());
        Self { rows, default: Policy { is_cached: true, metadata_ttl_ns, write: WriteMode::Around } }
    }

    /// What they come to.
    #[must_use]
    pub fn of(&self, name: &Name) -> Policy {
        let matching = || self.rows.iter().filter(|row| row.pattern.matches(name));
        Policy {
            is_cached: matching().find_map(|row| row.cache).unwrap_or(self.default.is_cached),
            metadata_ttl_ns: matching().find_map(|row| row.metadata_ttl_ns).unwrap_or(self.default.metadata_ttl_ns),
            write: matching().find_map(|row| row.write).unwrap_or(self.default.write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bucket: &str, key: &[u8]) -> Name {
        Name { bucket: bucket.into(), key: key.into() }
    }

    fn row(pattern: &str) -> PolicyRow {
        let pattern = Pattern::of(pattern).expect("a pattern");
        PolicyRow { pattern, cache: None, metadata_ttl_ns: None, write: None }
    }

    #[test]
    fn a_pattern_is_of_a_bucket_and_keys() {
        for (pattern, bucket, key, matches) in [
            ("b", "b", &b"any/key"[..], true),
            ("b", "bb", b"k", false),
            ("b/*", "b", b"\xff\0", true),
            ("b/k", "b", b"k", true),
            ("b/k", "b", b"kk", false),
            ("b/logs/*.gz", "b", b"logs/2030/a.gz", true),
            ("b/logs/*.gz", "b", b"logs/a.gz.tmp", false),
            ("b/logs/*", "b", b"logs", false),
            ("b/?", "b", b"\xff", true),
            ("b/?", "b", b"ab", false),
            ("team-*/tmp/*", "team-a", b"tmp/x", true),
            ("*/x", "anything", b"x", true),
            ("b//x", "b", b"/x", true),
        ] {
            let matched = Pattern::of(pattern).expect(pattern).matches(&name(bucket, key));
            assert_eq!(matched, matches, "{pattern} {bucket} {key:?}");
        }
        for none in ["", "/", "/k", "b/", &"x".repeat(PATTERN_BYTES_MAX + 1)] {
            assert_eq!(Pattern::of(none), None, "{none}");
        }
        assert!(!Pattern::of("b").expect("a pattern").matches(&name("b", &[b'a'; KEY_BYTES_MAX + 1])));
    }

    #[test]
    fn of_each_setting_the_first_row_that_says_it_is_taken() {
        let rows = vec![
            PolicyRow { write: Some(WriteMode::Through), ..row("b/hot/*") },
            PolicyRow { cache: Some(false), metadata_ttl_ns: Some(1), ..row("b/*.tmp") },
            PolicyRow { cache: Some(true), metadata_ttl_ns: Some(5), write: Some(WriteMode::Around), ..row("b") },
        ];
        let policies = Policies::new(rows, 9);
        let of = |bucket: &str, key: &str| {
            let policy = policies.of(&name(bucket, key.as_bytes()));
            (policy.is_cached, policy.metadata_ttl_ns, policy.write)
        };
        assert_eq!(of("a", "x"), (true, 9, WriteMode::Around));
        assert_eq!(of("b", "x"), (true, 5, WriteMode::Around));
        assert_eq!(of("b", "hot/x"), (true, 5, WriteMode::Through));
        assert_eq!(of("b", "hot/x.tmp"), (false, 1, WriteMode::Through));
    }
}
