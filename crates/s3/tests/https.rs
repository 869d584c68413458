//! A store over HTTPS: the same answers, and none from a store that is not the one that was meant.

mod rig;

use forebay_s3::{Authorities, CacheConfig, Gateway, GatewayConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rig::bytes;
use rig::client::{Answer, ask};
use rig::shard::{PAGE_BYTES, Running, VOLUME_BYTES};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Spoken = StreamOwned<ServerConnection, TcpStream>;

/// What a certificate says.
#[derive(Clone, Copy)]
struct Made {
    name: &'static str,
    until_year: i32,
}

const SOUND: Made = Made { name: "127.0.0.1", until_year: 4000 };

/// A store over TLS that answers each request with what its path asks for.
struct Store {
    address: SocketAddr,
    authority: Authorities,
    connections: Arc<AtomicUsize>,
}

impl Store {
    fn start(made: Made) -> Self {
        let (config, authority) = certified(made);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || serve(StreamOwned::new(connection, stream)));
            }
        });
        Self { address, authority, connections }
    }
}

/// A server's settings with a new certificate, and who vouches for it.
fn certified(made: Made) -> (Arc<ServerConfig>, Authorities) {
    let mut of_issuer = CertificateParams::new(Vec::new()).expect("no names");
    of_issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(of_issuer, KeyPair::generate().expect("a key")).expect("signed");
    let mut params = CertificateParams::new(vec![made.name.to_owned()]).expect("a name");
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(made.until_year, 1, 1));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("settings").with_no_client_auth().with_single_cert(chain, key).expect("it fits");
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let file = format!("forebay-https-{}-{}.pem", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, issuer.pem()).expect("written");
    let authority = Authorities::read(&file).expect("sound");
    std::fs::remove_file(&file).expect("it was there");
    (Arc::new(config), authority)
}

/// `/b/LENGTH`: so many bytes. `/b/chunked`, `/b/torn`, `/b/torn-uncounted`: what they say; PUT: yes.
fn serve(mut stream: Spoken) -> Option<()> {
    while let Some(head) = head(&mut stream) {
        let mut words = head.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.strip_prefix("/b/")?.to_owned());
        let ok = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\n";
        match path.as_str() {
            _ if method == "PUT" => {
                let length =
                    head.to_ascii_lowercase().split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
                let mut body = vec![0; length];
                stream.read_exact(&mut body).ok()?;
                let is_right = body == bytes(length as u64, length as u64);
                let status = if is_right { "200 OK" } else { "400 Bad" };
                write!(stream, "HTTP/1.1 {status}\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n").ok()?;
            }
            "chunked" => write!(stream, "{ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").ok()?,
            "torn" => {
                return write!(stream, "{ok}Content-Length: 10\r\n\r\nabc").ok().and_then(|()| stream.flush().ok());
            }
            // Closed without TLS's own goodbye.
            "torn-uncounted" => {
                return write!(stream, "{ok}Connection: close\r\n\r\nabc").ok().and_then(|()| stream.flush().ok());
            }
            "ended-uncounted" => {
                write!(stream, "{ok}Connection: close\r\n\r\nabc").ok()?;
                stream.conn.send_close_notify();
                return stream.flush().ok();
            }
            length => {
                let length: u64 = length.parse().ok()?;
                write!(stream, "{ok}Content-Length: {length}\r\n\r\n").ok()?;
                if method != "HEAD" {
                    stream.write_all(&bytes(length, length)).ok()?;
                }
            }
        }
        stream.flush().ok()?;
    }
    Some(())
}

fn head(stream: &mut Spoken) -> Option<String> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    String::from_utf8(text).ok()
}

struct Before {
    store: Store,
    gateway: Gateway,
    _shard: Running,
}

