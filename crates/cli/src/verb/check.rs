//! `forebay check`: is the configuration sound, and what would it take?

use super::{complain, print, print_json};
use crate::arguments::{Check, Output};
use crate::budget::Budget;
use crate::config::unit::{size, size_rounded};
use crate::config::{self, Environment, Place, Report, Settings, Severity};
use crate::exit::Exit;
use crate::profile::{Given, devices};
use crate::table;
use forebay_admin::ProfileNote;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

pub(crate) fn check(arguments: &Check, output: Output, environment: &Environment) -> Exit {
    let (settings, report) = match config::load(&arguments.config, environment, &arguments.overrides.0) {
        Ok((settings, report)) => (Some(settings), report),
        Err(report) => (None, report),
    };
    let budget = settings.as_ref().map(Settings::budget);
    match output {
        Output::Json => print_json(&json!({
            "sound": settings.is_some(),
            "problems": problems(&report),
            "budget": budget,
            "profiles": settings.as_ref().map(profiles).unwrap_or_default(),
        })),
        Output::Table => {
            let _ = write!(std::io::stderr().lock(), "{report}");
            if let (Some(settings), Some(budget)) = (&settings, &budget) {
                print(&told(settings, budget));
                for (volume, note) in profiles(settings).into_iter().filter(|(_, note)| !note.note.is_empty()) {
                    let verdict = if note.points == 0 { "will not be used" } else { "will be used" };
                    complain(&format!("volume \"{volume}\": its profile {verdict}: {}", note.note));
                }
            }
        }
    }
    if settings.is_some() { Exit::Ok } else { Exit::Usage }
}

/// What becomes of the volumes' profiles on this machine.
fn profiles(settings: &Settings) -> BTreeMap<String, ProfileNote> {
    let given = settings.volumes.iter().filter_map(|volume| {
        let file = volume.profile.as_ref()?;
        Some((volume.name.clone(), Given::from(file, &devices::of(settings, volume)).note?))
    });
    given.collect()
}

fn problems(report: &Report) -> Vec<Value> {
    let place = |place: &Place| match place {
        Place::File { line, column } => json!({ "line": line, "column": column }),
        Place::Environment(name) => json!({ "variable": name }),
        Place::Flag(name) => json!({ "flag": name }),
        Place::WholeFile | Place::Default => json!({}),
    };
    let told = report.problems().iter().map(|problem| {
        json!({
            "place": place(&problem.place),
            "severity": match problem.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "problem": problem.what,
            "remedy": problem.remedy,
            "text": report.line(problem),
        })
    });
    told.collect()
}

fn told(settings: &Settings, budget: &Budget) -> String {
    let share = |bytes: u64, of: u64| format!("{:.1} %", bytes as f64 * 100.0 / of as f64);
    let parts = budget.parts();
    let spent: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let rest = ("rest", budget.memory_bytes - spent);
    let row = |name: &str, bytes: u64, of: u64| vec![name.to_owned(), size_rounded(bytes), share(bytes, of)];
    let parts = parts.iter().chain([&rest]).filter(|(_, bytes)| *bytes > 0);
    let rows: Vec<_> = parts.map(|(name, bytes)| row(name, *bytes, budget.memory_bytes)).collect();
    let mut out = table::render(&[&format!("MEMORY {}", size(budget.memory_bytes)), "BYTES", "SHARE"], &rows);
    out.push('\n');
    if let (Some(layout), Some(disk)) = (&budget.disk, &settings.cache.disk) {
        let data_bytes = layout.slots * budget.page_bytes;
        let between = layout.data_offset_bytes - layout.head_bytes - layout.table_bytes;
        let behind = layout.device_bytes - layout.data_offset_bytes - data_bytes - layout.logs_bytes;
        let areas = [
            ("superblocks and intent maps", layout.head_bytes),
            ("slot table", layout.table_bytes),
            ("slots", data_bytes),
            ("write-back logs", layout.logs_bytes),
            ("rest", between + behind),
        ];
        let areas = areas.into_iter().filter(|(_, bytes)| *bytes > 0);
        let rows: Vec<_> = areas.map(|(name, bytes)| row(name, bytes, layout.device_bytes)).collect();
        let head = format!("DISK {} ({})", disk.path.display(), size(layout.device_bytes));
        out.push_str(&table::render(&[&head, "BYTES", "SHARE"], &rows));
        out.push('\n');
    }
    let pages = vec![
        vec!["memory".to_owned(), budget.kept_frames.to_string()],
        vec!["disk".to_owned(), budget.disk.as_ref().map_or(0, |disk| disk.slots).to_string()],
    ];
    out.push_str(&table::render(&["TIER", &format!("PAGES OF {}", size(budget.page_bytes))], &pages));
    out.push('\n');
    let volumes: Vec<_> = settings
        .volumes
        .iter()
        .map(|volume| vec![volume.name.clone(), volume.mode.name().to_owned(), volume.backend.to_string()])
        .collect();
    if !volumes.is_empty() {
        out.push_str(&table::render(&["VOLUME", "MODE", "BACK END"], &volumes));
    }
    if let Some(s3) = &settings.s3 {
        let who = match &s3.verify {
            None => "the store says who may".to_owned(),
            Some(verify) => format!("{} keys and what they may", verify.clients.len()),
        };
        let row = vec![s3.listen.to_string(), s3.backend.clone(), who];
        let between = if volumes.is_empty() { "" } else { "\n" };
        out.push_str(between);
        out.push_str(&table::render(&["S3 GATEWAY", "STORE", "SIGNATURES"], &[row]));
    }
    out
}
