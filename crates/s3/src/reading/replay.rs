//! Replay: an answer whose body is not simply counted, read by HTTP's library after all.
//!
//! How: the library is given a connection on which it asks once more. What it writes is swallowed, since the request has been sent; then it reads
//! what the store has answered, from the beginning on.
//!
//! Limit: such a connection is not used again.

use super::stream::Stream;
use bytes::BytesMut;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
struct Replay {
    came: BytesMut,
    stream: Stream,
    /// The library has asked; before that an answer would surprise it.
    has_asked: bool,
    reader: Option<Waker>,
}

/// What the store answered: `came`, and what `stream` has still to bring.
pub(super) async fn replay(head: &Parts, came: BytesMut, stream: Stream) -> hyper::Result<Response<Incoming>> {
    let io = TokioIo::new(Replay { came, stream, has_asked: false, reader: None });
    let (mut sender, connection) = http1::handshake(io).await?;
    // Ends with its body.
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    sender.send_request(request).await
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.has_asked {
            this.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        if this.came.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let bytes = this.came.len().min(buffer.remaining());
        buffer.put_slice(&this.came.split_to(bytes));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.has_asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
