//! The endpoint over real sockets: answers, refusals, bounds.

use forebay_admin::{
    AdminServer, Control, ControlError, ErrorKind, ExplainedObject, ForgottenObjects, FoundObjects, Measure,
    ObjectVersion, PathRate, ProfileNote, Snapshot, State, Volume,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LEARNT: &str = "{}";

#[derive(Default)]
struct Fake {
    state: Mutex<State>,
    orders: Mutex<Vec<String>>,
    /// Flushes wait until it is set.
    release: Option<Arc<AtomicBool>>,
    /// Flushes that began.
    flushes: AtomicUsize,
}

impl Control for Fake {
    fn state(&self) -> State {
        *self.state.lock().expect("unpoisoned")
    }

    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let volumes = vec![Volume { name: "vm1".into(), memory_hits: 3, misses: 1, ..Volume::default() }];
        Ok(Snapshot { version: "0".into(), state: self.state(), volumes, ..Snapshot::default() })
    }

    fn flush(&self, volume: &str) -> Result<(), ControlError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if let Some(release) = &self.release {
            while !release.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match volume {
            "vm1" => {
                self.orders.lock().expect("unpoisoned").push(format!("flush {volume}"));
                Ok(())
            }
            "bug" => panic!("planted"),
            "down" => Err(ControlError::new(ErrorKind::Temporary, "volume \"down\"", "its back end is away", "wait")),
            _ => Err(ControlError::no_volume(volume)),
        }
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
            return Err(ControlError::no_volume(volume));
        }
        Ok(PathRate { bytes_per_second: f64::from(measure.block_bytes), in_flight: measure.in_flight, reads: 7 })
    }

    fn profile(&self, _volume: &str, file: &str) -> Result<ProfileNote, ControlError> {
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

fn start(fake: Fake) -> (AdminServer, Arc<Fake>) {
    let fake = Arc::new(fake);
    let control: Arc<dyn Control> = Arc::clone(&fake) as _;
    (AdminServer::start("127.0.0.1:0".parse().expect("an address"), control).expect("it starts"), fake)
}

/// Sends bytes and returns all that comes back.
fn raw(server: &AdminServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(server: &AdminServer, method: &str, path: &str) -> (u16, String) {
    ask_with(server, method, path, "Host: localhost\r\n")
}

fn ask_with(server: &AdminServer, method: &str, path: &str, headers: &str) -> (u16, String) {
    let answer = raw(server, format!("{method} {path} HTTP/1.1\r\n{headers}\r\n").as_bytes());
    let status =
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

#[test]
fn metrics_status_and_stats_show_the_snapshot() {
    let (server, _) = start(Fake::default());
    let (status, body) = ask(&server, "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(body.contains("forebay_volume_read_parts_total{volume=\"vm1\",path=\"memory\"} 3\n"), "{body}");
    assert!(body.ends_with("# EOF\n"));
    let (status, body) = ask(&server, "GET", "/api/v1/status");
    let value: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &value["volumes"][0]["hit_ratio"]), (200, &serde_json::json!(0.75)));
    let (status, body) = ask(&server, "GET", "/api/v1/stats");
    let snapshot: Snapshot = serde_json::from_str(&body).expect("a snapshot");
    assert_eq!((status, snapshot.volumes[0].misses), (200, 1));
    let (status, body) = ask(&server, "HEAD", "/metrics");
    assert_eq!((status, body.as_str()), (200, ""));
}

#[test]
fn health_and_readiness_follow_the_state() {
    let (server, fake) = start(Fake::default());
    for (state, health, ready) in [
        (State::Starting, 200, 503),
        (State::Recovering, 200, 200),
        (State::Ready, 200, 200),
        (State::Draining, 200, 503),
        (State::Failed, 503, 503),
    ] {
        *fake.state.lock().expect("unpoisoned") = state;
        assert_eq!(ask(&server, "GET", "/healthz").0, health, "{state:?}");
        assert_eq!(ask(&server, "GET", "/readyz"), (ready, format!("{{\"state\":\"{}\"}}\n", state.name())));
    }
}

#[test]
fn orders_arrive_and_errors_say_what_to_do() {
    let (server, fake) = start(Fake::default());
    assert_eq!(ask(&server, "POST", "/api/v1/volumes/vm1/flush").0, 200);
    assert_eq!(ask(&server, "POST", "/api/v1/volumes/vm1/evict?offset=4096&length=8192").0, 200);
    assert_eq!(*fake.orders.lock().expect("unpoisoned"), ["flush vm1", "evict vm1 4096 Some(8192)"]);
    assert_eq!(
        ask(&server, "POST", "/api/v1/volumes/nosuch/flush"),
        (
            404,
            "{\"error\":{\"kind\":\"not_found\",\"thing\":\"volume \\\"nosuch\\\"\",\"cause\":\"there is none of that name\",\
             \"next\":\"`forebay status` lists them\"}}\n"
                .to_owned()
        )
    );
    for (method, path, expected) in [
        ("POST", "/api/v1/volumes/down/flush", 503),
        ("POST", "/api/v1/volumes/bug/flush", 500),
        ("POST", "/api/v1/volumes/vm1/evict?offset=x", 400),
        ("GET", "/api/v1/volumes/vm1/flush", 405),
        ("POST", "/metrics", 405),
        ("GET", "/", 404),
    ] {
        let (status, body) = ask(&server, method, path);
        assert_eq!(status, expected, "{method} {path}");
        assert!(body.starts_with("{\"error\":{\"kind\":"), "{body}");
    }
}

#[test]
fn strangers_are_refused() {
    let (server, fake) = start(Fake::default());
    for headers in [
        "Host: evil.example\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
    ] {
        assert_eq!(ask_with(&server, "POST", "/api/v1/volumes/vm1/flush", headers).0, 403, "{headers}");
    }
    assert_eq!(ask_with(&server, "GET", "http://evil.example/metrics", "Host: localhost\r\n").0, 403);
    assert_eq!(ask_with(&server, "GET", "/metrics", "").0, 400);
    assert!(fake.orders.lock().expect("unpoisoned").is_empty());
}

#[test]
fn garbage_and_endless_heads_are_answered_or_closed() {
    let (server, _) = start(Fake::default());
    raw(&server, b"\x16\x03\x01\x02\x00garbage\r\n\r\n");
    raw(&server, b"NBDMAGICIHAVEOPT\r\n\r\n");
    let endless = [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ".as_slice(), &[b'x'; 1 << 20]].concat();
    let answer = raw(&server, &endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let huge = b"POST /api/v1/volumes/vm1/flush HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n";
    assert!(raw(&server, huge).starts_with("HTTP/1.1 200"));
    assert_eq!(ask(&server, "GET", "/healthz").0, 200);
}

#[test]
fn a_flush_that_waits_does_not_stop_a_scrape_and_a_third_is_turned_away() {
    let release = Arc::new(AtomicBool::new(false));
    let (server, fake) = start(Fake { release: Some(Arc::clone(&release)), ..Fake::default() });
    std::thread::scope(|scope| {
        let flush = || ask(&server, "POST", "/api/v1/volumes/vm1/flush").0;
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(flush)).collect();
        while fake.flushes.load(Ordering::Relaxed) < 2 {
            std::thread::yield_now();
        }
        assert_eq!(ask(&server, "POST", "/api/v1/volumes/vm1/evict").0, 503);
        assert_eq!(ask(&server, "GET", "/metrics").0, 200);
        assert_eq!(ask(&server, "GET", "/healthz").0, 200);
        release.store(true, Ordering::Relaxed);
        for flush in waiting {
            assert_eq!(flush.join().expect("a status"), 200);
        }
    });
}

#[test]
fn idle_connections_are_closed_and_do_not_starve_others() {
    let (server, _) = start(Fake::default());
    let mut idle: Vec<_> = (0..70).map(|_| TcpStream::connect(server.address()).expect("backlog")).collect();
    // 64 are served and say nothing for 5 s; then others have their turn.
    let begin = Instant::now();
    assert_eq!(ask(&server, "GET", "/healthz").0, 200);
    assert!(begin.elapsed() < Duration::from_secs(9));
    let mut answer = Vec::new();
    idle[0].set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let _ = idle[0].read_to_end(&mut answer);
}

#[test]
fn stopping_frees_the_address_at_once() {
    let release = Arc::new(AtomicBool::new(false));
    let (server, _) = start(Fake { release: Some(Arc::clone(&release)), ..Fake::default() });
    let address = server.address();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"POST /api/v1/volumes/vm1/flush HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(2), "a flush that waits holds the process");
    let control: Arc<dyn Control> = Arc::new(Fake::default());
    let again = AdminServer::start(address, control).expect("the address is free");
    assert_eq!(ask(&again, "GET", "/healthz").0, 200);
    let taken = AdminServer::start(address, Arc::new(Fake::default())).expect_err("taken").to_string();
    assert!(taken.contains("cannot listen on 127.0.0.1") && taken.contains("set admin.listen"), "{taken}");
    release.store(true, Ordering::Relaxed);
}
