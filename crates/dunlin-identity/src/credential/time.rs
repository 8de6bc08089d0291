//! Points in time, as credentials write them.

use std::fmt;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds since 1970-01-01T00:00:00Z, without leap seconds.
pub type Seconds = i64;

/// The same as an unsigned number, as the engine counts: times before 1970 are long past.
pub fn unsigned(time: Seconds) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

/// An `xsd:dateTimeStamp`: date and time with an offset from UTC (VC Data Model 2.0 §4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DateTime(OffsetDateTime);

impl DateTime {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok().map(Self)
    }

    pub(crate) fn from_seconds(seconds: Seconds) -> Option<Self> {
        OffsetDateTime::from_unix_timestamp(seconds).ok().map(Self)
    }

    /// Without a fraction of a second.
    pub(crate) fn seconds(self) -> Seconds {
        self.0.unix_timestamp()
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.0.date();
        let time = self.0.time();
        let year = date.year();
        let month = u8::from(date.month());
        let day = date.day();
        let (hour, minute, second) = time.as_hms();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}
