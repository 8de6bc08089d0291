//! The evidence that a watch keeps against a false registry: the checkpoints that the registry has signed.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dunlin_identity::transparency::SignedCheckpoint;

use super::WatchError;

/// The beginning of the files' names.
const PREFIX: &str = "evidence-";

/// The most files. A thief of the registry's key can sign any number of checkpoints.
const MAX_FILES: usize = 64;

/// The directory of a watch.
pub(super) struct Evidence(PathBuf);

impl Evidence {
    /// Beside this database.
    pub(super) fn beside(database: &Path) -> Self {
        Self(database.parent().unwrap_or(Path::new(".")).to_owned())
    }

    /// Writes why the registry is false, its checkpoint, and the latest one that the watch has verified. Each
    /// checkpoint has one file.
    pub(super) fn keep(&self, error: &WatchError, signed: &SignedCheckpoint, verified: Option<&str>) {
        match self.write(error, signed, verified) {
            Ok(Some(file)) => {
                let file = file.display().to_string();
                tracing::error!(file, "evidence against the registry: keep this file and report it");
            }
            Ok(None) => {}
            Err(fault) => {
                tracing::error!(error = %fault, checkpoint = %signed, "the evidence against the registry cannot be written; make room, or correct the rights of the directory");
            }
        }
    }

    /// The new file; `None` if there is one for this checkpoint, or if there are too many.
    fn write(
        &self,
        error: &WatchError,
        signed: &SignedCheckpoint,
        verified: Option<&str>,
    ) -> io::Result<Option<PathBuf>> {
        let checkpoint = signed.checkpoint();
        let root: String = checkpoint.root.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let path = self.0.join(format!("{PREFIX}{}-{root}.txt", checkpoint.size));
        let names = self.0.read_dir()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if path.try_exists()? || names.filter(|name| name.starts_with(PREFIX)).count() >= MAX_FILES {
            return Ok(None);
        }
        let verified = match verified {
            Some(note) => {
                format!("\nThe watch has verified this checkpoint of the registry before:\n\n{note}")
            }
            None => String::new(),
        };
        let text = format!("{error}\n\nThe registry has signed this checkpoint:\n\n{signed}{verified}");
        // Never a part of a file under this name.
        let mut file = tempfile::Builder::new()
            .prefix(".dunlin-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.0)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(&path)?;
        Ok(Some(path))
    }
}
