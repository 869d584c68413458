//! A store of objects in memory that speaks just enough S3, remembers what it was asked, and misbehaves as told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// One version of an object.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) etag: String,
    /// Headers of its answers.
    pub(crate) headers: Vec<(String, String)>,
}

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) objects: BTreeMap<String, Object>,
    /// Callers (`x-caller`) who may read nothing.
    pub(crate) denied: Vec<String>,
    pub(crate) seen: Vec<Seen>,
    /// Bodies break off after so many bytes; so often.
    pub(crate) breaks: Option<(usize, u32)>,
    /// Bodies are sent in pieces with this pause between.
    pub(crate) pause: Duration,
    /// Of uploads that are not completed, by path and number.
    pub(crate) parts: BTreeMap<(String, u32), Vec<u8>>,
    /// Uploads are answered with 500.
    pub(crate) refuses_uploads: bool,
    /// Connections end when something is asked.
    pub(crate) is_away: bool,
    /// Every answer comes so late.
    pub(crate) delay: Duration,
    /// Ranges are not understood.
    pub(crate) ignores_ranges: bool,
    next_etag: u64,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Store {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

impl Store {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let store = Self { inner: Arc::default(), address: listener.local_addr().expect("an address") };
        let serving = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let store = serving.clone();
                std::thread::spawn(move || store.serve(stream));
            }
        });
        store
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread died")
    }

    /// Another version of that name.
    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>) -> String {
        let mut inner = self.inner();
        inner.next_etag += 1;
        let etag = format!("\"e{}\"", inner.next_etag);
        let headers = vec![("Content-Type".to_owned(), "text/test".to_owned())];
        inner.objects.insert(path.to_owned(), Object { bytes: Arc::new(bytes), etag: etag.clone(), headers });
        etag
    }

    /// What it was asked since this was called last.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.inner().seen)
    }

    fn serve(&self, stream: TcpStream) {
        stream.set_nodelay(true).expect("a socket");
        let mut back = stream.try_clone().expect("a socket");
        let mut stream = BufReader::new(stream);
        while let Some((seen, body)) = request(&mut stream) {
            self.inner().seen.push(seen.clone());
            let delay = self.inner().delay;
            std::thread::sleep(delay);
            if self.inner().is_away {
                return;
            }
            if self.answer(&seen, body, &mut back).is_none() {
                return;
            }
        }
    }

    /// `None` when the connection is to end.
    fn answer(&self, seen: &Seen, body: Vec<u8>, back: &mut TcpStream) -> Option<()> {
        let path = seen.path.split('?').next().unwrap_or_default().to_owned();
        let caller = seen.header("x-caller").unwrap_or_default().to_owned();
        if self.inner().denied.contains(&caller) {
            return send(back, "403 Forbidden", &[], b"<Error><Code>AccessDenied</Code></Error>");
        }
        if seen.method == "PUT" {
            if self.inner().refuses_uploads {
                return send(back, "500 Internal Server Error", &[], b"<Error><Code>InternalError</Code></Error>");
            }
            let body = if seen.header("x-amz-decoded-content-length").is_some() { unchunked(&body) } else { body };
            if let Some(number) = part_number(seen) {
                let etag = format!("\"p{number}-{}\"", body.len());
                self.inner().parts.insert((path, number as u32), body);
                return send(back, "200 OK", &[("ETag".into(), etag)], b"");
            }
            let etag = self.put(&path, body);
            return send(back, "200 OK", &[("ETag".into(), etag)], b"");
        }
        if seen.method == "POST" && seen.path.contains("uploadId=") {
            // Of all parts: a test completes with what it has sent.
            let parts = std::mem::take(&mut self.inner().parts);
            let etag = self.put(&path, parts.into_values().flatten().collect());
            let told = format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>");
            return send(back, "200 OK", &[], told.as_bytes());
        }
        let Some(object) = self.inner().objects.get(&path).cloned() else {
            return send(back, "404 Not Found", &[], b"<Error><Code>NoSuchKey</Code></Error>");
        };
        let mut headers = object.headers.clone();
        headers.push(("ETag".into(), object.etag.clone()));
        if seen.header("if-match").is_some_and(|it| it != object.etag) {
            return send(back, "412 Precondition Failed", &[], b"<Error/>");
        }
        if seen.header("if-none-match").is_some_and(|it| it == object.etag) {
            return send(back, "304 Not Modified", &headers, b"");
        }
        let length = object.bytes.len();
        let number = part_number(seen);
        if number.is_some() && seen.header("range").is_some() {
            return send(back, "400 Bad Request", &[], b"<Error><Code>InvalidRequest</Code></Error>");
        }
        let range = match number {
            Some(number) => Some(numbered(number, length)),
            None => seen.header("range").filter(|_| !self.inner().ignores_ranges).and_then(|it| range_of(it, length)),
        };
        if number.is_some() {
            headers.push(("x-amz-mp-parts-count".into(), length.div_ceil(PART_BYTES).to_string()));
        }
        if range.as_ref().is_some_and(Range::is_empty) {
            return send(back, "416 Range Not Satisfiable", &[], b"<Error><Code>InvalidRange</Code></Error>");
        }
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let part = range.clone().unwrap_or(0..length);
        if range.is_some() {
            headers.push(("Content-Range".into(), format!("bytes {}-{}/{length}", part.start, part.end - 1)));
        }
        headers.push(("Content-Length".into(), part.len().to_string()));
        head(back, status, &headers)?;
        if seen.method == "HEAD" { Some(()) } else { self.send_body(back, &object.bytes[part]) }
    }

    fn send_body(&self, back: &mut TcpStream, bytes: &[u8]) -> Option<()> {
        let breaks = self.inner().breaks;
        let pause = self.inner().pause;
        if let Some((after, times)) = breaks.filter(|(after, _)| *after < bytes.len()) {
            self.inner().breaks = (times > 1).then_some((after, times - 1));
            back.write_all(&bytes[..after]).ok()?;
            return None;
        }
        if pause.is_zero() {
            return back.write_all(bytes).ok();
        }
        for piece in bytes.chunks(64 << 10) {
            back.write_all(piece).ok()?;
            std::thread::sleep(pause);
        }
        Some(())
    }
}

