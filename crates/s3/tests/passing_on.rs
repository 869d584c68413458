//! What is passed on is passed on as it came, both ways, while it comes; and what the gateway says itself when there is no store.

use forebay_s3::{Gateway, GatewayConfig};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

fn gateway(store: SocketAddr, change: impl FnOnce(&mut GatewayConfig)) -> Gateway {
    let mut config = GatewayConfig {
        events_token: None,
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        backend: format!("http://{store}"),
        authorities: None,
        names: Vec::new(),
        connections_max: 16,
        answers_within: Duration::from_secs(5),
        head_within: Duration::from_secs(10),
        threads: 2,
        verify: None,
        split_key: None,
        cache: None,
    };
    change(&mut config);
    Gateway::start(config).expect("it starts")
}

/// A head, line by line, and what follows.
struct Incoming {
    lines: Vec<String>,
    stream: BufReader<TcpStream>,
}

impl Incoming {
    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a head");
            if line == "\r\n" || line.is_empty() {
                return Self { lines, stream };
            }
            lines.push(line.trim_end().to_owned());
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.lines[1..].iter().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        body
    }

    fn whole(mut self) -> Seen {
        let length = self.header("content-length").map_or(0, |it| it.parse().expect("a length"));
        let body = self.body(length);
        (self.lines, body)
    }
}

/// A head and a body.
type Seen = (Vec<String>, Vec<u8>);

/// A store that reads one request a connection, hands it out, and answers so.
fn store(answers: Vec<Vec<u8>>) -> (SocketAddr, Receiver<Seen>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut back = stream.try_clone().expect("a socket");
            if sender.send(Incoming::of(stream).whole()).is_err() {
                return;
            }
            back.write_all(&answer).expect("sent");
        }
    });
    (address, receiver)
}

fn asked(gateway: &Gateway, request: &[u8]) -> Incoming {
    let mut stream = TcpStream::connect(gateway.address()).expect("it listens");
    stream.write_all(request).expect("sent");
    Incoming::of(stream)
}

#[test]
fn a_request_arrives_as_it_left() {
    let (address, seen) =
        store(vec![b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()]);
    let gateway = gateway(address, |_| ());
    let head = [
        "PUT /b/a%2Fb%20+~!$&'()*,;=:@//%00?partNumber=1&uploadId=a%2Bb HTTP/1.1",
        "Host: bucket.s3.example:9000",
        "Authorization: AWS4-HMAC-SHA256 Credential=A/20261122/r/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00",
        "X-Amz-Date: 20261122T000000Z",
        "X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "X-Amz-Meta-Two: a,  b",
        "Content-Encoding: aws-chunked",
        "Content-Length: 17",
    ];
    let body = b"5\r\nhello\r\n0\r\nx:1\r\n";
    let mut request = head.join("\r\n").into_bytes();
    request.extend_from_slice(b"\r\nConnection: keep-alive\r\n\r\n");
    request.extend_from_slice(&body[..17]);
    let answer = asked(&gateway, &request);
    let (mut lines, received) = seen.recv_timeout(PATIENCE).expect("it arrived");
    assert_eq!(lines.remove(0), head[0]);
    let lower = |line: &str| line.split_once(": ").map(|(name, value)| format!("{}: {value}", name.to_lowercase()));
    let mut sent: Vec<_> = head[1..].iter().map(|line| lower(line)).collect();
    let mut arrived: Vec<_> = lines.iter().map(|line| lower(line)).collect();
    sent.sort();
    arrived.sort();
    assert_eq!(arrived, sent);
    assert_eq!(received, &body[..17]);
    assert_eq!(answer.lines[0], "HTTP/1.1 200 OK");
    assert_eq!((answer.header("etag"), answer.header("x-cache")), (Some("\"x\""), Some("BYPASS")));
}

#[test]
fn an_answer_arrives_as_it_left_and_while_it_comes() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let gateway = gateway(listener.local_addr().expect("an address"), |_| ());
    let mut client = TcpStream::connect(gateway.address()).expect("it listens");
    client.write_all(b"GET /b/k HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\n\r\n").expect("sent");
    let (stream, _) = listener.accept().expect("it is passed on");
    let mut back = stream.try_clone().expect("a socket");
    assert_eq!(Incoming::of(stream).header("range"), Some("bytes=0-9"));
    let head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/20\r\nContent-Length: 10\r\nx-amz-meta-a: b\r\n\r\n12345";
    back.write_all(head.as_bytes()).expect("sent");
    let mut answer = Incoming::of(client);
    assert_eq!(answer.lines[0], "HTTP/1.1 206 Partial Content");
    assert_eq!((answer.header("content-range"), answer.header("x-amz-meta-a")), (Some("bytes 0-9/20"), Some("b")));
    assert_eq!(answer.body(5), b"12345", "the first half is there before the second is sent");
    back.write_all(b"67890").expect("sent");
    assert_eq!(answer.body(5), b"67890");
}

