//! A reader for the parts of DER that webpki checks but does not expose.

use alloc::vec::Vec;

/// An ASN.1 UTCTime or GeneralizedTime in seconds since 1970.
pub(super) fn seconds(tag: u8, time: &[u8]) -> Option<u64> {
    let number = |at: usize, len: usize| {
        time.get(at..at + len)?.iter().try_fold(0u64, |n, b| Some(n * 10 + u64::from(b.checked_sub(b'0')?)))
    };
    // UTCTime has two digits for years from 1950 to 2049; GeneralizedTime has four.
    let (year, at) = match tag {
        0x17 => (number(0, 2).map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, 2),
        0x18 => (number(0, 4)?, 4),
        _ => return None,
    };
    let month = number(at, 2)?;
    let day = number(at + 2, 2)?;
    let hour = number(at + 4, 2)?;
    let minute = number(at + 6, 2)?;
    let second = number(at + 8, 2)?;
    // Counts days in the Gregorian calendar with years that begin in March, so that a leap day is the last
    // day.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// The first element of a DER encoding: its tag, its content, and the bytes after it.
pub(super) fn tlv(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let be = |len: &[u8; 4]| usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
    let (len, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => rest.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?,
        // CRLs may be long.
        0x83 => rest.split_first_chunk().map(|([a, b, c], rest)| (be(&[0, *a, *b, *c]), rest))?,
        0x84 => rest.split_first_chunk().map(|(len, rest)| (be(len), rest))?,
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((*tag, content, rest))
}

/// Wraps `content` in a DER SEQUENCE, because webpki stores names without their header.
pub(super) fn sequence(content: &[u8]) -> Vec<u8> {
    let mut out = alloc::vec![0x30];
    let len = content.len().to_be_bytes();
    match content.len() {
        0..=0x7f => out.push(content.len() as u8),
        _ => {
            let digits: Vec<u8> = len.iter().copied().skip_while(|b| *b == 0).collect();
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(&digits);
        }
    }
    out.extend_from_slice(content);
    out
}
