//! The table `[listener.cache]`: the handshake cache.

use std::time::Duration;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin_store::StoreUrl;

use super::{Field, FileField, Place, Section, store};

/// The table `[listener.cache]`: the handshake cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The certificates that both sides omit.
    pub mode: CacheMode,
    /// The store in which entries outlive the process: a file, `sqlite:FILE` or a Redis URL. `None`: in
    /// memory.
    pub store: Option<Field<StoreUrl>>,
    /// The key file of the store.
    pub key: Option<FileField>,
    /// How long verified certificates stay valid.
    pub max_age: Duration,
    /// The place of the table.
    pub place: Place,
}

/// Reads the table of a handshake cache.
pub(crate) fn cache(mut section: Section<'_>) -> Option<CacheConfig> {
    let place = section.place().clone();
    let modes =
        [("rfc7924", CacheMode::Rfc7924), ("bithac", CacheMode::Bithac), ("compact", CacheMode::Compact)];
    let mode = section.one_of("mode", &modes);
    let forms = "write the name of a file, sqlite:FILE or redis://HOST:PORT/DB";
    let store = store::store(&mut section, "store", forms);
    let key = section.file("key");
    let max_age = section.duration("max_age").unwrap_or(DEFAULT_MAX_AGE);
    if !section.has("mode") {
        section.missing("mode", "write \"compact\", which saves the most bytes, \"bithac\" or \"rfc7924\"");
    }
    section.end();
    Some(CacheConfig { mode: mode?, store, key, max_age, place })
}
