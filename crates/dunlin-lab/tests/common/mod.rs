//! Shared by the tests of the lab.

#![allow(dead_code, reason = "each test binary has this module and uses its own part of it")]

use std::time::{Duration, Instant};

use dunlin_lab::Error;
use dunlin_tests::place::has_root;

/// A limit that no step of a test reaches unless it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the made value. If this user lacks the privileges, there is none, and the test fails or ends early.
pub(crate) fn privileged<T>(made: Result<T, Error>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.why().contains("needs root") && !has_root() => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until `happened` returns a value.
#[track_caller]
pub(crate) fn until<T>(mut happened: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(it) = happened() {
            return it;
        }
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::yield_now();
    }
}
