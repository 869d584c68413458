//! Every kind of bad configuration with the exact words it is answered with, and what a sound one becomes.

mod gateway;

use super::*;
use forebay_core::WriteMode;
use forebay_policy::evict::PolicyKind;

const SOUND: &str = r#"
[cache]
disk = "/nonexistent/forebay/cache.img"
disk_size = "20GiB"
memory = "1GiB"
[listen]
unix = "/run/forebay/nbd.sock"
[[volume]]
name = "vm1"
backend = "nbd://10.0.0.5/vm1"
"#;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What is said of `text`, errors and warnings.
fn said(text: &str, environment: &Environment) -> String {
    match read("f.toml", text, environment, &Vec::new()) {
        Ok((_, report)) | Err(report) => report.to_string(),
    }
}

#[track_caller]
fn expect(text: &str, expected: &str) {
    let said = said(text, &Environment::new());
    assert_eq!(said, expected, "\n--- said ---\n{said}--- expected ---\n{expected}--- of ---\n{text}");
}

fn sound(text: &str) -> Settings {
    read("f.toml", text, &Environment::new(), &Vec::new()).unwrap_or_else(|report| panic!("{report}")).0
}

/// A sound configuration with `line` in the place of the volume's back end and mode.
fn volume(line: &str) -> String {
    format!("listen.unix = \"/run/s\"\n[[volume]]\nname = \"v\"\n{line}\n")
}

/// A sound configuration below `lines`.
fn above(lines: &str) -> String {
    format!("{lines}\n[listen]\nunix = \"/run/s\"\n[[volume]]\nname = \"v\"\nbackend = \"/nonexistent/v\"\n")
}

#[test]
fn ten_lines_are_a_configuration() {
    let settings = sound(SOUND);
    let disk = settings.cache.disk.expect("a disk");
    assert_eq!((disk.bytes, disk.sparse, disk.is_block_device), (20 << 30, false, false));
    assert_eq!((settings.cache.page_bytes, settings.cache.memory_bytes), (65536, 1 << 30));
    assert_eq!(settings.cache.memory_policy, PolicyKind::S3Fifo);
    assert!(settings.cache.intent_map);
    assert_eq!(settings.admin, "127.0.0.1:9809".parse().ok());
    let volume = &settings.volumes[0];
    assert_eq!((volume.name.as_str(), volume.mode, volume.timeout_ns), ("vm1", WriteMode::Through, 30_000_000_000));
    assert_eq!(volume.paced, None);
    expect(SOUND, "");
}

#[test]
fn every_value_arrives() {
    let settings = sound(
        r#"
[cache]
memory = "512MiB"
page = "16KiB"
state_dir = "/tmp/x"
memory_policy = "lru"
[listen]
tcp = "127.0.0.1:10809"
[admin]
listen = "none"
[limits]
clients_max = 5
requests_max = 128
disk_timeout = "2s"
[log]
level = "debug"
format = "json"
[[volume]]
name = "a"
backend = "memory:1GiB"
mode = "read-only"
timeout = "5s"
paced = { rate = "200MB/s", latency = "1ms" }
[[volume]]
name = "b"
backend = "nbd+unix:///b?socket=/run/b"
connections = 2
"#,
    );
    assert_eq!(settings.cache.memory_policy, PolicyKind::Lru);
    assert_eq!((settings.admin, settings.cache.disk), (None, None));
    assert_eq!((settings.limits.clients_max, settings.limits.cache.requests_max), (5, 128));
    assert_eq!(settings.limits.cache.disk_timeout_ns, 2_000_000_000);
    assert_eq!((settings.log.level, settings.log.json), ("debug", true));
    let [a, b] = &settings.volumes[..] else { panic!("two volumes") };
    assert_eq!(a.paced, Some(Paced { rate_bytes_per_s: Some(200_000_000), latency_ns: 1_000_000 }));
    assert_eq!((a.mode, a.timeout_ns), (WriteMode::ReadOnly, 5_000_000_000));
    assert_eq!((b.name.as_str(), b.connections), ("b", 2));
}

