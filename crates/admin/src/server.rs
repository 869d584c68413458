//! The listener: HTTP/1.1, one request a connection, everything bounded.
//!
//! One thread runs a single-threaded runtime. What may wait (a snapshot, a flush) goes to a few blocking threads: two
//! kept for orders, the rest for reading, so that an endpoint whose flush waits for a dead back end still
//! answers a scrape. Health checks need no thread at all.
//!
//! Limits: [`CONNECTIONS_MAX`] connections (further ones wait in the kernel's backlog), [`HEAD_BYTES_MAX`] of request
//! head, [`HEAD_TIMEOUT`] to send it, [`CONNECTION_TIMEOUT`] for a connection as a whole. Bodies are never read.

use crate::answer::{self, Answer};
use crate::control::{Control, ControlError, ErrorKind, State};
use crate::guard;
use crate::route::{self, NoRoute, Route};
use crate::snapshot::Status;
use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Connections at one time.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// To send the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer of [`Control`].
const CONTROL_TIMEOUT: Duration = Duration::from_secs(120);
/// For a connection, from accept to close.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(150);
/// Orders at one time.
const ORDERS_MAX: usize = 2;
/// Snapshots at one time.
const READERS_MAX: usize = 2;

/// Why the endpoint does not listen; the message names address, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Choose another address.
    #[error(
        "the admin endpoint cannot listen on {address}: {cause}; set admin.listen to a free address, or to \"none\""
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// The machine is short of threads or descriptors.
    #[error("the admin endpoint cannot start its thread: {0}; raise the limits on threads and open files")]
    Start(std::io::Error),
}

/// A running endpoint; it stops when dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Listens on `address` (port 0: any) and answers for `control`.
    ///
    /// # Errors
    /// When the address is taken, or threads are.
    pub fn start(address: SocketAddr, control: Arc<dyn Control>) -> Result<Self, AdminError> {
        let listen = |cause| AdminError::Listen { address, cause };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ORDERS_MAX + READERS_MAX)
            .thread_name("admin-control")
            .build()
            .map_err(AdminError::Start)?;
        let endpoint = Arc::new(Endpoint {
            control,
            on_loopback: address.ip().is_loopback(),
            orders: Arc::new(Semaphore::new(ORDERS_MAX)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        });
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.spawn(accept(listener, endpoint));
            // Ends when the sender is dropped.
            let _ = runtime.block_on(stopped);
            // A control call that still waits must not hold the process.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(serve).map_err(AdminError::Start)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin endpoint's thread had panicked");
        }
    }
}

async fn accept(listener: TcpListener, endpoint: Arc<Endpoint>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin endpoint cannot listen"),
    };
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin endpoint could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let endpoint = Arc::clone(&endpoint);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let endpoint = Arc::clone(&endpoint);
                async move { Ok::<_, Infallible>(endpoint.answer(&request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // How it ended is the client's business.
            let _ = timeout(CONNECTION_TIMEOUT, connection).await;
            drop(permit);
        });
    }
}

struct Endpoint {
    control: Arc<dyn Control>,
    on_loopback: bool,
    orders: Arc<Semaphore>,
    readers: Arc<Semaphore>,
}

