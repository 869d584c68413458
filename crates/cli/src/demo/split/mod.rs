//! The second part: hits split over a saturated cache disk and a back end that is congested and freed.
//!
//! 1. A volume that lies whole on a cache disk at a pace, its back end at another; next to nothing of it in memory.
//! 2. Readers, more than the disk bears, of whole pages anywhere; every byte is checked.
//! 3. Four acts: the cache disk alone; hits split; the back end congested; the back end free again. A row each second
//!    shows what each path delivers and what the policy makes of it.
//! 4. What each act delivered, beside the first.
//!
//! Limit: the paces are made (`cache.paced`, `volume.paced`): they show what the policy does, not what a disk does.

mod chart;
mod load;

use super::client::NbdClient;
use super::measure::{MeasureError, fill, go_on};
use super::{SETTLE, settings_of};
use crate::arguments::Output;
use crate::rates::between;
use crate::serve::{Paces, Runtime, StartOptions, start_runtime};
use crate::verb::print;
use chart::{Chart, Row};
use forebay_admin::{AdminServer, Control, Snapshot};
use load::Load;
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const VOLUME: &str = "split";
const VOLUME_BYTES: u64 = 128 << 20;
const REQUEST_BYTES: usize = 1 << 20;
const READERS: usize = 16;
/// Slow enough that any machine can check all that is read.
const DISK: Rate = Rate { bytes_per_s: 100_000_000, latency_ns: 200_000 };
const FREE: Rate = Rate { bytes_per_s: 80_000_000, latency_ns: 1_000_000 };
const CONGESTED: Rate = Rate { bytes_per_s: 8_000_000, latency_ns: 1_000_000 };
const UNPACED: Rate = Rate { bytes_per_s: 0, latency_ns: 0 };
/// Looks at the whole volume until none of it is missed.
const PASSES_MAX: usize = 10;
/// Rows of all acts, unless they would be longer than a second.
const ROWS: u32 = 20;
/// Looks in a row, on a terminal.
const LOOKS: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes_per_s: u64,
    latency_ns: u64,
}

/// A condition, for so many of [`ROWS`].
struct Act {
    name: &'static str,
    policy: &'static str,
    backend: Rate,
    rows: u32,
}

const ACTS: [Act; 4] = [
    Act { name: "the cache disk alone", policy: "cache-only", backend: FREE, rows: 3 },
    Act { name: "hits are split", policy: "expected-delay", backend: FREE, rows: 5 },
    Act { name: "the back end is congested", policy: "expected-delay", backend: CONGESTED, rows: 6 },
    Act { name: "the back end is free again", policy: "expected-delay", backend: FREE, rows: 6 },
];

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shown {
    readers: usize,
    request_bytes: u64,
    disk_bytes_per_s: u64,
    acts: Vec<Played>,
}

/// An act, as the readers saw it.
#[derive(Clone, Debug, Serialize)]
struct Played {
    name: &'static str,
    policy: &'static str,
    backend_bytes_per_s: u64,
    seconds: f64,
    read_bytes_per_s: f64,
    /// Times what the cache disk alone delivered.
    gain: f64,
}

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "[cache]\n\
         disk = \"{directory}/cache.img\"\n\
         disk_size = \"256MiB\"\n\
         sparse = true\n\
         memory = \"28MiB\"\n\
         state_dir = \"{directory}\"\n\
         paced = {{ rate = \"{disk}MB/s\", latency = \"{disk_us}us\" }}\n\
         [limits]\n\
         clients_max = 32\n\
         requests_max = 64\n\
         [listen]\n\
         unix = \"{directory}/nbd.sock\"\n\
         [admin]\n\
         listen = \"127.0.0.1:0\"\n\
         [[volume]]\n\
         name = \"{VOLUME}\"\n\
         backend = \"memory:{volume}MiB\"\n\
         paced = {{ rate = \"{backend}MB/s\", latency = \"{backend_us}us\" }}\n\
         split = {{ policy = \"expected-delay\" }}\n",
        disk = DISK.bytes_per_s / 1_000_000,
        disk_us = DISK.latency_ns / 1000,
        backend = FREE.bytes_per_s / 1_000_000,
        backend_us = FREE.latency_ns / 1000,
        volume = VOLUME_BYTES >> 20,
    )
}

