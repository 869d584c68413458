//! Reading: objects asked of the store on connections of the gateway's own.
//!
//! Why: what is received is kept and sent from where it is received to. HTTP's library receives into buffers of its own, and what is kept was copied
//! from there by another processor: a miss cost 1.4 to 1.6 times the CPU of one that is not kept. It also hands each request to a task
//! of the connection's, and four buffers to each.
//!
//! How: a connection carries one request at a time ([`link`]), over TLS if the store's address says so ([`stream`]). A head is taken apart by a library ([`head`]). A body that is counted is received by whoever wants it,
//! wherever they want it ([`Arriving`]); any other one is left to HTTP's library ([`replay`]). Afterwards the connection is kept, at most [`IDLE_MAX`]
//! for [`IDLE`]. If one that was kept breaks before an answer begins, the request is sent once more on a new one: it is a read.
//!
//! Limits: [`HEAD_BYTES_MAX`] of an answer's head.
//!
//! Rejected: all requests on such connections (uploads need more of HTTP: continuation, early answers, trailers); io_uring on the shard's thread
//! (the store would be the shard's business).

mod head;
mod link;
mod replay;
mod stream;

use crate::backend::BackEndError;
use crate::body::Failed;
use head::Framing;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use link::{Link, Opened};
use rustls::ClientConfig;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep, timeout};

/// Connections that are kept for later.
const IDLE_MAX: usize = 256;
/// For how long.
const IDLE: Duration = Duration::from_secs(20);
/// Of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Connections to the store.
#[derive(Debug)]
pub(crate) struct Links {
    address: String,
    authority: String,
    tls: Option<Arc<ClientConfig>>,
    answers_within: Duration,
    /// The latest last.
    idle: Mutex<Vec<(Link, Instant)>>,
}

/// A body from the store.
pub(crate) enum Arriving {
    Counted(Counted),
    Other(Incoming),
}

/// So many bytes of a connection.
pub(crate) struct Counted {
    links: Arc<Links>,
    /// `None` after the last byte.
    link: Option<Link>,
    left: u64,
    is_last: bool,
    /// Ends when the store has sent nothing for too long.
    stall: Option<Pin<Box<Sleep>>>,
    /// Something came since it was set.
    has_come: bool,
}

impl Links {
    pub(crate) fn new(
        address: &str,
        authority: &str,
        tls: Option<Arc<ClientConfig>>,
        answers_within: Duration,
    ) -> Arc<Self> {
        let authority = authority.to_owned();
        Arc::new(Self { address: address.to_owned(), authority, tls, answers_within, idle: Mutex::default() })
    }

    /// Sends a request that has no body; its answer, whose body is still to come.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn read(self: &Arc<Self>, head: &Parts) -> Result<Response<Arriving>, BackEndError> {
        let late = || BackEndError::Late { address: self.address.clone(), seconds: self.answers_within.as_secs() };
        let answer = timeout(self.answers_within, self.answer(head)).await.map_err(|_| late())?;
        answer.map_err(|cause| BackEndError::of(&self.address, cause))
    }

    async fn answer(self: &Arc<Self>, head: &Parts) -> Result<Response<Arriving>, Failed> {
        let request = head::request(head, &self.authority);
        if let Some(link) = self.take()
            && let Some(answer) = self.asked(link, &request, head).await?
        {
            return Ok(answer);
        }
        let link = Link::connect(&self.authority, self.tls.as_ref()).await?;
        self.asked(link, &request, head).await?.ok_or_else(|| "it closed the connection without an answer".into())
    }

    /// `None`: the connection was no good, and nothing was answered.
    async fn asked(
        self: &Arc<Self>,
        mut link: Link,
        request: &[u8],
        head: &Parts,
    ) -> Result<Option<Response<Arriving>>, Failed> {
        let answered = match link.ask(request, &head.method, HEAD_BYTES_MAX).await? {
            Opened::Broken => return Ok(None),
            Opened::Answered(answered) => answered,
        };
        let Framing::Bytes { bytes, is_last } = answered.body else {
            return Ok(Some(link.replay(head).await?.map(Arriving::Other)));
        };
        link.skip(answered.bytes);
        let links = Arc::clone(self);
        let mut body = Counted { links, link: Some(link), left: bytes, is_last, stall: None, has_come: false };
        body.end_if_all();
        Ok(Some(answered.head.map(|()| Arriving::Counted(body))))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Link, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Link> {
        loop {
            let (mut link, since) = self.idle().pop()?;
            if since.elapsed() < IDLE && link.is_open() {
                return Some(link);
            }
        }
    }

    fn keep(&self, link: Link) {
        let now = Instant::now();
        let mut idle = self.idle();
        let old = idle.iter().take_while(|(_, since)| now - *since > IDLE).count();
        let old = old.max((idle.len() + 1).saturating_sub(IDLE_MAX));
        let closed: Vec<(Link, Instant)> = idle.drain(..old).collect();
        idle.push((link, now));
        drop(idle);
        drop(closed);
    }
}

