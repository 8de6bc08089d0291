//! The log of a program that serves. A thread writes it, so that a reader that does not keep up loses lines, but
//! delays no connection.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use dunlin_pki::format_time;

use crate::stop::STOP_PATIENCE;

/// The maximum number of waiting lines: enough for a burst of connections, and little memory if the reader
/// stops.
const MAX_WAITING: usize = 4096;

/// The lines of a log. Each write to it is a line.
pub struct Lines {
    waiting: Mutex<Option<SyncSender<Vec<u8>>>>,
    /// The number of lines that found no room.
    lost: Arc<AtomicU64>,
    /// Closes when everything is written.
    written: Mutex<Receiver<()>>,
}

impl Lines {
    /// Writes lines to `to`. `missing` is the line that tells how many were lost.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(
        to: impl Write + Send + 'static,
        missing: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (ended, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let of_thread = lost.clone();
        thread::Builder::new().name("log".into()).spawn(move || {
            write(to, &waiting, || match of_thread.swap(0, Ordering::Relaxed) {
                0 => None,
                lost => Some(missing(lost) + "\n"),
            });
            drop(ended);
        })?;
        Ok(Self { waiting: Mutex::new(Some(lines)), lost, written: Mutex::new(written) })
    }

    /// Ends the log, and waits until everything is written, but only briefly for a blocked reader.
    pub fn end(&self) {
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The channel carries nothing, and closes with the thread.
        let _ = self.written.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(STOP_PATIENCE);
    }
}

/// Queues a line if there is room. The program continues even if the log is not read.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = &*waiting
            && let Err(TrySendError::Full(_)) = waiting.try_send(line.to_vec())
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines until the channel closes. Write errors are ignored, because the reader is gone.
fn write(mut to: impl Write, lines: &Receiver<Vec<u8>>, missing: impl Fn() -> Option<String>) {
    let mut tell = |line: &[u8]| drop(to.write_all(line).and_then(|()| to.flush()));
    for line in lines {
        tell(&line);
        // The lost lines come after the lines that waited, such as this one.
        missing().iter().for_each(|missing| tell(missing.as_bytes()));
    }
    missing().iter().for_each(|missing| tell(missing.as_bytes()));
}

/// The line for people that tells how many lines were lost.
pub fn missing(lost: u64) -> String {
    format!("dunlin: warning: {lost} lines of this log are lost: they were not read in time")
}

/// Formats `time` in UTC to the millisecond (RFC 3339 §5.6).
pub fn time_stamp(time: SystemTime) -> String {
    let whole = format_time(time);
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{ms:03}Z", whole.trim_end_matches('Z'))
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
    fn counts_lost_lines() {
        let (turn, turns) = channel();
        let (written, text) = channel();
        let log = Lines::new(Slow { turns, written }, missing).unwrap();
        let lines = 2 * MAX_WAITING as u64;
        (0..lines).for_each(|n| (&log).write_all(format!("{n}\n").as_bytes()).unwrap());
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
