//! `forebay stat`, and `forebay evict` and `forebay explain` of objects: what the S3 gateway knows and keeps.

use super::{complain, failed, print, print_json};
use crate::admin_client::AdminClient;
use crate::arguments::{Output, Running, Stat};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use crate::table;
use forebay_admin::{ExplainedObject, FoundObjects, Gateway, ObjectVersion, Snapshot};

/// Names objects, not a volume.
pub(super) fn is_object(text: &str) -> bool {
    text.starts_with("s3:")
}

pub(crate) fn stat(arguments: &Stat, output: Output) -> Exit {
    let client = AdminClient::new(arguments.running.admin);
    if arguments.uri == "s3://" {
        return totals(&client, output);
    }
    match client.find_objects(&arguments.uri) {
        Ok(found) if output == Output::Json => print_json(&found),
        Ok(found) => print(&listed(&found)),
        Err(error) => return failed(&error),
    }
    Exit::Ok
}

fn totals(client: &AdminClient, output: Output) -> Exit {
    match client.get::<Snapshot>("/api/v1/stats").map(|snapshot| snapshot.gateway) {
        Ok(Some(gateway)) if output == Output::Json => print_json(&gateway),
        Ok(Some(gateway)) => print(&summed(&gateway)),
        Ok(None) => {
            complain("the S3 gateway: none is configured; add an [s3] table to the configuration, and restart");
            return Exit::NotFound;
        }
        Err(error) => return failed(&error),
    }
    Exit::Ok
}

pub(super) fn evict(uri: &str, running: &Running, output: Output) -> Exit {
    match AdminClient::new(running.admin).forget_objects(uri) {
        Ok(forgotten) if output == Output::Json => print_json(&forgotten),
        Ok(it) => print(&format!("{uri}: {} versions evicted, of {}\n", it.versions, size_rounded(it.bytes))),
        Err(error) => return failed(&error),
    }
    Exit::Ok
}

pub(super) fn explain(uri: &str, running: &Running, output: Output) -> Exit {
    match AdminClient::new(running.admin).explain_object(uri) {
        Ok(explained) if output == Output::Json => print_json(&explained),
        Ok(explained) => print(&told(uri, &explained)),
        Err(error) => return failed(&error),
    }
    Exit::Ok
}

/// What a client wrote, without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn row(version: &ObjectVersion) -> Vec<String> {
    let id = version.version_id.as_ref().map(|id| format!("?versionId={id}")).unwrap_or_default();
    let current = version.current_age_seconds.map_or_else(|| "no".to_owned(), |age| format!("{age:.1} s ago"));
    let unknown = if version.unknown_bytes > 0 { size_rounded(version.unknown_bytes) } else { "-".to_owned() };
    let copy = if version.has_copy { "a copy at hand" } else { "" };
    let [bytes, memory, disk, absent] =
        [version.bytes, version.memory_bytes, version.disk_bytes, version.absent_bytes].map(size_rounded);
    let name = plain(&format!("{}{id}", version.uri));
    vec![name, bytes, memory, disk, absent, unknown, current, plain(&version.etag), copy.to_owned()]
}

fn of_versions(versions: &[ObjectVersion]) -> String {
    let head = ["OBJECT", "SIZE", "MEMORY", "DISK", "ABSENT", "UNKNOWN", "CURRENT", "ETAG", ""];
    table::render(&head, &versions.iter().map(row).collect::<Vec<_>>())
}

fn listed(found: &FoundObjects) -> String {
    let mut out = of_versions(&found.versions);
    if found.has_more {
        out.push_str(&format!("There are more than these {}: name a longer prefix.\n", found.versions.len()));
    }
    out
}