impl Arriving {
    /// Fills these bytes with the next ones, if so many are still to come.
    ///
    /// # Errors
    /// When they do not come, or are not counted.
    pub(crate) async fn fill(&mut self, mut into: &mut [u8]) -> Result<(), Failed> {
        let Self::Counted(counted) = self else { return Err("the store's answer does not say how long it is".into()) };
        if counted.left() < into.len() as u64 {
            return Err("the store's answer is too short".into());
        }
        while !into.is_empty() {
            let received = poll_fn(|context| counted.poll_into(context, into)).await?;
            into = &mut into[received..];
        }
        Ok(())
    }
}

impl Counted {
    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Receives the next bytes, at least one.
    pub(crate) fn poll_into(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize, Failed>> {
        let length = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let link = self.link.as_mut().expect("a body with bytes left has its connection");
        let received = link.poll_into(context, &mut into[..length]);
        self.came(context, received, |bytes| *bytes)
    }

    /// The same, into a buffer of so many bytes at most. `None` after the last.
    pub(crate) fn poll_some(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<Option<Result<Bytes, Failed>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let bytes_max = bytes_max.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let link = self.link.as_mut().expect("a body with bytes left has its connection");
        let received = link.poll_some(context, bytes_max);
        self.came(context, received, Bytes::len).map(Some)
    }

    /// What came of receiving; `bytes`: how much that is.
    fn came<T>(
        &mut self,
        context: &mut Context<'_>,
        received: Poll<std::io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<Result<T, Failed>> {
        let Poll::Ready(received) = received else { return self.poll_stall(context).map(Err) };
        self.has_come = true;
        let received = received?;
        let bytes = bytes(&received) as u64;
        if bytes == 0 {
            return Poll::Ready(Err("the store closed the connection before the end of its answer".into()));
        }
        self.left -= bytes;
        self.end_if_all();
        Poll::Ready(Ok(received))
    }

    /// Nothing is here: an error if that was so for too long.
    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<Failed> {
        let within = self.links.answers_within;
        let has_come = std::mem::take(&mut self.has_come);
        let stall = match &mut self.stall {
            Some(stall) => {
                if has_come {
                    stall.as_mut().reset(tokio::time::Instant::now() + within);
                }
                stall
            }
            None => self.stall.insert(Box::pin(sleep(within))),
        };
        ready!(stall.as_mut().poll(context));
        let address = &self.links.address;
        Poll::Ready(format!("the store {address} stopped sending for {} s", within.as_secs()).into())
    }

    /// After the last byte somebody else may have the connection.
    fn end_if_all(&mut self) {
        if self.left == 0
            && let Some(link) = self.link.take()
            && !self.is_last
            && link.is_clean()
        {
            self.links.keep(link.emptied());
        }
    }
}
