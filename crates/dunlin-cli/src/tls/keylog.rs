//! The file of `--keylogfile`, in the format that Wireshark reads (RFC 9850).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dunlin::KeyLog;
use dunlin_command::error::{Error, warn};
use dunlin_command::files;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use zeroize::Zeroizing;

/// The permissions of a key log: its owner reads and writes it.
const MODE: u32 = 0o600;

/// Appends the secrets of all connections to a file.
#[derive(Debug)]
pub(crate) struct KeyLogFile(Mutex<File>);

impl KeyLogFile {
    /// Opens the file, or creates it with mode 0600.
    ///
    /// Refuses a symbolic link, anything but a regular file, and a file that another user owns or may access:
    /// the secrets would go to a reader that this user has not chosen.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // Opening a device may have effects, and opening a pipe waits for its reader.
        if let Ok(found) = fs::symlink_metadata(path) {
            check(path, &found)?;
        }
        // The file may have been replaced since: no flag here follows a link or waits.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(MODE).custom_flags(flags.bits());
        let file = options.open(path).map_err(|e| files::unwritable(path, &e))?;
        let found = file.metadata().map_err(|e| files::unwritable(path, &e))?;
        check(path, &found)?;
        warn(&format!("anyone who reads {} can decrypt these connections", path.display()));
        Ok(Self(Mutex::new(file)))
    }
}

/// Whether secrets may be appended to the file `path`, which is `found`.
fn check(path: &Path, found: &Metadata) -> Result<(), Error> {
    let file = path.display();
    let refused = |why: &str, advice: String| Err(Error::failed(&file, why, advice));
    let mode = found.mode() & 0o7777;
    let kind = found.file_type();
    if kind.is_symlink() {
        return refused("a symbolic link", "give --keylogfile the file itself".into());
    }
    if kind.is_dir() {
        return refused("a directory", "give --keylogfile a file".into());
    }
    if !kind.is_file() {
        return refused("not a regular file", "give --keylogfile a new file".into());
    }
    if found.uid() != geteuid().as_raw() {
        return refused("another user owns it", "give --keylogfile a new file".into());
    }
    if mode & !MODE != 0 {
        let why = format!("its mode {mode:04o} is wider than 0600");
        return refused(&why, format!("remove it, or run chmod 600 {file}"));
    }
    Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn refuses_the_file_of_another_user() {
        let temporary = tempfile::NamedTempFile::new().unwrap();
        assert!(check(temporary.path(), &temporary.as_file().metadata().unwrap()).is_ok());
        let path = if geteuid().is_root() {
            chown(temporary.path(), Some(65534), None).unwrap();
            temporary.path()
        } else {
            Path::new("/etc/passwd")
        };
        let said = KeyLogFile::open(path).unwrap_err().to_string();
        assert!(said.contains("another user owns it; give --keylogfile a new file"), "{said}");
    }
}
