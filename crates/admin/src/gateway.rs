//! What the S3 gateway has seen and knows, as plain data; names of counts are the gateway's own.

use crate::latency::Latency;
use crate::snapshot::Split;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Requests answered.
    pub requests: Vec<GatewayRequests>,
    /// Answers that were not cached, by why.
    pub bypassed: BTreeMap<String, u64>,
    /// Bytes of bodies sent, by where they came from: `cache` (memory or disk), `copy` (of a small object), `passed` (the store), `fetched` (the
    /// store, since the cache lacked them).
    pub sent_bytes: BTreeMap<String, u64>,
    /// Bytes of objects that reads took from memory.
    pub memory_read_bytes: u64,
    /// Bytes of objects read from the cache disk.
    pub disk_read_bytes: u64,
    /// Bytes of objects that the cache took.
    pub kept_bytes: u64,
    /// Parts of reads (one a page) by the farthest path they needed: `memory`, `disk`, `split` (on disk, and the store served it) or `backend`.
    #[serde(default)]
    pub read_parts: BTreeMap<String, u64>,
    /// How hits on the cache disk are split; `None` if they are not.
    #[serde(default)]
    pub split: Option<Split>,
    /// Hits that the store was to serve and the cache disk did: the store failed or was late.
    #[serde(default)]
    pub split_failovers: u64,
    /// Blocks that store and cache disk did not agree about.
    #[serde(default)]
    pub split_mismatches: u64,
    /// Pages that the shard wanted from the store: `served`, `declined` (it has another version by now) or `failed`.
    #[serde(default)]
    pub addressed_pages: BTreeMap<String, u64>,
    /// Bytes that came of them.
    #[serde(default)]
    pub addressed_bytes: u64,
    /// Requests to the store: `pass`, `confirm`, `fetch` or `split`.
    pub store_requests: BTreeMap<String, u64>,
    /// Of them, those that failed: the store was `away` or `late`.
    pub store_errors: BTreeMap<String, u64>,
    /// Times that a request waited for bytes that another one brought.
    pub waits: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// At most.
    pub connections_max: u64,
    /// Connections taken.
    pub connections: u64,
    /// Connections turned away.
    pub connections_refused: u64,
    /// Versions of objects that are known.
    pub versions: u64,
    /// At most.
    pub versions_max: u64,
    /// The sum of their lengths, cached or not.
    pub version_bytes: u64,
    /// Permits remembered.
    pub permits: u64,
    /// Addresses of the object space.
    pub space_bytes: u64,
    /// Addresses given out since the start.
    pub given_bytes: u64,
    /// Addresses cleaned since the start, to be given out again.
    pub cleaned_bytes: u64,
    /// From a request's head to the first byte of its answer, by outcome.
    pub first_byte_latency: BTreeMap<String, Latency>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRequests {
    /// `get`, `head`, `look` or `change`.
    pub operation: String,
    /// As `X-Cache` has it, in small letters; `none` if the gateway answered itself.
    pub outcome: String,
    /// `2xx` and so on.
    pub class: String,
    /// How many.
    pub count: u64,
}

impl Gateway {
    /// Addresses that may have pages.
    #[must_use]
    pub fn space_used_bytes(&self) -> u64 {
        self.given_bytes.saturating_sub(self.cleaned_bytes)
    }

    /// Bytes of bodies sent, of one source.
    #[must_use]
    pub fn sent(&self, source: &str) -> u64 {
        self.sent_bytes.get(source).copied().unwrap_or(0)
    }
}

/// A version of an object, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// `s3://bucket/key`.
    pub uri: String,
    /// The version's id, where the store has one.
    pub version_id: Option<String>,
    /// As the store gave it.
    pub etag: String,
    /// Its length.
    pub bytes: u64,
    /// Since the store was asked which version the name is, if it is this one.
    pub current_age_seconds: Option<f64>,
    /// In memory.
    pub memory_bytes: u64,
    /// On the cache disk, and not in memory.
    pub disk_bytes: u64,
    /// In the store only.
    pub absent_bytes: u64,
    /// Not looked for: too much was asked for at once.
    pub unknown_bytes: u64,
    /// There is a copy of it at hand, since it is small.
    pub has_copy: bool,
    /// What is where, if one object was asked for.
    pub extents: Vec<ObjectExtent>,
}

/// Bytes of a version that are in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectExtent {
    /// The first.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// `memory`, `disk` or `absent`.
    pub place: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundObjects {
    /// By name.
    pub versions: Vec<ObjectVersion>,
    /// Whether there are more.
    pub has_more: bool,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenObjects {
    /// How many versions.
    pub versions: u64,
    /// The sum of their lengths.
    pub bytes: u64,
}

/// What is known of an object, and why answers for it were not cached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainedObject {
    /// Its versions.
    pub versions: Vec<ObjectVersion>,
    /// The last answers that were not cached, the latest first.
    pub answers: Vec<UncachedAnswer>,
}

/// An answer that was not cached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UncachedAnswer {
    /// Since then.
    pub age_seconds: f64,
    /// An HTTP status.
    pub status: u16,
    /// The word, as the client is told.
    pub reason: String,
    /// What it means.
    pub meaning: String,
}
