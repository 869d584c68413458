//! `forebay profile`: what a volume's cache disk and back end deliver, measured, saved, shown, and given to its policies.
//!
//! The server measures one load of one path at a time ([`forebay_engine::shard::measure`]); which ones, and what is made of
//! them, is decided in [`totals`]. A program that is stopped leaves nothing behind but the measurement under way.

use super::{complain, failed, print, print_json};
use crate::admin_client::{AdminClient, AskError};
use crate::arguments::{Output, Profile};
use crate::config::unit::{size, size_rounded};
use crate::exit::Exit;
use crate::profile::{ProfileFile, QuickError, devices};
use crate::table;
use forebay_admin::{Measure, Snapshot, Volume};
use forebay_policy::split::profile::totals::{self, Total};
use forebay_policy::split::profile::{PATHS, Row, Source};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Each load of each path: 36 of them take three minutes, the 24 of a quick profile 25 s.
const MILLISECONDS: u64 = 5_000;
const MILLISECONDS_QUICK: u64 = 1_000;
const BAR: usize = 24;
const PATH_NAMES: [&str; PATHS] = ["cache disk", "back end"];

pub(crate) fn profile(arguments: &Profile, output: Output) -> Exit {
    if let Some(file) = &arguments.show {
        return match ProfileFile::read(file) {
            Ok(read) => show(&read, output),
            Err(why) => fail(&why),
        };
    }
    let client = AdminClient::new(arguments.running.admin);
    let volume = arguments.volume.as_deref().unwrap_or_default();
    if let Some(file) = &arguments.load {
        return load(&client, volume, file);
    }
    if arguments.learnt {
        return learnt(&client, volume, arguments.out.as_deref(), output);
    }
    let out = arguments.out.clone().unwrap_or_else(|| beside(&arguments.config, volume));
    if let Err(why) = ProfileFile::try_write(&out) {
        return fail(&why);
    }
    match measure(&client, volume, arguments.quick) {
        Ok(measured) => keep(&client, volume, &measured, &out, output),
        Err(error) => failed(&error),
    }
}

/// Shows what the running server goes by, and saves it if it was told where.
fn learnt(client: &AdminClient, volume: &str, out: Option<&Path>, output: Output) -> Exit {
    let learnt: ProfileFile = match client.learnt(volume) {
        Ok(learnt) => learnt,
        Err(error) => return failed(&error),
    };
    if let Some(Err(why)) = out.map(|out| learnt.write(out)) {
        return fail(&why);
    }
    show(&learnt, output)
}

fn fail(why: &str) -> Exit {
    complain(why);
    Exit::Failure
}

/// The file beside the configuration.
fn beside(config: &Path, volume: &str) -> PathBuf {
    config.with_file_name(format!("{}.profile.json", volume.replace('/', "-")))
}

/// Saves it, gives it to the server, and shows it.
fn keep(client: &AdminClient, volume: &str, measured: &ProfileFile, out: &Path, output: Output) -> Exit {
    if let Err(why) = measured.write(out) {
        return fail(&why);
    }
    let shown = show(measured, output);
    let _ = writeln!(
        std::io::stderr().lock(),
        "saved as {}; to use it after a restart too: split = {{ policy = \"netcas\", profile = {:?} }}",
        out.display(),
        out
    );
    match load(client, volume, out) {
        Exit::Ok => shown,
        _ => Exit::Partial,
    }
}

fn load(client: &AdminClient, volume: &str, file: &Path) -> Exit {
    // The server may have another working directory.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    match client.profile(volume, &file.to_string_lossy()) {
        Ok(note) => {
            let warning = if note.note.is_empty() { String::new() } else { format!(" ({})", note.note) };
            let told = format!("{volume}: its policies use this profile until the server stops{warning}\n");
            let _ = std::io::stderr().lock().write_all(told.as_bytes());
            Exit::Ok
        }
        Err(error) => failed(&error),
    }
}

