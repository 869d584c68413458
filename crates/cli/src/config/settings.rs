//! A configuration without problems, as the program uses it.

use super::backend::Backend;
use super::disk::DiskSettings;
use super::rule::Found;
use super::scope::Scope;
use crate::budget::{Budget, Demand, Logs};
use forebay_core::log::logged::{Bypass, Durability, LogPolicy, OnLag};
use forebay_core::{AdmissionConfig, Limits, SplitConfig, SplitKind, WriteMode};
use forebay_objects::{Pattern, PolicyRow, Token};
use forebay_policy::evict::PolicyKind;
use forebay_s3::{Authorities, VerifyConfig};
use forebay_signature::StoreKey;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Bytes of a log of which no size is said.
const LOG_BYTES_DEFAULT: u64 = 1 << 30;

/// Everything that was configured. What each field means is in the table of keys.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cache.
    pub cache: CacheSettings,
    /// Which pages the disk tier takes.
    pub admission: AdmissionConfig,
    /// Where the NBD server listens.
    pub listen: ListenSettings,
    /// Where the admin endpoint listens, if it does.
    pub admin: Option<SocketAddr>,
    /// The S3 gateway, if there is one.
    pub s3: Option<S3Settings>,
    /// Limits of the server.
    pub limits: LimitSettings,
    /// The log.
    pub log: LogSettings,
    /// The volumes; at least one, or there is a gateway.
    pub volumes: Vec<VolumeSettings>,
}

/// `[cache]`.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// The cache disk, if there is one.
    pub disk: Option<DiskSettings>,
    /// The mirror of the write-back logs, if there is one.
    pub log_mirror: Option<PathBuf>,
    /// Slows the cache disk down.
    pub paced: Option<Paced>,
    /// All memory.
    pub memory_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Directory of the generation number and the lock.
    pub state_dir: PathBuf,
    /// Eviction of the memory tier.
    pub memory_policy: PolicyKind,
    /// Eviction of the disk tier.
    pub disk_policy: PolicyKind,
    /// Whether regions in flight are recorded; unsafe when false.
    pub intent_map: bool,
}

/// `[listen]`; at least one is there, if there is a volume.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Unix socket.
    pub unix: Option<PathBuf>,
    /// TCP address.
    pub tcp: Option<SocketAddr>,
}

/// `[s3]`.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The store: `http://host:port` or `https://host:port`.
    pub backend: String,
    /// Who may vouch for it over TLS, beside the machine's authorities.
    pub authorities: Option<Authorities>,
    /// The name that buckets may stand before.
    pub domain: Option<String>,
    /// Who may what, where the gateway says so itself.
    pub verify: Option<VerifyConfig>,
    /// How long the store's yes is believed.
    pub metadata_ttl_ns: u64,
    /// Connections at one time.
    pub connections_max: u32,
    /// The store begins to answer within this time.
    pub timeout_ns: u64,
    /// Of who tells of changes past the gateway.
    pub events_token: Option<Token>,
    /// How hits of objects on the cache disk are split.
    pub split: SplitConfig,
    /// With which the store is read for them.
    pub split_key: Option<StoreKey>,
    /// How some objects are treated, the first row first.
    pub policies: Vec<PolicyRow>,
}

/// `[limits]`.
#[derive(Clone, Debug)]
pub struct LimitSettings {
    /// NBD connections at one time.
    pub clients_max: u32,
    /// The cache's own limits.
    pub cache: Limits,
}

/// `[log]`.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// The least severe level that is logged: error, warn, info, debug or trace.
    pub level: &'static str,
    /// JSON lines instead of text.
    pub json: bool,
}

/// `[[volume]]`.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Its name, and that of its export.
    pub name: String,
    /// Where its truth is.
    pub backend: Backend,
    /// How it treats writes; one that this version has.
    pub mode: WriteMode,
    /// Bytes of its write-back log; 0: none.
    pub log_bytes: u64,
    /// What is promised of it in write-back.
    pub log_policy: LogPolicy,
    /// Its share of the cache disk.
    pub weight: u32,
    /// Connections to an NBD back end.
    pub connections: u32,
    /// Deadline of a request to the back end.
    pub timeout_ns: u64,
    /// How its hits on the cache disk are split.
    pub split: SplitConfig,
    /// What its paths deliver, for policies that need to know.
    pub profile: Option<PathBuf>,
    /// Slows the back end down.
    pub paced: Option<Paced>,
}

