//! The table of keys: everything a configuration may say, each with its kind, default and meaning.
//!
//! The parser, the environment variables, the flags and the reference (docs/reference/configuration.md) all read this
//! table, so none of them can disagree with another. Keys of a volume have the path `volume.…` and stand in a
//! `[[volume]]` table; they have neither variable nor flag, since those could not say which volume is meant. So it is with each of [`LISTS`].

use super::value::Kind;
use forebay_objects::PATTERN_BYTES_MAX;
use forebay_wire::disk::superblock::NAME_BYTES_MAX;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000_000_000;

/// The eviction policies by their configured names.
pub const POLICIES: &[&str] = &["lru", "lfu", "random", "fifo", "s3fifo"];
/// The write modes by their configured names.
pub const MODES: &[&str] = &["through", "around", "pass", "read-only", "back"];
/// The policies that split hits, by their configured names.
pub const SPLITS: &[&str] = &[
    "off",
    "cache-only",
    "backend-only",
    "static",
    "climb",
    "orthus",
    "orthus-paper",
    "netcas",
    "netcas-random",
    "netcas-demand",
    "expected-delay",
];
/// Those of them that need no profile: the store is not measured.
pub const OBJECT_SPLITS: &[&str] =
    &["off", "cache-only", "backend-only", "static", "climb", "orthus", "expected-delay"];
/// The log levels.
pub const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// Tables that may be there several times: `[[volume]]`. Their keys have neither variable nor flag.
pub const LISTS: &[&str] = &["volume", "s3.policy"];
/// Ways of S3 uploads by their configured names.
pub const UPLOADS: &[&str] = &["around", "through"];

/// What every environment variable of a key begins with.
pub const VARIABLE_PREFIX: &str = "FOREBAY_";

/// Whether a key must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must.
    Required,
    /// It need not, and then means what the documentation says.
    Optional,
    /// It need not; this is taken instead.
    Default(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Table and key: "cache.page".
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether it must be given.
    pub presence: Presence,
    /// What it means.
    pub doc: &'static str,
}

impl Key {
    /// The key without its table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The table it stands in.
    #[must_use]
    pub fn table(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }

    /// The list that it is said of each of: "volume"; `None` if it is said once.
    #[must_use]
    pub fn list(&self) -> Option<&'static str> {
        let is_in = |list: &&&str| self.path.strip_prefix(**list).is_some_and(|rest| rest.starts_with('.'));
        LISTS.iter().find(is_in).copied()
    }

    /// Its environment variable: `FOREBAY_CACHE_PAGE`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Its flag, without the dashes: `cache-page`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }
}

const fn key(path: &'static str, kind: Kind, presence: Presence, doc: &'static str) -> Key {
    Key { path, kind, presence, doc }
}

use Presence::{Default, Optional, Required};