fn told(uri: &str, explained: &ExplainedObject) -> String {
    let mut out = match explained.versions.is_empty() {
        true => format!("{}: no version of it is known.\n", plain(uri)),
        false => of_versions(&explained.versions),
    };
    if explained.answers.is_empty() {
        out.push_str("Of the answers that were not cached lately none was for it.\n");
        return out;
    }
    out.push_str("\nAnswers for it that were not cached lately:\n");
    let rows = explained.answers.iter().map(|answer| {
        let age = format!("{:.1} s ago", answer.age_seconds);
        vec![age, answer.status.to_string(), answer.reason.clone(), answer.meaning.clone()]
    });
    out.push_str(&table::render(&["WHEN", "STATUS", "REASON", "MEANING"], &rows.collect::<Vec<_>>()));
    out
}

fn summed(gateway: &Gateway) -> String {
    let by =
        |outcome: &str| -> u64 { gateway.requests.iter().filter(|it| it.outcome == outcome).map(|it| it.count).sum() };
    let outcomes = ["hit", "revalidated", "partial", "miss", "bypass", "none"].map(|it| format!("{} {it}", by(it)));
    let sent = ["cache", "copy", "passed", "fetched"].map(|it| format!("{} {it}", size_rounded(gateway.sent(it))));
    let rows = [
        ("versions", format!("{} of {}", gateway.versions, gateway.versions_max)),
        ("their sizes", size_rounded(gateway.version_bytes)),
        ("permits", gateway.permits.to_string()),
        (
            "addresses",
            format!("{} of {} in use", size_rounded(gateway.space_used_bytes()), size_rounded(gateway.space_bytes)),
        ),
        (
            "connections",
            format!(
                "{} open of {}, {} turned away",
                gateway.connections_open, gateway.connections_max, gateway.connections_refused
            ),
        ),
        ("answers", outcomes.join(", ")),
        ("sent from", sent.join(", ")),
        ("kept", size_rounded(gateway.kept_bytes)),
        ("split", split(gateway)),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::render(&["S3 GATEWAY", ""], &rows)
}

fn split(gateway: &Gateway) -> String {
    let Some(split) = &gateway.split else { return "off".to_owned() };
    let pages = |result: &str| gateway.addressed_pages.get(result).copied().unwrap_or(0);
    format!(
        "{}: {:.1} % of the hits on disk are the cache disk's; {} came from the store, {} pages were declined, {} failed",
        split.policy,
        split.disk_share_permil as f64 / 10.0,
        size_rounded(gateway.addressed_bytes),
        pages("declined"),
        pages("failed")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_admin::UncachedAnswer;

    fn version() -> ObjectVersion {
        ObjectVersion {
            uri: "s3://b/\u{1b}[31mk".into(),
            version_id: Some("v1".into()),
            etag: "\"e\"".into(),
            bytes: 3072,
            current_age_seconds: Some(2.04),
            memory_bytes: 1024,
            absent_bytes: 2048,
            ..ObjectVersion::default()
        }
    }

    #[test]
    fn objects_are_listed_without_what_a_terminal_would_obey() {
        let found = FoundObjects { versions: vec![version()], has_more: true };
        assert_eq!(
            listed(&found),
            "OBJECT                         SIZE   MEMORY  DISK   ABSENT  UNKNOWN    CURRENT  ETAG\n\
             s3://b/\u{fffd}[31mk?versionId=v1  3.0 KiB  1.0 KiB   0 B  2.0 KiB        -  2.0 s ago  \"e\"\n\
             There are more than these 1: name a longer prefix.\n"
        );
    }

    #[test]
    fn an_explanation_says_where_it_is_and_why_not() {
        let answer = UncachedAnswer {
            age_seconds: 1.0,
            status: 200,
            reason: "no-store".into(),
            meaning: "the client said so".into(),
        };
        let explained = ExplainedObject { versions: Vec::new(), answers: vec![answer] };
        let text = told("s3://b/k", &explained);
        for part in ["s3://b/k: no version", "1.0 s ago     200  no-store  the client said so"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let explained = ExplainedObject { versions: vec![version()], answers: Vec::new() };
        assert!(told("s3://b/k", &explained).contains("none was for it"));
    }
}
