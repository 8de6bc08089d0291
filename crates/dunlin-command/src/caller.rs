//! The user who called sudo: real runs need root, but their files belong to this user.

use std::fs::File;
use std::io;
use std::os::unix::fs::{fchown, lchown};
use std::path::Path;

use nix::unistd::Uid;

/// Returns the user and group that called sudo; `None` if this process is not root by sudo.
fn caller() -> Option<(u32, u32)> {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    Uid::effective().is_root().then_some((number("SUDO_UID")?, number("SUDO_GID")?))
}

/// Gives an open file to the user who called sudo. The file must be new and without its final name, because
/// another process could put its own file there.
///
/// # Errors
/// The file system refuses the change of owner.
pub fn give_file(file: &File) -> io::Result<()> {
    caller().map_or(Ok(()), |(user, group)| fchown(file, Some(user), Some(group)))
}

/// Makes the directory `path` and its missing parents; the new ones belong to the user who called sudo.
///
/// # Errors
/// A directory cannot be made, or a file has its name.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<_> =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    std::fs::create_dir_all(path)?;
    if let Some((user, group)) = caller() {
        // If a symbolic link replaces the new directory, its target keeps its owner.
        missing.iter().try_for_each(|path| lchown(path, Some(user), Some(group)))?;
    }
    Ok(())
}
