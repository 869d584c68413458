//! The region map of a volume's write-back log: a file beside the configuration, that outlives the log's disk.
//!
//! Why: see [`forebay_core::log::logged::RegionImage`]. Each write is durable before the change that needs it is answered.
//!
//! How: two copies of [`forebay_wire::disk::region_map`], written in turn, so that a torn write spares the last one. A write is a
//! `pwrite` and an `fdatasync` on a thread of its own: the state directory may be on a disk that is as ill as the log's, and
//! the shard must go on serving meanwhile. After a write that failed the same copy is written again.
//!
//! Cost: 1 bit for each MiB of the volume, so 128 KiB a write for 1 TiB: .4 ms on a disk whose flush costs nothing, 3 ms for 16 TiB. At most
//! one write is under way.
//!
//! If neither copy can be believed, nobody knows what the back end lacks: the map is not begun anew until somebody accepts
//! that ([`RegionMapFile::accept_loss`]).
//!
//! Limits: whoever loses the state directory and the log's disk at once is not told what is lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::log::Tail;
use forebay_core::log::logged::{LostExtent, LostExtents, RegionImage, RegionSet};
use forebay_uring::Wake;
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::region_map::{COPY_BYTES_MAX, Found, LOST_MAX, Lost, RegionMap, copy_bytes, newest};

use super::StateError;
use super::writing::Writer;
use crate::device::IoError;
use crate::devices::logged::{KnownRegions, RegionStore};

/// What is lost fits its map.
const _: () = assert!(LOST_MAX == forebay_core::log::logged::LOST_MAX as usize);

/// Whose log a map is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The cache's.
    pub cache_id: [u8; 16],
    /// The volume's number there.
    pub space: u32,
    /// The volume's size.
    pub volume_sectors: u64,
}

