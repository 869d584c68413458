//! Write: an upload of a whole object, and how it is cached.
//!
//! *Around*: it is passed on, and what it names is asked for anew. *Through*: beside that its bytes are kept on their way to the store. The client
//! has its yes when the store has said yes; a read after that finds the bytes here.
//!
//! How: bytes on their way belong to a version that has no ETag yet, so nothing leads to them. The store's yes tells it ([`Objects::wrote`]). Any other
//! answer, none, or a body that broke off: the version is forgotten ([`Objects::distrust`]).
//!
//! Invariants: a name leads to what was uploaded only if the store said which version that is, and no other change of the name was under way
//! meanwhile (the store's order of the two is not known). What the store tells with the object is not known from an
//! upload: the first read asks for it, as every read that is not believed without asking.
//!
//! A part of a multipart upload is kept likewise, until its upload is completed ([`crate::multipart`]).
//!
//! Limits: one request that says how long it is. Copies, forms, appends and uploads with a customer's key go around.
//!
//! Rejected: to compare the MD5 of what passed with the ETag (a fifth of the rate, and only some ETags are one); to guess from the
//! upload what the store will tell with the object (it adds and leaves out as it likes).

use crate::catalogue::Name;
use crate::change::Stamp;
use crate::multipart::Part;
use crate::objects::{Kept, Objects, VERSION_ID, text};
use crate::read::has_customer_key;
use crate::signed::may_change;
use crate::target::{Target, pairs};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName};
use http::{Method, StatusCode, Uri};

const MODE: HeaderName = HeaderName::from_static("x-forebay-write");
const HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
/// What makes an upload another thing than the object's bytes, and what that is called.
const OTHER: [(HeaderName, &str); 2] = [
    (HeaderName::from_static("x-amz-copy-source"), "copy"),
    (HeaderName::from_static("x-amz-write-offset-bytes"), "append"),
];

/// How an upload is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Not at all.
    #[default]
    Around,
    /// On its way to the store.
    Through,
}

impl WriteMode {
    /// By its name; `None` if it is none.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [("around", Self::Around), ("through", Self::Through)].into_iter().find(|(it, _)| *it == name).map(|it| it.1)
    }

    /// What a request asks for itself, if it does. The header is the gateway's and taken out, unless the signature covers it.
    ///
    /// # Errors
    /// When there is no such mode.
    pub fn take(uri: &Uri, headers: &mut HeaderMap) -> Result<Option<Self>, UnknownMode> {
        let Some(value) = headers.get(&MODE) else { return Ok(None) };
        let mode = value.to_str().ok().and_then(Self::of).ok_or(UnknownMode)?;
        if may_change(uri, headers, &MODE) {
            headers.remove(&MODE);
        }
        Ok(Some(mode))
    }
}

/// A request asks for a way to write that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl std::fmt::Display for UnknownMode {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "The header {MODE} is neither \"around\" nor \"through\".")
    }
}

impl std::error::Error for UnknownMode {}

/// How an object's bytes are written in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As they are.
    Plain,
    /// In chunks of S3's own ([`crate::AwsChunked`]).
    AwsChunked,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Of what.
    pub name: Name,
    /// If it is a part only.
    pub part: Option<Part>,
    /// Its length.
    pub bytes: u64,
    /// How they come.
    pub framing: Framing,
}

/// An upload whose bytes are kept on their way. Say [`Objects::wrote`] when it is answered, or [`Objects::distrust`].
#[derive(Clone, Debug)]
pub struct Writing {
    /// Where its bytes belong: all of them.
    pub kept: Kept,
    name: Name,
    belongs: Belongs,
    asked_ns: u64,
}

#[derive(Clone, Debug)]
enum Belongs {
    /// It is the object, while nobody else changes it.
    Object(Stamp),
    Part(Part),
}

