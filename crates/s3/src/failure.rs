//! Failures: the errors that are the gateway's own, as S3 tells them: a code, a message, and XML.
//!
//! What the store answers is its own and passes on untouched.

use crate::body::{Body, whole};
use forebay_objects::Refused;
use forebay_signature::{Fault, Refusal};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use std::fmt::Write;

/// What the gateway says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The store cannot be reached, or does not answer in time.
    BackEndAway,
    /// The store could not prove who it is.
    BackEndUntrusted,
    /// More at once than the gateway takes.
    SlowDown,
    /// The request is not one that could be passed on.
    BadRequest,
    /// A condition of the request does not hold.
    PreconditionFailed,
}

/// Status, code, message.
fn row(failure: Failure) -> (StatusCode, &'static str, &'static str) {
    match failure {
        Failure::BackEndAway => {
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "The store behind this endpoint does not answer.")
        }
        Failure::BackEndUntrusted => (
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "The store behind this endpoint cannot prove who it is.",
        ),
        Failure::SlowDown => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."),
        Failure::PreconditionFailed => (
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold.",
        ),
        Failure::BadRequest => (StatusCode::BAD_REQUEST, "InvalidRequest", "The request cannot be passed on."),
    }
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter if (letter as u32) < 0x20 => {
                let _ = write!(out, "&#x{:x};", letter as u32);
            }
            letter => out.push(letter),
        }
    }
    out
}

/// The answer. `about`: what a person should look at, the store's name for instance.
pub(crate) fn answer(failure: Failure, resource: &str, about: &str) -> Response<Body> {
    let (status, code, message) = row(failure);
    told(status, code, &format!("{message} {about}"), resource)
}

/// A request that is not let in. S3's own word is in the code; the message says what was wrong.
pub(crate) fn refused(why: Refused, resource: &str) -> Response<Body> {
    let Refused::Unknown(refusal) = why else {
        return told(
            StatusCode::FORBIDDEN,
            "AccessDenied",
            "Access denied: this key is not granted the request.",
            resource,
        );
    };
    let (status, code) = match refusal {
        Refusal::Anonymous | Refusal::NotCovered | Refusal::Expired | Refusal::NotYet => {
            (StatusCode::FORBIDDEN, "AccessDenied")
        }
        Refusal::UnknownKey => (StatusCode::FORBIDDEN, "InvalidAccessKeyId"),
        Refusal::Wrong => (StatusCode::FORBIDDEN, "SignatureDoesNotMatch"),
        Refusal::Skewed => (StatusCode::FORBIDDEN, "RequestTimeTooSkewed"),
        Refusal::Malformed(_) => (StatusCode::BAD_REQUEST, "AuthorizationHeaderMalformed"),
        Refusal::MalformedQuery(_) => (StatusCode::BAD_REQUEST, "AuthorizationQueryParametersError"),
        Refusal::Unsupported | Refusal::NoPayload => (StatusCode::BAD_REQUEST, "InvalidRequest"),
        Refusal::Token => (StatusCode::BAD_REQUEST, "InvalidToken"),
    };
    told(status, code, &format!("Access denied: {refusal}."), resource)
}

/// A body that is not what was signed.
pub(crate) fn faulty(fault: Fault, resource: &str) -> Response<Body> {
    let (status, code) = match fault {
        Fault::Wrong => (StatusCode::FORBIDDEN, "SignatureDoesNotMatch"),
        Fault::TooLarge => (StatusCode::FORBIDDEN, "InvalidChunkSizeError"),
        Fault::Malformed => (StatusCode::BAD_REQUEST, "InvalidRequest"),
        Fault::Short => (StatusCode::BAD_REQUEST, "IncompleteBody"),
    };
    told(status, code, &format!("Nothing is stored: {fault}."), resource)
}

fn told(status: StatusCode, code: &str, message: &str, resource: &str) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{}</Message>\
         <Resource>{}</Resource></Error>",
        escaped(message),
        escaped(resource)
    );
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_wrote_cannot_become_markup() {
        assert_eq!(escaped("/b/<a>&\"\u{1}"), "/b/&lt;a&gt;&amp;&quot;&#x1;");
    }
}
