//! The files of stores: this user's own, without links of other users.

use std::fs::{File, Metadata, OpenOptions};
#[cfg(feature = "sqlite")]
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Reported for a directory or a pipe.
pub(crate) const NO_FILE: &str = "not a regular file";

/// Reported for a symbolic link that is not followed.
pub const FOREIGN_LINK: &str =
    "a symbolic link of another user, or one that leads nowhere: name the file that it points to";

/// Reported when a store cannot be written for lack of space.
#[cfg(feature = "sqlite")]
pub(crate) const FULL: &str = "its file system is full: make room";

/// The text for an error that means lack of space; `None` for other errors.
pub(crate) fn is_full(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some("its file system is full"),
        io::ErrorKind::QuotaExceeded => Some("the user's disk quota is used up"),
        _ => None,
    }
}

/// The text of an operating system error for a user.
pub(crate) fn why(error: &io::Error) -> String {
    is_full(error).map_or_else(|| error.to_string(), |full| format!("{full}: make room"))
}

/// The length of a trial file: more bytes than SQLite needs to open a database.
#[cfg(feature = "sqlite")]
const TRIAL_LEN: usize = 64 << 10;

/// Writes an unnamed trial file beside `store`. Returns the error text if the file system has no space:
/// SQLite does not always say so.
#[cfg(feature = "sqlite")]
pub(crate) fn lack_of_room(store: &Path) -> Option<String> {
    let trial = tempfile::tempfile_in(directory_of(store));
    let error = trial
        .and_then(|mut file| file.write_all(&vec![0; TRIAL_LEN]).and_then(|()| file.sync_all()))
        .err()?;
    is_full(&error).map(|_| why(&error))
}

/// The directory of `path`.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How many symbolic links are followed: as many as Linux follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Resolves symbolic links, also to missing files. So the link stays, and its target is replaced or set
/// aside. A link of another user remains in the result, which its caller must refuse; root's links are as
/// good as this user's.
pub fn behind_links(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(link) if link.uid() == 0 || is_own(&link) => {}
            _ => break,
        }
        let Ok(to) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    match (fs::canonicalize(directory_of(&at)), at.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => at,
    }
}

/// Whether this process's user owns the file.
pub(crate) fn is_own(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

/// Opens a regular file. Symbolic links are not followed, and a pipe is refused without waiting for its other
/// end.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = options.custom_flags(flags.bits()).open(path);
    let file =
        file.map_err(|error| if path.is_symlink() { io::Error::other(FOREIGN_LINK) } else { error })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other(NO_FILE)) }
}

/// Opens a regular file of this user that other users cannot write. Another user could replace the entries in
/// it. For the rest see [`open_file`].
pub(crate) fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_file(options, path)?;
    let found = file.metadata()?;
    let owner = found.uid();
    let user = geteuid();
    if !is_own(&found) {
        let why = format!(
            "it belongs to user {owner}, not to user {user} of this process: give each a store of its own"
        );
        return Err(io::Error::other(why));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o022 != 0 {
        let why = format!("other users can write it (mode {mode:04o}): chmod go-w {}", path.display());
        return Err(io::Error::other(why));
    }
    Ok(file)
}

/// Whether two paths name the same file, which may be missing.
pub fn are_same(one: &Path, other: &Path) -> bool {
    let found = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let name = |path: &Path| Some((fs::canonicalize(directory_of(path)).ok()?, path.file_name()?.to_owned()));
    match (found(one), found(other)) {
        (None, None) => one == other || name(one).is_some_and(|one| name(other) == Some(one)),
        (one, other) => one == other,
    }
}

/// The path with `ending` appended.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
