//! The time as the engine wants it.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dunlin::Now;

/// The present time, by the system's clocks. All parts of one process count from the same beginning, so that what
/// one connection leaves in a store has its age for the next.
pub fn now() -> Now {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    let monotonic = BEGINNING.elapsed().as_millis();
    // Before 1970 nothing is valid: zero says so.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let milliseconds = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    Now { monotonic: dunlin::Instant(milliseconds(monotonic)), unix_ms: milliseconds(unix) }
}
