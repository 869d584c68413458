//! Outgoing: the body of a client's request, on its way to the store.
//!
//! How: it passes as it comes. One that is signed by chunks is checked and signed anew ([`Chunks`]), which holds a chunk at a time. What is
//! wrong with it ends it, so that the store has no whole body, and is told to whoever answers the client.

use crate::body::Failed;
use forebay_objects::Streamed;
use forebay_signature::{Chain, Chunks, Fault};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

/// Between a request that was let in, the signer of what leaves, and the body.
#[derive(Debug)]
pub(crate) struct Signatures {
    came: Streamed,
    leaves: OnceLock<Chain>,
    fault: OnceLock<Fault>,
}

impl Signatures {
    pub(crate) fn new(came: Streamed) -> Self {
        Self { came, leaves: OnceLock::new(), fault: OnceLock::new() }
    }

    /// The request to the store is signed.
    pub(crate) fn leave(&self, chain: Chain) {
        // It leaves once: a body cannot be sent again.
        let _ = self.leaves.set(chain);
    }

    /// What was wrong with the body.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.get().copied()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Incoming,
    signatures: Option<Arc<Signatures>>,
    /// Once the first byte comes.
    chunks: Option<Box<Chunks>>,
}

impl Outgoing {
    /// `signatures`: those within the body, if it has any.
    pub(crate) fn new(body: Incoming, signatures: Option<Arc<Signatures>>) -> Self {
        Self { body, signatures, chunks: None }
    }

    /// What may leave of these bytes; `None`: the body has ended.
    fn checked(&mut self, signatures: &Signatures, bytes: Option<&[u8]>) -> Result<Bytes, Fault> {
        let (came, leaves) = (&signatures.came, &signatures.leaves);
        let chunks = self.chunks.get_or_insert_with(|| {
            let leaves = leaves.get().expect("a body leaves after its head was signed");
            Box::new(Chunks::new(came.chain.clone(), leaves.clone(), came.has_trailer))
        });
        let checked = match bytes {
            Some(bytes) => chunks.take(bytes).map(Bytes::from),
            None => chunks.end().map(|()| Bytes::new()),
        };
        checked.inspect_err(|fault| {
            // The first is the cause.
            let _ = signatures.fault.set(*fault);
        })
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = &mut *self;
        loop {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context)).transpose()?;
            let Some(signatures) = this.signatures.clone() else { return Poll::Ready(frame.map(Ok)) };
            let is_end = frame.is_none();
            let leaves = match frame {
                None => this.checked(&signatures, None)?,
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => this.checked(&signatures, Some(&bytes))?,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
            };
            match (leaves.is_empty(), is_end) {
                (true, true) => return Poll::Ready(None),
                (true, false) => {}
                (false, _) => return Poll::Ready(Some(Ok(Frame::data(leaves)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_whole = self.signatures.is_none() || self.chunks.as_ref().is_some_and(|it| it.end().is_ok());
        is_whole && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Framing stays byte for byte.
        self.body.size_hint()
    }
}