/// Every key.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("cache.disk", Kind::Path, Optional,
        "The cache disk: a file or a block device. Without it the cache is memory only."),
    key("cache.disk_size", Kind::Size(0, u64::MAX), Optional,
        "Size of the cache file; it is allocated at once. Needed when the file does not exist yet. A block device's own \
         size is used unless this is smaller."),
    key("cache.sparse", Kind::Flag, Default("false"),
        "Do not allocate the cache file at once. For tests: a full file system then costs the cache disk."),
    key("cache.log_mirror", Kind::Path, Optional,
        "A second file or block device, for a copy of the write-back logs: what only they have is lost when both are. It needs their \
         sizes and 1 MiB; a file is made if it is missing. Not on the cache disk's own device."),
    key("cache.memory", Kind::Size(0, u64::MAX), Default("256MiB"),
        "All memory of the cache: pages, index, checksums and buffers. `forebay check` prints the sum."),
    key("cache.page", Kind::Size(4 * KIB, 256 * KIB), Default("64KiB"),
        "Unit of caching: a power of two. Smaller pages waste less on random access and cost more index."),
    key("cache.state_dir", Kind::Path, Default("/var/lib/forebay"),
        "Directory for what must outlive the cache disk (the generation number) and for the lock."),
    key("cache.memory_policy", Kind::Choice(POLICIES), Default("s3fifo"),
        "Which page leaves the memory tier."),
    key("cache.disk_policy", Kind::Choice(POLICIES), Default("s3fifo"),
        "Which page leaves the disk tier."),
    key("cache.intent_map", Kind::Flag, Default("true"),
        "Record regions in flight durably before the back end is written. **Unsafe when false**: after a crash the \
         cache may hold old data. For measurements only."),

    key("cache.paced.rate", Kind::Rate, Optional,
        "Slow the cache disk down to this rate. For tests and the demo."),
    key("cache.paced.latency", Kind::Time(0, 60_000 * MS), Optional,
        "Delay every operation of the cache disk by this. For tests and the demo."),

    key("admission.policy", Kind::Choice(&["always", "second-access"]), Default("always"),
        "Which fetched pages the disk tier takes: all, or those asked for a second time."),
    key("admission.sequential_cutoff", Kind::Size(0, u64::MAX), Default("0B"),
        "Sequential streams are not kept beyond this length. 0B: no cut-off."),

    key("listen.unix", Kind::Socket, Optional,
        "Unix socket of the NBD server. Give this or `listen.tcp`, or both."),
    key("listen.tcp", Kind::Address, Optional,
        "TCP address of the NBD server. NBD has no authentication here: keep it on loopback or a private network."),

    key("admin.listen", Kind::Address, Default("127.0.0.1:9809"),
        "Address of metrics, health and control (HTTP). \"none\" turns it off; status, stats, flush and evict need it."),

    key("s3.listen", Kind::Address, Optional,
        "Address of the S3 gateway. Without it there is none."),
    key("s3.backend", Kind::Name(1, 255), Optional,
        "The S3 store behind the gateway: `http://HOST:PORT`, or `https://HOST`. Over HTTPS its certificate has to be valid, for that host, and \
         of an authority that this machine trusts."),
    key("s3.backend_ca", Kind::Path, Optional,
        "With a store over HTTPS: a PEM file of authorities that may vouch for it, beside those that the machine trusts. Read at the start."),
    key("s3.domain", Kind::Name(1, 255), Optional,
        "Name of this gateway that buckets may stand before in `Host`: `BUCKET.DOMAIN`. Path style is always understood."),
    key("s3.signature", Kind::Choice(&["forward", "verify"]), Default("forward"),
        "Who says who may. `forward`: the store, of the request as its client signed it. `verify`: the gateway, with the keys in `s3.keys`; \
         what leaves for the store is signed with the gateway's own."),
    key("s3.keys", Kind::Path, Optional,
        "With `signature = \"verify\"`: the file of key pairs and what each may do. With `s3.split`: that of the gateway's own. Others may not read it."),
    key("s3.metadata_ttl", Kind::Time(0, HOUR), Default("0s"),
        "For how long the store's answer that a caller may read an object, and which version it is, is believed for the same request. 0s: \
         the store is asked for each hit."),
    key("s3.connections_max", Kind::Count(1, 65536), Default("1024"),
        "Connections of S3 clients at one time; further ones are told to slow down."),
    key("s3.timeout", Kind::Time(100 * MS, HOUR), Default("30s"),
        "A store that does not begin to answer for this long is away: the client gets 503."),

    key("s3.events_token", Kind::Name(16, 256), Optional,
        "What a store has to know to tell of objects that were changed past the gateway: `POST /.forebay/events` with \
         `Authorization: Bearer TOKEN` or `?token=TOKEN`. Without it that is no place of the gateway's. Write `${VARIABLE}` to keep it out \
         of the file."),
    key("s3.split.policy", Kind::Choice(OBJECT_SPLITS), Default("off"),
        "Which hits of objects on the cache disk the store serves, as `volume.split.policy`. It needs a key of the gateway's own \
         (`s3.keys`), and costs requests and bytes that stores may bill."),
    key("s3.split.disk_percent", Kind::Count(0, 100), Optional,
        "With `static`: the share of hits that the cache disk serves, in per cent."),
    key("s3.split.backend_bytes_per_second_max", Kind::Rate, Optional,
        "Hits take no more than this from the store. Default: any amount."),
    key("s3.policy.match", Kind::Name(1, PATTERN_BYTES_MAX), Required,
        "Which objects: `BUCKET/KEY`, where `*` stands for any text, `/` included, and `?` for one byte; `BUCKET` is all of a bucket. Of each \
         setting the first row that matches and says it is taken."),
    key("s3.policy.cache", Kind::Flag, Optional,
        "Whether they are cached. `false`: reads and writes of them are passed on, and nothing of them is kept. Default: true."),
    key("s3.policy.metadata_ttl", Kind::Time(0, HOUR), Optional,
        "As `s3.metadata_ttl`, for these."),
    key("s3.policy.write", Kind::Choice(UPLOADS), Optional,
        "How uploads of them are cached: `around` (the next read is a miss) or `through` (kept on their way to the store). A request may \
         choose itself: `x-forebay-write`. Default: `around`."),

    key("limits.clients_max", Kind::Count(1, 4096), Default("64"),
        "NBD connections at one time; further ones are closed at once."),
    key("limits.requests_max", Kind::Count(64, 65536), Default("1024"),
        "Requests in flight in the cache; further ones wait in their sockets."),
    key("limits.hedge_after", Kind::Time(MS, HOUR), Default("100ms"),
        "A read of the cache disk unanswered for this long (or ten times its p99, if that is longer) is also read from \
         the back end."),
    key("limits.disk_timeout", Kind::Time(100 * MS, HOUR), Default("10s"),
        "The cache disk is given up when an operation is unanswered for this long."),
    key("limits.disk_errors_max", Kind::Count(1, 1_000_000), Default("16"),
        "The cache disk is given up after so many failed operations within a minute."),

    key("log.level", Kind::Choice(LEVELS), Default("info"),
        "The least severe messages that are logged."),
    key("log.format", Kind::Choice(&["text", "json"]), Default("text"),
        "Log lines for people or for machines. Both go to standard error."),

    key("volume.name", Kind::Name(1, NAME_BYTES_MAX), Required,
        "The volume's name, which is its NBD export's name."),
    key("volume.backend", Kind::Backend, Required,
        "Where its truth is: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, the path of a file or block \
         device, or `memory:SIZE` (tests and demo: gone when the program ends)."),
    key("volume.mode", Kind::Choice(MODES), Default("through"),
        "How it treats writes: `through` (to back end and cache), `around` (to the back end; cached copies are \
         dropped), `pass` (no caching), `read-only`, `back` (answered when the log on the cache disk has them; the back end \
         follows, flush by flush)."),
    key("volume.log", Kind::Size(4 * MIB, 1 << 44), Optional,
        "Size of its write-back log on the cache disk. With `mode = \"back\"`: 1GiB if nothing is said. A volume with \
         `mode = \"through\"` may keep its log, so that its mode can change while it is served."),
    key("volume.durability", Kind::Choice(&["local", "backend"]), Default("local"),
        "With a log: when a flush is answered. `local`: when the log has all that was written before. `backend`: when the \
         back end has it, in order."),
    key("volume.fua", Kind::Choice(&["log", "backend"]), Default("log"),
        "With a log: when a write with FUA is answered: when the log has it and all before it for good, or the back end."),
    key("volume.bypass", Kind::Choice(&["never", "large"]), Default("never"),
        "With a log: whether large writes go straight to the back end where the order allows it, which leaves the log to \
         small ones and takes a burst on both."),
    key("volume.bypass_min", Kind::Size(4 * KIB, 64 * MIB), Default("64KiB"),
        "With `bypass = \"large\"`: the least write that is large."),
    key("volume.lag_max", Kind::Time(100 * MS, HOUR), Default("60s"),
        "With a log: how old what the back end lacks may be while the back end answers. Writers are slowed down before it is \
         older."),
    key("volume.on_lag", Kind::Choice(&["stall", "continue"]), Default("continue"),
        "With a log: what happens when the back end does not answer for longer than `lag_max`. `continue`: writes go on until \
         the log is full. `stall`: they wait, so that no more than that is lost with the cache disk."),
    key("volume.weight", Kind::Count(1, 1000), Default("100"),
        "Its share of the cache disk, for its log and its cached pages, while several volumes want it at once: one of weight 200 \
         gets twice as much as one of 100."),
    key("volume.connections", Kind::Count(1, 16), Default("4"),
        "Connections to an NBD back end, where its export allows several."),
    key("volume.timeout", Kind::Time(100 * MS, HOUR), Default("30s"),
        "A request that the back end leaves unanswered for this long fails with EIO."),
    key("volume.split.policy", Kind::Choice(SPLITS), Default("off"),
        "Which hits on the cache disk the back end serves. `off`: none. `expected-delay`: each path is filled to what it \
         bears now. `climb` and `orthus` search for the best share; `static` keeps `disk_percent`. `netcas`, \
         `netcas-demand`, `netcas-random` and `orthus-paper` follow a profile, and leave all to the cache disk without \
         one. `cache-only` and `backend-only` are for comparison."),
    key("volume.split.disk_percent", Kind::Count(0, 100), Optional,
        "With `static`: the share of hits that the cache disk serves, in per cent."),
    key("volume.split.profile", Kind::Path, Optional,
        "What the two paths deliver, as saved by `forebay profile`. Not used, with an error in the log, where cache disk, link \
         or kind of back end are others than those measured."),
    key("volume.split.backend_bytes_per_second_max", Kind::Rate, Optional,
        "Hits take no more than this from the back end, for one that bills what it sends. Default: any amount."),
    key("volume.paced.rate", Kind::Rate, Optional,
        "Slow the back end down to this rate. For tests and the demo."),
    key("volume.paced.latency", Kind::Time(0, 60_000 * MS), Optional,
        "Delay every operation of the back end by this. For tests and the demo."),
];

