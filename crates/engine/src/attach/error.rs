//! Why a cache disk cannot be attached: each names the thing, the cause and the next step.

use std::path::PathBuf;

/// Why the device is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Tell the user what is there.
    #[error("it holds {what}: choose another device, or overwrite it with --force-format")]
    Foreign {
        /// What was recognised.
        what: &'static str,
    },
    /// Run a newer program.
    #[error(
        "it holds a cache of format version {version}, which this program does not know: run the newer program, or overwrite it with --force-format"
    )]
    Newer {
        /// The version found.
        version: u32,
    },
    /// Nothing on it can be trusted.
    #[error(
        "it holds a cache whose superblocks are both damaged: check the device, then start over with --force-format"
    )]
    Damaged,
    /// The wrong device, or the wrong back end.
    #[error(
        "its volume \"{volume}\" caches another back end (identity {was:016x}) than {backend} (identity {is:016x}): correct the configuration, or start over with --cold or --force-format"
    )]
    OtherBackend {
        /// The volume.
        volume: String,
        /// The back end configured.
        backend: String,
        /// The identity on the cache disk.
        was: u64,
        /// The identity configured.
        is: u64,
    },
    /// Serve it as before, first.
    #[error(
        "the write-back log of its volume \"{volume}\" may hold what the back end lacks, and would be dropped: start it as it was (log = \"{}MiB\", the same sizes and back end), run `forebay flush {volume} --to backend`, stop it, and then change it; or give that up with --force-format",
        bytes >> 20
    )]
    LogInUse {
        /// The volume.
        volume: String,
        /// Bytes of the log.
        bytes: u64,
    },
    /// Ask for more.
    #[error("it has {bytes} bytes, but a cache needs at least {needed}: give it more, or use smaller pages")]
    TooSmall {
        /// The size.
        bytes: u64,
        /// The least size.
        needed: u64,
    },
    /// Correct the configuration.
    #[error("a page of {bytes} bytes is not a power of two from 4096 to 262144: choose one, e.g. \"64KiB\"")]
    PageBytes {
        /// The page size.
        bytes: u32,
    },
    /// Correct the configuration.
    #[error("a cache disk serves 1 to 30 volumes, not {count}: split them over several caches")]
    VolumeCount {
        /// How many.
        count: usize,
    },
    /// Correct the configuration.
    #[error("the volume name \"{name}\" is not 1 to 56 bytes long: choose another")]
    VolumeName {
        /// The name.
        name: String,
    },
    /// Correct the configuration.
    #[error("two volumes are named \"{name}\": rename one")]
    VolumeTwice {
        /// The name.
        name: String,
    },
    /// Correct the configuration.
    #[error("the volume \"{name}\" of {bytes} bytes is too large: split it")]
    VolumeBytes {
        /// The name.
        name: String,
        /// The size.
        bytes: u64,
    },
}

/// Why a cache disk could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The device must not be touched as things stand.
    #[error("the cache disk {} is refused: {why}", path.display())]
    Refused {
        /// The device.
        path: PathBuf,
        /// Why.
        why: Refusal,
    },
    /// The device cannot be opened, read or written; nothing is served.
    #[error("the cache disk: {0}")]
    Disk(#[from] forebay_uring::Error),
    /// The state directory does not work: without it, pages that went stale could come back.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// No random numbers.
    #[error("/dev/urandom cannot be read ({0}): mount /dev")]
    Random(std::io::Error),
}
