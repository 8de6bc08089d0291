//! Converts between times in text (RFC 3339) and seconds since 1970.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Reads `2027-01-31T12:00:00Z`, with any offset, or `2027-01-31`, which is midnight UTC.
pub fn parse_time(text: &str) -> Option<u64> {
    let full = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let time = OffsetDateTime::parse(&full, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

/// Writes a time as `2027-01-31T12:00:00Z`; `None` after the year 9999.
pub fn format_time(unix_s: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(unix_s).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_times_and_rejects_malformed_ones() {
        for (text, written) in [
            ("2027-01-31", "2027-01-31T00:00:00Z"),
            ("2027-01-31T12:00:00+01:00", "2027-01-31T11:00:00Z"),
            ("2027-01-31T12:00:00.75Z", "2027-01-31T12:00:00Z"),
        ] {
            assert_eq!(format_time(parse_time(text).unwrap()).unwrap(), written);
        }
        for text in ["", "2027", "2027-02-30", "1969-12-31", "2027-01-31T12:00:00", "12:00:00Z", "tomorrow"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(format_time(u64::MAX), None);
    }
}
