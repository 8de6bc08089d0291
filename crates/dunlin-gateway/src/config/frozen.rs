//! Where associations are while no process runs: the table `[frozen]` of a tunnel, and `[listener.frozen]` of a gateway.

use super::{Field, FileField, Place, Section};

/// The file of frozen associations, and what it needs.
#[derive(Clone, Debug)]
pub struct FrozenConfig {
    /// The file with the associations.
    pub file: FileField,
    /// The store with the IDs of files that may still be thawed: a directory, `sqlite:FILE` or a Redis URL.
    pub ids: Field<String>,
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
        let ids = section.text("ids").map(|ids| {
            let beside = |path: &str| section.resolve(path).display().to_string();
            let Field { value, place } = ids;
            let value = match value.split_once(':') {
                Some(("sqlite", path)) => format!("sqlite:{}", beside(path)),
                Some(("redis" | "redis+unix", _)) => value,
                _ => beside(&value),
            };
            Field { value, place }
        });
        for (name, what) in [
            ("file", "name the file of the associations"),
            ("ids", "name a store of IDs: a directory, sqlite:FILE or redis://HOST:PORT/DB"),
        ] {
            if !section.has(name) {
                section.missing(name, what);
            }
        }
        section.end();
        Some(Self { file: file?, ids: ids?, key, place })
    }
}
