//! What the endpoint needs of the cache.

use crate::gateway::{ExplainedObject, ForgottenObjects, FoundObjects};
use crate::snapshot::{ProfileNote, Snapshot};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The cache, as seen by its operator. Called from the endpoint's threads, several at a time.
pub trait Control: Send + Sync + 'static {
    /// Where the cache stands. Must not block: health checks call it in the endpoint's loop.
    fn state(&self) -> State;

    /// What the cache has seen and holds. May wait for the shards, at most a second.
    ///
    /// # Errors
    /// When a shard does not answer.
    fn snapshot(&self) -> Result<Snapshot, ControlError>;

    /// Makes every answered write of the volume durable. May wait, at most the back end's timeout.
    ///
    /// # Errors
    /// When there is no such volume, or its flush failed.
    fn flush(&self, volume: &str) -> Result<(), ControlError>;

    /// Drops clean pages of the volume's range from both tiers; to the volume's end without a length.
    ///
    /// # Errors
    /// When there is no such volume or range, or it could not be done now.
    fn evict(&self, volume: &str, offset: u64, length: Option<u64>) -> Result<(), ControlError>;

    /// Splits the volume's hits by another policy from now on, until the cache stops; `disk_percent` is for `static`.
    ///
    /// # Errors
    /// When there is no such volume or policy.
    fn split(&self, volume: &str, policy: &str, disk_percent: Option<u64>) -> Result<(), ControlError>;

    /// Switches a volume that has a write-back log between `back` and `through`, until the cache stops. It returns at once; the
    /// log drains then.
    ///
    /// # Errors
    /// When there is no such volume or mode, or it has no log.
    fn mode(&self, volume: &str, mode: &str) -> Result<(), ControlError>;

    /// What is lost of the volume is accepted: it reads as what the back end has.
    ///
    /// # Errors
    /// When there is no such volume.
    fn accept_loss(&self, volume: &str) -> Result<(), ControlError>;

    /// Measures what one of the volume's paths delivers alone, by reading what is cached of it. Waits as long as it
    /// takes, at most a minute.
    ///
    /// # Errors
    /// When there is no such volume, too little of it is cached, or another measurement is under way.
    fn measure(&self, volume: &str, measure: Measure) -> Result<PathRate, ControlError>;

    /// Gives the volume's policies the profile in a file of the server's machine, until the cache stops.
    ///
    /// # Errors
    /// When there is no such volume, the file is none, or it was measured on other devices.
    fn profile(&self, volume: &str, file: &str) -> Result<ProfileNote, ControlError>;

    /// The profile of the volume's policies, with what they observed; as it is saved.
    ///
    /// # Errors
    /// When there is no such volume, or a shard does not answer.
    fn learnt(&self, volume: &str) -> Result<serde_json::Value, ControlError>;

    /// What is known of objects of the S3 gateway, and where it is. May wait for the shard.
    ///
    /// # Errors
    /// When nothing is known of any, the text is malformed, or there is no gateway.
    fn find_objects(&self, uri: &str) -> Result<FoundObjects, ControlError>;

    /// Forgets objects of the S3 gateway: the next read of each is a miss. May wait for the shard.
    ///
    /// # Errors
    /// When nothing is known of any, the text is malformed, or there is no gateway.
    fn forget_objects(&self, uri: &str) -> Result<ForgottenObjects, ControlError>;

    /// What is known of one object of the S3 gateway, and why its last answers were not cached.
    ///
    /// # Errors
    /// When nothing is known of it, the text is malformed or names several, or there is no gateway.
    fn explain_object(&self, uri: &str) -> Result<ExplainedObject, ControlError>;
}

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The back end, rather than the cache disk.
    pub is_backend: bool,
    /// Bytes of a read.
    pub block_bytes: u32,
    /// Reads in flight.
    pub in_flight: u32,
    /// How long.
    pub milliseconds: u64,
}

/// What a path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRate {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Reads that were in flight: fewer than asked for where memory has no room for them.
    pub in_flight: u32,
    /// Reads that this was seen on.
    pub reads: u64,
}

/// Where a cache stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Attaching devices; no client is served.
    #[default]
    Starting,
    /// Serving, while the slot table is still being read.
    Recovering,
    /// Serving.
    Ready,
    /// Asked to stop; bringing the cache disk up to date.
    Draining,
    /// Unable to serve.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Starting, Self::Recovering, Self::Ready, Self::Draining, Self::Failed];

    /// Its name in metrics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Recovering => "recovering",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Failed => "failed",
        }
    }

    /// Whether clients are served.
    #[must_use]
    pub fn is_serving(self) -> bool {
        matches!(self, Self::Recovering | Self::Ready)
    }
}

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Name something that exists.
    NotFound,
    /// Correct the request.
    Invalid,
    /// Not from there: the request came by way of a web page or a foreign name.
    Forbidden,
    /// Try again later.
    Temporary,
    /// Look into it: trying again will not help.
    Failed,
}

/// An error as the operator is told: the thing, the cause, the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlError {
    /// What the caller should do.
    pub kind: ErrorKind,
    /// What it is about: `volume "vm1"`.
    pub thing: String,
    /// Why it failed.
    pub cause: String,
    /// What to do next.
    pub next: String,
}

/// The body of an answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ControlError,
}

impl ControlError {
    /// An error of that kind about `thing`.
    pub fn new(kind: ErrorKind, thing: impl Into<String>, cause: impl Into<String>, next: impl Into<String>) -> Self {
        Self { kind, thing: thing.into(), cause: cause.into(), next: next.into() }
    }

    /// There is no volume of that name.
    #[must_use]
    pub fn no_volume(name: &str) -> Self {
        Self::new(
            ErrorKind::NotFound,
            format!("volume \"{name}\""),
            "there is none of that name",
            "`forebay status` lists them",
        )
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.thing, self.cause, self.next)
    }
}

impl std::error::Error for ControlError {}
