//! The S3 gateway as its operator sees it: what it counted, and what is asked of its objects.

use forebay_admin::{
    ControlError, ErrorKind, ExplainedObject, ForgottenObjects, FoundObjects, Gateway, GatewayRequests, Latency,
    ObjectExtent, ObjectVersion, Split, UncachedAnswer,
};
use forebay_core::VolumeStats;
use forebay_objects::{REASONS, Selection};
use forebay_s3::{
    ADDRESSED, CLASSES, Counted, DurationCounts, Located, OPERATIONS, OUTCOMES, Operator, PURPOSES, Place, SOURCES,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Of the gateway, once it is there.
#[derive(Debug, Default)]
pub(super) struct ObjectsControl(OnceLock<Operator>);

impl ObjectsControl {
    /// The gateway serves.
    pub(super) fn serves(&self, operator: Operator) {
        let _ = self.0.set(operator);
    }

    /// What it counted. `space`: what the shard counted of the object space; `split`: how its hits are split.
    pub(super) fn gateway(&self, space: Option<&VolumeStats>, split: Option<Split>) -> Option<Gateway> {
        let figures = self.0.get()?.figures();
        let (gauges, counted) = (figures.gauges, figures.counted);
        let space = space.cloned().unwrap_or_default();
        Some(Gateway {
            requests: requests(&counted),
            bypassed: named(REASONS.map(|(word, _)| word), counted.reasons),
            sent_bytes: named(SOURCES, counted.sent_bytes),
            memory_read_bytes: space.memory_read_bytes,
            disk_read_bytes: space.disk_read_bytes,
            kept_bytes: space.fill_bytes,
            read_parts: named(
                ["memory", "disk", "split", "backend"],
                [space.memory_hits, space.disk_hits, space.backend_hits, space.misses],
            ),
            split,
            split_failovers: space.split_failovers,
            split_mismatches: space.split_mismatches,
            addressed_pages: named(ADDRESSED, counted.addressed),
            addressed_bytes: counted.addressed_bytes,
            store_requests: named(PURPOSES, counted.asked),
            store_errors: named(["away", "late"], [counted.away, counted.late]),
            waits: counted.waited,
            connections_open: figures.connections_open,
            connections_max: figures.connections_max,
            connections: counted.connections,
            connections_refused: counted.refused,
            versions: gauges.versions,
            versions_max: gauges.versions_max,
            version_bytes: gauges.version_bytes,
            permits: gauges.permits,
            space_bytes: gauges.space_bytes,
            given_bytes: gauges.given_bytes,
            cleaned_bytes: gauges.cleaned_bytes,
            first_byte_latency: latencies(&counted),
        })
    }

    /// See [`forebay_admin::Control::find_objects`].
    pub(super) fn find(&self, uri: &str) -> Result<FoundObjects, ControlError> {
        let (operator, selection) = self.asked(uri)?;
        let found = operator.find(&selection);
        if found.versions.is_empty() {
            return Err(unknown(uri));
        }
        let is_one = matches!(selection, Selection::One(..));
        let versions = found.versions.iter().map(|located| version(located, is_one));
        Ok(FoundObjects { versions: versions.collect(), has_more: found.has_more })
    }

    /// See [`forebay_admin::Control::forget_objects`].
    pub(super) fn forget(&self, uri: &str) -> Result<ForgottenObjects, ControlError> {
        let (operator, selection) = self.asked(uri)?;
        let forgotten = operator.forget(&selection).map_err(|error| {
            let cause = format!("all of it is forgotten, but the shard did not drop its pages ({error:?})");
            ControlError::new(ErrorKind::Temporary, uri, cause, "nothing reads them, and they age out; look at the log")
        })?;
        match forgotten.versions {
            0 if selection != Selection::All => Err(unknown(uri)),
            versions => Ok(ForgottenObjects { versions, bytes: forgotten.bytes }),
        }
    }

    /// See [`forebay_admin::Control::explain_object`].
    pub(super) fn explain(&self, uri: &str) -> Result<ExplainedObject, ControlError> {
        let (operator, selection) = self.asked(uri)?;
        let Selection::One(name, _) = &selection else {
            let (cause, next) =
                ("it names no single object", "name one, as s3://bucket/key; `forebay stat` lists several");
            return Err(ControlError::new(ErrorKind::Invalid, uri, cause, next));
        };
        let answers = operator.notes(name).into_iter().map(|(age_ns, note)| UncachedAnswer {
            age_seconds: seconds(age_ns),
            status: note.status,
            reason: REASONS[note.reason].0.to_owned(),
            meaning: REASONS[note.reason].1.to_owned(),
        });
        let answers: Vec<_> = answers.collect();
        let versions: Vec<_> =
            operator.find(&selection).versions.iter().map(|located| version(located, true)).collect();
        match versions.is_empty() && answers.is_empty() {
            true => Err(unknown(uri)),
            false => Ok(ExplainedObject { versions, answers }),
        }
    }

    fn asked(&self, uri: &str) -> Result<(&Operator, Selection), ControlError> {
        let operator = self.0.get().ok_or_else(|| {
            let next = "add an [s3] table to the configuration, and restart";
            ControlError::new(ErrorKind::NotFound, "the S3 gateway", "none is configured", next)
        })?;
        let selection = Selection::of(uri).map_err(|cause| {
            let next = "write s3://bucket/key, s3://bucket/prefix*, s3://bucket or s3://";
            ControlError::new(ErrorKind::Invalid, format!("object {uri:?}"), cause.to_string(), next)
        })?;
        Ok((operator, selection))
    }
}

fn unknown(uri: &str) -> ControlError {
    let cause = "nothing is known of it: it was not read since the start, or was forgotten since";
    ControlError::new(
        ErrorKind::NotFound,
        uri,
        cause,
        "read it through the gateway; the store may have it all the same",
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn version(located: &Located, has_extents: bool) -> ObjectVersion {
    let identity = &located.known.identity;
    let [memory_bytes, disk_bytes, absent_bytes] =
        [Place::Memory, Place::Disk, Place::Absent].map(|place| located.bytes_in(place));
    let extents = located.extents.iter().filter(|_| has_extents).map(|extent| ObjectExtent {
        offset: extent.first,
        length: extent.bytes,
        place: place_name(extent.place).to_owned(),
    });
    ObjectVersion {
        uri: identity.name.to_string(),
        version_id: identity.version_id.as_deref().map(ToOwned::to_owned),
        etag: identity.etag.to_string(),
        bytes: identity.bytes,
        current_age_seconds: located.current_age_ns.map(seconds),
        memory_bytes,
        disk_bytes,
        absent_bytes,
        unknown_bytes: identity.bytes - memory_bytes - disk_bytes - absent_bytes,
        has_copy: located.has_copy,
        extents: extents.collect(),
    }
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Memory => "memory",
        Place::Disk => "disk",
        Place::Absent => "absent",
    }
}

fn named<const N: usize>(names: [&str; N], counts: [u64; N]) -> BTreeMap<String, u64> {
    names.into_iter().zip(counts).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Those that there were.
fn requests(counted: &Counted) -> Vec<GatewayRequests> {
    let mut requests = Vec::new();
    for (operation, by_outcome) in OPERATIONS.iter().zip(&counted.requests) {
        for (outcome, by_class) in OUTCOMES.iter().zip(by_outcome) {
            for (class, &count) in CLASSES.iter().zip(by_class).filter(|(_, count)| **count > 0) {
                requests.push(GatewayRequests {
                    operation: (*operation).to_owned(),
                    outcome: outcome.to_ascii_lowercase(),
                    class: (*class).to_owned(),
                    count,
                });
            }
        }
    }
    requests
}

fn latencies(counted: &Counted) -> BTreeMap<String, Latency> {
    OUTCOMES.iter().zip(&counted.durations).map(|(outcome, of)| (outcome.to_ascii_lowercase(), latency(of))).collect()
}

fn latency(of: &DurationCounts) -> Latency {
    let count = of.buckets.iter().map(|(_, count)| count).sum();
    Latency::new(count, of.sum_ns, of.buckets.iter().copied())
}