#[test]
fn a_flag_wins_over_environment_file_and_default() {
    let text = "cache.page = \"16KiB\"\n".to_owned() + &above("");
    let page = |environment: &Environment, flags: &Overrides| {
        let (settings, _) = read("f.toml", &text, environment, flags).unwrap_or_else(|report| panic!("{report}"));
        settings.cache.page_bytes
    };
    let variable = environment(&[("FOREBAY_CACHE_PAGE", "32KiB")]);
    let flag = vec![(key::row("cache.page"), "128KiB".to_owned())];
    assert_eq!(sound(&above("")).cache.page_bytes, 64 << 10);
    assert_eq!(page(&Environment::new(), &vec![]), 16 << 10);
    assert_eq!(page(&variable, &vec![]), 32 << 10);
    assert_eq!(page(&variable, &flag), 128 << 10);
}

#[test]
fn bad_variables_and_flags_are_named() {
    let variables =
        environment(&[("FOREBAY_CACHE_PAGE", "x"), ("FOREBAY_CACHE_PAGES", "64KiB"), ("FOREBAY_ELSE", "1")]);
    let flags = vec![(key::row("cache.memory"), "1G".to_owned())];
    let report = read("f.toml", &above(""), &variables, &flags).expect_err("bad");
    assert_eq!(
        report.to_string(),
        "environment FOREBAY_CACHE_PAGE: \"x\" is not a size; write a whole number and a unit, such as \"64KiB\" (units: \
         B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)\n\
         environment FOREBAY_CACHE_PAGES: warning: not a variable of Forebay, and ignored; nearest: FOREBAY_CACHE_PAGE\n\
         flag --cache-memory: \"1G\" is not a size; did you mean \"1GiB\"? (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)\n"
    );
}

#[test]
fn variables_are_replaced_in_the_file() {
    let text = volume("backend = \"nbd://${STORE}/${DISK:-vm1}\"\nconnections = \"${N}\"");
    let (settings, _) =
        read("f.toml", &text, &environment(&[("STORE", "store"), ("N", "3")]), &Vec::new()).expect("sound");
    assert_eq!(settings.volumes[0].backend.to_string(), "nbd://store:10809/vm1");
    assert_eq!(settings.volumes[0].connections, 3);
    expect(
        &text,
        "f.toml:4:11: volume.backend: the environment variable STORE is not set; set it, or give a default: \
         ${STORE:-default}\n\
         f.toml:5:15: volume.connections: the environment variable N is not set; set it, or give a default: \
         ${N:-default}\n",
    );
}

#[test]
fn all_problems_are_told_at_once() {
    expect(
        r#"[cache]
disk = "/nonexistent/cache.img"
disk_size = "20G"
memroy = "1GiB"
page = "48KiB"
[listn]
unix = "/run/s"
[log]
level = "inof"
[[volume]]
name = ""
mode = "back"
[[volume]]
name = "b"
backend = "http://store/b"
timeout = 30
"#,
        "f.toml:3:13: cache.disk_size: \"20G\" is not a size; did you mean \"20GiB\"? (units: B, KiB, MiB, GiB, TiB, KB, \
         MB, GB, TB)\n\
         f.toml:4:1: unknown key \"memroy\" in [cache]; nearest: \"memory\"\n\
         f.toml:5:8: a page of 48KiB is not a power of two; write \"32KiB\" or \"64KiB\"\n\
         f.toml:6:2: unknown key \"listn\"; nearest: \"listen\"\n\
         f.toml:9:9: log.level: \"inof\" is not known here; nearest: \"info\" (one of \"error\", \"warn\", \"info\", \
         \"debug\", \"trace\")\n\
         f.toml:10:1: this volume has no backend; add backend = \"nbd://HOST/EXPORT\" or a path in quotes\n\
         f.toml:11:8: volume.name: the name is empty; give one of 1 to 56 bytes\n\
         f.toml:15:11: volume.backend: \"http://store/b\" is not a back end: the scheme \"http\" is not known; write \
         nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, or the path of a file or block device\n\
         f.toml:16:11: volume.timeout: the time 30 has no unit; write \"30s\" or \"30ms\" (units: ns, us, ms, s, m, h)\n\
         f.toml: the server listens nowhere; add unix = \"/run/forebay/nbd.sock\" or tcp to [listen]\n",
    );
}

