//! Which sides of a mirror of write-back logs count: a small file beside the configuration.
//!
//! Why: see [`crate::devices::mirrored`]. Neither side can know that the other went on without it; this file does, before anything
//! is answered that only one of them has.
//!
//! How: four lines of text, replaced whole, as the generation is. While the cache runs that is done by a thread of its own: the
//! state directory may be on a disk that is as ill as the side that failed.
//!
//! Unlike the generation, a file that does not parse is an error: without it a side that is old could be taken for a good one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_uring::Wake;

use super::writing::Writer;
use super::{StateError, replace};
use crate::device::IoError;
use crate::devices::mirrored::{Counting, CountingStore};

const HEADING: &str = "forebay log mirror 1";
const FILE_BYTES_MAX: u64 = 1024;

/// The file does not work.
#[derive(Debug, thiserror::Error)]
pub enum CountingError {
    /// The state directory does not.
    #[error(transparent)]
    State(#[from] StateError),
    /// It cannot be believed.
    #[error(
        "{} is damaged, so nobody knows whether the write-back logs on the cache disk or on the mirror are the newest: \
         restore the file; or give up what only the logs had with --force-format, a blank mirror, and this file removed",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// See the module.
#[derive(Debug)]
pub struct CountingFile {
    path: PathBuf,
    known: Option<Counting>,
    /// On its way there.
    writing: Option<Counting>,
    writer: Writer,
    /// The last write failed, and that was told.
    fails: bool,
    wake: Option<Wake>,
}

impl CountingFile {
    /// Reads `<directory>/<name>.mirror`. `wake` is called when a write ended.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged; a missing file is no error.
    pub fn open(directory: &Path, name: &str, wake: Option<Wake>) -> Result<Self, CountingError> {
        let path = directory.join(format!("{name}.mirror"));
        let failed = |source| StateError { path: path.clone(), done: "read", source };
        let known = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error).into()),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(CountingError::Damaged { path }),
            Ok(_) => match parse(&fs::read(&path).map_err(failed)?) {
                None => return Err(CountingError::Damaged { path }),
                known => known,
            },
        };
        Ok(Self { path, known, writing: None, writer: Writer::new("log-mirror"), fails: false, wake })
    }

    /// What it says.
    #[must_use]
    pub fn known(&self) -> Option<Counting> {
        self.known
    }

    /// Makes it say this, durably; blocks. Does nothing if it says so already.
    ///
    /// # Errors
    /// When it could not be written; the old one may then still be there.
    pub fn set(&mut self, counting: Counting) -> Result<(), CountingError> {
        if self.known != Some(counting) {
            let failed = |source| StateError { path: self.path.clone(), done: "written", source };
            replace(&self.path, &text(&counting)).map_err(failed)?;
            self.known = Some(counting);
        }
        Ok(())
    }
}

fn text(counting: &Counting) -> String {
    let cache: String = counting.cache_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let side = |side: Option<u64>| side.map_or("none".to_owned(), |side| format!("{side:016x}"));
    let [disk, mirror] = counting.sides.map(side);
    format!("{HEADING}\ncache {cache}\ndisk {disk}\nmirror {mirror}\n")
}

fn parse(bytes: &[u8]) -> Option<Counting> {
    let told = std::str::from_utf8(bytes).ok()?;
    let mut lines = told.lines().skip(1);
    let mut word = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
    let cache = u128::from_str_radix(word("cache")?, 16).ok()?;
    let side = |word: &str| match word {
        "none" => Some(None),
        word => u64::from_str_radix(word, 16).ok().map(Some),
    };
    let sides = [side(word("disk")?)?, side(word("mirror")?)?];
    let counting = Counting { cache_id: cache.to_be_bytes(), sides };
    // Whatever else is in it is damage.
    (text(&counting) == told).then_some(counting)
}

impl CountingStore for CountingFile {
    fn begin(&mut self, counting: Counting) {
        assert!(self.writing.is_none(), "one write at a time");
        let path = self.path.clone();
        let write = move || replace(&path, &text(&counting));
        self.writing = Some(counting);
        self.writer.begin(self.wake.clone(), write);
    }

    fn poll(&mut self) -> Option<Result<(), IoError>> {
        let counting = self.writing?;
        let ended = self.writer.ended()?;
        self.writing = None;
        Some(match ended {
            Ok(()) => {
                (self.known, self.fails) = (Some(counting), false);
                Ok(())
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    tracing::error!(
                        "{} cannot be written ({error}): writes wait, since it must say first that one side of the log's mirror \
                         is gone; make the state directory writable",
                        self.path.display(),
                    );
                }
                Err(IoError::Failed)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTING: Counting = Counting { cache_id: *b"0123456789abcdef", sides: [Some(77), None] };

    #[test]
    fn what_was_set_is_found_again_and_anything_else_is_damage() {
        let directory = tempfile::tempdir().unwrap();
        let open = || CountingFile::open(directory.path(), "cache", None);
        let mut file = open().unwrap();
        assert_eq!(file.known(), None);
        for sides in [[Some(77), None], [Some(77), Some(u64::MAX)], [None, Some(1)]] {
            file.set(Counting { sides, ..COUNTING }).unwrap();
            assert_eq!(open().unwrap().known(), Some(Counting { sides, ..COUNTING }));
        }
        let path = directory.path().join("cache.mirror");
        let good = fs::read_to_string(&path).unwrap();
        assert_eq!(
            good,
            "forebay log mirror 1\ncache 30313233343536373839616263646566\ndisk none\nmirror 0000000000000001\n"
        );
        let cut = good.len() - 1;
        for broken in ["", "x", &good[..cut], &good[1..], &good.replace("disk", "dusk"), &format!("{good}\n")] {
            fs::write(&path, broken).unwrap();
            assert!(matches!(open(), Err(CountingError::Damaged { .. })), "{broken:?}");
        }
        fs::write(&path, "x".repeat(5000)).unwrap();
        assert!(matches!(open(), Err(CountingError::Damaged { .. })));
    }

    #[test]
    fn a_write_that_fails_says_so_and_the_next_may_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = CountingFile::open(directory.path(), "cache", None).unwrap();
        let write = |file: &mut CountingFile, counting| {
            file.begin(counting);
            loop {
                if let Some(ended) = file.poll() {
                    return ended;
                }
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        };
        let in_the_way = directory.path().join("cache.mirror.new");
        fs::create_dir(&in_the_way).unwrap();
        assert_eq!(write(&mut file, COUNTING), Err(IoError::Failed));
        assert_eq!(file.known(), None);
        fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(write(&mut file, COUNTING), Ok(()));
        assert_eq!(CountingFile::open(directory.path(), "cache", None).unwrap().known(), Some(COUNTING));
    }
}
