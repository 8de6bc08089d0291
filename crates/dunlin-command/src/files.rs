//! Reads files with keys and certificates up to a limit, and writes them whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dunlin_pki::{Item, KeyPair};
use dunlin_setup::files::bounded;
use dunlin_store::cache::{FOREIGN_LINK, behind_links};
use dunlin_store::text;
use pki_types::CertificateDer;
use tempfile::Builder;
use zeroize::Zeroizing;

use crate::caller::{self, give_file};
use crate::error::{Error, warn};

/// The maximum size of an input file in bytes: enough for all public roots, or half a million PSKs.
const MAX_FILE: u64 = 64 << 20;

/// The name that stands for stdin.
const STDIN: &str = "-";

/// The users who can read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All users: mode 0644, for certificates and public keys.
    Public,
    /// Only the owner: mode 0600, for private and pre-shared keys.
    Secret,
    /// All users: mode 0644, and the file belongs to the user who called sudo.
    Caller,
}

/// The treatment of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The file stays, and writing fails. The command has no option `--force`.
    Keep,
    /// The file stays, and writing fails. The option `--force` would replace it.
    KeepWithoutForce,
    /// The file is replaced.
    Replace,
}

impl Existing {
    /// Follows the option `--force`.
    pub fn from_force(force: bool) -> Self {
        if force { Self::Replace } else { Self::KeepWithoutForce }
    }
}

/// Reads all of `path`, or of stdin if it is `-`. The content is wiped after use, since it may be a key.
///
/// # Errors
/// The file cannot be read, or is larger than 64 MiB.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let failed = |error: io::Error| {
        let (why, advice) = text::unreadable(&error, "give a file that can be read");
        Error::failed(path.display(), why, advice)
    };
    let content = if path.as_os_str() == STDIN {
        bounded(io::stdin().lock(), 0, MAX_FILE)
    } else {
        dunlin_setup::files::read(path, MAX_FILE)
    };
    content.map_err(failed)
}

/// Returns the text in `path`, or in stdin if it is `-`, as an editor may write it. It is wiped after use.
///
/// # Errors
/// The file cannot be read, or is not text.
pub fn text(path: &Path) -> Result<Zeroizing<String>, Error> {
    text::text(&read(path)?).map_err(|why| Error::failed(path.display(), why, why.advice()))
}

/// Warns if other users can read a file with `secrets` in it, such as "the keys". Pipes are private.
pub fn warn_of_access(path: &Path, secrets: &str) {
    if let Some(mode) = wide_mode(path) {
        let file = path.display();
        warn(&format!("{file}: other users can access {secrets} in it (mode {mode:04o}); chmod 600 {file}"));
    }
}

/// Fails if other users can access a key file. A reader can sign in its owner's name.
///
/// # Errors
/// Other users can read the file.
pub fn check_private(path: &Path) -> Result<(), Error> {
    let file = path.display();
    wide_mode(path).map_or(Ok(()), |mode| {
        let why = format!("other users can access the key in it (mode {mode:04o})");
        Err(Error::failed(
            &file,
            why,
            format!("chmod 600 {file}, and make a new key if one of them has read it"),
        ))
    })
}

/// The mode of a file that other users can access.
fn wide_mode(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Returns the keys and certificates in `path`, at least one.
///
/// # Errors
/// The file cannot be read, or has no such item.
pub fn items(path: &Path) -> Result<Vec<Item>, Error> {
    dunlin_pki::parse(&read(path)?).map_err(|error| Error::in_file(path, &error))
}

/// Returns the certificates in `path`, at least one, and ignores keys beside them.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    items_for(path, "certificate", |item| if let Item::Certificate(der) = item { Some(der) } else { None })
}

/// Returns the items in `path` that `choose` takes, at least one of the `wanted` kind.
///
/// # Errors
/// The file cannot be read, or has no such item.
pub fn items_for<T>(
    path: &Path,
    wanted: &'static str,
    choose: impl FnMut(Item) -> Option<T>,
) -> Result<Vec<T>, Error> {
    dunlin_pki::parse_for(&read(path)?, wanted, choose).map_err(|error| Error::in_file(path, &error))
}

/// Returns the first private key in `path`.
///
/// # Errors
/// The file cannot be read, or has no private key.
pub fn private_key(path: &Path) -> Result<KeyPair, Error> {
    let key = |item| if let Item::PrivateKey(key) = item { Some(key) } else { None };
    let missing = || Error::in_file(path, &dunlin_pki::Error::missing("private key"));
    items_for(path, "private key", key)?.into_iter().next().ok_or_else(missing)
}

