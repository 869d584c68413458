//! Contradictions: what no single value is to blame for.
//!
//! A rule looks only at values that are sound; one that is bad has been reported, and its consequences would only
//! hide the cause.

use super::backend::Backend;
use super::disk::{DiskSettings, look};
use super::problem::{Place, Report};
use super::s3_keys;
use super::scope::Scope;
use super::settings::{OBJECT_SPLIT, SplitKeys, VOLUME_SPLIT, log_bytes};
use super::unit::{Complaint, size, size_rounded};
use crate::budget::{self, Budget, DiskLayout};
use crate::profile::ProfileFile;
use forebay_core::SplitKind;
use forebay_objects::{Pattern, ROWS_MAX};
use forebay_s3::{Authorities, VerifyConfig};
use forebay_signature::StoreKey;
use forebay_wire::disk::VOLUMES_MAX;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// What was found on the way.
#[derive(Debug)]
pub(super) struct Found {
    /// The cache disk.
    pub(super) disk: Option<DiskSettings>,
    /// The gateway's keys.
    pub(super) verify: Option<VerifyConfig>,
    /// With which the store is read for hits.
    pub(super) split_key: Option<StoreKey>,
    /// Who may vouch for the store, if the configuration names some.
    pub(super) authorities: Option<Authorities>,
}

/// Checks everything.
pub(super) fn check(global: &Scope, volumes: &[Scope], policies: &[Scope], report: &mut Report) -> Found {
    page(global, report);
    listeners(global, volumes, report);
    intent_map(global, report);
    logs(global, volumes, report);
    let disk = disk(global, volumes, report);
    log_mirror(global, volumes, report);
    if !global.is_bad("cache.disk") {
        memory(global, volumes, disk.as_ref(), report);
    }
    s3(global, report);
    s3_policies(global, policies, report);
    let verify = s3_keys(global, report);
    let split_key = s3_split(global, report);
    let authorities = s3_authorities(global, report);
    count(global, volumes, report);
    names(volumes, report);
    backends(global, volumes, report);
    for volume in volumes {
        split(volume, VOLUME_SPLIT, report);
        profile(volume, report);
        connections(volume, report);
    }
    let split_key = split_key.or_else(|| verify.as_ref().map(|it| it.store.clone()));
    Found { disk, verify, split_key, authorities }
}

fn page(global: &Scope, report: &mut Report) {
    let Some(page) = global.number("cache.page").filter(|page| !page.is_power_of_two()) else { return };
    let (below, above) = (1 << page.ilog2(), page.next_power_of_two());
    report.error(
        global.place("cache.page"),
        Complaint::new(
            format!("a page of {} is not a power of two", size(page)),
            format!("write \"{}\" or \"{}\"", size(below), size(above)),
        ),
    );
}

fn listeners(global: &Scope, volumes: &[Scope], report: &mut Report) {
    let (tcp, admin) = (global.address("listen.tcp"), global.address("admin.listen"));
    let s3 = global.address("s3.listen");
    let silent = |path| !global.is_bad(path);
    let is_needed = global.address("s3.listen").is_none() || !volumes.is_empty();
    let is_there = global.path("listen.unix").is_some() || tcp.is_some();
    if is_needed && !is_there && silent("listen.unix") && silent("listen.tcp") {
        report.error(
            &Place::WholeFile,
            Complaint::new("the server listens nowhere", "add unix = \"/run/forebay/nbd.sock\" or tcp to [listen]"),
        );
    }
    let listeners = [("listen.tcp", tcp), ("s3.listen", s3), ("admin.listen", admin)];
    for (at, (path, address)) in listeners.iter().enumerate() {
        for (other_path, other) in &listeners[..at] {
            if let (Some(address), Some(other)) = (address, other)
                && clash(*address, *other)
            {
                let problem = format!("{address} is taken by {other_path} ({other})");
                report.error(global.place(path), Complaint::new(problem, "give one of them another port"));
            }
        }
    }
    for (path, address, what) in [
        ("listen.tcp", tcp, "read and write every volume: NBD here has neither authentication nor encryption"),
        ("admin.listen", admin, "read metrics, flush and evict"),
    ] {
        if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
            report.warning(
                global.place(path),
                Complaint::new(
                    format!("{address} is not a loopback address; whoever reaches it can {what}"),
                    "listen on 127.0.0.1, or keep the network private",
                ),
            );
        }
    }
}

fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn intent_map(global: &Scope, report: &mut Report) {
    if global.flag("cache.intent_map") == Some(false) {
        report.warning(
            global.place("cache.intent_map"),
            Complaint::new(
                "without the intent map a crash can leave old data in the cache",
                "remove it but for measurements",
            ),
        );
    }
}

