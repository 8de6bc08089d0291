//! A server's log: events of connections, as text or as JSON.

use std::io::{self, Write};
use std::time::SystemTime;

use clap::ValueEnum;
use dunlin_command::error::printable;
use dunlin_command::events::Event;
use dunlin_command::log::{Lines, missing, time_stamp};
use serde::Serialize;

/// The importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The server cannot work.
    Error,
    /// A connection failed, or files are unusable.
    Warn,
    /// A connection begins or ends, or files are read again.
    Info,
    /// A connection is accepted, or a handshake message passes.
    Debug,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The log of a server.
pub(crate) struct Log {
    json: bool,
    level: Level,
    lines: Lines,
}

impl Log {
    /// Writes lines of at least the importance `level` to `to`, as text or as JSON.
    pub(crate) fn new(to: impl Write + Send + 'static, json: bool, level: Level) -> io::Result<Self> {
        let lost = move |lines| {
            if json { stamped(Level::Warn, &Event::Lost { lines }) } else { missing(lines) }
        };
        Ok(Self { json, level, lines: Lines::new(to, lost)? })
    }

    /// Returns whether lines of this level are written.
    pub(crate) fn wants(&self, level: Level) -> bool {
        level <= self.level
    }

    /// Returns a line with its time and level: `text`, or `event` as JSON.
    pub(crate) fn render(
        &self,
        level: Level,
        text: impl FnOnce() -> String,
        event: impl FnOnce() -> Event,
    ) -> String {
        if self.json {
            stamped(level, &event())
        } else {
            format!("{} {} {}", time_stamp(SystemTime::now()), level.name(), printable(&text()))
        }
    }

    /// Writes a line if its level is wanted.
    pub(crate) fn say(&self, level: Level, text: impl FnOnce() -> String, event: impl FnOnce() -> Event) {
        if self.wants(level) {
            // A log that is not read loses lines, and says so.
            let _ = (&self.lines).write_all((self.render(level, text, event) + "\n").as_bytes());
        }
    }

    /// Ends the log ([`Lines::end`]).
    pub(crate) fn end(&self) {
        self.lines.end();
    }
}

/// Returns `event` as JSON with its time and level.
fn stamped(level: Level, event: &Event) -> String {
    #[derive(Serialize)]
    struct Stamped<'a> {
        time: String,
        level: Level,
        #[serde(flatten)]
        event: &'a Event,
    }
    let stamped = Stamped { time: time_stamp(SystemTime::now()), level, event };
    // See `Event::line`.
    serde_json::to_string(&stamped).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_includes_more_important_lines() {
        let log = Log::new(io::sink(), false, Level::Warn).unwrap();
        assert!(log.wants(Level::Error) && log.wants(Level::Warn) && !log.wants(Level::Info));
        let line = log.render(Level::Warn, || "a\nb".into(), || Event::Lost { lines: 0 });
        assert!(line.ends_with("Z warn a\\nb"), "{line}");
    }
}