/// A store that says no at once, and takes whatever follows for the next request.
#[test]
fn a_body_is_never_the_next_request_to_a_store_that_does_not_wait_for_it() {
    for signed in [false, true] {
        let no = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec();
        let (address, seen) = store(vec![no.clone(), no]);
        let gateway = gateway(address, |_| ());
        let names = if signed { "expect;host" } else { "host" };
        let put = format!(
            "PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=A, SignedHeaders={names}, Signature=0\r\n\r\nbar"
        );
        let _answer = asked(&gateway, put.as_bytes());
        let (head, _) = seen.recv_timeout(PATIENCE).expect("it arrived");
        let says = |text: &str| head.iter().any(|line| line.eq_ignore_ascii_case(text));
        assert_eq!((says("expect: 100-continue"), says("connection: close")), (signed, signed), "{head:?}");
    }
}

#[test]
fn an_upload_may_take_longer_than_an_answer() {
    let (address, seen) = store(vec![b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n".to_vec()]);
    let gateway = gateway(address, |config| config.answers_within = Duration::from_millis(300));
    let mut stream = TcpStream::connect(gateway.address()).expect("it listens");
    stream.write_all(b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n").expect("sent");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"x").expect("sent");
    }
    let answer = Incoming::of(stream);
    assert!(answer.lines[0].contains("200"), "{:?}", answer.lines);
    assert_eq!(seen.recv_timeout(PATIENCE).expect("it arrived").1, b"xxxxxxxx");
}

#[test]
fn who_waits_to_continue_with_nothing_gets_a_connection_of_its_own() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    let (address, _seen) = store(vec![ok.clone(), ok]);
    let gateway = gateway(address, |_| ());
    let put = |rest: &str| {
        asked(&gateway, format!("PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{rest}\r\n").as_bytes())
    };
    assert_eq!(put("Expect: 100-continue\r\n").header("connection"), Some("close"));
    assert_eq!(put("").header("connection"), None);
}

#[test]
fn an_answer_that_is_cut_short_is_never_a_whole_one() {
    let (address, _seen) =
        store(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n1234".to_vec()]);
    let gateway = gateway(address, |_| ());
    let mut answer = asked(&gateway, b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut body = Vec::new();
    let _ = answer.stream.read_to_end(&mut body);
    // What came leaves before the connection ends.
    assert_eq!((answer.header("content-length"), body.as_slice()), (Some("10"), &b"1234"[..]));
}

#[test]
fn a_store_that_is_away_is_named_and_comes_back() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let gateway = gateway(address, |_| ());
    let answer = asked(&gateway, b"GET /b/<k> HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.lines[0].contains("400") || answer.lines[0].contains("503"), "{:?}", answer.lines);
    let answer = asked(&gateway, b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(answer.header("retry-after"), Some("1"));
    let (lines, body) = answer.whole();
    let text = String::from_utf8(body).expect("text");
    assert!(lines[0].contains("503") && text.contains("<Code>ServiceUnavailable</Code>"), "{lines:?} {text}");
    assert!(text.contains(&format!("http://{address}")), "{text}");
    let listener = TcpListener::bind(address).expect("the port again");
    let client = std::thread::spawn(move || asked(&gateway, b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n").lines[0].clone());
    let (stream, _) = listener.accept().expect("it is passed on");
    let mut back = stream.try_clone().expect("a socket");
    Incoming::of(stream);
    back.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("sent");
    assert_eq!(client.join().expect("an answer"), "HTTP/1.1 204 No Content");
}

#[test]
fn a_store_that_hangs_is_waited_for_so_long() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let gateway = gateway(listener.local_addr().expect("an address"), |it| it.answers_within = Duration::from_secs(1));
    let begin = Instant::now();
    let answer = asked(&gateway, b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.lines[0].contains("503"), "{:?}", answer.lines);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn beyond_its_connections_it_asks_to_slow_down() {
    let (address, _seen) = store(Vec::new());
    let gateway = gateway(address, |it| it.connections_max = 1);
    let _first = TcpStream::connect(gateway.address()).expect("it listens");
    std::thread::sleep(Duration::from_millis(100));
    let answer = asked(&gateway, b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
    let (lines, body) = answer.whole();
    assert!(lines[0].contains("503"), "{lines:?}");
    assert!(String::from_utf8(body).expect("text").contains("<Code>SlowDown</Code>"));
}

#[test]
fn a_head_without_end_is_refused() {
    let (address, _seen) = store(Vec::new());
    let gateway = gateway(address, |_| ());
    let mut stream = TcpStream::connect(gateway.address()).expect("it listens");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    let _ = stream.write_all(b"GET /b/k HTTP/1.1\r\nHost: x\r\n");
    for number in 0..20_000 {
        if stream.write_all(format!("x-{number}: {}\r\n", "a".repeat(50)).as_bytes()).is_err() {
            break;
        }
    }
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    assert!(told.is_empty() || told.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&told));
}
