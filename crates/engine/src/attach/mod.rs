//! Attaching a cache disk: lock it, look at it, decide ([`plan`]), and make the decision durable before anything is
//! served.
//!
//! Blocking I/O throughout: nothing is served yet. Afterwards the open, locked file becomes a device of the shard, and
//! [`CacheDisk`] turns what the cache orders into sectors.

mod cache_disk;
mod error;
mod plan;
mod volumes;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use forebay_uring::{Arena, DiskFile, OpenOptions, Space};
use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::superblock::{Found, probe};

use crate::state::GenerationFile;
pub use cache_disk::{CacheDisk, VolumeEnd, block_checksums};
pub use error::{AttachError, Refusal};
pub use plan::{HEAD_BYTES, Identity, Notice, Plan, Wanted, Write, plan};
pub use volumes::VolumeFacts;

/// What to attach, and how.
#[derive(Clone, Debug)]
pub struct AttachOptions<'a> {
    /// A regular file, made if it is missing, or a block device.
    pub path: &'a Path,
    /// Bytes to use. `None`: all of the device, or of the file as it is.
    pub bytes: Option<u64>,
    /// Leave a file's space unallocated: for tests.
    pub sparse: bool,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The volumes, in the order of their ids.
    pub volumes: &'a [VolumeFacts],
    /// Where the generation is kept.
    pub state_directory: &'a Path,
    /// The cache's name: names the file in the state directory.
    pub name: &'a str,
    /// Start every volume empty.
    pub cold: bool,
    /// Format whatever is there.
    pub force_format: bool,
    /// Whether the write-intent maps will be kept up to date (see [`forebay_core::CacheConfig::intent_map`]).
    pub intent_map: bool,
    /// See [`Wanted::identity`].
    pub identity: Option<Identity>,
}

/// An attached cache disk.
#[derive(Debug)]
pub struct Attached {
    /// The open file; locked until it is closed.
    pub file: DiskFile,
    /// Its name, for messages.
    pub path: PathBuf,
    /// Where everything lies, and how it is encoded.
    pub disk: CacheDisk,
    /// Whether the slot table has records to be read.
    pub recover: bool,
    /// For each volume, the regions that were in flight.
    pub in_flight_regions: Vec<Vec<u64>>,
    /// The generation, to be raised when the cache disk is given up.
    pub generation: GenerationFile,
    /// What an operator should know.
    pub notices: Vec<Notice>,
}

/// Attaches: on success the disk is this cache's, marked as not clean, durably.
///
/// # Errors
/// See [`AttachError`]; the device is then unchanged, but for errors while writing it.
pub fn attach(options: &AttachOptions<'_>) -> Result<Attached, AttachError> {
    let path = options.path;
    let mut generation = GenerationFile::open(options.state_directory, options.name)?;
    let open = OpenOptions { write: true, direct: true, exclusive: true, create: options.bytes.is_some() };
    let mut file = DiskFile::open(path, open)?;
    let found_bytes = file.facts().size_bytes;
    let head = Arena::new(1, HEAD_BYTES as u32)?;
    read_head(path, &file, &head)?;
    let bytes = options.bytes.unwrap_or(found_bytes);
    let wanted = Wanted {
        page_bytes: options.page_bytes,
        device_bytes: bytes,
        volumes: options.volumes,
        generation: generation.value(),
        cold: options.cold,
        force_format: options.force_format,
        intent_map: options.intent_map,
        new_cache_id: random_id()?,
        identity: options.identity.as_ref(),
    };
    let planned = head.with_bytes(0, 0, HEAD_BYTES as u32, |head| plan(head, &wanted));
    let planned = planned.map_err(|why| AttachError::Refused { path: path.to_owned(), why })?;
    // Also when the size is right: an earlier attempt may have ended before all of the space was reserved.
    file.resize(bytes, if options.sparse { Space::Sparse } else { Space::Allocated })?;
    generation.set(planned.generation)?;
    write_all(&file, &head, &planned.writes)?;
    Ok(Attached {
        file,
        path: path.to_owned(),
        disk: planned.disk,
        recover: planned.recover,
        in_flight_regions: planned.in_flight_regions,
        generation,
        notices: planned.notices,
    })
}

/// What a cache disk holds; nothing is changed, and it need not be there.
///
/// # Errors
/// When it is there and cannot be read, or is in use: who would change anything for it finds that out first.
pub fn look(path: &Path) -> Result<Found, AttachError> {
    if !path.exists() {
        return Ok(Found::Blank);
    }
    let open = OpenOptions { write: false, direct: false, exclusive: true, create: false };
    let file = DiskFile::open(path, open)?;
    let head = Arena::new(1, HEAD_BYTES as u32)?;
    read_head(path, &file, &head)?;
    Ok(head.with_bytes(0, 0, HEAD_BYTES as u32, probe))
}

/// A number that names what a side of a mirror holds: random, and not 0.
///
/// # Errors
/// When there is no randomness.
pub fn random_side() -> Result<u64, AttachError> {
    let [a, b, c, d, e, f, g, h, ..] = random_id()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1)
}

/// Reads the head into the arena's frame; what is behind the end of a short file stays zero.
fn read_head(path: &Path, file: &DiskFile, head: &Arena) -> Result<(), AttachError> {
    let there = file.facts().size_bytes.min(HEAD_BYTES as u64) as u32;
    let sectors = there - there % SECTOR_BYTES as u32;
    if sectors > 0 {
        head.with_bytes_mut(0, 0, sectors, |bytes| file.read_at(0, bytes))?;
    }
    if there > sectors {
        // A part of a sector cannot be read directly; it may be all there is of somebody's file.
        let open = OpenOptions { write: false, direct: false, exclusive: false, create: false };
        let buffered = DiskFile::open(path, open)?;
        head.with_bytes_mut(0, sectors, there - sectors, |bytes| buffered.read_at(u64::from(sectors), bytes))?;
    }
    Ok(())
}

/// Writes the groups, each durable before the next. Buffers of direct I/O must be aligned, so they go by the arena.
fn write_all(file: &DiskFile, aligned: &Arena, groups: &[Vec<Write>]) -> Result<(), AttachError> {
    for group in groups {
        for write in group {
            aligned.copy_in(0, 0, &write.bytes);
            aligned.with_bytes(0, 0, write.bytes.len() as u32, |bytes| file.write_at(write.offset, bytes))?;
        }
        file.sync()?;
    }
    Ok(())
}

fn random_id() -> Result<[u8; 16], AttachError> {
    let mut id = [0; 16];
    let mut random = File::open("/dev/urandom").map_err(AttachError::Random)?;
    random.read_exact(&mut id).map_err(AttachError::Random)?;
    Ok(id)
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
