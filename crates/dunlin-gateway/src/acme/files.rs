//! The files of one authority in a store: the account, certificates with their keys, a lock, and the answers
//! to challenges.
//!
//! Several gateways may share a store. The one that has the lock orders; the others take its certificates,
//! and answer challenges from the same files, because the authority may ask any of them.

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The longest token of a challenge, in bytes. Tokens have at least 128 bits (RFC 8555 §8.1), and Let's
/// Encrypt's 43 bytes.
const MAX_TOKEN: usize = 200;

/// The directory of an authority in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home(PathBuf);

/// The answer to a challenge. Dropping it removes its file.
pub(crate) struct Answer(PathBuf);

impl Drop for Answer {
    fn drop(&mut self) {
        // A file that stays answers no other challenge, because each has a new token.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Home {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Creates the directories, for this user alone.
    ///
    /// # Errors
    /// File system errors; other users may write to a directory that exists.
    pub(crate) fn create(&self) -> io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(self.answers())?;
        // A user who may replace the files controls the names of the certificates.
        for path in [&self.0, &self.answers()] {
            if std::fs::metadata(path)?.permissions().mode() & 0o022 != 0 {
                let what = format!("other users may write to {}; run chmod go-w on it", path.display());
                return Err(io::Error::other(what));
            }
        }
        Ok(())
    }

    fn answers(&self) -> PathBuf {
        self.0.join("challenges")
    }

    fn account(&self) -> PathBuf {
        self.0.join("account.json")
    }

    /// Takes the lock of the directory, which ends with the file. `None` if another gateway has it.
    ///
    /// # Errors
    /// File system errors.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let file = File::options().create(true).truncate(false).write(true).open(self.0.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The account with its key; `None` before the first order.
    ///
    /// # Errors
    /// File system errors.
    pub(crate) fn read_account(&self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        read(&self.account())
    }

    /// # Errors
    /// File system errors.
    pub(crate) fn write_account(&self, content: &[u8]) -> io::Result<()> {
        write(&self.account(), content)
    }

    /// Writes the proof that the account controls the name, or the URL with the token.
    ///
    /// # Errors
    /// File system errors; the authority has sent a token that RFC 8555 does not allow.
    pub(crate) fn answer(&self, key: &Key<'_>, authorization: &str) -> io::Result<Answer> {
        let name =
            key.file_name().ok_or_else(|| io::Error::other("the token of the challenge is malformed"))?;
        let path = self.answers().join(name);
        write(&path, authorization.as_bytes())?;
        Ok(Answer(path))
    }

    /// The answer to a challenge, if an order waits for it.
    pub(crate) fn find_answer(&self, key: &Key<'_>) -> Option<String> {
        let content = read(&self.answers().join(key.file_name()?)).ok()??;
        String::from_utf8(content.to_vec()).ok()
    }
}

/// The name or the token by which a validating authority asks for an answer.
pub(crate) enum Key<'a> {
    /// The server name of its handshake.
    Name(&'a str),
    /// The token at the end of its URL.
    Token(&'a str),
}

impl Key<'_> {
    /// `None` if it cannot be part of a file name. It comes from the network.
    fn file_name(&self) -> Option<String> {
        let (kind, key) = match self {
            Self::Name(name) => ("tls-alpn-01", name.to_ascii_lowercase()),
            // RFC 8555 §8.3: characters of base64url.
            Self::Token(token) => ("http-01", (*token).to_owned()),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        // A name may have 253 bytes, and a file name 255. Longer ones than these are of no use.
        let is_short = (1..=MAX_TOKEN).contains(&key.len());
        (is_short && key.bytes().all(is_allowed)).then(|| format!("{kind}.{key}"))
    }
}

/// Reads a file. `None` if there is none.
///
/// # Errors
/// File system errors, and a file that is too large.
pub(crate) fn read(path: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut content = Zeroizing::new(vec![]);
    file.take(MAX_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE { Err(ErrorKind::FileTooLarge.into()) } else { Ok(Some(content)) }
}

/// Replaces a file atomically, for this user alone.
///
/// # Errors
/// File system errors.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)
        // Without the name of the temporary file.
        .map_err(|error| io::Error::from(error.kind()))?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The directory holds the name, so it has to reach the disk, too.
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_network_stays_in_its_directory() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::new(place.path().join("home"));
        home.create().unwrap();
        std::fs::write(place.path().join("home/secret"), "s").unwrap();
        for text in ["", "../secret", "/etc/passwd", "a/b", "a\0b", &"a".repeat(201)] {
            assert!(home.find_answer(&Key::Token(text)).is_none(), "{text}");
            assert!(home.find_answer(&Key::Name(text)).is_none(), "{text}");
            assert!(home.answer(&Key::Token(text), "x").is_err(), "{text}");
        }
        let answer = home.answer(&Key::Token("a-_B9"), "a-_B9.t").unwrap();
        assert_eq!(home.find_answer(&Key::Token("a-_B9")).as_deref(), Some("a-_B9.t"));
        assert!(
            home.find_answer(&Key::Token("a-_b9")).is_none()
                && home.find_answer(&Key::Name("a-_B9")).is_none()
        );
        drop(answer);
        assert!(home.find_answer(&Key::Token("a-_B9")).is_none());
        let _answer = home.answer(&Key::Name("WWW.example.org"), "n.t").unwrap();
        assert_eq!(home.find_answer(&Key::Name("www.Example.org")).as_deref(), Some("n.t"));
    }

    #[test]
    fn one_gateway_at_a_time_has_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::new(place.path().to_owned());
        let first = home.lock().unwrap();
        assert!(first.is_some() && home.lock().unwrap().is_none());
        drop(first);
        assert!(home.lock().unwrap().is_some());
    }

    #[test]
    fn files_are_for_this_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::new(place.path().join("a/b"));
        home.create().unwrap();
        home.write_account(b"{}").unwrap();
        home.write_account(b"{ }").unwrap();
        assert_eq!(home.read_account().unwrap().unwrap()[..], *b"{ }");
        let mode =
            |path: &str| std::fs::metadata(place.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("a"), mode("a/b"), mode("a/b/account.json")], [0o700, 0o700, 0o600]);
        std::fs::set_permissions(place.path().join("a/b"), Permissions::from_mode(0o770)).unwrap();
        let error = home.create().unwrap_err().to_string();
        assert!(error.contains("other users may write"), "{error}");
    }
}
