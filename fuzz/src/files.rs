//! The target `files`: readers of files from others. The first byte chooses the reader.
//!
//! No file makes a reader panic. Every key, certificate and capture that was read can be displayed, and the
//! sums of a capture match its packets.

use dunlin_explain::{KeyLog, explain, explain_hex};
use dunlin_pki::{CertificateInfo, Item, PublicKeyInfo, RevocationListInfo, parse};

/// The number of readers that the first byte chooses from.
pub const READERS: u8 = 4;

/// The longest text for each byte of the input: several fields explain each byte.
const MAX_TEXT: usize = 4096;

/// Runs the target. Returns whether the reader accepted the file.
pub fn run(input: &[u8]) -> bool {
    let Some((choice, bytes)) = input.split_first() else { return false };
    match choice % READERS {
        0 => capture(bytes),
        1 => hex(bytes),
        2 => KeyLog::read(bytes).is_ok(),
        _ => items(bytes),
    }
}

fn capture(file: &[u8]) -> bool {
    let Ok(explanation) = explain(file, None) else { return false };
    let text = explanation.to_string();
    assert!(text.len() <= MAX_TEXT * (file.len() + 16), "{} bytes of text for {}", text.len(), file.len());
    true
}

fn hex(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    explain_hex(text, None).is_ok()
}

fn items(file: &[u8]) -> bool {
    let Ok(items) = parse(file) else { return false };
    for item in &items {
        match item {
            Item::Certificate(der) => drop(CertificateInfo::from_der(der)),
            Item::PublicKey(der) => drop(PublicKeyInfo::from_der(der)),
            Item::RevocationList(der) => drop(RevocationListInfo::from_der(der)),
            Item::PrivateKey(key) => {
                // A key that was read can be written, and is the same key when read again.
                let written = key.to_pkcs8().expect("a key that cannot be written");
                let again = parse(&written).expect("a written key that cannot be read");
                let [Item::PrivateKey(again)] = &again[..] else { panic!("a key became something else") };
                assert_eq!(again.public_key(), key.public_key());
            }
        }
    }
    true
}
