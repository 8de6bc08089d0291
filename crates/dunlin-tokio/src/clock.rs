//! The current time in the engine's form.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dunlin::Now;

/// The current time by the system's clocks. All connections of a process count from the same origin, so that
/// they agree on the age of entries in stores.
pub fn now() -> Now {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    let monotonic = BEGINNING.elapsed().as_millis();
    // A clock before 1970 reads as zero, at which no certificate is valid.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let milliseconds = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    Now { monotonic: dunlin::Instant(milliseconds(monotonic)), unix_ms: milliseconds(unix) }
}
