//! The seam between the program and the cache: what `serve` and `demo` need of a running one.
//!
//! A cache is one shard thread (it owns the ring, the devices and every connection) and one listener thread. The shard
//! is built on its own thread, since its ring may not move; what it found out comes back in [`Started`].

use super::backend::BackendError;
use super::control::{Profiles, Published, ShardControl};
use super::logs::LogError;
use super::shard::{self, Objects, Started};
use crate::budget;
use crate::config::{Settings, VolumeSettings};
use crate::profile::{Given, devices};
use forebay_admin::{Control, Devices};
use forebay_core::ConfigError;
use forebay_engine::attach::AttachError;
use forebay_engine::devices::paced::Pace;
use forebay_engine::shard::CommandOrder;
use forebay_engine::state::StateError;
use forebay_nbd::{Clients, Endpoint, Listener, ListenerConfig};
use forebay_s3::{CacheConfig, Gateway, GatewayConfig, GatewayError};
use forebay_uring::{DiskFile, OpenOptions};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long an orderly stop may take: flushing a slow back end, writing every sector of the table that has changed.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// How long a stop waits for back ends to follow their logs: what is not there by then is kept in the log.
const REST_MAX: Duration = Duration::from_secs(5);

/// Threads of the S3 gateway: beyond so many the shard is what they wait for.
const THREADS_MAX: usize = 8;
/// What the gateway waits for a request's head, and between two on a connection: as long as others do, since clients keep theirs.
const S3_HEAD_WITHIN: Duration = Duration::from_secs(60);

/// How to start.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartOptions {
    /// Drop what the cache disk holds.
    pub cold: bool,
    /// Overwrite a cache disk that holds something else.
    pub force_format: bool,
}