/// A region map does not work.
#[derive(Debug, thiserror::Error)]
pub enum RegionMapError {
    /// The state directory does not.
    #[error(transparent)]
    State(#[from] StateError),
    /// Neither copy can be believed.
    #[error(
        "{} is damaged: what the back end lacks cannot be told if the log is lost, too; \
         look at the volume's data, then accept with `forebay fsck --accept-loss`",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// See the module.
#[derive(Debug)]
pub struct RegionMapFile {
    path: PathBuf,
    file: Arc<File>,
    volume: String,
    identity: LogIdentity,
    /// Of the copy that is good.
    sequence: u64,
    known: KnownRegions,
    is_writing: bool,
    writer: Writer,
    /// The last write failed, and that was told.
    fails: bool,
    wake: Option<Wake>,
}

/// The file of a volume's map. What a file's name may not have is written as `%` and two digits.
#[must_use]
pub fn region_map_path(directory: &Path, volume: &str) -> PathBuf {
    let mut name = String::new();
    for byte in volume.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    directory.join(format!("{name}.regions"))
}

fn read_copies(file: &File) -> io::Result<Found> {
    let length = file.metadata()?.len();
    let copy = |nth: u64| -> io::Result<Vec<u8>> {
        let begin = nth * COPY_BYTES_MAX as u64;
        let mut bytes = vec![0; length.saturating_sub(begin).min(SECTOR_BYTES as u64) as usize];
        file.read_exact_at(&mut bytes, begin)?;
        if let Some(all) = copy_bytes(&bytes) {
            bytes.resize(all.min(length.saturating_sub(begin) as usize), 0);
            file.read_exact_at(&mut bytes, begin)?;
        }
        Ok(bytes)
    };
    Ok(newest([&copy(0)?, &copy(1)?]))
}

fn image_of(map: &RegionMap) -> RegionImage {
    let mut lost = LostExtents::default();
    map.lost.iter().for_each(|it| lost.insert(it.first..it.end, it.epoch));
    RegionImage {
        life: map.life,
        tail: map.tail.map(|[position, first, life]| Tail { position, first, life }),
        dirty: RegionSet::from_words(map.volume_sectors, &map.words),
        lost,
    }
}

fn map_of(image: &RegionImage, identity: &LogIdentity, volume: &str, sequence: u64) -> RegionMap {
    // Where there are many, they may reach behind the volume's end.
    let lost = |LostExtent { sectors, epoch }| {
        let end = sectors.end.min(identity.volume_sectors);
        (sectors.start < end).then_some(Lost { first: sectors.start, end, epoch })
    };
    RegionMap {
        sequence,
        cache_id: identity.cache_id,
        space: identity.space,
        volume: volume.to_owned(),
        volume_sectors: identity.volume_sectors,
        life: image.life,
        tail: image.tail.map(|tail| [tail.position, tail.first, tail.life]),
        words: image.dirty.words().to_vec(),
        lost: image.lost.iter().filter_map(lost).collect(),
    }
}

fn write_durably(file: &File, map: &RegionMap) -> io::Result<()> {
    file.write_all_at(&map.encode(), map.offset())?;
    file.sync_data()
}

/// What a volume's file says, whoever's log it is about.
enum Opened {
    Blank,
    Map(RegionMap),
    Damaged,
}

fn open(path: &Path) -> Result<(File, Opened), RegionMapError> {
    let failed = |done| move |source| StateError { path: path.to_owned(), done, source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).map_err(failed("opened"))?;
    let opened = match read_copies(&file).map_err(failed("read"))? {
        Found::Blank => {
            // So that it is there under its name whatever is written to it.
            let directory = path.parent().ok_or_else(|| failed("created")(io::ErrorKind::NotFound.into()))?;
            let durable = file.sync_all().and_then(|()| File::open(directory)?.sync_all());
            durable.map_err(failed("created"))?;
            Opened::Blank
        }
        Found::Map(map) => Opened::Map(map),
        Found::Damaged => Opened::Damaged,
    };
    Ok((file, opened))
}

impl RegionMapFile {
    /// Opens `<directory>/<volume>.regions`, or makes it. `wake` is called when a write ended.
    ///
    /// # Errors
    /// When the directory does not work, or the file is damaged.
    pub fn open(
        directory: &Path,
        volume: &str,
        identity: LogIdentity,
        wake: Option<Wake>,
    ) -> Result<Self, RegionMapError> {
        let path = region_map_path(directory, volume);
        let (file, opened) = open(&path)?;
        let (sequence, known) = match opened {
            Opened::Damaged => return Err(RegionMapError::Damaged { path }),
            Opened::Blank => (0, KnownRegions::None),
            Opened::Map(map) => {
                let is_same = (map.cache_id, map.space) == (identity.cache_id, identity.space);
                let image = image_of(&map);
                (map.sequence, if is_same { KnownRegions::Same(image) } else { KnownRegions::OfAnother(image) })
            }
        };
        let (file, volume) = (Arc::new(file), volume.to_owned());
        let mut writer = Writer::new("region-map");
        writer.start();
        Ok(Self { path, file, volume, identity, sequence, known, is_writing: false, writer, fails: false, wake })
    }

    /// What the file of a volume that nobody serves says is lost, and which regions may have bytes that only its log has; `None`
    /// when there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub fn found(directory: &Path, volume: &str) -> Result<Option<RegionImage>, RegionMapError> {
        let path = region_map_path(directory, volume);
        let failed = |source| StateError { path: path.clone(), done: "read", source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        match read_copies(&file).map_err(failed)? {
            Found::Blank => Ok(None),
            Found::Map(map) => Ok(Some(image_of(&map))),
            Found::Damaged => Err(RegionMapError::Damaged { path }),
        }
    }

    /// Accepts what the file of a volume that nobody serves says is lost: its sectors read as what the back end has. A damaged file
    /// is begun anew, and what it said is lost with it. Returns what was lost, if that is known.
    ///
    /// Regions that only the log may have stay: if its disk is lost, they are lost when the volume is next opened. `gives_up_log`:
    /// they go, too, and the log is not believed if it comes back.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn accept_loss(
        directory: &Path,
        volume: &str,
        gives_up_log: bool,
    ) -> Result<Option<LostExtents>, RegionMapError> {
        let path = region_map_path(directory, volume);
        if !path.exists() {
            return Ok(Some(LostExtents::default()));
        }
        let failed = |source| StateError { path: path.clone(), done: "written", source };
        match open(&path)? {
            (_, Opened::Blank) => Ok(Some(LostExtents::default())),
            (file, Opened::Map(map)) => {
                let mut accepted = RegionMap { sequence: map.sequence + 1, lost: Vec::new(), ..map.clone() };
                if gives_up_log {
                    accepted.words.fill(0);
                    (accepted.life, accepted.tail) = (map.life + 1, None);
                }
                write_durably(&file, &accepted).map_err(failed)?;
                Ok(Some(image_of(&map).lost))
            }
            (file, Opened::Damaged) => {
                file.set_len(0).and_then(|()| file.sync_all()).map_err(failed)?;
                Ok(None)
            }
        }
    }
}

impl RegionStore for RegionMapFile {
    fn known(&self) -> &KnownRegions {
        &self.known
    }

    fn volume(&self) -> &str {
        &self.volume
    }

    fn begin(&mut self, image: RegionImage) {
        assert!(!self.is_writing, "one write at a time");
        let map = map_of(&image, &self.identity, &self.volume, self.sequence + 1);
        let file = Arc::clone(&self.file);
        let write = move || write_durably(&file, &map);
        self.is_writing = true;
        self.writer.begin(self.wake.clone(), write);
    }

