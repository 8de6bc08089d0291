//! Reads key logs (RFC 9850): each line has a label, the client's random and a secret.

use std::collections::HashMap;

use zeroize::Zeroizing;

use crate::Error;

/// The labels of secrets that decrypt records (RFC 9850 §2). Other labels are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    /// The master secret of TLS 1.2.
    ClientRandom,
    ClientEarlyTraffic,
    ClientHandshakeTraffic,
    ServerHandshakeTraffic,
    ClientTraffic0,
    ServerTraffic0,
}

impl Label {
    fn read(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"CLIENT_RANDOM" => Self::ClientRandom,
            b"CLIENT_EARLY_TRAFFIC_SECRET" => Self::ClientEarlyTraffic,
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Self::ClientHandshakeTraffic,
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => Self::ServerHandshakeTraffic,
            b"CLIENT_TRAFFIC_SECRET_0" => Self::ClientTraffic0,
            b"SERVER_TRAFFIC_SECRET_0" => Self::ServerTraffic0,
            _ => return None,
        })
    }
}

type Secret = Zeroizing<Vec<u8>>;

/// The secrets of a key log. They are wiped on drop.
#[derive(Default)]
pub struct KeyLog {
    secrets: HashMap<([u8; 32], Label), Secret>,
}

impl KeyLog {
    /// Reads a key log. It ignores comments, empty lines, malformed lines and unknown labels.
    ///
    /// # Errors
    /// [`Error::NotAKeyLog`] if `text` has lines, but none has the form of a key log.
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        let mut log = Self::default();
        if log.add(text) { Ok(log) } else { Err(Error::NotAKeyLog) }
    }

    /// Adds the lines of `text`. Returns false if it has lines, but none has the form of a key log.
    pub(crate) fn add(&mut self, text: &[u8]) -> bool {
        let mut lines = 0;
        let mut understood = 0;
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            lines += 1;
            let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let (Some(label), Some(random), Some(secret), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Some(random), Some(secret)) = (hex(random), hex(secret)) else { continue };
            understood += 1;
            if let (Some(label), Ok(random)) = (Label::read(label), random.as_slice().try_into()) {
                self.secrets.insert((random, label), secret);
            }
        }
        understood > 0 || lines == 0
    }

    /// The secret with this label of the connection with this client random.
    pub(crate) fn secret(&self, random: &[u8; 32], label: Label) -> Option<&[u8]> {
        self.secrets.get(&(*random, label)).map(|secret| secret.as_slice())
    }

    /// Whether the log has no usable secret.
    pub(crate) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }
}

fn hex(word: &[u8]) -> Option<Secret> {
    base16ct::mixed::decode_vec(word).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_known_labels_and_ignores_other_lines() {
        let random = "0F".repeat(32);
        let text = format!(
            "# comment\r\n\nCLIENT_RANDOM {random} aa\nSERVER_TRAFFIC_SECRET_0 {random} 0aFF\r\nbroken {random}\n"
        );
        let log = KeyLog::read(text.as_bytes()).unwrap();
        assert_eq!(log.secret(&[0x0f; 32], Label::ServerTraffic0), Some(&[0x0a, 0xff][..]));
        assert_eq!(log.secret(&[0x0f; 32], Label::ClientTraffic0), None);
        assert_eq!(log.secret(&[0; 32], Label::ServerTraffic0), None);
        assert!(KeyLog::read(b"").unwrap().is_empty());
        assert!(matches!(KeyLog::read(b"-----BEGIN CERTIFICATE-----"), Err(Error::NotAKeyLog)));
    }
}
