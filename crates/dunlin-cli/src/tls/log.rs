//! Lines about connections, written by a thread of their own: whoever reads them slowly holds no connection up.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::stop::STOP_PATIENCE;
use crate::tls::events::Event;

/// Lines that may wait. Those of a burst of connections find room, and a reader that has stopped costs little memory.
const MAX_WAITING: usize = 4096;

/// Where a server says what happens.
pub(crate) struct Log {
    lines: Mutex<Option<SyncSender<String>>>,
    /// Lines for which there was no room.
    lost: Arc<AtomicU64>,
    /// Ends when everything is written.
    written: Mutex<Receiver<()>>,
}

impl Log {
    /// Writes to `to`; with `json`, also what it says of itself.
    pub(crate) fn new(to: impl Write + Send + 'static, json: bool) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (ended, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let of_thread = lost.clone();
        thread::Builder::new().name("log".into()).spawn(move || {
            write(to, json, &waiting, &of_thread);
            drop(ended);
        })?;
        Ok(Self { lines: Mutex::new(Some(lines)), lost, written: Mutex::new(written) })
    }

    /// Says a line, if there is room for it. Connections go on when nobody reads it.
    pub(crate) fn line(&self, line: String) {
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

/// Writes lines until there will be no more. What cannot be written is nobody's loss: nobody reads it.
fn write(mut to: impl Write, json: bool, lines: &Receiver<String>, lost: &AtomicU64) {
    let mut tell = |line: &str| drop(writeln!(to, "{line}").and_then(|()| to.flush()));
    let missing = || match (lost.swap(0, Ordering::Relaxed), json) {
        (0, _) => None,
        (n, true) => Some(Event::Lost { lines: n }.line()),
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
    fn lines_that_nobody_reads_are_counted() {
        let (turn, turns) = channel();
        let (written, text) = channel();
        let log = Log::new(Slow { turns, written }, false).unwrap();
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