#[test]
fn unknown_keys_name_the_nearest() {
    for (lines, expected) in [
        ("page = \"64KiB\"", "f.toml:1:1: unknown key \"page\"; nearest: \"page\" in [cache]\n"),
        (
            "[cache]\nclients_max = 3",
            "f.toml:2:1: unknown key \"clients_max\" in [cache]; nearest: \"clients_max\" in [limits]\n",
        ),
        (
            "[cache]\ncolour = 3",
            "f.toml:2:1: unknown key \"colour\" in [cache]; known here: disk, disk_size, sparse, log_mirror, memory, page, state_dir, memory_policy, disk_policy, intent_map, paced\n",
        ),
        ("[cache.disk_size]\nx = 1", "f.toml:1:1: cache.disk_size: a table where a size belongs; write \"64KiB\"\n"),
        ("cache = 3", "f.toml:1:1: cache: a number where a table belongs; write [cache] and its keys below it\n"),
        (
            "[cache]\npage.size = 3",
            "f.toml:2:1: cache.page: a table where a size (4KiB to 256KiB) belongs; write \"64KiB\"\n",
        ),
    ] {
        expect(&above(lines), expected);
    }
    expect(
        &volume("backend = \"/nonexistent/v\"\nmodus = \"through\"\npaced = { rat = \"1MB/s\" }"),
        "f.toml:5:1: unknown key \"modus\" in [[volume]]; known here: name, backend, mode, log, durability, fua, bypass, bypass_min, lag_max, on_lag, weight, connections, timeout, split, paced\n\
         f.toml:6:11: unknown key \"rat\" in [volume.paced]; nearest: \"rate\"\n",
    );
}

#[test]
fn values_of_the_wrong_type_say_which_belongs() {
    for (lines, expected) in [
        (
            "cache.page = true",
            "f.toml:1:14: cache.page: true or false where a size (4KiB to 256KiB) belongs; write \"64KiB\"\n",
        ),
        (
            "cache.page = 0.5",
            "f.toml:1:14: cache.page: a number with a fraction where a size (4KiB to 256KiB) belongs; write \"64KiB\"\n",
        ),
        ("cache.page = \"1KiB\"", "f.toml:1:14: cache.page: 1KiB is too small; write at least 4KiB\n"),
        ("cache.page = \"1MiB\"", "f.toml:1:14: cache.page: 1MiB is too large; write at most 256KiB\n"),
        (
            "cache.intent_map = \"yes\"",
            "f.toml:1:20: cache.intent_map: a text where true or false belongs; write true or false, without quotes\n",
        ),
        (
            "cache.memory = -1",
            "f.toml:1:16: cache.memory: \"-1\" is not a size; write a whole number and a unit, such as \"64KiB\" (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)\n",
        ),
        (
            "cache.state_dir = \"\"",
            "f.toml:1:19: cache.state_dir: the path is empty; name a file or leave the key out\n",
        ),
        ("limits.clients_max = 0", "f.toml:1:22: limits.clients_max: 0 is too small; write at least 1\n"),
        (
            "limits.requests_max = [1]",
            "f.toml:1:23: limits.requests_max: a list where a number (64 to 65536) belongs; write a number without quotes\n",
        ),
        (
            "admin.listen = \"localhost:9809\"",
            "f.toml:1:16: admin.listen: \"localhost:9809\" is not an address; write an IP address and a port, such as \"127.0.0.1:10809\" or \"[::1]:10809\"\n",
        ),
        (
            "log.format = \"xml\"",
            "f.toml:1:14: log.format: \"xml\" is not known here; choose one of \"text\", \"json\"\n",
        ),
    ] {
        expect(&above(lines), expected);
    }
}

