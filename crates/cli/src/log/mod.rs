//! Logging: text or JSON lines on standard error, bounded.
//!
//! What is logged carries its request's id as the field `request` where there is one. A message that repeats (a dead
//! back end has many requests to fail) is cut to so many lines a period for each place in the code; the count of those
//! left out is told when the place next speaks.

mod limit;

use crate::config::LogSettings;
use limit::{Limiter, Verdict};
use std::io::Write;
use std::time::Instant;
use tracing::{Event, Level, Metadata};
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
    let level = settings.level.parse().unwrap_or(Level::INFO);
    let bounded = Bounded { level, json: settings.json, begin: Instant::now(), limiter: Limiter::default() };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = if settings.json {
        lines.json().flatten_event(true).with_filter(bounded).boxed()
    } else {
        use std::io::IsTerminal;
        lines.with_ansi(std::io::stderr().is_terminal()).with_filter(bounded).boxed()
    };
    Registry::default().with(lines).try_init()
}

struct Bounded {
    level: Level,
    json: bool,
    begin: Instant,
    limiter: Limiter,
}

impl<S> Filter<S> for Bounded {
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

impl Bounded {
    /// Says how many lines were left out. Written straight to standard error: an event cannot be logged from within one.
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
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