/// The row of that path.
///
/// # Panics
/// When there is none: the path is written in the code.
#[must_use]
pub fn row(path: &str) -> &'static Key {
    find(path).unwrap_or_else(|| panic!("{path} is not in the table of keys"))
}

/// The row of that path, if there is one.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether keys stand in a table of that path.
#[must_use]
pub fn is_table(path: &str) -> bool {
    KEYS.iter().any(|key| key.table() == path)
}

/// What may stand in the table of that path ("" is the file's top level): keys, then tables.
pub fn members(table: &str) -> impl Iterator<Item = &'static str> {
    let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
    let mut seen: Vec<&str> = Vec::new();
    KEYS.iter().filter_map(move |key| {
        let member = key.path.strip_prefix(&prefix)?.split('.').next()?;
        if seen.contains(&member) {
            return None;
        }
        seen.push(member);
        Some(member)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::WriteMode;

    #[test]
    fn every_default_is_of_its_kind() {
        for key in KEYS {
            if let Default(text) = key.presence {
                key.kind.parse(text).unwrap_or_else(|complaint| panic!("{}: {complaint:?}", key.path));
            }
        }
    }

    #[test]
    fn paths_variables_and_flags_are_unique() {
        for (place, key) in KEYS.iter().enumerate() {
            for other in &KEYS[place + 1..] {
                assert_ne!(key.path, other.path);
                assert_ne!(key.variable(), other.variable());
                assert_ne!(key.flag(), other.flag());
            }
        }
    }

    #[test]
    fn uploads_are_those_of_the_gateway() {
        use forebay_objects::WriteMode;
        let modes = [WriteMode::Around, WriteMode::Through].map(Some);
        assert!(UPLOADS.iter().map(|name| WriteMode::of(name)).eq(modes));
    }

    #[test]
    fn splits_are_those_of_the_cache() {
        let known = forebay_core::SplitKind::NAMED;
        assert!(SPLITS.iter().copied().eq(known.map(|(name, _)| name)));
        let without_profile = known.iter().filter(|(_, kind)| !kind.needs_profile());
        assert!(OBJECT_SPLITS.iter().eq(without_profile.map(|(name, _)| name)));
    }

    #[test]
    fn modes_are_those_of_the_cache() {
        assert!(WriteMode::names().eq(MODES.iter().copied()));
    }

    #[test]
    fn members_are_keys_and_tables() {
        assert_eq!(
            members("").collect::<Vec<_>>(),
            ["cache", "admission", "listen", "admin", "s3", "limits", "log", "volume"]
        );
        assert_eq!(members("volume.paced").collect::<Vec<_>>(), ["rate", "latency"]);
        assert!(members("volume").any(|member| member == "paced"));
        assert!(is_table("volume.paced") && !is_table("volume.name"));
    }
}
