//! Time as a value: the engine has no clock.

use core::ops::Add;
use core::time::Duration;

/// A moment on the caller's monotonic clock, in milliseconds since a start that the caller chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to `self`; zero if `earlier` is after `self`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The caller's clocks. Timers use the monotonic clock; certificates and tickets use the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock, in milliseconds since 1970-01-01T00:00:00Z.
    pub unix_ms: u64,
}

impl Now {
    /// Sets both clocks from one, for virtual time and for machines that have only a wall clock.
    pub const fn from_unix_ms(ms: u64) -> Self {
        Self { monotonic: Instant(ms), unix_ms: ms }
    }

    /// The wall clock in seconds since 1970.
    pub const fn unix_s(self) -> u64 {
        self.unix_ms / 1000
    }

    /// The wall clock in the type that path validation needs.
    pub(crate) const fn unix(self) -> pki_types::UnixTime {
        pki_types::UnixTime::since_unix_epoch(Duration::from_millis(self.unix_ms))
    }
}
