//! Gateway: takes connections, and answers what comes on them.
//!
//! How: threads of a runtime of its own; a task for each connection. A request is looked at ([`Target`]) and passed on to the
//! [`BackEnd`]; bodies stream both ways, so that memory does not grow with objects.
//!
//! Limits: [`GatewayConfig::connections_max`] connections, [`HEAD_BYTES_MAX`] of a request's head within [`HEAD_TIMEOUT`]. A
//! connection beyond that is told to slow down and closed. A client that does not go on reading holds its connection and what is
//! in the sockets' buffers, no more.

use crate::backend::{BackEnd, BackEndError};
use crate::body::{Body, passed_on};
use crate::failure::{self, Failure};
use crate::target::Target;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// To send it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// After accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// How a gateway is set up.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Where it listens; port 0: any.
    pub listen: SocketAddr,
    /// The store: `http://host:port`.
    pub backend: String,
    /// Names that buckets may stand before in `Host`.
    pub names: Vec<String>,
    /// Connections at one time.
    pub connections_max: usize,
    /// The store begins to answer within this time, or is away.
    pub answers_within: Duration,
    /// Threads that serve.
    pub threads: usize,
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
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Debug)]
struct Serving {
    config: GatewayConfig,
    backend: BackEnd<Incoming>,
}

impl Gateway {
    /// Listens and serves.
    ///
    /// # Errors
    /// When the address is taken, threads are, or the store's address is wrong.
    pub fn start(config: GatewayConfig) -> Result<Self, GatewayError> {
        let backend = BackEnd::new(&config.backend, config.answers_within)?;
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
        runtime.spawn(accept(listener, Arc::new(Serving { config, backend })));
        Ok(Self { address, runtime: Some(runtime) })
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

async fn accept(listener: TcpListener, serving: Arc<Serving>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the S3 gateway cannot listen"),
    };
    let places = Arc::new(Semaphore::new(serving.config.connections_max));
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
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let serving = Arc::clone(&serving);
        tokio::spawn(async move {
            let is_full = place.is_none();
            let service = service_fn(|request: Request<Incoming>| {
                let serving = Arc::clone(&serving);
                async move {
                    let answer = match is_full {
                        true => failure::answer(Failure::SlowDown, request.uri().path(), "Too many connections."),
                        false => serving.answer(request).await,
                    };
                    Ok::<_, Infallible>(answer)
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
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

impl Serving {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri().clone();
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let target = Target::of(request.method(), uri.path(), uri.query(), host, &self.config.names);
        tracing::trace!(?target, "asked");
        match self.backend.ask(request).await {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                head.headers.insert(X_CACHE, HeaderValue::from_static("BYPASS"));
                Response::from_parts(head, passed_on(body))
            }
            Err(error @ BackEndError::Address { .. }) => {
                failure::answer(Failure::BadRequest, uri.path(), &error.to_string())
            }
            Err(error) => {
                tracing::debug!(%error, "no answer");
                failure::answer(Failure::BackEndAway, uri.path(), self.backend.address())
            }
        }
    }
}