/// Plays all acts in `length`, with all files below `directory`.
pub(super) fn run(
    directory: &Path,
    length: Duration,
    output: Output,
    stop: &AtomicBool,
) -> Result<Shown, Box<dyn Error>> {
    let directory = directory.join(VOLUME);
    std::fs::create_dir(&directory)?;
    let settings = settings_of(&configuration(&directory))?;
    let socket = settings.listen.unix.clone().ok_or("the demo's configuration has no socket")?;
    let address = settings.admin.ok_or("the demo's configuration has no admin endpoint")?;
    let runtime = start_runtime(&settings, &StartOptions::default())?;
    let admin = AdminServer::start(address, runtime.control())?;
    let stage = Stage::new(&runtime, length, output);
    let shown = stage.prepare(&socket, stop).and_then(|()| {
        stage.say(&introduction(admin.address()));
        with_readers(&socket, stop, |load| stage.play(load, stop))
    });
    stage.unpaced();
    drop(admin);
    let stopped = runtime.stop();
    let shown = shown?;
    stopped?;
    stage.say(&told(&shown));
    Ok(shown)
}

/// Runs `play` while readers load the volume. What a reader has found wrong is the result.
fn with_readers(
    socket: &Path,
    stop: &AtomicBool,
    play: impl FnOnce(&Load) -> Result<Shown, MeasureError>,
) -> Result<Shown, MeasureError> {
    let load = Load::new(VOLUME_BYTES);
    std::thread::scope(|scope| {
        let begin = |seed| {
            let load = &load;
            scope.spawn(move || load.read(socket, VOLUME, seed, stop))
        };
        let readers: Vec<_> = (0..READERS as u64).map(begin).collect();
        let shown = play(&load);
        load.end();
        for reader in readers {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        shown
    })
}

/// The cache and how it is looked at.
struct Stage {
    control: Arc<dyn Control>,
    paces: Paces,
    chart: Chart,
    length: Duration,
    is_told: bool,
}

impl Stage {
    fn new(runtime: &Runtime, length: Duration, output: Output) -> Self {
        Self {
            control: runtime.control(),
            paces: runtime.paces().clone(),
            chart: Chart::new(DISK.bytes_per_s.max(FREE.bytes_per_s) as f64),
            length,
            is_told: output == Output::Table,
        }
    }

    fn say(&self, text: &str) {
        if self.is_told {
            print(text);
        }
    }

    fn pace(&self, disk: Rate, backend: Rate) {
        let all = [(&self.paces.disk, disk), (&self.paces.backends[0], backend)];
        for (pace, rate) in all {
            pace.iter().for_each(|pace| pace.set(rate.bytes_per_s, rate.latency_ns));
        }
    }

    fn unpaced(&self) {
        self.pace(UNPACED, UNPACED);
    }

    fn look(&self) -> Result<Snapshot, MeasureError> {
        self.control.snapshot().map_err(|error| MeasureError::Cache(error.to_string()))
    }

    /// Writes the volume, and reads it until all of it lies on the cache disk; at full speed.
    fn prepare(&self, socket: &Path, stop: &AtomicBool) -> Result<(), MeasureError> {
        self.unpaced();
        let mut client = NbdClient::connect(socket, VOLUME)?;
        let mut data = vec![0; REQUEST_BYTES];
        for offset in (0..VOLUME_BYTES).step_by(REQUEST_BYTES) {
            go_on(stop)?;
            fill(offset, &mut data);
            client.write(offset, &data)?;
        }
        client.flush()?;
        let mut misses = u64::MAX;
        for _ in 0..PASSES_MAX {
            for offset in (0..VOLUME_BYTES).step_by(REQUEST_BYTES) {
                go_on(stop)?;
                client.read(offset, &mut data)?;
            }
            std::thread::sleep(SETTLE);
            let missed = self.look()?.volumes[0].misses;
            if missed == misses {
                break;
            }
            misses = missed;
        }
        self.pace(DISK, FREE);
        client.disconnect()?;
        Ok(())
    }

    fn play(&self, load: &Load, stop: &AtomicBool) -> Result<Shown, MeasureError> {
        self.say(&self.chart.head());
        let row = (self.length / ROWS).clamp(Duration::from_millis(200), Duration::from_secs(1));
        let mut clock = Clock { begin: Instant::now(), row };
        let mut acts: Vec<Played> = Vec::new();
        let mut played = Duration::ZERO;
        for act in &ACTS {
            // A policy that is chosen anew forgets what it knows.
            if acts.last().is_none_or(|last| last.policy != act.policy) {
                let set = self.control.split(VOLUME, act.policy, None);
                set.map_err(|error| MeasureError::Cache(error.to_string()))?;
            }
            self.pace(DISK, act.backend);
            let backend = act.backend.bytes_per_s;
            self.say(&format!("{}; the back end bears {} MB/s\n", act.name, backend / 1_000_000));
            let (begin, bytes) = (Instant::now(), load.bytes());
            played += self.length * act.rows / ROWS;
            self.rows(&mut clock, played, load, stop)?;
            let seconds = begin.elapsed().as_secs_f64();
            let read_bytes_per_s = (load.bytes() - bytes) as f64 / seconds;
            let alone = acts.first().map_or(read_bytes_per_s, |alone| alone.read_bytes_per_s);
            let gain = read_bytes_per_s / alone.max(1.0);
            let Act { name, policy, .. } = *act;
            acts.push(Played { name, policy, backend_bytes_per_s: backend, seconds, read_bytes_per_s, gain });
        }
        let request_bytes = load::PAGE_BYTES as u64;
        Ok(Shown { readers: READERS, request_bytes, disk_bytes_per_s: DISK.bytes_per_s, acts })
    }

    /// Rows until `end`; on a terminal each is drawn over while it lasts.
    fn rows(&self, clock: &mut Clock, end: Duration, load: &Load, stop: &AtomicBool) -> Result<(), MeasureError> {
        let looks = if self.chart.is_live() { LOOKS } else { 1 };
        while clock.begin.elapsed() < end {
            let (before, begun) = (self.look()?, clock.begin.elapsed());
            for look in 1..=looks {
                clock.wait_until((begun + clock.row * look / looks).min(end), load, stop)?;
                let rates = between(&before, &self.look()?);
                let row = Row { seconds: clock.begin.elapsed().as_secs_f64(), rates: &rates[0] };
                self.say(&self.chart.row(&row, look == looks));
            }
        }
        Ok(())
    }
}

/// The time since the first act began.
struct Clock {
    begin: Instant,
    row: Duration,
}

impl Clock {
    /// Waits; ends early when the readers or the user do.
    fn wait_until(&self, end: Duration, load: &Load, stop: &AtomicBool) -> Result<(), MeasureError> {
        loop {
            go_on(stop)?;
            let left = end.saturating_sub(self.begin.elapsed());
            if left.is_zero() || load.is_ended() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

fn introduction(admin: SocketAddr) -> String {
    format!(
        "\nsplitting hits: {READERS} readers of a volume that lies on a cache disk of {} MB/s\n\
         look closer meanwhile: forebay top --admin {admin}\n\n",
        DISK.bytes_per_s / 1_000_000
    )
}

fn told(shown: &Shown) -> String {
    let mut out = "\n".to_owned();
    for act in &shown.acts {
        let rate = format!("{:.0} MB/s", act.read_bytes_per_s / 1e6);
        let note = if act.policy == "cache-only" { String::new() } else { format!("{:.2} x cache only", act.gain) };
        let _ = writeln!(out, "{}", format!("{:<34}{rate:>12}  {note}", act.name).trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_sound_and_keeps_next_to_nothing_in_memory() {
        let text = configuration(Path::new("/nonexistent/demo"));
        let settings = settings_of(&text).unwrap_or_else(|report| panic!("{report}"));
        let budget = settings.budget();
        assert!(settings.cache.paced.is_some() && settings.volumes[0].paced.is_some());
        assert!(budget.kept_frames * budget.page_bytes < VOLUME_BYTES / 20, "{budget:?}");
        assert!(budget.disk.expect("a disk").slots * budget.page_bytes > VOLUME_BYTES);
    }

    #[test]
    fn the_acts_fill_the_time() {
        assert_eq!(ACTS.iter().map(|act| act.rows).sum::<u32>(), ROWS);
    }

    #[test]
    fn each_act_is_told_beside_the_first() {
        let act = |act: &Act, rate: f64| Played {
            name: act.name,
            policy: act.policy,
            backend_bytes_per_s: act.backend.bytes_per_s,
            seconds: 1.0,
            read_bytes_per_s: rate,
            gain: rate / 100e6,
        };
        let acts = vec![act(&ACTS[0], 100e6), act(&ACTS[1], 178e6)];
        let shown = Shown { readers: 1, request_bytes: 1, disk_bytes_per_s: 1, acts };
        assert_eq!(
            told(&shown),
            "\nthe cache disk alone                  100 MB/s\n\
             hits are split                        178 MB/s  1.78 x cache only\n"
        );
    }
}
