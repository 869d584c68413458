//! Verify: who asks is known here, and what leaves for the store is signed with the store's own key.
//!
//! Why: a store whose name is signed with each request (AWS) cannot stand behind another name.
//!
//! How: [`Gate`] lets a request in and takes the client's signature off ([`let_in`]); from then on it is treated as any other. Whatever leaves for the store, the
//! gateway's own questions among it, is signed in one place ([`sign`], in [`crate::backend`]). A body that is signed by chunks waits for
//! the signature of its head, and is checked and signed anew as it passes ([`crate::outgoing`]).
//!
//! Invariant: nothing of the client's signature leaves, and nothing leaves with the store's that was not let in.

use crate::outgoing::Signatures;
use forebay_objects::{Client, Gate, Refused};
use forebay_signature::StoreKey;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper::http::request::Parts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Who is known, and with which key the store is asked.
#[derive(Clone, Debug)]
pub struct VerifyConfig {
    /// By their access keys.
    pub clients: BTreeMap<String, Client>,
    /// The gateway's, at the store.
    pub store: StoreKey,
}

/// The request without its signature, or why it is not let in.
pub(crate) fn let_in(gate: &Gate, request: Request<Incoming>) -> Result<Request<Incoming>, Refused> {
    let (mut head, body) = request.into_parts();
    if let Some(streamed) = gate.let_in(unix_s(), &mut head)? {
        head.extensions.insert(Arc::new(Signatures::new(streamed)));
    }
    Ok(Request::from_parts(head, body))
}

/// Signs a request to the store, and so the chunks of its body.
pub(crate) fn sign(key: &StoreKey, authority: &str, head: &mut Parts) {
    let host = HeaderValue::from_str(authority).expect("it was an address");
    head.headers.insert(HOST, host);
    let chain = key.sign(unix_s(), &head.method, &head.uri, &mut head.headers);
    if let Some(signatures) = head.extensions.get::<Arc<Signatures>>() {
        signatures.leave(chain);
    }
}

pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
