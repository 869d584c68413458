//! How requests and configurations fail; each kind says what the caller should do.

use core::fmt;

/// Why a request failed, as the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// Outside the volume, misaligned, empty or too long: correct the request.
    Invalid,
    /// The volume is read-only: do not write to it.
    ReadOnly,
    /// The back end failed or did not answer in time: try again later. A write may have happened in part.
    Io,
    /// More requests than the limit are in flight: try again when some are answered.
    Busy,
    /// The back end cannot do this: do without.
    Unsupported,
    /// The cache is shutting down: reconnect later.
    ShuttingDown,
}

/// Why a cache cannot be built from a configuration.
#[expect(missing_docs, reason = "the fields are named for what they are, and each group has its line")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A page is a power of two from 4 KiB to 256 KiB.
    PageBytes(u32),
    /// A volume has more pages than can be named, or none.
    VolumeBytes { volume: usize, bytes: u64 },
    /// Its space is 0 or another volume's, or its regions are not whole pages.
    Volume { volume: usize },
    /// Too few frames: at least this many are needed.
    Frames { needed: u32 },
    /// Too many volumes, slots or requests for the tables.
    TooMany(&'static str),
    /// Write-back is not available yet: choose write-through, write-around, pass-through or read-only.
    WriteBack { volume: usize },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageBytes(bytes) => {
                write!(f, "page size {bytes} is not a power of two between 4096 and 262144: choose one, e.g. \"64KiB\"")
            }
            Self::VolumeBytes { volume, bytes } => {
                write!(f, "volume {volume} of {bytes} bytes has no page or more than 2^32: use a larger page")
            }
            Self::Volume { volume } => {
                write!(
                    f,
                    "volume {volume} has no space of its own, or its regions are not whole pages: report this as a bug"
                )
            }
            Self::Frames { needed } => write!(f, "too little memory: at least {needed} page frames are needed"),
            Self::TooMany(what) => write!(f, "too many {what}: split them over several caches"),
            Self::WriteBack { volume } => {
                write!(f, "volume {volume}: write mode \"back\" is not available in this version: use \"through\"")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