#[test]
fn broken_toml_is_told_whole() {
    expect(
        "[cache]\npage = 64KiB\nmemory = \"1GiB\nnonsense\n",
        "f.toml:2:8: string values must be quoted, expected literal string; put sizes, times, addresses and paths in \
         quotes\n\
         f.toml:3:15: invalid basic string, expected `\"`; correct the TOML\n\
         f.toml:4:9: key with no value, expected `=`; correct the TOML\n",
    );
    expect(
        "[cache]\npage = \"64KiB\"\npage = \"32KiB\"\n",
        "f.toml:3:1: \"page\" is here for the second time; keep one of them\n",
    );
    expect(
        "volume = 3\nlisten.unix = \"/run/s\"\n",
        "f.toml:1:1: a number where a list of volumes belongs; begin each volume with [[volume]]\n\
         f.toml: there is no volume; add [[volume]] with name and backend\n",
    );
    expect(
        "volume = [3]\nlisten.unix = \"/run/s\"\n",
        "f.toml:1:11: a number where a volume belongs; begin it with [[volume]]\n\
         f.toml: there is no volume; add [[volume]] with name and backend\n",
    );
}

#[test]
fn volumes_must_differ() {
    expect(
        r#"listen.unix = "/run/s"
[[volume]]
name = "a"
backend = "/nonexistent/a"
[[volume]]
name = "a"
backend = "/nonexistent/a"
[[volume]]
name = "c"
backend = "nbd://localhost/x"
[[volume]]
name = "d"
backend = "nbd://127.0.0.1:10809/x"
[[volume]]
name = "e"
backend = "memory:1MiB"
[[volume]]
name = "f"
backend = "memory:1MiB"
"#,
        "f.toml:6:8: a volume named \"a\" is there already (line 3); names are the clients' way to tell volumes apart: \
         choose another\n\
         f.toml:7:11: the back end /nonexistent/a is another volume's already (line 4); two caches of one back end would \
         not see each other's writes: keep one\n\
         f.toml:13:11: the back end nbd://127.0.0.1:10809/x is another volume's already (line 10); two caches of one back \
         end would not see each other's writes: keep one\n",
    );
}

#[test]
fn links_to_one_back_end_are_one_back_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::write(&image, [0; 512]).expect("a file");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&image, &link).expect("a link");
    let text = format!(
        "cache.disk = \"{1}\"\nlisten.unix = \"/run/s\"\n[[volume]]\nname = \"a\"\nbackend = \"{0}\"\n\
         [[volume]]\nname = \"b\"\nbackend = \"{1}\"\n",
        image.display(),
        link.display()
    );
    let said = said(&text, &Environment::new());
    assert!(said.contains("f.toml:5:11: ") && said.contains("is the cache disk"), "{said}");
    assert!(said.contains("f.toml:8:11: ") && said.contains("another volume's already (line 5)"), "{said}");
}

#[test]
fn a_mirror_needs_logs_and_a_device_of_its_own() {
    let with = |mirror: &str, backend: &str, mode: &str| {
        format!(
            "cache.disk = \"/nonexistent/c\"\ncache.disk_size = \"2GiB\"\ncache.log_mirror = \"{mirror}\"\nlisten.unix = \"/run/s\"\n\
             [[volume]]\nname = \"a\"\nbackend = \"{backend}\"\nmode = \"{mode}\"\n"
        )
    };
    let told = |text: &str| said(text, &Environment::new());
    assert_eq!(told(&with("/nonexistent/m", "/nonexistent/v", "back")), "");
    let same = told(&with("/nonexistent/c", "/nonexistent/v", "back"));
    assert!(
        same.contains("f.toml:3:20: /nonexistent/c is the cache disk; a mirror needs a device of its own"),
        "{same}"
    );
    let same = told(&with("/nonexistent/v", "/nonexistent/v", "back"));
    assert!(same.contains("/nonexistent/v is the back end of \"a\""), "{same}");
    let none = told(&with("/nonexistent/m", "/nonexistent/v", "through"));
    assert!(none.contains("warning: no volume has a write-back log to mirror"), "{none}");
    let alone =
        told(&with("/nonexistent/m", "/nonexistent/v", "through").replace("cache.disk = \"/nonexistent/c\"\n", ""));
    assert!(alone.contains("cache.log_mirror without a cache disk"), "{alone}");
}

