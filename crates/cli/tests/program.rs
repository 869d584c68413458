//! The program as a user runs it: output, messages and exit codes.

use forebay_admin::{
    AdminServer, Control, ControlError, Devices, ErrorKind, ExplainedObject, ForgottenObjects, FoundObjects, Measure,
    ObjectVersion, PathRate, ProfileNote, Snapshot, State, Tier, Volume,
};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

/// Runs the program with an empty environment.
fn forebay(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let Output { status, stdout, stderr } = command.env_clear().args(arguments).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("forebay.toml");
    std::fs::write(&path, text).expect("a file");
    (directory, path)
}

const SOUND: &str = "[cache]\ndisk = \"/nonexistent/cache.img\"\ndisk_size = \"20GiB\"\nmemory = \"1GiB\"\n\
    [listen]\nunix = \"/run/forebay/nbd.sock\"\n[[volume]]\nname = \"vm1\"\nbackend = \"nbd://10.0.0.5/vm1\"\n";

/// A profile with a load that was observed on one path.
const LEARNT: &str = r#"{
    "version": 1, "volume": "vm1", "measured_unix_seconds": 7, "client_requests": 0, "quick_error": null,
    "devices": {"disk_model": "S4510", "disk_serial": "", "backend_kind": "nbd", "link_bits_per_second": 0},
    "rows": [
        {"block_bytes": 4096, "in_flight": 1, "submitters": 1, "disk_bytes_per_second": 2e6,
         "backend_bytes_per_second": 1e6, "source": "measured"},
        {"block_bytes": 65536, "in_flight": 8, "submitters": 4, "disk_bytes_per_second": 0.0,
         "backend_bytes_per_second": 64e6, "source": "observed"}
    ]
}"#;

#[derive(Default)]
struct Fake {
    orders: Mutex<Vec<String>>,
}

