//! What the cache disk's path leads to, and so how large the cache disk is.

use super::unit::{Complaint, size};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The cache disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// File or block device.
    pub path: PathBuf,
    /// Its size, or that part of the device that is used.
    pub bytes: u64,
    /// Do not allocate a file at once.
    pub sparse: bool,
    /// Whether it is a block device.
    pub is_block_device: bool,
}

/// Looks at the path; nothing is created or changed. `bytes` is the size that was asked for.
///
/// # Errors
/// When it cannot be a cache disk, or its size is not known.
pub(super) fn look(path: &Path, bytes: Option<u64>, sparse: bool) -> Result<DiskSettings, Complaint> {
    let shown = path.display();
    let disk = |bytes, is_block_device| DiskSettings { path: path.to_owned(), bytes, sparse, is_block_device };
    let no_size = || Complaint::new(format!("{shown} does not exist and has no size"), "add disk_size = \"20GiB\"");
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return bytes.map(|bytes| disk(bytes, false)).ok_or_else(no_size);
        }
        Err(error) => {
            return Err(Complaint::new(
                format!("{shown} cannot be looked at: {error}"),
                "check its directory's rights",
            ));
        }
    };
    if metadata.file_type().is_block_device() {
        let device = device_bytes(path)?;
        return match bytes {
            Some(bytes) if bytes > device => Err(Complaint::new(
                format!("disk_size is {} but {shown} has {}", size(bytes), size(device)),
                "leave disk_size out to use the whole device",
            )),
            bytes => Ok(disk(bytes.unwrap_or(device), true)),
        };
    }
    if !metadata.is_file() {
        return Err(Complaint::new(format!("{shown} is neither a file nor a block device"), "name one that is"));
    }
    match bytes.unwrap_or(metadata.len()) {
        0 => Err(Complaint::new(format!("{shown} is an empty file and has no size"), "add disk_size = \"20GiB\"")),
        bytes => Ok(disk(bytes, false)),
    }
}

fn device_bytes(path: &Path) -> Result<u64, Complaint> {
    File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0))).map_err(|error| {
        Complaint::new(
            format!("the size of {} cannot be read: {error}", path.display()),
            "run as a user that may open the device",
        )
    })
}