/// How slow a paced device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Bytes a second; `None`: as fast as it is.
    pub rate_bytes_per_s: Option<u64>,
    /// Delay of every operation.
    pub latency_ns: u64,
}

impl Settings {
    /// Volumes behind NBD.
    #[must_use]
    pub fn nbd_volumes(&self) -> u64 {
        self.volumes.iter().filter(|volume| volume.backend.is_nbd()).count() as u64
    }

    /// What is asked of the memory.
    #[must_use]
    pub fn demand(&self) -> Demand {
        Demand {
            memory_bytes: self.cache.memory_bytes,
            page_bytes: u64::from(self.cache.page_bytes),
            clients_max: u64::from(self.limits.clients_max),
            requests_max: u64::from(self.limits.cache.requests_max),
            disk_bytes: self.cache.disk.as_ref().map(|disk| disk.bytes),
            nbd_volumes: self.nbd_volumes(),
            logs: Logs::of(self.volumes.iter().map(|volume| volume.log_bytes)),
            s3_connections: self.s3.as_ref().map_or(0, |s3| u64::from(s3.connections_max)),
        }
    }

    /// How the memory is divided.
    ///
    /// # Panics
    /// Never for settings that were checked: memory that is too small is an error of the configuration.
    #[must_use]
    pub fn budget(&self) -> Budget {
        Budget::of(&self.demand()).unwrap_or_else(|error| panic!("checked settings have too little memory: {error:?}"))
    }

