//! The generation: a number in a small file, raised durably before the first write that the cache disk cannot record.
//!
//! Why: when the cache disk fails, the cache goes on without it, and writes change the back end. Should the disk come
//! back at the next start, its pages are old, and it cannot know: the number beside the configuration is higher than
//! the one on the disk, so everything there is dropped.
//!
//! How: write a new file, fsync, rename it over the old one, fsync the directory. A reader sees the old or the new.
//! A file that is missing or does not parse has no value; the cache then starts cold.
//!
//! Raising is done by a thread of its own: the state directory may be on a disk that is as ill as the cache disk, and
//! the shard must go on serving hits meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_uring::Wake;

use super::replace;
use super::writing::Writer;

const HEADING: &str = "forebay generation ";
const FILE_BYTES_MAX: u64 = 64;

/// The state directory does not work.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be {done} ({source}): make the state directory exist and be writable", path.display())]
pub struct StateError {
    pub(super) path: PathBuf,
    pub(super) done: &'static str,
    pub(super) source: io::Error,
}

/// The file with the generation of one cache.
#[derive(Debug)]
pub struct GenerationFile {
    path: PathBuf,
    value: Option<u64>,
    /// To which value.
    raising: Option<u64>,
    writer: Writer,
}

impl GenerationFile {
    /// Reads `<directory>/<name>.generation`.
    ///
    /// # Errors
    /// When the directory cannot be read; a missing file is no error.
    pub fn open(directory: &Path, name: &str) -> Result<Self, StateError> {
        let path = directory.join(format!("{name}.generation"));
        let failed = |source| StateError { path: path.clone(), done: "read", source };
        let value = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => None,
            Ok(_) => parse(&fs::read(&path).map_err(failed)?),
        };
        Ok(Self { path, value, raising: None, writer: Writer::new("generation") })
    }

    /// The number, if there is one to believe.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        self.value
    }

    /// Makes `value` durable; does nothing if it is already there.
    ///
    /// # Errors
    /// When it could not be written; the old value may then still be there.
    pub fn set(&mut self, value: u64) -> Result<(), StateError> {
        if self.value != Some(value) {
            replace(&self.path, &text(value)).map_err(|source| self.not_written(source))?;
            self.value = Some(value);
        }
        Ok(())
    }

    /// Begins to raise the number by one, on a thread of its own; `wake` is called when it ended. Ask
    /// [`Self::raised`] then. Does nothing while it is being raised.
    pub fn raise(&mut self, wake: Wake) {
        if self.raising.is_some() {
            return;
        }
        let path = self.path.clone();
        let value = self.value.map_or(0, |value| value + 1);
        let raise = move || replace(&path, &text(value));
        self.raising = Some(value);
        self.writer.begin(Some(wake), raise);
    }

    /// How raising ended, once; `None` while it goes on, or when nobody asked for it.
    pub fn raised(&mut self) -> Option<Result<(), StateError>> {
        let value = self.raising?;
        let ended = self.writer.ended()?;
        self.raising = None;
        Some(ended.map(|()| self.value = Some(value)).map_err(|source| self.not_written(source)))
    }

    fn not_written(&self, source: io::Error) -> StateError {
        StateError { path: self.path.clone(), done: "written", source }
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.strip_prefix(HEADING)?.strip_suffix('\n')?.parse().ok()
}

fn text(value: u64) -> String {
    format!("{HEADING}{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_uring::{Limits, Ring};
    use std::time::{Duration, Instant};

    #[test]
    fn a_number_survives_and_anything_else_is_no_number() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = GenerationFile::open(directory.path(), "main").unwrap();
        assert_eq!(file.value(), None);
        file.set(7).unwrap();
        assert_eq!(GenerationFile::open(directory.path(), "main").unwrap().value(), Some(7));
        assert_eq!(GenerationFile::open(directory.path(), "other").unwrap().value(), None);
        for broken in
            ["", "forebay generation 7", "forebay generation x\n", "7\n", "forebay generation 77777777777777777777\n"]
        {
            fs::write(directory.path().join("main.generation"), broken).unwrap();
            assert_eq!(GenerationFile::open(directory.path(), "main").unwrap().value(), None, "{broken:?}");
        }
    }

    #[test]
    fn raising_ends_durable_and_a_failure_is_told() {
        let mut ring = Ring::new(Limits { ops_max: 8, fds_max: 8 }).unwrap();
        let wake = ring.waker(1).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut file = GenerationFile::open(directory.path(), "main").unwrap();
        file.set(7).unwrap();
        let mut raise = |file: &mut GenerationFile| {
            file.raise(wake.clone());
            let begin = Instant::now();
            let mut completions = Vec::new();
            loop {
                if let Some(ended) = file.raised() {
                    return ended;
                }
                assert!(begin.elapsed() < Duration::from_secs(10), "nobody wakes us");
                ring.wait(1, Some(forebay_uring::monotonic_ns() + 1_000_000_000), &mut completions).unwrap();
            }
        };
        raise(&mut file).unwrap();
        assert_eq!(GenerationFile::open(directory.path(), "main").unwrap().value(), Some(8));
        assert!(file.raised().is_none());
        directory.close().unwrap();
        assert!(raise(&mut file).is_err());
        assert_eq!(file.value(), Some(8));
    }
}