/// Fails if one of `paths` exists and may not be replaced, or if two of them are equal. Called before any
/// work, so that no result is half written.
///
/// # Errors
/// A file exists and must stay, or a path is given twice.
pub fn check_new(paths: &[&Path], existing: Existing) -> Result<(), Error> {
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].contains(path) {
            return Err(Error::usage(path.display(), "given for two files", "give each file its own name"));
        }
        if existing != Existing::Replace && path.symlink_metadata().is_ok() {
            return Err(exists(path, existing));
        }
    }
    Ok(())
}

fn exists(path: &Path, existing: Existing) -> Error {
    let advice = match existing {
        Existing::Keep => "choose another name",
        Existing::KeepWithoutForce | Existing::Replace => "choose another name, or add --force to replace it",
    };
    Error::failed(path.display(), "exists already", advice)
}

/// Writes `content` to `path` atomically: even after a crash a reader sees all of it or the previous content.
/// A new file beside it is synced and then takes the name.
///
/// # Errors
/// The file exists and must stay, or it cannot be written.
pub fn write(path: &Path, content: &[u8], access: Access, existing: Existing) -> Result<(), Error> {
    let target = match existing {
        Existing::Replace => target(path)?,
        Existing::Keep | Existing::KeepWithoutForce => path.to_owned(),
    };
    match write_beside(&target, content, access, existing) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path, existing)),
        result => result.map_err(|error| unwritable(path, &error)),
    }
}

/// The file to replace: a link stays, and its target is replaced. Links of other users are not followed, as
/// in stores: in a directory that others can write, they would choose the file.
fn target(path: &Path) -> Result<PathBuf, Error> {
    let target = behind_links(path);
    if target.is_symlink() {
        Err(Error::failed(path.display(), FOREIGN_LINK, "remove the link, or name another file"))
    } else {
        Ok(target)
    }
}

/// Removes the file that [`write()`] put at `path`. A link stays there, too.
///
/// # Errors
/// The file cannot be removed.
pub fn remove(path: &Path) -> Result<(), Error> {
    let removed = fs::remove_file(target(path)?);
    removed.map_err(|error| Error::failed(path.display(), error, "remove it by hand"))
}

/// Fails if a file at `path` could not be written. Called before any work.
///
/// # Errors
/// The file could not be written.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    let target = target(path)?;
    if target.is_dir() {
        return Err(unwritable(path, &io::ErrorKind::IsADirectory.into()));
    }
    let trial = Builder::new().prefix(".dunlin-").tempfile_in(directory_of(&target));
    trial.map(drop).map_err(|error| unwritable(path, &error))
}

/// Makes the directory `path` and its missing parents.
///
/// # Errors
/// The directory cannot be made.
pub fn create_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| not_created(path, error))
}

/// As [`create_directory`], but no other user can enter the directory. Fails if an existing directory lets
/// other users in.
///
/// # Errors
/// The directory cannot be made, or other users can enter it.
pub fn create_private_directory(path: &Path) -> Result<(), Error> {
    create_directory(&directory_of(path))?;
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let created = created.and_then(|()| fs::metadata(path)).map_err(|error| not_created(path, error))?;
    if created.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::failed(
        path.display(),
        "other users can reach it",
        "set its mode to 0700, or give a new directory",
    ))
}

/// As [`create_directory`], but the new directories belong to the user who called sudo.
///
/// # Errors
/// The directory cannot be made.
pub fn create_directory_for_caller(path: &Path) -> Result<(), Error> {
    caller::create_directory(path).map_err(|error| not_created(path, error))
}

fn not_created(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Error::failed(path.display(), "not a directory", "give another directory")
        }
        _ => Error::failed(path.display(), error, "give a directory that can be created"),
    }
}

/// Explains why `path` cannot be written.
pub fn unwritable(path: &Path, error: &io::Error) -> Error {
    let directory = directory_of(path);
    match error.kind() {
        io::ErrorKind::NotFound if !directory.exists() => {
            let why = format!("there is no directory {}", directory.display());
            Error::failed(path.display(), why, "make it first")
        }
        io::ErrorKind::IsADirectory => Error::failed(path.display(), "a directory", "give a file"),
        io::ErrorKind::StorageFull => Error::failed(path.display(), "its file system is full", "make room"),
        io::ErrorKind::QuotaExceeded => {
            Error::failed(path.display(), "the user's disk quota is used up", "make room")
        }
        _ => Error::failed(path.display(), error, "give a path in a directory that can be written to"),
    }
}

