//! The table `[shared]`: the state that several gateways share.

use dunlin_store::StoreUrl;
use dunlin_store::cache::OpenError;

use super::{Fault, Field, FileField, Section, single, store};

/// The table `[shared]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedConfig {
    /// The URL of the Redis, which may contain a password.
    pub store: Field<String>,
    /// The file with the key that all gateways have.
    pub key: FileField,
}

impl SharedConfig {
    /// Reads the table of all files.
    pub(super) fn read(sections: &mut [Section<'_>]) -> Option<Self> {
        let mut section = single(sections, "shared")?;
        let advice = "write the URL of a Redis, as in \"redis://10.0.0.1:6379/0\"";
        let store = store::store(&mut section, "store", advice);
        let key = section.file("key");
        let store = match store {
            Some(Field { value: StoreUrl::Redis(value), place }) => Some(Field { value, place }),
            Some(Field { place, .. }) => {
                section.fault(place.fault("not the URL of a Redis", advice));
                None
            }
            None => None,
        };
        for (name, advice) in
            [("store", advice), ("key", "name a file with 32 random bytes, which all gateways have")]
        {
            if !section.has(name) {
                section.missing(name, advice);
            }
        }
        section.end();
        Some(Self { store: store?, key: key? })
    }

    /// The fault of the key that the error is about.
    pub(crate) fn fault(&self, error: &OpenError) -> Fault {
        let place = if matches!(error, OpenError::Key { .. }) { &self.key.place } else { &self.store.place };
        place.fault(error.to_string(), error.advice())
    }
}