impl Control for Fake {
    fn state(&self) -> State {
        State::Ready
    }

    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let devices = Devices { disk_model: "S4510".into(), backend_kind: "nbd".into(), ..Devices::default() };
        let volume = |name: &str| Volume {
            name: name.into(),
            mode: "through".into(),
            bytes: 1 << 30,
            devices: devices.clone(),
            ..Volume::default()
        };
        Ok(Snapshot {
            version: "0.1.0".into(),
            state: State::Ready,
            page_bytes: 65536,
            memory: Tier { pages: 16, pages_max: 32 },
            volumes: vec![volume("vm1"), volume("a/b c")],
            ..Snapshot::default()
        })
    }

    fn flush(&self, volume: &str) -> Result<(), ControlError> {
        if !["vm1", "a/b c"].contains(&volume) {
            return Err(ControlError::no_volume(volume));
        }
        self.orders.lock().expect("unpoisoned").push(format!("flush {volume}"));
        Ok(())
    }

    fn split(&self, volume: &str, policy: &str, _: Option<u64>) -> Result<(), ControlError> {
        if volume != "vm1" {
            return Err(ControlError::no_volume(volume));
        }
        assert_eq!(policy, "climb");
        Ok(())
    }

    fn mode(&self, _volume: &str, _mode: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn accept_loss(&self, _volume: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn measure(&self, volume: &str, measure: Measure) -> Result<PathRate, ControlError> {
        if volume != "vm1" {
            let cause = "the cache disk holds only 3 runs";
            return Err(ControlError::new(ErrorKind::Failed, "volume", cause, "read some of it first"));
        }
        let full = if measure.is_backend { 64e6 } else { 128e6 };
        Ok(PathRate {
            bytes_per_second: full * f64::from(measure.in_flight.min(8)) / 8.0,
            in_flight: measure.in_flight,
            reads: 100,
        })
    }

    fn profile(&self, volume: &str, file: &str) -> Result<ProfileNote, ControlError> {
        self.orders.lock().expect("unpoisoned").push(format!("profile {volume} {file}"));
        Ok(ProfileNote { file: file.to_owned(), points: 58, note: String::new() })
    }

    fn learnt(&self, volume: &str) -> Result<serde_json::Value, ControlError> {
        match volume {
            "vm1" => Ok(serde_json::from_str(LEARNT).expect("JSON")),
            _ => Err(ControlError::no_volume(volume)),
        }
    }

    fn evict(&self, volume: &str, offset: u64, length: Option<u64>) -> Result<(), ControlError> {
        self.orders.lock().expect("unpoisoned").push(format!("evict {volume} {offset} {length:?}"));
        Ok(())
    }

    fn find_objects(&self, uri: &str) -> Result<FoundObjects, ControlError> {
        let version = ObjectVersion { uri: uri.to_owned(), bytes: 100, memory_bytes: 100, ..ObjectVersion::default() };
        Ok(FoundObjects { versions: vec![version], has_more: false })
    }

    fn forget_objects(&self, uri: &str) -> Result<ForgottenObjects, ControlError> {
        self.orders.lock().expect("unpoisoned").push(format!("evict {uri}"));
        Ok(ForgottenObjects { versions: 1, bytes: 100 })
    }

    fn explain_object(&self, _uri: &str) -> Result<ExplainedObject, ControlError> {
        Err(ControlError::new(ErrorKind::NotFound, "s3://b/k", "nothing is known of it", "read it once"))
    }
}

fn serve() -> (AdminServer, String, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let control: Arc<dyn Control> = Arc::clone(&fake) as _;
    let server = AdminServer::start("127.0.0.1:0".parse().expect("an address"), control).expect("it starts");
    let address = server.address().to_string();
    (server, address, fake)
}

#[test]
fn a_sound_configuration_is_told_with_its_budget() {
    let (_directory, path) = file(SOUND);
    let (code, out, err) = forebay(&["check", path.to_str().expect("UTF-8")]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in ["MEMORY 1GiB", "frames that keep pages", "DISK /nonexistent/cache.img (20GiB)", "slot table", "vm1"] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
    let (code, out, _) = forebay(&["check", path.to_str().expect("UTF-8"), "-o", "json", "--cache-memory", "512MiB"]);
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &value["sound"], &value["budget"]["memory_bytes"]), (0, &true.into(), &(512u64 << 20).into()));
    assert!(value["budget"]["disk"]["slots"].as_u64() > Some(300_000));
}

