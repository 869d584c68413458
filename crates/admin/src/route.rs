//! Decides: what a request's method, path and query ask for.

use crate::control::{ControlError, ErrorKind, Measure};
use percent_encoding::percent_decode_str;
use std::fmt::Write;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Metrics,
    Health,
    Ready,
    Status,
    Stats,
    Flush { volume: String },
    Evict { volume: String, offset: u64, length: Option<u64> },
    Split { volume: String, policy: String, disk_percent: Option<u64> },
    Mode { volume: String, mode: String },
    AcceptLoss { volume: String },
    Measure { volume: String, measure: Measure },
    Profile { volume: String, file: String },
    Learnt { volume: String },
    FindObjects { uri: String },
    ForgetObjects { uri: String },
    ExplainObject { uri: String },
}

/// Why nothing is; the status follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// The path is known, the method is not its own.
    Method { allowed: &'static str },
    /// Anything else.
    Error(ControlError),
}

/// The routes without a volume, for reading.
#[rustfmt::skip]
const READ: &[(&str, Route, &str)] = &[
    ("/metrics", Route::Metrics, "Metrics in OpenMetrics text."),
    ("/healthz", Route::Health, "200 while the process can serve; 503 when it has failed."),
    ("/readyz", Route::Ready, "200 while clients are served (recovery included); 503 while starting, draining or failed."),
    ("/api/v1/status", Route::Status, "State, tiers and volumes in short."),
    ("/api/v1/stats", Route::Stats, "Everything that is counted, with histograms."),
];

/// What can be done to a volume.
#[rustfmt::skip]
const VOLUME: &[(&str, &str)] = &[
    ("flush", "Makes every answered write durable."),
    ("evict", "Drops clean pages from both tiers. Query: `offset` (default 0) and `length` (default: to the end), in bytes."),
    ("split", "Splits hits by another policy until the cache stops. Query: `policy`, and `disk_percent` with `static`."),
    ("mode", "Switches a volume that has a write-back log, until the cache stops. Query: `mode` (`back` or `through`; the log drains then)."),
    ("accept-loss", "Accepts what is lost of the volume: it reads as what the back end has."),
    ("measure", "Reads what is cached of the volume from one path, and tells its rate. Query: `path` (`disk` or `backend`), `block_bytes`, `in_flight`, `milliseconds`."),
    ("learnt", "Tells the profile of the policies with what they observed, as `forebay profile` saves it."),
    ("profile", "Gives the policies another profile until the cache stops. Query: `file`, a path on the server's machine."),
];

/// What can be asked of the S3 gateway's objects.
#[rustfmt::skip]
const OBJECT: &[(&str, &str)] = &[
    ("stat", "Tells which versions of objects are known, and how much of them is in memory, on disk, or absent; of one object, which bytes."),
    ("evict", "Forgets objects: their pages leave the cache, and the next read of each is a miss."),
    ("explain", "Tells what is known of one object, and why its last answers were not cached."),
];

/// How long a path may be measured at a time.
const MEASURE_MILLISECONDS_MAX: u64 = 10_000;
const VOLUMES: &str = "/api/v1/volumes/";
const OBJECTS: &str = "/api/v1/objects/";

/// Finds the route.
pub(crate) fn find(method: &str, path: &str, query: Option<&str>) -> Result<Route, NoRoute> {
    if let Some((_, route, _)) = READ.iter().find(|(known, ..)| *known == path) {
        return if matches!(method, "GET" | "HEAD") {
            Ok(route.clone())
        } else {
            Err(NoRoute::Method { allowed: "GET" })
        };
    }
    if let Some(verb) = path.strip_prefix(OBJECTS).filter(|verb| OBJECT.iter().any(|(known, _)| known == verb)) {
        return objects(method, verb, query);
    }
    let rest = path.strip_prefix(VOLUMES).and_then(|rest| rest.split_once('/'));
    let Some((volume, verb)) = rest.filter(|(_, verb)| VOLUME.iter().any(|(known, _)| known == verb)) else {
        let next = "docs/reference/admin-api.md lists the paths";
        let error = ControlError::new(ErrorKind::NotFound, format!("path {path:?}"), "there is nothing", next);
        return Err(NoRoute::Error(error));
    };
    if method != "POST" {
        return Err(NoRoute::Method { allowed: "POST" });
    }
    let volume = percent_decode_str(volume).decode_utf8().map_err(|_| invalid("volume", "its name is not UTF-8"))?;
    let volume = volume.into_owned();
    match verb {
        "flush" => Ok(Route::Flush { volume }),
        "learnt" => Ok(Route::Learnt { volume }),
        "split" => split(volume, query),
        "mode" => mode(volume, query),
        "accept-loss" => Ok(Route::AcceptLoss { volume }),
        "measure" => measure(volume, query),
        "profile" => profile(volume, query),
        _ => evict(volume, query),
    }
}

