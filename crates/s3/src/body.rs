//! Bodies: what is sent, wherever it comes from. Never a whole object in memory.

use crate::passing::Passing;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use std::error::Error;

/// Why a body ended early.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// Of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Failed>;

/// A short text.
pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What the store sends, piece by piece.
pub(crate) fn passed_on(incoming: Incoming) -> Body {
    Passing::library(incoming).boxed_unsync()
}
