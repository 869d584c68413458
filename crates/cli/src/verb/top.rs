//! `forebay top`: what every volume of a running server does now, looked at once a second.
//!
//! On a terminal the view is drawn over until an interrupt; elsewhere, and with `--once`, one second is told and that is
//! all.

use super::status::duration;
use super::{complain, failed, print, print_json};
use crate::admin_client::{AdminClient, AskError};
use crate::arguments::{Output, Top};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use crate::rates::{VolumeRates, between};
use crate::screen::Screen;
use crate::serve::stop_flag;
use crate::table;
use forebay_admin::{PathEstimate, Snapshot, Split, State};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);
/// The first view of a terminal comes sooner.
const FIRST: Duration = Duration::from_millis(300);
/// A server that takes longer to answer is silent: an interrupt has to wait for that.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often an interrupt is looked for.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// All of it, for programs.
#[derive(Clone, Debug, Serialize)]
struct View {
    state: State,
    uptime_seconds: f64,
    /// That the rates are of.
    seconds: f64,
    connections_open: u64,
    requests_in_flight: u64,
    requests_waiting: u64,
    stores_in_flight: u64,
    dirty_table_sectors: u64,
    volumes: Vec<VolumeRates>,
}

pub(crate) fn top(arguments: &Top, output: Output) -> Exit {
    let client = AdminClient::within(arguments.running.admin, ANSWER_MAX);
    let before = match look(&client) {
        Ok(before) => before,
        Err(error) => return failed(&error),
    };
    for name in &arguments.volumes {
        if !before.volumes.iter().any(|volume| volume.name == *name) {
            complain(&format!("volume \"{name}\": there is none of that name; `forebay status` lists them"));
            return Exit::NotFound;
        }
    }
    let screen = if arguments.once || output == Output::Json { None } else { Screen::open() };
    let shown = match screen {
        Some(screen) => live(&client, before, &arguments.volumes, screen),
        None => once(&client, &before, &arguments.volumes, output),
    };
    match shown {
        Ok(()) => Exit::Ok,
        Err(error) => failed(&error),
    }
}

fn look(client: &AdminClient) -> Result<Snapshot, AskError> {
    client.get("/api/v1/stats")
}

fn once(client: &AdminClient, before: &Snapshot, volumes: &[String], output: Output) -> Result<(), AskError> {
    std::thread::sleep(PERIOD);
    let view = View::new(before, &look(client)?, volumes);
    match output {
        Output::Json => print_json(&view),
        Output::Table => print(&told(&view)),
    }
    Ok(())
}

/// Until an interrupt, or until the server is gone. The terminal is given back before anything else is said.
fn live(client: &AdminClient, before: Snapshot, volumes: &[String], mut screen: Screen) -> Result<(), AskError> {
    let stop = stop_flag().map_err(|error| AskError { message: format!("signals: {error}"), exit: Exit::Failure })?;
    let mut before = before;
    let mut pause = FIRST;
    while !interrupted(&stop, pause) {
        let now = look(client)?;
        screen.draw(&told(&View::new(&before, &now, volumes)));
        (before, pause) = (now, PERIOD);
    }
    Ok(())
}

/// Waits; whether there was an interrupt meanwhile.
fn interrupted(stop: &AtomicBool, pause: Duration) -> bool {
    let end = Instant::now() + pause;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_PERIOD);
    }
    stop.load(Ordering::Relaxed)
}

impl View {
    /// Between two looks; of all volumes if none is named.
    fn new(before: &Snapshot, now: &Snapshot, volumes: &[String]) -> Self {
        let mut rates = between(before, now);
        rates.retain(|volume| volumes.is_empty() || volumes.contains(&volume.name));
        Self {
            state: now.state,
            uptime_seconds: now.uptime_seconds,
            seconds: (now.counted_seconds - before.counted_seconds).max(0.0),
            connections_open: now.nbd.connections_open,
            requests_in_flight: now.queues.requests,
            requests_waiting: now.queues.requests_waiting,
            stores_in_flight: now.queues.stores,
            dirty_table_sectors: now.disk.as_ref().map_or(0, |disk| disk.dirty_sectors),
            volumes: rates,
        }
    }
}

fn told(view: &View) -> String {
    let mut out = format!(
        "{}, up {}, {} clients; {} requests in flight ({} wait for memory), {} stores, {} table sectors to write\n\n",
        view.state.name(),
        duration(view.uptime_seconds),
        view.connections_open,
        view.requests_in_flight,
        view.requests_waiting,
        view.stores_in_flight,
        view.dirty_table_sectors,
    );
    let head = [
        "VOLUME",
        "READ/S",
        "WRITE/S",
        "BYTES/S",
        "MEMORY",
        "DISK",
        "BACK END",
        "MISSED",
        "READ P50 / P99",
        "WRITE P50 / P99",
    ];
    let rows: Vec<_> = view.volumes.iter().map(row).collect();
    out.push_str(&table::render(&head, &rows));
    let split: Vec<_> = view.volumes.iter().flat_map(split_rows).collect();
    if !split.is_empty() {
        let head = ["SPLIT", "POLICY", "MODE", "PATH", "SHARE", "DELIVERS", "OF", "IN FLIGHT", "WINDOW"];
        out.push('\n');
        out.push_str(&table::render(&head, &split));
    }
    let failing = view.volumes.iter().filter(|volume| volume.errors_per_second > 0.0);
    for volume in failing {
        out.push_str(&format!(
            "{}: {:.1} requests a second fail; the log says why\n",
            volume.name, volume.errors_per_second
        ));
    }
    out
}

