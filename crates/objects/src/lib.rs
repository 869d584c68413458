//! Decides: what an S3 gateway may answer from the cache, and what it keeps of the answers that it passes on.
//!
//! Why apart from the gateway: who may read what, and which bytes are of which version, is where a mistake serves a wrong
//! byte. Here it is without sockets and clocks, so that the simulator runs it beside a store of its own.
//!
//! Follow a request: [`target`] reads what it is about, [`read`] what of an object it wants; [`Objects::plan`] says what to do, and
//! [`Objects::learned`] and [`Objects::confirmed`] take what the store answered. [`Catalogue`] knows where the bytes of a
//! version are, [`permit`] whom the store said yes to, [`change`] which names are being changed, [`head`] what is
//! told with the bytes. [`Selection`] and [`Notes`] are for an operator who asks what is known, and why something was not kept.
//! [`write`] says which uploads are kept on their way, [`aws_chunked`] which of their bytes are the object's;
//! [`Stretch`] leads from addresses back to an object;
//! [`policy`] has what was configured for some objects, [`event`] what a store tells of changes past the gateway.
//! Where the gateway itself says who may, a request comes through the [`gate`] first: [`need`] is what it has to be
//! granted, [`grant`] what a key is.
#![forbid(unsafe_code)]

mod aws_chunked;
mod bypass;
mod catalogue;
mod change;
mod condition;
mod event;
mod gate;
mod glob;
mod grant;
mod head;
mod multipart;
mod need;
mod objects;
mod permit;
mod policy;
mod range;
mod read;
mod ring;
mod selection;
mod signed;
mod stretch;
mod target;
mod write;

pub use aws_chunked::{AwsChunked, Malformed};
pub use bypass::{Note, Notes, REASONS, reason_of};
pub use catalogue::{Catalogue, Identity, Known, Name, VersionId};
pub use change::{Change, Changes};
pub use condition::{Conditions, Verdict};
pub use event::{EVENTS_BYTES_MAX, NotEvents, Token, names_told};
pub use gate::{Client, Gate, Refused, Streamed};
pub use grant::{Access, Grant, Need};
pub use head::Heads;
pub use multipart::{Assembly, COMPLETION_BYTES_MAX, Completing, KeptPart, Part};
pub use need::needs;
pub use objects::{Confirmed, Gauges, Held, Kept, Learned, Learning, Objects, ObjectsConfig, Plan};
pub use permit::{Permits, Who, lifetime_s};
pub use policy::{PATTERN_BYTES_MAX, Pattern, Policies, Policy, PolicyRow, ROWS_MAX};
pub use range::{Spec, content_range};
pub use read::{Asked, Read};
pub use ring::Ring;
pub use selection::{Selection, SelectionError};
pub use signed::may_change;
pub use stretch::{Judged, Stretch};
pub use target::{Target, Verb};
pub use write::{Framing, UnknownMode, Write, WriteMode, Writing};

/// A request's or an answer's head is read as this crate's own types.
pub use http;

/// Headers, for tests.
#[cfg(test)]
fn headers(given: &[(&str, &str)]) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in given {
        headers.append(name.parse::<http::HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    headers
}
