//! A server's log. A separate thread writes it, so that a slow reader delays no connection.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use clap::ValueEnum;
use dunlin_command::error::printable;
use dunlin_command::events::Event;
use dunlin_command::stop::STOP_PATIENCE;
use dunlin_pki::format_time;
use serde::Serialize;

/// The maximum number of waiting lines: enough for a burst of connections, and little memory if the reader
/// stops.
const MAX_WAITING: usize = 4096;

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
    lines: Mutex<Option<SyncSender<String>>>,
    /// The number of lines that found no room.
    lost: Arc<AtomicU64>,
    /// Closes when everything is written.
    written: Mutex<Receiver<()>>,
}

impl Log {
    /// Writes lines of at least the importance `level` to `to`, as text or as JSON.
    pub(crate) fn new(to: impl Write + Send + 'static, json: bool, level: Level) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (ended, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let of_thread = lost.clone();
        thread::Builder::new().name("log".into()).spawn(move || {
            write(to, json, &waiting, &of_thread);
            drop(ended);
        })?;
        Ok(Self { json, level, lines: Mutex::new(Some(lines)), lost, written: Mutex::new(written) })
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
            self.line(self.render(level, text, event));
        }
    }

    /// Queues a line if there is room. Connections continue even if the log is not read.
    fn line(&self, line: String) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = &*lines
            && let Err(TrySendError::Full(_)) = lines.try_send(line)
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the log, and waits until everything is written, but only briefly for a blocked reader.
    pub(crate) fn end(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The channel carries nothing, and closes with the thread.
        let _ = self.written.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(STOP_PATIENCE);
    }
}

/// Formats `time` in UTC to the millisecond (RFC 3339 §5.6).
fn time_stamp(time: SystemTime) -> String {
    let whole = format_time(time);
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{ms:03}Z", whole.trim_end_matches('Z'))
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

/// Writes lines until the channel closes. Write errors are ignored, because the reader is gone.
fn write(mut to: impl Write, json: bool, lines: &Receiver<String>, lost: &AtomicU64) {
    let mut tell = |line: &str| drop(writeln!(to, "{line}").and_then(|()| to.flush()));
    let missing = || match (lost.swap(0, Ordering::Relaxed), json) {
        (0, _) => None,
        (n, true) => Some(stamped(Level::Warn, &Event::Lost { lines: n })),
        (n, false) => {
            Some(format!("dunlin: warning: {n} lines of this log are lost: they were not read in time"))
        }
    };
    for line in lines {
        tell(&line);
        // The lost lines come after the lines that waited, such as this one.
        if let Some(missing) = missing() {
            tell(&missing);
        }
    }
    if let Some(missing) = missing() {
        tell(&missing);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    /// A writer that writes a line when the test allows it.
    struct Slow {
        turns: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.turns.recv();
            let _ = self.written.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn time_stamps_have_milliseconds() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_772_323_200_007);
        assert_eq!(time_stamp(time), "2026-03-01T00:00:00.007Z");
    }

    #[test]
    fn level_includes_more_important_lines() {
        let log = Log::new(io::sink(), false, Level::Warn).unwrap();
        assert!(log.wants(Level::Error) && log.wants(Level::Warn) && !log.wants(Level::Info));
        let line = log.render(Level::Warn, || "a\nb".into(), || Event::Lost { lines: 0 });
        assert!(line.ends_with("Z warn a\\nb"), "{line}");
    }

    #[test]
    fn counts_lost_lines() {
        let (turn, turns) = channel();
        let (written, text) = channel();
        let log = Log::new(Slow { turns, written }, false, Level::Info).unwrap();
        let lines = 2 * MAX_WAITING as u64;
        (0..lines).for_each(|n| log.line(n.to_string()));
        // Logging does not block: all lines are queued before the first is written.
        assert!(text.try_recv().is_err());
        drop(turn);
        log.end();
        let text: String = text.try_iter().collect();
        let kept = text.lines().filter(|line| line.parse::<u64>().is_ok()).count() as u64;
        let lost: u64 = text
            .lines()
            .filter_map(|line| line.strip_prefix("dunlin: warning: ")?.split_once(' ')?.0.parse::<u64>().ok())
            .sum();
        assert!(kept >= MAX_WAITING as u64 && lost > 0, "{kept} {lost}");
        assert_eq!(kept + lost, lines);
    }
}
