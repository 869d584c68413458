//! Events: a store, or whoever else knows, tells of objects that were changed past the gateway.
//!
//! Why: where the store's yes is believed for a while, such a change is seen only when that has passed. Told of it, the gateway asks anew at once.
//!
//! How: `POST /.forebay/events` with a token. No bucket has such a name. What can be told is a name, and what it does is to ask the store: whoever
//! has the token can cost a hit, and nothing else.
//!
//! Limits: [`EVENTS_BYTES_MAX`] within [`PATIENCE`]. Without a token in the configuration there is no such place: the request is passed on like any other.

use crate::body::{Body, whole};
use crate::cached::Cached;
use forebay_objects::{EVENTS_BYTES_MAX, Target, Token, names_told};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::time::Duration;
use tokio::time::timeout;

/// To send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether it is this place that a request is for.
pub(crate) fn is_for(target: &Target) -> bool {
    target.name.as_ref().is_some_and(|name| &*name.bucket == ".forebay" && *name.key == *b"events")
}

/// What came of it.
pub(crate) async fn take(cached: &Cached, token: &Token, request: Request<Incoming>) -> Response<Body> {
    let authorization = request.headers().get(AUTHORIZATION).and_then(|it| it.to_str().ok());
    if !token.is_known(authorization, request.uri().query()) {
        return told(
            StatusCode::UNAUTHORIZED,
            "error",
            "the token is another one: it is s3.events_token of the configuration",
        );
    }
    if request.method() != Method::POST {
        return told(StatusCode::METHOD_NOT_ALLOWED, "error", "events are told by POST");
    }
    let body = match timeout(PATIENCE, Limited::new(request.into_body(), EVENTS_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return told(StatusCode::BAD_REQUEST, "error", &format!("the body cannot be read: {error}")),
        Err(_) => return told(StatusCode::REQUEST_TIMEOUT, "error", "the body did not come in time"),
    };
    let names = match names_told(&body) {
        Ok(names) => names,
        Err(error) => return told(StatusCode::BAD_REQUEST, "error", &error.to_string()),
    };
    tracing::debug!(names = names.len(), "changes past the gateway");
    for name in &names {
        cached.objects().changed_elsewhere(name);
    }
    told(StatusCode::OK, "names", &names.len().to_string())
}

/// `{"KEY": "TEXT"}`.
fn told(status: StatusCode, key: &str, text: &str) -> Response<Body> {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut answer = Response::new(whole(format!("{{\"{key}\": \"{text}\"}}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