/// Why a cache did not start or stop well; the message names the thing, the cause and the next step.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cache disk.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The generation file.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another cache.
    #[error("the state directory {directory} is in use: {source}; give each cache a directory of its own")]
    StateDirectory {
        /// The directory.
        directory: String,
        /// Who uses it, or why that is not known.
        source: forebay_uring::Error,
    },
    /// A back end.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A write-back log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The ring or its memory.
    #[error(transparent)]
    Ring(#[from] forebay_uring::Error),
    /// The S3 gateway.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The NBD server.
    #[error(transparent)]
    Nbd(#[from] forebay_nbd::Error),
    /// The cache's own limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A thread.
    #[error("the shard's thread did not start: {0}; raise the limit on threads (ulimit -u)")]
    Thread(std::io::Error),
    /// The shard ended by itself.
    #[error("the shard died of a bug; its message is in the log: please report it")]
    Died,
    /// The stop was not orderly.
    #[error("the cache disk could not be brought up to date in {} s: it is partly cold at the next start", DRAIN_MAX.as_secs())]
    NotDrained,
}

/// Paces of the devices that are slowed down: they may be changed while the cache runs.
#[derive(Clone, Debug, Default)]
pub struct Paces {
    /// The cache disk's.
    pub disk: Option<Arc<Pace>>,
    /// The back ends', by volume.
    pub backends: Vec<Option<Arc<Pace>>>,
}

/// A running cache: shards, devices, the NBD server. Dropping it without [`Runtime::stop`] is a crash, which is safe.
pub struct Runtime {
    control: Arc<ShardControl>,
    listener: Listener,
    gateway: Option<Gateway>,
    thread: JoinHandle<()>,
    paces: Paces,
    /// Keeps other caches from the state directory.
    _lock: DiskFile,
}

/// Attaches back ends and cache disk, starts the shard and listens. On return clients are served.
///
/// # Errors
/// When a device cannot be attached or an address is taken; nothing is left behind.
pub fn start_runtime(settings: &Settings, options: &StartOptions) -> Result<Runtime, StartError> {
    let lock = lock_state(&settings.cache.state_dir)?;
    let clients = Clients::new(settings.limits.clients_max);
    let published = Arc::new(Mutex::new(Published::default()));
    let (tell, told) = channel();
    let devices: Vec<_> = settings.volumes.iter().map(|volume| devices::of(settings, volume)).collect();
    let given: Vec<_> = settings.volumes.iter().zip(&devices).map(|(volume, devices)| given(volume, devices)).collect();
    let notes = given.iter().map(|given| given.note.clone()).collect();
    let of_thread = (settings.clone(), *options, Arc::clone(&published));
    let run = move || shard::run(&of_thread.0, &given, of_thread.1, &of_thread.2, &tell);
    let thread = std::thread::Builder::new().name("shard".to_owned()).spawn(run).map_err(StartError::Thread)?;
    let Started { exports, inbox, commands, wake, paces, logs, objects } =
        told.recv().map_err(|_| StartError::Died)??;
    let control = Arc::new(ShardControl::new(
        settings,
        &exports,
        Profiles { devices, notes: Mutex::new(notes) },
        logs,
        published,
        (commands, wake),
    ));
    let listening = || -> Result<_, StartError> {
        let gateway = objects.map(|objects| gateway(settings, objects)).transpose()?.flatten();
        let config = ListenerConfig::new(endpoints(settings));
        Ok((Listener::start(&config, exports, vec![inbox], clients.clone())?, gateway))
    };
    match listening() {
        Ok((listener, gateway)) => {
            if let Some(gateway) = &gateway {
                control.objects.serves(gateway.operator());
            }
            control.listens(&listener, clients);
            Ok(Runtime { control, listener, gateway, thread, paces, _lock: lock })
        }
        Err(error) => {
            control.end();
            // The thread has nothing to tell: nothing was served.
            let _ = thread.join();
            Err(error)
        }
    }
}

/// The S3 gateway, as it is configured.
fn gateway(settings: &Settings, objects: Objects) -> Result<Option<Gateway>, StartError> {
    let Some(s3) = &settings.s3 else { return Ok(None) };
    let gateway = Gateway::start(GatewayConfig {
        listen: s3.listen,
        backend: s3.backend.clone(),
        authorities: s3.authorities.clone(),
        names: s3.domain.clone().into_iter().collect(),
        connections_max: s3.connections_max as usize,
        answers_within: Duration::from_nanos(s3.timeout_ns),
        head_within: S3_HEAD_WITHIN,
        verify: s3.verify.clone(),
        split_key: s3.split_key.clone(),
        threads: std::thread::available_parallelism().map_or(2, |it| it.get().min(THREADS_MAX)),
        events_token: s3.events_token.clone(),
        cache: Some(CacheConfig {
            pool: objects.pool,
            reads: objects.reads,
            space_bytes: objects.space_bytes,
            page_bytes: settings.cache.page_bytes,
            versions_max: budget::versions_max(settings.cache.memory_bytes) as usize,
            small_bytes: budget::small_bytes(settings.cache.memory_bytes) as usize,
            metadata_ttl: Duration::from_nanos(s3.metadata_ttl_ns),
            policies: s3.policies.clone(),
        }),
    })?;
    tracing::info!(address = %gateway.address(), store = s3.backend, "the S3 gateway listens");
    Ok(Some(gateway))
}

/// The profile that a volume is configured to have.
fn given(volume: &VolumeSettings, devices: &Devices) -> Given {
    let Some(file) = &volume.profile else { return Given::default() };
    let given = Given::from(file, devices);
    let word = given.note.as_ref().map_or("", |note| note.note.as_str());
    match given.refused() {
        Some(why) => tracing::error!(volume = volume.name, "the profile is not used: {why}"),
        None if !word.is_empty() => tracing::warn!(volume = volume.name, "the profile is used, though {word}"),
        None => {}
    }
    given
}

fn lock_state(directory: &Path) -> Result<DiskFile, StartError> {
    let options = OpenOptions { write: true, direct: false, exclusive: true, create: true };
    let locked = DiskFile::open(&directory.join("lock"), options);
    locked.map_err(|source| StartError::StateDirectory { directory: directory.display().to_string(), source })
}

fn endpoints(settings: &Settings) -> Vec<Endpoint> {
    let unix = settings.listen.unix.iter().map(|path| Endpoint::Unix { path: path.clone(), mode: 0o600 });
    let tcp = settings.listen.tcp.iter().map(|address| Endpoint::Tcp(*address));
    unix.chain(tcp).collect()
}

impl Runtime {
    /// The cache as the admin endpoint sees it.
    #[must_use]
    pub fn control(&self) -> Arc<dyn Control> {
        Arc::clone(&self.control) as Arc<dyn Control>
    }

    /// The paces of its devices.
    #[must_use]
    pub fn paces(&self) -> &Paces {
        &self.paces
    }

    /// Takes no new client, brings the cache disk up to date, marks it clean and ends the shards.
    ///
    /// # Errors
    /// When the cache disk could not be brought up to date; it is then cold or partly cold at the next start.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.listener.stop();
        drop(self.gateway.take());
        self.control.rest_logs(REST_MAX);
        let drained = self.control.order(CommandOrder::Drain, DRAIN_MAX);
        self.control.end();
        self.thread.join().map_err(|_| StartError::Died)?;
        match drained {
            Ok(Ok(())) => Ok(()),
            _ => Err(StartError::NotDrained),
        }
    }
}
