//! The time of the gateway's tables and policies.

use dunlin_tokio::now;

/// The seconds since 1970.
pub(crate) fn now_s() -> u64 {
    now().unix_ms / 1000
}