fn write_beside(target: &Path, content: &[u8], access: Access, existing: Existing) -> io::Result<()> {
    let directory = directory_of(target);
    let mode = match access {
        Access::Public | Access::Caller => 0o644,
        Access::Secret => 0o600,
    };
    let mut file = Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(&directory)?;
    file.write_all(content)?;
    if access == Access::Caller {
        give_file(file.as_file())?;
    }
    file.as_file().sync_all()?;
    match existing {
        Existing::Keep | Existing::KeepWithoutForce => file.persist_noclobber(target),
        Existing::Replace => file.persist(target),
    }
    .map_err(|error| error.error)?;
    // The name is part of the directory, so the directory must reach the disk as well.
    File::open(&directory)?.sync_all()
}

/// Excludes changes by other runs of this program in the directory of `path` until the result is dropped. The
/// lock is on the directory, because a replaced file takes its lock with it.
///
/// # Errors
/// The path is stdin, or its directory cannot be opened.
pub fn lock_directory_of(path: &Path) -> Result<File, Error> {
    if path.as_os_str() == STDIN {
        return Err(Error::usage("-", "stdin cannot be changed", "name a file"));
    }
    let directory = directory_of(path);
    File::open(&directory)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| unwritable(path, &error))
}

/// The directory of a file; of a bare name `.`.
pub fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn file_is_written_completely_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/deep/key");
        let error = write(&path, b"", Access::Secret, Existing::Keep).unwrap_err();
        assert!(error.to_string().contains("there is no directory"), "{error}");
        create_directory(path.parent().unwrap()).unwrap();
        write(&path, b"one", Access::Secret, Existing::Keep).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"one"[..], 0o600));

        let error = write(&path, b"two", Access::Secret, Existing::Keep).unwrap_err();
        assert!(error.to_string().ends_with("exists already; choose another name"), "{error}");
        let error = write(&path, b"two", Access::Secret, Existing::from_force(false)).unwrap_err();
        assert!(
            error.to_string().ends_with("; choose another name, or add --force to replace it"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"one");

        // Replacing a file that all users could read makes it private.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write(&path, b"three", Access::Secret, Existing::Replace).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"three"[..], 0o600));
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "temporary files are left");
    }

    #[test]
    fn a_link_is_followed_when_its_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let link = dir.path().join("link");
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, b"new", Access::Public, Existing::Replace).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");

        // Only root can make a link of another user; other users meet it in /tmp. Without root, a link that
        // leads nowhere stands for it.
        if lchown(&link, Some(65534), None).is_err() {
            fs::remove_file(&link).unwrap();
            symlink(&link, &link).unwrap();
        }
        for refused in [
            write(&link, b"other", Access::Public, Existing::Replace).unwrap_err(),
            check_writable(&link).unwrap_err(),
            remove(&link).unwrap_err(),
        ] {
            let refused = refused.to_string();
            assert!(
                refused.contains("a symbolic link of another user, or one that leads nowhere"),
                "{refused}"
            );
        }
        assert_eq!(fs::read(&file).unwrap(), b"new");

        let dangling = dir.path().join("dangling");
        symlink(dir.path().join("nowhere"), &dangling).unwrap();
        assert!(check_new(&[&dangling], Existing::Keep).is_err());
        assert!(write(&dangling, b"", Access::Public, Existing::Keep).is_err());
    }

    #[test]
    fn names_a_full_disk_and_the_remedy() {
        for (kind, why) in [
            (io::ErrorKind::StorageFull, "f: its file system is full; make room"),
            (io::ErrorKind::QuotaExceeded, "f: the user's disk quota is used up; make room"),
        ] {
            assert_eq!(unwritable(Path::new("f"), &kind.into()).to_string(), why);
        }
    }

    #[test]
    fn refuses_two_files_of_one_name() {
        let a = Path::new("a");
        let b = Path::new("b");
        assert!(check_new(&[a, b], Existing::Replace).is_ok());
        assert!(check_new(&[a, b, a], Existing::Replace).is_err());
    }

    #[test]
    fn rejects_input_above_the_limit() {
        assert!(bounded(io::repeat(0), 0, MAX_FILE).is_err());
    }
}
