//! Responses: bodies and statuses.

use crate::control::{ControlError, ErrorBody, ErrorKind, State};
use crate::metrics;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

pub(crate) type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Data as JSON.
pub(crate) fn json(status: StatusCode, data: &impl Serialize) -> Answer {
    match serde_json::to_string(data) {
        Ok(body) => answer(status, "application/json", body + "\n"),
        Err(cause) => error(&ControlError::new(
            ErrorKind::Failed,
            "the answer",
            format!("it cannot be written as JSON: {cause}"),
            "report this as a bug",
        )),
    }
}

/// An error; its status follows from its kind.
pub(crate) fn error(error: &ControlError) -> Answer {
    error_with(status_of(error.kind), error)
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::Temporary => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error_with(status: StatusCode, error: &ControlError) -> Answer {
    json(status, &ErrorBody { error: error.clone() })
}

/// The method is not the path's own.
pub(crate) fn wrong_method(allowed: &'static str) -> Answer {
    let next = format!("use {allowed}");
    let error = ControlError::new(ErrorKind::Invalid, "the method", "it is not the path's own", next);
    let mut answer = error_with(StatusCode::METHOD_NOT_ALLOWED, &error);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The cache did not answer in time.
pub(crate) fn timed_out() -> Answer {
    let next = "look at `forebay status` and the log; then try again";
    let error = ControlError::new(ErrorKind::Temporary, "the request", "the cache did not answer in time", next);
    error_with(StatusCode::GATEWAY_TIMEOUT, &error)
}

/// Health or readiness: 200 or 503, with the state.
pub(crate) fn state(good: bool, state: State) -> Answer {
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "state": state }))
}

/// Metrics as text.
pub(crate) fn metrics(snapshot: crate::Snapshot) -> Answer {
    match metrics::text(snapshot) {
        Ok(text) => answer(StatusCode::OK, metrics::CONTENT_TYPE, text),
        Err(_) => {
            let next = "report this as a bug";
            error(&ControlError::new(ErrorKind::Failed, "the metrics", "they cannot be written as text", next))
        }
    }
}