/// One load of one path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    path: usize,
    block_bytes: u32,
    in_flight: u32,
}

fn steps(page_bytes: u32, quick: bool) -> Vec<Step> {
    let levels = if quick { &totals::QUICK[..] } else { &totals::FULL[..] };
    let loads = totals::block_sizes(page_bytes).into_iter().flat_map(|bytes| levels.iter().map(move |at| (bytes, *at)));
    loads
        .flat_map(|(block_bytes, in_flight)| (0..PATHS).map(move |path| Step { path, block_bytes, in_flight }))
        .collect()
}

fn measure(client: &AdminClient, volume: &str, quick: bool) -> Result<ProfileFile, AskError> {
    let (before, page_bytes) = look(client, volume)?;
    let steps = steps(page_bytes, quick);
    let milliseconds = if quick { MILLISECONDS_QUICK } else { MILLISECONDS };
    let progress = Progress::new(volume, steps.len());
    let mut measured: Vec<Total> = Vec::new();
    for (done, step) in steps.iter().enumerate() {
        progress.at(done, step);
        let Step { path, block_bytes, in_flight } = *step;
        let rate = client.measure(volume, Measure { is_backend: path == 1, block_bytes, in_flight, milliseconds })?;
        if path == 0 {
            // Fewer where memory is small: more are never in flight there.
            measured.push(Total { block_bytes, in_flight: rate.in_flight, bytes_per_second: [0.0; PATHS] });
        }
        if let Some(total) = measured.last_mut() {
            total.bytes_per_second[path] = rate.bytes_per_second;
        }
    }
    progress.end();
    let (after, _) = look(client, volume)?;
    let requests = |volume: &Volume| volume.reads + volume.writes;
    let client_requests = requests(&after).saturating_sub(requests(&before));
    let quick_error = if quick { QuickError::of(totals::left_out_errors(&measured)) } else { None };
    let profile = totals::profile(&measured).map_err(|(row, error)| AskError {
        message: format!("row {row} of what was measured is none of a profile: {error:?}; report this as a bug"),
        exit: Exit::Failure,
    })?;
    Ok(ProfileFile::new(volume, &after.devices, client_requests, quick_error, &profile))
}

fn look(client: &AdminClient, volume: &str) -> Result<(Volume, u32), AskError> {
    let snapshot: Snapshot = client.get("/api/v1/stats")?;
    let page_bytes = snapshot.page_bytes as u32;
    let found = snapshot.volumes.into_iter().find(|known| known.name == volume);
    found.map(|volume| (volume, page_bytes)).ok_or_else(|| AskError {
        message: format!("volume \"{volume}\": there is none of that name; `forebay status` lists them"),
        exit: Exit::NotFound,
    })
}

fn show(measured: &ProfileFile, output: Output) -> Exit {
    match output {
        Output::Json => print_json(measured),
        Output::Table => match told(measured) {
            Ok(text) => print(&text),
            Err(why) => return fail(&why),
        },
    }
    Exit::Ok
}

fn told(measured: &ProfileFile) -> Result<String, String> {
    let on = &measured.devices;
    let mut out = format!(
        "Volume {}: cache disk \"{}\", back end \"{}\", link {}.\n",
        measured.volume,
        on.disk_model,
        on.backend_kind,
        devices::link_told(on.link_bits_per_second)
    );
    if let Some(error) = measured.quick_error {
        out.push_str(&format!(
            "Quick: figures with ~ are interpolated. Each measured one, left out, is off by {:.0} % in the median and {:.0} % \
             at most.\n",
            100.0 * error.median,
            100.0 * error.max
        ));
    }
    if measured.client_requests > 0 {
        out.push_str(&format!(
            "Clients made {} requests meanwhile: the paths may deliver more than this.\n",
            measured.client_requests
        ));
    }
    let profile = measured.profile()?;
    // What was measured is the same for all submitters.
    let is_told = |row: &Row| row.point.submitters == 1 || row.source == Source::Observed;
    let mut rows: Vec<_> = profile.rows().filter(is_told).collect();
    rows.sort_by_key(|row| (row.point.block_bytes, row.point.in_flight * row.point.submitters));
    if rows.iter().any(|row| row.source == Source::Observed) {
        out.push_str("Figures with * were observed while clients were served.\n");
    }
    let rows: Vec<_> = rows.iter().map(cells).collect();
    out.push_str(&table::render(&["READ", "IN FLIGHT", "CACHE DISK", "BACK END", "NETCAS' SHARE"], &rows));
    Ok(out)
}