/// Each object was uploaded in parts of so many.
pub(crate) const PART_BYTES: usize = 300_000;

fn part_number(seen: &Seen) -> Option<usize> {
    let (_, number) = seen.path.split_once("partNumber=")?;
    number.split('&').next()?.parse().ok()
}

fn numbered(number: usize, length: usize) -> Range<usize> {
    let start = ((number - 1) * PART_BYTES).min(length);
    start..(start + PART_BYTES).min(length)
}

/// What S3's chunks have in them, of a body that is sound.
fn unchunked(body: &[u8]) -> Vec<u8> {
    let (mut left, mut out) = (body, Vec::new());
    loop {
        let end = left.windows(2).position(|it| it == b"\r\n").expect("a chunk's head");
        let head = std::str::from_utf8(&left[..end]).expect("text");
        let length = usize::from_str_radix(head.split(';').next().unwrap_or_default(), 16).expect("a size");
        if length == 0 {
            return out;
        }
        out.extend_from_slice(&left[end + 2..end + 2 + length]);
        left = &left[end + 2 + length + 2..];
    }
}

/// `None`: it is not understood, and so all of it is answered. An empty range: it is refused.
fn range_of(text: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (Option<usize>, Option<usize>) = (number(first)?, number(last)?);
    match (first, last) {
        (None, None) => None,
        (None, Some(count)) => Some(length.saturating_sub(count)..length),
        (Some(first), None) => Some(first.min(length)..length),
        (Some(first), Some(last)) if first > last => None,
        (Some(first), Some(last)) => Some(first.min(length)..last.saturating_add(1).min(length)),
    }
}

/// `None`: it is none. What is too large for a number is as large as one can be.
fn number(text: &str) -> Option<Option<usize>> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| (!text.is_empty()).then(|| text.parse().unwrap_or(usize::MAX)))
}

/// The next request of a connection; `None` at its end, and where there is none.
pub(crate) fn request(stream: &mut BufReader<TcpStream>) -> Option<(Seen, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let mut words = lines.first()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let split = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let seen = Seen { method, path, headers: lines[1..].iter().filter_map(split).collect() };
    if seen.header("transfer-encoding").is_some() {
        return Some((seen, chunks(stream)?));
    }
    let mut body = vec![0; seen.header("content-length").map_or(Some(0), |it| it.parse().ok())?];
    stream.read_exact(&mut body).ok()?;
    Some((seen, body))
}

/// A body in chunks; `None`: it is none, or ends early.
fn chunks(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let at = body.len();
        body.resize(at + length + 2, 0);
        stream.read_exact(&mut body[at..]).ok()?;
        body.truncate(at + length);
        if length == 0 {
            return Some(body);
        }
    }
}

fn head(back: &mut TcpStream, status: &str, headers: &[(String, String)]) -> Option<()> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    back.write_all(format!("HTTP/1.1 {status}\r\n{lines}\r\n").as_bytes()).ok()
}

fn send(back: &mut TcpStream, status: &str, headers: &[(String, String)], body: &[u8]) -> Option<()> {
    let mut headers = headers.to_vec();
    if !status.starts_with("304") {
        headers.push(("Content-Length".into(), body.len().to_string()));
    }
    head(back, status, &headers)?;
    back.write_all(body).ok()
}
