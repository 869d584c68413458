use super::*;
use crate::gateway::GatewayRequests;
use crate::snapshot::{PathEstimate, Split, Tier};

fn snapshot() -> Snapshot {
    let volume = Volume {
        name: "v\"1\n".into(),
        reads: 7,
        misses: 3,
        memory_hits: 4,
        split: Some(Split {
            policy: "expected-delay".into(),
            mode: "stable".into(),
            over_budget: 5,
            suspended: true,
            backend: PathEstimate { in_flight: 3, window: 8, ..PathEstimate::default() },
            ..Split::default()
        }),
        log: Some(WriteLog {
            bytes: 64,
            used_bytes: 16,
            records: 3,
            records_max: 4,
            lag_ns: 1_500_000_000,
            ..WriteLog::default()
        }),
        read_latency: Latency::new(3, 5_000_000_000, [(1024, 1), (2048, 1), (1 << 40, 1)]),
        ..Volume::default()
    };
    Snapshot {
        version: "1.2.3".into(),
        state: State::Ready,
        memory: Tier { pages: 5, pages_max: 10 },
        disk: Some(Disk { fail_opens: 2, ..Disk::default() }),
        volumes: vec![volume],
        gateway: Some(gateway()),
        ..Snapshot::default()
    }
}

fn gateway() -> Gateway {
    let counts = |name: &str| [(name.to_owned(), 7)].into();
    Gateway {
        requests: vec![GatewayRequests {
            operation: "get".into(),
            outcome: "hit".into(),
            class: "2xx".into(),
            count: 3,
        }],
        bypassed: counts("no-store"),
        sent_bytes: counts("fetched"),
        store_requests: counts("confirm"),
        store_errors: counts("away"),
        disk_read_bytes: 9,
        given_bytes: 5,
        cleaned_bytes: 1,
        split: Some(Split { policy: "climb".into(), disk_share_permil: 400, over_budget: 6, ..Split::default() }),
        addressed_pages: counts("declined"),
        addressed_bytes: 8,
        first_byte_latency: [("hit".to_owned(), Latency::new(3, 6000, [(2048, 3)]))].into(),
        ..Gateway::default()
    }
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
}

#[test]
fn a_snapshot_is_readable_text() {
    let text = text(snapshot()).expect("text");
    for line in [
        "# TYPE forebay_volume_requests counter",
        "forebay_build_info{version=\"1.2.3\"} 1.0",
        "forebay_state{state=\"ready\"} 1.0",
        "forebay_state{state=\"failed\"} 0.0",
        "forebay_tier_pages{tier=\"memory\"} 5.0",
        "forebay_fail_opens_total 2",
        "forebay_volume_requests_total{volume=\"v\\\"1\\n\",op=\"read\"} 7",
        "forebay_volume_read_parts_total{volume=\"v\\\"1\\n\",path=\"backend\"} 3",
        "forebay_volume_split_policy{volume=\"v\\\"1\\n\",policy=\"expected-delay\"} 1.0",
        "forebay_volume_split_mode{volume=\"v\\\"1\\n\",mode=\"stable\"} 1.0",
        "forebay_volume_split_mode{volume=\"v\\\"1\\n\",mode=\"warmup\"} 0.0",
        "forebay_volume_log_full_ratio{volume=\"v\\\"1\\n\"} 0.75",
        "forebay_volume_log_lag_seconds{volume=\"v\\\"1\\n\"} 1.5",
        "forebay_volume_log_backend_flushes_total{volume=\"v\\\"1\\n\",result=\"failed\"} 0",
        "forebay_volume_split_suspended{volume=\"v\\\"1\\n\"} 1.0",
        "forebay_volume_split_over_budget_hits_total{volume=\"v\\\"1\\n\"} 5",
        "forebay_volume_path_in_flight_requests{volume=\"v\\\"1\\n\",path=\"backend\"} 3.0",
        "forebay_volume_path_window_requests{volume=\"v\\\"1\\n\",path=\"disk\"} 0.0",
        "forebay_nbd_connections_total 0",
        "forebay_gateway_requests_total{op=\"get\",cache=\"hit\",status=\"2xx\"} 3",
        "forebay_gateway_bypassed_requests_total{reason=\"no-store\"} 7",
        "forebay_gateway_store_read_bytes_total{purpose=\"fetch\"} 7",
        "forebay_gateway_store_read_bytes_total{purpose=\"pass\"} 0",
        "forebay_gateway_tier_read_bytes_total{tier=\"disk\"} 9",
        "forebay_gateway_store_read_bytes_total{purpose=\"split\"} 8",
        "forebay_gateway_split_disk_ratio 0.4",
        "forebay_gateway_split_policy{policy=\"climb\"} 1.0",
        "forebay_gateway_split_over_budget_hits_total 6",
        "forebay_gateway_addressed_pages_total{result=\"declined\"} 7",
        "forebay_gateway_space_used_bytes 4.0",
        "forebay_gateway_first_byte_duration_seconds_count{cache=\"hit\"} 3",
        "# EOF",
    ] {
        has(&text, line);
    }
}

#[test]
fn without_a_gateway_nothing_is_told_of_it() {
    let text = text(Snapshot { gateway: None, ..snapshot() }).expect("text");
    assert!(!text.lines().any(|line| line.starts_with("forebay_gateway_")));
}

#[test]
fn histograms_are_cumulative_and_end_with_all() {
    let text = text(snapshot()).expect("text");
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| {
            line.starts_with("forebay_volume_request_duration_seconds_bucket") && line.contains("op=\"read\"")
        })
        .map(|line| line.rsplit(' ').next().expect("a count").parse().expect("a number"))
        .collect();
    assert_eq!(counts.len(), 26);
    assert_eq!((counts[0], counts[1], counts[24], counts[25]), (1, 2, 2, 3));
    has(&text, "forebay_volume_request_duration_seconds_sum{volume=\"v\\\"1\\n\",op=\"read\"} 5.0");
}

#[test]
fn names_follow_the_rule_and_labels_are_those_documented() {
    let text = text(snapshot()).expect("text");
    for metric in METRICS {
        let name = metric.name;
        assert!(name.starts_with("forebay_") && !name.ends_with("_total"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let sample = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let documented: Vec<_> = metric.labels.split(", ").filter(|label| !label.is_empty()).collect();
        if let Some(sample) = sample.filter(|_| !matches!(metric.kind, Kind::Duration(_))) {
            assert!(documented.iter().all(|label| sample.contains(&format!("{label}=\""))), "{name}");
            assert_eq!(sample.matches("=\"").count(), documented.len(), "{sample}");
        }
    }
    let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), METRICS.len());
}
