//! State that lives beside the configuration and not on the cache disk: the generation number, of each write-back log
//! which regions it may have bytes of, and which sides of their mirror count.

mod counting;
mod generation;
mod region_map;
mod writing;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub use counting::{CountingError, CountingFile};
pub use generation::{GenerationFile, StateError};
pub use region_map::{LogIdentity, RegionMapError, RegionMapFile, region_map_path};

/// Replaces a small file durably: a reader sees the old one or the new one, whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}
