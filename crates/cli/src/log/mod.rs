//! Logging: text or JSON lines on standard error, bounded.
//!
//! What is logged carries its request's id as the field `request` where there is one. A message that repeats (a dead
//! back end has many requests to fail) is cut to so many lines a period for each place in the code; the count of those
//! left out is told when the place next speaks.

mod limit;

use crate::config::LogSettings;
use limit::{Limiter, Verdict};
use std::io::{IsTerminal, Write};
use std::time::Instant;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry};

/// Starts logging for the whole process.
///
/// # Errors
/// When it was started before.
pub fn start(settings: &LogSettings) -> Result<(), TryInitError> {
    let ansi = std::io::stderr().is_terminal();
    Registry::default().with(lines(settings, ansi, std::io::stderr)).try_init()
}

/// The layer that writes lines to `writer`.
fn lines<W>(settings: &LogSettings, ansi: bool, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
{
    let level = settings.level.parse().unwrap_or(Level::INFO);
    let (begin, limiter) = (Instant::now(), Limiter::default());
    let bounded = Bounded { level, json: settings.json, begin, limiter, writer: writer.clone() };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match settings.json {
        true => lines.json().flatten_event(true).with_filter(bounded).boxed(),
        false => lines.with_ansi(ansi).with_filter(bounded).boxed(),
    }
}

struct Bounded<W> {
    level: Level,
    json: bool,
    begin: Instant,
    limiter: Limiter,
    writer: W,
}

impl<S, W: for<'w> MakeWriter<'w>> Filter<S> for Bounded<W> {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *metadata.level() <= self.level
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let now_ns = self.begin.elapsed().as_nanos() as u64;
        let lines_max = if *metadata.level() <= Level::INFO { limit::LINES_MAX } else { limit::DEBUG_LINES_MAX };
        match self.limiter.judge(metadata.callsite(), lines_max, now_ns) {
            Verdict::Pass => true,
            Verdict::PassAfter { left_out } => {
                self.tell(metadata, left_out);
                true
            }
            Verdict::LeaveOut => false,
        }
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }
}

impl<W: for<'w> MakeWriter<'w>> Bounded<W> {
    /// Says how many lines were left out. Written past the layer: an event cannot be logged from within one.
    fn tell(&self, metadata: &Metadata<'_>, left_out: u64) {
        let mut time = String::new();
        // A clock that cannot be shown is no reason to lose the line.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let (level, target) = (metadata.level(), metadata.target());
        let line = metadata.line().unwrap_or(0);
        let message = format!("{left_out} more lines like the next were left out");
        let text = if self.json {
            let fields = serde_json::json!({
                "timestamp": time, "level": level.as_str(), "message": message, "target": target, "line": line,
            });
            format!("{fields}\n")
        } else {
            format!("{time} {level:>5} {target}: {message} line={line}\n")
        };
        let _ = self.writer.make_writer().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What is logged when `log` runs.
    fn logged(json: bool, log: impl FnOnce()) -> Vec<String> {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let settings = LogSettings { level: "info", json };
        let writer = Arc::clone(&buffer);
        let subscriber = Registry::default().with(lines(&settings, false, move || Shared(Arc::clone(&writer))));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = buffer.lock().expect("unpoisoned").clone();
        String::from_utf8(bytes).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("unpoisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_that_repeats_is_cut_and_others_are_not() {
        let lines = logged(false, || {
            for request in 0..1000 {
                tracing::warn!(request, "the back end does not answer");
            }
            tracing::debug!("below the level");
            tracing::info!("another");
        });
        assert_eq!(lines.len() as u64, limit::LINES_MAX + 1);
        assert!(
            lines[0].contains(" WARN ") && lines[0].ends_with("the back end does not answer request=0"),
            "{}",
            lines[0]
        );
        assert!(lines[20].ends_with("another"), "{}", lines[20]);
    }

    #[test]
    fn json_lines_have_their_fields_at_the_top() {
        let lines = logged(true, || tracing::error!(request = 7, volume = "vm1", "lost"));
        let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        let field = |name: &str| line[name].clone();
        assert_eq!(
            (field("level"), field("message"), field("request"), field("volume")),
            ("ERROR".into(), "lost".into(), 7.into(), "vm1".into())
        );
    }
}
