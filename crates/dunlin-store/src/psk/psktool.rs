//! Key files in the format of GnuTLS's psktool: a line `identity:key` for each key, the key in hexadecimal.
//! An identity with a colon or unprintable bytes is written in hexadecimal after a `#`.

use std::collections::HashMap;

use dunlin::crypto::HashAlgorithm;
use zeroize::Zeroizing;

use super::{Identity, MIN_KEY_LEN, PskError, PskFault, PskRecord, PskRecords, PskSet, ShortKeys};

/// Reads a whole file. Empty lines are skipped.
///
/// # Errors
/// The first fault, and its line.
pub fn parse(file: &[u8], short: ShortKeys) -> Result<PskSet, PskError> {
    let mut set = PskSet::default();
    let mut seen = HashMap::new();
    for (line, number) in file.split(|byte| *byte == b'\n').zip(1..) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            continue;
        }
        let bad = |fault| PskError { line: Some(number), fault };
        let record = parse_line(line, short).map_err(bad)?;
        if let Some(first) = seen.insert(record.identity.clone(), number) {
            return Err(bad(PskFault::Duplicate(first)));
        }
        set.put(record).map_err(|e| bad(e.fault))?;
    }
    Ok(set)
}

fn parse_line(line: &[u8], short: ShortKeys) -> Result<PskRecord, PskFault> {
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let (Some(identity), Some(key)) = (parts.next(), parts.next()) else { return Err(PskFault::NoColon) };
    let identity = Identity::parse(identity)?;
    let key = base16ct::mixed::decode_vec(key.trim_ascii_end());
    let mut record = PskRecord::new(identity, key.map(Zeroizing::new).map_err(|_| PskFault::HexKey)?);
    record.allow_short = short == ShortKeys::Allow && record.key.len() < MIN_KEY_LEN;
    record.check()?;
    Ok(record)
}

/// The line for a key, without the line end.
///
/// # Errors
/// [`PskFault::NoRoom`] if the format cannot hold a property of the key.
pub fn line(record: &PskRecord) -> Result<Zeroizing<String>, PskFault> {
    let excess = [
        ("a hash, only keys for SHA-256", record.hash != HashAlgorithm::Sha256),
        ("times of validity", record.not_before_s.is_some() || record.not_after_s.is_some()),
        ("revocations", record.revoked.is_some()),
        ("device names", record.name.is_some()),
        ("imported keys", record.import.is_some()),
    ];
    match excess.into_iter().find(|(_, there)| *there) {
        Some((what, _)) => Err(PskFault::NoRoom(what)),
        None => Ok(Zeroizing::new(format!("{}:{}", record.identity, *record.key_hex()))),
    }
}

/// The content of a file with these keys.
///
/// # Errors
/// [`PskFault::NoRoom`] if the format cannot hold the hint or a property of a key.
pub fn render(set: &PskSet) -> Result<Zeroizing<String>, PskFault> {
    if set.hint().is_some() {
        return Err(PskFault::NoRoom("an identity hint"));
    }
    let lines: Vec<_> = set.iter().map(line).collect::<Result<_, _>>()?;
    // Reserve room for everything: a string that grows leaves copies of secrets behind.
    let mut text = Zeroizing::new(String::with_capacity(lines.iter().map(|line| line.len() + 1).sum()));
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0f";

    fn fault(text: &str) -> Option<(Option<usize>, PskFault)> {
        parse(text.as_bytes(), ShortKeys::Refuse).err().map(|bad| (bad.line, bad.fault))
    }

    #[test]
    fn reads_and_writes_a_file() {
        let upper = KEY.to_uppercase();
        let text = format!("alice:{KEY}\n\n#616c3a696365:{upper} \r\nü x:{KEY}");
        let set = parse(text.as_bytes(), ShortKeys::Refuse).unwrap();
        let identities: Vec<_> = set.iter().map(|psk| psk.identity.as_bytes()).collect();
        assert_eq!(identities, [&b"alice"[..], b"al:ice", "ü x".as_bytes()]);
        assert!(set.iter().all(|psk| psk.key[..] == (0..16).collect::<Vec<u8>>()[..]));
        assert_eq!(*render(&set).unwrap(), format!("alice:{KEY}\n#616c3a696365:{KEY}\nü x:{KEY}\n"));
    }

    #[test]
    fn names_the_line_and_its_fault() {
        let long = "00".repeat(513);
        for (line, want) in [
            ("alice", PskFault::NoColon),
            (":00", PskFault::IdentityLength(0)),
            ("#6:00", PskFault::HexIdentity),
            ("#zz:00", PskFault::HexIdentity),
            ("alice:0", PskFault::HexKey),
            ("alice:xx", PskFault::HexKey),
            ("a:b:00", PskFault::HexKey),
            ("alice:", PskFault::KeyLength(0)),
            ("alice:0001", PskFault::KeyLength(2)),
            (&format!("alice:{long}"), PskFault::KeyLength(513)),
            (&format!("bob:{KEY}"), PskFault::Duplicate(1)),
        ] {
            assert_eq!(fault(&format!("bob:{KEY}\n\n{line}\n")), Some((Some(3), want)), "{line}");
        }
        assert_eq!(fault(&format!("bob:{KEY}")), None);
        assert_eq!(fault(""), None);
    }

    /// Truncates and changes a file everywhere. If it can still be read, writing and reading it again gives
    /// the same.
    #[test]
    fn damaged_files_are_refused_or_read_consistently() {
        let whole = format!("alice:{KEY}\n\n#616c3a696365:{KEY} \r\nü x:{KEY}\nz:00\n").into_bytes();
        let cuts = (0..whole.len()).map(|len| whole[..len].to_vec());
        let changes = (0..whole.len()).flat_map(|at| {
            let whole = &whole;
            b"\n\r #:0aZ\0\xff".iter().map(move |byte| [&whole[..at], &[*byte], &whole[at + 1..]].concat())
        });
        let mut read = 0;
        for file in cuts.chain(changes) {
            let Ok(set) = parse(&file, ShortKeys::Allow) else { continue };
            read += 1;
            let text = render(&set).unwrap();
            let again = parse(text.as_bytes(), ShortKeys::Allow).unwrap();
            assert_eq!(render(&again).unwrap(), text);
        }
        assert!(read > 100, "{read}");
    }

    #[test]
    fn accepts_short_keys_only_if_allowed() {
        let short = format!("a:{}", "00".repeat(15));
        assert_eq!(fault(&short), Some((Some(1), PskFault::KeyLength(15))));
        assert!(parse(b"a:00", ShortKeys::Allow).is_ok());
        assert!(parse(b"a:", ShortKeys::Allow).is_err());
    }
}