/// A log needs a disk, and somebody who writes.
fn logs(global: &Scope, volumes: &[Scope], report: &mut Report) {
    for volume in volumes {
        let mode = volume.choice("volume.mode");
        if global.path("cache.disk").is_none() && mode == Some("back") && !global.is_bad("cache.disk") {
            let complaint = Complaint::new(
                "write-back keeps its log on the cache disk, and there is none",
                "add disk to [cache], or use mode = \"through\"",
            );
            report.error(volume.place("volume.mode"), complaint);
        }
        let of_log = [
            "volume.durability",
            "volume.fua",
            "volume.bypass",
            "volume.bypass_min",
            "volume.lag_max",
            "volume.on_lag",
        ];
        for path in of_log.into_iter().filter(|path| volume.is_given(path) && log_bytes(volume) == 0) {
            let complaint =
                Complaint::new("only a volume with a write-back log has this", "remove it, or use mode = \"back\"");
            report.warning(volume.place(path), complaint);
        }
        if volume.is_given("volume.log") && matches!(mode, Some("around" | "pass" | "read-only")) {
            let complaint = Complaint::new(
                format!("a volume of mode \"{}\" has no use for a log", mode.unwrap_or_default()),
                "remove it, or use mode = \"back\"; a volume of mode \"through\" may keep its log",
            );
            report.error(volume.place("volume.log"), complaint);
        }
    }
}

/// A mirror needs logs, and a device of its own.
fn log_mirror(global: &Scope, volumes: &[Scope], report: &mut Report) {
    let Some(path) = global.path("cache.log_mirror").map(real) else { return };
    let place = global.place("cache.log_mirror");
    if global.path("cache.disk").map(real).is_some_and(|disk| disk == path) {
        let shown = path.display();
        report.error(
            place,
            Complaint::new(
                format!("{shown} is the cache disk"),
                "a mirror needs a device of its own, or it is lost with it",
            ),
        );
    }
    let is_path = |volume: &&Scope| {
        let backend = volume.backend("volume.backend").map(resolved);
        matches!(backend, Some(Backend::Path(backend)) if backend == path)
    };
    if let Some(name) = volumes.iter().find(is_path).and_then(|volume| volume.name("volume.name")) {
        let complaint = format!("{} is the back end of \"{name}\"", path.display());
        report.error(place, Complaint::new(complaint, "a mirror of the logs needs a device of its own"));
    }
    if volumes.iter().all(|volume| log_bytes(volume) == 0) {
        let complaint = Complaint::new("no volume has a write-back log to mirror", "remove it, or use mode = \"back\"");
        report.warning(place, complaint);
    }
}

fn disk(global: &Scope, volumes: &[Scope], report: &mut Report) -> Option<DiskSettings> {
    let Some(path) = global.path("cache.disk") else {
        let alone = [
            "cache.disk_size",
            "cache.sparse",
            "cache.log_mirror",
            "cache.disk_policy",
            "cache.paced.rate",
            "cache.paced.latency",
            "admission.policy",
            "admission.sequential_cutoff",
        ];
        let sound = |path: &str| global.is_given(path) && !global.is_bad(path);
        for path in alone.into_iter().filter(|path| sound(path) && !global.is_bad("cache.disk")) {
            report.error(
                global.place(path),
                Complaint::new(format!("{path} without a cache disk"), "add disk to [cache], or remove this"),
            );
        }
        return None;
    };
    if global.is_bad("cache.disk_size") {
        return None;
    }
    let asked = global.number("cache.disk_size");
    let disk = match look(path, asked, global.flag("cache.sparse").unwrap_or(false)) {
        Ok(disk) => disk,
        Err(complaint) => {
            report.error(global.place("cache.disk"), complaint);
            return None;
        }
    };
    let page = global.number("cache.page").filter(|page| page.is_power_of_two())?;
    let logs_bytes = volumes.iter().map(log_bytes).sum();
    if let Err(minimum_bytes) = DiskLayout::of(disk.bytes, page, logs_bytes) {
        let place = if asked.is_some() { "cache.disk_size" } else { "cache.disk" };
        let (logs, smaller) = match logs_bytes {
            0 => (String::new(), ""),
            bytes => (format!(" and logs of {}", size(bytes)), ", or the volumes smaller logs"),
        };
        report.error(
            global.place(place),
            Complaint::new(
                format!("a cache disk of {} is too small for pages of {}{logs}", size(disk.bytes), size(page)),
                format!("give it at least {}{smaller}", size(minimum_bytes)),
            ),
        );
        return None;
    }
    Some(disk)
}