fn objects(method: &str, verb: &str, query: Option<&str>) -> Result<Route, NoRoute> {
    if method != "POST" {
        return Err(NoRoute::Method { allowed: "POST" });
    }
    let mut uri = String::new();
    for (name, value) in parameters(query) {
        let decoded = || percent_decode_str(value).decode_utf8().map_err(|_| invalid(name, "it is not UTF-8"));
        match name {
            "uri" => uri = decoded()?.into_owned(),
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    Ok(match verb {
        "stat" => Route::FindObjects { uri },
        "evict" => Route::ForgetObjects { uri },
        _ => Route::ExplainObject { uri },
    })
}

fn evict(volume: String, query: Option<&str>) -> Result<Route, NoRoute> {
    let (mut offset, mut length) = (0, None);
    for (name, value) in parameters(query) {
        let number = value.parse().map_err(|_| invalid(name, "its value is not a number of bytes"));
        match name {
            "offset" => offset = number?,
            "length" => length = Some(number?),
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    Ok(Route::Evict { volume, offset, length })
}

fn split(volume: String, query: Option<&str>) -> Result<Route, NoRoute> {
    let (mut policy, mut disk_percent) = (String::new(), None);
    for (name, value) in parameters(query) {
        let number = || value.parse().ok().filter(|percent| *percent <= 100);
        match name {
            "policy" => policy = value.to_owned(),
            "disk_percent" => {
                disk_percent = Some(number().ok_or_else(|| invalid(name, "its value is not a percentage"))?);
            }
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    Ok(Route::Split { volume, policy, disk_percent })
}

fn mode(volume: String, query: Option<&str>) -> Result<Route, NoRoute> {
    let mut mode = String::new();
    for (name, value) in parameters(query) {
        match name {
            "mode" => mode = value.to_owned(),
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    Ok(Route::Mode { volume, mode })
}

fn measure(volume: String, query: Option<&str>) -> Result<Route, NoRoute> {
    let mut measure = Measure { is_backend: false, block_bytes: 0, in_flight: 0, milliseconds: 0 };
    for (name, value) in parameters(query) {
        let number = || value.parse().map_err(|_| invalid(name, "its value is not a number, or too large"));
        match name {
            "path" if matches!(value, "disk" | "backend") => measure.is_backend = value == "backend",
            "path" => return Err(invalid(name, "it is neither disk nor backend")),
            "block_bytes" => measure.block_bytes = number()?,
            "in_flight" => measure.in_flight = number()?,
            "milliseconds" => measure.milliseconds = number()?.into(),
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    match (1..=MEASURE_MILLISECONDS_MAX).contains(&measure.milliseconds) {
        true => Ok(Route::Measure { volume, measure }),
        false => Err(invalid("milliseconds", "it is not between 1 and 10000")),
    }
}

fn profile(volume: String, query: Option<&str>) -> Result<Route, NoRoute> {
    let mut file = String::new();
    for (name, value) in parameters(query) {
        let decoded = || percent_decode_str(value).decode_utf8().map_err(|_| invalid(name, "it is not UTF-8"));
        match name {
            "file" => file = decoded()?.into_owned(),
            _ => return Err(invalid(name, "it is not known")),
        }
    }
    Ok(Route::Profile { volume, file })
}

/// Names and values; a parameter without a value has an empty one.
fn parameters(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn invalid(name: &str, cause: &str) -> NoRoute {
    let next = "docs/reference/admin-api.md lists the parameters";
    NoRoute::Error(ControlError::new(ErrorKind::Invalid, format!("parameter {name:?}"), cause, next))
}

/// docs/reference/admin-api.md.
#[must_use]
pub fn reference() -> String {
    let mut page = "# Admin API\n\n<!-- Generated by `forebay docs`; edit crates/admin/src/route.rs instead. -->\n\n\
        HTTP/1.1 on the address `admin.listen`, one request a connection. On a loopback address only loopback names are taken as\n\
        host, and no request of a web page of another origin.\n\n\
        | request | meaning |\n|---|---|\n"
        .to_owned();
    for (path, _, doc) in READ {
        let _ = writeln!(page, "| `GET {path}` | {doc} |");
    }
    for (verb, doc) in VOLUME {
        let _ = writeln!(page, "| `POST {VOLUMES}NAME/{verb}` | {doc} |");
    }
    for (verb, doc) in OBJECT {
        let _ =
            writeln!(page, "| `POST {OBJECTS}{verb}` | {doc} Query: `uri`, as `s3://bucket/key`, percent-encoded. |");
    }
    page.push_str(
        "\nAn error is JSON too: `{\"error\": {\"kind\": ..., \"thing\": ..., \"cause\": ..., \"next\": ...}}`.\n\n\
        | kind | status | what to do |\n|---|---|---|\n\
        | `invalid` | 400, 405 | correct the request |\n\
        | `forbidden` | 403 | ask from this machine, not by way of a web page |\n\
        | `not_found` | 404 | name something that exists |\n\
        | `failed` | 500 | look into it |\n\
        | `temporary` | 503, 504 | try again later |\n",
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found() {
        for (path, route, _) in READ {
            assert_eq!(find("GET", path, Some("x=1")), Ok(route.clone()));
            assert_eq!(find("HEAD", path, None), Ok(route.clone()));
            assert_eq!(find("POST", path, None), Err(NoRoute::Method { allowed: "GET" }));
        }
        let flush = Route::Flush { volume: "a/b c".into() };
        assert_eq!(find("POST", "/api/v1/volumes/a%2Fb%20c/flush", None), Ok(flush));
        let evict = |offset, length| Ok(Route::Evict { volume: "v".into(), offset, length });
        assert_eq!(find("POST", "/api/v1/volumes/v/evict", None), evict(0, None));
        assert_eq!(find("POST", "/api/v1/volumes/v/evict", Some("offset=4096&length=512")), evict(4096, Some(512)));
        let mode = Route::Mode { volume: "v".into(), mode: "through".into() };
        let accept = Route::AcceptLoss { volume: "v".into() };
        assert_eq!(find("POST", "/api/v1/volumes/v/accept-loss", None), Ok(accept));
        assert_eq!(find("POST", "/api/v1/volumes/v/mode", Some("mode=through")), Ok(mode));
        assert_eq!(find("POST", "/api/v1/volumes/v/learnt", None), Ok(Route::Learnt { volume: "v".into() }));
        let measure = Measure { is_backend: true, block_bytes: 4096, in_flight: 8, milliseconds: 500 };
        let query = Some("path=backend&block_bytes=4096&in_flight=8&milliseconds=500");
        let route = Ok(Route::Measure { volume: "v".into(), measure });
        assert_eq!(find("POST", "/api/v1/volumes/v/measure", query), route);
        let route = Ok(Route::Profile { volume: "v".into(), file: "/a b".into() });
        assert_eq!(find("POST", "/api/v1/volumes/v/profile", Some("file=%2Fa%20b")), route);
        let uri = || "s3://b/a c*".to_owned();
        for (verb, route) in [
            ("stat", Route::FindObjects { uri: uri() }),
            ("evict", Route::ForgetObjects { uri: uri() }),
            ("explain", Route::ExplainObject { uri: uri() }),
        ] {
            let path = format!("/api/v1/objects/{verb}");
            assert_eq!(find("POST", &path, Some("uri=s3%3A%2F%2Fb%2Fa%20c%2A")), Ok(route));
            assert_eq!(find("GET", &path, None), Err(NoRoute::Method { allowed: "POST" }));
        }
        assert_eq!(find("GET", "/api/v1/volumes/v/evict", None), Err(NoRoute::Method { allowed: "POST" }));
    }

    #[test]
    fn what_is_not_there_says_so() {
        let kind = |method: &str, path: &str, query| match find(method, path, query) {
            Err(NoRoute::Error(error)) => Some(error.kind),
            _ => None,
        };
        for path in ["/", "/api/v1/volumes/", "/api/v1/volumes/v", "/api/v1/volumes/v/format", "/metrics/", "*"] {
            assert_eq!(kind("POST", path, None), Some(ErrorKind::NotFound), "{path}");
        }
        for query in ["offset=-1", "length=x", "offset", "size=1", "offset=99999999999999999999"] {
            assert_eq!(kind("POST", "/api/v1/volumes/v/evict", Some(query)), Some(ErrorKind::Invalid), "{query}");
        }
        for query in ["path=peer", "in_flight=-1", "block_bytes=4294967296", "milliseconds=10001", "", "x=1"] {
            assert_eq!(kind("POST", "/api/v1/volumes/v/measure", Some(query)), Some(ErrorKind::Invalid), "{query}");
        }
        for query in ["uri=%ff", "volume=x"] {
            assert_eq!(kind("POST", "/api/v1/objects/evict", Some(query)), Some(ErrorKind::Invalid), "{query}");
        }
        assert_eq!(kind("POST", "/api/v1/objects/format", None), Some(ErrorKind::NotFound));
        for query in ["file=%ff", "path=x"] {
            assert_eq!(kind("POST", "/api/v1/volumes/v/profile", Some(query)), Some(ErrorKind::Invalid), "{query}");
        }
        assert_eq!(kind("POST", "/api/v1/volumes/%ff/flush", None), Some(ErrorKind::Invalid));
    }
}
