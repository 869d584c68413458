//! Waiting until a volume's back end has what its write-back log has, and showing how far it is.
//!
//! The server is asked for its status, ten times a second: waiting needs no state there, and may be given up at any time.

use crate::admin_client::{AdminClient, AskError};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use forebay_admin::{Status, WriteLog};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a log is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// A back end that takes nothing for so long is not waited for.
const STANDS_STILL: Duration = Duration::from_secs(60);

/// Waits until the back end has what the volume's log has now.
pub(super) fn follow(client: &AdminClient, volume: &str) -> Result<(), AskError> {
    let Some(now) = log_of(client, volume)? else { return Ok(()) };
    let (target, progress) = (now.appended_record, Progress::new(volume, &now));
    let mut moved = (now.followed_record, now.run_bytes);
    let mut moved_at = Instant::now();
    loop {
        let Some(log) = log_of(client, volume)? else { return Ok(()) };
        if log.followed_record >= target {
            progress.end();
            return Ok(());
        }
        progress.at(&log);
        if (log.followed_record, log.run_bytes) != moved {
            moved = (log.followed_record, log.run_bytes);
            moved_at = Instant::now();
        }
        if moved_at.elapsed() > STANDS_STILL {
            progress.end();
            let message = format!(
                "volume \"{volume}\": its back end took nothing for {} s, and lacks {}; look at the log, and at the back end",
                STANDS_STILL.as_secs(),
                size_rounded(log.dirty_bytes)
            );
            return Err(AskError { message, exit: Exit::Temporary });
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}

fn log_of(client: &AdminClient, volume: &str) -> Result<Option<WriteLog>, AskError> {
    let status = client.get::<Status>("/api/v1/status")?;
    Ok(status.volumes.into_iter().find(|it| it.name == volume).and_then(|it| it.log))
}

/// How far the back end is, on a terminal.
struct Progress<'a> {
    volume: &'a str,
    is_shown: bool,
    begin: Instant,
    run_bytes_begin: u64,
}

impl<'a> Progress<'a> {
    fn new(volume: &'a str, log: &WriteLog) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        Self { volume, is_shown, begin: Instant::now(), run_bytes_begin: log.run_bytes }
    }

    fn at(&self, log: &WriteLog) {
        if !self.is_shown {
            return;
        }
        let rate = log.run_bytes.saturating_sub(self.run_bytes_begin) as f64 / self.begin.elapsed().as_secs_f64();
        let left = if rate >= 1.0 { format!(", about {:.0} s", log.dirty_bytes as f64 / rate) } else { String::new() };
        let (dirty, rate) = (size_rounded(log.dirty_bytes), size_rounded(rate as u64));
        let _ = write!(std::io::stderr(), "\r\x1b[K{}: {dirty} to write back, {rate}/s{left}", self.volume);
    }

    fn end(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