#[test]
fn names_fit_the_superblock() {
    let text = volume("backend = \"/nonexistent/v\"").replace("\"v\"", &format!("\"{}\"", "n".repeat(57)));
    expect(&text, "f.toml:3:8: volume.name: the name is 57 bytes long; shorten it to 56\n");
    let text = volume("backend = \"/nonexistent/v\"").replace("\"v\"", "\"a\\nb\"");
    expect(&text, "f.toml:3:8: volume.name: the name \"a\\nb\" has control characters; leave them out\n");
    let many: String =
        (0..31).map(|i| format!("[[volume]]\nname = \"v{i}\"\nbackend = \"/nonexistent/{i}\"\n")).collect();
    expect(
        &format!("listen.unix = \"/run/s\"\n{many}"),
        "f.toml:92:1: 31 volumes are more than the 30 that a cache has room for; run a second cache for the rest\n",
    );
}

#[test]
fn a_volume_needs_a_name_and_a_back_end() {
    expect(
        "listen.unix = \"/run/s\"\n[[volume]]\n",
        "f.toml:2:1: this volume has no name; add name = a text in quotes\n\
         f.toml:2:1: this volume has no backend; add backend = \"nbd://HOST/EXPORT\" or a path in quotes\n",
    );
    expect(
        "",
        "f.toml: the server listens nowhere; add unix = \"/run/forebay/nbd.sock\" or tcp to [listen]\nf.toml: there is no volume; add [[volume]] with name and backend\n",
    );
}

#[test]
fn memory_too_small_tells_the_minimum() {
    expect(
        &above("cache.memory = \"16MiB\""),
        "f.toml:1:16: 16MiB of memory is too little: index, checksums and buffers take 24.0 MiB and frames need 3.1 MiB; \
         give at least \"28MiB\", or use larger pages or a smaller cache disk\n",
    );
    expect(
        &SOUND.replace("memory = \"1GiB\"", "memory = \"32MiB\""),
        "f.toml:5:10: 32MiB of memory is too little: index, checksums and buffers take 62.0 MiB and frames need 3.1 MiB; \
         give at least \"66MiB\", or use larger pages or a smaller cache disk\n",
    );
    let enough = SOUND.replace("memory = \"1GiB\"", "memory = \"66MiB\"");
    expect(&enough, "");
}

#[test]
fn disks_must_fit() {
    for (lines, expected) in [
        (
            "cache.disk = \"/nonexistent/c\"",
            "f.toml:1:14: /nonexistent/c does not exist and has no size; add disk_size = \"20GiB\"\n",
        ),
        ("cache.disk = \"/proc\"", "f.toml:1:14: /proc is neither a file nor a block device; name one that is\n"),
        (
            "cache.disk = \"/dev/null\"",
            "f.toml:1:14: /dev/null is neither a file nor a block device; name one that is\n",
        ),
        (
            "cache.disk_size = \"1GiB\"",
            "f.toml:1:19: cache.disk_size without a cache disk; add disk to [cache], or remove this\n",
        ),
        (
            "admission.policy = \"always\"",
            "f.toml:1:20: admission.policy without a cache disk; add disk to [cache], or remove this\n",
        ),
        (
            "[cache]\ndisk = \"/nonexistent/c\"\ndisk_size = \"1MiB\"",
            "f.toml:3:13: a cache disk of 1MiB is too small for pages of 64KiB; give it at least 2MiB\n",
        ),
    ] {
        expect(&above(lines), expected);
    }
    let empty = tempfile::NamedTempFile::new().expect("a file");
    let path = empty.path().display();
    expect(
        &above(&format!("cache.disk = \"{path}\"")),
        &format!("f.toml:1:14: {path} is an empty file and has no size; add disk_size = \"20GiB\"\n"),
    );
}

#[test]
fn listeners_must_not_clash() {
    expect(
        &above("admin.listen = \"127.0.0.1:10809\"").replace("unix = \"/run/s\"", "tcp = \"0.0.0.0:10809\""),
        "f.toml:1:16: 127.0.0.1:10809 is taken by listen.tcp (0.0.0.0:10809); give one of them another port\n\
         f.toml:3:7: warning: 0.0.0.0:10809 is not a loopback address; whoever reaches it can read and write every \
         volume: NBD here has neither authentication nor encryption; listen on 127.0.0.1, or keep the network private\n",
    );
    expect(
        &above("admin.listen = \"0.0.0.0:9809\""),
        "f.toml:1:16: warning: 0.0.0.0:9809 is not a loopback address; whoever reaches it can read metrics, flush and \
         evict; listen on 127.0.0.1, or keep the network private\n",
    );
    let long = format!("/run/{}", "s".repeat(103));
    expect(
        &above("").replace("/run/s", &long),
        "f.toml:3:8: listen.unix: the socket's path is 108 bytes long; the kernel takes 107: choose a shorter one\n",
    );
}

