//! The back end: the S3 endpoint behind the gateway, and connections to it.
//!
//! How: objects are read on connections of the gateway's own ([`crate::reading`]); the rest is HTTP's library's: a connection carries one request at a time and is kept for the next one, at most [`IDLE_MAX`] of them for
//! [`IDLE`]. One that the store has closed meanwhile is found out by the client library, which takes another one if nothing of the
//! request has left.
//!
//! A request leaves as it came, unless the gateway has a key of its own at the store ([`crate::verify`]): the same path and query, the same headers
//! with the same names, `Host` among them. What is of one connection only (RFC 9110, 7.6.1) stays there.

use crate::body::Failed;
use crate::reading::{Arriving, Links};
use crate::trust::{self, Authorities, Doubt, TrustError};
use crate::verify;
use forebay_objects::may_change;
use forebay_signature::StoreKey;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// Connections that are kept for later.
const IDLE_MAX: usize = 256;
/// What a connection receives at once: a slow client should not hold more.
const BUFFER_BYTES: usize = 128 << 10;
/// For how long.
const IDLE: Duration = Duration::from_secs(20);

/// Why the store gave no answer. Whoever asked may try again later.
#[derive(Debug, thiserror::Error)]
pub enum BackEndError {
    /// It could not be reached, or broke off.
    #[error("the store {address} does not answer: {cause}")]
    Away {
        /// Where.
        address: String,
        /// Why.
        cause: Failed,
    },
    /// It took too long.
    #[error("the store {address} did not begin to answer, or to take more of the request, within {seconds} s")]
    Late {
        /// Where.
        address: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It could not prove that it is the one that was meant.
    #[error("the store {address} is not trusted: {}; {}", doubt.told().0, doubt.told().1)]
    Untrusted {
        /// Where.
        address: String,
        /// Why not.
        doubt: Doubt,
    },
    /// Nobody could be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Its address is none.
    #[error("the store's address {address:?} is none: write it as \"http://host:port\" or \"https://host:port\"")]
    Address {
        /// As it was given.
        address: String,
    },
}

impl BackEndError {
    /// Why a store did not answer.
    pub(crate) fn of(address: &str, cause: impl Into<Failed>) -> Self {
        let (address, cause) = (address.to_owned(), cause.into());
        match trust::doubt(&*cause) {
            Some(doubt) => Self::Untrusted { address, doubt },
            None => Self::Away { address, cause },
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct BackEnd<B> {
    address: String,
    scheme: &'static str,
    authority: String,
    client: Way<B>,
    /// The number of the doubt that was told last; 0: none since.
    told: AtomicUsize,
    links: Arc<Links>,
    answers_within: Duration,
    key: Option<StoreKey>,
    own_key: Option<StoreKey>,
}

/// HTTP's library's connections.
#[derive(Debug)]
enum Way<B> {
    Plain(Client<HttpConnector, Leaving<B>>),
    Tls(Client<HttpsConnector<HttpConnector>, Leaving<B>>),
}

impl<B> BackEnd<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// The store at `http://host:port`, or `https://`; `authorities`: who may vouch for it then, beside those of the machine. `answers_within`: how long the head of an answer is waited for. `key`: what leaves is signed with it;
    /// `None`: it leaves as it came.
    ///
    /// # Errors
    /// When the address is none, or nobody is trusted.
    pub fn new(
        address: &str,
        authorities: Option<&Authorities>,
        answers_within: Duration,
        key: Option<StoreKey>,
    ) -> Result<Self, BackEndError> {
        let authority = check_address(address)?;
        let tls = is_tls(address).then(|| trust::client(authorities)).transpose()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(answers_within));
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .http1_max_buf_size(BUFFER_BYTES)
            .http1_preserve_header_case(true)
            .http1_title_case_headers(true)
            .set_host(false);
        let (scheme, client) = match &tls {
            None => ("http", Way::Plain(builder.build(connector))),
            Some(tls) => {
                connector.enforce_http(false);
                ("https", Way::Tls(builder.build(HttpsConnector::from((connector, Arc::clone(tls))))))
            }
        };
        let links = Links::new(address, &authority, tls, answers_within);
        let told = AtomicUsize::new(0);
        let address = address.to_owned();
        Ok(Self { address, scheme, authority, client, told, links, answers_within, key, own_key: None })
    }

    /// What no client asks is signed with that, if it would not be otherwise.
    #[must_use]
    pub(crate) fn with_own_key(self, own_key: Option<StoreKey>) -> Self {
        Self { own_key, ..self }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes a request on; its answer, whose body is still to come.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&self, request: Request<B>) -> Result<Response<Incoming>, BackEndError> {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let uri = format!("{}://{}{path}", self.scheme, self.authority);
        let uri = uri.parse().map_err(|_| BackEndError::Address { address: uri })?;
        let (mut head, body) = request.into_parts();
        self.leave(&mut head);
        head.uri = uri;
        let left = Arc::new(AtomicU64::new(0));
        let mut asking =
            pin!(self.client.request(Request::from_parts(head, Leaving { body, left: Arc::clone(&left) })));
        let answer = loop {
            let before = left.load(Ordering::Relaxed);
            match timeout(self.answers_within, &mut asking).await {
                Ok(answer) => break answer,
                // An upload takes as long as it takes.
                Err(_) if left.load(Ordering::Relaxed) != before => {}
                Err(_) => {
                    let seconds = self.answers_within.as_secs();
                    return Err(BackEndError::Late { address: self.address.clone(), seconds });
                }
            }
        };
        let mut answer = self.trusted(answer.map_err(|cause| BackEndError::of(&self.address, cause)))?;
        keep_end_to_end(answer.headers_mut());
        Ok(answer)
    }

    /// The same for a request that has no body and reads ([`crate::reading`]).
    ///
    /// # Errors
    /// When there is no answer.
    pub(crate) async fn read(&self, mut head: Parts) -> Result<Response<Arriving>, BackEndError> {
        self.leave(&mut head);
        let mut answer = self.trusted(self.links.read(&head).await)?;
        keep_end_to_end(answer.headers_mut());
        Ok(answer)
    }

    /// The same for what no client asks.
    ///
    /// # Errors
    /// When there is no answer.
    pub(crate) async fn read_own(&self, mut head: Parts) -> Result<Response<Arriving>, BackEndError> {
        if let (None, Some(key)) = (&self.key, &self.own_key) {
            verify::sign(key, &self.authority, &mut head);
        }
        self.read(head).await
    }

    /// What leaves is of no client's connection, and signed by who has a key of its own.
    fn leave(&self, head: &mut Parts) {
        keep_end_to_end(&mut head.headers);
        expect_nothing(head);
        if let Some(key) = &self.key {
            verify::sign(key, &self.authority, head);
        }
    }

    /// Tells once when the store is not trusted, for another reason, or again.
    fn trusted<T>(&self, answer: Result<T, BackEndError>) -> Result<T, BackEndError> {
        let now = match &answer {
            Ok(_) => 0,
            Err(BackEndError::Untrusted { doubt, .. }) => doubt.number(),
            Err(_) => return answer,
        };
        // Most of the time nothing is written here, so that processors do not wait for each other.
        if self.told.load(Ordering::Relaxed) != now && self.told.swap(now, Ordering::Relaxed) != now {
            match &answer {
                Err(error) => tracing::error!("{error}"),
                Ok(_) => tracing::info!(store = self.address, "the store is trusted again"),
            }
        }
        answer
    }
}

impl<B> Way<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn request(&self, request: Request<Leaving<B>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

fn is_tls(address: &str) -> bool {
    address.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("https:"))
}

/// A body that tells how much of it has left.
#[derive(Debug)]
struct Leaving<B> {
    body: B,
    left: Arc<AtomicU64>,
}

impl<B> Body for Leaving<B>
where
    B: Body + Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.left.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The host and port of `http://host:port` or `https://host:port`.
///
/// # Errors
/// When it is something else.
pub fn check_address(address: &str) -> Result<String, BackEndError> {
    let wrong = || BackEndError::Address { address: address.to_owned() };
    let uri: Uri = address.parse().map_err(|_| wrong())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.path() != "/" || uri.query().is_some() {
        return Err(wrong());
    }
    Ok(uri.authority().ok_or_else(wrong)?.as_str().to_owned())
}

/// Takes out what is of one connection only.
fn keep_end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// Takes out `Expect`, which the gateway answers itself.
///
/// A store that says no without a 100 takes what comes next for a request, but what comes is the body. So where the client signed the header, nothing
/// else is asked on that connection.
fn expect_nothing(head: &mut Parts) {
    if !head.headers.contains_key(EXPECT) {
        return;
    }
    if may_change(&head.uri, &head.headers, &EXPECT) {
        head.headers.remove(EXPECT);
    } else {
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use hyper::body::Bytes;

    #[test]
    fn an_address_is_a_host_and_no_more() {
        let store = |address| {
            BackEnd::<Empty<Bytes>>::new(address, None, Duration::from_secs(1), None).err().map(|it| it.to_string())
        };
        assert_eq!(store("http://[::1]:9000"), None);
        assert_eq!(store("http://store/"), None);
        for wrong in [
            "store:9000",
            "ftp://store",
            "https://store/bucket",
            "http://store/bucket",
            "http://store/?x",
            "",
            "http://",
        ] {
            let told = store(wrong).expect("refused");
            assert!(told.contains("write it as"), "{wrong}: {told}");
        }
    }

    #[test]
    fn what_is_of_one_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "2"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("authorization", "AWS4"),
            ("x-amz-date", "3"),
        ] {
            headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
        }
        keep_end_to_end(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "x-amz-date"]);
    }
}
