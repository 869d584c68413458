//! Configuration: ten lines of TOML to [`Settings`], or every problem at once.
//!
//! 1. [`document`]: the file's text becomes values with places, checked key by key against the table in [`key`].
//! 2. [`scope`]: flags and environment go over it, defaults under it.
//! 3. [`rule`]: contradictions between values, and with the machine.
//! 4. [`settings`]: what is left is sound and typed.
//!
//! A problem never hides another: a bad value is reported once, where it stands, and rules that depend on it keep
//! silent. Rejected: deriving serde's `Deserialize` for the settings. It stops at the first error, knows no nearest
//! key, and would hold the defaults in a second place.

pub mod backend;
mod disk;
mod document;
mod expand;
pub mod key;
mod nearest;
mod problem;
pub mod reference;
mod rule;
mod s3_keys;
mod scope;
mod settings;
pub mod unit;
mod value;

#[cfg(test)]
mod tests;

pub use backend::Backend;
pub use disk::DiskSettings;
pub use expand::Environment;
pub use problem::{Place, Problem, Report, Severity};
pub use scope::Overrides;
pub use settings::{
    CacheSettings, LimitSettings, ListenSettings, LogSettings, Paced, S3Settings, Settings, VolumeSettings,
};

use scope::Scope;
use std::path::Path;
use unit::Complaint;

/// The largest configuration file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and checks a configuration file. The report of a sound configuration may hold warnings.
///
/// # Errors
/// The report, when it has errors.
pub fn load(file: &Path, environment: &Environment, overrides: &Overrides) -> Result<(Settings, Report), Report> {
    let name = file.display().to_string();
    match read_bounded(file) {
        Ok(text) => read(&name, &text, environment, overrides),
        Err(complaint) => {
            let mut report = Report::new(&name);
            report.error(&Place::WholeFile, complaint);
            Err(report)
        }
    }
}

/// As [`load`], with the file's text given.
///
/// # Errors
/// The report, when it has errors.
pub fn read(
    file: &str,
    text: &str,
    environment: &Environment,
    overrides: &Overrides,
) -> Result<(Settings, Report), Report> {
    let mut report = Report::new(file);
    let document = document::read(text, environment, &mut report);
    let mut given = document.given;
    given.extend(scope::environment(environment, &mut report));
    given.extend(scope::flags(overrides, &mut report));
    let global = Scope::new(Place::WholeFile, None, given);
    let entries = |list: &'static str| {
        let entries = document.entries.iter().filter(|entry| entry.list == list);
        entries.map(|it| Scope::new(it.place.clone(), Some(list), it.given.clone())).collect::<Vec<_>>()
    };
    let (volumes, policies) = (entries("volume"), entries("s3.policy"));
    if document.broken {
        return Err(report);
    }
    for scope in std::iter::once(&global).chain(&volumes).chain(&policies) {
        scope.require(&mut report);
    }
    let found = rule::check(&global, &volumes, &policies, &mut report);
    if report.has_errors() { Err(report) } else { Ok((Settings::of(&global, &volumes, &policies, found), report)) }
}

fn read_bounded(file: &Path) -> Result<String, Complaint> {
    use std::io::Read;
    let refused = |error: &dyn std::fmt::Display| {
        Complaint::new(format!("cannot be read: {error}"), "give the path of a configuration file")
    };
    let file = std::fs::File::open(file).map_err(|error| refused(&error))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| refused(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(&format!("it is larger than {}", unit::size(FILE_BYTES_MAX))));
    }
    Ok(text)
}
