//! Does: the `forebay` program. Composes the drivers and talks to people.
//!
//! 1. [`arguments`]: what is asked.
//! 2. [`config`]: the file, the environment and the flags become settings; [`budget`] divides memory and disk.
//! 3. [`serve`] runs a cache; the other verbs ask a running one through [`admin_client`], or, as [`demo`], run one of
//!    their own.
#![forbid(unsafe_code)]

pub mod admin_client;
pub mod arguments;
pub mod budget;
pub mod config;
pub mod demo;
pub mod exit;
pub mod log;
mod profile;
mod rates;
mod screen;
pub mod serve;
mod table;
pub mod verb;

use arguments::{Arguments, Verb};
use clap::Parser;
use config::Environment;
use exit::Exit;

/// Runs the program with the process's arguments and environment.
#[must_use]
pub fn run() -> Exit {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are asked for and no error. A reader that has gone away is none either.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let environment: Environment = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let output = arguments.output;
    match &arguments.verb {
        Verb::Serve(serve) => serve::serve(serve, &environment),
        Verb::Check(check) => verb::check(check, output, &environment),
        Verb::Status(running) => verb::status(running, output),
        Verb::Stat(stat) => verb::stat(stat, output),
        Verb::Stats(stats) => verb::stats(stats, output),
        Verb::Top(top) => verb::top(top, output),
        Verb::Flush(flush) => verb::flush(flush, output),
        Verb::Evict(evict) => verb::evict(evict, output),
        Verb::Mode(mode) => verb::mode(mode, output),
        Verb::Fsck(fsck) => verb::fsck(fsck, output, &environment),
        Verb::Explain(explain) => verb::explain(explain, output),
        Verb::Split(split) => verb::split(split),
        Verb::Profile(profile) => verb::profile(profile, output),
        Verb::Demo(demo) => demo::demo(demo, output),
        Verb::Experiment(experiment) => verb::experiment(experiment, output),
        Verb::Docs(docs) => verb::docs(docs),
    }
}
