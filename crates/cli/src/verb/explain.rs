//! `forebay explain` and `forebay split`: how a volume's hits are split and why, and another policy for it.

use super::{complain, failed, objects, print, print_json};
use crate::admin_client::AdminClient;
use crate::arguments::{Explain, Output, Split};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use crate::table;
use forebay_admin::{PathEstimate, Snapshot, Volume};

pub(crate) fn explain(arguments: &Explain, output: Output) -> Exit {
    if objects::is_object(&arguments.volume) {
        return objects::explain(&arguments.volume, &arguments.running, output);
    }
    let snapshot = match AdminClient::new(arguments.running.admin).get::<Snapshot>("/api/v1/stats") {
        Ok(snapshot) => snapshot,
        Err(error) => return failed(&error),
    };
    let Some(volume) = snapshot.volumes.iter().find(|volume| volume.name == arguments.volume) else {
        complain(&format!("volume \"{}\": there is none of that name; `forebay status` lists them", arguments.volume));
        return Exit::NotFound;
    };
    match output {
        Output::Json => print_json(&volume.split),
        Output::Table => print(&told(volume)),
    }
    Exit::Ok
}

pub(crate) fn split(arguments: &Split) -> Exit {
    let client = AdminClient::new(arguments.running.admin);
    match client.split(&arguments.volume, &arguments.policy, arguments.disk_percent) {
        Ok(()) => {
            print(&format!("{}: {}\n", arguments.volume, arguments.policy));
            Exit::Ok
        }
        Err(error) => failed(&error),
    }
}

fn told(volume: &Volume) -> String {
    let Some(split) = &volume.split else {
        return format!(
            "{}: every hit on the cache disk is served by it. `forebay split {} expected-delay` lets the back end help \
             when that is faster.\n",
            volume.name, volume.name
        );
    };
    let hits = volume.disk_hits + volume.backend_hits;
    let mut out = format!(
        "{}: hits are split by {} (mode {}). Now {} of the hits on disk go to the cache disk, {} to the back end.\n",
        volume.name,
        split.policy,
        split.mode,
        percent(split.disk_share_permil),
        percent(1000 - split.disk_share_permil.min(1000)),
    );
    if let Some(permil) = (volume.backend_hits * 1000).checked_div(hits) {
        out.push_str(&format!("Since the start the back end served {} of {hits}.\n", percent(permil)));
    }
    match (&volume.profile, split.mode.as_str()) {
        (Some(profile), _) if profile.points == 0 => {
            out.push_str(&format!("Its profile is not used: {}.\n", profile.note));
        }
        (Some(profile), _) => out.push_str(&format!("Its profile is {}, of {} loads.\n", profile.file, profile.points)),
        (None, "no-table") => out.push_str(&format!(
            "It has no profile, so every hit goes to the cache disk: measure one with `forebay profile {}`.\n",
            volume.name
        )),
        (None, _) => {}
    }
    if split.severity_permil > 0 {
        out.push_str(&format!("The back end seems congested, by {}.\n", percent(split.severity_permil)));
    }
    if split.backend_bytes_per_second_max > 0 {
        let most = size_rounded(split.backend_bytes_per_second_max);
        out.push_str(&format!(
            "Hits take at most {most}/s from the back end, as configured; {} stayed on the cache disk for that.\n",
            split.over_budget
        ));
    }
    if split.suspended {
        out.push_str("The back end is left alone for a second: a hit failed there or was late.\n");
    }
    if volume.split_failovers + volume.split_mismatches > 0 {
        out.push_str(&format!(
            "{} hits went to the cache disk after all (the back end failed or was late); {} blocks differed.\n",
            volume.split_failovers, volume.split_mismatches
        ));
    }
    let row = |name: &str, path: &PathEstimate| {
        let known = |value: u64, text: String| if value > 0 { text } else { "not known yet".to_owned() };
        vec![
            name.to_owned(),
            known(path.bytes_per_second, format!("{}/s", size_rounded(path.bytes_per_second))),
            known(path.latency_ns, format!("{:.3} ms", path.latency_ns as f64 / 1e6)),
            path.in_flight.to_string(),
            if path.window > 0 { path.window.to_string() } else { "-".to_owned() },
        ]
    };
    let rows = [row("cache disk", &split.disk), row("back end", &split.backend)];
    out.push_str(&table::render(&["PATH", "DELIVERS", "A READ TAKES", "IN FLIGHT", "WINDOW"], &rows));
    out
}

fn percent(permil: u64) -> String {
    format!("{}.{} %", permil / 10, permil % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_policy_shares_and_paths() {
        let split = forebay_admin::Split {
            policy: "expected-delay".into(),
            mode: "stable".into(),
            disk_share_permil: 652,
            disk: PathEstimate { bytes_per_second: 2 << 30, latency_ns: 90_000, in_flight: 7, window: 16 },
            backend_bytes_per_second_max: 1 << 20,
            over_budget: 12,
            suspended: true,
            ..Default::default()
        };
        let volume =
            Volume { name: "vm1".into(), disk_hits: 3, backend_hits: 1, split: Some(split), ..Volume::default() };
        let text = told(&volume);
        for part in
            ["vm1", "expected-delay", "65.2 %", "34.8 %", "25.0 % of 4", "not known yet", "; 12 stayed", "alone"]
        {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(text.contains("0.090 ms               7      16\n"), "{text}");
        let netcas = forebay_admin::Split { policy: "netcas".into(), mode: "no-table".into(), ..Default::default() };
        let mut volume = Volume { name: "vm1".into(), split: Some(netcas), ..Volume::default() };
        assert!(told(&volume).contains("`forebay profile vm1`"));
        let note = "f: measured on other devices".to_owned();
        volume.profile = Some(forebay_admin::ProfileNote { file: "f".into(), points: 0, note });
        assert!(told(&volume).contains("not used: f: measured on other devices"));
        volume.profile = Some(forebay_admin::ProfileNote { file: "f".into(), points: 58, note: String::new() });
        assert!(told(&volume).contains("is f, of 58 loads"));
        assert!(told(&Volume { name: "vm2".into(), ..Volume::default() }).contains("served by it"));
    }
}
