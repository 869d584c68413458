//! Heads: what is written to the store to ask for an object, and what its answer begins with.
//!
//! How: `httparse` takes a head apart. Of its answers only those are taken whose body is as long as `Content-Length` says, or that have
//! none; how long another one is, HTTP's library finds out ([`super::replay`]).

use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

/// Fields of an answer.
const FIELDS_MAX: usize = 128;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) head: Response<()>,
    /// Where the body begins.
    pub(super) bytes: usize,
    pub(super) body: Framing,
}

/// How much comes after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes; then the connection may be used again, or not.
    Bytes { bytes: u64, is_last: bool },
    /// It takes more than to count.
    Other,
}

/// What came is no head of HTTP.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeadError {
    #[error("its answer is not HTTP: {0}")]
    Syntax(#[from] httparse::Error),
    #[error("its answer has a field that is none")]
    Field,
}

/// A request without a body, as it is sent.
pub(super) fn request(head: &Parts, authority: &str) -> Vec<u8> {
    let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = HeaderName::from_static("host");
    if !head.headers.contains_key(&host) {
        field(&mut out, &host, authority.as_bytes());
    }
    for (name, value) in &head.headers {
        field(&mut out, name, value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// With capitals, as most write them: there are stores that know no others.
fn field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let mut is_first = true;
    for byte in name.as_str().bytes() {
        out.push(if is_first { byte.to_ascii_uppercase() } else { byte });
        is_first = byte == b'-';
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The head that these bytes begin with; `None` if it has not come whole.
pub(super) fn answer(bytes: &[u8], method: &Method) -> Result<Option<Answered>, HeadError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(end) = parsed.parse(bytes)? else { return Ok(None) };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(HeadError::Field)?;
    let mut head = Response::new(());
    *head.status_mut() = status;
    let headers = head.headers_mut();
    headers.reserve(parsed.headers.len());
    for it in parsed.headers.iter() {
        let name = HeaderName::from_bytes(it.name.as_bytes()).map_err(|_| HeadError::Field)?;
        headers.append(name, HeaderValue::from_bytes(it.value).map_err(|_| HeadError::Field)?);
    }
    let body = framing(head.headers(), status, method, parsed.version == Some(1));
    Ok(Some(Answered { head, bytes: end, body }))
}

fn framing(headers: &HeaderMap, status: StatusCode, method: &Method, is_1_1: bool) -> Framing {
    let is_closed = |value: &HeaderValue| value.to_str().is_ok_and(|it| it.to_ascii_lowercase().contains("close"));
    let is_last = headers.get_all(CONNECTION).iter().any(is_closed);
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next().and_then(|it| it.to_str().ok());
    // Digits only: a sign is none.
    let length = length.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit())).and_then(|it| it.parse().ok());
    match length {
        _ if !is_1_1 || status.is_informational() || headers.contains_key(TRANSFER_ENCODING) => Framing::Other,
        _ if method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED => {
            Framing::Bytes { bytes: 0, is_last }
        }
        Some(bytes) if lengths.next().is_none() => Framing::Bytes { bytes, is_last },
        _ => Framing::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(text: &str) -> Framing {
        answer(text.as_bytes(), &Method::GET).expect("a head").expect("whole").body
    }

    #[test]
    fn only_what_is_counted_is_taken() {
        let bytes = |bytes, is_last| Framing::Bytes { bytes, is_last };
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", bytes(12, false)),
            ("HTTP/1.1 200\r\ncontent-length: 12\r\nConnection: Close\r\n\r\n", bytes(12, true)),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\n\r\n", bytes(0, false)),
            ("HTTP/1.1 304 Not Modified\r\n\r\n", bytes(0, false)),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::Other),
            ("HTTP/1.0 200 OK\r\nContent-Length: 12\r\n\r\n", Framing::Other),
            ("HTTP/1.1 100 Continue\r\n\r\n", Framing::Other),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Framing::Other),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Framing::Other),
            ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", Framing::Other),
            ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", Framing::Other),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Framing::Other),
        ] {
            assert_eq!(framed(text), expected, "{text}");
        }
        let head = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", &Method::HEAD).expect("a head");
        assert_eq!(head.expect("whole").body, bytes(0, false));
    }

    #[test]
    fn a_head_is_whole_or_not_or_none() {
        let text = b"HTTP/1.1 206 Partial Content\r\nETag: \"e\"\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 3\r\n\r\nabc";
        let end = text.len() - 3;
        for length in 0..end {
            assert!(answer(&text[..length], &Method::GET).expect("no error").is_none(), "{length}");
        }
        let answered = answer(text, &Method::GET).expect("a head").expect("whole");
        assert_eq!((answered.bytes, answered.head.status()), (end, StatusCode::PARTIAL_CONTENT));
        let values: Vec<&HeaderValue> = answered.head.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        for wrong in ["SSH-2.0-x\r\n", "HTTP/1.1 99 No\r\n\r\n", "HTTP/1.1 200 OK\r\nA b: 1\r\n\r\n"] {
            assert!(answer(wrong.as_bytes(), &Method::GET).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_is_written_as_most_do() {
        let request = hyper::Request::get("/b/k%2F?versionId=1")
            .header("host", "store")
            .header("x-amz-date", "2026")
            .header("range", "bytes=0-1");
        let head = request.body(()).expect("a request").into_parts().0;
        let text = String::from_utf8(super::request(&head, "other")).expect("text");
        let expected =
            "GET /b/k%2F?versionId=1 HTTP/1.1\r\nHost: store\r\nX-Amz-Date: 2026\r\nRange: bytes=0-1\r\n\r\n";
        assert_eq!(text, expected);
    }
}