fn cells(row: &Row) -> Vec<String> {
    let mark = match row.source {
        Source::Measured => "",
        Source::Interpolated => " ~",
        Source::Observed => " *",
    };
    let [disk, backend] = row.bytes_per_second;
    let rate = |rate: f64| match rate {
        0.0 => "not known".to_owned(),
        _ => format!("{}/s{mark}", size_rounded(rate as u64)),
    };
    let point = row.point;
    let in_flight = match point.submitters {
        1 => point.in_flight.to_string(),
        _ => format!("{} x {}", point.in_flight, point.submitters),
    };
    let share = match disk * backend {
        0.0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * disk / (disk + backend)),
    };
    vec![size(point.block_bytes.into()), in_flight, rate(disk), rate(backend), share]
}

/// A line that is drawn over again, where somebody sees it.
struct Progress<'a> {
    volume: &'a str,
    of: usize,
    begin: Instant,
    is_shown: bool,
}

impl<'a> Progress<'a> {
    fn new(volume: &'a str, of: usize) -> Self {
        Self { volume, of, begin: Instant::now(), is_shown: std::io::stderr().is_terminal() }
    }

    fn at(&self, done: usize, step: &Step) {
        if self.is_shown {
            let line = line(self.volume, (done, self.of), self.begin.elapsed().as_secs_f64(), step);
            let _ = write!(std::io::stderr().lock(), "\r{line}\x1b[K");
        }
    }

    fn end(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(volume: &str, (done, of): (usize, usize), passed_s: f64, step: &Step) -> String {
    let filled = done * BAR / of.max(1);
    let left = match done {
        0 => String::new(),
        _ => {
            let left_s = (passed_s / done as f64 * (of - done) as f64).ceil() as u64;
            format!("  {}:{:02} left", left_s / 60, left_s % 60)
        }
    };
    format!(
        "{volume} [{}{}] {:3} %{left}  {}, {}, {} in flight",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        done * 100 / of.max(1),
        PATH_NAMES[step.path],
        size(step.block_bytes.into()),
        step.in_flight
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_profile_takes_less_than_half_a_minute_and_a_full_one_minutes() {
        let seconds = |page, quick, each: u64| steps(page, quick).len() as u64 * each / 1_000;
        assert!(seconds(64 << 10, true, MILLISECONDS_QUICK) < 28);
        assert_eq!(seconds(64 << 10, false, MILLISECONDS), 180);
        assert_eq!(steps(4096, true).len(), 12);
        assert_eq!(steps(64 << 10, true)[..2].iter().map(|step| step.path).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn the_line_says_how_far_and_how_long() {
        let step = Step { path: 1, block_bytes: 65_536, in_flight: 16 };
        let text = line("vm1", (9, 36), 45.0, &step);
        assert_eq!(text, "vm1 [######..................]  25 %  2:15 left  back end, 64KiB, 16 in flight");
        assert!(!line("vm1", (0, 36), 0.0, &step).contains("left"));
    }

    #[test]
    fn the_file_is_beside_the_configuration() {
        let file = beside(Path::new("/etc/forebay/forebay.toml"), "a/b");
        assert_eq!(file, Path::new("/etc/forebay/a-b.profile.json"));
    }
}
