//! The file: JSON, one object.

use forebay_admin::Devices;
use forebay_policy::split::profile::{Point, Profile, Row, Source};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Of the format.
const VERSION: u32 = 1;
/// A file of 128 points is 20 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A saved profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileFile {
    /// Of the format.
    version: u32,
    /// The volume that it was measured on.
    pub(crate) volume: String,
    /// When, in seconds since 1970.
    pub(crate) measured_unix_seconds: u64,
    /// The devices that it was measured on.
    pub(crate) devices: Devices,
    /// Requests of clients that were answered meanwhile: with many, the paths look slower than they are.
    pub(crate) client_requests: u64,
    /// How far interpolated figures may be off; `None` if all were measured.
    pub(crate) quick_error: Option<QuickError>,
    rows: Vec<FileRow>,
}

/// What the measured figures say of interpolating, each left out in turn: off by these parts of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuickError {
    pub(crate) median: f64,
    pub(crate) max: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    block_bytes: u32,
    in_flight: u32,
    submitters: u32,
    disk_bytes_per_second: f64,
    backend_bytes_per_second: f64,
    source: FileSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileSource {
    Measured,
    Interpolated,
    Observed,
}

impl QuickError {
    /// `None` of no errors.
    pub(crate) fn of(mut errors: Vec<f64>) -> Option<Self> {
        errors.sort_by(f64::total_cmp);
        Some(Self { median: *errors.get(errors.len() / 2)?, max: *errors.last()? })
    }
}

impl ProfileFile {
    /// Now, of that volume.
    pub(crate) fn new(
        volume: &str,
        devices: &Devices,
        client_requests: u64,
        quick_error: Option<QuickError>,
        profile: &Profile,
    ) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            version: VERSION,
            volume: volume.to_owned(),
            measured_unix_seconds: since_1970.map_or(0, |passed| passed.as_secs()),
            devices: devices.clone(),
            client_requests,
            quick_error,
            rows: profile.rows().map(FileRow::from).collect(),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// The file, why it is no profile, and what to do.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |why: String| format!("{}: {why}; measure it with `forebay profile`", path.display());
        let is_long = fs::metadata(path).map_err(|error| named(error.to_string()))?.len() > FILE_BYTES_MAX;
        if is_long {
            return Err(named(format!("it is longer than {FILE_BYTES_MAX} bytes, and so no profile")));
        }
        let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let read: Self = serde_json::from_str(&text).map_err(|error| named(format!("it is no profile: {error}")))?;
        if read.version != VERSION {
            return Err(named(format!("its format is {}, this program reads {VERSION}", read.version)));
        }
        read.profile().map_err(named)?;
        Ok(read)
    }

    /// Whether it could be written there: to know before it is measured.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) fn try_write(path: &Path) -> Result<(), String> {
        let beside = beside(path);
        fs::write(&beside, "").and_then(|()| fs::remove_file(&beside)).map_err(|error| not_written(path, &error))
    }

    /// Writes it in one piece: the file is the old one or the new one.
    ///
    /// # Errors
    /// The file, the cause, and what to do.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let named = |error: std::io::Error| not_written(path, &error);
        let text = serde_json::to_string_pretty(self).map_err(|error| named(error.into()))? + "\n";
        let beside = beside(path);
        fs::write(&beside, text).map_err(named)?;
        fs::rename(&beside, path).map_err(named)
    }

    /// As the policies take it.
    ///
    /// # Errors
    /// Which row is none, from 1.
    pub(crate) fn profile(&self) -> Result<Profile, String> {
        let rows = self.rows.iter().map(Row::from);
        Profile::from_rows(rows).map_err(|(row, error)| format!("its row {} cannot be: {error:?}", row + 1))
    }
}

/// Where it is written before it takes its place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn not_written(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; name another file with --out", path.display())
}

impl From<Row> for FileRow {
    fn from(row: Row) -> Self {
        Self {
            block_bytes: row.point.block_bytes,
            in_flight: row.point.in_flight,
            submitters: row.point.submitters,
            disk_bytes_per_second: row.bytes_per_second[0],
            backend_bytes_per_second: row.bytes_per_second[1],
            source: match row.source {
                Source::Measured => FileSource::Measured,
                Source::Interpolated => FileSource::Interpolated,
                Source::Observed => FileSource::Observed,
            },
        }
    }
}

impl From<&FileRow> for Row {
    fn from(row: &FileRow) -> Self {
        Self {
            point: Point { block_bytes: row.block_bytes, in_flight: row.in_flight, submitters: row.submitters },
            bytes_per_second: [row.disk_bytes_per_second, row.backend_bytes_per_second],
            source: match row.source {
                FileSource::Measured => Source::Measured,
                FileSource::Interpolated => Source::Interpolated,
                FileSource::Observed => Source::Observed,
            },
        }
    }
}
