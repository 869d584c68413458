//! Decides: whether a request may be what it says, before anything is done for it.
//!
//! The endpoint is on loopback and has no password, so the one stranger who can reach it is a web page in a browser
//! of the same machine. Two tricks are known and refused here:
//! - DNS rebinding: the page's own host name is made to resolve to 127.0.0.1. The `Host` header then carries that
//!   name, and a listener on loopback takes loopback names only.
//! - Cross-site requests: the page posts to 127.0.0.1 itself. Browsers then send `Origin`, which must be the endpoint's.

use crate::control::{ControlError, ErrorKind};
use std::net::IpAddr;

/// Checks a request's `Host` and `Origin`. `on_loopback`: the listener is.
pub(crate) fn check(on_loopback: bool, host: Option<&str>, origin: Option<&str>) -> Result<(), ControlError> {
    let Some(host) = host else {
        let next = "send HTTP/1.1 with a Host header";
        return Err(ControlError::new(ErrorKind::Invalid, "the request", "it has no Host header", next));
    };
    if on_loopback && !is_loopback_name(host) {
        return Err(ControlError::new(
            ErrorKind::Forbidden,
            format!("host {host:?}"),
            "this endpoint is on loopback and answers to loopback names only",
            "use 127.0.0.1, [::1] or localhost",
        ));
    }
    let same_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(|of| of.eq_ignore_ascii_case(host));
    match origin {
        Some(origin) if !same_origin(origin) => Err(ControlError::new(
            ErrorKind::Forbidden,
            format!("origin {origin:?}"),
            "the request was made by a web page of another origin",
            "use the forebay program or curl",
        )),
        _ => Ok(()),
    }
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_pass_and_others_do_not() {
        for host in ["127.0.0.1", "127.0.0.1:9809", "127.9.9.9:1", "localhost:9809", "LocalHost", "[::1]:9809", "[::1]"]
        {
            assert_eq!(check(true, Some(host), None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9809",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "[::1]x",
            "",
            "0.0.0.0",
        ] {
            let error = check(true, Some(host), None).expect_err(host);
            assert_eq!(error.kind, ErrorKind::Forbidden, "{host}");
        }
        assert_eq!(check(false, Some("cache7.example"), None), Ok(()));
        assert_eq!(check(true, None, None).expect_err("none").kind, ErrorKind::Invalid);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let host = Some("127.0.0.1:9809");
        assert_eq!(check(true, host, Some("http://127.0.0.1:9809")), Ok(()));
        for origin in ["null", "http://evil.example", "http://127.0.0.1:80", "https://127.0.0.1:9809", ""] {
            assert_eq!(check(true, host, Some(origin)).expect_err(origin).kind, ErrorKind::Forbidden);
        }
        assert!(check(false, Some("cache7:9809"), Some("http://evil.example")).is_err());
    }
}
