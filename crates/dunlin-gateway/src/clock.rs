//! The clocks of the gateway. Only tasks that own a socket, a file or a timer read them, and pass the time on:
//! a decision has it as an argument, so that tests can let years pass (`tools/house-rules` checks that).

use std::time::SystemTime;

pub(crate) use dunlin_tokio::now;

/// The seconds since 1970.
pub(crate) fn now_s() -> u64 {
    now().unix_s()
}

/// The time of certificates.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The time of tokio's timers.
pub(crate) fn timer() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
