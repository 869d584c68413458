//! Passing: a body that is passed on from the store, kept on its way if it may be.
//!
//! How: it is received as the client takes it ([`Pace`]). What is kept goes into frames of the cache where there are some, and is sent from them; else
//! into buffers, and copied ([`Keeping`]).
//!
//! Invariant: the client is given each byte once, in order, whatever becomes of keeping it.

use crate::body::Failed;
use crate::keep::Keeping;
use crate::pace::Pace;
use crate::reading::{Arriving, Counted};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What a client may have on the way at first, and at most.
const WINDOW_BYTES: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// Received into a buffer at once, and what a client may have on the way of buffers.
const BUFFER_BYTES: u64 = 32 << 10;
const BUFFERED_BYTES_MAX: u64 = 64 << 10;

/// See the module.
pub(crate) struct Passing {
    arriving: Arriving,
    keeping: Option<Keeping>,
    pace: Pace,
}

impl Passing {
    pub(crate) fn new(arriving: Arriving, keeping: Option<Keeping>) -> Self {
        Self { arriving, keeping, pace: Pace::new(WINDOW_BYTES, WINDOW_BYTES_MAX) }
    }

    /// What HTTP's library receives.
    pub(crate) fn library(incoming: Incoming) -> Self {
        Self::new(Arriving::Other(incoming), None)
    }

    fn poll_library(
        incoming: &mut Incoming,
        keeping: Option<&mut Keeping>,
        pace: &mut Pace,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        ready!(pace.poll_room(BUFFERED_BYTES_MAX, context));
        let Some(frame) = ready!(Pin::new(incoming).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = frame?;
        if let (Some(keeping), Some(piece)) = (keeping, frame.data_ref()) {
            keeping.take(piece, pace.window_bytes());
        }
        Poll::Ready(Some(Ok(frame.map_data(|data| pace.give(data)))))
    }

    fn poll_counted(
        counted: &mut Counted,
        keeping: Option<&mut Keeping>,
        pace: &mut Pace,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failed>>> {
        let window_bytes = pace.window_bytes();
        let mut buffer_bytes = window_bytes.min(BUFFER_BYTES);
        let Some(keeping) = keeping else {
            ready!(pace.poll_room(BUFFERED_BYTES_MAX, context));
            let piece = ready!(counted.poll_some(context, buffer_bytes as usize));
            return Poll::Ready(piece.map(|piece| piece.map(|it| pace.give(it))));
        };
        if counted.left() > 0 && ready!(keeping.poll_place(context, window_bytes)) {
            ready!(pace.poll_room(window_bytes, context));
            let bytes = ready!(counted.poll_into(context, keeping.blank()))?;
            return Poll::Ready(Some(Ok(pace.give(keeping.placed(bytes)))));
        }
        ready!(pace.poll_room(BUFFERED_BYTES_MAX, context));
        buffer_bytes = buffer_bytes.min(keeping.until_boundary());
        let Some(piece) = ready!(counted.poll_some(context, buffer_bytes as usize)) else { return Poll::Ready(None) };
        let piece = piece?;
        keeping.take(&piece, window_bytes);
        Poll::Ready(Some(Ok(pace.give(piece))))
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let Self { arriving, keeping, pace } = &mut *self;
        match arriving {
            Arriving::Other(incoming) => Self::poll_library(incoming, keeping.as_mut(), pace, context),
            Arriving::Counted(counted) => {
                let piece = ready!(Self::poll_counted(counted, keeping.as_mut(), pace, context));
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.arriving {
            Arriving::Other(incoming) => incoming.is_end_stream(),
            Arriving::Counted(counted) => counted.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.arriving {
            Arriving::Other(incoming) => incoming.size_hint(),
            Arriving::Counted(counted) => SizeHint::with_exact(counted.left()),
        }
    }
}
