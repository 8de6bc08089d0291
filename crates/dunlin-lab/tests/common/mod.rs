//! What the tests of the lab share.

#![allow(dead_code, reason = "each test binary has this module and uses its own part of it")]

use std::time::{Duration, Instant};

use dunlin_lab::Error;

/// How long something may take that takes no time, before the test says that it does not happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What was made, or none, with the reason in the output, where this user may not make it. Root may: CI tests all of it.
pub(crate) fn privileged<T>(made: Result<T, Error>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.why().contains("needs root") && !nix::unistd::geteuid().is_root() => {
            eprintln!("not tested here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until `happened` gives something.
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