impl Write {
    /// Of a request.
    ///
    /// # Errors
    /// Why its bytes cannot be kept on their way.
    pub fn of(
        method: &Method,
        target: &Target,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Self, &'static str> {
        let name = target.name.clone().filter(|_| *method == Method::PUT).ok_or("change")?;
        let part = Part::of(query);
        let is_of_part = |key: &str| part.is_some() && (key == "partNumber" || key == "uploadId");
        if !pairs(query).all(|(key, _)| key == "x-id" || key.starts_with("X-Amz-") || is_of_part(key)) {
            return Err("change");
        }
        if let Some((_, why)) = OTHER.iter().find(|(name, _)| headers.contains_key(name)) {
            return Err(why);
        }
        if has_customer_key(headers) {
            return Err("customer-key");
        }
        let framing = framing(headers).ok_or("framing")?;
        let length = match framing {
            Framing::Plain => CONTENT_LENGTH,
            Framing::AwsChunked => DECODED_LENGTH,
        };
        let bytes = only(headers, &length).and_then(|it| it.parse().ok()).ok_or("no-length")?;
        Ok(Self { name, part, bytes, framing })
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())?.to_str().ok()
}

/// `None` if one header says so and another one otherwise.
fn framing(headers: &HeaderMap) -> Option<Framing> {
    let hashes = headers.get_all(HASH);
    let encodings = headers.get_all(CONTENT_ENCODING).iter().filter_map(|it| it.to_str().ok());
    let is_encoded = encodings.flat_map(|it| it.split(',')).any(|it| it.trim().eq_ignore_ascii_case("aws-chunked"));
    let is_streaming = hashes.iter().any(|it| it.as_bytes().starts_with(b"STREAMING-"));
    match (is_streaming, is_encoded || headers.contains_key(DECODED_LENGTH)) {
        (true, _) => only(headers, &HASH).map(|_| Framing::AwsChunked),
        (false, true) => None,
        (false, false) => Some(Framing::Plain),
    }
}

impl Objects {
    /// A place for what is uploaded, once [`Self::changing`] was said of it.
    ///
    /// # Errors
    /// Why there is none: no room now, or somebody else changes the name too.
    pub fn writing(&mut self, now_ns: u64, write: &Write) -> Result<Writing, &'static str> {
        let belongs = match &write.part {
            Some(part) => {
                self.part_begins(&write.name, part);
                Belongs::Part(part.clone())
            }
            None => Belongs::Object(self.changes.alone(&write.name).ok_or("changed-meanwhile")?),
        };
        let id = self.catalogue.reserve(&write.name, write.bytes).ok_or("no-room")?;
        let (_, addresses) = self.catalogue.get(id).ok_or("no-room")?;
        let start = addresses.start;
        let kept = Kept { id, start, part: 0..write.bytes, bytes: write.bytes, is_known: false };
        Ok(Writing { kept, name: write.name.clone(), belongs, asked_ns: now_ns })
    }

    /// The store answered an upload that had all its bytes. To be said before [`Self::changed`].
    ///
    /// # Errors
    /// Why they are not kept: the version is forgotten.
    pub fn wrote(&mut self, writing: &Writing, status: StatusCode, headers: &HeaderMap) -> Result<(), &'static str> {
        let linked = self.link_written(writing, status, headers);
        if linked.is_err() {
            self.distrust(writing.kept.id);
        }
        linked
    }

    fn link_written(&mut self, writing: &Writing, status: StatusCode, headers: &HeaderMap) -> Result<(), &'static str> {
        if status != StatusCode::OK {
            return Err("status");
        }
        let etag = text(headers, ETAG).filter(|etag| !etag.is_empty() && !etag.starts_with("W/")).ok_or("no-etag")?;
        let alone = match &writing.belongs {
            Belongs::Part(part) => return self.part_wrote(&writing.kept, &writing.name, part, etag),
            Belongs::Object(alone) => *alone,
        };
        if self.changes.alone(&writing.name) != Some(alone) {
            return Err("changed-meanwhile");
        }
        let id = writing.kept.id;
        if !self.catalogue.adopt(id, etag, text(headers, VERSION_ID)) {
            return Err("no-room");
        }
        let (identity, _) = self.catalogue.get(id).ok_or("no-room")?;
        let identity = identity.clone();
        self.link(None, &identity, writing.asked_ns).map(|_| ()).ok_or("superseded")
    }
}

#[cfg(test)]
mod tests;
