//! Times in certificates: whole seconds of UTC, years 1970 to 9999.

use std::time::{Duration, SystemTime};

use der::DateTime;
use x509_cert::time::Time;

use crate::Error;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How far a validity that begins "now" is backdated, so that peers with slow clocks accept it.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// The validity of a certificate, including its first and its last moment (RFC 5280 §4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Validity {
    /// From `not_before` until `not_after`. Encoding drops fractions of a second.
    ///
    /// # Errors
    /// [`Error::EmptyValidity`]; [`Error::BadTime`] outside the years 1970 to 9999.
    pub fn new(not_before: SystemTime, not_after: SystemTime) -> Result<Self, Error> {
        if not_after < not_before {
            return Err(Error::EmptyValidity);
        }
        date_time(not_before)?;
        date_time(not_after)?;
        Ok(Self { not_before, not_after })
    }

    /// `days` days, beginning at `not_before`.
    ///
    /// # Errors
    /// [`Error::TooManyDays`] if it ends after the year 9999; [`Error::BadTime`] if it begins before 1970.
    pub fn days_from(not_before: SystemTime, days: u32) -> Result<Self, Error> {
        date_time(not_before)?;
        let not_after = not_before.checked_add(DAY * days).filter(|end| date_time(*end).is_ok());
        Self::new(not_before, not_after.ok_or(Error::TooManyDays(days))?)
    }

    /// `days` days, beginning at [`Validity::now`].
    ///
    /// # Errors
    /// [`Error::TooManyDays`] if it ends after the year 9999.
    pub fn from_now_days(days: u32) -> Result<Self, Error> {
        Self::days_from(Self::now(), days)
    }

    /// The beginning of a validity that starts "now": an hour ago by the system's clock, so that peers with
    /// slow clocks accept it.
    pub fn now() -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(BACKDATE).unwrap_or(now)
    }

    /// Moves the end to `limit` if it is later than that. It never ends before it begins.
    #[must_use]
    pub fn ending_by(self, limit: SystemTime) -> Self {
        let not_after = self.not_after.min(limit.max(self.not_before));
        Self { not_after, ..self }
    }

    /// The first moment.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// The last moment.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    pub(crate) fn encoded(&self) -> Result<x509_cert::time::Validity, Error> {
        Ok(x509_cert::time::Validity::new(encoded(self.not_before)?, encoded(self.not_after)?))
    }
}

/// The ASN.1 time of certificates and CRLs (RFC 5280 §4.1.2.5, §5.1.2.4).
pub(crate) fn encoded(time: SystemTime) -> Result<Time, Error> {
    date_time(time).map(Time::from)
}

fn date_time(time: SystemTime) -> Result<DateTime, Error> {
    DateTime::from_system_time(time).map_err(|_| Error::BadTime("outside the years 1970 to 9999".into()))
}

/// Reads `YYYY-MM-DD` (midnight) or `YYYY-MM-DDThh:mm:ssZ`.
///
/// # Errors
/// [`Error::BadTime`].
pub fn parse_time(text: &str) -> Result<SystemTime, Error> {
    let full = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let time: DateTime = full.parse().map_err(|_| Error::BadTime(text.to_owned()))?;
    Ok(time.to_system_time())
}

/// Writes a time as `YYYY-MM-DDThh:mm:ssZ`.
pub fn format_time(time: SystemTime) -> String {
    DateTime::from_system_time(time).map_or_else(|_| "out of range".to_owned(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_times_and_rejects_malformed_ones() {
        for (text, written) in [
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("2049-12-31T23:59:59Z", "2049-12-31T23:59:59Z"),
            ("9999-12-31", "9999-12-31T00:00:00Z"),
        ] {
            assert_eq!(format_time(parse_time(text).unwrap()), written);
        }
        for text in ["", "2026", "2026-13-01", "2026-02-30", "1969-12-31", "2026-03-01T10:00", "10000-01-01"]
        {
            assert_eq!(parse_time(text), Err(Error::BadTime(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn rejects_a_validity_that_ends_before_it_begins_or_after_9999() {
        let first = parse_time("2026-01-01").unwrap();
        let second = parse_time("2026-01-02").unwrap();
        assert_eq!(Validity::new(second, first), Err(Error::EmptyValidity));
        assert_eq!(Validity::days_from(first, 1), Validity::new(first, second));
        let limited = Validity::days_from(first, 10).unwrap().ending_by(second);
        assert_eq!(limited, Validity::new(first, second).unwrap());
        assert!(Validity::days_from(second, 1).unwrap().ending_by(first).not_after() >= second);
        assert_eq!(Validity::days_from(first, u32::MAX), Err(Error::TooManyDays(u32::MAX)));
    }
}
