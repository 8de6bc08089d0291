//! The storage of associations while no process runs: the table `[frozen]` of a tunnel, and
//! `[listener.frozen]` of a gateway.

use std::path::{Path, PathBuf};

use dunlin_store::StoreUrl;
use dunlin_store::frozen::are_same;

use super::{Field, FileField, Place, Section, store};

/// The stores of IDs.
const IDS: &str = "name a store of IDs: a directory, sqlite:FILE or redis://HOST:PORT/DB";

/// The file of frozen associations, with its key and store.
#[derive(Clone, Debug)]
pub struct FrozenConfig {
    /// The file with the associations.
    pub file: FileField,
    /// The store with the IDs of files that may still be thawed.
    pub ids: Field<StoreUrl>,
    /// The key file; by default the name of the file and `.key`.
    pub key: Option<FileField>,
    /// The place of the table.
    pub place: Place,
}

impl FrozenConfig {
    /// Reads the table.
    pub(crate) fn read(mut section: Section<'_>) -> Option<Self> {
        let place = section.place().clone();
        let (file, key) = (section.file("file"), section.file("key"));
        let ids = store::store(&mut section, "ids", IDS);
        for (name, what) in [("file", "name the file of the associations"), ("ids", IDS)] {
            if !section.has(name) {
                section.missing(name, what);
            }
        }
        let config = file.zip(ids).map(|(file, ids)| Self { file, ids, key, place });
        if let Some(frozen) = &config
            && frozen.has_shared_paths()
        {
            let what = "it is also the key or the store of IDs";
            section.fault(frozen.file.place.fault(what, "give each a path of its own"));
        }
        section.end();
        config
    }

    /// Whether the file of associations is also the key or the store.
    fn has_shared_paths(&self) -> bool {
        let is_file = |other: &Path| are_same(&self.file.value, other);
        is_file(&self.key_file()) || self.ids.value.path().is_some_and(is_file)
    }

    /// The path of the key file.
    pub(crate) fn key_file(&self) -> PathBuf {
        let mut default = self.file.value.as_os_str().to_owned();
        default.push(".key");
        self.key.as_ref().map_or_else(|| default.into(), |key| key.value.clone())
    }
}
