//! Gateway: takes connections, and answers what comes on them.
//!
//! How: threads of a runtime of its own; a task for each connection; [`Serving`] answers each request. Bodies stream both
//! ways, so that memory does not grow with objects.
//!
//! Limits: [`GatewayConfig::connections_max`] connections, [`HEAD_BYTES_MAX`] of a request's head within [`GatewayConfig::head_within`]. A
//! connection beyond that is told to slow down and closed. A client that does not go on reading holds its connection and what is
//! in the sockets' buffers, no more.

use crate::backend::{BackEnd, BackEndError};
use crate::by_address;
use crate::cached::{CacheConfig, Cached};
use crate::counts::Counts;
use crate::failure::{self, Failure};
use crate::multipart::assemble;
use crate::operator::Operator;
use crate::serving::Serving;
use crate::trust::Authorities;
use crate::verify::VerifyConfig;
use forebay_objects::{Gate, Token};
use forebay_signature::StoreKey;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// What the kernel takes for a client beyond what is on the wire: 2,000 slow ones had 1.5 GiB there, and the whole machine's TCP stood still.
const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// After accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a gateway is set up.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where it listens; port 0: any.
    pub listen: SocketAddr,
    /// The store: `http://host:port` or `https://host:port`.
    pub backend: String,
    /// Who may vouch for it over TLS, beside the machine's authorities.
    pub authorities: Option<Authorities>,
    /// Names that buckets may stand before in `Host`.
    pub names: Vec<String>,
    /// Connections at one time.
    pub connections_max: usize,
    /// The store begins to answer within this time, or is away.
    pub answers_within: Duration,
    /// A connection waits so long for the whole head of its next request.
    pub head_within: Duration,
    /// Threads that serve.
    pub threads: usize,
    /// What who tells of changes past the gateway has to know; `None`: nobody can.
    pub events_token: Option<Token>,
    /// Who may what is known here; `None`: the store is asked, in the caller's name.
    pub verify: Option<VerifyConfig>,
    /// With which the store is read for hits ([`CacheConfig::reads`]); `None`: with that of `verify`, or not signed.
    pub split_key: Option<StoreKey>,
    /// Objects are cached so; `None`: everything is passed on.
    pub cache: Option<CacheConfig>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Choose another address.
    #[error("the S3 gateway cannot listen on {address}: {cause}; set s3.listen to a free address")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// The machine is short of threads or descriptors.
    #[error("the S3 gateway cannot start its threads: {0}; raise the limits on threads and open files")]
    Start(std::io::Error),
    /// The store's address is wrong.
    #[error(transparent)]
    BackEnd(#[from] BackEndError),
}

/// A running gateway; it stops when dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    operator: Operator,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Gateway {
    /// Listens and serves.
    ///
    /// # Errors
    /// When the address is taken, threads are, or the store's address is wrong.
    pub fn start(mut config: GatewayConfig) -> Result<Self, GatewayError> {
        let (gate, key) = match config.verify {
            // What is let in is in path style.
            Some(verify) => (Some(Gate::new(verify.clients, std::mem::take(&mut config.names))), Some(verify.store)),
            None => (None, None),
        };
        let backend = BackEnd::new(&config.backend, config.authorities.as_ref(), config.answers_within, key)?;
        let backend = Arc::new(backend.with_own_key(config.split_key));
        let listen = |cause| GatewayError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.threads)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(GatewayError::Start)?;
        let counts = Arc::new(Counts::default());
        let cached = config.cache.take().map(|mut cache| {
            let reads = cache.reads.take();
            let (cached, to_assemble) = Cached::new(cache, Arc::clone(&counts));
            runtime.spawn(Arc::clone(&cached).clean());
            runtime.spawn(assemble(Arc::clone(&cached), to_assemble));
            if let Some(reads) = reads {
                runtime.spawn(by_address::serve(Arc::clone(&cached), Arc::clone(&backend), reads));
            }
            cached
        });
        let places = Arc::new(Semaphore::new(config.connections_max));
        let operator = Operator {
            cached: cached.clone(),
            counts: Arc::clone(&counts),
            places: Arc::clone(&places),
            connections_max: config.connections_max,
            runtime: runtime.handle().clone(),
        };
        let events_token = config.events_token;
        let serving = Serving { names: config.names, gate, backend, cached, counts, events_token };
        runtime.spawn(accept(listener, Arc::new(serving), places, config.head_within));
        Ok(Self { address, operator, runtime: Some(runtime) })
    }

    /// For who runs it; stays good when the gateway has stopped.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, serving: Arc<Serving>, places: Arc<Semaphore>, head_within: Duration) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the S3 gateway cannot listen"),
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the S3 gateway could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let place = Arc::clone(&places).try_acquire_owned().ok();
        serving.counts.came(place.is_none());
        let serving = Arc::clone(&serving);
        tokio::spawn(async move {
            let is_full = place.is_none();
            let service = service_fn(|request: Request<Incoming>| {
                let serving = Arc::clone(&serving);
                // HTTP's library says no 100 where there is no body; the AWS SDK for Python then reads the next answer on that connection wrongly.
                let lacks_continue = request.headers().contains_key(EXPECT) && request.body().is_end_stream();
                async move {
                    let mut answer = match is_full {
                        true => failure::answer(Failure::SlowDown, request.uri().path(), "Too many connections."),
                        false => serving.answer(request).await,
                    };
                    if lacks_continue {
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(answer)
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head_within)
                .max_buf_size(HEAD_BYTES_MAX)
                .preserve_header_case(true)
                .keep_alive(!is_full)
                .serve_connection(TokioIo::new(stream), service);
            // How it ended is the client's business.
            let _ = connection.await;
            drop(place);
        });
    }
}
