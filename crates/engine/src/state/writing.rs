//! Writing: a thread of its own writes state down. The state directory may be on a disk that is as ill as the one that failed, and
//! the shard must go on meanwhile.
//!
//! The thread stays for what comes next. To start one while clients are served may take long: it needs the lock of the process's
//! memory, which is held while memory is committed. Behind a busy machine's queue that was 110 ms.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use forebay_uring::Wake;

type Work = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The thread, and what it said.
#[derive(Debug)]
struct Thread {
    work: Sender<(Work, Option<Wake>)>,
    ended: Receiver<io::Result<()>>,
}

/// Writes one thing after the other. The thread ends with it, once what is under way has.
#[derive(Debug)]
pub(super) struct Writer {
    name: &'static str,
    thread: Option<Thread>,
}

impl Writer {
    /// Its thread, to come, has that name.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, thread: None }
    }

    /// Starts the thread, if it is not there.
    pub(super) fn start(&mut self) {
        if self.thread.is_some() {
            return;
        }
        let (work, to_do) = channel::<(Work, Option<Wake>)>();
        let (sender, ended) = channel();
        let run = move || {
            for (work, wake) in to_do {
                // The receiver is gone only when the shard is: nobody needs the answer then.
                let _ = sender.send(work());
                if let Some(wake) = wake {
                    wake.wake();
                }
            }
        };
        // Without a thread its ends of the channels are gone, and `ended` reports the failure.
        let _ = std::thread::Builder::new().name(self.name.to_owned()).spawn(run);
        self.thread = Some(Thread { work, ended });
    }

    /// Begins a write; `wake` is called when it ended. One at a time.
    pub(super) fn begin(&mut self, wake: Option<Wake>, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
        self.start();
        if let Some(thread) = &self.thread {
            // Told by `ended`, as above.
            let _ = thread.work.send((Box::new(work), wake));
        }
    }

    /// How the last one ended, once; `None` while it goes on.
    pub(super) fn ended(&mut self) -> Option<io::Result<()>> {
        match self.thread.as_ref()?.ended.try_recv() {
            Err(TryRecvError::Empty) => None,
            Ok(ended) => Some(ended),
            Err(TryRecvError::Disconnected) => {
                // The next one is tried with another thread.
                self.thread = None;
                Some(Err(io::Error::other("no thread to do it")))
            }
        }
    }
}
