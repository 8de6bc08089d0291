//! The log of a registry that cannot write. The log is the process's, so this test has a process of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::time::Duration;

use common::{RegistryDirectory, log};
use dunlin_registry::{Registry, RegistryError, Settings};
use rusqlite::Connection;
use tracing::Level;

#[tokio::test]
async fn a_registry_that_cannot_write_says_why_and_whether_it_goes_on() {
    let errors = log::lines(Level::ERROR);
    // It signs its checkpoint again all the time, without operations.
    let place = RegistryDirectory::new();
    let refresh = Duration::from_millis(1);
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
