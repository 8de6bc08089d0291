//! A server's log. A thread of its own writes it, so that a slow reader holds no connection up.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use clap::ValueEnum;
use dunlin_pki::format_time;
use serde::Serialize;

use crate::error::printable;
use crate::stop::STOP_PATIENCE;
use crate::tls::events::Event;

/// Lines that may wait. Those of a burst of connections find room, and a reader that has stopped costs little memory.
const MAX_WAITING: usize = 4096;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The server cannot do its work.
    Error,
    /// A connection failed, or files cannot be used.
    Warn,
    /// Connections begin and end, files are read again.
    Info,
    /// Every connection that is accepted, and every handshake message.
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

/// Where a server says what happens.
pub(crate) struct Log {
    json: bool,
    level: Level,
    lines: Mutex<Option<SyncSender<String>>>,
    /// Lines for which there was no room.
    lost: Arc<AtomicU64>,
    /// Ends when everything is written.
    written: Mutex<Receiver<()>>,
}

impl Log {
    /// Writes to `to` what is at least as important as `level`, as text or as JSON.
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

    /// Whether lines of this level are written.
    pub(crate) fn wants(&self, level: Level) -> bool {
        level <= self.level
    }

    /// A line with its time and level: `text`, or `event` as JSON.
    pub(crate) fn render(
        &self,
        level: Level,
        text: impl FnOnce() -> String,
        event: impl FnOnce() -> Event,
    ) -> String {
        match self.json {
            true => stamped(level, &event()),
            false => format!("{} {} {}", time_stamp(SystemTime::now()), level.name(), printable(&text())),
        }
    }

    /// Says a line, if its level is wanted.
    pub(crate) fn say(&self, level: Level, text: impl FnOnce() -> String, event: impl FnOnce() -> Event) {
        if self.wants(level) {
            self.line(self.render(level, text, event));
        }
    }

    /// Says a line, if there is room for it. Connections go on when nobody reads it.
    fn line(&self, line: String) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = &*lines
            && let Err(TrySendError::Full(_)) = lines.try_send(line)
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends it, and waits until everything is written, but not for a reader that does not read.
    pub(crate) fn end(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        // It gives nothing, and ends with the thread.
        let _ = self.written.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(STOP_PATIENCE);
    }
}

/// `time` in UTC to the millisecond (RFC 3339 §5.6).
fn time_stamp(time: SystemTime) -> String {
    let whole = format_time(time);
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{ms:03}Z", whole.trim_end_matches('Z'))
}

/// `event` as JSON with its time and level.
fn stamped(level: Level, event: &Event) -> String {
    #[derive(Serialize)]
    struct Stamped<'a> {
        time: String,
        level: Level,
        #[serde(flatten)]
        event: &'a Event,
    }
    let stamped = Stamped { time: time_stamp(SystemTime::now()), level, event };
    // As in `Event::line`.
    serde_json::to_string(&stamped).unwrap_or_default()
}

/// Writes lines until there will be no more. What cannot be written is nobody's loss: nobody reads it.
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
        // They were to stand behind those that waited, of which this was the last, or one of them.
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

    /// Takes a line when it is told to.
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
    fn a_level_wants_what_is_more_important() {
        let log = Log::new(io::sink(), false, Level::Warn).unwrap();
        assert!(log.wants(Level::Error) && log.wants(Level::Warn) && !log.wants(Level::Info));
        let line = log.render(Level::Warn, || "a\nb".into(), || Event::Lost { lines: 0 });
        assert!(line.ends_with("Z warn a\\nb"), "{line}");
    }

    #[test]
    fn lines_that_nobody_reads_are_counted() {
        let (turn, turns) = channel();
        let (written, text) = channel();
        let log = Log::new(Slow { turns, written }, false, Level::Info).unwrap();
        let lines = 2 * MAX_WAITING as u64;
        (0..lines).for_each(|n| log.line(n.to_string()));
        // It waits for nobody: all of it is said before the first line is read.
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
