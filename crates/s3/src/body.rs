//! Bodies: what is sent to a client, wherever it comes from. Never a whole object in memory.

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use std::error::Error;

/// Of a response.
pub(crate) type Body = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A short text.
pub(crate) fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed()
}

/// What the store sends, piece by piece.
pub(crate) fn passed_on(incoming: Incoming) -> Body {
    incoming.map_err(|error| Box::new(error) as Box<dyn Error + Send + Sync>).boxed()
}