    fn poll(&mut self) -> Option<Result<(), IoError>> {
        if !self.is_writing {
            return None;
        }
        let ended = self.writer.ended()?;
        self.is_writing = false;
        Some(match ended {
            Ok(()) => {
                self.sequence += 1;
                self.fails = false;
                Ok(())
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    tracing::error!(
                        volume = self.volume,
                        "{} cannot be written ({error}): the write-back log takes no new regions, and writes there go past it; \
                         make the state directory writable",
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
    use std::time::{Duration, Instant};

    const IDENTITY: LogIdentity = LogIdentity { cache_id: [3; 16], space: 2, volume_sectors: 1 << 20 };

    fn image(regions: &[u64], lost: &[std::ops::Range<u64>]) -> RegionImage {
        let mut image = RegionImage::new(4, IDENTITY.volume_sectors);
        regions.iter().for_each(|region| assert!(image.dirty.insert(*region)));
        lost.iter().for_each(|sectors| image.lost.insert(sectors.clone(), Some(1)));
        image
    }

    fn write(file: &mut RegionMapFile, image: &RegionImage) -> Result<(), IoError> {
        file.begin(image.clone());
        let begin = Instant::now();
        loop {
            if let Some(ended) = file.poll() {
                return ended;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not end");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn reopened(directory: &Path) -> KnownRegions {
        RegionMapFile::open(directory, "a/b", IDENTITY, None).unwrap().known
    }

    #[test]
    fn what_was_written_is_found_again_and_of_another_log_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = RegionMapFile::open(directory.path(), "a/b", IDENTITY, None).unwrap();
        assert_eq!(file.known, KnownRegions::None);
        assert_eq!(reopened(directory.path()), KnownRegions::None);
        for nth in 1..5 {
            let image = image(&[nth, 17], &[5..9, 20..21]);
            write(&mut file, &image).unwrap();
            assert_eq!(reopened(directory.path()), KnownRegions::Same(image.clone()));
            let other = LogIdentity { cache_id: [4; 16], ..IDENTITY };
            let other = RegionMapFile::open(directory.path(), "a/b", other, None).unwrap();
            assert_eq!(other.known, KnownRegions::OfAnother(image.clone()));
            assert_eq!(RegionMapFile::found(directory.path(), "a/b").unwrap(), Some(image));
        }
        assert_eq!(RegionMapFile::found(directory.path(), "a").unwrap(), None);
    }

    #[test]
    fn a_torn_write_leaves_the_last_map_and_two_torn_ones_are_not_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = region_map_path(directory.path(), "a/b");
        let mut file = RegionMapFile::open(directory.path(), "a/b", IDENTITY, None).unwrap();
        let [first, second] = [image(&[1], &[]), image(&[1, 2, 3], &[7..8, 20..21])];
        write(&mut file, &first).unwrap();
        write(&mut file, &second).unwrap();
        let disk = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut copy = vec![0; map_of(&second, &IDENTITY, "a/b", 2).encode().len()];
        disk.read_exact_at(&mut copy, 0).unwrap();
        for torn in 0..=copy.len() {
            disk.write_all_at(&[0; SECTOR_BYTES], 0).unwrap();
            disk.write_all_at(&copy[..torn], 0).unwrap();
            let known = reopened(directory.path());
            let is_whole = copy[torn..].iter().all(|byte| *byte == 0);
            assert_eq!(
                known,
                KnownRegions::Same(if is_whole { second.clone() } else { first.clone() }),
                "torn at {torn}"
            );
        }
        disk.write_all_at(&[77], 9).unwrap();
        disk.write_all_at(&[77], COPY_BYTES_MAX as u64 + 9).unwrap();
        let opened = RegionMapFile::open(directory.path(), "a/b", IDENTITY, None);
        assert!(matches!(opened, Err(RegionMapError::Damaged { .. })));
        assert!(matches!(RegionMapFile::found(directory.path(), "a/b"), Err(RegionMapError::Damaged { .. })));
        assert_eq!(RegionMapFile::accept_loss(directory.path(), "a/b", false).unwrap(), None);
        assert_eq!(reopened(directory.path()), KnownRegions::None);
    }

    #[test]
    fn a_write_that_fails_says_so_and_the_same_copy_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = RegionMapFile::open(directory.path(), "a/b", IDENTITY, None).unwrap();
        write(&mut file, &image(&[1], &[])).unwrap();
        let good = std::mem::replace(&mut file.file, Arc::new(File::open(&file.path).unwrap()));
        assert_eq!(write(&mut file, &image(&[2], &[])), Err(IoError::Failed));
        assert_eq!(reopened(directory.path()), KnownRegions::Same(image(&[1], &[])));
        file.file = good;
        write(&mut file, &image(&[3], &[])).unwrap();
        assert_eq!(reopened(directory.path()), KnownRegions::Same(image(&[3], &[])));
    }

    #[test]
    fn what_is_accepted_is_no_longer_lost_and_what_the_log_may_have_stays() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = RegionMapFile::open(directory.path(), "a/b", IDENTITY, None).unwrap();
        write(&mut file, &image(&[9], &[1..5, 7..8])).unwrap();
        drop(file);
        let lost = RegionMapFile::accept_loss(directory.path(), "a/b", false).unwrap().unwrap();
        assert_eq!(lost.iter().map(|it| it.sectors).collect::<Vec<_>>(), [1..5, 7..8]);
        assert_eq!(reopened(directory.path()), KnownRegions::Same(image(&[9], &[])));
    }
}