fn memory(global: &Scope, volumes: &[Scope], disk: Option<&DiskSettings>, report: &mut Report) {
    if global.is_given("cache.disk") && disk.is_none() {
        return;
    }
    let number = |path| global.number(path);
    let (Some(memory_bytes), Some(page_bytes), Some(clients_max), Some(requests_max)) = (
        number("cache.memory"),
        number("cache.page").filter(|page| page.is_power_of_two()),
        number("limits.clients_max"),
        number("limits.requests_max"),
    ) else {
        return;
    };
    let disk_bytes = disk.map(|disk| disk.bytes);
    let nbd = |volume: &&Scope| volume.backend("volume.backend").is_some_and(Backend::is_nbd);
    let nbd_volumes = volumes.iter().filter(nbd).count() as u64;
    let logs = budget::Logs::of(volumes.iter().map(log_bytes));
    let s3_connections = global.address("s3.listen").and_then(|_| number("s3.connections_max")).unwrap_or(0);
    let demand = budget::Demand {
        memory_bytes,
        page_bytes,
        clients_max,
        requests_max,
        disk_bytes,
        nbd_volumes,
        logs,
        s3_connections,
    };
    if let Err(budget::TooSmall { minimum_bytes, fixed_bytes }) = Budget::of(&demand) {
        report.error(
            global.place("cache.memory"),
            Complaint::new(
                format!(
                    "{} of memory is too little: index, checksums and buffers take {} and frames need {}",
                    size(memory_bytes),
                    size_rounded(fixed_bytes),
                    size_rounded(minimum_bytes - fixed_bytes)
                ),
                format!(
                    "give at least \"{}\", or use larger pages or a smaller cache disk",
                    size(minimum_bytes.next_multiple_of(1 << 20))
                ),
            ),
        );
    }
}

/// A gateway needs a store.
fn s3(global: &Scope, report: &mut Report) {
    let keys = [
        "s3.backend",
        "s3.backend_ca",
        "s3.domain",
        "s3.signature",
        "s3.keys",
        "s3.metadata_ttl",
        "s3.connections_max",
        "s3.timeout",
        "s3.events_token",
        "s3.split.policy",
        "s3.split.disk_percent",
        "s3.split.backend_bytes_per_second_max",
    ];
    if global.address("s3.listen").is_none() {
        for path in keys.into_iter().filter(|path| global.is_given(path) && !global.is_bad("s3.listen")) {
            let complaint = Complaint::new(format!("{path} without a gateway"), "add listen to [s3], or remove this");
            report.error(global.place(path), complaint);
        }
        return;
    }
    match global.name("s3.backend") {
        None if global.is_bad("s3.backend") => {}
        None => report.error(
            global.place("s3.listen"),
            Complaint::new("the gateway has no store behind it", "add backend = \"http://HOST:PORT\" to [s3]"),
        ),
        Some(backend) => {
            if let Err(error) = forebay_s3::check_address(backend) {
                let told = error.to_string();
                let (problem, remedy) = told.rsplit_once(": ").unwrap_or((&told, ""));
                report.error(global.place("s3.backend"), Complaint::new(problem, remedy));
            }
        }
    }
}

/// What a policy is about, and that there is a gateway to have it.
fn s3_policies(global: &Scope, policies: &[Scope], report: &mut Report) {
    if let Some(first) =
        policies.first().filter(|_| global.address("s3.listen").is_none() && !global.is_bad("s3.listen"))
    {
        let complaint = Complaint::new("a policy without a gateway", "add listen to [s3], or remove this");
        report.error(&first.place, complaint);
    }
    if let Some(first_beyond) = policies.get(ROWS_MAX) {
        let complaint = Complaint::new(
            format!("{} policies are more than {ROWS_MAX}", policies.len()),
            "each is looked at for each request: join some with `*`",
        );
        report.error(&first_beyond.place, complaint);
    }
    for policy in policies {
        let place = policy.place("s3.policy.match");
        if let Some(text) = policy.name("s3.policy.match").filter(|text| Pattern::of(text).is_none()) {
            let complaint = Complaint::new(
                format!("\"{text}\" names no objects"),
                "write BUCKET or BUCKET/KEY, such as \"logs/2030/*\"",
            );
            report.error(place, complaint);
        }
        let says = ["s3.policy.cache", "s3.policy.metadata_ttl", "s3.policy.write"];
        if !says.into_iter().any(|path| policy.is_given(path)) {
            report
                .error(&policy.place, Complaint::new("this policy says nothing", "give cache, metadata_ttl or write"));
        }
        if policy.flag("s3.policy.cache") == Some(false) && policy.choice("s3.policy.write") == Some("through") {
            let complaint = Complaint::new("what is not cached cannot be kept on its way", "remove write or cache");
            report.error(policy.place("s3.policy.write"), complaint);
        }
    }
}

