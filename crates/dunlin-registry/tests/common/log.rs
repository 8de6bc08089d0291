//! The lines of the log. The log is the process's, so a test that reads it has a process of its own.

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

/// Passes the lines of a level in the log on, and worse ones.
struct Lines(Level, Mutex<Sender<String>>);

/// The lines of a level, and worse ones, from now on.
pub(crate) fn lines(level: Level) -> Receiver<String> {
    let (sender, lines) = channel();
    tracing::subscriber::set_global_default(Lines(level, Mutex::new(sender))).unwrap();
    lines
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        // The test may have ended.
        let _ = self.1.lock().unwrap().send(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}: {value:?}; ").unwrap();
    }
}
