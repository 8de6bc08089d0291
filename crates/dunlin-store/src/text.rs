//! Reads text files as editors write them: one reader for lists, keys, documents and checkpoints.

use std::{fmt, io};

use zeroize::Zeroizing;

/// Why a file cannot be read, and what to do, in the same words everywhere. `advice` is for other reasons
/// than a missing file.
pub fn unreadable<'a>(error: &io::Error, advice: &'a str) -> (String, &'a str) {
    match error.kind() {
        io::ErrorKind::NotFound => ("no such file".to_owned(), "check the path"),
        _ => (error.to_string(), advice),
    }
}

/// Why the content of a file is not text in UTF-8; lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotText {
    /// Each character has two bytes.
    Utf16,
    /// This line has a zero byte.
    Zero(usize),
    /// This line is not UTF-8.
    NotUtf8(usize),
}

impl NotText {
    /// Advice to the user, as an imperative clause.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Utf16 => "save it as UTF-8",
            Self::Zero(_) | Self::NotUtf8(_) => "give a text file, saved as UTF-8",
        }
    }
}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf16 => f.write_str("the text is in UTF-16"),
            Self::Zero(line) => write!(f, "line {line} has a zero byte, so it is not text"),
            Self::NotUtf8(line) => write!(f, "line {line} is not UTF-8"),
        }
    }
}

impl std::error::Error for NotText {}

/// The UTF-8 byte order mark, which some editors write (RFC 3629 §6).
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of a file, each with `\n` at its end if the file has a line end there: `\r\n` and `\r` end
/// lines, too. A byte order mark before a line does not count, since `cat` joins files that begin with one.
/// The result is wiped after use, because the lines may have keys.
///
/// # Errors
/// [`NotText::Utf16`] and [`NotText::Zero`].
pub fn plain_lines(file: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotText> {
    // A growing vector would leave copies behind; no line becomes longer.
    let mut lines = Zeroizing::new(Vec::with_capacity(file.len()));
    if is_utf16(file) {
        return Err(NotText::Utf16);
    }
    let mut rest = file;
    let mut number = 1;
    while !rest.is_empty() {
        rest = rest.strip_prefix(MARK).unwrap_or(rest);
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        if line.contains(&0) {
            return Err(NotText::Zero(number));
        }
        lines.extend_from_slice(line);
        rest = match after {
            [b'\r', b'\n', after @ ..] | [_, after @ ..] => {
                lines.push(b'\n');
                number += 1;
                after
            }
            [] => after,
        };
    }
    Ok(lines)
}

/// The text of a file, with the line ends of [`plain_lines`].
///
/// # Errors
/// [`NotText`].
pub fn text(file: &[u8]) -> Result<Zeroizing<String>, NotText> {
    let mut lines = plain_lines(file)?;
    String::from_utf8(std::mem::take(&mut *lines)).map(Zeroizing::new).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let bytes = Zeroizing::new(error.into_bytes());
        NotText::NotUtf8(1 + bytes.iter().take(valid).filter(|byte| **byte == b'\n').count())
    })
}

/// Whether a file is UTF-16: by its byte order mark, or since every other byte of its first characters is
/// zero.
pub fn is_utf16(file: &[u8]) -> bool {
    match file {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [0, a, 0, b, ..] | [a, 0, b, 0, ..] => *a != 0 && *b != 0,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn reads_what_editors_write() {
        for (file, read) in [
            (&b""[..], ""),
            (b"a", "a"),
            (b"a\n", "a\n"),
            (b"a\r\nb\r\n", "a\nb\n"),
            (b"a\rb\r", "a\nb\n"),
            (b"a\n\r\n\rb", "a\n\n\nb"),
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", "a\nb\n"),
            (b"\xef\xbb\xbf", ""),
            (b"\ta \n", "\ta \n"),
            ("ä\r\nö".as_bytes(), "ä\nö"),
        ] {
            assert_eq!(*text(file).unwrap(), read, "{file:?}");
        }
    }

    #[test]
    fn names_what_is_no_text() {
        let utf16 = |mark: &[u8], big| {
            let pair = |c: u16| if big { c.to_be_bytes() } else { c.to_le_bytes() };
            [mark, &"did:key\n".encode_utf16().flat_map(pair).collect::<Vec<_>>()].concat()
        };
        for file in
            [utf16(&[0xff, 0xfe], false), utf16(&[0xfe, 0xff], true), utf16(&[], false), utf16(&[], true)]
        {
            assert_eq!(text(&file), Err(NotText::Utf16), "{file:?}");
        }
        assert_eq!(text(b"a\nb\0\n"), Err(NotText::Zero(2)));
        assert_eq!(text(b"\0\0\0\0"), Err(NotText::Zero(1)));
        assert_eq!(text(b"a\r\nb\n\xff"), Err(NotText::NotUtf8(3)));
        assert_eq!(*plain_lines(b"a\r\n\xff").unwrap(), b"a\n\xff");
    }
}
