//! A client that sends one request and reads one answer, as they are on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// What came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body was shorter than the head said.
    pub(crate) is_torn: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// What the gateway says of where it came from.
    pub(crate) fn cache(&self) -> &str {
        self.header("x-cache")
    }
}

pub(crate) fn ask(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    answer(&mut BufReader::new(stream), method == "HEAD")
}

fn answer(stream: &mut BufReader<TcpStream>, is_head: bool) -> Answer {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line).expect("a head");
        let line = String::from_utf8_lossy(&line);
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    if lines.is_empty() {
        // The connection ended instead.
        return Answer { status: 0, headers: Vec::new(), body: Vec::new(), is_torn: true };
    }
    let status = lines[0].split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    let split = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers: Vec<_> = lines[1..].iter().filter_map(split).collect();
    let mut answer = Answer { status, headers, body: Vec::new(), is_torn: false };
    let has_body = !is_head && status != 304;
    let length = answer.header("content-length").parse().unwrap_or(0);
    if has_body {
        let result = stream.take(length).read_to_end(&mut answer.body);
        answer.is_torn = result.is_err() || answer.body.len() as u64 != length;
    }
    answer
}
