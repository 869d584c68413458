//! Link: one connection to the store, and what has come on it.

use super::head::{self, Answered};
use super::replay::replay;
use super::stream::Stream;
use crate::body::Failed;
use bytes::{Buf, BufMut, BytesMut};
use hyper::Method;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use rustls::ClientConfig;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

/// Received at once while a head is waited for.
const HEAD_READ_BYTES: usize = 4 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    /// Not taken yet.
    came: BytesMut,
}

/// What came of asking.
pub(super) enum Opened {
    /// Its head is at the beginning of what came.
    Answered(Answered),
    /// The other end had gone before it answered.
    Broken,
}

impl Link {
    /// To `host:port`, or `host`; `tls`: how, if it is spoken.
    pub(super) async fn connect(authority: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        Ok(Self { stream: Stream::connect(authority, tls).await?, came: BytesMut::new() })
    }

    /// Whether the other end still is there, and says nothing.
    pub(super) fn is_open(&mut self) -> bool {
        self.stream.is_silent()
    }

    /// Nothing came beyond what was asked for.
    pub(super) fn is_clean(&self) -> bool {
        self.came.is_empty()
    }

    /// Without its buffer.
    pub(super) fn emptied(self) -> Self {
        Self { stream: self.stream, came: BytesMut::new() }
    }

    pub(super) async fn ask(
        &mut self,
        request: &[u8],
        method: &Method,
        head_bytes_max: usize,
    ) -> Result<Opened, Failed> {
        if self.stream.write_all(request).await.is_err() || self.stream.flush().await.is_err() {
            return Ok(Opened::Broken);
        }
        loop {
            self.came.reserve(HEAD_READ_BYTES);
            match self.stream.read_buf(&mut (&mut self.came).limit(HEAD_READ_BYTES)).await {
                Ok(0) | Err(_) if self.came.is_empty() => return Ok(Opened::Broken),
                Ok(0) => return Err("it closed the connection within the head of its answer".into()),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(answered) = head::answer(&self.came, method)? {
                return Ok(Opened::Answered(answered));
            }
            if self.came.len() > head_bytes_max {
                return Err("the head of its answer is too long".into());
            }
        }
    }

    /// The first bytes are taken.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.came.advance(bytes);
    }

    /// The answer's head and body, by HTTP's library.
    pub(super) async fn replay(self, head: &Parts) -> hyper::Result<Response<Incoming>> {
        replay(head, self.came, self.stream).await
    }

    pub(super) fn poll_into(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.came.is_empty() {
            let bytes = self.came.len().min(into.len());
            self.came.copy_to_slice(&mut into[..bytes]);
            return Poll::Ready(Ok(bytes));
        }
        let mut buffer = ReadBuf::new(into);
        pin!(&mut self.stream).poll_read(context, &mut buffer).map_ok(|()| buffer.filled().len())
    }

    /// None at the end.
    pub(super) fn poll_some(&mut self, context: &mut Context<'_>, bytes_max: usize) -> Poll<io::Result<Bytes>> {
        if self.came.is_empty() {
            self.came.reserve(bytes_max);
            let into = &mut (&mut self.came).limit(bytes_max);
            let received = pin!(self.stream.read_buf(into)).poll(context);
            if !matches!(received, Poll::Ready(Ok(_))) {
                return received.map_ok(|_| Bytes::new());
            }
        }
        let bytes = self.came.len().min(bytes_max);
        Poll::Ready(Ok(self.came.split_to(bytes).freeze()))
    }
}
