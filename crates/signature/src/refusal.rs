//! Refusal: why a request is not believed to be from who it says.

/// See the module. What S3 calls each is the gateway's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No signature at all.
    #[error("the request is not signed")]
    Anonymous,
    /// A signature that cannot be read. What of it.
    #[error("{0} cannot be read")]
    Malformed(&'static str),
    /// The same, in the query.
    #[error("{0} cannot be read")]
    MalformedQuery(&'static str),
    /// Signed by the header and by the query, or with another version.
    #[error("only one signature, of version 4 with HMAC-SHA256, is understood")]
    Unsupported,
    /// No hash of the body, nor a word that it has none.
    #[error("x-amz-content-sha256 is missing, or is none of those that are understood")]
    NoPayload,
    /// A key for a while, which nobody here gave out.
    #[error("security tokens are not understood")]
    Token,
    /// A header that has to be signed is not. `Host`, or one that begins with `x-amz-`.
    #[error("a header that has to be signed is not, or is taken out on the way")]
    NotCovered,
    /// Nobody has such a key.
    #[error("nobody has this access key")]
    UnknownKey,
    /// Another secret, or another request.
    #[error("the signature is not that of this request by this key")]
    Wrong,
    /// A header's signature is good for 15 minutes.
    #[error("the request's time is more than 15 minutes from now")]
    Skewed,
    /// A query's signature is good for as long as it says.
    #[error("the request has expired")]
    Expired,
    /// Its time has not come.
    #[error("the request is not yet valid")]
    NotYet,
}
