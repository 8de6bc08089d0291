//! Log lines that clients cause. A flood of them must not displace other lines, such as those about
//! downgrades.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dunlin::{Instant, Now};

/// How many lines of a kind a listener writes in a [`PERIOD`].
const MAX_LINES: u32 = 50;

/// The time for which lines are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// The time for which a listener writes one line about each limit.
const LIMIT_PERIOD: Duration = Duration::from_secs(60);

/// The lines that listeners have written, by the names of listeners and kinds.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<(String, &'static str), Lines>>);

/// The lines of one kind.
#[derive(Debug)]
struct Lines {
    since: Instant,
    written: u32,
    /// How many lines were left out since the last one was written.
    left_out: u64,
}

/// A line that may be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// How many lines of its kind were left out before it, if any.
    pub left_out: Option<u64>,
}

impl Throttle {
    /// Counts a line of this kind. Returns `None` if it is one too many: fifty in ten seconds are enough.
    pub fn line(&self, listener: &str, kind: &'static str, now: Now) -> Option<Line> {
        self.one_of(listener, kind, now, (MAX_LINES, PERIOD))
    }

    /// Counts a line about a limit of this name, which a client has reached. Returns `None` if the minute has
    /// one.
    pub fn limit(&self, listener: &str, limit: &'static str, now: Now) -> Option<Line> {
        self.one_of(listener, limit, now, (1, LIMIT_PERIOD))
    }

    /// Counts the line of a connection. Anyone can make connections without an identity.
    pub fn connection(&self, listener: &str, has_identity: bool, now: Now) -> Option<Line> {
        if has_identity { Some(Line { left_out: None }) } else { self.line(listener, "anonymous", now) }
    }

    fn one_of(
        &self,
        listener: &str,
        kind: &'static str,
        now: Now,
        (most, period): (u32, Duration),
    ) -> Option<Line> {
        // No code panics halfway through a change under this lock.
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = kinds.entry((listener.to_owned(), kind)).or_insert(Lines {
            since: now.monotonic,
            written: 0,
            left_out: 0,
        });
        if now.monotonic.since(lines.since) >= period {
            (lines.since, lines.written) = (now.monotonic, 0);
        }
        if lines.written == most {
            lines.left_out = lines.left_out.saturating_add(1);
            return None;
        }
        lines.written += 1;
        let left_out = std::mem::take(&mut lines.left_out);
        Some(Line { left_out: (left_out > 0).then_some(left_out) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_lines_out_in_a_flood_and_says_how_many() {
        let throttle = Throttle::default();
        let at = |ms| Now { monotonic: Instant(ms), ..Now::default() };
        let begin = at(0);
        for _ in 0..MAX_LINES {
            assert_eq!(throttle.line("web", "a", begin), Some(Line { left_out: None }));
        }
        assert_eq!(throttle.line("web", "a", begin), None);
        assert_eq!(throttle.line("web", "b", begin), Some(Line { left_out: None }));
        assert_eq!(throttle.line("mqtt", "a", begin), Some(Line { left_out: None }));
        assert_eq!(throttle.limit("web", "connections", begin), Some(Line { left_out: None }));
        assert_eq!(throttle.limit("web", "connections", at(10_000)), None);
        // No limit applies to clients with an identity, which the configuration knows.
        let connected = |has_identity| throttle.connection("web", has_identity, begin).is_some();
        assert_eq!((0..60).filter(|_| connected(false)).count(), MAX_LINES as usize);
        assert!((0..60).all(|_| connected(true)));
        let minute = at(60_000);
        assert_eq!(throttle.limit("web", "connections", minute), Some(Line { left_out: Some(1) }));
        let later = at(10_000);
        assert_eq!(throttle.line("web", "a", at(9_999)), None);
        assert_eq!(throttle.line("web", "a", later), Some(Line { left_out: Some(2) }));
        assert_eq!(throttle.line("web", "a", later), Some(Line { left_out: None }));
    }
}
