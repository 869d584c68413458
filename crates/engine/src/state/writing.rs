//! Writing: a thread of its own writes state down. The state directory may be on a disk that is as ill as the one that failed, and
//! the shard must go on meanwhile.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use forebay_uring::Wake;

/// A write under way.
#[derive(Debug)]
pub(super) struct Writing(Receiver<io::Result<()>>);

impl Writing {
    /// Begins it, in a thread of that name; `wake` is called when it ended.
    pub(super) fn begin(
        thread: &str,
        wake: Option<Wake>,
        write: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = channel();
        let work = move || {
            // The receiver is gone only when the shard is: nobody needs the answer then.
            let _ = sender.send(write());
            if let Some(wake) = wake {
                wake.wake();
            }
        };
        // Without a thread the sender is gone, and `ended` reports the failure.
        let _ = std::thread::Builder::new().name(thread.to_owned()).spawn(work);
        Self(receiver)
    }

    /// How it ended, once; `None` while it goes on.
    pub(super) fn ended(&self) -> Option<io::Result<()>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            Ok(ended) => Some(ended),
            Err(TryRecvError::Disconnected) => Some(Err(io::Error::other("no thread to do it"))),
        }
    }
}