    /// The settings of scopes that were found to be without problems.
    ///
    /// # Panics
    /// When they are not.
    pub(super) fn of(global: &Scope, volumes: &[Scope], policies: &[Scope], found: Found) -> Self {
        let number = |path| sound(path, global.number(path));
        let policy = |path| {
            let name = sound(path, global.choice(path));
            name.parse::<PolicyKind>().unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let s3 = S3Settings::of(global, policies, found.verify, found.authorities, found.split_key);
        Self {
            cache: CacheSettings {
                disk: found.disk,
                log_mirror: global.path("cache.log_mirror").map(Into::into),
                paced: Paced::of(global, "cache.paced.rate", "cache.paced.latency"),
                memory_bytes: number("cache.memory"),
                page_bytes: number("cache.page") as u32,
                state_dir: sound("cache.state_dir", global.path("cache.state_dir")).to_owned(),
                memory_policy: policy("cache.memory_policy"),
                disk_policy: policy("cache.disk_policy"),
                intent_map: sound("cache.intent_map", global.flag("cache.intent_map")),
            },
            admission: AdmissionConfig {
                second_access: global.choice("admission.policy") == Some("second-access"),
                sequential_cutoff_bytes: number("admission.sequential_cutoff"),
            },
            listen: ListenSettings {
                unix: global.path("listen.unix").map(Into::into),
                tcp: global.address("listen.tcp"),
            },
            admin: global.address("admin.listen"),
            limits: LimitSettings {
                clients_max: number("limits.clients_max") as u32,
                cache: Limits {
                    requests_max: number("limits.requests_max") as u32,
                    hedge_floor_ns: number("limits.hedge_after"),
                    disk_errors_max: number("limits.disk_errors_max") as u32,
                    disk_timeout_ns: number("limits.disk_timeout"),
                    backend_timeout_ns: backend_timeout_ns(s3.as_ref(), volumes),
                    ..Limits::default()
                },
            },
            log: LogSettings {
                level: sound("log.level", global.choice("log.level")),
                json: global.choice("log.format") == Some("json"),
            },
            volumes: volumes.iter().map(VolumeSettings::of).collect(),
            s3,
        }
    }
}

/// The cache has one deadline for all; a back end's own is its device's. A store that hits are not split over is not the cache's.
fn backend_timeout_ns(s3: Option<&S3Settings>, volumes: &[Scope]) -> u64 {
    let of_volumes = volumes.iter().filter_map(|volume| volume.number("volume.timeout"));
    let of_store = s3.filter(|s3| s3.split.kind != SplitKind::Off).map(|s3| s3.timeout_ns);
    of_volumes.chain(of_store).max().unwrap_or(0)
}

impl S3Settings {
    fn of(
        global: &Scope,
        policies: &[Scope],
        verify: Option<VerifyConfig>,
        authorities: Option<Authorities>,
        split_key: Option<StoreKey>,
    ) -> Option<Self> {
        let number = |path| sound(path, global.number(path));
        // Nobody but a client could sign what is read.
        let split = if split_key.is_some() { split_of(global, OBJECT_SPLIT) } else { SplitConfig::default() };
        Some(Self {
            listen: global.address("s3.listen")?,
            backend: sound("s3.backend", global.name("s3.backend")).to_owned(),
            domain: global.name("s3.domain").map(Into::into),
            verify,
            authorities,
            metadata_ttl_ns: number("s3.metadata_ttl"),
            connections_max: number("s3.connections_max") as u32,
            timeout_ns: number("s3.timeout"),
            events_token: global.name("s3.events_token").map(Token::of),
            split,
            split_key,
            policies: policies.iter().map(policy_of).collect(),
        })
    }
}

fn policy_of(scope: &Scope) -> PolicyRow {
    PolicyRow {
        pattern: sound("s3.policy.match", scope.name("s3.policy.match").and_then(Pattern::of)),
        cache: scope.flag("s3.policy.cache"),
        metadata_ttl_ns: scope.number("s3.policy.metadata_ttl"),
        write: scope.choice("s3.policy.write").and_then(forebay_objects::WriteMode::of),
    }
}

impl Paced {
    /// `None` if neither is given.
    fn of(scope: &Scope, rate: &'static str, latency: &'static str) -> Option<Self> {
        let (rate_bytes_per_s, latency_ns) = (scope.number(rate), scope.number(latency));
        let given = rate_bytes_per_s.is_some() || latency_ns.is_some();
        given.then(|| Self { rate_bytes_per_s, latency_ns: latency_ns.unwrap_or(0) })
    }
}

impl VolumeSettings {
    fn of(scope: &Scope) -> Self {
        let number = |path| sound(path, scope.number(path));
        Self {
            name: sound("volume.name", scope.name("volume.name")).to_owned(),
            backend: sound("volume.backend", scope.backend("volume.backend")).clone(),
            mode: sound("volume.mode", scope.choice("volume.mode").and_then(WriteMode::from_name)),
            log_bytes: log_bytes(scope),
            log_policy: log_policy(scope),
            weight: number("volume.weight") as u32,
            connections: number("volume.connections") as u32,
            timeout_ns: number("volume.timeout"),
            split: split_of(scope, VOLUME_SPLIT),
            profile: scope.path("volume.split.profile").map(Into::into),
            paced: Paced::of(scope, "volume.paced.rate", "volume.paced.latency"),
        }
    }
}

/// Bytes of a volume's log. A log is whole MiB, so that what lies on the cache disk is aligned.
pub(super) fn log_bytes(volume: &Scope) -> u64 {
    let default = if volume.choice("volume.mode") == Some("back") { LOG_BYTES_DEFAULT } else { 0 };
    volume.number("volume.log").map_or(default, |bytes| bytes & !((1 << 20) - 1))
}

fn log_policy(volume: &Scope) -> LogPolicy {
    let level = |path| if volume.choice(path) == Some("backend") { Durability::Backend } else { Durability::Local };
    let bytes_min = sound("volume.bypass_min", volume.number("volume.bypass_min"));
    let bypass =
        if volume.choice("volume.bypass") == Some("large") { Bypass::Large { bytes_min } } else { Bypass::Never };
    LogPolicy {
        durability: level("volume.durability"),
        fua: level("volume.fua"),
        bypass,
        lag_max_ns: sound("volume.lag_max", volume.number("volume.lag_max")),
        on_lag: if volume.choice("volume.on_lag") == Some("stall") { OnLag::Stall } else { OnLag::Continue },
        ..LogPolicy::LOCAL
    }
}

/// The keys of a split: its policy, the share of a static one, its budget.
pub(super) type SplitKeys = [&'static str; 3];
pub(super) const VOLUME_SPLIT: SplitKeys =
    ["volume.split.policy", "volume.split.disk_percent", "volume.split.backend_bytes_per_second_max"];
pub(super) const OBJECT_SPLIT: SplitKeys =
    ["s3.split.policy", "s3.split.disk_percent", "s3.split.backend_bytes_per_second_max"];

fn split_of(scope: &Scope, [policy, disk_percent, budget]: SplitKeys) -> SplitConfig {
    let disk_permil = scope.number(disk_percent).map_or(1000, |percent| percent as u16 * 10);
    let kind = scope.choice(policy).and_then(|name| SplitKind::from_name(name, disk_permil));
    SplitConfig { kind: sound(policy, kind), backend_bytes_per_second_max: scope.number(budget).unwrap_or(0) }
}

fn sound<T>(path: &str, value: Option<T>) -> T {
    value.unwrap_or_else(|| panic!("{path} has no value, though no problem was reported"))
}
