//! What the log says of a registry that cannot write. The log is the process's, so this test has one of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use common::Place;
use dunlin_registry::{Registry, RegistryError, Settings};
use rusqlite::Connection;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

/// Passes the errors in the log on.
struct Errors(Mutex<Sender<String>>);

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        // The test may have ended.
        let _ = self.0.lock().unwrap().send(line.0);
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

#[tokio::test]
async fn a_registry_that_cannot_write_says_why_and_whether_it_goes_on() {
    let (sender, errors) = channel();
    tracing::subscriber::set_global_default(Errors(Mutex::new(sender))).unwrap();
    // It signs its checkpoint again all the time, without operations.
    let (place, refresh) = (Place::new(), Duration::from_millis(1));
    let registry =
        Registry::open(&place.path("registry"), &Settings { refresh, ..place.settings() }).unwrap();
    let database = Connection::open(place.path("registry")).unwrap();
    let fail =
        "CREATE TRIGGER fail BEFORE UPDATE ON setting BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    database.execute_batch(fail).unwrap();
    let line = errors.recv().unwrap();
    assert!(line.contains("could not sign a checkpoint") && line.contains("the disk is full"), "{line}");
    database.execute_batch("DROP TRIGGER fail").unwrap();
    assert!(registry.submit(place.holder(1).next()).is_ok());

    database.execute_batch("UPDATE setting SET value = '' WHERE name = 'checkpoint'").unwrap();
    registry.writer_ended().await;
    assert!(errors.try_iter().last().unwrap().contains("no longer writes"));
    assert_eq!(registry.submit(place.holder(2).next()), Err(RegistryError::Closed));
}
