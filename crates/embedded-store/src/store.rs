//! Store: takes connections and gives them to s3s, over a link if there is one.
//!
//! `s3s-fs` answers a read with `If-None-Match` as one without. Every S3 store tells it by 304, and a gateway can do nothing with one
//! that does not; so what is found unchanged becomes a 304 here, after s3s has said who may read. `Accept-Ranges`, which it tells by `HEAD` only, is
//! told with each read, as other stores do.

use crate::link::Link;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_RANGES, ETAG, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError};
use s3s_fs::FileSystem;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// After accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a store is set up.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Where it listens; port 0: any.
    pub listen: SocketAddr,
    /// Buckets are directories in it. It exists.
    pub directory: PathBuf,
    /// The owner's key and secret; `None`: everybody may do everything, who signs excepted.
    pub owner: Option<(String, String)>,
    /// What lies between; `None`: nothing.
    pub link: Option<Link>,
}

/// Why a store does not start.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Choose another address.
    #[error("the store cannot listen on {address}: {cause}; give it a free address by --listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// Choose another directory.
    #[error("the store cannot use {directory}: {cause}; give it a directory that exists and may be written")]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why not.
        cause: String,
    },
    /// The machine is short of threads or descriptors.
    #[error("the store cannot start its threads: {0}; raise the limits on threads and open files")]
    Start(std::io::Error),
}

/// A running store; it stops when dropped.
#[derive(Debug)]
pub struct Store {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Store {
    /// Listens and serves.
    ///
    /// # Errors
    /// When the address is taken, the directory cannot be used, or threads are short.
    pub fn start(config: StoreConfig) -> Result<Self, StoreError> {
        let files = FileSystem::new(&config.directory).map_err(|cause| StoreError::Directory {
            directory: config.directory.clone(),
            cause: format!("{cause:?}"),
        })?;
        let mut builder = S3ServiceBuilder::new(files);
        if let Some((key, secret)) = config.owner {
            builder.set_auth(SimpleAuth::from_single(key, secret));
        }
        let service = builder.build();
        let listen = |cause| StoreError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(StoreError::Start)?;
        let listener = {
            let _in_it = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(listen)?
        };
        runtime.spawn(accept(listener, service, config.link));
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, service: S3Service, link: Option<Link>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        match &link {
            Some(link) => drop(tokio::spawn(serve(link.over(stream), service.clone()))),
            None => drop(tokio::spawn(serve(stream, service.clone()))),
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, service: S3Service) {
    let conditional = service_fn(|request| answer(&service, request));
    // How it ended is the client's business.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), conditional).await;
}

async fn answer(service: &S3Service, request: Request<Incoming>) -> Result<Response<Body>, HttpError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = request.headers().get(IF_NONE_MATCH).filter(|_| is_read).cloned();
    let mut answer = Service::call(service, request).await?;
    if is_read && answer.status().is_success() && answer.headers().contains_key(ETAG) {
        answer.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    Ok(match known {
        Some(known) if answer.status().is_success() && is_among(answer.headers().get(ETAG), &known) => {
            unchanged(answer)
        }
        _ => answer,
    })
}

/// Whether an ETag is in a list of them.
fn is_among(etag: Option<&HeaderValue>, known: &HeaderValue) -> bool {
    let (Some(Ok(etag)), Ok(known)) = (etag.map(HeaderValue::to_str), known.to_str()) else { return false };
    known.split(',').map(str::trim).any(|one| one == "*" || one == etag)
}

/// Clients take a checksum for one of the body, which a 304 lacks: no more is told than what the object is.
fn unchanged(mut answer: Response<Body>) -> Response<Body> {
    let mut unchanged = Response::new(Body::empty());
    *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [ETAG, LAST_MODIFIED] {
        if let Some(value) = answer.headers_mut().remove(&name) {
            unchanged.headers_mut().insert(name, value);
        }
    }
    unchanged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_looked_for_in_a_list() {
        let is = |etag: &'static str, known| {
            is_among(Some(&HeaderValue::from_static(etag)), &HeaderValue::from_static(known))
        };
        assert!(is("\"a\"", "\"a\"") && is("\"a\"", "\"b\", \"a\"") && is("\"a\"", "*"));
        assert!(!is("\"a\"", "\"b\"") && !is_among(None, &HeaderValue::from_static("*")));
    }
}
