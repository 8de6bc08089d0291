//! The file of `--keylogfile`, in the format that Wireshark reads (RFC 9850).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dunlin::KeyLog;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::files;

/// Appends the secrets of all connections to a file.
#[derive(Debug)]
pub(crate) struct KeyLogFile(Mutex<File>);

impl KeyLogFile {
    /// Opens the file, or makes it for its owner alone.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|e| files::unwritable(path, &e))?;
        anstream::eprintln!(
            "dunlin: warning: whoever reads {} can read what these connections carry",
            path.display()
        );
        Ok(Self(Mutex::new(file)))
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8; 32], secret: &[u8]) {
        let mut line = Zeroizing::new(String::with_capacity(label.len() + 2 * (32 + secret.len()) + 3));
        line.push_str(label);
        for bytes in [client_random, secret] {
            line.push(' ');
            line.push_str(&Zeroizing::new(base16ct::lower::encode_string(bytes)));
        }
        line.push('\n');
        // A log that cannot be written must not end the connection; the reader misses its line.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}