impl Endpoint {
    async fn answer<B>(&self, request: &Request<B>) -> Answer {
        let header = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or("not ASCII"));
        // A request line with a host in it overrides the header.
        let host = request.uri().authority().map(|authority| authority.as_str()).or_else(|| header(HOST));
        if let Err(error) = guard::check(self.on_loopback, host, header(ORIGIN)) {
            return answer::error(&error);
        }
        let route = match route::find(request.method().as_str(), request.uri().path(), request.uri().query()) {
            Ok(route) => route,
            Err(NoRoute::Method { allowed }) => return answer::wrong_method(allowed),
            Err(NoRoute::Error(error)) => return answer::error(&error),
        };
        match route {
            Route::Health => {
                let state = self.control.state();
                answer::state(state != State::Failed, state)
            }
            Route::Ready => {
                let state = self.control.state();
                answer::state(state.is_serving(), state)
            }
            Route::Metrics => self.read(answer::metrics).await,
            Route::Status => self.read(|snapshot| answer::json(StatusCode::OK, &Status::from(&snapshot))).await,
            Route::Stats => self.read(|snapshot| answer::json(StatusCode::OK, &snapshot)).await,
            Route::Flush { volume } => {
                self.order("flush", volume, |control, volume| done("flush", volume, control.flush(volume))).await
            }
            Route::Evict { volume, offset, length } => {
                let evict = move |control: &dyn Control, volume: &str| control.evict(volume, offset, length);
                self.order("evict", volume, move |control, volume| done("evict", volume, evict(control, volume))).await
            }
            Route::Split { volume, policy, disk_percent } => {
                let split = move |control: &dyn Control, volume: &str| control.split(volume, &policy, disk_percent);
                self.order("split", volume, move |control, volume| done("split", volume, split(control, volume))).await
            }
            Route::Mode { volume, mode } => {
                let switch = move |control: &dyn Control, volume: &str| control.mode(volume, &mode);
                self.order("mode", volume, move |control, volume| done("mode", volume, switch(control, volume))).await
            }
            Route::AcceptLoss { volume } => {
                let accept =
                    |control: &dyn Control, volume: &str| done("accept-loss", volume, control.accept_loss(volume));
                self.order("accept-loss", volume, accept).await
            }
            Route::Measure { volume, measure } => {
                self.order("measure", volume, move |control, volume| control.measure(volume, measure)).await
            }
            Route::Learnt { volume } => self.order("learnt", volume, |control, volume| control.learnt(volume)).await,
            Route::FindObjects { uri } => self.order("stat", uri, |control, uri| control.find_objects(uri)).await,
            Route::ForgetObjects { uri } => self.order("evict", uri, |control, uri| control.forget_objects(uri)).await,
            Route::ExplainObject { uri } => {
                self.order("explain", uri, |control, uri| control.explain_object(uri)).await
            }
            Route::Profile { volume, file } => {
                self.order("profile", volume, move |control, volume| control.profile(volume, &file)).await
            }
        }
    }

    async fn read(&self, show: impl FnOnce(crate::Snapshot) -> Answer + Send + 'static) -> Answer {
        let Ok(Ok(permit)) = timeout(CONTROL_TIMEOUT, Arc::clone(&self.readers).acquire_owned()).await else {
            return answer::timed_out();
        };
        let control = Arc::clone(&self.control);
        waiting(move || {
            let _permit = permit;
            match control.snapshot() {
                Ok(snapshot) => show(snapshot),
                Err(error) => answer::error(&error),
            }
        })
        .await
    }

    async fn order<T: Serialize>(
        &self,
        verb: &'static str,
        of: String,
        order: impl FnOnce(&dyn Control, &str) -> Result<T, ControlError> + Send + 'static,
    ) -> Answer {
        let Ok(permit) = Arc::clone(&self.orders).try_acquire_owned() else {
            return answer::error(&ControlError::new(
                ErrorKind::Temporary,
                verb,
                format!("{ORDERS_MAX} orders are under way"),
                "try again when they are done",
            ));
        };
        let control = Arc::clone(&self.control);
        waiting(move || {
            let _permit = permit;
            match order(&*control, &of) {
                Ok(told) => answer::json(StatusCode::OK, &told),
                Err(error) => answer::error(&error),
            }
        })
        .await
    }
}

/// What is told of an order that was followed.
fn done(verb: &str, volume: &str, result: Result<(), ControlError>) -> Result<serde_json::Value, ControlError> {
    result.map(|()| serde_json::json!({ "done": verb, "volume": volume }))
}

/// Runs what may wait on a blocking thread, and gives up waiting for it in time.
async fn waiting(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    match timeout(CONTROL_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => answer::error(&ControlError::new(
            ErrorKind::Failed,
            "the request",
            "the cache's control panicked",
            "the log has the place; report it as a bug",
        )),
        Err(_) => answer::timed_out(),
    }
}