/// Whoever verifies needs keys, and nobody else does.
fn s3_keys(global: &Scope, report: &mut Report) -> Option<VerifyConfig> {
    global.address("s3.listen")?;
    let is_verify = global.choice("s3.signature") == Some("verify");
    match (is_verify, global.path("s3.keys")) {
        (false, None) => None,
        (true, None) if global.is_bad("s3.keys") => None,
        (true, None) => {
            let complaint = Complaint::new("the gateway has no keys to verify with", "name their file in s3.keys");
            report.error(global.place("s3.signature"), complaint);
            None
        }
        (false, Some(_)) if global.is_bad("s3.signature") || splits_objects(global) => None,
        (false, Some(_)) => {
            let complaint = Complaint::new(
                "keys are of no use to a gateway that forwards signatures, and does not split",
                "set signature = \"verify\" or s3.split.policy, or remove this",
            );
            report.error(global.place("s3.keys"), complaint);
            None
        }
        (true, Some(file)) => match s3_keys::read(file) {
            Ok(verify) => Some(verify),
            Err(complaint) => {
                report.error(global.place("s3.keys"), complaint);
                None
            }
        },
    }
}

fn splits_objects(global: &Scope) -> bool {
    global.choice("s3.split.policy").is_some_and(|policy| policy != "off")
}

/// What is read for a hit has to be signed by the gateway itself. The key, where nothing else needs one.
fn s3_split(global: &Scope, report: &mut Report) -> Option<StoreKey> {
    global.address("s3.listen")?;
    split(global, OBJECT_SPLIT, report);
    let is_needed = splits_objects(global) && global.choice("s3.signature") == Some("forward");
    if !is_needed || global.is_bad("s3.keys") {
        return None;
    }
    let Some(file) = global.path("s3.keys") else {
        let complaint = Complaint::new(
            "without a key of its own at the store the gateway leaves every hit to the cache disk",
            "name a file with [store] in s3.keys, or remove this",
        );
        report.warning(global.place("s3.split.policy"), complaint);
        return None;
    };
    s3_keys::read_store(file).map_err(|complaint| report.error(global.place("s3.keys"), complaint)).ok()
}

/// Who may vouch for a store over HTTPS.
fn s3_authorities(global: &Scope, report: &mut Report) -> Option<Authorities> {
    global.address("s3.listen")?;
    let file = global.path("s3.backend_ca")?;
    if global.name("s3.backend").is_some_and(|backend| backend.starts_with("http:")) {
        let complaint = Complaint::new(
            "authorities are of no use before a store without TLS",
            "write s3.backend with https://, or remove this",
        );
        report.error(global.place("s3.backend_ca"), complaint);
        return None;
    }
    let read = Authorities::read(file);
    read.map_err(|error| {
        let complaint = Complaint::new(error.to_string(), "name a PEM file with the certificates of authorities");
        report.error(global.place("s3.backend_ca"), complaint);
    })
    .ok()
}

fn count(global: &Scope, volumes: &[Scope], report: &mut Report) {
    let has_gateway = global.address("s3.listen").is_some();
    if volumes.is_empty() && !has_gateway && !global.is_bad("s3.listen") {
        report.error(&Place::WholeFile, Complaint::new("there is no volume", "add [[volume]] with name and backend"));
    }
    // The gateway's objects take the place of one.
    let volumes_max = VOLUMES_MAX - usize::from(has_gateway);
    if let Some(first_beyond) = volumes.get(volumes_max) {
        report.error(
            &first_beyond.place,
            Complaint::new(
                format!("{} volumes are more than the {volumes_max} that a cache has room for", volumes.len()),
                "run a second cache for the rest",
            ),
        );
    }
}

fn names(volumes: &[Scope], report: &mut Report) {
    let mut seen: BTreeMap<&str, &Place> = BTreeMap::new();
    for volume in volumes {
        let Some(name) = volume.name("volume.name") else { continue };
        let place = volume.place("volume.name");
        if name.starts_with("s3:") {
            let complaint = Complaint::new(format!("\"{name}\" reads as an object's name"), "choose another name");
            report.error(place, complaint);
        }
        match seen.get(name) {
            Some(first) => report.error(
                place,
                Complaint::new(
                    format!("a volume named \"{name}\" is there already{}", on_line(first)),
                    "names are the clients' way to tell volumes apart: choose another",
                ),
            ),
            None => {
                seen.insert(name, place);
            }
        }
    }
}

