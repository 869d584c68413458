//! What each verb does. Results go to standard output, messages to standard error.

mod check;
mod docs;
mod experiment;
mod explain;
mod follow;
mod fsck;
mod objects;
mod orders;
mod profile;
mod stats;
mod status;
mod top;

pub(crate) use check::check;
pub(crate) use docs::docs;
pub use docs::pages;
pub(crate) use experiment::experiment;
pub(crate) use explain::{explain, split};
pub(crate) use fsck::fsck;
pub(crate) use objects::stat;
pub(crate) use orders::{evict, flush, mode};
pub(crate) use profile::profile;
pub(crate) use stats::stats;
pub(crate) use status::status;
pub(crate) use top::top;

use crate::admin_client::AskError;
use crate::exit::Exit;
use serde::Serialize;
use std::io::Write;

/// Prints a result. A reader that has gone away (`| head`) is no failure.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Prints a result as JSON.
pub(crate) fn print_json(data: &impl Serialize) {
    match serde_json::to_string_pretty(data) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => complain(&format!("the result cannot be written as JSON: {error}; report this as a bug")),
    }
}

/// Prints a message.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "forebay: {text}");
}

pub(crate) fn failed(error: &AskError) -> Exit {
    complain(&error.message);
    error.exit
}
