//! Bodies: what is sent, wherever it comes from. Never a whole object in memory.
//!
//! A body that breaks off does so after what came before: HTTP's library drops what it has not sent yet when it is told of an error, the head too. So
//! the error is told one turn later, when that has left.

use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Why a body ended early.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// Of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Failed>;

/// A short text.
pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What comes piece by piece.
pub(crate) fn streamed(body: impl HttpBody<Data = Bytes, Error = Failed> + Send + Unpin + 'static) -> Body {
    Streamed { body, failed: None }.boxed_unsync()
}

/// See the module.
struct Streamed<B> {
    body: B,
    failed: Option<Failed>,
}

impl<B: HttpBody<Data = Bytes, Error = Failed> + Unpin> HttpBody for Streamed<B> {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Err(failed)) => {
                self.failed = Some(failed);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