fn backends(global: &Scope, volumes: &[Scope], report: &mut Report) {
    let disk = global.path("cache.disk").map(real);
    let mut seen: Vec<(Backend, &Place)> = Vec::new();
    for volume in volumes {
        let Some(backend) = volume.backend("volume.backend").map(resolved) else { continue };
        let place = volume.place("volume.backend");
        if let (Backend::Path(path), Some(disk)) = (&backend, &disk)
            && path == disk
        {
            report.error(
                place,
                Complaint::new(format!("{backend} is the cache disk"), "a volume needs a back end of its own"),
            );
        }
        if is_this_server(&backend, global) {
            report.error(
                place,
                Complaint::new(format!("{backend} is this server itself"), "name the server where the data is"),
            );
        }
        // Memory devices are new ones each time: two of a size are not the same.
        let twin = seen.iter().find(|(other, _)| *other == backend && !matches!(backend, Backend::Memory { .. }));
        if let Some((_, first)) = twin {
            report.error(
                place,
                Complaint::new(
                    format!("the back end {backend} is another volume's already{}", on_line(first)),
                    "two caches of one back end would not see each other's writes: keep one",
                ),
            );
        }
        seen.push((backend, place));
    }
}

fn resolved(backend: &Backend) -> Backend {
    match backend {
        Backend::Path(path) => Backend::Path(real(path)),
        Backend::NbdUnix { socket, export } => Backend::NbdUnix { socket: real(socket), export: export.clone() },
        Backend::NbdTcp { host, port, export } if host == "localhost" => {
            Backend::NbdTcp { host: "127.0.0.1".into(), port: *port, export: export.clone() }
        }
        other => other.clone(),
    }
}

/// The path without links, if it leads anywhere.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn is_this_server(backend: &Backend, global: &Scope) -> bool {
    match backend {
        Backend::NbdTcp { host, port, .. } => global.address("listen.tcp").is_some_and(|tcp| {
            let same_host =
                host.parse().is_ok_and(|ip: IpAddr| tcp.ip() == ip || (tcp.ip().is_unspecified() && ip.is_loopback()));
            tcp.port() == *port && same_host
        }),
        Backend::NbdUnix { socket, .. } => global.path("listen.unix").is_some_and(|unix| real(unix) == *socket),
        Backend::Path(_) | Backend::Memory { .. } => false,
    }
}

fn split(scope: &Scope, [policy, disk_percent, _]: SplitKeys, report: &mut Report) {
    let is_static = scope.choice(policy) == Some("static");
    let has_share = scope.is_given(disk_percent);
    if is_static && !has_share {
        let complaint = Complaint::new("a static split needs its share", "give disk_percent, such as 70");
        report.error(scope.place(policy), complaint);
    } else if has_share && !is_static {
        let complaint = Complaint::new("only a static split has a share", "remove it, or set policy = \"static\"");
        report.warning(scope.place(disk_percent), complaint);
    }
}

fn profile(volume: &Scope, report: &mut Report) {
    let needs = volume.choice("volume.split.policy").and_then(|name| SplitKind::from_name(name, 1000));
    let Some(file) = volume.path("volume.split.profile") else {
        if let Some(kind) = needs.filter(|kind| kind.needs_profile()).filter(|_| !volume.is_bad("volume.split.profile"))
        {
            let complaint = Complaint::new(
                format!("without a profile {} leaves every hit to the cache disk", kind.name()),
                "measure one with `forebay profile` while the server runs, and name its file in profile",
            );
            report.warning(volume.place("volume.split.policy"), complaint);
        }
        return;
    };
    if let Err(why) = ProfileFile::read(file) {
        // Thing, cause; next step.
        let (problem, remedy) = why.rsplit_once("; ").unwrap_or((&why, ""));
        report.error(volume.place("volume.split.profile"), Complaint::new(problem, remedy));
    }
}

fn connections(volume: &Scope, report: &mut Report) {
    let Some(backend) = volume.backend("volume.backend").filter(|backend| !backend.is_nbd()) else { return };
    if volume.is_given("volume.connections") {
        report.warning(
            volume.place("volume.connections"),
            Complaint::new(format!("{backend} is not reached over connections"), "remove it"),
        );
    }
}

fn on_line(place: &Place) -> String {
    match place {
        Place::File { line, .. } => format!(" (line {line})"),
        _ => String::new(),
    }
}