impl Before {
    /// `is_known`: the gateway trusts who vouches for the store.
    fn new(made: Made, is_known: bool) -> Self {
        let (store, shard) = (Store::start(made), Running::start(true));
        let stranger = certified(SOUND).1;
        let cache = CacheConfig {
            policies: Vec::new(),
            pool: shard.pool.clone(),
            reads: None,
            space_bytes: VOLUME_BYTES,
            page_bytes: PAGE_BYTES,
            versions_max: 1000,
            small_bytes: 1 << 20,
            metadata_ttl: Duration::ZERO,
        };
        let gateway = Gateway::start(GatewayConfig {
            events_token: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            backend: format!("https://{}", store.address),
            authorities: Some(if is_known { store.authority.clone() } else { stranger }),
            names: Vec::new(),
            connections_max: 16,
            answers_within: Duration::from_secs(2),
            head_within: Duration::from_secs(10),
            threads: 2,
            verify: None,
            split_key: None,
            cache: Some(cache),
        })
        .expect("it starts");
        Self { store, gateway, _shard: shard }
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        ask(self.gateway.address(), method, path, &[], body)
    }

    /// All that comes, in chunks where nothing counts the body.
    fn raw(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.gateway.address()).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        let mut text = Vec::new();
        // What broke off is told by what is there.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).expect("text")
    }
}

#[test]
fn objects_and_uploads_are_the_same_over_tls_and_connections_are_used_again() {
    let before = Before::new(SOUND, true);
    for length in [0, 1, 5000, 100_000, VOLUME_BYTES / 64] {
        let answer = before.ask("GET", &format!("/b/{length}"), b"");
        assert!(answer.status == 200 && answer.body == bytes(length, length), "{length}");
    }
    assert_eq!(before.store.connections.load(Ordering::Relaxed), 1, "reads");
    for length in [1, 300_000] {
        assert_eq!(before.ask("PUT", "/b/k", &bytes(length, length)).status, 200, "{length}");
    }
    assert_eq!(before.store.connections.load(Ordering::Relaxed), 2, "uploads have HTTP's library's own");
    let chunked = before.raw("/b/chunked");
    assert!(chunked.ends_with("abc\r\n0\r\n\r\n"), "{chunked}");
}

#[test]
fn an_answer_that_ends_without_tls_ending_is_a_torn_one() {
    let before = Before::new(SOUND, true);
    let torn = before.ask("GET", "/b/torn", b"");
    assert!(torn.is_torn && torn.body == b"abc", "{torn:?}");
    for (path, is_whole) in [("/b/torn-uncounted", false), ("/b/ended-uncounted", true)] {
        let text = before.raw(path);
        assert!(text.contains("abc"), "{path}: {text}");
        assert_eq!(text.ends_with("0\r\n\r\n"), is_whole, "{path}: {text}");
    }
}

#[test]
fn a_store_that_is_not_the_one_that_was_meant_is_asked_nothing() {
    for (made, is_known, told) in [
        (SOUND, false, "nobody who is trusted here vouches for its certificate"),
        (Made { name: "store.example", ..SOUND }, true, "its certificate is for another host"),
        (Made { until_year: 2020, ..SOUND }, true, "its certificate has expired"),
    ] {
        let before = Before::new(made, is_known);
        for (method, body) in [("GET", vec![]), ("PUT", bytes(9, 9))] {
            let answer = before.ask(method, "/b/9", &body);
            let text = String::from_utf8(answer.body).expect("text");
            let named = before.store.address.to_string();
            assert_eq!(answer.status, 503, "{method}: {text}");
            assert!(text.contains(told) && text.contains(&named), "{method}: {text}");
        }
    }
}

#[test]
fn what_is_not_tls_is_told_as_such() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let gateway = Gateway::start(GatewayConfig {
        events_token: None,
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        backend: format!("https://{address}"),
        authorities: Some(certified(SOUND).1),
        names: Vec::new(),
        connections_max: 16,
        answers_within: Duration::from_secs(2),
        head_within: Duration::from_secs(10),
        threads: 1,
        verify: None,
        split_key: None,
        cache: None,
    })
    .expect("it starts");
    let answer = ask(gateway.address(), "GET", "/b/9", &[], b"");
    let text = String::from_utf8(answer.body).expect("text");
    assert!(answer.status == 503 && text.contains("TLS could not be agreed on"), "{text}");
}