fn row(volume: &VolumeRates) -> Vec<String> {
    let percent = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    let v = volume;
    vec![
        v.name.clone(),
        format!("{:.0}", v.reads_per_second),
        format!("{:.0}", v.writes_per_second),
        rate(v.read_bytes_per_second + v.write_bytes_per_second),
        percent(v.memory_hit_ratio),
        percent(v.disk_hit_ratio),
        percent(v.backend_hit_ratio),
        percent(v.miss_ratio),
        milliseconds(v.read_p50_ns, v.read_p99_ns),
        milliseconds(v.write_p50_ns, v.write_p99_ns),
    ]
}

/// A row for each path; none where nothing is split.
fn split_rows(volume: &VolumeRates) -> Vec<Vec<String>> {
    let Some(split) = &volume.split else { return Vec::new() };
    let path = |name: &str, permil: u64, bytes_per_second: f64, path: &PathEstimate| {
        let known = |value: u64, text: String| if value > 0 { text } else { "-".to_owned() };
        vec![
            name.to_owned(),
            format!("{:.1} %", permil as f64 / 10.0),
            rate(bytes_per_second),
            known(path.bytes_per_second, rate(path.bytes_per_second as f64)),
            path.in_flight.to_string(),
            known(path.window, path.window.to_string()),
        ]
    };
    let disk = path("cache disk", split.disk_share_permil, volume.disk_read_bytes_per_second, &split.disk);
    let rest = 1000 - split.disk_share_permil.min(1000);
    let backend = path("back end", rest, volume.backend_read_bytes_per_second, &split.backend);
    let first = vec![volume.name.clone(), split.policy.clone(), mode(split)];
    vec![[first, disk].concat(), [vec![String::new(); 3], backend].concat()]
}

fn mode(split: &Split) -> String {
    match (split.suspended, split.severity_permil) {
        (true, _) => "suspended".to_owned(),
        (false, 0) => split.mode.clone(),
        (false, permil) => format!("{}, {:.1} %", split.mode, permil as f64 / 10.0),
    }
}

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", size_rounded(bytes_per_second as u64))
}

fn milliseconds(p50_ns: Option<u64>, p99_ns: Option<u64>) -> String {
    let shown = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    match (p50_ns, p99_ns) {
        (Some(p50), Some(p99)) => format!("{} / {} ms", shown(p50), shown(p99)),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_admin::{Latency, Nbd, Volume};

    fn looks() -> (Snapshot, Snapshot) {
        let volume = |name: &str| Volume { name: name.into(), ..Volume::default() };
        let before = Snapshot { volumes: vec![volume("vm1"), volume("idle")], ..Snapshot::default() };
        let split = Split {
            policy: "expected-delay".into(),
            mode: "congestion".into(),
            severity_permil: 75,
            disk_share_permil: 600,
            disk: PathEstimate { bytes_per_second: 4 << 20, in_flight: 2, window: 3, ..PathEstimate::default() },
            ..Split::default()
        };
        let busy = Volume {
            reads: 200,
            writes: 10,
            read_bytes: 2 << 20,
            memory_hits: 100,
            disk_hits: 60,
            backend_hits: 40,
            read_errors: 1,
            disk_read_bytes: 6 << 20,
            backend_read_bytes: 1 << 20,
            read_latency: Latency::new(200, 0, [(65_536, 190), (2_097_152, 10)]),
            split: Some(split),
            ..volume("vm1")
        };
        let now = Snapshot {
            state: State::Ready,
            uptime_seconds: 3725.0,
            counted_seconds: 2.0,
            nbd: Nbd { connections_open: 2, ..Nbd::default() },
            volumes: vec![busy, volume("idle")],
            ..Snapshot::default()
        };
        (before, now)
    }

    #[test]
    fn a_second_is_two_tables() {
        let (before, now) = looks();
        assert_eq!(
            told(&View::new(&before, &now, &[])),
            "ready, up 1h 2m, 2 clients; 0 requests in flight (0 wait for memory), 0 stores, 0 table sectors to write\n\n\
             VOLUME  READ/S  WRITE/S    BYTES/S  MEMORY    DISK  BACK END  MISSED    READ P50 / P99  WRITE P50 / P99\n\
             vm1        100        5  1.0 MiB/s  50.0 %  30.0 %    20.0 %   0.0 %  0.066 / 2.097 ms                -\n\
             idle         0        0      0 B/s       -       -         -       -                 -                -\n\n\
             SPLIT  POLICY          MODE               PATH         SHARE     DELIVERS         OF  IN FLIGHT  WINDOW\n\
             vm1    expected-delay  congestion, 7.5 %  cache disk  60.0 %    3.0 MiB/s  4.0 MiB/s          2       3\n\
             \x20                                         back end    40.0 %  512.0 KiB/s          -          0       -\n\
             vm1: 0.5 requests a second fail; the log says why\n"
        );
    }

    #[test]
    fn volumes_that_are_named_are_alone() {
        let (before, now) = looks();
        let view = View::new(&before, &now, &["idle".to_owned()]);
        assert_eq!(view.volumes.len(), 1);
        assert!(!told(&view).contains("SPLIT"), "nothing is split there");
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let begin = Instant::now();
        assert!(interrupted(&AtomicBool::new(true), Duration::from_secs(60)));
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(!interrupted(&AtomicBool::new(false), Duration::from_millis(1)));
    }
}
