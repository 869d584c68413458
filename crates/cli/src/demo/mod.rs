//! `forebay demo`: the gain, seen in half a minute, on any machine and without anything to configure.
//!
//! 1. A directory of its own, and in it two caches after the other, by the very runtime of `serve`, with NBD server and
//!    admin endpoint.
//! 2. [`gain`]: a slow back end; writes, misses and hits through NBD.
//! 3. [`split`]: a saturated cache disk; hits split over it and the back end, while that is congested and freed.
//! 4. Everything is stopped and removed, after an interrupt too.

pub mod client;
mod directory;
mod gain;
mod measure;
mod split;

use crate::arguments::{Demo, Output};
use crate::config::{self, Environment, LogSettings, Settings};
use crate::exit::Exit;
use crate::log;
use crate::serve::stop_flag;
use crate::verb::{complain, print, print_json};
use directory::OwnDirectory;
use gain::Gain;
use measure::Measured;
use serde::Serialize;
use split::Shown;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Counters are published on the cache's tick (100 ms): after this they hold all that was done.
const SETTLE: Duration = Duration::from_millis(300);

/// Both parts, for programs.
#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    gain: Measured,
    split: Option<Shown>,
}

pub(crate) fn demo(arguments: &Demo, output: Output) -> Exit {
    match run(arguments, output) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            complain(&format!("the demo ended early: {error}"));
            Exit::Failure
        }
    }
}

fn run(arguments: &Demo, output: Output) -> Result<(), Box<dyn Error>> {
    log::start(&LogSettings { level: "warn", json: false })?;
    let stop = stop_flag()?;
    let directory = OwnDirectory::new()?;
    let gain = Gain::start(directory.path())?;
    let shown = parts(&gain, directory.path(), (arguments, output), &stop);
    let stopped = gain.stop();
    shown.and(stopped)
}

fn parts(
    first: &Gain,
    directory: &Path,
    (arguments, output): (&Demo, Output),
    stop: &Arc<AtomicBool>,
) -> Result<(), Box<dyn Error>> {
    let gain = first.measure(stop)?;
    if output == Output::Table {
        print(&first.told(&gain)?);
    }
    let seconds = Duration::from_secs(arguments.seconds.into());
    let split = if seconds.is_zero() { None } else { Some(split::run(directory, seconds, output, stop)?) };
    if output == Output::Json {
        print_json(&Found { gain, split });
    }
    if arguments.hold {
        hold(stop);
    }
    Ok(())
}

/// A configuration of the demo's own, which has no problems.
fn settings_of(text: &str) -> Result<Settings, String> {
    let read = config::read("demo.toml", text, &Environment::new(), &Vec::new());
    read.map(|(settings, _)| settings).map_err(|report| report.to_string())
}

fn hold(stop: &Arc<AtomicBool>) {
    print("\nrunning until Enter or an interrupt\n");
    let entered = Arc::clone(stop);
    // Ends with the process: there is no waking a read of the terminal.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        entered.store(true, Ordering::Relaxed);
    });
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
}
