//! `forebay serve`: attach, serve, drain.
//!
//! 1. Configuration: every problem at once, or settings.
//! 2. [`start_runtime`]: devices are attached and shards run; the cache serves from here on.
//! 3. The admin endpoint answers for the runtime's [`Control`].
//! 4. SIGTERM or SIGINT: no new client; the cache disk is brought up to date and marked clean. A second signal ends the
//!    process at once, which costs warmth, never data.

mod backend;
mod control;
mod fronts;
mod host;
mod logs;
mod mirror;
mod objects;
mod runtime;
mod shard;

pub(crate) use control::lost_range;
pub use runtime::{Paces, Runtime, StartError, StartOptions, start_runtime};

use crate::arguments::Serve;
use crate::config::{self, Environment, Settings};
use crate::exit::Exit;
use crate::log;
use crate::verb::complain;
use forebay_admin::{AdminServer, State};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often signals and the runtime's state are looked at: fast enough for an operator, too slow to cost anything.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

pub(crate) fn serve(arguments: &Serve, environment: &Environment) -> Exit {
    let settings = match config::load(&arguments.config, environment, &arguments.overrides.0) {
        Ok((settings, report)) => {
            let _ = write!(std::io::stderr().lock(), "{report}");
            settings
        }
        Err(report) => {
            let _ = write!(std::io::stderr().lock(), "{report}");
            return Exit::Usage;
        }
    };
    if let Err(error) = log::start(&settings.log) {
        complain(&format!("the log: {error}; report this as a bug"));
        return Exit::Failure;
    }
    let options = StartOptions { cold: arguments.cold, force_format: arguments.force_format };
    match run(&settings, &options) {
        Ok(exit) => exit,
        Err(error) => {
            tracing::error!("{error}");
            Exit::Failure
        }
    }
}

fn run(settings: &Settings, options: &StartOptions) -> Result<Exit, Box<dyn std::error::Error>> {
    let stop = stop_flag()?;
    let runtime = start_runtime(settings, options)?;
    let control = runtime.control();
    let admin = settings.admin.map(|address| AdminServer::start(address, Arc::clone(&control))).transpose()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        volumes = settings.volumes.len(),
        admin = admin.as_ref().map(|admin| tracing::field::display(admin.address())),
        "serving"
    );
    while !stop.load(Ordering::Relaxed) && control.state() != State::Failed {
        std::thread::sleep(LOOK_PERIOD);
    }
    let failed = control.state() == State::Failed;
    tracing::info!("draining");
    runtime.stop()?;
    tracing::info!("stopped");
    Ok(if failed { Exit::Failure } else { Exit::Ok })
}

/// Becomes true at the first SIGTERM or SIGINT; the second ends the process.
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The order matters: the first signal finds the flag down and raises it, the second finds it up.
        flag::register_conditional_shutdown(signal, i32::from(Exit::Failure.code()), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
