//! `forebay status`: state, tiers and volumes of a running server.

use super::{failed, print, print_json};
use crate::admin_client::AdminClient;
use crate::arguments::{Output, Running};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use crate::table;
use forebay_admin::{Status, Tier, VolumeStatus, WriteLog};

pub(crate) fn status(arguments: &Running, output: Output) -> Exit {
    match AdminClient::new(arguments.admin).get::<Status>("/api/v1/status") {
        Ok(status) if output == Output::Json => print_json(&status),
        Ok(status) => print(&told(&status)),
        Err(error) => return failed(&error),
    }
    Exit::Ok
}

fn told(status: &Status) -> String {
    let recovery = &status.recovery;
    let recovered = match recovery.running {
        true => format!(", {} of {} slots read", recovery.scanned_slots, recovery.slots),
        false => String::new(),
    };
    let mut out = format!(
        "forebay {}: {}{recovered}, up {}, {} clients\n\n",
        status.version,
        status.state.name(),
        duration(status.uptime_seconds),
        status.connections_open
    );
    let tier = |name: &str, tier: &Tier, note: &str| {
        let bytes = |pages: u64| size_rounded(pages * status.page_bytes);
        vec![
            name.to_owned(),
            bytes(tier.pages),
            bytes(tier.pages_max),
            percent(tier.pages, tier.pages_max),
            note.to_owned(),
        ]
    };
    let given_up = if status.disk_attached { "" } else { "given up: the cache goes on without it; the log says why" };
    let tiers = std::iter::once(tier("memory", &status.memory, ""));
    let tiers: Vec<_> = tiers.chain(status.disk.iter().map(|disk| tier("disk", disk, given_up))).collect();
    out.push_str(&table::render(&["TIER", "HOLDS", "ROOM", "FULL", ""], &tiers));
    out.push('\n');
    let volumes: Vec<_> = status.volumes.iter().map(row).collect();
    out.push_str(&table::render(&["VOLUME", "MODE", "SIZE", "HITS", "ERRORS", "BACK END"], &volumes));
    let logs: Vec<_> = status.volumes.iter().filter_map(|volume| Some(log(volume, volume.log.as_ref()?))).collect();
    if !logs.is_empty() {
        out.push('\n');
        out.push_str(&table::render(&["LOG OF", "SIZE", "FULL", "TO WRITE BACK", "BEHIND", ""], &logs));
    }
    out
}

fn log(volume: &VolumeStatus, log: &WriteLog) -> Vec<String> {
    let behind = match log.lag_ns {
        0 => "-".to_owned(),
        lag_ns => format!("{:.1}s, {} epochs", lag_ns as f64 / 1e9, log.epochs),
    };
    let lost = match log.lost_bytes {
        0 => String::new(),
        bytes => format!("{} are lost: `forebay fsck` lists them", size_rounded(bytes)),
    };
    let note = match log.health.as_str() {
        "" | "whole" if log.is_lagging => "the back end is further behind than it may be; ",
        "" | "whole" => "",
        "through" => "its disk failed: the volume goes on without it; ",
        _ => "its disk failed: the back end gets what can be read of it; ",
    };
    let mirror = match log.mirror.as_str() {
        "disk-only" => "its mirror is out: replace it and restart; ",
        "mirror-only" => "it is on its mirror only: replace the cache disk and restart; ",
        _ => "",
    };
    vec![
        volume.name.clone(),
        size_rounded(log.bytes),
        format!("{:.1} %", log.fullness() * 100.0),
        size_rounded(log.dirty_bytes),
        behind,
        format!("{note}{mirror}{lost}").trim_end_matches("; ").to_owned(),
    ]
}

fn row(volume: &VolumeStatus) -> Vec<String> {
    let hits = volume.hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    vec![
        volume.name.clone(),
        volume.mode.clone(),
        size_rounded(volume.bytes),
        hits,
        volume.errors.to_string(),
        volume.backend.clone(),
    ]
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_admin::{Recovery, State};

    #[test]
    fn a_status_is_two_tables() {
        let volume = VolumeStatus {
            name: "vm1".into(),
            mode: "through".into(),
            backend: "nbd://h:1/v".into(),
            bytes: 10 << 30,
            hit_ratio: Some(0.9321),
            errors: 0,
            log: Some(WriteLog {
                bytes: 64 << 20,
                used_bytes: 16 << 20,
                dirty_bytes: 8 << 20,
                lag_ns: 1_230_000_000,
                epochs: 3,
                ..WriteLog::default()
            }),
        };
        let status = Status {
            version: "1.0".into(),
            state: State::Recovering,
            uptime_seconds: 3725.0,
            page_bytes: 65536,
            memory: Tier { pages: 16, pages_max: 64 },
            disk: Some(Tier { pages: 0, pages_max: 0 }),
            disk_attached: false,
            recovery: Recovery { running: true, scanned_slots: 5, slots: 9 },
            connections_open: 2,
            volumes: vec![volume],
        };
        assert_eq!(
            told(&status),
            "forebay 1.0: recovering, 5 of 9 slots read, up 1h 2m, 2 clients\n\n\
             TIER      HOLDS     ROOM    FULL\n\
             memory  1.0 MiB  4.0 MiB  25.0 %\n\
             disk        0 B      0 B       -  given up: the cache goes on without it; the log says why\n\n\
             VOLUME  MODE         SIZE    HITS  ERRORS  BACK END\n\
             vm1     through  10.0 GiB  93.2 %       0  nbd://h:1/v\n\n\
             LOG OF      SIZE    FULL  TO WRITE BACK          BEHIND\n\
             vm1     64.0 MiB  25.0 %        8.0 MiB  1.2s, 3 epochs\n"
        );
    }
}