#[test]
fn a_bad_configuration_is_told_whole_and_ends_with_2() {
    let (_directory, path) = file(&SOUND.replace("memory =", "memroy =").replace("name =", "nmae ="));
    let path = path.to_str().expect("UTF-8");
    let expected = format!(
        "{path}:4:1: unknown key \"memroy\" in [cache]; nearest: \"memory\"\n\
         {path}:7:1: this volume has no name; add name = a text in quotes\n\
         {path}:8:1: unknown key \"nmae\" in [[volume]]; nearest: \"name\"\n"
    );
    assert_eq!(forebay(&["check", path]), (2, String::new(), expected.clone()));
    assert_eq!(forebay(&["serve", "--config", path]), (2, String::new(), expected));
    let (code, out, _) = forebay(&["check", path, "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &value["sound"]), (2, &false.into()));
    assert_eq!(value["problems"][0]["place"], serde_json::json!({ "line": 4, "column": 1 }));
}

#[test]
fn arguments_that_are_none_end_with_2() {
    for arguments in
        [&[][..], &["serv"], &["check"], &["status", "--admin", "x"], &["evict", "v", "1K"], &["-o", "xml", "status"]]
    {
        let (code, out, err) = forebay(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(!err.is_empty());
    }
    let (code, out, _) = forebay(&["--version"]);
    assert_eq!((code, out), (0, format!("forebay {}\n", env!("CARGO_PKG_VERSION"))));
    assert_eq!(forebay(&["--help"]).0, 0);
}

#[test]
fn status_and_stats_show_a_running_server() {
    let (_server, address, _) = serve();
    let (code, out, err) = forebay(&["status", "--admin", &address]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("forebay 0.1.0: ready") && out.contains("50.0 %") && out.contains("a/b c"), "{out}");
    let (code, out, _) = forebay(&["stats", "vm1", "--admin", &address, "-o", "json"]);
    let snapshot: Snapshot = serde_json::from_str(&out).expect("a snapshot");
    assert_eq!((code, snapshot.volumes.len()), (0, 1));
    let (code, _, err) = forebay(&["stats", "nosuch", "--admin", &address]);
    assert_eq!(code, 3);
    assert_eq!(err, "forebay: volume \"nosuch\": there is none of that name; `forebay status` lists them\n");
}

#[test]
fn top_prints_one_second_without_a_terminal() {
    let (_server, address, _) = serve();
    let (code, out, err) = forebay(&["top", "--admin", &address]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("ready, up ") && out.contains("VOLUME  READ/S") && out.contains("a/b c"), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
    let (code, out, _) = forebay(&["top", "vm1", "--admin", &address, "-o", "json"]);
    let view: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &view["state"], view["volumes"].as_array().map(Vec::len)), (0, &"ready".into(), Some(1)));
    assert_eq!(view["volumes"][0]["reads_per_second"], serde_json::json!(0.0));
    assert_eq!(forebay(&["top", "nosuch", "--once", "--admin", &address]).0, 3);
}

#[test]
fn orders_arrive_and_codes_tell_how_they_went() {
    let (_server, address, fake) = serve();
    let ask = |arguments: &[&str]| forebay(&[arguments, &["--admin", &address]].concat());
    assert_eq!(ask(&["flush", "vm1"]), (0, "vm1: flushed\n".into(), String::new()));
    assert_eq!(ask(&["flush", "a/b c"]).0, 0);
    assert_eq!(ask(&["evict", "vm1", "1GiB+64MiB"]), (0, "vm1: evicted\n".into(), String::new()));
    assert_eq!(ask(&["evict", "vm1"]).0, 0);
    assert_eq!(ask(&["evict", "s3://b/a c*"]).1, "s3://b/a c*: 1 versions evicted, of 100 B\n");
    assert_eq!(ask(&["evict", "s3://b/k", "1GiB"]).0, 2);
    let (code, stdout, _) = ask(&["stat", "s3://b/k"]);
    assert!(code == 0 && stdout.contains("s3://b/k"), "{stdout}");
    assert_eq!(ask(&["stat", "s3://"]).0, 3, "no gateway is configured");
    let told = "forebay: s3://b/k: nothing is known of it; read it once\n".to_owned();
    assert_eq!(ask(&["explain", "s3://b/k"]), (3, String::new(), told));
    assert_eq!(ask(&["flush", "nosuch"]).0, 3);
    let (code, out, err) = ask(&["flush", "vm1", "nosuch"]);
    assert_eq!((code, out.as_str()), (4, "vm1: flushed\n"));
    assert!(err.contains("\"nosuch\""));
    let (code, out, _) = ask(&["flush", "vm1", "nosuch", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &value[0]["done"], &value[1]["done"]), (4, &true.into(), &false.into()));
    assert_eq!(
        fake.orders.lock().expect("unpoisoned")[..4],
        ["flush vm1", "flush a/b c", "evict vm1 1073741824 Some(67108864)", "evict vm1 0 None"]
    );
}

#[test]
fn nobody_there_is_temporary_and_somebody_else_is_a_failure() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (code, _, err) = forebay(&["status", "--admin", &free.to_string()]);
    assert_eq!(code, 5);
    assert!(err.contains("is `forebay serve` running?"), "{err}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    });
    let (code, _, err) = forebay(&["status", "--admin", &address]);
    assert_eq!(code, 1);
    assert!(err.contains("does not answer like forebay's admin endpoint"), "{err}");
}

#[test]
fn the_demo_shows_a_gain_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let arguments = ["demo", "--seconds", "4"];
    let output = command.env_clear().env("TMPDIR", directory.path()).args(arguments).output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("every byte read was compared") && out.contains("metrics  http://127.0.0.1:"), "{out}");
    // The first miss and its 64 fellows, then 512 pages in sequence; each was a hit the second time.
    for path in ["memory", "backend"] {
        let sample = format!("forebay_volume_read_parts_total{{volume=\"demo\",path=\"{path}\"}} 577\n");
        assert!(out.contains(&sample), "{out}");
    }
    for act in ["the cache disk alone", "hits are split", "the back end is congested", "the back end is free again"] {
        let told = out.lines().filter(|line| line.starts_with(act));
        assert_eq!(told.count(), 2, "when {act} begins, and what it delivered\n{out}");
    }
    assert!(!out.contains('\x1b') && !out.contains('\r'), "plain lines without a terminal\n{out}");
    let gain = |act: &str| {
        let told = out.lines().rfind(|line| line.starts_with(act)).expect("it is told");
        told.strip_suffix(" x cache only").and_then(|told| told.rsplit(' ').next()).and_then(|gain| gain.parse().ok())
    };
    let gains = ["hits are split", "the back end is congested", "the back end is free again"].map(gain);
    let [split, congested, freed]: [f64; 3] = gains.map(|gain| gain.expect("a number"));
    assert!(split > 1.2 && freed > 1.2 && congested < split && congested > 0.8, "{gains:?}\n{out}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_profile_is_measured_saved_given_to_the_server_and_shown() {
    let (_server, address, fake) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("vm1.profile.json");
    let file = file.to_str().expect("UTF-8");
    let (exit, out, err) = forebay(&["profile", "vm1", "--quick", "--out", file, "--admin", &address]);
    assert_eq!(exit, 0, "{err}");
    for part in ["\"S4510\"", "link not known", "interpolated", "122.1 MiB/s", "61.0 MiB/s", "256", "66.7 %"] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    assert!(err.contains(&format!("saved as {file}")), "{err}");
    assert_eq!(*fake.orders.lock().expect("unpoisoned"), [format!("profile vm1 {file}")]);
    assert_eq!(forebay(&["profile", "--show", file]), (0, out, String::new()));
    let (exit, json, _) = forebay(&["profile", "--show", file, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((exit, json["rows"].as_array().map(Vec::len)), (0, Some(58)));
    assert_eq!(forebay(&["profile", "vm1", "--load", file, "--admin", &address]).0, 0);
    assert_eq!(fake.orders.lock().expect("unpoisoned").len(), 2);
}

#[test]
fn what_cannot_be_measured_is_an_error_and_leaves_no_file() {
    let (_server, address, _) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("none.json");
    let measure = |volume| forebay(&["profile", volume, "--out", file.to_str().expect("UTF-8"), "--admin", &address]);
    let (exit, _, err) = measure("a/b c");
    assert!(exit == 1 && err.contains("only 3 runs; read some of it first"), "{err}");
    assert_eq!(measure("nosuch").0, 3);
    assert!(!file.exists());
    // Known before it is measured.
    let (exit, _, err) = forebay(&["profile", "nosuch", "--config", "/nonexistent/forebay.toml", "--admin", &address]);
    assert!(exit == 1 && err.contains("/nonexistent/nosuch.profile.json: No such file"), "{err}");
    let (exit, _, err) = forebay(&["profile", "--show", file.to_str().expect("UTF-8")]);
    assert!(exit == 1 && err.contains("none.json: No such file"), "{err}");
    assert_eq!(forebay(&["profile"]).0, 2);
}

#[test]
fn what_a_policy_learnt_is_shown_and_saved() {
    let (_server, address, _) = serve();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("learnt.json");
    let (exit, out, err) = forebay(&["profile", "vm1", "--learnt", "--admin", &address]);
    assert!(
        exit == 0 && out.contains("8 x 4") && out.contains("61.0 MiB/s *") && out.contains("not known"),
        "{out}{err}"
    );
    let words = ["profile", "vm1", "--learnt", "--out", file.to_str().expect("UTF-8"), "--admin", &address];
    assert_eq!(forebay(&words).0, 0);
    assert_eq!(forebay(&["profile", "--show", file.to_str().expect("UTF-8")]).1, out);
    assert_eq!(forebay(&["profile", "nosuch", "--learnt", "--admin", &address]).0, 3);
}