#[test]
fn a_cache_of_itself_is_refused() {
    for (listen, backend) in [
        ("tcp = \"0.0.0.0:10809\"", "nbd://127.0.0.1/v"),
        ("tcp = \"127.0.0.1:10809\"", "nbd://localhost/v"),
        ("unix = \"/run/s\"", "nbd+unix:///x?socket=/run/s"),
    ] {
        let said =
            said(&format!("listen.{listen}\n[[volume]]\nname = \"v\"\nbackend = \"{backend}\"\n"), &Environment::new());
        assert!(said.contains("is this server itself; name the server where the data is"), "{said}");
    }
}

#[test]
fn what_is_unsafe_or_useless_is_warned_of() {
    expect(
        &above("cache.intent_map = false"),
        "f.toml:1:20: warning: without the intent map a crash can leave old data in the cache; remove it but for \
         measurements\n",
    );
    expect(
        &volume("backend = \"/nonexistent/v\"\nconnections = 2"),
        "f.toml:5:15: warning: /nonexistent/v is not reached over connections; remove it\n",
    );
}

#[test]
fn a_file_that_is_none_is_told() {
    let load = |path: &str| load(Path::new(path), &Environment::new(), &Vec::new()).expect_err(path).to_string();
    assert_eq!(
        load("/nonexistent/f.toml"),
        "/nonexistent/f.toml: cannot be read: No such file or directory (os error 2); give the path of a configuration \
         file\n"
    );
    assert!(load("/proc").contains("cannot be read"));
    assert!(load("/dev/zero").contains("larger than 1MiB"));
}

#[test]
fn no_text_is_a_panic() {
    // Every prefix of a configuration, and every one with a byte changed, is read or reported.
    for at in 0..SOUND.len() {
        let _ = said(&SOUND[..at], &Environment::new());
        for byte in ["\"", "[", "=", "\n", "é", "{"] {
            let changed = format!("{}{byte}{}", &SOUND[..at], &SOUND[at + 1..]);
            let _ = said(&changed, &Environment::new());
        }
    }
}

#[test]
fn a_static_split_has_a_share_and_only_that() {
    let with = |split: &str| volume(&format!("backend = \"memory:1GiB\"\nsplit = {{ {split} }}"));
    let split = sound(&with("policy = \"static\", disk_percent = 70")).volumes[0].split;
    assert_eq!(split.kind, forebay_core::SplitKind::Static { disk_permil: 700 });
    for (split, problem) in [
        ("policy = \"static\"", "needs its share"),
        ("policy = \"climb\", disk_percent = 70", "only a static split"),
        ("policy = \"climbing\"", "climb"),
    ] {
        let said = said(&with(split), &Environment::new());
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn a_profile_is_read_before_anything_is_served() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("vm1.profile.json");
    let with = |split: &str| volume(&format!("backend = \"memory:1GiB\"\nsplit = {{ {split} }}"));
    let split = format!("policy = \"netcas\", profile = {file:?}");
    let missing = said(&with(&split), &Environment::new());
    assert!(missing.contains("vm1.profile.json: No such file") && missing.contains("`forebay profile`"), "{missing}");
    std::fs::write(&file, "{}").expect("a file");
    assert!(said(&with(&split), &Environment::new()).contains("it is no profile"));
    let profile = forebay_policy::split::profile::Profile::new();
    let saved = crate::profile::ProfileFile::new("vm1", &Default::default(), 0, None, &profile);
    saved.write(&file).expect("it is written");
    assert_eq!(sound(&with(&split)).volumes[0].profile.as_deref(), Some(file.as_path()));
    let without = said(&with("policy = \"netcas\""), &Environment::new());
    assert!(without.contains("without a profile netcas leaves every hit"), "{without}");
    assert!(!said(&with("policy = \"climb\""), &Environment::new()).contains("profile"));
}
